"""The files of a hand-in: listed and read within bounds, no link followed, no pipe waited for."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

SOURCE_BYTES = 1 << 20  # of a Python file
NOTEBOOK_BYTES = 16 << 20  # of a notebook, whose pictures are many times its code
ARCHIVE_BYTES = 32 << 20  # of an archive, packed
UNPACKED_BYTES = 128 << 20  # of all that an archive holds
MOST_FILES = 2000
MOST_LEVELS = 10

READABLE = (".py", ".ipynb")
ARCHIVE = re.compile(r"\.(zip|tar|tar\.(gz|bz2|xz)|tgz|tbz2?|txz)$", re.IGNORECASE)
OTHER_ARCHIVE = re.compile(r"\.(tar\.\w+|gz|bz2|xz|zst|lzma|rar|7z)$", re.IGNORECASE)

# What mail programs and browsers put behind a name that they don't trust, and what copies are called.
EXTRA_ENDINGS = re.compile(
    r"(.+?)(\.py|\.ipynb)(?:\.(txt|text|json|download|py|ipynb))+", re.IGNORECASE | re.DOTALL
)
COPY = re.compile(
    r"(?:copy of )?(.+?)(?: ?\(\d{1,3}\)|[- ]\d{1,2}|(?: -)? copy(?: \d{1,3}| \(\d{1,3}\))?)?(\.\w+)"
)

ON_DISK, IN_ARCHIVE = "the file's time on disk", "the file's time in the archive"

NOISE = ("venv", "env", "node_modules", "site-packages", "Thumbs.db", "desktop.ini")


class FileRefused(Exception):
    """A file or archive won't be read; the text is one clear line."""


@dataclass(frozen=True)
class HandIn:
    """One file of a hand-in: its path below the hand-in, how a person would name it, and its bytes.

    `modified` is when it was written or handed in, as `dated` says; `remark` is what is odd about it.
    `memo` keeps the source that was read, since several questions are asked about each file.
    """

    path: PurePosixPath
    label: str
    fetch: Callable[[int], bytes]  # reads at most that many bytes, or raises FileRefused
    modified: datetime | None = None
    dated: str = ""
    remark: str = ""
    memo: dict[str, tuple[str, list[str]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def suffix(self) -> str:
        return PurePosixPath(one_ending(self.path.name)).suffix.lower()

    @property
    def is_archive(self) -> bool:
        return is_archive(self.path.name)

    def read(self) -> bytes:
        """Return all bytes of the file; FileRefused if it is a link, too large or unreadable."""
        most = most_bytes(self.path.name)
        data = self.fetch(most + 1)
        if len(data) > most:
            hint = "; clear its outputs and save it again" if self.suffix == ".ipynb" else ""
            raise FileRefused(
                f"{self.label} is larger than {most >> 20} MiB, which is the most that is read{hint}"
            )
        return data


def is_archive(name: str) -> bool:
    """Whether a file of this name is an archive that can be read."""
    return ARCHIVE.search(name) is not None


def is_readable(name: str) -> bool:
    """Whether a file of this name may be Python code or a notebook."""
    return one_ending(name).lower().endswith(READABLE)


def one_ending(name: str) -> str:
    """The name of a file without endings too many: "exercise.py.txt" is "exercise.py"."""
    found = EXTRA_ENDINGS.fullmatch(name)
    if found is None:
        return name
    return f"{found[1]}.{found[3]}" if f".{found[3]}".lower() in READABLE else found[1] + found[2]


def plain_name(name: str) -> str:
    """The name that a file had before it was copied or sent about: "Exercise (1).PY" was "exercise.py"."""
    plain = one_ending(name).lower()
    found = COPY.fullmatch(plain)
    return found[1] + found[2] if found else plain


def most_bytes(name: str) -> int:
    """The most bytes that are read of a file of this name."""
    if is_archive(name):
        return ARCHIVE_BYTES
    return NOTEBOOK_BYTES if one_ending(name).lower().endswith(".ipynb") else SOURCE_BYTES


def moment(seconds: float) -> datetime | None:
    """The time that a file system or an archive means; None where no clock could show it."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def shown(name: str) -> str:
    """Return a file's name as printable text, whatever bytes it has on disk."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def is_noise(name: str) -> bool:
    """Whether nobody means to hand in a file or folder of this name (mac resource forks, caches)."""
    return name.startswith((".", "__")) or name in NOISE


def list_folder(folder: Path) -> list[HandIn]:
    """List the files below a folder, nearest first; FileRefused if there are too many."""
    return sorted(_walk(folder, PurePosixPath(), [MOST_FILES]), key=nearest_first)


def single_file(path: Path, name: PurePosixPath | None = None) -> HandIn:
    """Return the file at `path`, under another name if one is given."""
    return _on_disk(path, name or PurePosixPath(path.name), shown(path.name))


def nearest_first(file: HandIn) -> tuple[int, str]:
    """The key that sorts files by how deep they lie, then by name."""
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
            yield _on_disk(entry, path, shown(str(path)))


def _on_disk(file: Path, path: PurePosixPath, label: str) -> HandIn:
    modified, remark = None, ""
    with contextlib.suppress(OSError):  # said when it is read
        status = file.lstat()
        modified, remark = moment(status.st_mtime), "a link" if stat.S_ISLNK(status.st_mode) else ""
    return HandIn(path, label, lambda most: _read_file(file, most), modified, ON_DISK, remark)


def _read_file(path: Path, most: int) -> bytes:
    label = shown(path.name)
    try:
        status = path.lstat()
        _require_regular(label, status.st_mode)
        if status.st_size >= most:
            return b"\0" * most  # enough to be refused as too large, unopened
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
            return b"\0" * most if status.st_size >= most else file.read(status.st_size + 1)
    except OSError as error:
        raise FileRefused(f"{label} can't be read ({error.strerror})") from None


def _require_regular(label: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise FileRefused(f"{label} is a link, and links are refused: hand in the file itself")
    if not stat.S_ISREG(mode):
        raise FileRefused(f"{label} is not a file with text in it")
