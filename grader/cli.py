"""The command line: parse, call, print.

Heavy imports (torch, pytest, matplotlib) happen inside the commands that need them: `grader hint` is instant.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grader import cli_class
from grader.course import Course, CourseError, Lab
from grader.progress import StepState
from grader.terminal import open_course, say, spinner

if TYPE_CHECKING:
    from grader.authoring.verify import Verification

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)

INTERRUPTED = 130  # exit status after Ctrl-C

LabArgument = Annotated[str | None, typer.Argument(help="a lab's number or name (default: all)")]


def main() -> None:
    """Entry point: a user's mistake is one line on stderr and exit status 2; Ctrl-C is 130."""
    try:
        app()
    except CourseError as error:
        print(f"grader: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer turns Ctrl-C into this
            print("grader: interrupted; what is finished is kept, the same command goes on", file=sys.stderr)
        raise


@app.command()
def status(lab: LabArgument = None) -> None:
    """Show how far your exercises are."""
    from grader.implementations import written_names
    from grader.progress import next_line, step_states
    from grader.running import run_tests

    for each in _labs(open_course(), lab):
        say(f"lab {each.number}: {each.title}", "bold")
        if not each.exercise.is_file():
            raise CourseError(
                f"{each.exercise} is missing; get it back with: git checkout -- {each.exercise}"
            )
        started = written_names(each.exercise.read_text(encoding="utf-8", errors="replace"), each)
        with spinner() as show:
            show(f"running pytest labs/{each.name}")
            states = step_states(each, run_tests(each, each.exercise, seed=0) if started else [])
        for state in states:
            say(*_step_line(state, bool(started)))
        start = f"next: read labs/{each.name}/README.md, then write step 1 in labs/{each.name}/exercise.py"
        say(next_line(each, states) if started else start)


@app.command()
def hint(
    lab: Annotated[str, typer.Argument(help="a lab's number or name")],
    step: Annotated[str, typer.Argument(help="a step's number or id")],
    level: Annotated[int | None, typer.Option(help="this level again, instead of the next one")] = None,
) -> None:
    """Show the next hint of a step.

    There are three, from a nudge to nearly the code.
    """
    from grader.hints import HintLog

    course = open_course()
    found = course.find_lab(lab)
    chosen = found.find_step(step)
    given = HintLog(course.root).next_hint(found, chosen, level)
    place = f"lab {found.number}, step {chosen.number} ({chosen.title})"
    say(f"{place}, hint {given.level} of {given.levels}", "bold")
    say(given.text.strip())
    again = f"grader hint {found.number} {chosen.number}"
    last = f"that was the last one; to see an earlier one: {again} --level 1"
    say(f"for the next one: {again}" if given.level < given.levels else last, "dim")


for _command in cli_class.COMMANDS:
    app.command(context_settings=cli_class.SETTINGS.get(_command))(_command)


@app.command()
def verify(
    lab: LabArgument = None,
    report: Annotated[Path | None, typer.Option(help="write the table of mistakes and tests as HTML")] = None,
) -> None:
    """Check that the labs are sound.

    Nothing generated is stale, the solution passes, every known mistake is rejected.
    """
    from grader.authoring.kill_table import kill_page
    from grader.authoring.pages import Measurements
    from grader.authoring.verify import verify_curriculum, verify_lab

    course = open_course()
    measurements = Measurements(course)
    found: list[Verification] = []
    for each in _labs(course, lab):
        with spinner() as show:
            found.append(verify_lab(each, measurements, lambda text: show(f"lab {each.number}: {text}")))  # noqa: B023
        say(_verified_line(found[-1]))
    problems = [problem for verification in found for problem in verification.problems]
    if lab is None:
        problems += verify_curriculum(course, measurements)
    if report is not None:
        report.write_text(kill_page(found), encoding="utf-8")
        say(f"mistakes and tests: {report}")
    for problem in problems:
        say(f"problem: {_from_root(course, problem)}", "red")
    if problems:
        raise typer.Exit(1)
    say("all is well", "green")


@app.command()
def generate(lab: LabArgument = None) -> None:
    """Write all that is generated.

    Stubs, the pages' tables and numbers, notebooks, sketches.
    """
    from grader.authoring.generate import generate_curriculum, generate_lab, generate_sketches, write_files
    from grader.authoring.pages import Measurements

    course = open_course()
    measurements = Measurements(course)
    changed: list[Path] = []
    for each in _labs(course, lab):
        with spinner() as show:
            show(f"lab {each.number}: page, stub, notebook")
            files = generate_lab(each, measurements)
            show(f"lab {each.number}: sketches of {len(each.mistakes)} mistakes")
            files[each.sketches] = generate_sketches(each)
            changed += write_files(each, files)
    if lab is None:
        changed += write_files(None, generate_curriculum(course, measurements))
    for path in changed:
        say(f"wrote {_from_root(course, str(path))}")
    if not changed:
        say("nothing to do: all generated files are up to date")


def _from_root(course: Course, text: str) -> str:
    """The text with the course's own paths as one writes them from its folder."""
    return text.replace(f"{course.root}{os.sep}", "")


def _labs(course: Course, wanted: str | None) -> list[Lab]:
    return [course.find_lab(wanted)] if wanted else list(course.labs)


def _step_line(state: StepState, started: bool) -> tuple[str, str]:
    """A step's line and its style."""
    text = state.text if started else "to do"
    points = f"{state.step.points if state.passed else 0} of {state.step.points} points"
    style = "green" if state.passed else "dim" if text == "to do" else "yellow"
    return f"  step {state.step.number}  {state.step.title:<34} {text:<26} {points}", style


def _verified_line(found: Verification) -> str:
    from grader.authoring.kill_table import kill_rows

    rows = kill_rows(found)
    rejected, named = sum(bool(row.rejected_by) for row in rows), sum(row.named for row in rows)
    return (
        f"lab {found.lab.number}: {len(found.tests)} tests, {rejected} of {len(found.lab.mistakes)} mistakes "
        f"rejected, {named} named; the solution uses at most {found.solution_ratio:.1%} of any tolerance"
    )
