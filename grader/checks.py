"""The checks that labs' tests are made of: take an actual value, and what it should be as a function.

The same test runs in three ways, and the block around it decides which:
`recording` compares at once and keeps what was wanted (practice, CI, the trusted process with the solution);
`sending` never evaluates what is expected and hands every actual value out (a submission's own process).
Nothing here knows pytest; `plugin` turns a `CheckFailed` into a short report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from grader.comparison import (
    Check,
    Expectation,
    Follows,
    Holds,
    Matches,
    Raised,
    Raises,
    Trajectory,
    Value,
    Within,
)
from grader.verdicts import one_line


class MissingName(AttributeError):
    """The module under test lacks a name that a test asks it for: no check can judge that."""


class CheckFailed(AssertionError):
    """A check that did not hold; `check` and its place in the test are what `diagnosis` needs."""

    def __init__(self, check: Check, lines: Sequence[str], index: int):
        super().__init__("\n".join(lines))
        self.check = check
        self.index = index


@dataclass
class Log:
    """The checks of one test, in order, and what they wanted."""

    checks: list[Check] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    evaluating: bool = False  # an expected value is being computed right now

    def take(self, actual: object, wanted: Callable[[], Expectation]) -> None:
        """Compare at once; raise CheckFailed if it doesn't hold."""
        __tracebackhide__ = True
        self.evaluating = True
        try:
            expectation = wanted()
        finally:
            self.evaluating = False
        comparison = expectation.judge(actual)
        index = len(self.checks)
        self.checks.append(comparison.check)
        self.expectations.append(expectation)
        if not comparison.check.passed:
            raise CheckFailed(comparison.check, comparison.lines, index)


Take = Callable[[object, Callable[[], Expectation]], None]

_take: Take = Log().take


@contextmanager
def recording() -> Iterator[Log]:
    """Collect the checks made inside the block (a test) into a fresh log."""
    log = Log()
    with _taking(log.take):
        yield log


@contextmanager
def sending(send: Callable[[object], None]) -> Iterator[None]:
    """Hand every actual value of the block to `send`; nothing expected is evaluated, nothing compared."""
    with _taking(lambda actual, wanted: send(actual)):
        yield


@contextmanager
def _taking(take: Take) -> Iterator[None]:
    global _take
    outer, _take = _take, take
    try:
        yield
    finally:
        _take = outer


def assert_matches(
    actual: Value, expected: Callable[[], Value], *, atol: float, rtol: float, what: str
) -> None:
    """Check that `actual` is what `expected()` returns: same type, shape and dtype, and every entry with
    |actual − expected| <= atol + rtol·|expected|.

    The tolerance is relative to the expected value only; 0 means equal to the last bit.
    NaN matches only NaN, an infinity only itself.
    A `float`, an `int`, a `bool`, `None` and a list of floats are compared in the same way.
    """
    __tracebackhide__ = True
    _take(actual, lambda: Matches(what, expected(), atol, rtol))


def assert_same_trajectory(
    actual: Trajectory, expected: Callable[[], Trajectory], *, atol: float, rtol: float, what: str
) -> None:
    """Check a run step by step against its oracle, and name the first step and quantity that differ.

    A trajectory is a list with one dict a step: quantity → value, in the order in which an error would
    spread (gradient, update, weight).
    """
    __tracebackhide__ = True
    _take(actual, lambda: Follows(what, expected(), atol, rtol))


def assert_within(actual: Tensor | float, low: float, high: float, *, what: str) -> None:
    """Check low <= actual <= high: for contracts that are intervals, never in place of a tolerance."""
    __tracebackhide__ = True
    _take(actual, lambda: Within(what, low, high))


def assert_raises(exception: type[Exception], call: Callable[[], object], *, what: str) -> None:
    """Check that `call()` raises `exception` (or a subclass of it)."""
    __tracebackhide__ = True
    try:
        call()
    except (NotImplementedError, MissingName):
        raise  # the step is still to do, or its function is gone
    except exception:
        raised = Raised(True, exception.__name__)
    except Exception as error:
        raised = Raised(False, type(error).__name__, one_line(error))
    else:
        raised = Raised(False)
    _take(raised, lambda: Raises(what, exception.__name__))


def assert_holds(condition: bool, *, what: str) -> None:
    """Check a contract that is either kept or not; `what` states it ("the input is left as it was")."""
    __tracebackhide__ = True
    _take(bool(condition), lambda: Holds(what))
