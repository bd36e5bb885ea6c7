"""The supervisor's hold on a trusted process: hand it submissions, get judgements, whatever happens to it.

This side imports no torch. The process behind it holds the answers and compares; the process behind that one
runs submissions and holds neither.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from grader import jail
from grader.course import CourseError, Lab
from grader.files import private_folder
from grader.limits import Limits
from grader.process import TICK, Process, clean
from grader.verdicts import GRADER_ERROR, SUBMISSION_CHARS, VERDICTS, Verdict, one_line

EXAMINER = "grader.examiner"  # the module of the other side
SPARE_SECONDS = 60.0  # beyond a submission's own time, until the trusted process itself counts as stuck

__all__ = ["Examiner", "Judgement", "Limits", "Stopped", "replay"]


@dataclass(frozen=True)
class Judgement:
    """What became of one submission: a verdict for every planned test, in order.

    `message` is one line about the submission as a whole ("" when there is nothing to say), `output` the
    beginning and end of what it printed, `layers` what confined it ("landlock 7", "seccomp", "limits").
    """

    verdicts: tuple[Verdict, ...]
    message: str = ""
    seconds: float = 0.0
    output: str = ""
    layers: tuple[str, ...] = ()


class Stopped(Exception):
    """The caller's stop flag was set; nothing was decided."""


class Examiner:
    """A trusted process for one lab and seed; a context manager, slow to start, for one thread at a time.

    Raises CourseError if the lab can't be graded (its solution fails, its tests can't be collected), or if
    `require_jail` is set and a layer of the jail is missing here.
    """

    def __init__(
        self,
        lab: Lab,
        seed: int,
        limits: Limits | None = None,
        *,
        require_jail: bool = False,
        stop: threading.Event | None = None,
    ):
        self._lab, self._seed, self._limits = lab, seed, limits or Limits()
        self._stop = stop or threading.Event()
        self.layers = jail.available_layers()
        missing = [
            name for name in jail.ALL_LAYERS if not any(layer.startswith(name) for layer in self.layers)
        ]
        if require_jail and missing:
            raise CourseError(
                f"this system can't confine submissions fully (missing: {', '.join(missing)}); "
                "grade on Linux 6.12 or newer, or without --require-jail"
            )
        self._process: Process | None = None
        self.tests: list[str] = []
        self._start()

    def __enter__(self) -> Examiner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, with all that it started."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def judge(
        self, source: str, *, apart: Collection[int] = (), stop: threading.Event | None = None
    ) -> Judgement:
        """Judge one submission's text: every planned test gets exactly one verdict.

        apart: steps that share no process with others, because a person must look at their code.
        Whatever the submission does ends in verdicts and a message. If the trusted process itself fails
        twice, every verdict is a grader error. Only `stop` ends it early, with Stopped.
        """
        answer, trouble = self._ask(source, {"apart": sorted(apart)}, "judged", stop or self._stop)
        if answer is None:
            message = f"the grader failed: {trouble}"
            return Judgement(tuple(Verdict(test, GRADER_ERROR, message) for test in self.tests), message)
        return Judgement(
            tuple(_verdict(one) for one in answer["verdicts"]),
            one_line(answer["message"], SUBMISSION_CHARS),
            float(answer["seconds"]),
            str(answer["output"]),
            self.layers,
        )

    def replay(self, source: str, test: str) -> list[str]:
        """Run one test on a submission's text; lines that say what was got and what was expected."""
        answer, trouble = self._ask(source, {"test": test}, "replayed", self._stop)
        if answer is None:
            raise CourseError(f"the test could not be replayed: {trouble}")
        return [str(line) for line in answer["lines"]]

    def _ask(
        self, source: str, job: dict[str, Any], kind: str, stop: threading.Event
    ) -> tuple[dict[str, Any] | None, str]:
        """The answer to a job on a text, or None and why; a process that dies is started anew, once."""
        trouble = ""
        for _ in range(2):
            try:
                if self._process is None:
                    self._start()
                # A folder of its own: the file lies in it, and what the submission writes goes there.
                with private_folder() as folder:
                    exercise = folder / "exercise.py"
                    exercise.write_text(source, encoding="utf-8", newline="\n")
                    assert self._process is not None
                    self._process.send({**job, "exercise": str(exercise)})
                    return self._wait(kind, self._limits.total_seconds + SPARE_SECONDS, stop), ""
            except (RuntimeError, CourseError) as error:
                trouble = one_line(error)
                self.close()
            except Stopped:
                self.close()
                raise
        return None, trouble

    def _start(self) -> None:
        job = {
            "lab": str(self._lab.folder.resolve()),
            "solutions": str(self._lab.solution_folder.resolve()),
            "seed": self._seed,
            "limits": asdict(self._limits),
            "confined": bool(self.layers),
        }
        self._process = Process(EXAMINER, job)
        try:
            self.tests = [
                str(test) for test in self._wait("ready", self._limits.start_seconds, self._stop)["tests"]
            ]
        except RuntimeError as error:
            self.close()
            raise CourseError(f"{self._lab.name} can't be graded: {error}") from None
        except BaseException:
            self.close()
            raise

    def _wait(self, kind: str, seconds: float, stop: threading.Event) -> dict[str, Any]:
        """The next event of this kind; RuntimeError with one line if there will be none."""
        process = self._process
        assert process is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if stop.is_set():
                raise Stopped
            event = process.next_event(TICK)
            if event is not None and event.get("event") == kind:
                return event
            if event is not None and event.get("event") == "fault":
                raise RuntimeError(clean(event.get("message")))
            if event is None and process.is_over():
                raise RuntimeError(process.last_line() or process.how_it_ended())
        raise RuntimeError(f"no answer within {seconds:g} s")


def replay(lab: Lab, source: str, seed: int, test: str) -> list[str]:
    """Run one test on a submission's text, on the inputs of `seed`; lines that say what came of it."""
    with Examiner(lab, seed) as examiner:
        return examiner.replay(source, test)


def _verdict(values: dict[str, Any]) -> Verdict:
    verdict = Verdict(**values)
    return verdict if verdict.verdict in VERDICTS else Verdict(verdict.test, GRADER_ERROR, "no such verdict")
