"""The roster: everybody on it has a submission, and nobody else's is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import Course, CourseError
from grader.intake import find_submissions
from grader.roster import read_roster
from tests.hand_ins import LAB, OTHER, RIGHT, put


def students(group: Path, course: Course, roster: str) -> dict[str, str | None]:
    path = put(group.parent / "roster.csv", roster)
    found = find_submissions(group, course, course.labs[0], roster=path)
    return {one.student: one.source for one in found.submissions}


@pytest.mark.parametrize(
    "table",
    [
        "name,login\nAnna Smith,asmith\n",
        "\ufefflogin;name\r\nasmith;Anna Smith\r\n",
        "Section\tSIS Login ID\tStudent Name\n\nA\tasmith\tSmith, Anna\n",
        'Username,"First name",Surname\nasmith,Anna,Smith\n',
        "login,email\nasmith,a.smith@example.org\n",
    ],
)
def test_columns_come_in_any_order_and_form(tmp_path: Path, table: str) -> None:
    (person,) = read_roster(put(tmp_path / "roster.csv", table))
    assert person.student == "asmith"


@pytest.mark.parametrize(
    "name",
    [
        "asmith",
        "ASmith",
        "Anna Smith",
        "anna_smith",
        "Smith, Anna",
        "smithanna",
        "a.smith@example.org",
        "a-smith",
    ],
)
def test_a_hand_in_is_found_by_id_login_email_or_name(group: Path, course: Course, name: str) -> None:
    put(group / name / "exercise.py")
    put(group / "ben" / "exercise.py")
    roster = "login,name,email,github\nasmith,Anna Smith,a.smith@example.org,a-smith\nben,Ben,,\n"
    assert students(group, course, roster) == {"asmith": RIGHT, "ben": RIGHT}


def test_a_number_is_shown_with_the_name(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py")
    put(group / "jonesben_12346_67891_exercise.py")
    assert set(students(group, course, "id,name\n12345,Anna Smith\n12346,Ben Jones\n")) == {
        "Anna Smith (12345)",
        "Ben Jones (12346)",
    }


def test_the_gradebook_of_canvas_is_a_roster_though_two_have_one_name(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py", RIGHT)
    put(group / "smithanna_12346_67891_exercise.py", OTHER)
    put(group / "jonesben_12347_67892_exercise.py", RIGHT)
    roster = (
        "Student,ID,SIS Login ID,Lab 2 (77)\n    Points Possible,,,100\n"
        '"Smith, Anna",12345,asmith1,\n"Smith, Anna",12346,asmith2,\n"Jones, Ben",12347,bjones,\n'
    )
    assert students(group, course, roster) == {"asmith1": RIGHT, "asmith2": OTHER, "bjones": RIGHT}


@pytest.mark.parametrize(
    "table", ["student,email\nanna,a@b.org\n", "email,student,name\na@b.org,anna,Anna B\n"]
)
def test_a_column_student_is_what_the_marks_show(tmp_path: Path, table: str) -> None:
    (person,) = read_roster(put(tmp_path / "roster.csv", table))
    assert person.student == "anna"


def test_who_handed_in_nothing_has_a_line(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ben" / "exercise.py")
    roster = put(group / "roster.csv", "login\nanna\nben\ncara\n")
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert (found.submissions[2].source, found.submissions[2].message) == (
        None,
        f"nothing was handed in for {LAB}",
    )
    assert found.notes == ("not taken for students: roster.csv",)


def test_who_is_not_on_the_roster_is_listed_and_graded(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ghost" / "exercise.py")
    roster = put(group.parent / "roster.csv", "login\nanna\n")
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert [one.student for one in found.submissions] == ["anna", "ghost"]
    assert found.notes == ("not on the roster, and graded under their own name: ghost",)


def test_a_name_that_fits_two_people_settles_nothing(group: Path, course: Course) -> None:
    for number in (98765, 98766):
        put(group / f"Anna Smith_{number}_assignsubmission_file_" / "exercise.py")
    roster = put(group.parent / "roster.csv", "login,name\nas1,Anna Smith\nas2,Anna Smith\n")
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert [one.student for one in found.submissions] == [
        "Anna Smith (98765)",
        "Anna Smith (98766)",
        "as1",
        "as2",
    ]
    assert "Anna Smith (98765) may be several people on the roster: as1, as2" in found.notes


def test_a_number_of_moodle_is_no_id_of_the_roster_unless_it_says_participant(
    group: Path, course: Course
) -> None:
    put(group / "Anna Smith_12_assignsubmission_file_" / "exercise.py", RIGHT)
    put(group / "Ben Jones_13_assignsubmission_file_" / "exercise.py", OTHER)
    assert students(group, course, "id,login,name\n12,ben,Ben Jones\n13,anna,Anna Smith\n") == {
        "anna": RIGHT,
        "ben": OTHER,
    }
    assert students(group, course, "Identifier,Email address\nParticipant 12,a@b\nParticipant 13,c@d\n") == {
        "Participant 12": RIGHT,
        "Participant 13": OTHER,
    }


def test_who_is_missing_in_gradescope_is_found_on_the_roster(group: Path, course: Course) -> None:
    people = "".join(
        f"submission_{number}:\n  :submitters:\n  - :name: {name}\n    :sid: '{number}'\n"
        for number, name in enumerate(["Anna", "Ben", "Cara"])
    )
    put(group / "submission_metadata.yml", f"---\n{people}")
    for number in (0, 1):
        put(group / f"submission_{number}" / "exercise.py")
    roster = "login,sid\nanna,0\nben,1\ncara,2\n"
    assert students(group, course, roster) == {"anna": RIGHT, "ben": RIGHT, "cara": None}


def test_one_student_alone_brings_no_others(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ben" / "exercise.py")
    assert set(students(group / "anna", course, "login,name\nasmith,anna\nben,b\n")) == {"asmith"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "row 1: no column is called"),
        ("colour,size\nred,1\n", "row 1: no column is called"),
        ("login,name\n", "it has no row with a person"),
        ("login,name\nanna,Anna\nben,Ben,3,4\n", "row 3: more cells"),
        ("login,name\nanna,Anna\nben,Ben\nanna,Other\n", "row 4: 'anna' is in row 2 already"),
        ("name\nAnna\nAnna\n", "row 3: 'Anna' is in row 2 already"),
        ('login,name\nanna,"Anna\n', "row 2: not CSV"),
        ('login,name\nanna,"An"na\n', "row 2: not CSV"),
        (b"PK\x03\x04", "a spreadsheet"),
        (b"login\n\x81\x8d\n", "not a text file"),
        ("login,note\n---,x\n", "row 2: it names nobody"),
    ],
)
def test_a_broken_roster_is_one_line_that_names_the_row(
    tmp_path: Path, table: str | bytes, words: str
) -> None:
    path = put(tmp_path / "roster.csv", table)
    with pytest.raises(CourseError) as caught:
        read_roster(path)
    assert str(caught.value).startswith(f"{path}: {words}")
    assert "\n" not in str(caught.value)


def test_a_missing_roster_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no such file; --roster takes a CSV file"):
        read_roster(tmp_path / "roster.csv")
