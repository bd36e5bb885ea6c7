"""Syntax that newer Pythons brought, written as an older one would have it: what is left is then to be read.

A text is taken apart here only where Python itself has refused it. Each formatted string becomes an empty
one, its expressions are kept beside; type parameters and type statements lose what an older Python lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

QUOTES = ((3, 12), "quotes of the same kind in an f-string")
INSIDE = ((3, 12), "a backslash, comment or line end in an f-string's braces")
TYPE = ((3, 12), "a type statement")
PARAMETERS = ((3, 12), "type parameters in brackets")
DEFAULTS = ((3, 13), "defaults of type parameters")
TEMPLATE = ((3, 14), "a template string")
EXCEPT = ((3, 14), "several exceptions without parentheses")

DEEPEST = 20  # formatted strings in each other
LONGEST = 2000  # characters of a list of type parameters
PREFIXES = frozenset(["b", "br", "f", "fr", "r", "rb", "rf", "rt", "t", "tr", "u"])
TOKEN = re.compile(r"(\w*)('''|\"\"\"|'|\")|\w+|#[^\n]*|.", re.DOTALL)
CONVERSION = re.compile(r"!\s*[rsa]\s*(?=[:}])")
# In what is left no text and no comment can look like these.
GENERIC = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+[ \t]*(?=\[)", re.MULTILINE)
STATEMENT = re.compile(r"^([ \t]*)type[ \t]+(?!(?:in|is|and|or|if)\b)(\w+[ \t]*)(?=\[|=[^=])", re.MULTILINE)
SEVERAL = re.compile(r"^([ \t]*except\*?[ \t]+)([\w.]+(?:[ \t]*,[ \t]*[\w.]+)+)([ \t]*:)", re.MULTILINE)
ASSIGNS = re.compile(r"[ \t]*=[^=]")
PYTHON_2 = re.compile(r"[\w.]+[ \t]*,[ \t]*[a-z_]\w*")  # “except E, e”


@dataclass(frozen=True)
class Feature:
    """A thing that a Python before `version` does not know, and the line where it stands."""

    line: int
    version: tuple[int, int]
    what: str


@dataclass
class Older:
    """A text without what is newer, the expressions that stood in its strings, and what was newer."""

    text: str = ""
    expressions: list[str] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)


class _Unreadable(Exception):
    """It is no Python of any version."""


def older(source: str) -> Older | None:
    """Return `source` as an older Python would have it; None where no Python could read it."""
    found = Older()
    try:
        text = _Reader(source + "\n", found).code()
        text = _without_brackets(GENERIC, text, found, PARAMETERS, keep=r"\g<0>")
        text = _without_brackets(STATEMENT, text, found, TYPE, keep=r"\1\2")
    except (_Unreadable, IndexError, ValueError, RecursionError):
        return None
    found.text = SEVERAL.sub(lambda match: _in_parentheses(match, found), text)
    return found


class _Reader:
    """Goes through a text once, string by string."""

    def __init__(self, text: str, found: Older) -> None:
        self._text, self._found = text, found
        self._at = self._depth = 0

    def code(self, ends: str = "") -> str:
        """Code up to one of `ends` outside of all brackets, or to the end: without its strings."""
        out: list[str] = []
        brackets = 0
        while self._at < len(self._text):
            token = TOKEN.match(self._text, self._at)
            assert token is not None
            if token[2]:
                out.append(self._string(token))
                continue
            one = token[0]
            if brackets == 0 and one in ends and not self._text.startswith("!=", self._at):
                break
            brackets += (one in "([{") - (one in ")]}")
            self._at = token.end()
            out.append("" if one.startswith("#") else one)
        return "".join(out)

    def _string(self, token: re.Match[str]) -> str:
        """An empty string in place of the one that begins here, over as many lines."""
        start, self._at = self._at, token.end()
        prefix = token[1].lower()
        word = "" if prefix in PREFIXES else token[1]
        kind = "" if word else prefix
        if "t" in kind:
            self._note(start, TEMPLATE)
        while not self._text.startswith(token[2], self._at):
            self._character(token[2], kind)
        self._at += len(token[2])
        lines = self._text.count("\n", start, self._at)
        return f'{word}{"b" * ("b" in kind)}""' + "\\\n" * lines

    def _character(self, quote: str, kind: str) -> None:
        """Step over one character of a string, or over one of its fields."""
        one, two = self._text[self._at], self._text[self._at : self._at + 2]
        formatted = "f" in kind or "t" in kind
        if one == "\n" and len(quote) == 1:
            raise _Unreadable
        if formatted and one in "{}":
            self._at += len(two) if two in ("{{", "}}") else 1
            if two in ("{{", "}}"):
                return
            if one == "}":
                raise _Unreadable
            self._field(quote)
        elif formatted and two == "\\N" and "r" not in kind:
            self._at = self._text.index("}", self._at) + 1
        else:
            self._at += 1 if one != "\\" or (formatted and two[1:] in ("{", "}")) else 2

    def _field(self, quote: str) -> None:
        """Read a field to its closing brace; the opening one is passed already."""
        start = self._at
        self._depth += 1
        if self._depth > DEEPEST:
            raise _Unreadable
        expression = self.code("}:!").strip().removesuffix("=")
        if not expression:
            raise _Unreadable
        self._found.expressions.append(expression)
        inside = self._text[start : self._at]
        if quote in inside:
            self._note(start, QUOTES)
        if "\\" in inside or "#" in inside or ("\n" in inside and len(quote) == 1):
            self._note(start, INSIDE)
        if self._text[self._at] == "!":
            conversion = CONVERSION.match(self._text, self._at)
            if conversion is None:
                raise _Unreadable
            self._at = conversion.end()
        if self._text[self._at] == ":":
            self._format(quote)
        self._at += 1
        self._depth -= 1

    def _format(self, quote: str) -> None:
        """Read what stands behind a field's colon, to the closing brace."""
        self._at += 1
        while self._text[self._at] != "}":
            if self._text.startswith(quote, self._at):
                raise _Unreadable
            self._at += 1
            if self._text[self._at - 1] == "{":
                self._field(quote)

    def _note(self, at: int, feature: tuple[tuple[int, int], str]) -> None:
        self._found.features.append(Feature(self._text.count("\n", 0, at) + 1, *feature))


def _without_brackets(
    pattern: re.Pattern[str], text: str, found: Older, feature: tuple[tuple[int, int], str], keep: str
) -> str:
    """`text` with `keep` in place of each match, and without the brackets that follow it."""
    out, at = [], 0
    for match in pattern.finditer(text):
        out += [text[at : match.start()], match.expand(keep)]
        at, noted = match.end(), feature
        if text[at] == "[":
            end = _closing(text, at)
            inside = text[at + 1 : end]
            if not inside.strip() or (feature is TYPE and not ASSIGNS.match(text, end + 1)):
                raise _Unreadable
            noted = DEFAULTS if "=" in inside else feature
            out.append("\\\n" * inside.count("\n"))
            at = end + 1
        found.features.append(Feature(text.count("\n", 0, match.start()) + 1, *noted))
    return "".join([*out, text[at:]])


def _closing(text: str, at: int) -> int:
    """Where the bracket at `at` is closed, no further than a hand-written list goes."""
    depth = 0
    for place in range(at, min(len(text), at + LONGEST)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place
    raise _Unreadable


def _in_parentheses(match: re.Match[str], found: Older) -> str:
    if PYTHON_2.fullmatch(match[2]):
        return match[0]
    found.features.append(Feature(match.string.count("\n", 0, match.start()) + 1, *EXCEPT))
    return f"{match[1]}({match[2]}){match[3]}"
