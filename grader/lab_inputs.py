"""What the labs' tests share: inputs drawn from `rng`, awkward memory orders, equality to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from grader.checks import assert_matches
from grader.comparison import Value

F64 = torch.float64


def same(actual: Value, expected: Callable[[], Value], what: str) -> None:
    """Check that a value equals the expected one to the last bit."""
    __tracebackhide__ = True
    assert_matches(actual, expected, atol=0.0, rtol=0.0, what=what)


def randn(rng: Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(shape, generator=rng, dtype=F64)


def between(rng: Generator, low: int, high: int) -> int:
    """A whole number from low to high, ends included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def number(rng: Generator, low: float = 0.5, high: float = 2.0) -> float:
    """A float between low and high: an answer that was written down beforehand doesn't fit it."""
    return low + (high - low) * float(torch.rand((), generator=rng, dtype=F64))


def random_seed(rng: Generator) -> int:
    """For a generator that the code under test may draw from: it must not move the test's own inputs."""
    return int(torch.randint(2**40, (), generator=rng))


def strided(x: Tensor) -> Tensor:
    """The same values in another memory order: `view(-1)` fails on it, `reshape(-1)` makes a copy."""
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.ndim > 1 else torch.stack([x, x], -1)[..., 0]


def signed_permutation(rng: Generator) -> Tensor:
    """A 4×4 matrix with one 1 or −1 a row and a column: arithmetic on powers of two is exact in 16 bits."""
    signs = torch.where(randn(rng, 4, 1) > 0, 1.0, -1.0).to(F64)
    return signs * torch.eye(4, dtype=F64)[torch.randperm(4, generator=rng)]
