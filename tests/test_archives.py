"""Archives: what they hold is listed and read in memory, within bounds, and nothing in them is followed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.archives import list_archive
from grader.course import Course
from grader.handins import FileRefused, single_file
from grader.intake import Submission
from tests.hand_ins import LAB, OTHER, RIGHT, only, put, tarred, tarred_thing, zipped


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("x.tar", ""),
        ("x.tar.gz", "gz"),
        ("x.tgz", "gz"),
        ("x.tar.bz2", "bz2"),
        ("x.tbz2", "bz2"),
        ("x.tar.xz", "xz"),
        ("x.txz", "xz"),
    ],
)
@pytest.mark.parametrize("place", ["", "anna/", f"anna/{LAB}/"])
def test_a_tar_is_read_wherever_a_zip_is(
    group: Path, course: Course, place: str, name: str, packed: str
) -> None:
    name = name if place else name.replace("x", "anna", 1)
    put(group / f"{place}{name}", tarred({"exercise.py": RIGHT}, packed))
    assert only(group, course) == Submission("anna", LAB, RIGHT)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("anna.zip", tarred({"exercise.py": RIGHT}, "gz")),
        ("anna.zip", tarred({"exercise.py": RIGHT})),
        ("anna.tar.gz", zipped({"exercise.py": RIGHT})),
        ("anna.tar.gz", tarred({"exercise.py": RIGHT}, "xz")),
    ],
)
def test_an_archive_with_the_ending_of_another_kind_is_read(
    group: Path, course: Course, name: str, data: bytes
) -> None:
    put(group / name, data)
    assert only(group, course).source == RIGHT


def test_a_rar_archive_that_is_called_zip_is_named(group: Path, course: Course) -> None:
    put(group / "anna.zip", b"Rar!\x1a\x07\x00")
    assert only(group, course).message == (
        "anna.zip is a RAR archive, whatever its name says: make a zip archive"
    )


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_in_a_tar_are_read(group: Path, course: Course, form: int) -> None:
    buffer = io.BytesIO()
    folder = "é" * 90 + "/" + "x" * 120
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        entry = tarfile.TarInfo(f"{folder}/exercise.py")
        entry.size = len(RIGHT)
        archive.addfile(entry, io.BytesIO(RIGHT.encode()))
    put(group / "anna.tar", buffer.getvalue())
    submission = only(group, course)
    assert submission.source == RIGHT
    assert f"{folder}/exercise.py" in submission.message


def test_of_two_entries_of_a_tar_with_one_name_the_last_counts(group: Path, course: Course) -> None:
    first, second = tarred({"exercise.py": OTHER}), tarred({"exercise.py": RIGHT})
    put(group / "anna.tar", first[: -tarfile.RECORDSIZE + 1024] + second)
    assert only(group, course).source == RIGHT


@pytest.mark.parametrize("name", ["anna.zip", "anna.tar.gz"], ids=["zip", "tar"])
def test_an_archive_in_an_archive_is_opened_once_more_and_no_deeper(
    group: Path, course: Course, name: str
) -> None:
    pack: Callable[[dict[str, str | bytes]], bytes] = zipped if name.endswith("zip") else tarred
    put(group / name, pack({"inner.tar.gz": tarred({"exercise.py": RIGHT}, "gz")}))
    assert only(group, course).source == RIGHT
    put(group / name, pack({"a.zip": pack({"b.zip": zipped({"exercise.py": RIGHT})})}))
    assert "packed more than 2 times" in only(group, course).message


# --- refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.FIFOTYPE, "is not a file with text in it"),
        (tarfile.CHRTYPE, "is not a file with text in it"),
        (tarfile.BLKTYPE, "is not a file with text in it"),
    ],
    ids=["symbolic link", "hard link", "pipe", "character device", "block device"],
)
def test_what_is_no_file_in_a_tar_is_refused(group: Path, course: Course, kind: bytes, words: str) -> None:
    put(group / "anna.tar", tarred_thing("exercise.py", kind, "/etc/passwd"))
    submission = only(group, course)
    assert submission.source is None
    assert submission.message.startswith(f"anna.tar: exercise.py {words}")


def test_a_link_beside_the_exercise_is_left_out_and_said(group: Path, course: Course) -> None:
    thing = tarred_thing("plots.py", tarfile.SYMTYPE, "/etc/passwd")
    put(group / "anna.tar", thing[: -tarfile.RECORDSIZE + 512] + tarred({"exercise.py": RIGHT}))
    assert only(group, course) == Submission("anna", LAB, RIGHT, "not used: anna.tar: plots.py (a link)")


@pytest.mark.parametrize("name", ["../../evil.py", "/etc/evil.py", "a/../../evil.py", "C:\\evil.py"])
def test_a_tar_that_leads_out_of_itself_is_refused(group: Path, course: Course, name: str) -> None:
    put(group / "anna.tar", tarred({"exercise.py": RIGHT, name: "x"}))
    submission = only(group, course)
    assert submission.source is None
    assert "leads out" in submission.message


@pytest.mark.parametrize(
    "data",
    [b"", b"x" * 5000, tarred({"exercise.py": RIGHT}, "gz")[:-40], tarred({"exercise.py": RIGHT})[:600]],
    ids=["empty", "text", "cut while packed", "cut"],
)
def test_a_broken_tar_is_one_line(group: Path, course: Course, data: bytes) -> None:
    put(group / "anna.tar", data)
    submission = only(group, course)
    assert submission.source is None
    assert submission.message.startswith("anna.tar ")


def test_a_tar_without_the_blocks_at_its_end_is_read(group: Path, course: Course) -> None:
    put(group / "anna.tar", tarred({"exercise.py": RIGHT})[:1024])
    assert only(group, course).source == RIGHT


def test_files_of_an_environment_do_not_count(group: Path, course: Course) -> None:
    entries: dict[str, str | bytes] = {f"hw/venv/lib/{number}.py": "" for number in range(2500)}
    put(group / "anna.zip", zipped({**entries, "hw/exercise.py": RIGHT}))
    put(group / "ben.tar", tarred({**entries, "hw/exercise.py": RIGHT}))
    for name in ("anna.zip", "ben.tar"):
        (file,) = list_archive(single_file(group / name))
        assert file.read().decode() == RIGHT


ZEROS = tarred({"large.bin": b"\0" * (48 << 20), "exercise.py": RIGHT})


def _headers(count: int) -> bytes:
    """Extended headers that say nothing, which a careless reader would take apart for minutes."""
    said = (b"2 1 " * 16_000)[:60_000]
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, len(said)
    return (entry.tobuf(tarfile.USTAR_FORMAT) + said + b"\0" * (-len(said) % 512)) * count


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.tar.gz", lambda: gzip.compress(ZEROS)),
        ("a.tar.bz2", lambda: bz2.compress(ZEROS)),
        ("a.tar.xz", lambda: lzma.compress(ZEROS)),
        ("a.tar.gz", lambda: gzip.compress(_headers(300), 1)),
        ("a.tar.gz", lambda: gzip.compress(tarfile.TarInfo("folder/").tobuf() * 100_000, 1)),
        ("a.tar", lambda: tarred({f"{number}.txt": "" for number in range(2001)})),
        ("a.zip", lambda: zipped({"a.zip": b"\0" * (30 << 20)})),
        ("a.zip", lambda: zipped({f"{number}.bin": b"\0" * (8 << 20) for number in range(17)})),
    ],
    ids=["gz", "bz2", "xz", "headers", "folders", "files", "nested", "zip"],
)
def test_a_bomb_is_refused_in_little_time_and_memory(
    tmp_path: Path, name: str, make: Callable[[], bytes]
) -> None:
    bomb = single_file(put(tmp_path / name, make()))
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(FileRefused):
            _ = [file.read() for file in list_archive(bomb)]
        seconds, memory = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 3
    assert memory < 24 << 20


# --- names -----------------------------------------------------------------------------------------------


def test_names_of_windows_are_read_as_any_system_would(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"homework\\src\\exercise.py": RIGHT}))
    assert only(group, course).message == "taken from anna.zip: homework/src/exercise.py"


@pytest.mark.parametrize("name", ["exercise.py.", "exercise.py "])
def test_a_name_that_windows_would_shorten_is_shortened_and_said(
    group: Path, course: Course, name: str
) -> None:
    put(group / "anna.zip", zipped({name: RIGHT}))
    assert only(group, course) == Submission("anna", LAB, RIGHT, f"it is named {name} there")


@pytest.mark.parametrize("name", ["CON.py", "aux.py", "Nul.py", "com1.py", "lpt9.solution.py"])
def test_a_name_that_windows_keeps_for_itself_is_refused(group: Path, course: Course, name: str) -> None:
    put(group / "anna.zip", zipped({name: RIGHT}))
    submission = only(group, course)
    assert submission.source is None
    assert "Windows keeps for itself" in submission.message
    put(group / "anna.zip", zipped({name: RIGHT, "exercise.py": RIGHT}))
    submission = only(group, course)
    assert submission.source == RIGHT
    assert "Windows keeps for itself" in submission.message


def test_a_colon_in_the_name_of_a_picture_costs_nothing(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"Screenshot 10:20:30.png": b"x", "exercise.py": RIGHT}))
    assert only(group, course) == Submission("anna", LAB, RIGHT)


def test_names_that_differ_only_in_case_are_said(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"Utils.py": "a = 1\n", "utils.py": "b = 1\n", "exercise.py": RIGHT}))
    submission = only(group, course)
    assert submission.source == RIGHT
    assert (
        "differ only in upper and lower case: anna.zip: Utils.py and anna.zip: utils.py" in submission.message
    )


def test_exercises_that_differ_only_in_case_are_asked_about(group: Path, course: Course) -> None:
    put(group / "anna.zip", zipped({"Exercise.py": OTHER, "exercise.py": RIGHT}))
    submission = only(group, course)
    assert (submission.source, submission.withheld) == (None, True)


# --- time ------------------------------------------------------------------------------------------------


def test_the_time_of_a_file_in_an_archive_is_its_own(group: Path, course: Course) -> None:
    put(group / "anna.tar", tarred({"exercise.py": RIGHT}, mtime=1_700_000_000))
    submission = only(group, course)
    assert submission.submitted == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert submission.submitted_from == "the file's time in the archive"


def test_without_a_time_of_its_own_the_archives_counts(group: Path, course: Course) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("exercise.py"), RIGHT)  # of 1980, which means none
    file = put(group / "anna.zip", buffer.getvalue())
    submission = only(group, course)
    assert submission.submitted == datetime.fromtimestamp(file.stat().st_mtime, UTC)
    assert submission.submitted_from == "the file's time on disk"
