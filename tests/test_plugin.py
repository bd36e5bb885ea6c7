"""The pytest plugin as a student meets it: what is printed, and the exit status."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import plugin
from grader.diagnosis import SketchBook, sketch
from tests.tiny_course import SOLUTION, Run, make_course

LAB = "labs/01_tiny"


@pytest.fixture(autouse=True)
def exercise(tmp_path: Path) -> Path:
    """The exercise of a tiny course, an untouched stub."""
    return make_course(tmp_path).labs[0].exercise


def test_an_untouched_stub_is_all_to_do_and_not_passed(run_pytest: Run) -> None:
    done = run_pytest(LAB)
    assert done.returncode == 1
    assert "4 to do" in done.stdout
    assert "Traceback" not in done.stdout
    assert "FAILURES" not in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("next: step 1 (Doubling): write double; see labs/01_tiny/README.md section 1")
    assert last.endswith("grader hint 01 1")


def test_the_solution_passes(run_pytest: Run) -> None:
    done = run_pytest(LAB, "--impl", "solution")
    assert done.returncode == 0
    assert "4 passed" in done.stdout
    assert done.stdout.strip().endswith("lab 01 is done: all 2 steps passed")


def test_a_step_in_work_is_the_next_thing_to_do(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("return x / 2", 'raise NotImplementedError("later")'))
    done = run_pytest(LAB)
    assert done.returncode == 1
    assert "2 passed" in done.stdout
    assert "2 to do" in done.stdout
    assert "next: step 2 (Halving): write half" in done.stdout


def test_a_wrong_value_is_explained_in_a_few_lines(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("x / 2", "x / 4"))
    done = run_pytest(LAB)
    failure = done.stdout.split("test_half[3.0] ___")[1].split("=====")[0].strip(" _\n")
    assert failure.splitlines() == [
        "half: not the expected value",
        "  largest error 7.5e-01 (allowed 0.0e+00): got 0.75, expected 1.5",
        "  → README section 2",
    ]
    assert "next: step 2 (Halving): mend test_half[1.0]" in done.stdout


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def double(:\n", "exercise.py line 1: invalid syntax: def double(:"),
        ("import no_such_module\n", "exercise.py line 1: ModuleNotFoundError"),
    ],
)
def test_a_broken_file_is_said_once(run_pytest: Run, exercise: Path, source: str, said: str) -> None:
    exercise.write_text(source)
    done = run_pytest(LAB)
    assert done.returncode == 1
    assert done.stdout.count(said) == 1  # in the last line
    assert "4 broken" in done.stdout


def test_a_broken_file_is_the_next_thing_to_mend(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text("def double(:\n")
    last = run_pytest(LAB).stdout.strip().splitlines()[-1]
    assert last.startswith("next: the file can't be loaded")
    assert last.endswith("mend exercise.py line 1: invalid syntax: def double(:")


def test_a_line_that_fails_is_left_out_and_said_once(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION + "\nassert half(3) == 2\n")
    done = run_pytest(LAB)
    assert done.returncode == 0
    assert "4 passed" in done.stdout
    assert done.stdout.count("left out: exercise.py line 9: AssertionError") == 1


def test_a_check_of_what_is_still_to_do_hides_no_other_step(run_pytest: Run, exercise: Path) -> None:
    stub = 'raise NotImplementedError("later")'
    exercise.write_text(SOLUTION.replace("return x / 2", stub) + "\nprint(half(3))\n")
    done = run_pytest(LAB)
    assert "2 passed" in done.stdout
    assert "2 to do" in done.stdout


def test_a_known_mistake_is_named_without_the_solutions(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("x / 2", "x / 4"))
    lab = exercise.parent
    book = SketchBook(0, {"quartered": "a quarter in place of a half"})
    book.add("test_half[3.0]", 0, "quartered", sketch(0.75))
    (lab / "sketches.json").write_text(book.dump(), encoding="utf-8")
    shutil.rmtree(lab.parents[1] / "solutions")
    assert "looks like: a quarter in place of a half" in run_pytest(LAB).stdout
    assert "looks like" not in run_pytest(LAB, "--seed", "1").stdout  # other inputs, other values


def test_damaged_sketches_cost_the_names_only(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("x / 2", "x / 4"))
    (exercise.parent / "sketches.json").write_text("{")
    done = run_pytest(LAB)
    assert "2 failed, 2 passed" in done.stdout


def test_an_endless_loop_ends_with_a_line_that_says_where(
    run_pytest: Run, exercise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "TEST_SECONDS", 0.3)
    exercise.write_text(SOLUTION.replace("return x / 2", "while True:\n        x += 1"))
    done = run_pytest(LAB)
    assert "2 failed, 2 passed" in done.stdout
    assert "TimedOut: still running after 0.3 s, stopped here" in done.stdout
    assert "exercise.py line" in done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "raise KeyboardInterrupt",
        "import pytest; pytest.exit('all is well')",
        "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})",
        "raise type('E', (Exception,), {'__str__': lambda self: 3})",
        "raise ValueError('x' * 10**6)",
    ],
)
def test_an_exception_made_to_disturb_is_an_ordinary_error(
    run_pytest: Run, exercise: Path, statement: str
) -> None:
    exercise.write_text(SOLUTION.replace("return x / 2", statement))
    done = run_pytest(LAB)
    assert done.returncode == 1
    assert "2 failed, 2 passed" in done.stdout
    assert len(done.stdout) < 10_000


def test_streams_that_an_exercise_replaces_are_put_back(run_pytest: Run, exercise: Path) -> None:
    """A habit from Windows; a dropped wrapper would close the stream for every later test."""
    wrap = "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n"
    exercise.write_text(wrap + SOLUTION)
    done = run_pytest(LAB)
    assert "4 passed" in done.stdout


def test_a_function_that_returns_nothing_is_suspected(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("return x / 2", "x / 2"))
    assert "half: not the expected value\n  is None, expected a float" in run_pytest(LAB).stdout


def test_what_another_step_lacks_is_named(run_pytest: Run, exercise: Path) -> None:
    stub = 'raise NotImplementedError("lab 01, step 1: double (README section 1)")'
    exercise.write_text(
        SOLUTION.replace("return x + x", stub).replace("x / 2", "double(x) / 4 if x > 2 else x / 2")
    )
    last = run_pytest(LAB, "--step", "2").stdout.strip().splitlines()[-1]
    assert last.startswith("next: step 2 (Halving): write double (step 1); see")


def test_what_is_to_be_compiled_stays_as_it_is(run_pytest: Run, exercise: Path) -> None:
    compiled = SOLUTION.replace("def half", "@torch.compile(dynamic=True)\ndef half")
    exercise.write_text("import torch\n" + compiled.replace("def double", "@torch.compile\ndef double"))
    assert "4 passed" in run_pytest(LAB).stdout


def test_a_missing_name_leaves_the_other_steps_running(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text("def double(x):\n    return 2 * x\n")
    done = run_pytest(LAB)
    assert "2 failed, 2 passed" in done.stdout
    assert "exercise.py defines no 'half'; the stub had it (step 2)" in done.stdout


def test_a_wrong_signature_shows_the_call(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("half(x)", "half(x, y)"))
    done = run_pytest(LAB)
    assert "TypeError: half() missing 1 required positional argument: 'y'" in done.stdout
    assert "in the test, line" in done.stdout


def test_an_exception_points_into_the_exercise(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("x / 2", "[][1]"))
    done = run_pytest(LAB)
    assert "exercise.py line 7: IndexError: list index out of range" in done.stdout
    assert "site-packages" not in done.stdout


@pytest.mark.parametrize("call", ["pytest.skip('no')", "pytest.xfail('no')", "exit(0)"])
def test_an_exercise_that_leaves_its_test_has_not_passed_it(
    run_pytest: Run, exercise: Path, call: str
) -> None:
    exercise.write_text("import pytest\n" + SOLUTION.replace("return x / 2", call))
    done = run_pytest(LAB)
    assert done.returncode == 1
    assert "2 failed, 2 passed" in done.stdout


def test_a_warning_of_the_exercise_fails_no_test(run_pytest: Run, exercise: Path) -> None:
    exercise.write_text(SOLUTION.replace("return x / 2", "__import__('warnings').warn('old'); return x / 2"))
    assert run_pytest(LAB).returncode == 0


def test_only_the_wanted_step_runs(run_pytest: Run) -> None:
    for step in ("2", "half"):
        done = run_pytest(LAB, "--impl", "solution", "--step", step)
        assert "2 passed, 2 deselected" in done.stdout
        assert "all that ran has passed; run the whole lab: pytest labs/01_tiny" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--impl", "nowhere.py"), "--impl nowhere.py: no such file"),
        (("--impl", "mistake:x"), "lab 01 has no mistake 'x'"),
        (("--step", "9"), "lab 01 has no step '9'"),
    ],
)
def test_a_wrong_option_is_one_line(run_pytest: Run, options: tuple[str, ...], said: str) -> None:
    done = run_pytest(LAB, *options)
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_path_is_judged_like_the_exercise(run_pytest: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOLUTION)
    assert run_pytest(LAB, "--impl", "mine.py").returncode == 0


def test_global_settings_of_an_exercise_end_with_its_test(run_pytest: Run, exercise: Path) -> None:
    """An exercise that changes torch's defaults must not change what the next test computes."""
    settings = "torch.set_default_dtype(torch.float16)\ntorch.set_grad_enabled(False)\n"
    exercise.write_text("import torch\n" + settings + SOLUTION)
    assert run_pytest(LAB).returncode == 0


def test_verdicts_cross_from_the_processes_of_xdist(tmp_path: Path) -> None:
    """`pytest -n 1`: the tests run in another process than the one that writes the summary."""
    options = ["--noconftest", "-p", "grader.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", LAB, "-n", "1", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "4 to do" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("next: step 1 (Doubling): write double")
