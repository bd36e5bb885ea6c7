"""What a test may rely on, whatever a student's file did before: seeded inputs and settings put back."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

REPLACED_STREAMS: list[tuple[object, object]] = []  # kept: a wrapper that is dropped closes the real stream


def spare_the_compiler() -> None:
    """Let optimizers and `torch.compile` work without importing torch's compiler, which takes 1.5 s.

    On its first call each of the optimizer's methods imports it to say that it must not be compiled. Nothing
    here is compiled, so each may be told beforehand that it is its own version for that case, and what is to
    be compiled stays as it is: it would compute the same.
    """
    torch.compile = _uncompiled
    for method in vars(torch.optim.Optimizer).values():
        function = getattr(method, "__wrapped__", None)
        if function is not None and getattr(method, "__module__", "") == torch.optim.Optimizer.__module__:
            function.__dict__.setdefault("__dynamo_disable", function)


def _uncompiled(model: Any = None, **options: object) -> Any:
    """Stand in for `torch.compile`, also as a decorator with options."""
    return model if model is not None else _uncompiled


def stream(seed: int, test: str) -> int:
    """A seed for each test's own stream of numbers: independent of the order of tests."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{test}".encode()).digest()[:8], "big") >> 1


def inputs(stream: int) -> torch.Generator:
    """The only source of a lab test's inputs: a generator of this test's own."""
    return torch.Generator().manual_seed(stream)


def seed_globals(stream: int) -> None:
    """Seed what a student's own code may draw from, so that a verdict can be repeated."""
    random.seed(stream)
    torch.default_generator.manual_seed(stream)  # `torch.manual_seed` takes 2 ms: it asks every device


class Snapshot(NamedTuple):
    """What a file may change for everybody."""

    dtype: torch.dtype
    device: torch.device
    grad: bool
    threads: int
    streams: tuple[object, object]
    recursion: int
    folder: str
    warnings: list[object]


def snapshot() -> Snapshot:
    """How things are now."""
    return Snapshot(
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        (sys.stdout, sys.stderr),
        sys.getrecursionlimit(),
        _folder(),
        list(warnings.filters),
    )


def put_back(before: Snapshot) -> None:
    """Make things as they were."""
    now = snapshot()
    if now == before:
        return
    torch.set_default_dtype(before.dtype)
    torch.set_grad_enabled(before.grad)
    if now.device != before.device:
        torch.set_default_device(before.device)
    torch.set_num_threads(before.threads)
    sys.setrecursionlimit(before.recursion)
    if now.streams != before.streams:
        REPLACED_STREAMS.append(now.streams)
        sys.stdout, sys.stderr = before.streams
    with suppress(OSError):
        os.chdir(before.folder)
    if now.warnings != before.warnings:
        warnings.filters[:] = before.warnings  # type: ignore[index]  # a list, whatever its type says
        warnings._filters_mutated()  # type: ignore[attr-defined]


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it has been removed


@contextmanager
def restored() -> Iterator[None]:
    """Put back what a file may change for everybody: torch's defaults, streams, folder, warnings."""
    before = snapshot()
    try:
        yield
    finally:
        put_back(before)
