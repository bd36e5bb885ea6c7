"""Marking: points per step, all tests of a step or none of its points."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import Lab
from grader.decisions import Override, Review
from grader.late import Lateness
from grader.marking import Result, lowers, mark
from grader.verdicts import GRADER_ERROR, MISSING, PASS, TO_DO, VERDICTS, WRONG, Finding, Verdict
from tests.tiny_course import PLAN, make_course


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return make_course(tmp_path).labs[0]


def verdicts(*kinds: str) -> list[Verdict]:
    return [Verdict(test, kind) for test, kind in zip(PLAN, kinds, strict=True)]


def points(result: Result) -> list[float | None]:
    return [step.points for step in result.steps]


def mandatory(lab: Lab, number: int, field: str = "mandatory") -> Lab:
    steps = [step.model_copy(update={field: True}) if step.number == number else step for step in lab.steps]
    return lab.model_copy(update={"steps": tuple(steps)})


ALL = verdicts(PASS, PASS, PASS, PASS)
FOUND = Finding(2, "import outside the list", 3, "import os")


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


def test_a_bonus_step_comes_on_top_of_the_maximum(lab: Lab) -> None:
    bonus = mandatory(lab, 2, "bonus")
    result = mark("anna", bonus, ALL)
    assert (result.points, result.max_points, points(result)) == (5, 3, [3, 2])
    assert mark("anna", bonus, verdicts(PASS, PASS, WRONG, PASS)).points == 3


def test_a_finding_withholds_its_step_and_says_where_to_look(lab: Lab) -> None:
    result = mark("anna", lab, ALL, findings=[FOUND])
    assert (points(result), result.points, result.findings) == ([3, None], 3, (FOUND,))
    assert result.message == "step 2 withheld until a person has looked at line 3 (import outside the list)"


def test_a_step_that_is_not_passed_is_withheld_by_a_finding_too(lab: Lab) -> None:
    assert points(mark("anna", lab, verdicts(PASS, PASS, WRONG, PASS), findings=[FOUND])) == [3, None]


def test_findings_of_one_place_are_said_once(lab: Lab) -> None:
    found = [Finding(step, "no Python", 0, "?") for step in (1, 2)]
    result = mark("anna", lab, ALL, findings=found)
    assert result.message == "step 1, 2 withheld until a person has looked at the file (no Python)"


@pytest.mark.parametrize(
    ("accepted", "kind", "expected"), [(True, PASS, 2), (True, WRONG, 0), (False, PASS, 0), (False, WRONG, 0)]
)
def test_a_review_settles_a_finding(lab: Lab, accepted: bool, kind: str, expected: int) -> None:
    review = Review(2, accepted, "seen it")
    result = mark("anna", lab, verdicts(PASS, PASS, PASS, kind), findings=[FOUND], reviews=[review])
    assert (points(result), result.points, result.findings) == ([3, expected], 3 + expected, ())
    word = "accepted" if accepted else "rejected"
    assert result.message == f"step 2: {word} by a person: seen it"


def test_a_step_is_settled_once_all_its_lines_are_and_the_last_word_counts(lab: Lab) -> None:
    found = [FOUND, Finding(2, "another", 9, "x")]
    seen, gone = Review(2, True, "seen", line=3), Review(2, False, "copied", line=9)
    one = mark("anna", lab, ALL, findings=found, reviews=[seen])
    assert (points(one), one.findings) == ([3, None], (found[1],))
    assert points(mark("anna", lab, ALL, findings=found, reviews=[seen, gone])) == [3, 0]
    after = [seen, gone, Review(2, True, "after all")]
    assert points(mark("anna", lab, ALL, findings=found, reviews=after)) == [3, 2]
    assert points(mark("anna", lab, ALL, findings=found, reviews=[after[2], gone])) == [3, 0]
    assert points(mark("anna", lab, ALL, findings=found, reviews=[Review(1, True, "x", line=3)])) == [3, None]


def test_a_review_of_a_step_without_a_finding_changes_nothing(lab: Lab) -> None:
    assert mark("anna", lab, ALL, reviews=[Review(2, False, "old")]) == mark("anna", lab, ALL)


def test_an_accepted_step_in_which_the_grader_failed_is_still_withheld(lab: Lab) -> None:
    failed = verdicts(PASS, PASS, GRADER_ERROR, PASS)
    result = mark("anna", lab, failed, findings=[FOUND], reviews=[Review(2, True, "fine")])
    assert points(result) == [3, None]
    assert "grade again" in result.message


def test_points_by_hand_replace_those_of_a_step_and_say_so(lab: Lab) -> None:
    result = mark("anna", lab, verdicts(PASS, PASS, WRONG, PASS), overrides=[Override(2, 1.5, "nearly")])
    assert (points(result), result.points) == ([3, 1.5], 4.5)
    assert result.message == "step 2: 1.5 points by hand: nearly"


def test_points_by_hand_settle_findings_withheld_and_mandatory_steps(lab: Lab) -> None:
    given = [Override(2, 1, "seen")]
    result = mark("anna", lab, ALL, findings=[FOUND], overrides=given)
    assert (points(result), result.findings) == ([3, 1], ())
    assert points(mark("anna", lab, [], withheld=True, overrides=given)) == [None, 1]
    strict = mandatory(lab, 2)
    assert mark("anna", strict, verdicts(PASS, PASS, WRONG, PASS), overrides=given).points == 4
    assert mark("anna", strict, ALL, overrides=[Override(2, 0, "copied")]).points == 0


def test_points_by_hand_for_the_lab_are_the_last_word(lab: Lab) -> None:
    late = Lateness(1, 50, "1 day late")
    result = mark("anna", lab, ALL, overrides=[Override(None, 4, "was ill")], lateness=late)
    assert (points(result), result.points) == ([3, 2], 4)
    assert result.message == (
        "1 day late: 50 % taken of 5 points; 4 points for the lab by hand (without: 2.5): was ill"
    )


@pytest.mark.parametrize(("percent", "expected"), [(10, "4.5"), (20, "4"), (33.4, "3.33"), (100, "0")])
def test_lateness_takes_its_part_and_whole_points_stay_ints(lab: Lab, percent: float, expected: str) -> None:
    assert repr(mark("anna", lab, ALL, lateness=Lateness(2, percent, "late")).points) == expected


def test_late_without_a_penalty_is_only_said(lab: Lab) -> None:
    flagged = mark("anna", lab, ALL, lateness=Lateness(0, 0, "handed in late"))
    assert (flagged.points, flagged.message) == (5, "handed in late")
    free = mark("anna", lab, ALL, lateness=Lateness(2, 0, "2 days late"))
    assert (free.points, free.message) == (5, "2 days late: nothing is taken")


def test_a_mark_is_lower_if_the_lab_or_any_step_is_worth_less(lab: Lab) -> None:
    whole, first, second = (
        mark("anna", lab, verdicts(*kinds))
        for kinds in ([PASS] * 4, [PASS, PASS, WRONG, WRONG], [WRONG, PASS, PASS, PASS])
    )
    withheld = mark("anna", lab, ALL, findings=[FOUND])
    assert lowers(whole, first)
    assert lowers(whole, withheld)
    assert lowers(second, first)  # more points, but none in step 2
    assert not lowers(first, whole)
    assert not lowers(whole, whole)
    assert not lowers(withheld, first)  # nothing was there yet
