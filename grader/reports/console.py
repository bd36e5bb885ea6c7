"""What the terminal shows of a class: a progress bar while it runs, a table of marks at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from grader.course import Course
from grader.marking import Result
from grader.reports.rows import (
    NOT_RUN,
    OUTCOMES,
    PASSED,
    STOPPED,
    TO_DO,
    UNDECIDED,
    WRONG,
    Outcome,
    Row,
    in_order,
)
from grader.reports.tallies import LabTally, by_lab
from grader.reports.text import number, one_line

if TYPE_CHECKING:
    from grader.grading import Progress

_STYLES = {
    PASSED: "green",
    WRONG: "red",
    TO_DO: "dim",
    STOPPED: "magenta",
    NOT_RUN: "dim",
    UNDECIDED: "yellow",
}
_NAME_WIDTH = 28
_FIGURES = 62  # columns for what stands between the bar and the name of the progress line
_PLAIN_WIDTH = 120  # a file or a pipe has no width of its own
_GAPS = 14  # blanks between and around the five columns
_PLAIN_LINES = 10  # lines of progress that a file or a pipe gets
_ABOUT = {
    "results.jsonl": "every verdict, for programs",
    "gradebook.sqlite": "every verdict, for the next run",
    "marks.csv": "marks, for a spreadsheet",
    "report.html": "the class, for a browser",
    "canvas.csv": "marks, for Canvas",
    "moodle.csv": "marks, for Moodle",
    "junit.xml": "every verdict, for a build server",
    "students": "a page a student, to hand out",
    "gradescope": "a results.json a student, for Gradescope",
}


class ClassProgress:
    """Progress of a class: a live bar in a terminal, about ten plain lines elsewhere.

    Use it as a context manager, with `show` as the grading's `on_progress`.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._failures = 0
        self._known = 0  # results that were in the gradebook already: they say nothing about the rate
        self._began: float | None = None
        spare = console.width - _FIGURES  # a narrow terminal shortens the bar, then the name, never a figure
        bar_width = max(4, min(30, spare - _NAME_WIDTH))
        self._name_width = max(6, min(_NAME_WIDTH, spare - bar_width))
        self._live = ProgressBar(
            BarColumn(bar_width=bar_width),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[failures]}", markup=False),
            TextColumn("{task.fields[student]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task("", total=None, rate="", left="", failures="", student="")

    def __enter__(self) -> ClassProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show the student who was begun, or count a result; one without full marks is a failure."""
        if progress.result is None:
            if self._began is None:
                self._began, self._known = time.monotonic(), progress.done
            student = _printable(self._console, progress.student, self._name_width)
            self._live.update(self._task, total=progress.total, student=student)
            return
        done, total = progress.done, progress.total
        self._failures += progress.result.points < progress.result.max_points
        rate, left = self._speed(done, total)
        failures = f"{self._failures} without full marks"
        self._live.update(self._task, total=total, completed=done, rate=rate, left=left, failures=failures)
        another_tenth = done * _PLAIN_LINES // total > (done - 1) * _PLAIN_LINES // total
        if another_tenth and not self._console.is_terminal:
            words = ", ".join(filter(None, (rate, left, failures)))
            _print_line(self._console, Text(f"graded {done} of {total} ({words})"))

    def _speed(self, done: int, total: int) -> tuple[str, str]:
        """How many are graded a second, and how long the rest will take; "" where that isn't known."""
        if self._began is None or done <= self._known:
            return "", ""
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (done - self._known) / seconds
        return f"{rate:.1f} a second", f"{_duration((total - done) / rate)} left" if done < total else ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_summary(results: Sequence[Result], course: Course, paths: Sequence[Path], console: Console) -> None:
    """Print a row a student and lab, what to look at in it, and where the files in `paths` are."""
    tallies = by_lab(course, in_order(results))
    if tallies:
        table = _table([(tally.lab.number, row) for tally in tallies for row in tally.rows], console)
        console.print(table, crop=False)
        _print_line(console, _legend(tallies, console))
    else:
        _print_line(console, Text("no submission was found"))
    for tally in tallies:
        _print_line(console, Text(_in_words(tally)))
    width = max((len(str(path)) for path in paths), default=0)
    for path in paths:
        where = _printable(console, str(path)).ljust(width)
        _print_line(console, Text(f"{where}  ").append(_ABOUT.get(path.name, ""), "dim"))


def _in_words(tally: LabTally) -> str:
    most = number(tally.max_points)
    return (
        f"lab {tally.lab.number}: {len(tally.results)} graded, mean {tally.mean:.1f} of {most}, "
        f"{tally.full_marks} with full marks, {len(tally.attention)} to look at"
    )


def _table(rows: Sequence[tuple[str, Row]], console: Console) -> Table:
    """One line a row; in a narrow terminal the last column is cut, then the names, never points and steps."""
    names = [_printable(console, row.result.student, _NAME_WIDTH) for _, row in rows]
    width = console.width if console.is_terminal else _PLAIN_WIDTH
    points = [f"{number(row.result.points)} of {number(row.result.max_points)}" for _, row in rows]
    points_width = max(10, *map(len, points))
    steps_width = max(5, 2 * max(len(row.steps) for _, row in rows) - 1)
    left = width - (3 + points_width + steps_width + _GAPS)
    name_width = max(7, min(_NAME_WIDTH, left // 2, max(map(cell_len, names))))
    note_width = max(10, left - name_width)
    # A width of its own: Rich would otherwise shrink every column alike.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=width - left + name_width + note_width)
    overflow: Literal["ellipsis", "crop"] = "ellipsis" if _has_unicode(console) else "crop"
    for title, column_width in (
        ("student", name_width),
        ("lab", 3),
        ("points", points_width),
        ("steps", steps_width),
        ("to look at", note_width),
    ):
        justify: Literal["left", "right"] = "right" if title == "points" else "left"
        table.add_column(title, width=column_width, no_wrap=True, overflow=overflow, justify=justify)
    for name, reached, (lab, row) in zip(names, points, rows, strict=True):
        steps = Text(" ").join(_symbol(step.outcome, console) for step in row.steps)
        table.add_row(
            Text(name),
            Text(_printable(console, lab)),
            Text(reached),
            steps,
            Text(_printable(console, row.note), "bold" if row.attention else ""),
        )
    return table


def _legend(tallies: Iterable[LabTally], console: Console) -> Text:
    seen = {outcome for tally in tallies for outcome in tally.outcomes}
    parts = (_symbol(o, console) + Text(f" {o.meaning}", "dim") for o in OUTCOMES if o in seen)
    return Text("   ").join(parts)


def _symbol(outcome: Outcome, console: Console) -> Text:
    return Text(outcome.symbol if _has_unicode(console) else outcome.ascii, _STYLES[outcome])


def _has_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def _printable(console: Console, text: str, width: int | None = None) -> str:
    """`text` on one visible line, without characters that the terminal's encoding lacks."""
    line = one_line(text, width)
    if _has_unicode(console):
        return line
    return line.encode(console.encoding, "replace").decode(console.encoding)


def _print_line(console: Console, text: Text) -> None:
    """Print without wrapping, so that a path stays one word."""
    console.print(text, soft_wrap=True, highlight=False)
