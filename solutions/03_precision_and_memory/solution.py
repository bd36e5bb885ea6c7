"""Lab 03, precision and memory: what a number costs, what it forgets, and how to do without.

Five steps: round to bfloat16 by hand and watch small updates vanish; keep them in float32 master weights;
scale the loss so that float16 gradients don't vanish either; count the bytes of a parameter; and pay with
time for the activations that a checkpoint doesn't keep.

Conventions of the whole file: inputs are left untouched unless a name ends in an underscore or the text says
"in place", a `generator` is the only source of randomness, and results carry no gradient unless the text says
that they can be differentiated.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# ---------------------------------------------------------------------------------- step 1: rounding


def round_to_bf16(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Round to bfloat16, from the bits: to nearest, or up and down by chance.

    A float32 number has 1 bit for the sign, 8 for the exponent and 23 for the mantissa; bfloat16 is its
    upper half. Read as whole numbers, the bits of one sign are in the order of the sizes that they stand for.
    So the neighbours of x are its upper half (the truncated magnitude) and that plus 1 (the next larger one).

        nearest:     upper half of (bits + 0x7FFF + last bit that is kept)        a tie goes to the even one
        stochastic:  upper half of (bits + u),   u whole, uniform in 0 … 0xFFFF   right on average

    x: any shape, also 0-d and empty, any memory order; real dtypes other than float32 are cast to it first.
    generator: None rounds to nearest: equal to `x.to(torch.bfloat16)` for every input, with subnormals,
        overflow to ±inf, signed zeros, and every NaN still a NaN (whatever its payload).
        With a generator, each entry goes by its own draw to one of its two neighbours, with the
        probability that makes the mean x. What bfloat16 holds exactly, ±inf and NaN never change.
        The generator is the only randomness; torch's global one is neither read nor moved.
    Returns a new bfloat16 tensor of the same shape, without graph; x is not changed.

    Source: Kalamkar et al. 2019, A Study of BFLOAT16 for Deep Learning Training; Gupta et al. 2015, Deep
    Learning with Limited Numerical Precision (stochastic rounding).
    """
    values = x.detach().to(torch.float32)
    bits = values.view(torch.int32)
    if generator is None:
        increment = 0x7FFF + ((bits >> 16) & 1)
    else:
        increment = torch.randint(
            0, 1 << 16, bits.shape, generator=generator, dtype=torch.int32, device=bits.device
        )
    # A NaN is no size: an increment could carry it past the sign, and a cut could leave the bits of infinity.
    quiet = bits | 0x0040_0000
    rounded = torch.where(values.isnan(), quiet, bits + increment)
    return (rounded >> 16).to(torch.int16).view(torch.bfloat16)


def bf16_stall(lr_relative: float, steps: int) -> dict[str, float]:
    """Take the same small number away from a weight of 1, in bfloat16 and in float32.

        w ← round_to_bf16(float32(w) − lr_relative)          w ← w − lr_relative in float32

    lr_relative: the constant that each step takes away, so relative to the starting weight. May be negative.
    steps: how many steps; may be 0.
    Returns `bf16` and `fp32`, both weights at the end (floats), and `last_move`, the number (from 1) of the
    last step that changed the bfloat16 weight; 0 if none did. (1e-3, 200) gives 1.0, 0.80 and 0.
    """
    rounded = torch.ones((), dtype=torch.bfloat16)
    exact = torch.ones((), dtype=torch.float32)
    last_move = 0
    for number in range(1, steps + 1):
        after = round_to_bf16(rounded.float() - lr_relative)
        if after.item() != rounded.item():
            last_move = number
        rounded = after
        exact = exact - lr_relative
    return {"bf16": rounded.item(), "fp32": exact.item(), "last_move": last_move}


# ---------------------------------------------------------------------------- step 2: master weights


class MasterWeights:
    """float32 copies of bfloat16 weights: the optimizer works on the copies, the model sees them rounded.

    Attributes: `masters`, the list of float32 copies, and `optimizer`, what `make_optimizer` returned.

    The masters are the weights; the model's parameters are their shadow. Whoever writes into the parameters
    alone (`model.load_state_dict`) sees the old weights come back at the next `step`: load through
    `load_state_dict`, or call `reload` afterwards.

    Source: Micikevicius et al. 2018, Mixed Precision Training.
    """

    def __init__(self, params: Iterable[Tensor], make_optimizer: Callable[[list[Tensor]], Optimizer]) -> None:
        """Copy the parameters and make the optimizer.

        params: any iterable of bfloat16 parameters, also a generator (which can be walked only once).
        make_optimizer: is called once, with the list of masters: float32 leaves in the order of `params`,
            in memory of their own, equal to the parameters now. Its result becomes `optimizer`.
        """
        self._params = list(params)
        self.masters = [p.detach().to(torch.float32, copy=True).requires_grad_() for p in self._params]
        self.optimizer = make_optimizer(self.masters)

    def step(self) -> None:
        """One step of the optimizer on the masters, from the parameters' gradients.

        Each master's gradient becomes its parameter's in float32: replaced, never added to; `None` where the
        parameter's is None, also if there was one before. Then `optimizer.step()`. Then every master, rounded
        to nearest, goes into its parameter in place. So the parameters equal a float32 run on the same
        gradients, rounded, at each step. The parameters' gradients are not changed.
        """
        for p, master in zip(self._params, self.masters, strict=True):
            master.grad = None if p.grad is None else p.grad.detach().float()
        self.optimizer.step()
        self._fill_parameters()

    def _fill_parameters(self) -> None:
        with torch.no_grad():
            for p, master in zip(self._params, self.masters, strict=True):
                p.copy_(master)  # a copy into bfloat16 rounds to nearest, ties to even

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the parameters and of the masters.

        set_to_none: True makes them None; False fills those that exist with zeros, in place.
        """
        for tensor in (*self._params, *self.masters):
            if tensor.grad is None:
                continue
            if set_to_none:
                tensor.grad = None
            else:
                tensor.grad.detach_().zero_()

    def state_dict(self) -> dict[str, Any]:
        """The float32 masters and the optimizer's state, under keys of your choice."""
        masters = [master.detach().clone() for master in self.masters]
        return {"masters": masters, "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore masters and optimizer, and fill the bfloat16 parameters from the masters, in place.

        state: from `state_dict` of an instance with as many weights; another number is a ValueError that
            changes nothing. It stays as it is, also in later steps: nothing of it is kept, all is copied.
            Masters of another shape are refused in the same way here; `copy_` alone would repeat a row.
        Training then continues bit for bit, also if this instance has stepped before.
        """
        if len(state["masters"]) != len(self.masters):
            raise ValueError(f"{len(state['masters'])} weights saved, {len(self.masters)} here")
        if any(a.shape != b.shape for a, b in zip(state["masters"], self.masters, strict=True)):
            raise ValueError("a weight that was saved has another shape than here")
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        with torch.no_grad():
            for master, saved in zip(self.masters, state["masters"], strict=True):
                master.copy_(saved)
        self._fill_parameters()

    def reload(self) -> None:
        """Copy the parameters into the masters, in place: for weights that were loaded into the model.

        Only what bfloat16 holds arrives. The optimizer's state stays as it is; if it doesn't belong to these
        weights, make a new `MasterWeights` instead.
        """
        with torch.no_grad():
            for p, master in zip(self._params, self.masters, strict=True):
                master.copy_(p)


# ------------------------------------------------------------------------------ step 3: loss scaling


class LossScaler:
    """Multiply the loss so that float16 gradients don't vanish, and find the factor while training.

    One iteration:

        scaler.scale(loss).backward()       gradients are scale times too large
        scaler.unscale_(optimizer)          optional: only needed to look at them, for example to clip
        scaler.step(optimizer)              skipped if an entry is inf or NaN
        scaler.update()                     smaller after an overflow, larger after a long time without

    Scales and weights follow `torch.amp.GradScaler` on the CPU.

    Source: Micikevicius et al. 2018, Mixed Precision Training; the rule is that of torch.amp.
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        """Begin with the scale `init_scale` and a counter of 0; nothing is noted for any optimizer."""
        self._scale = _as_float32(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._counter = 0  # good iterations since the scale has changed
        self._bad: dict[Optimizer, bool] = {}  # of each unscaled optimizer: was any entry inf or NaN?
        self._stepped: set[Optimizer] = set()

    def get_scale(self) -> float:
        """The scale as it is now."""
        return self._scale

    def scale(self, loss: Tensor) -> Tensor:
        """loss · scale, a new tensor that can be differentiated.

        As in torch the factor is a float32 tensor without dimensions: a 0-d float16 or bfloat16 loss comes
        back in float32, where it has room, any other one in its own dtype. A Python number as factor keeps
        the dtype, and is right as well.
        """
        return loss * torch.tensor(self._scale, device=loss.device)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Multiply every gradient of all groups by 1/scale, in place, and note if an entry is inf or NaN.

        Entries are judged as they come, before the multiplication. Parameters without gradient are skipped;
        if none has one, nothing is bad. A second call for this optimizer before `update`, or a call
        after its `step`, is a RuntimeError that changes nothing.
        """
        if optimizer in self._stepped:
            raise RuntimeError("unscale_ after step: update must come first")
        if optimizer in self._bad:
            raise RuntimeError("unscale_ for the second time since the last update")
        inverse = 1.0 / self._scale if self._scale else math.inf
        bad = False
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        bad = bad or not bool(p.grad.isfinite().all())
                        p.grad.mul_(inverse)
        self._bad[optimizer] = bad

    def step(self, optimizer: Optimizer) -> Any:
        """Unscale, unless that has been done for this optimizer, and step if its gradients are all finite.

        Returns what `optimizer.step()` returns, or None if a bad entry was noted: then nothing moves, neither
        weights nor the optimizer's state. Each optimizer is judged by its own gradients. A second `step`
        before `update` is a RuntimeError.
        """
        if optimizer in self._stepped:
            raise RuntimeError("step for the second time since the last update")
        if optimizer not in self._bad:
            self.unscale_(optimizer)
        self._stepped.add(optimizer)
        return None if self._bad[optimizer] else optimizer.step()

    def update(self) -> None:
        """End an iteration: adapt the scale, and forget what was noted. Once an iteration, skipped or not.

        Anything bad in any optimizer: scale · backoff_factor, counter 0; there is no lower bound. Else
        counter + 1, and when that reaches growth_interval: scale · growth_factor, counter 0.
        Here, as in torch, the scale is a float32 number, and it doesn't grow beyond the largest of them; a
        Python number is right as well.
        """
        if any(self._bad.values()):
            self._scale = _as_float32(self._scale * self._backoff_factor)
            self._counter = 0
        else:
            self._counter += 1
            if self._counter == self._growth_interval:
                larger = _as_float32(self._scale * self._growth_factor)
                self._scale = larger if math.isfinite(larger) else self._scale
                self._counter = 0
        self._bad.clear()
        self._stepped.clear()

    def state_dict(self) -> dict[str, float]:
        """Scale, both factors, interval and counter, under keys of your choice (here torch's)."""
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._counter,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue as the scaler whose `state_dict` this is, whatever the own factors were.

        For use between two iterations: what becomes of notes that have not been updated yet is free.
        """
        self._scale = state["scale"]
        self._growth_factor = state["growth_factor"]
        self._backoff_factor = state["backoff_factor"]
        self._growth_interval = int(state["growth_interval"])
        self._counter = int(state["_growth_tracker"])


def _as_float32(number: float) -> float:
    """The nearest float32 number; infinite if there is none."""
    return torch.tensor(number, dtype=torch.float64).float().item()


# ---------------------------------------------------------------------------- step 4: counting bytes

_BYTES = {None: 0, "bf16": 2, "fp16": 2, "fp32": 4}
_STATE_BYTES = {
    "adamw": 8,  # two moments
    **dict.fromkeys(("adam_mini", "lion", "muon", "momentum"), 4),  # one (Adam-mini's second is tiny)
    **dict.fromkeys(("sgd", "adafactor", "sm3"), 0),  # none, or rows and columns of a matrix only
}


def training_bytes(
    n_params: int, *, weights: str | None, gradients: str | None, master: str | None, optimizer: str
) -> dict[str, Any]:
    """Bytes that a training run holds for its parameters, whatever the batch is.

    n_params: number of parameters; may be 0.
    weights, gradients, master: "bf16" or "fp16" (2 bytes a parameter), "fp32" (4), or None (0: not there).
    optimizer: the float32 state of "adamw" (8 bytes a parameter); of "adam_mini", "lion", "muon" or
        "momentum" (4); of "sgd", and of "adafactor" or "sm3" without momentum (0: rows and columns only).
    Any other word is a ValueError.
    Returns a dict: the bytes of all parameters under `weights`, `gradients`, `master`, `optimizer` and
    `total`; their sum for one parameter under `bytes_per_parameter`; and under `left_out` a text that names
    what isn't counted.
    """
    table = {"weights": weights, "gradients": gradients, "master": master}
    each: dict[str, int] = {}
    for name, word in table.items():
        if word not in _BYTES:
            raise ValueError(f"{name} must be bf16, fp16, fp32 or None, not {word!r}")
        each[name] = _BYTES[word]
    if optimizer not in _STATE_BYTES:
        raise ValueError(f"optimizer must be one of {', '.join(_STATE_BYTES)}, not {optimizer!r}")
    each["optimizer"] = _STATE_BYTES[optimizer]
    per_parameter = sum(each.values())
    return {
        **{name: n_params * size for name, size in each.items()},
        "total": n_params * per_parameter,
        "bytes_per_parameter": per_parameter,
        "left_out": "activations, temporaries of the step, buffers, the allocator's unused blocks, and what "
        "the framework itself takes",
    }


# --------------------------------------------------------------------- step 5: activation checkpoint


def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function(*inputs)`, without keeping what its backward pass needs: that is computed again.

    By a `torch.autograd.Function` whose forward keeps the input tensors (through `save_for_backward`) and
    nothing else, and whose backward runs `function` once more, this time with a graph.

    function: takes `inputs` and returns a tensor or a tuple of tensors. It may use parameters that are not
        among `inputs`, and it may draw from torch's CPU random state.
    inputs: tensors, and anything else, which is passed through as it is (a list of tensors, too: these count
        as tensors from outside, like parameters).
    Returns what `function(*inputs)` returns. An output may be one of the inputs, but not a parameter from
    outside as it is (return `p.view_as(p)`).

    Gradients: those of the plain call to 1e-12, for the inputs and for the parameters used inside, added to
    what `.grad` holds. The parameters get theirs also if no input requires grad. Inputs that don't require
    grad keep `.grad` None. Under `no_grad` the result requires no gradient.
    Random numbers: the forward draws from the random stream as a plain call does. The second run starts
    from the state that the first one started from (a dropout drops the same entries), and afterwards the
    state is put back to where it was.

    Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost.
    """
    # Without any input that requires grad, autograd would not record the call: one of our own always does.
    witness = torch.empty(0, requires_grad=True)
    return _Checkpoint.apply(function, witness, *inputs)  # type: ignore[no-untyped-call]


class _Checkpoint(torch.autograd.Function):
    """Autograd calls `forward` without recording, so that `function` leaves no graph there."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], witness: Tensor, *inputs: Any) -> Any:
        ctx.set_materialize_grads(False)  # an output that nobody used has gradient None, as in a plain call
        ctx.function = function
        ctx.random_state = torch.get_rng_state()
        ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
        ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
        ctx.is_tensor = [isinstance(x, Tensor) for x in inputs]
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        needed = ctx.needs_input_grad[2:]
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if known else x for known, x in zip(ctx.is_tensor, ctx.others, strict=True)]
        # Leaves of a graph of their own: the second backward pass ends at them.
        leaves = [
            x.detach().requires_grad_(need) if isinstance(x, Tensor) else x
            for x, need in zip(inputs, needed, strict=True)
        ]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random_state)
            outputs = ctx.function(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if output.requires_grad and gradient is not None
        ]
        if pairs:  # the second pass also reaches the parameters used inside
            torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        found = [leaf.grad if need else None for leaf, need in zip(leaves, needed, strict=True)]
        return None, None, *found
