"""The gradebook: one SQLite file with the class seed, all attempts with their verdicts, marks and decisions.

Each finished attempt is its own short transaction in a write-ahead log, so that a process killed at any
moment loses nothing that was finished, and two graders on one file wait for each other.
Nothing that decided a mark is ever lost: replaced marks go to a history, decisions are only added to.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from grader.course import Lab
from grader.decisions import Override, Review
from grader.late import Lateness
from grader.marking import Result, StepMarks, lowers, mark
from grader.members import Members
from grader.store import GradebookError
from grader.verdicts import GRADER_ERROR, Finding, Verdict
from grader.worker import Judgement

__all__ = ["AttemptRecord", "Basis", "Gradebook", "GradebookError", "attempt_key", "source_hash"]


def attempt_key(source: str | None, test_set: str, seed: int, versions: Mapping[str, str]) -> str:
    """Return the hash that two attempts share only if nothing that decides their verdicts differs."""
    digest = hashlib.sha256()
    for part in (source, test_set, str(seed), repr(sorted(versions.items()))):
        data = b"" if part is None else b"=" + part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def source_hash(source: str | None) -> str:
    """Return the hash that stands for exactly this source; "" for no file."""
    return "" if source is None else hashlib.sha256(source.encode()).hexdigest()


@dataclass(frozen=True)
class Basis:
    """What one student's marks for a lab follow from, beside what people decided.

    `source_hash` is None in marks that a grader of schema 1 made.
    """

    student: str
    lab: str
    key: str  # of the attempt
    source_hash: str | None
    judgement: Judgement
    note: str = ""  # on the hand-in and its run
    withheld: bool = False
    findings: tuple[Finding, ...] = ()
    lateness: Lateness | None = None


@dataclass(frozen=True)
class AttemptRecord:
    """How an attempt was made: enough to make it again."""

    key: str
    seed: int
    versions: str
    finished: str
    source: str | None


class Gradebook(Members):
    """An open gradebook; use it as a context manager, in one thread."""

    def class_seed(self) -> int | None:
        """Return the seed of this class, or None while none is stored."""
        with self._one_line():
            row = self._db.execute("SELECT value FROM settings WHERE name = 'class_seed'").fetchone()
        try:
            return None if row is None else int(row[0])
        except ValueError:
            raise GradebookError(
                f"{self.path}: the class seed in it is not a number ({str(row[0])[:40]!r}): "
                "set it anew with --class-seed N --reseed"
            ) from None

    def set_class_seed(self, seed: int) -> None:
        """Store the seed with which this class is graded from now on."""
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO settings VALUES ('class_seed', ?)", (str(seed),))

    def agree_on_seed(self, seed: int) -> int:
        """Store `seed` unless a seed is there; return the one that counts, the same for all who ask."""
        with self.transaction():
            self._db.execute("INSERT OR IGNORE INTO settings VALUES ('class_seed', ?)", (str(seed),))
        stored = self.class_seed()
        return seed if stored is None else stored

    # --- attempts --------------------------------------------------------------------------------------

    def attempt(self, key: str) -> Judgement | None:
        """Return the stored attempt with this key, or None when it must be run.

        An attempt in which the grader itself failed counts as not there, so that it is run again.
        """
        judgement = self._judgement(key)
        if judgement is None or any(one.verdict == GRADER_ERROR for one in judgement.verdicts):
            return None
        return judgement

    def store_attempt(
        self,
        key: str,
        lab: str,
        seed: int,
        versions: Mapping[str, str],
        judgement: Judgement,
        source: str | None = None,
    ) -> Judgement:
        """Store a finished attempt with all its verdicts and its source; return the one that counts.

        That is an earlier one with the same key, if another grader has finished it meanwhile; one in which
        the grader itself failed is replaced.
        """
        known = " ".join(f"{name}={version}" for name, version in sorted(versions.items()))
        with self.transaction():
            earlier = self.attempt(key)
            if earlier is not None:
                self._db.execute("UPDATE attempts SET runs = runs + 1 WHERE key = ?", (key,))
                return earlier
            self._db.execute(
                "INSERT INTO attempts (key, lab, seed, versions, finished, seconds, message, output, layers, "
                "source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                "finished = excluded.finished, seconds = excluded.seconds, message = excluded.message, "
                "output = excluded.output, layers = excluded.layers, source = excluded.source, "
                "runs = runs + 1",
                (
                    *(key, lab, str(seed), known, _now(), judgement.seconds, judgement.message),
                    *(judgement.output, "\n".join(judgement.layers)),
                    None if source is None else zlib.compress(source.encode()),
                ),
            )
            self._db.execute("DELETE FROM verdicts WHERE attempt = ?", (key,))
            self._db.executemany(
                "INSERT INTO verdicts "
                "(attempt, position, test, verdict, message, seconds, mistake, compared) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (key, position, one.test, one.verdict, one.message, one.seconds, one.mistake, one.check)
                    for position, one in enumerate(judgement.verdicts)
                ],
            )
        return judgement

    def record(self, key: str) -> AttemptRecord:
        """Return how the stored attempt with this key was made."""
        with self._one_line():
            row = self._db.execute(
                "SELECT key, seed, versions, finished, source FROM attempts WHERE key = ?", (key,)
            ).fetchone()
        source = None if row[4] is None else zlib.decompress(row[4]).decode()
        return AttemptRecord(row[0], int(row[1]), row[2], row[3], source)

    def handed_in(self, lab: str, *, earlier: bool = False) -> dict[str, str]:
        """Return the source that each student's mark for a lab comes from."""
        rows = self._rows(
            "SELECT student, source FROM marks JOIN attempts ON key = attempt WHERE marks.lab = ? "
            "AND gone <= ?",
            *(lab, earlier),
        )
        return {student: zlib.decompress(data).decode() for student, data in rows if data is not None}

    def circumstances(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the jail's layers and the versions behind the marks; where they differ, all of them."""
        rows = self._rows("SELECT DISTINCT layers, versions FROM marks JOIN attempts ON key = attempt")
        layers = dict.fromkeys(layer for row in rows for layer in row[0].splitlines())
        versions: dict[str, dict[str, None]] = {}
        for _, text in rows:
            for name, _, version in (part.partition("=") for part in text.split()):
                versions.setdefault(name, {})[version] = None
        return tuple(layers), {name: ", ".join(found) for name, found in versions.items()}

    # --- marks -----------------------------------------------------------------------------------------

    def mark(self, basis: Basis, lab: Lab) -> Result:
        """Return the marks that follow from `basis` and from what people have decided so far."""
        return mark(
            basis.student,
            lab,
            basis.judgement.verdicts,
            basis.note,
            withheld=basis.withheld,
            seconds=basis.judgement.seconds,
            findings=basis.findings,
            reviews=self._reviews(basis),
            overrides=self._overrides(basis.student, basis.lab),
            lateness=basis.lateness,
        )

    def store_mark(self, basis: Basis, result: Result) -> None:
        """Store a student's marks for a lab; earlier ones that differ go to the history."""
        student, lab, late = basis.student, basis.lab, basis.lateness
        with self.transaction():
            old = self.result(student, lab)
            if old == result and self.basis(student, lab) == basis:
                return
            if old is not None and old != result:
                self._keep(old, lowers(old, result))
            gone = self._rows("SELECT gone FROM marks WHERE student = ? AND lab = ?", student, lab)
            self._db.execute("DELETE FROM marks WHERE student = ? AND lab = ?", (student, lab))
            self._db.execute(
                "INSERT INTO marks (student, lab, attempt, points, max_points, message, source_hash, note, "
                "withheld, late_days, late_percent, late_note, marked, gone) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(student, lab, basis.key, result.points, result.max_points, result.message),
                    *(basis.source_hash, basis.note, basis.withheld),
                    *((None, None, None) if late is None else (late.days, late.percent, late.note)),
                    *(_now(), gone[0][0] if gone else 0),
                ),
            )
            self._db.executemany(
                "INSERT INTO step_marks (student, lab, step, title, points, max_points) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(student, lab, one.step, one.title, one.points, one.max_points) for one in result.steps],
            )
            self._db.executemany(
                "INSERT INTO findings (student, lab, position, step, rule, line, text, undecided) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (student, lab, position, one.step, one.rule, one.line, one.text, one in result.findings)
                    for position, one in enumerate(basis.findings)
                ],
            )

    def students(self) -> set[tuple[str, str]]:
        """Return the student and lab of every mark."""
        with self._one_line():
            return set(self._db.execute("SELECT student, lab FROM marks"))

    def results(self, *, earlier: bool = False) -> list[Result]:
        """Return the marks of the class, by student and lab; with `earlier` also of who was in it before."""
        with self.snapshot():
            return self._results("WHERE gone <= ? ORDER BY lower(student), student, marks.lab", earlier)

    def result(self, student: str, lab: str) -> Result | None:
        """Return a student's marks for a lab, None if there are none."""
        found = self._results("WHERE student = ? AND marks.lab = ?", student, lab)
        return found[0] if found else None

    def basis(self, student: str, lab: str) -> Basis | None:
        """Return what a student's stored marks for a lab follow from, None if there are none."""
        with self._one_line():
            row = self._db.execute(
                "SELECT attempt, source_hash, note, withheld, late_days, late_percent, late_note FROM marks "
                "WHERE student = ? AND lab = ?",
                (student, lab),
            ).fetchone()
        judgement = None if row is None else self._judgement(row[0])
        if judgement is None:
            return None
        late = None if row[4] is None else Lateness(row[4], row[5], row[6])
        findings = self._findings(student, lab, undecided=False)
        return Basis(student, lab, row[0], row[1], judgement, row[2], bool(row[3]), findings, late)

    # --- decisions -------------------------------------------------------------------------------------

    def add_review(self, basis: Basis, review: Review) -> None:
        """Store what a person decided about the findings of a step of exactly this source."""
        self._decide(
            "INSERT INTO reviews (student, lab, step, source_hash, accepted, reason, line, who, decided) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(basis.student, basis.lab, review.step, basis.source_hash),
            *(review.accepted, review.reason, review.line),
        )

    def add_override(
        self, student: str, lab: str, step: int | None, points: float | None, reason: str
    ) -> None:
        """Store points by hand for a step, or for the lab (no step); None takes them back."""
        self._decide(
            "INSERT INTO overrides (student, lab, step, points, reason, who, decided) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(student, lab, step, points, reason),
        )

    def _decide(self, statement: str, *values: object) -> None:
        with self.transaction():
            self._db.execute(statement, (*values, _user(), _now()))

    def _reviews(self, basis: Basis) -> tuple[Review, ...]:
        """The latest review of each step and line of this source, the latest of all last."""
        rows = self._rows(
            "SELECT step, accepted, reason, line FROM reviews "
            "WHERE student = ? AND lab = ? AND source_hash = ? ORDER BY id DESC",
            *(basis.student, basis.lab, basis.source_hash),
        )
        latest: dict[tuple[int, int | None], Review] = {}
        for step, accepted, why, line in rows:
            latest.setdefault((step, line), Review(step, bool(accepted), why, line))
        return tuple(reversed(latest.values()))

    def _overrides(self, student: str, lab: str) -> tuple[Override, ...]:
        rows = self._rows(
            "SELECT step, points, reason FROM overrides WHERE student = ? AND lab = ? ORDER BY id",
            *(student, lab),
        )
        latest = {step: (points, reason) for step, points, reason in rows}
        return tuple(
            Override(step, points, reason) for step, (points, reason) in latest.items() if points is not None
        )

    # --- rows ------------------------------------------------------------------------------------------

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._one_line():
            return self._db.execute(query, values).fetchall()

    def _judgement(self, key: str) -> Judgement | None:
        rows = self._rows("SELECT message, seconds, output, layers FROM attempts WHERE key = ?", key)
        if not rows:
            return None
        message, seconds, output, layers = rows[0]
        return Judgement(self._verdicts(key), message, seconds, output, tuple(layers.splitlines()))

    def _results(self, which: str, *values: object) -> list[Result]:
        rows = self._rows(
            "SELECT student, marks.lab, points, max_points, marks.message, attempt, seconds "
            f"FROM marks JOIN attempts ON key = attempt {which}",
            *values,
        )
        return [
            Result(
                *(student, lab, points, most, message),
                steps=self._steps(student, lab),
                tests=self._verdicts(key),
                seconds=seconds,
                findings=self._findings(student, lab, undecided=True),
            )
            for student, lab, points, most, message, key, seconds in rows
        ]

    def _steps(self, student: str, lab: str) -> tuple[StepMarks, ...]:
        rows = self._rows(
            "SELECT step, title, points, max_points FROM step_marks "
            "WHERE student = ? AND lab = ? ORDER BY step",
            *(student, lab),
        )
        return tuple(StepMarks(*row) for row in rows)

    def _verdicts(self, key: str) -> tuple[Verdict, ...]:
        rows = self._rows(
            "SELECT test, verdict, message, seconds, mistake, compared FROM verdicts "
            "WHERE attempt = ? ORDER BY position",
            key,
        )
        return tuple(Verdict(*row) for row in rows)

    def _findings(self, student: str, lab: str, *, undecided: bool) -> tuple[Finding, ...]:
        """A mark's findings, or only those that still withhold a step."""
        rows = self._rows(
            "SELECT step, rule, line, text FROM findings WHERE student = ? AND lab = ? AND undecided >= ? "
            "ORDER BY position",
            *(student, lab, undecided),
        )
        return tuple(Finding(*row) for row in rows)

    def _keep(self, old: Result, lowered: bool) -> None:
        """Put marks that are about to be replaced into the history."""
        steps = json.dumps({step.step: step.points for step in old.steps})
        self._db.execute(
            "INSERT INTO history (student, lab, attempt, points, max_points, message, steps, marked, "
            "replaced, lowered) SELECT student, lab, attempt, points, max_points, message, ?, marked, ?, ? "
            "FROM marks WHERE student = ? AND lab = ?",
            (steps, _now(), lowered, old.student, old.lab),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name, as in some containers
        return ""
