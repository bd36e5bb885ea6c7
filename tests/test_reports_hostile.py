"""Names, messages and lines that attack whatever shows a report, through every writer."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from grader.marking import Result
from grader.reports import print_summary, write_reports
from grader.reports.similar import Pair
from grader.verdicts import Finding, Verdict
from tests.report_class import CONTROLS, COURSE, EVIL, Page, make_result

ATTACKS = {
    "html": EVIL,
    "closing tags": "</pre></code></td></table></style></title><script>alert(1)</script><!--",
    "attribute": "\" onmouseover=alert(1) x='",
    "template": "{{ seed }}{% raw %}{# x #}",
    "terminal": "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x08",
    "formula": "=cmd|' /C calc'!A0",
    "formula after a blank": " \t=HYPERLINK(\"http://evil.example\",\"x\")",
    "more formulas": "-1+1\n@SUM(A1)\r+2",
    "markdown link": "[click](http://evil.example) ![x](http://evil.example/x.png) <http://evil.example>",
    "markdown blocks": "\n# heading\n\n- item\n\n    code\n\n> quote\n\n[a]: http://evil.example\n\n<b>x</b>",
    "markdown code": "`x` ``[y](http://evil.example)`` ```\n```",
    "markdown lonely tick": "`[y](http://evil.example)",
    "markdown table": "|a|b|\n|-|-|\n|c|d| $x$ ~~y~~ **z** https://evil.example www.evil.example a@b.example",
    "xml": "]]></failure><testcase name='x'/>&#0;&lt;\ufffe\uffff\x0b\x00",
    "half characters": "\udfff \ud800 caf\udce9",
    "direction": "\u202egnp.exe\u2066\u200f\ufeff",
    "json": '"}]}\n{"student": "eve", "points": 100}\u2028\u2029',
    "path": "../../../../etc/passwd\0/..\\..\\x",
    "long": "A" * 5000,
    "empty": "",
    "blank": "  \t ",
}  # fmt: skip


def hostile(text: str) -> list[Result]:
    """Results in which a student chose every text that can be chosen."""
    found = [Finding(2, f"import of {text}", 3, text), Finding(2, "whole", 0, text)]
    result = make_result(
        text, "wrong error error pass", message=text, note=text, mistake=text, findings=found
    )
    more = (
        Verdict(f"test_2_a[{text}]", "wrong", f"{text}: not the expected value"),
        Verdict(text, "wrong", text),
    )
    plain = make_result("ada", "error error error error", message=text, note=text)
    return [replace(result, tests=(*result.tests, *more)), plain]


@pytest.fixture(scope="module", params=list(ATTACKS.values()), ids=list(ATTACKS))
def attack(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture(scope="module")
def out(attack: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports") / "out"
    pairs = [Pair(attack, "ada", 0.9, lab=attack)]
    write_reports(
        hostile(attack), COURSE, folder, 7, layers=(attack,), versions={attack: attack}, pairs=pairs
    )
    return folder


def test_nothing_is_written_outside_the_folder(out: Path) -> None:
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert {path.name for path in out.iterdir()} == {
        *("results.jsonl", "marks.csv", "report.html", "canvas.csv", "moodle.csv", "junit.xml"),
        *("students", "gradescope"),
    }
    assert len(list((out / "students").glob("*.html"))) == len(list((out / "students").glob("*.md"))) == 2


def test_pages_run_load_and_steer_nothing(out: Path) -> None:
    for path in (out / "report.html", *(out / "students").glob("*.html")):
        html = path.read_text(encoding="utf-8")
        page = Page(html)
        tags = {tag for tag, _ in page.tags}
        assert not tags & {"script", "img", "red", "link", "iframe", "base", "form", "testcase", "b-x"}
        for tag, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on")], tag
            assert "src" not in attributes
            assert re.match(r"#|students/[a-z0-9._-]+\.html\Z", attributes.get("href") or "#")
        assert not re.search(CONTROLS, html)


def test_markdown_has_no_link_image_html_or_block_of_a_student(out: Path) -> None:
    for path in (out / "students").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(CONTROLS, text)
        tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
        kinds = {token.type for token in tokens}
        kinds |= {child.type for token in tokens for child in token.children or ()}
        assert not [
            kind for kind in kinds if re.match("link|image|html|table|fence|code_block|blockquote|s_", kind)
        ]
        headings = [token for token in tokens if token.type == "heading_open"]
        assert [token.tag for token in headings] == ["h1", "h2", "h3", "h3"]


def test_markdown_has_addresses_only_inside_code(out: Path) -> None:
    for path in (out / "students").glob("*.md"):
        tokens = MarkdownIt("commonmark").parse(path.read_text(encoding="utf-8"))
        prose = [
            child.content
            for token in tokens
            for child in token.children or ()
            if child.type == "text"
        ]  # fmt: skip
        assert "evil.example" not in " ".join(prose)


def test_xml_is_valid_and_has_no_element_of_a_student(out: Path) -> None:
    root = ET.fromstring((out / "junit.xml").read_bytes())
    assert {element.tag for element in root.iter()} <= {
        *("testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out"),
    }
    assert sorted(len(suite.findall("testcase")) for suite in root) == [4, 6]


def test_json_has_one_object_a_result_and_gradescope_one_a_student(out: Path, attack: str) -> None:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_bytes().split(b"\n") if line]
    assert sorted(row["student"] for row in rows) == sorted([attack, "ada"])
    files = list((out / "gradescope").rglob("*.json"))
    objects = [json.loads(path.read_bytes()) for path in files if path.name == "results.json"]
    assert len(objects) == 2
    for text in (test["output"] for one in objects for test in one["tests"]):
        assert not re.search(CONTROLS, text)


def test_tables_have_a_row_a_student_and_no_formula(out: Path) -> None:
    for name, headers in (("marks.csv", 1), ("canvas.csv", 2), ("moodle.csv", 1)):
        text = (out / name).read_bytes().decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len(rows) == headers + 2
        assert len({len(row) for row in rows}) == 1
        for field in (field.lstrip() for row in rows[headers:] for field in row):
            assert not field.startswith(("=", "+", "-", "@", "\t", "\r")), name
        assert not re.search(CONTROLS, text.replace("\r\n", ""))


def test_the_terminal_gets_no_control_character_and_no_line_of_a_student(attack: str) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=120)
    print_summary(hostile(attack), COURSE, [], console)
    shown = re.sub(r"\x1b\[\d*m", "", stream.getvalue())  # Rich's own, were there colours
    assert not re.search(CONTROLS, shown)
    assert len([line for line in shown.splitlines() if " 02 " in line and " of 30" in line]) == 2
