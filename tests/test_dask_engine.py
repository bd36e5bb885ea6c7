"""Grading on a Dask cluster: the same marks; a dead worker costs one rerun; nothing is left running."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

import psutil
from distributed import LocalCluster

from grader import cli_class, dask_engine
from grader.course import Course, CourseError
from grader.dask_engine import DaskEngine
from grader.grading import Outcome, grade, key_of, versions
from grader.limits import Limits
from grader.verdicts import GRADER_ERROR
from tests.tiny_course import SOLUTION, is_running, make_course

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills processes")

WRONG = SOLUTION.replace("x / 2", "x / 3")
LIMITS = Limits(test_seconds=3)
TREE = 5  # Python's tracker, worker, examiner, server, submission
JUDGE = dask_engine._judge


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path / "course")


@pytest.fixture(autouse=True)
def no_client_left() -> Iterator[None]:
    """Collect clients that could not connect at once: later, Dask may wait for itself for ever."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of somebody else's, two workers and Dask's own settings."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=60, memory_limit=0
    ) as cluster:
        yield cluster


def hand_in(folder: Path, **sources: str) -> Path:
    for student, source in sources.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / "exercise.py").write_text(source, encoding="utf-8")
    return folder


def marks(outcome: Outcome) -> dict[str, float]:
    return {result.student: result.points for result in outcome.results}


def started() -> set[int]:
    """The processes that are ours now, but for the one that Python itself keeps to its own end."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # gone meanwhile
            found |= {child.pid} if "resource_tracker" not in " ".join(child.cmdline()) else set()
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def judge_or_die(bench: str, job: dict[str, Any]) -> tuple[str, Any]:
    """The task, in a worker that is killed a moment after it begins what says so; every job is written down.

    "# dies in FOLDER": always; "# dies once in FOLDER": unless it did so before.
    """
    source = job["source"] or ""
    folder = Path(source.rpartition(" in ")[2].strip())
    if "# " in source:
        with (folder / "jobs").open("a") as log:
            log.write(source.rpartition("# ")[2])
    if "# dies in" in source or ("# dies once in" in source and not (folder / "died").exists()):
        (folder / "died").touch()
        processes = [one.pid for one in psutil.Process().children(recursive=True)]
        (folder / "processes").write_text(" ".join(map(str, processes)))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(60)
    return JUDGE(bench, job)


def test_a_killed_worker_costs_one_rerun_and_no_mark(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "_judge", judge_or_die)
    group = hand_in(
        tmp_path / "class",
        anna=f"{SOLUTION}# runs in {tmp_path}\n",
        ben=f"{WRONG}# runs in {tmp_path}\n",
        cleo=f"{WRONG}# dies once in {tmp_path}\n",
        dora=f"def half(:\n# runs in {tmp_path}\n",
    )
    before = started()
    engine = DaskEngine(2, LIMITS)
    outcome = grade(group, course, tmp_path / "dask", class_seed=5, engine=engine)
    assert engine.reruns == 1
    jobs = [line.split(" in ")[0] for line in (tmp_path / "jobs").read_text().splitlines()]
    assert sorted(jobs) == ["dies once", "dies once", "runs", "runs", "runs"]
    alone = grade(group, course, tmp_path / "alone", class_seed=5)
    assert marks(outcome) == marks(alone) == {"anna": 5, "ben": 3, "cleo": 3, "dora": 0}
    assert [one.message for one in outcome.results] == [one.message for one in alone.results]
    wait_until(lambda: not any(map(is_running, started() - before)))


def test_a_job_whose_worker_dies_twice_is_a_failure_of_the_grader(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster
) -> None:
    monkeypatch.setattr(dask_engine, "_judge", judge_or_die)
    group = hand_in(tmp_path / "class", anna=SOLUTION, ben=f"{SOLUTION}# dies in {tmp_path}\n")
    engine = DaskEngine(1, LIMITS, scheduler=cluster.scheduler_address)
    anna, ben = grade(group, course, tmp_path / "out", engine=engine).results
    assert anna.points == 5
    assert {one.verdict for one in ben.tests} == {GRADER_ERROR}
    assert [step.points for step in ben.steps] == [None, None]  # withheld, not lost
    assert "2 workers died of it" in ben.message
    assert (tmp_path / "jobs").read_text().count("dies in") == 2


def test_somebody_elses_cluster_is_left_as_it_was(
    course: Course, tmp_path: Path, cluster: LocalCluster
) -> None:
    scheduler = cluster.scheduler
    assert scheduler is not None
    wait_until(lambda: len(scheduler.workers) == 2)
    group = hand_in(tmp_path / "class", anna=SOLUTION)
    plugins = set(scheduler.worker_plugins)
    before = started()
    during: set[int] = set()
    engine = DaskEngine(1, LIMITS, scheduler=cluster.scheduler_address)
    outcome = grade(
        group, course, tmp_path / "out", engine=engine, on_progress=lambda _: during.update(started())
    )
    assert marks(outcome) == {"anna": 5}
    assert during - before  # an examiner, with what runs submissions
    wait_until(lambda: not any(map(is_running, during - before)))
    assert len(scheduler.workers) == 2
    assert set(scheduler.worker_plugins) == plugins


def test_a_worker_with_other_versions_refuses(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster
) -> None:
    monkeypatch.setattr(dask_engine, "versions", lambda: {**versions(), "torch": "1.0"})
    engine = DaskEngine(1, LIMITS, scheduler=cluster.scheduler_address)
    group = hand_in(tmp_path / "class", anna=SOLUTION)
    with pytest.raises(CourseError, match=r"worker on .* can't grade: it has torch .*, not 1\.0; install"):
        grade(group, course, tmp_path / "out", engine=engine)


def test_a_worker_with_another_course_refuses(course: Course) -> None:
    lab = course.labs[0]
    job = {"root": str(course.root), "lab": lab.name, "seed": 5, "versions": versions()}
    job["course"] = key_of(None, lab, 5)
    assert dask_engine._same_lab(job) == lab
    lab.tests_path.write_text(lab.tests_path.read_text() + "\n# stricter\n")
    with pytest.raises(CourseError, match="another version of 01_tiny"):
        dask_engine._same_lab(job)


def test_a_lab_that_a_worker_cannot_grade_is_one_line(
    course: Course, tmp_path: Path, cluster: LocalCluster
) -> None:
    course.labs[0].solution.write_text(WRONG)
    engine = DaskEngine(1, LIMITS, scheduler=cluster.scheduler_address)
    with pytest.raises(CourseError, match=r"worker on .* can't grade: 01_tiny can't be graded") as error:
        grade(hand_in(tmp_path / "class", anna=SOLUTION), course, tmp_path / "out", engine=engine)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1:abc"])
def test_no_scheduler_is_one_line(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(dask_engine, "CONNECT_SECONDS", 0.5)
    engine = DaskEngine(1, LIMITS, scheduler=address)
    with pytest.raises(CourseError, match="no Dask scheduler answers there") as error:
        grade(hand_in(tmp_path / "class", anna=SOLUTION), course, tmp_path / "out", engine=engine)
    assert "\n" not in str(error.value)


def test_a_scheduler_without_workers_is_one_line(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "WORKER_SECONDS", 0.5)
    group = hand_in(tmp_path / "class", anna=SOLUTION)
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as empty:
        engine = DaskEngine(1, LIMITS, scheduler=empty.scheduler_address)
        with pytest.raises(CourseError, match=r"has no worker after 0\.5 s; start some: dask worker tcp"):
            grade(group, course, tmp_path / "out", engine=engine)


def test_everything_of_a_local_cluster_listens_on_loopback_only(course: Course, tmp_path: Path) -> None:
    addresses: set[str] = set()

    def look(_: object) -> None:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                found = process.net_connections()
                addresses.update(one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN)

    group = hand_in(tmp_path / "class", anna=SOLUTION)
    grade(group, course, tmp_path / "out", engine=DaskEngine(1, LIMITS), on_progress=look)
    assert addresses == {"127.0.0.1"}


def test_ctrl_c_ends_the_cluster_with_one_line(course: Course, tmp_path: Path) -> None:
    hand_in(course.root / "class", anna=SOLUTION, ben=f"while True: pass\n{SOLUTION}")
    command = [sys.executable, "-m", "grader", "grade", "class", "--out", "out", "--engine", "dask"]
    process = subprocess.Popen(
        command, cwd=course.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= TREE)
    running = [one.pid for one in psutil.Process(process.pid).children(recursive=True)]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.decode().splitlines() == [
        "grader: interrupted; what is finished is kept, the same command goes on"
    ]
    wait_until(lambda: not any(map(is_running, running)))


def test_without_dask_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_class, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"pip install 'llm-training-labs\[cluster\]'"):
        cli_class._dask_engine(cli_class.EngineName.DASK, 1, None, False)
    with pytest.raises(CourseError, match="--scheduler is for --engine dask"):
        cli_class._dask_engine(cli_class.EngineName.LOCAL, 1, "tcp://x:1", False)
