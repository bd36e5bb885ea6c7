"""Checks: what passes, what fails, and what the failure says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from grader.checks import (
    CheckFailed,
    assert_holds,
    assert_matches,
    assert_raises,
    assert_same_trajectory,
    assert_within,
    recording,
)


def message_of(actual: object, expected: object, atol: float = 1e-9, rtol: float = 0.0) -> str:
    with pytest.raises(CheckFailed) as caught:
        assert_matches(actual, lambda: expected, atol=atol, rtol=rtol, what="the result")  # type: ignore[arg-type, return-value]
    return str(caught.value)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.tensor([1.0, math.nan, math.inf]), torch.tensor([1.0, math.nan, math.inf])),
        (nn.Parameter(torch.ones(2)), torch.ones(2)),
        (torch.empty(0, 3), torch.empty(0, 3)),
        (torch.tensor([True, False]), torch.tensor([True, False])),
        (0.5, 0.5),
        (math.nan, math.nan),
        (3, 3),
        (True, True),
        (None, None),
        ([0.1, 0.2], [0.1, 0.2]),
    ],
)
def test_equal_values_pass_with_tolerance_zero(actual: object, expected: object) -> None:
    assert_matches(actual, lambda: expected, atol=0, rtol=0, what="x")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        (torch.ones(2), torch.ones(3), "has shape (2,), expected (3,)"),
        (torch.ones(2), torch.ones(2, 1), "has shape (2,), expected (2, 1)"),
        (
            torch.ones(2),
            torch.ones(2, dtype=torch.float64),
            "has dtype torch.float32, expected torch.float64",
        ),
        (1.0, torch.ones(()), "is a float, expected a torch.Tensor"),
        (torch.ones(()), 1.0, "is a Tensor of shape (), torch.float32, expected a float"),
        (1, 1.0, "is an int, expected a float"),
        (True, 1, "is a bool, expected an int"),
        (None, 1.0, "is None, expected a float"),
        (0.0, None, "is a float, expected None"),
        ([1, 2.0], [1.0, 2.0], "expected a list of 2 floats"),
        ([1.0], [1.0, 2.0], "has 1 items, expected 2"),
        (math.nan, 1.0, "got nan, expected 1"),
        (math.inf, -math.inf, "got inf, expected -inf"),
        (1.0, math.nan, "got 1, expected nan"),
    ],
)
def test_differences_in_kind_are_said_in_words(actual: object, expected: object, said: str) -> None:
    assert said in message_of(actual, expected)


class Pretender(Tensor):
    """A subclass could answer every comparison with yes."""


def test_a_tensor_subclass_is_not_a_tensor() -> None:
    assert "is a Pretender" in message_of(torch.ones(2).as_subclass(Pretender), torch.ones(2))


def test_the_message_names_the_worst_entry() -> None:
    expected = torch.zeros(2, 3, dtype=torch.float64)
    actual = expected.clone()
    actual[1, 2], actual[0, 0] = 2e-3, 1e-3
    lines = message_of(actual, expected, atol=1e-6).splitlines()
    assert lines[0] == "the result: not the expected value"
    assert "largest error 2.0e-03 at [1, 2] (allowed 1.0e-06): got 0.002, expected 0" in lines[1]
    assert "2 of 6 entries are wrong" in lines[2]
    assert len(lines) <= 8


def test_numbers_that_print_alike_get_more_digits() -> None:
    assert "got 1.0000001, expected 1" in message_of(1.0 + 1e-7, 1.0)


def test_tolerance_is_relative_to_the_expected_value_only() -> None:
    """A huge wrong answer must not widen its own tolerance."""
    assert_matches(1.09, lambda: 1.0, atol=0, rtol=0.1, what="x")
    with pytest.raises(CheckFailed):
        assert_matches(1.105, lambda: 1.0, atol=0, rtol=0.1, what="x")
    assert_matches(-5.5, lambda: -5.0, atol=0, rtol=0.11, what="x")
    with pytest.raises(CheckFailed):
        assert_matches(5.5, lambda: -5.5, atol=0, rtol=0.1, what="x")


def test_expected_is_evaluated_after_the_actual_value_exists() -> None:
    order: list[str] = []

    def student() -> float:
        order.append("student")
        return 1.0

    def oracle() -> float:
        order.append("oracle")
        return 1.0

    assert_matches(student(), oracle, atol=0, rtol=0, what="x")
    assert order == ["student", "oracle"]


def test_the_log_keeps_each_check_with_its_ratio() -> None:
    with recording() as log:
        assert_matches(1.05, lambda: 1.0, atol=0.1, rtol=0, what="a")
        assert_holds(True, what="b")
        with pytest.raises(CheckFailed) as caught:
            assert_matches(3.0, lambda: 1.0, atol=0.1, rtol=0, what="c")
    assert [check.what for check in log.checks] == ["a", "b", "c"]
    assert log.checks[0].ratio == pytest.approx(0.5)
    assert log.checks[2].ratio == pytest.approx(20)
    assert caught.value.index == 2


def test_the_log_is_not_reached_by_later_changes_in_place() -> None:
    value = torch.ones(2)
    with recording() as log:
        assert_matches(value, lambda: torch.ones(2), atol=0, rtol=0, what="a")
    value.zero_()
    assert isinstance(log.checks[0].actual, Tensor)
    assert log.checks[0].actual.tolist() == [1.0, 1.0]


def trajectory(*weights: float) -> list[dict[str, Tensor | float]]:
    return [{"update": torch.tensor([w / 10]), "weight": torch.tensor([w])} for w in weights]


def test_a_trajectory_names_the_first_step_and_quantity_that_differ() -> None:
    wrong = trajectory(1.0, 2.0, 3.0)
    wrong[1]["weight"] = torch.tensor([2.5])
    wrong[2]["update"] = torch.tensor([9.0])
    with pytest.raises(CheckFailed) as caught:
        assert_same_trajectory(wrong, lambda: trajectory(1.0, 2.0, 3.0), atol=1e-9, rtol=0, what="AdamW")
    assert str(caught.value).splitlines()[0] == "AdamW: first differs at step 2 of 3, in the weight"
    assert caught.value.check.part == "step 2, weight"


def test_an_equal_trajectory_is_one_check() -> None:
    with recording() as log:
        assert_same_trajectory(
            trajectory(1.0, 2.0), lambda: trajectory(1.0, 2.0), atol=0, rtol=0, what="AdamW"
        )
    assert [check.passed for check in log.checks] == [True]


@pytest.mark.parametrize("value", [0.0, 1.0, torch.tensor(0.5)])
def test_the_ends_of_an_interval_belong_to_it(value: float) -> None:
    assert_within(value, 0.0, 1.0, what="x")


@pytest.mark.parametrize("value", [-0.001, 1.001, math.nan, math.inf, torch.tensor([0.5, 0.5])])
def test_outside_an_interval_fails(value: float) -> None:
    with pytest.raises(CheckFailed, match=r"must lie between 0 and 1|expected one number"):
        assert_within(value, 0.0, 1.0, what="x")


def raising(error: Exception) -> None:
    raise error


def test_assert_raises_tells_what_was_raised_instead() -> None:
    assert_raises(ValueError, lambda: raising(ValueError("no")), what="f")
    with pytest.raises(CheckFailed, match="must raise ValueError, raised nothing"):
        assert_raises(ValueError, lambda: None, what="f")
    with pytest.raises(CheckFailed, match="must raise ValueError, raised KeyError: 'x'"):
        assert_raises(ValueError, lambda: raising(KeyError("x")), what="f")


def test_a_stub_is_no_answer_to_assert_raises() -> None:
    with pytest.raises(NotImplementedError):
        assert_raises(RuntimeError, lambda: raising(NotImplementedError("lab 01, step 1: f")), what="f")


def test_assert_holds_states_the_broken_contract() -> None:
    with pytest.raises(CheckFailed, match="this does not hold: the input is left as it was"):
        assert_holds(False, what="the input is left as it was")
