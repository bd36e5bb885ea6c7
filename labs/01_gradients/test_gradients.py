"""Tests of lab 01, gradients. A test's docstring states the rule that it judges.

`lab` is the module under test. All inputs come from `rng`. Expected values come from torch, from closed forms
or from slow transcriptions of the page's formulas; they are functions, called after the code under test.
"""

import copy
import math
import re
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction
from torch.nn import functional

from grader.checks import assert_holds, assert_matches, assert_raises
from grader.lab_inputs import between, number, randn, same, strided

F64, F32 = torch.float64, torch.float32
SHAPES = [(), (1,), (6,), (3, 4), (2, 3, 4), (0, 3)]


def close(actual, expected, what):
    """Equal but for a few roundings."""
    assert_matches(actual, expected, atol=1e-12, rtol=1e-12, what=what)


def near(actual, expected, what):
    """Equal after a longer calculation."""
    assert_matches(actual, expected, atol=1e-10, rtol=1e-10, what=what)


def single(actual, expected, what):
    """Equal as far as float32 goes."""
    assert_matches(actual, expected, atol=1e-5, rtol=1e-5, what=what)


def expanded(x):
    """Three rows that are one row in memory."""
    return x.expand(3, *x.shape)


def leaf(x):
    """A tensor of its own with these values, in the same memory order, that requires grad."""
    return copy.deepcopy(x.detach()).requires_grad_()


def backward(function, inputs, upstream):
    """The output and the gradients of all inputs, under an upstream gradient that isn't constant."""
    leaves = [leaf(x) for x in inputs]
    output = function(*leaves)
    return output.detach(), torch.autograd.grad(output, leaves, upstream.clone())


def backward_twice(function, inputs, upstream, weights):
    """The gradients of Σ weights · gradient, with respect to the inputs and to the upstream gradient."""
    leaves, up = [leaf(x) for x in inputs], leaf(upstream)
    first = torch.autograd.grad(function(*leaves), leaves, up, create_graph=True)
    total = sum((w * g).sum() for w, g in zip(weights, first, strict=True))
    return torch.autograd.grad(total, [*leaves, up], allow_unused=True, materialize_grads=True)


# How the names of autograd's nodes begin that move, repeat, choose or cast entries, and calculate nothing.
REARRANGING = re.compile(
    "AccumulateGrad|Alias|AsStrided|BlockDiag|Cat|Chunk|Clone|ConstantPad|Contiguous|Copy|Diagonal|Expand|Flip|"
    "Gather|IndexBackward|IndexCopy|IndexPut|IndexSelect|MaskedScatter|MaskedSelect|Narrow|Permute|Repeat|"
    "ReshapeAlias|Roll|Rot90|ScatterBackward|Select|Slice|Split|Squeeze|Stack|TBackward|Take|ToCopy|Transpose|"
    "Unbind|Unfold|UnsafeSplit|UnsafeView|Unsqueeze|View"
)


def by_hand(output):
    """Whether one Function made it, and nothing else in its graph calculates; if not, what is there."""
    nodes, todo = {}, [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and id(node) not in nodes:
            nodes[id(node)] = node
            todo += [before for before, _ in node.next_functions]
    custom = [node for node in nodes.values() if isinstance(node, BackwardCFunction)]
    names = {type(node).__name__ for node in nodes.values() if not isinstance(node, BackwardCFunction)}
    wrong = sorted(name for name in names if not REARRANGING.match(name))
    if len(custom) == 1 and not wrong:
        return True, ""
    count = f"{len(custom)} Function{'' if len(custom) == 1 else 's'} of your own"
    return False, f"; found here: {' and '.join([count, *wrong])}"


def check_by_hand(function, inputs, name):
    """Its graph is one Function; without a gradient to record there is none; what comes in stays."""
    leaves = [leaf(x) for x in inputs]
    output = function(*leaves)
    kept, found = by_hand(output)
    around = "around it only what rearranges (views, stack, cat, indexing, casts), no MulBackward, …"
    assert_holds(kept, what=f"{name} is one autograd.Function with its own backward, {around}{found}")
    shape = inputs[0].shape
    upstream = torch.full(shape, 1.5, dtype=F64)
    torch.autograd.grad(output, leaves, upstream)
    same(
        upstream,
        lambda: torch.full(shape, 1.5, dtype=F64),
        f"upstream gradient after {name}'s backward",
    )
    given = [x.clone() for x in inputs]
    output = function(*given)
    assert_holds(not output.requires_grad, what=f"{name} of inputs that require no gradient requires none")
    for i, (x, passed) in enumerate(zip(inputs, given, strict=True)):
        same(passed, lambda x=x: x, f"input {i} after {name}")


def check_against(function, oracle, inputs, rng, what, judge=close):
    """Value and gradients under a random upstream gradient equal those of the oracle."""
    upstream = randn(rng, *torch.broadcast_shapes(*(x.shape for x in inputs))).to(inputs[0].dtype)
    value, gradients = backward(function, inputs, upstream)
    judge(value, lambda: oracle(*inputs), what)
    for i, gradient in enumerate(gradients):
        said = f", input {i}" if len(inputs) > 1 else ""
        judge(gradient, lambda i=i: backward(oracle, inputs, upstream)[1][i], f"gradient of {what}{said}")


def check_shapes(function, oracle, rng, name, count=1):
    """Any shape and any layout."""
    for shape in SHAPES:
        inputs = [2 * randn(rng, *shape) for _ in range(count)]
        check_against(function, oracle, inputs, rng, f"{name} of shape {shape}")
    inputs = [strided(randn(rng, 3, 4)) for _ in range(count)]
    check_against(function, oracle, inputs, rng, f"{name} of a transposed matrix")
    inputs = [expanded(randn(rng, 4)) for _ in range(count)]
    check_against(function, oracle, inputs, rng, f"{name} of an expanded row")


def check_float32(function, oracle, inputs, rng, name):
    """float32 in, float32 out, value and gradients."""
    inputs = [x.to(F32) for x in inputs]
    exact = [x.to(F64) for x in inputs]
    upstream = randn(rng, *inputs[0].shape).to(F32)
    value, gradients = backward(function, inputs, upstream)
    single(value, lambda: oracle(*exact).to(F32), f"{name} in float32")
    for i, gradient in enumerate(gradients):
        single(
            gradient,
            lambda i=i: backward(oracle, exact, upstream.to(F64))[1][i].to(F32),
            f"gradient of {name} in float32, input {i}",
        )


# -------------------------------------------------------------------- step 1: four simple activations


def lecun_tanh_oracle(x):
    return 1.7159 * torch.tanh(2 * x / 3)


def lisht_oracle(x):
    return x * torch.tanh(x)


def spread(rng, count=24):
    """Numbers of both signs from 1e-3 to 30, none of them 0."""
    size = 10 ** (4.5 * torch.rand(count, generator=rng, dtype=F64) - 3)
    return size * torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0).to(F64)


def test_leaky_relu_matches_torch(lab, rng):
    """x where x > 0, else slope · x, for any slope: the default, 0, negative, above 1."""
    x = spread(rng)
    check_against(lab.leaky_relu, functional.leaky_relu, [x], rng, "leaky_relu with its default slope")
    for slope in (number(rng, 0.1, 0.3), 0.0, -number(rng), 1 + number(rng)):
        check_against(
            lambda x, slope=slope: lab.leaky_relu(x, slope),
            lambda x, slope=slope: functional.leaky_relu(x, slope),
            [x],
            rng,
            f"leaky_relu with slope {slope:.3g}",
        )
    slope = number(rng, 0.1, 0.3)
    value = lab.leaky_relu(x=x.clone(), negative_slope=slope)
    close(value, lambda: functional.leaky_relu(x, slope), "leaky_relu, arguments by name")


def test_leaky_relu_derivative_at_zero_is_the_slope(lab, rng):
    """At exactly 0, and at −0, the derivative is the slope."""
    for slope in (number(rng, 0.1, 0.3), 1 + number(rng), -number(rng), 0.0):
        x, upstream = torch.tensor([0.0, -0.0, 0.0, -0.0], dtype=F64), randn(rng, 4)
        value, (gradient,) = backward(lambda x, slope=slope: lab.leaky_relu(x, slope), [x], upstream)
        same(value, lambda: torch.zeros(4, dtype=F64), "leaky_relu of zeros")
        close(gradient, lambda s=slope, u=upstream: s * u, f"gradient of leaky_relu at 0, slope {slope:.3g}")


def test_lecun_tanh_matches_its_formula(lab, rng):
    """1.7159 · tanh(2x/3) and its derivative."""
    check_against(lab.lecun_tanh, lecun_tanh_oracle, [spread(rng)], rng, "lecun_tanh")
    x = randn(rng, 3)
    close(lab.lecun_tanh(x=x.clone()), lambda: lecun_tanh_oracle(x), "lecun_tanh, argument by name")


def test_lisht_matches_its_formula(lab, rng):
    """x · tanh(x) and its derivative: an even function."""
    check_against(lab.lisht, lisht_oracle, [spread(rng)], rng, "lisht")
    x = randn(rng, 3)
    close(lab.lisht(x=x.clone()), lambda: lisht_oracle(x), "lisht, argument by name")


def test_lecun_tanh_inverse_undoes_lecun_tanh(lab, rng):
    """1.5 · atanh(y / 1.7159); back at x to 1e-12 for abs(x) ≤ 5; any shape; float32 stays float32."""
    x = 10 * torch.rand(40, generator=rng, dtype=F64) - 5
    back = lab.lecun_tanh_inverse(lecun_tanh_oracle(x)).detach()
    assert_matches(
        back, lambda: x, atol=1e-12, rtol=0.0, what="lecun_tanh_inverse of 1.7159·tanh(2x/3), up to 5"
    )
    for shape in SHAPES:
        y = 1.6 * torch.tanh(randn(rng, *shape))
        close(
            lab.lecun_tanh_inverse(y.clone()).detach(),
            lambda y=y: torch.tensor([1.5 * math.atanh(v / 1.7159) for v in y.flatten()], dtype=F64).view(
                y.shape
            ),
            f"lecun_tanh_inverse of shape {shape}",
        )
    y = strided(torch.tanh(randn(rng, 3, 4)))
    given = y.clone()
    close(
        lab.lecun_tanh_inverse(y=given).detach(), lambda: 1.5 * torch.atanh(y / 1.7159), "of a transposed y"
    )
    same(given, lambda: y, "y after lecun_tanh_inverse")
    small = y.to(F32)
    exact = small.to(F64)
    single(
        lab.lecun_tanh_inverse(small).detach(),
        lambda: (1.5 * torch.atanh(exact / 1.7159)).to(F32),
        "lecun_tanh_inverse in float32",
    )


def test_lecun_tanh_inverse_clamps_nothing(lab, rng):
    """±1.7159 gives ±inf, beyond it NaN."""
    ends = torch.tensor([1.7159, -1.7159], dtype=F64)[torch.randperm(2, generator=rng)]
    found = lab.lecun_tanh_inverse(ends.clone()).detach()
    same(found, lambda: ends.sign() * math.inf, "lecun_tanh_inverse at the ends")
    beyond = 1.7159 + number(rng, 0.01, 3.0)
    found = lab.lecun_tanh_inverse(torch.tensor([beyond, -beyond], dtype=F64)).detach()
    same(found, lambda: torch.full((2,), math.nan, dtype=F64), "lecun_tanh_inverse beyond the ends")


SIMPLE = [
    ("leaky_relu", functional.leaky_relu),
    ("lecun_tanh", lecun_tanh_oracle),
    ("lisht", lisht_oracle),
]
simple = pytest.mark.parametrize(("name", "oracle"), SIMPLE, ids=[name for name, _ in SIMPLE])


@simple
def test_simple_activations_take_any_shape(lab, rng, name, oracle):
    """No dimensions, many, no entries; transposed and expanded memory."""
    check_shapes(getattr(lab, name), oracle, rng, name)


@simple
def test_simple_activations_keep_float32(lab, rng, name, oracle):
    """Value and gradient have the dtype of the input."""
    check_float32(getattr(lab, name), oracle, [2 * randn(rng, 8)], rng, name)


@simple
def test_simple_activations_are_functions_by_hand(lab, rng, name, oracle):
    """One Function each; the input is left as it was."""
    check_by_hand(getattr(lab, name), [randn(rng, 3, 4)], name)


# ------------------------------------------------------------------------------------- step 2: Mish


def exact_mish(x):
    """x · tanh(log(1 + eˣ)) in a hundred digits, as it is written."""
    twice = (2 * (1 + x.exp()).ln()).exp()
    return x * (twice - 1) / (twice + 1)


def mish_table(x):
    """Mish and its derivative at each entry; the derivative is a central difference with a step of 1e-30."""
    values, derivatives = [], []
    with localcontext() as context:
        context.prec = 100
        context.Emax, context.Emin = 999_999, -999_999
        h = Decimal(10) ** -30
        for entry in x.flatten().tolist():
            at = Decimal(entry)
            values.append(float(exact_mish(at)))
            derivatives.append(float((exact_mish(at + h) - exact_mish(at - h)) / (2 * h)))
    return torch.tensor(values, dtype=F64).view(x.shape), torch.tensor(derivatives, dtype=F64).view(x.shape)


def test_mish_matches_torch(lab, rng):
    """x · tanh(softplus(x)) and its derivative."""
    check_against(lab.mish, functional.mish, [2 * randn(rng, 24)], rng, "mish")
    x = randn(rng, 3)
    close(lab.mish(x=x.clone()), lambda: functional.mish(x), "mish, argument by name")


def test_mish_is_right_far_out(lab, rng):
    """Value and derivative from −1000 to 1000, where eˣ has long overflowed."""
    sizes = torch.tensor([6.0, 8.0, 15.0, 25.0, 40.0, 100.0, 350.0, 700.0, 720.0, 1000.0], dtype=F64)
    x = torch.cat([sizes, -sizes])
    x = x * torch.where(x.abs() < 1000, 1 - 0.02 * torch.rand(x.shape, generator=rng, dtype=F64), 1.0)
    upstream = randn(rng, *x.shape)
    value, (gradient,) = backward(lab.mish, [x], upstream)
    close(value, lambda: mish_table(x)[0], "mish from −1000 to 1000")
    close(gradient, lambda: mish_table(x)[1] * upstream, "gradient of mish from −1000 to 1000")


def test_mish_keeps_its_digits_on_the_left(lab, rng):
    """Ten digits relative to the value and to the derivative, from −2 down to −60."""
    x = -torch.linspace(2.0, 59.0, 20, dtype=F64) - torch.rand(20, generator=rng, dtype=F64)
    upstream = 0.5 + torch.rand(20, generator=rng, dtype=F64)
    value, (gradient,) = backward(lab.mish, [x], upstream)
    assert_matches(value, lambda: mish_table(x)[0], atol=0.0, rtol=1e-10, what="mish between −60 and −2")
    assert_matches(
        gradient,
        lambda: mish_table(x)[1] * upstream,
        atol=0.0,
        rtol=1e-10,
        what="gradient of mish between −60 and −2",
    )


def test_mish_in_float32(lab, rng):
    """float32 stays float32, and is right from −200 to 200."""
    sizes = torch.tensor([0.5, 2.0, 10.0, 30.0, 46.0, 60.0, 92.0, 150.0, 198.0], dtype=F64)
    x = torch.cat([sizes, -sizes]) * (1 + 0.01 * torch.rand(18, generator=rng, dtype=F64))
    check_float32(lab.mish, functional.mish, [x], rng, "mish")


def test_mish_can_be_differentiated_twice(lab, rng):
    """The backward's own derivative, with respect to x and to the upstream gradient, at 0 too."""
    x = torch.cat([3 * randn(rng, 8), torch.zeros(2, dtype=F64), torch.tensor([-20.0, 20.0], dtype=F64)])
    upstream, weight = randn(rng, 12), randn(rng, 12)
    found = backward_twice(lab.mish, [x], upstream, [weight])
    for i, name in enumerate(("x", "the upstream gradient")):
        assert_matches(
            found[i],
            lambda i=i: backward_twice(functional.mish, [x], upstream, [weight])[i],
            atol=1e-9,
            rtol=1e-9,
            what=f"derivative of mish's backward with respect to {name}",
        )


def test_mish_takes_any_shape(lab, rng):
    """No dimensions, many, no entries; transposed and expanded memory."""
    check_shapes(lab.mish, functional.mish, rng, "mish")


def test_mish_is_a_function_by_hand(lab, rng):
    """One Function; the input is left as it was."""
    check_by_hand(lab.mish, [randn(rng, 3, 4)], "mish")


# ----------------------------------------------------------------------------------- step 3: SwiGLU


def swiglu_oracle(gate, value):
    return functional.silu(gate) * value


def test_swiglu_matches_torch(lab, rng):
    """silu(gate) · value: the first argument goes through σ, the second doesn't."""
    inputs = [2 * randn(rng, 4, 6), 2 * randn(rng, 4, 6)]
    check_against(lab.swiglu, swiglu_oracle, inputs, rng, "swiglu")
    value = lab.swiglu(value=inputs[1].clone(), gate=inputs[0].clone())
    close(value, lambda: swiglu_oracle(*inputs), "swiglu, arguments by name")


def test_swiglu_gives_the_gradient_that_is_asked_for(lab, rng):
    """Only the gate requires a gradient, or only the value."""
    gate, value, upstream = randn(rng, 6), randn(rng, 6), randn(rng, 6)
    for i, name in enumerate(("gate", "value")):
        inputs = [gate.clone(), value.clone()]
        inputs[i].requires_grad_()
        lab.swiglu(*inputs).backward(upstream)
        close(
            inputs[i].grad,
            lambda i=i: backward(swiglu_oracle, [gate, value], upstream)[1][i],
            f"gradient of swiglu if only the {name} requires one",
        )
        assert_holds(inputs[1 - i].grad is None, what=f"only the {name} gets a gradient")


def test_swiglu_is_finite_for_huge_gates(lab, rng):
    """Right value and gradients for gates from −1000 to 1000."""
    sizes = torch.tensor([20.0, 40.0, 350.0, 700.0, 720.0, 1000.0], dtype=F64)
    gate = torch.cat([sizes, -sizes]) * (1 - 0.02 * torch.rand(12, generator=rng, dtype=F64))
    gate = torch.cat([gate, torch.tensor([1000.0, -1000.0], dtype=F64)])
    check_against(lab.swiglu, swiglu_oracle, [gate, randn(rng, 14)], rng, "swiglu with huge gates")


def test_swiglu_can_be_differentiated_twice(lab, rng):
    """The backward's own derivative, with respect to gate, value and the upstream gradient."""
    inputs, upstream = [2 * randn(rng, 8), randn(rng, 8)], randn(rng, 8)
    inputs[0][0] = 0.0
    weights = [randn(rng, 8), randn(rng, 8)]
    found = backward_twice(lab.swiglu, inputs, upstream, weights)
    for i, name in enumerate(("gate", "value", "the upstream gradient")):
        assert_matches(
            found[i],
            lambda i=i: backward_twice(swiglu_oracle, inputs, upstream, weights)[i],
            atol=1e-9,
            rtol=1e-9,
            what=f"derivative of swiglu's backward with respect to {name}",
        )


def test_swiglu_takes_any_shape(lab, rng):
    """No dimensions, many, no entries; transposed and expanded memory; float32 stays float32."""
    check_shapes(lab.swiglu, swiglu_oracle, rng, "swiglu", count=2)
    check_float32(lab.swiglu, swiglu_oracle, [randn(rng, 8), randn(rng, 8)], rng, "swiglu")


def test_swiglu_is_a_function_by_hand(lab, rng):
    """One Function; the inputs are left as they were."""
    check_by_hand(lab.swiglu, [randn(rng, 3, 4), randn(rng, 3, 4)], "swiglu")


# ------------------------------------------------------------------------ step 4: finite differences


def quietly(call):
    """What `call()` returns; that torch finds a conversion with a graph worth a warning isn't judged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def differences(f, x, eps):
    """The page's formula, entry by entry, on lists of numbers."""
    entries, gradient = x.flatten().tolist(), []
    for i in range(len(entries)):
        ends = []
        for step in (eps, -eps):
            moved = [*entries[:i], entries[i] + step, *entries[i + 1 :]]
            ends.append(float(f(torch.tensor(moved, dtype=F64).view(x.shape))))
        gradient.append((ends[0] - ends[1]) / (2 * eps))
    return torch.tensor(gradient, dtype=F64).view(x.shape)


def coupled(weights):
    """A function whose entries meet, and whose third derivative isn't 0."""

    def f(x):
        return (weights * x**3).sum() + 2 * x.sum() ** 2 + x.prod()

    return f


def test_numerical_gradient_is_the_central_difference(lab, rng):
    """(f(x + ε) − f(x − ε)) / 2ε, entry by entry, all others at x; for any ε."""
    x, weights = randn(rng, 2, 3), randn(rng, 2, 3)
    for eps in (number(rng, 0.1, 0.2), number(rng, 0.6, 0.9)):
        found = lab.numerical_gradient(coupled(weights), x.clone(), eps)
        near(
            found, lambda eps=eps: differences(coupled(weights), x, eps), f"numerical_gradient, ε = {eps:.3g}"
        )
    found = lab.numerical_gradient(f=coupled(weights), x=x.clone(), eps=0.25)
    near(found, lambda: differences(coupled(weights), x, 0.25), "numerical_gradient, arguments by name")


def test_numerical_gradient_has_an_epsilon_of_a_millionth(lab, rng):
    """At 0 the central difference of c·x³ is c·ε², which shows the default ε."""
    weights = 1e12 * (1 + torch.rand(5, generator=rng, dtype=F64))
    found = lab.numerical_gradient(lambda x: (weights * x**3).sum(), torch.zeros(5, dtype=F64))
    near(found, lambda: weights * 1e-12, "numerical_gradient of c·x³ at 0")


def test_numerical_gradient_finds_derivatives(lab, rng):
    """With its default ε, a derivative to about nine digits."""
    x, weights = randn(rng, 6), randn(rng, 6)
    found = lab.numerical_gradient(lambda x: (weights * torch.sin(x)).sum(), x.clone())
    assert_matches(
        found, lambda: weights * torch.cos(x), atol=1e-7, rtol=0.0, what="numerical_gradient of Σ w·sin(x)"
    )


def test_numerical_gradient_takes_any_shape(lab, rng):
    """No dimensions, many, no entries; transposed and expanded memory."""
    eps = number(rng, 0.1, 0.2)
    points = [randn(rng, *shape) for shape in SHAPES]
    points += [strided(randn(rng, 2, 3)), strided(randn(rng, 4)), expanded(randn(rng, 2))]
    for x in points:
        weights = randn(rng, *x.shape)
        found = lab.numerical_gradient(coupled(weights), x, eps)
        near(
            found,
            lambda x=x, w=weights: differences(coupled(w), x, eps),
            f"numerical_gradient at shape {tuple(x.shape)}, strides {x.stride()}",
        )


def test_numerical_gradient_leaves_its_input_alone(lab, rng):
    """x may be a leaf that requires grad; it and its `.grad` stay, also if f writes into its argument."""
    x, there, weights, eps = randn(rng, 2, 3), randn(rng, 2, 3), randn(rng, 2, 3), number(rng, 0.1, 0.2)
    given = x.clone().requires_grad_()
    given.grad = there.clone()
    found = quietly(lambda: lab.numerical_gradient(coupled(weights), given, eps))
    near(
        found,
        lambda: differences(coupled(weights), x, eps),
        "numerical_gradient at a leaf that requires grad",
    )
    same(given.detach(), lambda: x, "x after numerical_gradient")
    same(given.grad, lambda: there, "x.grad after numerical_gradient")
    assert_holds(given.requires_grad and given.is_leaf, what="x still is a leaf that requires grad")
    assert_holds(not found.requires_grad, what="the result of numerical_gradient carries no graph")

    def vandal(x):
        with torch.no_grad():
            x.fill_(7.0)
        return 0.0

    plain = x.clone()
    quietly(lambda: lab.numerical_gradient(vandal, plain, eps))
    same(plain, lambda: x, "x after a function that writes into its argument")


def test_numerical_gradient_takes_numbers_and_graphs(lab, rng):
    """f may return a tensor without dimensions, with a graph or without, or a Python number."""
    x, weights, eps = randn(rng, 4), randn(rng, 4), number(rng, 0.1, 0.2)
    learned = weights.clone().requires_grad_()
    kinds = {
        "a number": lambda x: coupled(weights)(x.detach()).item(),
        "a tensor": coupled(weights),
        "a tensor with a graph": coupled(learned),
    }
    for name, f in kinds.items():
        found = quietly(lambda f=f: lab.numerical_gradient(f, x.clone(), eps))
        near(found, lambda: differences(coupled(weights), x, eps), f"numerical_gradient if f returns {name}")
        assert_holds(not found.requires_grad, what=f"no graph if f returns {name}")


def test_numerical_gradient_keeps_float32(lab, rng):
    """The result has the dtype of x."""
    x, weights = randn(rng, 5).to(F32), randn(rng, 5).to(F32)
    found = lab.numerical_gradient(lambda x: (weights.to(x.dtype) * x**2).sum(), x.clone(), 0.0625)
    assert_matches(
        found, lambda: 2 * weights * x, atol=1e-3, rtol=1e-3, what="numerical_gradient of Σ w·x² in float32"
    )


# -------------------------------------------------------------------------- step 5: the gradient check


class Written(Function):
    """A forward with whatever backward somebody has written beside it."""

    @staticmethod
    def forward(ctx, value, gradients, *inputs):
        ctx.save_for_backward(*inputs)
        ctx.gradients = gradients
        return value(*inputs)

    @staticmethod
    def backward(ctx, upstream):
        found = ctx.gradients(upstream, *ctx.saved_tensors)
        return None, None, *(found if isinstance(found, tuple) else (found,))


def written(value, gradients):
    """The function value(*inputs) with the backward gradients(upstream, *inputs)."""
    return lambda *inputs: Written.apply(value, gradients, *inputs)


def mish_value(x):
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def mish_right(u, x):
    t = torch.tanh(torch.log1p(torch.exp(x)))
    return u * (t + x * (1 - t**2) * torch.sigmoid(x))


def mish_precedence(u, x):
    t = torch.tanh(torch.log1p(torch.exp(x)))
    return u * (1 - t**2 * x * torch.sigmoid(x))


def mish_omega(u, x, cube=1.0):
    """Mish's derivative in the form eˣ·ω/δ²; the cube of eˣ is what one implementation had lost."""
    e = torch.exp(x)
    omega = 4 * (x + 1) + 4 * e**2 + cube * e**3 + e * (4 * x + 6)
    return u * e * omega / (2 * e + e**2 + 2) ** 2


def mish_omega_lost(u, x):
    return mish_omega(u, x, cube=0.0)


def normalised(x):
    centred = x - x.mean(-1, keepdim=True)
    inverse = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * inverse, inverse


def norm_value(x, scale):
    n, _ = normalised(x)
    return torch.tanh(scale * n) + 0.1 * scale * n


def norm_gradients(u, x, scale, at=None, statistics=True):
    n, inverse = normalised(x)
    g = u * (1.1 - torch.tanh(n if at == "normalised" else scale * n) ** 2)
    h = g * scale
    through = h.mean(-1, keepdim=True) + n * (h * n).mean(-1, keepdim=True)
    return inverse * (h - through if statistics else h), (g * n).flatten(0, -2).sum(0)


def norm_without_scale(u, x, scale):
    return norm_gradients(u, x, scale, at="normalised")


def norm_constant_statistics(u, x, scale):
    return norm_gradients(u, x, scale, statistics=False)


def loss_value(logits, labels):
    return (logits.logsumexp(-1) - logits.gather(-1, labels[:, None])[:, 0]).mean()


def loss_gradients(u, logits, labels, one_hot=1.0):
    p = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    hot = torch.eye(logits.shape[-1], dtype=logits.dtype)[labels]
    return u * (p - one_hot * hot) / len(labels), None


def loss_without_one_hot(u, logits, labels):
    return loss_gradients(u, logits, labels, one_hot=0.0)


def shards_value(x, w):
    return x @ w.T


def shards_right(u, x, w):
    return u @ w, u.T @ x


def shards_gathered_late(u, x, w):
    """Two devices: each multiplies its own rows by its own part of the weight, and only then they gather."""
    rows, outs = len(u) // 2, len(w) // 2
    parts = [u[:rows, :outs] @ w[:outs], u[rows:, outs:] @ w[outs:]]
    return torch.cat(parts), u.T @ x


def softmax_value(x):
    return (x - x.logsumexp(-1, keepdim=True)).exp()


def softmax_right(u, x):
    p = softmax_value(x)
    return p * (u - (p * u).sum(-1, keepdim=True))


def softmax_diagonal(u, x):
    p = softmax_value(x)
    return p * (1 - p) * u


def cube_right(u, x):
    return u * 3 * x**2


def cube_without_upstream(u, x):
    return 3 * x**2


def cube_mean_upstream(u, x):
    return u.mean() * 3 * x**2


def cube_flipped_upstream(u, x):
    return u.flip(0) * 3 * x**2


def cube_slightly_off(u, x):
    return u * 3 * x**2 * (1 + 1e-5)


def cube(x):
    return x**3


# name → value, right gradients, wrong gradients, shapes of the inputs, the inputs whose gradient is wrong
PLANTED: dict[str, tuple[Any, Any, Any, list[tuple[int, ...]], list[int]]] = {
    "mish_precedence": (mish_value, mish_right, mish_precedence, [(2, 3)], [0]),
    "mish_lost_term": (mish_value, mish_omega, mish_omega_lost, [(2, 3)], [0]),
    "norm_derivative_before_scale": (norm_value, norm_gradients, norm_without_scale, [(3, 4), (4,)], [0, 1]),
    "norm_constant_statistics": (norm_value, norm_gradients, norm_constant_statistics, [(3, 4), (4,)], [0]),
    "loss_without_one_hot": (loss_value, loss_gradients, loss_without_one_hot, [(4, 3)], [0]),
    "shards_gathered_late": (shards_value, shards_right, shards_gathered_late, [(4, 3), (6, 3)], [0]),
    "softmax_diagonal": (softmax_value, softmax_right, softmax_diagonal, [(3, 4)], [0]),
    "upstream_forgotten": (cube, cube_right, cube_without_upstream, [(3, 4)], [0]),
    "upstream_averaged": (cube, cube_right, cube_mean_upstream, [(3, 4)], [0]),
    "upstream_in_another_order": (cube, cube_right, cube_flipped_upstream, [(4, 3)], [0]),
    "slightly_off": (cube, cube_right, cube_slightly_off, [(2, 3)], [0]),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_check_gradients_finds_planted_bugs(lab, rng, planted):
    """Each of the page's backward bugs is found, at the right input; the right backward passes."""
    value, right, wrong, shapes, bad = PLANTED[planted]
    inputs = [randn(rng, *shape) for shape in shapes]
    inputs = [x + x.sign() for x in inputs]  # not too near 0, where some of these mistakes vanish
    expected = [i not in bad for i in range(len(inputs))]
    if planted == "loss_without_one_hot":
        inputs.append(torch.randint(3, (4,), generator=rng))
    report = quietly(lambda: lab.check_gradients(written(value, right), inputs))
    assert_holds(report.ok is True, what=f"a right backward passes ({planted})")
    report = quietly(lambda: lab.check_gradients(written(value, wrong), inputs))
    assert_holds(report.ok is False, what=f"the planted bug {planted} is found")
    found = [item.ok for item in report.inputs]
    assert_holds(found == expected, what=f"the planted bug {planted} is found at the right inputs")


def test_check_gradients_names_the_worst_entry(lab, rng):
    """`index` is the entry with the largest excess, error minus allowance; the numbers are those there."""
    shape = (3, 4)
    places = torch.randperm(12, generator=rng)[:3].tolist()
    weights, factors = torch.ones(12, dtype=F64), torch.ones(12, dtype=F64)
    allowed, worst, tiny = places
    weights[allowed], factors[allowed] = 1e6, 1.4  # the largest error, but rtol allows it
    factors[worst] = number(rng, 2.0, 3.0)
    weights[tiny], factors[tiny] = 1e-8, 9.0  # the largest relative error
    weights, factors = weights.view(shape), factors.view(shape)
    f = written(lambda x: weights * x, lambda u, x: u * weights * factors)
    x = torch.zeros(shape, dtype=F64)  # where a linear function's differences are exact
    report = quietly(lambda: lab.check_gradients(f, x, eps=0.25, atol=1e-12, rtol=0.5))
    assert_holds(report.ok is False, what="a wrong entry makes a wrong report")
    (item,) = report.inputs
    check_index(item.index, lambda: divmod(worst, 4), "the worst entry")
    close(
        item.analytic / item.numeric,
        lambda: float(factors.flatten()[worst]),
        "analytic / numeric at the worst entry",
    )
    close(
        item.error / abs(item.numeric),
        lambda: float(factors.flatten()[worst]) - 1,
        "error / numeric at the worst entry",
    )
    for name in ("analytic", "numeric", "error"):
        assert_holds(isinstance(getattr(item, name), float), what=f"{name} is a float")
    check_repr(report, item)


def check_index(index, expected, what):
    assert_holds(isinstance(index, tuple), what=f"the index of {what} is a tuple")
    for k, place in enumerate(index):
        same(int(place), lambda k=k: expected()[k], f"index of {what}, dimension {k}")


def check_repr(report, item):
    """The report's repr holds the numbers, in whatever form."""
    shown = [float(text) for text in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", repr(report))]
    for entry in (*item.index, item.analytic, item.numeric, item.error):
        there = any(math.isclose(entry, other, rel_tol=0.1, abs_tol=1e-12) for other in shown)
        assert_holds(there, what="repr(report) shows index, analytic, numeric and error")


def test_check_gradients_reports_every_floating_point_input(lab, rng):
    """One item for each, in order; whole numbers and truth values are passed on; tuples, lists, a tensor."""
    x, w, c = randn(rng, 5), randn(rng, 4), randn(rng, 3, 4)
    places, mask = torch.randint(5, (4,), generator=rng), torch.tensor([True, False, True, True])
    factor = number(rng, 1.5, 2.0)

    def f(x, places, w, mask, c):
        return torch.where(mask, x[places], 0.0) * c + stretched(w)

    stretched = written(lambda w: 3 * w, lambda u, w: 3 * factor * u)
    for pack in (tuple, list):
        report = quietly(lambda pack=pack: lab.check_gradients(f, pack([x, places, w, mask, c]), eps=0.01))
        same(len(report.inputs), lambda: 3, "number of items for three floating-point inputs of five")
        found = [item.ok for item in report.inputs]
        assert_holds(found == [True, False, True], what="only the second floating-point input is wrong")
        assert_holds(report.ok is False, what="one wrong input makes a wrong report")
        assert_holds(bool(report) is False, what="bool(report) is report.ok")
        ratio = report.inputs[1].analytic / report.inputs[1].numeric
        assert_matches(
            ratio, lambda: factor, atol=0.0, rtol=1e-6, what="analytic / numeric of the wrong input"
        )
    report = quietly(lambda: lab.check_gradients(torch.sin, x))
    same(len(report.inputs), lambda: 1, "number of items for a single tensor")
    assert_holds(report.ok is True, what="a right function of a single tensor passes")
    assert_holds(bool(report) is True, what="bool(report) is report.ok")
    square = written(lambda a, b: a * b**2, lambda u, a, b: (u * b**2, 2 * u * a * b))
    report = quietly(lambda: lab.check_gradients(square, (x, x)))
    assert_holds(report.ok is True, what="the same tensor given twice counts as two inputs")


def test_check_gradients_of_missing_gradients(lab, rng):
    """Where autograd gives None the analytic gradient is 0: right if f ignores the input, else wrong."""
    x, w = randn(rng, 3), randn(rng, 3)
    report = quietly(lambda: lab.check_gradients(lambda x, w: torch.sin(x), (x, w)))
    assert_holds(report.ok is True, what="an input that f ignores has gradient 0, which is right")
    same(report.inputs[1].analytic, lambda: 0.0, "analytic gradient of an input that f ignores")
    same(report.inputs[1].numeric, lambda: 0.0, "numeric gradient of an input that f ignores")
    half = written(lambda x, w: x * w, lambda u, x, w: (u * w, None))
    report = quietly(lambda: lab.check_gradients(half, (x, w)))
    found = [item.ok for item in report.inputs]
    assert_holds(
        found == [True, False], what="a backward that returns None for an input that counts is found"
    )
    report = quietly(lambda: lab.check_gradients(lambda x: 2 * x.detach(), x, eps=0.01))
    assert_holds(report.ok is False, what="a function that detaches its input is found")
    same(report.inputs[0].analytic, lambda: 0.0, "analytic gradient of a function that detaches its input")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "minus-inf"])
def test_check_gradients_reports_what_is_not_finite(lab, rng, bad):
    """NaN and infinity in the gradient are wrong, the worst of all, and not raised."""
    place = between(rng, 0, 5)
    holes = torch.zeros(6, dtype=F64)
    holes[place] = bad
    holes[(place + between(rng, 1, 5)) % 6] = 1e6
    f = written(lambda x: 2 * x, lambda u, x: 2 * u + holes)
    report = quietly(lambda: lab.check_gradients(f, torch.zeros(6, dtype=F64)))
    assert_holds(report.ok is False, what=f"a gradient with {bad} in it is found")
    (item,) = report.inputs
    assert_holds(item.ok is False, what=f"the input whose gradient has {bad} in it is wrong")
    check_index(item.index, lambda: (place,), f"the entry that is {bad}")
    same(item.analytic, lambda: bad, "analytic gradient there")
    assert_holds(not math.isfinite(item.error), what="the error there isn't finite")
    holes[holes == 1e6] = 0.0
    report = quietly(lambda: lab.check_gradients(f, torch.zeros(6, dtype=F64)))
    assert_holds(report.ok is False, what=f"a gradient whose only fault is {bad} is wrong")
    broken = written(lambda x: x.log(), lambda u, x: u / x)
    report = quietly(
        lambda: lab.check_gradients(broken, randn(rng, 3).abs() * torch.tensor([1.0, -1.0, 1.0]))
    )
    assert_holds(report.ok is False, what="differences that aren't finite are wrong")


def test_check_gradients_obeys_its_tolerances(lab, rng):
    """Wrong above atol + rtol · abs(numeric), the numeric one; `eps` is that of numerical_gradient."""
    x = torch.zeros(12, dtype=F64)

    def off(factor, offset):
        return written(lambda x: x * 1.0, lambda u, x: u * factor + offset * u.sign())

    cases: tuple[tuple[str, Any, dict[str, float], bool], ...] = (
        ("factor 1.4, rtol 0.5", off(1.4, 0.0), {"atol": 0.0, "rtol": 0.5}, True),
        ("factor 1.8, rtol 0.5", off(1.8, 0.0), {"atol": 0.0, "rtol": 0.5}, False),
        ("factor 0.6, rtol 0.5", off(0.6, 0.0), {"atol": 0.0, "rtol": 0.5}, True),
        ("offset 0.3, atol 0.4", off(1.0, 0.3), {"atol": 0.4, "rtol": 0.0}, True),
        ("offset 0.3, atol 0.2", off(1.0, 0.3), {"atol": 0.2, "rtol": 0.0}, False),
        ("both 0.3, both 0.35", off(1.3, 0.3), {"atol": 0.35, "rtol": 0.35}, True),
        ("factor 1 + 5e-7, defaults", off(1 + 5e-7, 0.0), {}, True),
        ("offset 5e-9, defaults", off(1.0, 5e-9), {}, True),
        ("offset 3e-8 beside rtol 0", off(1.0, 3e-8), {"rtol": 0.0}, False),
        ("factor 1 + 1e-5, defaults", off(1 + 1e-5, 0.0), {}, False),
    )
    for name, f, options, good in cases:
        report = quietly(lambda f=f, o=options: lab.check_gradients(f, x, **o))
        assert_holds(report.ok is good, what=f"{name}: {'passes' if good else 'is wrong'}")
    for offset, good in ((5e-9, True), (3e-8, False)):
        faint = written(lambda x: x * 0.0, lambda u, x, offset=offset: offset * u.sign())
        report = quietly(lambda f=faint: lab.check_gradients(f, x))
        assert_holds(report.ok is good, what=f"{offset:g} in place of 0 {'passes' if good else 'is wrong'}")
    c = 1e12 * number(rng)
    tuned = written(lambda x: c * x**3, lambda u, x: u * c * 1e-12)  # "right" for differences with ε = 1e-6
    report = quietly(lambda: lab.check_gradients(tuned, x))
    assert_holds(report.ok is True, what="the default ε is 1e-6")
    at, eps = number(rng), number(rng, 0.2, 0.4)
    report = quietly(lambda: lab.check_gradients(cube, torch.tensor([at], dtype=F64), eps=eps))
    ratio = report.inputs[0].analytic / report.inputs[0].numeric
    near(ratio, lambda: 3 * at**2 / (3 * at**2 + eps**2), "analytic / numeric of x³, which ε shows")
    report = quietly(
        lambda: lab.check_gradients(f=cube, inputs=[x], eps=0.5, atol=1.0, rtol=0.1, generator=None)
    )
    assert_holds(report.ok is True, what="arguments by name")


class Heard:
    """A function x → x · ones(size) that keeps the upstream gradient which its backward hears."""

    def __init__(self, *shape):
        self.shape = shape
        self.upstream = torch.empty(0)

    def __call__(self, x):
        return Written.apply(lambda x: x * torch.ones(self.shape, dtype=x.dtype), self.keep, x)

    def keep(self, u, x):
        self.upstream = u.detach().clone()
        return u.sum().view(x.shape)


def test_check_gradients_draws_a_normal_upstream(lab, rng):
    """The upstream gradient is standard normal and has the output's shape."""
    f = Heard(512, 512)
    generator = torch.Generator().manual_seed(between(rng, 0, 2**40))
    report = quietly(lambda: lab.check_gradients(f, randn(rng), eps=0.25, generator=generator))
    assert_holds(report.ok is True, what="a right function of a 0-d input with 512 × 512 outputs passes")
    u = f.upstream
    assert_holds(tuple(u.shape) == (512, 512), what="the upstream gradient has the output's shape")
    # Tolerances of more than forty times the errors of a sample of a quarter of a million.
    deviation = float(u.std())
    assert_matches(
        deviation, lambda: 1.0, atol=0.06, rtol=0.0, what="standard deviation of the upstream gradient"
    )
    middle = float((u.abs() < 0.6744897502).to(F64).mean())
    what = "share of the upstream gradient in the middle half of a normal distribution"
    assert_matches(middle, lambda: 0.5, atol=0.045, rtol=0.0, what=what)
    assert_matches(float(u.mean()), lambda: 0.0, atol=0.1, rtol=0.0, what="mean of the upstream gradient")


def test_check_gradients_draws_from_its_generator_only(lab, rng):
    """`generator` decides the upstream and moves on; without one each call repeats; no global randomness."""
    seed, x = between(rng, 0, 2**40), randn(rng, 4)

    def heard(generator):
        before = torch.default_generator.get_state()
        f = Heard(4)
        quietly(lambda: lab.check_gradients(f, x[:1], generator=generator))
        untouched = torch.equal(before, torch.default_generator.get_state())
        assert_holds(untouched, what="check_gradients leaves the global random state alone")
        return f.upstream

    generator = torch.Generator().manual_seed(seed)
    first, second = heard(generator), heard(generator)
    again, other = (heard(torch.Generator().manual_seed(s)) for s in (seed, seed + 1))
    assert_holds(torch.equal(first, again), what="equal generators give equal upstream gradients")
    assert_holds(not torch.equal(first, second), what="check_gradients moves its generator on")
    assert_holds(not torch.equal(first, other), what="another generator gives another upstream gradient")
    fixed = []
    for state in (seed, seed + 1):
        torch.default_generator.manual_seed(state)
        fixed.append(heard(None))
    assert_holds(torch.equal(*fixed), what="without a generator the same call gives the same report")


def test_check_gradients_leaves_its_inputs_alone(lab, rng):
    """Inputs that require grad keep it and their `.grad`; those that don't still don't."""
    x, there, w = randn(rng, 2, 3), randn(rng, 2, 3), randn(rng, 3)
    learns, plain = x.clone().requires_grad_(), w.clone()
    learns.grad = there.clone()
    inputs = [learns, plain]
    report = quietly(lambda: lab.check_gradients(lambda x, w: torch.sin(x) * w, inputs))
    assert_holds(report.ok is True, what="a right function passes, whether its inputs require grad or not")
    same(learns.detach(), lambda: x, "an input after the check")
    same(learns.grad, lambda: there, "its .grad after the check")
    same(plain, lambda: w, "an input without gradient after the check")
    assert_holds(learns.requires_grad and learns.is_leaf, what="an input that requires grad still does")
    assert_holds(not plain.requires_grad and plain.grad is None, what="one that doesn't still doesn't")
    kept = len(inputs) == 2 and inputs[0] is learns and inputs[1] is plain
    assert_holds(kept, what="the list of inputs is left as it was")


def test_check_gradients_takes_any_shape(lab, rng):
    """Inputs and outputs without dimensions, with many, transposed or expanded in memory."""
    factor = number(rng, 1.5, 2.0)
    for x in (randn(rng), randn(rng, 2, 1, 3), strided(randn(rng, 2, 3)), expanded(randn(rng, 2))):
        said = f"shape {tuple(x.shape)}, strides {x.stride()}"
        for name, f in (
            ("itself", torch.sin),
            ("a number", lambda x: torch.sin(x).sum()),
            ("x.T", lambda x: x.mT),
        ):
            if name != "x.T" or x.ndim > 1:
                report = quietly(lambda f=f, x=x: lab.check_gradients(f, x))
                assert_holds(report.ok is True, what=f"{said}, output like {name}: passes")
        place = tuple(between(rng, 0, size - 1) for size in x.shape)
        factors = torch.ones(x.shape, dtype=F64)
        factors[place] = factor
        wrong = written(torch.sin, lambda u, x, k=factors: k * u * torch.cos(x))
        report = quietly(lambda f=wrong, x=x: lab.check_gradients(f, x))
        assert_holds(report.ok is False, what=f"{said}: a wrong factor at one entry is found")
        check_index(report.inputs[0].index, lambda place=place: place, f"{said}: the wrong entry")
        same(len(report.inputs[0].index), lambda x=x: x.ndim, f"{said}: number of dimensions of the index")


# ------------------------------------------------------------------------------- step 6: silent units


def dead_oracle(activations):
    """Unit by unit, sample by sample."""
    units = activations.shape[-1]
    samples = activations.reshape(-1, units).tolist()
    return sum(all(sample[unit] <= 0 for sample in samples) for unit in range(units)) / units


def share(actual, expected, what):
    """A share of units; counting in float32 is fine."""
    assert_matches(actual, expected, atol=1e-6, rtol=0.0, what=what)


def with_dead_units(rng, shape, dead):
    """Random activations whose first `dead` units, in random order, are never positive."""
    x = randn(rng, *shape)
    x[..., :dead] = -x[..., :dead].abs()
    x.view(-1, shape[-1])[0, dead:] = 1.0  # the others are positive at least once
    return x[..., torch.randperm(shape[-1], generator=rng)]


def test_dead_fraction_counts_units(lab, rng):
    """The share of units that are ≤ 0 on every sample."""
    units = between(rng, 7, 11)
    for dead in (between(rng, 2, 4), 0, units):
        x = with_dead_units(rng, (6, units), dead)
        given = x.clone()
        share(lab.dead_fraction(given), lambda x=x: dead_oracle(x), f"dead_fraction, {dead} of {units} dead")
        same(given, lambda x=x: x, "activations after dead_fraction")
    x = with_dead_units(rng, (6, units), 1)
    share(lab.dead_fraction(activations=x), lambda: dead_oracle(x), "dead_fraction, argument by name")


def test_dead_fraction_takes_zero_as_dead(lab, rng):
    """Exactly 0, or −0, is not positive: what a ReLU gives for a dead unit."""
    units = between(rng, 5, 9)
    x = torch.relu(with_dead_units(rng, (6, units), 3))
    x[1:3] = -0.0
    share(lab.dead_fraction(x.clone()), lambda: dead_oracle(x), "dead_fraction after a ReLU")


def test_dead_fraction_needs_one_positive_sample(lab, rng):
    """A single tiny positive value among many keeps a unit alive; its mean says nothing."""
    units, samples = between(rng, 6, 9), 40
    x = -1 - randn(rng, samples, units).abs()
    alive = between(rng, 1, units - 2)
    for unit in range(alive):
        x[between(rng, 0, samples - 1), unit] = 1e-9
    share(lab.dead_fraction(x.clone()), lambda: dead_oracle(x), f"dead_fraction, {alive} units alive once")


@pytest.mark.parametrize("shape", [(7,), (1, 5), (3, 4, 6), (2, 3, 2, 9), (4, 1)], ids=str)
def test_dead_fraction_takes_any_shape(lab, rng, shape):
    """The last dimension is the unit, all others together are the samples; any layout, float32 too."""
    x = with_dead_units(rng, shape, shape[-1] // 3) if len(shape) > 1 else randn(rng, *shape)
    share(lab.dead_fraction(x.clone()), lambda: dead_oracle(x), f"dead_fraction of shape {shape}")
    share(
        lab.dead_fraction(strided(x)), lambda: dead_oracle(x), f"dead_fraction of shape {shape}, transposed"
    )
    share(lab.dead_fraction(x.to(F32)), lambda: dead_oracle(x), f"dead_fraction of shape {shape} in float32")
    learns = x.clone().requires_grad_()
    share(
        quietly(lambda: lab.dead_fraction(learns)),
        lambda: dead_oracle(x),
        "dead_fraction of a tensor with a graph",
    )


# ------------------------------------------------------------------- step 7: norm and activation in one

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "leaky_relu": functional.leaky_relu,
    "mish": functional.mish,
    "lecun_tanh": lecun_tanh_oracle,
    "lisht": lisht_oracle,
}
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def fused_oracle(activation, eps=1e-5):
    return lambda x, scale: ACTIVATIONS[activation](functional.layer_norm(x, x.shape[-1:], scale, None, eps))


def uneven_rows(rng, dim):
    """Rows from 1e-3 to 10, off centre: small ones show where ε stands."""
    scale = 10.0 ** torch.tensor([[-3.0, -2.5, -2.0], [-1.0, 0.0, 1.0]], dtype=F64)
    return (randn(rng, 2, 3, dim) + 0.5) * scale[..., None]


def check_fused(lab, rng, activation, x, scale, what, **options):
    """Value and both gradients, under a random upstream gradient."""
    upstream = randn(rng, *x.shape)
    value, gradients = backward(
        lambda x, scale: lab.fused_norm_activation(x, scale, activation, **options), [x, scale], upstream
    )
    oracle = fused_oracle(activation, **options)
    near(value, lambda: oracle(x, scale), what)
    for i, name in enumerate(("x", "scale")):
        near(
            gradients[i],
            lambda i=i: backward(oracle, [x, scale], upstream)[1][i],
            f"gradient of {name}, {what}",
        )


@each_activation
def test_fused_matches_autograd(lab, rng, activation):
    """act(scale · (x − mean) / √(var + ε)), biased variance; gradients of x and scale, any sign of scale."""
    n = between(rng, 5, 9)
    check_fused(lab, rng, activation, uneven_rows(rng, n), 2 * randn(rng, n), f"norm and {activation}")


def test_fused_epsilon_stands_inside_the_root(lab, rng):
    """Rows whose variance is near ε show it, for any ε; by name and by position."""
    x, scale = randn(rng, 4, 3), randn(rng, 3)
    for eps in (0.5, 1e-9, number(rng)):
        check_fused(lab, rng, "lecun_tanh", x, scale, f"norm and lecun_tanh, ε = {eps:.3g}", eps=eps)
    value = lab.fused_norm_activation(activation="lisht", eps=0.5, scale=scale.clone(), x=x.clone())
    near(value, lambda: fused_oracle("lisht", 0.5)(x, scale), "norm and lisht, arguments by name")
    value = lab.fused_norm_activation(x.clone(), scale.clone(), "lisht", 0.5)
    near(value, lambda: fused_oracle("lisht", 0.5)(x, scale), "norm and lisht, ε by position")


def test_fused_takes_any_shape(lab, rng):
    """(d,), (…, d), a single entry, no rows, transposed and expanded memory."""
    points = [randn(rng, *shape) for shape in ((5,), (1, 5), (2, 3, 4, 5), (4, 1), (0, 3))]
    points += [strided(randn(rng, 4, 3)), expanded(randn(rng, 5))]
    for x in points:
        said = f"norm and mish, shape {tuple(x.shape)}, strides {x.stride()}"
        check_fused(lab, rng, "mish", x, randn(rng, x.shape[-1]), said)


def test_fused_of_a_constant_row(lab, rng):
    """The variance is exactly 0: value act(0), and finite gradients."""
    x = torch.randint(-9, 9, (4, 1), generator=rng).to(F64).repeat(1, 4)
    for activation in ("lecun_tanh", "leaky_relu"):
        what = f"norm and {activation} of constant rows"
        check_fused(lab, rng, activation, x, randn(rng, 4), what)


def test_fused_gives_the_gradient_that_is_asked_for(lab, rng):
    """Only x requires a gradient, or only scale."""
    x, scale, upstream = randn(rng, 3, 5), randn(rng, 5), randn(rng, 3, 5)
    for i, name in enumerate(("x", "scale")):
        inputs = [x.clone(), scale.clone()]
        inputs[i].requires_grad_()
        lab.fused_norm_activation(*inputs, "mish").backward(upstream)
        near(
            inputs[i].grad,
            lambda i=i: backward(fused_oracle("mish"), [x, scale], upstream)[1][i],
            f"gradient if only {name} requires one",
        )
        assert_holds(inputs[1 - i].grad is None, what=f"only {name} gets a gradient")


def test_fused_keeps_float32(lab, rng):
    """float32 in, float32 out, value and gradients."""
    x, scale = randn(rng, 4, 6), randn(rng, 6)
    upstream = randn(rng, 4, 6).to(F32)
    for activation in ACTIVATIONS:
        small = [x.to(F32), scale.to(F32)]
        value, gradients = backward(
            lambda x, scale, a=activation: lab.fused_norm_activation(x, scale, a), small, upstream
        )
        exact = [one.to(F64) for one in small]
        oracle = fused_oracle(activation)
        what = f"norm and {activation} in float32"
        loose = {"atol": 1e-4, "rtol": 1e-4}
        assert_matches(value, lambda o=oracle, e=exact: o(*e).to(F32), **loose, what=what)
        for i, name in enumerate(("x", "scale")):
            assert_matches(
                gradients[i],
                lambda i=i, o=oracle, e=exact: backward(o, e, upstream.to(F64))[1][i].to(F32),
                **loose,
                what=f"gradient of {name}, {what}",
            )


@each_activation
def test_fused_is_one_function_by_hand(lab, rng, activation):
    """One Function for all of it; the inputs are left as they were."""
    inputs = [randn(rng, 3, 4), randn(rng, 4)]
    check_by_hand(
        lambda x, scale: lab.fused_norm_activation(x, scale, activation), inputs, f"norm and {activation}"
    )


def test_fused_refuses_other_activations(lab, rng):
    """Four names, and no others."""
    x, scale = randn(rng, 2, 3), randn(rng, 3)
    for name in ("relu", "Mish", "", "swiglu", "lecun_tanh_inverse"):
        assert_raises(
            ValueError,
            lambda name=name: lab.fused_norm_activation(x, scale, name),
            what=f"the activation {name!r}",
        )
