"""The pytest plugin: which implementation is under test, seeded inputs, short reports, the next step.

A test of a lab takes the fixtures `lab` (the module under test, loaded fresh) and `rng` (a seeded generator).
"""

from __future__ import annotations

import inspect
import tempfile
import traceback
from collections.abc import Generator, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from grader import checks, settings, verdicts
from grader.advice import advice
from grader.comparison import Check
from grader.course import CourseError, Lab, find_root, load_lab
from grader.diagnosis import SketchBook
from grader.implementations import (
    BrokenImplementation,
    apply_mistake,
    describe_error,
    left_out_line,
    load,
)
from grader.progress import next_line, step_states
from grader.timing import TimedOut, time_limit
from grader.verdicts import Verdict

KNOWN_LAB = pytest.StashKey[Lab]()  # the caller's, so that its manifests need not be read again
LAB = pytest.StashKey[Lab]()
IMPLEMENTATION = pytest.StashKey[Path]()
SKETCHES = pytest.StashKey[SketchBook | None]()
LOG = pytest.StashKey[checks.Log]()
FAILURE = pytest.StashKey[tuple[int, Check]]()  # place of the check that failed in the test, the check
LEFT_OUT = pytest.StashKey[dict[str, str]]()  # lab name → the line on what was left out of its file
VERDICTS = pytest.StashKey[dict[str, tuple[Lab, list[Verdict]]]]()  # by lab name, in order

TEST_SECONDS = 60.0  # a test of a lab takes a second at most; after this, the exercise hangs
MOST_COLUMNS = 90


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("course", "the course's labs")
    group.addoption(
        "--impl",
        default="exercise",
        metavar="WHAT",
        help="what the labs' tests judge: 'exercise' (default), 'solution', 'mistake:ID' or a path",
    )
    group.addoption("--seed", type=int, default=0, help="changes every input of the labs' tests (default 0)")
    group.addoption("--step", default=None, metavar="N", help="only the tests of this step (number or id)")


def pytest_configure(config: pytest.Config) -> None:
    settings.spare_the_compiler()
    config.stash[VERDICTS] = {}
    config.stash[LEFT_OUT] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find out which items are tests of a lab; keep only the wanted step's."""
    labs: dict[Path, tuple[Lab, Path] | None] = {}  # folder → its lab and the file under test
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    try:
        for item in items:
            folder = item.path.parent
            if folder not in labs:
                found = _lab_of(folder, config.stash.get(KNOWN_LAB, None))
                labs[folder] = (found, _implementation(config, found)) if found else None
            known = labs[folder]
            if known is None:
                kept.append(item)
                continue
            lab, item.stash[IMPLEMENTATION] = known
            item.stash[LAB] = lab
            # The course turns its own warnings into errors; a student's warning fails no test.
            item.add_marker(pytest.mark.filterwarnings("default"), append=False)
            wanted = config.getoption("--step")
            chosen = wanted is None or lab.find_step(wanted) == lab.step_of(item.name)
            (kept if chosen else dropped).append(item)
    except CourseError as error:
        raise pytest.UsageError(str(error)) from None
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and items and all(LAB in item.stash for item in items):
        reporter.reportchars = ""  # the failures are short enough to need no second list
        config.option.tbstyle = "native"  # replaced by the verdict's message; pytest's own is slow to make


def _lab_of(folder: Path, known: Lab | None) -> Lab | None:
    if known is not None and known.folder == folder:
        return known
    if not (folder / "lab.toml").is_file():
        return None
    return load_lab(folder, find_root(folder) / "solutions" / folder.name)


def _implementation(config: pytest.Config, lab: Lab) -> Path:
    """The file that `--impl` names for this lab."""
    wanted: str = config.getoption("--impl")
    if wanted == "exercise":
        return lab.exercise
    if wanted == "solution":
        return lab.solution
    if wanted.startswith("mistake:"):
        return _write_mistake(config, lab, wanted.removeprefix("mistake:"))
    path = config.invocation_params.dir / wanted
    if not path.is_file():
        raise CourseError(
            f"--impl {wanted}: no such file (give 'exercise', 'solution', 'mistake:ID' or a path)"
        )
    return path


def _write_mistake(config: pytest.Config, lab: Lab, id: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mistake-"))
    config.add_cleanup(lambda: _remove(folder))
    path = folder / f"{id}.py"
    path.write_text(
        apply_mistake(lab.solution.read_text(encoding="utf-8"), lab.mistake(id)), encoding="utf-8"
    )
    return path


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _sketches(config: pytest.Config, lab: Lab) -> SketchBook | None:
    """The known mistakes' sketches for this run's inputs: the caller's, else the lab's own (seed 0)."""
    if SKETCHES in config.stash:
        return config.stash[SKETCHES]
    book = _load_sketches(lab.sketches)
    return book if book is not None and book.seed == config.getoption("--seed") else None


@lru_cache(maxsize=16)
def _load_sketches(path: Path) -> SketchBook | None:
    try:
        return SketchBook.load(path)
    except ValueError:
        return None  # said once, at the end of the run


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> torch.Generator:
    """The only source of a lab test's inputs: a generator of this test's own, moved by `--seed`."""
    return settings.inputs(settings.stream(request.config.getoption("--seed"), request.node.name))


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module under test, loaded fresh; whatever it changes for everybody is put back."""
    item = request.node
    if IMPLEMENTATION not in item.stash:
        raise pytest.UsageError(f"{item.nodeid}: the fixture `lab` belongs in a lab's folder (labs/NN_name)")
    torch.set_num_threads(1)  # the tests' tensors are tiny, and results then don't depend on the machine
    settings.seed_globals(settings.stream(request.config.getoption("--seed"), item.name))
    with settings.restored():
        with settings.restored():  # what the import changes must not reach the test either
            left_out: list[str] = []
            module = load(item.stash[IMPLEMENTATION], left_out)
        if left_out:
            line = left_out_line(item.stash[IMPLEMENTATION], left_out)
            request.config.stash[LEFT_OUT].setdefault(item.stash[LAB].name, line)
        yield module


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    if LAB not in pyfuncitem.stash:
        return (yield)
    with checks.recording() as log, time_limit(TEST_SECONDS):
        pyfuncitem.stash[LOG] = log
        try:
            return (yield)
        except (KeyboardInterrupt, pytest.exit.Exception) as error:
            if not _raised_by(error, pyfuncitem.stash[IMPLEMENTATION]):
                raise  # a person's Ctrl-C
            raise RuntimeError(
                f"the exercise raised {type(error).__name__}, which would end the run"
            ) from None


def _raised_by(error: BaseException, path: Path) -> bool:
    """Whether a line of the exercise raised this itself."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = (frames[-1].line or "") if frames else ""
    return type(error).__name__ in line or "exit(" in line


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give each finished lab test its verdict, and a report that a student can read."""
    report = yield
    finished = call.when == "call" or (call.when == "setup" and call.excinfo is not None)
    if LAB not in item.stash or not finished:
        return report
    verdict = _verdict(item, call)
    report.sections.clear()
    if not verdict.passed:
        # A test that the exercise skips or expects to fail has failed: only the course may skip.
        report.outcome = "failed"
        report.__dict__.pop("wasxfail", None)
        report.longrepr = verdict.message
    report.verdict = verdict  # type: ignore[attr-defined]
    lab = item.stash[LAB]
    report.lab_folder = str(lab.folder)  # type: ignore[attr-defined]
    item.config.stash[VERDICTS].setdefault(lab.name, (lab, []))[1].append(verdict)
    return report


def _verdict(item: pytest.Item, call: pytest.CallInfo[None]) -> Verdict:
    seconds = call.duration
    if call.excinfo is None:
        return Verdict(item.name, verdicts.PASS, seconds=seconds)
    error = call.excinfo.value
    if isinstance(error, checks.CheckFailed):
        message, mistake = _explain_check(item, error)
        return Verdict(item.name, verdicts.WRONG, message, seconds, mistake)
    path = item.stash[IMPLEMENTATION]
    if isinstance(error, TimedOut):
        return Verdict(item.name, verdicts.TIME_OUT, describe_error(error, path), seconds)
    if isinstance(error, NotImplementedError) and _is_to_do(error, path):
        return Verdict(item.name, verdicts.TO_DO, _to_do_line(error), seconds)
    message, mistake = _explain_error(item, error, path)
    return Verdict(item.name, verdicts.ERROR, message, seconds, mistake)


def _explain_check(item: pytest.Item, error: checks.CheckFailed) -> tuple[str, str | None]:
    lines = str(error).splitlines()
    return _with_diagnosis(item, lines, error.index, error.check)


def _explain_error(item: pytest.Item, error: BaseException, path: Path) -> tuple[str, str | None]:
    """What a student needs of an exception: what, where in the file, where in the test."""
    if isinstance(error, BrokenImplementation):
        return str(error), None
    if isinstance(error, checks.MissingName):
        return f"{error}; the stub had it (step {item.stash[LAB].step_of(item.name).number})", None
    if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
        return "the exercise skipped its own test, which counts as not passed", None
    lines = [describe_error(error, path), *advice(error)]
    test_file = inspect.getfile(item.function) if isinstance(item, pytest.Function) else str(item.path)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == test_file]
    if frames:
        lines.append(f"  in the test, line {frames[-1].lineno}: {_shortened(frames[-1].line or '')}")
    if isinstance(error, TypeError) and frames and path.name not in lines[0]:
        lines.append("  the stub's signatures must stay as they were")
    check = Check("", False, 0.0, f"raised {type(error).__name__}")
    index = len(item.stash[LOG].checks) if LOG in item.stash else 0
    return _with_diagnosis(item, lines, index, check)


def _shortened(line: str) -> str:
    return line if len(line) <= MOST_COLUMNS else line[: MOST_COLUMNS - 1] + "…"


def _with_diagnosis(item: pytest.Item, lines: list[str], index: int, check: Check) -> tuple[str, str | None]:
    """Add the named mistake, if the wrong value is a known one, and where to read."""
    lab = item.stash[LAB]
    item.stash[FAILURE] = (index, check)
    book = _sketches(item.config, lab)
    ids = book.match_check(item.name, index, check) if book else []
    if book and ids:
        lines = [
            *lines[: verdicts.MESSAGE_LINES - 2],
            "  looks like: " + ", or ".join(book.names[id] for id in ids),
        ]
    section = lab.step_of(item.name).section
    lines = [*lines[: verdicts.MESSAGE_LINES - 1], f"  → README section {section}"]
    return "\n".join(lines), ids[0] if ids else None


def _is_to_do(error: NotImplementedError, path: Path) -> bool:
    """Raised by the exercise itself: torch, too, raises NotImplementedError."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == str(path)


def _to_do_line(error: NotImplementedError) -> str:
    text = verdicts.one_line(error)
    return f"to do: {text}" if text else "to do"


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    report: pytest.TestReport,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """For `pytest -n 2` (pytest-xdist), whose processes can only send each other plain data."""
    data = yield
    if data and isinstance(data.get("verdict"), Verdict):
        data["verdict"] = asdict(data["verdict"])
    return data


@pytest.hookimpl(wrapper=True)
def pytest_report_from_serializable(
    config: pytest.Config, data: dict[str, Any]
) -> Generator[None, pytest.TestReport | None, pytest.TestReport | None]:
    """The other end of that: a verdict again, counted where the summary is written."""
    report = yield
    if report is not None and "lab_folder" in data:
        report.verdict = verdict = Verdict(**data["verdict"])  # type: ignore[attr-defined]
        folder, known = Path(data["lab_folder"]), config.stash[VERDICTS]
        if folder.name not in known and (lab := _lab_of(folder, None)):
            known[lab.name] = (lab, [])
        known[folder.name][1].append(verdict)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show what is still to do as such, and a broken file once instead of once a test."""
    verdict: Verdict | None = getattr(report, "verdict", None)
    if verdict is None:
        return None
    if verdict.verdict == verdicts.TO_DO:
        return "to do", "-", "TO DO"
    if verdict.verdict == verdicts.ERROR and report.when == "setup":
        return "broken", "E", "BROKEN"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """For each lab: one line a step."""
    for lab, results in config.stash[VERDICTS].values():
        name = _implementation_name(config, lab)
        terminalreporter.section(f"lab {lab.number}: {lab.title} ({name}, seed {config.getoption('--seed')})")
        for state in step_states(lab, results):
            if not state.tests:
                continue  # left out by --step or -k
            points = f"{state.step.points if state.passed else 0} of {state.step.points} points"
            terminalreporter.line(
                f"  step {state.step.number}  {state.step.title:<34} {state.text:<26} {points}"
            )
        if lab.name in config.stash[LEFT_OUT]:
            terminalreporter.line(config.stash[LEFT_OUT][lab.name], yellow=True)
        try:
            SketchBook.load(lab.sketches)
        except ValueError as error:
            terminalreporter.line(f"no mistake can be named: {error}", yellow=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """The last line of a run of labs: the next thing to do."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    for lab, results in session.config.stash[VERDICTS].values():
        if reporter is not None:
            reporter.line(next_line(lab, step_states(lab, results)), bold=True)


def _implementation_name(config: pytest.Config, lab: Lab) -> str:
    wanted: str = config.getoption("--impl")
    return f"your {lab.exercise.name}" if wanted == "exercise" else wanted
