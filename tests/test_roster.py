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
    (person,) = read_roster(put(tmp_path / "roster.csv", table)).people
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
    (person,) = read_roster(put(tmp_path / "roster.csv", table)).people
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
        "a@b": RIGHT,  # a number is of one assignment only, an address of a person
        "c@d": OTHER,
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


# --- rows that come twice --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        "login,name\nanna,Anna\nben,Ben\nanna,Anna\n",
        "login,group\nanna,1\nben,1\nanna,2\n",
        "name,group\nAnna,1\nBen,1\nAnna,1\n",
        "login,name\nanna,Anna\nben,Ben\nANNA ,anna\n",
    ],
)
def test_a_row_that_says_the_same_again_is_taken_once_with_a_note(tmp_path: Path, table: str) -> None:
    roster = read_roster(put(tmp_path / "roster.csv", table))
    assert [person.doubt for person in roster.people] == ["", ""]
    (note,) = roster.notes
    assert note.startswith("roster.csv: row 4 says the same as row 2 (")


def test_rows_that_contradict_each_other_leave_only_their_people_undecided(
    group: Path, course: Course
) -> None:
    for name in ("anna", "ben", "cara", "dora"):
        put(group / name / "exercise.py")
    roster = put(
        group.parent / "roster.csv",
        "login,name,email\nanna,Anna,a@b\nben,Ben,b@b\nanna,Other,o@b\ncara,Cara,c@b\ndora,Dora,c@b\n",
    )
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert {one.student: (one.source, one.withheld) for one in found.submissions} == {
        "anna": (None, True),
        "ben": (RIGHT, False),
        "cara": (None, True),
        "dora": (None, True),
    }
    assert found.notes == (
        "roster.csv: rows 2 and 4 both have login 'anna' and differ: correct the roster; "
        "undecided until then: anna",
        "roster.csv: rows 5 and 6 both have email 'c@b' and differ: correct the roster; "
        "undecided until then: cara, dora",
    )
    assert found.submissions[0].message == (
        "rows 2 and 4 of the roster contradict each other: undecided until it is corrected"
    )


def test_two_of_one_name_in_different_groups_are_not_made_one(tmp_path: Path) -> None:
    (anna,) = read_roster(put(tmp_path / "roster.csv", "name,group\nAnna,1\nAnna,2\n")).people
    assert "rows 2 and 3 of the roster contradict each other" in anna.doubt


def test_a_person_in_doubt_who_handed_in_nothing_is_undecided_too(group: Path, course: Course) -> None:
    put(group / "ben" / "exercise.py")
    put(group / "cara" / "exercise.py")
    roster = put(group.parent / "roster.csv", "login,id\nanna,1\nben,2\nanna,3\ncara,4\n")
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert [(one.student, one.withheld) for one in found.submissions] == [
        ("anna", True),
        ("ben", False),
        ("cara", False),
    ]


# --- the columns of learning platforms -------------------------------------------------------------------


def test_the_roster_of_github_classroom_is_matched_by_login(group: Path, course: Course) -> None:
    for login in ("octo-cat", "darthv", "1003"):
        put(group / f"lab-01-{login}" / "exercise.py", f"# {login}\n")
        put(group / f"lab-01-{login}" / ".git" / "HEAD")
    roster = (
        "identifier,github_username,github_id,name\n21700000,octo-cat,1001,Anna Smith\n"
        "21800000,darthv,1002,\n21900000,,1003,Ben Jones\n"
    )
    assert students(group, course, roster) == {
        "Anna Smith (21700000)": "# octo-cat\n",
        "21800000": "# darthv\n",
        "Ben Jones (21900000)": None,  # 1003 is a number of GitHub, no login
        "1003": "# 1003\n",
    }


def test_the_worksheet_of_moodle_fits_its_bulk_download(group: Path, course: Course) -> None:
    put(group / "Anna Smith_98765_assignsubmission_file" / "exercise.py", RIGHT)
    put(group / "Anna Smith_98766_assignsubmission_file" / "exercise.py", OTHER)
    roster = (
        "Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade\n"
        "Participant 98765,Anna Smith,s1,anna1@example.org,Submitted,,100\n"
        "Participant 98766,Anna Smith,s2,anna2@example.org,Submitted,,100\n"
    )
    assert students(group, course, roster) == {"s1": RIGHT, "s2": OTHER}


def test_the_worksheet_of_an_anonymous_assignment_has_numbers_alone(group: Path, course: Course) -> None:
    put(group / "Participant_12_assignsubmission_file" / "exercise.py", RIGHT)
    put(group / "Participant_13_assignsubmission_file" / "exercise.py", OTHER)
    roster = "Identifier,Status,Grade\nParticipant 12,Submitted,\nParticipant 13,Submitted,\n"
    assert students(group, course, roster) == {"Participant 12": RIGHT, "Participant 13": OTHER}


def test_of_two_columns_for_one_thing_none_hides_the_other(tmp_path: Path) -> None:
    table = "ID number,Identifier,mail,Email address\ns1,Participant 12,a@b,c@d\n"
    (person,) = read_roster(put(tmp_path / "roster.csv", table)).people
    assert person.student == "s1"
    assert {"s1", "participant12", "ab", "cd"} <= person.ids


def test_canvas_own_test_student_is_left_out_with_a_note(tmp_path: Path) -> None:
    table = 'Student,ID,SIS Login ID,Section\n"Smith, Anna",1,asmith,A\n"Student, Test",2,5f3a,A\n'
    roster = read_roster(put(tmp_path / "roster.csv", table))
    assert [person.student for person in roster.people] == ["asmith"]
    assert roster.notes == ("roster.csv: Canvas's own 'Student, Test' is left out",)


def test_what_platforms_call_a_person_is_taken_from_the_roster(group: Path, course: Course) -> None:
    put(group / "smithanna_12345_67890_exercise.py")
    put(group / "jonesben_12346_67891_exercise.py")
    roster = put(
        group.parent / "roster.csv",
        "Student,ID,SIS User ID,SIS Login ID,Section,01_tiny (77),Essay (78)\n"
        "    Points Possible,,,,,5,10\n"
        '"Smith, Anna",12345,S1,asmith,Lab A,,3\n',
    )
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert found.assignments == ("01_tiny (77)", "Essay (78)")
    assert found.columns["asmith"] == {
        "Student": "Smith, Anna",
        "ID": "12345",
        "SIS User ID": "S1",
        "SIS Login ID": "asmith",
        "Section": "Lab A",
    }
    assert found.columns["jonesben (12346)"] == {"ID": "12346"}  # as the name of the file says
