"""What a class hands in, written down for tests of the intake."""

from __future__ import annotations

import io
import json
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
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def zipped(entries: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
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
