"""The graders that are compared, each as its documentation says for grading one submission on one machine."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module, metadata
from multiprocessing import get_context
from pathlib import Path

from bench import assignment
from bench.measure import run


class Tool:
    """A grader: `grade` runs it on a submission and returns how many of the checks it says have passed."""

    name: str
    distribution: str  # whose version is printed

    def __init__(self, folder: Path):
        self.folder = folder / type(self).__name__
        (self.folder / "tests").mkdir(parents=True)

    @classmethod
    def version(cls) -> str:
        """Return the version that is installed, "" if none is."""
        try:
            return metadata.version(cls.distribution)
        except metadata.PackageNotFoundError:
            return ""

    def prepare(self) -> None:
        """Write the assignment in the tool's own form; not part of what is measured."""

    def grade(self, functions: list[str]) -> int:
        raise NotImplementedError

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Pytest(Tool):
    name, distribution = "plain `pytest` process", "pytest"

    def prepare(self) -> None:
        self.write("tests/test_submission.py", assignment.pytest_file())

    def grade(self, functions: list[str]) -> int:
        self.write("submission.py", assignment.script(functions))
        program = "import pytest, sys; sys.exit(pytest.main(['-q']) > 1)"  # 1: some tests failed
        return run(["-c", program], self.folder).splitlines()[0].split()[0].count(".")


class Gradescope(Tool):
    name, distribution = "gradescope-utils (unittest, JSONTestRunner)", "gradescope-utils"

    PROGRAM = """
import unittest
from gradescope_utils.autograder_utils.json_test_runner import JSONTestRunner

suite = unittest.defaultTestLoader.discover("tests")
with open("results.json", "w") as stream:
    JSONTestRunner(visibility="visible", stream=stream).run(suite)
"""

    def prepare(self) -> None:
        self.write("tests/test_submission.py", assignment.unittest_file())
        self.write("run_tests.py", self.PROGRAM)

    def grade(self, functions: list[str]) -> int:
        self.write("submission.py", assignment.script(functions))
        run(["run_tests.py"], self.folder)
        results = json.loads((self.folder / "results.json").read_text())
        return sum(test["status"] == "passed" for test in results["tests"])


class Otter(Tool):
    name, distribution = "otter-grader (`otter run`)", "otter-grader"

    def prepare(self) -> None:
        for name in assignment.CHECKS:
            self.write(f"tests/{name}.py", assignment.doctest_file(name))
        run(["-m", "otter", "generate", "-t", "tests", "-o", "autograder.zip"], self.folder)

    def grade(self, functions: list[str]) -> int:
        self.write("submission.ipynb", assignment.notebook(functions))
        run(["-m", "otter", "run", "-a", "autograder.zip", "submission.ipynb"], self.folder)
        results = json.loads((self.folder / "results.json").read_text())
        return int(sum(test.get("score", 0) for test in results["tests"]))


class OtterWarm(Otter):
    name = "otter-grader (its API in a warm process)"

    def prepare(self) -> None:
        super().prepare()
        self.warm = ProcessPoolExecutor(1, get_context("spawn"), initializer=_hush)

    def grade(self, functions: list[str]) -> int:
        self.write("submission.ipynb", assignment.notebook(functions))
        paths = str(self.folder / "submission.ipynb"), str(self.folder / "autograder.zip")
        return self.warm.submit(_grade_by_otter, *paths).result()


def _hush() -> None:
    """Drop what the notebook kernels of this process say about themselves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _grade_by_otter(submission: str, autograder: str) -> int:
    return int(import_module("otter.api").grade_submission(submission, autograder, quiet=True).total)


class Nbgrader(Tool):
    name, distribution = "nbgrader (`nbgrader autograde`)", "nbgrader"
    students = 1

    def prepare(self) -> None:
        self.write("source/small/small.ipynb", assignment.notebook(assignment.RIGHT))
        run(["-m", "nbgrader", "generate_assignment", "small", "--force"], self.folder)

    def grade(self, functions: list[str]) -> int:
        for number in range(self.students):
            self.write(f"submitted/student{number}/small/small.ipynb", assignment.notebook(functions))
        run(["-m", "nbgrader", "autograde", "small", "--force"], self.folder)
        with sqlite3.connect(self.folder / "gradebook.db") as gradebook:
            (score,) = gradebook.execute("select sum(auto_score) from grade").fetchone()
        return int(score) // self.students


class NbgraderClass(Nbgrader):
    students = 3
    name = f"nbgrader, a class of {students}"


class Ours(Tool):
    name, distribution = "this grader, one submission", "llm-training-labs"
    students = 1

    def prepare(self) -> None:
        assignment.write_course(self.folder)

    def grade(self, functions: list[str]) -> int:
        """Grade a new class into a new gradebook, on one core: nothing is known from before."""
        for used in ("class", "out"):
            shutil.rmtree(self.folder / used, ignore_errors=True)
        for number in range(self.students):  # the comment, since equal submissions would be run once
            text = f"{assignment.script(functions)}\n# {number}\n"
            self.write(f"class/student{number}/exercise.py", text)
        run(["-m", "grader", "grade", "class", "--lab", "01", "--out", "out", "-j", "1"], self.folder)
        lines = (self.folder / "out" / "results.jsonl").read_text().splitlines()
        return min(json.loads(line)["points"] for line in lines) if len(lines) == self.students else 0


class OursClass(Ours):
    students = 41
    name = f"this grader, a class of {students}"


TOOLS = (Pytest, Gradescope, Otter, OtterWarm, Nbgrader, NbgraderClass, Ours, OursClass)
