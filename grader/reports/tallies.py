"""What a class did in a lab, counted: points, steps, tests, mistakes, times."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from grader.course import Course, Lab
from grader.marking import Result
from grader.reports.rows import OUTCOMES, PASSED, Outcome, Row, find_mistake, mistake_ids, row_of, step_number
from grader.verdicts import PASS, Place, Verdict, by_line

_SLOWEST = 5


@dataclass(frozen=True)
class TestTally:
    """How a class did in one test."""

    __test__ = False  # the name is the course's word, not a test for pytest

    test: str
    verdicts: Counter[str]
    total: int

    @property
    def percent(self) -> int:
        return percent(self.verdicts[PASS], self.total)

    @property
    def others(self) -> list[tuple[str, int]]:
        """The verdicts other than a pass, the most frequent first."""
        return [(verdict, count) for verdict, count in self.verdicts.most_common() if verdict != PASS]


@dataclass(frozen=True)
class StepTally:
    """How a class did in one step."""

    number: int
    title: str
    max_points: float
    outcomes: Counter[Outcome]
    total: int
    tests: tuple[TestTally, ...]

    @property
    def percent(self) -> int:
        return percent(self.outcomes[PASSED], self.total)


@dataclass(frozen=True)
class MistakeTally:
    """Who a known mistake was seen with."""

    name: str
    step: str
    cause: str
    hint: str
    students: tuple[str, ...]


@dataclass(frozen=True)
class Slow:
    """A submission that took long, and its slowest test."""

    row: Row
    test: Verdict | None


@dataclass(frozen=True)
class LabTally:
    """A lab and all results of the class in it."""

    lab: Lab
    results: tuple[Result, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row_of(self.lab, result) for result in self.results)

    @cached_property
    def _by_student(self) -> dict[str, Result]:
        return {result.student: result for result in self.results}

    def result_of(self, student: str) -> Result | None:
        """The student's result in this lab, if there is one."""
        return self._by_student.get(student)

    @property
    def points(self) -> list[float]:
        return [result.points for result in self.results]

    @property
    def max_points(self) -> float:
        """The points to reach, as they were when the class was graded."""
        return max(result.max_points for result in self.results)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.points)

    @property
    def median(self) -> float:
        return statistics.median(self.points)

    @property
    def full_marks(self) -> int:
        return sum(row.full_marks for row in self.rows)

    @property
    def attention(self) -> list[Row]:
        return [row for row in self.rows if row.attention]

    @property
    def findings(self) -> list[tuple[str, Place]]:
        """A student and a line that a person should look at, before its steps have a mark."""
        return [(row.result.student, place) for row in self.rows for place in by_line(row.findings)]

    @property
    def seconds(self) -> float:
        """The median time of a submission."""
        return statistics.median(result.seconds for result in self.results)

    @cached_property
    def _tests(self) -> dict[int | None, dict[str, Counter[str]]]:
        """Step number (None: the lab has lost the test) → test → how often each verdict."""
        found: dict[int | None, dict[str, Counter[str]]] = {}
        for result in self.results:
            for verdict in result.tests:
                tests = found.setdefault(step_number(self.lab, verdict.test), {})
                tests.setdefault(verdict.test, Counter())[verdict.verdict] += 1
        return found

    @cached_property
    def steps(self) -> tuple[StepTally, ...]:
        titles = {step.step: step for result in self.results for step in result.steps}
        return tuple(self._step(number, titles[number].title) for number in sorted(titles))

    def _step(self, number: int, title: str) -> StepTally:
        rows = [step for row in self.rows for step in row.steps if step.marks.step == number]
        tests = self._tests.get(number, {})
        total = len(self.results)
        return StepTally(
            number=number,
            title=title,
            max_points=max(row.marks.max_points for row in rows),
            outcomes=Counter(row.outcome for row in rows),
            total=total,
            tests=tuple(TestTally(test, counts, total) for test, counts in tests.items()),
        )

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes that occur, for a legend."""
        return [outcome for outcome in OUTCOMES if any(step.outcomes[outcome] for step in self.steps)]

    @property
    def mistakes(self) -> list[MistakeTally]:
        """The most frequent first; of equally frequent ones, the one that was met first."""
        students: dict[str, list[str]] = {}
        for result in self.results:
            for id in mistake_ids(result):
                students.setdefault(id, []).append(result.student)
        ids = sorted(students, key=lambda id: -len(students[id]))
        return [self._mistake(id, students[id]) for id in ids]

    def _mistake(self, id: str, students: list[str]) -> MistakeTally:
        mistake = find_mistake(self.lab, id)
        if mistake is None:
            return MistakeTally(id, "", "", "", tuple(students))
        step = self.lab.find_step(mistake.step)
        return MistakeTally(
            mistake.name, f"step {step.number}, {step.title}", mistake.cause, mistake.hint, tuple(students)
        )

    @property
    def slowest(self) -> list[Slow]:
        rows = sorted(self.rows, key=lambda row: -row.result.seconds)[:_SLOWEST]
        return [Slow(row, max(row.result.tests, key=lambda test: test.seconds, default=None)) for row in rows]


def by_lab(course: Course, results: Iterable[Result]) -> list[LabTally]:
    """A tally for each lab that has results, in the labs' order."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.lab, []).append(result)
    return [LabTally(course.find_lab(name), tuple(found[name])) for name in sorted(found)]


def percent(part: int, whole: int) -> int:
    """`part` of `whole` in whole per cent; 0 and 100 are kept for none and all."""
    if part in (0, whole):
        return 100 if part else 0
    return min(99, max(1, round(100 * part / whole)))
