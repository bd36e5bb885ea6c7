"""The benchmark's own material: the same assignment for every tool, and a class of every kind."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from bench import assignment
from bench.measure import ratios, spread
from bench.thousand import HOSTILE, write_class
from grader.course import find_root, load_course
from grader.running import run_tests


def passed(functions: list[str]) -> list[str]:
    """The checks that hold, run as plain statements."""
    names: dict[str, object] = {}
    exec(assignment.script(functions), names)
    held = []
    for name in assignment.CHECKS:
        try:
            exec(assignment.statements(name, ""), names)
        except AssertionError:
            continue
        held.append(name)
    return held


def test_every_check_holds_for_the_right_submission_and_one_fails_for_the_wrong_one() -> None:
    assert passed(assignment.RIGHT) == list(assignment.CHECKS)
    assert passed(assignment.WRONG) == list(assignment.CHECKS)[:-1]


def test_the_assignment_as_a_course_has_the_same_checks(tmp_path: Path) -> None:
    assignment.write_course(tmp_path)
    lab = load_course(tmp_path).find_lab("01")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(assignment.script(assignment.WRONG))
    for file, lost in ((lab.solution, []), (wrong, ["test_clipped"])):
        verdicts = run_tests(lab, file, seed=0)
        assert [verdict.test for verdict in verdicts] == [f"test_{name}" for name in assignment.CHECKS]
        assert [verdict.test for verdict in verdicts if not verdict.passed] == lost


def test_every_hundred_of_the_class_has_the_same_mixture(tmp_path: Path) -> None:
    lab = load_course(find_root()).find_lab("02")
    kinds = write_class(tmp_path, lab, 200)
    mixtures = [Counter(list(kinds.values())[begin : begin + 100]) for begin in (0, 100)]
    assert mixtures[0] == mixtures[1]
    sources = {student: (tmp_path / student / "exercise.py").read_text() for student in kinds}
    assert len(set(sources.values())) == 200
    for student, kind in kinds.items():
        if kind in HOSTILE:
            assert "    _hostile()\n" in sources[student]
        if kind != "broken":
            ast.parse(sources[student])


def test_a_ratio_is_taken_within_each_round() -> None:
    assert ratios([2.0, 40.0], [1.0, 10.0]) == [2.0, 4.0]
    assert spread([3.0, 1.0, 2000.0]) == "3 (1–2000)"
