"""Marks as tables and lines for other programs: results.jsonl, marks.csv, canvas.csv, moodle.csv."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from grader.marking import Result, StepMarks
from grader.reports.jsonl import jsonl
from grader.reports.learning import canvas, moodle
from grader.reports.rows import in_order
from grader.reports.table import cell, table
from grader.reports.tallies import by_lab
from grader.verdicts import Finding
from tests.report_class import COURSE, EVIL, LAB, make_result, write


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def lines(*results: Result) -> str:
    return jsonl(in_order(results)).decode("ascii")


def marks(*results: Result) -> str:
    return table(in_order(results)).decode("utf-8")


def platforms(*results: Result) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of canvas.csv and moodle.csv."""
    labs = by_lab(COURSE, in_order(results))
    return rows_of(canvas(labs).decode("utf-8")), rows_of(moodle(labs).decode("utf-8"))


def test_jsonl_has_exactly_the_fixed_keys() -> None:
    text = lines(make_result("ada", "pass pass wrong to_do", note="two\nlines", message="m"))
    assert [json.loads(line) for line in text.splitlines()] == [
        {
            "student": "ada",
            "lab": "02_training_core",
            "points": 10,
            "max_points": 30,
            "message": "m",
            "steps": [
                {"step": 1, "points": 10, "max_points": 10},
                {"step": 2, "points": 0, "max_points": 20},
            ],
            "tests": [
                {"test": "test_1_a", "verdict": "pass", "message": ""},
                {"test": "test_1_b[x]", "verdict": "pass", "message": ""},
                {"test": "test_2_a", "verdict": "wrong", "message": "two\nlines"},
                {"test": "test_2_b", "verdict": "to do", "message": "two\nlines"},
            ],
            "findings": [],
        }
    ]


def test_jsonl_keeps_any_name_exactly_and_one_object_a_line() -> None:
    names = [EVIL, "line\u2028break\x85\nname", "caf\udce9"]
    text = lines(*(make_result(name) for name in names))
    assert {json.loads(line)["student"] for line in text.splitlines()} == set(names)


def test_reports_are_sorted_and_do_not_depend_on_the_order_of_results(tmp_path: Path) -> None:
    results = [make_result("zoe"), make_result("Bob", lab="05_model"), make_result("Bob"), make_result("ada")]
    forward, backward = write(tmp_path / "a", *results), write(tmp_path / "b", *reversed(results))
    assert forward == backward
    rows = [json.loads(line) for line in forward[0].splitlines()]
    assert [(row["student"], row["lab"][:2]) for row in rows] == [
        ("ada", "02"), ("Bob", "02"), ("Bob", "05"), ("zoe", "02"),
    ]  # fmt: skip


def test_jsonl_has_findings_and_points_that_are_missing_or_broken() -> None:
    found = Finding(2, "import outside the list", 3, "import ctypes")
    late = replace(make_result("ada", findings=[found]), points=7.5)
    row = json.loads(lines(late))
    assert row["findings"] == [
        {"step": 2, "rule": "import outside the list", "line": 3, "text": "import ctypes"}
    ]
    assert row["points"] == 7.5
    assert row["steps"][1] == {"step": 2, "points": None, "max_points": 20}


def test_whole_points_stay_whole_numbers_everywhere() -> None:
    late = replace(make_result("ada"), points=30.0)
    assert '"points": 30,' in lines(late)
    assert "ada,02_training_core,30,30" in marks(late)


def test_csv_has_a_column_a_step_and_a_byte_order_mark() -> None:
    text = marks(make_result("Åsa", "pass pass wrong pass", message="two\nlines"))
    assert text.startswith("\ufeff")
    assert list(csv.reader(io.StringIO(text[1:], newline=""))) == [
        ["student", "lab", "points", "max_points", "step 1", "step 2", "message"],
        ["Åsa", "02_training_core", "10", "30", "10", "0", "two lines"],
    ]


def test_csv_leaves_a_withheld_step_empty() -> None:
    withheld = Result(
        "ada", LAB.name, 10, 30, "", (StepMarks(1, "", 10, 10), StepMarks(2, "", None, 20)), (), 1.0
    )
    text = marks(withheld)
    assert text.splitlines()[1] == "ada,02_training_core,10,30,10,,"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "＝", "\u00a0=", "\t"])
def test_csv_cell_is_never_a_formula(start: str) -> None:
    assert cell(start + "cmd()").startswith("'")


@pytest.mark.parametrize("text", ["ada", "a=b", "", "'quoted'", "1-2"])
def test_csv_cell_leaves_plain_text_alone(text: str) -> None:
    assert cell(text) == text


def test_canvas_has_its_five_columns_then_a_column_a_lab_and_a_row_of_maxima() -> None:
    rows, _ = platforms(make_result("ada"), make_result("bob", "wrong"), make_result("ada", lab="05_model"))
    assert rows == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "02_training_core", "05_model"],
        ["    Points Possible", "", "", "", "", "30", "30"],
        ["ada", "", "", "ada", "", "30", "30"],
        ["bob", "", "", "bob", "", "0", ""],
    ]


def test_moodle_tells_addresses_from_numbers() -> None:
    _, rows = platforms(make_result("ada@uni.example"), make_result("s123", "wrong"))
    assert rows == [
        ["Identifier", "ID number", "Email address", "02_training_core"],
        ["ada@uni.example", "", "ada@uni.example", "30"],
        ["s123", "s123", "", "0"],
    ]


def test_platforms_get_no_mark_while_a_part_of_it_is_undecided() -> None:
    for_canvas, for_moodle = platforms(make_result("ada", findings=[Finding(2, "rule", 1, "x")]))
    assert for_canvas[2][-1] == for_moodle[1][-1] == ""


@pytest.mark.parametrize("student", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_table_has_a_name_that_is_a_formula(student: str) -> None:
    result = make_result(student, message=student)
    for_canvas, for_moodle = platforms(result)
    plain = rows_of(marks(result).removeprefix("\ufeff"))
    texts = [field for row in (*for_canvas[2:], *for_moodle[1:], *plain[1:]) for field in row if field]
    assert [text for text in texts if text.lstrip()[0] in "=+-@"] == []
    assert for_canvas[2][-1] == for_moodle[1][-1] == "30"


def test_canvas_gets_the_columns_that_the_roster_has() -> None:
    labs = by_lab(COURSE, in_order([make_result("asmith"), make_result("bob (12)"), make_result("zoe")]))
    people = {
        "asmith": {
            "Student": "Smith, Anna", "ID": "11", "SIS User ID": "S1", "SIS Login ID": "asmith",
            "Section": "A",
        },
        "bob (12)": {"ID": "12"},
    }  # fmt: skip
    rows = rows_of(canvas(labs, people, ["Essay (1)", "The training core (77)", "Quiz"]).decode())
    assert rows == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "The training core (77)"],
        ["    Points Possible", "", "", "", "", "30"],
        ["Smith, Anna", "11", "S1", "asmith", "A", "30"],
        ["bob (12)", "12", "", "", "", "30"],
        ["zoe", "", "", "zoe", "", "30"],
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["02_training_core (7)"], "02_training_core (7)"),
        (["Lab 2 (7)", "Lab 3 (8)"], "Lab 2 (7)"),
        (["Exercise 02: The Training Core (7)"], "Exercise 02: The Training Core (7)"),
        (["Lab 2 (7)", "Lab 02 (8)"], "02_training_core"),  # nobody guesses
        (["Lab 2 Current Score"], "02_training_core"),
        (["Lab 20 (7)"], "02_training_core"),
    ],
)
def test_an_assignment_of_canvas_is_a_labs_by_its_name(columns: list[str], expected: str) -> None:
    labs = by_lab(COURSE, [make_result("ada")])
    assert rows_of(canvas(labs, {}, columns).decode())[0][-1] == expected


MOODLE = {
    "ada": {
        "Identifier": "Participant 12", "Full name": "Ada L", "Email address": "ada@x.org",
        "Status": "Submitted", "Maximum Grade": "30.00", "Grade can be changed": "Yes",
        "Last modified (grade)": "-",
    },
    "bob": {"Identifier": "Participant 13", "Full name": "=Bob"},
}  # fmt: skip


def test_moodle_gets_a_worksheet_of_one_lab_where_its_numbers_are_known() -> None:
    found = Finding(2, "rule", 1, "x")
    results = in_order([make_result("ada"), make_result("bob", findings=[found]), make_result("stranger")])
    rows = rows_of(moodle(by_lab(COURSE, results), MOODLE).decode())
    assert rows == [
        [
            *("Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade"),
            *("Grade can be changed", "Last modified (grade)"),
        ],
        ["Participant 12", "Ada L", "ada@x.org", "Submitted", "30", "30.00", "Yes", "-"],
        ["Participant 13", "'=Bob", "", "", "", "", "", "-"],
    ]


def test_moodle_gets_a_table_for_its_gradebook_of_several_labs() -> None:
    results = in_order([make_result("ada"), make_result("ada", lab="05_model"), make_result("zoe")])
    people = {"ada": MOODLE["ada"] | {"ID number": "s1", "Username": "adal"}}
    rows = rows_of(moodle(by_lab(COURSE, results), people).decode())
    assert rows == [
        [
            *("Identifier", "ID number", "Email address", "Full name", "Username"),
            *("02_training_core", "05_model"),
        ],
        ["ada", "s1", "ada@x.org", "Ada L", "adal", "30", "30"],
        ["zoe", "zoe", "", "", "", "30", ""],
    ]
