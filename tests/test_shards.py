"""A class graded in shards and merged: the same gradebook as one process gives, whatever lies between."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from grader import cli, grading
from grader.course import Course, CourseError, Lab
from grader.engine import Begin, WorkItem
from grader.grading import GRADEBOOK, Progress, grade
from grader.shards import FILE_BYTES, FOLDER, Merged, Part, Shard, grade_shard, merge, parse_shard
from grader.verdicts import GRADER_ERROR, Finding, Verdict
from grader.worker import Judgement
from tests.tiny_course import PLAN, SOLUTION, Finished, Run, make_course

SBATCH = Path(__file__).resolve().parents[1] / "examples" / "slurm" / "grade.sbatch"
SEED = 5
SHARDS = 3
ODD = f"import os\n{SOLUTION}"
CLASS = {
    "anna": SOLUTION,
    "ben": SOLUTION.replace("x / 2", "x / 3"),
    "cleo": SOLUTION,  # as anna's
    "dora": ODD,
    "emil": "def half(:\n",
    "finn": f"{SOLUTION}# fails\n",
}


class TextEngine:
    """Judges by the text of the source alone, and remembers what it was asked."""

    def __init__(self) -> None:
        self.sources: list[str | None] = []
        self.failing = ""  # the grader itself fails on a source that holds this

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]:
        for item in work:
            begin(item)
            self.sources.append(item.source)
            yield item.key, self.judge(item.source or "")

    def judge(self, source: str) -> Judgement:
        if self.failing and self.failing in source:
            return Judgement(tuple(Verdict(test, GRADER_ERROR, "no threads") for test in PLAN), "no threads")
        verdicts = [Verdict(test, "pass", "", 0.25) for test in PLAN[:2]]
        kind = (
            ("wrong", "got 1,\nexpected ½", 0.5, "halves_twice", "half") if "x / 3" in source else ("pass",)
        )
        verdicts += [Verdict(test, *kind) for test in PLAN[2:]]
        return Judgement(tuple(verdicts), "", 1.25, "printed\x1b[31m ½\n", ("seccomp", "limits"))


def look(source: str, lab: Lab) -> tuple[Finding, ...]:
    return (Finding(2, "import outside the list", 1, "import os"),) if "import os" in source else ()


@pytest.fixture
def engine() -> TextEngine:
    return TextEngine()


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    hand_in(tmp_path / "class", **CLASS)
    (tmp_path / "class" / "gus").mkdir()
    return tmp_path / "class"


def hand_in(folder: Path, **sources: str) -> None:
    for student, source in sources.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / "exercise.py").write_text(source, encoding="utf-8")


@pytest.fixture
def run_shard(group: Path, course: Course, tmp_path: Path, engine: TextEngine) -> Callable[..., Part]:
    """`run_shard(2)` runs the second shard into `out`; `run_shard(2, out=..., seed=...)` elsewhere."""

    def run(number: int, out: Path = tmp_path / "out", seed: int = SEED) -> Part:
        return grade_shard(group, course, out, Shard(number, SHARDS), seed, engine)

    return run


@pytest.fixture
def merge_all(group: Path, course: Course, tmp_path: Path) -> Callable[..., Merged]:
    def run(*folders: Path, **options: Any) -> Merged:
        return merge(group, course, tmp_path / "out", folders, findings=look, **options)

    return run


@pytest.fixture
def run(
    group: Path,
    course: Course,
    tmp_path: Path,
    engine: TextEngine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """`run("merge", "class", "--out", "out")` is the command, beside the class."""
    monkeypatch.setattr("grader.engine.LocalEngine", lambda *settings, **options: engine)
    monkeypatch.setattr(grading, "LocalEngine", lambda *settings, **options: engine)
    monkeypatch.setattr(grading, "_policy_findings", look)

    def call(*arguments: str) -> Finished:
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", ["grader", *arguments])
        with contextlib.chdir(tmp_path), pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return Finished(end.value.code if isinstance(end.value.code, int) else 0, out, err)

    return call


def files(out: Path) -> list[Path]:
    return sorted((out / FOLDER).glob("*"))


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All tables of a gradebook but for the times at which something was stored."""
    database = sqlite3.connect(path)
    try:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for table in tables:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            kept = [name for name in columns if name not in ("finished", "marked", "replaced", "decided")]
            found[table] = sorted(database.execute(f"SELECT {', '.join(kept)} FROM {table}"), key=repr)
        return found
    finally:
        database.close()


# --- the same gradebook ----------------------------------------------------------------------------------


def test_merged_shards_give_the_gradebook_of_one_process(
    group: Path,
    course: Course,
    tmp_path: Path,
    engine: TextEngine,
    run_shard: Callable[..., Part],
    merge_all: Callable[..., Merged],
) -> None:
    (course.root / "course.toml").write_text(
        '[late]\ntimezone = "UTC"\npercent_per_day = 10\n[late.deadlines]\n01 = 2020-01-01 12:00:00\n'
    )
    engine.failing = "# fails"
    one = grade(group, course, tmp_path / "one", class_seed=SEED, engine=engine, findings=look)
    for number in (3, 1, 2):
        run_shard(number)
    assert not (tmp_path / "out" / GRADEBOOK).exists()
    assert len(files(tmp_path / "out")) == 6  # equal ones share one
    merged = merge_all()
    assert merged.outcome == one
    assert (merged.missing, merged.notes) == ((), one.notes)
    expected = contents(tmp_path / "one" / GRADEBOOK)
    assert contents(tmp_path / "out" / GRADEBOOK) == expected
    assert (len(expected["marks"]), len(expected["attempts"]), len(expected["findings"])) == (7, 6, 1)


def test_merging_twice_changes_nothing(
    tmp_path: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    for number in (1, 2, 3):
        run_shard(number)
    first = merge_all()
    before = contents(tmp_path / "out" / GRADEBOOK)
    assert merge_all() == first
    assert contents(tmp_path / "out" / GRADEBOOK) == before


def test_shards_from_machines_without_a_common_disk_are_merged(
    tmp_path: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    outs = [tmp_path / f"from_{number}" for number in (1, 2, 3)]
    for number, out in enumerate(outs, 1):
        run_shard(number, out=out)
    assert merge_all(outs[0], outs[1] / FOLDER, outs[2]).outcome is not None


# --- one shard -------------------------------------------------------------------------------------------


def test_every_attempt_is_in_exactly_one_shard() -> None:
    keys = [f"{number * 7919:064x}" for number in range(200)]
    parts = [[key for key in keys if Shard(number, 7).holds(key)] for number in range(1, 8)]
    assert sorted(key for part in parts for key in part) == sorted(keys)
    assert all(parts)


def test_a_second_run_does_only_what_is_not_there(
    tmp_path: Path, engine: TextEngine, run_shard: Callable[..., Part]
) -> None:
    parts = [run_shard(number) for number in (1, 2, 3)]
    assert sum(part.run for part in parts) == len(engine.sources) == 6
    gone = files(tmp_path / "out")[0]
    before = gone.read_bytes()
    gone.unlink()
    engine.sources.clear()
    again = [run_shard(number) for number in (1, 2, 3)]
    assert (sum(part.run for part in again), sum(part.there for part in again)) == (1, 5)
    assert len(engine.sources) == 1
    assert gone.read_bytes() == before


def test_what_the_grader_failed_on_is_run_again(
    engine: TextEngine, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    engine.failing = "# fails"
    assert sum(run_shard(number).failed for number in (1, 2, 3)) == 1
    engine.failing = ""
    again = [run_shard(number) for number in (1, 2, 3)]
    assert (sum(part.run for part in again), sum(part.failed for part in again)) == (1, 0)
    outcome = merge_all().outcome
    assert outcome is not None
    assert {one.student: one.points for one in outcome.results}["finn"] == 5


def test_a_shard_that_is_interrupted_keeps_whole_files(
    group: Path, course: Course, tmp_path: Path, engine: TextEngine
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.result is not None and progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade_shard(group, course, tmp_path / "out", Shard(1, 1), SEED, engine, on_progress=interrupt)
    assert len(files(tmp_path / "out")) == 2
    assert all(json.loads(path.read_bytes())["format"] == 1 for path in files(tmp_path / "out"))


def test_another_seed_in_the_same_folder_is_refused(run_shard: Callable[..., Part]) -> None:
    for number in (1, 2, 3):
        run_shard(number)
    with pytest.raises(CourseError, match="results of another class seed"):
        run_shard(1, seed=6)


@pytest.mark.parametrize(
    "text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/4/2", "1/99999999", "１/４"]
)
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CourseError, match="write K/N"):
        parse_shard(text)


# --- what a merge refuses --------------------------------------------------------------------------------


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))


def verdicts(path: Path, **values: Any) -> dict[str, Any]:
    """The judgement in a result file, with its first verdict changed."""
    judgement: dict[str, Any] = json.loads(path.read_bytes())["judgement"]
    judgement["verdicts"][0] |= values
    return judgement


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "half": (lambda path: path.write_bytes(path.read_bytes()[:100]), "no result of a shard"),
    "empty": (lambda path: path.write_bytes(b""), "no result of a shard"),
    "binary": (lambda path: path.write_bytes(b"\xff\x00\xfe"), "no result of a shard"),
    "nested": (lambda path: path.write_bytes(b"[" * 100_000), "no result of a shard"),
    "huge": (lambda path: path.write_bytes(b" " * (FILE_BYTES + 1)), "larger than"),
    "newer": (lambda path: change(path, format=2), "format"),
    "another field": (lambda path: change(path, points=100), "points"),
    "seed as text": (lambda path: change(path, seed="5"), "seed"),
    "another key": (lambda path: change(path, key="0" * 64), "its name"),
    "other versions": (lambda path: change(path, versions={"torch": "1.0"}), "made with torch 1.0, here is"),
    "another lab": (lambda path: change(path, lab="09_none"), "'09_none' is not in this course"),
    "a test less": (
        lambda path: change(path, judgement={**verdicts(path), "verdicts": verdicts(path)["verdicts"][:2]}),
        "its tests are not those of 01_tiny",
    ),
    "a test twice": (lambda path: change(path, judgement=verdicts(path, test=PLAN[1])), "its tests are not"),
    "another verdict": (lambda path: change(path, judgement=verdicts(path, verdict="ok")), "a verdict that"),
    "no number": (lambda path: change(path, judgement=verdicts(path, seconds=float("nan"))), "no result"),
    "no time": (lambda path: change(path, judgement=verdicts(path, seconds=-1.0)), "less than no time"),
    "no text": (lambda path: change(path, judgement=verdicts(path, message=3)), "message"),
    "a link": (lambda path: path.symlink_to(path.rename(path.with_suffix(".x"))), "not a file of its own"),
    "a folder": (lambda path: path.rename(path.with_suffix(".x")).with_suffix(".json").mkdir(), "not a file"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_file_is_one_line_and_the_rest_goes_on(
    damage: str, tmp_path: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    for number in (1, 2, 3):
        run_shard(number)
    path = files(tmp_path / "out")[0]
    do, said = DAMAGES[damage]
    do(path)
    merged = merge_all()
    note = next(note for note in merged.notes if note.startswith(f"left out: {path}: "))
    assert said in note
    assert "\n" not in note
    assert 1 <= len(merged.missing) <= 2
    assert len(contents(tmp_path / "out" / GRADEBOOK)["marks"]) == 7 - len(merged.missing)


def test_many_damaged_files_are_counted(
    tmp_path: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    for number in (1, 2, 3):
        run_shard(number)
    for number in range(30):
        (tmp_path / "out" / FOLDER / f"{number}.json").write_text("{}")
    assert "left out: 22 more files" in merge_all().notes


def test_results_that_nobody_needs_any_more_are_counted(
    group: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    for number in (1, 2, 3):
        run_shard(number)
    hand_in(group, ben=SOLUTION)
    merged = merge_all()
    assert merged.outcome is not None
    assert "1 result file is of no submission here, or of an older version of the lab" in merged.notes


def test_results_of_two_seeds_are_told_apart(
    tmp_path: Path, run_shard: Callable[..., Part], merge_all: Callable[..., Merged]
) -> None:
    for number in (1, 2, 3):
        run_shard(number)
        run_shard(number, out=tmp_path / "other", seed=6)
    folders = (tmp_path / "out", tmp_path / "other")
    with pytest.raises(CourseError, match="of 2 class seeds"):
        merge_all(*folders)
    outcome = merge_all(*folders, class_seed=6).outcome
    assert outcome is not None
    assert outcome.seed == 6
    with pytest.raises(CourseError, match="another class seed than the shards"):
        merge_all()


def test_nothing_to_merge_says_how_to_begin(tmp_path: Path, merge_all: Callable[..., Merged]) -> None:
    with pytest.raises(CourseError, match=r"no result of a shard in .*--class-seed N --shard K/N"):
        merge_all()
    (tmp_path / "out" / FOLDER).mkdir(parents=True)
    (tmp_path / "out" / FOLDER / "x.json").write_text("{}")
    with pytest.raises(CourseError, match=r"\(1 result file is of no use; .*x\.json: no result of a shard"):
        merge_all()
    with pytest.raises(CourseError, match="no such folder"):
        merge_all(tmp_path / "nowhere")


# --- the commands ----------------------------------------------------------------------------------------


def shard(number: int) -> tuple[str, ...]:
    return ("grade", "class", "--out", "out", "--class-seed", "5", "--shard", f"{number}/3")


def test_a_shard_without_a_seed_says_why_it_needs_one(run: Run, tmp_path: Path) -> None:
    done = run("grade", "class", "--out", "out", "--shard", "1/3")
    assert done.returncode == 2
    assert done.stderr == (
        "grader: --shard needs --class-seed N, the same for all shards: they share no gradebook to agree in\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_commands_end_in_the_reports_of_one_process(run: Run, tmp_path: Path) -> None:
    assert run("grade", "class", "--out", "one", "--class-seed", "5").returncode == 0
    for number in (1, 2, 3):
        done = run(*shard(number))
        assert done.returncode == 0
        assert done.stdout.splitlines()[-1] == "when all shards are done: grader merge class --out out"
    done = run("merge", "class", "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("results.jsonl", "marks.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_a_merge_lists_who_is_missing_and_the_command_that_grades_them(
    run: Run, tmp_path: Path, engine: TextEngine
) -> None:
    for number in (1, 2, 3):
        run(*shard(number))
    anna = next(path for path in files(tmp_path / "out") if owners(path, engine) == SOLUTION)
    anna.unlink()
    done = run("merge", "class", "--out", "out", "--lab", "01")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-2] == "2 without a result: anna (01_tiny), cleo (01_tiny)"
    command = lines[-1].partition(": ")[2]
    assert command == "grader grade class --out out --lab 01"
    engine.sources.clear()
    assert run(*command.split()[1:]).returncode == 0
    assert engine.sources == [SOLUTION]
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 7


def owners(path: Path, engine: TextEngine) -> str | None:
    """The source whose attempt a result file is of."""
    from grader.course import load_course
    from grader.grading import key_of

    lab = load_course(path.parents[2]).labs[0]
    return next((source for source in engine.sources if key_of(source, lab, SEED) == path.stem), None)


# --- the template for Slurm ------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_a_task_of_the_slurm_array_grades_its_shard(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "grader"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    environment = {
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CPUS_PER_TASK": "4",
    }
    command = ["bash", str(SBATCH), "a class", "out", "2026", "8"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("grade", "a class", "--out", "out", "--class-seed", "2026"),
        *("--shard", "3/8", "--jobs", "4"),
    ]
    done = subprocess.run(command[:4], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sbatch --array=1-N")
