"""Hints of a step, one level at a time; which were seen is kept in a file of the course's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from grader.course import CourseError, Lab, Step
from grader.files import write_atomically


@dataclass(frozen=True)
class Hint:
    """One level of a step's hints."""

    level: int
    levels: int
    text: str


class HintLog:
    """How many hints of each step have been shown: `.grader/hints.json`."""

    def __init__(self, root: Path):
        self.path = root / ".grader" / "hints.json"

    def seen(self) -> dict[str, int]:
        """Step ("02_training_core/adamw") → levels shown so far; empty if the file is gone or damaged."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(step): int(level) for step, level in data.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def next_hint(self, lab: Lab, step: Step, level: int | None = None) -> Hint:
        """The next level that has not been shown (the last one again after that), or the given one."""
        seen = self.seen()
        key = f"{lab.name}/{step.id}"
        if level is None:
            level = min(seen.get(key, 0) + 1, len(step.hints))
        if not 1 <= level <= len(step.hints):
            raise CourseError(f"step {step.number} has hints of level 1 to {len(step.hints)}, not {level}")
        self.path.parent.mkdir(exist_ok=True)
        counts = {**seen, key: max(level, seen.get(key, 0))}
        write_atomically(self.path, (json.dumps(counts, indent=1, sort_keys=True) + "\n").encode())
        return Hint(level, len(step.hints), step.hints[level - 1])
