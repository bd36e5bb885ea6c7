"""One submission on its way through as many processes as it needs, under a clock that this side holds.

A test that hangs or ends its process is lost, and the remaining tests run in a fresh process: those of other
steps first, so that one function without an end costs its own step. After three such ends the rest is lost.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from grader.course import Lab
from grader.deciding import Decision, decide, named
from grader.diagnosis import SketchBook
from grader.files import holds_more_than, remove_tree
from grader.limits import Limits
from grader.oracle import Wanted
from grader.process import in_words
from grader.server import Order
from grader.settings import stream
from grader.spawning import AnyServer, Submitted
from grader.verdicts import (
    CRASHED,
    ERROR,
    GRADER_ERROR,
    MISSING,
    SUBMISSION_CHARS,
    TIME_OUT,
    WRONG,
    Verdict,
    one_line,
)
from grader.wire import END, IMPORTED, READY, BadFrame, Ended

MOST_ENDS = 3  # processes that a submission may hang or end before its remaining tests are given up
TICK = 0.05
NAMING_SECONDS = 10.0  # for finding the names of mistakes, which changes no verdict


@dataclass(frozen=True)
class Knowledge:
    """What the trusted process knows of a lab for a class: what tests want, and how mistakes look."""

    lab: Lab
    seed: int
    wanted: Sequence[Wanted]
    book: SketchBook | None  # of known mistakes, for its own seed
    book_wanted: Sequence[Wanted]  # what tests want on that seed


class _End(Exception):
    """A process came to its end, or was stopped, before all of its tests had reported."""

    def __init__(self, verdict: str, message: str, during: str) -> None:
        super().__init__(message)
        self.verdict, self.message = verdict, message
        self.during = during  # "start", "import", "test"


@dataclass
class Examination:
    """The tests of one submission, and their verdicts so far."""

    knowledge: Knowledge
    server: AnyServer
    limits: Limits
    exercise: Path
    confined: bool
    apart: frozenset[int] = frozenset()  # steps whose code a person must look at: run after the others, alone
    on_values: Callable[[int, list[object]], None] = lambda place, values: None  # for a replay
    decisions: dict[int, Decision] = field(default_factory=dict)  # by place in the plan
    outputs: list[str] = field(default_factory=list)
    message: str = ""

    def run(self, only: Sequence[int] | None = None) -> None:
        """Run processes until every test (or each of `only`) is decided; ServerDied if that can't go on."""
        self._wanted_places = range(len(self.knowledge.wanted)) if only is None else only
        self._source = self.exercise.read_bytes()
        self._deadline = time.monotonic() + self.limits.total_seconds
        ends, ended_steps, again = 0, set[int](), set[int]()
        while self._pending() and ends < MOST_ENDS:
            order = sorted(self._next(), key=lambda place: self._step(place) in ended_steps)
            try:
                self._run_process(order)
                continue
            except _End as end:
                if end.during != "test":
                    self.message = end.message
                    return self._decide_rest(end.verdict, end.message)
                place = next(place for place in order if place not in self.decisions)
                if end.verdict == TIME_OUT and place not in again and self._time_left() > 0:
                    again.add(place)  # perhaps the machine was busy: once more, alone
                    end = self._once_more(place) or end
                    if place in self.decisions:
                        continue
                self.decisions[place] = Decision(Verdict(self._test(place), end.verdict, end.message))
                ends += 1
                ended_steps.add(self._step(place))
            if self._time_left() <= 0:
                self.message = f"the submission used up its {self.limits.total_seconds:g} s"
                return self._decide_rest(TIME_OUT, f"not run: {self.message}")
        if self._pending():
            self.message = f"{MOST_ENDS} tests hung or ended the process; the rest was not run"
            self._decide_rest(MISSING, f"not run: {MOST_ENDS} tests before it hung or ended the process")

    def verdicts(self) -> list[Verdict]:
        """A verdict for every planned test, in order."""
        return [self.decisions[place].verdict for place in range(len(self.knowledge.wanted))]

    def fail(self, message: str) -> None:
        """Give every undecided test the grader's own failure."""
        self.message = message
        self._decide_rest(GRADER_ERROR, message)

    def _once_more(self, place: int) -> _End | None:
        try:
            self._run_process([place])
        except _End as end:
            return end
        return None

    def _pending(self) -> list[int]:
        return [place for place in self._wanted_places if place not in self.decisions]

    def _next(self) -> list[int]:
        """What one process may run together: what a suspect step does there must not reach another."""
        pending = self._pending()
        clean = [place for place in pending if self._step(place) not in self.apart]
        if clean or len(self.apart) == len(self.knowledge.lab.steps):
            return clean or pending  # where every step is suspect, there is none to protect
        return [place for place in pending if self._step(place) == self._step(pending[0])]

    def _test(self, place: int) -> str:
        return self.knowledge.wanted[place].test.name

    def _step(self, place: int) -> int:
        return self.knowledge.lab.step_of(self._test(place)).number

    def _time_left(self) -> float:
        return self._deadline - time.monotonic()

    def _decide_rest(self, verdict: str, message: str) -> None:
        for place in self._pending():
            self.decisions[place] = Decision(Verdict(self._test(place), verdict, message))

    def _run_process(self, order: Sequence[int]) -> None:
        """Run tests in one process; raises _End if it doesn't come through all of them."""
        limits = self.limits
        self._clear_folder()
        cpu = int(limits.total_seconds) + 1
        with self.server.spawn(Order(str(self.exercise), limits.memory_bytes, cpu, self.confined)) as process:
            try:
                self._follow(process, order)
            finally:
                process.stop()
                self.outputs.append(process.output())

    def _clear_folder(self) -> None:
        """Leave nothing of an earlier process: neither what it wrote, nor what it made of the file itself."""
        remove_tree(self.exercise.parent)
        self.exercise.parent.mkdir(mode=0o700)
        self.exercise.write_bytes(self._source)

    def _follow(self, process: Submitted, order: Sequence[int]) -> None:
        self._receive(process, READY, "start", self.limits.start_seconds)
        imported = self._receive(process, IMPORTED, "import", self.limits.import_seconds)
        if imported.error:
            self.message = one_line(imported.text, SUBMISSION_CHARS)
            return self._decide_rest(ERROR, imported.text or imported.error)
        self.message = self.message or one_line(imported.text, SUBMISSION_CHARS)
        process.command(tests=self._told(order, self.knowledge.seed))
        for place in order:
            wanted = self.knowledge.wanted[place]
            values, ended, seconds = self._run_test(process, wanted)
            self._check_folder(
                "test"
            )  # before it is decided: the test that filled it is the one that is lost
            self.on_values(place, values)
            self.decisions[place] = self._decide(wanted, values, ended, seconds)
        self._name_mistakes(process, [place for place in order if self._may_be_named(place)])

    def _told(self, places: Sequence[int], seed: int) -> list[tuple[int, int]]:
        """What the process is told of tests: their places and their own streams, not the class's seed."""
        return [(place, stream(seed, self._test(place))) for place in places]

    def _decide(self, wanted: Wanted, values: list[object], ended: Ended, seconds: float) -> Decision:
        """What is decided of a test; a value that can't even be compared is wrong, and ends nothing here."""
        try:
            source = self._source.decode("utf-8", "replace")
            return decide(self.knowledge.lab, wanted, values, ended, seconds, source)
        except Exception as error:
            message = f"a value that can't be compared ({type(error).__name__})"
            return Decision(Verdict(wanted.test.name, WRONG, message, seconds))

    def _run_test(self, process: Submitted, wanted: Wanted) -> tuple[list[object], Ended, float]:
        """What one test sends until its end."""
        values: list[object] = []
        began = time.monotonic()
        ended = self._receive(process, END, "test", self.limits.test_seconds, wanted, values)
        return values, ended, time.monotonic() - began

    def _receive(
        self,
        process: Submitted,
        kind: bytes,
        during: str,
        seconds: float,
        wanted: Wanted | None = None,
        values: list[object] | None = None,
    ) -> Ended:
        """Wait for the frame of this kind; values before it are kept, where a test is running."""
        deadline = time.monotonic() + seconds
        cpu_limit = (
            None if wanted is None else (process.cpu_seconds() or 0.0) + self.limits.computing(wanted.seconds)
        )
        while True:
            try:
                frame = process.next_frame(TICK)
            except queue.Empty:
                self._check_clock(process, during, deadline, seconds, wanted, cpu_limit)
                continue
            if frame is None:
                raise self._gone(process, during)
            if isinstance(frame, BadFrame):
                raise _End(CRASHED, f"the process sent what is no result ({frame})", during)
            if frame[0] == kind and isinstance(frame[1], Ended):
                return frame[1]
            if values is None or isinstance(frame[1], Ended) or wanted is None:
                raise _End(CRASHED, "the process sent its results out of order", during)
            if len(values) > len(wanted.expectations):
                raise _End(CRASHED, "the process sent more results than are planned", during)
            values.append(frame[1])

    def _check_clock(
        self,
        process: Submitted,
        during: str,
        deadline: float,
        seconds: float,
        wanted: Wanted | None,
        cpu_limit: float | None,
    ) -> None:
        """Raise the end of a process whose time is over, or whose folder is full."""
        if time.monotonic() > deadline:
            if during == "start":
                raise _End(GRADER_ERROR, f"the process was not ready within {seconds:g} s", during)
            guard = 'put what trains or plots below `if __name__ == "__main__":`'
            slow = f"importing the file took over {seconds:g} s, and no test was run; {guard}"
            text = slow if during == "import" else f"stopped after {seconds:g} s without a result"
            raise _End(TIME_OUT, text, during)
        self._check_folder(during)
        if self._time_left() < 0:
            raise _End(
                TIME_OUT, f"stopped: the submission used up its {self.limits.total_seconds:g} s", during
            )
        if wanted is not None and cpu_limit is not None and (process.cpu_seconds() or 0.0) > cpu_limit:
            allowed, needed = self.limits.computing(wanted.seconds), wanted.seconds
            text = f"stopped after {allowed:.1f} s of computing; the solution needs {needed:.2g} s"
            raise _End(TIME_OUT, text, during)

    def _check_folder(self, during: str) -> None:
        """Raise the end of a process that fills its folder."""
        if holds_more_than(self.exercise.parent, self.limits.files, self.limits.folder_bytes):
            raise _End(CRASHED, "stopped: it wrote more files than a submission may", during)

    def _gone(self, process: Submitted, during: str) -> _End:
        """The end of a process that went away by itself."""
        how = in_words(process.stop())
        if during == "start":
            words = process.output().strip().splitlines()
            return _End(
                GRADER_ERROR,
                one_line(f"the grader could not confine it: {words[-1] if words else how}"),
                during,
            )
        return _End(
            CRASHED,
            f"{how} while the file was imported; no test was run" if during == "import" else how,
            during,
        )

    def _may_be_named(self, place: int) -> bool:
        return self.decisions[place].failure is not None

    def _name_mistakes(self, process: Submitted, places: list[int]) -> None:
        """Add the names of known mistakes to what is decided; whatever goes wrong here costs only names."""
        book = self.knowledge.book
        if book is None or not places:
            return
        again = {place: self.decisions[place] for place in places}
        if book.seed != self.knowledge.seed:
            again = self._on_the_books_inputs(process, places, book.seed)
        for place, found in again.items():
            assert found.failure is not None
            with suppress(Exception):  # a strange value has no name
                ids = book.match_check(self._test(place), *found.failure)
                self.decisions[place] = Decision(named(self.decisions[place], ids, book.names))

    def _on_the_books_inputs(self, process: Submitted, places: list[int], seed: int) -> dict[int, Decision]:
        """Run what failed once more, on the inputs that the sketches are of."""
        found: dict[int, Decision] = {}
        deadline = time.monotonic() + NAMING_SECONDS
        process.command(tests=self._told(places, seed))
        try:
            for place in places:
                wanted = self.knowledge.book_wanted[place]
                values, ended, seconds = self._run_test(process, wanted)
                decision = self._decide(wanted, values, ended, seconds)
                if decision.failure is not None and decision.verdict.verdict in (WRONG, ERROR):
                    found[place] = decision
                if time.monotonic() > deadline:
                    break
        except _End:
            pass
        return found
