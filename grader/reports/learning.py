"""Marks for the gradebooks of learning platforms: `canvas.csv` and `moodle.csv`.

Both list a student once, with a column a lab. A mark of which a part is still to be decided is an empty cell,
as is a lab that wasn't handed in: an import then leaves the old mark as it is.
No byte order mark: it would become a part of the first header.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from grader.reports.table import cell
from grader.reports.tallies import LabTally
from grader.reports.text import number


def canvas(labs: Sequence[LabTally]) -> bytes:
    """Modelled on what Canvas's "Import Grades" reads (lib/gradebook_importer.rb of instructure/canvas-lms).

    It finds a student by ID (its own number, unknown here), else by SIS User ID, SIS Login ID or name; wants
    Section as the last column before the assignments; and takes the row "Points Possible" for the maximum.
    A column whose name is that of an assignment goes into it, any other becomes a new one.
    """
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(tally.lab.name for tally in labs)]
    most = ["    Points Possible", "", "", "", "", *(number(tally.max_points) for tally in labs)]
    rows = ([cell(one), "", "", cell(one), "", *_marks(labs, one)] for one in _students(labs))
    return _csv([header, most, *rows])


def moodle(labs: Sequence[LabTally]) -> bytes:
    """Modelled on Moodle's grade import (docs.moodle.org, "Grade import"; grade/import/csv of moodle/moodle).

    "Map from" one of the first three columns "to" username, useridnumber or useremail, and each lab's column
    to a grade item or a new one. A student whose name here is an address has it in "Email address".
    """
    header = ["Identifier", "ID number", "Email address", *(tally.lab.name for tally in labs)]
    rows = []
    for student in _students(labs):
        name = cell(student)
        who = ["", name] if "@" in student else [name, ""]
        rows.append([name, *who, *_marks(labs, student)])
    return _csv([header, *rows])


def _students(labs: Sequence[LabTally]) -> list[str]:
    students = {result.student for tally in labs for result in tally.results}
    return sorted(students, key=lambda student: (student.casefold(), student))


def _marks(labs: Sequence[LabTally], student: str) -> list[int | float | str]:
    marks: list[int | float | str] = []
    for tally in labs:
        result = tally.result_of(student)
        decided = result is not None and all(step.points is not None for step in result.steps)
        marks.append(number(result.points) if result is not None and decided else "")
    return marks


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8")
