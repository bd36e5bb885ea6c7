"""report.html: what it says of a class, and that it is one page that needs and runs nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from grader.marking import Result, StepMarks
from grader.reports import write_reports
from grader.reports.similar import Pair
from grader.reports.tallies import by_lab, percent
from grader.reports.text import visible
from grader.verdicts import Finding, Verdict
from tests.report_class import COURSE, EVIL, LAB, LOOKS_LATE, Page, make_result, write


def test_html_shows_evil_text_as_text(tmp_path: Path) -> None:
    evil = make_result(EVIL, "wrong pass wrong error", note=EVIL, message=EVIL, mistake=EVIL)
    evil = Result(**{**vars(evil), "tests": (*evil.tests, Verdict(f"test_2_a[{EVIL}]", "wrong", EVIL))})
    _, _, html = write(tmp_path, evil, make_result("caf\udce9"))
    page = Page(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "red", "link", "iframe", "base", "form"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert visible(EVIL) in page.text
    assert "{{ 7*7 }}" in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)


def test_html_loads_nothing(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada"), make_result("bob", lab="05_model"))
    for tag, attributes in Page(html).tags:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "students/")), tag
    assert "@import" not in html
    assert "url(" not in html
    assert "default-src 'none'" in html


def test_html_has_no_id_twice_and_only_links_that_lead_somewhere(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada"), make_result("ada", lab="05_model"))
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    inner = [str(link) for link in links if str(link).startswith("#")]
    assert inner == ["#lab-02", "#lab-05"]
    assert {link[1:] for link in inner} <= set(ids)


def test_html_tells_of_marks_mistakes_and_what_needs_a_look(tmp_path: Path) -> None:
    _, _, html = write(
        tmp_path,
        make_result("ada", seconds=0.25),
        make_result("bob", "pass pass wrong wrong", note=LOOKS_LATE, mistake="late"),
        make_result("cyd", "time-out missing missing missing", note="ran for 20 s", seconds=20),
        make_result("dan", "error error error error", message="exercise.py, line 3: invalid syntax"),
    )
    text = " ".join(Page(html).text.split())
    assert "4 students, 1 lab" in text
    assert "the class seed, 7" in text
    assert "Lab 02: The training core" in text
    assert "Mean 10 of 30" in text
    assert "Full marks 1 25 %" in text
    assert "To look at 2" in text
    assert "cyd time-out: 1 test; missing: 3 tests" in text
    assert "dan exercise.py, line 3: invalid syntax" in text
    assert "1 student decay after the step step 2, Part 2 Cause. The order is wrong." in text
    assert "Hint. Look at the order. bob" in text
    assert "2 of 4 tests passed · looks like: decay after the step" in text
    assert "Part 2 20 points, passed by 25 %" in text
    assert "cyd 20.0 s" in text


def test_html_charts_have_a_text_and_tables_have_headers(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada"), make_result("bob", "pass pass wrong wrong"))
    page = Page(html)
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert [chart["role"] for chart in charts] == ["img", "img"]
    assert charts[0]["aria-label"] == "Number of submissions by points. 9 to 12: 1, 27 to 30: 1."
    assert "step 1 Part 1 100 per cent, step 2 Part 2 50 per cent" in str(charts[1]["aria-label"])
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")


def test_html_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    results = [make_result("ada"), make_result("bob", "pass pass wrong wrong", mistake="late")]
    assert write(tmp_path / "a", *results) == write(tmp_path / "b", *results)


def test_html_shows_a_mistake_that_the_course_no_longer_knows_by_its_id(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada", "pass pass pass wrong", mistake="gone_mistake"))
    assert "looks like: gone_mistake" in Page(html).text


def test_html_bears_a_submission_without_any_verdict(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada", "", message="no exercise.py in the zip"))
    assert "No test was run." in Page(html).text


def test_reports_of_an_empty_class(tmp_path: Path) -> None:
    jsonl, table, html = write(tmp_path)
    assert jsonl == ""
    assert table == "\ufeffstudent,lab,points,max_points,message\r\n"
    assert "No submission was found" in Page(html).text


def test_reports_of_points_that_are_few_or_none(tmp_path: Path) -> None:
    for most in (0, 1, 3):
        steps = (StepMarks(1, "Part 1", most, most),)
        _, _, html = write(tmp_path, Result("ada", LAB.name, most, most, "", steps, (), 0.0))
        assert f"points of {most}" in Page(html).text


def test_most_frequent_mistake_comes_first_and_counts_students_not_tests() -> None:
    results = [
        make_result("ada", "wrong wrong wrong wrong", mistake="rare"),
        make_result("bob", "pass pass pass wrong", mistake="late"),
        make_result("cyd", "pass pass wrong wrong", mistake="late"),
    ]
    (tally,) = by_lab(COURSE, results)
    assert [(item.name, item.students) for item in tally.mistakes] == [
        ("decay after the step", ("bob", "cyd")),
        ("rare", ("ada",)),
    ]


def test_rate_of_a_test_counts_the_whole_class() -> None:
    (tally,) = by_lab(COURSE, [make_result("ada"), make_result("bob", "")])
    assert [test.percent for test in tally.steps[0].tests] == [50, 50]


def test_percent_says_all_and_none_only_of_all_and_none() -> None:
    assert [percent(part, 1000) for part in (0, 1, 500, 999, 1000)] == [0, 1, 50, 99, 100]


def test_verdicts_that_the_course_does_not_know_any_more_are_still_reported(tmp_path: Path) -> None:
    result = make_result("ada", "pass pass pass flabbergasted")
    old = (*result.tests, Verdict("test_of_old[1]", "wrong", "gone"))
    jsonl, _, page = write(tmp_path, replace(result, tests=old))
    assert "test_of_old[1]" in jsonl
    assert "Tests that the lab no longer has" in Page(page).text
    assert "flabbergasted" in Page(page).text


def test_html_lists_findings_with_the_command_that_decides_them(tmp_path: Path) -> None:
    found = [Finding(2, "import outside the list", 3, "import ctypes"), Finding(1, "whole", 0, "x")]
    words = Page(write(tmp_path, make_result("ada", findings=found))[2]).words
    assert "grader review lists them" in words
    assert "ada 2 import outside the list 3: import ctypes ada 1 whole x" in words


def test_html_drops_a_finding_that_is_decided(tmp_path: Path) -> None:
    decided = replace(make_result("ada"), findings=(Finding(2, "import outside the list", 3, "import x"),))
    assert "import outside the list" not in Page(write(tmp_path, decided)[2]).words


def test_html_shows_similar_pairs_layers_and_versions_if_it_is_given_them(tmp_path: Path) -> None:
    pairs = [Pair("ada", "bob", 1.0, True, "02"), Pair("bob", "cyd", 0.876, lab="02")]
    write_reports(
        [make_result("ada"), make_result("bob")], COURSE, tmp_path, 7,
        layers=("landlock 7", "limits"), versions={"torch": "2.13.0"}, pairs=pairs,
    )  # fmt: skip
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    assert "ada, bob 02 identical bob, cyd 02 87 %" in words
    assert "No mark depends on it." in words
    assert words.endswith("Layers of the jail: landlock 7, limits. Versions: torch 2.13.0.")
    bare = Page(write(tmp_path, make_result("ada"))[2]).words
    assert not re.search("Similar|Layers|Versions", bare)


def test_html_links_each_student_to_a_page_that_is_there(tmp_path: Path) -> None:
    html = write(tmp_path, make_result("ada"), make_result("Åsa Ö"))[2]
    links = {str(attributes["href"]) for tag, attributes in Page(html).tags if tag == "a"}
    assert len(links) == 2
    assert all((tmp_path / link).is_file() for link in links)
