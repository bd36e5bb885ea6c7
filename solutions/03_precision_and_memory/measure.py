"""Measure every number that the page of lab 03 quotes.

Run `python solutions/03_precision_and_memory/measure.py` to see them all.
Seeds are fixed, and numbers keep only as many digits as every machine agrees on.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from grader.authoring.numbers import minus, percent, power, table
from grader.implementations import load

SOLUTION = Path(__file__).with_name("solution.py")
LLAMA_7B = 6_738_415_616  # parameters


def measure() -> dict[str, str]:
    """Return the text of every marker: name -> number, words or Markdown table."""
    torch.set_num_threads(1)
    lab = load(SOLUTION)
    parts = (measure_rounding, measure_absorption, measure_masters, measure_float16, measure_scaler)
    texts: dict[str, str] = {}
    for part in (*parts, measure_bytes, measure_checkpoint):
        texts.update(part(lab))
    return texts


# ---- writing numbers ------------------------------------------------------------------


# ---- 1: rounding ------------------------------------------------------------------------


def hexadecimal(x: Tensor) -> str:
    """The 32 bits of a float32 number."""
    return f"0x{int(x.view(torch.int32)) & 0xFFFFFFFF:08X}"


def measure_rounding(lab: ModuleType) -> dict[str, str]:
    rows = []
    for d in (0.001, 0.00390625, 0.00391, 0.004, -0.001, -0.00196, -0.003):
        exact = torch.tensor(1 + d, dtype=torch.float64).float()
        once = lab.round_to_bf16(exact)
        twice = torch.ones((), dtype=torch.bfloat16) + d
        rows.append([minus(f"{d:g}"), hexadecimal(exact), f"{once.item():.6f}", f"{twice.item():.6f}"])
    header = ["d", "bits of 1 + d", "`round_to_bf16` of 1 + d", "bfloat16 1, plus d in torch"]
    million = torch.full((1_000_000,), 1.001)
    chance = lab.round_to_bf16(million, torch.Generator().manual_seed(0)).double()
    nan = torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32)
    cut = ((nan.view(torch.int32) >> 16) << 16).view(torch.float32)
    return {
        "one_plus_table": table(header, rows),
        "stochastic_mean": f"{chance.mean().item():.4f}",
        "stochastic_share": percent((chance > 1.001).double().mean().item()),
        "stochastic_up": f"{chance.max().item():.6f}",
        "nan_cut": f"{cut.item():g}",
    }


def measure_absorption(lab: ModuleType) -> dict[str, str]:
    rows = []
    for rate in (1e-4, 1e-3, 0.0019, 0.002, 0.003, 0.005):
        found = lab.bf16_stall(rate, 200)
        rows.append([f"{rate:g}", f"{found['bf16']:.3f}", f"{found['fp32']:.3f}", str(found["last_move"])])
    upwards = lab.bf16_stall(-0.005, 400)
    stall_rows = [
        *rows,
        ["−0.005", *(f"{upwards[key]:.3f}" for key in ("bf16", "fp32")), str(upwards["last_move"])],
    ]
    return {
        "stall_table": table(["taken away a step", "bfloat16", "float32", "last move"], stall_rows),
        "relative_table": relative_table(lab),
        "size_table": size_table(lab),
        "moment_table": moment_table(lab),
        **measure_chance(lab),
    }


def gaussian_weights() -> tuple[Tensor, Tensor]:
    """bfloat16 weights as a fresh model has them, N(0, 0.02²), and a sign for each."""
    generator = torch.Generator().manual_seed(0)
    w = (0.02 * torch.randn(200_000, generator=generator)).bfloat16().float()
    return w, torch.randint(0, 2, w.shape, generator=generator) * 2.0 - 1.0


def moved(lab: ModuleType, w: Tensor, change: Tensor) -> str:
    return percent((lab.round_to_bf16(w + change).float() != w).double().mean().item())


def relative_table(lab: ModuleType) -> str:
    w, _ = gaussian_weights()
    updates = (0.001, 0.0019, 0.0025, 0.003, 0.0035, 0.004)
    shares = [moved(lab, w, update * w) for update in updates]
    header = ["update, as a share of the weight", *(f"{update:g}" for update in updates)]
    return table(header, [["weights that move", *shares]])


def size_table(lab: ModuleType) -> str:
    w, sign = gaussian_weights()
    sizes = (1e-6, 1e-5, 1e-4, 3e-4)
    header = ["size of the update", *(power(size, 1) for size in sizes)]
    return table(header, [["weights that move", *(moved(lab, w, size * sign) for size in sizes)]])


def moment_table(lab: ModuleType) -> str:
    """A second moment of 1 that sees 5000 gradients of zero."""
    rows = []
    for beta2 in (0.999, 0.997, 0.99):
        rounded, exact = torch.ones(()), torch.ones(())
        for _ in range(5000):
            rounded = lab.round_to_bf16(rounded * beta2).float()
            exact = exact * beta2
        low = "0" if rounded.item() < 1e-30 else power(rounded.item(), 1)
        text = f"{rounded.item():.3f}" if rounded.item() > 0.01 else low
        rows.append([f"{beta2}", text, power(exact.item(), 1)])
    return table(["β₂", "bfloat16 after 5000 steps", "float32"], rows)


def measure_chance(lab: ModuleType) -> dict[str, str]:
    """10,000 weights of 1, from which 200 steps take 1e-3 away, with rounding by chance."""
    generator = torch.Generator().manual_seed(0)
    w = torch.ones(10_000)
    for _ in range(200):
        w = lab.round_to_bf16(w - 1e-3, generator).float()
    return {"chance_mean": f"{w.mean().item():.2f}", "chance_std": f"{w.std().item():.2f}"}


# ---- 2: master weights ------------------------------------------------------------------


def measure_masters(lab: ModuleType) -> dict[str, str]:
    return {"descent_table": descent_table(lab), **measure_stale(lab), **measure_state(lab)}


def descend(step: Callable[[Tensor], Tensor], target: Tensor) -> str:
    """1000 steps of 0.02·(w − target) from w = 1.5·target; the mean relative error at the end."""
    w = as_bf16(1.5 * target)
    for _ in range(1000):
        w = step(w)
    error = ((w.double() - target.double()).abs() / target.double().abs()).mean().item()
    return power(error, 1) if error > 1e-6 else "below 10⁻⁶"


def as_bf16(w: Tensor) -> Tensor:
    return w.bfloat16().float()


def descent_table(lab: ModuleType) -> str:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(1000, generator=generator)
    draws = torch.Generator().manual_seed(1)
    p = nn.Parameter((1.5 * target).bfloat16())
    weights = lab.MasterWeights([p], lambda masters: torch.optim.SGD(masters, lr=0.02))

    def with_masters(w: Tensor) -> Tensor:
        p.grad = (p.detach().float() - target).bfloat16()
        weights.step()
        return p.detach()

    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "bfloat16, to nearest": lambda w: lab.round_to_bf16(w - 0.02 * (w - target)).float(),
        "bfloat16, by chance": lambda w: lab.round_to_bf16(w - 0.02 * (w - target), draws).float(),
        "bfloat16 with float32 masters": with_masters,
        "float32": lambda w: w - 0.02 * (w - target),
    }
    return table(
        ["weights", "mean relative error"], [[name, descend(way, target)] for name, way in ways.items()]
    )


def measure_stale(lab: ModuleType) -> dict[str, str]:
    """A weight of 5 loaded into a model whose master is 0.9, then a step with a gradient of zero."""

    def after_a_step(reload: bool) -> str:
        p = nn.Parameter(torch.tensor(0.9).bfloat16())
        weights = lab.MasterWeights([p], lambda masters: torch.optim.SGD(masters, lr=0.1))
        with torch.no_grad():
            p.fill_(5.0)
        if reload:
            weights.reload()
        p.grad = torch.zeros_like(p)
        weights.step()
        return f"{p.item():.1f}"

    return {"stale_weight": after_a_step(False), "reloaded_weight": after_a_step(True)}


def measure_state(lab: ModuleType) -> dict[str, str]:
    """A second moment that follows gradients of 0.5; ε in float16; a float32 moment that is loaded."""
    rounded = exact = torch.ones(())
    for _ in range(1000):
        rounded = lab.round_to_bf16(0.999 * rounded + 0.001 * 0.25).float()
        exact = 0.999 * exact + 0.001 * 0.25
    p = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"] = torch.full((2,), 0.1234567)
    optimizer.load_state_dict(state)
    return {
        "moment_bf16": f"{rounded.item():g}",
        "moment_fp32": f"{exact.item():.3f}",
        "eps_fp16": f"{torch.tensor(1e-8).half().item():g}",
        "loaded_moment_dtype": str(optimizer.state[p]["exp_avg"].dtype).removeprefix("torch."),
    }


# ---- 3: loss scaling --------------------------------------------------------------------


def measure_float16(lab: ModuleType) -> dict[str, str]:
    rows = [
        [text, power(torch.tensor(value, dtype=torch.float64).float().half().item(), 3)]
        for text, value in (
            ("2.9·10⁻⁸", 2.9e-8),
            ("2⁻²⁵ = 2.98·10⁻⁸", 2.0**-25),
            ("3.0·10⁻⁸", 3.0e-8),
            ("5.9·10⁻⁸", 5.9e-8),
            ("2⁻²⁴ = 5.96·10⁻⁸", 2.0**-24),
        )
    ]
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(200_000, generator=generator)
    lost = []
    for exponent in (-6, -7, -8, -9):
        shares = [
            ((z * 10.0**exponent * scale).half() == 0).double().mean().item() for scale in (1, 1024, 65536)
        ]
        name = f"10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
        lost.append([name, *map(percent, shares)])
    return {
        "flush_table": table(["gradient", "in float16"], rows),
        "lost_table": table(["std of the gradients", "scale 1", "scale 1024", "scale 65536"], lost),
    }


def measure_scaler(lab: ModuleType) -> dict[str, str]:
    return {
        "trace_table": trace_table(lab),
        **measure_clipping(lab),
        **measure_schedule(lab),
        "scale_after_five": f"{five_overflows(lab):g}",
    }


def trace_table(lab: ModuleType) -> str:
    p = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([p], lr=0.1)
    scaler = lab.LossScaler(init_scale=16.0, growth_interval=3)
    rows = []
    for number, gradient in enumerate((1, 1, 1, 1, math.inf, 1, 1, math.nan, 1, 1, 1), start=1):
        optimizer.zero_grad()
        before = p.item()
        scaler.scale(p * gradient).backward()
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        stepped = "yes" if p.item() != before else "skipped"
        name = str(gradient) if math.isfinite(gradient) else {True: "NaN", False: "inf"}[math.isnan(gradient)]
        rows.append(
            [
                str(number),
                name,
                stepped,
                f"{p.item():.1f}",
                f"{state['scale']:g}",
                str(state["_growth_tracker"]),
            ]
        )
    header = ["iteration", "gradient", "step", "weight after", "scale after", "counter after"]
    return table(header, rows)


def measure_clipping(lab: ModuleType) -> dict[str, str]:
    """The gradient (3, 4) at scale 1024, clipped to norm 1 before or after it is unscaled."""

    def used(unscale_first: bool) -> float:
        p = nn.Parameter(torch.zeros(2))
        optimizer, scaler = torch.optim.SGD([p], lr=1.0), lab.LossScaler(1024.0)
        p.grad = 1024.0 * torch.tensor([3.0, 4.0])
        if unscale_first:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([p], 1.0)
        scaler.step(optimizer)
        return -p[0].item()

    return {"clip_right": f"{used(True):.2f}", "clip_wrong": f"{used(False):.5f}"}


def measure_schedule(lab: ModuleType) -> dict[str, str]:
    """A cosine over 8 steps, three overflows and one good iteration: the rate that comes next."""

    def rate(only_if_stepped: bool) -> str:
        p, done = nn.Parameter(torch.zeros(())), 0
        optimizer, scaler = torch.optim.SGD([p], lr=1.0), lab.LossScaler()
        for gradient in (math.inf, math.inf, math.inf, 1.0):
            p.grad = torch.full_like(p, gradient)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            done += scaler.get_scale() >= before or not only_if_stepped
        return f"{(1 + math.cos(math.pi * done / 8)) / 2:.3f}"

    return {"schedule_right": rate(True), "schedule_wrong": rate(False)}


def five_overflows(lab: ModuleType) -> float:
    p = nn.Parameter(torch.zeros(()))
    optimizer, scaler = torch.optim.SGD([p], lr=0.1), lab.LossScaler(1.0)
    for _ in range(5):
        p.grad = torch.full_like(p, math.nan)
        scaler.step(optimizer)
        scaler.update()
    return float(scaler.get_scale())


# ---- 4: bytes ---------------------------------------------------------------------------


def gigabytes(number: int) -> str:
    return f"{number / 1e9:.1f}"


def measure_bytes(lab: ModuleType) -> dict[str, str]:
    mixed = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
    plans: dict[str, dict[str, Any]] = {
        "float32, AdamW": {"weights": "fp32", "gradients": "fp32", "master": None, "optimizer": "adamw"},
        "mixed, AdamW": {**mixed, "optimizer": "adamw"},
        "mixed, Adam-mini, Lion, Muon or momentum": {**mixed, "optimizer": "adam_mini"},
        "mixed, SGD, Adafactor or SM3 without momentum": {**mixed, "optimizer": "sgd"},
        "bfloat16 weights only": {"weights": "bf16", "gradients": None, "master": None, "optimizer": "sgd"},
    }
    rows = []
    for name, plan in plans.items():
        found = lab.training_bytes(LLAMA_7B, **plan)
        rows.append([name, str(found["bytes_per_parameter"]), gigabytes(found["total"])])
    adamw = lab.training_bytes(LLAMA_7B, **mixed, optimizer="adamw")
    mini = lab.training_bytes(LLAMA_7B, **mixed, optimizer="adam_mini")
    return {
        "bytes_table": table(["plan", "bytes a parameter", "GB for 6.74 billion"], rows),
        "state_gb": gigabytes(adamw["optimizer"]),
        "state_gb_bf16": gigabytes(adamw["optimizer"] // 2),
        "weights_gb": gigabytes(adamw["weights"]),
        "mini_saves_total": percent(1 - mini["total"] / adamw["total"]),
        "mini_saves_state": percent(1 - mini["optimizer"] / adamw["optimizer"]),
    }


# ---- 5: checkpointing -------------------------------------------------------------------

LAYERS, WIDTH, BATCH = 16, 64, 256


class LiveBytes:
    """Bytes that saved tensors hold at this moment and at most, each piece of memory counted once."""

    def __init__(self, but: Sequence[Tensor]):
        self.but = {tensor.data_ptr() for tensor in but}
        self.holders: Counter[int] = Counter()
        self.now = self.most = 0

    def pack(self, tensor: Tensor) -> "Held":
        return Held(self, tensor)


class Held:
    """One saved tensor; autograd drops it when it isn't needed any more."""

    def __init__(self, ledger: LiveBytes, tensor: Tensor):
        self.ledger, self.tensor = ledger, tensor
        self.place, self.size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if self.place not in ledger.but:
            ledger.holders[self.place] += 1
            ledger.now += self.size if ledger.holders[self.place] == 1 else 0
            ledger.most = max(ledger.most, ledger.now)

    def __del__(self) -> None:
        if self.place not in self.ledger.but:
            self.ledger.holders[self.place] -= 1
            self.ledger.now -= self.size if self.ledger.holders[self.place] == 0 else 0


def chain_bytes(lab: ModuleType, segment: int, batch: int = BATCH) -> tuple[int, int, int]:
    """Bytes after the forward and at most, and runs of a layer; `segment` layers a checkpoint (0: none)."""
    generator = torch.Generator().manual_seed(0)
    matrices = [nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator) / 8) for _ in range(LAYERS)]
    x = torch.randn(batch, WIDTH, generator=generator)
    runs = 0

    def through(chosen: Sequence[Tensor], h: Tensor) -> Any:
        nonlocal runs
        for matrix in chosen:
            runs += 1
            h = torch.tanh(h @ matrix)
        return h

    ledger = LiveBytes(matrices)
    with saved_tensors_hooks(ledger.pack, lambda held: held.tensor):
        h = x
        for start in range(0, LAYERS, segment or LAYERS):
            piece = matrices[start : start + (segment or LAYERS)]
            h = lab.checkpoint(lambda h, piece=piece: through(piece, h), h) if segment else through(piece, h)
        kept = ledger.now
        h.sum().backward()  # type: ignore[no-untyped-call]
    return kept, ledger.most, runs


def measure_checkpoint(lab: ModuleType) -> dict[str, str]:
    rows = []
    for segment in (0, 1, 2, 4, 8, 16):
        kept, most, runs = chain_bytes(lab, segment)
        rows.append(
            [str(segment) if segment else "no checkpoint", f"{kept >> 10}", f"{most >> 10}", str(runs)]
        )
    header = ["layers a checkpoint", "KiB after the forward", "KiB at most", "runs of a layer"]
    weights = LAYERS * WIDTH * WIDTH
    ledger = lab.training_bytes(weights, weights="fp32", gradients="fp32", master=None, optimizer="adamw")
    return {
        "checkpoint_table": table(header, rows),
        "chain_ledger_kib": f"{ledger['total'] >> 10}",
        "chain_plain_kib": f"{chain_bytes(lab, 0)[1] >> 10}",
        "chain_double_kib": f"{chain_bytes(lab, 0, 2 * BATCH)[1] >> 10}",
        "chain_least_kib": f"{min(chain_bytes(lab, segment)[1] for segment in (1, 2, 4, 8, 16)) >> 10}",
    }


if __name__ == "__main__":
    for name, text in measure().items():
        print(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}")
