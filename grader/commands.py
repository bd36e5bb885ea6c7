"""Commands that a message asks somebody to run: whole, so that they can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

from grader.course import Lab


def command_line(name: str, path: Path, out: Path, lab: Lab | None = None, roster: Path | None = None) -> str:
    """Return `grader NAME …` for a class, with the options that decide what is found in it."""
    words = ["grader", name, str(path), "--out", str(out)]
    words += ["--lab", lab.number] if lab is not None else []
    words += ["--roster", str(roster)] if roster is not None else []
    return shlex.join(words)
