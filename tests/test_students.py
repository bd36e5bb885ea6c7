"""Who is at a path: every student of a class, and what is none is listed, never lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from grader.course import Course
from grader.intake import Intake, IntakeError, Submission, find_submissions
from tests.hand_ins import LAB, OTHER, RIGHT, only, put, with_second_lab, zipped


def test_a_class_in_the_standard_form_needs_no_lab(group: Path, course: Course) -> None:
    for student in ("Ben", "anna"):
        put(group / student / LAB / "exercise.py")
    assert find_submissions(group, course).submissions == [
        Submission("anna", LAB, RIGHT),
        Submission("Ben", LAB, RIGHT),
    ]


def test_with_a_lab_folders_and_files_of_students_are_found(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ben.py")
    put(group / "cleo" / LAB / "exercise.py")
    put(group / "dora.zip", zipped({"exercise.py": RIGHT}))
    put(group / "emil" / "x.zip", zipped({"exercise.py": RIGHT}))
    put(group / "fritz" / LAB / "x.zip", zipped({"exercise.py": RIGHT}))
    found = find_submissions(group, course, course.labs[0]).submissions
    assert [one.student for one in found] == ["anna", "ben", "cleo", "dora", "emil", "fritz"]
    assert {(one.source, one.message) for one in found} == {(RIGHT, "")}


def test_a_student_without_a_submission_is_there_with_a_line(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    (group / "ben").mkdir()
    ben = find_submissions(group, course, course.labs[0]).submissions[1]
    assert ben == Submission("ben", LAB, None, f"nothing was handed in for {LAB}")


def test_every_student_has_every_lab_of_the_class(group: Path, course: Course) -> None:
    course = with_second_lab(course)
    put(group / "anna" / LAB / "exercise.py")
    put(group / "anna" / "02_next" / "exercise.py", OTHER)
    put(group / "ben" / "exercise.py")
    found = find_submissions(group, course).submissions
    assert [(one.student, one.lab, one.source) for one in found] == [
        ("anna", LAB, RIGHT),
        ("anna", "02_next", OTHER),
        ("ben", LAB, None),
        ("ben", "02_next", None),
    ]
    assert "exercise.py" in found[2].message


def test_a_folder_of_another_lab_is_not_taken_for_this_one(group: Path, course: Course) -> None:
    put(group / "anna" / "07_other" / "exercise.py")
    assert only(group, course).source is None


@pytest.mark.parametrize(
    ("place", "student"),
    [
        ("anna/01_tiny/exercise.py", "anna"),
        ("anna/01_tiny", "anna"),
        ("anna", "anna"),
        ("ben/exercise.py", "ben"),
        ("ben", "ben"),
        ("cleo.py", "cleo"),
        ("dora.zip", "dora"),
    ],
)
def test_one_submission_is_graded_alone(group: Path, course: Course, place: str, student: str) -> None:
    put(group / "anna" / LAB / "exercise.py")
    put(group / "ben" / "exercise.py")
    put(group / "cleo.py")
    put(group / "dora.zip", zipped({"exercise.py": RIGHT}))
    (submission,) = find_submissions(group / place, course, course.labs[0]).submissions
    assert (submission.student, submission.source) == (student, RIGHT)


def test_a_stray_exercise_does_not_hide_the_class(group: Path, course: Course) -> None:
    for student in ("anna", "ben"):
        put(group / student / "exercise.py")
    put(group / "exercise.py")
    assert [one.student for one in find_submissions(group, course, course.labs[0]).submissions] == [
        "anna",
        "ben",
    ]


def test_the_instructors_own_files_and_results_are_no_students(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "README.md")
    put(group / "roster.csv")
    put(group / ".DS_Store")
    put(group / "__MACOSX" / "._anna")
    put(group / "results" / "gradebook.sqlite")
    assert only(group, course).student == "anna"


@pytest.mark.parametrize("name", ["missing", "empty", "words.txt"])
def test_a_path_without_submissions_is_one_clear_error(group: Path, course: Course, name: str) -> None:
    (group / "empty").mkdir()
    put(group / "words.txt", "hello")
    with pytest.raises(IntakeError) as caught:
        find_submissions(group / name, course, course.labs[0])
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_without_lab_folders_needs_the_lab(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    with pytest.raises(IntakeError, match="--lab"):
        find_submissions(group, with_second_lab(course))


def names(found: Intake) -> list[str]:
    return [one.student for one in found.submissions]


def test_what_is_taken_for_no_student_is_listed(group: Path, course: Course) -> None:
    for name in ("env", "venv", "__anna", ".bob", "cleo"):
        put(group / name / "exercise.py")
    put(group / "cleo" / "gradebook.sqlite")
    put(group / "readme_khan.py")
    for name in ("dora.json", "emil.md", "roster.csv", "__pycache__/x.pyc", ".DS_Store", "._x", ".git/HEAD"):
        put(group / name)
    put(group / "tool" / "pyvenv.cfg")
    put(group / "tool" / "a.py")
    found = find_submissions(group, course, course.labs[0])
    assert names(found) == [".bob", "__anna", "cleo", "env", "readme_khan", "venv"]
    assert {one.source for one in found.submissions} == {RIGHT}
    assert found.notes == ("not taken for students: __pycache__, dora.json, emil.md, roster.csv, tool",)


@pytest.mark.parametrize("out", [".", "results", "build/results", "link/results"])
def test_results_inside_the_class_are_no_students(group: Path, course: Course, out: str) -> None:
    put(group / "anna" / "exercise.py")
    (group.parent / "link").symlink_to(group)
    folder = group.parent / out if out.startswith("link") else group / out
    for name in ("report.html", "marks.csv", "results.jsonl", "gradebook.sqlite", "gradebook.sqlite-wal"):
        put(folder / name)
    found = find_submissions(group, course, course.labs[0], out=folder)
    assert (names(found), found.notes) == (["anna"], ())


@pytest.mark.parametrize("place", [LAB, "."])
@pytest.mark.parametrize("source", [RIGHT, "x = 1\n"])
def test_a_folder_named_like_the_lab_may_hold_a_class(
    group: Path, course: Course, place: str, source: str
) -> None:
    for student in ("anna", "bob", "cara"):
        put(group / LAB / f"{student}.py", source + f"# {student}\n")
    found = find_submissions(group / place, course)
    assert names(found) == ["anna", "bob", "cara"]
    assert [one.source for one in found.submissions] == [source + f"# {name}\n" for name in names(found)]
    assert {one.message for one in found.submissions} == {""}


def test_an_exercise_beside_students_files_is_not_taken(group: Path, course: Course) -> None:
    for student in ("anna", "bob", "cara", "exercise"):
        put(group / f"{student}.py")
    found = find_submissions(group, course, course.labs[0])
    assert names(found) == ["anna", "bob", "cara"]
    assert found.notes == ("not taken for students: exercise.py",)


def test_helpers_beside_an_exercise_make_no_class(group: Path, course: Course) -> None:
    put(group / "exercise.py")
    put(group / "layers.py", "import math\n")
    put(group / "drawing.py", "import cmath\n")
    assert only(group, course).student == "class"


@pytest.mark.parametrize("names", [("exercise.py",), ("01_tiny/exercise.py",), ("x.zip",)])
def test_an_archive_of_a_class_is_refused(group: Path, course: Course, names: tuple[str, ...]) -> None:
    people = ("anna", "bob")
    entries = {
        f"class/{one}/{name}" if name != "x.zip" else f"{one}.zip": RIGHT for one in people for name in names
    }
    put(group / "all.zip", zipped(entries))
    with pytest.raises(IntakeError, match=r"several hand-ins \(anna, bob\): unpack it first"):
        find_submissions(group / "all.zip", course)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_are_cleaned_to_the_same_text_stay_apart(group: Path, course: Course) -> None:
    put(group / "x\ty" / "exercise.py", RIGHT)
    put(group / "x\ny" / "exercise.py", OTHER)
    found = find_submissions(group, course, course.labs[0])
    assert names(found) == ["x\N{REPLACEMENT CHARACTER}y", "x\N{REPLACEMENT CHARACTER}y (2)"]
    assert {one.source for one in found.submissions} == {RIGHT, OTHER}


def test_a_folder_that_cannot_be_read_costs_only_its_student(
    group: Path, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played, since for root everything can be read: nothing in ben's folder answers."""
    for student in ("anna", "ben"):
        put(group / student / "exercise.py")
    error = PermissionError(13, "Permission denied")
    real_stat, real_list = os.stat, Path.iterdir

    def stat(path: Any, **options: Any) -> os.stat_result:
        if os.fspath(path).startswith(f"{group / 'ben'}{os.sep}"):
            raise error
        return real_stat(path, **options)

    def iterdir(folder: Path) -> Any:
        if folder == group / "ben":
            raise error
        return real_list(folder)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(Path, "iterdir", iterdir)
    anna, ben = find_submissions(group, course, course.labs[0]).submissions
    assert (anna.source, anna.message) == (RIGHT, "")
    assert (ben.source, ben.message) == (None, "ben: can't be read (Permission denied)")
