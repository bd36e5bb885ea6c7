"""Try every known mistake on the tests of its own step: is it rejected, how clearly, and under which name?"""

from __future__ import annotations

import math
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import verdicts
from grader.course import Lab, Mistake
from grader.diagnosis import Sketch, SketchBook, sketch
from grader.implementations import apply_mistake
from grader.running import Job, Judged, collect_tests, run_jobs
from grader.verdicts import Verdict

FEW = 20  # a share of mistakes for a process: fewer are tried sooner than it has imported torch
MOST_PROCESSES = 8


@dataclass(frozen=True)
class Failure:
    """The check that ended a test: its place in the test, the wrong value, how wrong it was."""

    index: int
    value: Sketch
    allowed: float
    ratio: float  # error / allowed; infinite for what no tolerance covers
    interval: bool


@dataclass(frozen=True)
class Tried:
    """One test on one file, condensed.

    It holds no tensor: those would cross from another process as open files, of which there are few.
    """

    verdict: Verdict
    failure: Failure | None
    expected: tuple[Sketch | None, ...]  # of each check; None where it is one quantity of a trajectory


def condense(judged: Judged) -> Tried:
    """Keep of a judged test what the proof of the tests needs."""
    failure = None
    if judged.failure is not None:
        index, check = judged.failure
        ratio = math.inf if judged.verdict.verdict == verdicts.ERROR else check.ratio
        failure = Failure(index, sketch(check.actual, check.part), check.allowed, ratio, check.interval)
    expected = [None if c.part or c.interval else sketch(c.expected) for c in judged.checks]
    return Tried(judged.verdict, failure, tuple(expected))


@dataclass(frozen=True)
class Trial:
    """One mistake and what its own step's tests said of it."""

    mistake: Mistake
    runs: tuple[Tried, ...]

    @property
    def failures(self) -> list[Tried]:
        return [run for run in self.runs if not run.verdict.passed]

    @property
    def margin(self) -> float:
        """How many times more than allowed it errs in the check that rejects it most clearly.

        An exception, a wrong type or shape count as infinite; leaving an interval does not count.
        """
        found = [run.failure for run in self.failures if run.failure is not None]
        return max((failure.ratio for failure in found if not failure.interval), default=0.0)


def try_mistakes(
    lab: Lab,
    seed: int,
    mistakes: Sequence[Mistake] | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Run each mistake (default: all of the lab) against the tests of its step, on the inputs of `seed`.

    Many mistakes are shared out among processes, one a core; the trials come back in order.
    """
    wanted = lab.mistakes if mistakes is None else tuple(mistakes)
    tests = collect_tests(lab)
    processes = min(os.cpu_count() or 1, MOST_PROCESSES)
    if processes == 1 or len(wanted) <= FEW:
        return _try_here(lab, seed, wanted, tests, on_trial)
    shares = [wanted[i : i + FEW] for i in range(0, len(wanted), FEW)]
    trials: list[Trial] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for share in pool.imap(_try_share, [(lab, seed, share, tests) for share in shares]):
            trials += share
            if on_trial is not None:
                on_trial(share[-1])
    return trials


def _try_share(share: tuple[Lab, int, Sequence[Mistake], Sequence[str]]) -> list[Trial]:
    return _try_here(*share)


def _try_here(
    lab: Lab,
    seed: int,
    mistakes: Sequence[Mistake],
    tests: Sequence[str],
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    source = lab.solution.read_text(encoding="utf-8")
    trials: list[Trial] = []

    def keep(place: int, judged: list[Judged]) -> None:
        trials.append(Trial(mistakes[place], tuple(condense(one) for one in judged)))
        if on_trial is not None:
            on_trial(trials[-1])

    with tempfile.TemporaryDirectory(prefix="mistakes-") as folder:
        jobs = []
        for mistake in mistakes:
            path = Path(folder) / f"{mistake.id}.py"
            path.write_text(apply_mistake(source, mistake), encoding="utf-8")
            jobs.append(Job(path, [test for test in tests if lab.step_of(test).id == mistake.step]))
        run_jobs(lab, jobs, seed, keep)
    return trials


def run_checks(lab: Lab, path: Path, seed: int) -> list[Judged]:
    """Run all tests on a file, and keep the checks that each of them made."""
    runs: list[Judged] = []
    run_jobs(lab, [Job(path)], seed, lambda _, judged: runs.extend(judged))
    return runs


def sketch_mistakes(lab: Lab, trials: Iterable[Trial], seed: int) -> SketchBook:
    """The sketch of each mistake's wrong value, at the check that rejects it in each test."""
    book = SketchBook(seed, {mistake.id: mistake.name for mistake in lab.mistakes})
    for trial in trials:
        for run in trial.failures:
            if run.failure is not None:
                book.add(run.verdict.test, run.failure.index, trial.mistake.id, run.failure.value)
    return book
