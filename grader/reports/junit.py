"""`junit.xml`: every verdict in the form that build servers show. A suite a student and lab.

A test that is wrong or still to do is a failure, one that was not run is skipped, any other end is an error.
It is for instructors: messages are whole, with the values of the class seed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from grader import verdicts
from grader.reports.rows import Row, step_number
from grader.reports.tallies import LabTally
from grader.reports.text import visible
from grader.verdicts import Verdict

_ELEMENTS = {verdicts.WRONG: "failure", verdicts.TO_DO: "failure", verdicts.MISSING: "skipped"}
_OTHER = "error"
_NOT_XML = re.compile(r"[\ufffe\uffff]")  # the only ones that `visible` lets through and XML forbids


def junit(labs: Sequence[LabTally]) -> bytes:
    """The file; valid XML whatever characters occur in names and messages."""
    root = ET.Element("testsuites", name="grader")
    for tally in labs:
        for row in tally.rows:
            root.append(_suite(tally, row))
    ET.indent(root, " ")
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _suite(tally: LabTally, row: Row) -> ET.Element:
    tests = row.result.tests
    elements = [_ELEMENTS.get(test.verdict, _OTHER) for test in tests if not test.passed]
    suite = ET.Element(
        "testsuite",
        name=_text(f"{row.result.student} / {tally.lab.name}"),
        tests=str(len(tests)),
        failures=str(elements.count("failure")),
        errors=str(elements.count("error")),
        skipped=str(elements.count("skipped")),
        time=f"{row.result.seconds:.3f}",
    )
    for test in tests:
        suite.append(_case(tally, test))
    if row.result.message:
        ET.SubElement(suite, "system-out").text = _text(row.result.message)
    return suite


def _case(tally: LabTally, test: Verdict) -> ET.Element:
    step = step_number(tally.lab, test.test)
    place = tally.lab.name if step is None else f"{tally.lab.name}.step_{step}"
    case = ET.Element("testcase", classname=place, name=_text(test.test), time=f"{test.seconds:.3f}")
    if not test.passed:
        first = test.message.partition("\n")[0]
        element = ET.SubElement(case, _ELEMENTS.get(test.verdict, _OTHER), message=_text(first))
        if element.tag != "skipped":
            element.set("type", _text(test.verdict))
        if test.message != first:
            element.text = _text(test.message)
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text, keep="\n\t"))
