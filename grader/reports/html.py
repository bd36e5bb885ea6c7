"""`report.html`: one file about a class, for a browser without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grader.reports import charts
from grader.reports.rows import PASSED
from grader.reports.similar import Pair, how_compared
from grader.reports.tallies import LabTally, percent
from grader.reports.templates import render


def page(
    labs: Sequence[LabTally],
    seed: int,
    *,
    layers: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    pairs: Sequence[Pair] = (),
    files: Mapping[str, str] | None = None,
) -> bytes:
    """The report, a section per lab; the same results give the same bytes.

    `files` are the names of the students' own pages, which lie in students/.
    """
    text = render(
        "class.html.j2",
        labs=labs,
        students={result.student for tally in labs for result in tally.results},
        seed=seed,
        layers=layers,
        versions=versions or {},
        pairs=pairs,
        how_compared=how_compared() if pairs else "",
        files=files or {},
        charts=charts,
        outcome_percent=percent,
        PASSED=PASSED,
    )
    return text.encode("utf-8")
