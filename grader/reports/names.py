"""Names of students' own files: safe on every system, one for each student, the same in every run."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

_PLAIN = re.compile(r"[a-z0-9_][a-z0-9._-]{0,59}")
_LIKE_OURS = re.compile(r"-[0-9a-f]{8}\Z")  # could be what another student's name was made into
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # Windows opens a device of this name
_MOST = 48


def file_names(students: Iterable[str]) -> dict[str, str]:
    """Student → name of a file without its ending.

    A plain lower-case name is kept. Any other is made plain and gets a part of its hash, so that it neither
    meets another student's name nor depends on who else is in the class.
    """
    return {student: _file_name(student) for student in students}


def _file_name(student: str) -> str:
    if _is_plain(student):
        return student
    folded = unicodedata.normalize("NFKD", student).encode("ascii", "ignore").decode().lower()
    word = re.sub(r"[^a-z0-9]+", "_", folded).strip("_")[:_MOST] or "student"
    return f"{word}-{hashlib.sha256(student.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _is_plain(student: str) -> bool:
    return bool(_PLAIN.fullmatch(student)) and not (
        student.endswith(".") or _LIKE_OURS.search(student) or _RESERVED.fullmatch(student)
    )
