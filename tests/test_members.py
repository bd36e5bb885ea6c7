"""Which class a gradebook is of: who has left is kept and not reported, and another class stays out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from grader import grading
from tests.hand_ins import OTHER, put
from tests.test_instructor import TextEngine
from tests.tiny_course import LAB_TOML, Run, command_line, make_course

GRADE = ("grade", "class", "--out", "out")
SAME = "--same-class"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A class of four beside a tiny course."""
    monkeypatch.setattr(grading, "LocalEngine", lambda *settings, **options: TextEngine())
    monkeypatch.setattr(grading, "_policy_findings", lambda source, lab: ())
    make_course(tmp_path)
    for student in ("anna", "ben", "cara", "dora"):
        put(tmp_path / "class" / student / "exercise.py")
    return command_line(tmp_path, capsys, monkeypatch)


def reported(root: Path) -> list[str]:
    lines = (root / "out" / "results.jsonl").read_text().splitlines()
    assert sorted(path.stem for path in (root / "out" / "students").glob("*.md")) == [
        json.loads(line)["student"] for line in lines
    ]
    return [json.loads(line)["student"] for line in lines]


def leave(root: Path, *students: str) -> None:
    for student in students:
        (root / "class" / student).rename(root / f"left-{student}")


# --- who has left ----------------------------------------------------------------------------------------


def test_who_has_left_the_class_is_kept_and_not_reported(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    leave(tmp_path, "cara", "dora")
    said = (
        "2 students of earlier runs are kept in the gradebook and left out of the reports: cara, dora; "
        "to put them in: grader report out --earlier"
    )
    done = run(*GRADE)
    assert done.stdout.count(said) == 1
    assert reported(tmp_path) == ["anna", "ben"]
    assert run("report", "out").stdout.count(said) == 1
    assert reported(tmp_path) == ["anna", "ben"]
    assert "kept in the gradebook" not in run("report", "out", "--earlier").stdout
    assert reported(tmp_path) == ["anna", "ben", "cara", "dora"]


def test_a_decision_about_somebody_who_has_left_does_not_bring_them_back(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    leave(tmp_path, "dora")
    run(*GRADE)
    assert run("override", "out", "dora", "1", "--reason", "late").returncode == 0
    assert reported(tmp_path) == ["anna", "ben", "cara"]


def test_who_comes_back_or_hands_in_alone_is_reported_again(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    leave(tmp_path, "cara", "dora")
    run(*GRADE)
    for student in ("cara", "dora"):
        (tmp_path / f"left-{student}").rename(tmp_path / "class" / student)
    assert run("grade", "class/cara", "--out", "out").returncode == 0
    assert reported(tmp_path) == ["anna", "ben", "cara"]  # one alone takes nobody out, and brings nobody in
    run(*GRADE)
    assert reported(tmp_path) == ["anna", "ben", "cara", "dora"]


def test_a_regrade_that_is_accepted_takes_who_has_left_out_of_the_reports(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    leave(tmp_path, "dora")
    run("regrade", "class", "--out", "out", "--yes")
    run("report", "out")
    assert reported(tmp_path) == ["anna", "ben", "cara"]


# --- another class ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("grade",), ("regrade", "--yes")])
def test_another_folder_is_refused_until_it_is_said_to_be_the_same_class(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Even where all names are the same, as those of anonymous classes are."""
    run(*GRADE)
    for student in ("anna", "ben", "cara", "dora"):
        put(tmp_path / "other" / student / "exercise.py", OTHER)
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    done = run(*command, "other", "--out", "out")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert (
        f"gradebook.sqlite may be of another class: it has marks for 4 students from {tmp_path / 'class'}, "
        f"of whom 4 are in {tmp_path / 'other'}; choose another --out, or, if this is the same class: {SAME}"
    ) in done.stderr
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    assert run(*command, "other", "--out", "out", SAME).returncode == 0
    assert run("grade", "other", "--out", "out").returncode == 0
    assert "may be of another class" in run(*GRADE).stderr


def test_one_hand_in_of_another_class_is_refused_too(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    put(tmp_path / "other" / "anna" / "exercise.py", OTHER)
    assert "may be of another class" in run("grade", "other/anna", "--out", "out").stderr
    assert run("grade", "class/anna", "--out", "out").returncode == 0
    assert run("grade", "other/anna", "--out", "out", SAME).returncode == 0  # one that came by mail
    assert run(*GRADE).returncode == 0


def test_the_same_folder_with_other_names_is_refused(run: Run, tmp_path: Path) -> None:
    """As when a roster gives everybody another name."""
    run(*GRADE)
    put(tmp_path / "roster.csv", "login,name\na1,anna\nb1,ben\nc1,cara\nd1,dora\n")
    assert "of whom 0 are in" in run(*GRADE, "--roster", "roster.csv").stderr
    done = run(*GRADE, "--roster", "roster.csv", SAME)
    assert "4 students of earlier runs are kept" in done.stdout
    assert reported(tmp_path) == ["a1", "b1", "c1", "d1"]


def test_the_same_class_by_another_path_is_the_same(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    (tmp_path / "link").symlink_to(tmp_path / "class")
    assert run("grade", "link", "--out", "out").returncode == 0
    assert run("grade", str(tmp_path / "class"), "--out", "out").returncode == 0


def test_each_lab_of_a_class_may_have_a_folder_of_its_own(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "labs" / "02_next" / "lab.toml", LAB_TOML)
    for student in ("anna", "ben", "new"):
        put(tmp_path / "second" / student / "exercise.py")
        put(tmp_path / "others" / f"x{student}" / "exercise.py")
    assert run(*GRADE, "--lab", "01").returncode == 0
    done = run("grade", "others", "--out", "out", "--lab", "02")
    assert (
        f"4 students from {tmp_path / 'class'}, of whom 0" not in done.stderr
    )  # no folder is known of lab 02
    assert "4 students, of whom 0 are in" in done.stderr
    assert run("grade", "second", "--out", "out", "--lab", "02").returncode == 0
    assert run(*GRADE, "--lab", "01").returncode == 0


def test_a_class_and_its_results_may_move_together(run: Run, tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    (tmp_path / "class").rename(tmp_path / "course" / "class")
    assert run("grade", "course/class", "--out", "course/out").returncode == 0
    (tmp_path / "course").rename(tmp_path / "renamed")
    assert run("grade", "renamed/class", "--out", "renamed/out").returncode == 0


# --- the columns of the roster ---------------------------------------------------------------------------


def test_the_files_for_platforms_have_the_rosters_columns(run: Run, tmp_path: Path) -> None:
    put(
        tmp_path / "roster.csv",
        "Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (77)\n    Points Possible,,,,,5\n"
        '"Smith, Anna",11,S1,anna,A,\n"Jones, Ben",12,S2,ben,B,\n'
        '"Lee, Cara",13,,cara,A,\n"Ott, Dora",14,,dora,A,\n',
    )
    run(*GRADE, "--roster", "roster.csv")
    run("report", "out")
    with (tmp_path / "out" / "canvas.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab 1 (77)"]
    assert rows[2] == ["Smith, Anna", "11", "S1", "anna", "A", "5"]
    assert rows[4] == ["Lee, Cara", "13", "", "cara", "A", "5"]


# --- a gradebook without a byte --------------------------------------------------------------------------


@pytest.mark.parametrize("command", [GRADE, ("regrade", "class", "--out", "out", "--yes")])
def test_an_empty_gradebook_that_is_filled_again_is_said(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    put(tmp_path / "out" / "gradebook.sqlite", b"")
    done = run(*command)
    assert "gradebook.sqlite was an empty file, and is a new gradebook now; if it held marks" in done.stdout
    assert "--class-seed N" in done.stdout
    assert "was an empty file" not in run(*GRADE).stdout


def test_a_damaged_gradebook_names_the_seed_that_is_lost(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "out" / "gradebook.sqlite", b"SQLite format 3\0" + b"x" * 5000)
    done = run(*GRADE)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "--class-seed N for the same inputs" in done.stderr
