"""Finished operators and classes that a lab asks students to write: calling them raises, by whatever route.

An operator is refused where every route to it ends, at the dispatcher: functional form, module, method,
`torch.ops` and `torch._C` alike. What is plain Python (an optimizer, an initialiser) has the code of its
functions replaced in place, so that a reference somebody still holds raises as well.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from fnmatch import fnmatchcase
from importlib import import_module
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from grader.course import Rules

KEYS = ("CPU", "Autograd")  # with and without a gradient to record


class ForbiddenCall(RuntimeError):
    """A submission called what it was asked to write."""


def apply_bans(rules: Rules) -> torch.library.Library:
    """Ban a lab's operators and names in this process and those forked from it.

    The bans hold while the returned library lives. What this torch doesn't have is passed over.
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that a kernel is overridden, which is the point
        for operator in _operators(rules):
            for key in KEYS:
                library.impl(operator.removeprefix("aten::"), _refuse(operator), key)  # type: ignore[no-untyped-call]
    for name in rules.banned_names:
        for function in _functions_of(name):
            _empty(function, name)
    return library


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


def _functions_in(found: Any) -> Iterator[FunctionType]:
    if isinstance(found, type):
        if issubclass(found, tuple | Enum):
            return  # a plain record or constant of the module
        for member in vars(found).values():
            yield from _functions_in(getattr(member, "__func__", member))
        return
    if isinstance(found, FunctionType):
        yield found
    inner = getattr(
        found, "__wrapped__", None
    )  # a decorated function; numpy's are no Python functions outside
    if inner is not None:
        yield from _functions_in(inner)


def _empty(function: FunctionType, name: str) -> None:
    """Replace a function's code in place; one with free variables needs code with as many."""
    original = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    original.__kwdefaults__ = function.__kwdefaults__
    said = name if name.endswith(function.__name__) else f"{name}: {function.__name__}"

    def gate(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not _called_by_a_layer():
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


def _called_by_a_layer() -> bool:
    """Whether a layer of torch fills its own weights: `nn.Linear(4, 2)` is nobody's way around a ban."""
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and caller.f_globals.get("__name__") in (__name__, "torch.nn.init"):
        caller = caller.f_back  # the gate, and initialisers that call each other
    if caller is None or not str(caller.f_globals.get("__name__")).startswith("torch.nn.modules."):
        return False
    return caller.f_code.co_name in ("reset_parameters", "_reset_parameters")
