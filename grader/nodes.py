"""What single nodes of a syntax tree say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node by itself binds, deletes or takes as a parameter."""
    match node:
        case ast.Name(id=name):
            if not is_load(node):
                yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        case ast.ExceptHandler(name=str() as name):
            yield name
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield name
        case ast.MatchMapping(rest=str() as name):
            yield name
        case _ if type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):
            yield node.name  # type: ignore[attr-defined]  # Python 3.12


def is_load(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def first_parameter(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> str:
    """The first parameter of a method; of a static one only the context of a torch.autograd.Function."""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    makers = getattr(node, "decorator_list", [])
    static = any(isinstance(maker, ast.Name) and maker.id == "staticmethod" for maker in makers)
    return "".join(argument.arg for argument in first if not static or argument.arg == "ctx")


def read_lines(source: str) -> list[str]:
    """The lines as Python counts them."""
    return re.split(r"\r\n|\r|\n", source)


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right below one, without operators and contexts, which nothing here asks for."""
    for name in node._fields:
        if name not in ("ctx", "op", "ops"):
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                yield value
            elif isinstance(value, list):
                yield from (part for part in value if isinstance(part, ast.AST))


def arguments(arguments: ast.arguments) -> list[ast.arg]:
    star = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *star]


def with_text(hints: Iterable[ast.expr | None]) -> Iterator[ast.AST]:
    """Annotations, and what they hold as text if it calls something: the library may evaluate it."""
    for hint in hints:
        if hint is None:
            continue
        yield hint
        for part in ast.walk(hint):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and "(" in part.value:
                try:
                    text = ast.parse(part.value.strip(), mode="eval")
                except (SyntaxError, ValueError):
                    continue
                for inner in ast.walk(text):
                    if hasattr(inner, "lineno"):
                        inner.lineno = part.lineno
                yield text.body


def is_main_guard(test: ast.expr) -> bool:
    match test:
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
        ):
            return True
        case ast.Compare(
            left=ast.Constant(value="__main__"), ops=[ast.Eq()], comparators=[ast.Name(id="__name__")]
        ):
            return True
    return False
