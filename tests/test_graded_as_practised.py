"""A class's marks and a student's own `pytest` agree: the same file gets the same verdicts on both ways.

One compares in the student's process, the other outside of it, on values that crossed a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.course import Lab, load_course
from grader.implementations import apply_mistake
from grader.running import run_tests
from grader.worker import Examiner

ROOT = Path(__file__).resolve().parents[1]
LABS = load_course(ROOT).labs
LAB = load_course(ROOT).find_lab("02")
SEED = 5
EVERY = 17  # of a lab's mistakes, whose order is by step
MISTAKES = [(lab, mistake.id) for lab in LABS for mistake in lab.mistakes[::EVERY]]

Examined = tuple[Lab, Examiner]


@pytest.fixture(scope="module")
def examined(request: pytest.FixtureRequest) -> Iterator[Examined]:
    """A lab and its examiner; pytest runs all tests of one lab before the next one's is started."""
    with Examiner(request.param, SEED) as examiner:
        yield request.param, examiner


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(LAB, SEED) as examiner:
        yield examiner


@pytest.mark.parametrize(
    ("examined", "id"), MISTAKES, ids=[id for _, id in MISTAKES], indirect=["examined"], scope="module"
)
def test_a_mistake_gets_the_same_verdicts_and_name(examined: Examined, tmp_path: Path, id: str) -> None:
    lab, examiner = examined
    mistake = lab.mistake(id)
    path = tmp_path / "exercise.py"
    path.write_text(apply_mistake(lab.solution.read_text(encoding="utf-8"), mistake), encoding="utf-8")
    graded = examiner.judge(path.read_text(encoding="utf-8")).verdicts
    practised = run_tests(lab, path, SEED)
    assert [(one.test, one.verdict) for one in graded] == [(one.test, one.verdict) for one in practised]
    assert any(not one.passed for one in graded if lab.step_of(one.test).id == mistake.step)
    for ours, theirs in zip(graded, practised, strict=True):
        if ours.verdict == "wrong":
            assert ours.message.splitlines()[0] == theirs.message.splitlines()[0]


@pytest.mark.parametrize("examined", LABS, ids=[lab.number for lab in LABS], indirect=True, scope="module")
def test_the_solution_passes_and_the_stub_is_to_do_everywhere(examined: Examined) -> None:
    lab, examiner = examined
    for path, verdict in ((lab.solution, "pass"), (lab.exercise, "to do")):
        judgement = examiner.judge(path.read_text(encoding="utf-8"))
        assert {one.verdict for one in judgement.verdicts} == {verdict}
        assert judgement.message == ""


COMPARISON = """
import torch.nn.functional as F
x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
assert torch.allclose(cross_entropy(x, y), F.cross_entropy(x, y))
reference = torch.optim.AdamW([nn.Parameter(torch.ones(2))])
reference.step()
print("compared")
"""


def test_a_self_test_against_the_finished_thing_costs_nothing(examiner: Examiner) -> None:
    """It can't be called where it is graded: those lines are left out, and the message says so."""
    judgement = examiner.judge(LAB.solution.read_text(encoding="utf-8") + COMPARISON)
    assert all(verdict.passed for verdict in judgement.verdicts)
    assert judgement.message.startswith("left out: exercise.py line ")
    assert "compared" in judgement.output


FAILING = """
assert lr_wsd(0, 1.0, 0.1, 2, 10, 0.5) == 123
batch = torch.zeros(3, nothing=1)
for row in batch:
    print(row)
steps = cross_entropy(batch)
"""


def test_lines_that_fail_cost_nothing_on_both_ways(examiner: Examiner, tmp_path: Path) -> None:
    path = tmp_path / "exercise.py"
    path.write_text(LAB.solution.read_text(encoding="utf-8") + FAILING, encoding="utf-8")
    graded = examiner.judge(path.read_text(encoding="utf-8"))
    practised = run_tests(LAB, path, SEED)
    assert {verdict.verdict for verdict in (*graded.verdicts, *practised)} == {"pass"}
    assert graded.message.startswith("left out: exercise.py line ")
    assert graded.message.endswith("and 1 more")


def test_the_seed_of_the_class_is_not_in_a_submissions_process(tmp_path: Path) -> None:
    look = """
import gc, sys
seen = [one for one in gc.get_objects() if isinstance(one, (list, dict, tuple))]
frame, texts = sys._getframe(), []
while frame:
    texts += [repr(value)[:2000] for value in frame.f_locals.values() if isinstance(value, (int, str, dict))]
    frame = frame.f_back
print("MARK", any("987654321012" in text for text in texts))
"""
    with Examiner(LAB, 987654321012) as examiner:
        body = LAB.solution.read_text(encoding="utf-8").replace(
            "    if step >= total_steps:\n        return float(min_lr)",
            "    exec(LOOK)\n    if step >= total_steps:\n        return float(min_lr)",
            1,
        )
        judgement = examiner.judge(f"{body}\nLOOK = {look!r}\n")
    assert "MARK False" in judgement.output
    assert "MARK True" not in judgement.output


def test_known_mistakes_are_named_on_a_secret_seed(examiner: Examiner) -> None:
    source = LAB.solution.read_text(encoding="utf-8")
    chosen = LAB.mistakes[::50]
    named = 0
    for mistake in chosen:
        verdicts = examiner.judge(apply_mistake(source, mistake)).verdicts
        named += any(mistake.name in one.message for one in verdicts)
    assert named >= len(chosen) - 1  # a few share their wrong value with too many others
