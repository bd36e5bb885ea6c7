"""The files in an archive, listed and read in memory within bounds: nothing is ever unpacked to disk.

Whatever an archive says of itself, no more is unpacked than the bounds; links, devices and pipes in it are
never followed or made, only refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Protocol

from grader.handins import (
    ARCHIVE_BYTES,
    IN_ARCHIVE,
    MOST_FILES,
    MOST_LEVELS,
    READABLE,
    UNPACKED_BYTES,
    FileRefused,
    HandIn,
    is_archive,
    is_noise,
    is_readable,
    moment,
    most_bytes,
    nearest_first,
    shown,
)
from grader.verdicts import one_line

DIRECTORY_BYTES = 4 << 20  # of a zip's table of contents, parsed before anything else is known
HEADER_BYTES = 1 << 16  # of what a header of a tar says of one entry
MOST_HEADERS = 20_000  # of a tar, with those of folders and of files that nobody means to hand in
MOST_NAME = 4096
MOST_RATIO = 200  # of unpacked to packed bytes; code comes to 20, a page of one letter to 1000
FREE_BYTES = 8 << 20  # that may be unpacked at any ratio

OTHER_KINDS = (
    (b"Rar!", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x28\xb5\x2f\xfd", "zst"),
)
GZIP, BZIP2, XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0"
PACKED = (GZIP, BZIP2, XZ)
WINDOWS_NAME = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)
KEPT = (*READABLE, ".txt")
ENDS = (tarfile.EOFHeaderError, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]
LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
LONG_NAME, PAX = (tarfile.GNUTYPE_LONGNAME,), (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
OF_ALL = (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK)  # headers that say nothing that is needed


def list_archive(archive: HandIn) -> list[HandIn]:
    """List the files in a zip or tar archive, nearest first; of entries with one name the last counts.

    FileRefused if it isn't readable, larger than the bounds, or has an entry that leads out of it.
    """
    data = archive.read()
    for start, kind in OTHER_KINDS:
        if data.startswith(start):
            raise FileRefused(f"{archive.label} is {kind}, whatever its name says: make a zip archive")
    if not data:
        raise FileRefused(f"{archive.label} is not a readable zip archive or tar archive (it is empty)")
    try:
        if _is_tar(archive, data):
            entries = _tar_entries(archive.label, data)
        else:
            entries = _zip_entries(archive.label, data)
        files = {file.path: file for file in entries}
    except FileRefused:
        raise
    except Exception as error:  # hostile bytes: whatever a parser says of them, it is one line here
        raise FileRefused(f"{archive.label} is not a readable archive ({one_line(error)})") from None
    return sorted(files.values(), key=nearest_first)


def _is_tar(archive: HandIn, data: bytes) -> bool:
    """By the bytes, since a browser or a student may have named it otherwise."""
    if data.startswith(b"PK"):
        return False
    known = data[257:262] == b"ustar" or data.startswith(PACKED)
    return known or archive.suffix != ".zip"


def _path(label: str, name: str) -> PurePosixPath:
    """Where an entry lies in the archive, as it says; FileRefused if that is outside."""
    if len(name) > MOST_NAME:
        raise FileRefused(f"{label} has an entry with a name of more than {MOST_NAME} letters; refused")
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise FileRefused(f"{label} has an entry that leads out of the archive ({shown(name)!r}); refused")
    return path


def _matters(path: PurePosixPath) -> bool:
    return bool(path.parts) and not any(map(is_noise, path.parts))


def _file(
    label: str, path: PurePosixPath, modified: datetime | None, fetch: Callable[[int], bytes], is_link: bool
) -> HandIn:
    """One entry under a name that any system could have; what is odd about its own name becomes a remark."""
    if len(path.parts) > MOST_LEVELS:
        raise FileRefused(f"{label} has more than {MOST_LEVELS} levels of folders; refused")
    mended = PurePosixPath(*(part.replace(":", "_").rstrip(". ") or "_" for part in path.parts))
    remark = "a link" if is_link else f"named {shown(str(path))} there" if mended != path else ""
    inside = f"{label}: {shown(str(mended))}"
    reserved = next((part for part in mended.parts if WINDOWS_NAME.fullmatch(part)), None)
    if reserved is not None:
        remark = "a name that Windows keeps for itself"
        fetch = _refusal(f"{inside} has {remark} ({reserved}): rename it")
    return HandIn(mended, inside, fetch, modified, IN_ARCHIVE, remark)


def _refusal(line: str) -> Callable[[int], bytes]:
    def fetch(most: int) -> bytes:
        raise FileRefused(line)

    return fetch


def _too_much(label: str) -> FileRefused:
    return FileRefused(
        f"{label} holds more than {MOST_FILES} files or {UNPACKED_BYTES >> 20} MiB, or unpacks to more than "
        f"{MOST_RATIO} times its size; refused: hand in the exercise alone"
    )


# --- zip -------------------------------------------------------------------------------------------------


def _zip_entries(label: str, data: bytes) -> Iterator[HandIn]:
    _check_directory(label, data)
    try:
        opened = zipfile.ZipFile(io.BytesIO(data))
        entries = opened.infolist()
    except Exception as error:  # as above
        raise FileRefused(f"{label} is not a readable zip archive ({one_line(error)})") from None
    paths = [(_path(label, entry.filename), entry) for entry in entries]
    files = [(path, entry) for path, entry in paths if _matters(path) and not entry.is_dir()]
    if len(files) > MOST_FILES or sum(entry.file_size for _, entry in files) > UNPACKED_BYTES:
        raise _too_much(label)
    for path, entry in files:
        fetch = _zip_reader(label, opened, entry)
        yield _file(label, path, _zip_time(entry), fetch, stat.S_ISLNK(entry.external_attr >> 16))


def _check_directory(label: str, data: bytes) -> None:
    """Refuse an archive whose table of contents alone would fill the memory."""
    end = data.rfind(b"PK\x05\x06")
    if end < 0 or len(data) < end + 22:
        raise FileRefused(f"{label} is not a readable zip archive")
    if int.from_bytes(data[end + 12 : end + 16], "little") > DIRECTORY_BYTES:
        raise _too_much(label)


def _zip_time(entry: zipfile.ZipInfo) -> datetime | None:
    """When an entry was last changed, by the clock of this place; 1980 is what programs write for nothing."""
    try:
        return datetime(*entry.date_time).astimezone() if entry.date_time[0] > 1980 else None
    except (ValueError, OverflowError, OSError):
        return None


def _zip_reader(label: str, opened: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Callable[[int], bytes]:
    name = f"{label}: {shown(entry.filename)}"
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        return _refusal(f"{name} is a link, and links are refused: hand in the file itself")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return _refusal(f"{name} is not a file with text in it")
    if entry.flag_bits & 1:
        return _refusal(f"{name} is protected by a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return _refusal(f"{name} is packed in an unusual way; make an ordinary zip archive")
    if is_archive(entry.filename) and entry.file_size > _most_unpacked(entry.compress_size):
        return _refusal(str(_too_much(name)))

    def fetch(most: int) -> bytes:
        try:
            with opened.open(entry) as file:
                return file.read(most)  # whatever size the entry states, no more than this is unpacked
        except Exception as error:  # hostile bytes, as above
            raise FileRefused(f"{name} can't be unpacked ({one_line(error)})") from None

    return fetch


def _most_unpacked(packed: int) -> int:
    return min(UNPACKED_BYTES, max(FREE_BYTES, MOST_RATIO * packed))


# --- tar -------------------------------------------------------------------------------------------------


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _opened(data: bytes) -> _Readable:
    """The bytes of a tar, unpacked while they are read where it is packed."""
    file = io.BytesIO(data)
    if data.startswith(GZIP):
        return gzip.GzipFile(fileobj=file)
    if data.startswith(BZIP2):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if data.startswith(XZ) else file


class _Stream:
    """The unpacked bytes of a tar, from front to back, counted while they are read."""

    def __init__(self, label: str, data: bytes):
        self._file = _opened(data)
        self._left = _most_unpacked(len(data)) if data.startswith(PACKED) else ARCHIVE_BYTES
        self._label = label
        self.taken = self.headers = 0

    def take(self, size: int) -> bytes:
        if size > self._left:
            raise _too_much(self._label)
        self._left -= size
        self.taken += size
        data = self._file.read(size)
        if len(data) < size:
            raise FileRefused(f"{self._label} is not a readable tar archive (it ends too early)")
        return data

    def header(self) -> bytes:
        """The next block, "" at the end of a file without the empty blocks that should be there."""
        self.headers += 1
        if self.headers > MOST_HEADERS or self._left < tarfile.BLOCKSIZE:
            raise _too_much(self._label)
        self._left -= tarfile.BLOCKSIZE
        return self._file.read(tarfile.BLOCKSIZE)

    def skip(self, size: int) -> None:
        while size > 0:
            size -= len(self.take(min(size, HEADER_BYTES)))


def _tar_entries(label: str, data: bytes) -> Iterator[HandIn]:
    """The files of a tar, with the bytes kept of those that may be read."""
    stream, count, kept = _Stream(label, data), 0, 0
    for name, entry, modified in _headers(label, stream):
        path, held = _path(label, name), stream.taken
        if _matters(path) and not entry.isdir():
            count += 1
            fetch = _tar_reader(f"{label}: {shown(str(path))}", path, entry, stream)
            kept += stream.taken - held
            if count > MOST_FILES or kept > ARCHIVE_BYTES:
                raise _too_much(label)
            yield _file(label, path, modified, fetch, entry.type in LINKS)
        size = entry.size + -entry.size % tarfile.BLOCKSIZE if entry.isreg() else 0
        stream.skip(size - (stream.taken - held))


def _tar_reader(
    name: str, path: PurePosixPath, entry: tarfile.TarInfo, stream: _Stream
) -> Callable[[int], bytes]:
    if entry.type in LINKS:
        return _refusal(f"{name} is a link, and links are refused: hand in the file itself")
    if not entry.isreg() or entry.type == tarfile.GNUTYPE_SPARSE:
        return _refusal(f"{name} is not a file with text in it")
    if not (is_readable(path.name) or path.suffix.lower() in KEPT or is_archive(path.name)):
        return _refusal(f"{name} is not a Python file, a notebook or an archive")
    most = most_bytes(path.name)
    if entry.size > most:
        return lambda asked: b"\0" * min(asked, most + 1)  # enough to be refused as too large
    data = stream.take(entry.size)
    return lambda asked: data[:asked]


def _headers(label: str, stream: _Stream) -> Iterator[tuple[str, tarfile.TarInfo, datetime | None]]:
    """The entries of a tar: name, header and time, with the headers that only name the next one applied.

    `tarfile` itself reads such headers whole and with patterns that hostile ones make slow, so here it only
    decodes single blocks.
    """
    long_name, records, first = "", dict[str, str](), True
    while True:
        try:
            entry = tarfile.TarInfo.frombuf(stream.header(), "utf-8", "surrogateescape")
        except ENDS:
            return
        except tarfile.HeaderError as error:
            kind = "tar archive" if not first else "zip or tar archive"
            raise FileRefused(f"{label} is not a readable {kind} ({one_line(error)})") from None
        first = False
        if entry.size < 0:
            raise FileRefused(f"{label} is not a readable tar archive (a size below 0)")
        if entry.type not in (*LONG_NAME, *PAX, *OF_ALL):
            if records.get("size", "").isdecimal():
                entry.size = int(records["size"][:20])
            yield records.get("path") or long_name or entry.name, entry, _tar_time(entry, records)
            long_name, records = "", {}
            continue
        if entry.size > HEADER_BYTES:
            raise _too_much(label)
        said = stream.take(entry.size)
        stream.skip(-entry.size % tarfile.BLOCKSIZE)
        if entry.type in LONG_NAME:
            long_name = said.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        elif entry.type in PAX:
            records = _pax_records(label, said)


def _tar_time(entry: tarfile.TarInfo, records: dict[str, str]) -> datetime | None:
    try:
        return moment(float(records.get("mtime", entry.mtime)))
    except ValueError:
        return None


def _pax_records(label: str, data: bytes) -> dict[str, str]:
    """The records "LENGTH KEY=VALUE\\n" of an extended header; FileRefused at the first that is none."""
    records, position = {}, 0
    while position < len(data) and data[position] != 0:
        head, space, _ = data[position : position + 8].partition(b" ")
        length = int(head) if space and head.isdigit() else 0
        record = data[position + len(head) + 1 : position + length]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise FileRefused(f"{label} is not a readable tar archive (a broken header)")
        records[key.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "surrogateescape")
        position += length
    return records
