"""`marks.csv`: one row a student and lab, for spreadsheet programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from grader.marking import Result
from grader.reports.text import number, one_line

# A spreadsheet takes a cell that begins so for a formula; the last four are full-width forms.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def table(results: Sequence[Result]) -> bytes:
    """The CSV file, in the given order of results; a step that is withheld is an empty cell.

    UTF-8 with a byte order mark: without it Excel reads "Åsa" as "Ã…sa" in silence.
    Programs have results.jsonl.
    """
    numbers = sorted({step.step for result in results for step in result.steps})
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["student", "lab", "points", "max_points", *(f"step {n}" for n in numbers), "message"])
    for result in results:
        points = {step.step: number(step.points) for step in result.steps if step.points is not None}
        writer.writerow(
            [
                cell(result.student),
                cell(result.lab),
                number(result.points),
                number(result.max_points),
                *(points.get(n) for n in numbers),
                cell(result.message),
            ]
        )
    return text.getvalue().encode("utf-8-sig")


def cell(text: str) -> str:
    """`text` on one line, with an apostrophe before what a spreadsheet would run as a formula."""
    # The untouched text is asked as well: a sheet may drop blanks, and one_line has spelled out a tab.
    is_formula = text.startswith(_FORMULA_STARTS) or text.lstrip().startswith(_FORMULA_STARTS)
    return ("'" if is_formula else "") + one_line(text)
