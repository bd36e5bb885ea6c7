"""What a lab's tests want on the inputs of one seed, from the solution: the trusted side's knowledge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader import settings, testfile
from grader.checks import CheckFailed, recording
from grader.comparison import Expectation
from grader.course import CourseError, Lab
from grader.implementations import BrokenImplementation, load
from grader.running import collect_functions
from grader.settings import restored
from grader.testfile import Planned


@dataclass(frozen=True)
class Wanted:
    """One planned test: what each of its checks wants, and the CPU seconds that the solution needs for it."""

    test: Planned
    expectations: tuple[Expectation, ...]
    seconds: float


class Oracle:
    """A lab's tests with what they want; raises CourseError if the solution doesn't pass them."""

    def __init__(self, lab: Lab):
        settings.spare_the_compiler()
        self.lab = lab
        counted: Counter[str] = Counter()
        self.plan: list[Planned] = []
        for name, function in collect_functions(lab):
            self.plan.append(Planned(name, function, counted[function]))
            counted[function] += 1
        self._source = lab.tests_path.read_text(encoding="utf-8")
        self._log_is_evaluating: Callable[[], bool] = lambda: False
        self._used: set[int] = set()
        self._namespace = testfile.marked(self._source, lab.tests_path, self._note)
        for test in self.plan:
            unknown = set(testfile.fixtures_of(self._namespace, test)) - set(testfile.FIXTURES)
            if unknown:
                raise CourseError(
                    f"{lab.tests_path}: {test.function} takes {sorted(unknown)[0]!r}; a graded test "
                    f"may take {' and '.join(testfile.FIXTURES)} and its parameters"
                )

    def _note(self, number: int) -> None:
        """A function of the test file was called: needed by the tests, unless for an expected value."""
        if not self._log_is_evaluating():
            self._used.add(number)

    def wanted(self, seed: int) -> list[Wanted]:
        """Run all tests on the solution, on the inputs of `seed`, and keep what they want."""
        return [self._wanted(test, seed) for test in self.plan]

    def tests_without_answers(self) -> str:
        """The test file's text for the process that runs submissions; to be called after `wanted`."""
        return testfile.without_answers(self._source, self._used)

    def _wanted(self, test: Planned, seed: int) -> Wanted:
        with restored(), recording() as log:
            self._log_is_evaluating = lambda: log.evaluating
            try:
                module = load(self.lab.solution)
                began = time.process_time()
                testfile.call(self._namespace, test, module, settings.stream(seed, test.name))
            except (BrokenImplementation, CheckFailed, Exception) as error:
                first = str(error).splitlines() or [type(error).__name__]
                raise CourseError(
                    f"{self.lab.solution} does not pass {test.name} with seed {seed} ({first[0]}); "
                    f"try: pytest labs/{self.lab.name} --impl solution --seed {seed}"
                ) from None
            finally:
                self._log_is_evaluating = lambda: False
            seconds = time.process_time() - began
            if not log.expectations:
                raise CourseError(f"{self.lab.tests_path}: {test.name} makes no check, so it judges nothing")
            return Wanted(test, tuple(log.expectations), seconds)


def plan_for_server(plan: Sequence[Planned]) -> list[dict[str, object]]:
    """The plan as plain data."""
    return [{"name": one.name, "function": one.function, "place": one.place} for one in plan]
