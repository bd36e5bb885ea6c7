"""Check a lab: nothing generated is stale, the tests accept the solution and reject every mistake."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader import verdicts
from grader.authoring.generate import PRACTICE_SEED, generate_curriculum, generate_lab
from grader.authoring.pages import Measurements
from grader.authoring.trials import Trial, condense, run_checks, sketch_mistakes, try_mistakes
from grader.course import Course, CourseError, Lab, Mistake
from grader.diagnosis import Sketch, SketchBook
from grader.implementations import apply_mistake
from grader.running import Judged, collect_tests
from grader.verdicts import function_name

SEEDS = (PRACTICE_SEED, 1, 2)  # of the solution's runs; the tests of the course try twenty
MARGIN = 10.0  # the solution errs this many times less than allowed, each mistake this many times more
HINTS = 3

Progress = Callable[[str], None]


@dataclass
class Verification:
    """What was found: `problems` is empty for a sound lab."""

    lab: Lab
    problems: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    solution_ratio: float = 0.0  # the solution's largest error, as a share of what was allowed
    trials: list[Trial] = field(default_factory=list)
    sketches: SketchBook = field(default_factory=lambda: SketchBook(PRACTICE_SEED, {}))


def verify_lab(
    lab: Lab, measurements: Measurements, on_progress: Progress = lambda text: None
) -> Verification:
    """Run every check of the lab; problems are collected, not raised."""
    found = Verification(lab)
    on_progress("manifest and tests")
    found.tests = collect_tests(lab)
    found.problems += [*_manifest_problems(lab, found.tests), *_bare_asserts(lab)]
    if found.problems:
        return found  # without a step for every test nothing below means anything
    on_progress("generated files")
    try:
        generated = generate_lab(lab, measurements)
    except CourseError as error:
        found.problems.append(str(error))
        return found
    found.problems += stale_files(generated)
    on_progress("stub")
    found.problems += _stub_problems(lab, generated[lab.exercise])
    on_progress("solution")
    solution_runs = {seed: run_checks(lab, lab.solution, seed) for seed in SEEDS}
    found.problems += _solution_problems(found, solution_runs)
    unfit = {mistake.id: list(_edit_problems(lab, mistake)) for mistake in lab.mistakes}
    found.problems += [problem for problems in unfit.values() for problem in problems]
    applying = [mistake for mistake in lab.mistakes if not unfit[mistake.id]]
    found.trials = try_mistakes(
        lab, PRACTICE_SEED, applying, lambda trial: on_progress(f"mistake {trial.mistake.id}")
    )
    found.sketches = sketch_mistakes(lab, found.trials, PRACTICE_SEED)
    found.problems += _trial_problems(found.trials, solution_runs[PRACTICE_SEED])
    found.problems += _sketch_problems(lab, found.sketches)
    return found


def stale_files(generated: dict[Path, str]) -> Iterator[str]:
    """One line for each generated file that isn't what it must be."""
    for path, text in generated.items():
        now = path.read_text(encoding="utf-8") if path.is_file() else None
        if now is None:
            yield f"{path} is missing; run: grader generate"
        elif now != text:
            yield f"{path} is stale ({_first_difference(now, text)}); run: grader generate"


def verify_curriculum(course: Course, measurements: Measurements) -> list[str]:
    """One line for each chapter whose numbers are stale."""
    try:
        return list(stale_files(generate_curriculum(course, measurements)))
    except CourseError as error:
        return [str(error)]


def _first_difference(now: str, wanted: str) -> str:
    ours, theirs = now.splitlines(), wanted.splitlines()
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), start=1):
        if a != b:
            return f"line {number}: {a.strip()[:60]!r} must be {b.strip()[:60]!r}"
    return f"{len(ours)} lines instead of {len(theirs)}"


def _manifest_problems(lab: Lab, tests: Sequence[str]) -> Iterator[str]:
    listed = {test for step in lab.steps for test in step.tests}
    functions = {function_name(test) for test in tests}
    for name in sorted(functions - listed):
        yield f"{lab.tests_path}: {name} is in no step of lab.toml"
    for name in sorted(listed - functions):
        yield f"{lab.folder / 'lab.toml'}: {name} is no test of {lab.test_file}"
    for step in lab.steps:
        if len(step.hints) != HINTS or not all(hint.strip() for hint in step.hints):
            yield f"{lab.folder / 'lab.toml'}: step {step.number} needs {HINTS} hints, none empty"


def _bare_asserts(lab: Lab) -> Iterator[str]:
    """Graded tests use the checks only: a bare assert can't be compared outside the student's process."""
    tree = ast.parse(lab.tests_path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield f"{lab.tests_path} line {node.lineno}: bare assert; use grader.checks"


def _stub_problems(lab: Lab, stub: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stub-") as folder:
        path = Path(folder) / "stub.py"
        path.write_text(stub, encoding="utf-8")
        for run in run_checks(lab, path, PRACTICE_SEED):
            if run.verdict.verdict != verdicts.TO_DO:
                yield f"{run.verdict.test} says {run.verdict.verdict!r} of the stub, not 'to do'"


def _solution_problems(found: Verification, runs: dict[int, list[Judged]]) -> Iterator[str]:
    for seed, results in runs.items():
        for run in results:
            if not run.verdict.passed:
                yield f"the solution fails {run.verdict.test} at seed {seed}: {run.verdict.message}"
                continue
            for check in run.checks:
                if check.interval:
                    continue
                found.solution_ratio = max(found.solution_ratio, check.ratio)
                if check.ratio > 1 / MARGIN:
                    yield (
                        f"{run.verdict.test} at seed {seed}: in {check.what!r} the solution uses "
                        f"{check.ratio:.0%} of the tolerance, more than a tenth"
                    )


def _edit_problems(lab: Lab, mistake: Mistake) -> Iterator[str]:
    source = lab.solution.read_text(encoding="utf-8")
    try:
        edited = ast.parse(apply_mistake(source, mistake))
    except CourseError as error:
        yield str(error)
        return
    except SyntaxError as error:
        yield f"mistake {mistake.id!r}: its edit is not valid Python: {error.msg}"
        return
    if ast.dump(edited) == ast.dump(ast.parse(source)):
        yield f"mistake {mistake.id!r}: its edit changes nothing"


def _trial_problems(trials: Iterable[Trial], solution: Sequence[Judged]) -> Iterator[str]:
    expected = {run.verdict.test: condense(run).expected for run in solution}
    for trial in trials:
        id, step = trial.mistake.id, trial.mistake.step
        if not trial.failures:
            yield f"mistake {id!r} survives: no test of step {step!r} fails"
        elif trial.margin < MARGIN:
            yield f"mistake {id!r} fails by {trial.margin:.2g} times the tolerance only, not by {MARGIN:.0f}"
        for run in trial.runs:
            test = run.verdict.test
            for ours, theirs in zip(run.expected, expected[test], strict=False):
                if ours is not None and theirs is not None and not ours.fits(theirs, 0.0):
                    yield f"{test}: an expected value depends on the code under test (mistake {id!r})"
                    break


def _sketch_problems(lab: Lab, made: SketchBook) -> Iterator[str]:
    """Sketches are compared as numbers: another machine may round in another place."""
    stale = f"{lab.sketches} is stale; run: grader generate"
    try:
        kept = SketchBook.load(lab.sketches)
    except ValueError:
        kept = None
    if kept is None or kept.names != made.names or kept.entries.keys() != made.entries.keys():
        yield stale
        return
    for key, known in made.entries.items():
        old = kept.entries[key]
        if old.keys() != known.keys() or not all(_similar(known[id], old[id]) for id in known):
            yield f"{stale} ({key})"
            return


def _similar(a: Sketch, b: Sketch) -> bool:
    scale = max((abs(number) for number in a.numbers), default=0.0)
    return a.fits(b, 1e-6 * scale)
