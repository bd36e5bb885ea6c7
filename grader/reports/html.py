"""`report.html`: one file about a class, for a browser without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from grader.course import Course
from grader.marking import Result
from grader.reports import charts
from grader.reports.rows import PASSED
from grader.reports.tallies import by_lab, percent
from grader.reports.text import visible


def page(results: Sequence[Result], course: Course, seed: int) -> bytes:
    """The report, a section per lab; the same results give the same bytes."""
    template = _environment().get_template("class.html.j2")
    text = template.render(labs=by_lab(course, results), students={r.student for r in results}, seed=seed)
    return text.lstrip().encode("utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["charts"] = charts
    environment.globals["percent"] = percent
    environment.globals["PASSED"] = PASSED
    environment.filters["breakable"] = _breakable
    environment.filters["number"] = _number
    environment.filters["seconds"] = _seconds
    return environment


def _show(value: object) -> object:
    """Applied to every expression of the template, before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep="\n\t")
    return value


def _breakable(name: str) -> Markup:
    """A test's name that may be broken after an underscore, as narrow screens need."""
    return Markup("_<wbr>").join(escape(visible(part)) for part in name.split("_"))


def _number(value: float) -> str:
    """One decimal, left out where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"
