"""Text from submissions, made safe to show: it may not steer a terminal, a page or a spreadsheet."""

from __future__ import annotations

import unicodedata

# Controls, format characters (text direction!), surrogates from undecodable file names, line separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # format characters that some scripts and emoji need


def visible(text: str, keep: str = "") -> str:
    r"""`text` with every control character spelled out (`\x1b`), except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(_spell(char, keep + _JOINERS) for char in text)


def _spell(char: str, keep: str) -> str:
    if char in keep or unicodedata.category(char) not in _INVISIBLE:
        return char
    return char.encode("unicode_escape").decode("ascii")


def one_line(text: str, width: int | None = None) -> str:
    """`text` on one visible line, cut with an ellipsis where it is longer than `width`."""
    lines = text.replace("\r\n", "\n").split("\n")
    line = visible(" ".join(stripped for part in lines if (stripped := part.strip(" \t"))))
    if width is None or len(line) <= width:
        return line
    return line[: width - 1].rstrip() + "…"


def number(points: float) -> int | float:
    """Points as they are written: whole ones without a fraction, others with at most two decimals."""
    rounded = round(points, 2)
    return int(rounded) if rounded == int(rounded) else rounded
