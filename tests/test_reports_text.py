"""Text and names that students chose, on their way into reports."""

from __future__ import annotations

import re

import pytest

from grader.reports.names import file_names
from grader.reports.text import number, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Åsa 日本 👩‍💻 é", "Åsa 日本 👩‍💻 é"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\u202etxt\u2066\ufeff", r"\u202etxt\u2066\ufeff"),
        ("\x9b31m\x85\u2028", r"\x9b31m\x85\u2028"),
        ("caf\udce9", r"caf\udce9"),
    ],
)
def test_visible_spells_out_what_could_steer_a_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_visible_keeps_what_it_is_told_to() -> None:
    assert visible("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


def test_one_line_joins_and_cuts() -> None:
    assert one_line("a\r\n  b\n\nc") == "a b c"
    assert one_line("abcdefgh", 5) == "abcd…"
    assert one_line("abcde", 5) == "abcde"


@pytest.mark.parametrize(
    ("points", "written"),
    [(10, "10"), (10.0, "10"), (8.5, "8.5"), (8.333333, "8.33"), (99.999, "100"), (0.0, "0")],
)
def test_points_are_written_without_needless_decimals(points: float, written: str) -> None:
    assert str(number(points)) == written


@pytest.mark.parametrize("student", ["ada", "amara_okafor", "j.smith", "s1234567", "a-b"])
def test_plain_names_are_names_of_files(student: str) -> None:
    assert file_names([student]) == {student: student}


@pytest.mark.parametrize(
    "student",
    ["../x", "a/b", "a\\b", "C:x", ".hidden", "..", "", " ", "con", "nul.txt", "Åsa", "日本", "a\0b",
     "x" * 300, "caf\udce9", "a\nb", "<b>", "-rf", "a.", "<script>"],
)  # fmt: skip
def test_other_names_become_harmless_names_of_files(student: str) -> None:
    name = file_names([student])[student]
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_.-]{0,60}-[0-9a-f]{8}", name)


def test_names_of_files_differ_whatever_the_case_and_whoever_is_there() -> None:
    students = ["Bob", "bob", "BOB", "bo b", "bo_b", "bób"]
    names = file_names(students)
    taken = names["Bob"]  # somebody who takes the name that another's was made into
    assert len({name.casefold() for name in file_names([*students, taken]).values()}) == len(students) + 1
    assert all(file_names([student])[student] == names[student] for student in students)
