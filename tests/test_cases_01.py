"""Lab 01: numbers that must come out, worked by hand or read from another implementation.

The oracle of each is named; none of them is this repository's own code.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from grader.course import find_root, load_course
from grader.implementations import load

LAB = load_course(find_root(Path(__file__).parent)).find_lab("01")


@pytest.fixture(scope="module")
def solution() -> ModuleType:
    return load(LAB.solution)


class Sum(torch.autograd.Function):
    """Some Function of one input or of two; nobody asks for its gradient here."""

    @staticmethod
    def forward(ctx: object, *inputs: Tensor) -> Tensor:
        return inputs[0].sum(0) if len(inputs) == 1 else inputs[0] + inputs[1]


def total(*inputs: Tensor) -> Tensor:
    result: Tensor = Sum.apply(*inputs)  # type: ignore[no-untyped-call]
    return result


REARRANGED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "as they are": lambda a, b: total(a, b),
    "stacked": lambda a, b: total(torch.stack([a, b])),
    "concatenated": lambda a, b: total(torch.cat([a[None], b[None]])),
    "stacked and taken apart": lambda a, b: total(*torch.stack([a, b]).unbind(0)),
    "split": lambda a, b: total(*torch.cat([a, b]).chunk(2)),
    "chosen by index": lambda a, b: total(a[torch.arange(3)], b.index_select(0, torch.arange(3))),
    "chosen by mask": lambda a, b: total(a[a == a].view(3, 4), b.masked_select(b == b).view(3, 4)),
    "gathered": lambda a, b: total(a.gather(0, torch.zeros(3, 4, dtype=torch.int64)), b.flip(0).roll(1)),
    "transposed": lambda a, b: total(a.T.contiguous(), b.mT).T,
    "cast": lambda a, b: total(a.float(), b.float()).double(),
    "expanded": lambda a, b: total(a.expand(2, 3, 4), b.repeat(2, 1, 1))[0].clone(),
}
CALCULATED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "before": (lambda a, b: total(a * 1.0, b), "1 Function of your own and MulBackward0"),
    "after": (lambda a, b: total(a, b).sum(), "1 Function of your own and SumBackward0"),
    "by a case": (lambda a, b: torch.where(a > 0, total(a, b), b), "WhereBackward0"),
    "in two Functions": (lambda a, b: total(total(a, b), b), "2 Functions of your own"),
    "without any": (lambda a, b: a + b, "0 Functions of your own and AddBackward0"),
    "without a graph": (lambda a, b: a.detach(), "0 Functions of your own"),
}


@pytest.fixture(scope="module")
def by_hand() -> Callable[[Tensor], tuple[bool, str]]:
    """How lab 01's tests tell whether a function is one Function."""
    found: Callable[[Tensor], tuple[bool, str]] = runpy.run_path(str(LAB.tests_path))["by_hand"]
    return found


@pytest.mark.parametrize("name", REARRANGED)
def test_one_function_may_stand_among_what_rearranges(
    by_hand: Callable[[Tensor], tuple[bool, str]], name: str
) -> None:
    a, b = (torch.ones(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert by_hand(REARRANGED[name](a, b)) == (True, "")


@pytest.mark.parametrize("name", CALCULATED)
def test_what_calculates_beside_a_function_is_named(
    by_hand: Callable[[Tensor], tuple[bool, str]], name: str
) -> None:
    a, b = (torch.ones(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    function, said = CALCULATED[name]
    kept, found = by_hand(function(a, b))
    assert not kept
    assert found.endswith(said)


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def slope(f: Callable[[Tensor], Tensor], x: float) -> float:
    leaf = number(x).requires_grad_()
    return float(torch.autograd.grad(f(leaf), leaf)[0])


def test_mishs_derivative_at_0_and_1(solution: ModuleType) -> None:
    """mpmath. A misplaced bracket gives 1.0 and 0.4529; without the cube of eˣ the second is 0.8006."""
    assert slope(solution.mish, 0.0) == pytest.approx(0.6, abs=1e-15)
    assert slope(solution.mish, 1.0) == pytest.approx(1.04903622, abs=1e-8)


def test_mishs_minimum(solution: ModuleType) -> None:
    """mpmath: −0.30884 at −1.19243."""
    assert float(solution.mish(number(-1.19243))) == pytest.approx(-0.30884, abs=5e-6)
    assert slope(solution.mish, -1.19243) == pytest.approx(0.0, abs=5e-6)


def test_lecun_tanh_at_1_and_its_slope_at_0(solution: ModuleType) -> None:
    """mpmath; another function under this name, tanh(x) + 0.1x, has the slope 1.1."""
    assert float(solution.lecun_tanh(number(1.0))) == pytest.approx(0.9999973, abs=5e-8)
    assert slope(solution.lecun_tanh, 0.0) == pytest.approx(1.14393, abs=5e-6)


@pytest.mark.parametrize(
    ("x", "error"), [(3.0, 2e-15), (10.0, 2e-12), (20.0, 2e-5), (28.0, 0.3), (30.0, math.inf)]
)
def test_what_comes_back_from_saturation(solution: ModuleType, x: float, error: float) -> None:
    """mpmath: 9e-16 up to 3, 5e-13 at 10, 7e-6 at 20, 7e-2 at 28, infinity at 30."""
    back = float(solution.lecun_tanh_inverse(solution.lecun_tanh(number(x))))
    assert abs(back - x) <= error
    assert math.isinf(back) == math.isinf(error)


@pytest.mark.parametrize(
    ("name", "square"),
    [("leaky_relu", 0.50005), ("mish", 0.452342), ("lisht", 0.757890), ("lecun_tanh", 0.750430)],
)
def test_mean_square_of_an_activation_of_normal_numbers(
    solution: ModuleType, name: str, square: float
) -> None:
    """mpmath's quadrature: E f(z)² for z ~ N(0, 1)."""
    z = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    found = float((getattr(solution, name)(z).square() * density).sum() * 0.001)
    assert found == pytest.approx(square, abs=5e-7)


def test_swiglu_of_gate_3_and_value_minus_a_half(solution: ModuleType) -> None:
    """By hand; silu(g·v) would be −0.2736, exchanged −0.5663, silu alone 2.8577."""
    assert float(solution.swiglu(number(3.0), number(-0.5))) == pytest.approx(-1.42886119, abs=5e-9)


def test_a_backward_from_outside_the_unit_scale_is_found(solution: ModuleType) -> None:
    """A factor of 2 on a gradient of 3e-6 passes torch's own check with its default tolerances."""

    class Faint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return 3e-6 * x

        @staticmethod
        def backward(ctx: object, upstream: Tensor) -> Tensor:
            return 6e-6 * upstream

    x = torch.ones(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Faint.apply, x)
    assert not solution.check_gradients(Faint.apply, x)


def test_a_gradient_of_an_impossible_shape_is_reported(solution: ModuleType) -> None:
    class Short(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: object, upstream: Tensor) -> Tensor:
            return 2 * upstream[:2]

    report = solution.check_gradients(Short.apply, torch.ones(5, dtype=torch.float64))
    assert not report
    assert math.isinf(report.inputs[0].error)


def test_no_entries_are_right(solution: ModuleType) -> None:
    report = solution.check_gradients(torch.sin, torch.ones(0, 3, dtype=torch.float64))
    assert report.ok is True
    assert len(report.inputs) == 1


def test_the_derivative_before_the_scale_is_worst_under_a_random_upstream(solution: ModuleType) -> None:
    """A public code took act′ at the normalised row; its own test used a mean, where errors are 1/N."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    w = 0.5 + torch.rand(16, generator=generator, dtype=torch.float64)

    def gradient(scale_inside: bool, upstream: Tensor) -> Tensor:
        n = (x - x.mean(-1, keepdim=True)) * (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
        leaf = w.clone().requires_grad_()
        at = leaf if scale_inside else torch.ones_like(w)
        derivative = 1.7159 * 2 / 3 * (1 - torch.tanh(2 * at * n / 3) ** 2)
        return (upstream * derivative.detach() * n).sum(0)

    for upstream in (
        torch.randn(8, 16, generator=generator, dtype=torch.float64),
        torch.full_like(x, 1 / 128),
    ):
        leaf = w.clone().requires_grad_()
        solution.fused_norm_activation(x, leaf, "lecun_tanh").backward(upstream)
        torch.testing.assert_close(leaf.grad, gradient(True, upstream), rtol=1e-10, atol=1e-12)
        assert not torch.allclose(gradient(True, upstream), gradient(False, upstream), rtol=1e-2)
