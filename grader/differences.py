"""What a new mark would change: per student and step, with the tests that changed."""

from __future__ import annotations

from dataclasses import dataclass

from grader.course import Lab
from grader.gradebook import Basis
from grader.marking import Result, StepMarks, lowers, number
from grader.verdicts import function_name, printable

MOST_TESTS = 4  # named in a line


@dataclass(frozen=True)
class Change:
    """A student's marks for a lab as they are (None: not there yet) and as they would be."""

    lab: Lab
    basis: Basis
    before: Basis | None
    old: Result | None
    new: Result

    @property
    def same_source(self) -> bool:
        """Whether the same text was handed in before; taken to be so where an old gradebook can't tell."""
        return self.before is not None and self.before.source_hash in (None, self.basis.source_hash)

    @property
    def lowered(self) -> bool:
        return self.old is not None and lowers(self.old, self.new)

    @property
    def raised(self) -> bool:
        return self.old is not None and lowers(self.new, self.old)

    @property
    def in_points(self) -> bool:
        """Whether any points differ; those of a mark that is new do."""
        return self.old is None or _points(self.old) != _points(self.new)

    def lines(self) -> list[str]:
        """One line on the lab, one on each step whose points or tests differ."""
        who = printable(f"{self.new.student}, {self.new.lab}")
        if self.old is None:
            return [f"{who}: new: {number(self.new.points)} of {self.new.max_points} points"]
        ways = [word for word, true in (("lowered", self.lowered), ("raised", self.raised)) if true]
        how = f" ({', '.join(ways)})" if ways else ""
        before = {step.step: step for step in self.old.steps}
        after = {step.step: step for step in self.new.steps}
        lines = [self._step_line(before.get(step), after.get(step)) for step in sorted({*before, *after})]
        head = f"{who}: {number(self.old.points)} → {number(self.new.points)} points{how}"
        return [head, *filter(None, lines)]

    def _step_line(self, old: StepMarks | None, new: StepMarks | None) -> str:
        """What changes in a step; "" if nothing does."""
        some = new or old
        if some is None:
            return ""
        tests = self._tests(some.step)
        points = [_shown(step) for step in (old, new)]
        if points[0] == points[1] and not tests:
            return ""
        return f"  step {some.step} ({some.title}): {' → '.join(points)}" + (f": {tests}" if tests else "")

    def _tests(self, step: int) -> str:
        """The tests of a step whose verdicts changed."""
        functions = next((one.tests for one in self.lab.steps if one.number == step), ())
        old = {one.test: one.verdict for one in self.old.tests} if self.old else {}
        changed = [
            f"{one.test} {old.get(one.test, 'not there')} → {one.verdict}"
            for one in self.new.tests
            if one.verdict != old.get(one.test) and function_name(one.test) in functions
        ]
        rest = len(changed) - MOST_TESTS
        return ", ".join(changed[:MOST_TESTS]) + (f" and {rest} more" if rest > 0 else "")


def _points(result: Result) -> list[object]:
    return [result.points, result.max_points, *((step.step, step.points) for step in result.steps)]


def _shown(step: StepMarks | None) -> str:
    if step is None:
        return "not there"
    return "withheld" if step.points is None else str(number(step.points))
