"""Results of a class that never ran, and readers of what reports write, for the tests of reports."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from grader.course import Course, Lab, Mistake, Step
from grader.marking import Result, StepMarks
from grader.reports import NAMES, write_reports
from grader.verdicts import Finding, Verdict

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}[red]x[/red]\x1b[31m\x07\u202e\x00"
LOOKS_LATE = "update differs\nlooks like: decay after the step"
CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]"
VOID = {"meta", "wbr", "br"}


def make_lab(name: str, title: str) -> Lab:
    steps = tuple(
        Step(
            number=n, id=f"s{n}", title=f"Part {n}", points=10 * n, section=str(n), todo=(f"f{n}",),
            tests=(f"test_{n}_a", f"test_{n}_b"), hints=(f"nudge {n}", f"push {n}", f"shove {n}"),
        )
        for n in (1, 2)
    )  # fmt: skip
    late = Mistake(
        id="late", step="s2", name="decay after the step", symptom="s", cause="The order is wrong.",
        hint="Look at the order.", find="a", replace="b",
    )  # fmt: skip
    return Lab(
        name=name, folder=Path(name), solution_folder=Path(name), title=title, summary="s", test_file="t.py",
        steps=steps, mistakes=(late,),
    )  # fmt: skip


LAB = make_lab("02_training_core", "The training core")
COURSE = Course(root=Path(), labs=(LAB, make_lab("05_model", "A <small> model")))


def make_result(
    student: str,
    verdicts: str = "pass pass pass pass",
    *,
    lab: str = LAB.name,
    message: str = "",
    note: str = "",
    mistake: str | None = None,
    seconds: float = 1.0,
    findings: Sequence[Finding] = (),
) -> Result:
    """A result with these verdicts for the lab's four tests; `note` and `mistake` go to the failed ones.

    A step with a finding is withheld.
    """
    names = ["test_1_a", "test_1_b[x]", "test_2_a", "test_2_b"]
    kinds = [word.replace("_", " ") for word in verdicts.split()]
    tests = tuple(
        Verdict(name, kind) if kind == "pass" else Verdict(name, kind, note, 0.1, mistake)
        for name, kind in zip(names, kinds, strict=False)
    )
    withheld = {finding.step for finding in findings}
    points = [10 * n if kinds[2 * n - 2 : 2 * n] == ["pass", "pass"] else 0 for n in (1, 2)]
    steps = tuple(StepMarks(n, f"Part {n}", None if n in withheld else points[n - 1], 10 * n) for n in (1, 2))
    total = sum(step.points or 0 for step in steps)
    return Result(student, lab, total, 30, message, steps, tests, seconds, tuple(findings))


def write(out: Path, *results: Result) -> tuple[str, str, str]:
    """Write the reports; return the text of results.jsonl, marks.csv and report.html."""
    paths = write_reports(results, COURSE, out, seed=7)
    assert [path.name for path in paths] == [*NAMES, "students", "gradescope"]
    jsonl, table, page = (path.read_bytes().decode("utf-8") for path in paths[:3])
    return jsonl, table, page


class Page(HTMLParser):
    """The elements of a page and its text; fails on unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def words(self) -> str:
        """The text as one line."""
        return " ".join(self.text.split())
