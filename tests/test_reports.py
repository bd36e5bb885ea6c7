"""The reports of a class: what they say, and that nothing a student wrote can steer what shows them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from grader.course import Course, CourseError, Lab, Mistake, Step
from grader.files import write_atomically
from grader.grading import Progress
from grader.marking import Result, StepMarks
from grader.reports import NAMES, ClassProgress, print_summary, write_reports
from grader.reports.table import cell
from grader.reports.tallies import by_lab, percent
from grader.reports.text import one_line, visible
from grader.verdicts import Verdict

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}[red]x[/red]\x1b[31m\x07\u202e\x00"
LOOKS_LATE = "update differs\nlooks like: decay after the step"
VOID = {"meta", "wbr"}


def make_lab(name: str, title: str) -> Lab:
    steps = tuple(
        Step(
            number=n, id=f"s{n}", title=f"Part {n}", points=10 * n, section="1", todo=(f"f{n}",),
            tests=(f"test_{n}_a", f"test_{n}_b"), hints=("a", "b", "c"),
        )
        for n in (1, 2)
    )  # fmt: skip
    late = Mistake(
        id="late", step="s2", name="decay after the step", symptom="s", cause="The order is wrong.",
        hint="Look at the order.", find="a", replace="b",
    )  # fmt: skip
    return Lab(
        name=name, folder=Path(name), solution_folder=Path(name), title=title, summary="s", test_file="t.py",
        steps=steps, mistakes=(late,),
    )  # fmt: skip


LAB = make_lab("02_training_core", "The training core")
COURSE = Course(root=Path(), labs=(LAB, make_lab("05_model", "A <small> model")))


def make_result(
    student: str,
    verdicts: str = "pass pass pass pass",
    *,
    lab: str = LAB.name,
    message: str = "",
    note: str = "",
    mistake: str | None = None,
    seconds: float = 1.0,
) -> Result:
    """A result with these verdicts for the lab's four tests; `note` and `mistake` go to the failed ones."""
    names = ["test_1_a", "test_1_b[x]", "test_2_a", "test_2_b"]
    kinds = [word.replace("_", " ") for word in verdicts.split()]
    tests = tuple(
        Verdict(name, kind) if kind == "pass" else Verdict(name, kind, note, 0.1, mistake)
        for name, kind in zip(names, kinds, strict=False)
    )
    points = [10 * n if kinds[2 * n - 2 : 2 * n] == ["pass", "pass"] else 0 for n in (1, 2)]
    steps = tuple(StepMarks(n, f"Part {n}", points[n - 1], 10 * n) for n in (1, 2))
    return Result(student, lab, sum(points), 30, message, steps, tests, seconds)


def write(out: Path, *results: Result) -> tuple[str, str, str]:
    paths = write_reports(results, COURSE, out, seed=7)
    assert [path.name for path in paths] == ["results.jsonl", "marks.csv", "report.html"]
    jsonl, table, page = (path.read_bytes().decode("utf-8") for path in paths)
    return jsonl, table, page


def summary(*results: Result, encoding: str = "utf-8", width: int = 100) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    paths = [Path("out/results.jsonl"), Path("out/report.html")]
    print_summary(results, COURSE, paths, Console(file=stream, force_terminal=False, width=width))
    stream.flush()
    return raw.getvalue().decode(encoding)


class Page(HTMLParser):
    """The elements of a page and its text; fails on unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


# --- text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Åsa 日本 👩‍💻 é", "Åsa 日本 👩‍💻 é"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\u202etxt\u2066\ufeff", r"\u202etxt\u2066\ufeff"),
        ("\x9b31m\x85\u2028", r"\x9b31m\x85\u2028"),
        ("caf\udce9", r"caf\udce9"),
    ],
)
def test_visible_spells_out_what_could_steer_a_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_visible_keeps_what_it_is_told_to() -> None:
    assert visible("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"


def test_one_line_joins_and_cuts() -> None:
    assert one_line("a\r\n  b\n\nc") == "a b c"
    assert one_line("abcdefgh", 5) == "abcd…"
    assert one_line("abcde", 5) == "abcde"


# --- results.jsonl ----------------------------------------------------------------------------------------


def test_jsonl_has_exactly_the_fixed_keys(tmp_path: Path) -> None:
    jsonl, _, _ = write(tmp_path, make_result("ada", "pass pass wrong to_do", note="two\nlines", message="m"))
    assert [json.loads(line) for line in jsonl.splitlines()] == [
        {
            "student": "ada",
            "lab": "02_training_core",
            "points": 10,
            "max_points": 30,
            "message": "m",
            "steps": [
                {"step": 1, "points": 10, "max_points": 10},
                {"step": 2, "points": 0, "max_points": 20},
            ],
            "tests": [
                {"test": "test_1_a", "verdict": "pass", "message": ""},
                {"test": "test_1_b[x]", "verdict": "pass", "message": ""},
                {"test": "test_2_a", "verdict": "wrong", "message": "two\nlines"},
                {"test": "test_2_b", "verdict": "to do", "message": "two\nlines"},
            ],
        }
    ]


def test_jsonl_keeps_any_name_exactly_and_one_object_a_line(tmp_path: Path) -> None:
    names = [EVIL, "line\u2028break\x85\nname", "caf\udce9"]
    jsonl, _, _ = write(tmp_path, *(make_result(name) for name in names))
    assert {json.loads(line)["student"] for line in jsonl.splitlines()} == set(names)


def test_reports_are_sorted_and_do_not_depend_on_the_order_of_results(tmp_path: Path) -> None:
    results = [make_result("zoe"), make_result("Bob", lab="05_model"), make_result("Bob"), make_result("ada")]
    forward, backward = write(tmp_path / "a", *results), write(tmp_path / "b", *reversed(results))
    assert forward == backward
    rows = [json.loads(line) for line in forward[0].splitlines()]
    assert [(row["student"], row["lab"][:2]) for row in rows] == [
        ("ada", "02"), ("Bob", "02"), ("Bob", "05"), ("zoe", "02"),
    ]  # fmt: skip


def test_write_atomically_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


# --- marks.csv --------------------------------------------------------------------------------------------


def test_csv_has_a_column_a_step_and_a_byte_order_mark(tmp_path: Path) -> None:
    _, table, _ = write(tmp_path, make_result("Åsa", "pass pass wrong pass", message="two\nlines"))
    assert table.startswith("\ufeff")
    assert list(csv.reader(io.StringIO(table[1:], newline=""))) == [
        ["student", "lab", "points", "max_points", "step 1", "step 2", "message"],
        ["Åsa", "02_training_core", "10", "30", "10", "0", "two lines"],
    ]


def test_csv_leaves_a_withheld_step_empty(tmp_path: Path) -> None:
    withheld = Result(
        "ada", LAB.name, 10, 30, "", (StepMarks(1, "", 10, 10), StepMarks(2, "", None, 20)), (), 1.0
    )
    _, table, _ = write(tmp_path, withheld)
    assert table.splitlines()[1] == "ada,02_training_core,10,30,10,,"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "＝", "\u00a0=", "\t"])
def test_csv_cell_is_never_a_formula(start: str) -> None:
    assert cell(start + "cmd()").startswith("'")


@pytest.mark.parametrize("text", ["ada", "a=b", "", "'quoted'", "1-2"])
def test_csv_cell_leaves_plain_text_alone(text: str) -> None:
    assert cell(text) == text


# --- report.html ------------------------------------------------------------------------------------------


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
            assert (attributes.get(name) or "#").startswith("#"), tag
    assert "@import" not in html
    assert "url(" not in html
    assert "default-src 'none'" in html


def test_html_has_no_id_twice_and_only_links_that_lead_somewhere(tmp_path: Path) -> None:
    _, _, html = write(tmp_path, make_result("ada"), make_result("ada", lab="05_model"))
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["#lab-02", "#lab-05"]
    assert {str(link)[1:] for link in links} <= set(ids)


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
    assert "no submission was found" in summary()


def test_reports_of_points_that_are_few_or_none(tmp_path: Path) -> None:
    for most in (0, 1, 3):
        steps = (StepMarks(1, "Part 1", most, most),)
        _, _, html = write(tmp_path, Result("ada", LAB.name, most, most, "", steps, (), 0.0))
        assert f"points of {most}" in Page(html).text


# --- tallies ----------------------------------------------------------------------------------------------


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
    text = summary(replace(result, tests=old))
    assert "✓ ?" in text


def test_reports_that_cannot_be_written_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "report.html" / "x").mkdir(parents=True)
    with pytest.raises(CourseError, match=r"report\.html: can't be written") as caught:
        write_reports([make_result("ada")], COURSE, tmp_path, seed=7)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob(".*.tmp"))
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match="can't be written"):
        write_reports([make_result("ada")], COURSE, tmp_path / "file", seed=7)


def test_good_reports_are_not_replaced_by_empty_ones(tmp_path: Path) -> None:
    before = write(tmp_path, make_result("ada"))
    with pytest.raises(CourseError, match="left as they are"):
        write_reports([], COURSE, tmp_path, seed=7)
    assert tuple((tmp_path / name).read_text(encoding="utf-8") for name in NAMES)[2] == before[2]


# --- console ----------------------------------------------------------------------------------------------


def test_summary_has_a_line_a_student_and_says_where_the_files_are() -> None:
    text = summary(
        make_result("ada"),
        make_result("bob", "pass pass wrong wrong", note=LOOKS_LATE, mistake="late"),
        make_result("cyd", "to_do to_do time-out missing"),
    )
    rows = {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.split()}
    assert rows["ada"] == "ada 02 30 of 30 ✓ ✓"
    assert rows["bob"] == "bob 02 10 of 30 ✓ ✗ looks like: decay after the step"
    assert rows["cyd"] == "cyd 02 0 of 30 ○ ! time-out: 1 test; missing: 1 test"
    assert "lab 02: 3 graded, mean 13.3 of 30, 1 with full marks, 1 to look at" in text
    assert f"{Path('out/report.html')} " in text


def test_summary_lets_no_control_character_and_no_markup_through() -> None:
    text = summary(
        make_result("[red]\x1b[31mx\x07", "wrong pass pass pass", message="[bold]\x1b]0;t\x07\nnext")
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert r"[red]\x1b[31mx\x07" in text
    assert r"[bold]\x1b]0;t\x07 next" in text


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_summary_fits_a_terminal_without_unicode(encoding: str) -> None:
    long = make_result("Ωmega" * 10, "pass pass wrong to_do", note="ε", message="ε" * 200)
    assert "+ x" in summary(long, encoding=encoding)


def test_summary_keeps_points_and_steps_in_a_narrow_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=40)
    print_summary([make_result("a" * 50, message="m" * 99)], COURSE, [], console)
    assert "30 of 30   ✓ ✓" in stream.getvalue()


def test_progress_without_a_terminal_is_a_few_plain_lines() -> None:
    stream = io.StringIO()
    with ClassProgress(Console(file=stream, force_terminal=False)) as bar:
        for i in range(100):
            bar.show(Progress(100, i, f"s{i}\x1b"))
            result = make_result(f"s{i}\x1b", "pass pass pass pass" if i % 2 else "wrong")
            bar.show(Progress(100, i + 1, f"s{i}\x1b", result))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 10
    assert re.fullmatch(r"graded 100 of 100 \([\d.]+ a second, 50 without full marks\)", lines[-1])
    assert "\x1b" not in stream.getvalue()


def test_progress_in_a_terminal_shows_count_student_and_failures() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    with ClassProgress(console) as bar:
        bar.show(Progress(2, 0, "ada"))
        bar.show(Progress(2, 1, "ada", make_result("ada", "wrong")))
        bar.show(Progress(2, 1, "[red]bob\x1b[31m"))
    text = stream.getvalue()
    assert "1/2" in text
    assert "1 without full marks" in text
    assert r"[red]bob\x1b[31m" in text
