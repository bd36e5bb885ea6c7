"""Folders of submissions: measured within bounds, removed whatever was made of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grader.files import holds_more_than, private_folder, remove_tree


def test_entries_and_bytes_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1234")
    assert not holds_more_than(tmp_path, files=2, size=4)
    assert holds_more_than(tmp_path, files=1, size=4)
    assert holds_more_than(tmp_path, files=2, size=3)


def test_a_folder_too_deep_to_be_looked_at_counts_as_too_much(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(30):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
    finally:
        os.chdir(before)
    assert holds_more_than(tmp_path, files=1000, size=1 << 30)
    remove_tree(tmp_path)
    assert not tmp_path.exists()


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_folder_without_its_own_rights_is_removed(tmp_path: Path) -> None:
    with private_folder() as folder:
        (folder / "closed").mkdir()
        (folder / "closed" / "x").write_text("x")
        (folder / "closed").chmod(0o300)
    assert not folder.exists()


def test_a_thousand_nested_folders_are_removed(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
    remove_tree(tmp_path)
    assert not tmp_path.exists()
