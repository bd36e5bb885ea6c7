"""The example class gets the points that its page promises."""

from __future__ import annotations

import re
from pathlib import Path

from grader.course import find_root, load_course
from grader.grading import grade

ROOT = find_root(Path(__file__).parent)


def promised_points() -> dict[str, str]:
    """Student → points, from the table in examples/README.md."""
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \|.*?\| (\d+|withheld) \|", page, re.MULTILINE)
    return {student: points for student, points in rows if student != "student"}


def test_the_example_class_gets_what_its_page_promises(tmp_path: Path) -> None:
    course = load_course(ROOT)
    outcome = grade(
        ROOT / "examples" / "class", course, tmp_path, course.find_lab("02"), class_seed=3, jobs=2
    )
    promised = promised_points()
    assert len(promised) >= 10
    assert {result.student for result in outcome.results} == set(promised)
    for result in outcome.results:
        withheld = all(step.points is None for step in result.steps)
        got = "withheld" if withheld else str(result.points)
        assert got == promised[result.student], f"{result.student}: {result.message}"
