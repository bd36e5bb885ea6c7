"""Find the exercise files in whatever was handed in: folders, single files, archives, notebooks.

Nothing of a submission is run, written or followed here; every size is bounded before it is read.
Every student gets a submission: with the text to judge, or with the one line that says why there is none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from grader.course import Course, Lab
from grader.entries import lab_folders, without_ending
from grader.handins import FileRefused, shown
from grader.lms_names import latest
from grader.picking import Picked, pick
from grader.roster import Roster, match_roster, read_roster
from grader.settled import SETTLED, Settled
from grader.students import Found, IntakeError, Place, find_students

__all__ = ["Intake", "IntakeError", "Submission", "find_submissions", "intake_report"]


@dataclass(frozen=True)
class Submission:
    """What one student handed in for one lab.

    `source` is the text to judge, None if there is none; `message` is "" or one line that says what was
    unusual or why there is none. `withheld`: a person must first say which file counts, or
    grade it with a newer Python.
    `submitted` is when it came, as far as `submitted_from` can tell; `late_flag`: the system that it was
    handed in to calls it late.
    """

    student: str
    lab: str
    source: str | None
    message: str = ""
    withheld: bool = False
    submitted: datetime | None = field(default=None, compare=False)
    submitted_from: str = field(default="", compare=False)
    late_flag: bool = False


@dataclass(frozen=True)
class Intake:
    """The submissions at a path, in order, and a line on each thing there that is none.

    `columns` is what learning platforms call each student, `assignments` what Canvas calls its columns, as
    far as a roster or the names of a bulk download say. `folder` is where the class lies; `whole`: all of it
    is here, not one hand-in.
    """

    submissions: list[Submission]
    notes: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    assignments: tuple[str, ...] = ()
    folder: Path = Path()
    whole: bool = True


def find_submissions(
    path: Path,
    course: Course,
    lab: Lab | None = None,
    *,
    out: Path | None = None,
    roster: Path | None = None,
) -> Intake:
    """Return the submissions at `path`: one file, one student's folder, or a class of them, in order.

    Without `lab`, the labs are those that any student has a folder for, and every student has a submission
    for each; so has everybody on the `roster`, a CSV file, by whose ids the students are then called.
    What the grader writes into `out` is never a submission.
    A path with nothing to grade is an IntakeError, a broken roster or `intake.toml` a CourseError.
    """
    try:
        if path.is_symlink() and path.is_file():
            raise IntakeError(f"{path}: is a link; give the file itself")
        if not path.exists():
            raise IntakeError(f"{path}: no such file or folder")
        return _find(path, course, lab, out, roster)
    except OSError as error:
        raise IntakeError(f"{path}: can't be read ({error.strerror})") from None


def intake_report(intake: Intake) -> list[str]:
    """Return one line for each student and lab, then one for each note: nothing is left out."""
    lines = []
    for one in intake.submissions:
        state = "read" if one.source is not None else "to be settled" if one.withheld else "nothing to judge"
        when = f", {one.submitted:%Y-%m-%d %H:%M %Z} by {one.submitted_from}" if one.submitted else ""
        said = f": {one.message}" if one.message else ""
        lines.append(f"{one.student}, {one.lab}: {state}{when}{said}")
    return [*lines, *(f"note: {note}" for note in intake.notes)]


def _find(path: Path, course: Course, lab: Lab | None, out: Path | None, roster: Path | None) -> Intake:
    path = Path(os.path.abspath(path))
    found = find_students(path, course, lab, None if out is None else _beside(out, path))
    if not found.students:
        raise IntakeError(f"{path}: no submission here; a class holds one folder a student")
    labs = [found.lab] if found.lab is not None else _labs_seen(found.students, course)
    if not labs:
        raise IntakeError(f"{path}: no folder is named like a lab; say which lab with --lab")
    listed = read_roster(roster) if roster is not None else Roster(())
    students, notes = (found.students, []) if roster is None else _by_roster(found, listed)
    doubts = {person.student: person.doubt for person in listed.people if person.doubt}
    ordered = sorted(students.items(), key=lambda item: (item[0].casefold(), item[0]))
    only_inside = len(labs) > 1  # a loose file can't belong to several labs
    return Intake(
        [
            _submission(name, one, places, found.settled, only_inside)
            if name not in doubts
            else Submission(name, one.name, None, doubts[name], withheld=True)
            for name, places in ordered
            for one in labs
        ],
        (*found.notes, *notes, *_strangers(found, students)),
        _columns(students, listed),
        listed.assignments,
        Path(os.path.realpath(found.folder)),
        found.whole,
    )


def _columns(students: dict[str, list[Place]], listed: Roster) -> dict[str, Mapping[str, str]]:
    """What platforms call each student, where anything is known of it."""
    known: dict[str, Mapping[str, str]] = {}
    for student, places in students.items():
        said = {key: cell for place in places if place.owner for key, cell in place.owner.columns}
        known |= {student: said} if said else {}
    return known | {one.student: {**known.get(one.student, {}), **one.columns} for one in listed.people}


def _by_roster(found: Found, listed: Roster) -> tuple[dict[str, list[Place]], list[str]]:
    """The students by the ids of the roster, and what there is to say of it."""
    called = {student: (student, *found.names.get(student, ())) for student in found.students}
    matches = match_roster(listed.people, called)
    students: dict[str, list[Place]] = {student: [] for student in matches.absent if found.whole}
    for student, places in found.students.items():
        students.setdefault(matches.students.get(student, student), []).extend(places)
    return students, [*listed.notes, *matches.notes]


def _strangers(found: Found, students: dict[str, list[Place]]) -> list[str]:
    """A line for each place of `intake.toml` that speaks of what is not here."""
    places = [place for some in found.students.values() for place in some]
    here = {*students, *found.students, *found.ignored, *(place.path.name for place in places)}
    here |= {place.owner.student for place in places if place.owner is not None}
    here |= {without_ending(name) for name in here}
    return [
        f"{SETTLED}, {where}: not here: {', '.join(map(shown, sorted(names - here)))}; "
        "write it as `grader intake` does, or take it out"
        for where, names in found.settled.mentioned().items()
        if found.whole and names - here
    ]


def _beside(out: Path, path: Path) -> Path:
    """`out` as it is written below `path`, by whatever links either was given."""
    real, top = Path(os.path.realpath(out)), Path(os.path.realpath(path))
    return path / real.relative_to(top) if real.is_relative_to(top) else real


def _labs_seen(students: dict[str, list[Place]], course: Course) -> list[Lab]:
    places = [place for some in students.values() for place in some]
    seen = {place.lab.lower() for place in places}
    for place in places:
        if not place.path.is_symlink() and os.path.isdir(place.path):
            seen |= {folder.name.lower() for folder in lab_folders(place.path, course)}
    found = [lab for lab in course.labs if lab.name in seen]
    return list(course.labs) if not found and len(course.labs) == 1 else found


def _submission(
    student: str, lab: Lab, places: list[Place], settled: Settled, only_inside: bool = False
) -> Submission:
    """Read what a student has at `places` for one lab."""
    counts = latest(place.owner for place in places)
    kept = [place for place, is_latest in zip(places, counts, strict=True) if is_latest]
    remarks = _about(kept, [place for place in places if place not in kept])
    late = any(place.owner is not None and place.owner.late for place in kept)
    try:
        picked = pick(kept, lab, _named_file(student, lab, kept, settled), only_inside)
    except FileRefused as error:
        picked = Picked(None, str(error))
    except OSError as error:
        picked = Picked(None, f"{student}: can't be read ({error.strerror})")
    message = "; ".join(filter(None, [picked.message, *remarks]))
    return Submission(
        student,
        lab.name,
        picked.source,
        message,
        picked.withheld,
        picked.submitted,
        picked.submitted_from,
        late,
    )


def _named_file(student: str, lab: Lab, places: list[Place], settled: Settled) -> str:
    """The file that `intake.toml` names, whichever name of the student or of the entry it uses."""
    names = [student]
    for place in places:
        names += [place.path.name, without_ending(place.path.name)]
        names += [place.owner.student] if place.owner is not None else []
    return next(filter(None, (settled.file(name, lab.name) for name in names)), "")


def _about(kept: list[Place], older: list[Place]) -> list[str]:
    """What the names of a bulk download say of a hand-in."""
    remarks = []
    if older:
        names = ", ".join(shown(place.path.name) for place in older)
        remarks.append(f"handed in several times, the latest counts; not used: {names}")
    if any(place.owner is not None and place.owner.late for place in kept):
        remarks.append("its name says LATE")
    return remarks
