"""`results.jsonl`: one JSON object a student and lab, for other programs. Its keys are a fixed interface."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from grader.marking import Result
from grader.reports.text import number


def jsonl(results: Iterable[Result]) -> bytes:
    """One line a result, in the given order, in ASCII: any JSON reader splits and decodes it alike."""
    return "".join(json.dumps(_as_object(result)) + "\n" for result in results).encode("ascii")


def _as_object(result: Result) -> dict[str, Any]:
    return {
        "student": result.student,
        "lab": result.lab,
        "points": number(result.points),
        "max_points": number(result.max_points),
        "message": result.message,
        "steps": [
            {"step": step.step, "points": _points(step.points), "max_points": number(step.max_points)}
            for step in result.steps
        ],
        "tests": [
            {"test": verdict.test, "verdict": verdict.verdict, "message": verdict.message}
            for verdict in result.tests
        ],
        "findings": [
            {"step": finding.step, "rule": finding.rule, "line": finding.line, "text": finding.text}
            for finding in result.findings
        ],
    }


def _points(points: float | None) -> int | float | None:
    return None if points is None else number(points)
