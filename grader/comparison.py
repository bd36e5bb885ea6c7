"""Comparing an actual with an expected value: does it agree, how far off is it, and how to say so.

An `Expectation` is what a check wants, without the actual value: the trusted process keeps it and judges with
it whatever arrives from the process that ran the submission.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

Value = Tensor | float | int | bool | None | Sequence[float]
Trajectory = Sequence[Mapping[str, Tensor | float]]


@dataclass(frozen=True)
class Foreign:
    """A value of a type that no check knows, reduced to its description; it equals nothing."""

    kind: str  # "a str", "a Wrapped of shape (2, 3), torch.float32"


@dataclass(frozen=True)
class Raised:
    """How a call ended that should raise: `fits` if with the wanted exception, `name` is "" if with none."""

    fits: bool
    name: str = ""
    text: str = ""

    def __str__(self) -> str:
        return f"raised {self.name or 'nothing'}"


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


@dataclass(frozen=True)
class Comparison:
    """A check, and what to say if it failed: a headline and the details below it."""

    check: Check
    details: Sequence[str] = ()
    headline: str = ""

    @property
    def lines(self) -> list[str]:
        return [self.headline, *(f"  {line}" for line in self.details)]


class Expectation(Protocol):
    """What one check wants."""

    @property
    def what(self) -> str: ...

    def agrees(self, actual: object) -> bool:
        """Whether `judge` would pass it: quick to say yes, and never yes in doubt."""
        ...

    def judge(self, actual: object) -> Comparison:
        """Compare; never raises, whatever `actual` is."""
        ...


@dataclass(frozen=True)
class Matches:
    """`expected`, every entry with |actual − expected| <= atol + rtol·|expected|."""

    what: str
    expected: Value
    atol: float
    rtol: float

    def agrees(self, actual: object) -> bool:
        if isinstance(self.expected, Tensor):
            return agree([actual], [self.expected], self.atol, self.rtol)
        return self.judge(actual).check.passed

    def judge(self, actual: object) -> Comparison:
        found = compare(actual, self.expected, self.atol, self.rtol, self.what)
        return replace(found, headline=f"{self.what}: not the expected value")


@dataclass(frozen=True)
class Follows:
    """A trajectory, step by step; the first step and quantity that differ are named."""

    what: str
    expected: Trajectory
    atol: float
    rtol: float

    def agrees(self, actual: object) -> bool:
        if not _is_trajectory(actual) or len(actual) != len(self.expected):  # type: ignore[arg-type]
            return False
        ours: list[object] = []
        theirs: list[Tensor] = []
        for got, want in zip(actual, self.expected, strict=True):  # type: ignore[call-overload]
            for name, value in want.items():
                ours.append(got.get(name))
                theirs.append(value)
        return agree(ours, theirs, self.atol, self.rtol)

    def judge(self, actual: object) -> Comparison:
        if not _is_trajectory(actual):
            check = Check(self.what, False, math.inf, kind(actual))
            return Comparison(check, headline=f"{self.what}: {kind(actual)} is no record of its steps")
        assert isinstance(actual, Sequence)
        worst, first = 0.0, None
        for number, (ours, theirs) in enumerate(zip(actual, self.expected, strict=False), start=1):
            for name, value in theirs.items():
                part = f"step {number}, {name}"
                found = compare(ours.get(name), value, self.atol, self.rtol, self.what, part)
                worst = max(worst, found.check.ratio)
                if first is None and not found.check.passed:
                    where = f"first differs at step {number} of {len(self.expected)}, in the {name}"
                    first = replace(found, headline=f"{self.what}: {where}")
        if first is not None:
            return replace(first, check=replace(first.check, ratio=worst))
        if len(actual) != len(self.expected):
            line = f"{self.what}: {len(actual)} steps against {len(self.expected)} of the oracle"
            return Comparison(Check(self.what, False, math.inf, f"{len(actual)} steps"), headline=line)
        last = compare(_last(actual), _last(self.expected), self.atol, self.rtol, self.what).check
        return Comparison(replace(last, passed=True, ratio=worst))


@dataclass(frozen=True)
class Within:
    """One number in an interval."""

    what: str
    low: float
    high: float

    def agrees(self, actual: object) -> bool:
        return self.judge(actual).check.passed

    def judge(self, actual: object) -> Comparison:
        if isinstance(actual, Tensor) and actual.numel() != 1:
            line = f"{self.what}: has shape {tuple(actual.shape)}, expected one number"
            return Comparison(Check(self.what, False, math.inf, actual, interval=True), headline=line)
        plain = type(actual) in (Tensor, nn.Parameter, float, int)
        if not plain or (isinstance(actual, Tensor) and actual.is_complex()) or _is_huge(actual):
            check = Check(self.what, False, math.inf, kind(actual), interval=True)
            return Comparison(check, headline=f"{self.what}: is {kind(actual)}, expected one number")
        value = float(actual.detach() if isinstance(actual, Tensor) else actual)  # type: ignore[arg-type]
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        ratio = abs(value - centre) / half if half and math.isfinite(value) else math.inf
        passed = self.low <= value <= self.high
        check = Check(self.what, passed, ratio, value, None, half, interval=True)
        line = f"{self.what} is {value:.6g}, must lie between {self.low:.6g} and {self.high:.6g}"
        return Comparison(check, headline=line)


@dataclass(frozen=True)
class Raises:
    """An exception of the named class (or a subclass of it)."""

    what: str
    exception: str

    def agrees(self, actual: object) -> bool:
        return isinstance(actual, Raised) and actual.fits

    def judge(self, actual: object) -> Comparison:
        wanted = f"raised {self.exception}"
        if not isinstance(actual, Raised):
            actual = Raised(False, kind(actual))
        if actual.fits:
            return Comparison(Check(self.what, True, 0.0, wanted, wanted))
        check = Check(self.what, False, math.inf, str(actual), wanted)
        said = f"{actual}: {actual.text}" if actual.text else str(actual)
        return Comparison(check, headline=f"{self.what}: must raise {self.exception}, {said}")


@dataclass(frozen=True)
class Holds:
    """A contract that is either kept or not."""

    what: str

    def agrees(self, actual: object) -> bool:
        return actual is True

    def judge(self, actual: object) -> Comparison:
        kept = actual is True
        check = Check(self.what, kept, 0.0 if kept else math.inf, kept, True)
        return Comparison(check, headline=f"this does not hold: {self.what}")


def agree(actual: Sequence[object], expected: Sequence[object], atol: float, rtol: float) -> bool:
    """Whether every value agrees with its expected one, told in one go; only for tensors, else False."""
    ours: list[Tensor] = []
    for got, want in zip(actual, expected, strict=True):
        if type(got) is not Tensor or not isinstance(want, Tensor):
            return False
        if got.dtype != want.dtype or got.shape != want.shape or got.layout != torch.strided:
            return False
        if got.is_complex():
            return False
        ours.append(got.reshape(-1))
    left = torch.cat(ours).to(torch.float64)
    right = torch.cat([want.detach().reshape(-1) for want in expected]).to(torch.float64)  # type: ignore[attr-defined]
    return torch.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True)


def _is_trajectory(actual: object) -> bool:
    return isinstance(actual, Sequence) and all(isinstance(step, Mapping) for step in actual)


def compare(
    actual: object, expected: Value, atol: float, rtol: float, what: str, part: str = ""
) -> Comparison:
    problem = _difference_in_kind(actual, expected)
    if problem:
        kept = snapshot(actual) if isinstance(actual, Tensor | float | int | None) else kind(actual)
        check = Check(what, False, math.inf, kept, snapshot(expected), 0.0, part)
        return Comparison(check, [problem])
    if expected is None:
        return Comparison(Check(what, True, 0.0, None, None, 0.0, part))
    got, want = _as_float64(actual), _as_float64(expected)
    error = (got - want).abs()
    allowed = atol + rtol * want.abs()
    alike = (got == want) | (got.isnan() & want.isnan())
    ratios = torch.where(alike, torch.zeros_like(error), error / allowed).nan_to_num(nan=math.inf)
    wrong = ~(alike | (error <= allowed))
    passed = not bool(wrong.any())
    ratio = float(ratios.max()) if ratios.numel() else 0.0
    limit = float(allowed.nan_to_num(0.0, 0.0).max()) if allowed.numel() else 0.0
    check = Check(what, passed, ratio, snapshot(actual), snapshot(expected), limit, part)
    return Comparison(check, [] if passed else _explain(got, want, error, allowed, ratios, wrong))


def _difference_in_kind(actual: object, expected: Value) -> str:
    """What differs before any number is looked at: type, shape, dtype."""
    if isinstance(expected, Tensor):
        if type(actual) not in (Tensor, nn.Parameter):
            return f"is {kind(actual)}, expected a torch.Tensor of shape {tuple(expected.shape)}"
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
            return f"is {kind(actual)}, expected a list of {len(expected)} floats"
        return "" if len(actual) == len(expected) else f"has {len(actual)} items, expected {len(expected)}"
    if expected is None:
        return "" if actual is None else f"is {kind(actual)}, expected None"
    same = isinstance(actual, type(expected)) and isinstance(actual, bool) == isinstance(expected, bool)
    return "" if same else f"is {kind(actual)}, expected {_article(type(expected).__name__)}"


def kind(value: object) -> str:
    """A value's type in words."""
    if isinstance(value, Foreign):
        return value.kind
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
        plain = value.detach()
        return (torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain).to(torch.float64)
    if _is_huge(value):
        value = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    return torch.tensor(value, dtype=torch.float64)


def _is_huge(value: object) -> bool:
    """Whether a whole number is beyond every float."""
    return isinstance(value, int) and value.bit_length() > 1000


def snapshot(value: object) -> Value:
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
