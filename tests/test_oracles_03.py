"""Lab 03 against other implementations: ml_dtypes, torch's own optimizers, scaler and checkpoint.

And numbers that must come out, from cases worked by hand or read from public bug reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn import functional

from grader.course import find_root, load_course
from grader.implementations import load
from tests.test_bans import outcomes

ROOT = find_root(Path(__file__).parent)
LAB = load_course(ROOT).find_lab("03")


@pytest.fixture
def solution() -> ModuleType:
    return load(LAB.solution)


# ---- rounding


@pytest.mark.parametrize("lower", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xABCD, 0xFFFF])
def test_rounding_equals_ml_dtypes_on_every_upper_half(solution: ModuleType, lower: int) -> None:
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32)
    x = ((upper << 16) | lower).view(torch.float32)
    ours = solution.round_to_bf16(x)
    nan = x.isnan()
    numbers = x[~nan].numpy()
    with numpy.errstate(over="ignore"):
        theirs = torch.from_numpy(numbers.astype(ml_dtypes.bfloat16).view("int16"))
    assert torch.equal(ours.view(torch.int16)[~nan], theirs)
    assert bool(ours[nan].isnan().all())


@pytest.mark.parametrize(
    ("d", "rounded"),
    [
        (0.001, 1.0),
        (0.00390625, 1.0),
        (0.00391, 1.0078125),
        (0.004, 1.0078125),
        (0.0078125, 1.0078125),
        (-0.001, 1.0),
        (-0.001953125, 1.0),
        (-0.00196, 0.99609375),
        (-0.003, 0.99609375),
    ],
)
def test_one_plus_a_little(solution: ModuleType, d: float, rounded: float) -> None:
    """The exact sum, rounded once. torch rounds a Python number first, so two of these differ there."""
    assert solution.round_to_bf16(torch.tensor(1 + d, dtype=torch.float64)).item() == rounded
    assert float(ml_dtypes.bfloat16(1 + d)) == rounded


def test_a_small_update_is_absorbed(solution: ModuleType) -> None:
    """The example of the contract."""
    found = solution.bf16_stall(1e-3, 200)
    assert (found["bf16"], found["last_move"]) == (1.0, 0)
    assert found["fp32"] == pytest.approx(0.80, abs=1e-5)


# ---- master weights

MAKERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda masters: torch.optim.SGD(masters, lr=0.01, momentum=0.9, nesterov=True),
    "adamw": lambda masters: torch.optim.AdamW(masters, lr=0.003, weight_decay=0.1),
    "adafactor": lambda masters: torch.optim.Adafactor(masters, lr=0.003),
    "muon": lambda masters: torch.optim.Muon(masters, lr=0.01),
}


@pytest.mark.parametrize("name", MAKERS)
def test_masters_equal_a_float32_run_of_torch(solution: ModuleType, name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 4, generator=generator).bfloat16()
    p, exact = nn.Parameter(start.clone()), nn.Parameter(start.float())
    weights, optimizer = solution.MasterWeights([p], MAKERS[name]), MAKERS[name]([exact])
    for step in range(8):
        p.grad = torch.randn(6, 4, generator=generator).bfloat16()
        exact.grad = p.grad.float()
        weights.step()
        optimizer.step()
        assert torch.equal(p, exact.bfloat16())
        if step == 3:  # an interruption changes nothing
            state = weights.state_dict()
            weights = solution.MasterWeights([p], MAKERS[name])
            weights.load_state_dict(state)


def test_small_steps_on_a_norm_weight_add_up(solution: ModuleType) -> None:
    """A15: p = 1, 100 steps of −6e-4: right 0.94, without masters 1."""
    p = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    weights = solution.MasterWeights([p], lambda masters: torch.optim.SGD(masters, lr=6e-4))
    for _ in range(100):
        p.grad = torch.ones_like(p)
        weights.step()
    assert weights.masters[0].item() == pytest.approx(0.94, abs=1e-5)
    assert p.item() == pytest.approx(0.94, rel=2**-8)


def test_moments_of_masters_are_float32(solution: ModuleType) -> None:
    """A13: v = 1, 1000 steps with g = 0.5 and β₂ = 0.999: right 0.5257715686, in bfloat16 1."""
    p = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    weights = solution.MasterWeights([p], lambda masters: torch.optim.AdamW(masters, betas=(0.9, 0.999)))
    p.grad = torch.ones_like(p)
    weights.step()
    moment = weights.optimizer.state[weights.masters[0]]["exp_avg_sq"]
    moment.fill_(1.0)
    for _ in range(1000):
        p.grad = torch.full_like(p, 0.5)
        weights.step()
    assert moment.item() == pytest.approx(0.5257715686, rel=1e-4)


def test_a_stale_master_and_the_three_ways_out(solution: ModuleType) -> None:
    """B01: loaded 5.0, stale master 0.9, a step with gradient zero: right 5, wrong 0.9."""

    def make(masters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(masters, lr=0.1)

    def after_a_step(way: str) -> float:
        model = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
        other = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
        nn.init.constant_(model.weight, 0.9)
        nn.init.constant_(other.weight, 5.0)
        weights = solution.MasterWeights(model.parameters(), make)
        if way == "through the masters":
            weights.load_state_dict(solution.MasterWeights(other.parameters(), make).state_dict())
        else:
            model.load_state_dict(other.state_dict())
        if way == "reload":
            weights.reload()
        if way == "masters after loading":
            weights = solution.MasterWeights(model.parameters(), make)
        model.weight.grad = torch.zeros_like(model.weight)
        weights.step()
        return model.weight.item()

    assert after_a_step("stale") == pytest.approx(0.9, rel=2**-8)
    for way in ("through the masters", "reload", "masters after loading"):
        assert after_a_step(way) == 5.0


# ---- loss scaling


def test_scaler_sequence(solution: ModuleType) -> None:
    """Scale and weight after each iteration, as torch.amp.GradScaler gives them on the CPU."""
    wanted = [(16, 0.9), (16, 0.8), (32, 0.7), (32, 0.6), (16, 0.6), (16, 0.5), (16, 0.4), (8, 0.4), (8, 0.3)]
    wanted += [(8, 0.2), (16, 0.1)]
    p = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([p], lr=0.1)
    scaler = solution.LossScaler(init_scale=16.0, growth_interval=3)
    gradients = (1, 1, 1, 1, math.inf, 1, 1, math.nan, 1, 1, 1)
    for gradient, (scale, weight) in zip(gradients, wanted, strict=True):
        optimizer.zero_grad()
        scaler.scale(p * gradient).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert p.item() == pytest.approx(weight, abs=1e-6)


def test_scale_follows_torch_up_and_down_to_the_ends(solution: ModuleType) -> None:
    """Odd factors, the largest float32 number above, zero below: bit for bit as in torch."""
    for factors in ({"growth_factor": 1.7, "backoff_factor": 0.3}, {}):
        options: dict[str, Any] = {"init_scale": 1000.0, "growth_interval": 1, **factors}
        ours, theirs = solution.LossScaler(**options), torch.amp.GradScaler("cpu", **options)
        theirs.scale(torch.zeros(()))  # makes its scale a tensor
        p = nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.SGD([p], lr=0.0)
        for number in range(420):
            for scaler in (ours, theirs):
                p.grad = torch.tensor(1.0 if number < 200 else math.nan)
                scaler.step(optimizer)
                scaler.update()
            assert ours.get_scale() == theirs.get_scale()


def test_a_state_of_torchs_scaler_can_be_loaded(solution: ModuleType) -> None:
    """F02, and the solution's keys are torch's: 1500 good steps at scale 1024 aren't lost."""
    theirs = torch.amp.GradScaler("cpu")
    state = {**theirs.state_dict(), "scale": 1024.0, "_growth_tracker": 1500}
    ours = solution.LossScaler()
    ours.load_state_dict(state)
    assert ours.get_scale() == 1024.0
    assert ours.state_dict() == state


def test_clipping_the_true_gradient(solution: ModuleType) -> None:
    """C02: (3, 4)·1024 at scale 1024, clipped to norm 1: the first entry is 0.6, not 0.00059."""
    p = nn.Parameter(torch.zeros(2))
    optimizer, scaler = torch.optim.SGD([p], lr=1.0), solution.LossScaler(1024.0)
    p.grad = 1024 * torch.tensor([3.0, 4.0])
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_([p], 1.0)
    scaler.step(optimizer)
    assert p[0].item() == pytest.approx(-0.6, abs=1e-5)


def test_a_schedule_that_waits_for_skipped_steps(solution: ModuleType) -> None:
    """S15: a cosine over 8 steps, 3 overflows and 1 good step: right 0.9619397663, wrong 0.5."""
    p = nn.Parameter(torch.zeros(()))
    optimizer, scaler = torch.optim.SGD([p], lr=1.0), solution.LossScaler()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    for gradient in (math.inf, math.inf, math.inf, 1.0):
        p.grad = torch.tensor(gradient)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9619397663, abs=1e-9)


# ---- bytes


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("adamw", torch.optim.AdamW),
        ("momentum", lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)),
        ("sgd", lambda params: torch.optim.SGD(params, lr=0.1)),
        ("muon", torch.optim.Muon),
        ("adafactor", torch.optim.Adafactor),
    ],
)
def test_state_bytes_are_those_of_torchs_optimizers(
    solution: ModuleType, name: str, make: Callable[[list[Tensor]], torch.optim.Optimizer]
) -> None:
    """Measured on a float32 matrix; what is of the size of its edge counts as nothing."""
    p = nn.Parameter(torch.zeros(64, 32))
    p.grad = torch.ones_like(p)
    optimizer = make([p])
    optimizer.step()
    kept = [value for value in optimizer.state[p].values() if isinstance(value, Tensor)]
    measured = sum(value.numel() * value.element_size() for value in kept if value.numel() >= p.numel())
    ledger = solution.training_bytes(p.numel(), weights="fp32", gradients="fp32", master=None, optimizer=name)
    assert ledger["optimizer"] == measured


# ---- checkpointing


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_equals_torchs(solution: ModuleType, use_reentrant: bool) -> None:
    """Value, gradients and the random stream, with dropout, in a chain."""
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.randn(5, 5, generator=generator, dtype=torch.float64) for _ in range(3)]
    start = torch.randn(4, 5, generator=generator, dtype=torch.float64)

    def run(call: Callable[..., Any]) -> list[Tensor]:
        params = [nn.Parameter(matrix.clone()) for matrix in matrices]
        x = start.clone().requires_grad_()
        torch.manual_seed(1)
        h = x
        for p in params:
            h = call(lambda h, p=p: functional.dropout(torch.tanh(h @ p), 0.3), h)
        torch.autograd.backward([h.square().sum()])
        return [h.detach(), *(p.grad for p in params if p.grad is not None), x.grad, torch.rand(3)]  # type: ignore[list-item]

    def theirs(function: Callable[..., Any], *inputs: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=use_reentrant)

    for ours, wanted in zip(run(solution.checkpoint), run(theirs), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-12)


# ---- bans

REFUSED = {
    "scaler": "torch.amp.GradScaler('cpu')",
    "scaler of CUDA": "torch.cuda.amp.GradScaler()",
    "scaler of the CPU": "torch.cpu.amp.GradScaler()",
    "a method without a constructor": "torch.amp.GradScaler.update(object.__new__(torch.amp.GradScaler))",
    "check and unscale": "torch._amp_foreach_non_finite_check_and_unscale_([x], 0 * x[:1], x[:1])",
    "update of the scale": "torch._amp_update_scale_(x, torch.zeros(1), torch.zeros(1), 2.0, 0.5, 1)",
    "checkpoint": "torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)",
    "checkpoint, the old way": "torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)",
    "its Function": "torch.utils.checkpoint.CheckpointFunction.apply(torch.sin, True, x)",
    "a chain": "torch.utils.checkpoint.checkpoint_sequential(torch.nn.Sequential(torch.nn.ReLU()), 1, x)",
}
ALLOWED = {
    "casts and views": "x.to(torch.bfloat16).float().view(torch.int32)",
    "optimizers": "torch.optim.Optimizer([torch.nn.Parameter(x)], {'lr': 1}).zero_grad()",
    "random states": "torch.set_rng_state(torch.get_rng_state()), torch.random.fork_rng(devices=[])",
    "backward": "torch.autograd.backward([x.clone().requires_grad_().sin()], [x])",
    "finite": "x.isfinite().all()",
    "a Function": "type('F', (torch.autograd.Function,), {'forward': staticmethod(lambda c, x: x)}).apply(x)",
}


def test_the_finished_things_are_refused_and_the_tools_are_not() -> None:
    found = outcomes({**REFUSED, **ALLOWED}, LAB.rules)
    assert found == {**dict.fromkeys(REFUSED, "refused"), **dict.fromkeys(ALLOWED, "returned")}
