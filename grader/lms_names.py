"""Whose a file is by the name that Canvas, Moodle, Gradescope or GitHub Classroom gave it in a bulk download.

A form is recognised by the names of a class as a whole; then the number that the system gave a person is who
it is, and what the student called the file is what comes after.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from grader.platforms import CANVAS_ID, FULL_NAME, IDENTIFIER

METADATA = "submission_metadata.yml"
METADATA_BYTES = 64 << 20
TOO_FAR = " " * 7  # indentation of what a student printed, and the like
ODD_NAMES = 10  # of a class, one in so many may have another name and lies there all the same

CANVAS = re.compile(
    r"(?P<name>[^\W_]+)_(?P<late>LATE_)?(?P<id>\d+)_((?P<file>\d+)_(?P<called>.+)|text\.html)"
)
AGAIN = re.compile(r"-(\d{1,3})(?=\.\w+$|$)")  # what Canvas puts behind the name of a file handed in again
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?P<kind>[a-z]+)_?(?P<called>.*)")
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)")
LOGIN = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*-?")


@dataclass(frozen=True)
class Owner:
    """Whose an entry of a class is, and what its name says of the hand-in.

    Of entries with the same `slot` (unless it is "") only the one with the highest `order` counts.
    `names` are what a roster may call the person; `submitted_from` says where the time is from, or why there
    is none. `columns` is what the system's own tables say of the person.
    """

    student: str
    names: tuple[str, ...]
    called: PurePosixPath | None = None  # the file as the student named it
    slot: str = ""
    order: tuple[float, ...] = ()
    late: bool = False
    submitted: datetime | None = None
    submitted_from: str = ""
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Download:
    """A class as a system wrote it: its name, who each entry is from, and who has none."""

    system: str
    owners: Mapping[str, tuple[Owner, ...]]
    without: tuple[Owner, ...] = ()


def recognise(folder: Path, names: Sequence[str], others: Sequence[str] = ()) -> Download | None:
    """Return the form that the names of a class have, if it is one and nearly all of them fit.

    Of the `others`, which would not be students by themselves, those that fit belong to it as well.
    """
    for read in (_canvas, _moodle, _gradescope, _github):
        fit = read(folder, names)
        if fit.owners and (len(names) - len(fit.owners)) * ODD_NAMES <= len(names):
            return read(folder, [*names, *others])
    return None


def latest(owners: Iterable[Owner | None]) -> list[bool]:
    """Say of each entry of one student whether it counts: of those in one slot only the latest does."""
    owners = list(owners)
    best: dict[str, int] = {}
    for index, owner in enumerate(owners):
        if owner is not None and owner.slot:
            before = owners[best[owner.slot]] if owner.slot in best else None
            if before is None or owner.order >= before.order:
                best[owner.slot] = index
    return [
        owner is None or not owner.slot or best[owner.slot] == index for index, owner in enumerate(owners)
    ]


def _canvas(folder: Path, names: Sequence[str]) -> Download:
    found: dict[str, tuple[Owner, ...]] = {}
    for name in names:
        match = CANVAS.fullmatch(name)
        if match is None:
            continue
        called, again = match["called"] or "text.html", AGAIN.search(match["called"] or "")
        plain = AGAIN.sub("", called) if again else called
        owner = Owner(
            student=f"{match['name']} ({match['id']})",
            names=(match["id"], match["name"]),
            called=PurePosixPath(plain.replace("\\", "_")),
            slot=plain.lower(),
            order=(int(again[1]) if again else 0, int(match["file"] or 0)),
            late=match["late"] is not None,
            columns=((CANVAS_ID, match["id"]),),
        )
        found[name] = (owner,)
    return Download("Canvas", found)


def _moodle(folder: Path, names: Sequence[str]) -> Download:
    found: dict[str, tuple[Owner, ...]] = {}
    for name in names:
        match = MOODLE.fullmatch(name)
        if match is not None:
            person, number = match["name"], match["id"]
            called = PurePosixPath(match["called"]) if match["called"] else None
            participant = f"Participant {number}"
            columns = ((IDENTIFIER, participant), *([(FULL_NAME, person)] if person != "Participant" else []))
            found[name] = (
                Owner(f"{person} ({number})", (participant, person), called, columns=tuple(columns)),
            )
    return Download("Moodle", found)


def _gradescope(folder: Path, names: Sequence[str]) -> Download:
    """By the file that says who handed in each submission: alone, or several of them together."""
    if METADATA not in _names_in(folder) or not any(GRADESCOPE.fullmatch(name) for name in names):
        return Download("Gradescope", {})
    said = _metadata(folder / METADATA)
    owners = {name: tuple(said[name]) for name in names if name in said}
    here = {owner.student for some in owners.values() for owner in some}
    missing = {owner.student: owner for some in said.values() for owner in some if owner.student not in here}
    return Download("Gradescope", owners, tuple(missing.values()))


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _metadata(path: Path) -> dict[str, list[Owner]]:
    """The submitters in Gradescope's file, of whose YAML only this much is read, and line by line:

        submission_123456:
          :submitters:
          - :name: Ada Lovelace
            :sid: '7'
            :email: ada@example.org
          :created_at: 2024-05-01 10:00:00 Z

    Whatever else is in it (printed output of a student among it) is indented further, or has another key.
    """
    people: dict[str, list[dict[str, str]]] = {}
    times: dict[str, datetime] = {}
    submission = section = ""
    for line in _lines(path):
        top = re.fullmatch(r"(submission_\d+):\s*", line)
        if top or not line.startswith((" ", "-")):
            submission, section = (top[1] if top else ""), ""
            continue
        key = re.fullmatch(r"  :(\w+):(?: (.*))?", line)
        if key:
            section, value = key[1], key[2] or ""
            if section == "created_at" and submission:
                times |= _time(submission, value)
        elif submission and section == "submitters":
            item = re.fullmatch(r" {2,4}(- |  ):(name|sid|email): (.*)", line)
            if item:
                if item[1] == "- " or submission not in people:
                    people.setdefault(submission, []).append({})
                people[submission][-1][item[2]] = _scalar(item[3])
    return {
        name: [_submitter(name, person, times.get(name)) for person in some] for name, some in people.items()
    }


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file but for those that are indented too far; none of a link or a huge file."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > METADATA_BYTES:
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.startswith(TOO_FAR):
                    yield line.rstrip("\n")


def _scalar(text: str) -> str:
    text = text.strip()
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text.strip('"')
    return text[1:-1].replace("''", "'") if text.startswith("'") and text.endswith("'") else text


def _time(submission: str, value: str) -> dict[str, datetime]:
    found = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)? ?(Z|[+-]\d\d:?\d\d)?", _scalar(value)
    )
    if not found:
        return {}
    try:
        zone = "+00:00" if found[4] in (None, "Z") else found[4]
        return {submission: datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}").astimezone(UTC)}
    except (ValueError, OverflowError):
        return {}


def _submitter(submission: str, person: dict[str, str], when: datetime | None) -> Owner:
    ids = [person[key] for key in ("sid", "email") if person.get(key)] or [submission]
    name = person.get("name", "")
    return Owner(
        student=f"{name} ({ids[0]})" if name else ids[0],
        names=tuple(filter(None, [*ids, name])),
        slot="submission",
        order=(when.timestamp() if when else 0.0, float(submission.rpartition("_")[2])),
        submitted=when,
        submitted_from="Gradescope's metadata" if when else "",
    )


def _github(folder: Path, names: Sequence[str]) -> Download:
    """Checkouts ASSIGNMENT-LOGIN: all names begin with the assignment. Nothing of git is run or read."""
    checkouts = [name for name in names if os.path.lexists(folder / name / ".git")]
    low, high = min(checkouts, default=""), max(checkouts, default="")
    same = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    prefix = low[:same].rpartition("-")[0]
    if len(checkouts) < 2 or not prefix:
        return Download("GitHub Classroom", {})
    logins = {name: name[len(prefix) + 1 :] for name in checkouts}
    return Download(
        "GitHub Classroom",
        {
            name: (Owner(login, (login,), submitted_from="a checkout does not say when it was pushed"),)
            for name, login in logins.items()
            if LOGIN.fullmatch(login)
        },
    )
