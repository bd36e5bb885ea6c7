"""Implementations: load a file as a fresh module, apply a mistake's edit, make a stub from a solution."""

from __future__ import annotations

import ast
import difflib
import sys
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from grader.advice import advice
from grader.checks import MissingName
from grader.course import CourseError, Lab, Mistake
from grader.verdicts import one_line

MODULE_NAME = "implementation_under_test"


class BrokenImplementation(Exception):
    """The file can't be loaded: one line that says where and why; `error` is what was raised, if it ran."""

    error: BaseException | None = None


def load(path: Path) -> ModuleType:
    """Load `path` as a fresh module: no state of an earlier load is left in it.

    Raises BrokenImplementation with one line if it can't be read, parsed or run.
    A name that the module lacks raises MissingName when a test asks for it.
    """
    return run_code(_compile(path, *_stamp(path)), path)


def run_code(code: CodeType, path: Path) -> ModuleType:
    """Run a file's code as a fresh module; `load` without the reading."""
    module = ModuleType(MODULE_NAME)
    module.__file__ = str(path)
    sys.modules[MODULE_NAME] = module  # dataclasses and pickle look their module up
    try:
        exec(code, module.__dict__)
    except NotImplementedError:
        raise
    except (Exception, SystemExit) as error:
        what_to_do = [line.strip() for line in advice(error)]
        broken = BrokenImplementation("; ".join([describe_error(error, path), *what_to_do]))
        broken.error = error
        raise broken from None
    written = [name for name in module.__dict__ if not name.startswith("_")]

    def missing(name: str) -> object:
        near = difflib.get_close_matches(name, written, n=1)
        raise MissingName(f"{path.name} defines no {name!r}" + (f"; it has {near[0]!r}" if near else ""))

    module.__dict__.setdefault("__getattr__", missing)
    return module


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise BrokenImplementation(f"{path}: {error.strerror}") from None
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=256)
def _compile(path: Path, mtime: int, size: int) -> CodeType:
    """Compile once for each version of the file; every test then gets a module of its own."""
    try:
        return compile_source(path.read_bytes(), path)
    except OSError as error:
        raise BrokenImplementation(f"{path.name}: {error}") from None


def compile_source(source: bytes, path: Path) -> CodeType:
    """Compile a file's bytes; BrokenImplementation with one line if that can't be done."""
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        raise BrokenImplementation(f"{path.name} line {error.lineno}: {error.msg}{text}") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise BrokenImplementation(f"{path.name}: {error or type(error).__name__}") from None


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
