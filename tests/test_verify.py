"""`grader verify` fails on everything that could rot: one broken lab for each rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.authoring.generate import generate_lab, generate_sketches, write_files
from grader.authoring.kill_table import kill_page, kill_rows
from grader.authoring.pages import Measurements
from grader.authoring.verify import Verification, verify_curriculum, verify_lab
from grader.course import Course, CourseError, load_course
from tests.tiny_course import LAB_TOML, SOLUTION, TESTS, make_course

MISTAKES = """
[[mistakes]]
id = "plus_one"
source = "seen"
step = "double"
name = "one added instead of doubling"
symptom = "a | b"
cause = "c"
hint = "h"
find = "x + x"
replace = "x + 1"

[[mistakes]]
id = "quartered"
step = "half"
name = "quartered"
symptom = "s"
cause = "c"
hint = "h"
find = "x / 2"
replace = "x / 4"
"""
PAGE = """# Tiny

<!-- generated: steps -->
<!-- /generated -->

<!-- generated: mistakes -->
<!-- /generated -->

One half is <!--m:half-->?<!--/m-->.
"""
MEASURE = "def measure():\n    return {'half': '0.5'}\n"

Edit = Callable[[str, str, str], None]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """`edit(file, old, new)` in a sound lab; returns nothing."""

    def replace(file: str, old: str, new: str) -> None:
        path = tmp_path / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) >= 1
        path.write_text(text.replace(old, new), encoding="utf-8")

    return replace


@pytest.fixture(autouse=True)
def sound_lab(tmp_path: Path) -> None:
    make_course(tmp_path)
    (tmp_path / "solutions" / "01_tiny" / "mistakes.toml").write_text(MISTAKES)
    (tmp_path / "solutions" / "01_tiny" / "measure.py").write_text(MEASURE)
    (tmp_path / "labs" / "01_tiny" / "README.md").write_text(PAGE)
    generate(tmp_path)


def generate(root: Path) -> list[Path]:
    course = load_course(root)
    lab = course.labs[0]
    files = generate_lab(lab, Measurements(course))
    files[lab.sketches] = generate_sketches(lab)
    return write_files(lab, files)


def verify(root: Path) -> Verification:
    course: Course = load_course(root)
    return verify_lab(course.labs[0], Measurements(course))


def test_a_sound_lab_has_no_problems(tmp_path: Path) -> None:
    found = verify(tmp_path)
    assert found.problems == []
    assert [(row.id, row.step, row.named) for row in kill_rows(found)] == [
        ("plus_one", 1, True),
        ("quartered", 2, True),
    ]


def test_generating_twice_changes_nothing(tmp_path: Path) -> None:
    assert generate(tmp_path) == []


def test_the_page_is_filled(tmp_path: Path) -> None:
    page = (tmp_path / "labs" / "01_tiny" / "README.md").read_text(encoding="utf-8")
    assert "| 1. Doubling | `double` | `test_double`, `test_double_of_zero` | 3 |" in page
    assert "| a \\| b | c | h |" in page
    assert "One half is <!--m:half-->0.5<!--/m-->." in page


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("labs/01_tiny/exercise.py", "double", "twice", "exercise.py is stale"),
        ("labs/01_tiny/README.md", "0.5", "0.6", "README.md is stale (line"),
        ("labs/01_tiny/README.md", "| 1. Doubling", "| 1. Tripling", "README.md is stale (line"),
        ("labs/01_tiny/README.md", "m:half", "m:third", "no measuring script has the number 'third'"),
        ("labs/01_tiny/README.md", "generated: steps", "generated: stops", "unknown generated part 'stops'"),
        ("labs/01_tiny/sketches.json", "float", "flout", "sketches.json is stale"),
        ("labs/01_tiny/sketches.json", "{", "", "sketches.json is stale"),
        ("labs/01_tiny/lab.toml", 'hints = ["a", "b", "c"]', 'hints = ["a", "b"]', "step 1 needs 3 hints"),
        ("labs/01_tiny/lab.toml", '"test_double", ', "", "test_double is in no step"),
        ("labs/01_tiny/lab.toml", '"test_half"', '"test_half", "test_gone"', "test_gone is no test"),
        (
            "labs/01_tiny/test_tiny.py",
            "def test_double_of_zero(lab):",
            "def test_double_of_zero(lab):\n    assert lab",
            "bare assert",
        ),
        (
            "solutions/01_tiny/solution.py",
            "x / 2",
            "x / 2 if x > 1 else 0.4",
            "the solution fails test_half[1.0]",
        ),
        ("solutions/01_tiny/mistakes.toml", 'find = "x / 2"', 'find = "x / 3"', "occurs 0 times"),
        (
            "solutions/01_tiny/mistakes.toml",
            'replace = "x / 4"',
            'replace = "x  /  2"',
            "its edit changes nothing",
        ),
        ("solutions/01_tiny/mistakes.toml", 'replace = "x / 4"', 'replace = "x / "', "not valid Python"),
        (
            "solutions/01_tiny/mistakes.toml",
            'replace = "x / 4"',
            'replace = "x * 0.5"',
            "'quartered' survives",
        ),
        ("solutions/01_tiny/mistakes.toml", 'step = "half"', 'step = "double"', "'quartered' survives"),
    ],
)
def test_each_kind_of_rot_is_a_problem(
    tmp_path: Path, edit: Edit, file: str, old: str, new: str, said: str
) -> None:
    edit(file, old, new)
    problems = verify(tmp_path).problems
    assert any(said in problem for problem in problems), problems


def with_tests(root: Path, tests: str) -> list[str]:
    """The problems of the lab with another test file; its name changes so that pytest imports it anew."""
    (root / "labs" / "01_tiny" / "test_tiny.py").unlink()
    (root / "labs" / "01_tiny" / "test_other.py").write_text(tests)
    manifest = root / "labs" / "01_tiny" / "lab.toml"
    manifest.write_text(LAB_TOML.replace("test_tiny.py", "test_other.py"))
    return verify(root).problems


def test_a_test_that_passes_on_the_stub_is_a_problem(tmp_path: Path) -> None:
    problems = with_tests(tmp_path, TESTS.replace("lab.double(0.0)", "0.0"))
    assert "test_double_of_zero says 'pass' of the stub, not 'to do'" in problems


def test_a_tolerance_too_tight_for_the_solution_is_a_problem(tmp_path: Path) -> None:
    noisy = TESTS.replace(
        "lab.double(x), lambda: 2 * x, atol=0", "lab.double(x) + 5e-10, lambda: 2 * x, atol=1e-9"
    )
    assert any("in 'double' the solution uses 50% of the tolerance" in p for p in with_tests(tmp_path, noisy))


def test_a_tolerance_too_loose_for_a_mistake_is_a_problem(tmp_path: Path) -> None:
    loose = TESTS.replace("lambda: x / 2, atol=0, rtol=0", "lambda: x / 2, atol=0, rtol=0.1")
    assert "mistake 'quartered' fails by 5 times the tolerance only, not by 10" in with_tests(tmp_path, loose)


CIRCULAR = """
import pytest
from grader.checks import assert_matches


def test_double(lab):
    assert_matches(lab.double(3.0), lambda: lab.double(4.0) - 2, atol=0, rtol=0, what="double")
    assert_matches(lab.double(5.0), lambda: 10.0, atol=0, rtol=0, what="double")


def test_double_of_zero(lab):
    assert_matches(lab.double(0.0), lambda: 0.0, atol=0, rtol=0, what="double of zero")


@pytest.mark.parametrize("x", [1.0, 3.0])
def test_half(lab, x):
    assert_matches(lab.half(x), lambda: x / 2, atol=0, rtol=0, what="half")
"""


def test_an_expected_value_that_depends_on_the_student_is_a_problem(tmp_path: Path) -> None:
    problems = with_tests(tmp_path, CIRCULAR)
    assert "test_double: an expected value depends on the code under test (mistake 'plus_one')" in problems


def test_a_written_exercise_is_never_overwritten(tmp_path: Path) -> None:
    lab = load_course(tmp_path).labs[0]
    lab.exercise.write_text(SOLUTION)
    with pytest.raises(CourseError, match="holds somebody's work"):
        generate(tmp_path)
    assert lab.exercise.read_text() == SOLUTION


def test_a_stale_chapter_is_a_problem(tmp_path: Path) -> None:
    chapters = tmp_path / "curriculum"
    chapters.mkdir()
    (chapters / "measure.py").write_text("def measure():\n    return {'own': '7'}\n")
    (chapters / "01_x.md").write_text("<!--m:own-->7<!--/m--> <!--m:01.half-->0.5<!--/m-->\n")
    course = load_course(tmp_path)
    assert verify_curriculum(course, Measurements(course)) == []
    (chapters / "01_x.md").write_text("<!--m:own-->8<!--/m--> <!--m:01.half-->0.5<!--/m-->\n")
    assert "01_x.md is stale" in verify_curriculum(course, Measurements(course))[0]


def test_the_kill_page_lists_every_mistake_and_escapes(tmp_path: Path, edit: Edit) -> None:
    edit("solutions/01_tiny/mistakes.toml", 'name = "quartered"', 'name = "<b>quartered</b>"')
    page = kill_page([verify(tmp_path)])
    assert "2 mistakes, 2 rejected" in page
    assert "&lt;b&gt;quartered&lt;/b&gt;" in page
    assert "<code>test_half[1.0]</code>" in page
