"""One SQLite file, opened so that nothing half-written is ever met and every trouble is one clear line."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from grader.course import CourseError
from grader.schema import MIGRATIONS

BUSY_SECONDS = 30.0
AGAIN = (
    "get it back from a backup, or move it away and grade again, with --class-seed N for the same inputs: "
    "the class seed in it is lost (report.html shows it)"
)


class GradebookError(CourseError):
    """The gradebook can't be used; the text is one clear line."""


class Store:
    """An open gradebook file; use it as a context manager, in one thread.

    Opening brings an older schema up to date; a newer schema, a damaged file, a file that isn't a
    gradebook, or (with `create=False`) a missing file is a `GradebookError`. `was_empty`: the file was
    there, without a byte in it.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.was_empty = create and path.is_file() and path.stat().st_size == 0
        if not create and not path.is_file():
            raise GradebookError(f"{path}: there is no gradebook here; make one with `grader grade`")
        if not create and path.stat().st_size == 0:
            raise GradebookError(f"{path}: the gradebook is an empty file: {AGAIN}")
        with self._one_line():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._one_line():
                self._open_patiently()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was stored is already safe."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that happens inside is stored together, or nothing of it; no other grader writes meanwhile.

        Inside another transaction it is a part of that one.
        """
        with self._transaction("BEGIN IMMEDIATE"):  # waits here, where nothing is half done
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        with self._one_line():
            self._db.execute(begin)
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn an error of SQLite into one line that says what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise GradebookError(f"{self.path}: the gradebook can't be used now ({error})") from error
        except sqlite3.DatabaseError as error:
            why = " ".join(str(error).split())
            raise GradebookError(f"{self.path}: the gradebook is damaged ({why}): {AGAIN}") from error

    def _open_patiently(self) -> None:
        """Open, and wait where SQLite does not: it changes the journal's mode at once or not at all."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._open()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _open(self) -> None:
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        self._check_version()
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        if self._version() < len(MIGRATIONS):
            with self.transaction():
                self._migrate()

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self) -> None:
        self._db.execute("BEGIN")  # both questions of the same moment: another grader may be making the file
        version = self._version()
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self._db.execute("COMMIT")
        if version > len(MIGRATIONS):
            raise GradebookError(
                f"{self.path}: made by a newer grader (schema {version}, this one knows {len(MIGRATIONS)}): "
                "update the grader, or choose another --out"
            )
        if version == 0 and tables:
            raise GradebookError(f"{self.path}: an SQLite file but not a gradebook; choose another --out")

    def _migrate(self) -> None:
        # The version is read again inside the transaction: another grader may have migrated meanwhile.
        for version in range(self._version(), len(MIGRATIONS)):
            for statement in MIGRATIONS[version]:
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {version + 1}")
