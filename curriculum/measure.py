"""Measure every number that the chapters quote.

`measure()` returns the text of each marker of this folder: `<!--m:NAME-->text<!--/m-->` in a sentence,
`<!-- generated: measured NAME -->` around a table.
The code is an illustration in plain torch, independent of the labs' solutions, so a chapter and a lab
can't be wrong in the same way.
Seeds are fixed and few digits are printed, so that the text is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from grader.authoring.numbers import signed, superscript


def seeded(seed: int) -> torch.Generator:
    """Return a fresh random stream."""
    return torch.Generator().manual_seed(seed)


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw N(0, 1) entries."""
    return torch.randn(*shape, generator=generator, dtype=dtype)


def rms(x: Tensor) -> float:
    """Return the root of the mean square."""
    return float(x.pow(2).mean().sqrt())


def scientific(value: float, digits: int = 0) -> str:
    """Write 0.00012 as 1.2·10⁻⁴."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}·10{superscript(int(exponent))}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# 01 signal propagation


def relu_network(x: Tensor, depth: int, gain: float, generator: torch.Generator) -> Tensor:
    """Run x (batch, width) through bias-free ReLU layers with weights N(0, gain² / width)."""
    width = x.shape[-1]
    for _ in range(depth):
        weight = draw(generator, width, width, dtype=x.dtype) * (gain / math.sqrt(width))
        x = torch.relu(x @ weight.T)
    return x


def default_linear_network(x: Tensor, depth: int, generator: torch.Generator) -> Tensor:
    """Run x through ReLU layers initialised as torch.nn.Linear does, weight and bias U(-1/√n, 1/√n)."""
    width = x.shape[-1]
    bound = 1 / math.sqrt(width)
    for _ in range(depth):
        weight = torch.empty(width, width, dtype=x.dtype).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(width, dtype=x.dtype).uniform_(-bound, bound, generator=generator)
        x = torch.relu(x @ weight.T + bias)
    return x


def spread_of_kaiming(width: int, depth: int = 30, seeds: int = 200) -> tuple[float, float, float]:
    """Return median, 5 % and 95 % quantile of the rms after `depth` layers, one input a network."""
    values = []
    for seed in range(seeds):
        generator = seeded(seed)
        x = draw(generator, 1, width, dtype=torch.float32)
        x = x / rms(x)
        values.append(rms(relu_network(x, depth, math.sqrt(2), generator)))
    low, median, high = torch.tensor(values).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    return median, low, high


def first_overflow(limit: float, width: int = 256) -> int:
    """Return the first layer where a ReLU network with N(0, 1) weights exceeds `limit`."""
    generator = seeded(0)
    x = draw(generator, 64, width)
    depth = 0
    while float(x.abs().max()) <= limit:
        x = relu_network(x, 1, math.sqrt(width), generator)
        depth += 1
    return depth


def residual_stream(layers: int, branch_scale: float, width: int = 512) -> float:
    """Return the mean square of a pre-norm residual stream after 2 · layers random linear branches."""
    generator = seeded(0)
    x = draw(generator, 64, width)
    x = x / rms(x)
    for _ in range(2 * layers):
        normed = x / x.pow(2).mean(-1, keepdim=True).sqrt()
        x = x + branch_scale * normed @ draw(generator, width, width).T / math.sqrt(width)
    return rms(x) ** 2


def signal_propagation() -> dict[str, str]:
    """Numbers of chapter 01."""
    median, low, high = spread_of_kaiming(width=256)
    generator = seeded(0)
    pair = draw(generator, 2, 256)
    kaiming = relu_network(pair, 30, math.sqrt(2), generator)
    default = default_linear_network(pair, 30, generator)
    streams = [
        [name, f"{expected:g}", f"{residual_stream(12, scale):.1f}"]
        for name, expected, scale in (
            ("1", 25, 1.0),
            ("1/√L", 3, 1 / math.sqrt(12)),
            ("1/√(2L)", 2, 1 / math.sqrt(24)),
        )
    ]
    return {
        "kaiming_median": f"{median:.2f}",
        "kaiming_low": f"{low:.2f}",
        "kaiming_high": f"{high:.2f}",
        "overflow_fp16": str(first_overflow(65504.0)),
        "overflow_fp32": str(first_overflow(torch.finfo(torch.float32).max)),
        "cosine_before": signed(float(torch.cosine_similarity(pair[0], pair[1], dim=0)), 2),
        "cosine_after": f"{float(torch.cosine_similarity(kaiming[0], kaiming[1], dim=0)):.2f}",
        "default_rms": f"{rms(default):.3f}",
        "default_difference": scientific(rms(default[0] - default[1]) / rms(default)),
        "residual_streams": table(["branch scale", "predicted", "measured"], streams),
    }


# 02 normalisation


def gradient_norm(scale: float) -> float:
    """Return the gradient's norm for a loss behind an RMS norm, at a random weight times `scale`."""
    generator = seeded(0)
    x, target = draw(generator, 16, 8), draw(generator, 16, 6)
    weight = (draw(generator, 6, 8) * scale).requires_grad_()
    y = x @ weight.T
    loss = (y / y.pow(2).mean(-1, keepdim=True).sqrt() - target).pow(2).mean()
    (gradient,) = torch.autograd.grad(loss, weight)
    return float(gradient.norm())


def norm_growth(lr: float = 0.1, dim: int = 65, steps: int = 1000) -> float:
    """Return the norm, from 1, of a scale-invariant vector after SGD on pure noise."""
    generator = seeded(0)
    w = draw(generator, dim)
    w = w / w.norm()
    for _ in range(steps):
        noise, unit = draw(generator, dim), w / w.norm()
        w = w - lr * (noise - (noise @ unit) * unit) / w.norm()
    return float(w.norm())


def effective_eps(dtype: torch.dtype) -> float:
    """Return the ε that torch's RMSNorm uses when none is given, read from its output."""
    value = 2.0**-40
    x = torch.full((4,), value, dtype=dtype)
    y = float(torch.rms_norm(x, (4,))[0])
    return (value / y) ** 2 - value**2


def cast_order_difference() -> float:
    """Return the share of bfloat16 outputs of an RMS norm that depend on when the cast happens."""
    generator = seeded(0)
    x = draw(generator, 1000, 64, dtype=torch.float32).bfloat16()
    weight = (1 + 0.1 * draw(generator, 64, dtype=torch.float32)).bfloat16()
    normed = x.float() * (x.float().pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    late, early = (normed * weight.float()).bfloat16(), normed.bfloat16() * weight
    return float((late != early).double().mean())


def normalisation() -> dict[str, str]:
    """Numbers of chapter 02."""
    return {
        "gradient_ratio": f"{gradient_norm(10.0) / gradient_norm(1.0):.2f}",
        "norm_after_noise": f"{norm_growth():.1f}",
        "eps_bfloat16": scientific(effective_eps(torch.bfloat16)),
        "eps_float32": scientific(effective_eps(torch.float32)),
        "eps_float64": scientific(effective_eps(torch.float64)),
        "cast_order": f"{100 * cast_order_difference():.0f}",
    }


# 03 losses and masking


def masked_gradient(kind: str) -> tuple[bool, bool]:
    """Say whether loss and gradient stay finite when one of two rows is ignored and holds inf and NaN."""
    logits = torch.tensor([[2.0, 1.0, 0.0], [math.inf, math.nan, 0.0]], dtype=torch.float64)
    logits.requires_grad_()
    keep = torch.tensor([True, False])
    if kind == "select":
        loss = -logits[keep].log_softmax(-1)[:, 0].sum()
    else:
        each = -logits.log_softmax(-1)[:, 0]
        loss = (each * keep).sum() if kind == "multiply" else torch.where(keep, each, 0.0).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return bool(loss.isfinite()), bool(gradient.isfinite().all())


def smoothing_floor(classes: int, epsilon: float) -> float:
    """Return the smallest cross-entropy that label smoothing allows: the entropy of its target."""
    other = epsilon / classes
    own = 1 - epsilon + other
    return -own * math.log(own) - (classes - 1) * other * math.log(other)


def losses() -> dict[str, str]:
    """Numbers of chapter 03."""
    logits = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    p = logits.softmax(-1)
    gradient = p - torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    nll = -p.log()
    answer = {True: "finite", False: "NaN"}
    masks = []
    for kind, code in (
        ("multiply", "`(l * keep).sum()`"),
        ("where", "`torch.where(keep, l, 0).sum()`"),
        ("select", "rows selected before the softmax"),
    ):
        loss_ok, gradient_ok = masked_gradient(kind)
        masks.append([code, answer[loss_ok], answer[gradient_ok]])
    nothing = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    empty_loss = torch.nn.functional.cross_entropy(nothing, torch.tensor([-100, -100]))
    (empty_gradient,) = torch.autograd.grad(empty_loss, nothing)
    return {
        "softmax_example": ", ".join(f"{value:.4f}" for value in p.tolist()),
        "softmax_gradient": ", ".join(signed(value, 4) for value in gradient.tolist()),
        "nll_example": f"{float(nll[0]):.4f}",
        "nll_mean_example": f"{float(nll.mean()):.4f}",
        "smooth_torch": f"{float(0.7 * nll[0] + 0.3 * nll.mean()):.4f}",
        "smooth_others": f"{float(0.7 * nll[0] + 0.3 * nll[1:].mean()):.4f}",
        "smoothing_floor": f"{smoothing_floor(50257, 0.1):.2f}",
        "mask_table": table(["masking", "loss", "gradient"], masks),
        "all_ignored_loss": "NaN" if bool(empty_loss.isnan()) else f"{float(empty_loss):g}",
        "all_ignored_gradient": f"{float(empty_gradient.abs().max()):g}",
    }


# 04 from SGD to AdamW


def steps_to_tolerance(momentum: float, lr: float, curvatures: Tensor, tolerance: float = 1e-6) -> int:
    """Count steps of heavy-ball descent on Σ h x² / 2, from all ones, until ‖x‖ falls by `tolerance`."""
    x, buffer = torch.ones_like(curvatures), torch.zeros_like(curvatures)
    start, steps = float(x.norm()), 0
    while float(x.norm()) > tolerance * start:
        buffer = momentum * buffer + curvatures * x
        x = x - lr * buffer
        steps += 1
    return steps


def adam_trace(gradients: Sequence[float], beta1: float = 0.9, beta2: float = 0.999) -> list[list[float]]:
    """Return t, g, m, v, corrected m, corrected v and the update direction, a row a step."""
    m = v = 0.0
    rows = []
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        rows.append([t, g, m, v, m_hat, v_hat, m_hat / (math.sqrt(v_hat) + 1e-8)])
    return rows


def drift_lag(t: int, beta: float) -> float:
    """Return g_t minus the corrected mean when the gradient is g_i = i, by running the recursion."""
    m = 0.0
    for i in range(1, t + 1):
        m = beta * m + (1 - beta) * i
    return t - m / (1 - beta**t)


def adam_travel(gradient_scale: float, steps: int = 50) -> Tensor:
    """Return how far torch's Adam moves when every gradient is multiplied by `gradient_scale`."""
    generator = seeded(0)
    p = torch.zeros(40, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=0.01)
    for _ in range(steps):
        p.grad = gradient_scale * (1 + draw(generator, 40))
        optimizer.step()
    return p.detach()


def adamw() -> dict[str, str]:
    """Numbers of chapter 04."""
    curvatures = torch.linspace(1, 100, 50, dtype=torch.float64)
    trace = [
        [f"{t:g}", signed(g, 1), signed(m, 4), f"{v:.6f}", signed(m_hat, 4), f"{v_hat:.4f}", signed(u, 4)]
        for t, g, m, v, m_hat, v_hat, u in adam_trace([1.0, -2.0, 0.5])
    ]
    times = (1, 2, 10, 100, 1000, 10000)
    lags = [[str(t), f"{drift_lag(t, 0.9):.2f}", f"{drift_lag(t, 0.999):.1f}"] for t in times]
    ratio = float(adam_travel(0.1).norm() / adam_travel(1.0).norm())
    tiny = float(adam_travel(1e-8).norm() / adam_travel(1.0).norm())
    return {
        "descent_steps": str(steps_to_tolerance(0.0, 2 / 101, curvatures)),
        "momentum_steps": str(steps_to_tolerance((9 / 11) ** 2, (2 / 11) ** 2, curvatures)),
        "adam_trace": table(["t", "g", "m", "v", "m̂", "v̂", "m̂ / (√v̂ + ε)"], trace),
        "drift_table": table(["t", "lag, β = 0.9", "lag, β = 0.999"], lags),
        "scaled_travel": f"{ratio:.4f}",
        "tiny_travel": f"{tiny:.2f}",
    }


# 05 steepest descent


MUON = (3.4445, -4.7750, 2.0315)


def cubic(s: float) -> float:
    """Map a singular value by one cubic Newton–Schulz step."""
    return 1.5 * s - 0.5 * s**3


def quintic(s: float) -> float:
    """Map a singular value by one step with Muon's coefficients."""
    a, b, c = MUON
    return a * s + b * s**3 + c * s**5


def iterate(step: Callable[[float], float], s: float, count: int) -> float:
    """Apply `step` `count` times."""
    for _ in range(count):
        s = step(s)
    return s


def orthogonalise(g: Tensor, steps: int, coefficients: tuple[float, float, float]) -> Tensor:
    """Run Newton–Schulz on the left Gram matrix."""
    a, b, c = coefficients
    x: Tensor = g / g.norm()
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def steepest_descent() -> dict[str, str]:
    """Numbers of chapter 05."""
    rows = [
        [f"{s:g}", f"{iterate(cubic, s, 5):.3f}", f"{iterate(quintic, s, 5):.3f}"]
        for s in (0.5, 0.1, 0.03, 0.01, 0.003, 0.001)
    ]
    square = draw(seeded(0), 512, 512, dtype=torch.float32)
    return {
        "newton_schulz_table": table(["s", "cubic", "quintic"], rows),
        "cubic_past_root3": signed(iterate(cubic, 2.0, 30), 3),
        "update_rms": f"{0.2 * math.sqrt(512) * rms(orthogonalise(square, 5, MUON)):.2f}",
    }


# 06 schedules, clipping, accumulation


def cosine(progress: float) -> float:
    """Return the cosine from 1 down to 0.1 at `progress` between 0 and 1."""
    return 0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2


def noise_floor(lr: Callable[[int], float], steps: int = 2000, runs: int = 2000) -> float:
    """Return E[x²] after SGD on x² / 2 with gradient noise N(0, 1), from x = 10."""
    generator = seeded(0)
    x = torch.full((runs,), 10.0, dtype=torch.float64)
    for step in range(steps):
        x = x - lr(step) * (x + draw(generator, runs))
    return float(x.pow(2).mean())


def travel_after_spike(spike: float, clip: float) -> float:
    """Return how far Adam moves in steps 51 to 100 when gradient 50 is `spike` times as large."""
    generator = seeded(0)
    p = torch.zeros(200, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([p], lr=0.01)
    at_spike = p.detach().clone()
    for step in range(1, 101):
        gradient = 1 + 0.5 * draw(generator, 200)
        p.grad = gradient * (spike if step == 50 else 1.0)
        torch.nn.utils.clip_grad_norm_([p], clip)
        optimizer.step()
        if step == 50:
            at_spike = p.detach().clone()
    return float((p.detach() - at_spike).norm())


def schedules() -> dict[str, str]:
    """Numbers of chapter 06."""
    calm = travel_after_spike(1.0, math.inf)
    size = math.sqrt(200 * 1.25)
    return {
        "wrong_offset": f"{cosine(45 / 100):.4f}",
        "wrong_start": f"{cosine(55 / 100):.4f}",
        "floor_constant": f"{noise_floor(lambda step: 0.1):.3f}",
        "floor_small": f"{noise_floor(lambda step: 0.01):.4f}",
        "floor_decayed": f"{noise_floor(lambda step: 0.1 * min(1.0, (2000 - step) / 400)):.3f}",
        "spike_travel": f"{travel_after_spike(50.0, math.inf) / calm:.2f}",
        "spike_travel_clipped": f"{travel_after_spike(50.0, size) / calm:.2f}",
    }


def measure() -> dict[str, str]:
    """Return the text of every marker of this folder, by name."""
    torch.set_num_threads(1)
    texts: dict[str, str] = {}
    for chapter in (signal_propagation, normalisation, losses, adamw, steepest_descent, schedules):
        texts.update(chapter())
    return texts


if __name__ == "__main__":
    for name, text in measure().items():
        print(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
