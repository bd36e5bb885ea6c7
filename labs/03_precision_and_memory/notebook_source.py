# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 03: precision and memory
#
# This notebook walks through the five steps of the lab.
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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import exercise
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

torch.set_num_threads(1)  # small tensors: more threads only make them slower
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
# ## Step 1: rounding to bfloat16
#
# bfloat16 is the upper half of a float32 number, and the bits of one sign are in order of size.
# So the two neighbours of $x$ are its upper half and that plus 1, and rounding is a sum before the cut:
# $n + \mathtt{0x7FFF} + l$ to nearest ($l$ is the last bit that is kept), $n + u$ by chance ($u$ uniform from 0 to `0xFFFF`).

# %%
# !{PYTHON} -m pytest -q . --step 1

# %% [markdown]
# **Figure 1.** Absorption against relative update.
# 20,000 weights from $N(0, 0.02^2)$ grow by a share of themselves; the left picture counts those that move at all, the right one compares the mean change with the wanted one.
# To nearest, nothing moves below $2^{-9}$; by chance, a few move a whole spacing each, and the mean is right (it wanders where only a handful of weights move).

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    w = (0.02 * torch.randn(20_000, generator=generator)).bfloat16().float()
    updates = [2.0 ** (-13 + k / 4) for k in range(29)]

    def change(update: float, draws: torch.Generator | None) -> tuple[float, float]:
        """The share of the weights that move, and the mean relative change in units of the update."""
        after = exercise.round_to_bf16(w * (1 + update), draws).float()
        return float((after != w).float().mean()), float((after / w - 1).mean()) / update

    nearest = [change(update, None) for update in updates]
    chance = [change(update, generator) for update in updates]

    fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for place, ax in enumerate(axes):
        ax.plot(updates, [pair[place] for pair in nearest], "o-", ms=4, color=ORANGE, label="to nearest")
        ax.plot(updates, [pair[place] for pair in chance], "s-", ms=4, color=BLUE, label="by chance")
        for power in (-9, -8):
            ax.axvline(2.0**power, ls=":", lw=1, color=GREY)
        ax.set_xscale("log", base=2)
        ax.set_xlabel("update, as a share of the weight")
    axes[0].set(ylabel="share of the weights that move", title="Who moves")
    axes[1].set(ylabel="mean change / wanted change", title="How far, on average", ylim=(-0.1, 2))
    axes[0].legend()
    plt.show()

# %% [markdown]
# The bit patterns at work: a tie, its two neighbours, and a NaN that a plain cut would turn into infinity.

# %%
with my_code():
    for bits in (0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x7F7FFFFF, 0x7F800001):
        x = torch.tensor([bits], dtype=torch.int64).to(torch.int32).view(torch.float32)
        print(f"0x{bits:08X}  {x.item():<24.9g} rounds to {exercise.round_to_bf16(x).item():.7g}")
    for rate in (1e-4, 1e-3, 2e-3, 5e-3):
        print(f"200 steps of {rate:g}: {exercise.bf16_stall(rate, 200)}")

# %% [markdown]
# ## Step 2: master weights
#
# The optimizer moves float32 masters, the model sees them rounded:
#
# $$\theta \leftarrow \mathrm{optimizer}(\theta, g) \qquad\qquad w \leftarrow \mathrm{round}(\theta)$$

# %%
# !{PYTHON} -m pytest -q . --step 2

# %% [markdown]
# **Figure 2.** A weight of 1 from which each step takes 0.001 away, held in four ways.
# The master's shadow moves in jumps, but it stays with the line; rounding by chance wanders around it; plain bfloat16 doesn't move.

# %%
with my_code():
    steps, rate = 200, 0.001
    draws = torch.Generator().manual_seed(1)
    p = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    weights = exercise.MasterWeights([p], lambda masters: torch.optim.SGD(masters, lr=rate))
    plain, lucky = torch.ones(()), torch.ones(())
    paths: dict[str, list[float]] = {
        "float32": [],
        "bfloat16, to nearest": [],
        "by chance": [],
        "with a master": [],
    }
    for step in range(steps):
        p.grad = torch.ones_like(p)
        weights.step()
        plain = exercise.round_to_bf16(plain - rate).float()
        lucky = exercise.round_to_bf16(lucky - rate, draws).float()
        now = (1 - rate * (step + 1), plain.item(), lucky.item(), p.item())
        for path, value in zip(paths.values(), now, strict=True):
            path.append(value)

    fig, ax = plt.subplots()
    looks = {"float32": ("black", "--"), "bfloat16, to nearest": (ORANGE, "-")}
    looks.update({"by chance": (GREEN, "-"), "with a master": (BLUE, "-")})
    for label, path in paths.items():
        colour, line = looks[label]
        order = 3 if label == "float32" else 2
        ax.plot(range(1, steps + 1), path, line, color=colour, label=label, zorder=order)
    ax.set(xlabel="step", ylabel="weight", title="200 steps of 0.001 from a weight of 1")
    ax.legend()
    plt.show()

# %% [markdown]
# The trap: a weight of 5 is loaded into the model, and its master is still 1 minus a little.
# Which of the two is there after a step with gradient zero?

# %%
with my_code():
    for reload in (False, True):
        with torch.no_grad():
            p.fill_(5.0)
        if reload:
            weights.reload()
        p.grad = torch.zeros_like(p)
        weights.step()
        print(f"{'with' if reload else 'without'} reload: {p.item():.3f}")

# %% [markdown]
# ## Step 3: loss scaling
#
# Multiply the loss by $S$, divide the gradients by $S$, skip the step if any entry isn't finite, and adapt $S$:
# smaller after an overflow, larger after $N$ good iterations in a row.

# %%
# !{PYTHON} -m pytest -q . --step 3

# %% [markdown]
# **Figure 3.** A small regression with noisy targets, whose gradients are rounded to float16 before anybody sees them.
# The scale starts at 1, far too low: the lower left picture shows the share of the gradients that float16 turns into 0.
# It climbs by a factor of 2 every 10 good iterations, until a gradient overflows (crosses); then it halves and tries again.

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(16, 4, generator=generator)
    w = nn.Parameter(torch.zeros(16, 4))
    optimizer = torch.optim.SGD([w], lr=0.05)
    scaler = exercise.LossScaler(init_scale=1.0, growth_interval=10)
    scales, lost, skipped = [], [], []
    for iteration in range(700):
        x, noise = torch.randn(64, 16, generator=generator), torch.randn(64, 4, generator=generator)
        optimizer.zero_grad()
        loss = (x @ w - 1e-8 * (x @ hidden + noise)).square().mean()  # small numbers, small gradients
        scaler.scale(loss).backward()
        exact = w.grad.clone()
        w.grad.copy_(exact.half())  # what a float16 backward pass would leave of it
        lost.append(float((w.grad == 0).float().mean()))
        scales.append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < scales[-1]:
            skipped.append(iteration)

    places = [["scale", "near"], ["lost", "near"]]
    fig, axes = plt.subplot_mosaic(places, figsize=(10, 5), layout="constrained")
    for ax in (axes["scale"], axes["near"]):
        ax.step(range(700), scales, color=BLUE, where="post", label="scale")
        ax.plot(skipped, [scales[i] for i in skipped], "x", color=ORANGE, label="overflow: step skipped")
        ax.set_yscale("log", base=2)
    axes["scale"].set(ylabel="loss scale", title="A dynamic loss scale")
    low, high = min(scales[500:]), max(scales)
    axes["near"].set(
        xlim=(500, 700), ylim=(low / 2, high * 3), xlabel="iteration", title="The end, from near"
    )
    axes["near"].legend(loc="upper right")
    axes["lost"].plot(lost, color=GREEN)
    axes["lost"].set(xlabel="iteration", ylabel="share of gradients lost", ylim=(-0.05, 1.05))
    plt.show()
    error = float((w.detach() / 1e-8 - hidden).square().mean().sqrt())
    print(f"{len(skipped)} of 700 steps were skipped; the weights are right to {error:.2f} of their size")

# %% [markdown]
# ## Step 4: bytes of a parameter
#
# Weights, gradients, masters, and the optimizer's state: $2 + 2 + 4 + 8 = 16$ bytes a parameter for bfloat16 with AdamW.

# %%
# !{PYTHON} -m pytest -q . --step 4

# %%
with my_code():
    for optimizer_name in ("adamw", "adam_mini", "sgd"):
        found = exercise.training_bytes(
            6_738_415_616, weights="bf16", gradients="bf16", master="fp32", optimizer=optimizer_name
        )
        print(
            f"{optimizer_name:<10} {found['bytes_per_parameter']:>3} bytes a parameter, "
            f"{found['total'] / 1e9:6.1f} GB; not counted: {found['left_out']}"
        )

# %% [markdown]
# ## Step 5: activation checkpointing
#
# Keep the inputs of a piece, run it again when its backward pass is due.
# With pieces of $k$ layers, about $L/k + k$ activations are alive at most.

# %%
# !{PYTHON} -m pytest -q . --step 5

# %% [markdown]
# **Figure 4.** Memory against recomputation, for a chain of 16 layers.
# `saved_tensors_hooks` see each tensor that autograd keeps; the object that they hand back is dropped when autograd lets go of it, so it can count what is alive.
# Where is the lowest point, and why does one layer a checkpoint save nothing?


# %%
class Alive:
    """Bytes of saved tensors that are alive now and were at most; each piece of memory counts once."""

    def __init__(self, but: list[nn.Parameter]) -> None:
        self.but = {tensor.data_ptr() for tensor in but}
        self.holders: Counter[int] = Counter()
        self.now = self.most = 0

    def change(self, tensor: Tensor, by: int) -> None:
        place = tensor.data_ptr()
        if place in self.but:
            return
        before = self.holders[place] > 0
        self.holders[place] += by
        self.now += (int(self.holders[place] > 0) - int(before)) * tensor.numel() * tensor.element_size()
        self.most = max(self.most, self.now)


class Held:
    """A saved tensor; Python deletes this when autograd drops it."""

    def __init__(self, alive: Alive, tensor: Tensor) -> None:
        self.alive, self.tensor = alive, tensor
        alive.change(tensor, 1)

    def __del__(self) -> None:
        self.alive.change(self.tensor, -1)


def chain(layers: int, segment: int) -> tuple[float, int]:
    """KiB alive at most, and runs of a layer, with `segment` layers a checkpoint (0: no checkpoint)."""
    generator = torch.Generator().manual_seed(0)
    matrices = [nn.Parameter(torch.randn(64, 64, generator=generator) / 8) for _ in range(layers)]
    h = torch.randn(256, 64, generator=generator)
    runs = 0

    def piece_of(chosen: list[nn.Parameter]) -> Callable[[Tensor], Tensor]:
        def piece(h: Tensor) -> Tensor:
            nonlocal runs
            for matrix in chosen:
                runs += 1
                h = torch.tanh(h @ matrix)
            return h

        return piece

    alive = Alive(matrices)
    with saved_tensors_hooks(lambda tensor: Held(alive, tensor), lambda held: held.tensor):
        for start in range(0, layers, segment or layers):
            piece = piece_of(matrices[start : start + (segment or layers)])
            h = exercise.checkpoint(piece, h) if segment else piece(h)
        h.sum().backward()
    return alive.most / 1024, runs


with my_code():
    layers = 16
    segments = (1, 2, 4, 8, 16)
    plain_bytes, plain_runs = chain(layers, 0)
    measured = {segment: chain(layers, segment) for segment in segments}

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(segments, [measured[k][0] for k in segments], "o", ms=8, color=BLUE, label="measured")
    left.plot(
        segments, [64 * (layers / k + k) for k in segments], "--", color=GREY, label="64 KiB · (L/k + k)"
    )
    left.axhline(plain_bytes, color=ORANGE, label="no checkpoint")
    left.set_xscale("log", base=2)
    left.set_xticks(segments, [str(k) for k in segments])
    left.set(
        xlabel="layers a checkpoint, k",
        ylabel="KiB alive at most",
        title=f"Memory, {layers} layers",
        ylim=(0, 1300),
    )
    left.legend(loc="lower right")
    right.plot([plain_runs], [plain_bytes], "s", ms=8, color=ORANGE, label="no checkpoint")
    for k in segments:
        right.plot(
            [measured[k][1]], [measured[k][0]], "o", color=BLUE, label="checkpoints" if k == 1 else None
        )
    groups: dict[float, list[str]] = {}
    for k in segments:
        groups.setdefault(measured[k][0], []).append(str(k))
    for height, names in groups.items():
        right.annotate(
            "k = " + " and ".join(names), (measured[1][1], height), (8, -3), textcoords="offset points"
        )
    right.set(
        xlabel="runs of a layer, forward and backward",
        ylabel="KiB alive at most",
        title="Memory against recomputation",
    )
    right.set(xlim=(12, 42), ylim=(0, 1300))
    right.legend(loc="lower left")
    plt.show()

# %% [markdown]
# The gradients are those of the plain call, dropout and all.

# %%
with my_code():
    weight = nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))

    def noisy(x: Tensor) -> Tensor:
        return nn.functional.dropout(torch.tanh(x @ weight), 0.5)

    gradients = []
    for call in (lambda function, x: function(x), exercise.checkpoint):
        weight.grad = None
        torch.manual_seed(5)
        call(noisy, x).square().sum().backward()
        gradients.append(weight.grad)
    print(f"largest difference of the gradients: {float((gradients[0] - gradients[1]).abs().max()):g}")
    print(f"norm of the gradient: {math.sqrt(float(gradients[0].square().sum())):.3f}")

# %% [markdown]
# ## All of it
#
# When every step passes, run the whole lab in a terminal, once with inputs that you haven't seen:
# `pytest labs/03_precision_and_memory --seed 1`.
