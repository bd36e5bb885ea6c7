"""Attacks and accidents: what the real grader makes of each hand-in, and what is left of it afterwards.

The cases are data, in `tests/attacks/`; `tests/attacks/table.toml` tells each in words.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader import policy
from grader.course import load_course
from grader.intake import find_submissions
from grader.marking import Result, mark
from grader.verdicts import GRADER_ERROR
from grader.worker import Examiner, Judgement, Limits
from tests.attacks import processes, resources, tamper
from tests.attacks.case import ALL, LAB, LEFT, REACHED, RIGHT, ROOT, Case
from tests.attacks.cases import CASES
from tests.attacks.page import PAGE, page

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="attacks are run in the jail, which needs Linux"
)

SEED = 7
# What hangs does so up to six times: three tests, each once more before it counts.
LIMITS = Limits(test_seconds=0.7, import_seconds=2, total_seconds=20, cpu_seconds=0.2, cpu_factor=30)
OUTPUT_CHARS = 80 * 1024  # the most of a submission's own text that is kept
PATIENCE = 3.0  # seconds that what was killed may take to go


@dataclass(frozen=True)
class World:
    """The examiner of all cases, and the places where a submission would leave something."""

    examiner: Examiner
    home: Path
    processes: set[int]  # that belong to the examiner

    def strays(self) -> set[int]:
        """Processes that began below this one and are not the examiner's two."""
        return {pid for pid in _processes_of(self.home) if pid not in self.processes}

    def refresh(self) -> None:
        """Take a server that was started anew for the examiner's own."""
        self.processes.update(
            pid for pid in self.strays() if b"grader." in Path(f"/proc/{pid}/cmdline").read_bytes()
        )


def _processes_of(home: Path) -> set[int]:
    """Every process whose environment names this home."""
    mark_of_ours = f"HOME={home}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark_of_ours in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found - {os.getpid()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        with Examiner(LAB, SEED, LIMITS) as examiner:
            kinds = {layer.partition(" ")[0] for layer in examiner.layers}
            if not {"landlock", "seccomp"} <= kinds:
                pytest.skip(f"this kernel has no jail to attack (only {', '.join(sorted(kinds))})")
            yield World(examiner, home, _processes_of(home))


@dataclass(frozen=True)
class Outcome:
    """What came of a hand-in."""

    result: Result
    judgement: Judgement
    notes: str  # of the intake

    def said(self) -> str:
        """All that is told about it, but for the lines that findings quote."""
        told = [self.notes, self.result.message, self.judgement.message]
        return "\n".join([*told, *(verdict.message for verdict in self.judgement.verdicts)])


def judged(case: Case, world: World, folder: Path) -> Outcome:
    source, notes = case.source, ""
    if case.files is not None:
        for student in ("anna", "ben"):
            (folder / student).mkdir(parents=True)
        (folder / "ben" / "exercise.py").write_text(RIGHT, encoding="utf-8")
        case.files(folder / "anna")
        submissions = find_submissions(folder, load_course(ROOT), LAB).submissions
        (submission,) = (one for one in submissions if one.student == "anna")
        notes = submission.message
        if submission.source is None or submission.withheld:
            judgement = Judgement((), notes)
            return Outcome(mark("anna", LAB, (), notes, withheld=submission.withheld), judgement, notes)
        source = submission.source
    found = policy.findings(source, LAB)
    judgement = world.examiner.judge(source, apart={finding.step for finding in found})
    return Outcome(mark("anna", LAB, judgement.verdicts, judgement.message, findings=found), judgement, notes)


DISTURBING = [*tamper.CASES, *processes.CASES, *resources.CASES]
HERE = [case for case in CASES if not case.elsewhere]


@pytest.mark.parametrize("case", HERE, ids=[case.id for case in HERE])
def test_a_case_ends_as_it_should_and_leaves_nothing(case: Case, world: World, tmp_path: Path) -> None:
    before = _surroundings(world)
    outcome = judged(case, world, tmp_path / "class")

    steps = {step.step: step.points for step in outcome.result.steps}
    earned = {step for step, points in steps.items() if points}
    if case.earned is not None:
        assert earned == case.earned, outcome.said()[:3000]
    # The first line of defence held by itself: policy, which withholds, is only the second.
    wrong = ALL - (case.earned if case.earned is not None else ALL) if case.failed is None else case.failed
    assert wrong <= _failed_steps(outcome.judgement)
    assert case.withheld <= {step for step, points in steps.items() if points is None}
    for pattern in case.said:
        told = outcome.said() + "".join(f"\n{f.rule}: {f.text}" for f in outcome.result.findings)
        assert re.search(pattern, told), f"nothing says {pattern!r}:\n{told[:3000]}"
    assert not [text for text in case.unsaid if text in outcome.said()]
    assert all(character.isprintable() for character in outcome.said().replace("\n", ""))
    assert REACHED not in outcome.judgement.output, outcome.judgement.output[:2000]
    assert len(outcome.judgement.output) <= OUTPUT_CHARS
    assert outcome.judgement.seconds < LIMITS.total_seconds + 10
    assert GRADER_ERROR not in _kinds(outcome.judgement)
    if case.repeatable:
        again = world.examiner.judge(case.source)
        assert _kinds(again) == _kinds(outcome.judgement)

    _wait_until(lambda: not _strays_now(world))
    assert _surroundings(world) == before
    if case in DISTURBING:
        neighbour = world.examiner.judge(RIGHT)
        assert all(verdict.passed for verdict in neighbour.verdicts), neighbour.message


@pytest.mark.parametrize("turn", range(3))
def test_a_neighbour_judged_after_all_of_them_has_full_marks(world: World, turn: int) -> None:
    judgement = world.examiner.judge(RIGHT)
    assert all(verdict.passed for verdict in judgement.verdicts), judgement.message
    assert len(_processes_of(world.home)) <= 2


def _failed_steps(judgement: Judgement) -> set[int]:
    """The steps whose tests did not all pass."""
    if not judgement.verdicts:
        return set(ALL)
    return {LAB.step_of(verdict.test).number for verdict in judgement.verdicts if not verdict.passed}


def _kinds(judgement: Judgement) -> list[str]:
    return [verdict.verdict for verdict in judgement.verdicts]


def _strays_now(world: World) -> set[int]:
    world.refresh()
    return world.strays()


def _surroundings(world: World) -> list[str]:
    """Where a submission might leave a mark: names and sizes, and what the kernel would keep for it."""
    packages = Path(sysconfig.get_path("purelib"))
    seen = [f"{path} {path.stat().st_size}" for path in sorted(_course_files())]
    for place in ("/tmp", "/dev/shm", "/dev/mqueue", "/var/tmp", os.getcwd(), world.home, ROOT, packages):
        seen += [f"{place}: {name}" for name in _names(Path(place)) if name.startswith(LEFT)]
    seen += [f"home: {name}" for name in _names(world.home)]
    seen += [f"packages: {name}" for name in _names(packages) if name.endswith(".pth")]
    for kind in ("shm", "sem", "msg"):
        table = Path("/proc/sysvipc", kind)
        seen += (
            [line for line in table.read_text().splitlines()[1:] if str(0x1EF7) in line]
            if table.exists()
            else []
        )
    return seen


def _course_files() -> Iterator[Path]:
    for folder in ("labs", "solutions"):
        yield from (path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "a process of the submission is left"
        time.sleep(0.02)


# --- the table -------------------------------------------------------------------------------------------


def test_the_page_on_attacks_says_what_these_tests_hold_every_case_to() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.attacks.page"


def test_every_case_is_in_the_table_and_every_row_has_a_case() -> None:
    table = tomllib.loads((ROOT / "tests" / "attacks" / "table.toml").read_text(encoding="utf-8"))
    assert [row["id"] for row in table["cases"]] == sorted(case.id for case in CASES)
    assert all(row["tries"] and row["happens"] for row in table["cases"])


@pytest.mark.parametrize("case", [case for case in CASES if case.elsewhere], ids=lambda case: case.id)
def test_a_case_that_is_shown_elsewhere_names_a_test_that_is_there(case: Case) -> None:
    path, _, name = case.elsewhere.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
