"""The text of a hand-in: bytes in any common encoding, or a notebook's code cells, to Python source."""

from __future__ import annotations

import ast
import codecs
import io
import json
import re
import tokenize
from typing import Any

from grader.handins import SOURCE_BYTES, FileRefused, HandIn
from grader.syntax_notes import syntax_error

BOMS = (
    (codecs.BOM_UTF8, "utf-8", "begins with a byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32", "is UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "is UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "is UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "is UTF-16"),
)
OTHER_KINDS = (
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"%PDF", "a PDF"),
    (b"\x1f\x8b", "a packed archive"),
)
# What a source may say that it is written in; the rest of Python's codecs are of no text, or can be slow.
ENCODINGS = re.compile(r"utf-8|ascii|(iso8859|koi8|mac|gb|big5|shift_jis|euc|cp)[-_]?\w*")
NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
CODING = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)([-\w.]+)")
# A cell whose first line is one of these is Python all the same; any other %%magic makes it something else.
PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%python", "%%python3", "%%prun")
MOST_PARTS = 300_000  # lists and objects of a notebook, which take fifty times their text as memory
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
DEFINES = re.compile(r"^\s*(?:def|class|import|from)\b", re.MULTILINE)
FUTURE = re.compile(r"^from __future__ import [\w, ]+$", re.MULTILINE)
MAGIC = re.compile(r"^([ \t]*)(?:[%!?]|[\w.]+[ \t]*=[ \t]*[%!]|[\w.]+\?{1,2}[ \t]*$)")


def read_source(file: HandIn) -> tuple[str, list[str]]:
    """Return a file's Python source, and a note for each thing about it that was unusual.

    What can't be read as text, or as a notebook, is FileRefused with one line.
    """
    if file.suffix not in file.memo:
        file.memo[file.suffix] = _read(file)
    text, notes = file.memo[file.suffix]
    return text, [*notes]


def _read(file: HandIn) -> tuple[str, list[str]]:
    data = file.read()
    for start, kind in OTHER_KINDS:
        if data.startswith(start):
            raise FileRefused(
                f"{file.label} is {kind}, whatever its name says: hand in the file with the code"
            )
    text, notes = _decode(file.label, data)
    if file.suffix == ".ipynb" or _is_notebook(text):
        text, more = _notebook_source(file.label, text)
        more += ["it is a notebook, whatever its name says"] if file.suffix != ".ipynb" else []
        notes = [note for note in notes if "line ends" not in note] + more
    if len(text) > SOURCE_BYTES:
        raise FileRefused(f"{file.label} holds more than {SOURCE_BYTES >> 20} MiB of code; refused")
    if NO_CHARACTER.search(text):
        raise FileRefused(_not_text(file.label))
    if not text.strip():
        notes.append("it has no code" if file.suffix == ".ipynb" else "it is an empty file")
    return text, notes


def _not_text(label: str) -> str:
    return f"{label} is not a text file (it holds bytes that are no characters)"


def _decode(label: str, data: bytes) -> tuple[str, list[str]]:
    encoding, notes = _encoding(data)
    try:
        text = data.decode(encoding)
    except (UnicodeError, LookupError):
        raise FileRefused(_not_text(label)) from None
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("it has Windows line ends")
    head, declared = _declare_utf8(text)
    if declared and not notes:
        notes.append(f"it is {declared}")
    return head, notes


def _encoding(data: bytes) -> tuple[str, list[str]]:
    for bom, encoding, note in BOMS:
        if data.startswith(bom):
            return encoding, [f"it {note}"]
    sample = data[:200]
    if len(sample) >= 4 and sample.count(0) >= len(sample) // 3:
        return ("utf-16-le" if sample[1:2] == b"\0" else "utf-16-be"), ["it is UTF-16"]
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if ENCODINGS.match(codecs.lookup(declared).name):
            data.decode(declared)
            return declared, []
        data.decode()
        return "utf-8", [f"it says that it is {declared}, and was read as UTF-8"]
    except (SyntaxError, UnicodeError, LookupError):
        return "cp1252", ["it is not UTF-8 and was read as Windows-1252"]


def _declare_utf8(text: str) -> tuple[str, str]:
    """Make the source say of itself what it now is; return also what it said before, if that was another."""
    lines = text.split("\n", 2)
    for index, line in enumerate(lines[:2]):
        found = CODING.match(line)
        if found and found[2].lower().replace("_", "-") not in ("utf-8", "utf8"):
            lines[index] = CODING.sub(r"\g<1>utf-8", line)
            return "\n".join(lines), found[2]
    return text, ""


def _is_notebook(text: str) -> bool:
    """Whether a text is a notebook's, saved under another name: as Python it would even parse."""
    return text.lstrip().startswith("{") and '"cell_type"' in text and '"nbformat"' in text


def _notebook_source(label: str, text: str) -> tuple[str, list[str]]:
    """Join a notebook's code cells; what only a notebook understands is dropped, and counted in a note."""
    if not text.strip():
        raise FileRefused(f"{label} is an empty file")
    if text.count("[") + text.count("{") > MOST_PARTS:
        raise FileRefused(f"{label} has more parts than a notebook that is read; clear its outputs")
    try:
        cells = _code_cells(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FileRefused(f"{label} is not a notebook that can be read") from None
    if sum(map(len, cells)) > SOURCE_BYTES:
        raise FileRefused(f"{label} holds more than {SOURCE_BYTES >> 20} MiB of code; refused")
    parts, dropped = [], 0
    for cell in cells:
        code, lines = _python_of(cell)
        parts.append(code.strip("\n"))
        dropped += lines
    kept = _defining(parts)
    note = f"read from a notebook ({len(cells)} code cell{'s' * (len(cells) != 1)})"
    if dropped:
        note += f", without {dropped} line{'s' * (dropped != 1)} of magics or shell commands"
    left_out = sum(map(bool, parts)) - len(kept)
    if left_out:
        note += f", without {left_out} cell{'s' * (left_out != 1)} that define{'s' * (left_out == 1)} nothing"
    return _future_first("\n\n\n".join(kept)) + "\n", [note]


def _defining(cells: list[str]) -> list[str]:
    """The cells with functions, classes and imports, and those whose constants these use: no experiments.

    In a notebook a cell that fails ends nothing; joined to one file, it would end the import.
    """
    trees = [tree_of(cell) for cell in cells]
    defining = [bool(tree and any(isinstance(node, DEFINITIONS) for node in tree.body)) for tree in trees]
    if not any(defining):
        return [cell for cell in cells if cell]
    used = {
        node.id
        for tree, defines in zip(trees, defining, strict=True)
        if tree and defines
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
    }
    kept = []
    for cell, tree, defines in zip(cells, trees, defining, strict=True):
        broken = tree is None and DEFINES.search(cell)  # its trouble is to be named
        if defines or broken or (tree and used & _assigned(tree)):
            kept.append(cell)
    return kept


def tree_of(cell: str) -> ast.Module | None:
    """A text as Python's tree, None if it can't be parsed; nothing of it is run."""
    if syntax_error(cell) is not None:
        return None
    try:
        return ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _assigned(tree: ast.Module) -> set[str]:
    """The names that a cell binds at its top."""
    targets = [
        node for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign) for node in ast.walk(one)
    ]
    return {node.id for node in targets if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _future_first(source: str) -> str:
    """The source with its `from __future__` lines at the top, where a file must have them."""
    lines = dict.fromkeys(FUTURE.findall(source))
    return "\n".join([*lines, FUTURE.sub("", source)]) if lines else source


def _code_cells(notebook: Any) -> list[str]:
    cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
    sources = [cell.get("source", cell.get("input", "")) for cell in cells if cell["cell_type"] == "code"]
    return [source if isinstance(source, str) else "".join(source) for source in sources]


def _python_of(cell: str) -> tuple[str, int]:
    """Return a cell without its magics, and how many lines were dropped."""
    if syntax_error(cell) is None:
        return cell, 0  # what looks like a magic is then inside a string or an expression
    lines = cell.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(PYTHON_CELLS):
        return "", len(lines)
    kept, dropped = [], 0
    for line in lines:
        magic = MAGIC.match(line)
        # A block of magics alone stays a block; at the top, a statement would come before __future__.
        kept.append((f"{magic[1]}pass" if magic[1] else "") if magic else line)
        dropped += magic is not None
    return "\n".join(kept), dropped
