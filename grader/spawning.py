"""The trusted side of the fork server: start it, order processes, read their frames, stop them for good."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.process import BOOTSTRAP, TICK, Captured, environment
from grader.server import Order
from grader.wire import BadFrame, Frame, unpack

SERVER = "grader.server"
MOST_FRAMES = 20_000  # of one process; a test has a few dozen
MOST_BYTES = 128 << 20
MOST_WAITING = 500  # frames that are read before they are looked at


class ServerDied(Exception):
    """The fork server is gone or did not answer; the text says why, as far as it is known."""


class Server:
    """A fork server; a context manager. It warms up by itself, and can fork once it has been prepared."""

    def __init__(self, scratch: Path):
        ours, theirs = socket.socketpair()
        self._control = ours
        self._lines = b""
        with theirs:
            number = theirs.fileno()
            self._popen = start_process(
                str(number), scratch, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number]
            )
        assert self._popen.stderr is not None
        self._errors = Captured(os.dup(self._popen.stderr.fileno()))
        self._popen.stderr.close()

    def prepare(self, job: dict[str, Any], seconds: float) -> None:
        """Tell the server what submissions need, and wait until it can fork; ServerDied if it can't."""
        with contextlib.suppress(OSError):  # the answer, or its absence, says why
            self._control.sendall(json.dumps(job).encode() + b"\n")
        answer = self.answer(seconds)
        if "ready" not in answer:
            raise ServerDied(str(answer.get("fault", answer)))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; its child, if there is one, dies with it."""
        self._control.close()
        self._popen.kill()
        self._popen.wait()
        self._errors.join(1.0)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The server's next line."""
        self._control.settimeout(seconds)
        try:
            while b"\n" not in self._lines:
                more = self._control.recv(1 << 16)
                if not more:
                    raise ServerDied(self._last_words() or "it ended without a word")
                self._lines += more
        except TimeoutError:
            raise ServerDied(f"no answer within {seconds:g} s") from None
        except OSError as error:
            raise ServerDied(str(error)) from None
        line, _, self._lines = self._lines.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._errors.join(1.0)
        lines = self._errors.text().strip().splitlines()
        return lines[-1] if lines else ""

    def spawn(self, order: Order) -> Submitted:
        """Fork a process for a submission."""
        pipes = [os.pipe() for _ in range(3)]
        (commands, to_commands), (from_frames, frames), (from_output, output) = pipes
        theirs = [commands, frames, output]
        try:
            socket.send_fds(self._control, [json.dumps(asdict(order)).encode() + b"\n"], theirs)
            pid = int(self.answer(30.0)["pid"])
        except (OSError, KeyError, ServerDied) as error:
            for descriptor in (to_commands, from_frames, from_output):
                os.close(descriptor)
            raise ServerDied(str(error)) from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        # Held while the process can't have been waited for, so that the number can't be another's.
        handle = _open_handle(pid)

        def end() -> int:
            _kill(pid, handle)
            if handle is not None:
                os.close(handle)
            return int(self.answer(30.0).get("status", -1))

        return Submitted(pid, (to_commands, from_frames, from_output), end)


class FreshProcesses:
    """What stands in for the server where processes can't be forked: each imports everything anew."""

    def __init__(self, scratch: Path):
        self._scratch = scratch
        self._job: dict[str, Any] = {}

    def prepare(self, job: dict[str, Any], seconds: float) -> None:
        self._job = job

    def stop(self) -> None:
        """There is nothing to stop: each process ends with its submission."""

    def spawn(self, order: Order) -> Submitted:
        """Start a process for a submission."""
        popen = start_process("alone", self._scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        ends = tuple(os.dup(pipe.fileno()) for pipe in (popen.stdin, popen.stdout, popen.stderr))
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            pipe.close()
        with contextlib.suppress(OSError):  # its frames tell
            os.write(ends[0], json.dumps({"job": self._job, "order": asdict(order)}).encode() + b"\n")

        def end() -> int:
            popen.kill()
            return popen.wait()

        return Submitted(popen.pid, ends, end)


AnyServer = Server | FreshProcesses


def start_server(scratch: Path) -> AnyServer:
    """The fork server, or what stands in for it on this system."""
    return Server(scratch) if hasattr(os, "fork") else FreshProcesses(scratch)


def start_process(argument: str, scratch: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start the server's module, isolated, in an empty folder, with few variables."""
    root = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-I", "-B", "-X", "utf8", "-c", BOOTSTRAP, root, SERVER, argument]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, cwd=scratch, env=environment(str(scratch)), bufsize=0, **options
    )


class Submitted:
    """The process of one submission, seen from outside; a context manager that leaves nothing of it.

    `ends`: our ends of its pipes, for commands, frames and output. `end` kills it, if it still runs, and
    returns its exit status.
    """

    def __init__(self, pid: int, ends: tuple[int, ...], end: Callable[[], int]):
        self.pid, self._end = pid, end
        self._commands, self._frames_end, output = ends
        self._frames: queue.Queue[Frame | BadFrame | None] = queue.Queue(maxsize=MOST_WAITING)
        self._status: int | None = None
        self._output = Captured(output)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Submitted:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def command(self, **values: object) -> None:
        """Send a command; a process that is gone doesn't hear it, which its frames tell."""
        with contextlib.suppress(OSError):
            os.write(self._commands, json.dumps(values).encode() + b"\n")

    def next_frame(self, seconds: float) -> Frame | BadFrame | None:
        """The next frame; None when there will be no more; queue.Empty if none came in time."""
        return self._frames.get(timeout=seconds)

    def cpu_seconds(self) -> float | None:
        """What the process has computed so far; None where the system doesn't tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None

    def output(self) -> str:
        """What it printed, capped."""
        return self._output.text()

    def stop(self) -> int:
        """End the process if it still runs; return its exit status (negative: the signal)."""
        if self._status is not None:
            return self._status
        self._status = self._end()
        os.close(self._commands)
        self._reader.join(5.0)
        self._output.join(5.0)
        return self._status

    def _read(self) -> None:
        try:
            with os.fdopen(self._frames_end, "rb", buffering=1 << 16) as pipe:
                for frame in _bounded(pipe.read):
                    self._put(frame)
        except BadFrame as error:
            self._put(error)
        self._put(None)

    def _put(self, frame: Frame | BadFrame | None) -> None:
        while self._status is None:  # once it has been ended, nobody looks any more
            try:
                return self._frames.put(frame, timeout=TICK)
            except queue.Full:
                continue


def _bounded(read: Any) -> Iterator[Frame]:
    total = 0

    def counted(size: int) -> bytes:
        nonlocal total
        total += size
        if total > MOST_BYTES:
            raise BadFrame("more bytes than all tests together send")
        data: bytes = read(size)
        return data

    for number, frame in enumerate(unpack(counted)):
        if number > MOST_FRAMES:
            raise BadFrame("more frames than all tests together send")
        yield frame


def _kill(pid: int, handle: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if handle is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _open_handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux; or it has already gone
        return None
