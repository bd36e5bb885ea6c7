"""Submissions that resemble each other: for a person to look at, never a reason for a mark."""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np

TOKENS = 25  # characters of normalised code in a row that count as alike; shorter runs are the language's own
ENOUGH = 0.8  # of the smaller submission's own code; short functions are alike without any copying
FEWEST = 200  # fingerprints of own code: with fewer of them, a likeness says nothing
BLOCK = 4096  # fingerprints that are counted at a time, so that a class of a thousand fits into memory
MOST = 100  # pairs that are listed, the most alike first


@dataclass(frozen=True)
class Pair:
    """Two students' submissions, and which share (0 to 1) of the smaller one's own code both have."""

    one: str
    other: str
    score: float
    identical: bool = False  # the same text but for blanks at the ends of lines
    lab: str = ""


def how_compared() -> str:
    """Return the line that says what was not compared, "" if nothing was left out."""
    if find_spec("copydetect"):
        return ""
    return (
        "only identical files were looked for; to find changed copies too: "
        "pip install 'llm-training-labs[similar]', then write the reports again"
    )


def similar_pairs(sources: Mapping[str, str], stub: str, lab: str = "") -> list[Pair]:
    """Return the pairs of students whose sources are alike, the most alike first.

    Code is compared without names, comments and layout, and without what the stub has already (copydetect's
    fingerprints). Where copydetect isn't installed, only identical sources are found: see `how_compared`.
    Sources that add nothing to the stub are never alike.
    """
    texts = {student: _stripped(sources[student]) for student in sorted(sources)}
    started = {student: text for student, text in texts.items() if text not in ("", _stripped(stub))}
    pairs = _identical(started, lab)
    if find_spec("copydetect"):
        known = {(pair.one, pair.other) for pair in pairs}
        pairs += [pair for pair in _alike(started, stub, lab) if (pair.one, pair.other) not in known]
    return sorted(pairs, key=lambda pair: (not pair.identical, -pair.score, pair.one, pair.other))[:MOST]


def _stripped(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()


def _identical(texts: Mapping[str, str], lab: str) -> list[Pair]:
    groups: dict[bytes, list[str]] = {}
    for student, text in texts.items():
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        groups.setdefault(digest, []).append(student)
    return [Pair(*two, 1.0, True, lab) for group in groups.values() for two in combinations(group, 2)]


def _alike(texts: Mapping[str, str], stub: str, lab: str) -> list[Pair]:
    given = _fingerprints(stub)
    own = {student: _fingerprints(text) - given for student, text in texts.items()}
    own = {student: prints for student, prints in own.items() if len(prints) >= FEWEST}
    students, sizes = list(own), [len(prints) for prints in own.values()]
    shared = _shared(list(own.values()))
    scores = shared / np.minimum.outer(sizes, sizes) if own else shared
    found = np.argwhere(np.triu(scores >= ENOUGH, 1))
    return [Pair(students[i], students[j], round(float(scores[i, j]), 3), False, lab) for i, j in found]


def _shared(sets: Sequence[set[int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """How many members each two sets share: products of 0-1 matrices, much faster than set by set."""
    counts = Counter(member for one in sets for member in one)
    column = {member: i for i, member in enumerate(m for m, count in counts.items() if count > 1)}
    shared = np.zeros((len(sets), len(sets)), dtype=np.float32)
    columns = [sorted(column[member] for member in one if member in column) for one in sets]
    for start in range(0, len(column), BLOCK):
        block = np.zeros((len(sets), BLOCK), dtype=np.float32)
        for row, mine in enumerate(columns):
            inside = mine[bisect_left(mine, start) : bisect_left(mine, start + BLOCK)]
            block[row, [i - start for i in inside]] = 1
        shared += block @ block.T
    return shared


def _fingerprints(source: str) -> set[int]:
    """The hashes of all runs of `TOKENS` characters of the normalised code.

    All of them (a window of 1), not a sample: which ones a sample picks changes from process to process.
    """
    copydetect = import_module("copydetect")  # half a second, and an optional extra
    return set(copydetect.CodeFingerprint("exercise.py", TOKENS, 1, fp=io.StringIO(source)).hashes)
