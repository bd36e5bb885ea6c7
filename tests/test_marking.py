"""Marking: points per step, all tests of a step or none of its points."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import Lab
from grader.marking import Result, mark
from grader.verdicts import GRADER_ERROR, MISSING, PASS, TO_DO, VERDICTS, WRONG, Verdict
from tests.tiny_course import PLAN, make_course


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return make_course(tmp_path).labs[0]


def verdicts(*kinds: str) -> list[Verdict]:
    return [Verdict(test, kind) for test, kind in zip(PLAN, kinds, strict=True)]


def points(result: Result) -> list[int | None]:
    return [step.points for step in result.steps]


def mandatory(lab: Lab, number: int) -> Lab:
    steps = [
        step.model_copy(update={"mandatory": True}) if step.number == number else step for step in lab.steps
    ]
    return lab.model_copy(update={"steps": tuple(steps)})


def test_all_tests_passed_give_all_points(lab: Lab) -> None:
    result = mark("anna", lab, verdicts(PASS, PASS, PASS, PASS), "a note", seconds=1.5)
    assert (result.student, result.lab, result.points, result.max_points) == ("anna", "01_tiny", 5, 5)
    assert (result.message, result.seconds, points(result)) == ("a note", 1.5, [3, 2])
    assert [step.max_points for step in result.steps] == [3, 2]


@pytest.mark.parametrize("kind", [kind for kind in VERDICTS if kind not in (PASS, GRADER_ERROR)])
def test_one_test_not_passed_costs_its_step_and_no_other(lab: Lab, kind: str) -> None:
    result = mark("anna", lab, verdicts(PASS, PASS, PASS, kind))
    assert (points(result), result.points, result.message) == ([3, 0], 3, "")


def test_a_test_without_a_verdict_costs_its_step(lab: Lab) -> None:
    assert points(mark("anna", lab, verdicts(PASS, PASS, PASS, PASS)[1:])) == [0, 2]
    assert points(mark("anna", lab, [])) == [0, 0]


def test_the_graders_own_failure_withholds_a_step_and_says_so(lab: Lab) -> None:
    result = mark("anna", lab, verdicts(GRADER_ERROR, PASS, PASS, PASS))
    assert (points(result), result.points) == ([None, 2], 2)
    assert "grade again" in result.message


def test_a_step_that_failed_anyway_is_not_withheld(lab: Lab) -> None:
    assert points(mark("anna", lab, verdicts(GRADER_ERROR, WRONG, PASS, PASS))) == [0, 2]


def test_a_mandatory_step_not_passed_costs_the_lab_and_says_so(lab: Lab) -> None:
    result = mark("anna", mandatory(lab, 2), verdicts(PASS, PASS, TO_DO, PASS), "a note")
    assert (points(result), result.points) == ([3, 0], 0)
    assert result.message == "a note; step 2 (Halving) is mandatory and not passed: no points for the lab"


def test_a_mandatory_step_that_passed_costs_nothing(lab: Lab) -> None:
    result = mark("anna", mandatory(lab, 2), verdicts(WRONG, PASS, PASS, PASS))
    assert (result.points, result.message) == (2, "")


def test_a_mandatory_step_worth_nothing_still_costs_the_lab(lab: Lab) -> None:
    free = mandatory(lab, 2)
    free = free.model_copy(update={"steps": (free.steps[0], free.steps[1].model_copy(update={"points": 0}))})
    assert mark("anna", free, verdicts(PASS, PASS, PASS, WRONG)).points == 0


def test_a_withheld_submission_has_no_marks_rather_than_zeros(lab: Lab) -> None:
    result = mark("anna", lab, verdicts(*[MISSING] * 4), "several files", withheld=True)
    assert (points(result), result.points, result.message) == ([None, None], 0, "several files")
