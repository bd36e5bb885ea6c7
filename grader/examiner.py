"""The trusted process: holds the solution's answers for a class's seed, and has submissions run elsewhere.

It starts the fork server, first judges the solution itself through it (a lab that its own solution does not
pass in the jail marks nobody), and then takes one submission after the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.course import CourseError, Lab, load_lab
from grader.diagnosis import SketchBook
from grader.examination import Examination, Knowledge
from grader.limits import Limits
from grader.oracle import Oracle, plan_for_server
from grader.process import open_channel
from grader.spawning import AnyServer, ServerDied, start_server
from grader.verdicts import one_line

OUTPUT_CHARS = 72 * 1024  # of all processes of a submission; one keeps 64 KiB and a note on the rest


class Examiner:
    """A lab with its answers and a running fork server."""

    def __init__(self, lab: Lab, seed: int, limits: Limits, confined: bool):
        import torch

        torch.set_num_threads(1)  # as in the process that runs submissions: the same sums in the same order
        self._scratch = Path(tempfile.mkdtemp(prefix="server-"))  # in this process's own temporary folder
        self._server = start_server(self._scratch)  # warms up while the answers are computed here
        oracle = Oracle(lab)
        book = _load_book(lab)
        wanted = oracle.wanted(seed)
        book_wanted = wanted if book is None or book.seed == seed else oracle.wanted(book.seed)
        self._knowledge = Knowledge(lab, seed, wanted, book, book_wanted)
        self._limits, self._confined = limits, confined
        self._job = {
            "rules": lab.rules.model_dump(),
            "tests": oracle.tests_without_answers(),
            "name": lab.test_file,
            "plan": plan_for_server(oracle.plan),
        }
        self._server.prepare(self._job, limits.start_seconds)
        self._judge_solution(lab)

    @property
    def tests(self) -> list[str]:
        return [one.test.name for one in self._knowledge.wanted]

    def judge(self, exercise: Path, apart: Sequence[int] = ()) -> dict[str, Any]:
        """The judgement of one file, as plain data; the file's folder becomes the submission's own.

        apart: steps whose tests must share no process with other steps'.
        """
        began = time.monotonic()
        examination = self._examine(exercise, apart)
        return {
            "verdicts": [asdict(verdict) for verdict in examination.verdicts()],
            "message": examination.message,
            "seconds": time.monotonic() - began,
            "output": "".join(examination.outputs)[:OUTPUT_CHARS],
        }

    def replay(self, exercise: Path, test: str) -> list[str]:
        """Run one test on a file and say, check by check, what was got and what was expected."""
        place = self.tests.index(test)
        examination = self._new(exercise)
        lines: list[str] = []

        examination.on_values = lambda at, values: (
            lines.extend(self._compared(at, values)) if at == place else None
        )
        examination.run([place])
        verdict = examination.decisions[place].verdict
        return [f"{test}: {verdict.verdict}", *verdict.message.splitlines(), *lines]

    def stop(self) -> None:
        self._server.stop()

    def _compared(self, place: int, values: Sequence[object]) -> list[str]:
        lines = []
        for number, (wanted, actual) in enumerate(
            zip(self._knowledge.wanted[place].expectations, values, strict=False), start=1
        ):
            comparison = wanted.judge(actual)
            state = "agrees" if comparison.check.passed else "differs"
            lines.append(f"check {number}, {wanted.what}: {state}")
            if not comparison.check.passed:
                lines += [f"got:\n{actual}", f"expected:\n{getattr(wanted, 'expected', wanted)}"]
        return lines

    def _examine(self, exercise: Path, apart: Sequence[int] = ()) -> Examination:
        """Judge a file; if the server dies it is started anew and the file tried once more."""
        for last in (False, True):
            examination = self._new(exercise)
            examination.apart = frozenset(apart)
            try:
                examination.run()
                return examination
            except ServerDied as error:
                self._server.stop()
                self._server = self._start()
                if last:
                    examination.fail(f"the server that runs submissions died ({one_line(error)})")
        return examination

    def _new(self, exercise: Path) -> Examination:
        return Examination(self._knowledge, self._server, self._limits, exercise, self._confined)

    def _start(self) -> AnyServer:
        server = start_server(self._scratch)
        try:
            server.prepare(self._job, self._limits.start_seconds)
        except ServerDied:
            server.stop()
            raise
        return server

    def _judge_solution(self, lab: Lab) -> None:
        """Judge the solution as if it had been handed in: it must pass everything, here as in practice."""
        with tempfile.TemporaryDirectory(prefix="solution-") as folder:
            exercise = Path(folder) / "exercise.py"
            exercise.write_bytes(lab.solution.read_bytes())
            examination = self._examine(exercise)
        failed = [verdict for verdict in examination.verdicts() if not verdict.passed]
        if failed:
            first = failed[0].message.splitlines() or [failed[0].verdict]
            raise CourseError(
                f"the lab's own solution does not pass {failed[0].test} when graded: {first[0]}"
            )


def _load_book(lab: Lab) -> SketchBook | None:
    try:
        return SketchBook.load(lab.sketches)
    except ValueError:
        return None  # damaged sketches cost the names of mistakes, no marks; `grader verify` reports them


def child() -> None:
    """The process: set up for the first job, then judge or replay for each further one."""
    jobs, send = open_channel()
    try:
        first = next(jobs)
        lab = load_lab(Path(first["lab"]), Path(first["solutions"]))
        examiner = Examiner(lab, first["seed"], Limits(**first["limits"]), first["confined"])
        send("ready", tests=examiner.tests)
        for job in jobs:
            if "test" in job:
                send("replayed", lines=examiner.replay(Path(job["exercise"]), job["test"]))
            else:
                send("judged", **examiner.judge(Path(job["exercise"]), job["apart"]))
    except BaseException as error:  # whatever it is, the parent hears of it
        send("fault", message=f"{type(error).__name__}: {one_line(error, 400)}".removeprefix("CourseError: "))
