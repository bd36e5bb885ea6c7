"""The command line: parse, call, print.

Heavy imports (torch, pytest, matplotlib) happen inside the commands that need them: `grader hint` is instant.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from grader.course import Course, CourseError, Lab, find_root, load_course

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(highlight=False)

LabArgument = Annotated[Optional[str], typer.Argument(help="a lab's number or name (default: all)")]


def main() -> None:
    """Entry point: a user's mistake is one line on stderr and exit status 2; Ctrl-C is 130."""
    try:
        app()
    except CourseError as error:
        print(f"grader: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("grader: interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)


def _course() -> Course:
    return load_course(find_root())


def _labs(course: Course, wanted: str | None) -> list[Lab]:
    return [course.find_lab(wanted)] if wanted else list(course.labs)


@app.command()
def status(lab: LabArgument = None) -> None:
    """Show how far your exercises are, and the next thing to do."""
    from grader.implementations import written_names
    from grader.progress import next_line, step_states
    from grader.running import run_tests

    for each in _labs(_course(), lab):
        console.print(f"[bold]lab {each.number}: {each.title}[/bold]")
        if not each.exercise.is_file():
            raise CourseError(f"{each.exercise} is missing; get it back with: git checkout -- {each.exercise}")
        started = written_names(each.exercise.read_text(encoding="utf-8", errors="replace"), each)
        results = run_tests(each, each.exercise, seed=0) if started else []
        states = step_states(each, results)
        for state in states:
            text = state.text if started else "to do"
            colour = "green" if state.passed else "dim" if text == "to do" else "yellow"
            points = f"{state.step.points if state.passed else 0} of {state.step.points} points"
            console.print(f"  step {state.step.number}  {state.step.title:<34} [{colour}]{text:<26}[/] {points}")
        if started:
            console.print(next_line(each, states), soft_wrap=True)
        else:
            console.print(
                f"next: read labs/{each.name}/README.md, then write step 1 in labs/{each.name}/exercise.py",
                soft_wrap=True,
            )


@app.command()
def hint(
    lab: Annotated[str, typer.Argument(help="a lab's number or name")],
    step: Annotated[str, typer.Argument(help="a step's number or id")],
) -> None:
    """Show the next hint of a step; there are three, from a nudge to nearly the code."""
    from grader.hints import HintLog

    course = _course()
    found = course.find_lab(lab)
    chosen = found.find_step(step)
    given = HintLog(course.root).next_hint(found, chosen)
    console.print(
        f"[bold]lab {found.number}, step {chosen.number} ({chosen.title}), hint {given.level} of {given.levels}[/bold]"
    )
    console.print(given.text.strip(), markup=False, soft_wrap=True)
    if given.level < given.levels:
        console.print(f"[dim]for the next one: grader hint {found.number} {chosen.number}[/dim]")


@app.command()
def grade(
    path: Annotated[Path, typer.Argument(help="one submission, or a folder that holds a class")],
    out: Annotated[Path, typer.Option(help="where gradebook and reports go")],
    lab: Annotated[Optional[str], typer.Option(help="the lab, if the folders don't say it")] = None,
    class_seed: Annotated[Optional[int], typer.Option(help="secret seed of the inputs (default: kept, else drawn)")] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="submissions at the same time")] = 1,
) -> None:
    """Grade one submission or a class: gradebook, table, CSV and HTML report in one go."""
    from grader.grading import grade as grade_class

    course = _course()
    chosen = course.find_lab(lab) if lab else None
    outcome = grade_class(path, course, out, chosen, class_seed, jobs, console=console)
    _report(course, outcome.results, out, outcome.seed)


@app.command()
def report(out: Annotated[Path, typer.Argument(help="the folder that `grader grade --out` wrote")]) -> None:
    """Write the reports of a graded class again, from its gradebook."""
    from grader.gradebook import Gradebook

    path = out / "gradebook.sqlite"
    if not path.is_file():
        raise CourseError(f"{path} does not exist; grade a class first: grader grade CLASS --out {out}")
    with Gradebook(path, create=False) as gradebook:
        results, seed = gradebook.results(), gradebook.class_seed()
    _report(_course(), results, out, seed or 0)


@app.command()
def verify(
    lab: LabArgument = None,
    report: Annotated[Optional[Path], typer.Option(help="write the table of mistakes and tests as HTML")] = None,
) -> None:
    """Check the labs: nothing stale, the solution passes, every known mistake is rejected."""
    from grader.authoring.kill_table import kill_page, kill_rows
    from grader.authoring.pages import Measurements
    from grader.authoring.verify import verify_curriculum, verify_lab

    course = _course()
    measurements = Measurements(course)
    found, problems = [], []
    for each in _labs(course, lab):
        with _spinner() as progress:
            task = progress.add_task(f"lab {each.number}: starting")
            found.append(
                verify_lab(each, measurements, lambda text: progress.update(task, description=f"lab {each.number}: {text}"))
            )
        problems += found[-1].problems
        rows = kill_rows(found[-1])
        console.print(
            f"lab {each.number}: {len(found[-1].tests)} tests, {sum(bool(row.rejected_by) for row in rows)} of "
            f"{len(each.mistakes)} mistakes rejected, {sum(row.named for row in rows)} named; "
            f"the solution uses at most {found[-1].solution_ratio:.1%} of any tolerance",
            soft_wrap=True,
        )
    if lab is None:
        problems += verify_curriculum(course, measurements)
    if report is not None:
        report.write_text(kill_page(found), encoding="utf-8")
        console.print(f"mistakes and tests: {report}", soft_wrap=True)
    for problem in problems:
        console.print(f"problem: {problem}", style="red", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    console.print("all is well", style="green")


@app.command()
def generate(lab: LabArgument = None) -> None:
    """Write all that is generated: stubs, pages' tables and numbers, notebooks, sketches."""
    from grader.authoring.generate import generate_curriculum, generate_lab, generate_sketches, write_files
    from grader.authoring.pages import Measurements

    course = _course()
    measurements = Measurements(course)
    changed: list[Path] = []
    for each in _labs(course, lab):
        with _spinner() as progress:
            progress.add_task(f"lab {each.number}")
            files = generate_lab(each, measurements)
            files[each.sketches] = generate_sketches(each)
            changed += write_files(each, files)
    if lab is None:
        changed += write_files(None, generate_curriculum(course, measurements))
    for path in changed:
        console.print(f"wrote {path}", soft_wrap=True)
    if not changed:
        console.print("nothing to do: all generated files are up to date")


def _report(course: Course, results: list[object], out: Path, seed: int) -> None:
    from grader.reports import print_summary, write_reports

    paths = [out / "gradebook.sqlite", *write_reports(results, course, out, seed)]  # type: ignore[arg-type]
    print_summary(results, course, paths, console)  # type: ignore[arg-type]


def _spinner() -> Progress:
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn(), console=console, transient=True
    )


