"""Marks from verdicts: points per step, mandatory steps, what is withheld and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.course import Lab, Step
from grader.verdicts import GRADER_ERROR, PASS, Finding, Verdict, function_name


@dataclass(frozen=True)
class StepMarks:
    """Points of one step; `points` is None while they are withheld (until a person decides, or a rerun)."""

    step: int
    title: str
    points: int | None
    max_points: int


@dataclass(frozen=True)
class Result:
    """Marks of one student for one lab.

    `points` is the sum over the steps, a withheld step counted as 0.
    `message` is the one line about the hand-in itself, "" when all is well.
    """

    student: str
    lab: str
    points: int
    max_points: int
    message: str
    steps: tuple[StepMarks, ...]
    tests: tuple[Verdict, ...]
    seconds: float
    findings: tuple[Finding, ...] = ()


def mark(
    student: str,
    lab: Lab,
    verdicts: Sequence[Verdict],
    message: str = "",
    *,
    withheld: bool = False,
    seconds: float = 0.0,
) -> Result:
    """Give a step its points when every test of the step has passed, else none.

    A step whose only failures are the grader's own is withheld, never 0; so is every step when `withheld`
    is set (a person must first say which file counts). A mandatory step that isn't passed makes the lab's
    points 0, and the message says so.
    """
    states = ["undecided" if withheld else _state(step, verdicts) for step in lab.steps]
    notes = [message] if message else []
    steps = tuple(_step_marks(step, state) for step, state in zip(lab.steps, states, strict=True))
    points = sum(marks.points or 0 for marks in steps)
    undecided = ", ".join(str(marks.step) for marks in steps if marks.points is None)
    if undecided and not withheld:
        notes.append(f"the grader failed in step {undecided} and gives no mark there: grade again")
    for step, state in zip(lab.steps, states, strict=True):
        if step.mandatory and state != "passed":
            notes.append(f"step {step.number} ({step.title}) is mandatory and {state}: no points for the lab")
            points = 0
    text = "; ".join(notes)
    return Result(student, lab.name, points, lab.max_points, text, steps, tuple(verdicts), seconds)


def _state(step: Step, verdicts: Sequence[Verdict]) -> str:
    """Say whether a step is "passed", "not passed", or "undecided" by the grader's own failure."""
    own = [verdict for verdict in verdicts if function_name(verdict.test) in step.tests]
    if {function_name(verdict.test) for verdict in own} != set(step.tests):
        return "not passed"
    kinds = {verdict.verdict for verdict in own}
    if kinds <= {PASS}:
        return "passed"
    return "undecided" if kinds <= {PASS, GRADER_ERROR} else "not passed"


def _step_marks(step: Step, state: str) -> StepMarks:
    points = {"passed": step.points, "not passed": 0, "undecided": None}[state]
    return StepMarks(step.number, step.title, points, step.points)
