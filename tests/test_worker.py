"""The worker: every planned test gets one verdict, whatever the submission does, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import jail
from grader.course import CourseError, Lab
from grader.diagnosis import SketchBook, sketch
from grader.process import OUTPUT_BYTES, clean
from grader.running import Job, Judged, run_jobs
from grader.verdicts import one_line
from grader.worker import Examiner, Judgement, Limits, Stopped
from tests.tiny_course import PLAN, SOLUTION, is_running, make_course

LIMITS = Limits(test_seconds=2, import_seconds=1, cpu_seconds=0.3, files=100)

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
    "sleeps": """
import time

def double(x):
    time.sleep(60)

def half(x):
    return x / 2
""",
    "takes all memory": """
import torch

def double(x):
    return float(torch.zeros(1 << 33).sum())

def half(x):
    return [0] * (1 << 40)
""",
    "fills its folder": """
def double(x):
    for number in range(3000):
        open(f"f{number}", "w").close()
    return x + x

def half(x):
    return x / 2
""",
    "many threads": """
import threading, time

def double(x):
    for _ in range(20_000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

def half(x):
    return x / 2
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
    "deletes itself": SOLUTION + "\nimport os\nif os.path.exists(__file__):\n    os.remove(__file__)\n",
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


class Left:
    print("left", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)


"""
    + SOLUTION,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_course(tmp_path_factory.mktemp("course")).labs[0]


@pytest.fixture(scope="module")
def examiner(lab: Lab) -> Iterator[Examiner]:
    os.environ["SECRET_TOKEN"] = "secret"
    try:
        with Examiner(lab, 7, LIMITS) as examiner:
            yield examiner
    finally:
        del os.environ["SECRET_TOKEN"]


@pytest.fixture(scope="module")
def judged(examiner: Examiner) -> dict[str, Judgement]:
    return {name: examiner.judge(source) for name, source in SUBMISSIONS.items()}


def kinds(judgement: Judgement) -> list[str]:
    return [verdict.verdict for verdict in judgement.verdicts]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_planned_test_has_one_verdict_in_order(judged: dict[str, Judgement], name: str) -> None:
    assert [verdict.test for verdict in judged[name].verdicts] == PLAN
    for verdict in judged[name].verdicts:
        assert "\n" not in verdict.message or verdict.verdict in ("error", "memory")
    assert "\n" not in judged[name].message


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("syntax error", "error", "line 1"),
        ("exit at import", "crashed", "ended itself (exit status 0) while the file was imported"),
        ("hang at import", "time-out", "importing the file took over 1 s, and no test was run"),
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
    words = r"stopped after 0\.\d s of computing; the solution needs [\d.e-]+ s"
    assert re.fullmatch(words, judgement.verdicts[0].message)
    assert judgement.verdicts[1].message == "the process ended itself (exit status 0)"
    assert "SIGSEGV" in judgement.verdicts[2].message
    assert judgement.verdicts[3].message == "not run: 3 tests before it hung or ended the process"
    assert judgement.message == "3 tests hung or ended the process; the rest was not run"


def test_a_test_that_waits_is_stopped_by_the_clock_on_the_wall(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["sleeps"]) == ["time-out", "time-out", "pass", "pass"]
    assert judged["sleeps"].verdicts[0].message == "stopped after 2 s without a result"


def test_memory_is_limited(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["takes all memory"]) == ["memory"] * 4


def test_a_folder_that_is_filled_costs_its_own_tests(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["fills its folder"]) == ["crashed", "crashed", "pass", "pass"]


def test_a_fresh_process_runs_the_file_that_was_handed_in(examiner: Examiner) -> None:
    """Whatever an earlier process of the same submission made of it: what was looked at is what is run."""
    other = SOLUTION.replace("x / 2", "x / 2 + 0 * print('ANOTHER FILE')")
    rewrite = f"open(__file__, 'w').write({other!r}); __import__('os')._exit(0)"
    source = SOLUTION.replace("return x + x", f"exec({rewrite!r})") + "\nprint('this file')\n"
    judgement = examiner.judge(source)
    assert kinds(judgement) == ["crashed", "crashed", "pass", "pass"]
    assert "ANOTHER" not in judgement.output
    assert judgement.output.count("this file") > 3


def test_a_folder_that_the_last_test_fills_costs_that_test_alone(examiner: Examiner) -> None:
    fill = "[open(f'f{n}', 'w').close() for n in range(150)]"
    judgement = examiner.judge(SOLUTION.replace("return x / 2", f"x == 3.0 and {fill}\n    return x / 2"))
    assert kinds(judgement) == ["pass", "pass", "pass", "crashed"]


def test_a_bomb_of_threads_costs_its_own_tests(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["many threads"])[2:] == ["pass", "pass"]
    assert "pass" not in kinds(judged["many threads"])[:2]


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


def test_a_file_that_deletes_itself_loses_nothing(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["deletes itself"]) == ["pass"] * 4


def test_an_error_or_interrupt_in_a_test_does_not_end_the_others(judged: dict[str, Judgement]) -> None:
    judgement = judged["recursion and interrupt"]
    assert kinds(judgement) == ["error", "error", "error", "pass"]
    assert "RecursionError" in judgement.verdicts[0].message
    assert "KeyboardInterrupt" in judgement.verdicts[2].message


def test_a_flood_of_output_blocks_nothing_and_is_cut(judged: dict[str, Judgement]) -> None:
    assert kinds(judged["flood"]) == ["pass"] * 4
    assert judged["flood"].output.startswith("the beginning")
    assert "bytes left out" in judged["flood"].output
    assert OUTPUT_BYTES // 2 < len(judged["flood"].output) <= OUTPUT_BYTES + 100


PRINTED = {"bars": "█" * 60_000, "controls": '\x00\x1b"\\' * 60_000, "pairs": "\N{GRINNING FACE}é" * 30_000}


@pytest.mark.parametrize("text", PRINTED.values(), ids=PRINTED)
def test_whatever_is_printed_reaches_the_record(examiner: Examiner, text: str) -> None:
    """Escaped for the channel, it is many times longer than the pipe."""
    judgement = examiner.judge(f"print({text!a}, flush=True)\n" + SOLUTION)
    assert kinds(judgement) == ["pass"] * 4
    assert judgement.output.startswith(text[:10_000])
    assert judgement.output.endswith(f"{text[-100:]}\n")


def test_the_exercise_sees_its_own_folder_no_secrets_no_input_and_starts_nothing(
    judged: dict[str, Judgement],
) -> None:
    lines = judged["looks around"].output.splitlines()
    assert lines == ["cwd ['exercise.py'] path False token None", "input True"]
    assert kinds(judged["looks around"]) == ["error"] * 4
    assert "PermissionError" in judged["looks around"].message


def test_the_layers_of_the_jail_stand_in_the_judgement(judged: dict[str, Judgement]) -> None:
    assert judged["flood"].layers == jail.available_layers()


def test_the_jail_can_be_required(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "available_layers", lambda: ("limits",))
    with pytest.raises(CourseError, match=r"can't confine submissions fully .missing: landlock, seccomp"):
        Examiner(lab, 7, LIMITS, require_jail=True)


def test_no_process_is_left(lab: Lab) -> None:
    before = _descendants(os.getpid())
    with Examiner(lab, 7, LIMITS) as examiner:
        examiner.judge(SUBMISSIONS["sleeps"].replace("60", "0.01"))
        family = [pid for pid in _descendants(os.getpid()) if pid not in before]
        assert len(family) >= 2  # the trusted process and its server
    time.sleep(0.1)
    assert not [pid for pid in family if is_running(pid)]


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += (task / "children").read_text().split()
    found = [int(child) for child in dict.fromkeys(children)]
    return found + [below for child in found for below in _descendants(child)]


def test_the_time_of_a_submission_is_limited_in_all(lab: Lab) -> None:
    with Examiner(lab, 7, Limits(total_seconds=1)) as examiner:
        judgement = examiner.judge(
            "import time\ntime.sleep(0.7)\n" + SOLUTION.replace("x + x", "time.sleep(0.4)")
        )
    assert kinds(judgement) == ["time-out"] * 4
    assert judgement.message == "the submission used up its 1 s"


def test_a_slow_import_is_paid_once(lab: Lab, examiner: Examiner) -> None:
    began = time.monotonic()
    assert kinds(examiner.judge("import time\ntime.sleep(0.5)\n" + SOLUTION)) == ["pass"] * 4
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("whose", ["examiner", "server"])
def test_a_trusted_process_that_is_killed_is_started_anew(lab: Lab, whose: str) -> None:
    before = _descendants(os.getpid())
    with Examiner(lab, 7, LIMITS) as examiner:
        family = [pid for pid in _descendants(os.getpid()) if pid not in before]
        os.kill(family[0] if whose == "examiner" else family[-1], signal.SIGKILL)
        assert kinds(examiner.judge(SOLUTION)) == ["pass"] * 4


def test_a_lab_that_cannot_be_collected_is_refused_in_one_line(tmp_path: Path) -> None:
    lab = make_course(tmp_path / "course").labs[0]
    lab.tests_path.write_text("import a_module_that_is_not_there\n")
    with pytest.raises(CourseError, match=r"01_tiny can't be graded: .*pytest could not run it"):
        Examiner(lab, 7, LIMITS)


def test_a_lab_whose_solution_fails_marks_nobody(tmp_path: Path) -> None:
    lab = make_course(tmp_path / "course").labs[0]
    lab.solution.write_text(SOLUTION.replace("x / 2", "x / 3"))
    with pytest.raises(CourseError, match=r"solution.py does not pass test_half.1.0. with seed 7"):
        Examiner(lab, 7, LIMITS)


def test_stale_sketches_cost_no_marks(tmp_path: Path) -> None:
    lab = make_course(tmp_path / "course").labs[0]
    lab.sketches.write_text("[]")
    with Examiner(lab, 7, LIMITS) as examiner:
        assert kinds(examiner.judge(SOLUTION)) == ["pass"] * 4


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
    with Examiner(lab, 7, LIMITS) as examiner:
        verdict = examiner.judge(exercise.read_text()).verdicts[0]
    assert (verdict.verdict, verdict.mistake, verdict.check) == ("wrong", "triple", "double")
    *_, name, where = verdict.message.splitlines()
    assert (name, where) == ("  looks like: one x too many", "  → README section 1")


def test_the_stop_flag_ends_a_judgement(lab: Lab) -> None:
    stop = threading.Event()
    with Examiner(lab, 7) as examiner:
        threading.Timer(0.3, stop.set).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            examiner.judge("while True: pass\n", stop=stop)
        assert time.monotonic() - began < 5


def test_the_tests_are_planned_in_file_order(examiner: Examiner) -> None:
    assert examiner.tests == PLAN


def test_a_test_is_replayed_with_what_was_got_and_expected(examiner: Examiner) -> None:
    lines = examiner.replay(SOLUTION.replace("x / 2", "x / 4"), "test_half[3.0]")
    assert lines[0] == "test_half[3.0]: wrong"
    assert lines[-3:] == ["check 1, half: differs", "got:\n0.75", "expected:\n1.5"]
