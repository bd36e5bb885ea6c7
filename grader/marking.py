"""Marks from verdicts: points per step, mandatory steps, lateness, what is withheld and why.

What a person decided comes on top: reviews of findings and points by hand. Nothing else changes a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.course import Lab, Step
from grader.decisions import Override, Review
from grader.late import Lateness
from grader.verdicts import GRADER_ERROR, PASS, Finding, Verdict, function_name

MOST_PLACES = 3  # findings that a message names


@dataclass(frozen=True)
class StepMarks:
    """Points of one step; `points` is None while they are withheld (until a person decides, or a rerun)."""

    step: int
    title: str
    points: float | None
    max_points: int


@dataclass(frozen=True)
class Result:
    """Marks of one student for one lab.

    `points` is the sum over the steps, a withheld step counted as 0, less what lateness takes; a whole
    number is an int. `max_points` leaves bonus steps out, so `points` may be more.
    `message` is the one line about the hand-in itself, "" when all is well.
    `findings` are those that nobody has decided yet; they withhold their steps.
    """

    student: str
    lab: str
    points: float
    max_points: int
    message: str
    steps: tuple[StepMarks, ...]
    tests: tuple[Verdict, ...]
    seconds: float
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _Outcome:
    """What becomes of one step, and why it is not (only) what its tests say."""

    step: Step
    state: str  # "passed", "not passed" or "undecided"
    points: float | None
    note: str = ""
    failed: bool = False  # undecided by the grader's own failure
    findings: tuple[Finding, ...] = ()  # undecided by these


def lowers(old: Result, new: Result) -> bool:
    """Whether the lab or any step would be worth less than before; what is withheld is worth 0."""
    points = {step.step: step.points or 0 for step in new.steps}
    return new.points < old.points or any(points.get(step.step, 0) < (step.points or 0) for step in old.steps)


def number(points: float) -> float:
    """Points as they are written: rounded to two decimals, a whole number as an int."""
    rounded = round(points, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def mark(
    student: str,
    lab: Lab,
    verdicts: Sequence[Verdict],
    message: str = "",
    *,
    withheld: bool = False,
    seconds: float = 0.0,
    findings: Sequence[Finding] = (),
    reviews: Sequence[Review] = (),
    overrides: Sequence[Override] = (),
    lateness: Lateness | None = None,
) -> Result:
    """Give a step its points when every test of the step has passed, else none.

    A step is withheld, never 0, while it has a finding that no review has decided, if its only failures are
    the grader's own, and when `withheld` is set (a person must first say which file counts). A rejected step
    is worth 0. Points by hand replace a step's; a mandatory step that isn't passed, and got none by hand,
    makes the lab's points 0. Then lateness takes its part; points by hand for the whole lab replace the sum.
    The message says all of this.
    """
    by_hand = {override.step: override for override in overrides}
    outcomes = [
        _outcome(
            step,
            verdicts,
            withheld,
            tuple(one for one in findings if one.step == step.number),
            reviews,
            by_hand.get(step.number),
        )
        for step in lab.steps
    ]
    points = sum(outcome.points or 0 for outcome in outcomes)
    notes = [message, *_notes(outcomes)]
    missed = [outcome for outcome in outcomes if outcome.step.mandatory and outcome.state != "passed"]
    for outcome in missed:
        where = f"step {outcome.step.number} ({outcome.step.title})"
        notes.append(f"{where} is mandatory and {outcome.state}: no points for the lab")
        points = 0
    if lateness is not None:
        notes.append(_late_note(lateness, points))
        points *= 1 - lateness.percent / 100
    whole = by_hand.get(None)
    if whole is not None:
        given = f"{number(whole.points)} points for the lab by hand"
        notes.append(f"{given} (without: {number(points)}): {whole.reason}")
        points = whole.points
    return Result(
        student=student,
        lab=lab.name,
        points=number(points),
        max_points=lab.max_points,
        message="; ".join(filter(None, notes)),
        steps=tuple(_step_marks(outcome) for outcome in outcomes),
        tests=tuple(verdicts),
        seconds=seconds,
        findings=tuple(one for outcome in outcomes for one in outcome.findings),
    )


def _outcome(
    step: Step,
    verdicts: Sequence[Verdict],
    withheld: bool,
    findings: tuple[Finding, ...],
    reviews: Sequence[Review],
    override: Override | None,
) -> _Outcome:
    """Decide one step: by hand, else by what a person must still say, else by a review, else by its tests."""
    if override is not None:
        state = "passed" if override.points > 0 or not step.points else "not passed"
        note = f"{number(override.points)} points by hand: {override.reason}"
        return _Outcome(step, state, number(override.points), note)
    if withheld:
        return _Outcome(step, "undecided", None)
    decided = {one: next((r for r in reversed(reviews) if r.decides(one)), None) for one in findings}
    accepted = list(dict.fromkeys(r.reason for r in decided.values() if r is not None and r.accepted))
    rejected = [review.reason for review in decided.values() if review is not None and not review.accepted]
    waiting = tuple(one for one, review in decided.items() if review is None)
    if rejected:
        return _Outcome(step, "not passed", 0, f"rejected by a person: {rejected[0]}")
    if waiting:
        return _Outcome(step, "undecided", None, findings=waiting)
    note = f"accepted by a person: {', '.join(accepted)}" if accepted else ""
    state = _state(step, verdicts)
    points = {"passed": step.points, "not passed": 0, "undecided": None}[state]
    return _Outcome(step, state, points, note, failed=state == "undecided")


def _state(step: Step, verdicts: Sequence[Verdict]) -> str:
    """Say whether a step is "passed", "not passed", or "undecided" by the grader's own failure."""
    own = [verdict for verdict in verdicts if function_name(verdict.test) in step.tests]
    if {function_name(verdict.test) for verdict in own} != set(step.tests):
        return "not passed"
    kinds = {verdict.verdict for verdict in own}
    if kinds <= {PASS}:
        return "passed"
    return "undecided" if kinds <= {PASS, GRADER_ERROR} else "not passed"


def _step_marks(outcome: _Outcome) -> StepMarks:
    return StepMarks(outcome.step.number, outcome.step.title, outcome.points, outcome.step.points)


def _notes(outcomes: Sequence[_Outcome]) -> list[str]:
    """What is to say about steps, each thing once."""
    noted: dict[str, list[int]] = {}  # steps by what is said of them
    for outcome in outcomes:
        if outcome.note:
            noted.setdefault(outcome.note, []).append(outcome.step.number)
    notes = [f"step {_listed(steps)}: {note}" for note, steps in noted.items()]
    failed = [outcome.step.number for outcome in outcomes if outcome.failed]
    if failed:
        notes.append(f"the grader failed in step {_listed(failed)} and gives no mark there: grade again")
    places: dict[str, list[int]] = {}  # steps by the first place that withholds them
    for outcome in outcomes:
        if outcome.findings:
            first = outcome.findings[0]
            where = f"line {first.line}" if first.line else "the file"
            places.setdefault(f"{where} ({first.rule})", []).append(outcome.step.number)
    for place, steps in list(places.items())[:MOST_PLACES]:
        notes.append(f"step {_listed(steps)} withheld until a person has looked at {place}")
    rest = [step for steps in list(places.values())[MOST_PLACES:] for step in steps]
    if rest:
        notes.append(f"step {_listed(rest)} withheld, too")
    return notes


def _late_note(lateness: Lateness, points: float) -> str:
    if not lateness.days:
        return lateness.note
    if not lateness.percent:
        return f"{lateness.note}: nothing is taken"
    return f"{lateness.note}: {number(lateness.percent)} % taken of {number(points)} points"


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(str(step) for step in steps)
