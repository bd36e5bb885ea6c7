"""Reports of a graded class: files for people and for programs, and what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from grader.course import Course, CourseError
from grader.files import write_atomically
from grader.marking import Result
from grader.reports.console import ClassProgress, print_summary
from grader.reports.jsonl import jsonl
from grader.reports.rows import in_order
from grader.reports.table import table

NAMES = ("results.jsonl", "marks.csv", "report.html")

__all__ = ["ClassProgress", "print_summary", "write_reports"]


def write_reports(results: Iterable[Result], course: Course, out: Path, seed: int) -> list[Path]:
    """Write results.jsonl, marks.csv and report.html into `out`, replacing older ones; return their paths.

    CourseError if that can't be done, or if there is nothing to report where reports lie already.
    """
    from grader.reports.html import page  # matplotlib takes a second to import: not for `grader hint`

    results = in_order(results)
    if not results and any((out / name).exists() for name in NAMES):
        raise CourseError(f"{out}: the gradebook holds no marks; the reports there were left as they are")
    contents = dict(zip(NAMES, (jsonl(results), table(results), page(results, course, seed)), strict=True))
    for name, content in contents.items():
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, content)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CourseError(
                f"{out / name}: can't be written ({why}); mend that, then: grader report {out}"
            ) from None
    return [out / name for name in contents]
