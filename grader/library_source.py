"""Functions that are the library's own source under other names, found by comparing syntax trees.

A function becomes a sequence of tokens in which names of variables, texts, docstrings, annotations and what
is said in errors don't count. Its overlapping runs of tokens are looked up among those of the library.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RUN = 8  # tokens that have to agree in a row
SHORT, LONG = (
    40,
    80,
)  # tokens of a function: below, a formula that two people write alike; between, a short one
SHARE, SHARE_OF_SHORT = 0.5, 0.9  # of a function's runs, from which it counts as the library's

_ALL = re.compile("")
_SUBJECTS = re.compile("norm|loss|entropy|softmax|logsumexp|relu|elu|glu|mish|tanh|dropout|attention")
_FILES = {  # and which of their functions
    "optim/*.py": _ALL,
    "nn/init.py": _ALL,
    "nn/utils/clip_grad.py": _ALL,
    "nn/functional.py": _SUBJECTS,
    "_refs/__init__.py": _SUBJECTS,
    "_refs/nn/functional/__init__.py": _SUBJECTS,
    "_decomp/decompositions.py": _SUBJECTS,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def pasted(functions: Iterable[Function]) -> list[Function]:
    """Those functions most of whose code is that of one function of the library, or that hold most of one."""
    return [function for function in functions if compare(function).is_paste]


@dataclass(frozen=True)
class Likeness:
    """How much a function has in common with the most similar one of the library."""

    size: int = 0  # tokens
    share: float = 0.0  # of the function's runs that the library's function has too
    name: str = ""

    @property
    def is_paste(self) -> bool:
        return self.share >= (SHARE if self.size >= LONG else SHARE_OF_SHORT)


def compare(function: Function) -> Likeness:
    """Look a function up in the library."""
    tokens = list(_tokens(function))
    runs = _runs(tokens)
    index, sizes = _index()
    votes = Counter(name for run in runs for name in index.get(run, ()))
    likeness = Likeness(len(tokens))
    for name, count in votes.items():
        share = count / len(runs)
        if sizes[name] >= LONG:
            share = max(share, count / sizes[name])  # a paste among other code
        if share > likeness.share:
            likeness = Likeness(len(tokens), share, name)
    return likeness


def _runs(tokens: list[str]) -> set[int]:
    if len(tokens) < SHORT:
        return set()
    return {hash(tuple(tokens[i : i + RUN])) for i in range(len(tokens) - RUN + 1)}


def _tokens(function: Function) -> Iterator[str]:
    stack: list[ast.AST] = list(reversed(_body(function)))
    while stack:
        node = stack.pop()
        children: list[ast.AST | None] = list(ast.iter_child_nodes(node))
        match node:
            case ast.expr_context():
                continue
            case ast.Name():
                yield "name"
                continue
            case ast.Attribute(attr=name, value=ast.Name(id="self")):
                yield "name"
                continue
            case ast.Attribute(attr=name):
                yield f".{name}"
            case ast.Constant(value=value):
                yield "text" if isinstance(value, str) else repr(value)
            case ast.JoinedStr():
                yield "text"
                continue
            case ast.keyword(arg=name):
                yield f"{name}="
            case ast.Raise() | ast.Assert():
                yield "raise"
                continue
            case ast.AnnAssign(target=target, value=value):
                yield "Assign"
                children = [target, value]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield "def"
                children = list(_body(node))
            case _:
                yield type(node).__name__
        stack += [child for child in reversed(children) if child is not None]


def _body(function: Function) -> list[ast.stmt]:
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1:] if documented else function.body


@cache
def _index() -> tuple[dict[int, list[str]], dict[str, int]]:
    """For each run of tokens in the library the functions that have it, and for each function its runs."""
    found: dict[int, list[str]] = defaultdict(list)
    sizes = {}
    for path, subjects in _library_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function) and subjects.search(node.name):
                name = f"{path.parent.name}/{path.stem}.{node.name}:{node.lineno}"
                runs = _runs(list(_tokens(node)))
                sizes[name] = len(runs)
                for run in runs:
                    found[run].append(name)
    return found, sizes


def _library_files() -> Iterator[tuple[Path, re.Pattern[str]]]:
    spec = importlib.util.find_spec("torch")
    for folder in (spec and spec.submodule_search_locations) or ():
        for pattern, subjects in _FILES.items():
            yield from ((path, subjects) for path in sorted(Path(folder).glob(pattern)))
