"""A class in parts, on machines that share only files: each part leaves result files, a merge marks them.

A part writes one file for each attempt and touches no gradebook; the merge alone does, as if one process had
run all. It believes no file that doesn't fit what is handed in here.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grader.course import Course, CourseError, Lab
from grader.engine import Begin, Engine, WorkItem
from grader.files import sweep_scratch, write_atomically
from grader.gradebook import Gradebook
from grader.grading import (
    GRADEBOOK,
    FindingsOf,
    OnProgress,
    Outcome,
    Progress,
    grade,
    key_of,
    look,
    set_apart,
    versions,
)
from grader.intake import Intake, Submission, find_submissions
from grader.marking import mark
from grader.verdicts import GRADER_ERROR, VERDICTS, function_name, printable
from grader.worker import Judgement

FOLDER = "shards"  # below the results
FILE_BYTES = 1 << 20  # a result file is some kilobytes
MOST_LISTED = 8


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1 on, of a class cut into `of` parts."""

    number: int
    of: int

    def holds(self, key: str) -> bool:
        """Whether an attempt belongs to this part: its key is a hash, so equal submissions stay together."""
        return int(key, 16) % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_shard(text: str) -> Shard:
    """The shard that is written as K/N."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip(), re.ASCII)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise CourseError(f"--shard {printable(text)}: write K/N with K from 1 to N, as in --shard 2/8")
    return Shard(int(found[1]), int(found[2]))


class ResultFile(BaseModel):
    """What a part found out about one attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal[1] = 1
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    lab: str
    seed: int
    versions: dict[str, str]
    judgement: Judgement

    @property
    def failed(self) -> bool:
        """Whether the grader itself failed: to be run again."""
        return any(one.verdict == GRADER_ERROR for one in self.judgement.verdicts)


@dataclass(frozen=True)
class Part:
    """What one run over a shard did, in attempts: equal submissions share one."""

    folder: Path
    there: int  # from an earlier run
    run: int
    failed: int  # of those that were run, by the grader's own fault


def grade_shard(
    path: Path,
    course: Course,
    out: Path,
    shard: Shard,
    class_seed: int,
    engine: Engine,
    lab: Lab | None = None,
    on_progress: OnProgress | None = None,
    *,
    roster: Path | None = None,
) -> Part:
    """Run a shard of the submissions at `path`; write each judgement to `out`/shards as soon as it is there.

    What lies there already is not run again, unless the grader itself had failed.
    """
    report = on_progress or (lambda _: None)
    found = find_submissions(path, course, lab, out=out, roster=roster)
    work = {
        key: WorkItem(key, course.find_lab(first.lab), class_seed, first.source, first.student)
        for key, (first, *_) in _by_key(found, course, class_seed).items()
        if shard.holds(key)
    }
    folder = out / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep_scratch()
        files = _read_all([folder], course).files
        _require_one_seed(folder, files, class_seed)
        known = {file.key for file in files if not file.failed}
        done, failures = len(known & work.keys()), 0
        there = done
        todo = (set_apart(item, look(item)) for key, item in work.items() if key not in known)

        def begin(item: WorkItem) -> None:
            report(Progress(len(work), done, item.student))

        with closing(engine.judge_all(todo, begin)) as judged:
            for key, judgement in judged:
                item = work[key]
                file = ResultFile(
                    key=key, lab=item.lab.name, seed=class_seed, versions=versions(), judgement=judgement
                )
                write_atomically(_path(folder, key), file.model_dump_json().encode())
                done, failures = done + 1, failures + file.failed
                result = mark(item.student, item.lab, judgement.verdicts, judgement.message)
                report(Progress(len(work), done, item.student, result))
    except OSError as error:
        raise CourseError(f"{folder}: can't write the results there ({error.strerror})") from None
    return Part(folder, there, done - there, failures)


# --- merging ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merged:
    """The marks of those whose results are there; `missing` are the others, `notes` lines on the files."""

    outcome: Outcome | None  # None: some are missing, and the gradebook has the rest
    missing: tuple[tuple[str, str], ...]  # student and lab
    notes: tuple[str, ...]


def merge(
    path: Path,
    course: Course,
    out: Path,
    folders: Sequence[Path] = (),
    lab: Lab | None = None,
    class_seed: int | None = None,
    on_progress: OnProgress | None = None,
    *,
    roster: Path | None = None,
    findings: FindingsOf | None = None,
    same_class: bool = False,
) -> Merged:
    """Mark the submissions at `path` by the result files in `folders` (default: `out`/shards).

    The gradebook in `out` gets what one process would have stored, for all whose results are there.
    A file that is damaged, or foreign, is a note; the rest goes on.
    """
    found = find_submissions(path, course, lab, out=out, roster=roster)
    folders = [_results_folder(one) for one in folders] or [out / FOLDER]
    read = _read_all(folders, course)
    seed = _the_seed(read, folders, class_seed, path, out)
    _require_same_gradebook(out, seed)
    waiting = _by_key(found, course, seed)
    judgements = {file.key: file.judgement for file in read.files if file.seed == seed}
    unused = len(read.files) - len(judgements.keys() & waiting.keys())
    notes = [f"left out: {line}" for line in _listed(read.refused)]
    if unused:
        notes.append(f"{_files(unused)} of no submission here, or of an older version of the lab")
    try:
        outcome = grade(
            path,
            course,
            out,
            lab,
            seed,
            on_progress=on_progress,
            roster=roster,
            engine=_Files(judgements),
            findings=findings,
            same_class=same_class,
        )
    except _Incomplete as stopped:
        missing = [(one.student, one.lab) for key in stopped.keys for one in waiting[key]]
        return Merged(None, tuple(missing), (*found.notes, *notes))
    return Merged(outcome, (), (*outcome.notes, *notes))


class _Incomplete(Exception):
    """All results that there are have been handed out; those of `keys` are not there."""

    def __init__(self, keys: list[str]):
        super().__init__(f"{len(keys)} results are missing")
        self.keys = keys


class _Files:
    """An engine that runs nothing: it hands out the judgements that shards have left."""

    def __init__(self, judgements: dict[str, Judgement]):
        self._judgements = judgements

    def judge_all(
        self, work: Iterable[WorkItem], begin: Begin
    ) -> Generator[tuple[str, Judgement], None, None]:
        missing = []
        for item in work:
            if item.key in self._judgements:
                begin(item)
                yield item.key, self._judgements[item.key]
            else:
                missing.append(item.key)
        if missing:
            raise _Incomplete(missing)


def _the_seed(read: _Read, folders: Sequence[Path], given: int | None, path: Path, out: Path) -> int:
    """The seed of the results; CourseError if there are none, or of several."""
    seeds = {file.seed for file in read.files}
    if given is not None:
        seeds &= {given}
    where = ", ".join(map(str, folders))
    if not seeds:
        count = len(read.refused)
        why = f" ({_files(count)} of no use; {read.refused[0]})" if count else ""
        raise CourseError(
            f"no result of a shard in {where}{why}; to make them: "
            f"grader grade {_quoted(path)} --out {_quoted(out)} --class-seed N --shard K/N"
        )
    if len(seeds) > 1:
        raise CourseError(
            f"the results in {where} are of {len(seeds)} class seeds, and all shards of a class need one; "
            "to take those of one seed: --class-seed N"
        )
    return seeds.pop()


def _require_same_gradebook(out: Path, seed: int) -> None:
    path = out / GRADEBOOK
    if not path.is_file() or path.stat().st_size == 0:  # said by whoever fills it
        return
    with Gradebook(path) as gradebook:
        if gradebook.class_seed() not in (None, seed):
            raise CourseError(f"{path} has another class seed than the shards: merge into another --out")


# --- files -----------------------------------------------------------------------------------------------


@dataclass
class _Read:
    """The result files of some folders: what they say, and why others say nothing."""

    files: list[ResultFile] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def _read_all(folders: Iterable[Path], course: Course) -> _Read:
    """Read every result file; of two for one attempt, one in which the grader didn't fail counts."""
    read, by_attempt = _Read(), dict[tuple[str, int], ResultFile]()
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            try:
                file = _read(path, course)
            except ValueError as error:
                read.refused.append(f"{path}: {error}")
                continue
            known = by_attempt.get((file.key, file.seed))
            if known is None or known.failed:
                by_attempt[file.key, file.seed] = file
    read.files = list(by_attempt.values())
    return read


def _read(path: Path, course: Course) -> ResultFile:
    """Read one result file; ValueError says in a few words why it can't count."""
    try:
        if path.is_symlink() or not path.is_file():
            raise ValueError("not a file of its own")
        with path.open("rb") as opened:
            data = opened.read(FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"can't be read ({error.strerror})") from None
    if len(data) > FILE_BYTES:
        raise ValueError(f"larger than {FILE_BYTES} bytes")
    try:
        file = ResultFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "damaged"
        raise ValueError(printable(f"no result of a shard ({where}: {first['msg']})")) from None
    if path.name != _path(path.parent, file.key).name:
        raise ValueError("its name is not the one that its content has")
    if file.versions != versions():
        raise ValueError(printable(f"made with {_words(file.versions)}, here is {_words(versions())}"))
    _require_fitting(file, course)
    return file


def _require_fitting(file: ResultFile, course: Course) -> None:
    """Refuse, with ValueError, a judgement that no run of the lab's tests can have."""
    lab = next((lab for lab in course.labs if lab.name == file.lab), None)
    if lab is None:
        raise ValueError(printable(f"its lab {file.lab!r} is not in this course"))
    tests = [one.test for one in file.judgement.verdicts]
    wanted = {test for step in lab.steps for test in step.tests}
    if {function_name(test) for test in tests} != wanted or len(tests) != len(set(tests)):
        raise ValueError(f"its tests are not those of {lab.name}")
    if any(one.verdict not in VERDICTS for one in file.judgement.verdicts):
        raise ValueError("it has a verdict that there is not")
    if file.judgement.seconds < 0 or any(one.seconds < 0 for one in file.judgement.verdicts):
        raise ValueError("it took less than no time")


def _require_one_seed(folder: Path, files: Sequence[ResultFile], seed: int) -> None:
    if {file.seed for file in files} - {seed}:
        raise CourseError(
            f"{folder} holds results of another class seed, and all shards of a class need the same: "
            "give that --class-seed, or choose another --out"
        )


def _by_key(found: Intake, course: Course, seed: int) -> dict[str, list[Submission]]:
    """The submissions by the attempt that they need."""
    keys: defaultdict[str, list[Submission]] = defaultdict(list)
    for one in found.submissions:
        keys[key_of(one.source, course.find_lab(one.lab), seed)].append(one)
    return keys


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


def _results_folder(folder: Path) -> Path:
    """The folder itself, or the one that a shard has made in its --out."""
    if not folder.is_dir():
        raise CourseError(f"{folder}: no such folder; give those that `grader grade --shard` wrote to")
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def _listed(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - MOST_LISTED
    return [*islice(lines, MOST_LISTED), *([f"{rest} more files"] if rest > 0 else [])]


def _files(count: int) -> str:
    return f"{count} result file{'s are' if count > 1 else ' is'}"


def _words(known: dict[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in sorted(known.items()))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
