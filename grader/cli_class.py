"""The instructor's commands: parse, call, print."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grader.course import Course, CourseError
from grader.terminal import console, open_course, say
from grader.verdicts import printable

if TYPE_CHECKING:
    from grader.gradebook import Gradebook
    from grader.grading import Proposal
    from grader.marking import Result

WIDEST = 2000  # characters of a line that shows values

ClassArgument = Annotated[Path, typer.Argument(help="one submission, or a folder that holds a class")]
ResultsArgument = Annotated[Path, typer.Argument(help="the folder that `grader grade --out` wrote")]
StudentArgument = Annotated[str, typer.Argument(help="a student's name, or its unique beginning")]
OutOption = Annotated[Path, typer.Option(help="where gradebook and reports go")]
LabOption = Annotated[str | None, typer.Option(help="the lab, if the folders don't say it")]
OneLabOption = Annotated[str | None, typer.Option(help="the lab, if the student has marks for several")]
JobsOption = Annotated[int, typer.Option("-j", "--jobs", min=1, help="submissions at the same time")]
RosterOption = Annotated[Path | None, typer.Option(help="CSV that maps what was handed in to people")]
JailOption = Annotated[bool, typer.Option(help="refuse to run where a layer of the jail is missing")]
ReasonOption = Annotated[str, typer.Option(help="why; it is shown in the message")]


def grade(
    path: ClassArgument,
    out: OutOption,
    lab: LabOption = None,
    class_seed: Annotated[
        int | None, typer.Option(help="secret seed of the inputs (default: the gradebook's, else drawn)")
    ] = None,
    reseed: Annotated[
        bool, typer.Option("--reseed", help="replace the gradebook's seed: all is run again on other inputs")
    ] = False,
    jobs: JobsOption = 1,
    roster: RosterOption = None,
    require_jail: JailOption = False,
) -> None:
    """Grade one submission or a class.

    Writes the gradebook, a CSV, JSON Lines and an HTML report, and shows a table.
    """
    from grader.grading import grade as grade_class
    from grader.reports import ClassProgress

    course = open_course()
    chosen = course.find_lab(lab) if lab else None
    with ClassProgress(console()) as progress:
        outcome = grade_class(
            path,
            course,
            out,
            chosen,
            class_seed,
            jobs,
            on_progress=progress.show,
            reseed=reseed,
            roster=roster,
            require_jail=require_jail,
        )
    _report(course, out, outcome.results)
    for note in outcome.notes:
        say(note, "yellow")


def regrade(
    path: ClassArgument,
    out: OutOption,
    lab: LabOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="replace without asking")] = False,
    jobs: JobsOption = 1,
    roster: RosterOption = None,
    require_jail: JailOption = False,
) -> None:
    """Grade a class again, and show what would change before any mark is replaced.

    Replaced marks stay in the gradebook's history.
    """
    from grader.grading import accept, propose
    from grader.reports import ClassProgress

    course = open_course()
    chosen = course.find_lab(lab) if lab else None
    with ClassProgress(console()) as progress:
        proposal = propose(
            path,
            course,
            out,
            chosen,
            jobs,
            on_progress=progress.show,
            roster=roster,
            require_jail=require_jail,
        )
    for note in proposal.outcome.notes:
        say(note, "yellow")
    _show(proposal)
    if proposal.differing and not yes and not _agrees():
        say("no mark was replaced; to replace them: --yes", "yellow")
        raise typer.Exit(1)
    accept(proposal, out)
    _report(course, out, [change.new for change in proposal.differing])


def report(out: ResultsArgument) -> None:
    """Write a class's reports again."""
    _report(open_course(), out)


def review(
    out: ResultsArgument,
    student: Annotated[str | None, typer.Argument(help="whose findings (default: all)")] = None,
    step: Annotated[int | None, typer.Option(help="this step (default: all that wait)")] = None,
    lab: OneLabOption = None,
    accept: Annotated[bool, typer.Option("--accept", help="the tests count")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="the step is worth 0")] = False,
    reason: ReasonOption = "",
) -> None:
    """List the findings that withhold marks, or decide those of a student's step.

    A decision holds for exactly the source that was looked at.
    """
    from grader import remarking

    course = open_course()
    if not accept and not reject:
        with _gradebook(out) as gradebook:
            results = gradebook.results()
            if student is not None:
                name = remarking.find_one("student", student, (one.student for one in results))
                results = [one for one in results if one.student == name]
        _list_findings(results, out)
        return
    if accept and reject:
        raise CourseError("--accept or --reject, not both")
    if student is None:
        raise CourseError(f"say whose findings: grader review {out} STUDENT --step N --accept --reason TEXT")
    with _gradebook(out) as gradebook:
        basis, found = remarking.find_basis(gradebook, course, student, lab)
        result = remarking.review(gradebook, basis, found, step, accept, reason)
    _report(course, out, [result])


def override(
    out: ResultsArgument,
    student: StudentArgument,
    points: Annotated[float | None, typer.Argument(help="points to give, 0 or more")] = None,
    step: Annotated[int | None, typer.Option(help="for this step (default: for the whole lab)")] = None,
    lab: OneLabOption = None,
    reason: ReasonOption = "",
    remove: Annotated[bool, typer.Option("--remove", help="take points by hand back")] = False,
) -> None:
    """Give a student points by hand, whatever the tests say.

    They stay when the class is graded again.
    """
    from grader import remarking

    if (points is None) != remove:
        raise CourseError("give either POINTS, with --reason TEXT, or --remove")
    course = open_course()
    with _gradebook(out) as gradebook:
        basis, found = remarking.find_basis(gradebook, course, student, lab)
        result = remarking.override(gradebook, basis, found, step, points, reason)
    _report(course, out, [result])


def why(
    student: StudentArgument,
    test: Annotated[str, typer.Argument(help="a test's name, or its unique beginning")],
    out: Annotated[Path, typer.Option(help="the folder that `grader grade --out` wrote")],
    lab: OneLabOption = None,
) -> None:
    """Replay one test of a student with its seed, and show what was got and expected."""
    from grader.remarking import find_basis
    from grader.replaying import explain

    course = open_course()
    with _gradebook(out) as gradebook:
        basis, found = find_basis(gradebook, course, student, lab)
        for line in explain(gradebook, basis, found, test):
            say(printable(line, WIDEST))


def intake(path: ClassArgument, lab: LabOption = None, roster: RosterOption = None) -> None:
    """Show what would be graded, a line a student; nothing is run."""
    from grader.intake import find_submissions, intake_report

    course = open_course()
    chosen = course.find_lab(lab) if lab else None
    for line in intake_report(find_submissions(path, course, chosen, roster=roster)):
        say(printable(line))


COMMANDS: tuple[Callable[..., Any], ...] = (grade, intake, regrade, review, override, why, report)


@contextmanager
def _gradebook(out: Path) -> Iterator[Gradebook]:
    """The gradebook of a class that has been graded."""
    from grader.gradebook import Gradebook
    from grader.grading import GRADEBOOK

    path = out / GRADEBOOK
    if not path.is_file():
        raise CourseError(f"{path} does not exist; grade a class first: grader grade CLASS --out {out}")
    with Gradebook(path, create=False) as gradebook:
        yield gradebook


def _report(course: Course, out: Path, shown: Sequence[Result] | None = None) -> None:
    """Write the reports of everyone in the gradebook; show those of `shown`, or all."""
    from grader.grading import GRADEBOOK
    from grader.reports import print_summary, write_reports

    with _gradebook(out) as gradebook:
        everyone, seed = gradebook.results(), gradebook.class_seed()
    paths = [out / GRADEBOOK, *write_reports(everyone, course, out, seed or 0)]
    print_summary(everyone if shown is None else shown, course, paths, console())


def _show(proposal: Proposal) -> None:
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


def _agrees() -> bool:
    """Ask on a terminal; where nobody can answer, the answer is no."""
    try:
        return typer.confirm("replace these marks?")
    except typer.Abort:
        return False


def _list_findings(results: Sequence[Result], out: Path) -> None:
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
