"""A class's marks and a student's own `pytest` agree: the same file gets the same verdicts on both ways.

One compares in the student's process, the other outside of it, on values that crossed a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.course import load_course
from grader.implementations import apply_mistake
from grader.running import run_tests
from grader.worker import Examiner

ROOT = Path(__file__).resolve().parents[1]
LAB = load_course(ROOT).find_lab("02")
SEED = 5
EVERY = 17  # of the lab's mistakes, whose order is by step


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(LAB, SEED) as examiner:
        yield examiner


@pytest.mark.parametrize("id", [mistake.id for mistake in LAB.mistakes[::EVERY]])
def test_a_mistake_gets_the_same_verdicts_and_name(examiner: Examiner, tmp_path: Path, id: str) -> None:
    mistake = LAB.mistake(id)
    path = tmp_path / "exercise.py"
    path.write_text(apply_mistake(LAB.solution.read_text(encoding="utf-8"), mistake), encoding="utf-8")
    graded = examiner.judge(path.read_text(encoding="utf-8")).verdicts
    practised = run_tests(LAB, path, SEED)
    assert [(one.test, one.verdict) for one in graded] == [(one.test, one.verdict) for one in practised]
    assert any(not one.passed for one in graded if LAB.step_of(one.test).id == mistake.step)
    for ours, theirs in zip(graded, practised, strict=True):
        if ours.verdict == "wrong":
            assert ours.message.splitlines()[0] == theirs.message.splitlines()[0]


def test_the_stub_is_to_do_everywhere(examiner: Examiner) -> None:
    verdicts = examiner.judge(LAB.exercise.read_text(encoding="utf-8")).verdicts
    assert {verdict.verdict for verdict in verdicts} == {"to do"}


def test_known_mistakes_are_named_on_a_secret_seed(examiner: Examiner) -> None:
    source = LAB.solution.read_text(encoding="utf-8")
    chosen = LAB.mistakes[::50]
    named = 0
    for mistake in chosen:
        verdicts = examiner.judge(apply_mistake(source, mistake)).verdicts
        named += any(mistake.name in one.message for one in verdicts)
    assert named >= len(chosen) - 1  # a few share their wrong value with too many others
