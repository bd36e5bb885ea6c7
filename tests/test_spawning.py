"""Where processes can't be forked, each submission gets a fresh one: same verdicts, only slower."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.course import Lab
from grader.examiner import Examiner
from grader.limits import Limits
from tests.tiny_course import SOLUTION, make_course

LIMITS = Limits(test_seconds=1, import_seconds=2, cpu_seconds=0.3)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_course(tmp_path_factory.mktemp("course")).labs[0]


@pytest.fixture(scope="module")
def examiner(lab: Lab) -> Iterator[Examiner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(os, "fork")
        examiner = Examiner(lab, 7, LIMITS, confined=False)
        yield examiner
        examiner.stop()


def test_verdicts_are_the_same_in_a_fresh_process(examiner: Examiner, tmp_path: Path) -> None:
    exercise = tmp_path / "exercise.py"
    exercise.write_text("print('hello')\n" + SOLUTION.replace("x / 2", "x / 3"))
    judged = examiner.judge(exercise)
    assert [verdict["verdict"] for verdict in judged["verdicts"]] == ["pass", "pass", "wrong", "wrong"]
    assert judged["output"] == "hello\n" * judged["output"].count("hello")


def test_a_fresh_process_that_hangs_is_ended(examiner: Examiner, tmp_path: Path) -> None:
    exercise = tmp_path / "exercise.py"
    exercise.write_text("while True:\n    pass\n")
    judged = examiner.judge(exercise)
    assert judged["message"].startswith("importing the file took over 2 s, and no test was run; put what ")
