"""The gradebook: one SQLite file with the class seed, all attempts with their verdicts, and the marks.

Each finished attempt is its own short transaction in a write-ahead log, so that a process killed at any
moment loses nothing that was finished, and two graders on one file wait for each other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from grader.course import CourseError
from grader.marking import Result, StepMarks
from grader.verdicts import GRADER_ERROR, Verdict
from grader.worker import Judgement

BUSY_SECONDS = 30.0

# One entry a schema version, oldest first; a released entry is never edited, a change is a new entry.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        """CREATE TABLE attempts (
            key TEXT PRIMARY KEY, lab TEXT NOT NULL, seed TEXT NOT NULL, versions TEXT NOT NULL,
            finished TEXT NOT NULL, seconds REAL NOT NULL, message TEXT NOT NULL, output TEXT NOT NULL)""",
        """CREATE TABLE verdicts (
            attempt TEXT NOT NULL REFERENCES attempts(key) ON DELETE CASCADE, position INTEGER NOT NULL,
            test TEXT NOT NULL, verdict TEXT NOT NULL, message TEXT NOT NULL, seconds REAL NOT NULL,
            mistake TEXT, PRIMARY KEY (attempt, position))""",
        """CREATE TABLE marks (
            student TEXT NOT NULL, lab TEXT NOT NULL, attempt TEXT NOT NULL REFERENCES attempts(key),
            points INTEGER NOT NULL, max_points INTEGER NOT NULL, message TEXT NOT NULL,
            PRIMARY KEY (student, lab))""",
        """CREATE TABLE step_marks (
            student TEXT NOT NULL, lab TEXT NOT NULL, step INTEGER NOT NULL, title TEXT NOT NULL,
            points INTEGER, max_points INTEGER NOT NULL, PRIMARY KEY (student, lab, step),
            FOREIGN KEY (student, lab) REFERENCES marks(student, lab) ON DELETE CASCADE)""",
    ),
)


class GradebookError(CourseError):
    """The gradebook can't be used; the text is one clear line."""


def attempt_key(source: str | None, test_set: str, seed: int, versions: Mapping[str, str]) -> str:
    """Return the hash that two attempts share only if nothing that decides their verdicts differs."""
    digest = hashlib.sha256()
    for part in (source, test_set, str(seed), repr(sorted(versions.items()))):
        data = b"" if part is None else b"=" + part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


class Gradebook:
    """An open gradebook; use it as a context manager, in one thread.

    Opening brings an older schema up to date; a newer schema, a damaged file, a file that isn't a
    gradebook, or (with `create=False`) a missing file is a `GradebookError`.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        if not create and not path.is_file():
            raise GradebookError(f"{path}: there is no gradebook here; make one with `grader grade`")
        if not create and path.stat().st_size == 0:
            raise GradebookError(f"{path}: the gradebook is an empty file: move it away and grade again")
        with self._one_line():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._one_line():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Gradebook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was stored is already safe."""
        self._db.close()

    def class_seed(self) -> int | None:
        """Return the seed of this class, or None while none is stored."""
        with self._one_line():
            row = self._db.execute("SELECT value FROM settings WHERE name = 'class_seed'").fetchone()
        try:
            return None if row is None else int(row[0])
        except ValueError:
            raise GradebookError(
                f"{self.path}: the class seed in it is not a number ({str(row[0])[:40]!r}): "
                "set it anew with --class-seed"
            ) from None

    def set_class_seed(self, seed: int) -> None:
        """Store the seed with which this class is graded from now on."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO settings VALUES ('class_seed', ?)", (str(seed),))

    def agree_on_seed(self, seed: int) -> int:
        """Store `seed` unless a seed is there; return the one that counts, the same for all who ask."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO settings VALUES ('class_seed', ?)", (str(seed),))
        stored = self.class_seed()
        return seed if stored is None else stored

    def attempt(self, key: str) -> Judgement | None:
        """Return the stored attempt with this key, or None when it must be run.

        An attempt in which the grader itself failed counts as not there, so that it is run again.
        """
        with self._one_line():
            row = self._db.execute(
                "SELECT message, seconds, output FROM attempts WHERE key = ?", (key,)
            ).fetchone()
            verdicts = self._verdicts(key)
        if row is None or any(verdict.verdict == GRADER_ERROR for verdict in verdicts):
            return None
        return Judgement(verdicts=verdicts, message=row[0], seconds=row[1], output=row[2])

    def store_attempt(
        self, key: str, lab: str, seed: int, versions: Mapping[str, str], judgement: Judgement
    ) -> None:
        """Store a finished attempt with all its verdicts, in place of an earlier one with the same key."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        known = " ".join(f"{name}={version}" for name, version in sorted(versions.items()))
        row = (key, lab, str(seed), known, finished, judgement.seconds, judgement.message, judgement.output)
        with self._transaction():
            self._db.execute(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                "finished = excluded.finished, seconds = excluded.seconds, message = excluded.message, "
                "output = excluded.output",
                row,
            )
            self._db.execute("DELETE FROM verdicts WHERE attempt = ?", (key,))
            self._db.executemany(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (key, position, one.test, one.verdict, one.message, one.seconds, one.mistake)
                    for position, one in enumerate(judgement.verdicts)
                ],
            )

    def store_result(self, result: Result, key: str) -> None:
        """Store a student's marks for a lab, given by the stored attempt `key`, in place of earlier ones."""
        with self._transaction():
            self._db.execute("DELETE FROM marks WHERE student = ? AND lab = ?", (result.student, result.lab))
            self._db.execute(
                "INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?)",
                (result.student, result.lab, key, result.points, result.max_points, result.message),
            )
            self._db.executemany(
                "INSERT INTO step_marks VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (result.student, result.lab, step.step, step.title, step.points, step.max_points)
                    for step in result.steps
                ],
            )

    def students(self) -> set[tuple[str, str]]:
        """Return the student and lab of every mark."""
        with self._one_line():
            return set(self._db.execute("SELECT student, lab FROM marks"))

    def results(self) -> list[Result]:
        """Return all marks in the gradebook, by student and lab."""
        with self._one_line():
            rows = self._db.execute(
                "SELECT student, marks.lab, points, max_points, marks.message, attempt, seconds "
                "FROM marks JOIN attempts ON key = attempt ORDER BY lower(student), student, marks.lab"
            ).fetchall()
            return [
                Result(
                    student,
                    lab,
                    points,
                    most,
                    message,
                    self._steps(student, lab),
                    self._verdicts(key),
                    seconds,
                )
                for student, lab, points, most, message, key, seconds in rows
            ]

    def _steps(self, student: str, lab: str) -> tuple[StepMarks, ...]:
        rows = self._db.execute(
            "SELECT step, title, points, max_points FROM step_marks "
            "WHERE student = ? AND lab = ? ORDER BY step",
            (student, lab),
        )
        return tuple(StepMarks(*row) for row in rows)

    def _verdicts(self, key: str) -> tuple[Verdict, ...]:
        rows = self._db.execute(
            "SELECT test, verdict, message, seconds, mistake FROM verdicts "
            "WHERE attempt = ? ORDER BY position",
            (key,),
        )
        return tuple(Verdict(*row) for row in rows)

    def _open(self) -> None:
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        self._check_version()
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        if self._version() < len(MIGRATIONS):
            with self._transaction():
                self._migrate()

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self) -> None:
        version = self._version()
        if version > len(MIGRATIONS):
            raise GradebookError(
                f"{self.path}: made by a newer grader (schema {version}, this one knows {len(MIGRATIONS)}): "
                "update the grader, or choose another --out"
            )
        if version == 0 and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise GradebookError(f"{self.path}: an SQLite file but not a gradebook; choose another --out")

    def _migrate(self) -> None:
        # The version is read again inside the transaction: another grader may have migrated meanwhile.
        for version in range(self._version(), len(MIGRATIONS)):
            for statement in MIGRATIONS[version]:
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {version + 1}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._one_line():
            self._db.execute("BEGIN IMMEDIATE")
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
            raise GradebookError(
                f"{self.path}: the gradebook is damaged ({why}): move it away and grade again"
            ) from error
