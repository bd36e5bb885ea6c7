"""Measure every number that the page of lab 01 quotes.

Run `python solutions/01_gradients/measure.py` to see them all.
Seeds are fixed, and numbers keep only as many digits as every machine agrees on.
"""

import itertools
import math
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from grader.authoring.numbers import percent, signed, superscript, table
from grader.implementations import load

SOLUTION = Path(__file__).with_name("solution.py")
NOTEBOOK = Path(__file__).parents[2] / "labs" / "01_gradients" / "notebook_source.py"


def load_cell(title: str, core: ModuleType) -> dict[str, Any]:
    """The names that the notebook's cell `# %% title` defines, with the solution as the exercise."""
    text = NOTEBOOK.read_text(encoding="utf-8").split(f"\n# %% {title}\n")[1].split("\n# %%")[0]
    names: dict[str, Any] = {
        "exercise": core,
        "math": math,
        "torch": torch,
        "itertools": itertools,
        "Tensor": Tensor,
        "nn": nn,
    }
    names |= {"Function": Function, "Callable": Callable, "Any": Any}
    exec(compile(text, str(NOTEBOOK), "exec"), names)
    return names


def measure() -> dict[str, str]:
    """Return the text of every marker: name -> number, words or Markdown table."""
    torch.set_num_threads(1)
    core = load(SOLUTION)
    parts = (
        measure_activations,
        measure_inverse,
        measure_mish,
        measure_swiglu,
        measure_differences,
        measure_gradcheck,
        measure_suspects,
        measure_digits,
        measure_fused,
    )
    texts: dict[str, str] = {}
    for part in parts:
        texts.update(part(core))
    return texts


# ---- writing numbers ------------------------------------------------------------------


def order(error: float, floor: float = 1e-15) -> str:
    """An error as a power of ten, rounded on the logarithmic scale."""
    if error < floor:
        return f"below 10{superscript(round(math.log10(floor)))}"
    return f"10{superscript(round(math.log10(error)))}"


# ---- 1: activations -------------------------------------------------------------------


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slope(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(leaf), leaf, torch.ones_like(x))
    return gradient


def mean_square(f: Callable[[Tensor], Tensor]) -> float:
    """E f(z)² for z ~ N(0, 1), by the trapezoidal rule; the kink of a ReLU lies on a node."""
    z = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    weight = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return float((f(z).square() * weight).sum() * (z[1] - z[0]))


def measure_activations(core: ModuleType) -> dict[str, str]:
    functions = {
        "`leaky_relu`": core.leaky_relu,
        "`lecun_tanh`": core.lecun_tanh,
        "`lisht`": core.lisht,
        "`mish`": core.mish,
    }
    rows = []
    for name, f in functions.items():
        points = tensor(-2, 0, 2)
        found = [*f(points).tolist(), *slope(f, points).tolist()]
        square = mean_square(f)
        rows.append([name, *(signed(v, 4) for v in found), f"{square:.4f}", f"{1 / math.sqrt(square):.3f}"])
    header = ["", "f(−2)", "f(0)", "f(2)", "f′(−2)", "f′(0)", "f′(2)", "E f(z)²", "gain"]
    lecun = core.lecun_tanh
    return {
        "activation_table": table(header, rows),
        "lecun_at_1": f"{lecun(tensor(1.0)).item():.7f}",
        "lecun_slope_at_0": f"{slope(lecun, tensor(0.0)).item():.4f}",
        "lecun_slope_at_1": f"{slope(lecun, tensor(1.0)).item():.4f}",
        "tanh_line_at_1": f"{math.tanh(1) + 0.1:.4f}",
    }


def measure_inverse(core: ModuleType) -> dict[str, str]:
    cells = []
    for at in (3, 5, 10, 15, 20, 25):
        x = torch.linspace(at - 0.5, at, 500, dtype=torch.float64)
        error = float((core.lecun_tanh_inverse(core.lecun_tanh(x)) - x).abs().max())
        cells.append(order(error))
    header = ["x up to", "3", "5", "10", "15", "20", "25"]
    last = core.lecun_tanh_inverse(core.lecun_tanh(tensor(30.0))).item()
    return {
        "inverse_table": table(header, [["largest error of the way there and back", *cells]]),
        "inverse_at_30": f"{last:g}".replace("inf", "infinity"),
    }


# ---- 2: Mish --------------------------------------------------------------------------


def exact_mish(at: float) -> float:
    """In a hundred digits, as it is written."""
    with localcontext() as context:
        context.prec = 100
        x = Decimal(at)
        twice = (2 * (1 + x.exp()).ln()).exp()
        return float(x * (twice - 1) / (twice + 1))


def digits_right(value: float, right: float) -> str:
    """How many digits of a value are right, 15 at most."""
    error = abs(value / right - 1)
    return str(max(0, min(15, math.floor(-math.log10(max(error, 1e-16))))))


def measure_mish(core: ModuleType) -> dict[str, str]:
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "x · tanh(log(1 + eˣ))": lambda x: x * torch.tanh(torch.log(1 + torch.exp(x))),
        "x · (1 − 2 / (n + 2))": lambda x: x * (1 - 2 / (torch.exp(x) * (torch.exp(x) + 2) + 2)),
        "x · s (1 + q) / (1 + q²)": core.mish,
    }
    points = (-10.0, -20.0, -30.0, -40.0, -60.0)
    rows = []
    for name, f in ways.items():
        counts = [int(digits_right(f(tensor(at)).item(), exact_mish(at))) for at in points]
        rows.append([name, *("14 or more" if count >= 14 else str(count) for count in counts)])
    x = torch.linspace(-4, 4, 8001, dtype=torch.float64)
    misplaced = float((precedence(x) - slope(core.mish, x)).abs().max())
    one, zero = tensor(1.0), tensor(0.0)
    low = torch.linspace(-1.3, -1.1, 200_001, dtype=torch.float64)
    values = core.mish(low)
    return {
        "mish_digits_table": table(["x", *(f"−{-at:.0f}" for at in points)], rows),
        "mish_minimum": signed(float(values.min()), 4),
        "mish_minimum_at": signed(float(low[values.argmin()]), 3),
        "mish_slope_at_0": f"{slope(core.mish, zero).item():.1f}",
        "mish_slope_at_1": f"{slope(core.mish, one).item():.4f}",
        "precedence_at_0": f"{precedence(zero).item():.1f}",
        "precedence_at_1": f"{precedence(one).item():.4f}",
        "precedence_worst": f"{misplaced:.2f}",
        "omega_at_1": f"{omega_without_cube(one).item():.4f}",
        "omega_error_at_minus_5": order(
            abs(omega_without_cube(tensor(-5.0)).item() - slope(core.mish, tensor(-5.0)).item())
        ),
    }


def precedence(x: Tensor) -> Tensor:
    """Mish's derivative with a misplaced bracket."""
    t = torch.tanh(torch.log1p(torch.exp(x)))
    return 1 - t**2 * x * torch.sigmoid(x)


def omega_without_cube(x: Tensor) -> Tensor:
    """Mish's derivative without one term of its polynomial."""
    e = torch.exp(x)
    return e * (4 * (x + 1) + 4 * e**2 + e * (4 * x + 6)) / (2 * e + e**2 + 2) ** 2


# ---- 3: SwiGLU ------------------------------------------------------------------------


def measure_swiglu(core: ModuleType) -> dict[str, str]:
    gate, value = tensor(3.0), tensor(-0.5)

    def silu(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    return {
        "swiglu_right": signed(core.swiglu(gate, value).item(), 4),
        "swiglu_bracket": signed(silu(gate * value).item(), 4),
        "swiglu_exchanged": signed(core.swiglu(value, gate).item(), 4),
        "swiglu_silu": signed(silu(gate).item(), 4),
    }


# ---- 4: finite differences ------------------------------------------------------------


def measure_differences(core: ModuleType) -> dict[str, str]:
    """Root mean square errors at many points: single ones depend on the luck of rounding."""
    points = torch.linspace(0.5, 1.0, 400, dtype=torch.float64)
    right = torch.cos(points)
    rows = []
    steps = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
    for name, central in (("one-sided", False), ("central", True)):
        cells = []
        for eps in steps:
            low, width = (points - eps, 2 * eps) if central else (points, eps)
            found = (torch.sin(points + eps) - torch.sin(low)) / width
            cells.append(order(float((found - right).square().mean().sqrt())))
        rows.append([name, *cells])
    header = ["ε", *(f"10{superscript(round(math.log10(eps)))}" for eps in steps)]
    found = core.numerical_gradient(lambda x: torch.sin(x).sum(), points[:20])
    return {
        "epsilon_table": table(header, rows),
        "numerical_error": order(float((found - right[:20]).abs().max())),
    }


# ---- 5: the gradient check ------------------------------------------------------------


def written(value: Callable[..., Tensor], gradients: Callable[..., Any]) -> Callable[..., Tensor]:
    """value(*inputs) with the backward gradients(upstream, *inputs)."""

    class Written(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return value(*inputs)

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> Any:
            return gradients(upstream, *ctx.saved_tensors)

    def call(*inputs: Tensor) -> Tensor:
        result: Tensor = Written.apply(*inputs)  # type: ignore[no-untyped-call]
        return result

    return call


def measure_gradcheck(core: ModuleType) -> dict[str, str]:
    """What torch's own check lets through with its default tolerances."""
    x = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_()

    def passes(f: Callable[[Tensor], Tensor], x: Tensor, check: Any = torch.autograd.gradcheck) -> str:
        return "passes" if check(f, x, raise_exception=False) else "fails"

    off = {
        factor: written(lambda x: 3 * x, lambda u, x, k=factor: 3 * k * u) for factor in (1.0005, 1.01, 2.0)
    }
    faint = written(lambda x: 3e-6 * x, lambda u, x: 6e-6 * u)
    detached = written(torch.sin, lambda u, x: u * torch.cos(x.detach()))
    twice = torch.autograd.gradgradcheck
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    single = torch.linspace(-1, 1, 7, dtype=torch.float32).requires_grad_()
    rows = [
        ["a factor of 1.0005", passes(off[1.0005], x), ours(core, off[1.0005], x)],
        ["a factor of 1.01", passes(off[1.01], x), ours(core, off[1.01], x)],
        ["a factor of 2 on a gradient of 3·10⁻⁶", passes(faint, x), ours(core, faint, x)],
        ["a ReLU at exactly 0 (not wrong)", passes(torch.relu, zero), ours(core, torch.relu, zero)],
        ["a right function in float32", quiet(torch.sin, single), ours(core, torch.sin, single)],
        ["a backward that can't be differentiated", passes(detached, x), ours(core, detached, x)],
    ]
    return {
        "gradcheck_table": table(
            ["what is checked", "`torch.autograd.gradcheck`", "your `check_gradients`"], rows
        ),
        "gradgradcheck_detached": passes(detached, x, twice),
    }


def quiet(f: Callable[[Tensor], Tensor], x: Tensor) -> str:
    """gradcheck without its warning about float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "passes" if torch.autograd.gradcheck(f, x, raise_exception=False) else "fails"


def ours(core: ModuleType, f: Callable[[Tensor], Tensor], x: Tensor) -> str:
    return "passes" if core.check_gradients(f, x) else "fails"


def measure_suspects(core: ModuleType) -> dict[str, str]:
    """The notebook's planted bugs under three losses: the largest error of all inputs, and the verdict."""
    cell = load_cell("suspects", core)
    losses: dict[str, Callable[[Callable[..., Tensor]], Callable[..., Tensor]]] = {
        "random": lambda f: f,
        "sum": lambda f: lambda *inputs: f(*inputs).sum(),
        "mean": lambda f: lambda *inputs: f(*inputs).mean(),
    }
    rows = []
    for name in cell["SUSPECTS"]:
        f, inputs = cell["question"](name)
        cells = []
        for loss in losses.values():
            report = core.check_gradients(loss(f), inputs)
            error = max(item.error for item in report.inputs)
            cells.append("passes" if report else f"found, off by {error:.1g}")
        rows.append([f"`{name}`", *cells])
    return {"suspects_table": table(["suspect", "random upstream", "`.sum()`", "`.mean()`"], rows)}


# ---- 6: silent units ------------------------------------------------------------------


def measure_digits(core: ModuleType) -> dict[str, str]:
    train = load_cell("digits", core)["train_on_digits"]
    kinds: dict[str, Callable[[Tensor], Tensor]] = {
        "ReLU": lambda x: core.leaky_relu(x, 0.0),
        "leaky ReLU": core.leaky_relu,
        "Mish": core.mish,
    }
    rates = (1e-3, 1e-2, 1e-1)
    rows = []
    for name, activation in kinds.items():
        runs = [[train(activation, lr, seed) for seed in range(2)] for lr in rates]
        means = [[sum(values) / len(run) for values in zip(*run, strict=True)] for run in runs]
        rows.append(
            [name, *(percent(silent) for silent, _ in means), *(percent(wrong) for _, wrong in means)]
        )
    header = ["", *(f"silent, lr {lr:g}" for lr in rates), *(f"wrong, lr {lr:g}" for lr in rates)]
    return {"digits_table": table(header, rows)}


# ---- 7: norm and activation in one ----------------------------------------------------


def measure_fused(core: ModuleType) -> dict[str, str]:
    cell = load_cell("suspects", core)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    scale = 0.5 + torch.rand(16, generator=generator, dtype=torch.float64)
    found = {}
    for name, upstream in (
        ("random", torch.randn(8, 16, generator=generator, dtype=torch.float64)),
        ("mean", torch.full((8, 16), 1 / 128, dtype=torch.float64)),
    ):
        leaves = [x.clone().requires_grad_(), scale.clone().requires_grad_()]
        right = torch.autograd.grad(cell["norm_tanh"](*leaves), leaves, upstream)
        wrong = cell["norm_tanh_gradients"](upstream, x, scale)
        for part, a, b in zip(("x", "scale"), right, wrong, strict=True):
            found[f"fused_{name}_{part}"] = f"{float((a - b).abs().max()):.1g}"
    return found


if __name__ == "__main__":
    for name, text in measure().items():
        print(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
