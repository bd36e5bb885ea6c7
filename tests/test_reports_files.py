"""The files of a class's reports: whole or not there, and none left that nobody would replace."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grader.course import CourseError
from grader.files import write_atomically
from grader.reports import NAMES, write_reports
from grader.reports.folders import LISTING, write_folder
from tests.report_class import COURSE, make_result, write


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_write_atomically_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_reports_that_cannot_be_written_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "report.html" / "x").mkdir(parents=True)
    with pytest.raises(CourseError, match=r"report\.html: can't be written") as caught:
        write_reports([make_result("ada")], COURSE, tmp_path, seed=7)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob(".*.tmp"))
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match="can't be written"):
        write_reports([make_result("ada")], COURSE, tmp_path / "file", seed=7)


def test_good_reports_are_not_replaced_by_empty_ones(tmp_path: Path) -> None:
    before = write(tmp_path, make_result("ada"))
    with pytest.raises(CourseError, match="left as they are"):
        write_reports([], COURSE, tmp_path, seed=7)
    assert tuple((tmp_path / name).read_text(encoding="utf-8") for name in NAMES)[2] == before[2]


def test_every_student_has_a_page_in_html_and_markdown_and_a_file_for_gradescope(tmp_path: Path) -> None:
    write(tmp_path, make_result("ada"), make_result("bob", "wrong"), make_result("ada", lab="05_model"))
    assert names_in(tmp_path) == {
        *NAMES,
        *("students/ada.html", "students/ada.md", "students/bob.html", "students/bob.md"),
        *("gradescope/02_training_core/ada/results.json", "gradescope/02_training_core/bob/results.json"),
        *("gradescope/05_model/ada/results.json", f"students/{LISTING}", f"gradescope/{LISTING}"),
    }


def test_pages_of_students_who_are_gone_go_and_other_files_stay(tmp_path: Path) -> None:
    write(tmp_path, make_result("ada"), make_result("bob"))
    (tmp_path / "students" / "bob.txt").write_text("the instructor's own note")
    (tmp_path / "students" / "cyd.html").write_text("not ours")
    write(tmp_path, make_result("ada"))
    assert names_in(tmp_path / "students") == {"ada.html", "ada.md", "bob.txt", "cyd.html", LISTING}
    assert names_in(tmp_path / "gradescope") == {"02_training_core/ada/results.json", LISTING}
    assert not (tmp_path / "gradescope" / "02_training_core" / "bob").exists()


@pytest.mark.parametrize("name", ["../keep.html", "/etc/hostname", "a/../../keep.html", ""])
def test_a_listing_that_was_tampered_with_removes_nothing_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "keep.html").write_text("mine")
    folder = tmp_path / "students"
    folder.mkdir()
    (folder / LISTING).write_text(json.dumps([name, 7, None]))
    write_folder(folder, [("ada.html", b"x")])
    (folder / LISTING).write_text(json.dumps([name]))
    write_folder(folder, [("ada.html", b"x")])
    assert (tmp_path / "keep.html").read_text() == "mine"
    assert json.loads((folder / LISTING).read_text()) == ["ada.html"]


def test_a_report_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    write(tmp_path, make_result("ada"))
    page = tmp_path / "students" / "ada.html"
    os.utime(page, (1, 1))
    write(tmp_path, make_result("ada"))
    assert page.stat().st_mtime == 1
    write(tmp_path, make_result("ada", "wrong"))
    assert page.stat().st_mtime > 1


def test_reports_leave_no_temporary_files(tmp_path: Path) -> None:
    write(tmp_path, make_result("ada"))
    assert not [path for path in tmp_path.rglob("*.tmp")]
