"""A process of the grader's own that takes jobs and reports events, and whose end takes its session with it.

Jobs and events are lines of JSON, on the pipes that were its standard input and output; what is printed goes
to another pipe and is kept up to a bound.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from grader.files import remove_tree, scratch_folder
from grader.verdicts import MESSAGE_LINES, printable

OUTPUT_BYTES = 64 * 1024  # of what a process prints, this much is kept
TAIL_BYTES = 16 * 1024  # of that, from its end
READ_BYTES = 64 * 1024  # at once, from a pipe
LINE_BYTES = 16 << 20  # a longer line on the channel is not ours: a judgement has a few hundred kB
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
                cwd=self._scratch,
                env=environment(str(self._scratch)),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            remove_tree(self._scratch)
            raise
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()
        assert self._popen.stderr is not None
        self._printed = Captured(os.dup(self._popen.stderr.fileno()))
        self._popen.stderr.close()
        self.send(job)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send(self, job: dict[str, Any]) -> None:
        """Hand the process a job, which its `jobs()` gives it; one that has ended doesn't hear it."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # `is_over` reports it
            # Stays open: when this side dies, the child reads the end of the file and ends too.
            self._popen.stdin.write(json.dumps(job).encode() + b"\n")

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
        self._reader.join(TICK)  # its last lines; a process that it left behind may hold the pipe open
        return self._events.empty()

    def how_it_ended(self) -> str:
        """Say in words how the process ended."""
        return in_words(self._exit_status)

    def last_line(self) -> str:
        """Return the last printed line, where Python says why it gave up."""
        self._printed.join(1.0)
        lines = self._printed.text().strip().splitlines()
        return clean(lines[-1]) if lines else ""

    def stop(self) -> None:
        """End the process with all of its session, and release what it held."""
        if self._stopping:
            return
        self._stopping = True
        self._kill()
        self._popen.wait()
        self._reader.join(1.0)
        self._printed.join(1.0)
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        remove_tree(self._scratch)

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
        while data := pipe.read(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                event = _parse_event(line)
                if event is not None:
                    self._put(event)
            rest = rest[:LINE_BYTES]
            if self._stopping:
                return

    def _put(self, event: dict[str, Any]) -> None:
        while not self._stopping:
            try:
                return self._events.put(event, timeout=TICK)
            except queue.Full:
                continue


def in_words(status: int | None) -> str:
    """An exit status in words: a number of the process's own, or the signal that ended it."""
    if status is None or status >= 0:
        return f"the process ended itself (exit status {status})"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    why = {
        "SIGKILL": ", perhaps for want of memory",
        "SIGSEGV": ", perhaps a recursion without end",
        "SIGXCPU": ": it had used up its computing time",
    }
    return f"the process was ended by {name}{why.get(name, '')}"


class Captured:
    """What a process prints, read from a pipe in a thread: its beginning and end are kept, the rest counted.

    The pipe's end is closed when nobody holds the other one any more.
    """

    def __init__(self, descriptor: int):
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        self._reader = threading.Thread(target=self._read, args=(descriptor,), daemon=True)
        self._reader.start()

    def text(self) -> str:
        """The beginning and the end of what was printed, with a note if there was more between them."""
        head, tail = (bytes(part).decode("utf-8", "replace") for part in (self._head, self._tail))
        left_out = self._total - len(self._head) - len(self._tail)
        return f"{head}\n… {left_out} bytes left out …\n{tail}" if left_out else head + tail

    def join(self, seconds: float) -> None:
        """Wait for the end of the output, but no longer than that."""
        self._reader.join(seconds)

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(READ_BYTES):
                self._total += len(data)
                free = OUTPUT_BYTES - TAIL_BYTES - len(self._head)
                self._head += data[:free]
                self._tail = (self._tail + data[free:])[-TAIL_BYTES:] if len(data) > free else self._tail


def environment(scratch: str) -> dict[str, str]:
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


def open_channel() -> tuple[Iterator[dict[str, Any]], Send]:
    """In the process: the jobs as they come, and the function that sends an event.

    To be called first of all, so that nothing that is printed afterwards can reach the channel.
    When the parent is gone, however it went, the process ends with it.
    """
    channel = os.dup(1)
    os.dup2(2, 1)

    def send(event: str, **values: object) -> None:
        os.write(channel, json.dumps({"event": event, **values}).encode() + b"\n")

    return _jobs(), send


def _jobs() -> Iterator[dict[str, Any]]:
    """The jobs from the standard input, which a thread watches: it closes when the parent is gone."""
    pipe = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()

    def watch() -> None:
        for line in pipe:
            jobs.put(json.loads(line))
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        yield jobs.get()
