"""What the instructor's commands show: reports and tables, differences, findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from grader.course import Course, CourseError
from grader.terminal import console, say, spinner
from grader.verdicts import printable

if TYPE_CHECKING:
    from grader.gradebook import Gradebook
    from grader.grading import Proposal
    from grader.marking import Result

NOT_CONFINED = (
    "submissions were not confined on this system: time limits and a process for each, "
    "but code that means harm could do it"
)


@contextmanager
def open_gradebook(out: Path) -> Iterator[Gradebook]:
    """The gradebook of a class that has been graded."""
    from grader.gradebook import Gradebook
    from grader.grading import GRADEBOOK

    path = out / GRADEBOOK
    if not path.is_file():
        raise CourseError(f"{path} does not exist; grade a class first: grader grade CLASS --out {out}")
    with Gradebook(path, create=False) as gradebook:
        yield gradebook


def report_class(
    course: Course,
    out: Path,
    shown: Sequence[Result] | None = None,
    *,
    similar: bool = False,
    earlier: bool = False,
) -> None:
    """Write the reports of the class, with `earlier` also of who was in it before; show those of `shown`."""
    from grader.grading import GRADEBOOK
    from grader.members import earlier_note
    from grader.reports import print_summary, write_reports
    from grader.reports.similar import how_compared, similar_pairs

    with open_gradebook(out) as gradebook:
        everyone, seed = gradebook.results(earlier=earlier), gradebook.class_seed()
        people, assignments = gradebook.platforms()
        left_out = gradebook.earlier() if shown is None and not earlier else []
        layers, versions = gradebook.circumstances()
        labs = [lab for lab in course.labs if any(result.lab == lab.name for result in everyone)]
        handed_in = {lab.name: gradebook.handed_in(lab.name, earlier=earlier) for lab in labs if similar}
    with spinner() as show:
        show("comparing the submissions with each other" if similar else "writing the reports")
        pairs = [
            pair
            for lab in labs
            if similar
            for pair in similar_pairs(handed_in[lab.name], lab.exercise.read_text("utf-8"), lab.name)
        ]
        written = write_reports(
            *(everyone, course, out, seed or 0),
            layers=layers,
            versions=versions,
            pairs=pairs,
            people=people,
            assignments=assignments,
        )
    print_summary(everyone if shown is None else shown, course, [out / GRADEBOOK, *written], console())
    say(f"confined by: {', '.join(layers)}" if layers else NOT_CONFINED, "" if layers else "yellow")
    if left_out:
        say(earlier_note(left_out, f"grader report {shlex.quote(str(out))}"), "yellow")
    if similar:
        say(how_compared() or f"{len(pairs)} pairs of submissions are alike", "dim")


def show_proposal(proposal: Proposal) -> None:
    """What a regrade would change, a few lines a student."""
    differing = proposal.differing
    in_points = [change for change in differing if change.in_points]
    for change in in_points:
        for line in change.lines():
            say(line, "red" if change.lowered else "")
    lowered = sum(change.lowered for change in in_points)
    say(
        f"{len(in_points)} marks would change ({lowered} lowered), "
        f"{len(differing) - len(in_points)} only in messages or tests, "
        f"{len(proposal.changes) - len(differing)} stay as they are"
    )


def agrees() -> bool:
    """Ask on a terminal; where nobody can answer, the answer is no."""
    try:
        return typer.confirm("replace these marks?")
    except typer.Abort:
        return False


def list_findings(results: Sequence[Result], out: Path) -> None:
    """One line a finding, below a line that says whose step it withholds."""
    waiting = [result for result in results if result.findings]
    for result in waiting:
        titles = {step.step: step.title for step in result.steps}
        for step in sorted({one.step for one in result.findings}):
            say(printable(f"{result.student}, {result.lab}, step {step} ({titles[step]})"), "bold")
            for one in (one for one in result.findings if one.step == step):
                where = f"line {one.line}" if one.line else "the file"
                say(f"  {where}: {printable(one.rule)}: {printable(one.text)}")
    if not waiting:
        say("no finding waits for a decision", "green")
        return
    first = waiting[0]
    student = shlex.quote(printable(first.student))
    say(
        f"to decide: grader review {out} {student} --step {first.findings[0].step} --lab {first.lab[:2]} "
        "--accept (or --reject) --reason TEXT",
        "dim",
    )
