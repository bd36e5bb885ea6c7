"""Tests of lab 03, precision and memory. A test's docstring states the rule that it judges.

`lab` is the module under test. All inputs come from `rng`. Expected values come from torch, from closed forms
or from slow transcriptions of the page's formulas; they are functions, called after the code under test.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from grader.checks import assert_holds, assert_matches, assert_raises, assert_same_trajectory, assert_within
from grader.lab_inputs import between, randn, random_seed, same, strided

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16


def close(actual, expected, what):
    """Equal but for a few roundings."""
    assert_matches(actual, expected, atol=1e-12, rtol=1e-12, what=what)


def of_seed(seed):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------------------- step 1: rounding

UPPER_HALVES = torch.arange(-(2**15), 2**15, dtype=torch.int32)  # every bfloat16 number there is
MANY = (1 << 10, 1 << 10)  # a million draws: their share is off by 0.05 %


def floats(upper, lower=0):
    """float32 numbers from the two halves of their bits."""
    return ((upper << 16) | lower).view(F32)


def bits_of(y):
    """The bits of a bfloat16 tensor as whole numbers, with one number for all NaNs: payloads are free."""
    if not isinstance(y, torch.Tensor) or y.dtype != BF16:
        return y  # the check says what is wrong with it
    return torch.where(y.isnan(), 99_999, y.detach().contiguous().view(torch.int16).int())


def check_bits(actual, expected, what):
    same(bits_of(actual), lambda: bits_of(expected()), f"bits of {what}")


def random_lower(rng, shape=(2**16,)):
    return torch.randint(1, 1 << 16, shape, generator=rng, dtype=torch.int32)


def random_upper(rng):
    """The upper half of a normal number, far from both ends of the exponents."""
    sign, exponent, mantissa = between(rng, 0, 1), between(rng, 90, 160), between(rng, 0, 127)
    return torch.tensor([exponent * 128 + mantissa - 2**15 * sign], dtype=torch.int32)


def test_nearest_equals_torch_on_every_upper_half(lab, rng):
    """Ties to even, subnormal numbers, signed zeros, overflow to infinity; a NaN stays one."""
    lowers = {
        "0x0000": 0,
        "random": random_lower(rng),
        "0x8000 (a tie)": 0x8000,
        "0x7FFF": 0x7FFF,
        "0x8001": 0x8001,
        "0x0001": 1,
        "0xFFFF": 0xFFFF,
    }
    for name, lower in lowers.items():
        x = floats(UPPER_HALVES, lower)
        y = lab.round_to_bf16(x.clone())
        check_bits(y, lambda x=x: x.to(BF16), f"all upper halves with the lower half {name}")


def test_round_takes_any_shape_and_memory_order(lab, rng):
    """0-d, empty, transposed, strided and expanded tensors, with and without a generator."""
    exact = of_seed(random_seed(rng))
    for shape in ((), (0,), (3, 0), (7,), (4, 3), (2, 3, 5)):
        x = randn(rng, *shape).to(F32)
        y = lab.round_to_bf16(strided(x))
        check_bits(y, lambda x=x: x.to(BF16), f"a strided tensor of shape {shape}")
        kept = x.to(BF16).to(F32)
        y = lab.round_to_bf16(strided(kept), exact)
        check_bits(y, lambda kept=kept: kept.to(BF16), f"exact values of shape {shape}, by chance")
    row = randn(rng, 5).to(F32)
    y = lab.round_to_bf16(row.clone().expand(3, 5))
    check_bits(y, lambda: row.to(BF16).repeat(3, 1), "an expanded row")


def test_round_casts_other_dtypes_first(lab, rng):
    """float64, float16, bfloat16 and whole numbers go through float32: the bits are those of float32."""
    for dtype in (F64, F16, BF16):
        x = (randn(rng, 100) * 100).to(dtype)
        check_bits(lab.round_to_bf16(x.clone()), lambda x=x: x.to(F32).to(BF16), f"{dtype} numbers")
    upper = torch.cat([random_upper(rng) for _ in range(50)])
    x = floats(upper, 0x8000).to(F64) * (1 + 2.0**-30)  # a little more than a tie, which float32 can't see
    check_bits(lab.round_to_bf16(x), lambda: floats(upper, 0x8000).to(BF16), "float64 numbers beside a tie")
    whole = torch.randint(-100_000, 100_000, (50,), generator=rng)
    check_bits(lab.round_to_bf16(whole.clone()), lambda: whole.to(F32).to(BF16), "int64 numbers")


def test_round_leaves_its_input_alone(lab, rng):
    """The input keeps its values, the result carries no graph, and no random number is drawn without need."""
    start = randn(rng, 4, 3).to(F32)
    seed = random_seed(rng)
    for generator in (None, of_seed(seed)):
        how = "by chance" if generator else "to nearest"
        x = start.clone().requires_grad_()
        before = torch.default_generator.get_state()
        y = lab.round_to_bf16(x, generator=generator)
        untouched = torch.equal(before, torch.default_generator.get_state())
        assert_holds(untouched, what=f"rounding {how} leaves the global random state alone")
        assert_holds(not y.requires_grad, what=f"a tensor rounded {how} carries no graph")
        same(x.detach(), lambda: start, f"the input after rounding {how}")
        assert_holds(x.is_leaf and x.requires_grad, what=f"the input still requires grad, rounded {how}")


def share_moved(y, kept):
    """The share of entries that aren't the truncated magnitude."""
    return float((y != kept).to(F64).mean())


def test_stochastic_rounding_is_right_on_average(lab, rng):
    """The larger magnitude comes with probability lower half / 2^16: any sign, any exponent, all 16 bits."""
    generator = of_seed(random_seed(rng))
    subnormal = torch.tensor([between(rng, 1, 127)], dtype=torch.int32)
    quarter, three_quarters = between(rng, 14_400, 18_300), between(rng, 47_200, 51_100)
    cases = ((random_upper(rng), quarter), (subnormal, three_quarters))
    for upper, lower in cases:
        p = lower / 2**16
        y = lab.round_to_bf16(floats(upper, lower).expand(MANY), generator)
        share = share_moved(y, floats(upper).to(BF16))
        what = f"share of {floats(upper, lower).item():.9g} that went to the larger magnitude"
        assert_matches(share, lambda p=p: p, atol=0.0215, rtol=0.0, what=what)
        error = 7 * math.sqrt(p * (1 - p) / y.numel())
        assert_within(share, p - error, p + error, what=f"{what}, closely")
    # The rare neighbour of a number beside an exact one: 16 of 2^20 draws, none at all once in 10^7 tests.
    for lower, rare in ((1, 1), (0xFFFF, 0)):
        upper = random_upper(rng)
        y = lab.round_to_bf16(floats(upper, lower).expand(MANY), generator)
        count = int((y == floats(upper + rare).to(BF16)).sum())
        assert_within(count, 1, 60, what=f"2^20 draws of lower half {lower:#06x}: how many go the rare way")


def test_stochastic_rounding_goes_to_a_neighbour(lab, rng):
    """Every finite number, subnormal ones too, becomes its upper half or the next larger magnitude."""
    upper = UPPER_HALVES[(UPPER_HALVES & 0x7FFF) < 0x7F7F]  # the next one of 0x7F7F is infinity
    lower = random_lower(rng, upper.shape)
    y = lab.round_to_bf16(floats(upper, lower), generator=of_seed(random_seed(rng)))
    moves = bits_of(y) - upper
    far = (moves != 0) & (moves != 1)
    same(int(far.sum()), lambda: 0, "how many entries are neither neighbour")
    for name, beyond in (("the tiny ones", upper.abs() & 0x7FFF < 0x80), ("all", upper > -(2**15))):
        share = float(moves[beyond].to(F64).mean())
        assert_within(share, 0.2, 0.8, what=f"share of {name} that went to the larger magnitude")


def test_stochastic_rounding_keeps_what_is_exact(lab, rng):
    """bfloat16 numbers and infinities stay what they are in a million draws; a NaN stays a NaN."""
    generator = of_seed(random_seed(rng))
    kept = floats(UPPER_HALVES).to(BF16).repeat(16)
    y = lab.round_to_bf16(kept.to(F32), generator)
    wrong = bits_of(y) != bits_of(kept)
    same(int(wrong.sum()), lambda: 0, "how many exact numbers have changed")
    special = UPPER_HALVES[(UPPER_HALVES & 0x7FFF) >= 0x7F80]
    nans = floats(special, random_lower(rng, special.shape))
    y = lab.round_to_bf16(nans, generator)
    same(int((~y.isnan()).sum()), lambda: 0, "how many NaNs have become numbers")


def test_stochastic_rounding_draws_from_its_generator_only(lab, rng):
    """The generator decides all and moves on; each entry has its own draw; the global state isn't read."""
    seed, x = random_seed(rng), floats(random_upper(rng), 0x8000).expand(40, 30)
    draws = []
    for state in (seed, seed + 1):
        torch.default_generator.manual_seed(state)
        generator = of_seed(seed)
        draws.append([lab.round_to_bf16(x, generator=generator) for _ in range(2)])
    (first, second), (again, _) = draws
    other = lab.round_to_bf16(x, of_seed(seed + 1))
    assert_holds(torch.equal(first, again), what="an equal generator repeats the rounding")
    assert_holds(not torch.equal(first, second), what="a second call rounds differently: its generator moved")
    assert_holds(not torch.equal(first, other), what="another generator rounds differently")
    rows, columns = (bool((first == first[:1]).all()), bool((first == first[:, :1]).all()))
    assert_holds(not rows and not columns, what="each entry is rounded by its own draw")


def stalled(rate, steps):
    """The two weights by torch's own casts."""
    rounded, exact = torch.ones((), dtype=BF16), torch.ones(())
    moved = [0]
    for number in range(1, steps + 1):
        before, rounded = rounded, (rounded.to(F32) - rate).to(BF16)
        exact = exact - rate
        if rounded != before:
            moved.append(number)
    return {"bf16": rounded.item(), "fp32": exact.item(), "last_move": moved[-1]}


def check_stall(lab, rate, steps, what):
    result = lab.bf16_stall(rate, steps)
    same(result["bf16"], lambda: stalled(rate, steps)["bf16"], f"the bfloat16 weight, {what}")
    fp32 = result["fp32"]
    assert_matches(
        fp32, lambda: stalled(rate, steps)["fp32"], atol=2e-5, rtol=0.0, what=f"the float32 weight, {what}"
    )
    same(result["last_move"], lambda: stalled(rate, steps)["last_move"], f"the last move, {what}")


def test_stall_follows_both_weights(lab, rng):
    """Rates that are lost, that move a whole spacing, that stop where the spacing doubles, that pass zero."""
    unit = 2.0**-14  # multiples of it make every step exact in float32, so there is no second rounding
    cases = {
        "no step": (between(rng, 100, 200) * unit, 0),
        "one step": (between(rng, 100, 200) * unit, 1),
        "a rate below half a spacing": (between(rng, 10, 31) * unit, between(rng, 30, 40)),
        "a rate above it": (between(rng, 40, 60) * unit, between(rng, 20, 40)),
        "a rate that bfloat16 would round to a tie": (
            2.0**-9 + between(rng, 1, 2) * 2.0**-18,
            between(rng, 20, 30),
        ),
        "growing until 2": (-between(rng, 80, 120) * unit, between(rng, 131, 140)),
        "far beyond zero": (between(rng, 3000, 6000) * unit, between(rng, 7, 12)),
    }
    for what, (rate, steps) in cases.items():
        check_stall(lab, rate, steps, what)


def test_stall_of_a_small_rate(lab, rng):
    """A rate of 1e-3 or so: bfloat16 never moves, float32 loses the sum of all steps."""
    rate, steps = 1e-3 * (0.9 + 0.5 * float(torch.rand((), generator=rng))), between(rng, 190, 210)
    result = lab.bf16_stall(lr_relative=rate, steps=steps)
    same(result["bf16"], lambda: 1.0, "the bfloat16 weight")
    fp32 = result["fp32"]
    assert_matches(fp32, lambda: 1 - steps * rate, atol=2e-4, rtol=0.0, what="the float32 weight")
    same(result["last_move"], lambda: 0, "the last move")


# ---------------------------------------------------------------------------- step 2: master weights

SHAPES = [(5, 3), (4,), ()]


class Walker(torch.optim.Optimizer):
    """SGD, momentum and Adam in one: those of torch import its compiler first, which takes seconds."""

    def __init__(self, params, lr, momentum=0.0, adaptive=False, decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "adaptive": adaptive, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.move(p, p.grad, group, self.state[p])
        return 2.5

    def move(self, p, g, group, state):
        if not state:
            state.update(count=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["count"] += 1
        state["m"].mul_(group["momentum"]).add_(g)
        direction = state["m"]
        if group["adaptive"]:
            state["v"].mul_(0.95).add_(0.05 * g * g)
            direction = 0.1 * direction / (state["v"] / (1 - 0.95 ** state["count"])).sqrt().add(1e-8)
        p.mul_(1 - group["lr"] * group["decay"])
        p.sub_(group["lr"] * direction)


OPTIMIZERS = {
    "SGD": lambda masters: Walker(masters, lr=0.01),
    "momentum": lambda masters: Walker(masters, lr=0.003, momentum=0.9),
    "Adam": lambda masters: Walker(masters, lr=0.002, momentum=0.9, adaptive=True, decay=0.1),
}
each_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def make_plain(masters):
    """A power of two as rate keeps the arithmetic of a step exact, in whatever memory order it is done."""
    return Walker(masters, lr=2.0**-10)


def starts_of(rng, shapes=SHAPES):
    return [randn(rng, *shape).to(BF16) for shape in shapes]


def gradients_of(rng, steps, shapes=SHAPES):
    return [[randn(rng, *shape).to(BF16) for shape in shapes] for _ in range(steps)]


def parameters(starts):
    return [nn.Parameter(start.clone()) for start in starts]


def record(params, masters):
    entry = {f"master {i}": master.detach().clone() for i, master in enumerate(masters)}
    return {**entry, **{f"weight {i}": p.detach().clone() for i, p in enumerate(params)}}


def give(tensors, gradients, dtype=None):
    for tensor, gradient in zip(tensors, gradients, strict=True):
        tensor.grad = None if gradient is None else gradient.clone().to(dtype or gradient.dtype)


def walk(weights, params, gradients):
    """One step for each row of gradients; masters and weights after each."""
    path = []
    for row in gradients:
        give(params, row)
        weights.step()
        path.append(record(params, weights.masters))
    return path


def slow_down(optimizer):
    for group in optimizer.param_groups:
        group["lr"] /= 2


def float32_run(starts, gradients, make, slower_at=None):
    """The same run on float32 weights, which are rounded for the record only."""
    masters = [nn.Parameter(start.to(F32)) for start in starts]
    optimizer = make(masters)
    path = []
    for number, row in enumerate(gradients):
        if number == slower_at:
            slow_down(optimizer)
        give(masters, row, F32)
        optimizer.step()
        path.append(record([master.to(BF16) for master in masters], masters))
    return path


def follows(path, expected, what):
    """Equal to the last bit at every step: the arithmetic is the same."""
    assert_same_trajectory(path, expected, atol=0.0, rtol=0.0, what=what)


def test_masters_are_float32_leaves_of_their_own(lab, rng):
    """One float32 leaf for each parameter, in order, equal to it, in memory of its own."""
    starts = [*starts_of(rng), strided(randn(rng, 3, 2).to(BF16))]
    params = parameters(starts)
    weights = lab.MasterWeights(params, make_plain)
    masters = list(weights.masters)
    same(len(masters), lambda: len(starts), "the number of masters")
    for i, (p, master) in enumerate(zip(params, masters, strict=True)):
        same(master.detach(), lambda i=i: starts[i].to(F32), f"master {i}")
        assert_holds(master.is_leaf, what=f"master {i} is a leaf")
        with torch.no_grad():
            master += 1
        same(p.detach(), lambda i=i: starts[i], f"parameter {i} after its master has moved")


def test_make_optimizer_is_called_once_with_the_masters(lab, rng):
    """`params` may be a generator, walked once; `optimizer` is what `make_optimizer` made of the list."""
    starts, calls = starts_of(rng), []

    def make(masters):
        calls.append(masters)
        return make_plain(masters)

    params = parameters(starts)
    weights = lab.MasterWeights((p for p in params), make_optimizer=make)
    same(len(calls), lambda: 1, "how often make_optimizer is called")
    assert_holds(isinstance(calls[0], list), what="make_optimizer gets a list")
    listed = [master for group in weights.optimizer.param_groups for master in group["params"]]
    alike = len(listed) == len(starts) and all(a is b for a, b in zip(listed, weights.masters, strict=True))
    assert_holds(alike, what="optimizer works on the very tensors in masters, in their order")
    gradients = gradients_of(rng, 2)
    path = walk(weights, params, gradients)
    follows(path, lambda: float32_run(starts, gradients, make_plain), "weights that came from a generator")


@each_optimizer
def test_weights_follow_a_float32_run(lab, rng, name):
    """At each step the masters are those of a float32 run, and the parameters are these, rounded."""
    starts, gradients = starts_of(rng), gradients_of(rng, 6)
    params = parameters(starts)
    weights = lab.MasterWeights(params, OPTIMIZERS[name])
    path = walk(weights, params, gradients)
    follows(path, lambda: float32_run(starts, gradients, OPTIMIZERS[name]), f"{name} on master weights")


def test_masters_move_where_bf16_stands_still(lab, rng):
    """Steps of a tenth of bfloat16's spacing add up instead of being lost."""
    starts = [1 + torch.rand(6, generator=rng).to(BF16) / 2]
    gradients = [[-torch.ones(6, dtype=BF16)]] * 40
    params = parameters(starts)
    weights = lab.MasterWeights(params, make_plain)
    path = walk(weights, params, gradients)[-1:]
    follows(path, lambda: float32_run(starts, gradients, make_plain)[-1:], "40 steps of 2^-10")


def test_gradients_are_replaced_not_added(lab, rng):
    """A step without `zero_grad` sees the parameter's gradient once, in float32, and leaves it as it is."""
    starts, seen = starts_of(rng), []
    row = [gradient * 2.0**size for gradient, size in zip(gradients_of(rng, 1)[0], (-50, 6, 0), strict=True)]

    class Watching(Walker):
        def move(self, p, g, group, state):
            seen.append(g.clone())
            super().move(p, g, group, state)

    params = parameters(starts)
    weights = lab.MasterWeights(params, lambda masters: Watching(masters, lr=2.0**-10))
    give(params, row)
    held = [p.grad for p in params]
    path = []
    for _ in range(3):
        seen.clear()
        weights.step()
        path.append(record(params, weights.masters))
        for i, p in enumerate(params):
            same(seen[i], lambda i=i: row[i].to(F32), f"the gradient that the optimizer sees for master {i}")
            assert_holds(p.grad is held[i], what=f"parameter {i} keeps its gradient tensor")
            same(p.grad, lambda i=i: row[i], f"the gradient of parameter {i}")
    follows(path, lambda: float32_run(starts, [row] * 3, make_plain), "three steps on one gradient")


@each_optimizer
def test_a_missing_gradient_stays_missing(lab, rng, name):
    """`grad is None`, from the start or after it has been there: that master has none, and doesn't move."""
    starts, gradients = starts_of(rng), gradients_of(rng, 4)
    gradients[0][0] = gradients[2][1] = gradients[3][2] = None
    params = parameters(starts)
    weights = lab.MasterWeights(params, OPTIMIZERS[name])
    path = walk(weights, params, gradients)
    same(weights.masters[2].grad, lambda: None, "the gradient of a master whose parameter has lost its own")
    follows(
        path, lambda: float32_run(starts, gradients, OPTIMIZERS[name]), f"{name}, gradients that come and go"
    )


def test_step_fills_the_parameters_in_place(lab, rng):
    """The parameters' own memory changes, whatever its order; they stay bfloat16 leaves that require grad."""
    shapes = [(4, 3), (5,), ()]
    starts, gradients = starts_of(rng, shapes), gradients_of(rng, 2, shapes)
    params = [nn.Parameter(strided(start)) for start in starts]
    memories = [p.detach() for p in params]
    weights = lab.MasterWeights(params, make_plain)
    walk(weights, params, gradients)
    for i, (p, memory) in enumerate(zip(params, memories, strict=True)):
        wanted = f"weight {i}"
        same(
            memory,
            lambda wanted=wanted: float32_run(starts, gradients, make_plain)[-1][wanted],
            f"the memory of parameter {i}",
        )
        assert_holds(p.is_leaf and p.requires_grad, what=f"parameter {i} stays a leaf that requires grad")
    assert_holds(torch.is_grad_enabled(), what="step leaves autograd switched on")


def test_zero_grad_clears_both_sides(lab, rng):
    """None on both sides by default; with `set_to_none=False` the parameters' gradients are zeros."""
    starts, (row, other) = starts_of(rng), gradients_of(rng, 2)
    row[1] = other[1] = None
    for how, arguments in (("()", ()), ("(True)", (True,)), ("(False)", (False,))):
        params = parameters(starts)
        weights = lab.MasterWeights(params, make_plain)
        give(params, row)
        weights.step()
        give(params, other)
        weights.zero_grad(*arguments)
        for i in (0, 2):
            zeros = torch.zeros(SHAPES[i], dtype=BF16) if "False" in how else None
            same(
                params[i].grad,
                lambda zeros=zeros: zeros,
                f"the gradient of parameter {i} after zero_grad{how}",
            )
            left = weights.masters[i].grad
            cleared = left is None or ("False" in how and not bool(left.any()))
            assert_holds(cleared, what=f"zero_grad{how} clears the gradient of master {i}")
        same(params[1].grad, lambda: None, f"a missing gradient after zero_grad{how}")
    params = parameters(starts)
    weights = lab.MasterWeights(params, OPTIMIZERS["momentum"])
    give(params, row)
    weights.zero_grad(set_to_none=True)
    weights.step()
    same(params[0].detach(), lambda: starts[0], "a weight after zero_grad and a step")


def check_continues(lab, rng, name, used):
    """Saved, loaded into another instance, continued: as if nothing had happened."""
    starts, gradients = starts_of(rng), gradients_of(rng, 7)
    params = parameters(starts)
    weights = lab.MasterWeights(params, OPTIMIZERS[name])
    walk(weights, params, gradients[:2])
    slow_down(weights.optimizer)  # as a schedule does: the rate belongs to the optimizer's state
    walk(weights, params, gradients[2:3])
    saved = copy.deepcopy(weights.state_dict())
    others = params if used == "itself" else parameters(starts_of(rng))
    if used != "itself":
        weights = lab.MasterWeights(others, OPTIMIZERS[name])
    if used != "fresh":
        walk(weights, others, gradients_of(rng, 2))
    kept = copy.deepcopy(saved)
    weights.load_state_dict(saved)
    path = walk(weights, others, gradients[3:])
    where = {"fresh": "a fresh instance", "used": "one that has stepped", "itself": "the same one, later"}[
        used
    ]
    if used == "itself":
        slow_down(weights.optimizer)
        weights.load_state_dict(saved)
        path = walk(weights, others, gradients[3:])
    follows(
        path,
        lambda: float32_run(starts, gradients, OPTIMIZERS[name], slower_at=2)[3:],
        f"{name}, loaded into {where}",
    )
    assert_holds(alike(saved, kept), what=f"later steps leave the loaded dictionary alone ({name}, {where})")


def alike(a, b):
    """Whether two nested states hold the same values."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


@each_optimizer
def test_masters_continue_bit_for_bit(lab, rng, name):
    """A state_dict in a fresh instance, in one that has stepped, or in the same one, back in time."""
    for used in ("fresh", "used", "itself"):
        check_continues(lab, rng, name, used)


def test_loading_fills_the_parameters(lab, rng):
    """After `load_state_dict` the parameters are the loaded masters, rounded, in their own memory."""
    starts, gradients = starts_of(rng), gradients_of(rng, 3)
    first, second = parameters(starts), parameters(starts_of(rng))
    memories = [p.detach() for p in second]
    trained = lab.MasterWeights(first, make_plain)
    walk(trained, first, gradients)
    weights = lab.MasterWeights(second, make_plain)
    weights.load_state_dict(trained.state_dict())
    for i, memory in enumerate(memories):
        wanted = f"weight {i}"
        same(
            memory,
            lambda wanted=wanted: float32_run(starts, gradients, make_plain)[-1][wanted],
            f"parameter {i} after loading",
        )
        assert_holds(second[i].is_leaf and second[i].requires_grad, what=f"parameter {i} can still learn")


def test_loading_refuses_another_number_of_weights(lab, rng):
    """More weights or fewer: ValueError, and everything stays as it was."""
    for shapes in (SHAPES[:2], [*SHAPES, (2,)]):
        starts = starts_of(rng)
        params = parameters(starts)
        weights = lab.MasterWeights(params, make_plain)
        other = lab.MasterWeights(parameters(starts_of(rng, shapes)), make_plain).state_dict()
        assert_raises(
            ValueError,
            lambda weights=weights, other=other: weights.load_state_dict(other),
            what=f"a state of {len(shapes)} weights for {len(starts)}",
        )
        same(weights.masters[0].detach(), lambda s=starts: s[0].to(F32), "the first master after that")


def refresh(weights, params):
    """Masters from the parameters: by `reload` where there is one, else through the attribute `masters`."""
    if hasattr(weights, "reload"):
        weights.reload()
        return
    with torch.no_grad():
        for master, p in zip(weights.masters, params, strict=True):
            master.copy_(p)


def test_weights_loaded_into_the_model_stay(lab, rng):
    """Weights that were written into the parameters alone, and then `reload`: the next steps start there."""
    starts, loaded, gradients = starts_of(rng), starts_of(rng), gradients_of(rng, 2)
    params = parameters(starts)
    weights = lab.MasterWeights(params, make_plain)
    walk(weights, params, gradients_of(rng, 2))
    with torch.no_grad():
        for p, new in zip(params, loaded, strict=True):
            p.copy_(new)
    refresh(weights, params)
    path = [record(params, weights.masters), *walk(weights, params, gradients)]
    zeros = [torch.zeros_like(new) for new in loaded]
    follows(
        path, lambda: float32_run(loaded, [zeros, *gradients], make_plain), "weights loaded into the model"
    )


# ------------------------------------------------------------------------------ step 3: loss scaling


def wide(starts):
    """float64 parameters: what is judged here is the scale, and powers of two change no digit."""
    return [nn.Parameter(start.clone()) for start in starts]


def iterate(scaler, params, optimizer, gradients, unscale=False, clip=None):
    """One iteration for each row of gradients, from the loss on; scale and weights after each."""
    path = []
    for row in gradients:
        optimizer.zero_grad()
        loss = sum((p * g).sum() for p, g in zip(params, row, strict=True))
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(params, clip)
        scaler.step(optimizer)
        scaler.update()
        entry = {f"weight {i}": p.detach().clone() for i, p in enumerate(params)}
        path.append({"scale": torch.tensor(scaler.get_scale(), dtype=F64), **entry})
    return path


def torch_iterate(starts, gradients, make, options, **how):
    """The same run under torch.amp.GradScaler."""
    params = wide(starts)
    return iterate(torch.amp.GradScaler("cpu", **options), params, make(params), gradients, **how)


def scaled(path, expected, what, tolerance=1e-12):
    assert_same_trajectory(path, expected, atol=tolerance, rtol=tolerance, what=what)


def adam(params):
    """Two groups: the second one must count, too. A skipped step must not count in the moments."""
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
    return Walker(groups, lr=0.05, momentum=0.9, adaptive=True, decay=0.1)


def bumpy(rng, pattern, shapes):
    """Gradients, good (".") and with one infinite or NaN entry somewhere ("x")."""
    rows = []
    for letter in pattern:
        row = [randn(rng, *shape) for shape in shapes]
        if letter == "x":
            chosen = row[between(rng, 0, len(row) - 1)].view(-1)
            chosen[between(rng, 0, len(chosen) - 1)] = (math.inf, -math.inf, math.nan)[between(rng, 0, 2)]
        rows.append(row)
    return rows


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_scaler_follows_torch(lab, rng, interval):
    """Scales and weights equal torch.amp.GradScaler's: overflows alone, in a row, just before growth."""
    shapes = [(3, 2), (4,)]
    starts, gradients = [randn(rng, *shape) for shape in shapes], bumpy(rng, "...x..xx....x...x.", shapes)
    options = {"init_scale": 2.0 ** between(rng, 3, 12), "growth_interval": interval}
    params, unscale = wide(starts), interval == 2
    path = iterate(lab.LossScaler(**options), params, adam(params), gradients, unscale)
    what = f"a growth interval of {interval}, {'with' if unscale else 'without'} unscale_"
    scaled(path, lambda: torch_iterate(starts, gradients, adam, options, unscale=unscale), what)


def test_scaler_obeys_its_factors(lab, rng):
    """Other factors than 2 and a half; the arguments stand in the order of the signature."""
    shapes = [(3,), (2,)]
    starts, gradients = [randn(rng, *shape) for shape in shapes], bumpy(rng, "..x...xx.....", shapes)
    for growth, backoff in ((4.0, 0.5), (2.0, 0.125)):
        scale = 2.0 ** between(rng, 8, 12)
        options = {
            "init_scale": scale,
            "growth_factor": growth,
            "backoff_factor": backoff,
            "growth_interval": 2,
        }
        params = wide(starts)
        path = iterate(lab.LossScaler(scale, growth, backoff, 2), params, adam(params), gradients)
        scaled(
            path, lambda o=options: torch_iterate(starts, gradients, adam, o), f"factors {growth}, {backoff}"
        )
    options = {"init_scale": 1000.0, "growth_factor": 1.5, "backoff_factor": 0.7, "growth_interval": 2}
    params = wide(starts)
    path = iterate(lab.LossScaler(**options), params, adam(params), gradients)
    scaled(path, lambda: torch_iterate(starts, gradients, adam, options), "factors 1.5 and 0.7", 1e-4)


def test_scaler_defaults(lab, rng):
    """65536 at the beginning, twice as much after 2000 good iterations, half after a bad one."""
    scaler, size = lab.LossScaler(), abs(float(randn(rng))) + 1
    same(scaler.get_scale(), lambda: 65536.0, "the default scale")
    p = nn.Parameter(torch.zeros((), dtype=F64))
    optimizer = Walker([p], lr=0.0)
    p.grad = torch.full_like(p, size)
    scales = []
    for number in range(1, 2002):
        if number == 2001:
            p.grad = torch.full_like(p, math.inf)
        scaler.unscale_(optimizer)
        scaler.update()
        if number >= 1999:
            scales.append(scaler.get_scale())
    same(
        scales,
        lambda: [65536.0, 131072.0, 65536.0],
        "scales after 1999 and 2000 good iterations and a bad one",
    )


def test_scale_can_be_differentiated(lab, rng):
    """loss · scale, of any shape, and the gradient is scale times larger; the loss itself stays."""
    scale = 2.0 ** between(rng, 2, 9)
    for shape, dtype in (((), F64), ((3, 2), F64), ((), F32)):
        x, upstream = randn(rng, *shape).to(dtype).requires_grad_(), randn(rng, *shape).to(dtype)
        loss = x * 3
        y = lab.LossScaler(scale).scale(loss)
        y.backward(upstream)
        same(y.detach(), lambda x=x: x.detach() * 3 * scale, f"a scaled {dtype} loss of shape {shape}")
        same(x.grad, lambda u=upstream: u * scale * 3, f"the gradient through a scaled loss of shape {shape}")
        same(loss.detach(), lambda x=x: x.detach() * 3, "the loss itself")


def test_unscale_reaches_every_gradient_in_place(lab, rng):
    """All groups, any dtype and memory order; the gradient tensors stay the same; None is skipped."""
    scale = 2.0 ** between(rng, 2, 5)
    values = [randn(rng, 3, 2), randn(rng, 4).to(F32), randn(rng, 2).to(BF16), randn(rng), randn(rng, 2, 2)]
    params = [nn.Parameter(torch.zeros_like(value)) for value in values]
    for p, value in zip(params, values, strict=True):
        p.grad = None if p is params[3] else strided(value)
    held = [p.grad for p in params]
    optimizer = Walker([{"params": params[:2]}, {"params": params[2:3]}, {"params": params[3:]}], lr=0.1)
    lab.LossScaler(scale).unscale_(optimizer)
    for i, value in enumerate(values):
        if i != 3:
            same(held[i], lambda value=value: value / scale, f"the memory of gradient {i}")
        assert_holds(
            params[i].grad is held[i], what=f"gradient {i} is still the same tensor, or still missing"
        )
    same(params[0].detach(), lambda: torch.zeros(3, 2, dtype=F64), "a weight after unscale_")


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan], ids=["inf", "minus-inf", "nan"])
def test_one_bad_entry_anywhere_skips_the_step(lab, rng, bad):
    """First or last entry, first or last group: `step` returns None and nothing moves; else its answer."""
    starts = [randn(rng, 3, 2), randn(rng, 4), randn(rng, 5)]
    for where in ("first", "last", "nowhere"):
        for unscale in (False, True):
            params, scaler = wide(starts), lab.LossScaler(8.0)
            optimizer = Walker([{"params": params[:1]}, {"params": params[1:]}], lr=0.5)
            for p in params:
                p.grad = torch.full_like(p, 8.0)
            if where != "nowhere":
                params[0 if where == "first" else 2].grad.view(-1)[0 if where == "first" else -1] = bad
            if unscale:
                scaler.unscale_(optimizer)
            answer = scaler.step(optimizer)
            what = f"{bad} {where}, {'with' if unscale else 'without'} unscale_"
            same(answer, lambda w=where: 2.5 if w == "nowhere" else None, f"what step returns, {what}")
            for i, p in enumerate(params):
                moved = 0.5 if where == "nowhere" else 0.0
                close(p.detach(), lambda i=i, moved=moved: starts[i] - moved, f"weight {i}, {what}")
            scaler.update()
            after = 8.0 if where == "nowhere" else 4.0
            same(scaler.get_scale(), lambda after=after: after, f"the scale after update, {what}")


def test_huge_gradients_are_not_bad(lab, rng):
    """Each entry is judged by itself: entries whose sum or square overflows are finite all the same."""
    starts = [torch.zeros(4, dtype=dtype) for dtype in (F32, F64)]
    sizes = [3e38 * (0.9 + 0.1 * float(torch.rand((), generator=rng))), 1.7e308]
    for start, size in zip(starts, sizes, strict=True):
        p = nn.Parameter(start.clone())
        p.grad = torch.full_like(p, size)
        scaler, optimizer = lab.LossScaler(4.0, growth_interval=1), Walker([p], lr=1.0)
        same(scaler.step(optimizer), lambda: 2.5, f"what step returns for gradients of {size:.3g}")
        scaler.update()
        same(scaler.get_scale(), lambda: 8.0, f"the scale after gradients of {size:.3g}")
        moved = torch.full_like(start, size) / 4
        same(p.detach(), lambda moved=moved: -moved, f"the weights after gradients of {size:.3g}")


def test_each_optimizer_is_judged_by_its_own_gradients(lab, rng):
    """One of two overflows: the other one moves; the scale backs off once; then all notes are gone."""
    starts = [randn(rng, 3), randn(rng, 2)]
    for broken in (0, 1):
        params, scaler = wide(starts), lab.LossScaler(16.0, growth_interval=2)
        optimizers = [Walker([p], lr=0.25) for p in params]
        answers = []
        for iteration in (1, 2, 3):
            for p in params:
                p.grad = torch.full_like(p, scaler.get_scale())
            if iteration == 1:
                params[broken].grad[0] = math.nan
            scaler.unscale_(optimizers[1])
            answers += [scaler.step(optimizer) for optimizer in optimizers]
            scaler.update()
        moved = [answer is not None for answer in answers]
        right = [i != broken for i in (0, 1)] + [True] * 4
        assert_holds(moved == right, what=f"only optimizer {broken} skips, and only in the first iteration")
        for i, p in enumerate(params):
            steps = 2 if i == broken else 3
            close(
                p.detach(),
                lambda i=i, steps=steps: starts[i] - 0.25 * steps,
                f"weight {i} of its own optimizer",
            )
        same(scaler.get_scale(), lambda: 16.0, "the scale after one backoff and one growth")


def test_scaler_refuses_a_second_time(lab, rng):
    """unscale_ twice, step twice, unscale_ after step: RuntimeError until update; others aren't concerned."""
    start = randn(rng, 3)
    for bad in (False, True):
        (p, other), scaler = wide([start, start]), lab.LossScaler(4.0)
        optimizer, unconcerned = Walker([p], lr=1.0), Walker([other], lr=1.0)
        for _ in range(2):
            p.grad, other.grad = torch.full_like(p, 4.0), torch.full_like(p, scaler.get_scale())
            p.grad[0] = math.inf if bad else 4.0
            scaler.unscale_(optimizer)
            assert_raises(RuntimeError, lambda s=scaler, o=optimizer: s.unscale_(o), what="a second unscale_")
            same(p.grad[1:].clone(), lambda s=scaler: torch.ones(2, dtype=F64), "gradients after that")
            scaler.unscale_(unconcerned)
            scaler.step(optimizer)
            scaler.step(unconcerned)
            assert_raises(RuntimeError, lambda s=scaler, o=optimizer: s.step(o), what="a second step")
            assert_raises(
                RuntimeError, lambda s=scaler, o=optimizer: s.unscale_(o), what="unscale_ after step"
            )
            scaler.update()
            scaler = lab.LossScaler(4.0) if bad else scaler
        close(p.detach(), lambda bad=bad: start - (0 if bad else 2), "the weight after two iterations")
        close(other.detach(), lambda: start - 2, "the weight of the other optimizer")
        p.grad = torch.ones_like(p)
        scaler.step(optimizer)
        assert_raises(
            RuntimeError, lambda s=scaler, o=optimizer: s.step(o), what="a second step, none unscaled"
        )


def test_clipping_between_unscale_and_step(lab, rng):
    """What is clipped after `unscale_` are the true gradients, and `step` doesn't unscale them again."""
    shapes = [(3, 2), (4,)]
    starts = [randn(rng, *shape) for shape in shapes]
    gradients = [[3 * g for g in row] for row in bumpy(rng, "..x..", shapes)]
    options, how = {"init_scale": 1024.0}, {"unscale": True, "clip": 1.0}

    def sgd(params):
        return Walker(params, lr=0.1, momentum=0.9)

    params = wide(starts)
    path = iterate(lab.LossScaler(1024.0), params, sgd(params), gradients, **how)
    scaled(path, lambda: torch_iterate(starts, gradients, sgd, options, **how), "training with clipping")


def test_scale_has_no_lower_bound(lab, rng):
    """Overflows in a row halve the scale each time, below 1 as well."""
    count = between(rng, 5, 9)
    scaler, p = lab.LossScaler(1.0), nn.Parameter(torch.zeros(2, dtype=F64))
    optimizer = Walker([p], lr=0.1)
    for _ in range(count):
        p.grad = torch.full_like(p, math.nan)
        scaler.unscale_(optimizer)  # a loop that looks at its gradients may leave out the step altogether
        scaler.update()
    same(scaler.get_scale(), lambda: 2.0**-count, f"the scale after {count} overflows from 1")


def test_scaler_continues_from_its_state_dict(lab, rng):
    """Scale, factors, interval and counter go over into a scaler that was made with others."""
    shapes = [(3,), (2,)]
    starts, gradients = [randn(rng, *shape) for shape in shapes], bumpy(rng, "x.....x....", shapes)
    options = {"init_scale": 256.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
    for stop in (2, 3, 5):  # counter 1, 2 and 1
        params = wide(starts)
        optimizer = adam(params)
        first = lab.LossScaler(**options)
        iterate(first, params, optimizer, gradients[:stop])
        saved = copy.deepcopy(first.state_dict())
        second = lab.LossScaler()
        second.load_state_dict(saved)
        path = iterate(second, params, optimizer, gradients[stop:])
        scaled(
            path,
            lambda stop=stop: torch_iterate(starts, gradients, adam, options)[stop:],
            f"continued after {stop} iterations",
        )


# ---------------------------------------------------------------------------- step 4: counting bytes

SIZES = {"bf16": 2, "fp16": 2, "fp32": 4, None: 0}
STATES = {"adamw": 8, "adam_mini": 4, "lion": 4, "muon": 4, "momentum": 4, "sgd": 0, "adafactor": 0, "sm3": 0}
KEYS = ("weights", "gradients", "master", "optimizer", "total")


def check_ledger(lab, n, words, what):
    result = lab.training_bytes(n, **words)
    each = [SIZES[words[key]] for key in ("weights", "gradients", "master")] + [STATES[words["optimizer"]]]
    for key, one in zip(KEYS, [*each, sum(each)], strict=True):
        same(float(result[key]), lambda one=one: float(n * one), f"{key}, {what}")
    same(float(result["bytes_per_parameter"]), lambda: float(sum(each)), f"bytes per parameter, {what}")


def test_bytes_of_every_combination(lab, rng):
    """Every word in every place: bytes of all parameters, their sum, and the sum for one."""
    n = between(rng, 10**6, 10**10)
    words = list(SIZES)
    for optimizer in STATES:
        for shift in range(4):
            chosen = {"weights": words[shift], "gradients": words[between(rng, 0, 3)], "optimizer": optimizer}
            chosen["master"] = words[(shift + between(rng, 1, 3)) % 4]
            check_ledger(lab, n, chosen, ", ".join(f"{key} {word}" for key, word in chosen.items()))
    mixed = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
    for optimizer in ("adamw", "adam_mini"):  # 16 and 12 bytes a parameter
        check_ledger(lab, n, {**mixed, "optimizer": optimizer}, f"mixed precision with {optimizer}")


def test_bytes_of_no_parameters(lab, rng):
    """0 parameters take 0 bytes, and the sum for one is what it was."""
    words = list(SIZES)
    for _ in range(4):
        chosen = {key: words[between(rng, 0, 3)] for key in ("weights", "gradients", "master")}
        check_ledger(lab, 0, {**chosen, "optimizer": "adamw"}, "no parameters")
    check_ledger(lab, n=1, words={**dict.fromkeys(KEYS[:3]), "optimizer": "sgd"}, what="nothing kept at all")


def test_unknown_words_are_refused(lab, rng):
    """A word that isn't in the table, in any of the four places: ValueError."""
    good = {"weights": "bf16", "gradients": "bf16", "master": "fp32", "optimizer": "adamw"}
    n = between(rng, 1, 1000)
    for key, wrong in (
        ("weights", "fp8"),
        ("gradients", "float32"),
        ("master", "BF16"),
        ("master", ""),
        ("weights", "bf"),
    ):
        words = {**good, key: wrong}
        assert_raises(ValueError, lambda w=words: lab.training_bytes(n, **w), what=f"{key} {wrong!r}")
    for wrong in ("adam", "AdamW", "", "muon "):
        words = {**good, "optimizer": wrong}
        assert_raises(ValueError, lambda w=words: lab.training_bytes(n, **w), what=f"optimizer {wrong!r}")


def test_words_are_given_by_name(lab, rng):
    """Four words in a row could be mixed up: they are keyword-only, and none has a default."""
    n = between(rng, 1, 1000)
    good = {"weights": "bf16", "gradients": "bf16", "master": "fp32", "optimizer": "adamw"}
    check_ledger(lab, n, good, "words by name")
    assert_raises(TypeError, lambda: lab.training_bytes(n, *good.values()), what="words by position")
    for key in good:
        fewer = {name: word for name, word in good.items() if name != key}
        assert_raises(TypeError, lambda w=fewer: lab.training_bytes(n, **w), what=f"a call without {key}")


def test_left_out_names_what_is_not_counted(lab, rng):
    """The ledger says that it has no activations in it."""
    n = between(rng, 1, 1000)
    result = lab.training_bytes(n, weights="bf16", gradients=None, master=None, optimizer="sgd")
    text = result["left_out"]
    named = isinstance(text, str) and "activation" in text.lower()
    assert_holds(named, what="left_out is a text that names the activations")


# --------------------------------------------------------------------- step 5: activation checkpoint


def plain(function, *inputs):
    return function(*inputs)


class Block:
    """Two layers whose parameters a function uses without getting them as inputs."""

    def __init__(self, starts, dropout=0.0):
        self.params = [nn.Parameter(start.clone()) for start in starts]
        self.dropout = dropout
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        first, bias, second = self.params
        h = torch.tanh(x @ first + bias)
        return functional.dropout(h, self.dropout) @ second if self.dropout else h @ second


def block_starts(rng):
    return [randn(rng, 3, 5), randn(rng, 5), randn(rng, 5, 3)]


def leaves(*starts, learns=True):
    return [start.clone().requires_grad_(learns) for start in starts]


def differentiated(call, function, params, inputs, upstreams):
    """Values and gradients of a call, all of them as they are after the backward pass."""
    result = call(function, *inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    used = [(out, up) for out, up in zip(outputs, upstreams, strict=True) if up is not None]
    torch.autograd.backward([out for out, _ in used], [up.clone() for _, up in used])
    entry = {f"output {i}": out.detach().clone() for i, out in enumerate(outputs)}
    entry.update({f"gradient of input {i}": gradient_or_zeros(x) for i, x in enumerate(inputs) if learns(x)})
    entry.update({f"gradient of parameter {i}": gradient_or_zeros(p) for i, p in enumerate(params)})
    return [entry]


def learns(x):
    return isinstance(x, torch.Tensor) and x.requires_grad


def gradient_or_zeros(x):
    """An unused tensor's gradient may be None or zeros."""
    return torch.zeros_like(x) if x.grad is None else x.grad.clone()


def equal(path, expected, what):
    assert_same_trajectory(path, expected, atol=1e-12, rtol=1e-12, what=what)


def test_checkpoint_equals_the_plain_call(lab, rng):
    """Value and gradients, of the inputs and of the parameters used inside, for inputs of any shape."""
    starts = block_starts(rng)
    for shape in ((4, 3), (3,), (2, 4, 3), (0, 3)):
        x, upstream = randn(rng, *shape), randn(rng, *shape)
        block = Block(starts)
        found = differentiated(lab.checkpoint, block, block.params, leaves(x), [upstream])
        other = Block(starts)
        equal(
            found,
            lambda other=other, x=x, u=upstream: differentiated(plain, other, other.params, leaves(x), [u]),
            f"an input of shape {shape}",
        )
    inputs, upstream = [randn(rng, 4), randn(rng, 4), randn(rng)], randn(rng, 4)

    def uneven(a, b, c):
        return a * b.exp() + c * a.square()

    found = differentiated(lab.checkpoint, uneven, [], leaves(*inputs), [upstream])
    equal(found, lambda: differentiated(plain, uneven, [], leaves(*inputs), [upstream]), "three inputs")
    (x,) = leaves(inputs[0])
    lab.checkpoint(uneven, x, x, inputs[2]).backward(upstream)
    gradient = x.grad
    a = inputs[0]
    close(
        gradient,
        lambda: upstream * (a.exp() + a * a.exp() + 2 * inputs[2] * a),
        "the gradient of an input that is given twice",
    )


def test_checkpoint_returns_what_the_function_returns(lab, rng):
    """A tensor, or a tuple of any length; outputs that nobody uses; outputs of different shapes."""
    w, x, upstreams = randn(rng, 3), randn(rng, 4, 3), [randn(rng, 4), randn(rng), randn(rng, 4, 3)]
    for chosen in ((0, 1, 2), (0,), (2, 0)):
        for unused in (None, 0) if len(chosen) > 1 else (None,):
            p, q = (nn.Parameter(w.clone()) for _ in range(2))

            def several(x, p=p, chosen=chosen):
                everything = (x @ p, (x * p).sin().sum(), x.exp() * p)
                return tuple(everything[i] for i in chosen)

            def reference(x, q=q, several=several):
                return several(x, q)

            ups = [None if place == unused else upstreams[i] for place, i in enumerate(chosen)]
            result = lab.checkpoint(several, *leaves(x))
            assert_holds(isinstance(result, tuple), what=f"a tuple of {len(chosen)} comes back as a tuple")
            found = differentiated(lab.checkpoint, several, [p], leaves(x), ups)
            what = f"a tuple of {len(chosen)}{'' if unused is None else ', one unused'}"
            equal(found, lambda q=q, r=reference, u=ups: differentiated(plain, r, [q], leaves(x), u), what)
    given, mask = randn(rng, 4, 3), randn(rng, 4, 3)
    for name, function in (("(x · m, m)", lambda x, m: (x * m, m)), ("(m, x)", lambda x, m: (m, x))):
        found = differentiated(lab.checkpoint, function, [], leaves(given, mask), [upstreams[2], x])
        equal(
            found,
            lambda f=function: differentiated(plain, f, [], leaves(given, mask), [upstreams[2], x]),
            f"a function that returns {name}",
        )
    found = differentiated(lab.checkpoint, lambda x: x, [], leaves(given), [x])
    equal(found, lambda: differentiated(plain, lambda x: x, [], leaves(given), [x]), "the identity")
    result = lab.checkpoint(torch.sin, *leaves(x))
    close(result.detach() if isinstance(result, torch.Tensor) else result, lambda: x.sin(), "a single tensor")


def test_checkpoint_of_parameters_alone(lab, rng):
    """No input requires grad, or there is none: the parameters still get theirs, the inputs keep None."""
    starts, x, upstream = block_starts(rng), randn(rng, 4, 3), randn(rng, 4, 3)
    block, other = Block(starts), Block(starts)
    inputs = leaves(x, learns=False)
    result = lab.checkpoint(block, *inputs)
    assert_holds(result.requires_grad, what="the result requires grad although no input does")
    found = differentiated(lab.checkpoint, block, block.params, inputs, [upstream])
    equal(
        found,
        lambda: differentiated(plain, other, other.params, leaves(x, learns=False), [upstream]),
        "an input that doesn't require grad",
    )
    same(inputs[0].grad, lambda: None, "the gradient of that input")
    assert_holds(not inputs[0].requires_grad, what="that input still doesn't require grad")
    p = nn.Parameter(starts[1].clone())
    seen: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(seen.append, lambda nothing: nothing):
        result = lab.checkpoint(lambda: p.exp())
    same(len(seen), lambda: 0, "the number of saved tensors, no input at all")
    result.backward(upstream.view(-1)[:5])
    close(p.grad, lambda: starts[1].exp() * upstream.view(-1)[:5], "a parameter's gradient, no input at all")


def test_checkpoint_passes_other_inputs_through(lab, rng):
    """Numbers, texts, None, lists and integer tensors reach the function as they are, both times."""
    table, x, upstream = randn(rng, 6, 3), randn(rng, 4, 3), randn(rng, 4, 3)
    index, factor = torch.randint(6, (4,), generator=rng), float(randn(rng))
    received = []
    listed = [1, 2]

    def lookup(factor, x, word, index, nothing, listed, frozen):
        received.append((factor, word, nothing, listed))
        return p[index] * x * frozen * (factor if word == "times" and nothing is None else 0.0)

    p = nn.Parameter(table.clone())
    (learning,), (frozen,) = leaves(x), leaves(x + 1, learns=False)
    result = lab.checkpoint(lookup, factor, learning, "times", index, None, listed, frozen)
    result.backward(upstream)
    close(result.detach(), lambda: table[index] * x * (x + 1) * factor, "the value")
    close(
        learning.grad,
        lambda: table[index] * (x + 1) * factor * upstream,
        "the gradient of the learning input",
    )
    close(
        p.grad,
        lambda: torch.zeros(6, 3, dtype=F64).index_add(0, index, x * (x + 1) * factor * upstream),
        "the gradient of the table",
    )
    same(frozen.grad, lambda: None, "the gradient of an input that doesn't require it")
    as_given = all(one[:3] == (factor, "times", None) and one[3] is listed for one in received)
    assert_holds(as_given, what="inputs that aren't tensors reach the function as they are, each time")


def test_checkpoint_adds_to_gradients_that_are_there(lab, rng):
    """Backward adds to `.grad`, of inputs and parameters alike; the inputs keep their values."""
    starts, x, upstream = block_starts(rng), randn(rng, 4, 3), randn(rng, 4, 3)
    before = [randn(rng, *start.shape) for start in (*starts, x)]

    def run(call):
        block, inputs = Block(starts), leaves(x)
        for tensor, gradient in zip((*block.params, *inputs), before, strict=True):
            tensor.grad = gradient.clone()
        return inputs[0], differentiated(call, block, block.params, inputs, [upstream])

    used, found = run(lab.checkpoint)
    equal(found, lambda: run(plain)[1], "gradients on top of others")
    same(used.detach(), lambda: x, "the input afterwards")
    assert_holds(used.is_leaf and used.requires_grad, what="the input is still a leaf that requires grad")


def test_checkpoint_in_a_chain(lab, rng):
    """Three in a row on the same parameters, between ordinary operations: the gradients are those without."""
    starts, x, upstream = block_starts(rng), randn(rng, 4, 3), randn(rng, 4, 3)

    def chain(call, block, x):
        h = x * 2
        for _ in range(3):
            h = h + call(block, h)
        return h.sin()

    def run(call):
        block = Block(starts)
        return differentiated(lambda f, x: chain(call, f, x), block, block.params, leaves(x), [upstream])

    equal(run(lab.checkpoint), lambda: run(plain), "three checkpoints in a row")


def test_checkpoint_repeats_a_dropout(lab, rng):
    """The second run drops what the first one dropped, though others have drawn in between."""
    starts, x, upstream, seed = block_starts(rng), randn(rng, 40, 3), randn(rng, 40, 3), random_seed(rng)

    def run(call):
        block = Block(starts, dropout=0.5)
        torch.default_generator.manual_seed(seed)

        def between_the_passes(function, x):
            first = call(function, x)
            second = call(function, torch.rand(x.shape, dtype=F64) * first)
            torch.rand(7)
            return first + second

        return differentiated(between_the_passes, block, block.params, leaves(x), [upstream])

    equal(run(lab.checkpoint), lambda: run(plain), "two dropouts with other draws between")


def test_checkpoint_leaves_the_random_stream_as_a_plain_call(lab, rng):
    """The forward draws as a plain call does; the backward puts the state back to where it was."""
    starts, x, seed = block_starts(rng), randn(rng, 4, 3), random_seed(rng)

    def draws(call):
        block = Block(starts, dropout=0.5)
        torch.default_generator.manual_seed(seed)
        result = call(block, *leaves(x))
        after_forward = torch.rand(3, dtype=F64)
        result.sum().backward()
        return torch.cat([after_forward, torch.rand(3, dtype=F64)])

    same(
        draws(lab.checkpoint), lambda: draws(plain), "what is drawn after the forward and after the backward"
    )


def test_checkpoint_saves_its_inputs_only(lab, rng):
    """`saved_tensors_hooks` see each input tensor once, in its own memory, and nothing else."""
    starts, start, factors, upstream = block_starts(rng), randn(rng, 4, 3), randn(rng, 3), randn(rng, 4, 3)

    def run(call, learns):
        block, seen = Block(starts), []
        (x,), (scale,) = leaves(start, learns=learns), leaves(factors, learns=False)

        def deep(h, factor, scale):
            for _ in range(4):
                h = h + factor * block(h * scale)
            return h

        def pack(tensor):
            seen.append((tensor.data_ptr(), tensor.numel()))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = call(deep, x, 0.5, scale)
        saved = sorted(seen)
        result.backward(upstream)
        own = sorted((tensor.data_ptr(), tensor.numel()) for tensor in (x, scale))
        return saved, own, x.grad if learns else block.params[0].grad

    for learns in (True, False):
        what = "an input that " + ("requires grad" if learns else "doesn't require grad")
        saved, own, gradient = run(lab.checkpoint, learns)
        same(len(saved), lambda: 2, f"the number of saved tensors, {what}")
        assert_holds(saved == own, what=f"what is saved are the input tensors themselves, {what}")
        close(gradient, lambda learns=learns: run(plain, learns)[2], f"a gradient after that, {what}")


def test_checkpoint_runs_the_function_twice(lab, rng):
    """Once in the forward, once more in the backward; autograd's switch stays as it was."""
    block, (x,) = Block(block_starts(rng)), leaves(randn(rng, 4, 3))
    result = lab.checkpoint(block, x)
    same(block.calls, lambda: 1, "calls in the forward")
    assert_holds(torch.is_grad_enabled(), what="autograd is still switched on after the forward")
    result.backward(randn(rng, 4, 3))
    same(block.calls, lambda: 2, "calls in forward and backward")
    assert_holds(torch.is_grad_enabled(), what="autograd is still switched on after the backward")


def test_checkpoint_without_gradients(lab, rng):
    """Under `no_grad` the value is the same, and the result requires no gradient."""
    starts, x = block_starts(rng), randn(rng, 4, 3)
    block, inputs = Block(starts), leaves(x)
    with torch.no_grad():
        result = lab.checkpoint(block, *inputs)
        assert_holds(not torch.is_grad_enabled(), what="autograd is still switched off")
    assert_holds(not result.requires_grad, what="the result requires no gradient under no_grad")
    same(block.calls, lambda: 1, "calls under no_grad")
    close(result.detach(), lambda: Block(starts)(x).detach(), "the value under no_grad")
