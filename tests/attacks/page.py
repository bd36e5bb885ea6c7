"""The page on what happens to each attack, from the table and from what the tests hold every case to.

Write it anew: python -m tests.attacks.page
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.attacks.case import ALL, ROOT, Case
from tests.attacks.cases import CASES

PAGE = ROOT / "grader" / "ATTACKS.md"
TABLE = Path(__file__).with_name("table.toml")
KINDS = {
    "exit": "Ending the process, or the test",
    "tamper": "Tampering with the comparison",
    "forge": "Forging results",
    "steal": "Stealing answers",
    "ship": "Shipping files",
    "proc": "Processes and signals",
    "res": "Resources",
    "zip": "Archives",
    "net": "Network",
    "rule": "Finished operators and sources",
    "fit": "Answers that fit the tests only",
    "name": "Honest: names and places",
    "dup": "Honest: several hand-ins",
    "code": "Honest: code",
    "ops": "Operations",
    "own": "More, invented here",
}
COLUMNS = "| case | what it tries | what happens | gets points | waits |\n|---|---|---|---|---|\n"
HEAD = """# What happens to each attack, and to each accident

<!-- written by: python -m tests.attacks.page -->

{count} hand-ins for lab 02, each a few lines, judged by the real grader in `tests/test_attacks.py`.
An attack carries wrong code that should earn nothing.
An accident carries right code that should lose nothing, or only what the table says.
*Gets points* names the steps that earn theirs.
*Waits* names those that are withheld until a person has looked; they count 0 until then.
After each, the tests also look for processes, files and changed neighbours that it may have left.
"""


def page() -> str:
    """The page's text."""
    rows = {row["id"]: row for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["cases"]}
    cases = {case.id: case for case in CASES}
    parts = [HEAD.format(count=len(cases))]
    for kind, title in KINDS.items():
        ids = sorted(id for id in cases if id.partition("-")[0] == kind)
        parts.append(f"\n## {title}\n\n{COLUMNS}")
        parts += [_row(cases[id], rows[id]["tries"], rows[id]["happens"]) for id in ids]
    assert {id.partition("-")[0] for id in cases} <= set(KINDS)
    return "".join(parts)


def _row(case: Case, tries: str, happens: str) -> str:
    cells = [f"`{case.id}`", tries, happens, _earned(case), _steps(case.withheld)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _earned(case: Case) -> str:
    if case.elsewhere:
        return f"see `{case.elsewhere.rpartition('::')[2]}`"
    return "any that are right" if case.earned is None else _steps(case.earned)


def _steps(steps: Iterable[int]) -> str:
    found = sorted(steps)
    return "all steps" if set(found) == set(ALL) else ", ".join(map(str, found)) or "none"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
