"""Run a lab's tests on one file, in this process, through pytest; collect the verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader import plugin
from grader.checks import Check
from grader.course import CourseError, Lab
from grader.diagnosis import SketchBook
from grader.verdicts import Verdict


@dataclass(frozen=True)
class Judged:
    """One test's verdict with the checks that it made; `failure` is the one that ended it, and its place."""

    verdict: Verdict
    checks: tuple[Check, ...]
    failure: tuple[int, Check] | None


Listener = Callable[[Judged], None]


def collect_tests(lab: Lab) -> list[str]:
    """The ids of the lab's tests, in the order of the file."""
    session = _Session()
    _run(lab, ["--collect-only"], session)
    return [item.name for item in session.items]


def run_tests(
    lab: Lab,
    implementation: Path,
    seed: int,
    tests: Sequence[str] | None = None,
    *,
    sketches: SketchBook | None = None,
    on_start: Callable[[str], None] | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
    on_run: Listener | None = None,
) -> list[Verdict]:
    """Run the lab's tests (or only `tests`, ids as `collect_tests` gives them) on a file.

    `sketches` names mistakes; without it no mistake is named.
    `on_run` gets each verdict with the checks that its test made.
    A file that can't be loaded gives every test the same "error" verdict.
    """
    session = _Session(tests, sketches, on_start, on_verdict, on_run)
    _run(lab, [f"--impl={implementation}", f"--seed={seed}"], session)
    return session.verdicts


def _run(lab: Lab, options: Sequence[str], session: _Session) -> None:
    root = lab.folder.parents[1]
    arguments = [
        str(lab.tests_path),
        *options,
        f"--rootdir={root}",
        f"--config-file={root / 'pyproject.toml'}",
        "--noconftest",  # the plugin is given below; nothing else may configure a run
        "-pno:terminal",
        "--capture=no",  # a student's prints belong to whoever started this process
        "-pno:cacheprovider",
        "-pno:unraisableexception",  # collects garbage five times a run, and a lab test starts no thread
        "--disable-plugin-autoload",  # only what the course itself brings
    ]
    try:
        status = pytest.main(arguments, plugins=[plugin, session])
    finally:
        _forget(lab.tests_path)
    if session.trouble or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise CourseError(f"{lab.tests_path}: pytest could not run it ({status!r}) {session.trouble}".strip())


def _forget(test_file: Path) -> None:
    """Take the test module out of Python's memory: another course's file may have the same module name."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(test_file):
            del sys.modules[name]


class _Session:
    """Listens to one run of pytest."""

    def __init__(
        self,
        tests: Sequence[str] | None = None,
        sketches: SketchBook | None = None,
        on_start: Callable[[str], None] | None = None,
        on_verdict: Callable[[Verdict], None] | None = None,
        on_run: Listener | None = None,
    ):
        self.wanted = None if tests is None else set(tests)
        self.sketches = sketches
        self.on_start = on_start
        self.on_verdict = on_verdict
        self.on_run = on_run
        self.items: list[pytest.Item] = []
        self.verdicts: list[Verdict] = []
        self.trouble = ""  # why the test file itself could not be collected

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.SKETCHES] = self.sketches

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.wanted is not None:
            items[:] = [item for item in items if item.name in self.wanted]
        self.items = list(items)

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
            self.verdicts.append(verdict)
            if self.on_verdict is not None:
                self.on_verdict(verdict)
            if self.on_run is not None:
                log = item.stash.get(plugin.LOG, None)
                checks = tuple(log.checks) if log else ()
                self.on_run(Judged(verdict, checks, item.stash.get(plugin.FAILURE, None)))
        return report
