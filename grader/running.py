"""Run a lab's tests on one file, in this process, through pytest; collect the verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader import plugin
from grader.comparison import Check
from grader.course import CourseError, Lab
from grader.diagnosis import SketchBook
from grader.verdicts import Verdict


@dataclass(frozen=True)
class Judged:
    """One test's verdict with the checks that it made; `failure` is the one that ended it, and its place."""

    verdict: Verdict
    checks: tuple[Check, ...]
    failure: tuple[int, Check] | None


@dataclass(frozen=True)
class Job:
    """A file to judge, and the tests to judge it with (None: all)."""

    implementation: Path
    tests: Sequence[str] | None = None


def collect_tests(lab: Lab) -> list[str]:
    """The ids of the lab's tests, in the order of the file."""
    session = _Session(lab, [])
    _run(lab, 0, session)
    return [item.name for item in session.items]


def collect_functions(lab: Lab) -> list[tuple[str, str]]:
    """The id and the function's name of each of the lab's tests, in the order of the file."""
    session = _Session(lab, [])
    _run(lab, 0, session)
    return [(item.name, item.originalname) for item in session.items if isinstance(item, pytest.Function)]


def run_tests(
    lab: Lab,
    implementation: Path,
    seed: int,
    tests: Sequence[str] | None = None,
    *,
    sketches: SketchBook | None = None,
    on_start: Callable[[str], None] | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Run the lab's tests (or only `tests`, ids as `collect_tests` gives them) on a file.

    `sketches` names mistakes; without it no mistake is named.
    A file that can't be loaded gives every test the same "error" verdict.
    """
    session = _Session(lab, [Job(implementation, tests)], sketches, on_start, on_verdict)
    _run(lab, seed, session)
    return [judged.verdict for judged in session.judged]


def run_jobs(lab: Lab, jobs: Sequence[Job], seed: int, on_job: Callable[[int, list[Judged]], None]) -> None:
    """Run many files one after the other; the tests are collected once.

    `on_job` gets each job's place and its tests' verdicts, with the checks that they made.
    """
    _run(lab, seed, _Session(lab, jobs, on_job=on_job))


def _run(lab: Lab, seed: int, session: _Session) -> None:
    root = lab.folder.parents[1]
    arguments = [
        str(lab.tests_path),
        f"--seed={seed}",
        f"--rootdir={root}",
        f"--config-file={root / 'pyproject.toml'}",
        "--noconftest",  # the plugin is given below; nothing else may configure a run
        "--assert=plain",  # labs' tests have no assert to rewrite
        "-pno:terminal",
        "--capture=no",  # a student's prints belong to whoever started this process
        "-pno:cacheprovider",
        "-pno:logging",  # looks at every logger around every test
        "-pno:unraisableexception",  # collects garbage five times a run, and a lab test starts no thread
        "--disable-plugin-autoload",  # only what the course itself brings
    ]
    _forget(lab.tests_path)
    try:
        status = pytest.main(arguments, plugins=[plugin, session])
    finally:
        _forget(lab.tests_path)
    if session.trouble or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise CourseError(f"{lab.tests_path}: pytest could not run it ({status!r}) {session.trouble}".strip())


def _forget(test_file: Path) -> None:
    """Take test modules of this name out of Python's memory: another course's file may have the same one."""
    for name, module in list(sys.modules.items()):
        if (
            name.endswith(f".{test_file.stem}")
            and Path(getattr(module, "__file__", None) or "").name == test_file.name
        ):
            del sys.modules[name]


class _Session:
    """One run of pytest: collects once, then judges one file after the other."""

    def __init__(
        self,
        lab: Lab,
        jobs: Sequence[Job],
        sketches: SketchBook | None = None,
        on_start: Callable[[str], None] | None = None,
        on_verdict: Callable[[Verdict], None] | None = None,
        on_job: Callable[[int, list[Judged]], None] | None = None,
    ):
        self.lab = lab
        self.jobs = jobs
        self.sketches = sketches
        self.on_start = on_start
        self.on_verdict = on_verdict
        self.on_job = on_job
        self.items: list[pytest.Item] = []
        self.judged: list[Judged] = []  # of the job in work
        self.trouble = ""  # why the test file itself could not be collected

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.option.tbstyle = "native"  # the plugin replaces tracebacks; pytest's own cost 0.1 s a failure
        config.stash[plugin.SKETCHES] = self.sketches
        config.stash[plugin.KNOWN_LAB] = self.lab

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = str(report.longrepr)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        for place, job in enumerate([] if self.trouble else self.jobs):
            self.judged = []
            for item in session.items:
                if job.tests is None or item.name in job.tests:
                    self._run_item(item, job.implementation)
            if self.on_job is not None:
                self.on_job(place, self.judged)
        return True

    def _run_item(self, item: pytest.Item, implementation: Path) -> None:
        item.stash[plugin.IMPLEMENTATION] = implementation
        if plugin.LOG in item.stash:
            del item.stash[plugin.LOG]
        if plugin.FAILURE in item.stash:
            del item.stash[plugin.FAILURE]
        if isinstance(item, pytest.Function):
            item._initrequest()  # fixtures of an earlier job must not be met again
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.on_start is not None:
            self.on_start(nodeid.partition("::")[2])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        verdict: Verdict | None = getattr(report, "verdict", None)
        if verdict is not None:
            log = item.stash.get(plugin.LOG, None)
            checks = tuple(log.checks) if log else ()
            self.judged.append(Judged(verdict, checks, item.stash.get(plugin.FAILURE, None)))
            if self.on_verdict is not None:
                self.on_verdict(verdict)
        return report
