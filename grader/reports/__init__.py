"""Reports of a graded class: files for people and for programs, and what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from grader.course import Course
from grader.files import write_atomically
from grader.marking import Result
from grader.reports.console import ClassProgress, print_summary
from grader.reports.jsonl import jsonl
from grader.reports.rows import in_order
from grader.reports.table import table

__all__ = ["ClassProgress", "print_summary", "write_reports"]


def write_reports(results: Iterable[Result], course: Course, out: Path, seed: int) -> list[Path]:
    """Write results.jsonl, marks.csv and report.html into `out`, replacing older ones; return their paths."""
    from grader.reports.html import page  # matplotlib takes a second to import: not for `grader hint`

    results = in_order(results)
    contents = {
        "results.jsonl": jsonl(results),
        "marks.csv": table(results),
        "report.html": page(results, course, seed),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]
