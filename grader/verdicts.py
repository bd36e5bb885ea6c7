"""The outcome of one test on one implementation."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Verdict:
    """What one test said of one implementation."""

    test: str  # "test_cross_entropy_matches_torch[mean-0.1]"
    verdict: str  # one of VERDICTS
    message: str = ""  # at most eight lines; empty for a pass
    seconds: float = 0.0
    mistake: str | None = None  # id of the known mistake whose result this is

    @property
    def passed(self) -> bool:
        return self.verdict == PASS


def function_name(test: str) -> str:
    """The test function of a test id: without its parameters."""
    return test.partition("[")[0]
