"""The roster: a table of the people of a class, and whose each hand-in is by it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.course import CourseError
from grader.handins import shown

ROSTER_BYTES = 8 << 20

# What the columns are called by Canvas, Moodle, Gradescope, GitHub Classroom and by hand, without spaces.
COLUMNS = {
    "student": ("student", "participant"),
    "login": ("login", "loginid", "sisloginid", "username", "user"),
    "id": ("id", "studentid", "idnumber", "identifier", "number", "sid", "userid", "matriculation"),
    "sis_id": ("sisid", "sisuserid"),
    "email": ("email", "emailaddress", "mail"),
    "github": ("github", "githubusername", "githublogin", "githubid"),
    "name": ("name", "fullname", "studentname"),
    "first": ("firstname", "givenname", "forename"),
    "last": ("lastname", "surname", "familyname"),
}
IDS = ("student", "login", "id", "sis_id", "email", "github")  # the first that a row has is the student
NAMES = ("name", "first", "last")


@dataclass(frozen=True)
class Person:
    """One row: the student's id as the marks show it, what sets this person apart, and the names."""

    student: str
    ids: frozenset[str]
    names: frozenset[str]


@dataclass(frozen=True)
class Matches:
    """Whose each found hand-in is, who has none, and a line on each that nobody on the roster owns."""

    students: Mapping[str, str]
    absent: tuple[str, ...]
    notes: tuple[str, ...]


def read_roster(path: Path) -> list[Person]:
    """Read a roster: CSV with a header, its columns in any order, separated by comma, semicolon or tab.

    A file that can't be read as one is a CourseError that names the row.
    """
    lines = _rows(path, _text(path))
    number, header = next(lines, (1, []))
    columns = [_column(cell) for cell in header]
    if not {*IDS, *NAMES} & set(columns):
        raise CourseError(
            f"{path}: row {number}: no column is called {', '.join([*IDS, 'name'])}; "
            "the first row must name the columns"
        )
    people: list[Person] = []
    rows_of: dict[tuple[str, str], int] = {}
    for number, cells in lines:
        if len(cells) > len(columns) and any(cells[len(columns) :]):
            raise CourseError(f"{path}: row {number}: more cells than the first row has columns")
        row = {column: cell for column, cell in zip(columns, cells, strict=False) if column and cell}
        if not row or "pointspossible" in map(_key, row.values()):  # of a gradebook that Canvas exported
            continue
        if " " in row.get("student", "") and len(row) > 1:
            row.setdefault("name", row.pop("student"))  # Canvas calls the name so
        person = _person(row)
        if person is None:
            raise CourseError(f"{path}: row {number}: it names nobody")
        for column, id in [("student", person.student), *((one, row[one]) for one in IDS if one in row)]:
            before = rows_of.setdefault((column, _key(id)), number)
            if before != number:
                raise CourseError(f"{path}: row {number}: {id!r} is in row {before} already")
        people.append(person)
    if not people:
        raise CourseError(f"{path}: it has no row with a person")
    return people


def match_roster(people: list[Person], found: Mapping[str, Iterable[str]]) -> Matches:
    """Say whose each of the hand-ins `found` is, by what each may be called: an id first, else the name.

    A name that fits several people settles nothing.
    """
    by_id: dict[str, set[str]] = {}
    by_name: dict[str, set[str]] = {}
    for person in people:
        for id in person.ids:
            by_id.setdefault(id, set()).add(person.student)
        for name in person.names:
            by_name.setdefault(name, set()).add(person.student)
    students: dict[str, str] = {}
    notes: list[str] = []
    unknown: list[str] = []
    for student, called in found.items():
        keys = [*map(_key, called)]
        fits = set[str]().union(*(by_id.get(key, set()) for key in keys))
        fits = fits or set[str]().union(*(by_name.get(key, set()) for key in keys))
        if len(fits) == 1:
            students[student] = fits.pop()
        elif fits:
            notes.append(f"{student} may be several people on the roster: {', '.join(sorted(fits))}")
        else:
            unknown.append(student)
    if unknown:
        notes.append(f"not on the roster, and graded under their own name: {', '.join(unknown)}")
    taken = set(students.values())
    absent = tuple(person.student for person in people if person.student not in taken)
    return Matches(students, absent, tuple(notes))


def _text(path: Path) -> str:
    if not path.is_file():
        raise CourseError(f"{path}: no such file; --roster takes a CSV file")
    try:
        with path.open("rb") as file:
            data = file.read(ROSTER_BYTES + 1)
    except OSError as error:
        raise CourseError(f"{path}: can't be read ({error.strerror})") from None
    if len(data) > ROSTER_BYTES:
        raise CourseError(f"{path}: larger than {ROSTER_BYTES >> 20} MiB; that is no roster")
    if data.startswith(b"PK"):
        raise CourseError(f"{path}: a spreadsheet, not CSV; save it as CSV and try again")
    for encoding in ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise CourseError(f"{path}: not a text file; save it as CSV in UTF-8")


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold anything, with their numbers as a spreadsheet counts them."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CourseError(f"{path}: row {number}: not CSV ({error})") from None
        if any(cell.strip() for cell in cells):
            yield number, [" ".join(shown(cell).split()) for cell in cells]


def _column(cell: str) -> str:
    plain = re.sub(r"[\W_]", "", cell.lower())
    return next((column for column, names in COLUMNS.items() if plain in names), "")


def _key(text: str) -> str:
    """What of an id or a name counts: letters and digits, whatever stands between them."""
    return re.sub(r"[\W_]", "", text.casefold())


def _person(row: dict[str, str]) -> Person | None:
    first, last = row.get("first", ""), row.get("last", "")
    name = row.get("name") or " ".join(filter(None, [first, last]))
    id = next((row[column] for column in IDS if column in row), name)
    if not _key(id):
        return None
    student = f"{name} ({id})" if id.isdecimal() and name else id
    ids = {row[column] for column in IDS if column in row} | {student}
    names = {name, *_turned(name), *_turned(row.get("student", "")), f"{last}{first}", f"{first}{last}"}
    email = row.get("email", "").partition("@")[0]
    return Person(
        student,
        frozenset(filter(None, map(_key, ids))),
        frozenset(filter(None, map(_key, names | {email}))),
    )


def _turned(name: str) -> list[str]:
    """A name with the last name first, as systems sort it, whichever way it is written."""
    last, comma, first = name.partition(",")
    if comma:
        return [name, f"{first} {last}"]
    words = name.split()
    return [name, *(" ".join([*words[at:], *words[:at]]) for at in range(1, len(words)))]
