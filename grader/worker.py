"""A fresh process per submission: runs a lab's tests on one file, under a clock that this side holds.

The child process starts isolated, in an empty folder, with the tests and the configuration of the course
alone. It reports each test on a private channel; what the submission prints goes elsewhere and is capped.
A test that hangs or ends its process is lost, and the remaining tests run in a fresh process: those of
other steps first, so that one function without an end costs its own step.

The comparison still happens in the process that runs the student's code, so a submission that sets out to
forge its verdicts can: this module keeps accidents apart from each other, not attacks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.course import Lab
from grader.process import OUTPUT_BYTES, TICK, Process, clean
from grader.verdicts import (
    CRASHED,
    ERROR,
    GRADER_ERROR,
    MESSAGE_CHARS,
    MESSAGE_LINES,
    MISSING,
    TIME_OUT,
    VERDICTS,
    WRONG,
    Verdict,
    one_line,
)

CHILD = "grader.child"  # the module of the other side
NAMED = "  looks like: "  # how the line begins that names a mistake
MOST_ENDS = 3  # processes that a submission may hang or end before its remaining tests are given up


@dataclass(frozen=True)
class Limits:
    """Seconds of wall time."""

    test_seconds: float = 10.0  # for one test
    import_seconds: float = 20.0  # for the import of the file
    total_seconds: float = 120.0  # for a submission, its processes' starts not counted
    start_seconds: float = 60.0  # for a process, until it turns to the submission


@dataclass(frozen=True)
class Judgement:
    """What became of one submission: a verdict for every planned test, in order.

    `message` is one line about the submission as a whole ("" when there is nothing to say), `output` the
    beginning of what it printed, `layers` what confined it ("landlock 7", "seccomp", "limits").
    """

    verdicts: tuple[Verdict, ...]
    message: str = ""
    seconds: float = 0.0
    output: str = ""
    layers: tuple[str, ...] = ()


class Stopped(Exception):
    """The caller's stop flag was set; nothing was decided."""


def judge(
    lab: Lab,
    exercise: Path,
    seed: int,
    limits: Limits,
    tests: Sequence[str],
    *,
    stop: threading.Event | None = None,
) -> Judgement:
    """Run `tests` on the file `exercise` in fresh processes, and give every one of them exactly one verdict.

    The lab's sketches name known mistakes; if they are of another seed, a test that failed is run again on
    the inputs of that seed, which changes no verdict.
    Whatever the file does (hang, exit, crash, flood) ends in verdicts and a message, never in an exception;
    no process of its session is left (one that leaves the session survives until the jail of the next
    version). Only `stop` ends a judgement early, with `Stopped`.
    """
    return _Attempt(lab, exercise.resolve(), seed, limits, tests, stop or threading.Event()).run()


def planned_tests(lab: Lab, limits: Limits) -> list[str]:
    """Return the ids of a lab's tests in file order, collected in a process of their own.

    Raises RuntimeError with one line when the tests can't be collected.
    """
    with Process(CHILD, {**_lab_job(lab), "collect": True}) as process:
        deadline = time.monotonic() + limits.start_seconds
        reason = f"no answer within {limits.start_seconds:g} s"
        while time.monotonic() < deadline:
            event = process.next_event(TICK)
            if event is not None and event.get("event") == "tests":
                return [str(test) for test in event["tests"]]
            if event is not None and event.get("event") == "fault":
                reason = one_line(event.get("message"), 2 * MESSAGE_CHARS)
                break
            if event is None and process.is_over():
                reason = process.last_line() or process.how_it_ended()
                break
    raise RuntimeError(f"the tests of {lab.name} can't be collected: {reason}")


def _lab_job(lab: Lab) -> dict[str, Any]:
    return {"lab": str(lab.folder.resolve()), "solutions": str(lab.solution_folder.resolve())}


@dataclass(frozen=True)
class _End:
    """How a process came to its end before all of its tests had reported."""

    verdict: str
    message: str
    test: str | None = None  # the test that it was in, if any
    seconds: float = 0.0


class _Attempt:
    """One submission on its way through as many processes as it needs."""

    def __init__(
        self, lab: Lab, exercise: Path, seed: int, limits: Limits, tests: Sequence[str], stop: threading.Event
    ):
        self._lab, self._exercise, self._seed = lab, exercise, seed
        self._limits, self._tests, self._stop = limits, tests, stop
        self._verdicts: dict[str, Verdict] = {}
        self._ended_steps: set[int] = set()  # steps with a test that hung or ended its process
        self._time_left = limits.total_seconds
        self._import_seconds = 0.0
        self._output = ""
        self._begin_process()

    def _begin_process(self) -> None:
        self._phase = "start"  # then "import", "tests" and perhaps "naming"
        self._current: str | None = None  # the test that runs now
        self._since = time.monotonic()  # of the phase, or of the test
        self._ready_at: float | None = None  # from then on, the time is the submission's

    def run(self) -> Judgement:
        began = time.monotonic()
        message = self._run_all()
        self._decide_rest(MISSING, "it did not report")
        verdicts = tuple(self._verdicts[test] for test in self._tests)
        if (
            verdicts
            and not message
            and {(one.verdict, one.message) for one in verdicts} == {(ERROR, verdicts[0].message)}
        ):
            message = verdicts[0].message  # a file that can't be loaded
        return Judgement(verdicts, message, time.monotonic() - began, self._output)

    def _run_all(self) -> str:
        """Run processes until every test is decided; return what is to say about the whole submission."""
        for _ in range(MOST_ENDS):
            if not self._pending():
                return ""
            end = self._run_process()
            if end is None:
                return ""
            if end.test is None:
                self._decide_rest(end.verdict, end.message)
                return end.message
            self._decide(Verdict(end.test, end.verdict, end.message, end.seconds))
            self._ended_steps.add(self._step(end.test))
            if self._time_left <= 0:
                reason = self._used_up()
                self._decide_rest(TIME_OUT, f"not run: {reason}")
                return reason
        if not self._pending():
            return ""
        self._decide_rest(MISSING, f"not run: {MOST_ENDS} tests before it hung or ended the process")
        return f"{MOST_ENDS} tests hung or ended the process; the rest was not run"

    def _pending(self) -> list[str]:
        return [test for test in self._tests if test not in self._verdicts]

    def _groups(self) -> list[list[str]]:
        """The pending tests in the order to run them: those of steps that hung or ended a process last."""
        pending = self._pending()
        last = [test for test in pending if self._step(test) in self._ended_steps]
        first = [test for test in pending if test not in last]
        return [group for group in (first, last) if group]

    def _step(self, test: str) -> int:
        return self._lab.step_of(test).number

    def _decide(self, verdict: Verdict) -> None:
        self._verdicts.setdefault(verdict.test, verdict)

    def _decide_rest(self, verdict: str, message: str) -> None:
        for test in self._pending():
            self._decide(Verdict(test, verdict, message))

    def _run_process(self) -> _End | None:
        """Run the pending tests in one process; None if it went through all that it was given."""
        self._begin_process()
        job = {"exercise": str(self._exercise), "seed": self._seed, "groups": self._groups()}
        with Process(CHILD, {**_lab_job(self._lab), **job}) as process:
            try:
                return self._follow(process)
            finally:
                process.stop()
                self._output = (self._output + process.output())[:OUTPUT_BYTES]
                if self._ready_at is not None:
                    self._time_left -= time.monotonic() - self._ready_at

    def _follow(self, process: Process) -> _End | None:
        """Take in a process's events until it is done, over, or out of time."""
        while not self._stop.is_set():
            event = process.next_event(TICK)
            over = event is None and process.is_over()
            kind = "" if event is None else event.get("event")
            if self._phase == "naming" and (over or kind in ("end", "fault") or self._late() is not None):
                return None  # all is decided; only a name is missing
            if over:
                return self._lost(process)
            if event is not None and kind in ("end", "fault") and self._current is not None:
                why = f" ({self._text(event['message'])})" if event.get("message") else ""
                return self._end_of_test(CRASHED, one_line(f"the test ended the whole test run{why}"))
            if kind == "end":
                return None
            if event is not None and kind == "fault":
                return self._fault(self._text(event.get("message")))
            if event is not None:
                self._take_in(event)
            late = self._late()
            if late is not None:
                return late
        raise Stopped

    def _take_in(self, event: dict[str, Any]) -> None:
        """Note how far the process is; accept a verdict about a planned test that has none yet."""
        kind, test, now = event.get("event"), event.get("test"), time.monotonic()
        if kind == "ready" and self._phase == "start":
            self._phase, self._since, self._ready_at = "import", now, now
        elif kind == "imported" and self._phase == "import":
            self._phase, self._import_seconds, self._since = "tests", now - self._since, now
        elif kind == "naming" and self._phase == "tests":
            self._phase, self._since = "naming", now
        elif kind == "named" and self._phase == "naming":
            self._name(event)
        elif self._phase != "tests" or not isinstance(test, str) or test not in self._pending():
            return
        elif kind == "start":
            self._current, self._since = test, now
        elif kind == "verdict" and event.get("verdict") in VERDICTS:
            seconds, mistake = event.get("seconds"), event.get("mistake")
            self._decide(
                Verdict(
                    test,
                    str(event["verdict"]),
                    self._text(event.get("message")),
                    float(seconds) if isinstance(seconds, int | float) else 0.0,
                    mistake if isinstance(mistake, str) else None,
                )
            )
            self._current, self._since = None, now

    def _text(self, message: object) -> str:
        """A message of the process, without the place where the grader had put the file."""
        if not isinstance(message, str):
            return ""
        named = message.replace(str(self._exercise), self._exercise.name)
        return clean(named.replace(str(self._exercise.parent), "its folder"))

    def _fault(self, message: str) -> _End:
        """The end of a process whose Python could not go on, outside a test."""
        what = one_line(message)
        if self._phase == "import":
            return _End(CRASHED, one_line(f"no test was run: the file stops Python itself ({what})"))
        if self._phase == "start":
            return _End(GRADER_ERROR, one_line(f"the grader failed: {what}"))
        try:
            planned_tests(self._lab, self._limits)  # is it the lab?
        except RuntimeError as error:
            return _End(GRADER_ERROR, one_line(f"the grader failed: {error}"))
        return _End(CRASHED, one_line(f"the file leaves Python unable to run tests ({what})"))

    def _name(self, event: dict[str, Any]) -> None:
        """Add the name of a known mistake to the verdict of a test that failed."""
        verdict = self._verdicts.get(str(event.get("test")))
        names = [line for line in clean(event.get("message")).splitlines() if line.startswith(NAMED)]
        if verdict is None or verdict.verdict not in (WRONG, ERROR) or not names:
            return
        *lines, last = verdict.message.splitlines() or [""]  # the last one says where to read
        message = "\n".join([*lines[: MESSAGE_LINES - 2], names[0], last])
        self._verdicts[verdict.test] = replace(verdict, message=message, mistake=str(event.get("mistake")))

    def _late(self) -> _End | None:
        """The end of a process whose time is over."""
        limits, now = self._limits, time.monotonic()
        if self._ready_at is None:
            if now - self._since > limits.start_seconds:
                return _End(GRADER_ERROR, f"the process did not start within {limits.start_seconds:g} s")
            return None
        if now - self._ready_at > self._time_left:
            return self._end_of_test(TIME_OUT, f"stopped: {self._used_up()}")
        if self._phase == "import":
            if now - self._since <= limits.import_seconds:
                return None
            return _End(
                TIME_OUT, f"importing the file took over {limits.import_seconds:g} s; no test was run"
            )
        if now - self._since <= limits.test_seconds:
            return None
        return self._end_of_test(TIME_OUT, f"stopped after {limits.test_seconds:g} s without a result")

    def _used_up(self) -> str:
        text = f"the submission used up its {self._limits.total_seconds:g} s"
        if self._import_seconds * len(self._tests) > self._limits.total_seconds / 4:
            text += f" (its import takes {self._import_seconds:.1f} s, and every test imports it anew)"
        return text

    def _lost(self, process: Process) -> _End:
        """The end of a process that went away by itself."""
        how = process.how_it_ended()
        if self._phase == "start":
            return _End(GRADER_ERROR, f"the grader's process could not start: {process.last_line() or how}")
        if self._phase == "import":
            return _End(CRASHED, f"{how} while the file was imported; no test was run")
        return self._end_of_test(CRASHED, how)

    def _end_of_test(self, verdict: str, message: str) -> _End:
        where = message if self._current is not None else f"{message}, between two tests"
        return _End(verdict, where, self._current, time.monotonic() - self._since)
