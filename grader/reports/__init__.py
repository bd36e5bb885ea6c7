"""Reports of a graded class: files for people and for programs, and what the terminal shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grader.course import Course, CourseError
from grader.marking import Result
from grader.reports.console import ClassProgress, print_summary
from grader.reports.jsonl import jsonl
from grader.reports.rows import in_order
from grader.reports.table import table

if TYPE_CHECKING:
    from grader.reports.similar import Pair

NAMES = ("results.jsonl", "marks.csv", "report.html", "canvas.csv", "moodle.csv", "junit.xml")
STUDENTS, GRADESCOPE = "students", "gradescope"  # folders with a file or two a student

__all__ = ["ClassProgress", "print_summary", "write_reports"]


def write_reports(
    results: Iterable[Result],
    course: Course,
    out: Path,
    seed: int,
    *,
    layers: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    pairs: Sequence[Pair] = (),
    people: Mapping[str, Mapping[str, str]] | None = None,
    assignments: Sequence[str] = (),
) -> list[Path]:
    """Write the class's reports and a page a student into `out`, replacing older ones.

    `layers` (of the jail), `versions` and `pairs` (of similar submissions) are shown in report.html.
    `people` is what learning platforms call each student, `assignments` what Canvas calls its columns.
    The pages of students who are no longer in the class are removed.
    Returns the paths of the class's files and of the two folders with a file a student.
    CourseError if something can't be written, or if there is nothing to report where reports lie already.
    """
    from grader.reports.folders import write_folder, write_report
    from grader.reports.gradescope import gradescope_files
    from grader.reports.html import page  # matplotlib takes a second to import: not for `grader hint`
    from grader.reports.junit import junit
    from grader.reports.learning import canvas, moodle
    from grader.reports.names import file_names
    from grader.reports.student import page_files, student_pages
    from grader.reports.tallies import by_lab

    results = in_order(results)
    if not results and any((out / name).exists() for name in NAMES):
        raise CourseError(f"{out}: the gradebook holds no marks; the reports there were left as they are")
    labs = by_lab(course, results)
    names = file_names(result.student for result in results)
    html = page(labs, seed, layers=layers, versions=versions, pairs=pairs, files=names)
    for_canvas, for_moodle = canvas(labs, people or {}, assignments), moodle(labs, people or {})
    documents = (jsonl(results), table(results), html, for_canvas, for_moodle, junit(labs))
    for name, content in zip(NAMES, documents, strict=True):
        write_report(out / name, content)
    pages = student_pages(labs)
    write_folder(out / STUDENTS, page_files(pages, names))
    write_folder(out / GRADESCOPE, gradescope_files(pages, names))
    return [*(out / name for name in NAMES), out / STUDENTS, out / GRADESCOPE]
