"""Tests of lab 02, the training core. A test's docstring states the rule that it judges.

`lab` is the module under test. All inputs come from `rng`. Expected values come from torch, from closed forms
or from slow transcriptions of the page's formulas; they are functions, called after the code under test.
"""

import math
import weakref
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from grader.checks import assert_holds, assert_matches, assert_raises, assert_within
from grader.lab_inputs import between, number, randn, random_seed, same, signed_permutation, strided
from grader.optimizer_contract import RULES, Subject, parameters, record, run

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
CLOSE = {"atol": 1e-12, "rtol": 1e-10}
NEAR = {"atol": 1e-10, "rtol": 1e-9}


def close(actual, expected, what):
    """Equal but for a few roundings."""
    assert_matches(actual, expected, **CLOSE, what=what)


def near(actual, expected, what):
    """Equal where the oracle itself rounds: gradients, singular values."""
    assert_matches(actual, expected, **NEAR, what=what)


def rough(actual, expected, what):
    """Equal as far as the dtype goes, which is the point: 16 bits may be computed in 16 bits."""
    exact = isinstance(actual, torch.Tensor) and actual.dtype == F32
    tolerance = {"atol": 1e-3, "rtol": 1e-3} if exact else {"atol": 0.1, "rtol": 0.1}
    assert_matches(actual, expected, **tolerance, what=what)


# ---------------------------------------------------------------------------- step 1: initialisation

MANY = (1024, 1024)  # a million: a sample's standard deviation is off by 0.07 %
SOME = (512, 512)  # a quarter of that, where a coarser look is enough
INITS = (("kaiming_normal_", (50, 1.0)), ("xavier_uniform_", (20, 60)))


def check_moments(w, std, what):
    rtol = 28 / math.sqrt(w.numel())  # forty times the error of a sample's standard deviation
    assert_matches(float(w.std()), lambda: std, atol=0.0, rtol=rtol, what=f"standard deviation of {what}")
    atol = 1.5 * rtol * std
    assert_matches(float(w.mean()), lambda: 0.0, atol=atol, rtol=0.0, what=f"mean of {what}")


def check_half(w, middle, what):
    """Half of the samples lie closer to 0 than `middle`: a distribution's shape, not only its width."""
    half = float((w.abs() < middle).to(F64).mean())
    assert_matches(half, lambda: 0.5, atol=0.05, rtol=0.0, what=f"share of {what} in the middle half")


def test_kaiming_and_xavier_statistics(lab, rng):
    """Kaiming: N(0, gain²/fan_in) with gain √2; Xavier: variance 2/(fan_in + fan_out); fans are arguments."""
    generator = torch.Generator().manual_seed(random_seed(rng))
    w = torch.zeros(MANY)
    fan_in, fan_out = between(rng, 10, 30), between(rng, 50, 80)
    lab.kaiming_normal_(w, fan_in, generator=generator)
    check_moments(w, math.sqrt(2 / fan_in), f"kaiming_normal_ with fan_in {fan_in}")
    lab.xavier_uniform_(w, fan_in, fan_out, generator=generator)
    std = math.sqrt(2 / (fan_in + fan_out))
    check_moments(w, std, f"xavier_uniform_ with fans {fan_in} and {fan_out}")


def test_kaiming_is_normal_and_obeys_its_gain(lab, rng):
    """The standard deviation is proportional to `gain`, and the samples have a normal distribution's tail."""
    w = torch.zeros(SOME)
    fan_in, gain = between(rng, 5, 9), number(rng, 4.0, 6.0)
    generator = torch.Generator().manual_seed(random_seed(rng))
    lab.kaiming_normal_(w, fan_in=fan_in, gain=gain, generator=generator)
    tail = float(w.abs().max() / w.std()) > 4
    assert_holds(tail, what="some of a quarter of a million normal samples lie beyond 4 standard deviations")
    std = gain / math.sqrt(fan_in)
    check_moments(w, std, f"kaiming_normal_ with fan_in {fan_in} and gain {gain:.3g}")
    check_half(w, 0.674489750196 * std, "kaiming_normal_'s samples")


def test_xavier_fills_its_interval(lab, rng):
    """The samples of U(−a, a) reach both ends and never leave it: a² / 3 = 2 / (fan_in + fan_out)."""
    w = torch.zeros(SOME)
    fan_in, fan_out = between(rng, 3, 6), between(rng, 1, 2)
    lab.xavier_uniform_(w, fan_in, fan_out, generator=torch.Generator().manual_seed(random_seed(rng)))
    bound = math.sqrt(6 / (fan_in + fan_out))
    for name, end in (("largest", w.max()), ("smallest", -w.min())):
        size = float(end)
        assert_matches(size, lambda: bound, atol=0.0, rtol=1e-3, what=f"size of the {name} sample")
    check_half(w, bound / 2, "xavier_uniform_'s samples")


@pytest.mark.parametrize("shape", [(), (6,), (3, 5), (2, 3, 4, 5)], ids=["0-d", "1-d", "2-d", "4-d"])
def test_init_fills_in_place(lab, rng, shape):
    """The tensor's own memory is filled, whatever its shape, layout and dtype; a parameter stays a leaf."""
    generator = torch.Generator().manual_seed(random_seed(rng))
    for name, arguments in INITS:
        for dtype, learns in ((F64, True), (BF16, True), (F64, False)):
            w = nn.Parameter(strided(torch.full(shape, 99.0, dtype=dtype)), requires_grad=learns)
            memory = w.detach()
            result = getattr(lab, name)(w, *arguments, generator=generator)
            assert_holds(result is w, what=f"{name} returns the tensor it was given")
            assert_holds(w.dtype == dtype, what=f"{name} keeps the dtype {dtype}")
            filled = bool((memory < 9).all())
            assert_holds(filled, what=f"{name} fills a tensor of shape {shape} in its own memory")
            assert_holds(w.is_leaf, what=f"{name} leaves a parameter a leaf")
            assert_holds(w.requires_grad is learns, what=f"{name} leaves requires_grad as it was")
            assert_holds(torch.is_grad_enabled(), what=f"{name} leaves autograd switched on")


def sample(lab, name, arguments, **options):
    return getattr(lab, name)(torch.empty(4, 5), *arguments, **options)


@pytest.mark.parametrize(("name", "arguments"), INITS, ids=["kaiming", "xavier"])
def test_init_draws_from_its_generator_only(lab, rng, name, arguments):
    """`generator`, keyword-only, decides all and moves on; the global state is neither read nor moved."""
    seed, generator = random_seed(rng), torch.Generator()
    draws = []
    for state in (seed, seed + 1):
        before = torch.default_generator.manual_seed(state).get_state()
        generator.manual_seed(seed)
        draws.append([sample(lab, name, arguments, generator=generator) for _ in range(2)])
        untouched = torch.equal(before, torch.default_generator.get_state())
        assert_holds(untouched, what=f"{name} with a generator leaves the global random state alone")
    (first, second), (again, _) = draws
    other = sample(lab, name, arguments, generator=generator.manual_seed(seed + 1))
    assert_holds(torch.equal(first, again), what=f"{name} repeats itself for an equal generator")
    assert_holds(not torch.equal(first, second), what=f"{name} moves its generator on")
    assert_holds(not torch.equal(first, other), what=f"{name} differs for another generator")
    by_position = (*arguments, generator)
    assert_raises(TypeError, lambda: sample(lab, name, by_position), what=f"{name}, generator by position")


@pytest.mark.parametrize(("name", "arguments"), INITS, ids=["kaiming", "xavier"])
def test_init_without_generator_draws_from_the_global_state(lab, rng, name, arguments):
    """Two calls differ, and torch's global seed repeats them."""
    seed = random_seed(rng)
    draws = []
    for state in (seed, seed, seed + 1):
        torch.default_generator.manual_seed(state)
        draws.append([sample(lab, name, arguments) for _ in range(2)])
    (first, second), (again, _), (other, _) = draws
    assert_holds(not torch.equal(first, second), what=f"{name} differs from call to call without a generator")
    assert_holds(torch.equal(first, again), what=f"{name} repeats itself for an equal global state")
    assert_holds(not torch.equal(first, other), what=f"{name} differs for another global state")


def test_init_scale_decides_signal_propagation(lab, rng):
    """After 12 ReLU layers of width 128: near 1 with Kaiming, 10^10.8 with N(0, 1), 10^-13 with 0.01."""
    seed, depth, width = random_seed(rng), 12, between(rng, 120, 140)
    stds_of_weights = {"kaiming": math.sqrt(2 / width), "standard": 1.0, "small": 0.01}
    for init, std in stds_of_weights.items():
        stds = lab.activation_stds(depth, width, init, batch=64, seed=seed)
        assert_holds(len(stds) == depth, what="activation_stds gives one number a layer")
        growth = std * math.sqrt(width / 2)  # of the root mean square, a layer
        first = math.sqrt(1 - 1 / math.pi) * growth  # a ReLU's output has a mean, which its std leaves out
        exponent = math.log10(first) + (depth - 1) * math.log10(growth)
        last = math.log10(max(stds[-1], 1e-300))
        assert_within(last, exponent - 1.5, exponent + 1.5, what=f"exponent of the last std, init {init}")
        predicted = stds[0] / first
        assert_within(predicted, 0.7, 1.4, what=f"first layer's std against its prediction, init {init}")
    lists = [lab.activation_stds(3, 16, "kaiming", seed=seed) for _ in range(2)]
    assert_holds(lists[0] == lists[1], what="activation_stds gives the same list for the same seed")
    assert_raises(ValueError, lambda: lab.activation_stds(2, 8, "xavier"), what="an unknown init")


# ------------------------------------------------------------------------------------ step 2: norms


def build_norm(lab, name, dim, weight, bias=None, **options):
    """A norm of the lab with the given weights, in their dtype."""
    layer = getattr(lab, name)(dim, **options).to(weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def uneven_rows(rng, dim):
    """Rows from 1e-4 to 10, off centre: small ones show where ε stands, large ones what is normalised."""
    scale = 10.0 ** torch.tensor([[-4.0, -3.0, -2.5], [-2.0, 0.0, 1.0]], dtype=F64)
    return (randn(rng, 2, 3, dim) + 0.5) * scale[..., None]


def backward(function, x, upstream):
    """The output for x and the gradient that reaches x."""
    x = x.clone().requires_grad_()
    y = function(x)
    y.backward(upstream)
    return y.detach(), x.grad


def check_norm(layer, reference, x, upstream, what):
    """Output and all gradients, under an upstream gradient that isn't constant (a sum would hide errors)."""
    y, dx = backward(layer, x, upstream)
    near(y, lambda: reference(x).detach(), f"{what}'s output")
    near(dx, lambda: backward(reference, x, upstream)[1], f"{what}'s gradient of x")


def test_layernorm_matches_torch(lab, rng):
    """y = (x − μ) / sqrt(σ² + ε) · weight + bias, biased variance, gradients through both statistics."""
    n = between(rng, 17, 33)
    x, upstream, w, b = uneven_rows(rng, n), randn(rng, 2, 3, n), randn(rng, n), randn(rng, n)
    layer = build_norm(lab, "LayerNorm", n, w, b)
    check_norm(layer, lambda x: functional.layer_norm(x, (n,), w, b), x, upstream, "LayerNorm")
    dw = layer.weight.grad
    near(
        dw, lambda: (upstream * functional.layer_norm(x, (n,))).sum((0, 1)), "LayerNorm's gradient of weight"
    )
    near(layer.bias.grad, lambda: upstream.sum((0, 1)), "LayerNorm's gradient of bias")


def test_layernorm_is_right_far_from_zero(lab, rng):
    """Two passes: a float64 row near 1e8 is right to 1e-6."""
    x = 1e8 + 10 * randn(rng, 4, 6)
    layer = build_norm(lab, "LayerNorm", 6, torch.ones(6, dtype=F64))
    y = layer(x.clone()).detach()
    assert_matches(
        y,
        lambda: functional.layer_norm(x - 1e8, (6,)),
        atol=1e-6,
        rtol=0.0,
        what="LayerNorm's output for rows near 1e8",
    )


def test_layernorm_epsilon_stands_inside_the_root(lab, rng):
    """ε is added to the variance: rows whose standard deviation is near sqrt(ε) show it, for any ε."""
    x = randn(rng, 4, 3) * 1e-3
    for options in ({}, {"eps": 0.5}, {"eps": 1e-9}):
        y = build_norm(lab, "LayerNorm", 3, torch.ones(3, dtype=F64), **options)(x.clone()).detach()
        eps = options.get("eps", 1e-5)
        near(
            y, lambda eps=eps: functional.layer_norm(x, (3,), eps=eps), f"LayerNorm's output for ε = {eps:g}"
        )


def test_layernorm_of_a_constant_row_is_its_bias(lab, rng):
    """The variance is exactly 0: the output is `bias`, and the gradients stay finite."""
    x = torch.randint(-9, 9, (4, 1), generator=rng).to(F64).repeat(1, 3)
    w, b, upstream = randn(rng, 3), randn(rng, 3), randn(rng, 4, 3)
    layer = build_norm(lab, "LayerNorm", 3, w, b)
    y, dx = backward(layer, x, upstream)
    near(y, lambda: b.repeat(4, 1), "LayerNorm of constant rows")
    near(
        dx,
        lambda: ((upstream * w) - (upstream * w).mean(-1, keepdim=True)) / math.sqrt(1e-5),
        "LayerNorm's gradient at constant rows",
    )


def test_rmsnorm_matches_reference_and_is_scale_invariant(lab, rng):
    """y = x / sqrt(mean(x²) + ε) · weight; without ε a positive factor of x cancels."""
    n = between(rng, 17, 33)
    x, upstream, w = uneven_rows(rng, n), randn(rng, 2, 3, n), randn(rng, n)
    layer = build_norm(lab, "RMSNorm", n, w)
    check_norm(layer, lambda x: functional.rms_norm(x, (n,), w, 1e-6), x, upstream, "RMSNorm")
    dw = layer.weight.grad
    near(
        dw,
        lambda: (upstream * functional.rms_norm(x, (n,), eps=1e-6)).sum((0, 1)),
        "RMSNorm's gradient of weight",
    )
    big = build_norm(lab, "RMSNorm", n, w, eps=1e-30)(1000 * x).detach()
    near(big, lambda: x * w / x.square().mean(-1, keepdim=True).sqrt(), "RMSNorm of 1000x, ε negligible")


def test_rmsnorm_epsilon_stands_inside_the_root(lab, rng):
    """ε is added to the mean square; a row of zeros gives zeros and finite gradients."""
    x = randn(rng, 4, 3) * 1e-3
    for options in ({}, {"eps": 0.5}, {"eps": 1e-9}):
        y = build_norm(lab, "RMSNorm", 3, torch.ones(3, dtype=F64), **options)(x.clone()).detach()
        eps = options.get("eps", 1e-6)
        near(y, lambda eps=eps: functional.rms_norm(x, (3,), eps=eps), f"RMSNorm's output for ε = {eps:g}")
    upstream = randn(rng, 3)
    y, dx = backward(
        build_norm(lab, "RMSNorm", 3, torch.ones(3, dtype=F64)), torch.zeros(3, dtype=F64), upstream
    )
    same(y, lambda: torch.zeros(3, dtype=F64), "RMSNorm of zeros")
    near(dx, lambda: 1e3 * upstream, "RMSNorm's gradient at zeros")


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_norms_look_at_the_last_dimension_only(lab, rng, name):
    """Any number of dimensions, any memory order, training or not: each row is normalised by itself."""
    w = randn(rng, 4)
    reference = {
        "LayerNorm": lambda x: functional.layer_norm(x, (4,), w),
        "RMSNorm": lambda x: functional.rms_norm(x, (4,), w, 1e-6),
    }
    layer = build_norm(lab, name, 4, w)
    for training in (True, False):
        layer.train(training)
        for shape in ((4,), (4, 4), (1, 4), (2, 4, 4), (2, 1, 3, 4)):
            x = strided(randn(rng, *shape) + 0.3)
            y = layer(x.clone()).detach()
            layer(torch.zeros_like(x))  # a later call leaves an earlier result alone
            mode = "training" if training else "evaluation"
            near(y, lambda x=x: reference[name](x), f"{name}'s output for an input {shape} in {mode}")


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_norms_have_the_right_parameters(lab, rng, name):
    """`weight` of ones (and LayerNorm's `bias` of zeros) are all there is to learn; x and dtype are kept."""
    start = {"weight": lambda: torch.ones(5), "bias": lambda: torch.zeros(5)}
    wanted = ["weight", "bias"] if name == "LayerNorm" else ["weight"]
    layer = getattr(lab, name)(5)
    parameters = dict(layer.named_parameters())
    assert_holds(
        sorted(parameters) == sorted(wanted), what=f"the parameters of {name} are {' and '.join(wanted)}"
    )
    for key in wanted:
        same(parameters[key].detach(), start[key], f"{name}'s {key} before training")
    x = randn(rng, 3, 5)
    passed = x.clone()
    layer.to(F64)(passed)
    same(passed, lambda: x, f"the input of {name} after the call")
    y = layer.to(BF16)(x.to(BF16)).detach()
    reference = functional.layer_norm if name == "LayerNorm" else functional.rms_norm
    rough(y, lambda: reference(x, (5,), eps=1e-5).to(BF16), f"{name} of bfloat16 input")


def test_rmsnorm_in_half_precision(lab):
    """16-bit input: squares are taken and added in float32, and ε is the same number for every dtype."""
    outlier = torch.tensor([60.0] + [0.5] * 4095)
    cases = {
        "float16 values of 300 (their squares overflow)": torch.full((4,), 300.0, dtype=torch.float16),
        "bfloat16 values of 0.058 (near the root of bfloat16's epsilon)": torch.tensor(
            [0.058, -0.058], dtype=BF16
        ),
        "one bfloat16 60 beside 4095 times 0.5": outlier.to(BF16),
    }
    for what, x in cases.items():
        layer = build_norm(lab, "RMSNorm", len(x), torch.ones(len(x), dtype=x.dtype))
        y = layer(x.clone()).detach()
        assert_matches(
            y,
            lambda x=x: functional.rms_norm(x.double(), (len(x),), eps=1e-6).to(x.dtype),
            atol=0.0,
            rtol=0.0125,
            what=what,
        )


# ---------------------------------------------------------------------------- step 3: cross-entropy


def reference_loss(logits, targets, **options):
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **options)


def uneven_targets(rng, classes, ignore_index=-100):
    """Targets of shape (3, 5): 5, 3 and 1 of them count, so that every wrong denominator shows."""
    targets = torch.randint(classes, (3, 5), generator=rng)
    targets[1, [0, 3]] = ignore_index
    targets[2, [0, 1, 3, 4]] = ignore_index
    return targets


def check_loss(lab, logits, targets, upstream, what, **options):
    """Value and gradient of the lab's loss against torch's."""
    loss, gradient = backward(lambda x: lab.cross_entropy(x, targets.clone(), **options), logits, upstream)
    near(loss, lambda: reference_loss(logits, targets, **options), what)
    near(
        gradient,
        lambda: backward(lambda x: reference_loss(x, targets, **options), logits, upstream)[1],
        f"{what}: the gradient",
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_matches_torch(lab, rng, reduction, smoothing):
    """Loss and gradient equal torch's for 3 classes, uneven masks, with and without smoothing."""
    logits, targets = 3 * randn(rng, 3, 5, 3) + 2, uneven_targets(rng, 3)
    upstream = randn(rng, 15) if reduction == "none" else randn(rng, 1)[0]
    options = {"reduction": reduction, "label_smoothing": smoothing}
    check_loss(
        lab, logits, targets, upstream, f"cross-entropy, {reduction}, smoothing {smoothing}", **options
    )


def test_cross_entropy_is_stable_for_huge_logits(lab, rng):
    """Each row is shifted by its own maximum before exp: no overflow, no lost digits, no floor."""
    rows = [[1e300, 1e300, 0], [1e4, 0, -1e4], [0, 100, 0], [-1e300] * 3, [1e300, 0, 0], [0, 1e6, 0]]
    big, targets = torch.tensor(rows, dtype=F64), torch.tensor([0, 1, 0, 2, 1, 0])
    loss, gradient = backward(
        lambda x: lab.cross_entropy(x, targets.clone(), reduction="none"), big, torch.ones(6, dtype=F64)
    )
    exact = [math.log(2), 1e4, 100.0, math.log(3), 1e300, 1e6]
    close(loss, lambda: torch.tensor(exact, dtype=F64), "cross-entropy of huge logits")
    slopes = [[-0.5, 0.5, 0], [1, -1, 0], [-1, 1, 0], [1 / 3, 1 / 3, -2 / 3], [1, -1, 0], [-1, 1, 0]]
    close(gradient, lambda: torch.tensor(slopes, dtype=F64), "gradient at huge logits")
    offsets = torch.tensor([[1e7], [0.0], [-1e7], [1e7]], dtype=torch.float32)
    logits = 4 * torch.randn(4, 5, generator=rng) + offsets
    labels = torch.randint(5, (4,), generator=rng)
    for smoothing in (0.0, 0.5):
        loss = lab.cross_entropy(logits.clone(), labels.clone(), label_smoothing=smoothing)
        assert_matches(
            loss,
            lambda s=smoothing: functional.cross_entropy(logits.double(), labels, label_smoothing=s).float(),
            atol=5e-6,
            rtol=5e-6,
            what=f"cross-entropy of float32 rows with offsets of 1e7, smoothing {smoothing}",
        )


def test_cross_entropy_takes_any_shape(lab, rng):
    """Logits (C,), (N, C) and beyond, in any memory order, with targets of the same shape without C."""
    for shape in ((), (5,), (2, 3), (2, 3, 2)):
        classes = between(rng, 17, 33)
        logits = strided(randn(rng, *shape, classes))
        targets = strided(torch.randint(classes, shape, generator=rng))
        upstream = randn(rng, targets.numel())
        check_loss(lab, logits, targets, upstream, f"none of {(*shape, classes)} logits", reduction="none")


@pytest.mark.parametrize(
    "ignore_index", [-1, 0, 1, 255], ids=["minus-one", "class-0", "a-class", "beyond-the-classes"]
)
def test_cross_entropy_ignores_any_index(lab, rng, ignore_index):
    """`ignore_index` may be any integer; the arguments stand in the order of the signature."""
    logits, targets = randn(rng, 3, 5, 3) * 2, uneven_targets(rng, 3, ignore_index)
    targets[0, :2] = torch.tensor([0, 2])
    passed = targets.clone()
    loss = lab.cross_entropy(logits.clone(), passed, ignore_index, 0.2, "sum")
    options = {"ignore_index": ignore_index, "label_smoothing": 0.2, "reduction": "sum"}
    near(loss, lambda: reference_loss(logits, targets, **options), "sum, positional arguments")
    same(passed, lambda: targets, f"the targets after the call with ignore_index {ignore_index}")
    upstream = randn(rng, 1)[0]
    check_loss(
        lab, logits, targets, upstream, f"mean with ignore_index {ignore_index}", ignore_index=ignore_index
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_survives_garbage_in_ignored_rows(lab, rng, smoothing):
    """NaN and inf in ignored rows reach neither the loss nor other rows' gradients; in other rows they do."""
    logits, targets = randn(rng, 3, 5, 3) * 2, uneven_targets(rng, 3)
    garbage = logits.clone()
    garbage[1, 0], garbage[2, 1], garbage[2, 3, 0] = math.nan, math.inf, -math.inf
    for reduction in ("mean", "sum", "none"):
        options = {"label_smoothing": smoothing, "reduction": reduction}
        upstream = randn(rng, 15) if reduction == "none" else randn(rng, 1)[0]
        loss, gradient = backward(
            lambda x, o=options: lab.cross_entropy(x, targets.clone(), **o), garbage, upstream
        )
        what = f"{reduction} with NaN and inf in ignored rows"
        near(loss, lambda o=options: reference_loss(logits, targets, **o), what)
        near(
            gradient[targets != -100],
            lambda o=options, u=upstream: backward(lambda x: reference_loss(x, targets, **o), logits, u)[1][
                targets != -100
            ],
            f"{what}: gradient of the other rows",
        )
    passed = garbage.clone()
    lab.cross_entropy(passed, targets.clone(), label_smoothing=smoothing)
    same(passed, lambda: garbage, "logits with NaN and inf after the call")
    logits[0, 0, 1] = math.nan
    for reduction in ("mean", "none"):
        options = {"label_smoothing": smoothing, "reduction": reduction}
        loss = lab.cross_entropy(logits.clone(), targets.clone(), **options)
        what = f"{reduction} with NaN in a row that counts"
        near(loss, lambda o=options: reference_loss(logits, targets, **o), what)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_with_nothing_valid(lab, rng, smoothing):
    """All ignored: mean NaN, sum 0, none zeros, and gradients of exactly 0 in each case."""
    logits, targets = randn(rng, 4, 3), torch.full((4,), -100)
    values = {"mean": torch.tensor(math.nan, dtype=F64), "sum": torch.tensor(0.0, dtype=F64)}
    for reduction in ("mean", "sum", "none"):
        upstream = randn(rng, 4) if reduction == "none" else randn(rng, 1)[0]
        options = {"label_smoothing": smoothing, "reduction": reduction}
        loss, gradient = backward(
            lambda x, o=options: lab.cross_entropy(x, targets.clone(), **o), logits, upstream
        )
        value = values.get(reduction, torch.zeros(4, dtype=F64))
        same(loss, lambda value=value: value, f"{reduction} when everything is ignored")
        zeros = torch.zeros(4, 3, dtype=F64)
        same(gradient, lambda zeros=zeros: zeros, f"gradient of that {reduction}")


def test_cross_entropy_contract(lab, rng):
    """Unknown reductions are refused, the arguments stay as they were, the dtype is the logits'."""
    logits, targets = randn(rng, 3, 5, 3), uneven_targets(rng, 3)
    for reduction in ("avg", "Mean", "me", ""):
        assert_raises(
            ValueError,
            lambda r=reduction: lab.cross_entropy(logits.clone(), targets.clone(), reduction=r),
            what=f"the reduction {reduction!r}",
        )
    passed_logits, passed_targets = logits.clone(), targets.clone()
    first = lab.cross_entropy(passed_logits, passed_targets, label_smoothing=0.1, reduction="none")
    lab.cross_entropy(2 * logits, targets.clone(), reduction="none")
    options = {"label_smoothing": 0.1, "reduction": "none"}
    near(first, lambda: reference_loss(logits, targets, **options), "losses after the next call")
    same(passed_logits, lambda: logits, "the logits after the call")
    assert_holds(not passed_logits.requires_grad, what="requires_grad of the logits is left as it was")
    same(passed_targets, lambda: targets, "the targets after the call")
    check_loss(lab, logits, targets, randn(rng, 1)[0], "mean with smoothing 1", label_smoothing=1.0)
    for dtype in (BF16, F16):
        for reduction in ("mean", "sum", "none"):
            loss = lab.cross_entropy(logits.to(dtype), targets.clone(), reduction=reduction)
            rough(
                loss,
                lambda r=reduction, d=dtype: reference_loss(logits, targets, reduction=r).to(d),
                f"{reduction} of {dtype} logits",
            )


# ------------------------------------------------------------------------------------ step 4: AdamW

SHAPES = [(3, 2), (4,), ()]


def adam_gradients(rng, steps, shapes=SHAPES):
    """Each entry keeps its own size, from 1e-8 to 10: the tiny ones show every placement of ε."""
    sizes = [10.0 ** torch.linspace(-8, 1, math.prod(shape), dtype=F64).reshape(shape) for shape in shapes]
    return [[size * randn(rng, *size.shape) for size in sizes] for _ in range(steps)]


def torch_adamw(starts, gradients, options):
    """The same run under torch.optim.AdamW, with a group for each parameter."""
    params = parameters(starts)
    optimizer = torch.optim.AdamW([{"params": [p]} for p in params])
    return run(optimizer, params, gradients, options)


def adamw_schedule(t, group):
    """A learning rate of 0 in between: such a step counts."""
    if group == 1:
        return {
            "lr": 0.03 * (t + 1),
            "betas": (0.3 + 0.1 * t, 0.9),
            "eps": 1e-7,
            "weight_decay": 0.5 - 0.1 * t,
        }
    return {
        "lr": 0.02 * (t - 2) ** 2,
        "betas": (0.9 - 0.1 * t, 0.99 - 0.05 * t),
        "eps": 1e-4 / (t + 1),
        "weight_decay": 0.1 * t,
    }


ADAMW = Subject(
    name="AdamW",
    build=lambda lab, params, options: lab.AdamW(params, **options),
    path=torch_adamw,
    options={"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1},
    schedule=adamw_schedule,
    exact={"lr": 8.0, "betas": (0.5, 0.75), "eps": 1e-8, "weight_decay": 1 / 16},
    shapes=SHAPES,
    gradients=adam_gradients,
)


def starts_of(subject, rng):
    return [randn(rng, *shape) for shape in subject.shapes]


def test_adamw_matches_torch_exactly(lab, rng):
    """8 steps of three parameters, with gradients from 1e-8 to 10, equal torch.optim.AdamW to 1e-10."""
    starts, gradients = starts_of(ADAMW, rng), adam_gradients(rng, 8)
    params = parameters(starts)
    path = run(lab.AdamW(params, 0.05, (0.9, 0.95), 1e-6, 0.1), params, gradients)
    options = {"lr": 0.05, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    ADAMW.follows(path, lambda: torch_adamw(starts, gradients, lambda t, i: options), "AdamW")


def test_weight_decay_is_decoupled(lab, rng):
    """Zero gradients: every weight shrinks by 1 − lr·wd a step. Decay comes first, on the old weight."""
    starts = starts_of(ADAMW, rng)
    params = parameters(starts)
    path = run(
        lab.AdamW(params, lr=0.1, weight_decay=0.2), params, [[torch.zeros_like(s) for s in starts]] * 4
    )
    shrunk = [[s * 0.98**t for s in starts] for t in range(5)]
    ADAMW.follows(
        path, lambda: [record(old, new) for old, new in pairwise(shrunk)], "AdamW on zero gradients"
    )
    p = nn.Parameter(starts[0].clone())
    gradient = randn(rng, 3, 2)
    run(lab.AdamW([p], lr=0.5, weight_decay=0.5, eps=1e-12), [p], [[gradient]])
    weight = p.detach()
    moved = 0.5 * gradient / (gradient.abs() + 1e-12)
    close(weight, lambda: 0.75 * starts[0] - moved, "weight after one step with lr = wd = 0.5")


def test_first_adam_step_has_magnitude_lr(lab, rng):
    """Without decay the first step is −lr · g / (|g| + ε), whatever the betas: half of lr at |g| = ε."""
    size = torch.tensor([0.0, 1e-10, 1e-8, 1e-6, 1e-2, 1.0, 50.0], dtype=F64)
    gradient = size * torch.where(randn(rng, 7) > 0, 1.0, -1.0)
    for betas in ((0.9, 0.999), (0.5, 0.7)):
        p = nn.Parameter(torch.zeros(7, dtype=F64))
        run(lab.AdamW([p], lr=0.3, betas=betas, weight_decay=0.0), [p], [[gradient]])
        step = p.detach()
        assert_matches(
            step,
            lambda: -0.3 * gradient / (size + 1e-8),
            atol=1e-15,
            rtol=1e-10,
            what=f"the first step with betas {betas}",
        )


def test_adamw_defaults(lab, rng):
    """lr 1e-3, betas (0.9, 0.999), eps 1e-8, weight_decay 1e-2; for weights of any number of dimensions."""
    shapes = [*SHAPES, (2, 3, 2), (2, 2, 3, 2)]
    starts, gradients = [randn(rng, *shape) for shape in shapes], adam_gradients(rng, 4, shapes)
    params = parameters(starts)
    path = run(lab.AdamW(params), params, gradients)
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
    what = "AdamW with its defaults"
    ADAMW.follows(path, lambda: torch_adamw(starts, gradients, lambda t, i: defaults), what)


@pytest.mark.parametrize("rule", ADAMW.rules)
def test_adamw_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](ADAMW, lab, rng)


# ------------------------------------------------------------------- step 5: Newton–Schulz and Muon

QUINTIC = (3.4445, -4.7750, 2.0315)
CUBIC = (1.5, -0.5, 0.0)
MATRICES = [(6, 2), (2, 5), (3, 3)]


def polynomial(G, steps=5, coefficients=QUINTIC, eps=1e-7):
    """Newton–Schulz as it acts on singular values: the odd polynomial, over and over."""
    U, s, Vh = torch.linalg.svd(G, full_matrices=False)
    a, b, c = coefficients
    s = s / (G.norm() + eps)
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return U @ torch.diag(s) @ Vh


def well_conditioned(rng, rows, columns):
    """No symmetry, no equal sides where they matter, and singular values between about 0.3 and 4."""
    n = min(rows, columns)
    core = torch.diag(torch.linspace(1, 3, n, dtype=F64)).roll(1, 0)
    G = 0.05 * randn(rng, rows, columns)
    G[:n, :n] += core
    return G


def muon_path(starts, gradients, options):
    """Muon on plain tensors; options(step, parameter) gives the five options."""
    weights, buffers, path = list(starts), [torch.zeros_like(start) for start in starts], []
    for t, row in enumerate(gradients):
        before = list(weights)
        for i, gradient in enumerate(row):
            if gradient is None:
                continue
            o = options(t, i)
            buffers[i] = o["momentum"] * buffers[i] + gradient
            look = gradient + o["momentum"] * buffers[i] if o["nesterov"] else buffers[i]
            rows, columns = before[i].shape
            move = math.sqrt(max(rows, columns) / columns) * polynomial(look, o["ns_steps"])
            weights[i] = before[i] - o["lr"] * (o["weight_decay"] * before[i] + move)
        path.append(record(before, list(weights)))
    return path


def muon_gradients(rng, steps, shapes=MATRICES, size=1e4):
    """By default so large that ε plays no part."""
    return [[size * randn(rng, *shape) for shape in shapes] for _ in range(steps)]


def muon_schedule(t, group):
    """A learning rate of 0 in between: momentum gathers all the same."""
    if group == 1:
        return {
            "lr": 0.1 * (t + 1),
            "momentum": 0.5,
            "nesterov": t % 2 == 1,
            "ns_steps": 6 - t,
            "weight_decay": 0.5,
        }
    return {
        "lr": 0.05 * (t - 2) ** 2,
        "momentum": 0.9 - 0.1 * t,
        "nesterov": t % 2 == 0,
        "ns_steps": 1 + t,
        "weight_decay": 0.1 * t,
    }


MUON = Subject(
    name="Muon",
    build=lambda lab, params, options: lab.Muon(params, **options),
    path=muon_path,
    options={"lr": 0.1, "momentum": 0.9, "nesterov": True, "ns_steps": 3, "weight_decay": 0.2},
    schedule=muon_schedule,
    exact={"lr": 8.0, "momentum": 0.5, "nesterov": True, "ns_steps": 0, "weight_decay": 1 / 16},
    shapes=MATRICES,
    gradients=muon_gradients,
    atol=NEAR["atol"],
    rtol=NEAR["rtol"],
)


@pytest.mark.parametrize("shape", [(8, 4), (3, 7), (6, 6)], ids=["tall", "wide", "square"])
def test_newton_schulz_cubic_converges_to_polar_factor(lab, rng, shape):
    """40 steps with (1.5, −0.5, 0) reach U Vᵀ of G = U S Vᵀ."""
    G = 100 * well_conditioned(rng, *shape)
    X = lab.newton_schulz(G.clone(), steps=40, coefficients=CUBIC)

    def polar():
        U, _, Vh = torch.linalg.svd(G, full_matrices=False)
        return U @ Vh

    assert_matches(X, polar, atol=1e-6, rtol=0.0, what=f"cubic Newton–Schulz of a {shape} matrix, 40 steps")


def test_newton_schulz_quintic_is_approximately_orthogonal(lab, rng):
    """Five default steps do to each singular value what the quintic does, and bring it to 0.68 … 1.14."""
    large = (between(rng, 17, 23), between(rng, 9, 15))
    for shape in ((7, 3), (3, 8), (5, 5), (1, 4), (3, 1), large):
        G = 30 * well_conditioned(rng, *shape)
        X = lab.newton_schulz(G.clone())
        near(X, lambda G=G: polynomial(G), f"quintic Newton–Schulz of a {shape} matrix")
        short = X if shape[0] <= shape[1] else X.T
        direction = randn(rng, min(shape))
        length = direction.square().sum().sqrt()
        stretch = float((direction @ short).square().sum().sqrt() / length)
        assert_within(stretch, 0.67, 1.14, what=f"how much a {shape} result stretches a unit vector")


def test_newton_schulz_obeys_its_arguments(lab, rng):
    """`steps`, `coefficients` and `eps` are what is used; ε is added to the norm; zero gives zero."""
    G = randn(rng, 4, 3)
    cases = [
        (G, 1, (2.0, -1.5, 0.5), 1e-7),
        (G, 0, QUINTIC, 1e-7),
        (G, 2, QUINTIC, 0.5),
        (G, 7, QUINTIC, 1e-7),
        (1e-7 * G.T, 3, QUINTIC, 1e-7),
    ]
    for matrix, steps, coefficients, eps in cases:
        X = lab.newton_schulz(matrix.clone(), steps, coefficients, eps)
        near(
            X,
            lambda m=matrix, s=steps, c=coefficients, e=eps: polynomial(m, s, c, e),
            f"Newton–Schulz with steps {steps}, coefficients {coefficients}, eps {eps:g}",
        )
    first = lab.newton_schulz(G.clone())
    lab.newton_schulz(randn(rng, 4, 3))
    near(first, lambda: polynomial(G), "a result of Newton–Schulz after the next call")
    small = 1e-7 * G
    X = lab.newton_schulz(small.clone(), steps=3)
    near(X, lambda: polynomial(small, 3), "Newton–Schulz with the default eps")
    X = lab.newton_schulz(torch.zeros(3, 2, dtype=F64))
    same(X, lambda: torch.zeros(3, 2, dtype=F64), "Newton–Schulz of zeros")


def test_newton_schulz_keeps_dtype_and_input(lab, rng):
    """The result has the dtype of G, in which it is computed, and G is not written to."""
    for shape in MATRICES:
        G = well_conditioned(rng, *shape)
        passed = G.clone()
        lab.newton_schulz(passed)
        same(passed, lambda G=G: G, f"the {shape} input of newton_schulz after the call")
    P = signed_permutation(rng)
    for dtype in (F32, BF16, F16):  # 4 P / 8 = P / 2, and 1.5 / 2 − 0.5 / 8 = 0.6875: exact in 8 bits
        passed = (4 * P).to(dtype)
        X = lab.newton_schulz(passed, 1, CUBIC)
        assert_matches(
            X, lambda d=dtype: (0.6875 * P).to(d), atol=1e-3, rtol=0.0, what=f"Newton–Schulz in {dtype}"
        )
        same(passed, lambda d=dtype: (4 * P).to(d), f"the {dtype} input of newton_schulz after the call")


@pytest.mark.parametrize("nesterov", [True, False], ids=["nesterov", "plain"])
def test_muon_matches_its_formula(lab, rng, nesterov):
    """Six steps of a tall, a wide and a square matrix, with decay, follow the formula term by term."""
    starts, gradients = starts_of(MUON, rng), muon_gradients(rng, 6)
    options = {**MUON.options, "nesterov": nesterov}
    params = parameters(starts)
    path = run(lab.Muon(params, 0.1, 0.9, nesterov, 3, 0.2), params, gradients)
    MUON.follows(path, lambda: muon_path(starts, gradients, lambda t, i: options), "Muon")


def test_muon_reduces_loss(lab, rng):
    """Least squares, gradients from the weights themselves: the path is the formula's, the loss falls."""
    target, start = randn(rng, 6, 4), torch.zeros(6, 4, dtype=F64)
    curvature = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=F64)
    rates = [0.4 * (1 - t / 20) for t in range(20)]

    def loss(w):
        return ((w - target).square() * curvature).sum()

    p = nn.Parameter(start.clone())
    optimizer = lab.Muon([p], momentum=0.8)
    weights = []
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        p.grad = 2 * (p.detach() - target) * curvature
        optimizer.step()
        weights.append(p.detach().clone())

    def after_five_steps():
        w, b = start, torch.zeros_like(start)
        for rate in rates[:5]:
            g = 2 * (w - target) * curvature
            b = 0.8 * b + g
            w = w - rate * math.sqrt(1.5) * polynomial(g + 0.8 * b)
        return w

    assert_matches(weights[4], after_five_steps, atol=1e-6, rtol=0.0, what="the weight after 5 steps of Muon")
    left = float(loss(weights[-1]) / loss(start))
    assert_within(left, 0.0, 0.2, what="share of the loss left after 20 steps of Muon")


def test_muon_defaults(lab, rng):
    """lr 0.02, momentum 0.95, Nesterov, 5 steps, no decay; and newton_schulz's ε: tiny gradients show it."""
    starts, gradients = starts_of(MUON, rng), muon_gradients(rng, 4, size=1e-6)
    defaults = {"lr": 0.02, "momentum": 0.95, "nesterov": True, "ns_steps": 5, "weight_decay": 0.0}
    params = parameters(starts)
    path = run(lab.Muon(params), params, gradients)
    what = "Muon with its defaults"
    MUON.follows(path, lambda: muon_path(starts, gradients, lambda t, i: defaults), what)


@pytest.mark.parametrize("shape", [(3,), (), (3, 2, 1), (4, 3, 2, 2)], ids=["1-d", "0-d", "3-d", "4-d"])
def test_muon_refuses_what_is_no_matrix(lab, rng, shape):
    """A parameter that isn't 2-D, in any group, even without gradient: ValueError at the latest in `step`."""
    good, bad = randn(rng, 3, 2), randn(rng, *shape)

    def step(way, gradient):
        matrix, other = parameters([good, bad])
        matrix.grad, other.grad = good.clone(), gradient
        optimizer = lab.Muon(way(matrix, other))
        if len(optimizer.param_groups) == 1 and len(optimizer.param_groups[0]["params"]) == 1:
            optimizer.step()
            optimizer.add_param_group({"params": [other]})
        optimizer.step()

    ways = {
        "beside a matrix": lambda matrix, other: [matrix, other],
        "in a second group": lambda matrix, other: [{"params": [matrix]}, {"params": [other]}],
        "by add_param_group": lambda matrix, other: [matrix],
    }
    for name, way in ways.items():
        for gradient in (bad.clone(), None):
            what = f"a {shape} parameter {name}, {'without' if gradient is None else 'with'} gradient"
            assert_raises(ValueError, lambda way=way, g=gradient: step(way, g), what=what)


@pytest.mark.parametrize("rule", MUON.rules)
def test_muon_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](MUON, lab, rng)


# -------------------------------------------------------------------------------- step 6: schedules


def warmup_rates(max_lr, warmup_steps):
    return [max_lr * s / warmup_steps for s in range(1, warmup_steps + 1)]


def cosine_rates(max_lr, min_lr, warmup, total):
    """Piece by piece; cos² of half the angle is the other way to write (1 + cos) / 2."""
    rates = warmup_rates(max_lr, warmup)
    for s in range(total - warmup):
        share = math.cos(math.pi / 2 * s / (total - warmup)) ** 2
        rates.append(share * max_lr + (1 - share) * min_lr)
    return rates[:total] + [float(min_lr)] * (total + 2)


def wsd_rates(max_lr, min_lr, warmup, total, decay_frac=0.2):
    decay = int(decay_frac * total)
    falling = [((decay - i) * max_lr + i * min_lr) / decay for i in range(decay)]
    rates = [float(max_lr)] * (total - decay) + falling
    rates[:warmup] = warmup_rates(max_lr, warmup)
    return rates[:total] + [float(min_lr)] * (total + 2)


NAMES = ("max_lr", "min_lr", "warmup_steps", "total_steps", "decay_frac")


def check_schedule(schedule, oracle, arguments, what):
    """The whole list of rates, to beyond twice the planned end."""
    total = arguments[3]
    rates = [schedule(step, *arguments) for step in range(2 * total + 2)]
    named = dict(zip(NAMES, arguments, strict=False))
    said = ", ".join(f"{name} {value:.4g}" for name, value in named.items())
    close(rates, lambda: oracle(*arguments), f"{what}{said}")
    first = schedule(step=0, **named)
    close(first, lambda: oracle(*arguments)[0], f"step 0 of that, arguments by name: {said}")


def test_cosine_schedule_shape(lab, rng):
    """Warm-up from 0 to max_lr at step w − 1, half a cosine wave to min_lr (or up to it) at T and after."""
    high, low, w = number(rng), number(rng, 0.05, 0.2), between(rng, 4, 7)
    for arguments in ((high, low, w, w + 12), (0.3 * high, 0.0, 2 * w, 60), (low, high, 2, 9)):
        check_schedule(lab.lr_cosine, cosine_rates, arguments, "lr_cosine, all steps of ")


def test_cosine_without_warmup_or_decay(lab, rng):
    """`warmup_steps` may be 0, `total_steps` or more: the end beats the warm-up."""
    high, low = number(rng), number(rng, 0.05, 0.2)
    for arguments in ((high, low, 0, 7), (high, low, 6, 6), (high, low, 8, 5), (high, low, 0, 1)):
        check_schedule(lab.lr_cosine, cosine_rates, arguments, "lr_cosine, all steps of ")


def test_wsd_schedule_shape(lab, rng):
    """Warm-up, max_lr until T − int(decay_frac · T), linear to min_lr at T and after; decay_frac is 0.2."""
    high, low, w = number(rng), number(rng, 0.05, 0.2), between(rng, 3, 6)
    for arguments in ((high, low, w, 50), (0.7 * high, 2 * low, w, 30, 0.5), (2 * high, 0.0, 1, 100, 0.29)):
        check_schedule(lab.lr_wsd, wsd_rates, arguments, "lr_wsd, all steps of ")


def test_wsd_phases_may_overlap_or_vanish(lab, rng):
    """No warm-up, only warm-up, no decay, only decay: warm-up beats decay, "at and after T" beats both."""
    high, low = number(rng), number(rng, 0.05, 0.2)
    for arguments in (
        (high, low, 0, 10, 0.3),
        (high, low, 8, 8, 0.5),
        (high, low, 4, 10, 1.0),
        (high, low, 7, 10, 0.6),
        (high, low, 2, 10, 0.0),
        (high, low, 1, 4, 0.2),
        (high, low, 8, 5, 0.4),
        (low, high, 2, 10, 0.5),
    ):
        check_schedule(lab.lr_wsd, wsd_rates, arguments, "lr_wsd, all steps of ")


def test_schedules_return_floats(lab, rng):
    """Integer rates give floats too, in every phase."""
    high = between(rng, 3, 9)
    check_schedule(lab.lr_cosine, cosine_rates, (high, 1, 2, 9), "lr_cosine, all steps of ")
    check_schedule(lab.lr_wsd, wsd_rates, (high, 1, 2, 10, 0.5), "lr_wsd, all steps of ")


# ---------------------------------------------------------------- step 7: clipping and accumulation


def with_gradients(gradients):
    """Parameters of ones with these gradients; None: no gradient."""
    params = []
    for gradient in gradients:
        params.append(nn.Parameter(torch.ones(4 if gradient is None else gradient.shape, dtype=F64)))
        params[-1].grad = None if gradient is None else gradient.clone()
    return params


def torch_clip(gradients, max_norm):
    """The norm that torch returns, and the gradients that it leaves."""
    params = with_gradients(gradients)
    norm = nn.utils.clip_grad_norm_(params, max_norm)
    return norm, [p.grad for p in params]


def check_clip(lab, gradients, max_norm, what, pack=list):
    """Norm, gradients in their own memory, the identity of p.grad, the weights."""
    params = with_gradients(gradients)
    held = [p.grad for p in params]
    memory = [None if p.grad is None else p.grad.detach() for p in params]
    norm = lab.clip_grad_norm_(pack(params), max_norm)
    close(norm, lambda: torch_clip(gradients, max_norm)[0], f"{what}: the norm returned")
    assert_holds(not norm.requires_grad, what="the norm returned carries no graph")
    for i, (p, gradient) in enumerate(zip(params, held, strict=True)):
        assert_holds(p.grad is gradient, what=f"{what}: p.grad is changed in place")
        if gradient is not None:
            close(memory[i], lambda i=i: torch_clip(gradients, max_norm)[1][i], f"{what}: gradient {i}")
        assert_holds(bool((p == 1).all()), what="weights are left alone")


def test_clip_grad_norm_matches_torch(lab, rng):
    """One 2-norm over all gradients, one factor for all; the norm before clipping comes back."""
    gradients = [strided(2 * randn(rng, 3, 2)), None, randn(rng, 4), 5 + randn(rng, 1)[0].square()]
    for max_norm in (number(rng, 0.2, 0.4), 1e-5, number(rng, 1.0, 2.0), 0.0):
        check_clip(lab, gradients, max_norm, f"clipping to {max_norm:g}")
    known = [torch.tensor([3.0, 4.0], dtype=F64), torch.tensor([0.0, 12.0], dtype=F64)]
    check_clip(lab, known, 1.0, "clipping (3, 4) and (0, 12) to 1")


def test_clip_is_noop_below_threshold(lab, rng):
    """A norm below max_norm leaves every bit of the gradients, whatever their size."""
    for size in (1e-3, 1.0):
        gradients = [size * randn(rng, 3, 2), None, size * randn(rng, 4)]
        params = with_gradients(gradients)
        lab.clip_grad_norm_(params, 100.0)
        for i, p in enumerate(params):
            if p.grad is not None:
                same(p.grad, lambda g=gradients[i]: g, f"gradient {i}, norm below max_norm")
        check_clip(lab, gradients, 100.0, "clipping to far more than the norm")
    zero = [torch.zeros(3, dtype=F64)]
    check_clip(lab, zero, 1.0, "clipping zeros")


def test_clip_scales_a_norm_equal_to_max_norm(lab, rng):
    """The factor is max_norm / (norm + 1e-6): a norm equal to max_norm is scaled a little, as in torch."""
    size = 1.0 + between(rng, 0, 7) / 8  # exact in binary, and so are its products with 3, 4 and 5
    legs = size * torch.tensor([3.0, -4.0], dtype=F64)
    check_clip(lab, [legs], 5 * size, f"norm and max_norm {5 * size:g}")
    for factor in (5.0, 5.5):
        max_norm = factor * size * 1e-6
        check_clip(lab, [1e-6 * legs], max_norm, f"norm {5e-6 * size:.3g}, max_norm {max_norm:.3g}")


def test_clip_takes_any_iterable(lab, rng):
    """A generator (walked once), a tuple, or a single tensor."""
    gradients = [3 * randn(rng, 3, 2), 2 * randn(rng, 4)]
    check_clip(lab, gradients, 0.5, "clipping a generator", pack=iter)
    check_clip(lab, gradients, 0.5, "clipping a tuple", pack=tuple)
    for single in (torch.tensor([[3.0, 4.0]] * 4, dtype=F64), torch.tensor(-3.0, dtype=F64)):
        what = f"clipping one tensor of shape {tuple(single.shape)}"
        check_clip(lab, [single], 0.5, what, pack=lambda params: params[0])
    plain = torch.ones(2, dtype=F64, requires_grad=True)
    plain.grad = torch.tensor([3.0, 4.0], dtype=F64)
    norm = lab.clip_grad_norm_(plain, 1.0)
    close(norm, lambda: torch.tensor(5.0, dtype=F64), "the norm of one tensor that is no Parameter")


def test_clip_of_nothing_is_zero(lab):
    """No parameters, or none with a gradient: tensor 0.0."""
    nothing = {
        "no parameters": [],
        "a generator of none": iter([]),
        "no gradients": with_gradients([None, None]),
        "one tensor without gradient": nn.Parameter(torch.ones(2, 2)),
    }
    for name, params in nothing.items():
        norm = lab.clip_grad_norm_(params, 1.0)
        zero = isinstance(norm, torch.Tensor) and norm.ndim == 0 and norm.is_floating_point()
        assert_holds(zero, what=f"{name}: a 0-d floating-point tensor is returned")
        same(float(norm), lambda: 0.0, f"the norm of {name}")


def test_clip_keeps_the_dtype(lab, rng):
    """16-bit gradients give a norm of their dtype and keep it."""
    gradient = 3 * randn(rng, 4, 3)
    for dtype in (F32, BF16, F16):
        p = nn.Parameter(torch.ones(4, 3, dtype=dtype))
        p.grad = gradient.to(dtype)
        norm = lab.clip_grad_norm_([p], 1.0)
        rough(norm, lambda d=dtype: gradient.norm().to(d), f"the norm of a {dtype} gradient")
        rough(p.grad, lambda d=dtype: (gradient / gradient.norm()).to(d), f"a {dtype} gradient, clipped")


def test_clip_records_nothing(lab, rng):
    """Gradients that carry a graph give a norm without one."""
    p = nn.Parameter(1 + randn(rng, 3).square())
    p.grad = torch.autograd.grad((p**3).sum(), p, create_graph=True)[0]
    norm = lab.clip_grad_norm_([p], 0.1)
    assert_holds(not norm.requires_grad, what="the norm of gradients with a graph carries none")


class Model(nn.Module):
    """Two layers and three classes; writes down when it runs forward and backward."""

    def __init__(self, inner, outer):
        super().__init__()
        self.inner, self.outer = nn.Parameter(inner.clone()), nn.Parameter(outer.clone())
        self.events: list[str] = []
        self.outer.register_hook(lambda gradient: self.events.append("backward"))

    def forward(self, x):
        self.events.append("forward")
        return torch.tanh(x @ self.inner) @ self.outer


def pieces(rng, ignore_index=-100):
    """Micro-batches of different shapes with 3, 1, 0 and 7 valid targets."""
    shapes_and_counts = (((2, 3), 3), ((1, 4), 1), ((2, 2), 0), ((7,), 7))
    batches = []
    for shape, count in shapes_and_counts:
        y = torch.randint(3, (math.prod(shape),), generator=rng)
        y[y == ignore_index] = 2 if ignore_index != 2 else 0
        y[torch.randperm(len(y), generator=rng)[count:]] = ignore_index
        batches.append((randn(rng, *shape, 4), y.reshape(shape)))
    return batches


def full_batch(weights, batches, ignore_index=-100):
    """Loss and gradients of everything at once."""
    model = Model(*weights)
    x = torch.cat([x.reshape(-1, 4) for x, _ in batches])
    y = torch.cat([y.reshape(-1) for _, y in batches])
    loss = functional.cross_entropy(model(x), y, ignore_index=ignore_index)
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()]


def check_accumulation(lab, rng, batches, what, pack=list, training=True, **options):
    """Gradients are added to those already there; the loss is the full batch's mean over valid tokens."""
    weights = [randn(rng, 4, 5), randn(rng, 5, 3)]
    there = [randn(rng, 4, 5), randn(rng, 5, 3)]
    model = Model(*weights).train(training)
    passed = [(x.clone(), y.clone()) for x, y in batches]
    for p, gradient in zip(model.parameters(), there, strict=True):
        p.grad = gradient.clone()
    loss = lab.accumulate_gradients(model, pack(passed), **options)
    for i, p in enumerate(model.parameters()):
        near(
            p.grad,
            lambda i=i: there[i] + full_batch(weights, batches, **options)[1][i],
            f"{what}: gradient {i}, added to the one that was there",
        )
    near(loss, lambda: full_batch(weights, batches, **options)[0], f"{what}: the loss returned")
    assert_holds(not loss.requires_grad, what=f"{what}: the loss returned is detached")
    assert_holds(model.training is training, what=f"{what}: the model stays in its mode")
    for (x, y), (given_x, given_y) in zip(batches, passed, strict=True):
        same(given_x, lambda x=x: x, f"{what}: x after the call")
        same(given_y, lambda y=y: y, f"{what}: y after the call")
        assert_holds(not given_x.requires_grad, what=f"{what}: x needs no gradient after the call")


def test_accumulation_equals_full_batch_with_uneven_masks(lab, rng):
    """Pieces of different shapes, with 3, 1, 0 and 7 valid tokens, give the gradients of one batch of 11."""
    check_accumulation(lab, rng, pieces(rng), "accumulation")
    check_accumulation(lab, rng, pieces(rng)[1:2], "accumulation of one micro-batch", training=False)


def test_accumulation_walks_its_micro_batches_once(lab, rng):
    """A generator of micro-batches works like a list."""
    check_accumulation(lab, rng, pieces(rng), "accumulation over a generator", pack=iter)


@pytest.mark.parametrize("ignore_index", [-1, 0, 1], ids=["minus-one", "class-0", "a-class"])
def test_accumulation_obeys_ignore_index(lab, rng, ignore_index):
    """`ignore_index` decides both what is counted and what is summed."""
    batches = pieces(rng, ignore_index)
    check_accumulation(lab, rng, batches, f"ignore_index {ignore_index}", ignore_index=ignore_index)


class Saved:
    """A tensor that autograd keeps for a backward; it dies with the graph."""

    def __init__(self, tensor):
        self.tensor = tensor


def test_accumulation_holds_one_graph_at_a_time(lab, rng):
    """One forward and one backward a micro-batch, which frees its graph: memory of one micro-batch."""
    batches = [batch for batch in pieces(rng) if (batch[1] != -100).any()]
    model = Model(randn(rng, 4, 5), randn(rng, 5, 3))
    alive: weakref.WeakSet[Saved] = weakref.WeakSet()
    left_over: list[int] = []

    def save(tensor):
        saved = Saved(tensor.detach())  # attached, an operation's result would hold its own graph
        alive.add(saved)
        return saved

    def call(x):
        left_over.append(len(alive))
        return model(x)

    with torch.autograd.graph.saved_tensors_hooks(save, lambda saved: saved.tensor):
        lab.accumulate_gradients(call, batches)
    in_turn = model.events == ["forward", "backward"] * len(batches)
    assert_holds(in_turn, what="forward and backward take turns, one of each a micro-batch")
    assert_holds(not any(left_over), what="no graph of an earlier micro-batch is alive in a forward")


def test_accumulation_keeps_the_dtype(lab, rng):
    """A bfloat16 model's loss is bfloat16."""
    weights, batches = [randn(rng, 4, 5), randn(rng, 5, 3)], pieces(rng)
    model = Model(*(w.to(BF16) for w in weights))
    loss = lab.accumulate_gradients(model, [(x.to(BF16), y.clone()) for x, y in batches])
    rough(loss, lambda: full_batch(weights, batches)[0].to(BF16), "the loss of a bfloat16 model")


def test_accumulation_with_nothing_valid(lab, rng):
    """All ignored: the loss is NaN, and 0 is added to the gradients: where there was none, zeros."""
    batches = [(x, torch.full_like(y, -100)) for x, y in pieces(rng)[:2]]
    weights, there = [randn(rng, 4, 5), randn(rng, 5, 3)], [randn(rng, 4, 5), randn(rng, 5, 3)]
    for before in (there, [None, None]):
        model = Model(*weights)
        for p, gradient in zip(model.parameters(), before, strict=True):
            p.grad = None if gradient is None else gradient.clone()
        loss = lab.accumulate_gradients(model, batches)
        same(loss, lambda: torch.tensor(math.nan, dtype=F64), "the loss of nothing")
        for p, gradient, w in zip(model.parameters(), before, weights, strict=True):
            what = f"a gradient after a batch of nothing, {'none' if gradient is None else 'one'} before"
            same(p.grad, lambda g=gradient, w=w: torch.zeros_like(w) if g is None else g, what)
