"""What a failed test tells a student: what differs, and no number of the hidden inputs."""

from __future__ import annotations

import re

import pytest

from grader.advice import LACKS
from grader.reports.feedback import for_student, hand_in_line, without_values
from grader.verdicts import (
    CRASHED,
    ERROR,
    FORBIDDEN,
    GRADER_ERROR,
    MEMORY,
    MISSING,
    TIME_OUT,
    TO_DO,
    WRONG,
    Verdict,
)
from tests.report_class import make_result

# Messages that the labs' tests gave for known mistakes, and what is left of their first line.
WRONG_MESSAGES = [
    (
        "AdamW: first differs at step 1 of 25, in the update of parameter 0\n"
        "  largest error 2.5e-04 at [2, 1] (allowed 5.1e-12): got -0.0403404, expected -0.0405904\n"
        "  6 of 6 entries are wrong",
        "AdamW: first differs at step 1 of 25, in the update of parameter 0: the values differ",
    ),
    (
        "weight after one step with lr = wd = 0.5: not the expected value\n"
        "  largest error 1.2e-01 at [1, 1] (allowed 7.0e-12): got 0.1847, expected 0.0597001",
        "weight after one step with lr = wd = …: the values differ",
    ),
    (
        "cross-entropy, mean, smoothing 0.1: not the expected value\n"
        "  largest error 1.5e+00 (allowed 3.9e-09): got 2.25661, expected 3.76102",
        "cross-entropy, mean, smoothing …: the values differ",
    ),
    (
        "mean with ignore_index -1: not the expected value\n  got 1.0, expected nan",
        "mean with ignore_index …: the values differ",
    ),
    (
        "Newton–Schulz with steps 1, coefficients (2.0, -1.5, 0.5), eps 1e-07: not the expected value\n"
        "  has shape (3, 4), expected (4, 3)",
        "Newton–Schulz with steps …, coefficients …, eps …: the shape differs",
    ),
    (
        "cubic Newton–Schulz of a (8, 4) matrix, 40 steps: not the expected value\n"
        "  has dtype torch.float32, expected torch.float64",
        "cubic Newton–Schulz of a … matrix, … steps: the dtype differs",
    ),
    (
        "lr_cosine, all steps of (3, 1, 2, 9): not the expected value\n"
        "  is a list of 20 (float, int), expected a list of 20 floats",
        "lr_cosine, all steps of …: it is of another type than expected",
    ),
    (
        "activations: not the expected value\n  has 19 items, expected 20",
        "activations: the length differs",
    ),
    (
        "exponent of the last std, init kaiming is -1.67876, must lie between -1 and 1",
        "exponent of the last std, init kaiming: not the expected value",
    ),
    (
        "a (3, 2, 1) parameter beside a matrix, with gradient: must raise ValueError, raised RuntimeError: "
        "Expected size for first two dimensions of batch2 tensor to be: [3, 3] but got: [3, 2].",
        "a … parameter beside a matrix, with gradient: must raise ValueError",
    ),
    (
        "an unknown init: must raise ValueError, raised nothing",
        "an unknown init: must raise ValueError",
    ),
    (
        "the norm: has shape (3, 7), expected one number",
        "the norm: not the expected value",
    ),
    (
        "this does not hold: some of 4 million normal samples lie beyond 4 standard deviations",
        "this does not hold: some of … million normal samples lie beyond … standard deviations",
    ),
    (
        "this does not hold: a torch.float32 weight under AdamW keeps its dtype",
        "this does not hold: a torch.float32 weight under AdamW keeps its dtype",
    ),
    ("the norm: is a secret_0_25, expected one number", "the norm: not the expected value"),
    ("AdamW: a dict of 0.25 is no record of its steps", "AdamW: not the expected value"),
    ("AdamW: 3 steps against 25 of the oracle", "AdamW: not the expected value"),
    (
        "the norm: must raise ValueError, raised X: secret: not the expected value",
        "the norm: must raise ValueError",
    ),
    ("[0.25, 0.5, 0.75]", "not the expected result"),
    ("", "not the expected result"),
]  # fmt: skip

ERRORS = [
    (
        "exercise.py line 412: RuntimeError: The size of tensor a (2) must match the size of tensor b (6)\n"
        "  in the test, line 540: optimizer.step()",
        "exercise.py line 412: RuntimeError",
    ),
    (
        "exercise.py line 3: ValueError: tensor([0.25, 0.5, 0.75])",
        "exercise.py line 3: ValueError",
    ),
    (
        "TypeError: lr_cosine() takes 3 positional arguments but 5 were given\n"
        "  in the test, line 12: rate = lab.lr_cosine(3, 1, 2, 9, 0.25)\n"
        "  the stub's signatures must stay as they were",
        "TypeError\nthe stub's signatures must stay as they were",
    ),
    (
        "TypeError: unsupported operand type(s) for *: 'NoneType' and 'float'\n"
        "  is a `return` missing in the exercise?",
        "TypeError\nis a `return` missing in the exercise?",
    ),
    ("exercise.py line 3: X0_25_0_5: 0.25", "exercise.py line 3: an exception"),
    ("Seed2026", "an exception"),
    ("exercise.py line 3: anything else, 0.25", "exercise.py line 3: an error"),
    ("0.25 0.5", "an error"),
    ("exercise.py line 13: '(' was never closed: x = f(2", "exercise.py line 13: '(' was never closed"),
    (
        "exercise.py line 9: from __future__ imports must occur at the beginning of the file: from x",
        "exercise.py line 9: from __future__ imports must occur at the beginning of the file",
    ),
    ("exercise.py line 9: invalid syntax: x = = 2", "exercise.py line 9: invalid syntax"),
    (
        "exercise.py defines no 'lr_wsd'; the stub had it (step 6)",
        "the exercise defines no 'lr_wsd', which the stub had",
    ),
    (
        "exercise.py defines no 'lr_wsd'; it has 'lr_wds'; the stub had it (step 6)",
        "the exercise defines no 'lr_wsd', which the stub had; it has 'lr_wds'",
    ),
    (
        "exercise.py line 9: ForbiddenCall: torch's layer_norm is the finished thing: write it yourself",
        "exercise.py line 9: a call of something that the lab asks you to write yourself",
    ),
    (
        "the exercise skipped its own test, which counts as not passed",
        "the exercise skipped its own test, which counts as not passed",
    ),
]  # fmt: skip


NO_GPU = "there is no GPU here: take the device from the input, for example torch.zeros_like(x)"


@pytest.mark.parametrize(("message", "left"), WRONG_MESSAGES)
def test_a_wrong_value_is_told_in_words(message: str, left: str) -> None:
    assert for_student(Verdict("t", WRONG, message)) == left


@pytest.mark.parametrize(("message", "left"), ERRORS)
def test_an_exception_is_told_by_its_place_and_pythons_own_type(message: str, left: str) -> None:
    assert for_student(Verdict("t", ERROR, message)) == left


@pytest.mark.parametrize(
    "kind", [TO_DO, TIME_OUT, MEMORY, CRASHED, FORBIDDEN, MISSING, GRADER_ERROR, "new word"]
)
def test_other_verdicts_tell_nothing_that_the_exercise_said(kind: str) -> None:
    told = for_student(Verdict("t", kind, "to do: 0.25 secret\nsecret\n  in the test, line 3: secret"))
    assert told
    assert not re.search(r"secret|\d", told)


def test_a_forbidden_call_is_told_with_its_line_alone() -> None:
    message = "exercise.py line 40: ForbiddenCall: 0.25 secret\n  → README section 4"
    assert for_student(Verdict("t", FORBIDDEN, message)) == (
        "exercise.py line 40: a call of something that the lab asks you to write yourself\n→ README section 4"
    )


def test_the_named_mistake_and_where_to_read_stay() -> None:
    message = (
        "w: not the expected value\n  got 1, expected 2\n  looks like: A & B, or C (√2)\n  → README section 4"
    )
    assert for_student(Verdict("t", WRONG, message), {"A & B", "C (√2)", "D"}) == (
        "w: the values differ\nlooks like: A & B, or C (√2)\n→ README section 4"
    )


def test_a_mistake_that_the_lab_does_not_know_is_not_named() -> None:
    message = "ValueError: x\n  looks like: 0.25, or A\n  → README section 0.25 secret"
    assert for_student(Verdict("t", ERROR, message), {"A"}) == "ValueError"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("float32 and log2 of x1", "float32 and log2 of x1"),
        ("-0.5, +3, 1e-5, 1.5E+10, .5, 1_000", "…, …, …, …, …, …"),
        ("a (3, 4) and [1.0, 2.0] of ()", "a … and … of ()"),
        ("inf or nan in infinity", "… or … in infinity"),
        ("step 3 of 25, parameter 12, 40 steps", "step 3 of 25, parameter 12, … steps"),
        ("µ=0.25;σ=(0.5)", "µ=…;σ=…"),
        ("0x1F", "0x1F"),
    ],
)
def test_numbers_go_and_names_stay(text: str, left: str) -> None:
    assert without_values(text) == left


@pytest.mark.parametrize(
    ("message", "note", "told"),
    [
        ("taken from ada.zip: a/exercise.py", "", "taken from ada.zip: a/exercise.py"),
        (
            "taken from x.py; exercise.py line 3: ValueError: tensor([0.25])",
            "exercise.py line 3: ValueError: tensor([0.25])\n  in the test, line 4",
            "taken from x.py; exercise.py line 3: ValueError",
        ),
        (
            "exercise.py line 3: Seed2026: 7",
            "exercise.py line 3: Seed2026: 7",
            "exercise.py line 3: an exception",
        ),
        (
            f"exercise.py line 1: ModuleNotFoundError; it imports `my_{'utils' * 6}`, {LACKS}",
            f"exercise.py line 1: ModuleNotFoundError; it imports `my_{'utils' * 6}`, {LACKS}",
            f"exercise.py line 1: ModuleNotFoundError; it imports `my_{'utils' * 6}`, {LACKS}",
        ),
        (
            f"exercise.py line 9: AssertionError: 0.25; {NO_GPU}",
            f"exercise.py line 9: AssertionError: 0.25; {NO_GPU}",
            f"exercise.py line 9: AssertionError; {NO_GPU}",
        ),
        (
            "no test was run: the file stops Python itself (RuntimeError: 0.25)",
            "",
            "no test was run: the file stops Python itself (RuntimeError",
        ),
    ],
)
def test_the_line_about_the_hand_in_quotes_no_exception(message: str, note: str, told: str) -> None:
    result = make_result("ada", "error error error error" if note else "crashed", message=message, note=note)
    assert hand_in_line(result) == told
