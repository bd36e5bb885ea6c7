"""Marks for the gradebooks of learning platforms: `canvas.csv` and `moodle.csv`.

Both list a student once, with a column a lab, by what the roster says under the platform's own columns.
A mark of which a part is still to be decided is an empty cell, as is a lab that has no mark: Moodle then
leaves the old mark as it is, and Canvas shows that it would go before it imports anything.
No byte order mark: it would become a part of the first header.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from grader.platforms import (
    CANVAS_ID,
    CHANGED,
    EMAIL,
    FULL_NAME,
    IDENTIFIER,
    MAXIMUM,
    NUMBER,
    SECTION,
    SIS_LOGIN,
    SIS_USER,
    STUDENT,
    USERNAME,
    WORKSHEET,
    assignment_of,
)
from grader.reports.table import cell
from grader.reports.tallies import LabTally
from grader.reports.text import number

NOBODY: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def canvas(
    labs: Sequence[LabTally],
    people: Mapping[str, Mapping[str, str]] = NOBODY,
    assignments: Sequence[str] = (),
) -> bytes:
    """As Canvas's "Import" of a gradebook reads it (lib/gradebook_importer.rb of instructure/canvas-lms).

    It wants "Student" first, "ID" second, and "Section" last before the assignments. It finds a student by
    ID (its own number), else by SIS User ID, SIS Login ID or name; and takes the row "Points Possible" for
    the maximum. A column "title (number)" goes into the assignment with that number, one with the title of an
    assignment into that, any other becomes a new assignment. `assignments` are the columns that it exports.
    """
    columns = [assignment_of(tally.lab, assignments) or tally.lab.name for tally in labs]
    header = [STUDENT, CANVAS_ID, SIS_USER, SIS_LOGIN, SECTION, *map(cell, columns)]
    most = ["    Points Possible", "", "", "", "", *(number(tally.max_points) for tally in labs)]
    rows = []
    for one in _students(labs):
        said = people.get(one, {})
        login = said.get(SIS_LOGIN) or ("" if {CANVAS_ID, SIS_USER} & {*said} else one)
        who = (said.get(STUDENT, one), said.get(CANVAS_ID, ""), said.get(SIS_USER, ""), login)
        rows.append([*map(cell, who), cell(said.get(SECTION, "")), *_marks(labs, one)])
    return _csv([header, most, *rows])


def moodle(labs: Sequence[LabTally], people: Mapping[str, Mapping[str, str]] = NOBODY) -> bytes:
    """As Moodle reads marks: of one lab as a grading worksheet, if its numbers of people are known.

    A worksheet is imported in the assignment (mod/assign/feedback/offline of moodle/moodle, which wants
    "Identifier", "Grade" and "Last modified (grade)"). Without them, and for several labs, it is a table for
    the grade import of the course (grade/import/csv): "Map from" ID number, Email address or Username "to"
    useridnumber, useremail or username, and each lab's column to a grade item or a new one.
    """
    students = _students(labs)
    known = [people.get(student, {}) for student in students]
    if len(labs) == 1 and any(IDENTIFIER in said for said in known):
        return _worksheet(labs, students, people)
    more = [title for title in (FULL_NAME, USERNAME) if any(title in said for said in known)]
    rows = [
        [cell(one), *_who(one, said), *(cell(said.get(title, "")) for title in more), *_marks(labs, one)]
        for one, said in zip(students, known, strict=True)
    ]
    return _csv([[IDENTIFIER, NUMBER, EMAIL, *more, *(tally.lab.name for tally in labs)], *rows])


def _who(student: str, said: Mapping[str, str]) -> list[str]:
    """ID number and address; of somebody of whom neither is known the name says which of them it is."""
    if NUMBER in said or EMAIL in said:
        return [cell(said.get(NUMBER, "")), cell(said.get(EMAIL, ""))]
    return ["", cell(student)] if "@" in student else [cell(student), ""]


def _worksheet(
    labs: Sequence[LabTally], students: Sequence[str], people: Mapping[str, Mapping[str, str]]
) -> bytes:
    """A row for each student whom Moodle has in this assignment, as in its own worksheet but for the mark.

    Moodle skips an empty mark, and one that was changed there after "Last modified (grade)".
    """
    rows = [(one, people[one]) for one in students if IDENTIFIER in people.get(one, {})]
    titles = [one for one in (FULL_NAME, EMAIL, *WORKSHEET) if any(one in said for _, said in rows)]
    titles = [IDENTIFIER, *(one for one in titles if one != CHANGED), CHANGED]
    at = titles.index(MAXIMUM) if MAXIMUM in titles else len(titles) - 1
    table = [[*titles[:at], "Grade", *titles[at:]]]
    for one, said in rows:
        cells = [cell(said.get(title, "")) if said.get(title) != "-" else "-" for title in titles]
        cells[-1] = cells[-1] or "-"
        table.append([*cells[:at], *map(str, _marks(labs, one)), *cells[at:]])
    return _csv(table)


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
