"""Grade one submission or a class: intake, worker, marking, gradebook, in that order.

This process alone reads and writes the gradebook; the worker processes run submissions.
Whatever ends it, the next run does only what is not in the gradebook yet.
"""

from __future__ import annotations

import platform
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType

import grader
from grader.course import Course, CourseError, Lab
from grader.files import scratch_folder, sweep_scratch
from grader.gradebook import Gradebook, attempt_key
from grader.intake import Submission, find_submissions
from grader.marking import Result, mark
from grader.verdicts import GRADER_ERROR, MISSING, Verdict, one_line
from grader.worker import Judgement, Limits, Stopped, judge, planned_tests

GRADEBOOK = "gradebook.sqlite"
SEED_BITS = 48


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


OnProgress = Callable[[Progress], None]


def grade(
    path: Path,
    course: Course,
    out: Path,
    lab: Lab | None = None,
    class_seed: int | None = None,
    jobs: int = 1,
    limits: Limits | None = None,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Grade the submissions at `path` into the gradebook in `out`, `jobs` of them at a time.

    The inputs come from `class_seed`; without it from the gradebook's, and the first time from a secret one
    that is drawn. Only what changed since the last run is run; equal submissions are run once. When the
    grader itself fails on a submission, the verdict says so and the next run tries again.
    Raises CourseError if there is nothing to grade; KeyboardInterrupt ends it, and what is finished stays.
    SIGTERM and SIGHUP raise it as Ctrl-C does, when this runs in the main thread.
    """
    found = find_submissions(path, course, lab, out=out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"{out}: can't write the results there ({error.strerror}); choose another --out"
        ) from None
    sweep_scratch()
    with _tidy_end(), Gradebook(out / GRADEBOOK) as gradebook, scratch_folder() as scratch:
        seed = _class_seed(gradebook, class_seed)
        run = _Run(course, gradebook, seed, limits or Limits(), Path(scratch))
        results = run.grade_all(found.submissions, jobs, on_progress or (lambda _: None))
        return Outcome(results, seed, (*found.notes, *_others(gradebook, results)))


def _class_seed(gradebook: Gradebook, given: int | None) -> int:
    if given is None:
        return gradebook.agree_on_seed(secrets.randbits(SEED_BITS))
    gradebook.set_class_seed(given)
    return given


def _others(gradebook: Gradebook, results: list[Result]) -> list[str]:
    """A line on the students of the gradebook who are not in this class, if it is one."""
    here, labs = {result.student for result in results}, {result.lab for result in results}
    others = {student for student, lab in gradebook.students() if lab in labs} - here
    if len(here) < 2 or not others:
        return []
    return [f"also in the gradebook, not in this class: {', '.join(sorted(others))}"]


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


def versions() -> dict[str, str]:
    """Return the versions that a verdict depends on."""
    return {
        "grader": grader.__version__,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


class _Run:
    """One run over the submissions of a class."""

    def __init__(
        self,
        course: Course,
        gradebook: Gradebook,
        seed: int,
        limits: Limits,
        scratch: Path,
    ):
        self._labs = {lab.name: lab for lab in course.labs}
        self._gradebook, self._seed, self._limits = gradebook, seed, limits
        self._scratch = scratch
        self._versions = versions()
        self._test_sets = {name: _test_set(lab) for name, lab in self._labs.items()}
        self._plans: dict[str, list[str]] = {}
        self._stop = threading.Event()

    def grade_all(self, submissions: list[Submission], jobs: int, report: OnProgress) -> list[Result]:
        """Mark what the gradebook knows, run the rest, and store each as soon as it is finished."""
        results: dict[tuple[str, str], Result] = {}
        waiting: dict[str, list[Submission]] = {}  # by key: equal submissions share an attempt

        def finish(submission: Submission, key: str, judgement: Judgement) -> None:
            result = self._mark(submission, judgement)
            self._gradebook.store_result(result, key)
            results[submission.student, submission.lab] = result
            report(Progress(len(submissions), len(results), submission.student, result))

        for submission in submissions:
            key = self._key(submission)
            known = self._gradebook.attempt(key)
            if known is not None:
                finish(submission, key, known)
            else:
                waiting.setdefault(key, []).append(submission)

        def begin(submission: Submission) -> None:
            report(Progress(len(submissions), len(results), submission.student))

        # Closed at once on Ctrl-C, so that no process outlives it.
        with closing(self._judge_all(waiting, jobs, begin)) as judged:
            for key, judgement in judged:
                lab = waiting[key][0].lab
                self._gradebook.store_attempt(key, lab, self._seed, self._versions, judgement)
                for submission in waiting[key]:
                    finish(submission, key, judgement)
        return [results[one.student, one.lab] for one in submissions]

    def _key(self, submission: Submission) -> str:
        test_set = f"{submission.lab}\n{self._test_sets[submission.lab]}"
        return attempt_key(submission.source, test_set, self._seed, self._versions)

    def _mark(self, submission: Submission, judgement: Judgement) -> Result:
        message = one_line("; ".join(filter(None, [submission.message, judgement.message])))
        return mark(
            submission.student,
            self._labs[submission.lab],
            judgement.verdicts,
            message,
            withheld=submission.withheld,
            seconds=judgement.seconds,
        )

    def _judge_all(
        self, waiting: dict[str, list[Submission]], jobs: int, begin: Callable[[Submission], None]
    ) -> Generator[tuple[str, Judgement], None, None]:
        """Run each waiting submission in one of `jobs` threads; yield its judgement when it is there."""
        left = list(waiting.items())
        running: dict[Future[Judgement], str] = {}
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            try:
                while left or running:
                    while left and len(running) < jobs:
                        key, (submission, *_) = left.pop(0)
                        begin(submission)
                        self._prepare(submission)
                        running[pool.submit(self._judge, submission)] = key
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
            finally:
                self._stop.set()  # on Ctrl-C: ends the processes that still run; else there are none

    def _prepare(self, submission: Submission) -> None:
        """Find out a lab's planned tests, once a run."""
        lab = self._labs[submission.lab]
        if lab.name not in self._plans:
            try:
                self._plans[lab.name] = planned_tests(lab, self._limits)
            except RuntimeError as error:
                raise CourseError(f"{error}; mend the lab and grade again") from None

    def _judge(self, submission: Submission) -> Judgement:
        """Run one submission, in a thread of its own; the grader's own failure is a verdict, too."""
        lab, tests = self._labs[submission.lab], self._plans[submission.lab]
        if submission.source is None:
            return Judgement(tuple(Verdict(test, MISSING, "there is no file to test") for test in tests))
        try:
            with tempfile.TemporaryDirectory(prefix="submission-", dir=self._scratch) as folder:
                exercise = Path(folder) / "exercise.py"
                exercise.write_text(submission.source, encoding="utf-8", newline="\n")
                return judge(lab, exercise, self._seed, self._limits, tests, stop=self._stop)
        except Stopped:
            raise
        except Exception as error:  # one submission's trouble must not cost the class
            message = one_line(f"the grader could not run this submission ({type(error).__name__}: {error})")
            return Judgement(tuple(Verdict(test, GRADER_ERROR, message) for test in tests), message)


def _test_set(lab: Lab) -> str:
    """The text that decides a lab's verdicts: its tests, its manifest, its known mistakes, their sketches."""
    files = [lab.tests_path, lab.folder / "lab.toml", lab.solution_folder / "mistakes.toml", lab.sketches]
    return "\0".join(file.read_text(encoding="utf-8") if file.is_file() else "" for file in files)
