"""Running a lab in this process: verdicts, seeds, selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.comparison import Check
from grader.course import Lab
from grader.running import Job, Judged, collect_tests, run_jobs, run_tests
from tests.tiny_course import PLAN, make_course


@pytest.fixture
def tiny(tmp_path: Path) -> Lab:
    return make_course(tmp_path).labs[0]


def inputs(lab: Lab, seed: int, tests: list[str] | None = None) -> dict[str, object]:
    """What each test compared with, for the solution."""
    runs: list[Judged] = []
    run_jobs(lab, [Job(lab.solution, tests)], seed, lambda _, judged: runs.extend(judged))
    return {run.verdict.test: [check.expected for check in run.checks] for run in runs}


def test_tests_are_collected_in_order(tiny: Lab) -> None:
    assert collect_tests(tiny) == PLAN


def test_every_test_gets_one_verdict_in_order(tiny: Lab) -> None:
    started: list[str] = []
    results = run_tests(tiny, tiny.solution, 0, on_start=started.append)
    assert [result.test for result in results] == started == PLAN
    assert all(result.passed for result in results)


def test_inputs_depend_on_the_seed_and_the_test_alone(tiny: Lab) -> None:
    once, again, other = inputs(tiny, 0), inputs(tiny, 0), inputs(tiny, 1)
    assert once == again
    assert once["test_double"] != other["test_double"]
    assert inputs(tiny, 0, ["test_double"])["test_double"] == once["test_double"]


def test_a_failure_comes_with_its_check(tiny: Lab, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def double(x):\n    return x + 1\n\ndef half(x):\n    return {}[x]\n")
    runs: list[Judged] = []
    run_jobs(tiny, [Job(wrong)], 0, lambda _, judged: runs.extend(judged))
    by_test = {run.verdict.test: run for run in runs}
    assert by_test["test_double"].verdict.verdict == "wrong"
    assert by_test["test_double"].failure is not None
    index, check = by_test["test_double"].failure
    assert (index, check.what, check.passed) == (0, "double", False)
    assert by_test["test_half[1.0]"].verdict.verdict == "error"
    assert by_test["test_half[1.0]"].failure == (0, Check("", False, 0.0, "raised KeyError"))


def test_a_broken_file_gives_every_test_the_same_line(tiny: Lab, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def double(:\n")
    results = run_tests(tiny, broken, 0)
    assert {(result.verdict, result.message) for result in results} == {
        ("error", "broken.py line 1: invalid syntax: def double(:")
    }
    assert len(results) == len(PLAN)


def test_one_job_leaves_nothing_for_the_next(tiny: Lab, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def double(x):\n    return x\n")
    outcomes: list[list[str]] = []
    run_jobs(
        tiny,
        [Job(wrong, ["test_double"]), Job(tiny.solution), Job(wrong, ["test_half[1.0]"])],
        0,
        lambda _, judged: outcomes.append([one.verdict.verdict for one in judged]),
    )
    assert outcomes == [["wrong"], ["pass"] * 4, ["error"]]
