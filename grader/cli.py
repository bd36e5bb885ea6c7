"""The command line: parse, call, print.

Heavy imports (torch, pytest, matplotlib) happen inside the commands that need them: `grader hint` is instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from grader.course import Course, CourseError, Lab, find_root, load_course
from grader.progress import StepState

if TYPE_CHECKING:
    from collections.abc import Callable

    from grader.authoring.verify import Verification
    from grader.marking import Result

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

    for each in _labs(_course(), lab):
        _say(f"lab {each.number}: {each.title}", "bold")
        if not each.exercise.is_file():
            raise CourseError(
                f"{each.exercise} is missing; get it back with: git checkout -- {each.exercise}"
            )
        started = written_names(each.exercise.read_text(encoding="utf-8", errors="replace"), each)
        with _spinner() as show:
            show(f"running pytest labs/{each.name}")
            states = step_states(each, run_tests(each, each.exercise, seed=0) if started else [])
        for state in states:
            _say(*_step_line(state, bool(started)))
        start = f"next: read labs/{each.name}/README.md, then write step 1 in labs/{each.name}/exercise.py"
        _say(next_line(each, states) if started else start)


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

    course = _course()
    found = course.find_lab(lab)
    chosen = found.find_step(step)
    given = HintLog(course.root).next_hint(found, chosen, level)
    place = f"lab {found.number}, step {chosen.number} ({chosen.title})"
    _say(f"{place}, hint {given.level} of {given.levels}", "bold")
    _say(given.text.strip())
    again = f"grader hint {found.number} {chosen.number}"
    last = f"that was the last one; to see an earlier one: {again} --level 1"
    _say(f"for the next one: {again}" if given.level < given.levels else last, "dim")


@app.command()
def grade(
    path: Annotated[Path, typer.Argument(help="one submission, or a folder that holds a class")],
    out: Annotated[Path, typer.Option(help="where gradebook and reports go")],
    lab: Annotated[str | None, typer.Option(help="the lab, if the folders don't say it")] = None,
    class_seed: Annotated[
        int | None, typer.Option(help="secret seed of the inputs (default: the gradebook's, else drawn)")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="submissions at the same time")] = 1,
) -> None:
    """Grade one submission or a class.

    Writes the gradebook, a CSV, JSON Lines and an HTML report, and shows a table.
    """
    from grader.gradebook import Gradebook
    from grader.grading import GRADEBOOK
    from grader.grading import grade as grade_class
    from grader.reports import ClassProgress

    course = _course()
    chosen = course.find_lab(lab) if lab else None
    with ClassProgress(_console()) as progress:
        outcome = grade_class(
            path,
            course,
            out,
            chosen,
            class_seed,
            jobs,
            on_progress=progress.show,
        )
    with Gradebook(out / GRADEBOOK) as gradebook:
        everyone = gradebook.results()  # also those of earlier runs, when only a part of the class came now
    _report(course, everyone, outcome.results, out, outcome.seed)
    for note in outcome.notes:
        _say(note, "yellow")


@app.command()
def report(out: Annotated[Path, typer.Argument(help="the folder that `grader grade --out` wrote")]) -> None:
    """Write a class's reports again."""
    from grader.gradebook import Gradebook
    from grader.grading import GRADEBOOK

    path = out / GRADEBOOK
    if not path.is_file():
        raise CourseError(f"{path} does not exist; grade a class first: grader grade CLASS --out {out}")
    with Gradebook(path, create=False) as gradebook:
        results, seed = gradebook.results(), gradebook.class_seed()
    _report(_course(), results, results, out, seed or 0)


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

    course = _course()
    measurements = Measurements(course)
    found: list[Verification] = []
    for each in _labs(course, lab):
        with _spinner() as show:
            found.append(verify_lab(each, measurements, lambda text: show(f"lab {each.number}: {text}")))  # noqa: B023
        _say(_verified_line(found[-1]))
    problems = [problem for verification in found for problem in verification.problems]
    if lab is None:
        problems += verify_curriculum(course, measurements)
    if report is not None:
        report.write_text(kill_page(found), encoding="utf-8")
        _say(f"mistakes and tests: {report}")
    for problem in problems:
        _say(f"problem: {_from_root(course, problem)}", "red")
    if problems:
        raise typer.Exit(1)
    _say("all is well", "green")


@app.command()
def generate(lab: LabArgument = None) -> None:
    """Write all that is generated.

    Stubs, the pages' tables and numbers, notebooks, sketches.
    """
    from grader.authoring.generate import generate_curriculum, generate_lab, generate_sketches, write_files
    from grader.authoring.pages import Measurements

    course = _course()
    measurements = Measurements(course)
    changed: list[Path] = []
    for each in _labs(course, lab):
        with _spinner() as show:
            show(f"lab {each.number}: page, stub, notebook")
            files = generate_lab(each, measurements)
            show(f"lab {each.number}: sketches of {len(each.mistakes)} mistakes")
            files[each.sketches] = generate_sketches(each)
            changed += write_files(each, files)
    if lab is None:
        changed += write_files(None, generate_curriculum(course, measurements))
    for path in changed:
        _say(f"wrote {_from_root(course, str(path))}")
    if not changed:
        _say("nothing to do: all generated files are up to date")


def _course() -> Course:
    return load_course(find_root())


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


def _report(
    course: Course, everyone: Sequence[Result], shown: Sequence[Result], out: Path, seed: int
) -> None:
    """Write the reports of everyone in the gradebook; show those of this run."""
    from grader.grading import GRADEBOOK
    from grader.reports import print_summary, write_reports

    paths = [out / GRADEBOOK, *write_reports(everyone, course, out, seed)]
    print_summary(shown, course, paths, _console())


def _console() -> Console:
    return Console(highlight=False)


def _say(text: str, style: str = "") -> None:
    """One line, never wrapped: it may hold a path or a command to copy."""
    _console().print(text, style=style, markup=False, soft_wrap=True)


@contextmanager
def _spinner() -> Iterator[Callable[[str], None]]:
    """What is being done right now, on a terminal; nothing in a file or a pipe."""
    console = _console()
    if not console.is_terminal:
        yield lambda text: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=text)
