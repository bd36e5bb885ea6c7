"""The proof of a lab's tests as a page: every known mistake, the tests that reject it, and how clearly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, select_autoescape

from grader.authoring.trials import Trial
from grader.authoring.verify import Verification
from grader.diagnosis import SketchBook


@dataclass(frozen=True)
class Row:
    """One mistake."""

    id: str
    name: str
    step: int
    rejected_by: tuple[str, ...]
    of: int
    margin: str
    named: bool  # whether some failure says which mistake it is


def kill_rows(found: Verification) -> list[Row]:
    """One row a mistake, in the order of mistakes.toml."""
    return [_row(found, trial) for trial in found.trials]


def kill_page(found: list[Verification]) -> str:
    """A self-contained HTML page."""
    environment = Environment(
        loader=PackageLoader("grader.authoring", "."), autoescape=select_autoescape(["html", "j2"])
    )
    labs = [(verification, kill_rows(verification)) for verification in found]
    return environment.get_template("kill_table.html.j2").render(labs=labs)


def _row(found: Verification, trial: Trial) -> Row:
    tests = tuple(run.verdict.test for run in trial.failures)
    margin = "any" if math.isinf(trial.margin) else f"{trial.margin:.0e}"
    step = found.lab.find_step(trial.mistake.step).number
    named = is_named(trial, found.sketches)
    return Row(trial.mistake.id, trial.mistake.name, step, tests, len(trial.runs), margin, named)


def is_named(trial: Trial, sketches: SketchBook) -> bool:
    """Whether a failure of this mistake would be shown with its name."""
    return any(
        trial.mistake.id in sketches.match(run.verdict.test, found.index, found.value, found.allowed)
        for run in trial.failures
        for found in [run.failure]
        if found is not None
    )
