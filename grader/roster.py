"""The roster: a table of the people of a class, and whose each hand-in is by it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.course import CourseError
from grader.handins import shown
from grader.platforms import ASSIGNMENT, PARTICIPANT, STUDENT, plain, platform_columns

ROSTER_BYTES = 8 << 20

# What the columns are called by Canvas, Moodle, Gradescope, GitHub Classroom and by hand, without spaces.
# Of several in one line the first that a row has counts; all of them set a person apart. (`github_id` does
# not: it is a number that no hand-in bears.)
COLUMNS = {
    "student": ("student", "participant"),
    "login": ("login", "loginid", "sisloginid", "username", "user"),
    "id": ("id", "studentid", "idnumber", "number", "sid", "userid", "matriculation", "identifier"),
    "sis_id": ("sisid", "sisuserid"),
    "email": ("email", "emailaddress", "mail"),
    "github": ("githubusername", "github", "githublogin"),
    "participant": (),  # Moodle's "Participant 12", below
    "name": ("name", "fullname", "studentname"),
    "first": ("firstname", "givenname", "forename"),
    "last": ("lastname", "surname", "familyname"),
}
IDS = ("student", "login", "id", "sis_id", "email", "github", "participant")  # the first is the student
NAMES = ("name", "first", "last")
TEST_STUDENT = "Student, Test"  # who a teacher is in Canvas's student view


@dataclass(frozen=True)
class Person:
    """One person: the student's id as the marks show it, what sets this person apart, and the names.

    `columns` are what the roster says under names that learning platforms know, `doubt` is a line on rows
    that contradict each other: nothing is decided about the person while they do.
    """

    student: str
    ids: frozenset[str]
    names: frozenset[str]
    columns: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""
    cells: tuple[str, ...] = ()  # all that the row says


@dataclass(frozen=True)
class Roster:
    """The people of a class, what is odd about their rows, and Canvas's columns of assignments."""

    people: tuple[Person, ...]
    notes: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Matches:
    """Whose each found hand-in is, who has none, and a line on each that nobody on the roster owns."""

    students: Mapping[str, str]
    absent: tuple[str, ...]
    notes: tuple[str, ...]


def read_roster(path: Path) -> Roster:
    """Read a roster: CSV with a header, its columns in any order, separated by comma, semicolon or tab.

    A row that says the same as an earlier one is taken once, and rows that contradict each other leave their
    people in doubt; a note says so. A file that can't be read is a CourseError that names the row.
    """
    lines = _rows(path, _text(path))
    number, header = next(lines, (1, []))
    columns = [_column(cell) for cell in header]
    if not {*IDS, *NAMES} & set(columns):
        raise CourseError(
            f"{path}: row {number}: no column is called {', '.join([*IDS[:-1], 'name'])}; "
            "the first row must name the columns"
        )
    found: list[tuple[int, dict[str, str], Person]] = []
    for number, cells in lines:
        if len(cells) > len(columns) and any(cells[len(columns) :]):
            raise CourseError(f"{path}: row {number}: more cells than the first row has columns")
        said = {title: cell for title, cell in zip(header, cells, strict=False) if cell}
        row = _by_column(said)
        if not row or "pointspossible" in map(plain, said.values()):  # of a gradebook that Canvas exported
            continue
        person = _person(row, platform_columns(header, said), tuple(map(plain, cells)))
        if person is None:
            raise CourseError(f"{path}: row {number}: it names nobody")
        found.append((number, said, person))
    if not found:
        raise CourseError(f"{path}: it has no row with a person")
    own = [row for row in found if row[2].columns.get(STUDENT) != TEST_STUDENT or len(found) == 1]
    people, notes = _settled(path.name, own)
    notes += [f"{path.name}: Canvas's own {TEST_STUDENT!r} is left out"] if len(own) < len(found) else []
    return Roster(tuple(people), tuple(notes), tuple(filter(ASSIGNMENT.fullmatch, header)))


def _by_column(said: dict[str, str]) -> dict[str, list[str]]:
    """The cells of a row by what they are, those of one column in the order of `COLUMNS`."""
    row: dict[str, list[tuple[int, str]]] = {}
    for title, cell in said.items():
        column = _column(title)
        if column in IDS and PARTICIPANT.fullmatch(cell):
            row.setdefault("participant", []).append((0, cell))
        elif column:
            row.setdefault(column, []).append((COLUMNS[column].index(plain(title)), cell))
    return {column: [cell for _, cell in sorted(cells)] for column, cells in row.items()}


def _settled(name: str, found: list[tuple[int, dict[str, str], Person]]) -> tuple[list[Person], list[str]]:
    """The people of all rows, each once, and a note on rows that repeat or contradict an earlier one."""
    people: dict[str, Person] = {}
    notes: list[str] = []
    first: dict[tuple[str, str], tuple[int, Person]] = {}  # by what must differ between rows
    for number, said, person in found:
        keys = {("student", plain(person.student)): person.student}
        ids = {title: cell for title, cell in said.items() if _column(title) in IDS}
        keys |= {(title, plain(id)): id for title, id in ids.items() if plain(id) in person.ids}
        before = {first[key][0]: (first[key][1], key[0], cell) for key, cell in keys.items() if key in first}
        same = [row for row, (other, _, _) in before.items() if _is_same(other, person, bool(ids))]
        if same:
            notes.append(
                f"{name}: row {number} says the same as row {same[0]} ({person.student}): taken once"
            )
            continue
        for row, (other, title, cell) in before.items():
            students = ", ".join(sorted({person.student, other.student}))
            notes.append(
                f"{name}: rows {row} and {number} both have {title} {cell!r} and differ: correct the roster; "
                f"undecided until then: {students}"
            )
            rows = f"rows {row} and {number} of the roster"
            doubt = f"{rows} contradict each other: undecided until it is corrected"
            person = replace(person, doubt=doubt)
            people[other.student] = replace(people[other.student], doubt=doubt)
        for key in keys:
            first.setdefault(key, (number, person))
        known = people.get(person.student, person)
        people[person.student] = replace(known, ids=known.ids | person.ids, names=known.names | person.names)
    return list(people.values()), notes


def _is_same(one: Person, other: Person, by_id: bool) -> bool:
    """Whether two rows mean one person; of names alone only where nothing else in them differs."""
    same = (plain(one.student), one.ids, one.names) == (plain(other.student), other.ids, other.names)
    return same and (by_id or one.cells == other.cells)


def match_roster(people: Sequence[Person], found: Mapping[str, Iterable[str]]) -> Matches:
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
        keys = [*map(plain, called)]
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
    return next((column for column, names in COLUMNS.items() if plain(cell) in names), "")


def _person(row: dict[str, list[str]], columns: Mapping[str, str], cells: tuple[str, ...]) -> Person | None:
    """The person of a row; None if it names nobody."""
    if " " in row.get("student", [""])[0] and len(row) > 1:
        row.setdefault("name", row.pop("student"))  # Canvas calls the name so
    first, last, name = (row.get(column, [""])[0] for column in ("first", "last", "name"))
    name = name or " ".join(filter(None, [first, last]))
    id = next((row[column][0] for column in IDS if column in row), name)
    if not plain(id):
        return None
    student = f"{name} ({id})" if id.isdecimal() and name else id
    ids = {cell for column in IDS for cell in row.get(column, [])} | {student}
    names = {name, *_turned(name), *_turned(row.get("student", [""])[0]), f"{last}{first}", f"{first}{last}"}
    names |= {email.partition("@")[0] for email in row.get("email", [])}
    return Person(
        student,
        frozenset(filter(None, map(plain, ids))),
        frozenset(filter(None, map(plain, names))),
        columns,
        cells=cells,
    )


def _turned(name: str) -> list[str]:
    """A name with the last name first, as systems sort it, whichever way it is written."""
    last, comma, first = name.partition(",")
    if comma:
        return [name, f"{first} {last}"]
    words = name.split()
    return [name, *(" ".join([*words[at:], *words[:at]]) for at in range(1, len(words)))]
