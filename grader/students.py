"""Who handed in: the students at a path, each with the folders and files that bear the name.

What lies at the top of a class is a student, or is listed as not taken for one; only noise and the results
of the grader itself are passed over in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from grader.archives import list_archive
from grader.course import Course, CourseError, Lab
from grader.entries import (
    EXERCISE,
    EXERCISES,
    entries_of,
    has_exercise,
    is_folder,
    lab_folders,
    lab_named,
    sorted_out,
    without_ending,
)
from grader.handins import (
    OTHER_ARCHIVE,
    FileRefused,
    HandIn,
    is_archive,
    is_noise,
    is_readable,
    one_ending,
    plain_name,
    shown,
    single_file,
)
from grader.lms_names import METADATA, Download, Owner, recognise
from grader.settled import SETTLED, Settled, read_settled
from grader.sources import read_source

NEVER_AN_EXERCISE = re.compile(
    r"(test_.*|.*_test|conftest|setup|solution|__init__|sitecustomize)\.py", re.IGNORECASE
)
# Words in a file's name that say that it is a version or a part of one hand-in, not a person.
NO_PERSON = re.compile(
    r"exercises?|solutions?|labs?|core|training|version|old|new|final|copy|draft|backup|bak|tests?|attempt|try|"
    r"main|notebook|plots?|utils?|helpers?|src|code|data|first|second|third|v\d+"
)


class IntakeError(CourseError):
    """There is nothing to grade at a path; the text is one clear line."""


@dataclass(frozen=True)
class Place:
    """A folder or file of a student.

    `lab` names the lab whose folder all of the class's files lie in; `owner` is what its name says where a
    system wrote the class.
    """

    path: Path
    lab: str = ""
    owner: Owner | None = None


@dataclass(frozen=True)
class Found:
    """The students at a path, the lab if the path or the caller says which, and what was not taken.

    `folder` is the class's; `whole`: this is all of it, not one hand-in. `settled` is what its `intake.toml`
    says, `names` what else a student may be called.
    """

    students: dict[str, list[Place]]
    lab: Lab | None
    whole: bool
    settled: Settled
    names: dict[str, tuple[str, ...]]
    folder: Path
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass
class _Class:
    """What is found in the folders of a class, by the names on disk."""

    students: dict[str, list[Place]]
    names: dict[str, tuple[str, ...]]
    not_taken: list[str]
    ignored: list[str]
    systems: list[str]


def find_students(path: Path, course: Course, lab: Lab | None, out: Path | None) -> Found:
    """Return who is at `path`: one file, one student's folder, or a class of them.

    `out` is where results are written: what lies there is nobody's.
    """
    if path.is_file():
        return _of_file(path, course, lab)
    next(path.iterdir(), None)  # a folder that can't be read says so here
    named = lab_named(path.name, course)
    own = [one for one in lab_folders(path, course) if lab in (None, lab_named(one.name, course))]
    is_class = _is_class(path, course, lab or named)
    if named is not None and lab in (None, named) and not is_class and not own:
        return _one(path.parent, [Place(path)], named, course)
    inside = [one for one in own if _is_class(one, course, lab_named(one.name, course))]
    if not is_class and not inside and (lab_folders(path, course) or has_exercise(path)):
        return _one(path, [Place(path)], lab, course)
    settled = read_settled(path, course)
    found = _Class({}, {}, [], [], [])
    _look(path, course, out, settled, found)
    for folder in inside:
        found.not_taken.remove(shown(folder.name))
        _look(folder, course, out, settled, found, folder.name)
    students, notes = _named_apart(found.students), _notes(found)
    top = path.parent if named is not None else path
    return Found(students, lab or named, True, settled, found.names, top, notes, tuple(found.ignored))


def _notes(found: _Class) -> tuple[str, ...]:
    listed = {
        "read as a bulk download of": found.systems,
        "not taken for students": found.not_taken,
        f"ignored, as {SETTLED} says": found.ignored,
    }
    return tuple(f"{what}: {', '.join(map(shown, names))}" for what, names in listed.items() if names)


def _one(owner: Path, places: list[Place], lab: Lab | None, course: Course, student: str = "") -> Found:
    """One student alone, whose folder or file is `owner`, under the name that the class would give."""
    settled = read_settled(owner.parent, course)
    download = recognise(owner.parent, [one.name for one in sorted_out(owner.parent, course, None)[0]])
    students: dict[str, list[Place]] = {}
    names: dict[str, tuple[str, ...]] = {}
    own = student or owner.name
    for name, known in _owners(owner, own, download, settled):
        students[shown(name)] = [replace(place, owner=known) for place in places]
        names |= {shown(name): known.names} if known is not None and known.student == name else {}
    told = settled.owners(owner.name) or settled.owners(own)
    notes = (
        (f"{shown(own)} is {', '.join(map(shown, told))}, as {owner.parent / SETTLED} says",) if told else ()
    )
    top = owner.parent.parent if lab_named(owner.parent.name, course) else owner.parent
    return Found(students, lab, False, settled, names, top, notes)


DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)


def never_an_exercise(name: str) -> bool:
    """Whether a file of this name has another purpose, such as a test."""
    return NEVER_AN_EXERCISE.fullmatch(plain_name(name)) is not None


def defines(file: HandIn, lab: Lab) -> bool:
    """Whether a file defines something that the lab asks for."""
    names = {name.partition(".")[0] for step in lab.steps for name in step.todo}
    try:
        source, _ = read_source(file)
    except FileRefused:
        return False
    return any(found[1] in names for found in DEFINITION.finditer(source))


def _of_file(path: Path, course: Course, lab: Lab | None) -> Found:
    named = lab_named(path.parent.name, course)
    lab = lab or named or (course.labs[0] if len(course.labs) == 1 else None)
    if OTHER_ARCHIVE.search(path.name) and not is_archive(path.name):
        raise IntakeError(
            f"{path}: only .zip and .tar archives can be read; unpack it and give the folder, or make a zip"
        )
    if not is_readable(path.name) and not is_archive(path.name):
        raise IntakeError(f"{path}: not a Python file, notebook or zip or tar archive")
    if lab is None:
        raise IntakeError(f"{path}: say which lab this is for with --lab")
    if is_archive(path.name):
        _refuse_class(path)
    if one_ending(path.name) == EXERCISE:
        return _one(path.parents[1] if named is not None else path.parent, [Place(path)], lab, course)
    return _one(path, [Place(path)], lab, course, without_ending(path.name))


def _refuse_class(path: Path) -> None:
    """Refuse an archive that holds the hand-ins of several students."""
    try:
        files = list_archive(single_file(path))
    except FileRefused:
        return  # said when it is read
    parts = [_without_labs(file.path) for file in files if file.path.name.lower() in EXERCISES]
    depth = min(map(len, parts), default=0)
    owners = {one[-1] for one in parts if len(one) == depth and one}
    if not parts:
        owners = {without_ending(file.path.name) for file in files if file.is_archive}
    for level in (0, 1):  # in the archive, or in the one folder in it
        download = recognise(
            path, sorted({one.path.parts[level] for one in files if len(one.path.parts) > level})
        )
        if download is not None:
            owners |= {owner.student for some in download.owners.values() for owner in some}
            break
    if len(owners) > 1:
        names = ", ".join(map(shown, sorted(owners)[:3])) + (", …" if len(owners) > 3 else "")
        raise IntakeError(f"{path}: holds several hand-ins ({names}): unpack it first, and grade the folder")


def _without_labs(path: PurePosixPath) -> tuple[str, ...]:
    """The folders of a path but for those that are named like a lab."""
    return tuple(part for part in path.parts[:-1] if not re.match(r"\d\d_", part))


def _is_class(path: Path, course: Course, lab: Lab | None) -> bool:
    """Whether it is a bulk download, or two or more entries look like a student's; whatever else is there."""
    labs = [lab] if lab is not None else list(course.labs)
    if recognise(path, [one.name for one in sorted_out(path, course, None)[0]]) is not None:
        return True
    if len(list(islice(_student_like(path, course, labs), 2))) > 1:
        return True
    files = [one for one in entries_of(path) if is_readable(one.name) and not one.is_dir()]
    if any(_is_exercise(one, labs) for one in files):
        return False  # one hand-in with its helpers
    return len([one for one in files if _may_be_person(one) and not never_an_exercise(one.name)]) > 1


def _student_like(path: Path, course: Course, labs: list[Lab]) -> Iterator[Path]:
    for entry in entries_of(path):
        if is_noise(entry.name) or entry.is_symlink() or not _may_be_person(entry):
            continue
        if not entry.is_dir():
            if _is_exercise(entry, labs):
                yield entry
        elif lab_named(entry.name, course) is None and (
            has_exercise(entry) or lab_folders(entry, course) or _holds_exercise(entry, labs)
        ):
            yield entry


def _may_be_person(entry: Path) -> bool:
    words = re.findall(r"v\d+|[a-z]+|\d+", entry.stem.lower())
    return not any(NO_PERSON.fullmatch(word) for word in words[:1] + words[-1:])


def _holds_exercise(folder: Path, labs: list[Lab]) -> bool:
    return any(_is_exercise(one, labs) for one in entries_of(folder) if os.path.isfile(one))


def _is_exercise(path: Path, labs: list[Lab]) -> bool:
    """Whether a loose file, whatever its name, holds what a lab asks for."""
    if is_archive(path.name):
        try:
            return any(is_readable(file.path.name) for file in list_archive(single_file(path)))
        except FileRefused:
            return False
    if not is_readable(path.name) or never_an_exercise(path.name):
        return False
    return any(defines(single_file(path), lab) for lab in labs)


def _look(
    path: Path, course: Course, out: Path | None, settled: Settled, found: _Class, lab: str = ""
) -> None:
    """Add to `found` what lies in a folder of the class."""
    taken, others = sorted_out(path, course, out)
    download = recognise(path, [one.name for one in taken], [one.name for one in others])
    known = download.owners if download is not None else {}
    if download is not None:
        found.systems += [download.system] if download.system not in found.systems else []
        for missing in download.without:
            found.students.setdefault(missing.student, [])
            found.names[shown(missing.student)] = missing.names
    for entry in sorted([*taken, *(one for one in others if one.name in known)]):
        name = entry.name if is_folder(entry) else without_ending(entry.name)
        owners = _owners(entry, name, download, settled)
        if {entry.name, name, *(student for student, _ in owners)} & set(settled.ignore):
            found.ignored.append(entry.name)
            continue
        for student, owner in owners:
            found.students.setdefault(student, []).append(Place(entry, lab, owner))
            if owner is not None and owner.student == student:
                found.names[shown(student)] = owner.names
    for entry in others:
        if entry.name == SETTLED and not lab:
            continue
        if entry.name in settled.ignore:
            found.ignored.append(entry.name)
        elif entry.name not in known and not (entry.name == METADATA and known):
            found.not_taken.append(f"{shown(lab)}/{shown(entry.name)}" if lab else shown(entry.name))


def _owners(
    entry: Path, name: str, download: Download | None, settled: Settled
) -> list[tuple[str, Owner | None]]:
    """Whose an entry is: as `intake.toml` says, else as a bulk download's name says, else by its own name."""
    known = download.owners.get(entry.name, ()) if download is not None else ()
    for called in (entry.name, name):
        if settled.owners(called):
            return [(student, known[0] if known else None) for student in settled.owners(called)]
    found: list[tuple[str, Owner | None]] = []
    for owner in known:
        found += [(student, owner) for student in settled.owners(owner.student) or (owner.student,)]
    return found or [(name, None)]


def _named_apart(found: dict[str, list[Place]]) -> dict[str, list[Place]]:
    """The students by printable names; names that become the same text stay different students."""
    students: dict[str, list[Place]] = {}
    for raw in sorted(found, key=lambda raw: (shown(raw) != raw, raw)):
        name, number = shown(raw), 2
        while name in students:
            name, number = f"{shown(raw)} ({number})", number + 1
        students[name] = found[raw]
    return students
