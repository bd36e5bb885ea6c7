"""Troubles of syntax that have a name: what a web page, an old or a newer Python does to code."""

from __future__ import annotations

import platform
import re
import sys
import unicodedata
import warnings

from grader.newer_syntax import older

MOST_CHARS = 1 << 18  # longer texts are no hand-written exercise, and are not parsed here

# What a word processor or a web page writes for a character of Python; "" where it should just go.
TYPOGRAPHIC = {
    **dict.fromkeys("“”„‟«»″", ("typographic quote", '"')),
    **dict.fromkeys("‘’‚‛‹›′´", ("typographic quote", "'")),
    **dict.fromkeys("‐‑‒–—―−", ("typographic dash", "-")),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ("character without width", "")),
    "…": ("typographic ellipsis", "..."),
    "×": ("sign for multiplication that Python does not know", "*"),
    "÷": ("sign for division that Python does not know", "/"),
    "²": ("superscript", "**2"),
    "³": ("superscript", "**3"),
    "≤": ("sign that Python does not know", "<="),
    "≥": ("sign that Python does not know", ">="),
    "≠": ("sign that Python does not know", "!="),
}

# By the line that is no syntax, and what Python says of it; the first that fits counts.
PYTHON_2 = (
    (r"Missing parentheses in call to 'print'", "print without parentheses", "write print(...)"),
    (r"Missing parentheses in call to 'exec'", "exec without parentheses", "write exec(...)"),
    (r"\bexcept\s+[\w.]+\s*,\s*[a-z_]\w*\s*:", "“except E, e”", "write “except E as e:”"),
    (r"^\s*raise\s+[\w.]+\s*,", "“raise E, text”", "write “raise E(text)”"),
    (r"<>", "the operator <>", "write !="),
    (r"leading zeros in decimal integer", "an octal number like 0777", "write 0o777"),
    (r"\b\d+[lL]\b", "a long number like 10L", "leave out the L"),
    (r"\b[uU][rR][\"']", "a text that begins with ur", "leave out the u"),
    (r"parameters cannot be parenthesized", "parentheses among the parameters", "write them one by one"),
    (r"^[^`]*`[^`]+`", "backquotes", "write repr(...)"),
)
NOT_CODE = (
    (r"^(<<<<<<<|=======|>>>>>>>)", "a mark that git leaves where two versions meet; keep one of them"),
    (r"^\s*```", "a line of Markdown; delete it"),
    (r"^\s*>>> ", "copied from an interactive session; delete the >>> in front of each line"),
    (r"^\s*[%!]\w", "a notebook's command, which no Python file may hold; delete it"),
)


def syntax_note(source: str) -> str:
    """Return one line that names why `source` is no Python, with line and column, where it is a known cause.

    Return "" for code that parses, and for an ordinary mistake, of which Python's own message says enough.
    """
    error = syntax_error(source) if len(source) <= MOST_CHARS else None
    if error is None or error.lineno is None:
        return ""
    lines = source.split("\n")
    line = lines[error.lineno - 1] if 0 < error.lineno <= len(lines) else ""
    return newer_python(source) or _named(error, error.lineno, line[:1000])


def newer_python(source: str) -> str:
    """Return one line on what in `source` needs a newer Python than this one; "" if it needs none.

    A text that no Python could read needs none: everything else in it must be right.
    """
    if len(source) > MOST_CHARS or syntax_error(source) is None:
        return ""
    found = older(source)
    newer = [one for one in found.features if one.version > sys.version_info[:2]] if found else []
    if not found or not newer:
        return ""
    expressions = "".join(f" ({one}\n)\n" for one in found.expressions)
    if syntax_error(found.text) or syntax_error(f"async def read():\n{expressions} pass"):
        return ""
    first = max(newer, key=lambda one: one.version)
    needed = ".".join(map(str, first.version))
    return (
        f"line {first.line}: Python {needed} or newer is needed for {first.what}; the grader runs Python "
        f"{platform.python_version()}: undecided until it is graded with Python {needed}"
    )


def syntax_error(source: str) -> SyntaxError | None:
    """Return what Python says against a text as code, None if it can be parsed; nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "exercise.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, MemoryError, RecursionError) as error:  # a null byte, or nested beyond reason
        return SyntaxError(str(error) or "too deeply nested")
    return None


def _named(error: SyntaxError, number: int, line: str) -> str:
    if isinstance(error, TabError):
        return (
            f"line {number}: tabs and spaces are mixed in the indentation (TabError); "
            "let the editor turn the tabs into spaces"
        )
    if "character" in error.msg and "U+" in error.msg:
        return _character(error, number, line)
    said = f"{error.msg}\n{line}"
    for pattern, what in NOT_CODE:
        if re.search(pattern, line):
            return f"line {number}: this is {what}"
    for pattern, what, instead in PYTHON_2:
        if re.search(pattern, said, re.MULTILINE):
            return f"line {number}: this is Python 2 ({what}); {instead}"
    return ""


def _character(error: SyntaxError, number: int, line: str) -> str:
    """Say which character Python stumbled over, where, and what to write instead."""
    found = re.search(r"U\+([0-9A-F]{4,6})", error.msg)
    character = chr(int(found[1], 16)) if found else ""
    column = line.find(character, max(0, (error.offset or 1) - 1))
    column = (column if column >= 0 else line.find(character)) + 1
    code = f"U+{ord(character):04X}"
    what, instead = _meant(character)
    seen = f"{character} ({code})" if character.isprintable() else code
    return f"line {number}, column {column}: {seen} is a {what}; {instead}"


def _meant(character: str) -> tuple[str, str]:
    what, instead = TYPOGRAPHIC.get(character, ("", ""))
    if what:
        return what, f"write {instead}" if instead else "delete it"
    if unicodedata.category(character) == "Zs":
        name = "non-breaking space" if character in "\u00a0\u202f" else "special space"
        return name, "write an ordinary space"
    if "\uff01" <= character <= "\uff5e":
        return "full-width character", f"write {unicodedata.normalize('NFKC', character)}"
    name = unicodedata.name(character, "a control character").lower()
    return f"character that Python does not know ({name})", "delete it or write it in another way"
