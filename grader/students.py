"""Who handed in: the students at a path, each with the folders and files that bear the name.

What lies at the top of a class is a student, or is listed as not taken for one; only noise and the results
of the grader itself are passed over in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from grader.course import Course, CourseError, Lab
from grader.handins import FileRefused, HandIn, is_noise, list_archive, shown, single_file
from grader.sources import read_source

EXERCISE = "exercise.py"
EXERCISES = (EXERCISE, "exercise.ipynb")
READABLE = (".py", ".ipynb")
ARCHIVE = ".zip"
# At the top of a class these are the instructor's own files, not a student's.
NOT_STUDENTS = (
    *(".md", ".csv", ".toml", ".json", ".jsonl", ".yaml", ".yml", ".xlsx", ".xls", ".ods", ".html", ".log"),
    *(".sqlite", ".sqlite-wal", ".sqlite-shm"),
)
NOT_STUDENT_NAMES = ("readme", "roster", "instructions", ".", "__", "~$")
# What a student's file may end with; anything else after a dot is a part of the name ("j.smith").
ENDINGS = (
    *READABLE,
    ARCHIVE,
    *(".pdf", ".docx", ".doc", ".odt", ".rtf", ".txt", ".py~", ".pyc", ".png", ".jpg"),
)
NOISE_FILES, NOISE_FOLDERS = (".DS_Store", "Thumbs.db", "desktop.ini"), ("__MACOSX", ".git")
RESULTS = (
    *("results.jsonl", "marks.csv", "report.html", "gradebook.sqlite"),
    *("gradebook.sqlite-wal", "gradebook.sqlite-shm", "gradebook.sqlite-journal"),
)
OTHER_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|gz|bz2|xz|zst|rar|7z)$", re.IGNORECASE)
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
    """A folder or file of a student; `lab` names the lab whose folder all of the class's files lie in."""

    path: Path
    lab: str = ""


@dataclass(frozen=True)
class Roster:
    """The students at a path, the lab if the path or the caller says which, and what was not taken."""

    students: dict[str, list[Place]]
    lab: Lab | None
    not_taken: tuple[str, ...] = ()


def find_students(path: Path, course: Course, lab: Lab | None, out: Path | None) -> Roster:
    """Return who is at `path`: one file, one student's folder, or a class of them.

    `out` is where results are written: what lies there is nobody's.
    """
    if path.is_file():
        return _of_file(path, course, lab)
    named = lab_named(path.name, course)
    own = [one for one in lab_folders(path, course) if lab in (None, lab_named(one.name, course))]
    is_class = _is_class(path, course, lab or named)
    if named is not None and lab in (None, named) and not is_class and not own:
        return Roster({shown(path.parent.name): [Place(path)]}, named)
    inside = [one for one in own if _is_class(one, course, lab_named(one.name, course))]
    if not is_class and not inside and (lab_folders(path, course) or _has_exercise(path)):
        return Roster({shown(path.name): [Place(path)]}, lab)
    found, not_taken = _class(path, course, out)
    for folder in inside:
        more, others = _class(folder, course, out, folder.name)
        for name, places in more.items():
            found.setdefault(name, []).extend(places)
        not_taken = [name for name in not_taken if name != shown(folder.name)]
        not_taken += [f"{shown(folder.name)}/{name}" for name in others]
    return Roster(_named_apart(found), lab or named, tuple(not_taken))


def lab_named(name: str, course: Course) -> Lab | None:
    return next((lab for lab in course.labs if lab.name == name.lower()), None)


def lab_folders(folder: Path, course: Course) -> list[Path]:
    """The folders in `folder` that bear a lab's name."""
    return [one for one in _folders(folder) if lab_named(one.name, course) is not None]


def defines(file: HandIn, lab: Lab) -> bool:
    """Whether a file defines something that the lab asks for."""
    names = {name.partition(".")[0] for step in lab.steps for name in step.todo}
    try:
        source, _ = read_source(file)
    except FileRefused:
        return False
    return any(re.search(rf"^\s*(?:def|class)\s+{re.escape(name)}\b", source, re.MULTILINE) for name in names)


def _of_file(path: Path, course: Course, lab: Lab | None) -> Roster:
    named = lab_named(path.parent.name, course)
    lab = lab or named or (course.labs[0] if len(course.labs) == 1 else None)
    if OTHER_ARCHIVE.search(path.name):
        raise IntakeError(f"{path}: only .zip archives can be read; unpack it and give the folder")
    if path.suffix.lower() not in (*READABLE, ARCHIVE):
        raise IntakeError(f"{path}: not a Python file, notebook or zip archive")
    if lab is None:
        raise IntakeError(f"{path}: say which lab this is for with --lab")
    if path.suffix.lower() == ARCHIVE:
        _refuse_class(path)
    student = path.stem
    if path.name == EXERCISE:
        student = path.parents[1].name if named is not None else path.parent.name
    return Roster({shown(student): [Place(path)]}, lab)


def _refuse_class(path: Path) -> None:
    """Refuse an archive that holds the hand-ins of several students."""
    try:
        files = list_archive(single_file(path))
    except FileRefused:
        return  # said when it is read
    parts = [_without_labs(file.path) for file in files if file.path.name.lower() in EXERCISES]
    depth = min(map(len, parts), default=0)
    owners = sorted({one[-1] for one in parts if len(one) == depth and one})
    if not parts:
        owners = sorted(file.path.stem for file in files if file.suffix == ARCHIVE)
    if len(owners) > 1:
        names = ", ".join(map(shown, owners[:3])) + (", …" if len(owners) > 3 else "")
        raise IntakeError(f"{path}: holds several hand-ins ({names}): unpack it first, and grade the folder")


def _without_labs(path: PurePosixPath) -> tuple[str, ...]:
    """The folders of a path but for those that are named like a lab."""
    return tuple(part for part in path.parts[:-1] if not re.match(r"\d\d_", part))


def _has_exercise(folder: Path) -> bool:
    return any(os.path.isfile(folder / name) for name in EXERCISES)


def _is_class(path: Path, course: Course, lab: Lab | None) -> bool:
    """Whether two or more entries look like a student's each, whatever else lies there."""
    labs = [lab] if lab is not None else list(course.labs)
    if len(list(islice(_student_like(path, course, labs), 2))) > 1:
        return True
    files = [one for one in _entries(path) if one.suffix.lower() in READABLE and not one.is_dir()]
    if any(_is_exercise(one, labs) for one in files):
        return False  # one hand-in with its helpers
    return (
        len([one for one in files if _may_be_person(one) and not NEVER_AN_EXERCISE.fullmatch(one.name)]) > 1
    )


def _student_like(path: Path, course: Course, labs: list[Lab]) -> Iterator[Path]:
    for entry in _entries(path):
        if is_noise(entry.name) or entry.is_symlink() or not _may_be_person(entry):
            continue
        if not entry.is_dir():
            if _is_exercise(entry, labs):
                yield entry
        elif lab_named(entry.name, course) is None and (
            _has_exercise(entry) or lab_folders(entry, course) or _holds_exercise(entry, labs)
        ):
            yield entry


def _may_be_person(entry: Path) -> bool:
    words = re.findall(r"v\d+|[a-z]+|\d+", entry.stem.lower())
    return not any(NO_PERSON.fullmatch(word) for word in words[:1] + words[-1:])


def _holds_exercise(folder: Path, labs: list[Lab]) -> bool:
    return any(_is_exercise(one, labs) for one in _entries(folder) if os.path.isfile(one))


def _is_exercise(path: Path, labs: list[Lab]) -> bool:
    """Whether a loose file, whatever its name, holds what a lab asks for."""
    if path.suffix.lower() == ARCHIVE:
        try:
            return any(file.suffix in READABLE for file in list_archive(single_file(path)))
        except FileRefused:
            return False
    if path.suffix.lower() not in READABLE or NEVER_AN_EXERCISE.fullmatch(path.name):
        return False
    return any(defines(single_file(path), lab) for lab in labs)


def _class(
    path: Path, course: Course, out: Path | None, lab: str = ""
) -> tuple[dict[str, list[Place]], list[str]]:
    """The students of a class by the name on disk, and what is none."""
    students: dict[str, list[Place]] = {}
    not_taken: list[str] = []
    for entry in sorted(path.iterdir()):
        if _is_silent(entry) or _is_result(entry, out):
            continue
        if _is_folder(entry):
            taken, name = _is_students_folder(entry, course), entry.name
        else:
            taken, name = _is_students_file(entry), _without_ending(entry.name)
        if taken:
            students.setdefault(name, []).append(Place(entry, lab))
        else:
            not_taken.append(shown(entry.name))
    return students, not_taken


def _is_silent(entry: Path) -> bool:
    """Whether a system put it there, and nothing of a person is in it."""
    if entry.name.startswith("._"):
        return True
    return entry.name in (NOISE_FOLDERS if _is_folder(entry) else NOISE_FILES)


def _is_result(entry: Path, out: Path | None) -> bool:
    """Whether the grader wrote it, or will: `out`, what lies in it, a folder that leads only there."""
    if out is None:
        return False
    if entry == out:
        return True
    if entry.parent == out:
        return entry.name in RESULTS or bool(re.fullmatch(r"\..*\.\d+\.tmp", entry.name))
    return entry in out.parents and all(_is_result(one, out) for one in _entries(entry))


def _is_students_folder(folder: Path, course: Course) -> bool:
    name = folder.name.lower()
    if lab_named(name, course) is not None or name == ".ipynb_checkpoints":
        return False
    tool = os.path.exists(folder / "pyvenv.cfg")  # Python's own folder, whose files nobody wrote
    suspect = tool or is_noise(folder.name) or any(os.path.exists(folder / one) for one in RESULTS)
    if not suspect or _has_exercise(folder) or lab_folders(folder, course):
        return True
    return not tool and any(one.suffix.lower() in (*READABLE, ARCHIVE) for one in _entries(folder))


def _is_students_file(entry: Path) -> bool:
    suffix = entry.suffix.lower()
    if suffix in (*READABLE, ARCHIVE):
        return entry.name.lower() not in EXERCISES  # beside students', it is the stub or a stray
    return suffix not in NOT_STUDENTS and not entry.name.lower().startswith(NOT_STUDENT_NAMES)


def _without_ending(name: str) -> str:
    shorter = OTHER_ARCHIVE.sub("", name)
    path = Path(name)
    return path.stem if shorter == name and path.suffix.lower() in ENDINGS else shorter


def _named_apart(found: dict[str, list[Place]]) -> dict[str, list[Place]]:
    """The students by printable names; names that become the same text stay different students."""
    students: dict[str, list[Place]] = {}
    for raw in sorted(found, key=lambda raw: (shown(raw) != raw, raw)):
        name, number = shown(raw), 2
        while name in students:
            name, number = f"{shown(raw)} ({number})", number + 1
        students[name] = found[raw]
    return students


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path) and not path.is_symlink()


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # a student's folder that can't be read is reported when it is its turn


def _folders(path: Path) -> list[Path]:
    return [one for one in _entries(path) if _is_folder(one) and not is_noise(one.name)]
