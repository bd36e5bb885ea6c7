"""Where submissions are run: work items in, judgements out, in whatever order they finish.

An engine knows nothing of marks and gradebooks; grading hands it work and takes its judgements.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from grader.course import CourseError, Lab
from grader.limits import Limits
from grader.verdicts import GRADER_ERROR, MISSING, Verdict, one_line
from grader.worker import Examiner, Judgement, Stopped


@dataclass(frozen=True)
class WorkItem:
    """One attempt to make: all that a worker needs to know, here or on another machine."""

    key: str
    lab: Lab
    seed: int
    source: str | None  # None: there is no file, and every test is "missing"
    student: str  # the first who handed this in
    apart: frozenset[int] = frozenset()  # steps with findings: judged in processes of their own


def failed(tests: Iterable[str], why: str) -> Judgement:
    """The judgement where the grader itself failed: nobody's fault, no zero, and the next run tries again."""
    message = one_line(f"the grader could not run this submission ({why})")
    return Judgement(tuple(Verdict(test, GRADER_ERROR, message) for test in tests), message)


Begin = Callable[[WorkItem], None]


class Engine(Protocol):
    """Runs work items; `begin` is told of each as it is begun.

    `work` may be drawn from lazily, in the thread that draws judgements. Closing the generator ends all that
    still runs.
    """

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]: ...


class LocalEngine:
    """This machine: `jobs` threads, each with a warm examiner of its own for the lab in work."""

    def __init__(self, jobs: int, limits: Limits, *, require_jail: bool = False):
        self._jobs, self._limits, self._require_jail = jobs, limits, require_jail

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]:
        items = iter(work)
        running: dict[Future[Judgement], str] = {}
        with ExitStack() as started, ThreadPoolExecutor(max_workers=self._jobs) as threads:
            examiners = Examiners(self._limits, self._require_jail, started)
            try:
                while True:
                    for item in islice(items, self._jobs - len(running)):
                        begin(item)
                        running[threads.submit(examiners.judge, item)] = item.key
                    if not running:
                        return
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
            finally:
                examiners.stop.set()  # on Ctrl-C: ends what still runs; else there is nothing


class Examiners:
    """Examiners by lab and seed, started when all that there are have work, and left to `started` to end.

    May be used by several threads; setting `stop` ends what still runs, with Stopped.
    """

    def __init__(self, limits: Limits, require_jail: bool, started: ExitStack):
        self.stop = threading.Event()
        self._limits, self._require_jail, self._started = limits, require_jail, started
        self._idle: defaultdict[tuple[str, int], list[Examiner]] = defaultdict(list)
        self._lock = threading.Lock()

    def judge(self, item: WorkItem) -> Judgement:
        """Run one submission; the grader's own failure is a verdict, too: it must not cost the class."""
        examiner = self._take(item)
        try:
            if item.source is None:
                missing = (Verdict(test, MISSING, "there is no file to test") for test in examiner.tests)
                return Judgement(tuple(missing))
            return examiner.judge(item.source, apart=item.apart)
        except (Stopped, CourseError):
            raise
        except Exception as error:
            return failed(examiner.tests, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._idle[item.lab.name, item.seed].append(examiner)

    def _take(self, item: WorkItem) -> Examiner:
        with self._lock:
            idle = self._idle[item.lab.name, item.seed]
            if idle:
                return idle.pop()
        examiner = Examiner(
            item.lab, item.seed, self._limits, require_jail=self._require_jail, stop=self.stop
        )
        return self._started.enter_context(examiner)
