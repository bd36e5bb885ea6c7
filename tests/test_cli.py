"""The command line: what it prints, its exit status, one line for a user's mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_course import SOLUTION, Run, command_line, make_course


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("hint", "1", "2")` is `grader hint 1 2` in the folder of a tiny course."""
    make_course(tmp_path)

    return command_line(tmp_path, capsys, monkeypatch)


def test_hints_come_one_level_at_a_time(run: Run) -> None:
    shown = [run("hint", "01", "double").stdout for _ in range(4)]
    assert [text.splitlines()[0].split(", ")[-1] for text in shown] == [
        "hint 1 of 3",
        "hint 2 of 3",
        "hint 3 of 3",
        "hint 3 of 3",
    ]
    assert [text.splitlines()[1] for text in shown] == ["a", "b", "c", "c"]
    assert "that was the last one; to see an earlier one: grader hint 01 1 --level 1" in shown[-1]
    assert run("hint", "01", "double", "--level", "2").stdout.splitlines()[1] == "b"
    assert "hint 3 of 3" in run("hint", "01", "double").stdout  # looking back doesn't count
    assert "hint 1 of 3" in run("hint", "1", "2").stdout  # each step counts on its own


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"01_tiny/double": "many"}'])
def test_a_damaged_hint_file_costs_no_hint(run: Run, tmp_path: Path, damage: str) -> None:
    (tmp_path / ".grader").mkdir()
    (tmp_path / ".grader" / "hints.json").write_text(damage)
    assert "hint 1 of 3" in run("hint", "1", "1").stdout


def test_status_of_a_stub_says_where_to_start(run: Run) -> None:
    done = run("status")
    assert done.returncode == 0
    assert "step 1  Doubling" in done.stdout
    assert done.stdout.count("to do") == 2
    assert "next: read labs/01_tiny/README.md, then write step 1 in labs/01_tiny/exercise.py" in done.stdout


def test_status_counts_what_passes(run: Run, tmp_path: Path) -> None:
    exercise = tmp_path / "labs" / "01_tiny" / "exercise.py"
    exercise.write_text(SOLUTION.replace("x / 2", "x / 3"))
    done = run("status", "1")
    assert "3 of 3 points" in done.stdout
    assert "2 of 2 tests not passed" in done.stdout
    assert "next: step 2 (Halving): mend test_half[1.0]" in done.stdout


def test_status_of_a_broken_exercise_says_why(run: Run, tmp_path: Path) -> None:
    (tmp_path / "labs" / "01_tiny" / "exercise.py").write_text("def double(:\n")
    done = run("status")
    assert "next: the file can't be loaded" in done.stdout
    assert "exercise.py line 1: invalid syntax" in done.stdout


def test_status_of_a_missing_exercise_says_how_to_get_it_back(run: Run, tmp_path: Path) -> None:
    (tmp_path / "labs" / "01_tiny" / "exercise.py").unlink()
    done = run("status")
    assert done.returncode == 2
    assert "exercise.py is missing; get it back with: git checkout" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hint", "7", "1"), "grader: there is no lab '7'; the labs are 01_tiny"),
        (("hint", "1", "9"), "grader: lab 01 has no step '9'"),
        (("hint", "1", "1", "--level", "4"), "grader: step 1 has hints of level 1 to 3, not 4"),
        (("status", "7"), "grader: there is no lab '7'"),
        (("verify", "7"), "grader: there is no lab '7'"),
        (("report", "nowhere"), "grader: nowhere/gradebook.sqlite does not exist; grade a class first"),
    ],
)
def test_a_users_mistake_is_one_line(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert len(done.stderr.strip().splitlines()) == 1


def test_intake_shows_who_would_be_graded_and_runs_nothing(run: Run, tmp_path: Path) -> None:
    for student in ("anna", "ben"):
        (tmp_path / "class" / student).mkdir(parents=True)
    (tmp_path / "class" / "anna" / "exercise.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "class" / "people.csv").write_text("id,name\nanna,Anna\nben,Ben\nzoe,Zoe\n")
    done = run("intake", "class", "--roster", "class/people.csv")
    assert done.returncode == 0
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:3]] == [
        "anna, 01_tiny",
        "ben, 01_tiny",
        "zoe, 01_tiny",
    ]
    assert not (tmp_path / "out").exists()


def test_generate_then_verify_then_a_problem(run: Run, tmp_path: Path) -> None:
    assert "wrote" in run("generate").stdout
    assert "nothing to do" in run("generate").stdout
    done = run("verify", "--report", "kills.html")
    assert done.returncode == 0
    assert "lab 01: 4 tests, 0 of 0 mistakes rejected" in done.stdout
    assert (tmp_path / "kills.html").read_text().startswith("<!doctype html>")
    (tmp_path / "labs" / "01_tiny" / "exercise.py").write_text("")
    done = run("verify")
    assert done.returncode == 1
    assert "problem:" in done.stdout
    assert "exercise.py is stale" in done.stdout
