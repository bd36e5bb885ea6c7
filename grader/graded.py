"""Inside the process of one submission: run tests on the file, send every actual value out.

Whatever happens here is a claim: the trusted process looks only at the values that arrived.
The frames' descriptor and the functions that write to it are bound before the file is loaded, and the
grader's own modules are taken out of sight; that keeps accidents and simple tricks away, and no mark
depends on it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from grader.advice import advice
from grader.bans import ForbiddenCall
from grader.checks import MissingName, sending
from grader.implementations import (
    BrokenImplementation,
    Program,
    describe_error,
    left_out_line,
    ran_out_of_memory,
)
from grader.settings import put_back, restored, snapshot
from grader.testfile import Namespace, Planned, call
from grader.verdicts import ERROR, FORBIDDEN, MEMORY, TO_DO, one_line
from grader.wire import DONE, END, IMPORTED, Ended, pack_end, pack_value

SLOW_IMPORT = 0.05  # seconds; a file that takes longer is loaded once, not once a test


def run_submission(
    source: bytes, path: Path, namespace: Namespace, plan: Sequence[Planned], commands: int, frames: int
) -> None:
    """Load the file, then run the tests of each command, a line of JSON `{"tests": [[place, stream], …]}`.

    Frames go to the descriptor `frames`: one for the import, then for each test its values and its end.
    Returns when `commands` is at its end, or at once if the file can't be loaded.
    """
    _hide_grader()
    left_out: list[str] = []
    sys.breakpointhook = lambda *arguments, **options: None  # a forgotten breakpoint() waits for nobody
    try:
        load = _first_load(Program(source, path), left_out)
    except BaseException as error:
        return _write_all(frames, pack_end(_ended(error, path), IMPORTED))
    said = left_out_line(path, left_out).replace("; ", ";\n")  # a frame's lines are short
    _write_all(frames, pack_end(Ended(DONE, said), IMPORTED))
    for line in os.fdopen(commands, "rb"):
        command = json.loads(line)
        for place, stream in command["tests"]:
            _write_all(frames, _run_test(load, path, namespace, plan[place], stream))


def _first_load(program: Program, left_out: list[str]) -> Callable[[], ModuleType]:
    """Load the file once; return what gives a test its module: a fresh one, unless loading takes long.

    `left_out` gets an entry for each statement at the top that fails, as one does that compares the student's
    work with a finished operator, which can't be called here.
    """
    before, began = snapshot(), time.perf_counter()
    module: ModuleType | None = None
    with suppress(NotImplementedError):  # each test that needs what is missing will say so
        module = program.run(left_out)
    slow, tidy = time.perf_counter() - began > SLOW_IMPORT, snapshot() == before
    put_back(before)
    if slow and module is not None:
        return lambda: module
    return lambda: program.run([]) if tidy else _fresh_and_put_back(program)


def _fresh_and_put_back(program: Program) -> ModuleType:
    with restored():
        return program.run([])


def _hide_grader() -> None:
    """Take this package out of the list of modules, and everything out of the garbage collector's sight."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "grader"]:
        del sys.modules[name]
    gc.freeze()


def _run_test(
    load: Callable[[], ModuleType], path: Path, namespace: Namespace, test: Planned, stream: int
) -> bytes:
    """Run one test; return its frames."""
    out: list[bytes] = []
    ended = Ended(DONE)
    with restored(), sending(lambda actual: out.append(pack_value(actual))):
        try:
            call(namespace, test, load(), stream)
        except BaseException as error:  # also an interrupt, an exit, a skip: none of them may end the run
            ended = _ended(error, path)
    return b"".join(out) + pack_end(ended, END)


def _ended(error: BaseException, path: Path) -> Ended:
    """How a test ended that an exception has left."""
    name = type(error).__name__
    try:
        outcome = _outcome(error, path)
        return Ended(outcome, _said(error, path, outcome), name)
    except BaseException:  # an exception class of the file may lie about itself
        return Ended(ERROR, name, name)


def _outcome(error: BaseException, path: Path) -> str:
    if isinstance(error, ForbiddenCall):
        return FORBIDDEN
    if ran_out_of_memory(error):
        return MEMORY
    if isinstance(error, NotImplementedError) and _raised_in(error, path):
        return TO_DO
    return ERROR


def _raised_in(error: BaseException, path: Path) -> bool:
    """Whether the file itself raised it: torch, too, raises NotImplementedError."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == str(path)


def _said(error: BaseException, path: Path, outcome: str = ERROR) -> str:
    if isinstance(error, BrokenImplementation | MissingName):
        return one_line(error)
    if outcome == TO_DO:
        return one_line(error)
    lines = [describe_error(error, path), *advice(error)]
    return "\n".join(lines)


def _write_all(descriptor: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    while data:
        data = data[write(descriptor, data) :]
