"""From what a submission's process sent to the verdict of one test: the only place where a test is passed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grader import verdicts
from grader.comparison import Check
from grader.course import Lab
from grader.oracle import Wanted
from grader.verdicts import MESSAGE_LINES, Verdict, one_line
from grader.wire import DONE, Ended

WORD = re.compile(r"\w+")
LACKS = re.compile(r"(?P<file>exercise\.py) defines no '(?P<name>\w+)'(?:; it has '(?P<near>\w+)')?")
NAMED = "  looks like: "  # how the line begins that names a mistake


@dataclass(frozen=True)
class Decision:
    """A verdict, and for its diagnosis the check that failed with its place in the test."""

    verdict: Verdict
    failure: tuple[int, Check] | None = None


def decide(
    lab: Lab, wanted: Wanted, values: Sequence[object], ended: Ended, seconds: float, source: str = ""
) -> Decision:
    """Compare the values of one test, in order, with what its checks want.

    Passed is only what the values show: every planned check's value arrived, and agrees. How the test says it
    ended matters for the message, and for a test that stopped early.
    """
    test = wanted.test.name
    section = f"  → README section {lab.step_of(test).section}"
    for index, (expectation, actual) in enumerate(zip(wanted.expectations, values, strict=False)):
        if expectation.agrees(actual):
            continue
        comparison = expectation.judge(actual)
        if not comparison.check.passed:
            message = "\n".join([*comparison.lines[: MESSAGE_LINES - 1], section])
            verdict = Verdict(test, verdicts.WRONG, message, seconds, check=one_line(expectation.what))
            return Decision(verdict, (index, comparison.check))
    if ended.outcome != DONE:
        return _stopped(lab, wanted, len(values), ended, section, seconds, source)
    if len(values) != len(wanted.expectations):
        message = f"{len(values)} checks arrived, {len(wanted.expectations)} are planned"
        return Decision(Verdict(test, verdicts.MISSING, message, seconds))
    return Decision(Verdict(test, verdicts.PASS, "", seconds))


def _stopped(
    lab: Lab, wanted: Wanted, checks: int, ended: Ended, section: str, seconds: float, source: str
) -> Decision:
    """The verdict of a test that an exception has left."""
    test, said = wanted.test.name, ended.text or ended.error or "it stopped"
    if ended.outcome == verdicts.TO_DO:
        return Decision(Verdict(test, verdicts.TO_DO, f"to do: {one_line(said)}", seconds))
    known = (verdicts.FORBIDDEN, verdicts.MEMORY)
    outcome = ended.outcome if ended.outcome in known else verdicts.ERROR
    if ended.error == "MissingName":
        said = _missing(said, lab, lab.step_of(test).number, source)
    message = "\n".join([*said.splitlines()[: MESSAGE_LINES - 1], section])
    failure = (checks, Check("", False, 0.0, f"raised {ended.error}"))
    return Decision(Verdict(test, outcome, message, seconds), failure)


def _missing(said: str, lab: Lab, step: int, source: str) -> str:
    """What is said of a name that the file lacks: in the grader's own words, since students read it.

    It is the submission's process that says it. Only names that stand in the solution and in the file as it
    was handed in are passed on: others could carry what the process has seen.
    """
    found = LACKS.fullmatch(one_line(said))
    if found is None or found["name"] not in WORD.findall(lab.solution.read_text(encoding="utf-8")):
        return said
    near = f"; it has {found['near']!r}" if found["near"] in WORD.findall(source) else ""
    return f"{found['file']} defines no {found['name']!r}{near}; the stub had it (step {step})"


def named(decision: Decision, ids: Sequence[str], names: dict[str, str]) -> Verdict:
    """The verdict with the known mistake that its wrong value is, if it is one."""
    if not ids:
        return decision.verdict
    *lines, last = decision.verdict.message.splitlines() or [""]  # the last one says where to read
    line = NAMED + ", or ".join(names[id] for id in ids)
    message = "\n".join([*lines[: MESSAGE_LINES - 2], line, last])
    v = decision.verdict
    return Verdict(v.test, v.verdict, message, v.seconds, ids[0], v.check)
