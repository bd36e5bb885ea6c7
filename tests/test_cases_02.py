"""Lab 02: numbers that must come out, worked by hand or read from another implementation.

The oracle of each is named; none of them is this repository's own code.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from grader.course import find_root, load_course
from grader.implementations import load

LAB = load_course(find_root(Path(__file__).parent)).find_lab("02")


@pytest.fixture
def solution() -> ModuleType:
    return load(LAB.solution)


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=0, atol=atol)


LOGITS = matrix([2.0, 1.0, 0.1], [0.5, 2.5, -1.0], [1.0, 1.0, 1.0], [3.0, -2.0, 0.0])
TARGETS = torch.tensor([0, 1, -100, 2])


def test_xavier_bound_of_a_128_by_256_matrix(solution: ModuleType) -> None:
    """torch.nn.init: the bound is 0.125, and Kaiming's std for 256 inputs 0.0884."""
    w = solution.xavier_uniform_(torch.empty(128, 256), 256, 128)
    assert 0.12499 < float(w.abs().max()) <= 0.125
    w = solution.kaiming_normal_(torch.empty(512, 512), 256)
    assert float(w.std()) == pytest.approx(0.0884, rel=0.02)


def test_rmsnorm_of_two_rows(solution: ModuleType) -> None:
    """torch.nn.functional.rms_norm."""
    norm = solution.RMSNorm(4).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.5, 2.0, 1.5]))
    x = matrix([1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 2.0])
    expected = matrix(
        [0.3651483473268884, 0.3651483473268884, 2.1908900839613303, 2.1908900839613303],
        [-0.8728712284216602, 0.21821780710541505, 0.0, 2.6186136852649806],
    )
    close(norm(x), expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"reduction": "sum"}, 3.625193458777269),
        ({}, 1.208397819592423),
        ({"label_smoothing": 0.1}, 1.2906200418146454),
    ],
)
def test_cross_entropy_of_four_rows(
    solution: ModuleType, options: dict[str, object], expected: float
) -> None:
    """torch.nn.functional.cross_entropy; dividing by all positions would give 0.906 for the mean."""
    close(solution.cross_entropy(LOGITS, TARGETS, **options), torch.tensor(expected, dtype=torch.float64))


def test_cross_entropy_of_nothing(solution: ModuleType) -> None:
    """torch: NaN with gradients exactly 0."""
    logits = LOGITS.clone().requires_grad_()
    loss = solution.cross_entropy(logits, torch.full((4,), -100))
    loss.backward()
    assert math.isnan(float(loss.detach()))
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(LOGITS))


def test_adamw_for_three_steps(solution: ModuleType) -> None:
    """torch.optim.AdamW; decay after the step would differ by 1e-3 after the first step."""
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = solution.AdamW([p], lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    steps = [
        ([0.1, -0.2, 0.3], [0.890000009999999, -1.8800000049999996, 2.870000003333333]),
        ([-0.1, 0.4, 0.001], [0.88636316726842, -1.8978103564960367, 2.7740463853379267]),
        ([0.0, 0.5, -2.0], [0.8815679714042356, -1.9453196193870077, 2.8017775910391216]),
    ]
    for gradient, expected in steps:
        p.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        close(p, torch.tensor(expected, dtype=torch.float64))


def test_newton_schulz_of_a_wide_and_a_tall_matrix(solution: ModuleType) -> None:
    """scipy.linalg.polar for the cubic; an independent float64 Newton–Schulz for the quintic."""
    wide = matrix([3.0, 1.0, -1.0], [0.0, 2.0, 1.0])
    polar = matrix(
        [0.909892251992644, 0.2541743379074702, -0.32785895704258705],
        [-0.07368461913511673, 0.8767717714905247, 0.4752281953128208],
    )
    close(solution.newton_schulz(wide, 40, (1.5, -0.5, 0.0)), polar, atol=1e-9)
    close(solution.newton_schulz(wide.T, 40, (1.5, -0.5, 0.0)), polar.T, atol=1e-9)
    quintic = matrix(
        [0.9931873057961182, 0.337852518206316, -0.32766739379490084],
        [0.010185124411415447, 0.6247794143555558, 0.30729714497207006],
    )
    # The case divides by the norm alone; the contract's norm + 1e-7 moves the result by a few 1e-8.
    close(solution.newton_schulz(wide), quintic, atol=1e-7)
    close(solution.newton_schulz(wide, eps=0.0), quintic)


@pytest.mark.parametrize(
    ("nesterov", "expected"),
    [
        (
            True,
            matrix(
                [0.4667362683611318, -1.0312843031621184],
                [0.992015147945741, -0.028289768752285997],
                [-0.5239176172121603, 2.0091527253475174],
            ),
        ),
        (
            False,
            matrix(
                [0.45270561186414787, -1.0328505217533885],
                [1.0003646763976806, -0.03162410465983341],
                [-0.5351582988222545, 2.016911944037673],
            ),
        ),
    ],
)
def test_muon_for_three_steps(solution: ModuleType, nesterov: bool, expected: Tensor) -> None:
    """torch.optim.Muon with its Newton–Schulz in float64 (in bfloat16, as shipped, it differs by 6e-4)."""
    p = torch.nn.Parameter(matrix([0.5, -1.0], [1.0, 0.0], [-0.5, 2.0]))
    optimizer = solution.Muon([p], lr=0.02, momentum=0.95, nesterov=nesterov, weight_decay=0.1)
    gradients = [
        matrix([0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]),
        matrix([0.3, -0.1], [0.2, 0.2], [-0.4, 0.1]),
        matrix([-0.2, 0.5], [0.1, -0.3], [0.6, 0.2]),
    ]
    for gradient in gradients:
        p.grad = gradient
        optimizer.step()
    # torch's buffer is an average, (1 − μ) times ours, so ε weighs more there: 1.5e-8 were measured.
    close(p, expected, atol=2e-7)


def test_schedules_at_their_corners(solution: ModuleType) -> None:
    """Closed forms, with total 100, warm-up 10, peak 1."""
    cosine = {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.0, 55: 0.55, 100: 0.1, 150: 0.1}
    for step, rate in cosine.items():
        assert solution.lr_cosine(step, 1.0, 0.1, 10, 100) == pytest.approx(rate, rel=1e-12)
    wsd = {0: 0.1, 9: 1.0, 10: 1.0, 79: 1.0, 80: 1.0, 81: 0.95, 90: 0.5, 99: 0.05, 100: 0.0, 101: 0.0}
    for step, rate in wsd.items():
        assert solution.lr_wsd(step, 1.0, 0.0, 10, 100) == pytest.approx(rate, rel=1e-12, abs=1e-15)


def test_the_decay_of_29_percent_of_100_steps_has_28(solution: ModuleType) -> None:
    """0.29 · 100 is 28.999999999999996, and int cuts: the decay starts at step 72, still at the peak."""
    assert solution.lr_wsd(72, 1.0, 0.0, 0, 100, 0.29) == 1.0
    assert solution.lr_wsd(73, 1.0, 0.0, 0, 100, 0.29) == pytest.approx(27 / 28)


def test_clipping_of_a_norm_of_13(solution: ModuleType) -> None:
    """torch.nn.utils.clip_grad_norm_: norm 13, then (3, 4, 0, 12) / 13."""
    a, b = torch.nn.Parameter(matrix([0.0, 0.0])), torch.nn.Parameter(matrix([0.0, 0.0]))
    a.grad, b.grad = matrix([3.0, 4.0]), matrix([0.0, 12.0])
    norm = solution.clip_grad_norm_(iter([a, b]), 1.0)
    assert float(norm) == 13.0
    close(a.grad, matrix([0.23076921301775288, 0.3076922840236705]), atol=1e-13)
    close(b.grad, matrix([0.0, 0.9230768520710115]), atol=1e-13)


def test_weighing_tokens_not_micro_batches(solution: ModuleType) -> None:
    """Micro-batches with token losses [2, 4, 6] and [10]: the mean is 5.5; a mean of means would give 7."""

    class Table(torch.nn.Module):
        """Two classes; the loss of target 0 is the wanted number to 1e-4 and better."""

        def forward(self, losses: Tensor) -> Tensor:
            # −log p₀ = loss  ⇔  the other logit is log(exp(loss) − 1)
            return torch.stack([torch.zeros_like(losses), torch.log(torch.expm1(losses))], dim=-1)

    batches = [([2.0, 4.0, 6.0], 3), ([10.0], 1)]
    micro = [
        (torch.tensor(x, dtype=torch.float64).requires_grad_(), torch.zeros(n, dtype=torch.long))
        for x, n in batches
    ]
    close(solution.accumulate_gradients(Table(), micro), torch.tensor(5.5, dtype=torch.float64))
    assert micro[0][0].grad is not None
    close(micro[0][0].grad, torch.full((3,), 0.25, dtype=torch.float64))
