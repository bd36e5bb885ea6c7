"""What the terminal shows of a class."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from grader.grading import Progress
from grader.marking import Result
from grader.reports import ClassProgress, print_summary
from grader.verdicts import Finding
from tests.report_class import COURSE, LOOKS_LATE, make_result


def summary(*results: Result, encoding: str = "utf-8", width: int = 100) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    paths = [Path("out/results.jsonl"), Path("out/report.html")]
    print_summary(results, COURSE, paths, Console(file=stream, force_terminal=False, width=width))
    stream.flush()
    return raw.getvalue().decode(encoding)


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


def test_summary_of_an_empty_class() -> None:
    assert "no submission was found" in summary()


def test_summary_says_what_is_to_be_reviewed_and_takes_points_with_decimals() -> None:
    found = Finding(2, "import outside the list", 3, "import ctypes")
    late = replace(make_result("ada", message="taken from ada.zip", findings=[found]), points=7.25)
    line = next(" ".join(line.split()) for line in summary(late, width=200).splitlines() if "ada" in line)
    assert line.startswith("ada 02 7.25 of 30 ✓ ? taken from ada.zip; to review: step 2, line 3 (import")


def test_rate_and_time_left_count_only_what_was_run_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with ClassProgress(Console(file=stream, force_terminal=False)) as bar:
        for done in range(1, 6):  # known from the gradebook: at once, without being begun
            bar.show(Progress(10, done, "s", make_result("s")))
        bar.show(Progress(10, 5, "t"))
        for done in range(6, 11):
            now[0] += 20
            bar.show(Progress(10, done, "t", make_result("t")))
    lines = stream.getvalue().splitlines()
    assert lines[4] == "graded 5 of 10 (0 without full marks)"
    assert lines[5] == "graded 6 of 10 (0.1 a second, 1:20 left, 0 without full marks)"
    assert lines[9] == "graded 10 of 10 (0.1 a second, 0 without full marks)"


def test_summary_shows_a_verdict_that_it_does_not_know_as_undecided() -> None:
    assert "✓ ?" in summary(make_result("ada", "pass pass pass flabbergasted"))
