"""The gradebook: what is stored comes back, survives, and is never half."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from grader import gradebook as module
from grader.gradebook import Gradebook, GradebookError, attempt_key
from grader.marking import Result, StepMarks
from grader.verdicts import Verdict
from grader.worker import Judgement

VERSIONS = {"grader": "1", "python": "3", "torch": "2"}
VERDICTS = (
    Verdict("test_a", "pass", "", 0.1),
    Verdict("test_b[1]", "wrong", "got 1\nexpected 2", 0.2, "slip"),
)
JUDGEMENT = Judgement(VERDICTS, "a message", 1.5, "printed")
STEPS = (StepMarks(1, "One", 3, 3), StepMarks(2, "Two", None, 2))


def result(student: str = "anna", points: int = 3) -> Result:
    return Result(student, "01_tiny", points, 5, "a note", STEPS, VERDICTS, 1.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gradebook.sqlite"


def fill(path: Path) -> None:
    with Gradebook(path) as gradebook:
        gradebook.set_class_seed(2**48)
        gradebook.store_attempt("key", "01_tiny", 2**48, VERSIONS, JUDGEMENT)
        gradebook.store_result(result(), "key")


def test_all_that_is_stored_comes_back(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        assert gradebook.class_seed() == 2**48
        assert gradebook.attempt("key") == JUDGEMENT
        assert gradebook.attempt("other") is None
        assert gradebook.results() == [result()]


def test_a_second_mark_replaces_the_first(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        gradebook.store_result(result(points=4), "key")
        gradebook.store_result(result("Ben"), "key")
        assert gradebook.results() == [result(points=4), result("Ben")]


def test_an_attempt_in_which_the_grader_failed_is_run_again_and_replaced(path: Path) -> None:
    failed = Judgement((Verdict("test_a", "grader error", "oh"),))
    with Gradebook(path) as gradebook:
        gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, failed)
        gradebook.store_result(result(), "key")
        assert gradebook.attempt("key") is None
        gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, JUDGEMENT)
        assert gradebook.attempt("key") == JUDGEMENT


def test_the_key_differs_when_anything_that_decides_differs() -> None:
    base = ("source", "tests", 1, VERSIONS)
    others = [
        ("source ", "tests", 1, VERSIONS),
        ("source", "tests ", 1, VERSIONS),
        ("sourcet", "ests", 1, VERSIONS),
        ("source", "tests", 2, VERSIONS),
        ("source", "tests", 1, {**VERSIONS, "torch": "3"}),
        ("", "tests", 1, VERSIONS),
        (None, "tests", 1, VERSIONS),
    ]
    keys = {attempt_key(*one) for one in [base, *others]}
    assert len(keys) == 1 + len(others)
    assert attempt_key(*base) == attempt_key("source", "tests", 1, dict(reversed(VERSIONS.items())))


def test_a_half_written_attempt_is_not_there(path: Path) -> None:
    broken = Judgement((*VERDICTS, Verdict("test_c", object())))  # type: ignore[arg-type]
    with Gradebook(path) as gradebook:
        with pytest.raises(GradebookError):
            gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, broken)
        assert gradebook.attempt("key") is None
        gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, JUDGEMENT)
        assert gradebook.attempt("key") == JUDGEMENT


def test_what_was_stored_is_there_without_a_close(path: Path, tmp_path: Path) -> None:
    """A copy of the files of an open gradebook is what a killed process leaves."""
    gradebook = Gradebook(path)
    gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, JUDGEMENT)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("gradebook.sqlite*"):
        shutil.copy(file, copy)
    gradebook.close()
    with Gradebook(copy / path.name) as found:
        assert found.attempt("key") == JUDGEMENT


def test_two_at_once_are_safe(path: Path) -> None:
    with Gradebook(path) as first, Gradebook(path) as second:
        first.store_attempt("one", "01_tiny", 1, VERSIONS, JUDGEMENT)
        second.store_attempt("two", "01_tiny", 1, VERSIONS, JUDGEMENT)
        second.store_attempt("one", "01_tiny", 1, VERSIONS, JUDGEMENT)
        assert first.attempt("two") == second.attempt("one") == JUDGEMENT


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    later = (*module.MIGRATIONS, ("ALTER TABLE marks ADD COLUMN late INTEGER NOT NULL DEFAULT 0",))
    monkeypatch.setattr(module, "MIGRATIONS", later)
    with Gradebook(path) as gradebook:
        assert gradebook.attempt("key") == JUDGEMENT
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (2,)
        assert raw.execute("SELECT late FROM marks").fetchall() == [(0,)]
    raw.close()


def test_a_newer_schema_is_one_clear_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    monkeypatch.setattr(module, "MIGRATIONS", ())
    with pytest.raises(GradebookError, match="newer grader") as caught:
        Gradebook(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["text", "torn", "other"])
def test_what_is_no_gradebook_is_one_clear_line(path: Path, kind: str) -> None:
    if kind == "text":
        path.write_text("student,points\n" * 1000)
    elif kind == "other":
        with sqlite3.connect(path) as raw:
            raw.execute("CREATE TABLE songs (title TEXT)")
        raw.close()
    else:
        fill(path)
        data = bytearray(path.read_bytes())
        data[4096:] = b"\xff" * (len(data) - 4096)
        path.write_bytes(data)
    with pytest.raises(GradebookError) as caught:
        Gradebook(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_gradebook_is_only_made_when_asked_for(path: Path) -> None:
    with pytest.raises(GradebookError, match="grader grade"):
        Gradebook(path, create=False)
    assert not path.exists()


def test_two_that_draw_a_seed_agree_on_one(path: Path) -> None:
    with Gradebook(path) as first, Gradebook(path) as second:
        assert first.class_seed() is second.class_seed() is None
        assert first.agree_on_seed(1) == second.agree_on_seed(2) == first.agree_on_seed(3) == 1


def test_a_seed_that_is_no_number_is_one_clear_line(path: Path) -> None:
    fill(path)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE settings SET value = 'seven'")
    raw.close()
    with Gradebook(path) as gradebook:
        with pytest.raises(GradebookError, match=r"'seven'.*--class-seed"):
            gradebook.class_seed()
        gradebook.set_class_seed(7)
        assert gradebook.class_seed() == 7


def test_an_empty_file_is_no_gradebook_to_report(path: Path) -> None:
    path.touch()
    with pytest.raises(GradebookError, match="empty file"):
        Gradebook(path, create=False)
    assert path.stat().st_size == 0


def test_who_has_marks_is_known_without_their_verdicts(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        assert gradebook.students() == {("anna", "01_tiny")}
