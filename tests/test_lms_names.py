"""Classes as Canvas, Moodle, Gradescope and GitHub Classroom hand them out: whose each file is."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.course import Course
from grader.intake import IntakeError, Submission, find_submissions
from tests.hand_ins import LAB, OTHER, RIGHT, put, zipped


def found(group: Path, course: Course) -> dict[str, Submission]:
    return {one.student: one for one in find_submissions(group, course, course.labs[0]).submissions}


# --- Canvas ----------------------------------------------------------------------------------------------


def test_canvas_names_are_taken_apart(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py")
    put(group / "jonesben_LATE_12346_67891_my_lab.py")
    put(group / "müllercara_12347_67892_hw.zip", zipped({"exercise.py": RIGHT}))
    put(group / "doedan_12348_text.html", "<p>sorry</p>")
    put(group / "roster.csv", "x")
    intake = find_submissions(group, course, course.labs[0])
    assert intake.submissions == [
        Submission(
            "doedan (12348)",
            LAB,
            None,
            f"not a Python file: doedan_12348_text.html; hand in exercise.py for {LAB}",
        ),
        Submission(
            "jonesben (12346)",
            LAB,
            RIGHT,
            "taken from jonesben_LATE_12346_67891_my_lab.py; its name says LATE",
            late_flag=True,
        ),
        Submission("müllercara (12347)", LAB, RIGHT),
        Submission("smithanna (12345)", LAB, RIGHT),
    ]
    assert intake.notes == ("read as a bulk download of: Canvas", "not taken for students: roster.csv")


def test_of_what_canvas_numbers_the_latest_counts(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py", OTHER)
    put(group / "smithanna_12345_67895_exercise-2.py", RIGHT)
    put(group / "smithanna_12345_67893_exercise-1.py", OTHER)
    put(group / "jonesben_12346_67891_exercise-10.py", RIGHT)
    put(group / "jonesben_12346_67892_exercise-9.py", OTHER)
    students = found(group, course)
    assert {one.source for one in students.values()} == {RIGHT}
    assert students["smithanna (12345)"].message == (
        "handed in several times, the latest counts; not used: smithanna_12345_67890_exercise.py, "
        "smithanna_12345_67893_exercise-1.py"
    )


def test_several_files_of_one_canvas_upload_stay_together(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py", RIGHT)
    put(group / "smithanna_12345_67891_plots.py", "import math\n")
    put(group / "smithanna_12345_67892_report.pdf", "%PDF")
    (only,) = found(group, course).values()
    assert only.source == RIGHT
    assert "plots.py" in only.message


def test_two_students_of_one_name_or_one_number_stay_two(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py", RIGHT)
    put(group / "smithanna_12346_67891_exercise.py", OTHER)
    put(group / "mallory_12345_67892_exercise-5.py", OTHER)
    assert {name: one.source for name, one in found(group, course).items()} == {
        "smithanna (12345)": RIGHT,
        "smithanna (12346)": OTHER,
        "mallory (12345)": OTHER,
    }


def test_a_stray_file_does_not_change_the_form_of_a_class(group: Path, course: Course) -> None:
    for number in range(10):
        put(group / f"student{number}_{number}_{number}_exercise.py")
    put(group / "by_mail.py")
    students = found(group, course)
    assert len(students) == 11
    assert {"student3 (3)", "by_mail"} <= set(students)


def test_names_that_only_look_a_little_like_canvas_are_no_form(group: Path, course: Course) -> None:
    put(group / "anna_1_2_x.py")
    put(group / "ben.py")
    assert set(found(group, course)) == {"anna_1_2_x", "ben"}


# --- Moodle ----------------------------------------------------------------------------------------------


def test_moodle_students_are_their_numbers(group: Path, course: Course) -> None:
    put(group / "Anna Smith_98765_assignsubmission_file_" / "exercise.py", RIGHT)
    put(group / "Anna Smith_98766_assignsubmission_file_" / "exercise.py", OTHER)
    put(group / "Anna Smith_98766_assignsubmission_onlinetext_" / "onlinetext.html", "x")
    put(group / "Ben_O'Neil_98767_assignsubmission_file" / "hw.zip", zipped({"exercise.py": RIGHT}))
    put(group / "Cara Lee_98768_assignsubmission_file_exercise.py", RIGHT)
    students = found(group, course)
    assert {name: one.source for name, one in students.items()} == {
        "Anna Smith (98765)": RIGHT,
        "Anna Smith (98766)": OTHER,
        "Ben_O'Neil (98767)": RIGHT,
        "Cara Lee (98768)": RIGHT,
    }
    assert {one.message for one in students.values()} == {""}


def test_a_file_name_that_plays_another_student_of_moodle_changes_nothing(
    group: Path, course: Course
) -> None:
    put(group / "Anna_12_assignsubmission_file_exercise.py", RIGHT)
    put(group / "Ben_13_assignsubmission_file_Anna_12_assignsubmission_file_exercise.py", OTHER)
    assert {name: one.source for name, one in found(group, course).items()} == {
        "Anna (12)": RIGHT,
        "Ben (13)": OTHER,
    }


# --- Gradescope ------------------------------------------------------------------------------------------

METADATA = """---
submission_101:
  :submitters:
  - :name: Anna Smith
    :sid: '30001'
    :email: anna@example.org
  - :name: "Ben \\u00d6"
    :email: ben@example.org
  :created_at: 2024-05-01 10:00:00.123456789 Z
  :score: 1.0
  :results:
    output: |
      submission_999:
        :submitters:
        - :name: Mallory
  :history:
  - :id: 100
    :created_at: 2024-04-01 10:00:00 Z
    :submitters:
    - :name: Nobody
submission_102:
  :submitters:
  - :name: Cara O''Neil
    :sid: '30003'
  :created_at: 2024-05-01 12:00:00 +02:00
submission_103:
  :submitters:
  - :name: Dan
    :sid: '30004'
"""


def test_gradescope_says_who_handed_in_and_when(group: Path, course: Course) -> None:
    put(group / "submission_metadata.yml", METADATA)
    put(group / "submission_101" / "exercise.py", RIGHT)
    put(group / "submission_102" / "exercise.py", OTHER)
    students = found(group, course)
    assert {name: one.source for name, one in students.items()} == {
        "Anna Smith (30001)": RIGHT,
        "Ben Ö (ben@example.org)": RIGHT,
        "Cara O''Neil (30003)": OTHER,
        "Dan (30004)": None,
    }
    assert students["Dan (30004)"].message == f"nothing was handed in for {LAB}"
    assert students["Ben Ö (ben@example.org)"].submitted == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert students["Cara O''Neil (30003)"].submitted == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert students["Anna Smith (30001)"].submitted_from == "Gradescope's metadata"


def test_the_time_of_gradescope_counts_for_what_an_archive_holds(group: Path, course: Course) -> None:
    put(group / "submission_metadata.yml", METADATA)
    put(group / "submission_101" / "x.zip", zipped({"exercise.py": RIGHT}))
    assert found(group, course)["Anna Smith (30001)"].submitted == datetime(2024, 5, 1, 10, tzinfo=UTC)


def test_of_two_gradescope_submissions_of_one_student_the_latest_counts(group: Path, course: Course) -> None:
    person = "  :submitters:\n  - :name: Anna\n    :sid: '1'\n"
    times = [
        f"submission_{number}:\n{person}  :created_at: 2024-05-0{day} 10:00:00 Z\n"
        for number, day in ((1, 2), (2, 1))
    ]
    put(group / "submission_metadata.yml", "---\n" + "".join(times))
    put(group / "submission_1" / "exercise.py", RIGHT)
    put(group / "submission_2" / "exercise.py", OTHER)
    (anna,) = found(group, course).values()
    assert (anna.source, anna.submitted) == (RIGHT, datetime(2024, 5, 2, 10, tzinfo=UTC))
    assert "not used: submission_2" in anna.message


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\0", b"- a\n- b\n", b"submission_101:\n  :submitters: 3\n"])
def test_without_metadata_that_can_be_read_gradescope_folders_bear_their_own_names(
    group: Path, course: Course, data: bytes
) -> None:
    put(group / "submission_metadata.yml", data)
    put(group / "submission_101" / "exercise.py", RIGHT)
    put(group / "submission_102" / "exercise.py", RIGHT)
    assert set(found(group, course)) == {"submission_101", "submission_102"}


# --- GitHub Classroom ------------------------------------------------------------------------------------


def test_checkouts_of_github_classroom_are_their_logins(group: Path, course: Course) -> None:
    for login in ("anna", "anton-b", "octo-cat"):
        put(group / f"lab-01-{login}" / ".git" / "HEAD", "ref: refs/heads/main\n")
        put(group / f"lab-01-{login}" / ".git" / "exercise.py", OTHER)
        put(group / f"lab-01-{login}" / "exercise.py", RIGHT)
    students = found(group, course)
    assert {name: one.source for name, one in students.items()} == {
        "anna": RIGHT,
        "anton-b": RIGHT,
        "octo-cat": RIGHT,
    }
    assert {one.submitted for one in students.values()} == {None}


def test_folders_with_a_common_beginning_are_no_checkouts(group: Path, course: Course) -> None:
    for name in ("smith-anna", "smith-ben"):
        put(group / name / "exercise.py", RIGHT)
    assert set(found(group, course)) == {"smith-anna", "smith-ben"}


# --- one of a class, and a class in an archive -----------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "student"),
    [
        ("canvas/smithanna_12345_67890_exercise.py", "smithanna (12345)"),
        ("moodle/Anna Smith_98765_assignsubmission_file_", "Anna Smith (98765)"),
        ("github/lab-anna", "anna"),
    ],
)
def test_graded_alone_a_student_has_the_name_that_the_class_gives(
    group: Path, course: Course, place: str, student: str
) -> None:
    put(group / "canvas" / "smithanna_12345_67890_exercise.py")
    put(group / "moodle" / "Anna Smith_98765_assignsubmission_file_" / "exercise.py")
    for login in ("anna", "ben"):
        put(group / "github" / f"lab-{login}" / "exercise.py")
        put(group / "github" / f"lab-{login}" / ".git" / "HEAD")
    assert set(found(group / place, course)) == {student}


@pytest.mark.parametrize("folder", ["", "submissions/"])
def test_an_archive_of_a_bulk_download_is_to_be_unpacked(group: Path, course: Course, folder: str) -> None:
    names = ("smithanna_12345_67890_my.py", "jonesben_12346_67891_my.py")
    put(group / "submissions.zip", zipped({f"{folder}{name}": RIGHT for name in names}))
    with pytest.raises(IntakeError, match=r"several hand-ins \(jonesben \(12346\), .*unpack it first"):
        find_submissions(group / "submissions.zip", course)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_the_metadata_is_not_waited_for(group: Path, course: Course) -> None:
    os.mkfifo(group / "submission_metadata.yml")
    put(group / "submission_101" / "exercise.py", RIGHT)
    put(group / "submission_102" / "exercise.py", RIGHT)
    assert set(found(group, course)) == {"submission_101", "submission_102"}
