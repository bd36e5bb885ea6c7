"""Which class a gradebook is of: the folder it lies in, who is in it now, what learning platforms call them.

Marks of students who were in an earlier run and are no longer there are kept, and are not in the reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grader.intake import Intake
from grader.store import GradebookError, Store

MOST_NAMED = 20


class Members(Store):
    """The part of a gradebook that knows its class."""

    def require_class(self, found: Intake) -> None:
        """GradebookError if what was found seems to be of another class than the marks that are here."""
        here, place = {one.student for one in found.submissions}, self._place(found)
        for lab in sorted({one.lab for one in found.submissions}):
            folder = self._setting(f"class {lab}")
            known = self._current(lab) or self._current()
            moved = folder not in (None, place)
            if moved or (found.whole and 2 * len(known & here) < min(len(known), len(here))):
                where = f" from {os.path.normpath(self._home() / folder)}" if folder else ""
                raise GradebookError(
                    f"{self.path} may be of another class: it has marks for {_counted(known)}{where}, "
                    f"of whom {len(known & here)} are in {found.folder}; choose another --out, or, if this "
                    "is the same class: --same-class"
                )

    def enrol(self, found: Intake) -> None:
        """Take what was found for the class as it is now; a single hand-in only adds to it."""
        labs = sorted({one.lab for one in found.submissions})
        with self.transaction():
            for lab in labs:
                if found.whole or self._setting(f"class {lab}") is None:
                    self._set(f"class {lab}", self._place(found))
                if found.whole:
                    self._db.execute("UPDATE marks SET gone = 1 WHERE lab = ?", (lab,))
            self._db.executemany(
                "UPDATE marks SET gone = 0 WHERE student = ? AND lab = ?",
                [(one.student, one.lab) for one in found.submissions],
            )
            columns, assignments = self.platforms()
            if found.columns or found.assignments:
                said = {student: dict(cells) for student, cells in {**columns, **found.columns}.items()}
                self._set("platforms", json.dumps([said, [*(found.assignments or assignments)]]))

    def platforms(self) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
        """What learning platforms call each student, and what Canvas calls its columns."""
        columns, assignments = json.loads(self._setting("platforms") or "[{}, []]")
        return columns, tuple(assignments)

    def earlier(self) -> list[str]:
        """The students of earlier runs who are in no lab's class any more, or not in that of every lab."""
        with self._one_line():
            return [name for (name,) in self._db.execute("SELECT DISTINCT student FROM marks WHERE gone")]

    def _home(self) -> Path:
        return Path(os.path.realpath(self.path.parent))

    def _place(self, found: Intake) -> str:
        """Where a class lies as seen from here, so that both can move together."""
        try:
            return os.path.relpath(found.folder, self._home())
        except ValueError:  # on another drive
            return str(found.folder)

    def _current(self, lab: str = "") -> set[str]:
        with self._one_line():
            rows = self._db.execute("SELECT student, lab FROM marks WHERE NOT gone")
            return {student for student, one in rows if lab in ("", one)}

    def _setting(self, name: str) -> Any:
        with self._one_line():
            row = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def _set(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))


def earlier_note(students: Iterable[str], command: str) -> str:
    """A line on students of earlier runs, with the command that shows them."""
    names = sorted(students)
    rest = len(names) - MOST_NAMED
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return (
        f"{_counted(names)} of earlier runs {'are' if len(names) > 1 else 'is'} kept in the gradebook and "
        f"left out of the reports: {listed}; to put them in: {command} --earlier"
    )


def _counted(names: Iterable[str] | Mapping[str, Any]) -> str:
    count = len(list(names))
    return f"{count} student{'s' * (count != 1)}"
