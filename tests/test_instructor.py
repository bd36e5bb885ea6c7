"""The instructor's commands: reviews, points by hand, regrades, replays; what they say and what they keep."""

from __future__ import annotations

import html
import io
import json
import os
import re
import sqlite3
import sys
from collections.abc import Generator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from grader import cli, grading
from grader.course import Lab
from grader.engine import Begin, WorkItem
from grader.intake import Intake, find_submissions
from grader.verdicts import Finding, Verdict
from grader.worker import Judgement
from tests.tiny_course import PLAN, SOLUTION, Run, command_line, make_course

WRONG_HALF = SOLUTION.replace("x / 2", "x / 3")
ODD = f"import os\n{SOLUTION}"


class TextEngine:
    """Judges by the text of the source alone, at once."""

    strict = False  # stricter tests pass nothing in step 2

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]:
        for item in work:
            begin(item)
            bad = self.strict or "x / 3" in (item.source or "")
            if "can't be loaded" in (item.source or ""):
                message = "exercise.py line 1: no module"
                yield item.key, Judgement(tuple(Verdict(test, "error", message) for test in PLAN), message)
                continue
            yield item.key, Judgement(tuple(Verdict(test, self._kind(test, bad)) for test in PLAN))

    def _kind(self, test: str, bad: bool) -> str:
        return "wrong" if bad and "half" in test else "pass"


def look(source: str, lab: Lab) -> tuple[Finding, ...]:
    """A policy without imports."""
    lines = [line for line in enumerate(source.splitlines(), 1) if line[1].startswith("import")]
    return tuple(
        Finding(step.number, "import outside the list", number, text)
        for step in lab.steps
        for number, text in lines
        if step.id == "half" or "half" not in text
    )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> TextEngine:
    engine = TextEngine()
    monkeypatch.setattr(grading, "LocalEngine", lambda *settings, **options: engine)
    monkeypatch.setattr(grading, "_policy_findings", look)
    return engine


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: TextEngine
) -> Run:
    """`run("review", "out")` is `grader review out` beside a class of a tiny course."""
    make_course(tmp_path)
    hand_in(tmp_path, anna=SOLUTION, anton=WRONG_HALF, ben=ODD)

    return command_line(tmp_path, capsys, monkeypatch)


def hand_in(root: Path, **sources: str) -> None:
    for student, source in sources.items():
        (root / "class" / student).mkdir(parents=True, exist_ok=True)
        (root / "class" / student / "exercise.py").write_text(source)


def marks(root: Path) -> dict[str, Any]:
    """By student, as the reports have them."""
    lines = (root / "out" / "results.jsonl").read_text().splitlines()
    return {found["student"]: found for found in map(json.loads, lines)}


def steps(root: Path, student: str) -> list[float | None]:
    return [step["points"] for step in marks(root)[student]["steps"]]


GRADE = ("grade", "class", "--out", "out")
REGRADE = ("regrade", "class", "--out", "out")


# --- findings --------------------------------------------------------------------------------------------


def test_findings_withhold_and_are_listed_by_student_and_line(run: Run, tmp_path: Path) -> None:
    assert run(*GRADE).returncode == 0
    assert (steps(tmp_path, "ben"), marks(tmp_path)["ben"]["points"]) == ([None, None], 0)
    assert steps(tmp_path, "anna") == [3, 2]
    done = run("review", "out")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "ben, 01_tiny",
        "  line 1: import outside the list: import os  (step 1, 2)",
        "to decide: grader review out ben --line 1 --lab 01 --accept (or --reject) --reason TEXT",
    ]
    assert run("review", "out", "anna").stdout == "no finding waits for a decision\n"


def test_a_decision_rewrites_marks_and_reports_at_once(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    assert run("review", "out", "ben", "--step", "2", "--accept", "--reason", "never used").returncode == 0
    assert (steps(tmp_path, "ben"), marks(tmp_path)["ben"]["points"]) == ([None, 2], 2)
    assert "step 2: accepted by a person: never used" in marks(tmp_path)["ben"]["message"]
    assert run("review", "out", "be", "--reject", "--reason", "reads files").returncode == 0  # what is left
    assert (steps(tmp_path, "ben"), marks(tmp_path)["ben"]["points"]) == ([0, 2], 2)
    assert "step 1: rejected by a person: reads files" in marks(tmp_path)["ben"]["message"]
    assert "reads files" in (tmp_path / "out" / "report.html").read_text()
    assert run("review", "out").stdout == "no finding waits for a decision\n"
    assert run("review", "out", "ben", "--step", "1", "--accept", "--reason", "sorry").returncode == 0
    assert steps(tmp_path, "ben") == [3, 2]


def test_a_line_is_decided_for_all_steps_that_wait_for_it(run: Run, tmp_path: Path) -> None:
    hand_in(tmp_path, ben=f"import os\n{SOLUTION}\nimport only_half\n")
    run(*GRADE)
    assert run("review", "out").stdout.splitlines()[1:3] == [
        "  line 1: import outside the list: import os  (step 1, 2)",
        "  line 10: import outside the list: import only_half  (step 2)",
    ]
    done = run("review", "out", "ben", "--line", "1", "--accept", "--reason", "unused")
    assert "ben, 01_tiny: 0 → 3 points (raised)" in done.stdout
    assert steps(tmp_path, "ben") == [3, None]  # the other line still waits
    assert "line 1:" not in run("review", "out").stdout
    assert run("review", "out", "ben", "--line", "10", "--accept", "--reason", "unused").returncode == 0
    assert (steps(tmp_path, "ben"), marks(tmp_path)["ben"]["findings"]) == ([3, 2], [])
    assert marks(tmp_path)["ben"]["message"] == "step 1, 2: accepted by a person: unused"
    done = run("review", "out", "ben", "--line", "1", "--reject", "--reason", "reads files")
    assert "ben, 01_tiny: 5 → 0 points (lowered)" in done.stdout
    assert marks(tmp_path)["ben"]["message"] == "step 1, 2: rejected by a person: reads files"
    run("review", "out", "ben", "--step", "2", "--accept", "--reason", "after all")
    assert steps(tmp_path, "ben") == [0, 2]


def test_what_is_worth_nothing_is_not_accepted_without_a_word(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(tmp_path, ben="import helpers\n# can't be loaded\n" + SOLUTION)
    run(*GRADE)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody answers
    done = run("review", "out", "ben", "--line", "1", "--accept", "--reason", "harmless")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "no test of ben passed: exercise.py line 1: no module",
        "accepted, these steps are no longer undecided but worth 0 points",
    ]
    assert "nothing was decided; to accept all the same: --yes" in done.stdout
    assert steps(tmp_path, "ben") == [None, None]
    assert run("review", "out", "ben", "--accept", "--reason", "harmless", "--yes").returncode == 0
    assert steps(tmp_path, "ben") == [0, 0]


def test_a_decision_holds_when_graded_again_but_not_for_another_source(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    run("review", "out", "ben", "--accept", "--reason", "fine")
    run(*GRADE)
    assert steps(tmp_path, "ben") == [3, 2]
    hand_in(tmp_path, ben=ODD + "# new\n")
    run(*GRADE)
    assert steps(tmp_path, "ben") == [None, None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ben", "--step", "1", "--accept"), "say why: --reason TEXT"),
        (("ben", "--step", "1", "--accept", "--reject", "--reason", "x"), "not both"),
        (("ben", "--step", "7", "--accept", "--reason", "x"), "lab 01 has no step '7'"),
        (("anna", "--step", "1", "--accept", "--reason", "x"), "step 1 of anna has no finding to decide"),
        (("anna", "--accept", "--reason", "x"), "anna has no finding to decide"),
        (("an", "--accept", "--reason", "x"), "several students begin with 'an': anna, anton"),
        (("zoe", "--accept", "--reason", "x"), "there is no student 'zoe'; there are: anna, anton, ben"),
        (("--accept", "--reason", "x"), "say whose findings"),
        (("ben", "--line", "7", "--accept", "--reason", "x"), "line 7 of ben has no finding to decide"),
        (("ben", "--line", "1", "--step", "1", "--accept", "--reason", "x"), "not both"),
        (("ben", "--lab", "9", "--accept", "--reason", "x"), "there is no lab '9'"),
    ],
)
def test_a_decision_that_cannot_be_taken_is_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    run(*GRADE)
    done = run("review", "out", *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr
    assert steps(tmp_path, "ben") == [None, None]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python knows it")
def test_what_needs_a_newer_python_is_undecided_and_not_zero(run: Run, tmp_path: Path) -> None:
    hand_in(tmp_path, anton="x = t'{1}'\n" + SOLUTION, ben="x = t'\n" + SOLUTION)
    run(*GRADE)
    assert (steps(tmp_path, "anton"), marks(tmp_path)["anton"]["points"]) == ([None, None], 0)
    assert re.fullmatch(
        r"line 1: Python 3.14 or newer is needed for a template string; the grader runs Python 3\.\d+\.\d+: "
        r"undecided until it is graded with Python 3.14",
        marks(tmp_path)["anton"]["message"],
    )
    page = (tmp_path / "out" / "students" / "anton.md").read_text()
    assert "Python 3" in page
    assert "not marked yet" in page
    assert run("override", "out", "anton", "2", "--step", "2", "--reason", "read it").returncode == 0
    assert steps(tmp_path, "anton") == [None, 2]


# --- points by hand --------------------------------------------------------------------------------------


def test_points_by_hand_survive_a_regrade_and_can_be_taken_back(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    assert run("override", "out", "anton", "1.5", "--step", "2", "--reason", "nearly").returncode == 0
    assert (steps(tmp_path, "anton"), marks(tmp_path)["anton"]["points"]) == ([3, 1.5], 4.5)
    assert "step 2: 1.5 points by hand: nearly" in marks(tmp_path)["anton"]["message"]
    hand_in(tmp_path, anton=WRONG_HALF + "# more\n")
    run(*GRADE)
    run(*REGRADE, "--yes")
    assert steps(tmp_path, "anton") == [3, 1.5]
    run("override", "out", "anton", "5", "--reason", "was ill")
    assert (steps(tmp_path, "anton"), marks(tmp_path)["anton"]["points"]) == ([3, 1.5], 5)
    run("override", "out", "anton", "--remove")
    assert run("override", "out", "anton", "--step", "2", "--remove").returncode == 0
    assert (steps(tmp_path, "anton"), marks(tmp_path)["anton"]["message"]) == ([3, 0], "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("5",), "say why"),
        (("5", "--remove", "--reason", "x"), "either POINTS"),
        ((), "either POINTS"),
        (("nan", "--reason", "x"), "a number from 0 on"),
        (("inf", "--reason", "x"), "a number from 0 on"),
        (("5", "--step", "9", "--reason", "x"), "has no step '9'"),
        (("2.5", "--step", "2", "--reason", "x"), "step 2 (Halving) has 2 points, and 2.5 are more"),
        (("-1", "--step", "2", "--reason", "x"), "a number from 0 on, not -1"),
        (("-1", "--reason", "x"), "a number from 0 on, not -1"),
    ],
)
def test_points_by_hand_that_make_no_sense_are_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    run(*GRADE)
    done = run("override", "out", "anna", *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr
    assert marks(tmp_path)["anna"]["points"] == 5


def test_a_decision_never_brings_in_a_change_of_the_lab(run: Run, tmp_path: Path) -> None:
    run(*GRADE)
    manifest = tmp_path / "labs" / "01_tiny" / "lab.toml"
    manifest.write_text(manifest.read_text().replace("points = 3", "points = 1"))
    done = run("override", "out", "anna", "1", "--step", "2", "--reason", "x")
    assert "01_tiny has changed since anna was graded" in done.stderr
    assert marks(tmp_path)["anna"]["points"] == 5


# --- regrade ---------------------------------------------------------------------------------------------


def change_the_tests(root: Path) -> None:
    tests = root / "labs" / "01_tiny" / "test_tiny.py"
    tests.write_text(tests.read_text() + "\n# stricter\n")


def test_a_mark_whose_source_did_not_change_is_never_lowered_in_silence(
    run: Run, tmp_path: Path, engine: TextEngine
) -> None:
    run(*GRADE)
    change_the_tests(tmp_path)
    engine.strict = True
    done = run(*GRADE)
    assert "1 mark would be lower for the same source; the old ones stay" in done.stdout
    assert "grader regrade class --out out" in done.stdout
    assert "anna, 01_tiny: 5 → 3 points (lowered)" in done.stdout
    assert "step 2 (Halving): 2 → 0: test_half[1.0] pass → wrong, test_half[3.0] pass → wrong" in done.stdout
    assert steps(tmp_path, "anna") == [3, 2]
    hand_in(tmp_path, anna=SOLUTION + "# handed in anew\n")
    assert "would be lower" not in run(*GRADE).stdout
    assert steps(tmp_path, "anna") == [3, 0]


def test_a_regrade_shows_first_and_replaces_nothing_without_a_yes(
    run: Run, tmp_path: Path, engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*GRADE)
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    change_the_tests(tmp_path)
    engine.strict = True
    hand_in(tmp_path, zoe=SOLUTION)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody answers
    done = run(*REGRADE)
    assert done.returncode == 1
    assert "anna, 01_tiny: 5 → 3 points (lowered)" in done.stdout
    assert "zoe, 01_tiny: new: 3 of 5 points" in done.stdout
    assert "2 marks would change (1 lowered)" in done.stdout
    assert "no mark was replaced" in done.stdout
    run("report", "out")
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    assert run(*REGRADE, "--yes").returncode == 0
    assert (steps(tmp_path, "anna"), steps(tmp_path, "zoe")) == ([3, 0], [3, 0])
    raw = sqlite3.connect(tmp_path / "out" / "gradebook.sqlite")
    kept = raw.execute("SELECT student, points, steps, lowered FROM history WHERE lowered").fetchall()
    runs = raw.execute("SELECT DISTINCT runs FROM attempts").fetchall()
    raw.close()
    assert kept == [("anna", 5, '{"1": 3, "2": 2}', 1)]
    assert runs == [(1,)]  # the yes ran nothing again
    assert "0 marks would change" in run(*REGRADE, "--yes").stdout


def test_a_raised_mark_is_said_as_clearly_as_a_lowered_one(
    run: Run, tmp_path: Path, engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.strict = True
    run(*GRADE)
    change_the_tests(tmp_path)
    engine.strict = False
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = run(*REGRADE)
    assert "anna, 01_tiny: 3 → 5 points (raised)" in done.stdout
    assert "1 mark would change (1 raised)" in done.stdout
    done = run(*GRADE)
    assert "1 mark is higher than before for the same source" in done.stdout
    assert "anna, 01_tiny: 3 → 5 points (raised)" in done.stdout
    assert "step 2 (Halving): 0 → 2: test_half[1.0] wrong → pass, test_half[3.0] wrong → pass" in done.stdout
    assert "higher" not in run(*GRADE).stdout
    done = run("override", "out", "anton", "1", "--step", "2", "--reason", "nearly")
    assert "anton, 01_tiny: 3 → 4 points (raised)" in done.stdout
    assert "step 2 (Halving): 0 → 1" in done.stdout
    both = ("override", "out", "anton", "4", "--reason", "was ill")
    assert "→" not in run(*both).stdout  # the sum stays


def test_a_command_that_is_to_be_pasted_repeats_the_options(
    run: Run, tmp_path: Path, engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my list.csv").write_text("id,name\nanna,anna\nanton,anton\nben,ben\n")
    options = ("--lab", "01_tiny", "--roster", "my list.csv")
    run(*GRADE, *options)
    change_the_tests(tmp_path)
    engine.strict = True
    command = "grader regrade class --out out --lab 01 --roster 'my list.csv'"
    assert f"To replace them: {command}\n" in run(*GRADE, *options).stdout
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert f"to replace them: {command} --yes\n" in run(*REGRADE, *options).stdout


def test_a_yes_on_the_terminal_replaces(
    run: Run, tmp_path: Path, engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*GRADE)
    change_the_tests(tmp_path)
    engine.strict = True
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(*REGRADE).returncode == 0
    assert steps(tmp_path, "anna") == [3, 0]


def test_what_changed_while_it_was_shown_is_not_replaced(
    run: Run, tmp_path: Path, engine: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*GRADE)
    change_the_tests(tmp_path)
    engine.strict = True

    def decide_meanwhile(question: str) -> bool:
        monkeypatch.setattr("sys.argv", ["grader", "override", "out", "anna", "4", "--reason", "x"])
        with pytest.raises(SystemExit):
            cli.main()
        return True

    monkeypatch.setattr("typer.confirm", decide_meanwhile)
    done = run(*REGRADE)
    assert "changed meanwhile; nothing was replaced" in done.stderr
    assert marks(tmp_path)["anna"]["points"] == 4


# --- lateness --------------------------------------------------------------------------------------------


def test_lateness_is_taken_from_the_marks_and_stays_through_a_decision(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "course.toml").write_text(
        '[late]\ntimezone = "UTC"\npercent_per_day = 10\n[late.deadlines]\n01 = "2026-12-01 12:00"\n'
        '[late.extensions.01]\nbnn = "2026-12-05 12:00"\n'
    )
    times = {"anna": datetime(2026, 12, 2, 13, tzinfo=UTC), "ben": datetime(2026, 12, 1, tzinfo=UTC)}

    def find(*arguments: Any, **options: Any) -> Intake:
        found = find_submissions(*arguments, **options)
        dated = [replace(one, submitted=times.get(one.student)) for one in found.submissions]
        return replace(found, submissions=dated)

    monkeypatch.setattr(grading, "find_submissions", find)
    done = run(*GRADE)
    assert "1 submission has no known time: nothing is late there" in done.stdout
    assert "course.toml extends 01_tiny for nobody in this class: bnn" in done.stdout
    found = marks(tmp_path)["anna"]
    assert (found["points"], steps(tmp_path, "anna")) == (4, [3, 2])
    assert found["message"] == (
        "2 days late (2026-12-02 13:00 by the file's time on disk, due 2026-12-01 12:00 UTC): "
        "20 % taken of 5 points"
    )
    assert marks(tmp_path)["anton"]["points"] == 3
    run("override", "out", "anna", "1", "--step", "1", "--reason", "x")
    assert marks(tmp_path)["anna"]["points"] == 2.4


def test_wherever_lateness_is_shown_it_is_said_where_the_time_is_from(run: Run, tmp_path: Path) -> None:
    (tmp_path / "course.toml").write_text(
        '[late]\ntimezone = "UTC"\npercent_per_day = 10\n[late.deadlines]\n01 = "2026-12-01 12:00"\n'
    )
    moment = datetime(2026, 12, 2, 13, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "class" / "anna" / "exercise.py", (moment, moment))
    done = run(*GRADE)
    said = "2 days late (2026-12-02 13:00 by the file's time on disk, due 2026-12-01 12:00 UTC): 20 % taken"
    assert said in marks(tmp_path)["anna"]["message"]
    assert "2 days late (2026-12-02" in done.stdout
    for file in ("report.html", "marks.csv", "students/anna.md", "students/anna.html"):
        text = (tmp_path / "out" / file).read_text()
        assert said in html.unescape(text), file
    assert (
        said
        in json.loads((tmp_path / "out" / "gradescope" / "01_tiny" / "anna" / "results.json").read_text())[
            "output"
        ]
    )


# --- why -------------------------------------------------------------------------------------------------


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int, str]]:
    asked: list[tuple[str, str, int, str]] = []

    def replay(lab: Lab, source: str, seed: int, test: str) -> list[str]:
        asked.append((lab.name, source, seed, test))
        return ["half: got 1, expected 2"]

    monkeypatch.setattr("grader.worker.replay", replay, raising=False)
    return asked


def test_why_replays_a_test_with_its_source_and_seed(
    run: Run, tmp_path: Path, replays: list[tuple[str, str, int, str]]
) -> None:
    run(*GRADE, "--class-seed", "77")
    hand_in(tmp_path, anton="# changed since\n")
    done = run("why", "ant", "test_half[3", "--out", "out")
    assert done.returncode == 0
    assert replays == [("01_tiny", WRONG_HALF, 77, "test_half[3.0]")]
    assert done.stdout.startswith("anton, 01_tiny, test_half[3.0]\nstored verdict: wrong (")
    assert done.stdout.endswith("replayed:\nhalf: got 1, expected 2\n")
    assert "may differ" not in done.stdout
    change_the_tests(tmp_path)
    assert "the replay may differ" in run("why", "ant", "test_half[3", "--out", "out").stdout


def test_why_lists_what_fits_where_several_do(run: Run, replays: list[tuple[str, str, int, str]]) -> None:
    run(*GRADE)
    assert "several tests begin with 'test_half': test_half[1.0], test_half[3.0]" in (
        run("why", "anna", "test_half", "--out", "out").stderr
    )
    assert "several students begin with 'an': anna, anton" in (
        run("why", "an", "test_double", "--out", "out").stderr
    )
    assert run("why", "anna", "test_double", "--out", "out").returncode == 0  # exact beats a beginning
    assert "there is no test 'x'; there are:" in run("why", "anna", "x", "--out", "out").stderr


def test_why_without_a_file_says_so(
    run: Run, tmp_path: Path, replays: list[tuple[str, str, int, str]]
) -> None:
    (tmp_path / "class" / "zoe").mkdir()
    run(*GRADE)
    assert "zoe handed in no file" in run("why", "zoe", "test_double", "--out", "out").stderr
    assert not replays


# --- seed ------------------------------------------------------------------------------------------------


def test_another_class_seed_needs_reseed(run: Run, tmp_path: Path) -> None:
    run(*GRADE, "--class-seed", "1")
    done = run(*GRADE, "--class-seed", "2")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "has another class seed" in done.stderr
    assert run(*GRADE, "--class-seed", "1").returncode == 0
    assert run(*GRADE, "--class-seed", "2", "--reseed").returncode == 0
    assert run(*GRADE, "--class-seed", "2").returncode == 0


@pytest.mark.parametrize("command", [("review",), ("override", "anna", "5"), ("report",)])
def test_without_a_gradebook_a_command_is_one_line(run: Run, command: tuple[str, ...]) -> None:
    done = run(command[0], "nowhere", *command[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("grader: nowhere/gradebook.sqlite does not exist; grade a class first")
