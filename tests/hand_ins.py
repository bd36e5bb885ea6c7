"""What a class hands in, written down for tests of the intake."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from grader.course import Course, load_course
from grader.intake import Submission, find_submissions
from tests.tiny_course import LAB_TOML, SOLUTION

LAB = "01_tiny"
RIGHT = SOLUTION
OTHER = "def double(x):\n    return 3 * x\n"


def put(path: Path, data: str | bytes = RIGHT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert not path.is_symlink(), f"{path}: a test would write through a link"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def zipped(entries: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(entries: Mapping[str, str | bytes], packed: str = "", mtime: int = 0) -> bytes:
    """A tar archive; `packed` is "gz", "bz2", "xz" or nothing."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{packed}") as archive:  # type: ignore[call-overload]
        for name, data in entries.items():
            content = data.encode() if isinstance(data, str) else data
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), mtime
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def tarred_thing(name: str, kind: bytes, target: str = "") -> bytes:
    """A tar archive of one entry that is no file: a link, a pipe, a device."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, target
        archive.addfile(entry)
    return buffer.getvalue()


def notebook(*cells: str | list[str]) -> str:
    code: list[object] = [
        {"cell_type": "code", "source": cell, "outputs": [], "metadata": {}} for cell in cells
    ]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "markdown", "source": "# Words"}, *code]})


def only(group: Path, course: Course) -> Submission:
    (submission,) = find_submissions(group, course, course.labs[0]).submissions
    assert "\n" not in submission.message
    return submission


def with_second_lab(course: Course) -> Course:
    put(course.root / "labs" / "02_next" / "lab.toml", LAB_TOML)
    return load_course(course.root)
