"""One student's result in a lab as reports show it: an outcome a step, and one line on what to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from grader import verdicts
from grader.course import CourseError, Lab, Mistake
from grader.marking import Result, StepMarks
from grader.verdicts import Finding, Place, Verdict, by_line


@dataclass(frozen=True)
class Outcome:
    """What became of a step, coarse enough for one character."""

    id: str
    symbol: str
    ascii: str  # for terminals without Unicode
    meaning: str


PASSED = Outcome("passed", "✓", "+", "passed")
WRONG = Outcome("wrong", "✗", "x", "wrong")
TO_DO = Outcome("todo", "○", ".", "to do")
STOPPED = Outcome("stopped", "!", "!", "stopped")
NOT_RUN = Outcome("notrun", "–", "-", "not run")
UNDECIDED = Outcome("undecided", "?", "?", "undecided")
OUTCOMES = (PASSED, WRONG, TO_DO, STOPPED, NOT_RUN, UNDECIDED)

_OUTCOME_OF = {
    verdicts.PASS: PASSED,
    verdicts.WRONG: WRONG,
    verdicts.ERROR: WRONG,
    verdicts.TO_DO: TO_DO,
    verdicts.TIME_OUT: STOPPED,
    verdicts.MEMORY: STOPPED,
    verdicts.CRASHED: STOPPED,
    verdicts.FORBIDDEN: STOPPED,
    verdicts.MISSING: NOT_RUN,
    verdicts.GRADER_ERROR: UNDECIDED,
}
# A step's outcome is the gravest of its tests: what a person must look at comes first.
_GRAVITY = (UNDECIDED, STOPPED, NOT_RUN, WRONG, TO_DO, PASSED)
_NEEDS_A_LOOK = frozenset({UNDECIDED, STOPPED, NOT_RUN})


@dataclass(frozen=True)
class Group:
    """Tests that are not passed, with the same verdict and message."""

    verdict: str
    outcome: Outcome
    tests: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class StepRow:
    """A step of one student's result."""

    marks: StepMarks
    outcome: Outcome
    passed: tuple[str, ...]
    failed: tuple[Group, ...]

    @property
    def passed_functions(self) -> Counter[str]:
        """The passed tests without their parameters, and how many there are of each."""
        return Counter(map(verdicts.function_name, self.passed))


@dataclass(frozen=True)
class Row:
    """One student's result in a lab."""

    result: Result
    steps: tuple[StepRow, ...]
    mistakes: tuple[str, ...]  # names of the mistakes it looks like, each once
    attention: str  # why a person should look at it; "" if none needs to
    unknown: tuple[Verdict, ...] = ()  # of tests that belong to no step of the lab any more
    findings: tuple[Finding, ...] = ()  # of steps that wait for a person's decision

    @property
    def note(self) -> str:
        """The line beside the marks: about the submission itself, else about the mistake it looks like."""
        if self.attention or not self.mistakes:
            return self.attention
        return "looks like: " + "; ".join(self.mistakes)

    @property
    def passed(self) -> int:
        return sum(len(step.passed) for step in self.steps)

    @property
    def full_marks(self) -> bool:
        return self.result.points >= self.result.max_points


def in_order(results: Iterable[Result]) -> list[Result]:
    """Sorted by student, whatever the case of their names, and lab: the order of every report."""
    return sorted(results, key=lambda result: (result.student.casefold(), result.student, result.lab))


def row_of(lab: Lab, result: Result) -> Row:
    """`result` with its tests sorted into the steps of its lab."""
    by_step: dict[int | None, list[Verdict]] = {step.step: [] for step in result.steps}
    unknown: list[Verdict] = []
    for verdict in result.tests:
        by_step.get(step_number(lab, verdict.test), unknown).append(verdict)
    findings = open_findings(result)
    attention = [result.message or _attention(result, findings), *map(_in_words, by_line(findings))]
    return Row(
        result=result,
        steps=tuple(_step_row(marks, by_step[marks.step]) for marks in result.steps),
        mistakes=tuple(mistake_name(lab, id) for id in mistake_ids(result)),
        attention="; ".join(filter(None, attention)),
        unknown=tuple(unknown),
        findings=findings,
    )


def open_findings(result: Result) -> tuple[Finding, ...]:
    """What a person should look at and hasn't decided yet: findings of steps whose points are withheld."""
    waiting = {step.step for step in result.steps if step.points is None}
    return tuple(finding for finding in result.findings if finding.step in waiting)


def common_error(result: Result) -> str:
    """The message with which every test ended alike, as when a file can't be loaded; "" if they differ."""
    said = {verdict.message for verdict in result.tests}
    alike = len(said) == 1 and all(verdict.verdict == verdicts.ERROR for verdict in result.tests)
    return said.pop() if alike else ""


def step_number(lab: Lab, test: str) -> int | None:
    """The step that a test belongs to; None for a test that the lab no longer has."""
    try:
        return lab.step_of(test).number
    except CourseError:
        return None


def outcome_of(verdict: str) -> Outcome:
    """What a verdict amounts to; a word that this version does not know is for a person to look at."""
    return _OUTCOME_OF.get(verdict, UNDECIDED)


def mistake_ids(result: Result) -> tuple[str, ...]:
    """The known mistakes that failed tests look like, each once, in the order of the tests."""
    return tuple(dict.fromkeys(verdict.mistake for verdict in result.tests if verdict.mistake))


def mistake_name(lab: Lab, id: str) -> str:
    mistake = find_mistake(lab, id)
    return mistake.name if mistake else id


def find_mistake(lab: Lab, id: str) -> Mistake | None:
    """The mistake, or None where verdicts are older than the course's list, or the list isn't there."""
    try:
        return lab.mistake(id)
    except CourseError:
        return None


def _step_row(marks: StepMarks, tests: list[Verdict]) -> StepRow:
    failed = [verdict for verdict in tests if not verdict.passed]
    return StepRow(
        marks=marks,
        outcome=UNDECIDED if marks.points is None else _gravest(tests),
        passed=tuple(verdict.test for verdict in tests if verdict.passed),
        failed=tuple(
            Group(verdict, outcome_of(verdict), tuple(item.test for item in items), message)
            for (verdict, message), items in groupby(failed, key=lambda item: (item.verdict, item.message))
        ),
    )


def _gravest(tests: Iterable[Verdict]) -> Outcome:
    outcomes = {outcome_of(verdict.verdict) for verdict in tests}
    return next((outcome for outcome in _GRAVITY if outcome in outcomes), NOT_RUN)


def _in_words(place: Place) -> str:
    where = f"line {place.line}" if place.line else "the whole file"
    return f"to review: step {', '.join(map(str, place.steps))}, {where} ({place.rule})"


def _attention(result: Result, findings: Iterable[Finding]) -> str:
    """Which verdicts of a submission without a message of its own are no plain pass or fail."""
    counts = Counter(item.verdict for item in result.tests if outcome_of(item.verdict) in _NEEDS_A_LOOK)
    parts = [f"{verdict}: {count} test{'s' * (count > 1)}" for verdict, count in counts.items()]
    found = {finding.step for finding in findings}
    withheld = [str(step.step) for step in result.steps if step.points is None and step.step not in found]
    if withheld:
        parts.append(f"points withheld: step {', '.join(withheld)}")
    return "; ".join(parts)
