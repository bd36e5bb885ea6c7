"""Files of a hand-in that its exercise imports: only one file is graded, so these are out of its reach."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence

from grader.advice import SHARED
from grader.handins import HandIn

MOST_NAMED = 3


def imported_beside(source: str, others: Sequence[HandIn], known: Collection[str]) -> str:
    """Return one line on what `source` imports from `others`, "" if it is nothing.

    `known` are modules that the lab allows: those are meant, whatever a file beside the exercise is called.
    """
    wanted = dict.fromkeys(_imported(source, {*known, *sys.stdlib_module_names}))
    lying = {name: file for file in others for name in (file.path.stem, *file.path.parts[:-1])}
    found = [lying[name].label for name in wanted if name in lying]
    named = ", ".join(dict.fromkeys(found[:MOST_NAMED]))
    return f"it imports {named}, which lies beside it in the hand-in: {SHARED}" if named else ""


def _imported(source: str, known: Collection[str]) -> Iterator[str]:
    """The first part of every module that is imported anywhere, `known` ones left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else names
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        first = [name.partition(".")[0] for name in names]
        yield from (name for name in first if relative or name not in known)
