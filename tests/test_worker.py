"""The worker: every planned test gets one verdict, whatever the submission does, and nothing is left."""

from __future__ import annotations

import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grader.course import Lab
from grader.diagnosis import SketchBook, sketch
from grader.process import OUTPUT_BYTES, clean
from grader.running import Job, Judged, run_jobs
from grader.verdicts import one_line
from grader.worker import Judgement, Limits, Stopped, judge, planned_tests
from tests.tiny_course import PLAN, SOLUTION, is_running, make_course

LIMITS = Limits(test_seconds=2, import_seconds=2)

SUBMISSIONS = {
    "syntax error": "def double(x:\n    return x\n",
    "exit at import": "import os\nos._exit(0)\n",
    "hang at import": "while True:\n    pass\n",
    "hang, exit and crash": """
import ctypes, os

def double(x):
    while x:
        pass
    os._exit(0)

def half(x):
    ctypes.string_at(0)
""",
    "recursion and interrupt": """
def double(x):
    return double(x)

def half(x):
    if x == 1.0:
        raise KeyboardInterrupt
    return x / 2
""",
    "flood": """
import os

print("the beginning")
block = b"x" * 1_000_000

def double(x):
    for _ in range(30):
        os.write(1, block)
        os.write(2, block)
        print("y" * 100_000)
    return x + x

def half(x):
    return x / 2
""",
    "endless first step": """
def double(x):
    while True:
        pass

def half(x):
    return x / 2
""",
    "deletes itself": SOLUTION + "\nimport os\nos.remove(__file__)\n",
    "closes its output": SOLUTION + "\nimport sys\nsys.stdout.close()\nsys.stderr.close()\n",
    "empties the modules": SOLUTION + "\nimport sys\nsys.modules.clear()\n",
    "leaves its folder": SOLUTION + "\nimport os\nos.mkdir('x')\nos.chdir('x')\nos.rmdir(os.getcwd())\n",
    "warnings and recursion": SOLUTION
    + "\nimport sys, warnings\nwarnings.simplefilter('error')\nsys.setrecursionlimit(60)\n",
    "interrupts": "raise KeyboardInterrupt\n",
    "looks around": """
import os, subprocess, sys

print("cwd", os.listdir("."), "path", "" in sys.path, "token", os.environ.get("SECRET_TOKEN"))
print("input", sys.stdin.read() == "")
print("left", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""
    + SOLUTION,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_course(tmp_path_factory.mktemp("course")).labs[0]


@pytest.fixture(scope="module")
def judged(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """All submissions, judged two at a time: each process takes a second or two to start."""
    folder = tmp_path_factory.mktemp("submissions")
    os.environ["SECRET_TOKEN"] = "secret"

    def run(name: str) -> Judgement:
        exercise = folder / name / "exercise.py"
        exercise.parent.mkdir()
        exercise.write_text(SUBMISSIONS[name], encoding="utf-8")
        (exercise.parent / "torch.py").write_text("raise RuntimeError('the wrong torch')\n")
        return judge(lab, exercise, 7, LIMITS, PLAN)

    try:
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(SUBMISSIONS, pool.map(run, SUBMISSIONS), strict=True))
    finally:
        del os.environ["SECRET_TOKEN"]


def kinds(judgement: Judgement) -> list[str]:
    return [verdict.verdict for verdict in judgement.verdicts]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_planned_test_has_one_verdict_in_order(judged: dict[str, Judgement], name: str) -> None:
    assert [verdict.test for verdict in judged[name].verdicts] == PLAN
    assert all("\n" not in verdict.message or verdict.verdict == "error" for verdict in judged[name].verdicts)
    assert "\n" not in judged[name].message


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("syntax error", "error", "line 1"),
        ("exit at import", "crashed", "ended itself (exit status 0) while the file was imported"),
        ("hang at import", "time-out", "importing the file took over 2 s"),
    ],
)
def test_a_file_that_cannot_be_imported_loses_all(
    judged: dict[str, Judgement], name: str, kind: str, message: str
) -> None:
    assert kinds(judged[name]) == [kind] * 4
    assert message in judged[name].message
    assert {verdict.message for verdict in judged[name].verdicts} == {judged[name].message}


def test_a_test_that_hangs_or_ends_its_process_is_lost_and_after_three_the_rest(
    judged: dict[str, Judgement],
) -> None:
    judgement = judged["hang, exit and crash"]
    assert kinds(judgement) == ["time-out", "crashed", "crashed", "missing"]
    assert judgement.verdicts[0].message == "stopped after 2 s without a result"
    assert judgement.verdicts[1].message == "the process ended itself (exit status 0)"
    assert os.name != "posix" or "SIGSEGV" in judgement.verdicts[2].message
    assert judgement.verdicts[3].message == "not run: 3 tests before it hung or ended the process"
    assert judgement.message == "3 tests hung or ended the process; the rest was not run"


def test_a_function_without_an_end_costs_its_own_step(judged: dict[str, Judgement]) -> None:
    judgement = judged["endless first step"]
    assert kinds(judgement) == ["time-out", "time-out", "pass", "pass"]
    assert judgement.message == ""


@pytest.mark.parametrize(
    "name",
    ["closes its output", "empties the modules", "warnings and recursion", "interrupts"],
)
def test_a_file_that_spoils_its_own_process_is_no_failure_of_the_grader(
    judged: dict[str, Judgement], name: str
) -> None:
    judgement = judged[name]
    assert set(kinds(judgement)) <= {"crashed", "error", "missing", "pass"}
    assert "pass" not in kinds(judgement) or judgement.message == ""
    assert all(
        len(verdict.message.splitlines()[0]) <= 200 for verdict in judgement.verdicts if verdict.message
    )
    assert "Traceback" not in str([judgement.message, judgement.verdicts])


def test_a_file_that_leaves_a_deleted_folder_is_judged_all_the_same(judged: dict[str, Judgement]) -> None:
    assert "pass" in kinds(judged["leaves its folder"])


def test_a_vanished_exercise_does_not_show_where_it_lay(judged: dict[str, Judgement]) -> None:
    assert judged["deletes itself"].message == "exercise.py: No such file or directory"


def test_an_error_or_interrupt_in_a_test_does_not_end_the_others(judged: dict[str, Judgement]) -> None:
    judgement = judged["recursion and interrupt"]
    assert kinds(judgement) == ["error", "error", "error", "pass"]
    assert "RecursionError" in judgement.verdicts[0].message
    assert "KeyboardInterrupt" in judgement.verdicts[2].message


def test_a_flood_of_output_blocks_nothing_and_is_cut(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["flood"]) == ["pass"] * 4
    assert judged["flood"].output.startswith("the beginning")
    assert OUTPUT_BYTES // 2 < len(judged["flood"].output) <= OUTPUT_BYTES


def test_the_exercise_sees_an_empty_folder_no_secrets_and_no_input(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["looks around"]) == ["pass"] * 4
    lines = judged["looks around"].output.splitlines()
    assert lines[:2] == ["cwd [] path False token None", "input True"]


@pytest.mark.skipif(os.name != "posix", reason="asks for a process by its id")
def test_no_process_is_left(judged: dict[str, Judgement]) -> None:
    words = [line.split() for line in judged["looks around"].output.splitlines()]
    left = [int(one[1]) for one in words if one[0] == "left"]
    assert left
    assert not [pid for pid in left if is_running(pid)]


def test_the_time_of_a_submission_is_limited_in_all(lab: Lab, tmp_path: Path) -> None:
    """Here by a slow import: fine once, too much once a test."""
    exercise = tmp_path / "exercise.py"
    exercise.write_text("import time\ntime.sleep(0.7)\n" + SOLUTION)
    judgement = judge(lab, exercise, 7, Limits(total_seconds=2), PLAN)
    assert set(kinds(judgement)) <= {"pass", "time-out"}
    assert kinds(judgement)[-1] == "time-out"
    assert re.match(r"the submission used up its 2 s \(its import takes \d\.\d s", judgement.message)


def test_a_grader_that_cannot_run_the_tests_says_that_it_failed(tmp_path: Path) -> None:
    lab = make_course(tmp_path / "course").labs[0]
    lab.tests_path.write_text("import a_module_that_is_not_there\n")
    exercise = tmp_path / "exercise.py"
    exercise.write_text(SOLUTION)
    judgement = judge(lab, exercise, 7, LIMITS, PLAN)
    assert kinds(judgement) == ["grader error"] * 4
    assert "the grader failed" in judgement.message


def test_stale_sketches_cost_no_marks(tmp_path: Path) -> None:
    lab = make_course(tmp_path / "course").labs[0]
    lab.sketches.write_text("[]")
    exercise = tmp_path / "exercise.py"
    exercise.write_text(SOLUTION)
    assert kinds(judge(lab, exercise, 7, LIMITS, PLAN)) == ["pass"] * 4


def test_messages_are_bounded() -> None:
    assert clean("a" * 999 + "\n" + "b\x1b") == "a" * 199 + "…\nb "
    assert clean("x\n" * 99).count("x") == 8
    assert one_line("a\n  b " + "c" * 999) == "a b " + "c" * 195 + "…"


def test_a_known_mistake_is_named_though_the_sketches_are_of_another_seed(tmp_path: Path) -> None:
    """And though the solutions, with mistakes.toml, may not be there."""
    lab = make_course(tmp_path / "course").labs[0]
    exercise = tmp_path / "exercise.py"
    exercise.write_text(SOLUTION.replace("x + x", "3 * x"))
    book = SketchBook(0, {"triple": "one x too many"})

    def note(_: int, judged: list[Judged]) -> None:
        for one in judged:
            if one.failure is not None:
                book.add(one.verdict.test, one.failure[0], "triple", sketch(one.failure[1].actual))

    run_jobs(lab, [Job(exercise)], 0, note)
    lab.sketches.write_text(book.dump())
    verdict = judge(lab, exercise, 7, LIMITS, PLAN).verdicts[0]
    assert (verdict.verdict, verdict.mistake) == ("wrong", "triple")
    *_, name, where = verdict.message.splitlines()
    assert (name, where) == ("  looks like: one x too many", "  → README section 1")


def test_the_stop_flag_ends_a_judgement(lab: Lab, tmp_path: Path) -> None:
    exercise = tmp_path / "exercise.py"
    exercise.write_text("while True: pass\n")
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        judge(lab, exercise, 7, Limits(), PLAN, stop=stop)
    assert time.monotonic() - began < 5


def test_the_plan_is_collected_in_file_order(lab: Lab) -> None:
    assert planned_tests(lab, LIMITS) == PLAN
