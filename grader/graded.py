"""Inside the process of one submission: run tests on the file, send every actual value out.

Whatever happens here is a claim: the trusted process looks only at the values that arrived.
The frames' descriptor and the functions that write to it are bound before the file is loaded, and the
grader's own modules are taken out of sight; that keeps accidents and simple tricks away, and no mark
depends on it.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType

from grader.advice import advice
from grader.bans import ForbiddenCall
from grader.checks import MissingName, sending
from grader.implementations import BrokenImplementation, compile_source, describe_error, run_code
from grader.settings import put_back, restored, snapshot
from grader.testfile import Namespace, Planned, call
from grader.verdicts import ERROR, FORBIDDEN, MEMORY, TO_DO, one_line
from grader.wire import DONE, END, IMPORTED, Ended, pack_end, pack_value

SLOW_IMPORT = 0.05  # seconds; a file that takes longer is loaded once, not once a test
MOST_LEFT_OUT = 20  # statements
# Statements that define nothing which the tests ask for.
PASSING = (ast.Expr, ast.Assert, ast.For, ast.If, ast.With, ast.Try, ast.While, ast.Assign, ast.AugAssign)
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory", "bad_alloc")


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
        load = _first_load(compile_source(source, path), source, path, left_out)
    except BaseException as error:
        return _write_all(frames, pack_end(_ended(error, path), IMPORTED))
    _write_all(frames, pack_end(Ended(DONE, "; ".join(left_out)), IMPORTED))
    for line in os.fdopen(commands, "rb"):
        command = json.loads(line)
        for place, stream in command["tests"]:
            _write_all(frames, _run_test(load, path, namespace, plan[place], stream))


def _first_load(code: CodeType, source: bytes, path: Path, left_out: list[str]) -> Callable[[], ModuleType]:
    """Load the file once; return what gives a test its module: a fresh one, unless loading takes long.

    A statement at the top that compares the student's work with a finished operator, which can't be called
    here, is left out; `left_out` says so.
    """
    before, began = snapshot(), time.perf_counter()
    try:
        module: ModuleType | None = run_code(code, path)
    except NotImplementedError:
        module = None  # each test that needs what is missing will say so
    except BrokenImplementation as broken:
        put_back(before)
        shorter = _without_comparison(source, path, broken.error)
        follows = isinstance(broken.error, NameError) and left_out  # it used what was left out before
        forbidden = isinstance(broken.error, ForbiddenCall)
        if shorter is None or not (forbidden or follows) or len(left_out) == MOST_LEFT_OUT:
            raise
        left_out.append(f"left out: {broken}")
        return _first_load(compile_source(shorter, path), shorter, path, left_out)
    slow, tidy = time.perf_counter() - began > SLOW_IMPORT, snapshot() == before
    put_back(before)
    if slow and module is not None:
        return lambda: module
    return lambda: run_code(code, path) if tidy else _fresh_and_put_back(code, path)


def _without_comparison(source: bytes, path: Path, error: BaseException | None) -> bytes | None:
    """The source without the statement at its top that made a forbidden call; None if that isn't the case."""
    if not isinstance(error, ForbiddenCall | NameError):
        return None
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    at = [line for code, line in frames if code.co_filename == str(path) and code.co_name == "<module>"]
    for node in ast.parse(source).body if at else ():
        if node.lineno <= at[0] <= (node.end_lineno or node.lineno) and isinstance(node, PASSING):
            lines = source.decode("utf-8-sig").split("\n")
            for place in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[place] = ""
            return "\n".join(lines).encode()
    return None


def _fresh_and_put_back(code: CodeType, path: Path) -> ModuleType:
    with restored():
        return run_code(code, path)


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
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)
    ):
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
