"""One process, several, a Dask cluster, shards: the same class has the same marks, whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from grader.course import Course
from grader.dask_engine import DaskEngine
from grader.engine import LocalEngine
from grader.grading import GRADEBOOK, Outcome, grade
from grader.limits import Limits
from grader.shards import Shard, grade_shard, merge
from tests.test_shards import contents
from tests.tiny_course import SOLUTION, STUB, make_course

SEED = 5
LIMITS = Limits(test_seconds=3)
CLASS = {
    "anna_right": SOLUTION,
    "ben_wrong": SOLUTION.replace("x / 2", "x / 3"),
    "cleo_untouched": STUB,
    "dora_broken": f"{SOLUTION}\ndef third(x:\n",
    "emil_hangs": SOLUTION.replace("return x / 2", "import time; time.sleep(60 * (x > 2)); return x / 2"),
    "finn_withheld": f"import socket\n{SOLUTION}",  # by the policy
    "gus_ends": SOLUTION.replace("return x + x", "import os; os._exit(0)"),
    "hana_odd": SOLUTION.replace("return x / 2", "print('\\x1b[31m'); raise ValueError('\\ud800 \\x00')"),
    "ina_right": SOLUTION,  # as anna's
}
TWO_FILES = {
    "exercise_1.py": SOLUTION,
    "exercise_2.py": CLASS["ben_wrong"],
}  # withheld: a person must say which counts


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def group(course: Course) -> Path:
    folder = course.root / "class"
    for student, source in CLASS.items():
        (folder / student).mkdir(parents=True)
        (folder / student / "exercise.py").write_text(source, encoding="utf-8")
    for name, source in TWO_FILES.items():
        (folder / "jo_withheld").mkdir(exist_ok=True)
        (folder / "jo_withheld" / name).write_text(source, encoding="utf-8")
    (folder / "kim_nothing").mkdir()
    return folder


@pytest.fixture(scope="module")
def alone(course: Course, group: Path) -> Outcome:
    """By one process with one examiner."""
    return grade(group, course, course.root / "alone", class_seed=SEED, limits=LIMITS)


def stripped(out: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that a gradebook holds, but for how long things took and what ran at the same time."""
    return {
        table: sorted(
            (tuple(value for value in row if not isinstance(value, float)) for row in rows), key=repr
        )
        for table, rows in contents(out / GRADEBOOK).items()
    }


def test_the_class_has_one_of_each_kind(alone: Outcome) -> None:
    marks = {one.student: [step.points for step in one.steps] for one in alone.results}
    assert marks == {
        "anna_right": [3, 2],
        "ben_wrong": [3, 0],
        "cleo_untouched": [0, 0],
        "dora_broken": [0, 0],
        "emil_hangs": [3, 0],
        "finn_withheld": [None, None],
        "gus_ends": [None, 2],  # os is not on the list of imports
        "hana_odd": [3, 0],
        "ina_right": [3, 2],
        "jo_withheld": [None, None],
        "kim_nothing": [0, 0],
    }


def test_two_examiners_agree(course: Course, group: Path, alone: Outcome) -> None:
    out = course.root / "two"
    grade(group, course, out, class_seed=SEED, limits=LIMITS, jobs=2)
    assert stripped(out) == stripped(course.root / "alone")


@pytest.mark.skipif(os.name != "posix", reason="slow to start elsewhere")
def test_a_dask_cluster_agrees(course: Course, group: Path, alone: Outcome) -> None:
    out = course.root / "dask"
    engine = DaskEngine(2, LIMITS)
    grade(group, course, out, class_seed=SEED, engine=engine)
    assert stripped(out) == stripped(course.root / "alone")
    assert engine.reruns == 0


def test_shards_agree(course: Course, group: Path, alone: Outcome) -> None:
    out = course.root / "merged"
    for number in (1, 2):
        grade_shard(group, course, out, Shard(number, 2), SEED, LocalEngine(1, LIMITS))
    assert merge(group, course, out).missing == ()
    assert stripped(out) == stripped(course.root / "alone")
