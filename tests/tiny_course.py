"""A course with one tiny lab in a folder of its own, for tests of the grader."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader import cli
from grader.course import Course, load_course


@dataclass(frozen=True)
class Finished:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Finished]  # runs a command with these arguments

LAB_TOML = """
title = "Tiny"
summary = "Two functions."
test_file = "test_tiny.py"

[[steps]]
number = 1
id = "double"
title = "Doubling"
points = 3
section = "1"
todo = ["double"]
tests = ["test_double", "test_double_of_zero"]
hints = ["a", "b", "c"]

[[steps]]
number = 2
id = "half"
title = "Halving"
points = 2
section = "2"
todo = ["half"]
tests = ["test_half"]
hints = ["a", "b", "c"]
"""

TESTS = """
import pytest
import torch
from grader.checks import assert_matches


def test_double(lab, rng):
    x = float(torch.rand((), generator=rng, dtype=torch.float64)) + 1
    assert_matches(lab.double(x), lambda: 2 * x, atol=0, rtol=0, what="double")


def test_double_of_zero(lab):
    assert_matches(lab.double(0.0), lambda: 0.0, atol=0, rtol=0, what="double of zero")


@pytest.mark.parametrize("x", [1.0, 3.0])
def test_half(lab, x):
    assert_matches(lab.half(x), lambda: x / 2, atol=0, rtol=0, what="half")
"""

PLAN = ["test_double", "test_double_of_zero", "test_half[1.0]", "test_half[3.0]"]

SOLUTION = """
def double(x):
    return x + x


def half(x):
    return x / 2
"""

STUB = """
def double(x):
    raise NotImplementedError("lab 01, step 1: double (README section 1)")


def half(x):
    raise NotImplementedError("lab 01, step 2: half (README section 2)")
"""


def make_course(root: Path) -> Course:
    """Write the course below `root` and return it."""
    lab = root / "labs" / "01_tiny"
    lab.mkdir(parents=True)
    (root / "solutions" / "01_tiny").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    (root / "conftest.py").write_text('pytest_plugins = ["grader.plugin"]\n')
    (lab / "lab.toml").write_text(LAB_TOML)
    (lab / "test_tiny.py").write_text(TESTS)
    (lab / "exercise.py").write_text(STUB)
    (root / "solutions" / "01_tiny" / "solution.py").write_text(SOLUTION)
    return load_course(root)


def command_line(folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> Run:
    """`command_line(…)("hint", "1", "2")` is `grader hint 1 2` in a folder, in this process."""

    def call(*arguments: str) -> Finished:
        capsys.readouterr()
        patch.setattr("sys.argv", ["grader", *arguments])
        with contextlib.chdir(folder), pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        status = end.value.code
        return Finished(status if isinstance(status, int) else 0, out, err)

    return call


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
