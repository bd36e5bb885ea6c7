"""Tests of lab 04, memory-efficient optimizers. A test's docstring states the rule that it judges.

`lab` is the module under test. All inputs come from `rng`. Expected values come from torch, from closed forms
or from slow transcriptions of the page's formulas; they are functions, called after the code under test.
Matrices are built from chosen singular values that lie well apart: there the singular vectors are determined.
"""

import math
import warnings
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from grader.checks import assert_holds, assert_matches, assert_raises, assert_within
from grader.lab_inputs import between, number, randn, same, strided
from grader.optimizer_contract import RULES, Subject, grouped, parameters, record, run

F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16
CLOSE = {"atol": 1e-12, "rtol": 1e-10}
NEAR = {"atol": 1e-10, "rtol": 1e-9}


def close(actual, expected, what):
    """Equal but for a few roundings."""
    assert_matches(actual, expected, **CLOSE, what=what)


def near(actual, expected, what):
    """Equal where singular vectors are involved."""
    assert_matches(actual, expected, **NEAR, what=what)


def orthonormal(rng, rows, columns):
    """A random matrix with orthonormal columns."""
    return torch.linalg.qr(randn(rng, rows, columns))[0]


def matrix(rng, rows, columns, size=1.0):
    """U S Vᵀ with singular values 4, 2, 1, … times `size`, each off by up to 10 %: no two are alike."""
    n = min(rows, columns)
    s = size * 4.0 * 0.5 ** torch.arange(n, dtype=F64) * (0.9 + 0.2 * torch.rand(n, generator=rng, dtype=F64))
    return orthonormal(rng, rows, n) * s @ orthonormal(rng, columns, n).T


def true_basis(G, r, left):
    """The first r singular vectors on one side, by another way than an SVD, with the page's signs.

    They are the eigenvectors of G Gᵀ or Gᵀ G, of which `eigh` gives the largest last.
    """
    vectors = torch.linalg.eigh(G @ G.T if left else G.T @ G)[1].flip(1)[:, :r].clone()
    for column in vectors.T:
        if column[column.abs().argmax()] < 0:
            column.neg_()
    return vectors


def is_left(side, rows, columns):
    """Whether a basis multiplies from the left."""
    return (rows < columns) == (side == "short")


def shrink(B, G, left):
    return B.T @ G if left else G @ B


def expand(B, R, left):
    return B @ R if left else R @ B.T


def quiet(function, *arguments, **options):
    """The result of a call that may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def told(function, *arguments, **options):
    """How many UserWarnings a call gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **options)
    return sum(issubclass(warning.category, UserWarning) for warning in caught)


# -------------------------------------------------------------------- step 1: projecting a gradient

MATRICES = [(7, 4), (3, 6), (5, 5)]
SIDES = ["short", "long"]


def low_rank_of(first, G, r, side):
    """R of G in the basis that was taken from `first`."""
    left = is_left(side, *G.shape)
    return shrink(true_basis(first, r, left), G, left)


def projected(first, G, r, side="short"):
    """G in the basis that was taken from `first`, and back."""
    left = is_left(side, *G.shape)
    B = true_basis(first, r, left)
    return expand(B, shrink(B, G, left), left)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", MATRICES, ids=["tall", "wide", "square"])
def test_projector_follows_its_formulas(lab, rng, shape, side):
    """B on its side, R = Bᵀ G or G B, back(R) = B R or R Bᵀ, for the gradient of the basis and for others."""
    first, second = matrix(rng, *shape), randn(rng, *shape)
    left = is_left(side, *shape)
    projector = lab.GaLoreProjector(2, 5, side)
    R = projector.low_rank(first.clone())
    what = f"of a {shape} gradient, side {side}"
    near(projector.basis, lambda: true_basis(first, 2, left), f"basis {what}")
    near(R, lambda: low_rank_of(first, first, 2, side), f"R {what}")
    near(projector.back(R.clone()), lambda: projected(first, first, 2, side), f"back(R) {what}")
    later = projector.low_rank(second.clone())
    near(later, lambda: low_rank_of(first, second, 2, side), f"R of the next gradient {what}")
    near(R, lambda: low_rank_of(first, first, 2, side), f"R {what}, after the next call")
    again = projector.project(second.clone())
    near(again, lambda: projected(first, second, 2, side), f"project(G) {what}")
    other = randn(rng, *R.shape)
    passed = other.clone()
    sent_back = projector.back(passed)
    near(sent_back, lambda: expand(true_basis(first, 2, left), other, left), "back of any R")
    same(passed, lambda: other, "an R after back(R)")
    B = projector.basis
    near(B, lambda: true_basis(first, 2, left), "the basis after five calls")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(6, 3), (2, 7), (4, 4), (1, 5), (5, 1)], ids=str)
def test_projector_counts_what_it_needs(lab, rng, shape, side):
    """basis_floats, low_rank_floats (two moments) and full_adam_floats are ints, after refresh too."""
    rows, columns = shape
    for rank in (1, 2, 4):
        projector = lab.GaLoreProjector(rank, side=side)
        quiet(projector.refresh, matrix(rng, *shape))
        inner, outer = (rows, columns) if is_left(side, *shape) else (columns, rows)
        what = f"of a {shape} gradient, rank {rank}, side {side}"
        same(projector.basis_floats, lambda a=inner, r=rank: a * min(a, r), f"basis_floats {what}")
        same(
            projector.low_rank_floats,
            lambda a=inner, b=outer, r=rank: 2 * b * min(a, r),
            f"low_rank_floats {what}",
        )
        same(projector.full_adam_floats, lambda: 2 * rows * columns, f"full_adam_floats {what}")
        same(projector.is_identity, lambda a=inner, r=rank: r >= a, f"is_identity {what}")
        entries = projector.basis.numel()
        same(entries, lambda a=inner, r=rank: a * min(a, r), f"entries of the basis {what}")


# What happens to a projector, in order: a tick, or "refresh"; and beside each tick, whose basis it uses.
STORIES = {
    "every 3": (3, ["tick"] * 8, [0, 0, 0, 3, 3, 3, 6, 6]),
    "every 1": (1, ["tick"] * 4, [0, 1, 2, 3]),
    "refresh first": (2, ["refresh", "tick", "tick", "tick"], [0, 0, 3]),
    "refresh when due": (2, ["tick", "tick", "refresh", "tick", "tick", "tick"], [0, 0, 2, 2, 5]),
    "refresh when not due": (3, ["tick", "refresh", "tick", "tick", "tick", "tick"], [0, 1, 1, 4, 4]),
    "refresh twice": (2, ["tick", "refresh", "refresh", "tick", "tick", "tick"], [0, 2, 4, 4]),
    "refresh every time": (1, ["refresh", "tick", "tick", "refresh", "tick", "tick"], [0, 2, 3, 5]),
}


@pytest.mark.parametrize("story", STORIES)
def test_projector_takes_its_basis_in_time(lab, rng, story):
    """Tick n takes the basis from its gradient if n % update_every == 0, unless `refresh` just did it."""
    every, events, owners = STORIES[story]
    gradients = [matrix(rng, 4, 3) for _ in events]
    projector = lab.GaLoreProjector(rank=2, update_every=every)
    seen: list[torch.Tensor] = []
    for event, G in zip(events, gradients, strict=True):
        if event == "tick":
            seen.append(projector.low_rank(G.clone()) if len(seen) % 2 else projector.project(G.clone()))
            projector.back(randn(rng, 4, 2))  # no tick
        else:
            projector.refresh(G.clone())
    ticked = [G for event, G in zip(events, gradients, strict=True) if event == "tick"]
    for n, (result, G, owner) in enumerate(zip(seen, ticked, owners, strict=True)):
        oracle = low_rank_of if n % 2 else projected
        near(
            result,
            lambda oracle=oracle, G=G, owner=owner: oracle(gradients[owner], G, 2, "short"),
            f"the result of tick {n}, update_every {every}, {story}",
        )


def test_projector_defaults(lab, rng):
    """update_every is 200 and side "short": tick 199 has the basis of tick 0, tick 200 a new one."""
    first, last = matrix(rng, 2, 3), matrix(rng, 2, 3)
    projector = lab.GaLoreProjector(1)
    projector.low_rank(first.clone())
    for _ in range(199):
        result = projector.low_rank(last.clone())
    near(result, lambda: low_rank_of(first, last, 1, "short"), "R of tick 199")
    result = projector.low_rank(last.clone())
    near(result, lambda: low_rank_of(last, last, 1, "short"), "R of tick 200")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", MATRICES, ids=["tall", "wide", "square"])
def test_projector_of_full_rank_is_the_identity(lab, rng, shape, side):
    """rank >= the projected dimension: project(G) = G, and the first basis, it alone, gives a warning."""
    G, other = matrix(rng, *shape), randn(rng, *shape)
    inner = shape[0] if is_left(side, *shape) else shape[1]
    for rank in (inner, inner + 3):
        projector = lab.GaLoreProjector(rank, 1, side)
        warned = told(projector.low_rank, G.clone())
        assert_holds(warned > 0, what=f"rank {rank} of {inner} warns at the first basis")
        warned = told(projector.low_rank, other.clone()) + told(projector.refresh, other.clone())
        assert_holds(warned == 0, what=f"rank {rank} of {inner} doesn't warn at a later basis")
        near(quiet(projector.project, other.clone()), lambda: other, f"project(G), rank {rank} of {inner}")
        same(projector.is_identity, lambda: True, f"is_identity, rank {rank} of {inner}")
        near(projector.basis.T @ projector.basis, lambda: torch.eye(inner, dtype=F64), "Bᵀ B")
        warned = told(lab.GaLoreProjector(rank, 1, side).refresh, G.clone())
        assert_holds(warned > 0, what="another projector warns at its first refresh")
    projector = lab.GaLoreProjector(inner - 1, 2, side)
    assert_holds(told(projector.refresh, G.clone()) == 0, what=f"rank {inner - 1} of {inner} doesn't warn")
    same(projector.is_identity, lambda: False, f"is_identity, rank {inner - 1} of {inner}")


@pytest.mark.parametrize(("shape", "rank"), [((7, 3), 5), ((2, 6), 4), ((5, 2), 3)], ids=str)
def test_projector_completes_a_large_basis(lab, rng, shape, rank):
    """Long side, rank above the short one: an orthonormal basis that begins with the singular vectors."""
    G = matrix(rng, *shape)
    k, left = min(shape), is_left("long", *shape)
    state = torch.default_generator.get_state()
    projector = lab.GaLoreProjector(rank, side="long")
    R = projector.low_rank(G.clone())
    unmoved = torch.equal(state, torch.default_generator.get_state())
    assert_holds(unmoved, what="a projector leaves the global random state alone")
    what = f"rank {rank}, side long, of a {shape} gradient"
    B = projector.basis
    near(B.T @ B, lambda: torch.eye(rank, dtype=F64), f"Bᵀ B, {what}")
    near(B[:, :k].clone(), lambda: true_basis(G, k, left), f"first {k} vectors, {what}")
    near(projector.back(R), lambda: G, f"back(R), {what}")
    same(projector.is_identity, lambda: False, f"is_identity, {what}")


def powers_of_two(rng, rows, columns):
    """8, 4, 2, … with random signs, at most one a row and a column: its singular vectors are axes."""
    n = min(rows, columns)
    signs = torch.where(randn(rng, n) > 0, 1.0, -1.0).to(F64)
    G = torch.zeros(rows, columns, dtype=F64)
    G[torch.randperm(rows, generator=rng)[:n], torch.randperm(columns, generator=rng)[:n]] = (
        signs * 8.0 * 0.5 ** torch.arange(n)
    )
    return G


@pytest.mark.parametrize("side", SIDES)
def test_projector_keeps_dtype_and_input(lab, rng, side):
    """B and R have the dtype of G; G is not written to, may lie in any order and carry a graph."""
    for dtype in (F32, BF16, torch.float16):
        for shape in MATRICES:
            G = powers_of_two(rng, *shape)
            projector = lab.GaLoreProjector(2, side=side)
            passed = G.to(dtype)
            R = projector.low_rank(passed)
            left = is_left(side, *shape)
            for name, actual, wanted in (
                ("basis", projector.basis, lambda G=G, left=left: true_basis(G, 2, left)),
                ("R", R, lambda G=G: low_rank_of(G, G, 2, side)),
                ("back(R)", projector.back(R), lambda G=G: projected(G, G, 2, side)),
            ):
                assert_matches(
                    actual,
                    lambda wanted=wanted, dtype=dtype: wanted().to(dtype),
                    atol=1e-3,
                    rtol=0.0,
                    what=f"{name} of a {dtype} gradient",
                )
            same(passed, lambda G=G, d=dtype: G.to(d), f"a {dtype} gradient after low_rank")
    G = matrix(rng, 4, 3)
    leaf = strided(G).requires_grad_()
    passed = leaf * 1.0
    projector = lab.GaLoreProjector(2, side=side)
    R = projector.low_rank(passed)
    near(R.detach(), lambda: low_rank_of(G, G, 2, side), "R of a gradient in another memory order")
    result = projector.project(passed)
    sent_back = projector.back(
        (leaf @ projector.basis if R.shape[0] == 4 else projector.basis.T @ leaf) * 1.0
    )
    graphless = not any(x.requires_grad for x in (R, result, sent_back, projector.basis))
    assert_holds(graphless, what="basis, R, project(G) and back(R) carry no graph")
    same(passed.detach(), lambda: G, "the gradient after the calls")


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 0},
        {"rank": -2},
        {"rank": 2, "update_every": 0},
        {"rank": 2, "update_every": -1},
        {"rank": 2, "side": "left"},
        {"rank": 2, "side": "Short"},
        {"rank": 2, "side": ""},
    ],
    ids=str,
)
def test_projector_refuses(lab, options):
    """rank and update_every below 1, and any other side: ValueError in the constructor."""
    assert_raises(ValueError, lambda: lab.GaLoreProjector(**options), what=f"GaLoreProjector with {options}")


# -------------------------------------------------------------- step 2: many gradients, and what they cost


def test_manager_chooses_what_it_projects(lab, rng):
    """2-D, at least min_elements, no word of exclude in the name: projected. All others: the same objects."""
    shapes = {
        "layers.0.up.weight": (6, 4),
        "layers.0.norm.weight": (24,),
        "small.weight": (5, 4),
        "layers.1.down.weight": (4, 6),
        "skip_me.weight": (6, 4),
        "model.unskipped.weight": (6, 4),
        "conv.weight": (4, 3, 2),
        "layers.1.tied.head": (6, 6),
        "Skip.weight": (4, 7),
        "scale": (),
    }
    tracked = ["layers.0.up.weight", "layers.1.down.weight", "Skip.weight"]
    originals = {n: matrix(rng, *s) if len(s) == 2 else randn(rng, *s) for n, s in shapes.items()}
    given = {name: g.clone() for name, g in originals.items()}
    given["layers.2.up.weight"] = None
    passed = dict(given)
    manager = lab.GaLoreManager(2, 3, 24, ("skip", "tied"))
    result = manager.process_gradients(passed)
    assert_holds(result is not passed, what="process_gradients returns a new dict")
    assert_holds(list(result) == list(given), what="the result has the keys of the input, in their order")
    assert_holds(
        all(passed[name] is given[name] for name in given), what="the dict passed in stays as it was"
    )
    for name, g in originals.items():
        same(given[name], lambda g=g: g, f"the gradient of {name} after the call")
        if name in tracked:
            near(result[name], lambda g=g: projected(g, g, 2), f"the projected gradient of {name}")
        else:
            assert_holds(result[name] is given[name], what=f"the gradient of {name} comes as it was")
    assert_holds(result["layers.2.up.weight"] is None, what="None comes back as None")
    assert_holds(isinstance(manager.projectors, dict), what="manager.projectors is a dict")
    assert_holds(sorted(manager.projectors) == sorted(tracked), what="projectors are kept by tracked names")
    kinds = {type(projector) for projector in manager.projectors.values()}
    assert_holds(kinds == {lab.GaLoreProjector}, what="manager.projectors holds GaLoreProjectors")


def test_manager_defaults(lab, rng):
    """min_elements 4096, exclude "embed", update_every 200."""
    shapes = {"a": (64, 64), "b": (63, 65), "embed": (64, 64), "tok_embeddings": (64, 64)}
    first = {name: matrix(rng, *shape) for name, shape in shapes.items()}
    manager = lab.GaLoreManager(rank=3)
    manager.process_gradients({name: g.clone() for name, g in first.items()})
    second = {name: randn(rng, *shape) for name, shape in shapes.items()}
    result = manager.process_gradients({name: g.clone() for name, g in second.items()})
    near(result["a"], lambda: projected(first["a"], second["a"], 3), "the second gradient of a")
    for name in ("b", "embed", "tok_embeddings"):
        same(result[name], lambda name=name: second[name], f"the gradient of {name}")
    assert_holds(list(manager.projectors) == ["a"], what="only a is tracked")
    everything = lab.GaLoreManager(rank=3, min_elements=1, exclude=())
    everything.process_gradients({"embed": matrix(rng, 4, 5), "x": randn(rng, 9)})
    assert_holds(list(everything.projectors) == ["embed"], what="exclude=() excludes nothing")


def test_manager_counts_for_each_name(lab, rng):
    """A projector a name, each with its own ticks: where there is no gradient, the counter waits."""
    names = {"a": [0, 1, 2, 3, 4, 5], "b": [0, 2, 3, 5], "late": [3, 4, 5]}
    gradients = [{name: matrix(rng, 4, 3) for name in names} for _ in range(6)]
    manager = lab.GaLoreManager(rank=1, update_every=2, min_elements=1)
    for t, row in enumerate(gradients):
        given = {name: g.clone() if t in names[name] else None for name, g in row.items()}
        if t == 1:
            del given["b"]  # not there at all
        result = manager.process_gradients(given)
        for name, own in names.items():
            if t in own:
                owner = own[own.index(t) // 2 * 2]
                near(
                    result[name],
                    lambda name=name, t=t, o=owner: projected(gradients[o][name], gradients[t][name], 1),
                    f"the projected gradient of {name} in call {t}",
                )
            else:
                assert_holds(result.get(name) is None, what=f"{name} has no gradient in call {t}")


def test_manager_judges_a_name_once(lab, rng):
    """At its first gradient that isn't None; what it gets later changes nothing."""
    manager = lab.GaLoreManager(rank=1, update_every=1, min_elements=12)
    small, large = randn(rng, 2, 3), matrix(rng, 4, 3)
    manager.process_gradients({"was_small": small.clone(), "was_none": None, "flat": randn(rng, 12)})
    result = manager.process_gradients(
        {"was_small": large.clone(), "was_none": large.clone(), "flat": large.clone()}
    )
    same(result["was_small"], lambda: large, "a large gradient of a name whose first one was small")
    same(result["flat"], lambda: large, "a 2-D gradient of a name whose first one was 1-D")
    near(result["was_none"], lambda: projected(large, large, 1), "the first gradient after a None")
    assert_holds(list(manager.projectors) == ["was_none"], what="one name of three is tracked")
    same(manager.memory_report()["tracked"], lambda: 1, "tracked")


def report_of(shapes, rank, bytes_per_float):
    """What the report must say, with the formulas of each rule written out."""

    def floats(left, bases=True):
        total = 0
        for m, n in shapes:
            inner, outer = (m, n) if left(m, n) else (n, m)
            r = min(rank, inner)
            total += 2 * r * outer + bases * inner * r
        return total

    counts = {
        "short": floats(lambda m, n: m < n),
        "long": floats(lambda m, n: m >= n),
        "left": floats(lambda m, n: True),
        "right": floats(lambda m, n: False),
        "moments_only": floats(lambda m, n: m < n, bases=False),
    }
    full = sum(2 * m * n for m, n in shapes)
    mib = bytes_per_float / 2**20
    return {
        "tracked": len(shapes),
        "full_adam_floats": full,
        "galore_floats": counts["short"],
        "full_adam_mib": full * mib,
        "galore_mib": counts["short"] * mib,
        "ratio": counts["short"] / full,
        "rules_mib": {rule: count * mib for rule, count in counts.items()},
    }


COUNTS = ("tracked", "full_adam_floats", "galore_floats")
SHARES = ("full_adam_mib", "galore_mib", "ratio")
RULE_NAMES = ("short", "long", "left", "right", "moments_only")


@pytest.mark.parametrize("rank", [1, 2, 4, 7])
def test_manager_reports_its_memory(lab, rng, rank):
    """Floats and MiB of the tracked matrices, by five accounting rules; the rank is cut on each side."""
    d = between(rng, 4, 5)
    shapes = [(d, d), (d, d), (3 * d, d), (d, 2 * d), (2, d), (d, 3)]
    gradients = {f"layers.{i}.weight": matrix(rng, *shape) for i, shape in enumerate(shapes)}
    manager = lab.GaLoreManager(rank, min_elements=1)
    for _ in range(2):
        quiet(manager.process_gradients, {"embed": matrix(rng, 9, 9), "bias": randn(rng, 4), **gradients})
    for options in ({}, {"bytes_per_float": 2}):
        report = manager.memory_report(**options)
        size = options.get("bytes_per_float", 4)
        assert_holds(isinstance(report, dict), what="memory_report returns a dict")
        names = {*COUNTS, *SHARES, "rules_mib"}
        assert_holds(set(report) == names, what=f"the report's keys are {', '.join(sorted(names))}")
        what = f"rank {rank}, {size} bytes a float"
        for key in COUNTS:
            same(report[key], lambda key=key, s=size: report_of(shapes, rank, s)[key], f"{key}, {what}")
        for key in SHARES:
            close(report[key], lambda key=key, s=size: report_of(shapes, rank, s)[key], f"{key}, {what}")
        rules = report["rules_mib"]
        assert_holds(set(rules) == set(RULE_NAMES), what=f"rules_mib has the keys {', '.join(RULE_NAMES)}")
        for rule in RULE_NAMES:
            close(
                rules[rule],
                lambda rule=rule, s=size: report_of(shapes, rank, s)["rules_mib"][rule],
                f"rules_mib, {rule}, {what}",
            )


# ------------------------------------------------------------------------------- the optimizers' oracles


def path_of(rule):
    """A path on plain tensors from a rule for one step of parameter i: rule(p, g, state, options, i) → p."""

    def path(starts, gradients, options):
        weights, states, entries = list(starts), [{"t": 0} for _ in starts], []
        for t, row in enumerate(gradients):
            before = list(weights)
            for i, gradient in enumerate(row):
                if gradient is not None:
                    states[i]["t"] += 1
                    weights[i] = rule(before[i], gradient, states[i], options(t, i), i)
            entries.append(record(before, list(weights)))
        return entries

    return path


def average(state, name, new, beta):
    """state[name] ← β · state[name] + (1 − β) · new, from 0."""
    state[name] = beta * state.get(name, torch.zeros_like(new)) + (1 - beta) * new
    return state[name]


def starts_of(subject, rng):
    return [randn(rng, *shape) for shape in subject.shapes]


def check_path(subject, lab, rng, steps, what, options=None, build=None):
    """A run of some steps under one set of options equals the oracle's."""
    options = subject.options if options is None else options
    starts, gradients = starts_of(subject, rng), subject.gradients(rng, steps, subject.shapes)
    params = parameters(starts)
    path = run((build or subject.build)(lab, params, options), params, gradients)
    subject.follows(path, lambda: subject.path(starts, gradients, lambda t, i: options), what)


# ------------------------------------------------------------------------------- step 3: GaLoreAdamW


def galore_rule(p, g, state, o, i):
    (beta1, beta2), t, left = o["betas"], state["t"], p.ndim == 2 and p.shape[0] < p.shape[1]
    R = g
    if p.ndim == 2:
        if (t - 1) % o["update_every"] == 0:
            state["B"] = true_basis(g, min(o["rank"], *p.shape), left)
        R = shrink(state["B"], g, left)
    m, v = average(state, "m", R, beta1), average(state, "v", R * R, beta2)
    N = m / (v.sqrt() + o["eps"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
    if p.ndim == 2:
        N = o["scale"] * expand(state["B"], N, left)
    return (p - o["lr"] * N) * (1 - o["lr"] * o["weight_decay"])


def galore_gradients(rng, steps, shapes):
    """Matrices with singular values that lie apart; elsewhere normal."""
    return [[matrix(rng, *s) if len(s) == 2 else randn(rng, *s) for s in shapes] for _ in range(steps)]


def galore_schedule(t, group):
    """A learning rate of 0 in between: such a step counts. The rank differs by group and stays."""
    if group == 1:
        return {
            "rank": 1,
            "update_every": 2,
            "scale": 1.5 - 0.2 * t,
            "lr": 0.03 * (t + 1),
            "betas": (0.3 + 0.1 * t, 0.9),
            "eps": 1e-3,
            "weight_decay": 0.5 - 0.1 * t,
        }
    return {
        "rank": 2,
        "update_every": 3 if t < 3 else 2,
        "scale": 0.5 + 0.3 * t,
        "lr": 0.02 * (t - 2) ** 2,
        "betas": (0.9 - 0.1 * t, 0.99 - 0.05 * t),
        "eps": 0.1 / (t + 1),
        "weight_decay": 0.1 * t,
    }


def galore_numel(shape):
    """Basis and two moments of R, with rank 2; two full moments for what is no matrix."""
    if len(shape) != 2:
        return 2 * math.prod(shape)
    r = min(2, *shape)
    return min(shape) * r + 2 * r * max(shape)


GALORE = Subject(
    name="GaLoreAdamW",
    build=lambda lab, params, options: lab.GaLoreAdamW(params, **options),
    path=path_of(galore_rule),
    options={
        "rank": 2,
        "update_every": 3,
        "scale": 0.6,
        "lr": 0.2,
        "betas": (0.8, 0.95),
        "eps": 0.05,
        "weight_decay": 0.3,
    },
    schedule=galore_schedule,
    exact={},
    shapes=[(5, 3), (3, 6), (4,)],
    gradients=galore_gradients,
    atol=NEAR["atol"],
    rtol=NEAR["rtol"],
    continues=1e-13,
    state_numel=galore_numel,
    # A matrix of zeros, of NaN, or with equal singular values has no one basis: tests of their own follow.
    without=("missing-gradients", "nan", "dtype"),
)
GALORE_OF_VECTORS = replace(GALORE, name="GaLoreAdamW on vectors", shapes=[(4,), (3,), ()])


def test_galore_matches_its_formula(lab, rng):
    """8 steps with 3 bases, tall, wide, square, no matrix: moments stay at a refresh, decay comes last."""
    more = replace(GALORE, shapes=[(5, 3), (3, 6), (4, 4), (4,), (), (2, 2, 2)])
    check_path(more, lab, rng, 8, "GaLoreAdamW")
    arguments = (1, 2, 0.7, 0.3, (0.7, 0.9), 0.02, 0.4)
    names = ("rank", "update_every", "scale", "lr", "betas", "eps", "weight_decay")
    options = dict(zip(names, arguments, strict=True))
    what = "GaLoreAdamW with its options by position"
    check_path(GALORE, lab, rng, 5, what, options, lambda lab, params, o: lab.GaLoreAdamW(params, *arguments))


def test_galore_defaults(lab, rng):
    """update_every 200, scale 0.25, lr 0.01, betas (0.9, 0.999), eps 1e-6, no decay."""
    defaults = {
        "rank": 1,
        "update_every": 200,
        "scale": 0.25,
        "lr": 0.01,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 0.0,
    }
    first, later, last = (1e-5 * matrix(rng, 2, 3) for _ in range(3))
    gradients = [first, *[later] * 199, last]
    start = randn(rng, 2, 3)
    p = nn.Parameter(start.clone())
    optimizer = lab.GaLoreAdamW([p], rank=1)
    weights = {}
    for t, G in enumerate(gradients, start=1):
        p.grad = G.clone()
        optimizer.step()
        if t in (1, 2, 200, 201):
            weights[t] = p.detach().clone()

    @cache
    def wanted():
        return GALORE.path([start], [[G] for G in gradients], lambda t, i: defaults)

    for t, weight in weights.items():
        near(
            weight,
            lambda t=t: wanted()[t - 1]["weight of parameter 0"],
            f"a matrix after {t} steps of GaLoreAdamW with its defaults",
        )
    p = nn.Parameter(start[0].clone())
    run(lab.GaLoreAdamW([p], 1), [p], [[first[0]]] * 2)
    weight = p.detach()

    def vector():
        path = GALORE.path([start[0]], [[first[0]]] * 2, lambda t, i: defaults)
        return path[-1]["weight of parameter 0"]

    near(weight, vector, "a vector after 2 steps of GaLoreAdamW with its defaults")


def test_galore_epsilon_stands_on_the_uncorrected_root(lab, rng):
    """First step, gradients from 1e-3 ε to 1e3 ε: ε/√(1 − β₂) is what Adam's ε becomes."""
    eps = number(rng, 1e-4, 1e-3)
    g = eps * 10.0 ** torch.linspace(-3, 3, 7, dtype=F64) * torch.where(randn(rng, 7) > 0, 1.0, -1.0)
    p = nn.Parameter(torch.zeros(7, dtype=F64))
    run(lab.GaLoreAdamW([p], rank=1, lr=0.5, betas=(0.9, 0.99), eps=eps), [p], [[g]])
    close(p.detach(), lambda: -0.5 * g / (g.abs() + 10 * eps), "the first step of a vector")


def test_galore_moves_inside_its_basis(lab, rng):
    """The update of a matrix has the rank of its basis: the first step is the sign of R, projected back."""
    start, G = torch.zeros(6, 5, dtype=F64), matrix(rng, 6, 5)
    p = nn.Parameter(start.clone())
    run(lab.GaLoreAdamW([p], 2, 10, 1.0, 0.1, eps=1e-30), [p], [[G]])
    moved = p.detach().clone()

    def step():
        B = true_basis(G, 2, left=False)
        return -0.1 * (G @ B).sign() @ B.T

    near(moved, step, "the first step, which is back(sign(R))")
    outside = float(torch.linalg.svdvals(moved)[2])
    assert_within(outside, 0.0, 1e-12, what="third singular value of a step of rank 2")


def test_galore_with_full_rank_or_more(lab, rng):
    """A rank above the short side is cut; the moments still live in the basis, which turns the update."""
    options = {**GALORE.options, "rank": 9}
    subject = replace(GALORE, shapes=[(5, 3), (1, 4), (4, 1)])
    what = "GaLoreAdamW of a rank above the short side"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such a rank may be warned of
        check_path(subject, lab, rng, 5, what, options)


def test_galore_counts_each_matrix_alone(lab, rng):
    """A matrix without gradient neither moves, decays nor counts, and its basis waits."""
    starts = [randn(rng, 4, 3)] * 4
    gradients = [[row[0]] * 4 for row in galore_gradients(rng, 8, [(4, 3)])]
    for t, row in enumerate(gradients):
        row[1] = row[1] if t >= 2 else None
        row[2] = row[2] if t % 3 == 0 else None
        row[3] = row[3] if t % 3 else torch.zeros(4, 3, dtype=F64) if t and t % 2 else None
    params = parameters(starts)
    path = run(GALORE.build(lab, grouped(params, 2), GALORE.options), params, gradients)
    GALORE.follows(path, lambda: GALORE.constant(starts, gradients), "GaLoreAdamW with missing gradients")


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_galore_keeps_the_dtype(lab, rng, dtype):
    """A bfloat16 matrix stays one, and moves as it should: all numbers here are exact in 16 bits."""
    options = {
        **GALORE.options,
        "scale": 0.5,
        "lr": 8.0,
        "betas": (0.5, 0.75),
        "eps": 0.0,
        "weight_decay": 1 / 16,
    }
    for shape in ((4, 3), (3, 4)):
        start = torch.randint(-8, 9, shape, generator=rng).to(F64)
        G = powers_of_two(rng, *shape)
        p = nn.Parameter(start.to(dtype))
        optimizer = GALORE.build(lab, [p], {**options, "eps": 1e-8})
        p.grad = G.to(dtype)
        optimizer.step()
        assert_matches(
            p.detach(),
            lambda start=start, G=G: GALORE.one_step(start, G, {**options, "eps": 1e-8}).to(dtype),
            atol=0.1,
            rtol=0.0,
            what=f"a {dtype} matrix under GaLoreAdamW",
        )


def test_galore_state_is_plain(lab, rng):
    """Tensors, numbers, dicts and lists: a state_dict that `torch.load` takes, no projector object."""
    params = parameters(starts_of(GALORE, rng))
    optimizer = GALORE.build(lab, params, GALORE.options)
    run(optimizer, params, galore_gradients(rng, 1, GALORE.shapes))

    def plain(value):
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        if isinstance(value, list | tuple):
            return all(map(plain, value))
        return value is None or isinstance(value, torch.Tensor | int | float | str)

    states = [dict(optimizer.state[p]) for p in params]
    assert_holds(all(len(state) > 0 for state in states), what="each parameter has a state in self.state[p]")
    assert_holds(all(map(plain, states)), what="the state holds tensors, numbers, dicts and lists only")


@pytest.mark.parametrize("rule", GALORE.rules)
def test_galore_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](GALORE, lab, rng)


@pytest.mark.parametrize("rule", ["missing-gradients", "nan"])
def test_galore_keeps_the_contract_for_vectors(lab, rng, rule):
    """The rules that a matrix of zeros or NaN, which has no basis, can't be asked for."""
    RULES[rule](GALORE_OF_VECTORS, lab, rng)


# ---------------------------------------------------------------------------------- step 4: Adam-mini

SIZES = {"dim": 5, "n_heads": 2}  # 25 // 2 = 12 entries a head; 5 · (5 // 2) would be 10
KINDS = {
    "elementwise": (
        *("layers.0.attn.q_proj.bias", "mlp.fc.BIAS", "key_norm.weight", "embed_norm.weight", "Norm.weight"),
        *("ln_f.weight", "mlp.ln_1.weight", "h.0.ln1.weight", "h.0.LN2.value", "mlp.lnorm_out.scale"),
        *("linear.ln.weight", "attn.wq.layernorm.weight", "h.0.post_ln_mlp.weight"),
    ),
    "head": (
        *("attn.q_proj.weight", "attn.k_proj.weight", "wq", "layers.3.attention.wk.weight", "Query.weight"),
        *(
            "attn.key.weight",
            "query_key_value.weight",
            "mlp.query.weight",
            "value_and_key.linear",
            "o_proj.WQ",
        ),
    ),
    "row": (
        *("embed.weight", "tok_EMBD.weight", "transformer.wte.weight", "lm_head.weight", "output.weight"),
        *("final_layer.weight", "attn.v_proj.weight", "attn.wv.weight", "attn.value.weight", "o_proj.weight"),
        *("attn.wo.weight", "h.0.attn.proj.weight", "feed_forward.w1.weight", "my.Linear.weight"),
        *("h.3.mlp.up.weight", "ln.mlp.weight", "mlp.ln", "lnmlp", "mlp.kiln.weight"),
    ),
}
UNKNOWN = ("gate.weight", "layers.0.attn.w_q.weight", "weight", "ln", "ln.a.b", "attn.c_attn.weight")


def blocks_of(shape, kind, dim, n_heads):
    """For each entry of the flattened tensor, the number of its block."""
    n = math.prod(shape)
    size = {"elementwise": 1, "head": dim * dim // n_heads, "row": n // shape[0] if shape else 1}[kind]
    return [j // size for j in range(n)]


def mini_path(kinds, dim, n_heads):
    """Adam-mini's oracle, entry by entry; kinds(i, shape) is how parameter i is cut."""

    def rule(p, g, state, o, i):
        kind = kinds(i, p.shape)
        (beta1, beta2), t = o["betas"], state["t"]
        owner = torch.tensor(blocks_of(p.shape, kind, dim, n_heads))
        flat = g.reshape(-1)
        means = torch.bincount(owner, flat**2) / torch.bincount(owner)
        m, v = average(state, "m", flat, beta1), average(state, "v", means, beta2)
        moved = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt()[owner] + o["eps"])
        decay = 0.0 if kind == "elementwise" else o["weight_decay"]
        return p * (1 - o["lr"] * decay) - o["lr"] * moved.reshape(p.shape)

    return path_of(rule)


def uneven(rng, steps, shapes):
    """Entries from 0.01 to 10: blocks with very different energies, and some near ε."""
    return [
        [randn(rng, *s) * 10.0 ** (1.5 * randn(rng, *s).clamp(-1.5, 1)) for s in shapes] for _ in range(steps)
    ]


def mini_kind(i, shape):
    """The suite's parameters: (4, 6) is a head matrix, all others are cut into rows."""
    return "head" if tuple(shape) == (4, 6) else "row"


def mini_build(lab, params, options):
    names = {"head": "layers.{}.attn.q_proj.weight", "row": "layers.{}.mlp.weight"}
    named = [(names[mini_kind(i, p.shape)].format(i), p) for i, p in enumerate(params)]
    return lab.AdamMini(iter(named), **options, **SIZES)


def mini_schedule(t, group):
    """A learning rate of 0 in between: such a step counts."""
    return {
        "lr": 0.02 * (t - 2) ** 2,
        "betas": (0.9 - 0.1 * t, 0.99 - 0.05 * t),
        "eps": 0.1 / (t + 1),
        "weight_decay": 0.1 * t,
    }


ADAM_MINI = Subject(
    name="AdamMini",
    build=mini_build,
    path=mini_path(mini_kind, **SIZES),
    options={"lr": 0.1, "betas": (0.8, 0.95), "eps": 0.05, "weight_decay": 0.3},
    schedule=mini_schedule,
    exact={"lr": 8.0, "betas": (0.5, 0.75), "eps": 1e-8, "weight_decay": 1 / 16},
    shapes=[(4, 6), (3, 5), (5,)],
    gradients=uneven,
    continues=1e-13,
    makes_groups=True,
    state_numel=lambda shape: math.prod(shape) + (2 if tuple(shape) == (4, 6) else shape[0]),
    without=("late-group",),  # its names come with the constructor
)


def named_path(named, path):
    """The path with the parameters' names in place of their numbers."""
    return [
        {
            key.rsplit(" ", 1)[0] + f" {named[int(key.rsplit(' ', 1)[1])]}": value
            for key, value in entry.items()
        }
        for entry in path
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_adam_mini_cuts_by_name(lab, rng, kind):
    """Every word of the page, lower-cased, the first rule that fits; elementwise is never decayed."""
    names = KINDS[kind]
    start, steps = randn(rng, 4, 6), uneven(rng, 3, [(4, 6)])
    options = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 0.05, "weight_decay": 0.3}
    starts, gradients = [start] * len(names), [[row[0]] * len(names) for row in steps]
    params = parameters(starts)
    optimizer = lab.AdamMini(list(zip(names, params, strict=True)), **options, **SIZES)
    path = named_path(names, run(optimizer, params, gradients))

    def wanted():
        oracle = mini_path(lambda i, shape: kind, **SIZES)
        return named_path(names, oracle(starts, gradients, lambda t, i: options))

    ADAM_MINI.follows(path, wanted, f"AdamMini, parameters that are cut {kind}")


def test_adam_mini_matches_its_formula(lab, rng):
    """Six steps of a model with all kinds of parameters, arguments by position."""
    kinds = ["row", "elementwise", "head", "row", "elementwise", "head", "row"]
    names = ["wte.weight", "ln_1.weight", "h.q_proj.weight", "h.v_proj.weight", "h.mlp.bias", "h.wk", "mlp.s"]
    shapes = [(7, 3), (5,), (6, 4), (4, 5), (3,), (3, 4), (5,)]
    starts, gradients = [randn(rng, *s) for s in shapes], uneven(rng, 6, shapes)
    params = parameters(starts)
    optimizer = lab.AdamMini(zip(names, params, strict=True), 0.2, (0.7, 0.9), 0.1, 0.4, dim=6, n_heads=3)
    path = run(optimizer, params, gradients)
    options = {"lr": 0.2, "betas": (0.7, 0.9), "eps": 0.1, "weight_decay": 0.4}

    def wanted():
        oracle = mini_path(lambda i, shape: kinds[i], dim=6, n_heads=3)
        return oracle(starts, gradients, lambda t, i: options)

    ADAM_MINI.follows(path, wanted, "AdamMini")


def test_adam_mini_defaults(lab, rng):
    """lr 1e-3, betas (0.9, 0.999), eps 1e-8, no decay; dim and n_heads only by name."""
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    subject = replace(
        ADAM_MINI,
        gradients=lambda rng, steps, shapes: [[1e-7 * g for g in r] for r in uneven(rng, steps, shapes)],
    )
    what = "AdamMini with its defaults"
    check_path(subject, lab, rng, 4, what, defaults, lambda lab, params, o: mini_build(lab, params, {}))
    named = [("mlp.weight", nn.Parameter(randn(rng, 3, 5)))]
    arguments = (1e-3, (0.9, 0.999), 1e-8, 0.0, 5, 2)
    assert_raises(TypeError, lambda: lab.AdamMini(named, *arguments), what="dim and n_heads by position")
    assert_raises(TypeError, lambda: lab.AdamMini(named, dim=5), what="no n_heads")


@pytest.mark.parametrize("name", UNKNOWN)
def test_adam_mini_refuses_unknown_names(lab, rng, name):
    """ValueError in the constructor, with the name in its text; a frozen one is left out instead."""
    good, bad = parameters([randn(rng, 3, 5), randn(rng, 3, 5)])
    named = [("mlp.weight", good), (name, bad)]
    text = ""
    try:
        lab.AdamMini(named, **SIZES)
    except ValueError as error:
        text = str(error)
    assert_raises(ValueError, lambda: lab.AdamMini(named, **SIZES), what=f"a parameter of the name {name!r}")
    assert_holds(name in text, what=f"the error names {name!r}")
    bad.requires_grad_(False)
    optimizer = lab.AdamMini(named, **SIZES)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert_holds(len(held) == 1 and held[0] is good, what="a parameter that doesn't require grad is left out")


def test_adam_mini_shares_within_a_block_only(lab, rng):
    """First step: an entry moves by lr · g / rms(g of its block), whatever other blocks hold."""
    shape, sizes = (6, 4), {"dim": 4, "n_heads": 2}  # three heads of 8 entries
    scale = torch.tensor([1e-3, 1.0, 30.0], dtype=F64).repeat_interleave(8).reshape(shape)
    g = randn(rng, *shape) * scale
    p = nn.Parameter(torch.zeros(shape, dtype=F64))
    run(lab.AdamMini([("k_proj.weight", p)], lr=0.5, eps=1e-12, **sizes), [p], [[g]])

    def step():
        heads = g.reshape(3, 8)
        return -0.5 * (heads / (heads.square().mean(1, keepdim=True).sqrt() + 1e-12)).reshape(shape)

    close(p.detach(), step, "the first step of three heads whose gradients differ a thousandfold")


def test_adam_mini_schedule_reaches_every_kind(lab, rng):
    """lr, betas and eps are read from every group at every step; elementwise parameters stay undecayed."""
    kinds = ["elementwise", "head", "row"]
    names = ["mlp.bias", "q_proj.weight", "mlp.weight"]
    starts, gradients = [randn(rng, 4, 6) for _ in names], uneven(rng, 5, [(4, 6)] * 3)
    params = parameters(starts)
    optimizer = lab.AdamMini(zip(names, params, strict=True), weight_decay=0.3, **SIZES)

    def options(t, group):
        return {key: value for key, value in mini_schedule(t, group).items() if key != "weight_decay"}

    path = run(optimizer, params, gradients, options)

    def wanted():
        oracle = mini_path(lambda i, shape: kinds[i], **SIZES)
        return oracle(starts, gradients, lambda t, i: {**options(t, 0), "weight_decay": 0.3})

    ADAM_MINI.follows(path, wanted, "AdamMini under a schedule, all kinds")


def test_adam_mini_reads_each_group(lab, rng):
    """Groups may differ: with a rate of its own for each group, steps in units of that rate are as ever."""
    kinds = ["elementwise", "head", "row"]
    names = ["mlp.bias", "q_proj.weight", "mlp.weight"]
    starts, gradients = [randn(rng, 4, 6) for _ in names], uneven(rng, 3, [(4, 6)] * 3)
    params = parameters(starts)
    optimizer = lab.AdamMini(zip(names, params, strict=True), eps=0.1, **SIZES)
    for t, row in enumerate(gradients):
        before = [p.detach().clone() for p in params]
        rates: dict[int, float] = {}
        for place, group in enumerate(optimizer.param_groups):
            group["lr"] = 0.1 * (place + 1 + t)
            rates |= {id(p): group["lr"] for p in group["params"]}
        for p, gradient in zip(params, row, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
        for i, name in enumerate(names):
            moved = (params[i].detach() - before[i]) / rates[id(params[i])]

            def wanted(i=i, t=t):
                options = {"lr": 1.0, "betas": (0.9, 0.999), "eps": 0.1, "weight_decay": 0.0}
                oracle = mini_path(lambda _, shape: kinds[i], **SIZES)
                path = oracle(starts[i : i + 1], [row[i : i + 1] for row in gradients], lambda t, _: options)
                return path[t]["update of parameter 0"]

            near(moved, wanted, f"step {t + 1} of {name}, in units of its group's rate")


@pytest.mark.parametrize("rule", ADAM_MINI.rules)
def test_adam_mini_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](ADAM_MINI, lab, rng)


# ---------------------------------------------------------------------------------- step 5: Adafactor


def torch_adafactor(starts, gradients, options):
    """The same run under torch.optim.Adafactor, with a group for each parameter."""
    params = parameters(starts)
    return run(torch.optim.Adafactor([{"params": [p]} for p in params]), params, gradients, options)


def adafactor_gradients(rng, steps, shapes):
    """Rows and columns of very different sizes, and steps too: clipped and not clipped."""
    rows = [[randn(rng, *s) * 10.0 ** randn(rng, *s).clamp(-2, 1) for s in shapes] for _ in range(steps)]
    return [[g * (5.0 if t % 2 else 0.2) for g in row] for t, row in enumerate(rows)]


def adafactor_schedule(t, group):
    """A learning rate of 0 in between: such a step counts."""
    if group == 1:
        return {
            "lr": 0.9 - 0.1 * t,
            "beta2_decay": -0.4 - 0.1 * t,
            "eps": (0.3 / (t + 1), 0.4 * t),
            "d": 0.5,
            "weight_decay": 0.5 - 0.1 * t,
        }
    return {
        "lr": 0.1 * (t - 2) ** 2,
        "beta2_decay": -0.9 + 0.1 * t,
        "eps": (None, 1e-3) if t % 2 else (0.1, 0.8),
        "d": 1.5 - 0.3 * t,
        "weight_decay": 0.1 * t,
    }


ADAFACTOR = Subject(
    name="Adafactor",
    build=lambda lab, params, options: lab.Adafactor(params, **options),
    path=torch_adafactor,
    options={"lr": 0.3, "beta2_decay": -0.6, "eps": (0.05, 0.01), "d": 0.8, "weight_decay": 0.3},
    schedule=adafactor_schedule,
    exact={"lr": 0.5, "beta2_decay": -0.8, "eps": (None, 16.0), "d": 2.0, "weight_decay": 1 / 8},
    shapes=[(4, 3), (5,), (3, 2, 4)],
    gradients=adafactor_gradients,
    continues=1e-13,
    state_numel=lambda s: math.prod(s[:-1]) + math.prod(s[:-2] + s[-1:]) if len(s) > 1 else math.prod(s),
)


def test_adafactor_matches_torch_exactly(lab, rng):
    """8 steps of shapes of 0 to 4 dimensions equal torch.optim.Adafactor to 1e-10; arguments by position."""
    options = {"lr": 0.7, "beta2_decay": -0.7, "eps": (1e-3, 0.5), "d": 0.9, "weight_decay": 0.2}
    arguments = tuple(options.values())
    build = lambda lab, params, o: lab.Adafactor(params, *arguments)  # noqa: E731
    more = replace(ADAFACTOR, shapes=[(4, 3), (5,), (), (3, 2, 4), (1, 3), (2, 2, 1, 3)])
    check_path(more, lab, rng, 8, "Adafactor", options, build)


def test_adafactor_defaults(lab, rng):
    """lr 0.01, beta2_decay −0.8, eps (None, 1e-3), d 1, no decay; 1/√t takes over where it is below lr."""
    defaults = {"lr": 1e-2, "beta2_decay": -0.8, "eps": (None, 1e-3), "d": 1.0, "weight_decay": 0.0}
    build = lambda lab, params, o: lab.Adafactor(params)  # noqa: E731
    check_path(ADAFACTOR, lab, rng, 5, "Adafactor with its defaults", defaults, build)
    check_path(ADAFACTOR, lab, rng, 6, "Adafactor with lr 0.6", {**defaults, "lr": 0.6})


@pytest.mark.parametrize("size", [1e-7, 1e-9, 1e-13, 1e-17, 0.0], ids=str)
def test_adafactor_epsilons(lab, rng, size):
    """ε₁ bounds the mean of R, ε₁² bounds V; None is finfo(float64).eps; ε₂ bounds rms(p)."""
    starts = [1e-5 * randn(rng, *shape) for shape in ADAFACTOR.shapes]
    starts[1] = torch.zeros_like(starts[1])
    gradients = [[size * g for g in row] for row in adafactor_gradients(rng, 3, ADAFACTOR.shapes)]
    for eps in ((None, 1e-3), (1e-8, 0.7)):
        options = {**ADAFACTOR.options, "eps": eps}
        params = parameters(starts)
        path = run(lab.Adafactor(params, **options), params, gradients)
        what = f"Adafactor with eps {eps}, gradients of size {size:g}"
        ADAFACTOR.follows(path, lambda o=options: torch_adafactor(starts, gradients, lambda t, i: o), what)


def test_adafactor_epsilon_belongs_to_the_dtype(lab, rng):
    """ε₁ = None in float32 is finfo(float32).eps: gradients of 1e-6 show it."""
    starts = [randn(rng, 4, 3).float(), randn(rng, 5).float()]
    gradients = [[1e-6 * randn(rng, 4, 3).float(), 1e-9 * randn(rng, 5).float()] for _ in range(2)]
    params = parameters(starts)
    path = run(lab.Adafactor(params, lr=0.5), params, gradients)
    defaults = {"lr": 0.5, "beta2_decay": -0.8, "eps": (None, 1e-3), "d": 1.0, "weight_decay": 0.0}
    subject = replace(ADAFACTOR, atol=1e-4, rtol=1e-3)
    subject.follows(
        path, lambda: torch_adafactor(starts, gradients, lambda t, i: defaults), "Adafactor in float32"
    )


def test_adafactor_is_exact_for_an_outer_product(lab, rng):
    """g² = a bᵀ: V is g² itself, so the first step has one size in all entries: α, or less if clipped."""
    a, b = randn(rng, 6).abs() + 0.1, randn(rng, 4).abs() + 0.1
    signs = torch.where(randn(rng, 6, 4) > 0, 1.0, -1.0).to(F64)
    g = signs * (a[:, None] * b).sqrt()
    for d in (0.5, 1.0, 2.0):
        start = randn(rng, 6, 4)
        p = nn.Parameter(start.clone())
        run(lab.Adafactor([p], lr=0.1, d=d), [p], [[g]])
        close(
            p.detach(),
            lambda start=start, d=d: start - 0.1 * start.square().mean().sqrt() * min(1.0, d) * signs,
            f"the weight after one step, d {d}",
        )


@pytest.mark.parametrize("rule", ADAFACTOR.rules)
def test_adafactor_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](ADAFACTOR, lab, rng)


# ---------------------------------------------------------------------------------------- step 6: SM3


def sm3_rule(p, g, state, o, i):
    """SM3-II, entry by entry: an accumulator for each slice (axis, index); a number has one slice."""
    accumulators, places = state.setdefault("mu", {}), torch.ones_like(p).nonzero().tolist()
    nu = torch.zeros_like(p)
    fresh: dict[tuple[int, int], float] = {}
    for place in places:
        slices = list(enumerate(place)) or [(0, 0)]
        value = min(accumulators.get(s, 0.0) for s in slices) + float(g[tuple(place)]) ** 2
        nu[tuple(place)] = value
        for s in slices:
            fresh[s] = max(fresh.get(s, 0.0), value)
    accumulators.update(fresh)
    u = torch.where(nu > 0, g / (nu + o["eps"]).sqrt(), torch.zeros_like(g))
    return p - o["lr"] * average(state, "m", u, o["momentum"])


def sm3_schedule(t, group):
    """A learning rate of 0 in between: such a step counts."""
    if group == 1:
        return {"lr": 0.3 - 0.05 * t, "momentum": 0.5 + 0.1 * t, "eps": 0.1}
    return {"lr": 0.1 * (t - 2) ** 2, "momentum": 0.9 - 0.2 * t, "eps": 0.5 / (t + 1)}


SM3 = Subject(
    name="SM3",
    build=lambda lab, params, options: lab.SM3(params, **options),
    path=path_of(sm3_rule),
    options={"lr": 0.3, "momentum": 0.8, "eps": 0.02},
    schedule=sm3_schedule,
    exact={"lr": 8.0, "momentum": 0.5, "eps": 1e-30},
    shapes=[(3, 2), (4,), (2, 3, 2)],
    gradients=uneven,
    continues=1e-13,
    state_numel=lambda shape: math.prod(shape) + (sum(shape) or 1),
)
SM3_PLAIN = replace(
    SM3,
    name="SM3 without momentum",
    options={**SM3.options, "momentum": 0.0},
    state_numel=lambda shape: sum(shape) or 1,
)


@pytest.mark.parametrize("subject", [SM3, SM3_PLAIN], ids=["momentum", "plain"])
def test_sm3_matches_its_formula(lab, rng, subject):
    """Six steps of shapes of 0 to 4 dimensions: ν from the old accumulators, the accumulators from ν."""
    check_path(
        replace(subject, shapes=[(3, 2), (4,), (), (2, 3, 2), (1, 4), (2, 1, 2, 3)]),
        lab,
        rng,
        6,
        subject.name,
    )


def test_sm3_defaults(lab, rng):
    """lr 0.1, momentum 0.9, eps 1e-30, and these arguments by position."""
    defaults = {"lr": 0.1, "momentum": 0.9, "eps": 1e-30}
    tiny = replace(
        SM3,
        gradients=lambda rng, steps, shapes: [[1e-13 * g for g in row] for row in uneven(rng, steps, shapes)],
    )
    check_path(tiny, lab, rng, 4, "SM3 with its defaults", defaults, lambda lab, params, o: lab.SM3(params))
    build = lambda lab, params, o: lab.SM3(params, 0.4, 0.6, 0.3)  # noqa: E731
    options = {"lr": 0.4, "momentum": 0.6, "eps": 0.3}
    check_path(SM3, lab, rng, 4, "SM3 with its options by position", options, build)


def test_sm3_is_adagrad_in_one_dimension(lab, rng):
    """u = g / √(Σ g²) for vectors and single numbers; and a matrix of one row has an accumulator a column."""
    for shape in ((5,), (), (1, 5), (5, 1)):
        gradients = [randn(rng, *shape) for _ in range(4)]
        p = nn.Parameter(torch.zeros(shape, dtype=F64))
        run(lab.SM3([p], lr=0.5, momentum=0.0), [p], [[g] for g in gradients])

        def adagrad(gradients=gradients):
            total, weight = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
            for g in gradients:
                total = total + g * g
                weight = weight - 0.5 * g / total.sqrt()
            return weight

        close(p.detach(), adagrad, f"a weight of shape {shape} after four steps")


def test_sm3_never_underestimates(lab, rng):
    """Σ g² <= ν for every entry, at every step: so no step is longer than AdaGrad's."""
    p = nn.Parameter(torch.zeros(4, 3, dtype=F64))
    optimizer = lab.SM3([p], lr=1.0, momentum=0.0)
    total, before = torch.zeros(4, 3, dtype=F64), torch.zeros(4, 3, dtype=F64)
    for t in range(6):
        g = uneven(rng, 1, [(4, 3)])[0][0]
        total = total + g * g
        p.grad = g.clone()
        optimizer.step()
        steps = (p.detach() - before).abs() * total.sqrt() / g.abs()
        before = p.detach().clone()
        largest = float(steps.max())
        assert_within(largest, 0.0, 1.0 + 1e-9, what=f"longest step against AdaGrad's, step {t + 1}")


def test_sm3_without_any_gradient_stands_still(lab, rng):
    """u is 0 where ν = 0, also with eps = 0; a later gradient moves it."""
    for options in ({"eps": 0.0}, {}, {"eps": 0.0, "momentum": 0.0}):
        subject = replace(SM3, options={"lr": 0.3, "momentum": 0.8, "eps": 1e-30, **options})
        starts = starts_of(SM3, rng)
        zeros = [torch.zeros_like(s) for s in starts]
        sparse = [z.clone() for z in zeros]
        sparse[0][1, 0] = number(rng)
        sparse[2][0, 1, 1] = number(rng)
        gradients = [zeros, sparse, zeros, uneven(rng, 1, SM3.shapes)[0]]
        params = parameters(starts)
        path = run(lab.SM3(params, lr=0.3, **{"momentum": 0.8, **options}), params, gradients)
        what = f"SM3 on gradients of zeros, {options or 'default eps'}"
        subject.follows(path, lambda s=subject, a=starts, g=gradients: s.constant(a, g), what)


@pytest.mark.parametrize("rule", SM3.rules)
def test_sm3_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](SM3, lab, rng)


@pytest.mark.parametrize("rule", ["missing-gradients", "state-dict", "state-size", "nan"])
def test_sm3_without_momentum_keeps_the_contract(lab, rng, rule):
    """The same with momentum 0, where no m is kept."""
    RULES[rule](SM3_PLAIN, lab, rng)


# ------------------------------------------------------------------------- step 7: Lion, and the ledger


def lion_rule(p, g, state, o, i):
    beta1, beta2 = o["betas"]
    m = state.get("m", torch.zeros_like(g))
    state["m"] = beta2 * m + (1 - beta2) * g
    return p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * (beta1 * m + (1 - beta1) * g).sign()


def lion_schedule(t, group):
    """A learning rate of 0 in between: such a step counts."""
    if group == 1:
        return {"lr": 0.03 * (t + 1), "betas": (0.3 + 0.1 * t, 0.8), "weight_decay": 0.5 - 0.1 * t}
    return {"lr": 0.02 * (t - 2) ** 2, "betas": (0.9 - 0.15 * t, 0.95 - 0.2 * t), "weight_decay": 0.1 * t}


LION = Subject(
    name="Lion",
    build=lambda lab, params, options: lab.Lion(params, **options),
    path=path_of(lion_rule),
    options={"lr": 0.1, "betas": (0.6, 0.9), "weight_decay": 0.3},
    schedule=lion_schedule,
    exact={"lr": 8.0, "betas": (0.5, 0.75), "weight_decay": 1 / 16},
    shapes=[(6, 5), (7,), ()],
    gradients=uneven,
    continues=1e-13,
    state_numel=math.prod,
    without=("nan",),  # torch.sign(NaN) is 0: the weight stands still, as the formula has it
)


def test_lion_matches_its_formula(lab, rng):
    """Twelve steps with gradients that change their signs, arguments by position."""
    options = {"lr": 0.2, "betas": (0.7, 0.95), "weight_decay": 0.4}
    build = lambda lab, params, o: lab.Lion(params, 0.2, (0.7, 0.95), 0.4)  # noqa: E731
    check_path(LION, lab, rng, 12, "Lion", options, build)


def test_lion_moves_every_weight_by_lr(lab, rng):
    """Gradients from 1e-20 to 1e9: the same step. A weight that never had a gradient stays."""
    size = torch.tensor([0.0, 1e-20, 1e-3, 1.0, 1e9], dtype=F64)
    lr = number(rng, 0.1, 0.3)
    p = nn.Parameter(torch.zeros(6, 5, dtype=F64))
    signs = torch.where(randn(rng, 6, 5) > 0, 1.0, -1.0).to(F64)
    run(lab.Lion([p], lr=lr), [p], [[signs * size]] * 3)
    close(p.detach(), lambda: -3 * lr * signs * (size > 0), "weights after three steps with one gradient")


def test_lion_defaults(lab, rng):
    """lr 1e-4, betas (0.9, 0.99), no decay."""
    defaults = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}
    subject = replace(LION, shapes=[(20, 20)])
    check_path(
        subject, lab, rng, 12, "Lion with its defaults", defaults, lambda lab, params, o: lab.Lion(params)
    )


@pytest.mark.parametrize("rule", LION.rules)
def test_lion_keeps_the_contract(lab, rng, rule):
    """What every optimizer of the labs must keep, a rule a test: `grader/optimizer_contract.py` says each."""
    RULES[rule](LION, lab, rng)


def test_state_bytes_counts_every_tensor(lab, rng):
    """numel · element_size of every tensor in the state, in nested dicts, lists and tuples; no numbers."""
    first, second = parameters([randn(rng, 3, 2), randn(rng, 4)])
    optimizer = torch.optim.Optimizer([first, second], {})
    same(lab.state_bytes(optimizer), lambda: 0, "state_bytes before the first step")
    first.grad = randn(rng, 3, 2)
    same(lab.state_bytes(optimizer), lambda: 0, "state_bytes with a gradient and no state")
    n, m = between(rng, 5, 9), between(rng, 10, 20)
    optimizer.state[first] = {"step": 7, "m": torch.zeros(n, dtype=F64), "name": "m"}
    same(lab.state_bytes(optimizer), lambda: 8 * n, "state_bytes of one float64 tensor and plain things")
    optimizer.state[second] = {
        "half": torch.zeros(m, 3, dtype=BF16),
        "codes": torch.zeros(m, dtype=torch.uint8),
        "flag": True,
        "rate": 0.5,
        "nothing": None,
        "count": torch.tensor(3.0),
        "slice": torch.zeros(8, m)[:, 1],
    }

    def flat():
        return 8 * n + 6 * m + m + 4 + 32

    same(lab.state_bytes(optimizer), flat, "state_bytes of two parameters, several dtypes")
    optimizer.state[first]["moments"] = {
        "rows": [torch.zeros(n), torch.zeros(2, n)],
        "deep": ({"a": [torch.zeros(m), 3]}, torch.zeros(1, dtype=torch.int64), []),
        "empty": torch.zeros(0),
    }
    same(lab.state_bytes(optimizer), lambda: flat() + 12 * n + 4 * m + 8, "state_bytes of a nested state")
    kept = optimizer.state[first]["step"] == 7 and len(optimizer.state) == 2
    assert_holds(kept, what="state_bytes leaves the state as it is")


def test_state_bytes_of_a_real_optimizer(lab, rng):
    """Lion holds one number a weight, in the weight's dtype; for bfloat16 float32 is as good."""
    for dtype, size, most in ((F64, 8, 8), (F32, 4, 4), (BF16, 2, 4)):
        params = [nn.Parameter(randn(rng, *shape).to(dtype)) for shape in ((5, 4), (7,))]
        optimizer = lab.Lion(params)
        run(optimizer, params, [[randn(rng, *p.shape).to(dtype) for p in params]])
        held = lab.state_bytes(optimizer)
        what = f"state_bytes after a step of Lion with 27 {dtype} weights, whose m lies in self.state[p]"
        assert_within(held, 27 * size, 27 * most + 32, what=what)
