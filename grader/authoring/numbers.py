"""How a measuring script writes numbers and tables for a page."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def power(value: float, digits: int = 2) -> str:
    """3.4e+31 as `3.4·10³¹`, in characters that need no formula; 0 as `0`."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}·10{superscript(int(exponent))}"


def superscript(number: int) -> str:
    """A whole number as an exponent."""
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def percent(fraction: float, digits: int = 0) -> str:
    """A share in percent."""
    return f"{100 * fraction:.{digits}f} %"


def signed(value: float, digits: int) -> str:
    """A number that may be negative, with a real minus sign."""
    return minus(f"{value:.{digits}f}")


def minus(text: str) -> str:
    """A text with real minus signs."""
    return text.replace("-", "−")
