"""A grader that is killed at any moment, and two at once: nothing finished is lost, nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.gradebook import Gradebook
from grader.grading import GRADEBOOK
from grader.marking import Result
from tests.tiny_course import SOLUTION, make_course

ROOT = Path(__file__).resolve().parents[1]
STUDENTS = 12
KILLS = 6

# `grader grade` with an engine that takes its time and judges by the text alone.
GRADER = """
import sys, time
sys.path.insert(0, {root!r})
from grader import cli, grading
from grader.verdicts import Verdict
from grader.worker import Judgement

class SlowEngine:
    def __init__(self, *settings, **options):
        pass

    def judge_all(self, work, begin):
        print("begun", flush=True)
        for item in work:
            begin(item)
            time.sleep(0.03)
            kind = "wrong" if "x / 3" in item.source else "pass"
            yield item.key, Judgement(tuple(Verdict(test, kind) for test in {plan!r}), seconds=0.25)

grading.LocalEngine = SlowEngine
grading._policy_findings = lambda source, lab: ()
cli.main()
"""
PLAN = ["test_double", "test_double_of_zero", "test_half[1.0]", "test_half[3.0]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course with a class of a dozen, no two alike."""
    make_course(tmp_path)
    for number in range(STUDENTS):
        place = tmp_path / "class" / f"student_{number:02}"
        place.mkdir(parents=True)
        source = SOLUTION.replace("x / 2", f"x / {2 + number % 2}")
        (place / "exercise.py").write_text(f"{source}# {number}\n")
    return tmp_path


def start(folder: Path, out: str) -> subprocess.Popen[str]:
    script = GRADER.format(root=str(ROOT), plan=PLAN)
    arguments = ["grade", "class", "--out", out, "--class-seed", "5"]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said


def attempts(folder: Path, out: str) -> dict[str, tuple[str, int]]:
    """By key: when each was finished, and how often it was run."""
    path = folder / out / GRADEBOOK
    if not path.is_file():
        return {}
    with Gradebook(path):
        pass  # what a killed grader left is taken up, as the next one would
    raw = sqlite3.connect(path)
    try:
        return {
            key: (when, runs) for key, when, runs in raw.execute("SELECT key, finished, runs FROM attempts")
        }
    finally:
        raw.close()


def marks(folder: Path, out: str) -> list[Result]:
    with Gradebook(folder / out / GRADEBOOK, create=False) as gradebook:
        return gradebook.results()


@pytest.mark.skipif(os.name != "posix", reason="uses SIGKILL")
def test_a_grader_killed_at_any_moment_loses_nothing_and_repeats_nothing(folder: Path) -> None:
    undisturbed = start(folder, "undisturbed")
    rng = random.Random(20)
    known: dict[str, tuple[str, int]] = {}
    for _ in range(KILLS):
        process = start(folder, "killed")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(rng.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = attempts(folder, "killed")
        assert found.items() >= known.items()
        known = found
    assert len(known) > 0
    finish(start(folder, "killed"))
    finish(undisturbed)
    assert {runs for _, runs in attempts(folder, "killed").values()} == {1}
    assert len(attempts(folder, "killed")) == STUDENTS
    assert marks(folder, "killed") == marks(folder, "undisturbed")
    assert [result.points for result in marks(folder, "killed")] == [5, 0] * (STUDENTS // 2)
    for name in ("results.jsonl", "marks.csv"):
        assert (folder / "killed" / name).read_bytes() == (folder / "undisturbed" / name).read_bytes()


def test_two_graders_at_once_give_one_consistent_gradebook(folder: Path) -> None:
    both = [start(folder, "out") for _ in range(2)]
    for process in both:
        finish(process)
    assert len(attempts(folder, "out")) == STUDENTS
    assert [result.points for result in marks(folder, "out")] == [5, 0] * (STUDENTS // 2)
    assert len((folder / "out" / "results.jsonl").read_text().splitlines()) == STUDENTS
    raw = sqlite3.connect(folder / "out" / GRADEBOOK)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    assert raw.execute("SELECT count(*) FROM verdicts").fetchone() == (STUDENTS * len(PLAN),)
    assert raw.execute("SELECT count(*) FROM history").fetchone() == (0,)
    raw.close()
