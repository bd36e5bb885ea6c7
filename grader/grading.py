"""Grade one submission or a class: intake, an engine, marking, gradebook, in that order.

This process alone reads and writes the gradebook; an engine's processes run submissions.
Whatever ends it, the next run does only what is not in the gradebook yet.
"""

from __future__ import annotations

import platform
import secrets
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import FrameType

import grader
from grader.commands import command_line
from grader.course import Course, CourseError, Lab
from grader.differences import Change
from grader.engine import Engine, LocalEngine, WorkItem
from grader.files import sweep_scratch
from grader.gradebook import Basis, Gradebook, attempt_key, source_hash
from grader.intake import Intake, Submission, find_submissions
from grader.late import FILE as COURSE_FILE
from grader.late import lateness, load_policy
from grader.limits import Limits
from grader.marking import Result
from grader.members import earlier_note
from grader.store import AGAIN
from grader.verdicts import Finding, one_line
from grader.worker import Judgement

GRADEBOOK = "gradebook.sqlite"
SEED_BITS = 48
MOST_CHARS = 600  # of what is said about a hand-in as a whole
UNREADABLE = "the policy failed on this file"  # a finding's rule


@dataclass(frozen=True)
class Progress:
    """How far a class is: `student` is the one that was begun, or that is done when there is a `result`."""

    total: int
    done: int
    student: str
    result: Result | None = None


@dataclass(frozen=True)
class Outcome:
    """Marks of every submission that was found, in the order of the intake, and the seed of their inputs."""

    results: list[Result]
    seed: int
    notes: tuple[str, ...] = ()  # lines about what lies in the class, or in the gradebook, beside them


@dataclass(frozen=True)
class Proposal:
    """What a regrade would store, for every submission beside the mark that the gradebook has."""

    outcome: Outcome
    changes: tuple[Change, ...]
    found: Intake

    @property
    def differing(self) -> list[Change]:
        return [change for change in self.changes if change.old != change.new]


OnProgress = Callable[[Progress], None]
FindingsOf = Callable[[str, Lab], tuple[Finding, ...]]
Settle = Callable[[Gradebook, Change], Result]  # decides which marks count: the new ones, or the old


def grade(
    path: Path,
    course: Course,
    out: Path,
    lab: Lab | None = None,
    class_seed: int | None = None,
    jobs: int = 1,
    limits: Limits | None = None,
    on_progress: OnProgress | None = None,
    *,
    reseed: bool = False,
    roster: Path | None = None,
    require_jail: bool = False,
    engine: Engine | None = None,
    findings: FindingsOf | None = None,
    same_class: bool = False,
) -> Outcome:
    """Grade the submissions at `path` into the gradebook in `out`, `jobs` of them at a time.

    The inputs come from `class_seed`; without it from the gradebook's, and the first time from a secret one
    that is drawn. A seed other than the gradebook's is refused, unless `reseed` is set: then it, or without
    it a new secret one, replaces the gradebook's. Only what changed since the last run is run; equal
    submissions are run once. When the grader itself fails on a submission, the verdict says so and the next
    run tries again. A mark whose source did not change is never lowered: it stays, and a note tells.
    `engine` stands in for this machine, `findings` for the policy. What seems to be another class than the
    gradebook's is refused, unless it is said to be the `same_class`.
    Raises CourseError if there is nothing to grade; KeyboardInterrupt ends it, and what is finished stays.
    SIGTERM and SIGHUP raise it as Ctrl-C does, when this runs in the main thread.
    """
    kept: list[Change] = []
    raised: list[Change] = []

    def settle(gradebook: Gradebook, change: Change) -> Result:
        if change.old is not None and change.lowered and change.same_source:
            kept.append(change)
            return change.old
        if change.raised and change.same_source:
            raised.append(change)
        gradebook.store_mark(change.basis, change.new)
        return change.new

    found = _find(path, course, lab, out, roster)
    engine = engine or LocalEngine(jobs, limits or Limits(), require_jail=require_jail)
    with _tidy_end(), Gradebook(out / GRADEBOOK) as gradebook:
        if not same_class:
            gradebook.require_class(found)
        seed = _class_seed(gradebook, class_seed, reseed)
        gradebook.enrol(found)
        coordinator = _Coordinator(course, gradebook, seed, findings or _policy_findings, settle)
        outcome = coordinator.grade_all(found, engine, on_progress or (lambda _: None))
        notes = _gradebook_notes(gradebook, found, out)
    again = command_line("regrade", path, out, lab, roster)
    return replace(outcome, notes=(*outcome.notes, *notes, *_kept_notes(kept, again), *_raised_notes(raised)))


def propose(
    path: Path,
    course: Course,
    out: Path,
    lab: Lab | None = None,
    jobs: int = 1,
    limits: Limits | None = None,
    on_progress: OnProgress | None = None,
    *,
    roster: Path | None = None,
    require_jail: bool = False,
    engine: Engine | None = None,
    findings: FindingsOf | None = None,
    same_class: bool = False,
) -> Proposal:
    """Run what changed, as `grade` does, but replace no mark: return what would be replaced.

    The attempts are in the gradebook then, so that accepting the proposal runs nothing again.
    """
    changes: list[Change] = []

    def settle(gradebook: Gradebook, change: Change) -> Result:
        changes.append(change)
        return change.new

    found = _find(path, course, lab, out, roster)
    engine = engine or LocalEngine(jobs, limits or Limits(), require_jail=require_jail)
    with _tidy_end(), Gradebook(out / GRADEBOOK) as gradebook:
        if not same_class:
            gradebook.require_class(found)
        seed = _class_seed(gradebook, None, False)
        coordinator = _Coordinator(course, gradebook, seed, findings or _policy_findings, settle)
        outcome = coordinator.grade_all(found, engine, on_progress or (lambda _: None))
        notes = (*outcome.notes, *_was_empty(gradebook))
    return Proposal(replace(outcome, notes=notes), tuple(changes), found)


def accept(proposal: Proposal, out: Path) -> None:
    """Replace the marks as proposed, all or none; CourseError if any has changed since it was shown."""
    with Gradebook(out / GRADEBOOK, create=False) as gradebook, gradebook.transaction():
        for change in proposal.changes:
            student, lab = change.new.student, change.new.lab
            now = gradebook.result(student, lab), gradebook.mark(change.basis, change.lab)
            if now != (change.old, change.new):
                raise CourseError(
                    f"the marks of {student} for {lab} changed meanwhile; nothing was replaced: regrade again"
                )
            gradebook.store_mark(change.basis, change.new)
        gradebook.enrol(proposal.found)


def versions() -> dict[str, str]:
    """Return the versions that a verdict depends on."""
    return {
        "grader": grader.__version__,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def key_of(source: str | None, lab: Lab, seed: int) -> str:
    """Return the key of the attempt that this source would get now."""
    return attempt_key(source, f"{lab.name}\n{_test_set(lab)}", seed, versions())


class _Coordinator:
    """One run over the submissions of a class; it alone touches the gradebook."""

    def __init__(self, course: Course, gradebook: Gradebook, seed: int, findings: FindingsOf, settle: Settle):
        self._labs = {lab.name: lab for lab in course.labs}
        self._gradebook, self._seed, self._findings, self._settle = gradebook, seed, findings, settle
        self._versions = versions()
        self._test_sets = {name: f"{name}\n{_test_set(lab)}" for name, lab in self._labs.items()}
        self._policy = load_policy(course)

    def grade_all(self, found: Intake, engine: Engine, report: OnProgress) -> Outcome:
        """Settle what the gradebook knows; run the rest, and store and settle each as soon as it is there."""
        submissions = found.submissions
        results: dict[tuple[str, str], Result] = {}
        work, waiting = self._work(submissions)
        looked: dict[str, tuple[Finding, ...]] = {}

        def finish(item: WorkItem, judgement: Judgement, fresh: bool) -> None:
            owners = waiting.pop(item.key)
            findings = looked.pop(item.key)
            with self._gradebook.transaction():
                counts = self._store(item, judgement) if fresh else judgement
                marked = [self._mark(self._basis(one, item.key, counts, findings)) for one in owners]
            for result in marked:  # told only now that all of it is safe: telling may be interrupted
                results[result.student, result.lab] = result
                report(Progress(len(submissions), len(results), result.student, result))

        def unknown(items: Iterable[WorkItem]) -> Iterator[WorkItem]:
            for item in items:  # asked just before it is run: another grader may have finished it
                known = self._gradebook.attempt(item.key)
                looked[item.key] = look(item, self._findings)
                if known is None:
                    yield set_apart(item, looked[item.key])
                else:
                    finish(item, known, fresh=False)

        def begin(item: WorkItem) -> None:
            report(Progress(len(submissions), len(results), item.student))

        # Closed at once on Ctrl-C, so that no process outlives it.
        with closing(engine.judge_all(unknown(work.values()), begin)) as judged:
            for key, judgement in judged:
                finish(work[key], judgement, fresh=True)
        ordered = [results[one.student, one.lab] for one in submissions]
        notes = (*found.notes, *self._late_notes(submissions))
        return Outcome(ordered, self._seed, notes)

    def _store(self, item: WorkItem, judgement: Judgement) -> Judgement:
        return self._gradebook.store_attempt(
            item.key, item.lab.name, item.seed, self._versions, judgement, item.source
        )

    def _mark(self, basis: Basis) -> Result:
        """The marks that count now."""
        lab, gradebook = self._labs[basis.lab], self._gradebook
        change = Change(
            lab=lab,
            basis=basis,
            before=gradebook.basis(basis.student, basis.lab),
            old=gradebook.result(basis.student, basis.lab),
            new=gradebook.mark(basis, lab),
        )
        return self._settle(gradebook, change)

    def _late_notes(self, submissions: list[Submission]) -> list[str]:
        """What keeps the late policy from being applied to somebody."""
        policy = self._policy
        if policy is None:
            return []
        unknown = [
            one
            for one in submissions
            if one.source is not None and policy.due(one.lab, one.student) and one.submitted is None
        ]
        count = f"{len(unknown)} submissions have" if len(unknown) > 1 else "1 submission has"
        notes = [f"{count} no known time: nothing is late there"] if unknown else []
        here = {one.student for one in submissions}
        for lab in {one.lab for one in submissions} if len(here) > 1 else ():
            strangers = sorted(set(policy.extensions.get(lab, {})) - here)
            if strangers:
                notes.append(f"{COURSE_FILE} extends {lab} for nobody in this class: {', '.join(strangers)}")
        return notes

    def _work(self, submissions: list[Submission]) -> tuple[dict[str, WorkItem], dict[str, list[Submission]]]:
        """The attempts that these submissions need, and whose they are: equal submissions share one."""
        work: dict[str, WorkItem] = {}
        waiting: dict[str, list[Submission]] = {}
        for one in submissions:
            key = attempt_key(one.source, self._test_sets[one.lab], self._seed, self._versions)
            work.setdefault(key, WorkItem(key, self._labs[one.lab], self._seed, one.source, one.student))
            waiting.setdefault(key, []).append(one)
        return work, waiting

    def _basis(
        self, submission: Submission, key: str, judgement: Judgement, findings: tuple[Finding, ...]
    ) -> Basis:
        lab = self._labs[submission.lab]
        late = (submission.submitted, submission.late_flag, submission.submitted_from)
        said = [submission.message, "" if submission.withheld else judgement.message]  # it was no fair run
        return Basis(
            student=submission.student,
            lab=lab.name,
            key=key,
            source_hash=source_hash(submission.source),
            judgement=judgement,
            note=one_line("; ".join(filter(None, said)), MOST_CHARS),
            withheld=submission.withheld,
            findings=findings,
            lateness=lateness(self._policy, lab.name, submission.student, *late),
        )


def _find(path: Path, course: Course, lab: Lab | None, out: Path, roster: Path | None) -> Intake:
    """The submissions at `path`, once there is a place for their marks."""
    found = find_submissions(path, course, lab, out=out, roster=roster)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"{out}: can't write the results there ({error.strerror}); choose another --out"
        ) from None
    sweep_scratch()
    return found


def _class_seed(gradebook: Gradebook, given: int | None, reseed: bool) -> int:
    drawn = secrets.randbits(SEED_BITS) if given is None else given
    if reseed:
        gradebook.set_class_seed(drawn)
        return drawn
    stored = gradebook.agree_on_seed(drawn)
    if given is not None and stored != given:
        raise CourseError(
            f"{gradebook.path} has another class seed: leave --class-seed out to keep it; "
            "with --reseed it is replaced, and all is run again on other inputs"
        )
    return stored


def _gradebook_notes(gradebook: Gradebook, found: Intake, out: Path) -> list[str]:
    """Lines on what the gradebook was, and on whom it keeps who is no longer in this class."""
    earlier = gradebook.earlier() if found.whole else []
    notes = [earlier_note(earlier, f"grader report {shlex.quote(str(out))}")] if earlier else []
    return [*_was_empty(gradebook), *notes]


def _was_empty(gradebook: Gradebook) -> list[str]:
    if not gradebook.was_empty:
        return []
    path = gradebook.path
    return [f"{path} was an empty file, and is a new gradebook now; if it held marks, {AGAIN}"]


def _kept_notes(kept: list[Change], again: str) -> list[str]:
    """Lines on the marks that would be lower though nothing else was handed in."""
    if not kept:
        return []
    count = f"{len(kept)} mark{'s' * (len(kept) > 1)}"
    return [
        f"{count} would be lower for the same source; the old ones stay. To replace them: {again}",
        *(line for change in kept for line in change.lines()),
    ]


def _raised_notes(raised: list[Change]) -> list[str]:
    """Lines on the marks that are higher now though nothing else was handed in."""
    are = "marks are" if len(raised) > 1 else "mark is"
    head = [f"{len(raised)} {are} higher than before for the same source"] if raised else []
    return [*head, *(line for change in raised for line in change.lines())]


def look(item: WorkItem, findings: FindingsOf | None = None) -> tuple[Finding, ...]:
    """The policy's findings; where it fails, a person must look: it must not cost the class."""
    if item.source is None:
        return ()
    try:
        return tuple((findings or _policy_findings)(item.source, item.lab))
    except Exception as error:
        text = one_line(f"{type(error).__name__}: {error}")
        return tuple(Finding(step.number, UNREADABLE, 0, text) for step in item.lab.steps)


def set_apart(item: WorkItem, findings: Iterable[Finding]) -> WorkItem:
    """The work item with the steps that must share no process with others."""
    return replace(item, apart=frozenset(finding.step for finding in findings))


def _policy_findings(source: str, lab: Lab) -> tuple[Finding, ...]:
    from grader.policy import findings  # only a grader of classes needs it

    return findings(source, lab)


@contextmanager
def _tidy_end() -> Iterator[None]:
    """Let the signals that end a process, or close its terminal, end a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # One that somebody handles, or ignores as nohup does, stays as it is.
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _test_set(lab: Lab) -> str:
    """The text that decides a lab's verdicts: tests, manifest, solution, known mistakes, their sketches."""
    mistakes = lab.solution_folder / "mistakes.toml"
    files = [lab.tests_path, lab.folder / "lab.toml", lab.solution, mistakes, lab.sketches]
    return "\0".join(file.read_text(encoding="utf-8") if file.is_file() else "" for file in files)
