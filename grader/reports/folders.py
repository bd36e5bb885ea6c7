"""Report files on disk: each is whole or not there, and an earlier run's don't stay beside newer ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from grader.course import CourseError
from grader.files import write_atomically

LISTING = ".written-by-grader.json"  # the files that we wrote into a folder: only they are ever removed


def write_report(path: Path, content: bytes) -> None:
    """Write one file, unless it has this content already; CourseError, in one line, if that can't be done."""
    try:
        if not (path.is_file() and path.read_bytes() == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise CourseError(
            f"{path}: can't be written ({why}); mend that and write the reports again"
        ) from None


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write these files (path below the folder, content) and remove those that only earlier calls wrote.

    What somebody else has put into the folder stays.
    """
    before = _listed(folder)
    written = set()
    for name, content in files:
        write_report(folder / name, content)
        written.add(name)
    if not written and not before:
        return
    for name in before - written:
        with contextlib.suppress(OSError):  # gone already, or in use: it is tried again next time
            (folder / name).unlink()
            (folder / name).parent.rmdir()  # fails where something else lies in it
    left = {name for name in before - written if (folder / name).exists()}
    write_report(folder / LISTING, (json.dumps(sorted(written | left), indent=0) + "\n").encode())


def _listed(folder: Path) -> set[str]:
    """The files that were written into the folder before; none if the listing of them is damaged."""
    try:
        names = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        return {name for name in names if _stays_inside(PurePosixPath(name))}
    except (OSError, ValueError, TypeError):
        return set()


def _stays_inside(path: PurePosixPath) -> bool:
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)
