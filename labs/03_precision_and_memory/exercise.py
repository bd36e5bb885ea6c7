"""Lab 03: Precision and memory.

Write the bodies that raise NotImplementedError, one step after the other:

    step 1  Rounding to bfloat16
    step 2  Master weights
    step 3  Loss scaling
    step 4  Counting bytes
    step 5  Activation checkpointing

Check your work:    pytest labs/03_precision_and_memory             (one step: --step 1)
Read first:         labs/03_precision_and_memory/README.md
Stuck?              grader hint 03 1
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
    raise NotImplementedError("lab 03, step 1: round_to_bf16 (README section 1)")


def bf16_stall(lr_relative: float, steps: int) -> dict[str, float]:
    """Take the same small number away from a weight of 1, in bfloat16 and in float32.

        w ← round_to_bf16(float32(w) − lr_relative)          w ← w − lr_relative in float32

    lr_relative: the constant that each step takes away, so relative to the starting weight. May be negative.
    steps: how many steps; may be 0.
    Returns `bf16` and `fp32`, both weights at the end (floats), and `last_move`, the number (from 1) of the
    last step that changed the bfloat16 weight; 0 if none did. (1e-3, 200) gives 1.0, 0.80 and 0.
    """
    raise NotImplementedError("lab 03, step 1: bf16_stall (README section 1)")


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
        raise NotImplementedError("lab 03, step 2: MasterWeights.__init__ (README section 2)")

    def step(self) -> None:
        """One step of the optimizer on the masters, from the parameters' gradients.

        Each master's gradient becomes its parameter's in float32: replaced, never added to; `None` where the
        parameter's is None, also if there was one before. Then `optimizer.step()`. Then every master, rounded
        to nearest, goes into its parameter in place. So the parameters equal a float32 run on the same
        gradients, rounded, at each step. The parameters' gradients are not changed.
        """
        raise NotImplementedError("lab 03, step 2: MasterWeights.step (README section 2)")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the parameters and of the masters.

        set_to_none: True makes them None; False fills those that exist with zeros, in place.
        """
        raise NotImplementedError("lab 03, step 2: MasterWeights.zero_grad (README section 2)")

    def state_dict(self) -> dict[str, Any]:
        """The float32 masters and the optimizer's state, under keys of your choice."""
        raise NotImplementedError("lab 03, step 2: MasterWeights.state_dict (README section 2)")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore masters and optimizer, and fill the bfloat16 parameters from the masters, in place.

        state: from `state_dict` of an instance with as many weights; another number is a ValueError that
            changes nothing. It stays as it is, also in later steps: nothing of it is kept, all is copied.
            Masters of another shape are refused in the same way here; `copy_` alone would repeat a row.
        Training then continues bit for bit, also if this instance has stepped before.
        """
        raise NotImplementedError("lab 03, step 2: MasterWeights.load_state_dict (README section 2)")

    def reload(self) -> None:
        """Copy the parameters into the masters, in place: for weights that were loaded into the model.

        Only what bfloat16 holds arrives. The optimizer's state stays as it is; if it doesn't belong to these
        weights, make a new `MasterWeights` instead.
        """
        raise NotImplementedError("lab 03, step 2: MasterWeights.reload (README section 2)")


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
        raise NotImplementedError("lab 03, step 3: LossScaler.__init__ (README section 3)")

    def get_scale(self) -> float:
        """The scale as it is now."""
        raise NotImplementedError("lab 03, step 3: LossScaler.get_scale (README section 3)")

    def scale(self, loss: Tensor) -> Tensor:
        """loss · scale, a new tensor that can be differentiated.

        As in torch the factor is a float32 tensor without dimensions: a 0-d float16 or bfloat16 loss comes
        back in float32, where it has room, any other one in its own dtype. A Python number as factor keeps
        the dtype, and is right as well.
        """
        raise NotImplementedError("lab 03, step 3: LossScaler.scale (README section 3)")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Multiply every gradient of all groups by 1/scale, in place, and note if an entry is inf or NaN.

        Entries are judged as they come, before the multiplication. Parameters without gradient are skipped;
        if none has one, nothing is bad. A second call for this optimizer before `update`, or a call
        after its `step`, is a RuntimeError that changes nothing.
        """
        raise NotImplementedError("lab 03, step 3: LossScaler.unscale_ (README section 3)")

    def step(self, optimizer: Optimizer) -> Any:
        """Unscale, unless that has been done for this optimizer, and step if its gradients are all finite.

        Returns what `optimizer.step()` returns, or None if a bad entry was noted: then nothing moves, neither
        weights nor the optimizer's state. Each optimizer is judged by its own gradients. A second `step`
        before `update` is a RuntimeError.
        """
        raise NotImplementedError("lab 03, step 3: LossScaler.step (README section 3)")

    def update(self) -> None:
        """End an iteration: adapt the scale, and forget what was noted. Once an iteration, skipped or not.

        Anything bad in any optimizer: scale · backoff_factor, counter 0; there is no lower bound. Else
        counter + 1, and when that reaches growth_interval: scale · growth_factor, counter 0.
        Here, as in torch, the scale is a float32 number, and it doesn't grow beyond the largest of them; a
        Python number is right as well.
        """
        raise NotImplementedError("lab 03, step 3: LossScaler.update (README section 3)")

    def state_dict(self) -> dict[str, float]:
        """Scale, both factors, interval and counter, under keys of your choice (here torch's)."""
        raise NotImplementedError("lab 03, step 3: LossScaler.state_dict (README section 3)")

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue as the scaler whose `state_dict` this is, whatever the own factors were.

        For use between two iterations: what becomes of notes that have not been updated yet is free.
        """
        raise NotImplementedError("lab 03, step 3: LossScaler.load_state_dict (README section 3)")


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
    raise NotImplementedError("lab 03, step 4: training_bytes (README section 4)")


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
    raise NotImplementedError("lab 03, step 5: checkpoint (README section 5)")
