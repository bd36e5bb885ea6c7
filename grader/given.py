"""What was given out: whether a hand-in is the lab's own exercise or notebook, without anybody's work."""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from pathlib import Path

from grader.course import Lab
from grader.handins import FileRefused, HandIn, single_file
from grader.sources import read_source, tree_of

UNCHANGED = "the unchanged exercise"
DOCUMENTED = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
TO_DO = "NotImplementedError"  # as often as this is in the code, it is at least in the text


def is_given(file: HandIn, lab: Lab) -> bool:
    """Whether a file is the lab's own, whatever its comments, docstrings, blanks and line ends.

    That is the exercise under any name, or another file of the lab under its own.
    """
    try:
        source, _ = read_source(file)
    except FileRefused:
        return False
    own = {lab.exercise, lab.notebook if file.suffix == ".ipynb" else lab.folder / file.path.name}
    return any(_is_same(source, path) for path in own if os.path.isfile(path))  # of any name


def is_beside(file: HandIn, lab: Lab) -> bool:
    """Whether a lab has a file of this name beside its exercise."""
    name = file.path.name
    return name != lab.exercise.name and os.path.isfile(lab.folder / name)


@lru_cache(maxsize=16)  # one file is asked about several times in a row
def _is_same(source: str, own: Path) -> bool:
    code = _code_in(own, own.stat().st_mtime_ns)
    return code != "" and source.count(TO_DO) >= code.count(TO_DO) and _code(source) == code


@lru_cache
def _code_in(own: Path, mtime: int) -> str:
    try:
        return _code(read_source(single_file(own))[0])
    except FileRefused:
        return ""


def _code(text: str) -> str:
    """A text's code alone, "" if it can't be parsed."""
    tree = tree_of(text)
    if tree is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    try:
        return ast.dump(tree)
    except RecursionError:
        return ""
