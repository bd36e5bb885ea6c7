"""The copy of a test file that a submission's process gets: same tests, same inputs, no answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from grader import testfile
from grader.checks import recording, sending
from grader.course import CourseError, load_course
from grader.oracle import Oracle
from grader.running import collect_tests
from grader.testfile import Planned
from tests.tiny_course import PLAN, make_course

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''
"""A docstring."""
import pytest
import torch
from grader.checks import assert_holds, assert_matches

def helper(x):
    """Needed on both sides."""
    return x + 1

def answer(x):
    return 42 * x

class Probe:
    def used(self):
        return 1

    def oracle(self):
        return 43

@pytest.mark.parametrize("b", [10, 20])
@pytest.mark.parametrize(("a", "c"), [(1, 2), pytest.param(3, 4, id="x")])
def test_it(lab, rng, a, b, c):
    x = torch.rand(2, generator=rng, dtype=torch.float64)
    probe = Probe()
    assert_matches(lab.f(helper(x), a * b + c), lambda: answer(helper(x)), atol=0, rtol=0, what="it")
    assert_holds((lambda: probe.used() == 1)(), what="used")
    assert_matches(lab.g(), lambda: probe.oracle(), atol=0, rtol=0, what="that")
'''
LAB = SimpleNamespace(f=lambda x, n: 42 * x, g=lambda: 43)


def redacted() -> str:
    used: set[int] = set()
    with recording() as log:
        namespace = testfile.marked(SOURCE, Path("t.py"), lambda n: None if log.evaluating else used.add(n))
        testfile.call(namespace, Planned("test_it[1-2-10]", "test_it", 0), LAB, 3)  # type: ignore[arg-type]
    return testfile.without_answers(SOURCE, used)


def sent(source: str) -> list[object]:
    values: list[object] = []
    namespace = testfile.run_source(source, Path("t.py"))
    with sending(values.append):
        testfile.call(namespace, Planned("test_it[1-2-10]", "test_it", 0), LAB, 3)  # type: ignore[arg-type]
    return values


def test_answers_are_gone_and_what_tests_need_is_there() -> None:
    text = redacted()
    assert "42" not in text
    assert "43" not in text
    assert "return x + 1" in text
    assert "probe.used() == 1" in text


def test_the_copy_sends_the_same_values() -> None:
    before, after = sent(SOURCE), sent(redacted())
    assert isinstance(before[0], torch.Tensor)
    assert isinstance(after[0], torch.Tensor)
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:] == [True, 43]


def test_parameters_are_counted_as_pytest_counts_them(tmp_path: Path) -> None:
    """In lab 02, whose tests stack decorators, and in the tiny course."""
    for course in (load_course(ROOT), make_course(tmp_path)):
        lab = course.labs[0]
        oracle = Oracle(lab)
        assert [test.name for test in oracle.plan] == collect_tests(lab)
        namespace = oracle._namespace
        for test in oracle.plan:
            inside = test.name.partition("[")[2].removesuffix("]").split("-")
            for name, value in testfile._parameters(namespace[test.function], test.place).items():
                if name in ("reduction", "smoothing", "x"):  # those whose ids are their values
                    assert str(value) in inside


def test_a_test_with_another_fixture_is_refused(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    lab.tests_path.write_text(
        lab.tests_path.read_text().replace("test_double_of_zero(lab)", "test_double_of_zero(lab, tmp_path)")
    )
    with pytest.raises(CourseError, match="test_double_of_zero takes 'tmp_path'"):
        Oracle(lab)


def test_a_test_without_a_check_is_refused(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    lab.tests_path.write_text(
        lab.tests_path.read_text() + "\n\ndef test_nothing(lab):\n    lab.double(1.0)\n"
    )
    manifest = lab.folder / "lab.toml"
    manifest.write_text(manifest.read_text().replace('"test_half"', '"test_half", "test_nothing"'))
    lab = load_course(tmp_path).labs[0]
    with pytest.raises(CourseError, match="test_nothing makes no check"):
        Oracle(lab).wanted(0)


def test_the_tiny_course_is_planned(tmp_path: Path) -> None:
    assert [test.name for test in Oracle(make_course(tmp_path).labs[0]).plan] == PLAN


def test_a_module_is_handed_to_the_test() -> None:
    module = ModuleType("m")
    module.__dict__.update(f=lambda x, n: n, g=lambda: 43)
    values: list[object] = []
    with sending(values.append):
        testfile.call(testfile.run_source(SOURCE, Path("t.py")), Planned("x", "test_it", 3), module, 3)
    assert values[0] == 3 * 20 + 4
