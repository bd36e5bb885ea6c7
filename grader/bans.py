"""Finished operators and classes that a lab asks students to write: calling them raises, by whatever route.

An operator is refused where every route to it ends, at the dispatcher: functional form, module, method,
`torch.ops` and `torch._C` alike. What is plain Python (an optimizer, an initialiser) has the code of its
functions replaced in place, so that a reference somebody still holds raises as well.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from grader.course import Rules

# With and without a gradient to record, and for the other kinds of tensors that there are on a CPU.
KEYS = ("CPU", "Autograd", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU", "QuantizedCPU")


class ForbiddenCall(RuntimeError):
    """A submission called what it was asked to write."""


@dataclass(frozen=True)
class Bans:
    """What is banned in this process; the operators for as long as this lives."""

    library: torch.library.Library
    files: frozenset[str]  # the library's own sources of what is banned: not to be read or run again


def apply_bans(rules: Rules) -> Bans:
    """Ban a lab's operators and names in this process and those forked from it.

    What this torch doesn't have is passed over.
    """
    _fillers()  # found now: later, a file may have changed what it looks at
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that a kernel is overridden, which is the point
        for operator in _operators(rules):
            for key in KEYS:
                library.impl(operator.removeprefix("aten::"), _refuse(operator), key)  # type: ignore[no-untyped-call]
    files = set()
    for name in rules.banned_names:
        functions = list(_functions_of(name))
        files |= {function.__code__.co_filename for function in functions} - {"<string>"}
        for function in functions:
            _empty(function, name)
        if not functions:
            _replace(name)
    return Bans(library, frozenset(files))


def guard_sources(files: frozenset[str]) -> None:
    """Refuse, from now on and for good, to open or run the sources of what is banned in this process.

    Else a submission could load the library's file once more, under another name, and have it as it was.
    """
    paths = {os.path.realpath(path) for path in files | set(map(importlib.util.cache_from_source, files))}
    names = {os.path.basename(path) for path in paths}

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec" and getattr(arguments[0], "co_filename", "") in files:
            raise ForbiddenCall("the library's own source, loaded once more")
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            inside = not os.path.isabs(path) and os.path.basename(path) in names  # of a folder that is open
            if inside or os.path.realpath(path) in paths:
                # An error that whoever prints a traceback can live with.
                raise PermissionError(errno.EACCES, "the library's own source can't be read here", path)

    sys.addaudithook(look)


def _replace(name: str) -> None:
    """Put something that raises in the place of what isn't written in Python."""
    module, _, attribute = name.rpartition(".")
    found = find(module)
    if found is not None and hasattr(found, attribute):

        def refuse(*arguments: object, **options: object) -> None:
            raise ForbiddenCall(_sentence(name))

        setattr(found, attribute, refuse)


def _operators(rules: Rules) -> list[str]:
    """The dispatcher's operators that fit a lab's patterns, each with all of its overloads."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    patterns = rules.banned_operators
    return [name for name in names if any(fnmatchcase(name.partition(".")[0], one) for one in patterns)]


def _refuse(operator: str) -> Callable[..., Any]:
    def kernel(*arguments: object, **options: object) -> None:
        raise ForbiddenCall(_sentence(operator.partition(".")[0].replace("aten::", "torch's ")))

    return kernel


def _sentence(name: str) -> str:
    return f"{name} is the finished thing: write it yourself from tensor operations"


def _functions_of(name: str) -> Iterator[FunctionType]:
    """The functions of a dotted name: a function itself, a class's methods, all that a module defines."""
    found = find(name)
    if isinstance(found, ModuleType):
        for member in list(vars(found).values()):
            if getattr(member, "__module__", None) == found.__name__:
                yield from _functions_in(member)
    else:
        yield from _functions_in(found)


def find(name: str) -> Any:
    """What a dotted name stands for, None if there is no such thing."""
    try:
        return import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute, None) if module else None
    except ImportError:
        return None


def _functions_in(found: Any, classes: frozenset[type] = frozenset()) -> Iterator[FunctionType]:
    """The functions behind a member; `classes` are those that led here, since a class may refer to itself."""
    if isinstance(found, type):
        if found in classes or issubclass(found, tuple | Enum):
            return  # been here; or a plain record or constant of the module
        for member in vars(found).values():
            yield from _functions_in(getattr(member, "__func__", member), classes | {found})
        return
    if isinstance(found, FunctionType):
        yield found
    inner = getattr(
        found, "__wrapped__", None
    )  # a decorated function; numpy's are no Python functions outside
    if inner is not None:
        yield from _functions_in(inner, classes)


def _empty(function: FunctionType, name: str) -> None:
    """Replace a function's code in place; one with free variables needs code with as many."""
    original = _copy(function) if function.__module__ == "torch.nn.init" else None
    said = name if name.endswith(function.__name__) else f"{name}: {function.__name__}"

    def gate(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if original is None or not _called_by_a_layer():
            raise ForbiddenCall(_sentence(said))
        return original(*arguments, **options)

    free = function.__code__.co_freevars
    source = "def outer():\n" + "".join(f"    {name} = None\n" for name in free)
    source += f"    def refuse(*arguments, **options):\n        ({', '.join(free)})\n"
    source += "        return 'gate'(arguments, options)\n    return refuse\n"
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a text that is called: it stands for what the next lines put there
        exec(source, scope)
    code: CodeType = scope["outer"]().__code__
    # A constant, since the names that the function sees are those of the library's module.
    constants = tuple(gate if constant == "gate" else constant for constant in code.co_consts)
    function.__code__ = code.replace(co_consts=constants)


def _copy(function: FunctionType) -> FunctionType:
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    copy = FunctionType(code, function.__globals__, function.__name__, defaults, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _called_by_a_layer() -> bool:
    """Whether a layer of torch fills its own weights: `nn.Linear(4, 2)` is nobody's way around a ban."""
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and caller.f_globals.get("__name__") in (__name__, "torch.nn.init"):
        caller = caller.f_back  # the gate, and initialisers that call each other
    return caller is not None and caller.f_code in _fillers()


@lru_cache(maxsize=1)
def _fillers() -> frozenset[CodeType]:
    """The code with which torch's layers fill their weights."""
    layers = [member for member in vars(torch.nn.modules).values() if isinstance(member, type)]
    bases = {base for layer in layers for base in layer.__mro__}
    methods = [vars(base).get(name) for base in bases for name in ("reset_parameters", "_reset_parameters")]
    return frozenset(method.__code__ for method in methods if isinstance(method, FunctionType))
