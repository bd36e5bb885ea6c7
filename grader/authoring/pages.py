"""Fill the generated parts of Markdown pages: tables from the manifests, numbers from the measuring script.

Markers:
    <!-- generated: steps --> … <!-- /generated -->            the table of steps
    <!-- generated: mistakes --> … <!-- /generated -->         the table of common mistakes
    <!-- generated: measured NAME --> … <!-- /generated -->    a table that `measure.py` made
    <!--m:NAME-->…<!--/m-->                                    one number of `measure.py`
In a page of the curriculum, NAME may carry a lab's number ("02.ln_vocab").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from grader.course import Course, CourseError, Lab
from grader.implementations import load

_BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- /generated -->)", re.DOTALL)
_NUMBER = re.compile(r"(<!--m:(.+?)-->).*?(<!--/m-->)", re.DOTALL)


class Measurements:
    """What the measuring scripts say; each runs once, when a page first asks for it."""

    def __init__(self, course: Course):
        self._course = course

    @cached_property
    def curriculum(self) -> Mapping[str, str]:
        """Every number that a chapter may quote: its own, and each lab's under the lab's number."""
        numbers = dict(_measure(self._course.root / "curriculum" / "measure.py"))
        for lab in self._course.labs:
            numbers.update({f"{lab.number}.{name}": text for name, text in self.of(lab).items()})
        return numbers

    def of(self, lab: Lab) -> Mapping[str, str]:
        if lab.name not in self._labs:
            self._labs[lab.name] = _measure(lab.solution_folder / "measure.py")
        return self._labs[lab.name]

    @cached_property
    def _labs(self) -> dict[str, Mapping[str, str]]:
        return {}


def _measure(script: Path) -> Mapping[str, str]:
    if not script.is_file():
        return {}
    measured: dict[str, str] = load(script).measure()
    return measured


def fill_lab_page(lab: Lab, measurements: Measurements) -> str:
    """The lab's page, with its tables and numbers as they must be."""
    tables = {"steps": lambda: steps_table(lab), "mistakes": lambda: mistakes_table(lab)}
    return _fill(lab.page, tables, lambda: measurements.of(lab))


def fill_chapter(chapter: Path, measurements: Measurements) -> str:
    """A chapter of the curriculum, with its numbers as they must be."""
    return _fill(chapter, {}, lambda: measurements.curriculum)


def _fill(
    page: Path, tables: Mapping[str, Callable[[], str]], numbers: Callable[[], Mapping[str, str]]
) -> str:
    def number(name: str) -> str:
        try:
            return numbers()[name]
        except KeyError:
            raise CourseError(f"{page}: no measuring script has the number {name!r}") from None

    def block(match: re.Match[str]) -> str:
        kind, _, name = match[2].partition(" ")
        if kind == "measured":
            text = number(name)
        elif match[2] in tables:
            text = tables[match[2]]()
        else:
            raise CourseError(f"{page}: unknown generated part {match[2]!r}")
        return f"{match[1]}{text.strip()}\n{match[3]}"

    text = page.read_text(encoding="utf-8")
    text = _NUMBER.sub(lambda match: f"{match[1]}{number(match[2])}{match[3]}", text)
    return _BLOCK.sub(block, text)


def steps_table(lab: Lab) -> str:
    """Step → what to write → tests → points."""
    rows = ["| step | you write | tests | points |", "|---|---|---|---|"]
    for step in lab.steps:
        todo = ", ".join(f"`{name}`" for name in step.todo)
        tests = ", ".join(f"`{name}`" for name in step.tests)
        must = ", mandatory" if step.mandatory else ""
        rows.append(f"| {step.number}. {step.title} | {todo} | {tests} | {step.points}{must} |")
    rows.append(f"| all | | | {lab.max_points} |")
    return "\n".join(rows)


def mistakes_table(lab: Lab) -> str:
    """Symptom → likely cause of the mistakes that were seen in the wild, grouped by step."""
    parts = []
    for step in lab.steps:
        known = [mistake for mistake in lab.mistakes if mistake.step == step.id and mistake.source]
        if not known:
            continue
        rows = [
            f"**Step {step.number}: {step.title}**",
            "",
            "| what you see | likely cause | look at |",
            "|---|---|---|",
        ]
        rows += [f"| {_cell(m.symptom)} | {_cell(m.cause)} | {_cell(m.hint)} |" for m in known]
        parts.append("\n".join(rows))
    rare = sum(not mistake.source for mistake in lab.mistakes)
    if rare:
        parts.append(f"The tests know {rare} further mistakes; a failure names the one that it looks like.")
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
