"""The files of a hand-in, from a folder or a zip archive: listed and read within bounds, no link followed."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SOURCE_BYTES = 1 << 20  # of a Python file
NOTEBOOK_BYTES = 16 << 20  # of a notebook, whose pictures are many times its code
ARCHIVE_BYTES = 32 << 20  # of an archive, packed
UNPACKED_BYTES = 128 << 20  # of all that an archive says it holds
DIRECTORY_BYTES = 1 << 20  # of an archive's table of contents, parsed before anything else is known
MOST_FILES = 2000
MOST_LEVELS = 10

NOISE = ("venv", "env", "node_modules", "site-packages", "Thumbs.db", "desktop.ini")


class FileRefused(Exception):
    """A file or archive won't be read; the text is one clear line."""


@dataclass(frozen=True)
class HandIn:
    """One file of a hand-in: its path below the hand-in, how a person would name it, and its bytes."""

    path: PurePosixPath
    label: str
    fetch: Callable[[int], bytes]  # reads at most that many bytes, or raises FileRefused

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    def read(self) -> bytes:
        """Return all bytes of the file; FileRefused if it is a link, too large or unreadable."""
        most = {".zip": ARCHIVE_BYTES, ".ipynb": NOTEBOOK_BYTES}.get(self.suffix, SOURCE_BYTES)
        data = self.fetch(most + 1)
        if len(data) > most:
            hint = "; clear its outputs and save it again" if self.suffix == ".ipynb" else ""
            raise FileRefused(
                f"{self.label} is larger than {most >> 20} MiB, which is the most that is read{hint}"
            )
        return data


def shown(name: str) -> str:
    """Return a file's name as printable text, whatever bytes it has on disk."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def is_noise(name: str) -> bool:
    """Whether nobody means to hand in a file or folder of this name (mac resource forks, caches)."""
    return name.startswith((".", "__")) or name in NOISE


def list_folder(folder: Path) -> list[HandIn]:
    """List the files below a folder, nearest first; FileRefused if there are too many."""
    return sorted(_walk(folder, PurePosixPath(), [MOST_FILES]), key=_nearest_first)


def single_file(path: Path, name: PurePosixPath | None = None) -> HandIn:
    """Return the file at `path`, under another name if one is given."""
    return HandIn(name or PurePosixPath(path.name), shown(path.name), lambda most: _read_file(path, most))


def list_archive(archive: HandIn) -> list[HandIn]:
    """List the files in a zip archive, nearest first; of entries with one name the last counts.

    FileRefused if it isn't readable, larger than the bounds, or has an entry that leads out of it.
    """
    data = archive.read()
    _check_directory(archive.label, data)
    try:
        opened = zipfile.ZipFile(io.BytesIO(data))
        entries = opened.infolist()
    except Exception as error:  # hostile bytes: whatever the parser says of them, it is one line here
        raise FileRefused(f"{archive.label} is not a readable zip archive ({error})") from None
    if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > UNPACKED_BYTES:
        bounds = f"{MOST_FILES} files or {UNPACKED_BYTES >> 20} MiB"
        raise FileRefused(f"{archive.label} holds more than {bounds}; refused unopened")
    files = {}
    for entry in entries:
        path = _entry_path(archive.label, entry.filename)
        if entry.is_dir() or any(is_noise(part) for part in path.parts):
            continue
        files[path] = HandIn(
            path, f"{archive.label}: {shown(str(path))}", _entry_reader(archive.label, opened, entry)
        )
    return sorted(files.values(), key=_nearest_first)


def _nearest_first(file: HandIn) -> tuple[int, str]:
    return len(file.path.parts), str(file.path)


def _walk(folder: Path, below: PurePosixPath, left: list[int]) -> Iterator[HandIn]:
    for entry in sorted(folder.iterdir()):
        if is_noise(entry.name):
            continue
        path = below / entry.name
        left[0] -= 1
        if left[0] < 0 or len(path.parts) > MOST_LEVELS:
            raise FileRefused(f"more than {MOST_FILES} files or {MOST_LEVELS} levels of folders; refused")
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, path, left)
        else:
            yield HandIn(path, shown(str(path)), lambda most, entry=entry: _read_file(entry, most))  # type: ignore[misc]


def _read_file(path: Path, most: int) -> bytes:
    label = shown(path.name)
    try:
        _require_regular(label, path.lstat().st_mode)
        # Not followed and not waited for, should it become a link or a pipe in between.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_BINARY", 0)
        )
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            _require_regular(label, status.st_mode)
            return b"\0" * most if status.st_size >= most else file.read(most)
    except OSError as error:
        raise FileRefused(f"{label} can't be read ({error.strerror})") from None


def _require_regular(label: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise FileRefused(f"{label} is a link, and links are refused: hand in the file itself")
    if not stat.S_ISREG(mode):
        raise FileRefused(f"{label} is not a file with text in it")


def _check_directory(label: str, data: bytes) -> None:
    """Refuse an archive whose table of contents alone would fill the memory."""
    end = data.rfind(b"PK\x05\x06")
    if end < 0 or len(data) < end + 22:
        raise FileRefused(f"{label} is not a readable zip archive")
    if int.from_bytes(data[end + 12 : end + 16], "little") > DIRECTORY_BYTES:
        raise FileRefused(f"{label} holds more than {MOST_FILES} files; refused unopened")


def _entry_path(label: str, name: str) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise FileRefused(f"{label} has an entry that leads out of the archive ({shown(name)!r}); refused")
    return path


def _entry_reader(label: str, opened: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def fetch(most: int) -> bytes:
        name = f"{label}: {shown(entry.filename)}"
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise FileRefused(f"{name} is a link, and links are refused: hand in the file itself")
        if entry.flag_bits & 1:
            raise FileRefused(f"{name} is protected by a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileRefused(f"{name} is packed in an unusual way; make an ordinary zip archive")
        try:
            with opened.open(entry) as file:
                return file.read(most)  # whatever size the entry states, no more than this is unpacked
        except Exception as error:  # hostile bytes, as above
            raise FileRefused(f"{name} can't be unpacked ({error})") from None

    return fetch
