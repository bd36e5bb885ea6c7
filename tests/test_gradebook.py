"""The gradebook: what is stored comes back, survives, and is never half."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from grader import store as module
from grader.decisions import Review
from grader.gradebook import Basis, Gradebook, GradebookError, attempt_key
from grader.late import Lateness
from grader.marking import Result, StepMarks
from grader.schema import MIGRATIONS
from grader.verdicts import Finding, Verdict
from grader.worker import Judgement

VERSIONS = {"grader": "1", "python": "3", "torch": "2"}
VERDICTS = (
    Verdict("test_a", "pass", "", 0.1),
    Verdict("test_b[1]", "wrong", "got 1\nexpected 2", 0.2, "slip", "the weights"),
)
JUDGEMENT = Judgement(VERDICTS, "a message", 1.5, "printed", ("landlock 7", "seccomp"))
STEPS = (StepMarks(1, "One", 3, 3), StepMarks(2, "Two", None, 2))
FINDINGS = (Finding(1, "import", 3, "import os"), Finding(2, "name", 0, "eval"))
SOURCE = "x = 'ä'\n"


def result(student: str = "anna", points: float = 3) -> Result:
    return Result(student, "01_tiny", points, 5, "a note", STEPS, VERDICTS, 1.5, FINDINGS[1:])


def basis(student: str = "anna", source_hash: str = "hash") -> Basis:
    late = Lateness(2, 12.5, "2 days late")
    return Basis(student, "01_tiny", "key", source_hash, JUDGEMENT, "a note", False, FINDINGS, late)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gradebook.sqlite"


def fill(path: Path) -> None:
    with Gradebook(path) as gradebook:
        gradebook.set_class_seed(2**48)
        gradebook.store_attempt("key", "01_tiny", 2**48, VERSIONS, JUDGEMENT, SOURCE)
        gradebook.store_mark(basis(), result())


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    raw = sqlite3.connect(path)
    try:
        return raw.execute(query).fetchall()
    finally:
        raw.close()


def test_all_that_is_stored_comes_back(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        assert gradebook.class_seed() == 2**48
        assert gradebook.attempt("key") == JUDGEMENT
        assert gradebook.attempt("other") is None
        assert gradebook.results() == [result()]
        assert gradebook.basis("anna", "01_tiny") == basis()
        assert gradebook.basis("ben", "01_tiny") is None
        assert gradebook.result("ben", "01_tiny") is None
        record = gradebook.record("key")
        assert (record.source, record.seed, record.versions) == (SOURCE, 2**48, "grader=1 python=3 torch=2")


@pytest.mark.parametrize("points", [2, 2.25, 0])
def test_points_come_back_as_they_were(path: Path, points: float) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        gradebook.store_mark(basis(), result(points=points))
        (found,) = gradebook.results()
        assert repr(found.points) == repr(points)  # an int stays one


def test_a_second_mark_replaces_the_first_which_goes_to_the_history(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        gradebook.store_mark(basis(), result(points=4))
        gradebook.store_mark(basis(), result(points=4))  # nothing new
        gradebook.store_mark(basis(), result(points=1.5))
        gradebook.store_mark(basis("Ben"), result("Ben"))
        assert gradebook.results() == [result(points=1.5), result("Ben")]
    assert rows(path, "SELECT student, points, steps, lowered FROM history ORDER BY id") == [
        ("anna", 3, '{"1": 3, "2": null}', 0),
        ("anna", 4, '{"1": 3, "2": null}', 1),
    ]


def test_a_review_holds_for_its_source_alone_and_the_latest_counts(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:
        gradebook.add_review(basis(), Review(1, True, "fine"))
        gradebook.add_review(basis(), Review(1, False, "no, look"))
        gradebook.add_review(basis(), Review(2, True, "fine"))
        assert gradebook._reviews(basis()) == (Review(1, False, "no, look"), Review(2, True, "fine"))
        assert gradebook._reviews(basis(source_hash="other")) == gradebook._reviews(basis("ben")) == ()
    said = rows(path, "SELECT step, accepted, reason, who <> '', decided <> '' FROM reviews ORDER BY id")
    assert said == [(1, 1, "fine", 1, 1), (1, 0, "no, look", 1, 1), (2, 1, "fine", 1, 1)]


def test_the_attempt_that_was_finished_first_counts(path: Path) -> None:
    """Two graders ran the same attempt, and a busy machine gave another verdict."""
    other = Judgement((Verdict("test_a", "time-out"),))
    fill(path)
    with Gradebook(path) as gradebook:
        assert gradebook.store_attempt("key", "01_tiny", 2**48, VERSIONS, other, SOURCE) == JUDGEMENT
        assert gradebook.attempt("key") == JUDGEMENT
    assert rows(path, "SELECT runs FROM attempts") == [(2,)]


def test_a_transaction_is_stored_whole_or_not_at_all(path: Path) -> None:
    fill(path)
    with Gradebook(path) as gradebook:

        def fail() -> None:
            with gradebook.transaction():
                gradebook.store_mark(basis(), result(points=0))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert gradebook.results() == [result()]


def test_a_gradebook_of_schema_1_is_brought_up_to_date(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in MIGRATIONS[0]:
        raw.execute(statement)
    raw.execute("INSERT INTO settings VALUES ('class_seed', '7')")
    raw.execute("INSERT INTO attempts VALUES ('k', '01_tiny', '7', 'torch=2', 'then', 1.5, 'm', 'out')")
    raw.execute("INSERT INTO verdicts VALUES ('k', 0, 'test_a', 'pass', '', 0.1, NULL)")
    raw.execute("INSERT INTO marks VALUES ('anna', '01_tiny', 'k', 3, 5, 'a note')")
    raw.execute("INSERT INTO step_marks VALUES ('anna', '01_tiny', 1, 'One', 3, 3)")
    raw.execute("PRAGMA user_version = 1")
    raw.close()
    tests = (Verdict("test_a", "pass", "", 0.1),)
    old = Result("anna", "01_tiny", 3, 5, "a note", STEPS[:1], tests, 1.5)
    for _ in range(2):
        with Gradebook(path) as gradebook:
            assert gradebook.class_seed() == 7
            assert gradebook.attempt("k") == Judgement(tests, "m", 1.5, "out")
            assert gradebook.results() == [old]
            known = gradebook.basis("anna", "01_tiny")
            assert known is not None
            assert known.source_hash is None
    with Gradebook(path) as gradebook:
        gradebook.store_attempt("key", "01_tiny", 7, VERSIONS, JUDGEMENT, SOURCE)
        gradebook.store_mark(basis(), result())
        assert gradebook.results() == [result()]
    assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


def test_an_attempt_in_which_the_grader_failed_is_run_again_and_replaced(path: Path) -> None:
    failed = Judgement((Verdict("test_a", "grader error", "oh"),))
    with Gradebook(path) as gradebook:
        gradebook.store_attempt("key", "01_tiny", 1, VERSIONS, failed)
        gradebook.store_mark(basis(), result())
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
    later = (*MIGRATIONS, ("ALTER TABLE marks ADD COLUMN more INTEGER NOT NULL DEFAULT 0",))
    monkeypatch.setattr(module, "MIGRATIONS", later)
    with Gradebook(path) as gradebook:
        assert gradebook.attempt("key") == JUDGEMENT
    assert rows(path, "PRAGMA user_version") == [(len(later),)]
    assert rows(path, "SELECT more FROM marks") == [(0,)]


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
        with pytest.raises(GradebookError, match=r"'seven'.*--class-seed N --reseed"):
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
