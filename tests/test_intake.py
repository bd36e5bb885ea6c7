"""Intake: whatever a student hands in is a text to judge or one clear line."""

from __future__ import annotations

import io
import os
import stat
import time
import zipfile
from pathlib import Path

import pytest

from grader.course import Course
from grader.intake import IntakeError, Submission, find_submissions
from tests.hand_ins import LAB, OTHER, RIGHT, notebook, only, put, zipped

# --- which file counts -----------------------------------------------------------------------------------


def test_one_clear_file_with_another_name_is_taken_with_a_note(group: Path, course: Course) -> None:
    put(group / "anna" / "my_solution.py")
    put(group / "anna" / "test_mine.py", "def test(): pass")
    assert only(group, course) == Submission("anna", LAB, RIGHT, "taken from my_solution.py")


def test_among_several_files_the_one_that_defines_what_is_asked_is_taken(group: Path, course: Course) -> None:
    put(group / "anna" / "tiny.py")
    put(group / "anna" / "plots.py", "import math\n")
    assert only(group, course) == Submission("anna", LAB, RIGHT, "taken from tiny.py; not used: plots.py")


def test_several_possible_files_are_listed_and_the_mark_is_withheld(group: Path, course: Course) -> None:
    put(group / "anna" / "first.py", RIGHT)
    put(group / "anna" / "second.py", OTHER)
    submission = only(group, course)
    assert (submission.source, submission.withheld) == (None, True)
    assert "first.py" in submission.message
    assert "second.py" in submission.message


def test_two_hand_ins_of_one_student_are_not_merged_in_silence(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", RIGHT)
    put(group / "anna.py", OTHER)
    assert only(group, course).withheld


def test_a_loose_file_beside_the_students_folder_is_said_to_be_unused(group: Path, course: Course) -> None:
    put(group / "anna" / LAB / "exercise.py")
    put(group / "anna.py", OTHER)
    put(group / "anna.pdf")
    assert only(group, course) == Submission("anna", LAB, RIGHT, "not used: anna.pdf, anna.py")


@pytest.mark.parametrize("name", ["solution.py", "setup.py", "conftest.py", "test_me.py"])
def test_a_name_of_another_purpose_is_taken_when_it_is_the_only_file(
    group: Path, course: Course, name: str
) -> None:
    put(group / "anna" / name, OTHER)
    put(group / "anna" / "notes.txt")
    assert only(group, course) == Submission("anna", LAB, OTHER, f"taken from {name}")


def test_python_files_that_are_no_exercise_are_not_said_to_be_missing(group: Path, course: Course) -> None:
    for name in ("setup.py", "conftest.py"):
        put(group / "anna" / name, f"# {name}\n")
    assert only(group, course).message == (
        f"no file that is clearly the exercise for {LAB}; found conftest.py, setup.py"
    )


@pytest.mark.parametrize("place", ["exercise.py", f"{LAB}/exercise.py"])
def test_an_exercise_where_it_belongs_is_found_among_too_many_files(
    group: Path, course: Course, place: str
) -> None:
    put(group / "anna" / place)
    for number in range(2001):
        (group / "anna" / f"{number}.png").touch()
    submission = only(group, course)
    assert submission.source == RIGHT
    assert submission.message.startswith(f"only {place} was looked at (more than 2000 files")


def test_the_exercise_of_this_lab_is_found_in_a_whole_course(group: Path, course: Course) -> None:
    entries = {f"repo-main/labs/{LAB}/exercise.py": RIGHT, "repo-main/labs/02_next/exercise.py": OTHER}
    put(group / "anna.zip", zipped(entries))
    submission = only(group, course)
    assert submission.source == RIGHT
    assert submission.message == f"taken from anna.zip: repo-main/labs/{LAB}/exercise.py"


def test_an_archive_in_an_archive_is_opened(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"upload/inner.zip": zipped({"exercise.py": RIGHT})}))
    assert only(group, course).source == RIGHT


def test_mac_resource_forks_are_ignored(group: Path, course: Course) -> None:
    entries: dict[str, str | bytes] = {
        "hw/exercise.py": RIGHT,
        "__MACOSX/hw/._exercise.py": b"\0\5\x16\7",
        "hw/._exercise.py": b"\0",
    }
    put(group / "anna.zip", zipped(entries))
    assert only(group, course).source == RIGHT


@pytest.mark.parametrize("name", ["anna.tar.zst", "anna.rar", "anna.7z"])
@pytest.mark.parametrize("folder", ["", "anna"])
def test_other_archives_are_said_to_be_unreadable(
    group: Path, course: Course, folder: str, name: str
) -> None:
    put(group / folder / name, b"\x1f\x8b")
    assert only(group, course) == Submission(
        "anna", LAB, None, f"only .zip and .tar archives can be read; found {name}: make a zip archive"
    )
    with pytest.raises(IntakeError, match=r"only \.zip and \.tar archives"):
        find_submissions(group / folder / name, course)


@pytest.mark.parametrize("name", ["report.pdf", "exercise.py.txt", "exercise.docx"])
def test_what_is_no_python_file_is_named(group: Path, course: Course, name: str) -> None:
    put(group / "anna" / name, b"%PDF")
    submission = only(group, course)
    assert submission.source is None
    assert name in submission.message


# --- refused, with bounds --------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("whole_folder", [True, False])
def test_links_are_refused(group: Path, course: Course, tmp_path: Path, whole_folder: bool) -> None:
    secret = put(tmp_path / "elsewhere" / "exercise.py")
    if whole_folder:
        (group / "anna").symlink_to(secret.parent)
    else:
        (group / "anna").mkdir()
        (group / "anna" / "exercise.py").symlink_to(secret)
    submission = only(group, course)
    assert submission.source is None
    assert "link" in submission.message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(group: Path, course: Course) -> None:
    (group / "anna").mkdir()
    os.mkfifo(group / "anna" / "exercise.py")
    assert only(group, course).source is None


def test_a_source_over_one_mebibyte_is_refused(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", b"#" * (1 << 20) + b"#")
    submission = only(group, course)
    assert submission.source is None
    assert "larger than 1 MiB" in submission.message


@pytest.mark.parametrize("name", ["../../evil.py", "/etc/evil.py", "C:\\evil.py", "..\\evil.py"])
def test_an_archive_that_leads_out_of_itself_is_refused(group: Path, course: Course, name: str) -> None:
    put(group / "anna.zip", zipped({"exercise.py": RIGHT, name: "x"}))
    submission = only(group, course)
    assert submission.source is None
    assert "leads out" in submission.message


@pytest.mark.parametrize(
    "entries",
    [
        {"exercise.py": b"\0" * (50 << 20)},
        {"exercise.py": RIGHT, "data.bin": b"\0" * (200 << 20)},
        {f"{number}.txt": b"" for number in range(30_000)},
        {"inner.zip": zipped({"exercise.py": b"#" * (50 << 20)})},
    ],
    ids=["one large file", "large in all", "many files", "nested"],
)
def test_a_bomb_is_refused_quickly(group: Path, course: Course, entries: dict[str, bytes]) -> None:
    put(group / "anna.zip", zipped(entries))
    began = time.monotonic()
    submission = only(group, course)
    assert submission.source is None
    assert submission.message
    assert time.monotonic() - began < 10


def test_a_link_in_an_archive_is_refused(group: Path, course: Course) -> None:
    entry = zipfile.ZipInfo("exercise.py")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    put(group / "anna.zip", buffer.getvalue())
    assert "link" in only(group, course).message


@pytest.mark.parametrize(
    "data", [b"", b"not a zip", zipped({"exercise.py": RIGHT})[:-30]], ids=["0", "text", "cut"]
)
def test_a_broken_archive_is_one_line(group: Path, course: Course, data: bytes) -> None:
    put(group / "anna.zip", data)
    assert "not a readable zip archive" in only(group, course).message


def test_of_two_entries_with_one_name_the_last_counts(group: Path, course: Course) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("exercise.py", OTHER)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("exercise.py", RIGHT)
    put(group / "anna.zip", buffer.getvalue())
    assert only(group, course).source == RIGHT


# --- how it is written -----------------------------------------------------------------------------------

UMLAUT = "# Größe\nx = 'ö'\n"


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (UMLAUT.encode("utf-8-sig"), "byte order mark"),
        (UMLAUT.encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + UMLAUT.encode("utf-16-be"), "UTF-16"),
        (UMLAUT.encode("utf-16-le"), "UTF-16"),
        (UMLAUT.replace("\n", "\r\n").encode(), "Windows line ends"),
        (UMLAUT.encode("cp1252"), "Windows-1252"),
    ],
    ids=["BOM", "UTF-16 little", "UTF-16 big", "UTF-16 without BOM", "CRLF", "cp1252"],
)
def test_common_encodings_are_read_with_a_note(group: Path, course: Course, data: bytes, note: str) -> None:
    put(group / "anna" / "exercise.py", data)
    submission = only(group, course)
    assert submission.source == UMLAUT
    assert note in submission.message


def test_a_declared_encoding_is_followed_and_then_replaced(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", f"# coding: latin-1\n{UMLAUT}".encode("latin-1"))
    submission = only(group, course)
    assert submission.source == f"# coding: utf-8\n{UMLAUT}"
    assert "latin-1" in submission.message


def test_bytes_that_are_no_text_are_refused(group: Path, course: Course) -> None:
    put(group / "anna" / "exercise.py", b"x = 1\n\0\0\n")
    submission = only(group, course)
    assert submission.source is None
    assert "not a text file" in submission.message


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("exercise.py", b"", "it is an empty file"),
        ("exercise.ipynb", b"", "exercise.ipynb is an empty file"),
        ("exercise.ipynb", notebook().encode(), "read from a notebook (0 code cells); it has no code"),
        ("exercise.py", zipped({"a": "b"}), "exercise.py is a zip archive or an office document, "),
        ("exercise.py", bytes(range(256)) * 9, "exercise.py is not a text file (it holds bytes that are no "),
        (
            "exercise.ipynb",
            b" " * (17 << 20),
            "16 MiB, which is the most that is read; clear its outputs and",
        ),
    ],
)
def test_what_is_no_code_is_said_in_plain_words(
    group: Path, course: Course, name: str, data: bytes, message: str
) -> None:
    put(group / "anna" / name, data)
    assert message in only(group, course).message


def test_the_code_cells_of_a_notebook_are_joined_without_magics(group: Path, course: Course) -> None:
    cells = notebook(
        "%matplotlib inline\nimport math\n!pip install torch",
        ["def double(x):\n", "    return x + x"],
        "%%bash\nls",
        "%%time\nif True:\n    %time double(2)",
        "x = (7\n     % 4)\ntext = '''\n!not a shell line\n'''",
    )
    put(group / "anna.ipynb", cells)
    submission = only(group, course)
    assert submission.source == (
        "import math\n\n\ndef double(x):\n    return x + x\n\n\n"
        "x = (7\n     % 4)\ntext = '''\n!not a shell line\n'''\n"
    )
    assert submission.message == (
        "read from a notebook (5 code cells), without 6 lines of magics or shell commands, "
        "without 1 cell that defines nothing"
    )


def test_experiments_in_a_notebook_cost_nothing(group: Path, course: Course) -> None:
    """A cell that fails ends nothing in a notebook; `from __future__` may stand in any cell there."""
    cells = notebook(
        "import math",
        "SCALE = 2",
        f"from __future__ import annotations\n{RIGHT}\ndef scaled(x):\n    return SCALE * x\n",
        "double(1, 2, 3)",
        "y = double(",
        "print(half(3))",
    )
    put(group / "anna.ipynb", cells)
    source = only(group, course).source
    assert source is not None
    assert source.startswith("from __future__ import annotations\nimport math\n")
    assert "SCALE = 2" in source
    for experiment in ("double(1", "double(\n", "print"):
        assert experiment not in source


def test_a_broken_cell_with_a_definition_is_kept(group: Path, course: Course) -> None:
    """Its trouble is the student's, and the judging names the line."""
    put(group / "anna.ipynb", notebook(RIGHT, "def more(x:\n    return x"))
    source = only(group, course).source
    assert source is not None
    assert "def more(x:" in source


@pytest.mark.parametrize("text", ["[]", "{}", '{"cells": 3}', '{"cells": [{}]}', "[" * 100_000])
def test_a_broken_notebook_is_one_line(group: Path, course: Course, text: str) -> None:
    put(group / "anna.ipynb", text)
    submission = only(group, course)
    assert (submission.source, submission.message) == (None, "anna.ipynb is not a notebook that can be read")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_names_that_would_break_a_report_are_made_printable(group: Path, course: Course) -> None:
    put(group / "anna\x1b[31m" / "exercise.py")
    assert only(group, course).student == "anna\N{REPLACEMENT CHARACTER}[31m"


@pytest.mark.parametrize(
    ("line", "name", "named"),
    [
        ("from helpers import norm", "helpers.py", True),
        ("import src.tools as tools", "src/tools.py", True),
        ("from . import helpers", "helpers.py", True),
        ("from .random import norm", "random.py", True),
        ("import helpers", "other.py", False),
        ("import random", "random.py", False),
        ("import torch", "torch.py", False),
        ("x = 'import helpers'", "helpers.py", False),
    ],
)
def test_a_helper_that_lies_beside_the_exercise_is_named(
    group: Path, course: Course, line: str, name: str, named: bool
) -> None:
    put(group / "anna" / "exercise.py", f"{line}\n{RIGHT}")
    put(group / "anna" / name, "def norm(): ...\n")
    message = only(group, course).message
    told = f"it imports {name}, which lies beside it in the hand-in: only one file is graded, so put"
    assert (told in message) == named
    assert f"not used: {name}" in message
