"""Measure every number that the page of lab 04 quotes.

Run `python solutions/04_memory_efficient_optimizers/measure.py` to see them all.
Seeds are fixed, and numbers keep only as many digits as every machine agrees on.
Memory of large models is measured on the meta device: real optimizers, real states, no bytes.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from grader.authoring.numbers import percent, table
from grader.implementations import load

SOLUTION = Path(__file__).with_name("solution.py")
F64 = torch.float64
Build = Callable[[list[tuple[str, nn.Parameter]]], Optimizer]


def measure() -> dict[str, str]:
    """Return the text of every marker: name -> number, words or Markdown table."""
    torch.set_num_threads(1)
    lab = load(SOLUTION)
    parts = (
        measure_projection,
        measure_manager,
        measure_galore,
        measure_adam_mini,
        measure_adafactor,
        measure_sm3,
        measure_lion,
        measure_ledger,
        measure_losses,
    )
    texts: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ranks that project nothing are looked at on purpose
        for part in parts:
            texts.update(part(lab))
    return texts


# ---- writing numbers --------------------------------------------------------------------


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


# ---- a small model on a made-up language --------------------------------------------------

LETTERS, CONTEXT, WIDTH = 20, 6, 48


def made_up_text(seed: int, length: int = 6000) -> Tensor:
    """Letters of a language of 60 words; its i-th word is about i times rarer than its first."""
    generator = torch.Generator().manual_seed(seed)
    words = [
        torch.randint(1, LETTERS, (int(n),), generator=generator)
        for n in torch.randint(2, 7, (60,), generator=generator)
    ]
    order = torch.multinomial(1 / torch.arange(1, 61, dtype=F64), length // 3, True, generator=generator)
    space = torch.zeros(1, dtype=torch.long)
    return torch.cat([part for i in order.tolist() for part in (words[i], space)])[:length]


class Speller(nn.Module):
    """The next letter from the last six: an embedding, a hidden layer, a residual block, a head."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(rows: int, columns: int, std: float) -> nn.Parameter:
            return nn.Parameter(std * torch.randn(rows, columns, generator=generator, dtype=F64))

        self.embed = weight(LETTERS, 12, 1.0)
        self.mlp_in = weight(WIDTH, 12 * CONTEXT, (2 / (12 * CONTEXT)) ** 0.5)
        self.mlp_up = weight(2 * WIDTH, WIDTH, (2 / WIDTH) ** 0.5)
        self.mlp_down = weight(WIDTH, 2 * WIDTH, 0.2 * (1 / WIDTH) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(WIDTH, dtype=F64))
        self.lm_head = weight(LETTERS, WIDTH, 0.2 * (1 / WIDTH) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.embed[x].flatten(1) @ self.mlp_in.T + self.bias)
        h = h + torch.relu(h @ self.mlp_up.T) @ self.mlp_down.T
        return h @ self.lm_head.T


def batches(seed: int, steps: int, size: int = 64) -> list[tuple[Tensor, Tensor]]:
    text = made_up_text(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    starts = torch.randint(len(text) - CONTEXT, (steps, size), generator=generator)
    return [(text[s[:, None] + torch.arange(CONTEXT)], text[s + CONTEXT]) for s in starts]


def train(build: Build, seed: int, steps: int) -> tuple[Speller, float]:
    """The model after some steps, and its mean loss over the last ten of them."""
    model = Speller(seed)
    optimizer = build(list(model.named_parameters()))
    losses = []
    for x, y in batches(seed, steps):
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return model, sum(losses[-10:]) / 10


# ---- 1: projection ------------------------------------------------------------------------


def measure_projection(lab: ModuleType) -> dict[str, str]:
    G = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=F64)
    lost = (G - lab.GaLoreProjector(1).project(G)).norm().item()
    values = torch.linalg.svdvals(G)
    ranks = []
    for distinct in (8, 30):
        embedding = torch.zeros(100, 16, dtype=F64)
        embedding[:distinct] = randn(distinct, distinct, 16)
        ranks.append(str(int(torch.linalg.matrix_rank(embedding))))
    return {
        "lost_norm": f"{lost:.4f}",
        "second_value": f"{values[1].item():.4f}",
        "embedding_rank_8": ranks[0],
        "embedding_rank_30": ranks[1],
        "kept_table": kept_table(lab),
    }


def kept(lab: ModuleType, G: Tensor, rank: int) -> float:
    """Share of the squared norm of a gradient that its projection keeps."""
    projected = lab.GaLoreProjector(rank).project(G)
    return float((projected.norm() / G.norm()) ** 2)


def kept_table(lab: ModuleType) -> str:
    """The `mlp_up` gradient (96×48) of the small model, before and after 60 steps, and a random matrix."""
    models = {
        "before training": Speller(0),
        "after 60 steps": train(lambda named: torch.optim.AdamW([p for _, p in named], lr=3e-3), 0, 60)[0],
    }
    x, y = batches(5, 1, size=512)[0]
    gradients = {
        name: torch.autograd.grad(functional.cross_entropy(model(x), y), [model.mlp_up])[0]
        for name, model in models.items()
    }
    gradients["standard normal numbers"] = randn(0, 2 * WIDTH, WIDTH)
    ranks = (1, 4, 12, 24, 48)
    rows = [[name, *(percent(kept(lab, G, r)) for r in ranks)] for name, G in gradients.items()]
    return table(["gradient of a 96×48 matrix", *(f"rank {r}" for r in ranks)], rows)


# ---- 2: what the projection costs -----------------------------------------------------------


def layer_shapes(width: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (width, width))
    return {**square, "mlp_up": (4 * width, width), "mlp_down": (width, 4 * width)}


def report(lab: ModuleType, layers: int, width: int, rank: int) -> dict[str, object]:
    """A manager's report; its matrices lie on the meta device, since only their shapes count."""
    manager = lab.GaLoreManager(rank)
    for layer in range(layers):
        named = {
            f"{layer}.{name}": torch.empty(shape, device="meta")
            for name, shape in layer_shapes(width).items()
        }
        manager.process_gradients(named)
    result: dict[str, object] = manager.memory_report()
    return result


def measure_manager(lab: ModuleType) -> dict[str, str]:
    found = report(lab, 6, 192, 64)
    rules, full = found["rules_mib"], found["full_adam_mib"]
    assert isinstance(rules, dict)
    assert isinstance(full, float)
    said = {
        "short": "`short`: basis on the shorter side, as the paper and galore-torch have it",
        "long": "`long`: basis on the longer side, as optax has it",
        "left": "`left`: basis on the rows of every matrix",
        "right": "`right`: basis on the columns of every matrix",
        "moments_only": "`moments_only`: short side, the bases not counted",
    }
    rows = [[text, f"{rules[rule]:.3f}", percent(rules[rule] / full, 1)] for rule, text in said.items()]
    square = lab.GaLoreManager(12, min_elements=1)
    square.process_gradients({"w": torch.empty(12, 12, device="meta")})
    return {
        "rules_table": table(["rule", "MiB", "of full-size Adam"], rows),
        "rules_tracked": str(found["tracked"]),
        "rules_full": f"{full:.2f}",
        "rules_full_mb": f"{full * 2**20 / 1e6:.1f}",
        "full_rank_all": percent(float(str(report(lab, 6, 192, 192)["ratio"]))),
        "full_rank_square": percent(square.memory_report()["ratio"]),
        "llama_fp32": f"{6.74e9 * 8 / 1e9:.1f}",
        "llama_bf16": f"{6.74e9 * 4 / 1e9:.1f}",
        "llama_weights": f"{6.74e9 * 2 / 1e9:.1f}",
    }


# ---- 3: GaLore and its look-alike -----------------------------------------------------------


def first_steps(lab: ModuleType, G: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """In units of lr: Adam in full size on the projected gradient, and GaLore; ε negligible, scale 1."""
    p = nn.Parameter(torch.zeros_like(G).flatten())  # a vector: in full size
    p.grad = lab.GaLoreProjector(rank).project(G).flatten()
    lab.GaLoreAdamW([p], rank, lr=1.0, eps=1e-30).step()
    q = nn.Parameter(torch.zeros_like(G))
    q.grad = G
    lab.GaLoreAdamW([q], rank, scale=1.0, lr=1.0, eps=1e-30).step()
    return p.detach().view_as(G), q.detach()


def measure_galore(lab: ModuleType) -> dict[str, str]:
    G, rank, rows = randn(0, 8, 12), 3, []
    projector = lab.GaLoreProjector(rank)
    projector.refresh(G)
    steps = dict(
        zip(("full-size Adam on the projected gradient", "GaLore"), first_steps(lab, G, rank), strict=True)
    )
    for name, step in steps.items():
        outside = (step - projector.basis @ (projector.basis.T @ step)).norm() / step.norm()
        rows.append(
            [
                name,
                str(int(torch.linalg.matrix_rank(step))),
                f"{step.norm().item():.2f}",
                percent(float(outside)),
            ]
        )
    a, b = steps.values()
    cosine = float((a * b).sum() / a.norm() / b.norm())
    return {
        "lookalike_table": table(
            ["first step of an 8×12 matrix, rank 3", "its rank", "norm / lr", "outside the basis"], rows
        ),
        "lookalike_cosine": f"{cosine:.2f}",
        **measure_lookalike_run(lab),
        **measure_epsilon(lab),
        **measure_flip(lab),
    }


class Lookalike(Optimizer):
    """Projects every matrix's gradient with the lab's projector, then runs AdamW in full size."""

    def __init__(self, lab: ModuleType, params: list[nn.Parameter], rank: int, every: int, lr: float):
        super().__init__(params, {})
        self.projectors = {p: lab.GaLoreProjector(rank, every) for p in params if p.ndim == 2}
        self.inner = torch.optim.AdamW(params, lr=lr, eps=1e-6, weight_decay=0.0)
        self.state = self.inner.state

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for p, projector in self.projectors.items():
            if p.grad is not None:
                p.grad = projector.project(p.grad)
        self.inner.step()


RUN_STEPS = 120


def measure_lookalike_run(lab: ModuleType) -> dict[str, str]:
    """Bytes of state after a run of the small model, counted by the ledger."""
    rank, every = 6, 50
    builds: dict[str, Build] = {
        "adam": lambda named: torch.optim.AdamW([p for _, p in named], lr=3e-3),
        "lookalike": lambda named: Lookalike(lab, [p for _, p in named], rank, every, 3e-3),
        "galore": lambda named: lab.GaLoreAdamW([p for _, p in named], rank, every, 1.0, 3e-3),
    }
    texts = {}
    for name, build in builds.items():
        model = Speller(0)
        optimizer = build(list(model.named_parameters()))
        x, y = batches(0, 1)[0]
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        texts[f"bytes_{name}"] = f"{lab.state_bytes(optimizer) / 1000:.0f}"
    return texts


def measure_epsilon(lab: ModuleType) -> dict[str, str]:
    """First step at g = ε in units of lr: here, and in torch's AdamW."""
    steps = []
    for build in (
        lambda p: lab.GaLoreAdamW([p], 1, lr=1.0),
        lambda p: torch.optim.AdamW([p], lr=1.0, eps=1e-6, weight_decay=0.0),
    ):
        p = nn.Parameter(torch.zeros(1, dtype=F64))
        p.grad = torch.full_like(p, 1e-6)
        build(p).step()
        steps.append(abs(p.item()))
    return {"epsilon_here": f"{steps[0]:.3f}", "epsilon_torch": f"{steps[1]:.3f}"}


def measure_flip(lab: ModuleType) -> dict[str, str]:
    """How far the step after a refresh moves when one vector of the new basis has the other sign."""
    gradients = [randn(seed, 8, 12) for seed in range(4)]
    weights = []
    for flip in (False, True):
        p = nn.Parameter(torch.zeros(8, 12, dtype=F64))
        optimizer = lab.GaLoreAdamW([p], 3, 3, 1.0, 0.01)
        for G in gradients[:3]:
            p.grad = G
            optimizer.step()
        before = p.detach().clone()
        optimizer.param_groups[0]["update_every"] = 1000  # the new basis is put there by hand
        projector = lab.GaLoreProjector(3)
        projector.refresh(gradients[3])
        basis = projector.basis.clone()
        basis[:, 0] *= -1 if flip else 1
        optimizer.state[p]["basis"] = basis
        p.grad = gradients[3]
        optimizer.step()
        weights.append(p.detach() - before)
    change = float((weights[1] - weights[0]).abs().max() / weights[0].abs().max())
    return {"flip_change": percent(round(change, 1))}


# ---- 4: Adam-mini -----------------------------------------------------------------------------


def measure_adam_mini(lab: ModuleType) -> dict[str, str]:
    row = torch.tensor([[0.1, -0.2, 0.3]], dtype=F64)
    p = nn.Parameter(torch.zeros_like(row))
    p.grad = row
    lab.AdamMini([("mlp.weight", p)], lr=1.0, eps=1e-30, dim=3, n_heads=1).step()
    step = ", ".join(f"{-value:.3f}" for value in p.detach()[0].tolist())
    shapes = {f"{layer}.{name}": shape for layer in range(12) for name, shape in layer_shapes(768).items()}
    named = meta_parameters({"wte": (50257, 768), **shapes})
    optimizer = lab.AdamMini(named, dim=768, n_heads=12)
    optimizer.step()
    held = sum(value.numel() for _, p in named for name, value in optimizer.state[p].items() if name == "v")
    total = sum(p.numel() for _, p in named)
    return {
        "mini_step": step,
        "mini_blocks": f"{held:,}",
        "mini_entries": f"{total:,}",
        "mini_share": percent(held / total, 3),
    }


def meta_parameters(shapes: dict[str, tuple[int, ...]]) -> list[tuple[str, nn.Parameter]]:
    """Float32 parameters with gradients that have shapes and no memory."""
    named = []
    for name, shape in shapes.items():
        p = nn.Parameter(torch.empty(shape, device="meta"))
        p.grad = torch.empty(shape, device="meta")
        named.append((name, p))
    return named


# ---- 5: Adafactor -----------------------------------------------------------------------------


def measure_adafactor(lab: ModuleType) -> dict[str, str]:
    p = meta_parameters({"w": (4096, 4096)})[0][1]
    numbers = {}
    for name, build in (("adafactor", lab.Adafactor), ("adam", torch.optim.AdamW)):
        optimizer = build([p])
        optimizer.step()
        numbers[name] = sum(
            value.numel() for value in optimizer.state[p].values() if torch.is_tensor(value) and value.ndim
        )
    a, b = randn(1, 6).abs() + 0.1, randn(2, 4).abs() + 0.1
    worst = []
    for square in (a[:, None] * b, randn(3, 6, 4).square()):
        R, C = square.mean(1, keepdim=True), square.mean(0, keepdim=True)
        V = R * C / R.mean()
        worst.append(float((V / square).sqrt().log().abs().max().exp()))
    return {
        "adafactor_numbers": f"{numbers['adafactor']:,}",
        "adafactor_adam_numbers": f"{numbers['adam']:,}",
        "adafactor_rank_one": f"{worst[0]:.3f}",
        "adafactor_random": f"{worst[1]:.0f}",
    }


# ---- 6: SM3 -----------------------------------------------------------------------------------


def sm3_bounds(square_sums: bool, gradients: Sequence[Tensor]) -> Tensor:
    """ν of SM3-II (or of SM3-I) after these gradients, on plain tensors."""
    rows, columns = (
        torch.zeros(len(gradients[0]), 1, dtype=F64),
        torch.zeros(1, gradients[0].shape[1], dtype=F64),
    )
    nu = torch.zeros_like(gradients[0])
    for g in gradients:
        if square_sums:  # SM3-I: the accumulators take the largest g², then ν is their minimum
            rows = rows + g.square().amax(1, keepdim=True)
            columns = columns + g.square().amax(0, keepdim=True)
            nu = torch.minimum(rows, columns)
        else:
            nu = torch.minimum(rows, columns) + g.square()
            rows, columns = nu.amax(1, keepdim=True), nu.amax(0, keepdim=True)
    return nu


def measure_sm3(lab: ModuleType) -> dict[str, str]:
    """How many times longer AdaGrad's steps are than SM3's, after 50 gradients: root of ν / Σ g², median."""
    sizes = {
        "every entry of its own size": (1.5 * randn(7, 20, 30)).exp(),
        "rows of their own sizes": (1.5 * randn(8, 20, 1)).exp().expand(20, 30),
        "one size for all": torch.ones(20, 30, dtype=F64),
    }
    rows = []
    for name, size in sizes.items():
        gradients = [size * randn(100 + t, 20, 30) for t in range(50)]
        total = torch.stack(gradients).square().sum(0)
        ratios = [float((sm3_bounds(first, gradients) / total).sqrt().median()) for first in (False, True)]
        rows.append([name, *(f"{ratio:.1f}" for ratio in ratios)])
    return {"sm3_table": table(["gradients", "SM3-II", "SM3-I"], rows)}


# ---- 7: Lion ----------------------------------------------------------------------------------


def measure_lion(lab: ModuleType) -> dict[str, str]:
    p = nn.Parameter(torch.zeros(2, dtype=F64))
    optimizer = lab.Lion([p], lr=0.1)
    for t in range(100):
        p.grad = torch.ones(2, dtype=F64)
        if t == 0:
            p.grad[0] = math.nan
        optimizer.step()
    gradients = [randn(t, 50, 40) for t in range(30)]
    right, wrong, m, n = (torch.zeros(50, 40, dtype=F64) for _ in range(4))
    differ = []
    for g in gradients:
        right, m = (0.9 * m + 0.1 * g).sign(), 0.99 * m + 0.01 * g
        n = 0.99 * n + 0.01 * g
        wrong = (0.9 * n + 0.1 * g).sign()
        differ.append(float((right != wrong).double().mean()))
    return {
        "lion_nan_weight": f"{p[0].item():.1f}",
        "lion_sound_weight": f"{p[1].item():.1f}",
        "lion_order_first": percent(differ[0]),
        "lion_order_later": percent(sum(differ[10:]) / 20, 1),
    }


# ---- the ledger -------------------------------------------------------------------------------

LR = {"AdamW": 3e-3, "GaLore": 3e-3, "Adam-mini": 3e-3, "Adafactor": 0.1, "SM3": 0.05, "Lion": 1e-3}


def builders(lab: ModuleType, rank: int, dim: int, n_heads: int) -> dict[str, Build]:
    """Every optimizer of the ledger, from named parameters."""

    def plain(named: list[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
        return [p for _, p in named]

    return {
        "AdamW": lambda named: torch.optim.AdamW(plain(named), lr=LR["AdamW"], weight_decay=0.0),
        f"GaLoreAdamW, rank {rank}": lambda named: lab.GaLoreAdamW(
            plain(named), rank, update_every=50, scale=1.0, lr=LR["GaLore"]
        ),
        "AdamMini": lambda named: lab.AdamMini(named, lr=LR["Adam-mini"], dim=dim, n_heads=n_heads),
        "Lion": lambda named: lab.Lion(plain(named), lr=LR["Lion"]),
        "SM3, momentum 0.9": lambda named: lab.SM3(plain(named), lr=LR["SM3"]),
        "SM3, momentum 0": lambda named: lab.SM3(plain(named), lr=LR["SM3"], momentum=0.0),
        "Adafactor": lambda named: lab.Adafactor(plain(named), lr=LR["Adafactor"]),
    }


def measure_ledger(lab: ModuleType) -> dict[str, str]:
    """Bytes a parameter of a 12-layer model of width 768 with float32 states, matrices only."""
    shapes = {f"{layer}.{name}": shape for layer in range(12) for name, shape in layer_shapes(768).items()}
    rows = []
    for name, build in builders(lab, 192, 768, 12).items():
        named = meta_parameters(shapes)
        optimizer = build(named)
        before = lab.state_bytes(optimizer)
        optimizer.step()
        held = lab.state_bytes(optimizer)
        total = sum(p.numel() for _, p in named)
        assert before == 0
        each = held / total
        rows.append([name, f"{each:.2f}" if each >= 0.1 else f"{each:.4f}", f"{held / 2**20:.1f}"])
    return {"ledger_table": table(["optimizer", "bytes a parameter", "MiB in all"], rows)}


def measure_losses(lab: ModuleType) -> dict[str, str]:
    """Mean loss over the last ten of 120 steps, two seeds, rates that were tried roughly."""
    rows = []
    with_lookalike: dict[str, Build] = {
        **builders(lab, 6, 16, 2),
        "full-size AdamW on projected gradients, rank 6": lambda named: Lookalike(
            lab, [p for _, p in named], 6, 50, LR["AdamW"]
        ),
    }
    for name, build in with_lookalike.items():
        losses = [train(build, seed, RUN_STEPS)[1] for seed in (0, 1)]
        rows.append([name, f"{sum(losses) / len(losses):.1f}"])
    start = functional.cross_entropy(Speller(0)(batches(0, 1)[0][0]), batches(0, 1)[0][1]).item()
    return {
        "loss_table": table(["optimizer", "loss at the end"], rows),
        "loss_start": f"{start:.1f}",
        "loss_steps": str(RUN_STEPS),
    }


if __name__ == "__main__":
    for name, text in measure().items():
        print(f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}")
