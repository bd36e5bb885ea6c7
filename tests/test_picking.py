"""Which of several files counts: a student's work before what was given out, and a name before its copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import Course
from grader.handins import one_ending, plain_name
from grader.intake import find_submissions
from tests.hand_ins import LAB, OTHER, RIGHT, notebook, only, put, tarred, zipped
from tests.tiny_course import STUB

TOUCHED = '"""Anna\'s hand-in."""\r\n# my name\r\n' + STUB.replace("\n", "\r\n").replace("(x)", "( x )")
UNUSED = "not used: exercise.py (the unchanged exercise)"


# --- the unchanged exercise ------------------------------------------------------------------------------


@pytest.mark.parametrize("stub", [STUB, TOUCHED], ids=["as given", "touched"])
@pytest.mark.parametrize("name", ["work.ipynb", "my_work.py", "old/exercise.py", "solution.py"])
def test_a_students_work_counts_and_not_the_stub_beside_it(
    group: Path, course: Course, stub: str, name: str
) -> None:
    put(group / "anna" / "exercise.py", stub)
    put(group / "anna" / name, notebook(RIGHT) if name.endswith(".ipynb") else RIGHT)
    put(group / "anna" / "plots.py", "import math\n")
    submission = only(group, course)
    assert submission.source is not None
    assert "return x + x" in submission.source
    assert f"taken from {name}" in submission.message
    assert "exercise.py (the unchanged exercise)" in submission.message
    assert "plots.py" in submission.message


@pytest.mark.parametrize("data", [zipped({"exercise.py": RIGHT}), tarred({"x/a.py": RIGHT})])
def test_the_work_in_an_archive_counts_and_not_the_stub_beside_it(
    group: Path, course: Course, data: bytes
) -> None:
    put(group / "anna" / "exercise.py", STUB)
    put(group / "anna" / ("x.zip" if data.startswith(b"PK") else "x.tar"), data)
    submission = only(group, course)
    assert submission.source == RIGHT
    assert UNUSED in submission.message


def test_the_work_beside_the_labs_folder_counts_and_not_the_stub_in_it(group: Path, course: Course) -> None:
    put(group / "anna" / LAB / "exercise.py", STUB)
    put(group / "anna" / "exercise.py", RIGHT)
    submission = only(group, course)
    assert submission.source == RIGHT
    assert submission.message == f"not used: {LAB}/exercise.py (the unchanged exercise)"


def test_a_loose_file_counts_and_not_the_stub_in_the_students_folder(group: Path, course: Course) -> None:
    put(group / "anna" / LAB / "exercise.py", STUB)
    put(group / "anna.ipynb", notebook(RIGHT))
    assert "return x + x" in (only(group, course).source or "")


def test_two_works_beside_the_stub_are_asked_about(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", STUB)
    put(group / "anna" / "a.py", RIGHT)
    put(group / "anna" / "b.ipynb", notebook(OTHER))
    submission = only(group, course)
    assert (submission.source, submission.withheld) == (None, True)
    assert "several files may be the exercise, settle it in intake.toml: a.py, b.ipynb" in submission.message


def test_work_that_cannot_be_read_is_said_and_not_hidden_by_the_stub(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", STUB)
    put(group / "anna" / "work.ipynb", "{broken")
    assert only(group, course).message == f"work.ipynb is not a notebook that can be read; {UNUSED}"


@pytest.mark.parametrize("stub", [STUB, TOUCHED], ids=["as given", "touched"])
def test_the_stub_alone_is_called_the_unchanged_exercise(group: Path, course: Course, stub: str) -> None:
    put(group / "anna" / "exercise.py", stub)
    put(group / "anna" / "plots.py", "import math\n")
    submission = only(group, course)
    assert (submission.source or "").count("NotImplementedError") == 2
    assert "this is the unchanged exercise" in submission.message
    assert "not used: plots.py" in submission.message


def test_a_begun_exercise_is_no_stub(group: Path, course: Course) -> None:
    begun = STUB.replace('raise NotImplementedError("lab 01, step 1: double (README section 1)")', "return x")
    put(group / "anna" / "exercise.py", begun)
    put(group / "anna" / "more.py", RIGHT)
    submission = only(group, course)
    assert (submission.source, submission.message) == (begun, "not used: more.py")


def test_the_labs_own_notebook_is_passed_over_and_a_changed_one_is_listed(
    group: Path, course: Course
) -> None:
    put(course.labs[0].notebook, notebook("import exercise", "exercise.double(2)"))
    put(group / "anna" / "exercise.py", RIGHT)
    put(group / "anna" / "notebook.ipynb", notebook("import exercise", "exercise.double(2)  # again"))
    assert only(group, course).message == ""
    put(group / "anna" / "notebook.ipynb", notebook("import exercise", RIGHT))
    assert only(group, course).message == "not used: notebook.ipynb"
    put(group / "anna" / "exercise.py", STUB)
    assert only(group, course).message.startswith("taken from notebook.ipynb; read from a notebook")


def test_a_whole_folder_of_the_lab_may_be_handed_in(group: Path, course: Course) -> None:
    put(course.labs[0].folder / "notebook_source.py", "import exercise\n")
    put(course.labs[0].notebook, notebook("import exercise"))
    for path in course.labs[0].folder.iterdir():
        put(group / "anna" / path.name, path.read_bytes())
    assert "this is the unchanged exercise" in only(group, course).message
    put(group / "anna" / "exercise.py", RIGHT)
    assert only(group, course).message == ""
    put(group / "anna" / "notebook_source.py", "import exercise\nx = 1\n")
    assert only(group, course).message == "not used: notebook_source.py"


def test_a_name_that_no_disk_could_have_costs_nothing(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"exercise.py": RIGHT, f"{'n' * 3000}.py": "x = 1"}))
    assert only(group, course).source == RIGHT


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("exercise.py.txt", "exercise.py"),
        ("exercise.py.py", "exercise.py"),
        ("exercise.PY", "exercise.py"),
        ("exercise (1).py", "exercise.py"),
        ("exercise(12).py", "exercise.py"),
        ("exercise-1.py", "exercise.py"),
        ("exercise 2.py", "exercise.py"),
        ("Copy of exercise.py", "exercise.py"),
        ("exercise - Copy (2).py.txt", "exercise.py"),
        ("exercise copy 3.py", "exercise.py"),
        ("exercise.ipynb.json", "exercise.ipynb"),
        ("exercise.ipynb.py", "exercise.py"),
        ("exercise_2.py", "exercise_2.py"),
        ("exercise_old.py", "exercise_old.py"),
        ("j.smith", "j.smith"),
    ],
)
def test_what_programs_make_of_a_name_is_undone(name: str, plain: str) -> None:
    assert plain_name(name) == plain
    assert one_ending(one_ending(name)) == one_ending(name)


@pytest.mark.parametrize(
    "name", ["exercise.py.txt", "exercise.py.py", "exercise (1).py", "exercise.PY", "exercise - Copy.py"]
)
def test_a_decorated_name_is_one_clear_match(group: Path, course: Course, name: str) -> None:
    put(group / "anna" / name, RIGHT)
    put(group / "anna" / "tiny.py", OTHER)
    submission = only(group, course)
    assert (submission.source, submission.message) == (RIGHT, f"taken from {name}; not used: tiny.py")
    (alone,) = find_submissions(group / "anna" / name, course, course.labs[0]).submissions
    assert alone.source == RIGHT


def test_a_copy_that_differs_is_asked_about_and_an_equal_one_is_not(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", RIGHT)
    put(group / "anna" / "exercise (1).py", OTHER)
    assert only(group, course).withheld
    put(group / "anna" / "exercise (1).py", RIGHT)
    assert only(group, course).message == "not used: exercise (1).py"


@pytest.mark.parametrize("packed", [zipped, tarred])
def test_a_decorated_name_counts_in_an_archive_too(group: Path, course: Course, packed: object) -> None:
    assert callable(packed)
    put(group / "anna.zip", packed({"exercise.py.download": RIGHT}))
    assert only(group, course).source == RIGHT


def test_decorated_names_of_students_are_their_names(group: Path, course: Course) -> None:
    put(group / "anna.py.txt", RIGHT)
    put(group / "ben.ipynb.json", notebook(RIGHT))
    put(group / "cara.PY", RIGHT)
    found = find_submissions(group, course, course.labs[0]).submissions
    assert [(one.student, one.source is not None) for one in found] == [
        ("anna", True),
        ("ben", True),
        ("cara", True),
    ]
