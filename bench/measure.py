"""What the benchmarks share: rounds and ratios, tables and results, a look at processes.

Linux only, as the jail is: memory and descendants are read from /proc, through psutil.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "bench" / "results.json"
SET_CHILD_SUBREAPER = 36  # of prctl(2)
MIB = 1 << 20
QUIET = {"JUPYTER_PREFER_ENV_PATH": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}  # for the notebook graders

Seconds = dict[str, list[float]]


def run(arguments: Sequence[str], folder: Path) -> str:
    """Run a Python command (`python` and these arguments) in a folder; return what it printed.

    Programs of this environment come first on the path. RuntimeError with its last line if it fails.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, **QUIET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        said = (finished.stderr.strip() or finished.stdout.strip() or "no word").splitlines()[-1]
        raise RuntimeError(f"{' '.join(arguments)}: exit status {finished.returncode}: {said}")
    return finished.stdout


def timed(action: Callable[[], object]) -> float:
    """Return how many seconds an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def round_robin(actions: Mapping[str, Callable[[], float]], rounds: int) -> Seconds:
    """Let each action measure itself once a round; the lists are aligned by round.

    Ctrl-C ends it early: the rounds that are whole count.
    """
    seconds: Seconds = {name: [] for name in actions}
    for number in range(1, rounds + 1):
        try:
            once = {}
            for name, action in actions.items():
                say(f"round {number} of {rounds}: {name}")
                once[name] = action()
        except KeyboardInterrupt:
            say(f"interrupted in round {number}; the rounds before it count")
            break
        for name, value in once.items():
            seconds[name].append(value)
    if not any(seconds.values()):
        raise SystemExit("interrupted before the first round was whole: no result")
    return seconds


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratio of each pair of one round: what slows a whole round down cancels."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float]) -> str:
    """Return the median with the smallest and the largest value."""
    middle, low, high = map(short, (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low}–{high})"


def short(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def say(text: str) -> None:
    """Show progress, apart from the results."""
    print(f"  {text}", file=sys.stderr, flush=True)


def finish(name: str, title: str, text: str, results: Mapping[str, object]) -> None:
    """Print a benchmark's result and keep it in the common file."""
    load = os.getloadavg()[2]  # of a quarter of an hour: were others at work?
    machine = f"{os.cpu_count()} cores with a load of {load:.1f}, {platform.system()} {platform.machine()}"
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    print(f"\n{title} ({machine}, {versions})\n\n{text}", flush=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    known[name] = {"machine": machine, "versions": versions, **results}
    RESULTS.write_text(json.dumps(known, indent=1))


def start(main: Callable[[], None]) -> None:
    """Run a benchmark; Ctrl-C and a benchmark that can't go on are one line."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except RuntimeError as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends: none can slip out of sight."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise RuntimeError(f"prctl: {os.strerror(ctypes.get_errno())}")


def descendants() -> list[psutil.Process]:
    """Return the living processes below this one; one that only waits to be reaped is none."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def own_memory(process: psutil.Process | None = None) -> float:
    """Return the MiB that a process (default: this one) shares with no other; 0 if it is gone."""
    try:
        return float((process or psutil.Process()).memory_full_info().uss) / MIB
    except psutil.Error:
        return 0.0


def open_files() -> int:
    return int(psutil.Process().num_fds())


def processor_seconds() -> float:
    """Return the processor time of this process and of those below it, with their children that ended."""
    own = psutil.Process().cpu_times()
    return float(own.user + own.system + sum(sum(process.cpu_times()[:4]) for process in descendants()))
