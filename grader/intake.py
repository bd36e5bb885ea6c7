"""Find the exercise files in whatever was handed in: folders, single files, archives, notebooks.

Nothing of a submission is run, written or followed here; every size is bounded before it is read.
Every student gets a submission: with the text to judge, or with the one line that says why there is none.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from grader.course import Course, Lab
from grader.handins import FileRefused, HandIn, list_archive, list_folder, shown, single_file
from grader.sources import read_source
from grader.students import (
    ARCHIVE,
    EXERCISE,
    EXERCISES,
    NEVER_AN_EXERCISE,
    OTHER_ARCHIVE,
    READABLE,
    IntakeError,
    Place,
    defines,
    find_students,
    lab_folders,
)

LAB_FOLDER = re.compile(r"(\d\d)_")
MOST_ARCHIVES = 3  # opened for one student
MOST_NESTED = 2  # archives in archives
MOST_LISTED = 4

__all__ = ["Intake", "IntakeError", "Submission", "find_submissions"]


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


@dataclass(frozen=True)
class Intake:
    """The submissions at a path, in order, and a line on each thing there that is none."""

    submissions: list[Submission]
    notes: tuple[str, ...] = ()


def find_submissions(
    path: Path, course: Course, lab: Lab | None = None, *, out: Path | None = None
) -> Intake:
    """Return the submissions at `path`: one file, one student's folder, or a class of them, in order.

    Without `lab`, the labs are those that any student has a folder for, and every student has a submission
    for each. What the grader writes into `out` is never a submission.
    A path with nothing to grade is an IntakeError.
    """
    try:
        if path.is_symlink() and path.is_file():
            raise IntakeError(f"{path}: is a link; give the file itself")
        if not path.exists():
            raise IntakeError(f"{path}: no such file or folder")
        return _find(path, course, lab, out)
    except OSError as error:
        raise IntakeError(f"{path}: can't be read ({error.strerror})") from None


def _find(path: Path, course: Course, lab: Lab | None, out: Path | None) -> Intake:
    path = Path(os.path.abspath(path))
    roster = find_students(path, course, lab, None if out is None else _beside(out, path))
    if not roster.students:
        raise IntakeError(f"{path}: no submission here; a class holds one folder a student")
    labs = [roster.lab] if roster.lab is not None else _labs_seen(roster.students, course)
    if not labs:
        raise IntakeError(f"{path}: no folder is named like a lab; say which lab with --lab")
    ordered = sorted(roster.students.items(), key=lambda item: (item[0].casefold(), item[0]))
    only_inside = len(labs) > 1  # a loose file can't belong to several labs
    notes = [f"not taken for students: {', '.join(roster.not_taken)}"] if roster.not_taken else []
    return Intake(
        [_submission(name, one, places, only_inside) for name, places in ordered for one in labs],
        tuple(notes),
    )


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


def _submission(student: str, lab: Lab, places: list[Place], only_inside: bool = False) -> Submission:
    """Read what a student has at `places` for one lab."""
    try:
        return _read(student, lab, places, only_inside)
    except FileRefused as error:
        return Submission(student, lab.name, None, str(error))
    except OSError as error:
        return Submission(student, lab.name, None, f"{student}: can't be read ({error.strerror})")


def _read(student: str, lab: Lab, places: list[Place], only_inside: bool) -> Submission:
    everything: list[HandIn] = []
    loose: list[HandIn] = []  # files beside a folder of the same name
    remarks: list[str] = []
    for place in places:
        listed, remark = _list_place(place, lab)
        everything += listed
        remarks += remark
        loose += listed if len(places) > 1 and place.path.is_file() else []
    everything, files = _unpacked(everything, lab, only_inside)
    candidates = _candidates(files, lab)
    if not candidates:
        return Submission(student, lab.name, None, "; ".join([_nothing_found(lab, everything), *remarks]))
    chosen = _choose(candidates, lab)
    if chosen is None:
        message = f"several files may be the exercise: {_listed(candidates)}"
        return Submission(student, lab.name, None, message, withheld=True)
    source, notes = read_source(chosen)
    if _place_in_lab(chosen) not in EXERCISES:
        notes.insert(0, f"taken from {chosen.label}")
    unused = [file for file in files if _is_candidate(file) or file.suffix == ARCHIVE]
    unused = [file for file in unused if file.path.name != "notebook.ipynb"]  # the lab's own
    unused = [file for file in unused + [one for one in loose if one not in unused] if file is not chosen]
    if unused:
        notes.append(f"not used: {_listed(unused)}")
    return Submission(student, lab.name, source, "; ".join(notes + remarks))


def _list_place(place: Place, lab: Lab) -> tuple[list[HandIn], list[str]]:
    """The files at a place, and what is to say about them."""
    path, remarks = place.path, []
    if path.is_symlink():
        raise FileRefused(f"{shown(path.name)} is a link, and links are refused: hand in the file itself")
    if path.is_dir():
        try:
            files = list_folder(path)
        except (FileRefused, OSError) as error:
            files = _promised(path, lab)
            if not files:
                raise
            why = error.strerror if isinstance(error, OSError) else error
            remarks.append(f"only {files[0].label} was looked at ({why})")
    else:
        # A file that bears the student's name stands for the exercise itself.
        suffix = path.suffix.lower()
        files = [single_file(path, PurePosixPath(f"exercise{suffix}") if suffix in READABLE else None)]
    return [replace(file, path=PurePosixPath(place.lab) / file.path) for file in files], remarks


def _promised(folder: Path, lab: Lab) -> list[HandIn]:
    """The exercise at one of the places where it belongs, in a folder that can't be listed."""
    inside = folder / lab.name
    for one in [folder] if inside.is_symlink() else [inside, folder]:
        for name in EXERCISES:
            if os.path.isfile(one / name):
                path = PurePosixPath((one / name).relative_to(folder))
                return [replace(single_file(one / name, path), label=shown(str(path)))]
    return []


def _unpacked(files: list[HandIn], lab: Lab, only_inside: bool) -> tuple[list[HandIn], list[HandIn]]:
    """All files, and those of the lab; archives are opened while there is no candidate beside them."""
    for _ in range(MOST_NESTED):
        archives = [file for file in _of_lab(files, lab) if file.suffix == ARCHIVE]
        if not archives or any(_is_candidate(file) for file in _of_lab(files, lab, only_inside)):
            break
        files = [file for file in files if file not in archives] + _open_archives(archives)
    return files, _of_lab(files, lab, only_inside)


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


def _candidates(files: list[HandIn], lab: Lab) -> list[HandIn]:
    """The files that may be the exercise; one with a name of another purpose only where there is no other."""
    candidates = [file for file in files if _is_candidate(file)]
    if candidates:
        return candidates
    python = [file for file in files if file.suffix in READABLE]
    return python if len(python) == 1 else [file for file in python if defines(file, lab)]


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
    return _only([file for file in candidates if defines(file, lab)])


def _only(files: list[HandIn]) -> HandIn | None:
    """The one file of a list; also the first of several with the same bytes."""
    if len(files) > 1 and len({file.read() for file in files}) > 1:
        return None
    return files[0] if files else None


def _nothing_found(lab: Lab, files: list[HandIn]) -> str:
    if not files:
        return f"nothing was handed in for {lab.name}"
    packed = [file for file in files if OTHER_ARCHIVE.search(file.path.name)]
    if packed:
        return f"only .zip archives can be read; found {_listed(packed)}"
    python = [file for file in files if file.suffix in READABLE]
    if python:
        return f"no file that is clearly the exercise for {lab.name}; found {_listed(python)}"
    return f"no Python file, notebook or zip archive for {lab.name}; found {_listed(files)}"


def _listed(files: list[HandIn]) -> str:
    rest = len(files) - MOST_LISTED
    return ", ".join(file.label for file in files[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")
