"""A lab's test file as source: which parts compute expected values, and a copy without them.

The process that runs a submission must hold no answer. So the trusted process runs the tests once with every
function marked, notes which of them ran outside the computing of an expected value, and hands on a copy of
the file in which all others are empty.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from grader import settings

MARK = "_ran_"  # the function that a marked function calls first
FIXTURES = ("lab", "rng")  # all that a graded test may ask for
Namespace = dict[str, Any]
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Planned:
    """One test: its id, its function, and which of the function's combinations of parameters it takes."""

    name: str  # "test_double[1.0]"
    function: str
    place: int


def marked(source: str, path: Path, ran: Callable[[int], None]) -> Namespace:
    """The test file's names, made from a copy in which each function tells its number when it is called."""
    tree = ast.parse(source, str(path))
    for number, node in enumerate(_functions(tree)):
        call = ast.parse(f"{MARK}({number})", mode="eval").body
        if isinstance(node, ast.Lambda):
            node.body = ast.BoolOp(ast.Or(), [call, node.body])  # the call gives None
        else:
            node.body.insert(_has_docstring(node), ast.Expr(call))
    return run_source(tree, path, {MARK: ran})


def without_answers(source: str, used: Container[int]) -> str:
    """The test file's text with an empty body for every function that isn't `used`, and without comments."""
    tree = ast.parse(source)
    for number, node in enumerate(_functions(tree)):
        if isinstance(node, ast.Lambda):
            node.body = node.body if number in used else ast.Constant(None)
        else:
            node.body = node.body[_has_docstring(node) :] if number in used else []
            node.body = node.body or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree))


def _functions(tree: ast.Module) -> list[_Function]:
    return [node for node in ast.walk(tree) if isinstance(node, _Function)]


def _has_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node) is not None


def run_source(source: str | ast.Module, path: Path, names: Mapping[str, Any] | None = None) -> Namespace:
    """Run a test file's source as a module of its own, and return its names."""
    tree = source if isinstance(source, ast.Module) else ast.parse(source)
    module = ModuleType(path.stem)
    module.__dict__.update(names or {})
    code = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module.__dict__


def fixtures_of(namespace: Namespace, test: Planned) -> list[str]:
    """What a test asks for beside its parameters."""
    function = namespace[test.function]
    given = _parameters(function, test.place)
    return [name for name in _names(function) if name not in given]


def call(namespace: Namespace, test: Planned, module: ModuleType, stream: int) -> None:
    """Run one test on a module, on the inputs of its own stream of numbers (`settings.stream`)."""
    function = namespace[test.function]
    rng = settings.inputs(stream)
    given = {"lab": module, "rng": rng, **_parameters(function, test.place)}
    settings.seed_globals(stream)
    function(**{name: given[name] for name in _names(function)})


@lru_cache(maxsize=1024)
def _names(function: Callable[..., None]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


@lru_cache(maxsize=4096)
def _parameters(function: Callable[..., None], place: int) -> Mapping[str, Any]:
    """The values of a test's parameters: the `place`-th combination of its `parametrize` decorators.

    As pytest counts them: the decorator nearest to the function changes slowest.
    """
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    combinations = itertools.product(*(_rows(mark.args[0], mark.args[1]) for mark in marks))
    values: dict[str, Any] = {}
    for row in next(itertools.islice(combinations, place, None)):
        values |= row
    return values


def _rows(names: str | Sequence[str], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """One decorator's values, by parameter."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    found = []
    for row in rows:
        in_a_param = hasattr(row, "marks")  # pytest.param(...)
        values = row.values if in_a_param else row if len(names) > 1 else [row]
        found.append(dict(zip(names, values, strict=True)))
    return found
