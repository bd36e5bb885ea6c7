"""What every optimizer of the labs must keep, whatever its own rule: one table, judged in one place.

A lab's test file describes an optimizer as a `Subject`: how to build it, and an oracle for its path. Then

    @pytest.mark.parametrize("rule", LION.rules)
    def test_lion_keeps_the_contract(lab, rng, rule):
        RULES[rule](LION, lab, rng)

runs each rule below as a test of its own. Nothing here knows an answer: the oracle stays in the test file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from grader.checks import assert_holds, assert_matches, assert_same_trajectory
from grader.comparison import Trajectory
from grader.lab_inputs import F64, randn, same, signed_permutation, strided

COUNTERS = 16  # bytes that a step count and its like may take, for each parameter tensor

ROUGH = 0.01  # largest error of an entry after one step in 32 or 16 bits, with the options `exact`

Shape = tuple[int, ...]
Options = Mapping[str, Any]
OptionsAt = Callable[[int, int], Options]  # the options at step 0, 1, … of parameter, or group, 0, 1, …
Gradients = Sequence[Sequence[Tensor | None]]  # for each step, one for each parameter; None: no gradient
Path = list[dict[str, Tensor]]  # for each step, what `record` says of it


def normal_gradients(rng: Generator, steps: int, shapes: Sequence[Shape]) -> list[list[Tensor]]:
    """Standard normal gradients."""
    return [[randn(rng, *shape) for shape in shapes] for _ in range(steps)]


@dataclass(frozen=True)
class Subject:
    """One optimizer, as the rules see it."""

    name: str
    """As it reads in a failure: "AdamW"."""
    build: Callable[[ModuleType, Any, Options], Optimizer]
    """build(lab, params, options): params are tensors or group dicts."""
    path: Callable[[Sequence[Tensor], Gradients, OptionsAt], Path]
    """The oracle, on plain tensors: path(starts, gradients, options), where options(t, i) are those of
    parameter i at step t = 0, 1, …"""
    options: Options
    """All options, at values that make each of them visible."""
    schedule: OptionsAt
    """What a schedule would write into group 0 or 1 before step t."""
    exact: Options
    """Options whose arithmetic is exact in 16 bits, or nearly so: for whole numbers, a signed permutation."""
    shapes: Sequence[Shape] = ((3, 2), (4,), ())
    """Of three parameters; the first is the one that single-parameter rules use."""
    gradients: Callable[[Generator, int, Sequence[Shape]], list[list[Tensor]]] = normal_gradients
    atol: float = 1e-12
    rtol: float = 1e-10
    continues: float = 1e-14
    """How exactly a loaded `state_dict` must continue."""
    makes_groups: bool = False
    """True: the constructor makes the groups itself, all with the same options."""
    state_numel: Callable[[Shape], int] | None = None
    """How many numbers the state of a parameter of this shape may hold; None: as many as it likes."""
    without: Sequence[str] = ()
    """Rules that can't be asked of this optimizer; say why beside it."""

    @property
    def rules(self) -> list[str]:
        """The names of the rules that apply."""
        left_out = {*self.without} | ({"state-size"} if self.state_numel is None else set())
        return [name for name in RULES if name not in left_out]

    def constant(self, starts: Sequence[Tensor], gradients: Gradients) -> Path:
        """The oracle's path under the usual options."""
        return self.path(starts, gradients, lambda t, i: self.options)

    def one_step(self, start: Tensor, gradient: Tensor, options: Options | None = None) -> Tensor:
        """The oracle's weight after one step."""
        path = self.path([start], [[gradient]], lambda t, i: options or self.options)
        return path[-1]["weight of parameter 0"]

    def matches(self, actual: Tensor, expected: Callable[[], Tensor], what: str) -> None:
        __tracebackhide__ = True
        assert_matches(actual, expected, atol=self.atol, rtol=self.rtol, what=what)

    def follows(self, actual: Trajectory, expected: Callable[[], Trajectory], what: str) -> None:
        __tracebackhide__ = True
        assert_same_trajectory(actual, expected, atol=self.atol, rtol=self.rtol, what=what)


# ---- running an optimizer ---------------------------------------------------------------


def parameters(starts: Iterable[Tensor]) -> list[nn.Parameter]:
    """Fresh parameters with these values."""
    return [nn.Parameter(start.clone()) for start in starts]


def grouped(params: Sequence[Tensor], split: int) -> list[dict[str, Any]]:
    """Two groups: the first `split` parameters and the rest."""
    return [{"params": params[:split]}, {"params": params[split:]}]


def run(
    optimizer: Optimizer,
    params: Sequence[nn.Parameter],
    gradients: Gradients,
    options: OptionsAt | None = None,
) -> Path:
    """Take one step per list of gradients (None: no gradient); record update and weight of each parameter.

    options: options(t, g) is written into group g before step t, as a schedule would.
    """
    path = []
    for t, row in enumerate(gradients):
        for number, group in enumerate(optimizer.param_groups):
            group.update(options(t, number) if options else {})
        before = [p.detach().clone() for p in params]
        for p, gradient in zip(params, row, strict=True):
            p.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        path.append(record(before, [p.detach().clone() for p in params]))
    return path


def record(before: Sequence[Tensor], after: Sequence[Tensor]) -> dict[str, Tensor]:
    """One step of a trajectory, in the order in which an error would spread."""
    entry = {}
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        entry[f"update of parameter {i}"] = new - old
        entry[f"weight of parameter {i}"] = new
    return entry


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in a state, also in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def _pair(subject: Subject, rng: Generator) -> tuple[Tensor, Tensor]:
    """A weight of the first shape, and a gradient for it."""
    return randn(rng, *subject.shapes[0]), subject.gradients(rng, 1, subject.shapes[:1])[0][0]


def _starts(subject: Subject, rng: Generator) -> list[Tensor]:
    return [randn(rng, *shape) for shape in subject.shapes]


# ---- the rules --------------------------------------------------------------------------


def reads_options(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """Two groups, the second added later, and a schedule that rewrites every option of both at each step."""
    starts = _starts(subject, rng)
    gradients = subject.gradients(rng, 5, subject.shapes)
    params = parameters(starts)

    def options(t: int, place: int) -> Options:
        return subject.schedule(t, 0 if subject.makes_groups else min(place, 1))

    if subject.makes_groups:
        optimizer = subject.build(lab, params, subject.options)
    else:
        optimizer = subject.build(lab, params[:1], subject.options)
        optimizer.add_param_group({"params": iter(params[1:])})
    path = run(optimizer, params, gradients, options)
    subject.follows(
        path, lambda: subject.path(starts, gradients, options), f"{subject.name} under a schedule"
    )


def counts_own_steps(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """A parameter without gradient neither moves, decays nor counts; a gradient of zeros is a gradient."""
    shapes = [subject.shapes[0]] * 4
    start, _ = _pair(subject, rng)
    starts = [start] * 4
    gradients: list[list[Tensor | None]] = [[row[0]] * 4 for row in subject.gradients(rng, 7, shapes[:1])]
    for t, row in enumerate(gradients):
        row[1] = row[1] if t >= 3 else None  # starts late
        row[2] = row[2] if t % 3 == 0 else None  # comes and goes
        row[3] = row[3] if t % 2 else torch.zeros_like(start)
    params = parameters(starts)
    given = params if subject.makes_groups else grouped(params, 2)
    path = run(subject.build(lab, given, subject.options), params, gradients)
    what = f"{subject.name} with missing gradients"
    subject.follows(path, lambda: subject.constant(starts, gradients), what)


def continues_from_state_dict(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """Saved, loaded into an optimizer built with another lr, continued: as if nothing had happened."""
    starts = _starts(subject, rng)
    gradients: list[list[Tensor | None]] = [[*row] for row in subject.gradients(rng, 4, subject.shapes)]
    gradients[0][1] = None

    def build(params: list[nn.Parameter], **changes: Any) -> Optimizer:
        given = params if subject.makes_groups else grouped(params, 1)
        return subject.build(lab, given, {**subject.options, **changes})

    params = parameters(starts)
    optimizer = build(params)
    run(optimizer, params, gradients[:2])
    saved, weights = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]
    straight = run(optimizer, params, gradients[2:])
    for used in (False, True):
        params = parameters(weights)
        optimizer = build(params, lr=7.0)
        if used:
            run(optimizer, params, gradients[:1])
            for p, weight in zip(params, weights, strict=True):
                p.data.copy_(weight)
        optimizer.load_state_dict(copy.deepcopy(saved))
        resumed = run(optimizer, params, gradients[2:])
        where = f"in an optimizer that has {'already' if used else 'never'} run"
        what = f"{subject.name} continued from a state_dict {where}"
        subject.follows(resumed, lambda: subject.constant(starts, gradients)[2:], what)
        exactly = all(
            torch.allclose(a[key], b[key], rtol=subject.continues, atol=subject.continues)
            for a, b in zip(straight, resumed, strict=True)
            for key in a
        )
        what = f"{subject.name} continues from a state_dict to {subject.continues:g} {where}"
        assert_holds(exactly, what=what)


def runs_its_closure(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """Called once, gradients on whatever the caller has, before the update; what it returns comes back."""
    start, slope = _pair(subject, rng)
    name = subject.name
    answers: tuple[Callable[[Tensor], object], ...] = (
        lambda p: (p * slope).sum(),
        lambda p: 3.5,
        lambda p: None,
        lambda p: "a report",
    )
    for mode, answer in zip((True, False, True, False), answers, strict=True):
        p = nn.Parameter(start.clone())
        optimizer = subject.build(lab, [p], subject.options)
        calls: list[tuple[bool, Any]] = []

        def closure(p: nn.Parameter = p, calls: Any = calls, answer: Any = answer) -> Any:
            p.grad = slope.clone()
            calls.append((torch.is_grad_enabled(), answer(p)))
            return calls[-1][1]

        with torch.set_grad_enabled(mode):
            returned: object = optimizer.step(closure=closure)
            mode_kept = torch.is_grad_enabled() is mode
        assert_matches(
            len(calls), lambda: 1, atol=0.0, rtol=0.0, what=f"how often {name}.step calls its closure"
        )
        assert_holds(calls[0][0], what=f"{name} calls its closure with gradients switched on")
        itself = returned is calls[0][1]
        assert_holds(itself, what=f"{name}.step returns the very object that its closure returns")
        assert_holds(mode_kept, what=f"{name}.step leaves autograd switched on or off as it was")
        what = f"the weight after {name}.step(closure)"
        subject.matches(p.detach(), lambda: subject.one_step(start, slope), what)
    nothing: Any = optimizer.step()
    same(nothing, lambda: None, f"what {name}.step() returns")
    p.grad = None
    value: Any = optimizer.step(lambda: 2.5)
    what = f"what {name}.step(closure) returns without any gradient"
    same(value, lambda: 2.5, what)


def leaves_gradients_and_graphs_alone(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """A step writes into p and its state, nowhere else, and keeps no graph, even if p.grad carries one."""
    start, gradient = _pair(subject, rng)
    name = subject.name
    p = nn.Parameter(start.clone())
    optimizer = subject.build(lab, [p], subject.options)
    p.grad = passed = gradient.clone()
    for number in (1, 2):
        optimizer.step()
        assert_holds(p.grad is passed, what=f"p.grad is the same tensor after {name}'s step {number}")
        what = f"p.grad after {name}'s step {number}"
        same(passed, lambda: gradient, what)
    p.grad = torch.autograd.grad((p**3).sum(), p, create_graph=True)[0]
    optimizer.step()
    assert_holds(p.grad.requires_grad, what=f"{name} leaves the graph of p.grad alone")
    state = optimizer.state[p]
    assert_holds(len(state) > 0, what=f"{name} keeps its state in self.state[p]")
    graphless = not any(t.requires_grad for t in tensors_in(state))
    assert_holds(graphless, what=f"the state of {name} carries no graph")
    assert_holds(p.is_leaf and p.requires_grad, what=f"a parameter stays a leaf that can learn under {name}")


def keeps_the_dtype(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """A float32 or bfloat16 weight stays one, and moves as it should."""
    start = torch.randint(-8, 9, (4, 4), generator=rng).to(F64)
    gradient = 4 * signed_permutation(rng)
    for dtype in (torch.float32, torch.bfloat16):
        p = nn.Parameter(start.to(dtype))
        optimizer = subject.build(lab, [p], subject.exact)
        p.grad = gradient.to(dtype)
        optimizer.step()

        def expected(dtype: torch.dtype = dtype) -> Tensor:
            return subject.one_step(start, gradient, subject.exact).to(dtype)

        what = f"a {dtype} weight under {subject.name}"
        assert_matches(p.detach(), expected, atol=ROUGH, rtol=0.0, what=what)


def writes_into_the_weight_itself(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """The weight's own memory changes, in whatever order weight and gradient lie there."""
    start, gradient = _pair(subject, rng)
    layouts = {"weight": (strided(start), gradient.clone()), "gradient": (start.clone(), strided(gradient))}
    for transposed, (weight, slope) in layouts.items():
        p = nn.Parameter(weight)
        memory = p.detach()
        p.grad = slope
        subject.build(lab, [p], subject.options).step()
        where = "must be written in place into the weight's own memory"
        what = f"{subject.name}, {transposed} transposed: {where}"
        subject.matches(memory, lambda: subject.one_step(start, gradient), what)


def takes_a_late_group(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """A group that comes by `add_param_group` between two steps begins at its own first step.

    Its `params` is a single tensor here, which torch allows.
    """
    start, gradient = _pair(subject, rng)
    first, late = parameters([randn(rng, *subject.shapes[0]), start])
    optimizer = subject.build(lab, [first], subject.options)
    first.grad = gradient.clone()
    optimizer.step()
    optimizer.add_param_group({"params": late})
    late.grad = gradient.clone()
    optimizer.step()
    what = f"a weight added after the first step of {subject.name}"
    subject.matches(late.detach(), lambda: subject.one_step(start, gradient), what)


def shows_nan(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """A NaN in a gradient isn't hidden: it reaches the weight."""
    start, gradient = _pair(subject, rng)
    p = nn.Parameter(start)
    p.grad = gradient.clone()
    p.grad.view(-1)[-1] = math.nan
    subject.build(lab, [p], subject.options).step()
    reached = bool(p.detach().reshape(-1)[-1].isnan())
    assert_holds(reached, what=f"a NaN in a gradient reaches the weight under {subject.name}")


def keeps_a_small_state(subject: Subject, lab: ModuleType, rng: Generator) -> None:
    """The state holds what the rule needs, in the parameter's dtype, and 16 bytes at most for counters.

    In float64 and in float32; for narrower parameters a float32 state is as good a choice.
    """
    needed = subject.state_numel
    if needed is None:
        raise ValueError(f"{subject.name} doesn't say how large its state may be")
    starts, gradients = _starts(subject, rng), subject.gradients(rng, 2, subject.shapes)
    for dtype in (F64, torch.float32):
        params = parameters(start.to(dtype) for start in starts)
        optimizer = subject.build(lab, params, subject.options)
        run(optimizer, params, [[gradient.to(dtype) for gradient in row] for row in gradients])
        for p, shape in zip(params, subject.shapes, strict=True):
            size = sum(t.numel() * t.element_size() for t in tensors_in(optimizer.state[p]))
            allowed = COUNTERS + p.element_size() * needed(shape)
            most = f"at most {allowed} bytes, {COUNTERS} of them for counters"
            what = f"{subject.name}'s state of a {shape} {dtype} parameter takes {most}"
            assert_holds(size <= allowed, what=what)


RULES: dict[str, Callable[[Subject, ModuleType, Generator], None]] = {
    "options": reads_options,
    "missing-gradients": counts_own_steps,
    "state-dict": continues_from_state_dict,
    "closure": runs_its_closure,
    "gradients": leaves_gradients_and_graphs_alone,
    "dtype": keeps_the_dtype,
    "layout": writes_into_the_weight_itself,
    "late-group": takes_a_late_group,
    "nan": shows_nan,
    "state-size": keeps_a_small_state,
}
