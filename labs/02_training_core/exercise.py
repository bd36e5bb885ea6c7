"""Lab 02: The training core.

Write the bodies that raise NotImplementedError, one step after the other:

    step 1  Initialisation
    step 2  Norms
    step 3  Masked cross-entropy
    step 4  AdamW
    step 5  Newton–Schulz and Muon
    step 6  Schedules
    step 7  Clipping and accumulation

Check your work:    pytest labs/02_training_core             (one step: --step 1)
Read first:         labs/02_training_core/README.md
Stuck?              grader hint 02 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

# ---------------------------------------------------------------------------- step 1: initialisation


def kaiming_normal_(
    w: Tensor, fan_in: int, gain: float = math.sqrt(2.0), *, generator: torch.Generator | None = None
) -> Tensor:
    """Fill `w` in place with samples of N(0, gain² / fan_in) and return it.

    The factor gain² = 2 makes up for a ReLU, which throws away half of the mean square of a signal.

    w: any number of dimensions, any floating dtype; may be an `nn.Parameter` that requires grad.
        It stays the same object, keeps requiring grad and stays a leaf: filling is not recorded.
    fan_in: number of inputs that one output sums over. It is taken from here, never from w.shape.
    gain: the standard deviation is gain / sqrt(fan_in).
    generator: the only source of randomness if given; the global random state is then neither read
        nor moved. None: torch's global generator.
    Returns `w` itself.

    Source: He et al. 2015, Delving Deep into Rectifiers.
    """
    raise NotImplementedError("lab 02, step 1: kaiming_normal_ (README section 1)")


def xavier_uniform_(
    w: Tensor, fan_in: int, fan_out: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Fill `w` in place with samples of U(−a, a) of variance 2 / (fan_in + fan_out) and return it.

    The variance of U(−a, a) is a²/3, which fixes a. It is the compromise between keeping the variance
    of the signal on its way forward (1 / fan_in) and of the gradient on its way back (1 / fan_out).

    w, generator, return value: as in `kaiming_normal_`. The fans come from the arguments only.

    Source: Glorot and Bengio 2010, Understanding the Difficulty of Training Deep Feedforward Networks.
    """
    raise NotImplementedError("lab 02, step 1: xavier_uniform_ (README section 1)")


def activation_stds(depth: int, width: int, init: str, batch: int = 512, seed: int = 0) -> list[float]:
    """Standard deviation of the activations after each ReLU of a bias-free MLP (given).

    Unit normal inputs of shape (batch, width) pass `depth` times through h ← relu(h Wᵀ) in float32.

    init: "kaiming" (your `kaiming_normal_`), "standard" (N(0, 1)) or "small" (N(0, 0.01²)) for each W of
        shape (width, width); anything else is a ValueError.
    seed: of the generator that draws all numbers; the same seed gives the same list.
    Returns `depth` floats.
    """
    generator = torch.Generator().manual_seed(seed)
    fillers: dict[str, Callable[[Tensor], Tensor]] = {
        "kaiming": lambda w: kaiming_normal_(w, width, generator=generator),
        "standard": lambda w: w.normal_(0.0, 1.0, generator=generator),
        "small": lambda w: w.normal_(0.0, 0.01, generator=generator),
    }
    if init not in fillers:
        raise ValueError(f"init must be one of {', '.join(fillers)}, not {init!r}")
    h = torch.randn(batch, width, generator=generator)
    stds = []
    for _ in range(depth):
        h = torch.relu(h @ fillers[init](torch.empty(width, width)).T)
        stds.append(float(h.std()))
    return stds


# ------------------------------------------------------------------------------------ step 2: norms


class LayerNorm(nn.Module):
    """Normalise the last dimension to mean 0 and variance 1, then scale and shift it.

        y = (x − μ) / sqrt(σ² + ε) · weight + bias

    μ and σ² are the mean and the biased variance (divided by N, not N − 1) over the last dimension.

    Parameters, and the only ones: `weight` of shape (dim,), ones, and `bias` of shape (dim,), zeros.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        """Make `weight` (ones) and `bias` (zeros), both `nn.Parameter`s of shape (dim,); remember `eps`."""
        raise NotImplementedError("lab 02, step 2: LayerNorm.__init__ (README section 2)")

    def forward(self, x: Tensor) -> Tensor:
        """x: shape (..., dim), also (dim,). Returns the same shape and dtype; x is not changed.

        The variance is taken in two passes (first the mean, then the mean square of what is left), so that
        a float64 row near 1e8 is right to 1e-6. ε stands inside the root. Gradients flow through
        both statistics. float16 and bfloat16 are best computed in float32 and rounded once.
        """
        raise NotImplementedError("lab 02, step 2: LayerNorm.forward (README section 2)")


class RMSNorm(nn.Module):
    """Divide the last dimension by its root mean square, then scale it: no mean, no bias.

        y = x / sqrt(mean(x²) + ε) · weight

    Up to ε the result does not change when x is multiplied by a positive number.

    The only parameter: `weight` of shape (dim,), ones.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        """Make `weight` (ones), an `nn.Parameter` of shape (dim,); remember `eps`."""
        raise NotImplementedError("lab 02, step 2: RMSNorm.__init__ (README section 2)")

    def forward(self, x: Tensor) -> Tensor:
        """x: shape (..., dim), also (dim,). Returns the same shape and dtype; x is not changed.

        ε is the same number for every dtype and stands inside the root; a row of zeros gives zeros.
        For float16 and bfloat16 the squares are taken and added up in float32 (300² does not fit into
        float16).
        """
        raise NotImplementedError("lab 02, step 2: RMSNorm.forward (README section 2)")


# ---------------------------------------------------------------------------- step 3: cross-entropy


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Masked cross-entropy with label smoothing, from logits.

        loss of a position = (1 − s) · (−log p_target) + s · (−mean over classes c of log p_c)

    with p = softmax of the position's logits and s = label_smoothing; 0 where the target is ignored.

    logits: shape (..., C). targets: integers of shape (...), each a class or `ignore_index`.
    ignore_index: any integer, also −1 or a class. The smoothing term is masked like the rest.
    reduction: "none" gives one loss per position as a flat vector, 0 where ignored; "sum" their sum;
        "mean" the sum divided by the number of positions that are not ignored. Else ValueError.
    Returns a tensor of the logits' dtype (float16 and bfloat16 are computed in float32); the
    arguments are not changed, and the result can be differentiated with respect to the logits.

    Stability: log p = z − log Σ exp(z) with z = x − max x, each row by its own maximum. So float32 logits
    with an offset of 1e7 are right to 2e-6, and logits of 1e300 give the right value; a probability is
    never formed before its logarithm is taken.
    Ignored rows may hold NaN or inf: they leave the loss and the gradients of all other rows as they
    are, and should get gradient 0 themselves. All rows ignored, as in torch: "mean" is NaN with gradients
    exactly 0, "sum" is 0, "none" is zeros. NaN in a row that counts is not hidden.

    Source: Szegedy et al. 2016, Rethinking the Inception Architecture (label smoothing).
    """
    raise NotImplementedError("lab 02, step 3: cross_entropy (README section 3)")


# ------------------------------------------------------------------------------------ step 4: AdamW


class AdamW(Optimizer):
    """Adam with weight decay that is decoupled from the gradient.

    For each parameter p with gradient g, at its own step t = 1, 2, ...:

        p ← p · (1 − lr·wd)
        m ← β₁ m + (1 − β₁) g          m̂ = m / (1 − β₁ᵗ)
        v ← β₂ v + (1 − β₂) g²         v̂ = v / (1 − β₂ᵗ)
        p ← p − lr · m̂ / (sqrt(v̂) + ε)

    m and v start at 0. The decay comes first and uses lr, as in `torch.optim.AdamW`, which this
    matches to 1e-10 in float64.

    Source: Kingma and Ba 2015, Adam; Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization
    (who multiply the decay by the schedule alone; torch multiplies it by lr, and so do we).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        """Store the options as the defaults of every parameter group (given).

        params: an iterable of parameters, or of dicts with their own options (groups).
        """
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        closure: recomputes the loss and the gradients. It is called once, before the update, with
            gradients switched on even if the caller has them off.
        Options (lr, betas, eps, weight_decay) are read from each of `self.param_groups` at every step, since
        schedules write there. A parameter without gradient (`p.grad is None`) is neither moved nor
        decayed nor counted; a gradient of zeros is a gradient.
        State: m, v and the step count t of each parameter live in `self.state[p]`, so that `state_dict`
        continues exactly where it stopped. They carry no graph. t is a whole number.
        `p.grad` is not changed.
        """
        raise NotImplementedError("lab 02, step 4: AdamW.step (README section 4)")


# ------------------------------------------------------------------- step 5: Newton–Schulz and Muon


def newton_schulz(
    G: Tensor,
    steps: int = 5,
    coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
    eps: float = 1e-7,
) -> Tensor:
    """Push the singular values of a matrix towards 1 and leave its singular vectors alone.

        X₀ = G / (‖G‖_F + ε)
        X ← a X + (b A + c A²) X   with A = X Xᵀ,   `steps` times

    Each step replaces every singular value σ by a σ + b σ³ + c σ⁵. A is formed on the short side: a matrix
    with more rows than columns is transposed first and transposed back at the end. It only saves time.

    G: shape (rows, columns), not changed. Computed and returned in the dtype of G.
    coefficients: (a, b, c). The default is quick and never settles: singular values end between about 0.68
        and 1.13. The cubic (1.5, −0.5, 0) converges to the polar factor U Vᵀ of G = U S Vᵀ.
    eps: is added to the norm, so that a matrix of zeros gives zeros.

    Source: Jordan et al. 2024, Muon (the coefficients); the cubic iteration is much older (Higham 2008).
    """
    raise NotImplementedError("lab 02, step 5: newton_schulz (README section 5)")


class Muon(Optimizer):
    """Momentum whose update is orthogonalised: steepest descent under the spectral norm, for matrices.

    For each parameter p of shape (rows, columns) with gradient g:

        b ← μ b + g                               b starts at 0
        u = g + μ b   with Nesterov (b is the new one),   u = b   without
        p ← p · (1 − lr·wd)                       the raw lr
        p ← p − lr · sqrt(max(1, rows/columns)) · NS(u)

    with NS = `newton_schulz` run for `ns_steps` steps.

    Source: Jordan et al. 2024, Muon: An Optimizer for Hidden Layers in Neural Networks.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given).

        params: as in AdamW. `Optimizer.__init__` hands each group to `add_param_group`.
        """
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as `Optimizer.add_param_group` does, but refuse what isn't a matrix.

        A group with a parameter that isn't 2-D is a ValueError, here or at the latest in `step`. The
        constructor comes through here too, so the check holds for every group. `params` of a group may be
        a generator: walk over what the base class has stored, not over the argument.
        """
        raise NotImplementedError("lab 02, step 5: Muon.add_param_group (README section 5)")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, parameters without gradient, `p.grad` and graphs: as in `AdamW.step`. The momentum
        b lives in `self.state[p]`. A parameter that isn't 2-D is a ValueError here at the latest.
        """
        raise NotImplementedError("lab 02, step 5: Muon.step (README section 5)")


# -------------------------------------------------------------------------------- step 6: schedules


def lr_cosine(step: int, max_lr: float, min_lr: float, warmup_steps: int, total_steps: int) -> float:
    """Learning rate of step s = 0, 1, ...: linear warm-up, then half a cosine wave down to min_lr.

        s < w:      max_lr · (s + 1) / w
        w ≤ s < T:  min_lr + (max_lr − min_lr) · (1 + cos(π (s − w) / (T − w))) / 2
        s ≥ T:      min_lr

    with w = warmup_steps and T = total_steps. The warm-up comes from 0, not from min_lr, and reaches max_lr
    at step w − 1; step w has it again. The last case beats the first. w may be 0 or T. Always a float, also
    for integer rates.

    Source: Loshchilov and Hutter 2017, SGDR.
    """
    raise NotImplementedError("lab 02, step 6: lr_cosine (README section 6)")


def lr_wsd(
    step: int, max_lr: float, min_lr: float, warmup_steps: int, total_steps: int, decay_frac: float = 0.2
) -> float:
    """Learning rate of step s = 0, 1, ...: warm-up, stable, decay.

        s < w:      max_lr · (s + 1) / w
        s < T − d:  max_lr
        s < T:      max_lr + (min_lr − max_lr) · (s − (T − d)) / d
        s ≥ T:      min_lr

    with w = warmup_steps, T = total_steps and d = int(decay_frac · T), which cuts off (and counts the warm-up
    as part of T). Where they overlap, warm-up beats decay, and the last case beats both. w may be 0 or T,
    decay_frac anything from 0 (no decay) to 1 (no stable phase). Always a float, also for integer rates.

    Source: Hu et al. 2024, MiniCPM.
    """
    raise NotImplementedError("lab 02, step 6: lr_wsd (README section 6)")


# ---------------------------------------------------------------- step 7: clipping and accumulation


def clip_grad_norm_(params: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients by one factor, in place, so that together they are no longer than `max_norm`.

        norm = sqrt(Σ over all entries of all gradients of g²)
        g ← g · min(1, max_norm / (norm + 1e-6))

    The direction of the whole gradient stays, which is the point of a single factor. Because of the 1e-6
    (torch has it too) a norm equal to max_norm is still scaled a little. Below, gradients keep every bit.

    params: a single tensor, or any iterable of tensors, also a generator (which can be walked only once).
        Parameters without gradient (`p.grad is None`) are skipped. Each `p.grad` stays the same object.
    Returns the norm before clipping, a 0-d tensor of the gradients' dtype without graph; tensor 0.0 if
    there is no gradient at all.

    Source: Pascanu, Mikolov and Bengio 2013, On the Difficulty of Training Recurrent Neural Networks.
    """
    raise NotImplementedError("lab 02, step 7: clip_grad_norm_ (README section 7)")


def accumulate_gradients(
    model: Callable[[Tensor], Tensor],
    micro_batches: Iterable[tuple[Tensor, Tensor]],
    ignore_index: int = -100,
) -> Tensor:
    """Gradients of one large batch that arrives in pieces.

    Adds to every `p.grad` the gradient of the mean loss over the valid tokens of all micro-batches together:

        loss = Σ over micro-batches (sum of cross-entropy over its valid tokens) / (valid tokens in all)

    A mean of the micro-batches' means would be something else as soon as their counts of valid tokens differ.

    model: called as model(x), returns logits of shape (..., C).
    micro_batches: any iterable, also a generator, of (x, y) with targets y of shape (...); shapes may differ
        from one to the next. ValueError if there is none at all.
    ignore_index: targets that do not count. A micro-batch with nothing else adds 0.
    The valid tokens are counted first. Then each micro-batch takes one forward and one backward before the
    next forward, so that only one graph is alive at a time. Gradients that are already there are kept and
    added to.
    Returns that mean loss: 0-d, detached. If every token is ignored it is NaN, and the gradients are zeros.
    """
    raise NotImplementedError("lab 02, step 7: accumulate_gradients (README section 7)")
