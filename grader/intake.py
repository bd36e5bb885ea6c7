"""Find the exercise files in whatever was handed in: folders, single files, archives, notebooks.

Nothing of a submission is run, written or followed here; every size is bounded before it is read.
Every student gets a submission: with the text to judge, or with the one line that says why there is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

from grader.course import Course, CourseError, Lab
from grader.handins import FileRefused, HandIn, open_folder, open_path
from grader.sources import read_source

EXERCISE = "exercise.py"
HANDED_IN = (".py", ".ipynb", ".zip")
# At the top of a class these are the instructor's own files, not a student's.
NOT_STUDENTS = (".md", ".csv", ".toml", ".json", ".jsonl", ".yaml", ".yml", ".xlsx", ".sqlite", ".log")
NEVER_AN_EXERCISE = re.compile(r"(test_.*|.*_test|conftest|setup|solution|__init__|sitecustomize)\.py$", re.I)
MOST_LISTED = 4


class IntakeError(CourseError):
    """There is nothing to grade at a path; the text is one clear line."""


@dataclass(frozen=True)
class Submission:
    """What one student handed in for one lab.

    `source` is the text to judge, None if there is none; `message` is "" or one line that says what was
    unusual or why there is none. `withheld`: a person must first say which file counts.
    """

    student: str
    lab: str
    source: str | None
    message: str = ""
    withheld: bool = False


def find_submissions(path: Path, course: Course, lab: Lab | None = None) -> list[Submission]:
    """Return the submissions at `path`: one file, one student's folder, or a class of them, in order.

    Without `lab`, the labs are those that any student has a folder for, and every student has a submission
    for each. A path with nothing to grade is an IntakeError.
    """
    if path.is_symlink() or not path.exists():
        why = "is a link; give the file or folder itself" if path.is_symlink() else "no such file or folder"
        raise IntakeError(f"{path}: {why}")
    path = Path(os.path.abspath(path))
    if path.is_file():
        return [_single_file(path, course, lab)]
    named = _lab_named(path.name, course)
    if named is not None and lab in (None, named) and not _lab_folders(path, course):
        return [_submission(path.parent.name, named, [path])]
    if _is_one_student(path, course):
        students = {_shown(path.name): [path]}
    else:
        students = _students(path)
    labs = [lab] if lab is not None else _labs_seen(students, course)
    if not students:
        raise IntakeError(f"{path}: no submission here; a class holds one folder a student")
    if not labs:
        raise IntakeError(f"{path}: no folder is named like a lab; say which lab with --lab")
    ordered = sorted(students.items(), key=lambda item: (item[0].casefold(), item[0]))
    return [_submission(student, one, places) for student, places in ordered for one in labs]


def _single_file(path: Path, course: Course, lab: Lab | None) -> Submission:
    named = _lab_named(path.parent.name, course)
    lab = lab or named
    if path.suffix.lower() not in HANDED_IN:
        raise IntakeError(f"{path}: not a submission (a folder, or a file that ends in {', '.join(HANDED_IN)})")
    if lab is None and len(course.labs) == 1:
        lab = course.labs[0]
    if lab is None:
        raise IntakeError(f"{path}: say which lab this is for with --lab")
    if path.name != EXERCISE:
        student = path.stem
    else:
        student = path.parent.parent.name if named is not None else path.parent.name
    return _submission(_shown(student), lab, [path], name_matters=False)


def _is_one_student(path: Path, course: Course) -> bool:
    """Whether a folder is one student's: it has folders named like labs, or an exercise of its own.

    A stray exercise at the top of a class doesn't make the class one student.
    """
    if _lab_folders(path, course):
        return True
    if not (path / EXERCISE).is_file():
        return False
    others = [one for one in _folders(path) if (one / EXERCISE).is_file() or _lab_folders(one, course)]
    return len(others) < 2


def _students(path: Path) -> dict[str, list[Path]]:
    """The students of a class, each with the folder or files that bear the name."""
    students: dict[str, list[Path]] = {}
    for entry in sorted(path.iterdir()):
        if _is_noise(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if (entry / "gradebook.sqlite").exists():
                continue  # results of an earlier run, written into the class
            students.setdefault(_shown(entry.name), []).append(entry)
        elif entry.suffix.lower() not in NOT_STUDENTS and not entry.name.lower().startswith("readme"):
            students.setdefault(_shown(entry.stem), []).append(entry)
    return students


def _labs_seen(students: dict[str, list[Path]], course: Course) -> list[Lab]:
    folders = [one for places in students.values() for one in places if one.is_dir() and not one.is_symlink()]
    seen = {lab.name for folder in folders for lab in _lab_folders(folder, course)}
    labs = [lab for lab in course.labs if lab.name in seen]
    return list(course.labs) if not labs and len(course.labs) == 1 else labs


def _lab_named(name: str, course: Course) -> Lab | None:
    return next((lab for lab in course.labs if lab.name == name.lower()), None)


def _lab_folders(folder: Path, course: Course) -> list[Lab]:
    labs = [_lab_named(one.name, course) for one in _folders(folder)]
    return [lab for lab in labs if lab is not None]


def _folders(path: Path) -> list[Path]:
    return [one for one in sorted(path.iterdir()) if one.is_dir() and not one.is_symlink() and not _is_noise(one.name)]


def _is_noise(name: str) -> bool:
    return name.startswith((".", "__")) or name in ("Thumbs.db", "desktop.ini")


def _shown(name: str) -> str:
    """A file name as text: what isn't valid UTF-8 on disk can't be stored or printed."""
    return os.fsencode(name).decode("utf-8", "replace")


@dataclass(frozen=True)
class _Choice:
    """The file that counts, or the line that says why none does."""

    file: HandIn | None
    message: str = ""
    withheld: bool = False


def _submission(student: str, lab: Lab, places: list[Path], *, name_matters: bool = True) -> Submission:
    """Read what a student has at `places`, for one lab."""
    try:
        files = _gather(places, lab)
        choice = _choose(files, lab, name_matters)
        if choice.file is None:
            return Submission(student, lab.name, None, choice.message, choice.withheld)
        source, notes = read_source(choice.file)
    except FileRefused as error:
        return Submission(student, lab.name, None, str(error))
    return Submission(student, lab.name, source, "; ".join(filter(None, [choice.message, *notes])))
