"""The columns by which Canvas and Moodle know a person, and what a roster says under them.

Canvas: lib/gradebook_exporter.rb and lib/gradebook_importer.rb of instructure/canvas-lms. Moodle: the grading
worksheet of an assignment, mod/assign/gradingtable.php and mod/assign/feedback/offline of moodle/moodle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from grader.course import Lab

STUDENT, CANVAS_ID, SIS_USER, SIS_LOGIN, SECTION = "Student", "ID", "SIS User ID", "SIS Login ID", "Section"
IDENTIFIER, FULL_NAME, NUMBER, EMAIL, USERNAME = (
    *("Identifier", "Full name", "ID number", "Email address", "Username"),
)
MAXIMUM, CHANGED = "Maximum Grade", "Last modified (grade)"
WORKSHEET = ("Status", MAXIMUM, "Grade can be changed", "Last modified (submission)", CHANGED)
KEPT = (
    *(STUDENT, CANVAS_ID, SIS_USER, SIS_LOGIN, SECTION),
    *(IDENTIFIER, FULL_NAME, NUMBER, EMAIL),
    *WORKSHEET,
)

ASSIGNMENT = re.compile(r"(.+?) ?\((\d+)\)")  # how Canvas calls an assignment's column
# Moodle's number of a person in one assignment, in its bulk downloads and in worksheets alike.
PARTICIPANT = re.compile(r"participant \d+", re.IGNORECASE)

# Other names of these columns, without blanks; the first that a row has counts.
ALIKE = {
    FULL_NAME: ("name", "studentname"),
    NUMBER: ("studentid", "matriculation", "number", "sid", "id"),
    EMAIL: ("email", "mail"),
    USERNAME: ("username", "login", "loginid", "user"),
    SIS_LOGIN: ("login", "loginid", "username", "user"),
    SIS_USER: ("sisid",),
}


def platform_columns(header: Iterable[str], said: Mapping[str, str]) -> dict[str, str]:
    """What a row of a roster with this header says, by the names of the columns on both platforms."""
    cells = {plain(title): cell for title, cell in said.items()}
    found = {title: cells[plain(title)] for title in KEPT if plain(title) in cells}
    titles = {plain(title) for title in header}
    if not titles & {plain(SIS_LOGIN), plain(SIS_USER)}:  # not from Canvas: these words mean something else
        found.pop(STUDENT, None)
        found.pop(CANVAS_ID, None)
    else:
        cells.pop(plain(CANVAS_ID), None)
    if not PARTICIPANT.fullmatch(found.get(IDENTIFIER, "")):
        found.pop(IDENTIFIER, None)
    first, last = (cells.get(name, "") for name in ("firstname", "lastname"))
    if first and last:
        cells.setdefault("name", f"{first} {last}")
    for title, names in ALIKE.items():
        cell = next((cells[name] for name in names if name in cells), "")
        if cell:
            found.setdefault(title, cell)
    if FULL_NAME in found:
        found.setdefault(STUDENT, found[FULL_NAME])
    return found


def assignment_of(lab: Lab, assignments: Iterable[str]) -> str:
    """The column of Canvas that is a lab's, "" if none or several may be."""
    number = str(int(lab.number))
    names = {
        lab.name,
        lab.title,
        *(f"{word}{n}" for word in ("lab", "exercise") for n in (number, lab.number)),
    }
    names |= {f"{name}{lab.title}" for name in names}
    wanted = {plain(name) for name in names}
    fits = [one for one in assignments if (found := ASSIGNMENT.fullmatch(one)) and plain(found[1]) in wanted]
    return fits[0] if len(fits) == 1 else ""


def plain(title: str) -> str:
    """What of a title counts: letters and digits."""
    return re.sub(r"[\W_]", "", title.casefold())
