# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01: gradients
#
# This notebook walks through the seven steps of the lab.
# Write your code in `exercise.py` beside it, not here: each cell below uses the file as it is at that moment, so save it and run the cell again.
# A step has a few lines of theory, a cell that runs its tests, and something to look at, drawn by your own code.
# The derivations, the exact contracts and the common mistakes are in the lab's page, `README.md`.
#
# Start the notebook from the lab's folder, and run the next cell first.

# %%
# %load_ext autoreload
# %autoreload 2

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import exercise
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.autograd import Function

torch.set_num_threads(1)  # small matrices: more threads only make them slower
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 100})
BLUE, ORANGE, GREEN, PURPLE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
)  # colour-blind readers tell them apart
GREY = "#666666"
PYTHON = f'"{sys.executable}"'  # in quotes, since its path may hold spaces
print(f"Python {sys.version.split()[0]}, torch {torch.__version__}: ready")


@contextmanager
def my_code() -> Iterator[None]:
    """Run a cell with the exercise; what isn't written yet gives one line instead of a traceback."""
    try:
        yield
    except NotImplementedError as missing:
        print(f"{missing} is still to do: write it in exercise.py, save, and run this cell again")


# %% [markdown]
# ## Step 1: four simple activations
#
# A `torch.autograd.Function` is a forward and a backward.
# The backward gets the gradient of the loss with respect to the output, $u$, and returns the gradient with respect to the input: for a function that works entry by entry, $u \cdot f'(x)$.

# %%
# !{PYTHON} -m pytest -q . --step 1

# %% [markdown]
# **Figure 1.** The activations of steps 1 and 2 and, dashed, the derivatives that your backward returns.
# Which of them can be inverted? Which derivative leaves the interval from 0 to 1, and on which side?


# %%
def slopes(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The derivative at each entry, from the function's own backward."""
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(leaf), leaf, torch.ones_like(x))
    return gradient


with my_code():
    x = torch.linspace(-5, 5, 401, dtype=torch.float64)
    panels = {
        "leaky ReLU, slope 0.2": (lambda x: exercise.leaky_relu(x, 0.2), BLUE),
        "LeCun's tanh": (exercise.lecun_tanh, ORANGE),
        "LiSHT": (exercise.lisht, GREEN),
        "Mish": (exercise.mish, PURPLE),
    }
    fig, axes = plt.subplots(1, 4, figsize=(12, 3.2), sharey=True, layout="constrained")
    for ax, (name, (f, colour)) in zip(axes, panels.items(), strict=True):
        ax.plot(x, f(x), color=colour, label="value")
        ax.plot(x, slopes(f, x), "--", color=colour, label="derivative")
        ax.axhline(0, lw=0.8, color=GREY)
        ax.set(title=name, xlabel="x", ylim=(-2.2, 4.2))
        ax.legend(loc="lower right", fontsize="small")
    plt.show()

# %% [markdown]
# **Figure 2.** Going through LeCun's tanh and back: the error of `lecun_tanh_inverse(lecun_tanh(x))`.
# The tanh squeezes more and more numbers into the last float below its limit, and the inverse can't tell them apart.
# (Where the way back is exact, the dot lies on the lower edge.)

# %%
with my_code():
    x = torch.linspace(0.05, 26, 521, dtype=torch.float64)
    error = (exercise.lecun_tanh_inverse(exercise.lecun_tanh(x)) - x).abs()
    fig, ax = plt.subplots()
    ax.plot(x, error.clamp(min=1e-17), ".", ms=3, color=ORANGE, label="error of the way there and back")
    ax.plot(
        x,
        1.1e-16 * 1.5 * torch.cosh(2 * x / 3) ** 2,
        "-",
        lw=1,
        color=GREY,
        label="half a last digit · 1.5 cosh²(2x/3)",
    )
    ax.set(yscale="log", xlabel="x", ylabel="error", title="Digits lost near saturation", ylim=(1e-17, 10))
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 2: Mish
#
# $\mathrm{mish}(x) = x \tanh(\mathrm{softplus}(x))$.
# As written it overflows on the right and loses its digits on the left; with $s = \sigma(x)$ and $q = \sigma(-x)$ it does neither:
#
# $$T = \frac{s (1 + q)}{1 + q^2} \qquad \mathrm{mish}(x) = x T \qquad \mathrm{mish}'(x) = T + x \frac{4 s q^2}{(1 + q^2)^2}$$

# %%
# !{PYTHON} -m pytest -q . --step 2

# %% [markdown]
# On the left, three ways to write the same function, and yours.
# Which digits are right, and where does a column become 0?

# %%
with my_code():
    print("      x    log(1 + eˣ)     1 − 2/(n + 2)    yours")
    for at in (-5.0, -20.0, -35.0, -40.0, -60.0):
        x = torch.tensor(at, dtype=torch.float64)
        e = torch.exp(x)
        plain = x * torch.tanh(torch.log(1 + e))
        difference = x * (1 - 2 / (e * (e + 2) + 2))
        print(f"{at:7.0f}    {plain:.6e}   {difference:.6e}   {exercise.mish(x):.6e}")

# %% [markdown]
# ## Step 3: SwiGLU
#
# $\mathrm{swiglu}(g, v) = g \sigma(g) v$: two inputs, two gradients, and each contains the other input.

# %%
# !{PYTHON} -m pytest -q . --step 3

# %% [markdown]
# One number to know it by: gate 3, value −0.5.
# Exchange the two, or put the bracket elsewhere, and another number comes out.

# %%
with my_code():
    three, half = torch.tensor(3.0, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)
    print(f"gate 3, value -0.5: {exercise.swiglu(three, half):.6f}")
    print(f"gate -0.5, value 3: {exercise.swiglu(half, three):.6f}")

# %% [markdown]
# ## Step 4: finite differences
#
# $$\frac{\partial f}{\partial x_i} \approx \frac{f(x + \varepsilon e_i) - f(x - \varepsilon e_i)}{2 \varepsilon}$$
#
# A large $\varepsilon$ errs because the function bends, a small one because two nearly equal numbers are subtracted.

# %%
# !{PYTHON} -m pytest -q . --step 4

# %% [markdown]
# **Figure 3.** The error of the derivative of $\sin$ at 1, from your `numerical_gradient` and from a one-sided difference, by $\varepsilon$.
# Where is each of them best, and how many digits does it have there?

# %%
with my_code():
    steps = [10.0 ** (-k / 4) for k in range(4, 53)]
    at = torch.tensor(1.0, dtype=torch.float64)
    central = [abs(exercise.numerical_gradient(torch.sin, at, eps).item() - math.cos(1)) for eps in steps]
    one_sided = [abs((math.sin(1 + eps) - math.sin(1)) / eps - math.cos(1)) for eps in steps]
    fig, ax = plt.subplots()
    ax.loglog(steps, one_sided, "s", ms=4, mfc="none", color=ORANGE, label="one-sided")
    ax.loglog(steps, central, "o", ms=4, color=BLUE, label="central, your numerical_gradient")
    ax.axvline(1e-6, lw=1, ls=":", color=GREY)
    ax.text(1.2e-6, 1e-2, "the default", color=GREY)
    ax.set(xlabel="ε", ylabel="error of the derivative", title="Two kinds of error, one best ε")
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 5: the gradient check
#
# Draw a random upstream gradient $u$, and compare the backward of $f$ under $u$ with the finite differences of the number $\sum u \cdot f$.

# %%
# !{PYTHON} -m pytest -q . --step 5

# %% [markdown]
# **The suspects.**
# Eight functions, each with the backward that somebody wrote beside it.
# One of them is innocent; the mistakes of the others are all of kinds that have been made, some of them in one public training code.
# Run your checker on them (the cell after the next one), find out which input and which entry is wrong, and then find the line.
# Don't look at the table in section 5 of the page before you have tried.


# %% suspects
class Written(Function):
    """A forward, and whatever backward was written beside it."""

    @staticmethod
    def forward(ctx: Any, value: Any, gradients: Any, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.gradients = gradients
        result: Tensor = value(*inputs)
        return result

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.gradients(u, *ctx.saved_tensors)


def softplus_gate(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def softplus_gate_gradients(u: Tensor, x: Tensor) -> tuple[Tensor]:
    t = torch.tanh(torch.log1p(torch.exp(x)))
    return (u * (1 - t**2 * x * torch.sigmoid(x)),)


def standardise(x: Tensor) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(-1, keepdim=True)
    r = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * r, r


def norm(x: Tensor) -> Tensor:
    return standardise(x)[0]


def norm_gradients(u: Tensor, x: Tensor) -> tuple[Tensor]:
    n, _ = standardise(x)
    return (u - u.mean(-1, keepdim=True) - n * (u * n).mean(-1, keepdim=True),)


def norm_tanh(x: Tensor, scale: Tensor) -> Tensor:
    y = scale * standardise(x)[0]
    return torch.tanh(y) + 0.1 * y


def norm_tanh_gradients(u: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    n, r = standardise(x)
    g = u * (1.1 - torch.tanh(n) ** 2)
    h = g * scale
    return r * (h - h.mean(-1, keepdim=True) - n * (h * n).mean(-1, keepdim=True)), (g * n).sum(0)


def soft_choice(x: Tensor) -> Tensor:
    z = x / 0.7  # a temperature
    return (z - z.logsumexp(-1, keepdim=True)).exp()


def soft_choice_gradients(u: Tensor, x: Tensor) -> tuple[Tensor]:
    p = soft_choice(x)
    return (p * (u - (p * u).sum(-1, keepdim=True)),)


LABELS = torch.tensor([2, 0, 1, 1, 0, 2])


def token_loss(x: Tensor) -> Tensor:
    return x.logsumexp(-1) - x[torch.arange(len(x)), LABELS]


def token_loss_gradients(u: Tensor, x: Tensor) -> tuple[Tensor]:
    p = (x - x.logsumexp(-1, keepdim=True)).exp()
    return (u[:, None] * p,)


def token_shift(x: Tensor) -> Tensor:
    return torch.roll(x, 1, dims=0)


def token_shift_gradients(u: Tensor, x: Tensor) -> tuple[Tensor]:
    return (torch.roll(u, 1, dims=0),)


def gated(x: Tensor, gate: Tensor) -> Tensor:
    return x * torch.sigmoid(gate)


def gated_gradients(u: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(gate)
    return u * s, u * x * s * (1 - s)


def two_devices(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def two_devices_gradients(u: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    mine, yours = u[:3], u[3:]  # each device has half of the rows of u …
    half = len(w) // 2  # … and half of the rows of w
    return torch.cat([mine[:, :half] @ w[:half], yours[:, half:] @ w[half:]]), u.T @ x


# name → value, gradients, shapes of the inputs
SUSPECTS: dict[str, tuple[Any, Any, list[tuple[int, ...]]]] = {
    "softplus_gate": (softplus_gate, softplus_gate_gradients, [(6, 3)]),
    "norm": (norm, norm_gradients, [(6, 4)]),
    "norm_tanh": (norm_tanh, norm_tanh_gradients, [(6, 4), (4,)]),
    "soft_choice": (soft_choice, soft_choice_gradients, [(6, 4)]),
    "token_loss": (token_loss, token_loss_gradients, [(6, 3)]),
    "token_shift": (token_shift, token_shift_gradients, [(6, 2)]),
    "gated": (gated, gated_gradients, [(6, 2), (6, 2)]),
    "two_devices": (two_devices, two_devices_gradients, [(6, 3), (4, 3)]),
}


def question(name: str, seed: int = 0) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """A suspect as a function, and inputs to question it with."""
    value, gradients, shapes = SUSPECTS[name]
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return (lambda *inputs: Written.apply(value, gradients, *inputs)), inputs


# %%
with my_code():
    for name in SUSPECTS:
        f, inputs = question(name)
        report = exercise.check_gradients(f, inputs)
        print(f"{name:14} {'right' if report else 'WRONG'}")
        for number, item in enumerate(report.inputs):
            print(
                f"    input {number}: worst at {item.index}, backward {item.analytic:+.4f}, differences {item.numeric:+.4f}"
            )

# %% [markdown]
# Many tests of a backward call `f(x).sum().backward()` or `f(x).mean().backward()`.
# The upstream gradient is then the same number everywhere.
# Which suspects get away with that, and why these?

# %%
with my_code():
    print("                 random u       .sum()        .mean()")
    for name in SUSPECTS:
        f, inputs = question(name)
        tests = {
            "random": f,
            "sum": lambda *inputs, f=f: f(*inputs).sum(),
            "mean": lambda *inputs, f=f: f(*inputs).mean(),
        }
        found = ["passes" if exercise.check_gradients(test, inputs) else "WRONG" for test in tests.values()]
        print(f"{name:14}   {found[0]:12}   {found[1]:12}  {found[2]:12}")

# %% [markdown]
# ## Step 6: silent units
#
# A unit whose output is 0 or less on every sample is silent.
# Behind a ReLU nothing comes back to it either, so it stays that way; behind a leaky ReLU or Mish a little does.

# %%
# !{PYTHON} -m pytest -q . --step 6

# %% [markdown]
# **Figure 4.** A network with two hidden layers of 64 learns scikit-learn's digits (1797 images of 8×8, they come with the package) for 100 steps of Adam, at several learning rates.
# Left: the share of hidden units that are silent on all images. Right: how many images the network still gets wrong.
# Do fewer silent units mean a better network?

# %% digits
from sklearn.datasets import load_digits  # noqa: E402  # here, so that the steps above run without it


def digits() -> tuple[Tensor, Tensor]:
    """All images as rows from −1 to 1, and their classes."""
    images, classes = load_digits(return_X_y=True)
    return torch.from_numpy(images / 8 - 1), torch.from_numpy(classes)


def train_on_digits(activation: Callable[[Tensor], Tensor], lr: float, seed: int = 0) -> tuple[float, float]:
    """The share of silent units and the share of wrong answers after 100 steps."""
    x, classes = digits()
    generator = torch.Generator().manual_seed(seed)
    sizes = [64, 64, 64, 10]
    weights = [
        (torch.randn(n, m, generator=generator, dtype=torch.float64) * math.sqrt(2 / n)).requires_grad_()
        for n, m in itertools.pairwise(sizes)
    ]
    biases = [torch.zeros(m, dtype=torch.float64, requires_grad=True) for m in sizes[1:]]

    def run(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        hidden = []
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            x = activation(x @ w + b)
            hidden.append(x.detach())
        return x @ weights[-1] + biases[-1], hidden

    optimizer = torch.optim.Adam([*weights, *biases], lr=lr)
    for _ in range(100):
        batch = torch.randint(len(x), (64,), generator=generator)
        logits, _ = run(x[batch])
        loss = nn.functional.cross_entropy(logits, classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logits, hidden = run(x)
    wrong = float((logits.argmax(-1) != classes).double().mean())
    return sum(exercise.dead_fraction(h) for h in hidden) / len(hidden), wrong


# %%
with my_code():
    rates = [1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
    kinds = {
        "ReLU": (lambda x: exercise.leaky_relu(x, 0.0), BLUE, "o-"),
        "leaky ReLU": (exercise.leaky_relu, ORANGE, "s--"),
        "Mish": (exercise.mish, PURPLE, "^-."),
    }
    runs = {name: [train_on_digits(f, lr) for lr in rates] for name, (f, _, _) in kinds.items()}

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, (_, colour, line) in kinds.items():
        left.plot(rates, [100 * silent for silent, _ in runs[name]], line, color=colour, label=name)
        right.plot(rates, [100 * wrong for _, wrong in runs[name]], line, color=colour, label=name)
    left.set(xscale="log", xlabel="learning rate", ylabel="silent units, %", title="Silent units")
    right.set(xscale="log", xlabel="learning rate", ylabel="wrong answers, %", title="Wrong answers")
    for ax in (left, right):
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left")
    plt.show()

# %% [markdown]
# ## Step 7: norm and activation in one
#
# Three stages, one Function: normalise, scale, activate.
# On the way back the activation's derivative is taken where the activation was, at scale · row, and both statistics send something back to every entry.

# %%
# !{PYTHON} -m pytest -q . --step 7

# %% [markdown]
# Your own checker on your own function, and the memory that one Function saves: what autograd keeps for the chain of operations, and what it keeps for yours.

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 64, generator=generator, dtype=torch.float64)
    scale = torch.randn(64, generator=generator, dtype=torch.float64)
    print(
        exercise.check_gradients(
            lambda x, s: exercise.fused_norm_activation(x, s, "mish"), [x[:3, :5], scale[:5]]
        )
    )

    def kept(f: Callable[[Tensor, Tensor], Tensor]) -> int:
        """Bytes that autograd keeps for the backward of f, each piece of memory counted once."""
        sizes: dict[int, int] = {}

        def count(t: Tensor) -> Tensor:
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            held.append(t)  # so that no memory is used again
            return t

        held: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            f(x.clone().requires_grad_(), scale.clone().requires_grad_())
        return sum(sizes.values())

    def chain(x: Tensor, s: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return exercise.mish(s * (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()))

    print(f"kept for the chain: {kept(chain):,} bytes")
    print(
        f"kept for your Function: {kept(lambda x, s: exercise.fused_norm_activation(x, s, 'mish')):,} bytes"
    )

# %% [markdown]
# ## All of it
#
# When every step passes, run the whole lab in a terminal, once with inputs that you haven't seen:
# `pytest labs/01_gradients --seed 1`.
