"""A class of 1,000 for lab 02, good, wrong and hostile: python -m bench.thousand [SUBMISSIONS]

Shows for every hundred the rate and the memory of the processes that supervise, and at the end what is left:
open files, processes, temporary files. Every hundred has the same mixture, so that a falling rate shows.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.measure import ROOT, adopt_orphans, descendants, finish, open_files, own_memory, say, start, table
from grader.course import Lab, load_course
from grader.grading import Progress, grade

SEED = 2026
PART = 100
LOOK_EVERY = 10  # submissions between two looks at the memory

# A hostile submission is the solution, and one function begins with this.
HOSTILE = {
    "hang": ("lr_wsd", "while True: pass"),
    "exit": ("clip_grad_norm_", "import os; os._exit(0)"),
    "flood": ("lr_cosine", "[print('x' * 100_000) for _ in range(300)]"),
    "fork": ("lr_cosine", "import os; [os.fork() for _ in range(5)]"),
    "leave": ("lr_cosine", "import os; os.fork() or os.setsid() or os.execvp('sleep', ['sleep', '3600'])"),
    "litter": ("lr_cosine", "import tempfile; [tempfile.mkstemp() for _ in range(500)]"),
    "gobble": ("lr_cosine", "bytearray(b'x') * (1 << 36)"),
}
BROKEN = ("def broken(:\n", "import no_such_module\n", "raise ValueError('at import')\n", "\n")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    course = load_course(ROOT)
    lab = course.find_lab("02")
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        scratch = Path(folder, "tmp")
        scratch.mkdir()
        tempfile.tempdir = str(scratch)  # of all that is written from here on
        kinds = write_class(Path(folder, "class"), lab, count)
        files, watch, cores = open_files(), Watch(count), os.cpu_count() or 1
        out = Path(folder, "out")
        outcome = grade(Path(folder, "class"), course, out, lab, SEED, cores, on_progress=watch.show)
        left = {
            "open files more than before": open_files() - files,
            "processes": len(descendants()),
            "temporary files and folders": len(list(scratch.iterdir())),
        }
    marks: dict[str, Counter[str]] = {}
    for result in outcome.results:
        marks.setdefault(kinds[result.student], Counter())[f"{result.points:g}"] += 1
    hundreds = watch.rows()
    lines = [table(["done", "a second", "own memory, MiB", "its helpers' own memory, MiB"], hundreds), ""]
    for kind, points in marks.items():
        shown = ", ".join(f"{value} points ({number})" for value, number in points.most_common(3))
        lines.append(f"- {kind}: {shown}{', …' if len(points) > 3 else ''}")
    lines += [f"- left at the end: {number} {what}" for what, number in left.items()]
    rate = watch.rate(PART if count > PART else 0, count)  # the first hundred waits for the start-up
    title = f"{len(outcome.results)} submissions of lab 02, {cores} at a time: {rate:.3g} a second"
    kept = {"a_second": rate, "hundreds": hundreds, "left": left, "marks": marks}
    finish("thousand", title, "\n".join(lines), kept)


class Watch:
    """Follows a class: when each submission was done, and the memory meanwhile."""

    def __init__(self, total: int):
        self._total, self._done = total, [time.perf_counter()]
        self._looks: list[tuple[float, float]] = []  # MiB of this process, of those that stay
        self._known: set[int] = set()

    def show(self, progress: Progress) -> None:
        if progress.result is None:
            return
        self._done.append(time.perf_counter())
        done = len(self._done) - 1
        if done % LOOK_EVERY == 0:
            processes = descendants()
            # A process that is met at two looks runs more than one submission.
            helpers = sum(own_memory(process) for process in processes if process.pid in self._known)
            self._known = {process.pid for process in processes}
            self._looks.append((own_memory(), helpers))
        if done % PART == 0:
            say(f"{done} of {self._total}: {self.rate(done - PART, done):.3g} a second")

    def rate(self, begin: int, end: int) -> float:
        """Return the submissions a second between two of them."""
        return (end - begin) / (self._done[end] - self._done[begin])

    def rows(self) -> list[list[str]]:
        """One row for every whole hundred: the rate, and the median of its looks at the memory."""
        rows = []
        for end in range(PART, len(self._done), PART):
            looks = self._looks[(end - PART) // LOOK_EVERY : end // LOOK_EVERY]
            memory = [f"{statistics.median(sizes):.0f}" for sizes in zip(*looks, strict=True)]
            rows.append([str(end), f"{self.rate(end - PART, end):.3g}", *memory])
        return rows


def write_class(folder: Path, lab: Lab, count: int) -> dict[str, str]:
    """Write the submissions; return the kind of each student's."""
    kinds = {}
    for number in range(count):
        place = random.Random(f"{SEED} {number // PART}").sample(range(PART), PART)[number % PART]
        student = f"student{number:04}"
        kinds[student], source = _submission(lab, place, number)
        (folder / student).mkdir(parents=True)
        (folder / student / "exercise.py").write_text(f"{source}\n# {number}\n", encoding="utf-8")
    return kinds


def _submission(lab: Lab, place: int, number: int) -> tuple[str, str]:
    """One of each hundred: 7 hostile, 8 broken, 10 stubs, 40 mistakes, 35 right."""
    solution = lab.solution.read_text(encoding="utf-8")
    if place < len(HOSTILE):
        kind, (name, line) = list(HOSTILE.items())[place]
        before, head, after = solution.partition(f"def {name}(")
        signature, colon, body = after.partition(":\n")
        function = f"{head}{signature}{colon}    _hostile()\n{body}"
        return kind, f"{before}def _hostile():\n    {line}\n\n\n{function}"
    if place < 15:
        return "broken", BROKEN[place % len(BROKEN)]
    if place < 25:
        return "stub", lab.exercise.read_text(encoding="utf-8")
    if place < 65:
        mistake = lab.mistakes[(number // PART * 40 + place) % len(lab.mistakes)]
        return "mistake", solution.replace(mistake.find, mistake.replace)
    return "solution", solution


if __name__ == "__main__":
    start(main)
