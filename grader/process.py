"""A child process that talks on a private channel, and whose every end takes its session with it.

Events come as lines of JSON on the pipe that was the child's stdout; what it prints, from Python or C, goes
to another pipe, is read at once and kept up to a bound. The process has a session of its own, which is
killed as a whole.

A process that a submission starts in yet another session is not found, and survives until the jail of the
next version.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader.files import scratch_folder
from grader.verdicts import MESSAGE_LINES, printable

OUTPUT_BYTES = 64 * 1024  # of what a process prints, this much is kept
EVENT_BYTES = 64 * 1024  # a longer line on the channel is not ours
TICK = 0.05  # how often the reader of a full queue looks whether it is still wanted

# Only these reach the child: whatever else is set here may be a secret, or change what a test sees.
ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    *("NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
)

# `-I` keeps the current folder and PYTHONPATH out, so the child is told where this package lies.
BOOTSTRAP = """
import sys
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from importlib import import_module
import_module(sys.argv[2]).child()
"""

Send = Callable[..., None]


class Process:
    """A child process that runs `child()` of a module of this package, given a job; a context manager."""

    def __init__(self, module: str, job: dict[str, Any]):
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=100)
        self._kept = bytearray()
        self._thrown_away = 0
        self._stopping = False
        self._exit_status: int | None = None
        self._scratch = scratch_folder()
        root = str(Path(__file__).resolve().parents[1])
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", "-X", "utf8", "-c", BOOTSTRAP, root, module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._scratch.name,
                env=_environment(self._scratch.name),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            self._scratch.cleanup()
            raise
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_output, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # it may have ended already, which `is_over` reports
            # Stays open: when this side dies, the child reads the end of the file and ends too.
            self._popen.stdin.write(json.dumps(job).encode() + b"\n")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def next_event(self, seconds: float) -> dict[str, Any] | None:
        """Wait for the next event; None if none came in time."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def is_over(self) -> bool:
        """Whether the process has ended and all that it reported was taken."""
        if self._popen.poll() is None:
            return False
        self._exit_status = self._popen.returncode
        self._readers[0].join(TICK)  # its last lines; a process that it left behind may hold the pipe open
        return self._events.empty()

    def how_it_ended(self) -> str:
        """Say in words how the process ended."""
        status = self._exit_status
        if status is None or status >= 0:
            return f"the process ended itself (exit status {status})"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        why = {"SIGKILL": ", perhaps for want of memory", "SIGSEGV": ", perhaps a recursion without end"}
        return f"the process was ended by {name}{why.get(name, '')}"

    def output(self) -> str:
        """Return the beginning of what was printed, with a note if there was more."""
        text = bytes(self._kept).decode("utf-8", "replace")
        return f"{text}\n… and {self._thrown_away} bytes more\n" if self._thrown_away else text

    def last_line(self) -> str:
        """Return the last printed line, where Python says why it gave up."""
        self._readers[1].join(1.0)
        lines = self.output().strip().splitlines()
        return clean(lines[-1]) if lines else ""

    def stop(self) -> None:
        """End the process with all of its session, and release what it held."""
        if self._stopping:
            return
        self._stopping = True
        self._kill()
        self._popen.wait()
        for reader in self._readers:
            reader.join(1.0)  # ends at once, unless a process that fled the session holds the pipe
        for reader, pipe in zip(self._readers, (self._popen.stdout, self._popen.stderr), strict=True):
            if pipe is not None and not reader.is_alive():
                pipe.close()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        self._scratch.cleanup()

    def _kill(self) -> None:
        if os.name == "nt":
            if self._popen.poll() is None:
                subprocess.run(
                    ["taskkill", "/F", "/T", "/PID", str(self._popen.pid)], capture_output=True, check=False
                )
                self._popen.kill()
            return
        try:
            os.killpg(self._popen.pid, signal.SIGKILL)
        except (
            ProcessLookupError,
            PermissionError,
        ):  # nothing of the session is left (macOS: or only a zombie)
            self._popen.kill()

    def _read_events(self) -> None:
        pipe = self._popen.stdout
        assert pipe is not None
        rest = b""
        while data := pipe.read(EVENT_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                event = _parse_event(line)
                if event is not None:
                    self._put(event)
            rest = rest[:EVENT_BYTES]
            if self._stopping:
                return

    def _put(self, event: dict[str, Any]) -> None:
        while not self._stopping:
            try:
                return self._events.put(event, timeout=TICK)
            except queue.Full:
                continue

    def _read_output(self) -> None:
        pipe = self._popen.stderr
        assert pipe is not None
        while data := pipe.read(EVENT_BYTES):
            free = OUTPUT_BYTES - len(self._kept)
            self._kept += data[:free]
            self._thrown_away += len(data) - len(data[:free])


def _environment(scratch: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return {
        **kept,
        "TMPDIR": scratch,
        "TEMP": scratch,
        "TMP": scratch,
        "MPLBACKEND": "Agg",  # a forgotten plt.show() must not wait for a person
        "OMP_NUM_THREADS": "1",
    }


def _parse_event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def clean(text: object) -> str:
    """A message as it may be stored and shown: bounded, printable, no half characters."""
    if not isinstance(text, str):
        return ""
    whole = text.encode("utf-8", "replace").decode()
    return "\n".join(map(printable, whole.splitlines()[:MESSAGE_LINES]))


def open_channel() -> tuple[dict[str, Any], Send]:
    """In the child: take the job, and return it with the function that sends an event.

    To be called first of all, so that nothing that is printed afterwards can reach the channel.
    """
    channel = os.dup(1)
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _end_with_parent()

    def send(event: str, **values: object) -> None:
        os.write(channel, json.dumps({"event": event, **values}).encode() + b"\n")

    return job, send


def _end_with_parent() -> None:
    """Watch the pipe that the job came on: it closes when the grader is gone, however it went."""
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a submission that asks for input gets the end of the file at once
    os.close(null)

    def wait() -> None:
        while os.read(pipe, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
