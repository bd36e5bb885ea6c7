"""A class of lab 02 whose grading is killed twice and continued: python -m bench.killed [SUBMISSIONS]

The class is that of `bench.thousand`. `kill -9` hits the supervisor after a third and after two thirds of the
submissions; then the same command runs to its end. Shown is what each kill left, and what was run twice.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from bench.measure import ROOT, adopt_orphans, descendants, finish, start, table
from bench.thousand import SEED, write_class
from grader.course import load_course

LOOK_EVERY = 0.5  # seconds
SETTLE = 5.0  # seconds that helpers have to notice that their supervisor is gone


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    lab = load_course(ROOT).find_lab("02")
    adopt_orphans()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        group, out = Path(folder, "class"), Path(folder, "out")
        write_class(group, lab, count)
        command = [str(Path(sys.executable).with_name("grader")), "grade", str(group), "--lab", "02"]
        command += ["--class-seed", str(SEED), "--out", str(out), "-j", str(os.cpu_count() or 1)]
        book = out / "gradebook.sqlite"
        for until in (count // 3, 2 * count // 3, None):
            before, began = done(book), time.perf_counter()
            status = run(command, book, until)
            time.sleep(SETTLE if until else 0)
            name = f"killed after {until}" if until else "to its end"
            seconds = time.perf_counter() - began
            rows.append([name, status, before, done(book), f"{seconds:.0f} s", len(descendants())])
        with closing(sqlite3.connect(book)) as connection:
            ask = "SELECT (SELECT COUNT(*) FROM marks), COUNT(*), MAX(runs), SUM(runs > 1) FROM attempts"
            marks, attempts, most, twice = connection.execute(ask).fetchone()
    header = ["run", "exit status", "attempts before", "attempts after", "time", "processes left"]
    lines = [table(header, rows), "", f"- students with a mark: {marks} of {count}"]
    lines.append(f"- different files run: {attempts}; more than once: {twice} (at most {most} times)")
    kept = {"rows": rows, "marks": marks, "attempts": attempts, "twice": twice}
    finish("killed", f"{count} submissions of lab 02, killed twice and continued", "\n".join(lines), kept)


def run(command: Sequence[str], book: Path, until: int | None) -> int:
    """Run the command to its end, or until so many attempts are in the gradebook; return its exit status."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while process.poll() is None and (until is None or done(book) < until):
        time.sleep(LOOK_EVERY)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    return process.wait()


def done(book: Path) -> int:
    """How many attempts the gradebook holds."""
    if not book.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{book}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM attempts").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made


if __name__ == "__main__":
    start(main)
