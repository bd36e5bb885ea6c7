"""The instructor's commands: parse, call, print."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grader.commands import command_line
from grader.course import Course, CourseError, Lab
from grader.showing import (
    agrees,
    list_findings,
    open_gradebook,
    report_class,
    show_change,
    show_proposal,
)
from grader.terminal import console, open_course, say
from grader.verdicts import printable

if TYPE_CHECKING:
    from grader.dask_engine import DaskEngine
    from grader.engine import Engine

WIDEST = 2000  # characters of a line that shows values
MOST_MISSING = 20  # students that a merge lists


class EngineName(StrEnum):
    """What runs submissions."""

    LOCAL = "local"
    DASK = "dask"


ClassArgument = Annotated[Path, typer.Argument(help="one submission, or a folder that holds a class")]
ResultsArgument = Annotated[Path, typer.Argument(help="the folder that `grader grade --out` wrote")]
StudentArgument = Annotated[str, typer.Argument(help="a student's name, or its unique beginning")]
OutOption = Annotated[Path, typer.Option(help="where gradebook and reports go")]
LabOption = Annotated[str | None, typer.Option(help="the lab, if the folders don't say it")]
OneLabOption = Annotated[str | None, typer.Option(help="the lab, if the student has marks for several")]
JobsOption = Annotated[int, typer.Option("-j", "--jobs", min=1, help="submissions at the same time")]
RosterOption = Annotated[Path | None, typer.Option(help="CSV that maps what was handed in to people")]
JailOption = Annotated[bool, typer.Option(help="refuse to run where a layer of the jail is missing")]
EngineOption = Annotated[EngineName, typer.Option("--engine", help="this machine, or a Dask cluster")]
SameClassOption = Annotated[
    bool,
    typer.Option("--same-class", help="it is the gradebook's class, in another folder or by other names"),
]
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
    engine: EngineOption = EngineName.LOCAL,
    scheduler: Annotated[
        str | None, typer.Option(help="address of a Dask scheduler (default: a cluster on this machine)")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="K/N: only this part of the class, into result files; then grader merge"),
    ] = None,
    same_class: SameClassOption = False,
) -> None:
    """Grade one submission or a class.

    Writes the gradebook, a CSV, JSON Lines and an HTML report, and shows a table.
    """
    from grader.grading import grade as grade_class
    from grader.reports import ClassProgress

    course = open_course()
    chosen = course.find_lab(lab) if lab else None
    dask = _dask_engine(engine, jobs, scheduler, require_jail)
    if shard is not None:
        if class_seed is None or reseed:
            raise CourseError(
                "--shard needs --class-seed N, the same for all shards: they share no gradebook to agree in"
            )
        _grade_shard(path, course, out, chosen, shard, class_seed, jobs, roster, require_jail, dask)
        return
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
            engine=dask,
            same_class=same_class,
        )
    report_class(course, out, outcome.results)
    for note in outcome.notes:
        say(note, "yellow")
    _say_reruns(dask)


def merge(
    path: ClassArgument,
    out: OutOption,
    shards: Annotated[
        list[Path] | None, typer.Argument(help="folders with results of shards (default: OUT/shards)")
    ] = None,
    lab: LabOption = None,
    class_seed: Annotated[int | None, typer.Option(help="take only results of this class seed")] = None,
    roster: RosterOption = None,
    same_class: SameClassOption = False,
) -> None:
    """Put the results of shards together: marks, gradebook and reports, as if one machine had run all.

    Runs no submission. Lists whose results are missing.
    """
    from grader import shards as parts
    from grader.reports import ClassProgress

    course = open_course()
    chosen = course.find_lab(lab) if lab else None
    with ClassProgress(console()) as progress:
        merged = parts.merge(
            *(path, course, out, shards or [], chosen, class_seed, progress.show),
            roster=roster,
            same_class=same_class,
        )
    report_class(course, out, None if merged.outcome is None else merged.outcome.results)
    for note in merged.notes:
        say(printable(note, WIDEST), "yellow")
    if merged.missing:
        names = ", ".join(printable(f"{student} ({lab})") for student, lab in merged.missing[:MOST_MISSING])
        rest = len(merged.missing) - MOST_MISSING
        say(
            f"{len(merged.missing)} without a result: {names}{f' and {rest} more' if rest > 0 else ''}", "red"
        )
        command = command_line("grade", path, out, chosen, roster)
        say(f"to grade them here, or run their shards again and merge: {command}", "dim")
        raise typer.Exit(1)


def regrade(
    path: ClassArgument,
    out: OutOption,
    lab: LabOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="replace without asking")] = False,
    jobs: JobsOption = 1,
    roster: RosterOption = None,
    require_jail: JailOption = False,
    same_class: SameClassOption = False,
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
            same_class=same_class,
        )
    for note in proposal.outcome.notes:
        say(note, "yellow")
    show_proposal(proposal)
    if proposal.differing and not yes and not agrees("replace these marks?"):
        again = command_line("regrade", path, out, chosen, roster)
        say(f"no mark was replaced; to replace them: {again} --yes", "yellow")
        raise typer.Exit(1)
    accept(proposal, out)
    if proposal.differing:
        report_class(course, out, [change.new for change in proposal.differing])


def report(
    out: ResultsArgument,
    similar: Annotated[bool, typer.Option("--similar", help="look for submissions that are alike")] = False,
    earlier: Annotated[
        bool, typer.Option("--earlier", help="with students of earlier runs who are no longer in the class")
    ] = False,
) -> None:
    """Write a class's reports again."""
    report_class(open_course(), out, similar=similar, earlier=earlier)


def review(
    out: ResultsArgument,
    student: Annotated[str | None, typer.Argument(help="whose findings (default: all)")] = None,
    step: Annotated[int | None, typer.Option(help="this step (default: all that wait)")] = None,
    line: Annotated[int | None, typer.Option(help="this line, for all steps that wait for it")] = None,
    lab: OneLabOption = None,
    accept: Annotated[bool, typer.Option("--accept", help="the tests count")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="the step is worth 0")] = False,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="accept what is worth 0 without asking")] = False,
) -> None:
    """List the findings that withhold marks, or decide those of a student's line or step.

    A decision holds for exactly the source that was looked at.
    """
    from grader import remarking

    course = open_course()
    if not accept and not reject:
        with open_gradebook(out) as gradebook:
            results = gradebook.results()
            if student is not None:
                name = remarking.find_one("student", student, (one.student for one in results))
                results = [one for one in results if one.student == name]
        list_findings(results, out)
        return
    if accept and reject:
        raise CourseError("--accept or --reject, not both")
    if student is None:
        raise CourseError(f"say whose findings: grader review {out} STUDENT --line N --accept --reason TEXT")
    with open_gradebook(out) as gradebook:
        basis, found = remarking.find_basis(gradebook, course, student, lab)
        why_not = remarking.without_a_pass(basis) if accept and not yes else ""
        if why_not:
            say(f"no test of {printable(basis.student)} passed: {why_not}", "yellow")
            say("accepted, these steps are no longer undecided but worth 0 points", "yellow")
            if not agrees("accept all the same?"):
                say("nothing was decided; to accept all the same: --yes", "yellow")
                raise typer.Exit(1)
        change = remarking.review(gradebook, basis, found, step, accept, reason, line)
    report_class(course, out, [change.new])
    show_change(change)


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
    with open_gradebook(out) as gradebook:
        basis, found = remarking.find_basis(gradebook, course, student, lab)
        change = remarking.override(gradebook, basis, found, step, points, reason)
    report_class(course, out, [change.new])
    show_change(change)


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
    with open_gradebook(out) as gradebook:
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


COMMANDS: tuple[Callable[..., Any], ...] = (grade, merge, intake, regrade, review, override, why, report)
# `-1` is a number there, which is refused in words, and no option.
SETTINGS: dict[Callable[..., Any], dict[str, Any]] = {override: {"ignore_unknown_options": True}}


def _dask_engine(name: EngineName, jobs: int, scheduler: str | None, require_jail: bool) -> DaskEngine | None:
    """The engine that stands in for this machine, if one was asked for."""
    if name is EngineName.LOCAL:
        if scheduler is not None:
            raise CourseError("--scheduler is for --engine dask")
        return None
    if find_spec("distributed") is None:
        raise CourseError("--engine dask needs Dask; install it: pip install 'llm-training-labs[cluster]'")
    from grader.dask_engine import DaskEngine
    from grader.limits import Limits

    return DaskEngine(jobs, Limits(), require_jail=require_jail, scheduler=scheduler)


def _grade_shard(
    path: Path,
    course: Course,
    out: Path,
    lab: Lab | None,
    text: str,
    class_seed: int,
    jobs: int,
    roster: Path | None,
    require_jail: bool,
    dask: DaskEngine | None,
) -> None:
    from grader.engine import LocalEngine
    from grader.limits import Limits
    from grader.reports import ClassProgress
    from grader.shards import grade_shard, parse_shard

    shard = parse_shard(text)
    engine: Engine = dask or LocalEngine(jobs, Limits(), require_jail=require_jail)
    with ClassProgress(console()) as progress:
        part = grade_shard(path, course, out, shard, class_seed, engine, lab, progress.show, roster=roster)
    say(f"shard {shard}: {part.run} run, {part.there} were there already; results in {part.folder}")
    if part.failed:
        say(
            f"{part.failed} of them failed by the grader's own fault: the same command runs them again", "red"
        )
    _say_reruns(dask)
    say(f"when all shards are done: {command_line('merge', path, out, lab, roster)}", "dim")


def _say_reruns(dask: DaskEngine | None) -> None:
    if dask is not None and dask.reruns:
        say(f"run again because their worker was gone: {dask.reruns}", "yellow")
