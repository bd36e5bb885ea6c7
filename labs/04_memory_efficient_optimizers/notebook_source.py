# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 04: memory-efficient optimizers
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

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import exercise
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional

torch.set_num_threads(1)  # small matrices: more threads only make them slower
plt.rcParams.update({"figure.figsize": (7, 4), "axes.grid": True, "grid.alpha": 0.3, "figure.dpi": 100})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # colour-blind readers tell them apart
PINK, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
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
# ## A small model that learns to spell
#
# For the figures: it reads eight letters of this lab's own page and guesses the next one.

# %%
TEXT = "".join(
    c for c in Path("README.md").read_text(encoding="utf-8").lower() if c.isascii() and c.isprintable()
)
LETTERS = sorted(set(TEXT))
CODES = torch.tensor([LETTERS.index(c) for c in TEXT])
CONTEXT, WIDTH = 8, 64


class Speller(nn.Module):
    """An embedding, a hidden layer, a residual block and a head; parameters have names that Adam-mini knows."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(rows: int, columns: int, std: float) -> nn.Parameter:
            return nn.Parameter(std * torch.randn(rows, columns, generator=generator))

        self.embed = weight(len(LETTERS), 12, 1.0)
        self.mlp_in = weight(WIDTH, 12 * CONTEXT, (2 / (12 * CONTEXT)) ** 0.5)
        self.mlp_up = weight(2 * WIDTH, WIDTH, (2 / WIDTH) ** 0.5)
        self.mlp_down = weight(WIDTH, 2 * WIDTH, 0.2 * WIDTH**-0.5)
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.lm_head = weight(len(LETTERS), WIDTH, 0.2 * WIDTH**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.embed[x].flatten(1) @ self.mlp_in.T + self.bias)
        h = h + torch.relu(h @ self.mlp_up.T) @ self.mlp_down.T
        return h @ self.lm_head.T


def batch(step: int, size: int = 128) -> tuple[Tensor, Tensor]:
    """Some places of the text, other ones for each step."""
    generator = torch.Generator().manual_seed(1000 + step)
    starts = torch.randint(len(CODES) - CONTEXT, (size,), generator=generator)
    return CODES[starts[:, None] + torch.arange(CONTEXT)], CODES[starts + CONTEXT]


def train(build: Callable[[nn.Module], torch.optim.Optimizer], steps: int) -> tuple[Speller, list[float]]:
    """Train a fresh model; the loss of each step comes with it."""
    model = Speller()
    optimizer = build(model)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def gradient_of(model: Speller, size: int = 1024) -> Tensor:
    """The gradient of `mlp_up`, a 128×64 matrix, on one large batch."""
    x, y = batch(-1, size)
    return torch.autograd.grad(functional.cross_entropy(model(x), y), [model.mlp_up])[0]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)


print(
    f"{len(TEXT)} letters of {len(LETTERS)} kinds, {sum(p.numel() for p in Speller().parameters())} weights"
)

# %% [markdown]
# ## Step 1: a low-rank view of a gradient
#
# The first $r$ singular vectors of a gradient, on its shorter side, make a basis $B$.
# On the left $R = B^\top G$, on the right $R = G B$; going back gives the best approximation of rank $r$.

# %%
# !{PYTHON} -m pytest -q . --step 1

# %% [markdown]
# **Figure 1.** Left: the singular values of a real gradient, before training and after 100 steps, beside those of random numbers; each divided by its largest.
# Right: the share of the squared norm that your projector keeps at each rank.
# The third curve sees the gradient after 100 steps through the basis of the one before training: what does a basis lose when it grows old?

# %%
with my_code():
    trained, _ = train(adamw, 100)
    early, late = gradient_of(Speller()), gradient_of(trained)
    noise = torch.randn(early.shape, generator=torch.Generator().manual_seed(0))
    ranks = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64]

    def kept(G: Tensor, basis_of: Tensor) -> list[float]:
        shares = []
        for rank in ranks:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rank 64 projects nothing, and says so
                projector = exercise.GaLoreProjector(rank)
                projector.refresh(basis_of)
            shares.append(float((projector.project(G).norm() / G.norm()) ** 2))
        return shares

    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    series = [
        ("before training", early, early, BLUE, "-", "o"),
        ("after 100 steps", late, late, ORANGE, "--", "s"),
        ("after 100 steps, old basis", late, early, GREEN, ":", "^"),
        ("random numbers", noise, noise, GREY, "-.", "x"),
    ]
    for label, G, basis_of, colour, line, marker in series:
        if basis_of is G:
            values = torch.linalg.svdvals(G)
            left.plot(range(1, 65), values / values[0], line, color=colour, label=label)
        right.plot(ranks, kept(G, basis_of), line, marker=marker, ms=5, mfc="none", color=colour, label=label)
    left.set(yscale="log", xlabel="index, largest first", ylabel="singular value / largest", title="Spectrum")
    left.set_ylim(bottom=2e-3)
    right.set(xlabel="rank", ylabel="share of the squared norm", title="What a rank keeps")
    right.set_ylim(0, 1.03)
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    plt.show()

# %% [markdown]
# ## Step 2: many gradients, and what they cost
#
# With the basis on a side of length $a$ and the other side of length $b$, a matrix needs $a r + 2 r b$ floats, $r = \min(\text{rank}, a)$.
# Which side, and whether the basis counts at all, is where published numbers differ.

# %%
# !{PYTHON} -m pytest -q . --step 2

# %% [markdown]
# The example of section 2, with matrices on the *meta* device: they have a shape, and no memory.

# %%
with my_code():
    manager = exercise.GaLoreManager(rank=64)
    for layer in range(6):
        shapes = dict.fromkeys(("q", "k", "v", "o"), (192, 192)) | {"up": (768, 192), "down": (192, 768)}
        named = {f"{layer}.{name}": torch.empty(shape, device="meta") for name, shape in shapes.items()}
        manager.process_gradients(named)
    report = manager.memory_report()
    print(f"{report['tracked']} matrices, full-size Adam {report['full_adam_mib']:.2f} MiB")
    for rule, mib in report["rules_mib"].items():
        print(f"{rule:>12}  {mib:.3f} MiB  {mib / report['full_adam_mib']:.1%}")

# %% [markdown]
# ## Step 3: GaLoreAdamW
#
# Adam on $R$, and the update is projected back: $p \leftarrow p - \eta \cdot \mathrm{scale} \cdot \mathrm{back}(N)$.

# %%
# !{PYTHON} -m pytest -q . --step 3

# %% [markdown]
# **Figure 2.** The singular values of the first update of a 128×64 matrix, rank 8.
# GaLore's stop at the rank; those of full-size Adam on the projected gradient don't, since its first step is a matrix of signs.

# %%
with my_code():
    rank = 8
    p = nn.Parameter(torch.zeros_like(early))
    p.grad = early.clone()
    exercise.GaLoreAdamW([p], rank, scale=1.0, lr=1.0, eps=1e-12).step()
    projected = exercise.GaLoreProjector(rank).project(early)
    updates = {
        "GaLore": (p.detach(), BLUE, "o"),
        "full-size Adam on the projected gradient": (projected.sign(), ORANGE, "s"),
    }

    fig, ax = plt.subplots()
    for label, (update, colour, marker) in updates.items():
        ax.plot(
            range(1, 65), torch.linalg.svdvals(update), marker, ms=5, mfc="none", color=colour, label=label
        )
    ax.axvline(rank + 0.5, lw=1, ls=":", color=GREY)
    ax.text(rank + 1, 1.5, "rank 8", color=GREY)
    ax.set(
        xlabel="index, largest first", ylabel="singular value / lr", title="First update of a 128×64 matrix"
    )
    ax.set_ylim(bottom=-2)
    ax.legend()
    plt.show()

# %% [markdown]
# ## Step 4: Adam-mini
#
# $m$ as in Adam, and one $v$ for a head, a row or an entry; the name decides.

# %%
# !{PYTHON} -m pytest -q . --step 4

# %% [markdown]
# How many second moments a model with the shapes of GPT-2 small needs, on the meta device.
# (A key of the state that is shorter than its parameter is a second moment.)

# %%
with my_code():
    shapes = {"wte": (50257, 768)}
    for layer in range(12):
        shapes |= {f"{layer}.{name}_proj": (768, 768) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.up": (3072, 768), f"{layer}.mlp.down": (768, 3072)}
    named = [(name, nn.Parameter(torch.empty(shape, device="meta"))) for name, shape in shapes.items()]
    optimizer = exercise.AdamMini(named, dim=768, n_heads=12)
    for _, p in named:
        p.grad = torch.empty_like(p)
    optimizer.step()
    tensors = [(p, t) for _, p in named for t in optimizer.state[p].values() if torch.is_tensor(t)]
    shared = sum(t.numel() for p, t in tensors if t.numel() < p.numel())
    print(f"{sum(p.numel() for _, p in named):,} weights, {shared:,} second moments")

# %% [markdown]
# ## Step 5: Adafactor
#
# $V = R \cdot C / \mathrm{mean}(R)$ from the row means and the column means of $g^2$; steps relative to the weight's own size.

# %%
# !{PYTHON} -m pytest -q . --step 5

# %% [markdown]
# On a gradient whose squares are an outer product, the first step has the same size in every entry; on another one it hasn't.

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 1, generator=generator) + 0.1, torch.rand(1, 4, generator=generator) + 0.1
    for name, G in (("outer product", (a * b).sqrt()), ("random", torch.randn(3, 4, generator=generator))):
        p = nn.Parameter(torch.ones(3, 4))
        p.grad = G
        exercise.Adafactor([p], lr=0.1, d=100.0).step()
        print(name, "\n", (1 - p.detach()).abs())

# %% [markdown]
# ## Step 6: SM3
#
# $\nu = \min_a \mu_a + g^2$, then each accumulator takes the largest $\nu$ of its slice: bounds on the sum of squares that AdaGrad would keep.

# %%
# !{PYTHON} -m pytest -q . --step 6

# %% [markdown]
# **Figure 3.** How much shorter SM3's steps are than AdaGrad's, entry by entry, after 50 gradients of a 20×30 matrix.
# On the left every row has a size of its own, on the right every entry.

# %%
with my_code():
    generator = torch.Generator().manual_seed(0)
    sizes = {
        "a size for each row": (1.5 * torch.randn(20, 1, generator=generator)).exp().expand(20, 30),
        "a size for each entry": (1.5 * torch.randn(20, 30, generator=generator)).exp(),
    }
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for ax, (name, size) in zip(axes, sizes.items(), strict=True):
        p = nn.Parameter(torch.zeros(20, 30))
        optimizer = exercise.SM3([p], lr=1.0, momentum=0.0)
        total = torch.zeros(20, 30)
        for _ in range(50):
            before = p.detach().clone()
            p.grad = size * torch.randn(20, 30, generator=generator)
            total += p.grad.square()
            optimizer.step()
        share = (p.detach() - before).abs() / (p.grad.abs() / total.sqrt())
        image = ax.imshow(share, vmin=0, vmax=1, cmap="viridis")
        ax.set(title=name, xlabel="column", ylabel="row", xticks=range(0, 30, 5), yticks=range(0, 20, 5))
        ax.grid(False)
    fig.colorbar(image, ax=axes, label="SM3's step / AdaGrad's")
    plt.show()

# %% [markdown]
# ## Step 7: Lion, and the ledger
#
# $p \leftarrow p - \eta \cdot \mathrm{sign}(\beta_1 m + (1 - \beta_1) g)$, then $m \leftarrow \beta_2 m + (1 - \beta_2) g$.
# `state_bytes` counts what an optimizer really holds.

# %%
# !{PYTHON} -m pytest -q . --step 7

# %% [markdown]
# **Figure 4.** Bytes of state against width, measured by your `state_bytes` on one layer (four square matrices, up and down), in float32 and on the meta device.
# Which optimizers grow with the number of weights, and which with the number of rows and columns?
# Three of the lines lie on one another, and so do two others: which, and why?


# %%
def layer(width: int) -> list[tuple[str, nn.Parameter]]:
    """One layer's matrices, with gradients, without memory."""
    shapes = {f"{name}_proj": (width, width) for name in "qkvo"}
    shapes |= {"mlp.up": (4 * width, width), "mlp.down": (width, 4 * width)}
    named = []
    for name, shape in shapes.items():
        p = nn.Parameter(torch.empty(shape, device="meta"))
        p.grad = torch.empty(shape, device="meta")
        named.append((name, p))
    return named


def values(named: list[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
    return [p for _, p in named]


with my_code():
    widths = [64, 128, 256, 512, 1024, 2048, 4096]
    ledger = {
        "AdamW": (lambda n, w: torch.optim.AdamW(values(n)), GREY, "-", "x"),
        "Adam-mini": (lambda n, w: exercise.AdamMini(n, dim=w, n_heads=8), BLUE, "-", "o"),
        "Lion": (lambda n, w: exercise.Lion(values(n)), SKY, "--", "+"),
        "SM3, momentum 0.9": (lambda n, w: exercise.SM3(values(n)), GREEN, ":", "^"),
        "GaLore, rank a quarter": (lambda n, w: exercise.GaLoreAdamW(values(n), w // 4), ORANGE, "-", "s"),
        "GaLore, rank 16": (lambda n, w: exercise.GaLoreAdamW(values(n), 16), ORANGE, "--", "D"),
        "SM3, momentum 0": (lambda n, w: exercise.SM3(values(n), momentum=0.0), PINK, "-", "v"),
        "Adafactor": (lambda n, w: exercise.Adafactor(values(n)), BLACK, "--", "*"),
    }

    fig, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for label, (build, colour, line, marker) in ledger.items():
        held = []
        for width in widths:
            named = layer(width)
            optimizer = build(named, width)
            optimizer.step()
            held.append(exercise.state_bytes(optimizer))
        ax.plot(widths, held, line, marker=marker, ms=6, mfc="none", color=colour, label=label)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="width",
        ylabel="bytes of state",
        title="One layer's optimizer state",
    )
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.minorticks_off()
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.01, 0.5))
    plt.show()

# %% [markdown]
# **Figure 5.** Loss at equal steps, each optimizer at a rate that was tried roughly.
# A picture, no proof: change the rates and see how much of the order stays.
# (GaLore projects every matrix here, the embedding and the head too, which its authors don't.)

# %%
with my_code():
    contest = {
        "AdamW": (adamw, GREY, "-"),
        "GaLore, rank 8": (
            lambda m: exercise.GaLoreAdamW(m.parameters(), 8, update_every=50, scale=1.0, lr=3e-3),
            ORANGE,
            "-",
        ),
        "Adam-mini": (
            lambda m: exercise.AdamMini(m.named_parameters(), lr=3e-3, dim=WIDTH, n_heads=8),
            BLUE,
            "--",
        ),
        "Lion": (lambda m: exercise.Lion(m.parameters(), lr=1e-3), SKY, "-."),
        "SM3": (lambda m: exercise.SM3(m.parameters(), lr=0.05), GREEN, ":"),
        "Adafactor": (lambda m: exercise.Adafactor(m.parameters(), lr=0.1), BLACK, "--"),
    }
    steps, window = 300, 10

    fig, ax = plt.subplots()
    for label, (build, colour, line) in contest.items():
        _, losses = train(build, steps)
        smooth = torch.tensor(losses).unfold(0, window, window).mean(1)
        ax.plot(range(window, steps + 1, window), smooth, line, color=colour, label=label)
    ax.set(xlabel="step", ylabel="loss, mean of ten steps", title="Learning to spell this lab's page")
    ax.legend()
    plt.show()

# %% [markdown]
# ## All of it
#
# When every step passes, run the whole lab in a terminal, once with inputs that you haven't seen:
#
# ```
# pytest labs/04_memory_efficient_optimizers
# pytest labs/04_memory_efficient_optimizers --seed 7
# ```
