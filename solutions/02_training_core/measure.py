"""Measure every number that the page and the chapters of lab 02 quote.

Run `python solutions/02_training_core/measure.py` to see them all.
Seeds are fixed, and numbers keep only as many digits as every machine agrees on.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from grader.authoring.numbers import percent, power, superscript, table
from grader.implementations import load

SOLUTION = Path(__file__).with_name("solution.py")
CUBIC = (1.5, -0.5, 0.0)
QUINTIC = (3.4445, -4.7750, 2.0315)
MUON_RATES = (0.02, 0.1, 0.2, 0.3)
MUON_STEPS = 50


def measure() -> dict[str, str]:
    """Return the text of every marker: name -> number, words or Markdown table."""
    torch.set_num_threads(1)
    core = load(SOLUTION)
    parts = (
        measure_init,
        measure_norms,
        measure_cross_entropy,
        measure_adamw,
        measure_newton_schulz,
        measure_muon,
        measure_schedules,
        measure_clipping,
        measure_accumulation,
        measure_precision,
    )
    texts: dict[str, str] = {}
    for part in parts:
        texts.update(part(core))
    return texts


# ---- writing numbers ------------------------------------------------------------------


def plain_or_power(value: float) -> str:
    return f"{value:.2f}" if 0.01 <= value < 100 else power(value)


def nearest(value: float, grid: float) -> str:
    """Round to a multiple of `grid`: coarser than a decimal digit, finer than none."""
    return f"{round(value / grid) * grid:.3f}"


def below_rounding(error: float) -> str:
    return "below 10⁻¹⁴" if error < 1e-14 else power(error, 1)


# ---- 1: initialisation ------------------------------------------------------------------


def measure_init(core: ModuleType) -> dict[str, str]:
    depth, width, seeds = 30, 256, 40
    weight_std = {"kaiming": math.sqrt(2 / width), "standard": 1.0, "small": 0.01}
    rows = []
    for init, std in weight_std.items():
        factor = math.sqrt(width / 2) * std
        rms = factor**depth
        runs = sorted(core.activation_stds(depth, width, init, seed=seed)[-1] for seed in range(seeds))
        first = core.activation_stds(depth, width, init, seed=0)[-1]
        median = (runs[seeds // 2 - 1] + runs[seeds // 2]) / 2
        predicted = rms * math.sqrt(1 - 1 / math.pi)
        numbers = (rms, predicted, first, median)
        spread = f"{plain_or_power(runs[0])} to {plain_or_power(runs[-1])}"
        rows.append([f"`{init}`", f"{std:.3g}", f"{factor:.3g}", *map(plain_or_power, numbers), spread])
    header = ["init", "std of a weight", "factor a layer", "predicted rms", "predicted std"]
    header += ["measured std, seed 0", f"median of {seeds} seeds", "lowest to highest"]
    return {"init_table": table(header, rows)}


# ---- 2: norms ---------------------------------------------------------------------------


def measure_norms(core: ModuleType) -> dict[str, str]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 256, generator=generator, dtype=torch.float64)
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    constant = torch.full((8,), 1e-4, dtype=torch.float64)
    quiet = torch.full((8,), 1e-3, dtype=torch.float64)
    rms = core.RMSNorm(8).double()
    return {
        "rms_scale_error": power(scale_error(core.RMSNorm(256).double(), x), 1),
        "rms_scale_error_without_eps": below_rounding(scale_error(core.RMSNorm(256, eps=0.0).double(), x)),
        "rms_eps_inside": f"{rms(constant)[0].item():.4f}",
        "rms_eps_outside": f"{1e-4 / (1e-4 + 1e-6):.4f}",
        "rms_of_quiet_row": f"{rms(quiet)[0].item():.3f}",
        "variance_table": variance_table(core, generator),
        **measure_far_row(core),
    }


def scale_error(norm: nn.Module, x: Tensor) -> float:
    """Largest relative change of the output when the input is multiplied by ten."""
    with torch.no_grad():
        y = norm(x)
        return float(((norm(10 * x) - y).abs() / y.abs()).max())


def variance_table(core: ModuleType, generator: torch.Generator) -> str:
    rows = []
    for size in (4, 16, 32, 256):
        x = torch.randn(size, generator=generator, dtype=torch.float64)
        unbiased = (x - x.mean()) / x.var(correction=1).sqrt()
        biased = core.LayerNorm(size, eps=0.0).double()(x).detach()
        rows.append([str(size), f"{100 * (1 - unbiased.norm() / biased.norm()).item():.1f} %"])
    return table(["length of the row", "output too small by"], rows)


def measure_far_row(core: ModuleType) -> dict[str, str]:
    row = [1e8 - 3.0, 1e8 - 1.0, 1e8 + 1.0, 1e8 + 3.0]
    mean = sum(row) / 4
    one_pass = sum(value * value for value in row) / 4 - mean * mean
    y = core.LayerNorm(4).double()(torch.tensor(row, dtype=torch.float64))
    exact = torch.tensor([-3.0, -1.0, 1.0, 3.0], dtype=torch.float64) / math.sqrt(5 + 1e-5)
    error = (y - exact).abs().max().item()
    return {"far_row_one_pass_variance": f"{one_pass:.0f}", "far_row_error": below_rounding(error)}


# ---- 3: cross-entropy -------------------------------------------------------------------


def example_logits() -> tuple[Tensor, Tensor]:
    logits = [[2.0, 1.0, 0.1], [0.5, 2.5, -1.0], [1.0, 1.0, 1.0], [3.0, -2.0, 0.0]]
    return torch.tensor(logits, dtype=torch.float64), torch.tensor([0, 1, -100, 2])


def measure_cross_entropy(core: ModuleType) -> dict[str, str]:
    vocabulary = 50_000
    uniform = core.cross_entropy(torch.zeros(1, vocabulary, dtype=torch.float64), torch.tensor([0]))
    return {
        "ln_vocab": f"{math.log(vocabulary):.2f}",
        "ln_vocab_loss": f"{uniform.item():.2f}",
        "ce_offset_table": offset_table(core),
        "ce_wrong_table": wrong_losses_table(core),
        **measure_huge_logits(core),
    }


def offset_table(core: ModuleType) -> str:
    """Integer logits stay exact in float32 up to 2**24, so all of the error is the method's."""
    base = torch.tensor([[2.0, 1.0, 0.0]])
    exact = math.log(1 + math.exp(-1) + math.exp(-2))
    rows = []
    for exponent in (0, 4, 6, 7):
        logits = base + (10.0**exponent if exponent else 0.0)
        naive = -(logits - logits.logsumexp(-1, keepdim=True))[0, 0].item()
        shifted = core.cross_entropy(logits, torch.tensor([0])).item()
        offset = f"10{superscript(exponent)}" if exponent else "0"
        rows.append([offset, offset_error(naive - exact), offset_error(shifted - exact)])
    return table(["offset", "error of `x - logsumexp(x)`", "error after the shift"], rows)


def offset_error(error: float) -> str:
    return "below 10⁻⁶" if abs(error) < 1e-6 else power(abs(error))


def measure_huge_logits(core: ModuleType) -> dict[str, str]:
    row = torch.tensor([[1e300, 1e300, 0.0]], dtype=torch.float64)
    naive = -(row - row.logsumexp(-1, keepdim=True))[0, 0].item()
    margin = torch.tensor([[0.0, 100.0]], dtype=torch.float64)
    capped = -(margin.softmax(-1) + 1e-12).log()[0, 0].item()
    target = torch.tensor([0])
    return {
        "ce_huge_naive": f"{abs(naive):.0f}",
        "ce_huge": f"{core.cross_entropy(row, target).item():.4f}",
        "ce_margin_100": f"{core.cross_entropy(margin, target).item():.0f}",
        "ce_margin_100_with_tiny_number": f"{capped:.1f}",
    }


def wrong_losses_table(core: ModuleType) -> str:
    logits, targets = example_logits()
    keep = targets != -100
    classes = logits.shape[-1]
    plain = core.cross_entropy(logits, targets).item()
    smooth = core.cross_entropy(logits, targets, label_smoothing=0.1).item()
    total = core.cross_entropy(logits, targets, reduction="sum").item()
    log_p = logits.log_softmax(-1)
    everywhere = -log_p.mean(-1)
    nll = -log_p[keep, targets[keep]]
    others = (-log_p[keep].sum(-1) - nll) / (classes - 1)
    rows = [
        ["right, no smoothing", f"{plain:.5f}"],
        ["divided by all four positions", f"{total / len(targets):.5f}"],
        ["right, smoothing 0.1", f"{smooth:.5f}"],
        ["smoothing spread over the other classes only", f"{(0.9 * nll + 0.1 * others).mean().item():.5f}"],
        ["smoothing also from the ignored row", f"{0.9 * plain + 0.1 * everywhere.sum().item() / 3:.5f}"],
    ]
    return table(["version", "loss"], rows)


# ---- 4: AdamW ---------------------------------------------------------------------------


def uncorrected_over_corrected(t: int, beta1: float, beta2: float) -> float:
    """How many times too long Adam's step is, at step t, when neither moment is corrected."""
    return float((1 - beta1**t) / math.sqrt(1 - beta2**t))


def measure_adamw(core: ModuleType) -> dict[str, str]:
    texts = {"bias_table": bias_table()}
    for name, beta2 in (("999", 0.999), ("95", 0.95)):
        ratios = [uncorrected_over_corrected(t, 0.9, beta2) for t in range(1, 10_001)]
        outside = [t for t, ratio in enumerate(ratios, start=1) if abs(ratio - 1) > 0.01]
        texts[f"bias_{name}_t1"] = f"{ratios[0]:.2f}"
        texts[f"bias_{name}_t10"] = f"{ratios[9]:.2f}"
        texts[f"bias_{name}_peak"] = f"{max(ratios):.2f}"
        texts[f"bias_{name}_peak_t"] = str(1 + ratios.index(max(ratios)))
        texts[f"bias_{name}_within_1_percent"] = str(1 + outside[-1])
    return {**texts, **measure_adamw_steps(core), **measure_decay_order(core)}


def bias_table() -> str:
    times = (1, 10, 100, 1000)
    rows = []
    for beta2 in (0.999, 0.95):
        ratios = [f"{uncorrected_over_corrected(t, 0.9, beta2):.2f}" for t in times]
        rows.append([f"β₁ 0.9, β₂ {beta2}", *ratios])
    return table(["", *(f"t = {t}" for t in times)], rows)


def adamw_change(core: ModuleType, gradients: Sequence[float], start: float = 0.0, **options: float) -> float:
    p = nn.Parameter(torch.tensor([start], dtype=torch.float64))
    optimizer = core.AdamW([p], **options)
    for gradient in gradients:
        p.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return p.item() - start


def measure_adamw_steps(core: ModuleType) -> dict[str, str]:
    def first(gradient: float) -> float:
        return -adamw_change(core, [gradient], lr=1.0, weight_decay=0.0)

    return {
        "adam_first_step_unit": f"{first(1.0):.3f}",
        "adam_first_step_1e7": f"{first(1e-7):.3f}",
        "adam_first_step_eps": f"{first(1e-8):.3f}",
        "adam_first_step_eps_inside": f"{1e-8 / math.sqrt(1e-16 + 1e-8):.4f}",
    }


def measure_decay_order(core: ModuleType) -> dict[str, str]:
    """Difference after one step between decaying before it (the solution) and after it."""

    def difference(lr: float, decay: float) -> float:
        before = 1.0 + adamw_change(core, [1.0], start=1.0, lr=lr, weight_decay=decay)
        step = adamw_change(core, [1.0], start=1.0, lr=lr, weight_decay=0.0)
        return abs((1.0 + step) * (1 - lr * decay) - before)

    return {
        "decay_order_large": power(difference(0.1, 0.1), 1),
        "decay_order_small": power(difference(1e-3, 1e-2), 1),
        **measure_decoupling(core),
    }


def measure_decoupling(core: ModuleType) -> dict[str, str]:
    """Shrinkage in 100 steps of two weights of 1 whose gradients alternate in sign, small and large."""
    lr, decay, steps = 1e-3, 0.1, 100

    def shrinkage(size: float, decoupled: bool) -> float:
        p = nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = core.AdamW([p], lr=lr, weight_decay=decay if decoupled else 0.0)
        for step in range(steps):
            penalty = 0.0 if decoupled else decay * p.detach()
            p.grad = size * (-1.0) ** step * torch.ones_like(p) + penalty
            optimizer.step()
        return 1.0 - p.item()

    def undecayed(size: float) -> float:
        return -adamw_change(core, [size * (-1.0) ** k for k in range(steps)], 1.0, lr=lr, weight_decay=0.0)

    rows = []
    for size in (0.1, 1.0, 10.0):
        extra = [shrinkage(size, decoupled) - undecayed(size) for decoupled in (True, False)]
        rows.append([f"{size:g}", *(f"{value:.3f}" for value in extra)])
    header = ["size of the gradients", "AdamW", "L2 term in the gradient"]
    return {"decoupling_table": table(header, rows)}


# ---- 5: Newton–Schulz and Muon ----------------------------------------------------------


def measure_newton_schulz(core: ModuleType) -> dict[str, str]:
    generator = torch.Generator().manual_seed(0)
    G = torch.randn(64, 32, generator=generator, dtype=torch.float64)
    before = torch.linalg.svdvals(G / G.norm())
    after = torch.linalg.svdvals(core.newton_schulz(G))
    long_run = torch.linalg.svdvals(core.newton_schulz(G, steps=20))
    return {
        "singular_before_low": f"{before.min().item():.3f}",
        "singular_before_high": f"{before.max().item():.3f}",
        "singular_after_low": f"{after.min().item():.2f}",
        "singular_after_high": f"{after.max().item():.2f}",
        "singular_20_low": f"{long_run.min().item():.1f}",
        "singular_20_high": f"{long_run.max().item():.1f}",
        "cubic_table": cubic_table(core),
        **measure_quintic(),
    }


def steps_to_orthogonal(core: ModuleType, G: Tensor) -> int:
    """Cubic steps until every singular value is within 1e-6 of 1."""
    for steps in range(1, 41):
        X = core.newton_schulz(G, steps=steps, coefficients=CUBIC)
        if (torch.linalg.svdvals(X) - 1).abs().max().item() < 1e-6:
            return steps
    raise ArithmeticError("the cubic iteration did not converge in 40 steps")


def cubic_table(core: ModuleType) -> str:
    smallest = (0.5, 0.1, 0.01, 0.001)
    counts = []
    for s in smallest:
        G = torch.diag(torch.tensor([s, math.sqrt(1 - s * s)], dtype=torch.float64))
        counts.append(str(steps_to_orthogonal(core, G)))
    header = ["smallest s at the start", *(f"{s:g}" for s in smallest)]
    return table(header, [["cubic steps to 10⁻⁶", *counts]])


def quintic(s: Tensor, steps: int = 5) -> Tensor:
    """What the iteration does to one singular value."""
    a, b, c = QUINTIC
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return s


def measure_quintic() -> dict[str, str]:
    a, b, c = QUINTIC
    wide = quintic(torch.linspace(0.01, 1.0, 100_001, dtype=torch.float64))
    tiny = quintic(torch.tensor(0.001, dtype=torch.float64))
    fixed = math.sqrt((-b - math.sqrt(b * b - 4 * c * (a - 1))) / (2 * c))
    slope = a + 3 * b * fixed**2 + 5 * c * fixed**4
    return {
        "quintic_low": f"{wide.min().item():.2f}",
        "quintic_high": f"{wide.max().item():.2f}",
        "quintic_of_0001": f"{tiny.item():.2f}",
        "quintic_fixed_point": f"{fixed:.3f}",
        "quintic_slope": f"{slope:.2f}".replace("-", "−"),
        "quintic_limit": f"{quintic_limit():.3f}",
    }


def quintic_limit() -> float:
    """Starting value above which the quintic runs away to infinity, by bisection."""
    low, high = 1.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        runs_away = quintic(torch.tensor(middle, dtype=torch.float64), steps=60).abs().item() < 10
        low, high = (middle, high) if runs_away else (low, middle)
    return low


def least_squares(seed: int) -> tuple[Tensor, Tensor]:
    """Inputs 256×32 and targets 256×64 of a linear map whose outputs have variance about 1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(256, 32, generator=generator, dtype=torch.float64)
    w = torch.randn(64, 32, generator=generator, dtype=torch.float64) / math.sqrt(32)
    return x, x @ w.T


def constant(lr: float) -> Callable[[int], float]:
    return lambda step: lr


def muon_losses(core: ModuleType, seed: int, rate: Callable[[int], float], start: float = 0.0) -> list[float]:
    """Losses at steps 0 to MUON_STEPS; the rate is read from the function before each step."""
    x, y = least_squares(seed)
    w = nn.Parameter(torch.full((64, 32), start, dtype=torch.float64))
    optimizer = core.Muon([w])
    losses = []
    for step in range(MUON_STEPS + 1):
        loss = (x @ w.T - y).square().mean()
        (w.grad,) = torch.autograd.grad(loss, [w])
        losses.append(loss.item())
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
    return losses


def measure_muon(core: ModuleType) -> dict[str, str]:
    """Eight problems, since a single run is chaotic: only averages are the same everywhere."""
    problems = range(8)
    rows = []
    for lr in MUON_RATES:
        runs = torch.tensor([muon_losses(core, seed, constant(lr)) for seed in problems])
        mean = runs.mean(0).tolist()
        tail = nearest(sum(mean[41:51]) / 10, 0.005)
        rows.append([f"{lr:g}", f"{mean[0]:.2f}", f"{mean[10]:.2f}", f"{mean[20]:.2f}", tail])
    cosine = [
        muon_losses(core, seed, lambda step: float(core.lr_cosine(step, 0.2, 0.0, 0, MUON_STEPS)))
        for seed in problems
    ]
    last = sum(losses[-1] for losses in cosine) / len(cosine)
    header = ["lr", "start", "step 10", "step 20", "mean of steps 41 to 50"]
    return {
        "muon_table": table(header, rows),
        "muon_cosine_end": f"{last:.4f}",
        "muon_chaos": muon_chaos(core),
    }


def muon_chaos(core: ModuleType) -> str:
    """Largest relative change among the last ten losses when all starting weights move by 1e-13."""
    still = muon_losses(core, 0, constant(0.3))
    moved = muon_losses(core, 0, constant(0.3), start=1e-13)
    change = max(abs(b / a - 1) for a, b in zip(still[41:], moved[41:], strict=True))
    return "more than 1 %" if change > 0.01 else f"{change:.0e}"


# ---- 6: schedules -----------------------------------------------------------------------


def measure_schedules(core: ModuleType) -> dict[str, str]:
    steps = (0, 4, 9, 10, 55, 79, 80, 90, 99, 100, 150)
    rows = [
        ["`lr_cosine`", *(f"{core.lr_cosine(s, 1.0, 0.1, 10, 100):.3f}" for s in steps)],
        ["`lr_wsd`", *(f"{core.lr_wsd(s, 1.0, 0.1, 10, 100):.3f}" for s in steps)],
    ]
    return {
        "schedule_table": table(["step", *map(str, steps)], rows),
        "decay_steps_029": str(int(0.29 * 100)),
        "cosine_last": f"{core.lr_cosine(99, 1.0, 0.1, 10, 100):.4f}",
    }


# ---- 7: clipping and accumulation -------------------------------------------------------


def measure_clipping(core: ModuleType) -> dict[str, str]:
    params = [nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in range(2)]
    params[0].grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    params[1].grad = torch.tensor([0.0, 12.0], dtype=torch.float64)
    norm = core.clip_grad_norm_(params, 1.0).item()
    clipped = torch.cat([p.grad for p in params if p.grad is not None])
    return {
        "clip_norm": f"{norm:.0f}",
        "clip_grads": ", ".join(f"{value:.3f}" for value in clipped.tolist()),
        "clip_norm_after": f"{clipped.norm().item():.8f}",
    }


class Shift(nn.Module):
    """The smallest model with a gradient: logits plus one bias vector, zero at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


def uneven_micro_batches() -> list[tuple[Tensor, Tensor]]:
    """One valid token, then four: the lonely one is predicted badly, the others well."""
    row = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    lonely = torch.tensor([1, -100, -100, -100])
    return [(row.repeat(4, 1), lonely), (row.repeat(4, 1), torch.zeros(4, dtype=torch.long))]


def measure_accumulation(core: ModuleType) -> dict[str, str]:
    model = Shift()
    batches = uneven_micro_batches()
    right = core.accumulate_gradients(model, batches).item()
    gradient = model.bias.grad
    if gradient is None:
        raise ArithmeticError("accumulate_gradients left no gradient")
    losses = [core.cross_entropy(model(x), y) for x, y in batches]
    (wrong,) = torch.autograd.grad(sum(losses) / 2, [model.bias])
    error = ((wrong - gradient).norm() / gradient.norm()).item()
    return {
        "token_lonely": f"{losses[0].item():.4f}",
        "token_other": f"{losses[1].item():.4f}",
        "token_mean": f"{right:.4f}",
        "token_mean_of_means": f"{sum(loss.item() for loss in losses) / 2:.4f}",
        "token_gradient_error": percent(error),
        "token_weight_ratio": f"{(1 / 2) / (1 / 5):.1f}",
    }


# ---- 8: precision -----------------------------------------------------------------------


def measure_precision(core: ModuleType) -> dict[str, str]:
    one = torch.ones((), dtype=torch.bfloat16)
    return {
        "bf16_one_plus_0001": f"{(one + 1e-3).item():g}",
        "bf16_one_plus_0003": f"{(one + 0.003).item():g}",
        "bf16_one_plus_0004": f"{(one + 0.004).item():g}",
        "bf16_one_minus_0001": f"{(one - 1e-3).item():g}",
        "bf16_one_minus_0003": f"{(one - 0.003).item():g}",
        "bf16_move_table": moving_weights_table(),
        "fp16_flush": f"{torch.tensor(2.0**-25).half().item():g}",
        "fp16_smallest": power(torch.tensor(1.01 * 2.0**-25).half().item(), 3),
        **measure_absorption(),
        **measure_half_newton_schulz(core),
    }


def moving_weights_table() -> str:
    """Share of bf16 weights from N(0, 0.02²) that change at all when ±lr is added."""
    generator = torch.Generator().manual_seed(0)
    w = (0.02 * torch.randn(200_000, generator=generator)).bfloat16()
    sign = torch.randint(0, 2, w.shape, generator=generator).bfloat16() * 2 - 1
    rates = (1e-6, 1e-5, 1e-4, 3e-4)
    shares = [((w + rate * sign) != w).float().mean().item() for rate in rates]
    header = ["size of the step", *(power(rate, 1) for rate in rates)]
    return table(header, [["weights that move", *map(percent, shares)]])


def measure_absorption() -> dict[str, str]:
    """A second moment that should fade, and a weight that should shrink, in bf16 and in float32."""

    def shrink(dtype: torch.dtype, factor: float, steps: int) -> float:
        value = torch.ones((), dtype=dtype)
        for _ in range(steps):
            value = value * factor
        return value.item()

    return {
        "bf16_v_after_10000": f"{shrink(torch.bfloat16, 0.999, 10_000):g}",
        "fp32_v_after_10000": power(shrink(torch.float32, 0.999, 10_000)),
        "bf16_decayed_1000": f"{shrink(torch.bfloat16, 1 - 1e-4, 1000):g}",
        "fp32_decayed_1000": f"{shrink(torch.float32, 1 - 1e-4, 1000):.2f}",
    }


def measure_half_newton_schulz(core: ModuleType) -> dict[str, str]:
    generator = torch.Generator().manual_seed(0)
    G = torch.randn(64, 32, generator=generator, dtype=torch.float64)
    half = core.newton_schulz(G.bfloat16(), steps=40, coefficients=CUBIC).double()
    exact = core.newton_schulz(G, steps=40, coefficients=CUBIC)
    error = (half - exact).abs().max().item()
    return {"bf16_polar_error": f"10{superscript(round(math.log10(error)))}"}


if __name__ == "__main__":
    for name, text in measure().items():
        print(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
