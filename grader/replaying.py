"""Why a mark is what it is: one test of a stored attempt, replayed with its source and seed."""

from __future__ import annotations

from grader.course import CourseError, Lab
from grader.gradebook import Basis, Gradebook
from grader.grading import key_of
from grader.remarking import find_one


def explain(gradebook: Gradebook, basis: Basis, lab: Lab, test: str) -> list[str]:
    """What the gradebook holds on a test of a student, and what a replay of it got and expected, in lines."""
    from grader.worker import replay  # starts processes; only this command needs it

    verdicts = {one.test: one for one in basis.judgement.verdicts}
    verdict = verdicts[find_one("test", test, verdicts)]
    record = gradebook.record(basis.key)
    lines = [
        f"{basis.student}, {lab.name}, {verdict.test}",
        f"stored verdict: {verdict.verdict} ({record.finished}, seed {record.seed}, {record.versions})",
        *(f"  {line}" for line in verdict.message.splitlines()),
    ]
    if verdict.check:
        lines.append(f"  compared: {verdict.check}")
    if record.source is None:
        raise CourseError(f"{basis.student} handed in no file for {lab.name}: there is nothing to replay")
    if key_of(record.source, lab, record.seed) != basis.key:
        lines.append("the lab or the versions have changed since: the replay may differ")
    return [*lines, "replayed:", *replay(lab, record.source, record.seed, verdict.test)]
