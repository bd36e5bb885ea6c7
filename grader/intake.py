"""Find the exercise files in whatever was handed in: folders, single files, archives, notebooks.

Nothing of a submission is run, written or followed here; every size is bounded before it is read.
Every student gets a submission: with the text to judge, or with the one line that says why there is none.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from grader.course import Course, CourseError, Lab
from grader.handins import FileRefused, HandIn, is_noise, list_archive, list_folder, shown, single_file
from grader.sources import read_source

EXERCISE = "exercise.py"
READABLE = (".py", ".ipynb")
ARCHIVE = ".zip"
# At the top of a class these are the instructor's own files, not a student's.
NOT_STUDENTS = (".md", ".csv", ".toml", ".json", ".jsonl", ".yaml", ".yml", ".xlsx", ".sqlite", ".log")
NEVER_AN_EXERCISE = re.compile(
    r"(test_.*|.*_test|conftest|setup|solution|__init__|sitecustomize)\.py", re.IGNORECASE
)
LAB_FOLDER = re.compile(r"(\d\d)_")
MOST_ARCHIVES = 3  # opened for one student
MOST_NESTED = 2  # archives in archives
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
    if not path.exists():
        raise IntakeError(f"{path}: no such file or folder")
    if path.is_symlink() and path.is_file():
        raise IntakeError(f"{path}: is a link; give the file itself")
    try:
        return _find(path, course, lab)
    except OSError as error:
        raise IntakeError(f"{path}: can't be read ({error.strerror})") from None


def _find(path: Path, course: Course, lab: Lab | None) -> list[Submission]:
    path = Path(os.path.abspath(path))
    if path.is_file():
        return [_single_file(path, course, lab)]
    named = _lab_named(path.name, course)
    is_class = len(_exercise_folders(path, course)) > 1
    if named is not None and lab in (None, named) and not is_class and not _lab_folders(path, course):
        return [_submission(shown(path.parent.name), named, [path])]
    if not is_class and (_lab_folders(path, course) or (path / EXERCISE).is_file()):
        students = {shown(path.name): [path]}
    else:
        students = _students(path)
        lab = lab or named
    if not students:
        raise IntakeError(f"{path}: no submission here; a class holds one folder a student")
    labs = [lab] if lab is not None else _labs_seen(students, course)
    if not labs:
        raise IntakeError(f"{path}: no folder is named like a lab; say which lab with --lab")
    ordered = sorted(students.items(), key=lambda item: (item[0].casefold(), item[0]))
    only_inside = len(labs) > 1  # a loose file can't belong to several labs
    return [_submission(name, one, places, only_inside) for name, places in ordered for one in labs]


def _single_file(path: Path, course: Course, lab: Lab | None) -> Submission:
    named = _lab_named(path.parent.name, course)
    lab = lab or named or (course.labs[0] if len(course.labs) == 1 else None)
    if path.suffix.lower() not in (*READABLE, ARCHIVE):
        raise IntakeError(f"{path}: not a Python file, notebook or zip archive")
    if lab is None:
        raise IntakeError(f"{path}: say which lab this is for with --lab")
    student = path.stem
    if path.name == EXERCISE:
        student = path.parents[1].name if named is not None else path.parent.name
    return _submission(shown(student), lab, [path])


def _exercise_folders(path: Path, course: Course) -> list[Path]:
    """Folders at `path` that look like a student's; two or more make a class, whatever else lies there."""
    return [one for one in _folders(path) if os.path.isfile(one / EXERCISE) or _lab_folders(one, course)]


def _students(path: Path) -> dict[str, list[Path]]:
    """The students of a class, each with the folders and files that bear the name."""
    students: dict[str, list[Path]] = {}
    for entry in sorted(path.iterdir()):
        if is_noise(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if not (entry / "gradebook.sqlite").exists():  # else results, written into the class itself
                students.setdefault(shown(entry.name), []).append(entry)
        elif entry.suffix.lower() not in NOT_STUDENTS and not entry.name.lower().startswith("readme"):
            students.setdefault(shown(entry.stem), []).append(entry)
    return students


def _labs_seen(students: dict[str, list[Path]], course: Course) -> list[Lab]:
    folders = [one for places in students.values() for one in places if one.is_dir() and not one.is_symlink()]
    seen = {lab.name for folder in folders for lab in _lab_folders(folder, course)}
    if not seen and len(course.labs) == 1:
        return list(course.labs)
    return [lab for lab in course.labs if lab.name in seen]


def _lab_named(name: str, course: Course) -> Lab | None:
    return next((lab for lab in course.labs if lab.name == name.lower()), None)


def _lab_folders(folder: Path, course: Course) -> list[Lab]:
    labs = [_lab_named(one.name, course) for one in _folders(folder)]
    return [lab for lab in labs if lab is not None]


def _folders(path: Path) -> list[Path]:
    try:
        found = [one for one in sorted(path.iterdir()) if one.is_dir() and not one.is_symlink()]
    except PermissionError:
        return []  # a student's folder that can't be read is reported when it is its turn
    return [one for one in found if not is_noise(one.name)]


def _submission(student: str, lab: Lab, places: list[Path], only_inside: bool = False) -> Submission:
    """Read what a student has at `places` for one lab."""
    try:
        return _read(student, lab, places, only_inside)
    except FileRefused as error:
        return Submission(student, lab.name, None, str(error))
    except OSError as error:
        return Submission(student, lab.name, None, f"{shown(student)}: can't be read ({error.strerror})")


def _read(student: str, lab: Lab, places: list[Path], only_inside: bool) -> Submission:
    everything = [file for place in places for file in _list_place(place)]
    files = _of_lab(everything, lab, only_inside)
    for _ in range(MOST_NESTED):
        archives = [file for file in _of_lab(everything, lab) if file.suffix == ARCHIVE]
        if not archives or any(_is_candidate(file) for file in files):
            break
        everything = _open_archives(archives)
        files = _of_lab(everything, lab, only_inside)
    candidates = [file for file in files if _is_candidate(file)]
    if not candidates:
        return Submission(student, lab.name, None, _nothing_found(lab, everything))
    chosen = _choose(candidates, lab)
    if chosen is None:
        listed = _listed(candidates)
        return Submission(
            student, lab.name, None, f"several files may be the exercise: {listed}", withheld=True
        )
    source, notes = read_source(chosen)
    if _place_in_lab(chosen) not in (EXERCISE, "exercise.ipynb"):
        notes.insert(0, f"taken from {chosen.label}")
    unused = [
        file for file in files if file is not chosen and (_is_candidate(file) or file.suffix == ARCHIVE)
    ]
    unused = [file for file in unused if file.path.name != "notebook.ipynb"]  # the lab's own
    if unused:
        notes.append(f"not used: {_listed(unused)}")
    return Submission(student, lab.name, source, "; ".join(notes))


def _list_place(place: Path) -> list[HandIn]:
    if place.is_symlink():
        raise FileRefused(f"{shown(place.name)} is a link, and links are refused: hand in the file itself")
    if place.is_dir():
        return list_folder(place)
    # A file that bears the student's name stands for the exercise itself.
    suffix = place.suffix.lower()
    return [single_file(place, PurePosixPath(f"exercise{suffix}") if suffix in READABLE else None)]


def _open_archives(archives: list[HandIn]) -> list[HandIn]:
    if len(archives) > MOST_ARCHIVES:
        raise FileRefused(f"{len(archives)} archives and no {EXERCISE}: hand in one file")
    return [
        replace(file, path=archive.path.parent / file.path)
        for archive in archives
        for file in list_archive(archive)
    ]


def _of_lab(files: list[HandIn], lab: Lab, only_inside: bool = False) -> list[HandIn]:
    """The files in folders of this lab; without such folders, those that lie in no other lab's."""
    inside = [file for file in files if lab.number in _lab_numbers(file)]
    if inside or only_inside:
        return inside
    return [file for file in files if not _lab_numbers(file)]


def _lab_numbers(file: HandIn) -> list[str]:
    found = [LAB_FOLDER.match(part) for part in file.path.parts[:-1]]
    return [match[1] for match in found if match]


def _place_in_lab(file: HandIn) -> str:
    """A file's path without the lab's folder, where it belongs."""
    parts = file.path.parts
    return "/".join(parts[1:] if len(parts) > 1 and LAB_FOLDER.match(parts[0]) else parts)


def _is_candidate(file: HandIn) -> bool:
    return file.suffix in READABLE and not NEVER_AN_EXERCISE.fullmatch(file.path.name)


def _choose(candidates: list[HandIn], lab: Lab) -> HandIn | None:
    """The one file that is clearly the exercise: by its name, else since it alone defines what is asked."""
    named = [file for file in candidates if file.path.name.lower() == EXERCISE]
    if named:
        depth = min(len(file.path.parts) for file in named)
        return _only([file for file in named if len(file.path.parts) == depth])
    if len(candidates) == 1:
        return candidates[0]
    return _only([file for file in candidates if _defines(file, lab)])


def _only(files: list[HandIn]) -> HandIn | None:
    """The one file of a list; also the first of several with the same bytes."""
    if len(files) > 1 and len({file.read() for file in files}) > 1:
        return None
    return files[0] if files else None


def _defines(file: HandIn, lab: Lab) -> bool:
    names = {name.partition(".")[0] for step in lab.steps for name in step.todo}
    try:
        source, _ = read_source(file)
    except FileRefused:
        return False
    return any(re.search(rf"^\s*(?:def|class)\s+{re.escape(name)}\b", source, re.MULTILINE) for name in names)


def _nothing_found(lab: Lab, files: list[HandIn]) -> str:
    if not files:
        return f"nothing was handed in for {lab.name}"
    return f"no Python file, notebook or zip archive for {lab.name}; found {_listed(files)}"


def _listed(files: list[HandIn]) -> str:
    rest = len(files) - MOST_LISTED
    return ", ".join(file.label for file in files[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")
