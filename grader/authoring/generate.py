"""Everything in the course that is made from something else, made anew in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grader.authoring.notebooks import make_notebook
from grader.authoring.pages import Measurements, fill_chapter, fill_lab_page
from grader.authoring.trials import sketch_mistakes, try_mistakes
from grader.course import Course, CourseError, Lab
from grader.files import write_atomically
from grader.implementations import make_stub, written_names

PRACTICE_SEED = 0  # what a student's pytest uses, and what the committed sketches are made for


def generate_lab(lab: Lab, measurements: Measurements) -> dict[Path, str]:
    """The lab's stub, page and notebook as they must be. (The sketches are made from trials, below.)"""
    files = {lab.exercise: make_stub(lab.solution.read_text(encoding="utf-8"), lab)}
    if lab.page.is_file():
        files[lab.page] = fill_lab_page(lab, measurements)
    source = lab.folder / "notebook_source.py"
    if source.is_file():
        files[lab.notebook] = make_notebook(source)
    return files


def generate_curriculum(course: Course, measurements: Measurements) -> dict[Path, str]:
    """The chapters as they must be."""
    chapters = sorted((course.root / "curriculum").glob("*.md"))
    return {chapter: fill_chapter(chapter, measurements) for chapter in chapters}


def generate_sketches(lab: Lab) -> str:
    """The lab's committed sketches."""
    return sketch_mistakes(lab, try_mistakes(lab, PRACTICE_SEED), PRACTICE_SEED).dump()


def write_files(lab: Lab | None, files: Mapping[Path, str]) -> list[Path]:
    """Write what differs from what lies there; returns the files that changed.

    An exercise that holds somebody's work is never overwritten: CourseError.
    """
    changed = [path for path, text in files.items() if _read(path) != text]
    work = _read(lab.exercise) if lab is not None else None
    if lab is not None and lab.exercise in changed and work and written_names(work, lab):
        raise CourseError(f"{lab.exercise} holds somebody's work; move it away before generating the stub")
    for path in changed:
        write_atomically(path, files[path].encode("utf-8"))
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
