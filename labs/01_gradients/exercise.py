"""Lab 01: Gradients.

Write the bodies that raise NotImplementedError, one step after the other:

    step 1  Four simple activations
    step 2  Mish
    step 3  SwiGLU
    step 4  Finite differences
    step 5  The gradient check
    step 6  Silent units
    step 7  Norm and activation in one

Check your work:    pytest labs/01_gradients             (one step: --step 1)
Read first:         labs/01_gradients/README.md
Stuck?              grader hint 01 1
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# -------------------------------------------------------------------- step 1: four simple activations


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, and negative_slope · x elsewhere.

    One `torch.autograd.Function` with a backward by hand: the derivative is 1 where x > 0, and
    negative_slope elsewhere, at exactly 0 too.

    x: any shape, any layout, float64 or float32; not changed.
    negative_slope: any number: 0 (the ReLU), negative, or above 1.
    Returns the shape and dtype of x.

    Source: Maas, Hannun and Ng 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models.
    """
    raise NotImplementedError("lab 01, step 1: leaky_relu (README section 1)")


_HEIGHT, _STRETCH = 1.7159, 2.0 / 3.0


def lecun_tanh(x: Tensor) -> Tensor:
    """Return 1.7159 · tanh(2x/3), with exactly these two constants.

    One `torch.autograd.Function` with a backward by hand.
    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: LeCun, Bottou, Orr and Müller 1998, Efficient BackProp.
    """
    raise NotImplementedError("lab 01, step 1: lecun_tanh (README section 1)")


def lisht(x: Tensor) -> Tensor:
    """Return x · tanh(x).

    One `torch.autograd.Function` with a backward by hand.
    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: Roy et al. 2019, LiSHT: Non-Parametric Linearly Scaled Hyperbolic Tangent Activation Function.
    """
    raise NotImplementedError("lab 01, step 1: lisht (README section 1)")


def lecun_tanh_inverse(y: Tensor) -> Tensor:
    """Return the x for which `lecun_tanh(x)` is y: 1.5 · atanh(y / 1.7159), in the dtype of y.

    Nothing is clamped: ±1.7159 gives ±inf, and anything beyond gives NaN.
    `lecun_tanh_inverse(lecun_tanh(x))` is x to 1e-12 for abs(x) ≤ 5 in float64; further out, digits that
    the tanh has rounded away can't come back.

    y: any shape, any layout, float64 or float32; not changed. No Function is needed here.
    """
    raise NotImplementedError("lab 01, step 1: lecun_tanh_inverse (README section 1)")


# ------------------------------------------------------------------------------------- step 2: Mish


def mish(x: Tensor) -> Tensor:
    """Return x · tanh(softplus(x)), where softplus(x) is log(1 + eˣ).

    One `torch.autograd.Function` with a backward by hand.
    Value and derivative are right and finite from −1000 to 1000 (float32: from −200 to 200).
    On the left, where both fade like eˣ, they keep ten digits *relative* to their size, down to x = −60.
    The backward can itself be differentiated, everywhere, at exactly 0 too (`gradgradcheck` holds).

    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: Misra 2019, Mish: A Self Regularized Non-Monotonic Activation Function.
    """
    raise NotImplementedError("lab 01, step 2: mish (README section 2)")


# ----------------------------------------------------------------------------------- step 3: SwiGLU


def swiglu(gate: Tensor, value: Tensor) -> Tensor:
    """Return silu(gate) · value, where silu(g) is g · σ(g) and σ is the sigmoid.

    One `torch.autograd.Function` with a backward by hand: gradients for both inputs, or for the one that
    requires it. Finite, in value and gradients, for gates from −1000 to 1000.
    The backward can itself be differentiated (`gradgradcheck` holds).

    gate, value: equal shapes, any layout, float64 or float32; not changed.
    Returns their shape and dtype.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """
    raise NotImplementedError("lab 01, step 3: swiglu (README section 3)")


# ------------------------------------------------------------------------ step 4: finite differences


def numerical_gradient(f: Callable[[Tensor], Tensor | float], x: Tensor, eps: float = 1e-6) -> Tensor:
    """Return the gradient of f at x by central differences, one entry at a time.

        gradient_i = (f(x + eps · e_i) − f(x − eps · e_i)) / (2 · eps)

    e_i is 1 at entry i and 0 elsewhere, so all other entries stay at x.

    f: takes a tensor like x (a copy: x stays as it is, also if f writes into its argument) and returns a
        0-d tensor, with or without a graph, or a number.
    x: any shape, also 0-d, any layout. It may be a leaf that requires grad; neither it nor its `.grad`
        changes.
    eps: half the distance between the two points.
    Returns the shape and dtype of x, without a graph.
    """
    raise NotImplementedError("lab 01, step 4: numerical_gradient (README section 4)")


# -------------------------------------------------------------------------- step 5: the gradient check


@dataclass
class InputReport:
    """One input's worst entry (given)."""

    index: tuple[int, ...]  # the entry with the largest excess: its error minus its allowance
    analytic: float  # what the backward says there
    numeric: float  # what the finite difference says there
    error: float  # how far they are apart; inf (or NaN) where one of them isn't finite
    ok: bool  # whether every entry of this input is right


@dataclass
class GradientReport:
    """What `check_gradients` found (given): `ok`, also as `bool(report)`, and one item an input."""

    ok: bool
    inputs: list[InputReport]  # one for each floating-point input, in order

    def __bool__(self) -> bool:
        return self.ok


def check_gradients(
    f: Callable[..., Tensor],
    inputs: Tensor | Sequence[Tensor],
    eps: float = 1e-6,
    atol: float = 1e-8,
    rtol: float = 1e-6,
    generator: torch.Generator | None = None,
) -> GradientReport:
    """Compare the backward pass of f with finite differences, under one random upstream gradient.

    Draw u, standard normal, of the shape of f(*inputs). For every floating-point input compare

        analytic: the gradient that backward gives for the upstream gradient u; zeros where it gives none
        numeric:  `numerical_gradient` of the number Σ u · f(*inputs), as a function of that input alone

    An entry is wrong if abs(analytic − numeric) > atol + rtol · abs(numeric), or if it isn't finite.

    f: takes the inputs and returns one tensor of any shape.
    inputs: a tensor, or a tuple or list of them, whether they require grad or not; they and their `.grad`
        stay as they are. Those that hold whole numbers or truth values are passed on and not checked.
    eps: of `numerical_gradient`.
    generator: where u is drawn from. None: a fresh one with a fixed seed, so that the same call gives the
        same report; the global random state is neither read nor moved in either case.
    Returns a GradientReport; a wrong gradient is reported, never raised. `index` is the entry with the
    largest excess: its error minus its allowance, which is the right side above; where one of the two isn't
    finite, the excess counts as infinite. An input without entries is right, and its index is ().
    """
    raise NotImplementedError("lab 01, step 5: check_gradients (README section 5)")


# ------------------------------------------------------------------------------- step 6: silent units


def dead_fraction(activations: Tensor) -> float:
    """Return the share of units that are ≤ 0 on *every* sample.

    activations: the last dimension is the unit, all others together are the samples; at least one of each,
        and no NaN.
    Returns a Python float from 0 to 1.
    """
    raise NotImplementedError("lab 01, step 6: dead_fraction (README section 6)")


# ------------------------------------------------------------------- step 7: norm and activation in one


def fused_norm_activation(x: Tensor, scale: Tensor, activation: str, eps: float = 1e-5) -> Tensor:
    """Return act(scale · (x − mean) / √(var + eps)), mean and variance over the last dimension.

    One `torch.autograd.Function` with one backward by hand, for x and for scale: the chain rule through
    the activation, the scale, and both statistics. The variance is the biased one; there is no shift.

    x: shape (..., d), any layout, float64 or float32; not changed.
    scale: shape (d,), the dtype of x.
    activation: "leaky_relu" (slope 0.01), "mish", "lecun_tanh" or "lisht"; anything else: ValueError.
    Returns the shape and dtype of x.
    """
    raise NotImplementedError("lab 01, step 7: fused_norm_activation (README section 7)")
