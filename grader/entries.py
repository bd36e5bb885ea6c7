"""What lies in the folder of a class: the students' folders and files by name, and what is nobody's."""

from __future__ import annotations

import os
import re
from pathlib import Path

from grader.course import Course, Lab
from grader.handins import (
    ARCHIVE,
    OTHER_ARCHIVE,
    READABLE,
    is_archive,
    is_noise,
    is_readable,
    one_ending,
    plain_name,
)

EXERCISE = "exercise.py"
EXERCISES = (EXERCISE, "exercise.ipynb")
# At the top of a class these are the instructor's own files, not a student's.
NOT_STUDENTS = (
    *(".md", ".csv", ".toml", ".json", ".jsonl", ".yaml", ".yml", ".xlsx", ".xls", ".ods", ".html", ".log"),
    *(".sqlite", ".sqlite-wal", ".sqlite-shm"),
)
NOT_STUDENT_NAMES = ("readme", "roster", "instructions", ".", "__", "~$")
# What a student's file may end with; anything else after a dot is a part of the name ("j.smith").
ENDINGS = (
    *READABLE,
    *(".pdf", ".docx", ".doc", ".odt", ".rtf", ".txt", ".py~", ".pyc", ".png", ".jpg"),
)
NOISE_FILES, NOISE_FOLDERS = (".DS_Store", "Thumbs.db", "desktop.ini"), ("__MACOSX", ".git")
RESULTS = (
    *("results.jsonl", "marks.csv", "canvas.csv", "moodle.csv", "junit.xml", "report.html"),
    *("students", "gradescope", "shards", "gradebook.sqlite"),
    *("gradebook.sqlite-wal", "gradebook.sqlite-shm", "gradebook.sqlite-journal"),
)


def lab_named(name: str, course: Course) -> Lab | None:
    """The lab that a folder of this name is for."""
    return next((lab for lab in course.labs if lab.name == name.lower()), None)


def lab_folders(folder: Path, course: Course) -> list[Path]:
    """The folders in `folder` that bear a lab's name."""
    return [one for one in _folders(folder) if lab_named(one.name, course) is not None]


def sorted_out(path: Path, course: Course, out: Path | None) -> tuple[list[Path], list[Path]]:
    """What lies in a class: the students' folders and files by their own names, and the rest."""
    taken: list[Path] = []
    others: list[Path] = []
    for entry in entries_of(path):
        if _is_silent(entry) or _is_result(entry, out):
            continue
        is_students = _is_students_folder(entry, course) if is_folder(entry) else _is_students_file(entry)
        (taken if is_students else others).append(entry)
    return taken, others


def has_exercise(folder: Path) -> bool:
    """Whether an exercise lies right in a folder."""
    return any(plain_name(one.name) in EXERCISES and os.path.isfile(one) for one in entries_of(folder))


def _is_silent(entry: Path) -> bool:
    """Whether a system put it there, and nothing of a person is in it."""
    if entry.name.startswith("._"):
        return True
    return entry.name in (NOISE_FOLDERS if is_folder(entry) else NOISE_FILES)


def _is_result(entry: Path, out: Path | None) -> bool:
    """Whether the grader wrote it, or will: `out`, what lies in it, a folder that leads only there."""
    if out is None:
        return False
    if entry == out:
        return True
    if entry.parent == out:
        return entry.name in RESULTS or bool(re.fullmatch(r"\..*\.\d+\.tmp", entry.name))
    return entry in out.parents and all(_is_result(one, out) for one in entries_of(entry))


def _is_students_folder(folder: Path, course: Course) -> bool:
    name = folder.name.lower()
    if lab_named(name, course) is not None or name == ".ipynb_checkpoints":
        return False
    tool = os.path.exists(folder / "pyvenv.cfg")  # Python's own folder, whose files nobody wrote
    suspect = tool or is_noise(folder.name) or any(os.path.exists(folder / one) for one in RESULTS)
    if not suspect or has_exercise(folder) or lab_folders(folder, course):
        return True
    return not tool and any(_is_readable(one.name) for one in entries_of(folder))


def _is_students_file(entry: Path) -> bool:
    if _is_readable(entry.name):
        return one_ending(entry.name).lower() not in EXERCISES  # beside students', it is the stub or a stray
    return entry.suffix.lower() not in NOT_STUDENTS and not entry.name.lower().startswith(NOT_STUDENT_NAMES)


def _is_readable(name: str) -> bool:
    return is_readable(name) or is_archive(name)


def without_ending(name: str) -> str:
    """The name of a file without what says its kind: "j.smith.tar.gz" is of j.smith."""
    name = one_ending(name)
    shorter = OTHER_ARCHIVE.sub("", ARCHIVE.sub("", name))
    path = Path(name)
    return path.stem if shorter == name and path.suffix.lower() in ENDINGS else shorter


def is_folder(path: Path) -> bool:
    """Whether it is a folder of its own, no link to one."""
    return os.path.isdir(path) and not path.is_symlink()


def entries_of(folder: Path) -> list[Path]:
    """What lies in a folder, in order; nothing if it can't be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # a student's folder that can't be read is reported when it is its turn


def _folders(path: Path) -> list[Path]:
    return [one for one in entries_of(path) if is_folder(one) and not is_noise(one.name)]
