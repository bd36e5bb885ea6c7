"""Lab 04's solution against the packages that people use, and against numbers worked by hand.

The packages sit in the dev extra only. Each test's docstring says where a package departs from the page.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from grader.course import find_root, load_course
from grader.implementations import load

LAB = load_course(find_root(Path(__file__).parent)).find_lab("04")
F64 = torch.float64
Build = Callable[[list[nn.Parameter]], Optimizer]


@pytest.fixture
def solution() -> ModuleType:
    return load(LAB.solution)


@pytest.fixture
def library() -> ModuleType:
    """pytorch_optimizer, which imports what torch itself calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip("pytorch_optimizer")
    return module


def tensor(*rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def close(actual: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=0, atol=atol)


def take(build: Build, starts: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]]) -> list[nn.Parameter]:
    """The parameters after a step for each row of gradients."""
    params = [nn.Parameter(start.clone()) for start in starts]
    optimizer = build(params)
    for row in gradients:
        for p, gradient in zip(params, row, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
    return params


def check_agreement(
    ours: Build, theirs: Build, shapes: Sequence[tuple[int, ...]], steps: int = 25, atol: float = 1e-12
) -> None:
    starts = [randn(i, *shape) for i, shape in enumerate(shapes)]
    gradients = [[randn(100 * t + i, *shape) for i, shape in enumerate(shapes)] for t in range(1, steps + 1)]
    for a, b in zip(take(ours, starts, gradients), take(theirs, starts, gradients), strict=True):
        close(a, b, atol)


SHAPES = [(4, 3), (5,), (2, 3, 4)]

# ---- packages -----------------------------------------------------------------------------


def test_lion_is_lion_pytorch(solution: ModuleType) -> None:
    theirs = pytest.importorskip("lion_pytorch").Lion
    options = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}
    check_agreement(lambda ps: solution.Lion(ps, **options), lambda ps: theirs(ps, **options), SHAPES)


def test_lion_is_pytorch_optimizers(solution: ModuleType, library: ModuleType) -> None:
    options = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}
    check_agreement(lambda ps: solution.Lion(ps, **options), lambda ps: library.Lion(ps, **options), SHAPES)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sm3_is_pytorch_optimizers(solution: ModuleType, library: ModuleType, momentum: float) -> None:
    """Its `beta` has to be 0, and its momentum is 0 by default."""
    check_agreement(
        lambda ps: solution.SM3(ps, lr=0.1, momentum=momentum),
        lambda ps: library.SM3(ps, lr=0.1, momentum=momentum, beta=0.0, eps=1e-30),
        SHAPES,
    )


def test_adafactor_is_torchs(solution: ModuleType) -> None:
    options: dict[str, Any] = {"lr": 0.05, "eps": (None, 1e-3), "weight_decay": 0.1}
    check_agreement(
        lambda ps: solution.Adafactor(ps, **options), lambda ps: torch.optim.Adafactor(ps, **options), SHAPES
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("layers.0.q_proj.weight", (8, 8)),
        ("layers.0.k_proj.weight", (4, 8)),
        ("layers.0.mlp.up.weight", (12, 8)),
        ("embed.weight", (10, 8)),
        ("layers.0.q_proj.bias", (8,)),
    ],
)
def test_adam_mini_is_the_authors(solution: ModuleType, name: str, shape: tuple[int, ...]) -> None:
    """adam-mini 1.1.1 prints what it finds. It cuts norms into one block, so they are left out here."""
    theirs = pytest.importorskip("adam_mini").Adam_mini
    options = {"lr": 0.05, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}

    def build(params: list[nn.Parameter]) -> Optimizer:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built: Optimizer = theirs([(name, params[0])], dim=8, n_heads=2, n_kv_heads=2, **options)
        return built

    check_agreement(
        lambda ps: solution.AdamMini([(name, ps[0])], dim=8, n_heads=2, **options), build, [shape]
    )


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_galore_is_pytorch_optimizers_before_the_first_refresh(
    solution: ModuleType, library: ModuleType, shape: tuple[int, ...]
) -> None:
    """Its SVD runs in float32, its signs are those of the SVD; neither matters until the second basis."""

    def build(params: list[nn.Parameter]) -> Optimizer:
        group = {
            "params": params,
            "rank": 2,
            "update_proj_gap": 1000,
            "scale": 0.25,
            "projection_type": "std",
        }
        built: Optimizer = library.GaLore([group], lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
        return built

    check_agreement(
        lambda ps: solution.GaLoreAdamW(ps, 2, update_every=1000), build, [shape], steps=10, atol=1e-6
    )


# ---- numbers worked by hand ---------------------------------------------------------------------


def test_lion_for_three_steps(solution: ModuleType) -> None:
    """Case lion.3steps."""
    p = nn.Parameter(tensor(1.0, -2.0, 0.5))
    optimizer = solution.Lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.1)
    steps = [
        ([0.1, -0.2, 0.0], [0.89, -1.88, 0.495]),
        ([-0.5, 0.1, 0.3], [0.9811, -1.9612, 0.39005]),
        ([0.2, 2.0, -0.01], [0.871289, -2.041588, 0.28614949999999995]),
    ]
    for gradient, expected in steps:
        p.grad = tensor(*gradient)
        optimizer.step()
        close(p, tensor(*expected))
    moments = [value for value in optimizer.state[p].values() if torch.is_tensor(value) and value.ndim == 1]
    close(moments[0], tensor(-0.001969900000000001, 0.019029800000000017, 0.0028700000000000023))


def test_lion_bugs_from_trackers(solution: ModuleType) -> None:
    """O02: swapped betas give 0.8; O03: a scaled rate gives 0.91."""
    for gradients, expected in (([1.0, -0.6], 1.0), ([1.0], 0.9)):
        (p,) = take(lambda ps: solution.Lion(ps, lr=0.1), [tensor(1.0)], [[tensor(g)] for g in gradients])
        close(p, tensor(expected))


def test_adafactor_for_three_steps(solution: ModuleType) -> None:
    """Case adafactor.3steps.3x2."""
    p = nn.Parameter(tensor([0.5, -1.0], [1.0, 0.0], [-0.5, 2.0]))
    optimizer = solution.Adafactor([p], weight_decay=0.1)
    steps = [
        (
            tensor([0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]),
            tensor(
                [0.49199444650053487, -1.0108673220792785],
                [1.0090697567001392, -0.010614455552060439],
                [-0.5102441685797434, 2.0081928132830416],
            ),
        ),
        (
            tensor([0.3, -0.1], [0.2, 0.2], [-0.4, 0.1]),
            tensor(
                [0.4762173289312885, -1.0043770695394978],
                [1.000736206540338, -0.018480843327855975],
                [-0.5001678227597618, 2.003612690451982],
            ),
        ),
        (
            tensor([-0.2, 0.5], [0.1, -0.3], [0.6, 0.2]),
            tensor(
                [0.4821154382713294, -1.0202222630573952],
                [0.9961375967499605, -0.007049839456369953],
                [-0.5124076750851582, 1.9971189016761277],
            ),
        ),
    ]
    for gradient, expected in steps:
        p.grad = gradient
        optimizer.step()
        close(p, expected)


def waves(shape: tuple[int, int], step: int) -> Tensor:
    """sin(0.5 + 1.3 t + 2 i + 3 j)."""
    i, j = torch.meshgrid(*(torch.arange(n, dtype=F64) for n in shape), indexing="ij")
    return torch.sin(0.5 + 1.3 * step + 2 * i + 3 * j)


SM3_START = torch.cos(torch.arange(2, dtype=F64)[:, None] + 2 * torch.arange(3, dtype=F64))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"momentum": 0.0},
            tensor(
                [0.8701173176723648, -0.2712667037160774, -0.8131422403407529],
                [0.5752340780021994, -1.023363459354062, 0.31270387382293385],
            ),
        ),
        (
            {"momentum": 0.9, "eps": 1e-8},
            tensor(
                [0.9469355602692797, -0.36039719446578383, -0.7118901726675408],
                [0.5381583351301601, -0.9854191511076431, 0.2760543747693989],
            ),
        ),
    ],
)
def test_sm3_for_four_steps(solution: ModuleType, options: dict[str, float], expected: Tensor) -> None:
    """Cases sm3_II_2x3_4steps (pytorch_optimizer) and with momentum (optax); SM3-I would be 0.055 off."""
    gradients = [[waves((2, 3), t)] for t in range(4)]
    (p,) = take(lambda ps: solution.SM3(ps, lr=0.1, **options), [SM3_START], gradients)
    close(p, expected)


def test_adam_mini_with_two_heads(solution: ModuleType) -> None:
    """Case adam_mini.per_head(2 heads), from adam-mini 1.1.1."""
    start = tensor([1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 1.0, -2.0], [0.3, -0.3, 0.2, 0.1], [2.0, 0.0, 0.0, 1.0])
    gradients = [
        tensor(
            [0.1, -0.2, 0.3, 0.4], [1.0, 2.0, -2.0, 0.5], [0.01, 0.02, -0.01, 0.0], [-0.5, 0.5, 0.5, -0.5]
        ),
        tensor(
            [0.2, 0.1, 0.0, -0.3], [-1.0, 0.0, 0.5, 0.5], [0.02, -0.02, 0.03, 0.01], [0.4, 0.4, -0.1, 0.2]
        ),
    ]
    options = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "dim": 4, "n_heads": 2}
    (p,) = take(lambda ps: solution.AdamMini([("wq", ps[0])], **options), [start], [[g] for g in gradients])
    expected = tensor(
        [0.9526201530866558, 1.9834031463964437, -1.0244316838237393, 0.4499950166931614],
        [-0.08425918455197424, 0.6845554411750725, 1.2438880113946829, -2.0658426871364766],
        [0.2859882965014999, -0.29926706136421494, 0.19502308213784572, 0.09620227572786913],
        [2.1092037768266816, -0.2936217185971516, -0.20323550499060788, 1.1652582622692993],
    )
    close(p, expected)


def test_projection_of_rank_one(solution: ModuleType) -> None:
    """s₀ u₀ v₀ᵀ to 16 digits (mpmath), and what is lost is the second singular value."""
    G = tensor([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    projected = solution.GaLoreProjector(1).project(G)
    expected = tensor(
        [1.5745462861211426, 2.080113883458558, 2.5856814807959734],
        [3.759360758623217, 4.966445620474953, 6.173530482326688],
    )
    close(projected, expected)
    assert float((G - projected).norm()) == pytest.approx(0.7728696356734839)


def manager_report(solution: ModuleType, layers: int, width: int) -> dict[str, Any]:
    manager = solution.GaLoreManager(64)
    shapes = [(width, width)] * 4 + [(4 * width, width), (width, 4 * width)]
    for layer in range(layers):
        named = {f"{layer}.{i}": torch.empty(shape, device="meta") for i, shape in enumerate(shapes)}
        named["embed"] = torch.empty(256, width, device="meta")
        manager.process_gradients(named)
    report: dict[str, Any] = manager.memory_report()
    return report


def test_memory_of_six_layers_of_width_192(solution: ModuleType) -> None:
    """Cases galore.memory.*: MiB by each accounting rule."""
    report = manager_report(solution, 6, 192)
    assert (report["tracked"], report["full_adam_floats"], report["full_adam_mib"]) == (36, 5308416, 20.25)
    rules = {"short": 8.4375, "long": 6.75, "left": 7.59375, "right": 7.59375, "moments_only": 6.75}
    assert report["rules_mib"] == rules
    assert report["galore_mib"] == 8.4375
    assert report["ratio"] == pytest.approx(8.4375 / 20.25)
    assert manager_report(solution, 4, 128)["tracked"] == 24


def test_the_lookalike_is_another_optimizer(solution: ModuleType) -> None:
    """Case galore.seed_variant_step1_rank: ranks 7 and 3, norms √96 and 6, cosine 0.667."""
    G = randn(0, 8, 12)
    p = nn.Parameter(torch.zeros(8, 12, dtype=F64))
    p.grad = G
    solution.GaLoreAdamW([p], 3, scale=1.0, lr=1.0, eps=1e-30).step()
    signs = -solution.GaLoreProjector(3).project(G).sign()
    step = p.detach()
    assert int(torch.linalg.matrix_rank(signs)) == 7
    assert int(torch.linalg.matrix_rank(step)) == 3
    assert float(signs.norm()) == pytest.approx(math.sqrt(96))
    assert float(step.norm()) == pytest.approx(6.0)
    assert float((signs * step).sum() / signs.norm() / step.norm()) == pytest.approx(0.6673285631263504)
