"""Every lab of the course: stub, solution for many seeds, mistakes on other inputs, notebook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from grader.authoring.trials import run_checks, try_mistakes
from grader.authoring.verify import MARGIN
from grader.course import Lab, find_root, load_course
from grader.running import Job, Judged, run_jobs

ROOT = find_root(Path(__file__).parent)
LABS = load_course(ROOT).labs
each_lab = pytest.mark.parametrize("lab", LABS, ids=[lab.number for lab in LABS])


@each_lab
def test_the_shipped_exercise_is_all_to_do_with_status_1(lab: Lab) -> None:
    """Through the command that a student types, in a process of its own."""
    command = [sys.executable, "-m", "pytest", f"labs/{lab.name}", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "to do in" in done.stdout
    assert "passed" not in done.stdout.replace("not passed", "")
    assert "failed" not in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("next: step 1")


@each_lab
def test_the_solution_passes_for_twenty_seeds_with_margin_and_in_time(lab: Lab) -> None:
    seeds = range(1000, 1020)  # others than those of `grader verify`
    worst, slowest = 0.0, 0.0
    for seed in seeds:
        began = time.process_time()
        runs = run_checks(lab, lab.solution, seed)
        slowest = max(slowest, time.process_time() - began)
        assert [run.verdict for run in runs if not run.verdict.passed] == [], f"seed {seed}"
        worst = max(worst, *(check.ratio for run in runs for check in run.checks if not check.interval))
    assert worst <= 1 / MARGIN
    assert slowest < 10


@each_lab
def test_every_mistake_is_rejected_clearly_on_other_inputs_too(lab: Lab) -> None:
    weak = [(trial.mistake.id, trial.margin) for trial in try_mistakes(lab, seed=77) if trial.margin < MARGIN]
    assert weak == []


@each_lab
def test_the_tests_leave_the_global_random_state_to_the_student(lab: Lab) -> None:
    """The inputs come from `rng` alone: two runs in one process see the same values."""
    expected: list[list[str]] = []

    def keep(place: int, judged: list[Judged]) -> None:
        expected.append([repr([check.expected for check in one.checks]) for one in judged])

    run_jobs(lab, [Job(lab.solution), Job(lab.solution)], 5, keep)
    assert expected[0] == expected[1]


@each_lab
def test_the_notebook_runs_from_top_to_bottom(lab: Lab, tmp_path: Path) -> None:
    """In a copy of the course whose exercise is solved, as a student would have it."""
    copy = tmp_path / "course"
    shutil.copytree(ROOT / "labs", copy / "labs")
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    folder = copy / "labs" / lab.name
    shutil.copy(lab.solution, folder / "exercise.py")
    notebook = nbformat.read(folder / "notebook.ipynb", as_version=4)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # the kernel's debugger warns about frozen modules
    where = {"metadata": {"path": str(folder)}}
    # On a busy machine the kernel alone may take more than the usual minute to start.
    NotebookClient(notebook, timeout=300, startup_timeout=300, resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert "still to do" not in text
    assert "failed" not in text
    assert text.count("all that ran has passed") == len(lab.steps)
    assert any("image/png" in output.get("data", {}) for output in outputs)
