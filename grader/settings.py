"""What a test may rely on, whatever a student's file did before: seeded inputs and settings put back."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

REPLACED_STREAMS: list[tuple[object, object]] = []  # kept: a wrapper that is dropped closes the real stream


def spare_the_compiler() -> None:
    """Let `torch.optim.Optimizer` work without importing torch's compiler, which takes 1.5 s.

    On its first call each of its methods imports that to say that it must not be compiled. Nothing here is
    compiled, so each may be told beforehand that it is its own version for that case.
    """
    for method in vars(torch.optim.Optimizer).values():
        function = getattr(method, "__wrapped__", None)
        if function is not None and getattr(method, "__module__", "") == torch.optim.Optimizer.__module__:
            function.__dict__.setdefault("__dynamo_disable", function)


def stream(seed: int, test: str) -> int:
    """A seed for each test's own stream of numbers: independent of the order of tests."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{test}".encode()).digest()[:8], "big") >> 1


def inputs(seed: int, test: str) -> torch.Generator:
    """The only source of a lab test's inputs: a generator of this test's own, moved by the seed."""
    return torch.Generator().manual_seed(stream(seed, test))


def seed_globals(seed: int, test: str) -> None:
    """Seed what a student's own code may draw from, so that a verdict can be repeated."""
    number = stream(seed, test)
    random.seed(number)
    torch.default_generator.manual_seed(number)  # `torch.manual_seed` takes 2 ms: it asks every device


@contextmanager
def restored() -> Iterator[None]:
    """Put back what a file may change for everybody: torch's defaults, streams, folder, warnings."""
    dtype, device, grad = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    streams, depth, folder = (sys.stdout, sys.stderr), sys.getrecursionlimit(), os.getcwd()
    with warnings.catch_warnings():
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
            if torch.get_default_device() != device:
                torch.set_default_device(device)
            torch.set_num_threads(1)  # the tests' tensors are tiny, and results don't depend on the machine
            sys.setrecursionlimit(depth)
            if (sys.stdout, sys.stderr) != streams:
                REPLACED_STREAMS.append((sys.stdout, sys.stderr))
                sys.stdout, sys.stderr = streams
            with suppress(OSError):
                os.chdir(folder)
