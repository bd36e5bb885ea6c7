"""Lab 04: Memory-efficient optimizers.

Write the bodies that raise NotImplementedError, one step after the other:

    step 1  A low-rank view of a gradient
    step 2  Many gradients, and what they cost
    step 3  GaLoreAdamW
    step 4  Adam-mini
    step 5  Adafactor
    step 6  SM3
    step 7  Lion, and the ledger

Check your work:    pytest labs/04_memory_efficient_optimizers             (one step: --step 1)
Read first:         labs/04_memory_efficient_optimizers/README.md
Stuck?              grader hint 04 1
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

# -------------------------------------------------------------------- step 1: projecting a gradient


class GaLoreProjector:
    """A gradient G of shape (rows, columns), seen through an orthonormal basis B of few vectors.

        left:   B has shape (rows, r),     R = Bᵀ G of shape (r, columns),   back: B R
        right:  B has shape (columns, r),  R = G B of shape (rows, r),       back: R Bᵀ

    with r = min(rank, rows) on the left and min(rank, columns) on the right.
    B holds the first r left (right) singular vectors of the G that it was taken from. They are orthonormal;
    if r is above min(rows, columns), they are completed to an orthonormal set. Each has the sign that makes
    its entry of largest absolute value (the first on a tie) positive.

    Attributes, once there is a basis:
    basis: the tensor B.
    is_identity: True if rank >= the projected dimension. Then B Bᵀ is the identity and nothing is saved.
    basis_floats: numel of B, an int.
    low_rank_floats: 2 · numel of R, an int: Adam's two moments of R.
    full_adam_floats: 2 · rows · columns, an int: Adam's two moments of G.

    Source: Zhao et al. 2024, GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection.
    """

    def __init__(self, rank: int, update_every: int = 200, side: str = "short") -> None:
        """Remember the options; there is no basis yet.

        rank: at least 1, else ValueError.
        update_every: how many ticks a basis is kept; at least 1, else ValueError.
        side: "short" is left if rows < columns, else right (the basis lies on the shorter side, and on the
            right of a square). "long" is the other one, always. Anything else is a ValueError.
        """
        raise NotImplementedError("lab 04, step 1: GaLoreProjector.__init__ (README section 1)")

    def refresh(self, G: Tensor) -> None:
        """Take the basis from this G, now. The counter of ticks stays where it is.

        The SVD runs in the dtype of G (in float32 if G is narrower); B has the dtype of G and no graph.
        The first basis of a projector that saves nothing (`is_identity`) gives a UserWarning, later ones
        don't.
        """
        raise NotImplementedError("lab 04, step 1: GaLoreProjector.refresh (README section 1)")

    def low_rank(self, G: Tensor) -> Tensor:
        """R for this G: one tick.

        Ticks are counted from 0. Tick n takes the basis from this G if n % update_every == 0, unless
        `refresh` was called since the last tick. In all other ticks the basis stays the one that is there.
        Returns R in the dtype of G, without graph. G is not changed.
        """
        raise NotImplementedError("lab 04, step 1: GaLoreProjector.low_rank (README section 1)")

    def back(self, R: Tensor) -> Tensor:
        """B R (left) or R Bᵀ (right), of shape (rows, columns). No tick."""
        raise NotImplementedError("lab 04, step 1: GaLoreProjector.back (README section 1)")

    def project(self, G: Tensor) -> Tensor:
        """back(low_rank(G)): G without what lies outside the basis. One tick."""
        raise NotImplementedError("lab 04, step 1: GaLoreProjector.project (README section 1)")


# -------------------------------------------------------------- step 2: many gradients, and what they cost


class GaLoreManager:
    """A `GaLoreProjector` (side "short") for each matrix of a model that is worth one.

    A name is judged at its first gradient that isn't None, once and for all: it is tracked if that gradient
    is 2-D, has at least `min_elements` elements, and no word of `exclude` is a substring of the name.

    projectors: a dict, name → projector, of the tracked names. Each counts its own ticks.
    """

    def __init__(
        self,
        rank: int,
        update_every: int = 200,
        min_elements: int = 4096,
        exclude: tuple[str, ...] = ("embed",),
    ) -> None:
        """Remember the options. rank and update_every are those of every projector.

        exclude: a tuple of words, compared with names as they are, upper and lower case.
        """
        raise NotImplementedError("lab 04, step 2: GaLoreManager.__init__ (README section 2)")

    def process_gradients(self, named_grads: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
        """Project the gradients that are tracked: a new dict with the same keys in the same order.

        named_grads: name → gradient, or None where there is none (no tick). It and its tensors don't change.
        Tracked gradients come back projected (`GaLoreProjector.project`), all others as the very objects.
        """
        raise NotImplementedError("lab 04, step 2: GaLoreManager.process_gradients (README section 2)")

    def memory_report(self, bytes_per_float: int = 4) -> dict[str, Any]:
        """What Adam would hold for the tracked matrices, in full size and projected; from shapes alone.

        tracked: how many matrices.
        full_adam_floats: both moments in full size.
        galore_floats: bases and both moments, as tracked (side short).
        full_adam_mib, galore_mib: floats · bytes_per_float / 2²⁰.
        ratio: galore / full (what it is when nothing is tracked is yours to choose).
        rules_mib: the MiB that five accounting rules give, a dict: "short", "long", "left", "right" (a basis
            on that side of every matrix, and both moments of what it leaves) and "moments_only" (side short,
            without the bases). On each side r = min(rank, that side).
        """
        raise NotImplementedError("lab 04, step 2: GaLoreManager.memory_report (README section 2)")


# ------------------------------------------------------------------------------- step 3: GaLoreAdamW


class GaLoreAdamW(Optimizer):
    """AdamW whose moments live in the low-rank space of `GaLoreProjector`.

    For a 2-D parameter p with gradient G, at its own step t = 1, 2, ...:

        at t = 1, update_every + 1, 2·update_every + 1, ...:   B from this G, on the short side
        R = low-rank gradient of G
        m ← β₁ m + (1 − β₁) R          v ← β₂ v + (1 − β₂) R²
        N = m / (sqrt(v) + ε) · sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ)
        p ← p − lr · scale · back(N)
        p ← p · (1 − lr·wd)

    m and v start at 0; they have the shape of R and are neither reset nor rotated when B changes.
    ε is added to the root of the *uncorrected* v, the decay comes *last* and knows no scale: both unlike
    torch's AdamW, and both as in the authors' package galore-torch.
    All other parameters: the same with R = G and N itself for scale · back(N), in full size.

    Source: Zhao et al. 2024, GaLore; galore-torch 1.0 for ε and the order.
    """

    def __init__(
        self,
        params: ParamsT,
        rank: int,
        update_every: int = 200,
        scale: float = 0.25,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        defaults = {"rank": rank, "update_every": update_every, "scale": scale, "lr": lr, "betas": betas}
        super().__init__(params, {**defaults, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        closure: is called once, before the update, with gradients switched on.
        Options (rank and update_every too) are read from each of `self.param_groups` at every step.
        A parameter whose grad is None is neither moved nor decayed nor counted. `p.grad` is not changed.
        State, in `self.state[p]`, without graph: the basis, m and v of R's shape, the count t. Tensors,
        numbers, dicts and lists only, so that a `state_dict` holds everything: no projector object.
        """
        raise NotImplementedError("lab 04, step 3: GaLoreAdamW.step (README section 3)")


class AdamMini(Optimizer):
    """AdamW with one second moment for a whole block of weights: half of Adam's memory.

    For each parameter p with gradient g, at its own step t = 1, 2, ...:

        p ← p · (1 − lr·wd)
        m ← β₁ m + (1 − β₁) g
        v_b ← β₂ v_b + (1 − β₂) · (mean of g² over block b)            for each block b
        p ← p − lr · (m / (1 − β₁ᵗ)) / (sqrt(v_b / (1 − β₂ᵗ)) + ε)     each entry with the v of its block

    The name decides how a parameter is cut. It is lower-cased; the first rule that fits wins:

    1. elementwise, each entry a block of its own, never decayed: the name contains "bias", "norm" or "ln_",
       or its last part but one (between dots) begins with "ln", as in "h.0.ln1.weight";
    2. head, blocks of dim·dim // n_heads consecutive entries in the order of their indices, as `reshape(-1)`
       gives them: the name contains "k_proj", "q_proj", "wq", "wk", "query" or "key";
    3. row, one block per index of dimension 0: the name contains "embed", "embd", "wte", "lm_head", "output",
       "final_layer", "v_proj", "wv", "value", "o_proj", "wo", "attn.proj", "feed_forward", "linear" or "mlp";
    4. else a ValueError that names the parameter: a wrong block is worse than none.

    Source: Zhang et al. 2024, Adam-mini: Use Fewer Learning Rates To Gain More; adam-mini 1.1.1 (the names).
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        dim: int,
        n_heads: int,
    ) -> None:
        """Sort the parameters into groups by their names, and hand these to `Optimizer.__init__`.

        named_parameters: (name, parameter) pairs, as `model.named_parameters()` gives them; walked once.
            Parameters that don't require grad are left out, whatever their names.
        dim: the width of the model. n_heads: its number of query heads.
        An unknown name is a ValueError here, not in `step`. How many groups there are is yours to choose;
        each holds lr, betas, eps and weight_decay, and a schedule may write into them (weight_decay only
        where no parameter of the group is elementwise).
        """
        raise NotImplementedError("lab 04, step 4: AdamMini.__init__ (README section 4)")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: m of p's shape, one v per block, the count t.
        """
        raise NotImplementedError("lab 04, step 4: AdamMini.step (README section 4)")


# ---------------------------------------------------------------------------------- step 5: Adafactor


class Adafactor(Optimizer):
    """Adam's second moment as an outer product of row and column means, and no first moment.

    For each parameter p with gradient g, at its own step t = 1, 2, ...:

        w = t ** beta2_decay
        α = max(ε₂, rms(p)) · min(lr, 1/sqrt(t))              from p before the decay
        p ← p · (1 − lr·wd)
        2-D and more:   R ← R + w · (mean of g² over the last dimension − R)
                        C ← C + w · (mean of g² over the last but one − C)
                        V = R · C / max(mean of R over the last but one, ε₁)
        else:           V ← V + w · (g² − V)
        u = g / sqrt(max(V, ε₁²))
        p ← p − α · u / max(1, rms(u) / d)

    with eps = (ε₁, ε₂); ε₁ = None stands for torch.finfo(p.dtype).eps. R, C and V start at 0.
    rms is the root of the mean square over all entries. This is `torch.optim.Adafactor`, to 1e-10 in float64.

    Source: Shazeer and Stern 2018, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        defaults = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: R and C for 2 and more dimensions, V for fewer, and the count t.
        """
        raise NotImplementedError("lab 04, step 5: Adafactor.step (README section 5)")


# ---------------------------------------------------------------------------------------- step 6: SM3


class SM3(Optimizer):
    """AdaGrad with one accumulator for each slice along each axis instead of one for each weight (SM3-II).

    A parameter of shape (n₁, ..., n_k) has accumulators μ₁ (n₁ numbers), ..., μ_k (n_k numbers), at first 0.
    At each step, with gradient g:

        ν = min over the axes of the accumulators, each broadcast to the shape of g,   + g²
        μ_a ← max of ν over all axes but a                            for each axis a, after ν
        u = g / sqrt(ν + eps)                                         0 where ν = 0
        m ← β m + (1 − β) u         p ← p − lr · m                    β = momentum; no bias correction
        momentum 0:                 p ← p − lr · u                    and no m is kept

    One dimension: ν = μ₁ + g², which is AdaGrad. None: one number. Every ν is at least the sum of all g² of
    its entry, and no accumulator ever falls.

    Source: Anil et al. 2019, Memory-Efficient Adaptive Optimization (algorithm SM3-II).
    """

    def __init__(self, params: ParamsT, lr: float = 0.1, momentum: float = 0.9, eps: float = 1e-30) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "eps": eps})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`. eps may be 0.
        State: one vector for each axis (a number for a parameter without axes), and m unless momentum is 0.
        """
        raise NotImplementedError("lab 04, step 6: SM3.step (README section 6)")


# ------------------------------------------------------------------------- step 7: Lion, and the ledger


class Lion(Optimizer):
    """The sign of a momentum: every weight moves by lr, whatever its gradient's size.

    For each parameter p with gradient g:

        p ← p · (1 − lr·wd)
        p ← p − lr · sign(β₁ m + (1 − β₁) g)      m as it was, at first 0; sign(0) = 0
        m ← β₂ m + (1 − β₂) g                     after the move, with the *other* beta

    Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: m.
        """
        raise NotImplementedError("lab 04, step 7: Lion.step (README section 7)")


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes that an optimizer holds between two steps: what its state really costs.

    The sum of numel · element_size over every tensor in `optimizer.state`, in nested dicts, lists and tuples
    too. Parameters, gradients and plain numbers don't count, so it is 0 before the first step.
    """
    raise NotImplementedError("lab 04, step 7: state_bytes (README section 7)")
