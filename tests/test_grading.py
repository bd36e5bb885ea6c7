"""Grading: a class from files to gradebook, only what changed, whatever interrupts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader import engine
from grader.course import Course, CourseError, Lab
from grader.files import sweep_scratch
from grader.gradebook import Gradebook
from grader.grading import GRADEBOOK, Outcome, Progress, grade
from grader.verdicts import GRADER_ERROR, PASS, Finding, Verdict
from grader.worker import Judgement, Limits, Stopped
from tests.tiny_course import PLAN, SOLUTION, STUB, is_running, make_course

ROOT = Path(__file__).resolve().parents[1]
HALF_DONE = SOLUTION.replace("x / 2", "x / 3")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path / "course")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    hand_in(folder, anna=SOLUTION, ben=STUB, cleo=HALF_DONE)
    return folder


def hand_in(folder: Path, **sources: str) -> None:
    for student, source in sources.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / "exercise.py").write_text(source, encoding="utf-8")


class FakeJudge:
    """Stands in for the worker's examiners: passes every test at once, and remembers what it was asked."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.seeds: list[int] = []
        self.closed = 0
        self.answer: Callable[[str, threading.Event], str] = lambda source, stop: PASS

    def __call__(
        self, lab: Lab, seed: int, limits: Limits, *, require_jail: bool, stop: threading.Event
    ) -> FakeExaminer:
        return FakeExaminer(self, seed, stop)


class FakeExaminer:
    def __init__(self, judge: FakeJudge, seed: int, stop: threading.Event):
        self.tests = PLAN
        self._fake, self._seed, self._stop = judge, seed, stop

    def __enter__(self) -> FakeExaminer:
        return self

    def __exit__(self, *how: object) -> None:
        self._fake.closed += 1

    def judge(self, source: str, *, apart: frozenset[int] = frozenset()) -> Judgement:
        self._fake.sources.append(source)
        self._fake.seeds.append(self._seed)
        kind = self._fake.answer(source, self._stop)
        return Judgement(tuple(Verdict(test, kind) for test in PLAN))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeJudge:
    judge = FakeJudge()
    monkeypatch.setattr(engine, "Examiner", judge)
    return judge


def marks(outcome: Outcome) -> dict[str, float]:
    return {result.student: result.points for result in outcome.results}


# --- with real worker processes --------------------------------------------------------------------------


def test_one_and_two_jobs_give_the_same_marks(course: Course, tmp_path: Path) -> None:
    hand_in(
        tmp_path / "class", anna=SOLUTION.replace("return x + x", "raise NotImplementedError"), cleo=HALF_DONE
    )
    one = grade(tmp_path / "class", course, tmp_path / "one", class_seed=5)
    two = grade(tmp_path / "class", course, tmp_path / "two", class_seed=5, jobs=2)
    assert marks(one) == marks(two) == {"anna": 2, "cleo": 3}
    kinds = [[verdict.verdict for verdict in result.tests] for result in one.results]
    assert kinds == [["to do", "to do", "pass", "pass"], ["pass", "pass", "wrong", "wrong"]]
    assert kinds == [[verdict.verdict for verdict in result.tests] for result in two.results]
    assert one.results[1].tests[2].message == two.results[1].tests[2].message


GRADER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from grader.course import load_course
from grader.grading import grade
grade(Path({group!r}), load_course(Path({course!r})), Path({out!r}))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_a_run_leaves_no_process(course: Course, tmp_path: Path, number: int) -> None:
    hand_in(tmp_path / "class", ben="while True: pass\n" + SOLUTION)
    paths = {"root": ROOT, "group": tmp_path / "class", "course": course.root, "out": tmp_path / "out"}
    script = GRADER.format(**{name: str(path) for name, path in paths.items()})
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    wait_until(lambda: len(descendants(process.pid)) >= 2)  # one that compares, one that runs submissions
    started = descendants(process.pid)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (b"KeyboardInterrupt" in stderr) == (number == signal.SIGTERM)
    wait_until(lambda: not any(map(is_running, started)))


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# --- with the worker replaced ----------------------------------------------------------------------------


def test_grading_again_runs_nothing(group: Path, course: Course, tmp_path: Path, fake: FakeJudge) -> None:
    first = grade(group, course, tmp_path / "out")
    assert len(fake.sources) == 3
    assert grade(group, course, tmp_path / "out") == first
    assert len(fake.sources) == 3


def test_only_what_changed_is_run(group: Path, course: Course, tmp_path: Path, fake: FakeJudge) -> None:
    grade(group, course, tmp_path / "out")
    hand_in(group, ben=HALF_DONE + "# more\n", dora=STUB + "# new\n")
    fake.sources.clear()
    outcome = grade(group, course, tmp_path / "out")
    assert fake.sources == [HALF_DONE + "# more\n", STUB + "# new\n"]
    assert list(marks(outcome)) == ["anna", "ben", "cleo", "dora"]


def test_all_is_run_again_when_the_tests_change(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    grade(group, course, tmp_path / "out")
    tests = course.labs[0].tests_path
    tests.write_text(tests.read_text() + "\n# stricter\n")
    grade(group, course, tmp_path / "out")
    assert len(fake.sources) == 6


def test_all_is_run_again_when_the_solution_changes(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    grade(group, course, tmp_path / "out")
    course.labs[0].solution.write_text(SOLUTION + "# other\n")
    grade(group, course, tmp_path / "out")
    assert len(fake.sources) == 6


def test_examiners_are_kept_warm_and_closed(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    (group / "dora").mkdir()
    grade(group, course, tmp_path / "one")
    assert (len(fake.sources), fake.closed) == (3, 1)
    grade(group, course, tmp_path / "two", jobs=2)
    assert fake.closed <= 3


def test_a_policy_that_fails_on_a_file_leaves_it_to_a_person(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    def findings(source: str, lab: Lab) -> tuple[Finding, ...]:
        if source == SOLUTION:
            raise RecursionError("too deep")
        return ()

    anna, ben, _ = grade(group, course, tmp_path / "out", findings=findings).results
    assert [step.points for step in anna.steps] == [None, None]
    assert {(one.line, one.text) for one in anna.findings} == {(0, "RecursionError: too deep")}
    assert ben.points == 5


def test_equal_submissions_are_run_once(group: Path, course: Course, tmp_path: Path, fake: FakeJudge) -> None:
    hand_in(group, dora=SOLUTION)
    outcome = grade(group, course, tmp_path / "out", jobs=2)
    assert len(fake.sources) == 3
    assert marks(outcome) == {"anna": 5, "ben": 5, "cleo": 5, "dora": 5}


def test_the_class_seed_is_drawn_once_kept_and_replaceable(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    drawn = grade(group, course, tmp_path / "out").seed
    assert grade(group, course, tmp_path / "out").seed == drawn
    assert grade(group, course, tmp_path / "other").seed != drawn
    assert grade(group, course, tmp_path / "out", class_seed=drawn).seed == drawn
    with pytest.raises(CourseError, match=r"another class seed.*--reseed"):
        grade(group, course, tmp_path / "out", class_seed=0)
    assert grade(group, course, tmp_path / "out").seed == drawn
    assert grade(group, course, tmp_path / "out", class_seed=0, reseed=True).seed == 0
    assert grade(group, course, tmp_path / "out").seed == 0
    assert len(fake.seeds) == 9
    with Gradebook(tmp_path / "out" / GRADEBOOK) as gradebook:
        assert gradebook.class_seed() == 0
    assert grade(group, course, tmp_path / "out", reseed=True).seed not in (0, drawn)


def test_a_student_without_a_file_has_a_result(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    (group / "dora").mkdir()
    result = grade(group, course, tmp_path / "out").results[3]
    assert (result.student, result.points) == ("dora", 0)
    assert result.message == "nothing was handed in for 01_tiny"
    assert [verdict.verdict for verdict in result.tests] == ["missing"] * 4


def test_a_failure_of_the_grader_is_no_zero_and_is_tried_again(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    def fail(source: str, stop: threading.Event) -> str:
        if source == SOLUTION:
            raise RuntimeError("can't start new thread")
        return PASS

    fake.answer = fail
    anna, ben, _ = grade(group, course, tmp_path / "out").results
    assert {verdict.verdict for verdict in anna.tests} == {GRADER_ERROR}
    assert [step.points for step in anna.steps] == [None, None]
    assert "can't start new thread" in anna.message
    assert ben.points == 5
    fake.answer = lambda source, stop: PASS
    assert marks(grade(group, course, tmp_path / "out"))["anna"] == 5
    assert len(fake.sources) == 4


def test_an_interrupt_keeps_what_was_finished(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    def wait_for_stop(source: str, stop: threading.Event) -> str:
        if source != SOLUTION:
            assert stop.wait(10)
            raise Stopped
        return PASS

    def interrupt(progress: Progress) -> None:
        if progress.result is not None:
            raise KeyboardInterrupt

    fake.answer = wait_for_stop
    with pytest.raises(KeyboardInterrupt):
        grade(group, course, tmp_path / "out", jobs=2, on_progress=interrupt)
    fake.answer = lambda source, stop: PASS
    fake.sources.clear()
    assert marks(grade(group, course, tmp_path / "out")) == {"anna": 5, "ben": 5, "cleo": 5}
    assert fake.sources == [STUB, HALF_DONE]


@pytest.mark.skipif(os.name != "posix", reason="uses SIGHUP")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_signals_are_handled_during_a_run_unless_they_are_ignored(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge, handler: signal.Handlers
) -> None:
    during = []
    before = signal.signal(signal.SIGHUP, handler)  # as nohup does
    try:
        grade(
            group,
            course,
            tmp_path / "out",
            on_progress=lambda _: during.append(signal.getsignal(signal.SIGHUP)),
        )
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (during[0] is handler) == (handler is signal.SIG_IGN)


@pytest.mark.skipif(os.name != "posix", reason="asks for a process by its id")
def test_what_killed_graders_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f"grader-{gone.pid}-x", f"grader-{os.getpid()}-x", "grader-x", f"other-{gone.pid}-x"):
        (tmp_path / name / "inner").mkdir(parents=True)
    sweep_scratch()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"grader-{os.getpid()}-x", "grader-x", f"other-{gone.pid}-x"]
    )


def test_notes_say_what_is_beside_the_class(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    (group / "roster.csv").touch()
    outcome = grade(group, course, tmp_path / "out")
    assert outcome.notes == ("not taken for students: roster.csv",)
    (group / "roster.csv").unlink()
    (group / "cleo").rename(group / "dora")
    outcome = grade(group, course, tmp_path / "out")
    assert outcome.notes == (
        "1 student of earlier runs is kept in the gradebook and left out of the reports: cleo; "
        f"to put them in: grader report {tmp_path / 'out'} --earlier",
    )
    assert grade(group / "anna", course, tmp_path / "out").notes == ()


def test_results_in_the_class_itself_are_no_students(group: Path, course: Course, fake: FakeJudge) -> None:
    first = grade(group, course, group, class_seed=1)
    assert grade(group, course, group) == first


def test_a_long_message_is_cut(course: Course, tmp_path: Path, fake: FakeJudge) -> None:
    hand_in(tmp_path / "class", anna=SOLUTION)
    for number in range(4):
        (tmp_path / "class" / "anna" / f"{number}{'n' * 230}.py").write_text("x = 1")
    (result,) = grade(tmp_path / "class", course, tmp_path / "out").results
    assert 600 <= len(result.message) < 700  # what marking adds comes after it
    assert result.message.endswith("…")


def test_progress_tells_who_is_begun_and_who_is_done(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    seen: list[Progress] = []
    results = grade(group, course, tmp_path / "out", on_progress=seen.append).results
    assert seen == [
        Progress(3, done + finished, student, results[done] if finished else None)
        for done, student in enumerate(["anna", "ben", "cleo"])
        for finished in (0, 1)
    ]
    seen.clear()
    grade(group, course, tmp_path / "out", on_progress=seen.append)
    assert [(one.done, one.result) for one in seen] == [(n + 1, result) for n, result in enumerate(results)]


def test_the_gradebook_holds_what_was_returned(
    group: Path, course: Course, tmp_path: Path, fake: FakeJudge
) -> None:
    outcome = grade(group, course, tmp_path / "out")
    with Gradebook(tmp_path / "out" / GRADEBOOK, create=False) as gradebook:
        assert gradebook.results() == outcome.results


def test_results_that_cannot_be_written_are_one_clear_line(
    group: Path, course: Course, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(CourseError, match="--out"):
        grade(group, course, tmp_path / "out")
