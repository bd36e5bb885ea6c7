"""The outcome of one test on one implementation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PASS = "pass"
WRONG = "wrong"
ERROR = "error"
TO_DO = "to do"
TIME_OUT = "time-out"
MEMORY = "memory"
CRASHED = "crashed"
FORBIDDEN = "forbidden call"
MISSING = "missing"
GRADER_ERROR = "grader error"

VERDICTS = (PASS, WRONG, ERROR, TO_DO, TIME_OUT, MEMORY, CRASHED, FORBIDDEN, MISSING, GRADER_ERROR)

MESSAGE_LINES, MESSAGE_CHARS = 8, 200  # most lines of a message, most characters of a line
SUBMISSION_CHARS = 400  # most characters of the line about a submission as a whole


@dataclass(frozen=True)
class Verdict:
    """What one test said of one implementation."""

    test: str  # "test_cross_entropy_matches_torch[mean-0.1]"
    verdict: str  # one of VERDICTS
    message: str = ""  # at most eight lines; empty for a pass
    seconds: float = 0.0
    mistake: str | None = None  # id of the known mistake whose result this is
    check: str = ""  # what the check compared that decided a "wrong"

    @property
    def passed(self) -> bool:
        return self.verdict == PASS


@dataclass(frozen=True)
class Finding:
    """A line of a submission that a person should look at before its step is marked."""

    step: int
    rule: str  # a few words: "import outside the list"
    line: int  # 0: the file as a whole
    text: str  # the line itself, printable


@dataclass(frozen=True)
class Place:
    """A line that a person should look at, with all steps that wait for it."""

    line: int  # 0: the file as a whole
    steps: tuple[int, ...]
    rule: str  # of several, all
    text: str


def by_line(findings: Iterable[Finding]) -> list[Place]:
    """Findings line by line: one line that many steps wait for is one thing to look at."""
    lines: dict[int, list[Finding]] = {}
    for one in findings:
        lines.setdefault(one.line, []).append(one)
    return [
        Place(
            line,
            tuple(dict.fromkeys(one.step for one in found)),
            ", ".join(dict.fromkeys(one.rule for one in found)),
            found[0].text,
        )
        for line, found in lines.items()
    ]


def function_name(test: str) -> str:
    """The test function of a test id: without its parameters."""
    return test.partition("[")[0]


def one_line(said: object, most: int = MESSAGE_CHARS) -> str:
    """A text, or what an exception says, as one printable line of at most `most` characters."""
    try:
        text = " ".join(str.split(str(said)))
    except BaseException:  # a submission's own __str__ may raise whatever it likes
        return "(its message can't be shown)"
    return printable(text, most)


def printable(line: str, most: int = MESSAGE_CHARS) -> str:
    """A line without control characters or half ones, cut with an ellipsis where it is longer than `most`."""
    cut = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in cut.encode("utf-8", "replace").decode())
