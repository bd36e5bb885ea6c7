"""junit.xml: a suite a student and lab, for build servers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from grader.marking import Result
from grader.reports.junit import junit
from grader.reports.tallies import by_lab
from tests.report_class import COURSE, make_result


def suites(*results: Result) -> list[ET.Element]:
    root = ET.fromstring(junit(by_lab(COURSE, results)))
    assert root.tag == "testsuites"
    return list(root)


def test_each_verdict_becomes_the_element_of_its_kind() -> None:
    (suite,) = suites(make_result("ada", "pass wrong time-out missing", note="first\nsecond"))
    counts = {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped")}
    assert counts == {
        "name": "ada / 02_training_core", "tests": "4", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    cases = [(case.get("classname"), case.get("name"), [child.tag for child in case]) for case in suite]
    assert cases == [
        ("02_training_core.step_1", "test_1_a", []),
        ("02_training_core.step_1", "test_1_b[x]", ["failure"]),
        ("02_training_core.step_2", "test_2_a", ["error"]),
        ("02_training_core.step_2", "test_2_b", ["skipped"]),
    ]
    failure = suite[1][0]
    assert (failure.get("type"), failure.get("message"), failure.text) == ("wrong", "first", "first\nsecond")


def test_the_message_about_a_hand_in_is_there_even_without_a_test() -> None:
    (suite,) = suites(make_result("ada", "", message="no exercise.py"))
    assert suite.findtext("system-out") == "no exercise.py"


def test_no_test_that_is_not_passed_looks_passed() -> None:
    kinds = (
        "wrong",
        "error",
        "to_do",
        "time-out",
        "memory",
        "crashed",
        "forbidden_call",
        "missing",
        "grader_error",
    )
    for suite in suites(*(make_result(kind, f"{kind} new_word") for kind in kinds)):
        assert all(len(case) == 1 for case in suite)
