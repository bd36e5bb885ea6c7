# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 02: the training core
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

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import exercise
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # small matrices: more threads only make them slower
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 100})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # colour-blind readers tell them apart
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
# ## Step 1: initialisation as signal propagation
#
# A layer $y = W x$ with $n$ inputs and weights of variance $\sigma^2$ multiplies the mean square of its input by $n \sigma^2$, and a ReLU halves it.
# After $L$ layers the rms has been multiplied by $\left(\sqrt{n \sigma^2 / 2}\right)^L$, and only $\sigma^2 = 2/n$ keeps it level.

# %%
# !{PYTHON} -m pytest -q . --step 1

# %% [markdown]
# **Figure 1.** The std after each ReLU of a network of width 256, for three initialisations, and Kaiming from near.
# The dashed lines are the prediction, $0.826$ times the rms (the std of a ReLU's output is $\sqrt{1 - 1/\pi}$ of its rms).
# Why does the level line wander, and what would a width of 1024 change?

# %%
with my_code():
    depth, width = 30, 256
    layers = range(1, depth + 1)
    inits = {
        "standard": (1.0, "N(0, 1)", ORANGE, "s"),
        "kaiming": (math.sqrt(2 / width), "Kaiming", BLUE, "o"),
        "small": (0.01, "N(0, 0.01²)", GREEN, "^"),
    }
    measured = {init: exercise.activation_stds(depth, width, init) for init in inits}
    near = [exercise.activation_stds(depth, width, "kaiming", seed=seed) for seed in range(5)]

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for init, (std, label, colour, marker) in inits.items():
        factor = math.sqrt(width / 2) * std
        left.plot(layers, measured[init], marker, ms=4, color=colour, label=label)
        left.plot(layers, [0.826 * factor**layer for layer in layers], "--", lw=1, color=colour)
    left.set(yscale="log", xlabel="layer", ylabel="std after the ReLU", title="Signal propagation by depth")
    left.legend(title="dashed: predicted", fontsize="small", title_fontsize="small")
    for stds in near:
        right.plot(layers, stds, "o-", ms=3, lw=1, color=BLUE, alpha=0.6)
    right.axhline(0.826, ls="--", lw=1, color=GREY)
    right.set(xlabel="layer", ylabel="std after the ReLU", title="Kaiming, five seeds")
    right.set_ylim(bottom=0)
    plt.show()

# %% [markdown]
# ## Step 2: normalisation and scale invariance
#
# LayerNorm subtracts the mean of a row and divides by its standard deviation, RMSNorm divides by its rms.
# Either way the scale of the row is gone, up to the $\varepsilon$ inside the root:
#
# $$\mathrm{RMSNorm}(x)_i = w_i \frac{x_i}{\sqrt{\frac{1}{d} \sum_j x_j^2 + \varepsilon}}$$

# %%
# !{PYTHON} -m pytest -q . --step 2

# %% [markdown]
# The rms of the output for rows of smaller and smaller scale: where does the invariance end, and why there?

# %%
with my_code():
    norm = exercise.RMSNorm(8).double()
    for exponent in range(0, 7):
        row = torch.full((8,), 10.0**-exponent, dtype=torch.float64)
        out = norm(row).square().mean().sqrt().item()
        print(f"rms of the input 1e-{exponent}   rms of the output {out:.4f}")

# %% [markdown]
# ## Step 3: masked cross-entropy
#
# The loss of a position is $-\log p_y$, with $\log p_c = (z_c - M) - \log \sum_k e^{z_k - M}$ and $M$ the largest logit *of that row*.
# Positions whose target is `ignore_index` leave no trace, whatever their logits hold.
# Label smoothing $s$ mixes in the mean of $-\log p_c$ over all classes.

# %%
# !{PYTHON} -m pytest -q . --step 3

# %% [markdown]
# Two numbers to know by heart: the loss of a model that knows nothing is $\ln C$.
# Then one ignored row, broken on purpose: the loss and the gradient of the good row don't notice.

# %%
with my_code():
    for classes in (10, 50_000):
        loss = exercise.cross_entropy(torch.zeros(1, classes, dtype=torch.float64), torch.tensor([0]))
        print(f"{classes} classes: loss {loss.item():.2f}, ln C {math.log(classes):.2f}")

    logits = torch.tensor([[2.0, 1.0, 0.0], [math.nan, math.inf, 0.0]], requires_grad=True)
    loss = exercise.cross_entropy(logits, torch.tensor([0, -100]))
    (gradient,) = torch.autograd.grad(loss, [logits])
    good = ", ".join(f"{value:.4f}" for value in gradient[0].tolist())
    print(f"beside a broken, ignored row: loss {loss.item():.4f}, gradient of the good row {good}")

# %% [markdown]
# ## Step 4: AdamW
#
# Two running means, $m$ of the gradient and $v$ of its square, both from zero, so both are too small at first: by $1 - \beta_1^t$ and $1 - \beta_2^t$.
# Decay comes first, then the corrected step:
#
# $$\theta \leftarrow \theta (1 - \eta \lambda) \qquad \theta \leftarrow \theta - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \varepsilon}$$

# %%
# !{PYTHON} -m pytest -q . --step 4

# %% [markdown]
# **Figure 2.** How much too long the step would be without bias correction, $(1 - \beta_1^t) / \sqrt{1 - \beta_2^t}$.
# The squares and circles are steps that your AdamW takes on a constant gradient: all of length $\eta$.


# %%
def adamw_step_lengths(steps: int, lr: float, beta2: float) -> list[float]:
    """Length of each step on a constant gradient of 1, in units of the learning rate."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = exercise.AdamW([p], lr=lr, betas=(0.9, beta2), weight_decay=0.0)
    lengths = []
    for _ in range(steps):
        before = p.item()
        p.grad = torch.ones_like(p)
        optimizer.step()
        lengths.append(abs(p.item() - before) / lr)
    return lengths


with my_code():
    times = range(1, 5001)
    shown = sorted({round(10 ** (k / 8)) for k in range(23)})
    curves = {0.999: (ORANGE, "-", "s", 8), 0.95: (BLUE, "--", "o", 4)}
    lengths = {beta2: adamw_step_lengths(shown[-1], 0.01, beta2) for beta2 in curves}

    fig, ax = plt.subplots()
    for beta2, (colour, line, marker, size) in curves.items():
        ratio = [(1 - 0.9**t) / math.sqrt(1 - beta2**t) for t in times]
        ax.plot(times, ratio, line, color=colour, label=f"without correction, β₂ = {beta2}")
        dots = [lengths[beta2][t - 1] for t in shown]
        ax.plot(shown, dots, marker, ms=size, mfc="none", color=colour, label=f"your AdamW, β₂ = {beta2}")
    ax.set(xlabel="step t", ylabel="step length / learning rate", title="Bias correction, β₁ = 0.9")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 5: Newton–Schulz and Muon
#
# Among all changes of a matrix with spectral norm at most $\eta$, the one that lowers the loss most is $-\eta U V^\top$: the gradient $U S V^\top$ with its singular values set to 1.
# An odd polynomial of matrices, $X \leftarrow a X + (b A + c A^2) X$ with $A = X X^\top$, maps each singular value $s$ to $a s + b s^3 + c s^5$, so it gets there without an SVD.
# Muon feeds momentum into it:
#
# $$b \leftarrow \mu b + g \qquad u = g + \mu b \qquad W \leftarrow W (1 - \eta \lambda) - \eta \sqrt{\max(1, r/k)} \mathrm{NS}(u)$$

# %%
# !{PYTHON} -m pytest -q . --step 5

# %% [markdown]
# **Figure 3.** The singular values of a random 64×32 matrix before Newton–Schulz (divided by its Frobenius norm) and after.
# The quintic puts them into a band in five steps and never settles; the cubic settles, but takes longer.
# (An SVD is fine for looking. Your code does without.)

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    G = torch.randn(64, 32, generator=generator, dtype=torch.float64)
    cubic = (1.5, -0.5, 0.0)
    series = [
        ("before", G / G.norm(), GREY, "x"),
        ("quintic, 5 steps", exercise.newton_schulz(G), ORANGE, "s"),
        ("cubic, 5 steps", exercise.newton_schulz(G, 5, cubic), GREEN, "^"),
        ("cubic, 12 steps", exercise.newton_schulz(G, 12, cubic), BLUE, "o"),
    ]

    fig, ax = plt.subplots()
    for label, matrix, colour, marker in series:
        values = torch.linalg.svdvals(matrix)
        ax.plot(range(1, 33), values, marker, ms=5, mfc="none", color=colour, label=label)
    ax.axhline(1.0, lw=1, color=GREY)
    ax.set(xlabel="index, largest first", ylabel="singular value", title="Newton–Schulz on a 64×32 matrix")
    ax.set_ylim(0, 1.3)
    ax.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, 0.28))
    plt.show()

# %% [markdown]
# **Figure 4.** Muon on least squares with a hidden 64×32 matrix, at three constant rates.
# The update doesn't shrink with the gradient, so a constant rate ends on a floor, and the rate decides how high.
# The runs are chaotic: the last digits of your computer's arithmetic decide the wiggles, but not the floor.


# %%
def muon_losses(rate: Callable[[int], float], steps: int = 50) -> list[float]:
    """Loss before each step and after the last; `rate(step)` is the learning rate of a step."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 32, generator=generator, dtype=torch.float64)
    hidden = torch.randn(64, 32, generator=generator, dtype=torch.float64) / math.sqrt(32)

    def loss_of(w: Tensor) -> Tensor:
        return (x @ w.T - x @ hidden.T).square().mean()

    w = nn.Parameter(torch.zeros(64, 32, dtype=torch.float64))
    optimizer = exercise.Muon([w])
    losses = [loss_of(w).item()]
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(w).backward()
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        losses.append(loss_of(w).item())
    return losses


with my_code():
    rates = {0.1: (BLUE, "-"), 0.2: (ORANGE, "--"), 0.3: (GREEN, "-.")}
    runs = {lr: muon_losses(lambda step, lr=lr: lr) for lr in rates}

    fig, ax = plt.subplots()
    for lr, (colour, line) in rates.items():
        ax.plot(runs[lr], line, color=colour, label=f"learning rate {lr}")
    ax.set(yscale="log", xlabel="step", ylabel="loss", title="Muon at three constant rates")
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 6: schedules
#
# Warm-up gives $\eta_{\max} (s + 1) / w$, so that no step has rate 0 and the peak is at step $w - 1$.
# Then the cosine falls to $\eta_{\min}$ at step $T$, or WSD stays at the peak and falls linearly over its last `int(decay_frac * T)` steps.

# %%
# !{PYTHON} -m pytest -q . --step 6

# %% [markdown]
# **Figure 5.** Both schedules, up to beyond the end.
# Which is the last step that a run of 100 steps executes?

# %%
with my_code():
    steps = range(0, 116)
    shapes = {
        "lr_cosine": ([exercise.lr_cosine(s, 1.0, 0.1, 10, 100) for s in steps], BLUE, "-"),
        "lr_wsd": ([exercise.lr_wsd(s, 1.0, 0.1, 10, 100) for s in steps], ORANGE, "--"),
    }

    fig, ax = plt.subplots()
    for label, (values, colour, line) in shapes.items():
        ax.plot(steps, values, line, color=colour, label=label)
    for at, name in ((9, "peak, w − 1"), (100, "total, T")):
        ax.axvline(at, lw=1, ls=":", color=GREY)
        ax.text(at + 1, 0.02, name, color=GREY)
    ax.set(xlabel="step", ylabel="learning rate", title="Schedules: warm-up 10, total 100, from 1 to 0.1")
    ax.set_ylim(0, 1.08)
    ax.legend(loc="lower center")
    plt.show()

# %% [markdown]
# **Figure 6.** The floor of figure 4 goes away when the rate goes to 0: Muon at 0.2, constant and with your cosine.

# %%
with my_code():
    constant = muon_losses(lambda step: 0.2)
    cosine = muon_losses(lambda step: exercise.lr_cosine(step, 0.2, 0.0, 0, 50))

    fig, ax = plt.subplots()
    ax.plot(constant, "--", color=ORANGE, label="constant 0.2")
    ax.plot(cosine, "-", color=BLUE, label="cosine from 0.2 to 0")
    ax.set(yscale="log", xlabel="step", ylabel="loss", title="Muon with and without a schedule")
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 7: clipping and accumulation
#
# Clipping multiplies all gradients by one factor, `max_norm / (norm + 1e-6)`, when that is below 1; the direction stays.
# Accumulation adds up the gradients of micro-batches so that they equal those of the full batch: each contributes the *sum* of its losses, divided by the number of valid tokens of *all*.

# %%
# !{PYTHON} -m pytest -q . --step 7

# %% [markdown]
# One valid token in the first micro-batch, four in the second.
# The mean of the two means counts the lonely token 2.5 times too much.


# %%
class Shift(nn.Module):
    """The smallest model with a gradient: logits plus one bias vector."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


with my_code():
    logits = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64).repeat(4, 1)
    pieces = [(logits, torch.tensor([1, -100, -100, -100])), (logits, torch.tensor([0, 0, 0, 0]))]
    model = Shift()
    means = [exercise.cross_entropy(model(x), y) for x, y in pieces]
    total = exercise.accumulate_gradients(model, pieces)
    print(f"mean over tokens {total.item():.4f}, mean of the means {sum(means).item() / 2:.4f}")
    before = exercise.clip_grad_norm_(model.parameters(), 0.1)
    print(f"norm of the gradient: {before.item():.4f}, after clipping {model.bias.grad.norm().item():.4f}")

# %% [markdown]
# ## All of it
#
# When every step passes, run the whole lab in a terminal, once with inputs that you haven't seen:
# `pytest labs/02_training_core --seed 1`.
