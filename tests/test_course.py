"""The course's own files: read, validated, and wrong in one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import CourseError, find_root, load_course
from tests.tiny_course import LAB_TOML, make_course


def test_a_course_knows_its_labs_steps_and_points(tmp_path: Path) -> None:
    lab = make_course(tmp_path).labs[0]
    assert (lab.name, lab.number, lab.max_points) == ("01_tiny", "01", 5)
    assert lab.step_of("test_half[1.0]").id == "half"
    assert lab.find_step("2") == lab.find_step("half")


@pytest.mark.parametrize("text", ["1", "01", "01_tiny", "labs/01_tiny", "labs/01_tiny/"])
def test_a_lab_is_found_by_number_name_or_path(tmp_path: Path, text: str) -> None:
    assert make_course(tmp_path).find_lab(text).name == "01_tiny"


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    with pytest.raises(CourseError, match="there is no lab '7'; the labs are 01_tiny"):
        course.find_lab("7")
    with pytest.raises(CourseError, match=r"lab 01 has no step '9'; its steps are 1 \(double\), 2 \(half\)"):
        course.labs[0].find_step("9")
    with pytest.raises(CourseError, match="no mistake 'x'"):
        course.labs[0].mistake("x")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "Tiny"', "", "title: Field required"),
        ("points = 3", "points = -3", "steps.0.points"),
        ("points = 3", 'points = "many"', "steps.0.points"),
        ("points = 3", "points = 3\ntypo = 1", "steps.0.typo"),
        ("number = 2", "number = 3", "numbered 1, 2, 3"),
        ('id = "half"', 'id = "double"', "step id 'double' is listed twice"),
        ('tests = ["test_half"]', 'tests = ["test_double"]', "test 'test_double' is listed twice"),
        ('title = "Tiny"', 'title = "Tiny', "line 2"),
    ],
)
def test_a_wrong_manifest_is_one_line_that_names_the_field(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    make_course(tmp_path)
    manifest = tmp_path / "labs" / "01_tiny" / "lab.toml"
    manifest.write_text(LAB_TOML.replace(old, new, 1))
    with pytest.raises(CourseError, match=said) as caught:
        load_course(tmp_path)
    assert str(manifest) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_mistake_is_one_line(tmp_path: Path) -> None:
    make_course(tmp_path)
    path = tmp_path / "solutions" / "01_tiny" / "mistakes.toml"
    path.write_text('[[mistakes]]\nid = "m"\nstep = "double"\nname = "n"\n')
    with pytest.raises(CourseError, match=r"mistakes.toml: mistake 0.symptom: Field required"):
        load_course(tmp_path)
    path.write_text(
        '[[mistakes]]\nid="m"\nstep="typo"\nname="n"\nsymptom="s"\ncause="c"\nhint="h"\nfind="a"\nreplace="b"\n'
    )
    with pytest.raises(CourseError, match="'m' names the unknown step 'typo'"):
        load_course(tmp_path)


def test_a_folder_without_labs_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="holds no lab"):
        load_course(tmp_path)


def test_the_root_is_found_from_inside(tmp_path: Path) -> None:
    make_course(tmp_path)
    assert find_root(tmp_path / "labs" / "01_tiny") == tmp_path.resolve()
