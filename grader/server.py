"""The warm fork server: imports everything once, then forks one confined process per submission.

It holds the lab's tests without their answers, the bans, and nothing else: no solution, no seed, no roster,
no other submission's text. It does what its one client, the trusted process, tells it on a socket, one
submission at a time, and ends when that socket closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.testfile import Namespace, Planned

if TYPE_CHECKING:
    from grader.bans import Bans

OPEN_FILES = 256
FILE_BYTES = 16 << 20
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Order:
    """What the client asks for: one submission in a process of its own."""

    exercise: str  # path of the file, in the folder that is the process's own
    memory_bytes: int
    cpu_seconds: int
    confined: bool


def serve(control: socket.socket) -> None:
    """Prepare what the first message describes, then fork for every further one until the client is gone."""
    end_with_parent()
    warm_up()
    data, _ = _receive(control)
    if not data:
        return
    prepared = prepare(json.loads(data))
    gc.collect()
    gc.freeze()  # children don't write into what they share, and so don't copy it
    wakeup = _wake_on_child()
    _send(control, ready=True)
    while True:
        data, descriptors = _receive(control)
        if not data:
            return
        order = Order(**json.loads(data))
        pid = os.fork()
        if pid == 0:
            control.close()
            become_submission(order, prepared, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _send(control, pid=pid)
        status = _wait(pid, control, wakeup)
        if status is None:
            return
        _send(control, status=status)


def serve_alone() -> None:
    """Where processes can't be forked: be the process of one submission, told on the standard input."""
    commands, frames = os.dup(0), os.dup(1)
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(commands, 1)  # no further: commands follow
    told = json.loads(line)
    warm_up()
    become_submission(Order(**told["order"]), prepare(told["job"]), [commands, frames, 2])


@dataclass(frozen=True)
class Prepared:
    """What children inherit."""

    namespace: Namespace  # of the test file without its answers
    plan: Sequence[Planned]
    readable: Sequence[Path]
    bans: Bans


def warm_up() -> None:
    """Import and use what every submission needs."""
    import torch

    torch.set_num_threads(1)  # before the first operator: else a child would wait for threads that it lacks
    from grader import bans, graded, jail, settings, testfile, warmup  # noqa: F401  # for the children

    settings.spare_the_compiler()
    with settings.restored():
        warmup.warm_up()


def prepare(job: dict[str, Any]) -> Prepared:
    """Load a lab's tests and apply its bans, last of all, since the warm-up uses what is banned."""
    from grader import bans, freezing, jail, testfile
    from grader.course import Rules

    rules = Rules.model_validate(job["rules"])
    _import_early(rules.imports)
    plan = [Planned(**test) for test in job["plan"]]
    namespace = testfile.run_source(job["tests"], Path(job["name"]))
    for test in plan:
        testfile.fixtures_of(namespace, test)  # remembered, so that children needn't find out
    prepared = Prepared(namespace, plan, jail.runtime_paths(), bans.apply_bans(rules))
    freezing.freeze()
    return prepared


def _import_early(names: Sequence[str]) -> None:
    """Import what submissions may: a first import costs each of them, an early one nobody."""
    from importlib import import_module

    for name in ("random", "logging", *names, *(["matplotlib.pyplot"] if "matplotlib" in names else [])):
        with contextlib.suppress(ImportError):
            import_module(name)


def become_submission(order: Order, prepared: Prepared, descriptors: Sequence[int]) -> None:
    """Turn this process into the submission's: its streams, its folder, its jail. Never returns."""
    try:
        from grader.bans import guard_sources

        commands, frames = _take_descriptors(descriptors)
        path = Path(order.exercise)
        source = path.read_bytes()
        _settle_in(path.parent)
        if order.confined:
            _confine(order, prepared, path.parent)
        guard_sources(prepared.bans.files)
        from grader.graded import run_submission
        from grader.wire import READY, Ended, pack_end

        os.write(frames, pack_end(Ended("ready"), READY))
        run_submission(source, path, prepared.namespace, prepared.plan, commands, frames)
    finally:
        os._exit(0)


def _take_descriptors(descriptors: Sequence[int]) -> tuple[int, int]:
    """Put the three pipes of the order where they belong, and close everything else that was inherited."""
    commands, frames, output = (os.dup(descriptor) for descriptor in descriptors)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    high = [os.dup2(descriptor, 100 + i) for i, descriptor in enumerate((commands, frames))]
    os.closerange(3, 100)
    os.closerange(102, 1024)
    return high[0], high[1]


def _settle_in(folder: Path) -> None:
    """Make the submission's folder the place for everything it might write."""
    end_with_parent()
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    for name in ("TMPDIR", "TEMP", "TMP", "HOME", "MPLCONFIGDIR"):
        os.environ[name] = str(folder)
    signal.set_wakeup_fd(-1)
    for name in ("SIGCHLD", "SIGTERM", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _confine(order: Order, prepared: Prepared, folder: Path) -> None:
    from grader import jail

    jail.confine(
        jail.Confinement(
            scratch=folder,
            readable=tuple(prepared.readable),
            memory_bytes=order.memory_bytes,
            file_bytes=FILE_BYTES,
            open_files=OPEN_FILES,
            cpu_seconds=order.cpu_seconds,
        )
    )


def end_with_parent() -> None:
    """Ask the system to kill this process when its parent dies, where it can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child has ended."""
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reading


def _wait(pid: int, control: socket.socket, wakeup: int) -> int | None:
    """The exit status of a child; None, and no child, if the client went away meanwhile."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        ready, _, _ = select.select([control.fileno(), wakeup], [], [], 1.0)
        if wakeup in ready:
            os.read(wakeup, 512)
        if control.fileno() in ready:  # the client says nothing while a child runs: it has gone
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """One line from the client, with the descriptors that came along; empty when the client is gone."""
    data, descriptors = b"", []
    while not data.endswith(b"\n"):
        more, found, _, _ = socket.recv_fds(control, 1 << 20, 8)
        if not more:
            return b"", []
        data += more
        descriptors += found
    return data, descriptors


def _send(control: socket.socket, **values: object) -> None:
    control.sendall(json.dumps(values).encode() + b"\n")


def child() -> None:
    """The server's process: its socket is the descriptor that the last argument names."""
    if sys.argv[-1] == "alone":
        serve_alone()
    control = socket.socket(fileno=int(sys.argv[-1]))
    try:
        serve(control)
    except BaseException as error:  # whatever it is, the client hears of it
        with contextlib.suppress(OSError):
            _send(control, fault=f"{type(error).__name__}: {error}")
    os._exit(0)
