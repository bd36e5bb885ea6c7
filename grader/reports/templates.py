"""The templates of the pages: whatever is put into one is shown as text, never run."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from grader.reports.text import number, one_line, visible

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$@]|:(?=//)|(?<=www)\.)")


def render(name: str, **values: object) -> str:
    """The template `name` with these values; control characters in them are spelled out."""
    return _environment().get_template(name).render(values).lstrip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        finalize=_show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "number": _number,
        "points": number,
        "seconds": _seconds,
        "percent": _percent,
        "md": _markdown,
        "code": _markdown_code,
    }
    return environment


def _show(value: Any) -> Any:
    """Applied to every expression of a template, before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep="\n\t")
    return value


@lru_cache(maxsize=4096)  # the tests of a lab, once for each student
def _breakable(name: str) -> Markup:
    """A test's name that may be broken after an underscore, as narrow screens need."""
    return Markup("_<wbr>").join(escape(visible(part)) for part in name.split("_"))


def _number(value: float) -> str:
    """One decimal, left out where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


def _percent(share: float) -> str:
    """A share in per cent, rounded down: 100 is kept for all."""
    return f"{int(100 * share)} %"


def _markdown(text: str) -> str:
    """The course's own text on one line, with every character that Markdown could take for markup escaped."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", one_line(text))


def _markdown_code(text: str) -> str:
    """Text of any origin on one line as a span of code, inside which Markdown knows no markup."""
    line = one_line(text) or " "
    fence = "`" * (1 + max(map(len, re.findall(r"`+", line)), default=0))
    return f"{fence} {line} {fence}" if line[0] in "` " or line[-1] in "` " else f"{fence}{line}{fence}"
