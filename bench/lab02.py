"""Speed and memory on lab 02's whole test file: python -m bench.lab02 [ROUNDS]

Side by side in each round, on the solution: a plain `pytest` process, this grader after start-up (jail on,
comparison outside), and the bare test functions called in this warm process with no grader around them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event

import pytest
import torch

from bench.measure import (
    ROOT,
    descendants,
    finish,
    own_memory,
    processor_seconds,
    ratios,
    round_robin,
    run,
    say,
    spread,
    start,
    table,
    timed,
)
from grader import checks, plugin
from grader.course import Lab, load_course
from grader.implementations import load
from grader.verdicts import PASS
from grader.worker import Examiner, Limits

SEED = 2026
BATCH = 10  # submissions a round
STARTS = 3
PLAIN, BARE = "plain `pytest` process", "bare test functions in a warm process"
OURS = "this grader, a submission after start-up"


class BareTests:
    """The lab's tests, collected once, to be called as plain functions on the solution."""

    def __init__(self, lab: Lab):
        self.items: list[pytest.Function] = []
        self._module = load(lab.solution)
        arguments = ["--collect-only", f"--rootdir={ROOT}", "--noconftest", "--assert=plain"]
        off = ["-pno:terminal", "-pno:cacheprovider", "--disable-plugin-autoload"]
        pytest.main([str(lab.tests_path), *arguments, *off], plugins=[plugin, self])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [item for item in session.items if isinstance(item, pytest.Function)]

    def run(self) -> None:
        """Call every test once; a check that does not hold raises."""
        with checks.recording():
            for place, item in enumerate(self.items):
                given = {"lab": self._module, "rng": torch.Generator().manual_seed(SEED + place)}
                given |= item.callspec.params if hasattr(item, "callspec") else {}
                item.obj(**{name: given[name] for name in item._fixtureinfo.argnames})


class Copies:
    """Copies of the solution that differ by a comment, judged one after the other by a warm examiner."""

    def __init__(self, examiner: Examiner, lab: Lab):
        self._examiner, self._numbers = examiner, count()
        self._source = lab.solution.read_text(encoding="utf-8")
        self.layers: tuple[str, ...] = ()

    def judge(self) -> None:
        judgement = self._examiner.judge(f"{self._source}\n# {next(self._numbers)}\n", stop=Event())
        self.layers = judgement.layers
        lost = [verdict for verdict in judgement.verdicts if verdict.verdict != PASS]
        if lost:
            raise RuntimeError(f"the solution lost {len(lost)} tests: {lost[0]}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    lab = load_course(ROOT).find_lab("02")
    bare = BareTests(lab)
    pytest_run = [
        "-m",
        "pytest",
        "-q",
        "-pno:cacheprovider",
        str(lab.tests_path),
        "--impl",
        str(lab.solution),
    ]
    starts = [timed(lambda: Examiner(lab, SEED, Limits()).close()) for _ in range(STARTS)]
    processor: dict[str, list[float]] = {OURS: [], BARE: []}
    with Examiner(lab, SEED, Limits()) as examiner:
        copies = Copies(examiner, lab)

        def batch(name: str, action: Callable[[], None]) -> float:
            """The seconds that an action takes, one of a batch; the processor's seconds are noted."""
            before, seconds = processor_seconds(), 0.0
            for _ in range(BATCH):
                seconds += timed(action)
            processor[name].append((processor_seconds() - before) / BATCH)
            return seconds / BATCH

        actions = {
            PLAIN: lambda: timed(lambda: run(pytest_run, ROOT)),
            OURS: lambda: batch(OURS, copies.judge),
            BARE: lambda: batch(BARE, bare.run),
        }
        copies.judge()  # what is used for the first time is slow
        bare.run()
        seconds = round_robin(actions, rounds)
        say("memory")
        child = max(_largest_new_process(copies.judge) for _ in range(BATCH))
        plain = _largest_new_process(lambda: run(pytest_run, ROOT))
        helpers = sum(map(own_memory, descendants()))
    rows = [
        *[[name, f"{spread(values)} s"] for name, values in seconds.items()],
        ["plain pytest takes, of this grader's time", spread(ratios(seconds[PLAIN], seconds[OURS]))],
        ["this grader takes, of the bare functions' time", spread(ratios(seconds[OURS], seconds[BARE]))],
        *[[f"{name}: of the processor", f"{spread(values)} s"] for name, values in processor.items()],
        ["start-up of the lab", f"{spread(starts)} s"],
        ["own memory of a child", f"{child:.3g} MiB"],
        ["own memory of a plain `pytest` process", f"{plain:.3g} MiB"],
        ["own memory of the processes that stay", f"{helpers:.3g} MiB"],
        ["layers of the jail", ", ".join(copies.layers) or "none"],
    ]
    note = (
        f"Medians of {len(seconds[PLAIN])} rounds (smallest–largest). Own memory: what a process shares with"
        f" no other (private pages in /proc/PID/smaps_rollup); of a child the most seen in {BATCH} runs."
    )
    kept = {"seconds": seconds, "processor": processor, "start_up": starts, "child_mib": child}
    title = f"Lab 02, {len(bare.items)} tests on the solution"
    finish("lab02", title, f"{table(['', ''], rows)}\n\n{note}", kept)


def _largest_new_process(action: Callable[[], object]) -> float:
    """Return the most own memory, in MiB, of any process that came up during an action."""
    before = {process.pid for process in descendants()}
    largest = 0.0
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(action)
        while not running.done():
            new = [process for process in descendants() if process.pid not in before]
            largest = max([largest, *map(own_memory, new)])
        running.result()
    return largest


if __name__ == "__main__":
    start(main)
