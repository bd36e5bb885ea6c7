"""Compare graders on one small assignment: python -m bench.compare [ROUNDS]

In each round every grader grades the same correct submission once. Beforehand each must give a submission
with one wrong function all checks but one, so that only graders that judge are compared.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench import assignment
from bench.measure import Seconds, finish, ratios, round_robin, say, short, spread, start, table, timed
from bench.tools import TOOLS, Nbgrader, NbgraderClass, Ours, OursClass, Pytest, Tool

EACH, START = "this grader, a submission after start-up", "this grader, start-up of a run"
EACH_NOTEBOOK = "nbgrader, a submission after start-up"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tools = [tool for tool in (_ready(kind, Path(folder)) for kind in TOOLS) if tool is not None]
        actions = {tool.name: lambda tool=tool: timed(lambda: tool.grade(assignment.RIGHT)) for tool in tools}
        seconds = _by_submission(round_robin(actions, rounds))
    versions = {tool.name: tool.version() for tool in tools}
    versions |= {EACH: Ours.version(), START: Ours.version(), EACH_NOTEBOOK: Nbgrader.version()}
    rows = []
    for name, own in seconds.items():
        ours = short(statistics.median(ratios(own, seconds[EACH]))) if EACH in seconds else "–"
        rows.append([name, versions[name], spread(own), spread(ratios(own, seconds[Pytest.name])), ours])
    headers = ["", "version", "seconds", "times plain pytest", "times this grader"]
    count = len(seconds[Pytest.name])
    title = f"The same five checks on the same submission: medians of {count} rounds (smallest–largest)"
    finish("compare", title, table(headers, rows), {"seconds": seconds, "tools": versions})


def _ready(kind: type[Tool], folder: Path) -> Tool | None:
    """A tool that is there and judges; None, with one line, if it isn't or doesn't."""
    if not kind.version():
        print(f"{kind.name} is left out: {kind.distribution} is not installed")
        return None
    say(f"trying {kind.name}")
    tool = kind(folder)
    try:
        tool.prepare()
        passed = tool.grade(assignment.RIGHT), tool.grade(assignment.WRONG)
    except (RuntimeError, OSError) as error:
        print(f"{kind.name} is left out: {error}")
        return None
    if passed != (5, 4):
        print(f"{kind.name} is left out: of 5 checks it says {passed[0]} and {passed[1]} pass, not 5 and 4")
        return None
    return tool


def _by_submission(seconds: Seconds) -> Seconds:
    """Split the runs over a class into start-up and time a submission, round by round."""
    found = dict(seconds)
    for one, many, each in ((Nbgrader, NbgraderClass, EACH_NOTEBOOK), (Ours, OursClass, EACH)):
        whole, more = found.pop(many.name, []), many.students - one.students
        if whole and one.name in found:
            found[each] = [(a - b) / more for a, b in zip(whole, found[one.name], strict=True)]
    if EACH in found:
        found[START] = [one - each for one, each in zip(found[Ours.name], found[EACH], strict=True)]
    return found


if __name__ == "__main__":
    start(main)
