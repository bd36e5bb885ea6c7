"""The other side of the worker: inside the fresh process, run a lab's tests on one file and report."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.course import Lab, load_lab
from grader.process import Send, open_channel
from grader.verdicts import ERROR, WRONG, one_line


def child() -> None:
    """Read one job, run its tests on the exercise, report each event as a line of JSON."""
    job, send = open_channel()
    try:
        lab = load_lab(Path(job["lab"]), Path(job["solutions"]))
        if job.get("collect"):
            from grader import running

            send("tests", tests=running.collect_tests(lab))
        else:
            _run_job(lab, job, send)
    except BaseException as error:  # also an interrupt: whatever it is, the parent hears of it
        send("fault", message=f"{type(error).__name__}: {one_line(error)}".removesuffix(": "))
    os._exit(0)


def _run_job(lab: Lab, job: dict[str, Any], send: Send) -> None:
    # They import torch: not at the top, so that the parent stays small.
    from grader import implementations, running
    from grader.diagnosis import SketchBook

    exercise = Path(job["exercise"])
    try:
        book = SketchBook.load(lab.sketches)
    except ValueError:
        book = None  # damaged sketches cost the names of mistakes, no marks; `grader verify` reports them
    direct = book if book is not None and book.seed == job["seed"] else None
    send("ready")
    with _restored(), contextlib.suppress(implementations.BrokenImplementation, NotImplementedError):
        # Every test loads the file itself; once beforehand, it shows whether the import hangs or ends.
        implementations.load(exercise)
    send("imported")
    verdicts = [
        verdict
        for tests in job["groups"]
        for verdict in running.run_tests(
            lab,
            exercise,
            job["seed"],
            tests,
            sketches=direct,
            on_start=lambda test: send("start", test=test),
            on_verdict=lambda verdict: send("verdict", **asdict(verdict)),
        )
    ]
    failed = [verdict.test for verdict in verdicts if verdict.verdict in (WRONG, ERROR)]
    if book is not None and direct is None and failed:
        # The sketches are of other inputs: what failed is run once more on those, for the name alone.
        send("naming")
        for verdict in running.run_tests(lab, exercise, book.seed, failed, sketches=book):
            if verdict.mistake is not None:
                send("named", test=verdict.test, mistake=verdict.mistake, message=verdict.message)
    send("end")


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Put back what a file may set while it is imported, and the tests' runner depends on."""
    import torch

    folder, depth = Path.cwd(), sys.getrecursionlimit()
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    modules = dict(sys.modules)
    with warnings.catch_warnings():
        try:
            yield
        finally:
            sys.modules.update({**modules, **sys.modules})
            os.chdir(folder)
            sys.setrecursionlimit(depth)
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
