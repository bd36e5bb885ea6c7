"""Lab 01's solution, and the oracles that its tests use, against mpmath and against torch."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from grader.course import find_root, load_course
from grader.implementations import load

LAB = load_course(find_root(Path(__file__).parent)).find_lab("01")
TESTS = runpy.run_path(str(LAB.tests_path))

EXACT: dict[str, Callable[[Any], Any]] = {
    "leaky_relu": lambda x: x if x > 0 else mpmath.mpf(0.01) * x,
    "lecun_tanh": lambda x: mpmath.mpf(1.7159) * mpmath.tanh(2 * x / 3),
    "lisht": lambda x: x * mpmath.tanh(x),
    "mish": lambda x: x * mpmath.tanh(mpmath.log(1 + mpmath.exp(x))),
}


@pytest.fixture(scope="module")
def solution() -> ModuleType:
    return load(LAB.solution)


def exactly(name: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Value and derivative in 80 digits, rounded once."""
    with mpmath.workdps(80):
        points = [mpmath.mpf(v) for v in x.tolist()]
        values = [float(EXACT[name](p)) for p in points]
        slopes = [float(mpmath.diff(EXACT[name], p)) for p in points]
    return torch.tensor(values, dtype=torch.float64), torch.tensor(slopes, dtype=torch.float64)


def value_and_slope(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    y = f(leaf)
    (slope,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    return y.detach(), slope


@pytest.mark.parametrize("name", EXACT)
def test_activations_equal_mpmath(solution: ModuleType, name: str) -> None:
    x = torch.cat(
        [torch.linspace(-8.05, 8.05, 24, dtype=torch.float64), torch.tensor([-30.0, 30.0]).double()]
    )
    for found, right in zip(value_and_slope(getattr(solution, name), x), exactly(name, x), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-14, atol=1e-14)


def test_mish_keeps_its_digits_down_to_minus_60(solution: ModuleType) -> None:
    x = -torch.linspace(2, 60, 30, dtype=torch.float64)
    for found, right in zip(value_and_slope(solution.mish, x), exactly("mish", x), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-13, atol=0)


def test_the_decimal_oracle_of_mish_equals_mpmath() -> None:
    x = torch.cat(
        [-torch.linspace(2, 60, 12, dtype=torch.float64), torch.tensor([-0.5, 0.0, 3.0, 40.0]).double()]
    )
    for found, right in zip(TESTS["mish_table"](x), exactly("mish", x), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-15, atol=0)


def test_the_decimal_oracle_of_mish_is_right_far_out() -> None:
    values, slopes = TESTS["mish_table"](torch.tensor([-1000.0, 1000.0], dtype=torch.float64))
    assert values.tolist() == [0.0, 1000.0]
    assert slopes.tolist() == [0.0, 1.0]


def test_the_inverse_equals_mpmath(solution: ModuleType) -> None:
    y = torch.linspace(-1.7, 1.7, 35, dtype=torch.float64)
    with mpmath.workdps(40):
        right = torch.tensor(
            [float(1.5 * mpmath.atanh(mpmath.mpf(v) / mpmath.mpf(1.7159))) for v in y.tolist()],
            dtype=torch.float64,
        )
    torch.testing.assert_close(solution.lecun_tanh_inverse(y), right, rtol=1e-13, atol=1e-13)


def test_torchs_own_checks_accept_the_solution(solution: ModuleType) -> None:
    """First and second derivatives, by torch's finite differences."""
    generator = torch.Generator().manual_seed(0)
    x, gate, value = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64).unbind(0)
    scale = torch.randn(4, generator=generator, dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    cases: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
        (solution.leaky_relu, (x,)),
        (solution.lecun_tanh, (x,)),
        (solution.lisht, (x,)),
        (solution.mish, (x,)),
        (solution.mish, (zero,)),
        (solution.swiglu, (gate, value)),
    ]
    for name in EXACT:
        cases.append((lambda x, w, name=name: solution.fused_norm_activation(x, w, name), (x, scale)))
    for f, inputs in cases:
        leaves = tuple(one.clone().requires_grad_() for one in inputs)
        assert torch.autograd.gradcheck(f, leaves)
        assert torch.autograd.gradgradcheck(f, leaves)


def test_the_second_derivative_of_torchs_mish_is_a_fair_oracle() -> None:
    """It equals that of the composition, which autograd finds by itself."""
    x = torch.linspace(-6, 6, 25, dtype=torch.float64).requires_grad_()

    def second(f: Callable[[Tensor], Tensor]) -> Tensor:
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    composed = second(lambda x: x * torch.tanh(torch.log1p(torch.exp(x))))
    torch.testing.assert_close(second(functional.mish), composed, rtol=1e-12, atol=1e-12)


def test_the_planted_bugs_are_bugs_and_their_right_versions_are_right() -> None:
    """By autograd, which knows nothing of finite differences."""
    generator = torch.Generator().manual_seed(0)
    for name, (value, right, wrong, shapes, bad) in TESTS["PLANTED"].items():
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        inputs = [x + x.sign() for x in inputs]
        fixed = [torch.tensor([0, 2, 1, 2])] if name == "loss_without_one_hot" else []
        leaves = [x.clone().requires_grad_() for x in inputs]
        output = value(*leaves, *fixed)
        upstream = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        exact = torch.autograd.grad(output, leaves, upstream)
        for version, expected in ((right, set()), (wrong, set(bad))):
            found = version(upstream, *inputs, *fixed)
            found = found if isinstance(found, tuple) else (found,)
            off = {i for i, g in enumerate(exact) if not torch.allclose(g, found[i], rtol=1e-9, atol=1e-11)}
            assert off == expected, name
