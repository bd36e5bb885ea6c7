"""What tests rely on, made unchangeable in a submission's process: torch's classes, modules' functions.

The comparison is elsewhere, but tests still ask torch for means and equalities. A class is marked immutable
where Python itself looks; a module refuses to have what it holds replaced, and may still get new names.
"""

from __future__ import annotations

import builtins
import ctypes
import math
import os
import sys
from types import ModuleType

import torch

IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE, since Python 3.10
FLAGS_AT = 21 * ctypes.sizeof(ctypes.c_void_p)  # tp_flags in a PyTypeObject of a 64-bit Python
SET_BY_TORCH = ("Storage",)  # from C, when the default dtype changes
TORCH = os.path.dirname(torch.__file__) + os.sep
CLASSES: tuple[type, ...] = (
    torch.Tensor,
    torch.nn.Parameter,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.Generator,
    torch.autograd.Function,
)
MODULES: tuple[ModuleType, ...] = (
    builtins,
    math,
    torch,
    torch.nn,
    torch.nn.functional,
    torch.linalg,
    torch.autograd,
    torch.optim,
    torch.testing,
)


class _Frozen(ModuleType):
    """A module whose functions and classes stay what they are, but for what torch itself does to them."""

    def __setattr__(self, name: str, value: object) -> None:
        replaces = callable(vars(self).get(name)) and not isinstance(value, ModuleType)
        if replaces and name not in SET_BY_TORCH and not _by_torch():
            raise AttributeError(f"{self.__name__}.{name} can't be replaced here")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if not _by_torch():
            raise AttributeError(f"{self.__name__}.{name} can't be removed here")
        super().__delattr__(name)


def _by_torch() -> bool:
    """Whether torch's own code asks: parts that it imports late put themselves into place."""
    return sys._getframe(2).f_code.co_filename.startswith(TORCH)


def freeze() -> None:
    """Freeze torch's classes and the modules that tests use, in this process and those forked from it."""
    torch.optim.Optimizer([torch.ones(1)], {})  # the first one of all changes its class
    for module in MODULES:
        module.__class__ = _Frozen
    if sys.implementation.name == "cpython":
        for found in CLASSES:
            _make_immutable(found)


def _make_immutable(found: type) -> None:
    flags = ctypes.c_ulong.from_address(id(found) + FLAGS_AT)
    if flags.value == found.__flags__:  # else this Python lays its classes out in another way
        flags.value |= IMMUTABLE
