"""The checks that labs' tests are made of: compare an actual with an expected value, explain, record.

Every check takes its expected value as a function and calls it only after the student's code has run,
so that the same test file can also run where no expected value may exist.
Nothing here knows pytest; `plugin` turns a `CheckFailed` into a short report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from grader.verdicts import one_line

Value = Tensor | float | int | bool | None | Sequence[float]
Trajectory = Sequence[Mapping[str, Tensor | float]]


@dataclass(frozen=True)
class Check:
    """One comparison of an actual with an expected value.

    `ratio` is the largest error divided by what was allowed: at most 1 passes, `inf` is a difference
    that no tolerance covers (type, shape, dtype, NaN, an exception).
    """

    what: str
    passed: bool
    ratio: float
    actual: Value | str = None  # a string tells what happened where there is no value ("raised TypeError")
    expected: Value | str = None
    allowed: float = 0.0
    part: str = ""  # which quantity of a trajectory
    interval: bool = False  # the contract is an interval, so `ratio` says nothing about a tolerance


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
    """The checks of one test, in order."""

    checks: list[Check] = field(default_factory=list)


_log = Log()


@contextmanager
def recording() -> Iterator[Log]:
    """Collect the checks made inside the block (a test) into a fresh log."""
    global _log
    outer, _log = _log, Log()
    try:
        yield _log
    finally:
        _log = outer


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
    wanted = expected()
    _judge(_compare(actual, wanted, atol, rtol, what), f"{what}: not the expected value")


def assert_same_trajectory(
    actual: Trajectory, expected: Callable[[], Trajectory], *, atol: float, rtol: float, what: str
) -> None:
    """Check a run step by step against its oracle, and name the first step and quantity that differ.

    A trajectory is a list with one dict a step: quantity → value, in the order in which an error would
    spread (gradient, update, weight).
    """
    __tracebackhide__ = True
    wanted = expected()
    if len(actual) != len(wanted):
        raise ValueError(f"{what}: {len(actual)} steps against {len(wanted)} of the oracle")
    worst, first = 0.0, None
    for number, (ours, theirs) in enumerate(zip(actual, wanted, strict=True), start=1):
        for name, value in theirs.items():
            comparison = _compare(ours[name], value, atol, rtol, what, f"step {number}, {name}")
            worst = max(worst, comparison.check.ratio)
            if first is None and not comparison.check.passed:
                first = comparison, f"{what}: first differs at step {number} of {len(wanted)}, in the {name}"
    if first is not None:
        comparison, headline = first
        _judge(_Comparison(replace(comparison.check, ratio=worst), comparison.details), headline)
    last = _compare(_last(actual), _last(wanted), atol, rtol, what).check
    _log.checks.append(Check(what, True, worst, last.actual, last.expected, last.allowed))


def assert_within(actual: Tensor | float, low: float, high: float, *, what: str) -> None:
    """Check low <= actual <= high: for contracts that are intervals, never in place of a tolerance."""
    __tracebackhide__ = True
    if isinstance(actual, Tensor) and actual.numel() != 1:
        line = f"{what}: has shape {tuple(actual.shape)}, expected one number"
        _judge(_Comparison(Check(what, False, math.inf, actual, interval=True), []), line)
    value = float(actual.detach() if isinstance(actual, Tensor) else actual)
    centre, half = (low + high) / 2, (high - low) / 2
    ratio = abs(value - centre) / half if half and math.isfinite(value) else math.inf
    check = Check(what, low <= value <= high, ratio, value, None, half, interval=True)
    _judge(_Comparison(check, []), f"{what} is {value:.6g}, must lie between {low:.6g} and {high:.6g}")


def assert_raises(exception: type[Exception], call: Callable[[], object], *, what: str) -> None:
    """Check that `call()` raises `exception` (or a subclass of it)."""
    __tracebackhide__ = True
    wanted = f"raised {exception.__name__}"
    try:
        call()
    except (NotImplementedError, MissingName):
        raise  # the step is still to do, or its function is gone
    except exception:
        _judge(_Comparison(Check(what, True, 0.0, wanted, wanted), []), "")
    except Exception as error:
        check = Check(what, False, math.inf, f"raised {type(error).__name__}", wanted)
        line = f"{what}: must raise {exception.__name__}, raised {type(error).__name__}: {one_line(error)}"
        _judge(_Comparison(check, []), line)
    else:
        check = Check(what, False, math.inf, "raised nothing", wanted)
        _judge(_Comparison(check, []), f"{what}: must raise {exception.__name__}, raised nothing")


def assert_holds(condition: bool, *, what: str) -> None:
    """Check a contract that is either kept or not; `what` states it ("the input is left as it was")."""
    __tracebackhide__ = True
    check = Check(what, bool(condition), 0.0 if condition else math.inf, bool(condition), True)
    _judge(_Comparison(check, []), f"this does not hold: {what}")


@dataclass(frozen=True)
class _Comparison:
    check: Check
    details: Sequence[str]


def _judge(comparison: _Comparison, headline: str) -> None:
    """Record the check; raise if it failed."""
    __tracebackhide__ = True
    index = len(_log.checks)
    _log.checks.append(comparison.check)
    if not comparison.check.passed:
        raise CheckFailed(comparison.check, [headline, *(f"  {line}" for line in comparison.details)], index)


def _compare(
    actual: object, expected: Value, atol: float, rtol: float, what: str, part: str = ""
) -> _Comparison:
    problem = _difference_in_kind(actual, expected)
    if problem:
        kept = _snapshot(actual) if isinstance(actual, Tensor | float | int | None) else _kind(actual)
        check = Check(what, False, math.inf, kept, _snapshot(expected), 0.0, part)
        return _Comparison(check, [problem])
    if expected is None:
        return _Comparison(Check(what, True, 0.0, None, None, 0.0, part), [])
    got, want = _as_float64(actual), _as_float64(expected)
    error = (got - want).abs()
    allowed = atol + rtol * want.abs()
    alike = (got == want) | (got.isnan() & want.isnan())
    ratios = torch.where(alike, torch.zeros_like(error), error / allowed).nan_to_num(nan=math.inf)
    wrong = ~(alike | (error <= allowed))
    passed = not bool(wrong.any())
    ratio = float(ratios.max()) if ratios.numel() else 0.0
    limit = float(allowed.nan_to_num(0.0, 0.0).max()) if allowed.numel() else 0.0
    check = Check(what, passed, ratio, _snapshot(actual), _snapshot(expected), limit, part)
    return _Comparison(check, [] if passed else _explain(got, want, error, allowed, ratios, wrong))


def _difference_in_kind(actual: object, expected: Value) -> str:
    """What differs before any number is looked at: type, shape, dtype."""
    if isinstance(expected, Tensor):
        if type(actual) not in (Tensor, nn.Parameter):
            return f"is {_kind(actual)}, expected a torch.Tensor of shape {tuple(expected.shape)}"
        assert isinstance(actual, Tensor)
        if actual.shape != expected.shape:
            return f"has shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
        if actual.dtype != expected.dtype:
            return f"has dtype {actual.dtype}, expected {expected.dtype}"
        if actual.layout != torch.strided:
            return f"has layout {actual.layout}, expected an ordinary (strided) tensor"
        return ""
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or not all(isinstance(item, float) for item in actual):
            return f"is {_kind(actual)}, expected a list of {len(expected)} floats"
        return "" if len(actual) == len(expected) else f"has {len(actual)} items, expected {len(expected)}"
    if expected is None:
        return "" if actual is None else f"is {_kind(actual)}, expected None"
    same = isinstance(actual, type(expected)) and isinstance(actual, bool) == isinstance(expected, bool)
    return "" if same else f"is {_kind(actual)}, expected {_article(type(expected).__name__)}"


def _kind(value: object) -> str:
    """A value's type in words."""
    if value is None:
        return "None"
    if isinstance(value, list | tuple):
        inner = sorted({type(item).__name__ for item in value})
        return (
            f"{_article(type(value).__name__)} of {len(value)} ({', '.join(inner)})"
            if inner
            else "an empty list"
        )
    if isinstance(value, Tensor):
        return f"{_article(type(value).__name__)} of shape {tuple(value.shape)}, {value.dtype}"
    return _article(type(value).__name__)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _as_float64(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64)
    return torch.tensor(value, dtype=torch.float64)


def _snapshot(value: object) -> Value:
    """The value as it is now: later changes in place must not reach the log."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value  # type: ignore[return-value]  # the caller has checked that it is a Value


def _explain(
    got: Tensor, want: Tensor, error: Tensor, allowed: Tensor, ratios: Tensor, wrong: Tensor
) -> list[str]:
    """Where the difference is largest, and how far it reaches."""
    flat = int(torch.where(wrong, ratios, torch.full_like(ratios, -1.0)).argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape)]
    a, e = float(got.flatten()[flat]), float(want.flatten()[flat])
    digits = 6 if f"{a:.6g}" != f"{e:.6g}" else 12
    size = float(error.flatten()[flat])
    where = f" at {place}" if place else ""
    said = (
        ""
        if math.isnan(size)
        else f"largest error {size:.1e}{where} (allowed {float(allowed.flatten()[flat]):.1e}): "
    )
    lines = [f"{said or where.strip() + ': ' * bool(where)}got {a:.{digits}g}, expected {e:.{digits}g}"]
    if got.numel() > 1:
        lines.append(f"{int(wrong.sum())} of {got.numel()} entries are wrong")
    return lines


def _last(trajectory: Trajectory) -> Tensor:
    """The last step's quantities as one row."""
    return torch.cat([_as_float64(value).flatten() for value in trajectory[-1].values()])
