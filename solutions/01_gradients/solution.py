"""Lab 01, gradients: functions whose backward pass is written by hand, and the instrument that checks it.

Seven steps: five activations, each one `torch.autograd.Function`; a derivative by finite differences; a
checker that compares the two under a random upstream gradient; a count of units that have gone silent;
and a norm with an activation in one function with one backward.

Conventions of the whole file: results have the shape and the dtype of the input, inputs are left
untouched, and a `generator` is the only source of randomness.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# -------------------------------------------------------------------- step 1: four simple activations


class _LeakyReLU(Function):
    """What the backward needs is kept by `save_for_backward`: the input, from which all else follows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, upstream, ctx.slope * upstream), None


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, and negative_slope · x elsewhere.

    One `torch.autograd.Function` with a backward by hand: the derivative is 1 where x > 0, and
    negative_slope elsewhere, at exactly 0 too.

    x: any shape, any layout, float64 or float32; not changed.
    negative_slope: any number: 0 (the ReLU), negative, or above 1.
    Returns the shape and dtype of x.

    Source: Maas, Hannun and Ng 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models.
    """
    result: Tensor = _LeakyReLU.apply(x, negative_slope)  # type: ignore[no-untyped-call]
    return result


_HEIGHT, _STRETCH = 1.7159, 2.0 / 3.0


def _lecun_tanh_derivative(x: Tensor) -> Tensor:
    return _HEIGHT * _STRETCH * (1 - torch.tanh(_STRETCH * x).square())


class _LeCunTanh(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _HEIGHT * torch.tanh(_STRETCH * x)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return upstream * _lecun_tanh_derivative(x)


def lecun_tanh(x: Tensor) -> Tensor:
    """Return 1.7159 · tanh(2x/3), with exactly these two constants.

    One `torch.autograd.Function` with a backward by hand.
    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: LeCun, Bottou, Orr and Müller 1998, Efficient BackProp.
    """
    result: Tensor = _LeCunTanh.apply(x)  # type: ignore[no-untyped-call]
    return result


def _lisht_derivative(x: Tensor) -> Tensor:
    t = torch.tanh(x)
    return t + x * (1 - t.square())


class _LiSHT(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return upstream * _lisht_derivative(x)


def lisht(x: Tensor) -> Tensor:
    """Return x · tanh(x).

    One `torch.autograd.Function` with a backward by hand.
    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: Roy et al. 2019, LiSHT: Non-Parametric Linearly Scaled Hyperbolic Tangent Activation Function.
    """
    result: Tensor = _LiSHT.apply(x)  # type: ignore[no-untyped-call]
    return result


def lecun_tanh_inverse(y: Tensor) -> Tensor:
    """Return the x for which `lecun_tanh(x)` is y: 1.5 · atanh(y / 1.7159), in the dtype of y.

    Nothing is clamped: ±1.7159 gives ±inf, and anything beyond gives NaN.
    `lecun_tanh_inverse(lecun_tanh(x))` is x to 1e-12 for abs(x) ≤ 5 in float64; further out, digits that
    the tanh has rounded away can't come back.

    y: any shape, any layout, float64 or float32; not changed. No Function is needed here.
    """
    return 1.5 * torch.atanh(y / 1.7159)


# ------------------------------------------------------------------------------------- step 2: Mish


def _mish_value(x: Tensor) -> Tensor:
    """x · tanh(softplus(x)): with s = σ(x) and q = σ(−x) = 1 − s, the tanh is s (1 + q) / (1 + q²).

    Nothing here overflows, nothing is a difference of nearly equal numbers, and nothing has a kink.
    """
    s, q = torch.sigmoid(x), torch.sigmoid(-x)
    return x * (s * (1 + q) / (1 + q.square()))


def _mish_derivative(x: Tensor) -> Tensor:
    """tanh(softplus(x)) + x · 4 s q² / (1 + q²)², in the letters of `_mish_value`."""
    s, q = torch.sigmoid(x), torch.sigmoid(-x)
    d = 1 + q.square()
    return s * (1 + q) / d + x * (4 * s * q.square() / d.square())


class _Mish(Function):
    """The backward is made of differentiable operations on a saved *input*: so it has a derivative, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _mish_value(x)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return upstream * _mish_derivative(x)


def mish(x: Tensor) -> Tensor:
    """Return x · tanh(softplus(x)), where softplus(x) is log(1 + eˣ).

    One `torch.autograd.Function` with a backward by hand.
    Value and derivative are right and finite from −1000 to 1000 (float32: from −200 to 200).
    On the left, where both fade like eˣ, they keep ten digits *relative* to their size, down to x = −60.
    The backward can itself be differentiated, everywhere, at exactly 0 too (`gradgradcheck` holds).

    x: any shape, any layout, float64 or float32; not changed. Returns the shape and dtype of x.

    Source: Misra 2019, Mish: A Self Regularized Non-Monotonic Activation Function.
    """
    result: Tensor = _Mish.apply(x)  # type: ignore[no-untyped-call]
    return result


# ----------------------------------------------------------------------------------- step 3: SwiGLU


class _SwiGLU(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(gate, value)
        return gate * torch.sigmoid(gate) * value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gate, value = ctx.saved_tensors
        s = torch.sigmoid(gate)
        for_gate = for_value = None
        if ctx.needs_input_grad[0]:
            for_gate = upstream * value * s * (1 + gate * torch.sigmoid(-gate))
        if ctx.needs_input_grad[1]:
            for_value = upstream * gate * s
        return for_gate, for_value


def swiglu(gate: Tensor, value: Tensor) -> Tensor:
    """Return silu(gate) · value, where silu(g) is g · σ(g) and σ is the sigmoid.

    One `torch.autograd.Function` with a backward by hand: gradients for both inputs, or for the one that
    requires it. Finite, in value and gradients, for gates from −1000 to 1000.
    The backward can itself be differentiated (`gradgradcheck` holds).

    gate, value: equal shapes, any layout, float64 or float32; not changed.
    Returns their shape and dtype.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """
    result: Tensor = _SwiGLU.apply(gate, value)  # type: ignore[no-untyped-call]
    return result


# ------------------------------------------------------------------------ step 4: finite differences


def _number(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else float(value)


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
    point = x.detach().clone(memory_format=torch.contiguous_format)
    gradient = torch.zeros_like(point)
    for i in range(point.numel()):
        sides = []
        for step in (eps, -eps):
            moved = point.clone()
            moved.view(-1)[i] += step
            sides.append(_number(f(moved)))
        gradient.view(-1)[i] = (sides[0] - sides[1]) / (2 * eps)
    return gradient


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


_SEED = 271_828_182  # not 0: inputs that were drawn with seed 0 would meet an upstream gradient equal to them


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
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    points = [x.detach().clone() for x in given]
    places = [i for i, x in enumerate(points) if x.is_floating_point()]
    leaves = [x.clone().requires_grad_(i in places) for i, x in enumerate(points)]
    with torch.enable_grad():
        output = f(*leaves)
    if generator is None:
        generator = torch.Generator().manual_seed(_SEED)
    upstream = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    backward = _backward(output, [leaves[i] for i in places], upstream)

    items = []
    for i, analytic in zip(places, backward, strict=True):

        def weighted_sum(moved: Tensor, i: int = i) -> Tensor:
            return (upstream * f(*points[:i], moved, *points[i + 1 :]).detach()).sum()

        numeric = numerical_gradient(weighted_sum, points[i], eps)
        items.append(_compare(analytic, numeric, atol, rtol))
    return GradientReport(all(item.ok for item in items), items)


def _backward(output: Tensor, leaves: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """The gradients of the leaves; zeros where there is none, NaN where autograd refuses what it got."""
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if output.requires_grad and leaves:
        try:
            found = torch.autograd.grad(output, leaves, upstream, allow_unused=True)
        except RuntimeError:  # a gradient of another shape, or too many of them
            found = [torch.full_like(x, math.nan) for x in leaves]
    pairs = zip(found, leaves, strict=True)
    return [torch.zeros_like(x) if gradient is None else gradient.detach() for gradient, x in pairs]


def _compare(analytic: Tensor, numeric: Tensor, atol: float, rtol: float) -> InputReport:
    if analytic.numel() == 0:
        return InputReport((), 0.0, 0.0, 0.0, True)
    error = (analytic - numeric).abs()
    finite = analytic.isfinite() & numeric.isfinite()
    error = torch.where(finite, error, math.inf)
    excess = torch.where(finite, error - (atol + rtol * numeric.abs()), math.inf)
    flat = int(excess.argmax())
    index = tuple(int(k) for k in torch.unravel_index(torch.tensor(flat), excess.shape))
    a, n, e = (float(tensor.reshape(-1)[flat]) for tensor in (analytic, numeric, error))
    return InputReport(index, a, n, e, ok=not bool((excess > 0).any()))


# ------------------------------------------------------------------------------- step 6: silent units


def dead_fraction(activations: Tensor) -> float:
    """Return the share of units that are ≤ 0 on *every* sample.

    activations: the last dimension is the unit, all others together are the samples; at least one of each,
        and no NaN.
    Returns a Python float from 0 to 1.
    """
    samples = activations.reshape(-1, activations.shape[-1])
    return float((samples <= 0).all(dim=0).double().mean())


# ------------------------------------------------------------------- step 7: norm and activation in one


def _leaky_value(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.01 * x)


def _leaky_derivative(x: Tensor) -> Tensor:
    return torch.where(x > 0, torch.ones_like(x), torch.full_like(x, 0.01))


_PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "leaky_relu": (_leaky_value, _leaky_derivative),
    "mish": (_mish_value, _mish_derivative),
    "lecun_tanh": (lambda x: _HEIGHT * torch.tanh(_STRETCH * x), _lecun_tanh_derivative),
    "lisht": (lambda x: x * torch.tanh(x), _lisht_derivative),
}


def _normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The rows of x with mean 0 and variance 1, and what each was multiplied by."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    inverse = 1 / torch.sqrt(variance + eps)
    return centred * inverse, inverse


class _NormActivation(Function):
    """Only the two inputs are kept: the backward normalises once more, and so can be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, activation: str, eps: float) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.activation, ctx.eps = activation, eps
        normalised, _ = _normalise(x, eps)
        value, _ = _PAIRS[activation]
        return value(scale * normalised)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, scale = ctx.saved_tensors
        normalised, inverse = _normalise(x, ctx.eps)
        _, derivative = _PAIRS[ctx.activation]
        g = upstream * derivative(scale * normalised)
        for_scale = (g * normalised).reshape(-1, scale.numel()).sum(dim=0)
        h = g * scale
        along = (h * normalised).mean(dim=-1, keepdim=True)
        for_x = inverse * (h - h.mean(dim=-1, keepdim=True) - normalised * along)
        return for_x, for_scale, None, None


def fused_norm_activation(x: Tensor, scale: Tensor, activation: str, eps: float = 1e-5) -> Tensor:
    """Return act(scale · (x − mean) / √(var + eps)), mean and variance over the last dimension.

    One `torch.autograd.Function` with one backward by hand, for x and for scale: the chain rule through
    the activation, the scale, and both statistics. The variance is the biased one; there is no shift.

    x: shape (..., d), any layout, float64 or float32; not changed.
    scale: shape (d,), the dtype of x.
    activation: "leaky_relu" (slope 0.01), "mish", "lecun_tanh" or "lisht"; anything else: ValueError.
    Returns the shape and dtype of x.
    """
    if activation not in _PAIRS:
        raise ValueError(f"activation must be one of {', '.join(_PAIRS)}, not {activation!r}")
    result: Tensor = _NormActivation.apply(x, scale, activation, eps)  # type: ignore[no-untyped-call]
    return result
