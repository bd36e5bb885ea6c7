"""Implementations: load a file as a fresh module, apply a mistake's edit, make a stub from a solution."""

from __future__ import annotations

import ast
import difflib
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from grader.advice import advice
from grader.checks import MissingName
from grader.course import CourseError, Lab, Mistake
from grader.verdicts import SUBMISSION_CHARS, one_line

MODULE_NAME = "implementation_under_test"

MOST_SAID = 3  # statements that a line about what was left out describes
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "cannot allocate memory", "bad_alloc")
# What a file is made of; every other statement at its top may fail without costing them.
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class BrokenImplementation(Exception):
    """The file can't be loaded: one line that says where and why."""


def load(path: Path, left_out: list[str] | None = None) -> ModuleType:
    """Load `path` as a fresh module: no state of an earlier load is left in it.

    Raises BrokenImplementation with one line if it can't be read, parsed or run.
    A name that the module lacks raises MissingName when a test asks for it.
    `left_out` is for a student's file: see `Program.run`.
    """
    return _program(path, *_stamp(path)).run(left_out)


@dataclass(frozen=True)
class _Piece:
    """Definitions that follow one another, or one other statement at the top of a file."""

    code: CodeType
    node: ast.stmt  # the first

    def may_be_left_out(self, error: Exception, path: Path) -> bool:
        """Whether the rest counts without it: not where memory is gone, or what it defines has failed."""
        if isinstance(self.node, DEFINITIONS) or ran_out_of_memory(error):
            return False
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        at = [line for code, line in frames if code.co_filename == str(path) and code.co_name == "<module>"]
        inside = [one for one in ast.walk(self.node) if isinstance(one, DEFINITIONS)]
        return not any(_first_line(one) <= line <= (one.end_lineno or 0) for one in inside for line in at[:1])

    def entry(self, error: Exception) -> str:
        """The line of a statement that is left out, and why: what to do about it, else what Python says."""
        kind, said = type(error).__name__, one_line(error)
        what_to_do = [line.strip() for line in advice(error)]
        text = kind if what_to_do or not said else f"{kind}: {said}"
        return one_line("; ".join([f"line {self.node.lineno}: {text}", *what_to_do]), SUBMISSION_CHARS)


class Program:
    """A file's code, ready to be run again and again, each time as a fresh module."""

    def __init__(self, source: bytes, path: Path) -> None:
        """Compile a file's bytes; BrokenImplementation with one line if that can't be done."""
        self._path = path
        try:
            tree = ast.parse(source)
            flags = compile(tree, str(path), "exec", dont_inherit=True).co_flags & annotations.compiler_flag
            self._pieces = [
                _Piece(compile(ast.Module(nodes, []), str(path), "exec", flags, dont_inherit=True), nodes[0])
                for nodes in _runs(tree.body)
            ]
        except SyntaxError as error:
            text = f": {error.text.strip()}" if error.text else ""
            raise BrokenImplementation(f"{path.name} line {error.lineno}: {error.msg}{text}") from None
        except (ValueError, MemoryError, RecursionError) as error:
            raise BrokenImplementation(f"{path.name}: {error or type(error).__name__}") from None

    def run(self, left_out: list[str] | None = None) -> ModuleType:
        """Run the code as a fresh module.

        With `left_out`, a statement at the top that fails is left out, as if it stood in a `try` of its own,
        and gets an entry there; imports, functions and classes never are, and no end of the process is.
        """
        module = ModuleType(MODULE_NAME)
        module.__file__, module.__package__ = str(self._path), ""
        sys.modules[MODULE_NAME] = module  # dataclasses and pickle look their module up
        for piece in self._pieces:
            try:
                exec(piece.code, module.__dict__)
            except Exception as error:
                if left_out is not None and piece.may_be_left_out(error, self._path):
                    left_out.append(piece.entry(error))
                elif isinstance(error, NotImplementedError):
                    raise
                else:
                    raise self._broken(error, left_out or []) from None
            except SystemExit as error:
                raise self._broken(error, left_out or []) from None
        self._name_what_is_missing(module)
        return module

    def _broken(self, error: BaseException, left_out: list[str]) -> BrokenImplementation:
        """What ended the load; what was left out before comes first, since it may be the reason."""
        described, what_to_do = describe_error(error, self._path), [line.strip() for line in advice(error)]
        if isinstance(error, ImportError) and what_to_do:  # which says more, and there is room for one
            described = described.partition(f": {one_line(error)}")[0]
        first = [f"{self._path.name} {one}" for one in left_out[:1]]
        return BrokenImplementation("; ".join([*first, described, *what_to_do]))

    def _name_what_is_missing(self, module: ModuleType) -> None:
        name_of_file = self._path.name
        written = [name for name in module.__dict__ if not name.startswith("_")]

        def missing(name: str) -> object:
            near = difflib.get_close_matches(name, written, n=1)
            raise MissingName(
                f"{name_of_file} defines no {name!r}" + (f"; it has {near[0]!r}" if near else "")
            )

        module.__dict__.setdefault("__getattr__", missing)


def _runs(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    """The statements at the top of a file: definitions together, all others each alone."""
    runs: list[list[ast.stmt]] = []
    for node in body:
        if runs and isinstance(node, DEFINITIONS) and isinstance(runs[-1][0], DEFINITIONS):
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def left_out_line(path: Path, entries: Sequence[str]) -> str:
    """What was left out of a file, in one line; "" if nothing was."""
    rest = len(entries) - MOST_SAID
    told = [*entries[:MOST_SAID], *([f"and {rest} more"] if rest > 0 else [])]
    return f"left out: {path.name} {'; '.join(told)}" if entries else ""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there is no memory left: Python's own, or torch's."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in one_line(error, 1000) for words in OUT_OF_MEMORY)
    )


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise BrokenImplementation(f"{path}: {error.strerror}") from None
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=256)
def _program(path: Path, mtime: int, size: int) -> Program:
    """Compile once for each version of the file; every test then gets a module of its own."""
    try:
        return Program(path.read_bytes(), path)
    except OSError as error:
        raise BrokenImplementation(f"{path.name}: {error}") from None


def describe_error(error: BaseException, path: Path) -> str:
    """An exception in one line, with the line of `path` that it passed last."""
    said = one_line(error)
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return f"{path.name} line {lines[-1]}: {text}" if lines else text


def apply_mistake(source: str, mistake: Mistake) -> str:
    """The solution with a mistake's edit; CourseError if the edit doesn't apply exactly once."""
    count = source.count(mistake.find)
    if count != 1:
        raise CourseError(
            f"mistake {mistake.id!r}: its text to find occurs {count} times in the solution, not once"
        )
    return source.replace(mistake.find, mistake.replace)


def make_stub(source: str, lab: Lab) -> str:
    """The student's file: the solution without the bodies that the lab's steps list as to do.

    Signatures, docstrings, imports, constants and given functions stay as they are.
    Names that start with one underscore are the solution's own helpers and go.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    edits = dict(_edits(tree.body, "", _todo_lines(lab)))
    missing = set(_todo_lines(lab)) - {name for name, _ in edits.values() if name}
    if missing:
        raise CourseError(
            f"{lab.solution} does not define {sorted(missing)[0]!r}, which lab.toml lists as to do"
        )
    out: list[str] = []
    at = 1
    for (start, end), (_, replacement) in sorted(edits.items()):
        out += lines[at - 1 : start - 1]
        if not replacement:
            while out and out[-1].lstrip().startswith("#"):  # the helper's own comment goes with it
                out.pop()
            while out and not out[-1].strip():
                out.pop()
        out += replacement
        at = end + 1
    out += lines[at - 1 :]
    return _header(lab) + "\n".join(_without_docstring(tree, out)).strip("\n") + "\n"


def written_names(source: str, lab: Lab) -> list[str]:
    """The names of the lab's steps whose bodies somebody has written; all of them if it can't be parsed."""
    names = [name for step in lab.steps for name in step.todo]
    try:
        bodies = dict(_functions(ast.parse(source).body, ""))
    except (SyntaxError, ValueError):
        return names
    return [name for name in names if name in bodies and "NotImplementedError" not in bodies[name]]


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    """Dotted name → source text of every function, also those of classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, ast.unparse(node)


def _todo_lines(lab: Lab) -> dict[str, str]:
    """For each name that the student writes, the statement that stands in its place."""
    return {
        name: f'raise NotImplementedError("{place}: {name} (README section {step.section})")'
        for step in lab.steps
        for place in [f"lab {lab.number}, step {step.number}"]
        for name in step.todo
    }


Edit = tuple[tuple[int, int], tuple[str, list[str]]]  # (first line, last line) → (name to do, new lines)


def _edits(body: list[ast.stmt], prefix: str, todo: dict[str, str]) -> Iterator[Edit]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            if isinstance(node, ast.Assign | ast.AnnAssign) and _is_private(_target(node)):
                yield (_first_line(node), node.end_lineno or node.lineno), ("", [])
            continue
        name = prefix + node.name
        if _is_private(node.name):
            yield (_first_line(node), node.end_lineno or node.lineno), ("", [])
        elif isinstance(node, ast.ClassDef):
            yield from _edits(node.body, f"{name}.", todo)
        elif name in todo:
            documented = ast.get_docstring(node) is not None
            start = (node.body[0].end_lineno or 0) + 1 if documented else node.body[0].lineno
            yield (start, node.end_lineno or start), (name, [" " * node.body[0].col_offset + todo[name]])


def _first_line(node: ast.stmt) -> int:
    """Where a statement starts: with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _without_docstring(tree: ast.Module, lines: list[str]) -> list[str]:
    """The lines after the solution's module docstring, which the stub's header replaces."""
    if ast.get_docstring(tree) is None:
        return lines
    return lines[(tree.body[0].end_lineno or 1) :]


def _header(lab: Lab) -> str:
    steps = "\n".join(f"    step {step.number}  {step.title}" for step in lab.steps)
    return f'''"""Lab {lab.number}: {lab.title}.

Write the bodies that raise NotImplementedError, one step after the other:

{steps}

Check your work:    pytest labs/{lab.name}             (one step: --step 1)
Read first:         labs/{lab.name}/README.md
Stuck?              grader hint {lab.number} 1
"""

'''
