"""`intake.toml`: what the hand-ins leave open is settled by the instructor, and by nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import Course, CourseError
from grader.intake import find_submissions, intake_report
from tests.hand_ins import LAB, OTHER, RIGHT, only, put, with_second_lab, zipped


@pytest.mark.parametrize("wanted", ["src/second.py", f"{LAB}/src/second.py"])
def test_the_named_file_counts(group: Path, course: Course, wanted: str) -> None:
    put(group / "anna" / LAB / "src" / "first.py", OTHER)
    put(group / "anna" / LAB / "src" / "second.py", RIGHT)
    assert "several files may be the exercise, settle it in intake.toml: " in only(group, course).message
    put(group / "intake.toml", f'[files]\nanna = "{wanted}"\n')
    submission = only(group, course)
    assert (submission.source, submission.withheld) == (RIGHT, False)
    assert submission.message == f"taken from {LAB}/src/second.py, as intake.toml says"


@pytest.mark.parametrize("wanted", ["b.py", "inner/b.py", "x.zip: b.py"])
def test_a_file_in_an_archive_may_be_named(group: Path, course: Course, wanted: str) -> None:
    name = "inner/b.py" if wanted.startswith("inner") else "b.py"
    put(group / "anna" / "x.zip", zipped({"a.py": OTHER, name: RIGHT}))
    put(group / "anna" / "exercise.py", OTHER)
    put(group / "intake.toml", f'[files]\nanna = "{wanted}"\n')
    assert only(group, course).source == RIGHT


def test_a_text_file_may_be_named(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py.txt", RIGHT)
    put(group / "intake.toml", '[files]\nanna = "exercise.py.txt"\n')
    assert only(group, course).source == RIGHT


def test_a_lab_has_a_table_of_its_own(group: Path, course: Course) -> None:
    course = with_second_lab(course)
    for lab in (LAB, "02_next"):
        put(group / "anna" / lab / "a.py", RIGHT)
        put(group / "anna" / lab / "b.py", OTHER)
    put(group / "intake.toml", f'[files.{LAB}]\nanna = "a.py"\n[files.02_next]\nanna = "b.py"\n')
    found = find_submissions(group, course).submissions
    assert [one.source for one in found] == [RIGHT, OTHER]


def test_a_named_file_that_is_not_there_withholds_the_mark(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "intake.toml", '[files]\nanna = "other.py"\n')
    submission = only(group, course)
    assert (submission.source, submission.withheld) == (None, True)
    assert submission.message == (
        "intake.toml names other.py, which is not in the hand-in; found exercise.py; correct it there"
    )


def test_names_are_given_to_students_and_to_groups(group: Path, course: Course) -> None:
    put(group / "upload7" / "exercise.py", RIGHT)
    put(group / "team.py", OTHER)
    put(group / "cara" / "exercise.py", RIGHT)
    put(group / "intake.toml", '[students]\nupload7 = "anna"\n"team.py" = ["ben", "dora"]\n')
    found = find_submissions(group, course, course.labs[0])
    assert {one.student: one.source for one in found.submissions} == {
        "anna": RIGHT,
        "ben": OTHER,
        "dora": OTHER,
        "cara": RIGHT,
    }
    assert found.notes == ()


def test_what_is_ignored_is_said(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "sample" / "exercise.py")
    put(group / "old.md")
    put(group / "intake.toml", 'ignore = ["sample", "old.md"]\n')
    found = find_submissions(group, course, course.labs[0])
    assert [one.student for one in found.submissions] == ["anna"]
    assert found.notes == ("ignored, as intake.toml says: sample, old.md",)


def test_what_is_spoken_of_and_not_there_is_said(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ben" / "exercise.py")
    text = 'ignore = ["x"]\n[students]\ncraa = "cara"\n[files]\nbne = "a.py"\nanna = "exercise.py"\n'
    put(group / "intake.toml", f'{text}[files.01_tiny]\ndroa = "a.py"\n')
    found = find_submissions(group, course, course.labs[0])
    assert found.notes == tuple(
        f"intake.toml, {where}: not here: {name}; write it as `grader intake` does, or take it out"
        for where, name in {
            "ignore": "x",
            "[students]": "craa",
            "[files]": "bne",
            '[files."01_tiny"]': "droa",
        }.items()
    )


@pytest.mark.parametrize("place", ["", "anna"])
def test_a_lab_that_there_is_not_is_one_line(group: Path, course: Course, place: str) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "intake.toml", '[files."01_tinny"]\nanna = "exercise.py"\n')
    with pytest.raises(CourseError) as caught:
        find_submissions(group / place, course, course.labs[0])
    assert str(caught.value) == (
        f"{group / 'intake.toml'}: [files.\"01_tinny\"]: there is no lab '01_tinny'; the labs are 01_tiny; "
        "correct the name there"
    )


def test_a_labs_number_is_enough(group: Path, course: Course) -> None:
    put(group / "anna" / "a.py", OTHER)
    put(group / "anna" / "b.py", RIGHT)
    put(group / "intake.toml", '[files."01"]\nanna = "b.py"\n[files."01_tiny"]\nben = "c.py"\n')
    assert only(group, course).source == RIGHT


def test_one_student_alone_is_settled_by_the_class(group: Path, course: Course) -> None:
    put(group / "anna" / "a.py", OTHER)
    put(group / "anna" / LAB / "b.py", RIGHT)
    put(group / "intake.toml", '[students]\nanna = "asmith"\n[files]\nasmith = "b.py"\n')
    found = find_submissions(group / "anna", course, course.labs[0])
    assert [(one.student, one.source) for one in found.submissions] == [("asmith", RIGHT)]
    assert found.notes == (f"anna is asmith, as {group / 'intake.toml'} says",)


def test_a_student_of_the_roster_may_be_named_as_the_folder_is(group: Path, course: Course) -> None:
    put(group / "anna" / "a.py", OTHER)
    put(group / "anna" / "b.py", RIGHT)
    put(group / "ben" / "exercise.py")
    put(group / "intake.toml", '[files]\nanna = "b.py"\n')
    roster = put(group.parent / "roster.csv", "login,name\nasmith,Anna\nbjones,Ben\n")
    found = find_submissions(group, course, course.labs[0], roster=roster)
    assert [(one.student, one.source) for one in found.submissions] == [("asmith", RIGHT), ("bjones", RIGHT)]
    assert found.notes == ()


def test_a_students_own_file_settles_nothing(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "anna" / "intake.toml", '[students]\nanna = "ben"\n')
    put(group / "ben" / "exercise.py", OTHER)
    for path in (group, group / "anna"):
        found = {
            one.student: one.source for one in find_submissions(path, course, course.labs[0]).submissions
        }
        assert found["anna"] == RIGHT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("files = 3", "files: "),
        ("[file]\nanna = 'a.py'", "file: "),
        ("ignore = 'anna'", "ignore: "),
        ("[files]\nanna = 3", "files.anna: "),
        ("[files]\nanna = ", "Invalid value"),
        ("\xff\xfe", "not a text in UTF-8"),
        ("[files]\nanna = '../ben/exercise.py'", "[files]: '../ben/exercise.py' leads out of the hand-in"),
        ("[files.01_tiny]\nanna = '/etc/passwd'", "[files]: '/etc/passwd' leads out of the hand-in"),
        ("[files]\nanna = 'C:\\x.py'", "leads out of the hand-in"),
        ("[files]\nanna = ''", "[files]: '' leads out of the hand-in"),
    ],
)
def test_a_broken_file_is_one_line(group: Path, course: Course, text: str, words: str) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "intake.toml", text.encode("latin-1"))
    with pytest.raises(CourseError) as caught:
        find_submissions(group, course, course.labs[0])
    assert "intake.toml: " in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_report_has_a_line_for_everybody_and_everything(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py")
    put(group / "ben" / "a.py", RIGHT)
    put(group / "ben" / "b.py", OTHER)
    (group / "cara").mkdir()
    put(group / "notes.md")
    lines = intake_report(find_submissions(group, course, course.labs[0]))
    assert [line.partition(",")[0] for line in lines] == [
        "anna",
        "ben",
        "cara",
        "note: not taken for students: notes.md",
    ]
    assert lines[1].startswith(
        f"ben, {LAB}: to be settled: several files may be the exercise, settle it in intake.toml: a.py, b.py"
    )
    assert lines[2] == f"cara, {LAB}: nothing to judge: nothing was handed in for {LAB}"
