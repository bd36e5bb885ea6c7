"""Which file of a hand-in is the exercise, and its text: one clear match, or a line that says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from grader.archives import list_archive
from grader.course import Lab
from grader.entries import EXERCISE, EXERCISES
from grader.given import UNCHANGED, is_beside, is_given
from grader.handins import (
    IN_ARCHIVE,
    ON_DISK,
    OTHER_ARCHIVE,
    FileRefused,
    HandIn,
    is_readable,
    list_folder,
    one_ending,
    plain_name,
    shown,
    single_file,
)
from grader.own_imports import imported_beside
from grader.settled import SETTLED
from grader.sources import read_source
from grader.students import Place, defines, never_an_exercise
from grader.syntax_notes import newer_python, syntax_note

LAB_FOLDER = re.compile(r"(\d\d)_")
MOST_ARCHIVES = 3  # opened for one student
MOST_NESTED = 2  # archives in archives
MOST_LISTED = 4


@dataclass(frozen=True)
class Picked:
    """The text of the exercise, or None; one line on it; when its file came, and what says so."""

    source: str | None
    message: str = ""
    withheld: bool = False
    submitted: datetime | None = None
    submitted_from: str = ""


def pick(places: list[Place], lab: Lab, settled: str, only_inside: bool) -> Picked:
    """Return what a student has at `places` for one lab; `settled` is the path that the instructor named.

    `only_inside`: only files in a folder of the lab belong to it. What is refused is FileRefused.
    """
    handed_in: list[HandIn] = []
    loose: list[HandIn] = []  # files beside a folder of the same name
    remarks: list[str] = []
    for place in places:
        listed, remark = _list_place(place, lab)
        handed_in += listed
        remarks += remark
        loose += listed if len(places) > 1 and place.path.is_file() else []
    if settled:
        return _settled(handed_in, lab, settled, remarks)
    everything, files = _unpacked(handed_in, lab, only_inside)
    remarks += _same_but_for_case(files)
    candidates = _candidates(files, lab)
    if not candidates:
        empty = f"{_listed(handed_in)}: no file in it" if handed_in and not everything else ""
        return Picked(None, "; ".join([empty or _nothing_found(lab, everything), *remarks]))
    given = [file for file in candidates if is_given(file, lab)]
    only_given = _only_given(candidates, lab)
    chosen = _choose(candidates if only_given else [file for file in candidates if file not in given], lab)
    if chosen is None:
        message = f"several files may be the exercise, settle it in {SETTLED}: {_listed(candidates)}"
        return Picked(None, "; ".join([message, *remarks]), withheld=True)
    unused = [file for file in files if file in candidates or _is_candidate(file) or file.is_archive]
    unused = [file for file in unused + [one for one in loose if one not in unused] if file is not chosen]
    unused = [replace(file, remark=UNCHANGED) if file in given else file for file in unused]
    unused = [file for file in unused if file.remark != UNCHANGED or not is_beside(file, lab)]
    if unused:
        remarks.insert(0, f"not used: {_listed(unused)}")
    try:
        return _picked(chosen, lab, remarks, [file for file in files if file is not chosen])
    except FileRefused as error:
        return Picked(None, "; ".join([str(error), *remarks]))


def _picked(chosen: HandIn, lab: Lab, remarks: list[str], beside: Sequence[HandIn] = ()) -> Picked:
    source, notes = read_source(chosen)
    if is_given(chosen, lab):
        notes.append(f"this is {UNCHANGED}")
    if _place_in_lab(chosen) not in EXERCISES:
        notes.insert(0, f"taken from {chosen.label}")
    notes += [f"it is {chosen.remark}" if chosen.remark else "", syntax_note(source)]
    message = "; ".join(filter(None, [*notes, imported_beside(source, beside, lab.rules.imports), *remarks]))
    return Picked(source, message, bool(newer_python(source)), chosen.modified, chosen.dated)


def _settled(files: list[HandIn], lab: Lab, wanted: str, remarks: list[str]) -> Picked:
    """The file that the instructor named, by its path in the hand-in or as the message listed it."""
    for depth in range(MOST_NESTED + 1):
        for file in files:
            if wanted in (str(file.path), _place_in_lab(file), file.label) and not file.is_archive:
                return _picked(
                    replace(file, path=PurePosixPath(EXERCISE).with_suffix(file.suffix)),
                    lab,
                    [f"taken from {file.label}, as {SETTLED} says", *remarks],
                )
        archives = [file for file in files if file.is_archive]
        if depth < MOST_NESTED and archives:
            files = [file for file in files if not file.is_archive] + _open_archives(archives)
    found = f"; found {_listed(files)}" if files else ""
    message = f"{SETTLED} names {shown(wanted)}, which is not in the hand-in{found}; correct it there"
    return Picked(None, "; ".join([message, *remarks]), withheld=True)


def _same_but_for_case(files: list[HandIn]) -> list[str]:
    """A remark where names would be one file on macOS or Windows."""
    seen: dict[str, HandIn] = {}
    same = []
    for file in files:
        other = seen.setdefault(str(file.path).casefold(), file)
        if other.path != file.path:
            same.append(f"{other.label} and {file.label}")
    return (
        [f"names that differ only in upper and lower case: {'; '.join(same[:MOST_LISTED])}"] if same else []
    )


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
        suffix = PurePosixPath(one_ending(path.name)).suffix.lower()
        called = place.owner.called if place.owner is not None else None
        stands = PurePosixPath(f"exercise{suffix}") if is_readable(path.name) else None
        files = [single_file(path, called or stands)]
    return [
        _dated(replace(file, path=PurePosixPath(place.lab) / file.path), place) for file in files
    ], remarks


def _dated(file: HandIn, place: Place) -> HandIn:
    """A file with the time that a bulk download gives it, or refuses to, in place of the disk's."""
    if place.owner is None or not place.owner.submitted_from:
        return file
    return replace(file, modified=place.owner.submitted, dated=place.owner.submitted_from)


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
    """All files, and those of the lab; archives are opened while nobody's work lies beside them."""
    for _ in range(MOST_NESTED):
        archives = [file for file in _of_lab(files, lab) if file.is_archive]
        candidates = [file for file in _of_lab(files, lab, only_inside) if _is_candidate(file)]
        if not archives or (candidates and not _only_given(candidates, lab)):
            break
        files = [file for file in files if file not in archives] + _open_archives(archives)
    return files, _of_lab(files, lab, only_inside)


def _open_archives(archives: list[HandIn]) -> list[HandIn]:
    if len(archives) > MOST_ARCHIVES:
        raise FileRefused(f"{len(archives)} archives and no {EXERCISE}: hand in one file")
    return [_unpacked_from(archive, file) for archive in archives for file in list_archive(archive)]


def _unpacked_from(archive: HandIn, file: HandIn) -> HandIn:
    """A file where its archive lies; its own time counts, unless a system says when the archive came."""
    file = replace(file, path=archive.path.parent / file.path)
    if file.modified is not None and archive.dated in (ON_DISK, IN_ARCHIVE):
        return file
    return replace(file, modified=archive.modified, dated=archive.dated)


def _of_lab(files: list[HandIn], lab: Lab, only_inside: bool = False) -> list[HandIn]:
    """The files in folders of this lab; where nobody worked in any, also those that lie in no other lab's."""
    inside = [file for file in files if lab.number in _lab_numbers(file)]
    if only_inside or (inside and not _only_given([file for file in inside if _is_candidate(file)], lab)):
        return inside
    return inside + [file for file in files if not _lab_numbers(file)]


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
    if candidates and not _only_given(candidates, lab):
        return candidates
    python = [file for file in files if is_readable(file.path.name) and file not in candidates]
    return candidates + [file for file in python if len([*candidates, *python]) == 1 or defines(file, lab)]


def _is_candidate(file: HandIn) -> bool:
    return is_readable(file.path.name) and not never_an_exercise(file.path.name)


def _only_given(candidates: list[HandIn], lab: Lab) -> bool:
    """Whether the exercise is here as it was given out, and nothing that could be a student's work on it."""
    return any(is_given(file, lab) for file in candidates) and not any(
        _may_be_work(file, lab) for file in candidates if not is_given(file, lab)
    )


def _may_be_work(file: HandIn, lab: Lab) -> bool:
    """Whether a file defines what is asked, or can't be read, which is then the thing to say."""
    try:
        read_source(file)
    except FileRefused:
        return True
    return defines(file, lab)


def _choose(candidates: list[HandIn], lab: Lab) -> HandIn | None:
    """The one file that is clearly the exercise: by its name, else since it alone defines what is asked."""
    named = [file for file in candidates if plain_name(file.path.name) == EXERCISE]
    if named:
        depth = min(len(file.path.parts) for file in named)
        nearest = [file for file in named if len(file.path.parts) == depth]
        return _only(sorted(nearest, key=lambda file: file.path.name.lower() != EXERCISE))
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
    packed = [file for file in files if OTHER_ARCHIVE.search(file.path.name) and not file.is_archive]
    if packed:
        return f"only .zip and .tar archives can be read; found {_listed(packed)}: make a zip archive"
    python = [file for file in files if is_readable(file.path.name)]
    if python:
        return f"no file that is clearly the exercise for {lab.name}; found {_listed(python)}"
    deeper = [file for file in files if file.is_archive]
    if deeper:
        return f"{_listed(deeper)}: packed more than {MOST_NESTED} times; hand in {EXERCISE} itself"
    return f"not a Python file: {_listed(files)}; hand in {EXERCISE} for {lab.name}"


def _listed(files: list[HandIn]) -> str:
    rest = len(files) - MOST_LISTED
    named = [file.label + (f" ({file.remark})" if file.remark else "") for file in files[:MOST_LISTED]]
    return ", ".join(named) + (f" and {rest} more" if rest > 0 else "")
