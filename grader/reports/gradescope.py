"""`gradescope/LAB/STUDENT/results.json`: a submission's marks as a Gradescope autograder writes them.

Modelled on "Autograder Specifications" (gradescope-autograders.readthedocs.io/en/latest/specs): Gradescope
reads one such file a submission, at /autograder/results/results.json. A step of the lab is a test case there,
since points belong to steps. Students see what is in it once the grades are published: no more than on their
own page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.reports.rows import PASSED
from grader.reports.student import LabPage, StepPage
from grader.reports.text import number, visible


def gradescope_files(
    pages: Mapping[str, Sequence[LabPage]], names: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    """For each student and lab, where the file goes below `gradescope/`, and its content."""
    for student, labs in pages.items():
        for page in labs:
            yield f"{page.lab.name}/{names[student]}/results.json", results_json(page)


def results_json(page: LabPage) -> bytes:
    """The marks of one student in one lab; `score` counts, not the sum of the steps (lateness, bonus)."""
    document = {
        "score": number(page.row.result.points),
        "execution_time": round(page.row.result.seconds, 2),
        "output": visible(page.hand_in),
        "output_format": "text",
        "visibility": "after_published",
        "stdout_visibility": "hidden",
        "tests": [_test(step) for step in page.steps],
    }
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def _test(step: StepPage) -> dict[str, Any]:
    return {
        "number": str(step.number),
        "name": step.title,
        "score": number(step.points or 0),
        "max_score": number(step.max_points),
        "status": "passed" if step.outcome == PASSED else "failed",
        "output": visible(step.text, keep="\n"),
        "output_format": "text",
    }
