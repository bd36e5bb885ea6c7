"""A student's own page, and the file for Gradescope: what they tell, and what they never do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from grader.marking import Result
from grader.reports import write_reports
from grader.reports.gradescope import results_json
from grader.reports.student import html_page, markdown_page, student_pages
from grader.reports.tallies import by_lab
from grader.verdicts import Finding, Verdict
from tests.report_class import COURSE, Page, make_result

SEED = 8675309
MESSAGE = (
    "AdamW: first differs at step 1 of 25, in the update of parameter 0\n"
    "  largest error 2.5e-04 at [2, 1] (allowed 5.1e-12): got -0.0403404, expected -0.0405904\n"
    "  in the test, line 540: hidden_input(31)\n"
    "  looks like: decay after the step\n"
    "  → README section 2"
)
SECRETS = ("0.0403404", "0.0405904", "2.5e-04", "[2, 1]", "hidden_input", "540")


def pages(*results: Result) -> tuple[str, str, dict[str, Any]]:
    """The first student's page as HTML and as Markdown, and the object for Gradescope in lab 02."""
    labs = student_pages(by_lab(COURSE, results))[results[0].student]
    html, markdown = html_page(results[0].student, labs), markdown_page(results[0].student, labs)
    return html.decode("utf-8"), markdown.decode("utf-8"), json.loads(results_json(labs[0]))


def text_of(markdown: str) -> str:
    """What a reader of the Markdown sees, as one line."""
    inline = [token for token in MarkdownIt("commonmark").parse(markdown) if token.type == "inline"]
    words = " ".join(child.content for token in inline for child in token.children or ())
    return " ".join(words.split())


def test_a_page_tells_what_failed_the_mistake_the_section_and_the_first_hint() -> None:
    html, markdown, _ = pages(make_result("ada", "pass pass pass wrong", note=MESSAGE))
    for words in (Page(html).words, text_of(markdown)):
        assert "10 of 30 points" in words
        assert "decay after the step" in words
        assert (
            "AdamW: first differs at step 1 of 25, in the update of parameter 0: the values differ" in words
        )
        assert "nudge 2" in words
        assert "nudge 1" not in words
        assert "push" not in words
    assert "Read. Section 2 of labs/02_training_core/README.md" in Page(html).words
    assert "Read section 2 of" in text_of(markdown)


@pytest.mark.parametrize("kind", ["wrong", "error", "time-out", "crashed", "to_do", "forbidden_call"])
def test_nothing_for_students_has_a_value(kind: str) -> None:
    html, markdown, gradescope = pages(make_result("ada", f"pass pass {kind} wrong", note=MESSAGE))
    for text in (html, markdown, json.dumps(gradescope)):
        assert [secret for secret in SECRETS if secret in text] == []


def test_only_the_class_report_has_the_seed(tmp_path: Path) -> None:
    write_reports([make_result("ada", "wrong", note=MESSAGE)], COURSE, tmp_path, SEED)
    having = [path.name for path in tmp_path.rglob("*.*") if path.is_file() and str(SEED) in path.read_text()]
    assert having == ["report.html"]


def test_nothing_for_students_tells_of_another_student() -> None:
    html, markdown, gradescope = pages(make_result("ada"), make_result("bob", "wrong", note="bob"))
    assert "bob" not in html + markdown + json.dumps(gradescope)


def test_a_page_has_a_part_for_each_lab() -> None:
    html, markdown, _ = pages(make_result("ada"), make_result("ada", "wrong", lab="05_model"))
    for words in (Page(html).words, text_of(markdown)):
        assert "Lab 02: The training core" in words
        assert "Lab 05: A <small> model" in words


def test_a_finding_is_told_without_blame() -> None:
    found = Finding(2, "import outside the list", 3, "import ctypes")
    html, markdown, gradescope = pages(make_result("ada", findings=[found]))
    for words in (Page(html).words, text_of(markdown)):
        assert "A person looks at it before it is marked, and it counts 0 until then" in words
        assert "Line 3" in words
        assert "import ctypes" in words
        assert "nudge" not in words
    assert gradescope["tests"][1]["score"] == 0
    assert "a person looks at it" in gradescope["tests"][1]["output"]


def test_a_file_that_cannot_be_loaded_is_told_once_and_without_hints() -> None:
    line = "exercise.py line 3: invalid syntax: x = = 2"
    result = make_result("ada", "error error error error", message=line, note=line)
    html, markdown, _ = pages(result)
    for words in (Page(html).words, text_of(markdown)):
        assert words.count("invalid syntax") == 1
        assert "nudge" not in words


def test_a_page_bears_a_step_that_the_lab_no_longer_has() -> None:
    result = make_result("ada", "wrong wrong")
    gone = replace(result, steps=(replace(result.steps[0], step=9, title="Gone"), result.steps[1]))
    assert "9 Gone" in Page(pages(gone)[0]).words


def test_gradescope_has_a_test_a_step_and_a_score_that_counts_as_a_whole() -> None:
    late = replace(make_result("ada", "pass pass pass wrong", note=MESSAGE), points=7.5)
    _, _, gradescope = pages(late)
    assert gradescope["score"] == 7.5
    assert gradescope["visibility"] == "after_published"
    assert gradescope["stdout_visibility"] == "hidden"
    assert [
        (test["number"], test["name"], test["score"], test["max_score"], test["status"])
        for test in gradescope["tests"]
    ] == [("1", "Part 1", 10, 10, "passed"), ("2", "Part 2", 0, 20, "failed")]
    assert "looks like: decay after the step" in gradescope["tests"][1]["output"]


def test_tests_of_which_the_same_is_said_are_named_together() -> None:
    result = make_result(
        "ada", "pass pass wrong wrong", note="x: not the expected value\n  got 1, expected 2"
    )
    more = replace(
        result, tests=(*result.tests, Verdict("test_2_b[7]", "wrong", "x: not the expected value\n  got 3"))
    )
    html, _, _ = pages(more)
    assert "test_2_a, test_2_b ×2 x: the values differ" in Page(html).words
