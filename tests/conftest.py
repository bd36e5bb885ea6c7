"""Shared by the tests of the grader."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from grader import plugin
from grader.course import Course
from tests.tiny_course import Finished, Run, make_course


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On several cores a file's tests stay together, which share a dear set-up; those of the labs do not."""
    for item in items:
        if item.path.name != "test_labs.py":
            item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The tiny course, in a folder of this test's own."""
    return make_course(tmp_path / "course")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """An empty folder for what a class hands in."""
    folder = tmp_path / "class"
    folder.mkdir()
    return folder


@pytest.fixture
def run_pytest(tmp_path: Path) -> Run:
    """`run_pytest("labs/01_tiny", "--seed", "3")` in the folder of the test's course.

    In this process, since importing torch anew would take most of the time.
    """

    def run(*arguments: str) -> Finished:
        out, err = io.StringIO(), io.StringIO()
        options = ["--noconftest", "--rootdir=.", "-pno:cacheprovider", "--disable-plugin-autoload"]
        with contextlib.chdir(tmp_path), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = pytest.main([*options, *arguments], plugins=[plugin])
        return Finished(int(status), out.getvalue(), err.getvalue())

    return run
