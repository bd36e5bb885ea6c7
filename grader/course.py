"""The course as data: labs, steps and mistakes, read and validated from `lab.toml` and `mistakes.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from grader.verdicts import function_name

Text = Annotated[str, Field(min_length=1)]


class CourseError(Exception):
    """Something in the course's own files, or in what the user asked of them, is wrong: one clear line."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Model):
    """A part of a lab that a student finishes in one sitting."""

    number: Annotated[int, Field(ge=1)]
    id: Text
    title: Text
    points: Annotated[int, Field(ge=0)]
    mandatory: bool = False  # not passed: the whole lab is worth 0 points
    bonus: bool = False  # its points come on top of the lab's maximum
    section: Text  # number of the page's section that explains it
    todo: Annotated[tuple[Text, ...], Field(min_length=1)]  # dotted names whose bodies the student writes
    tests: Annotated[tuple[Text, ...], Field(min_length=1)]  # test functions, without parameters
    hints: tuple[Text, ...]  # three levels; `grader verify` insists


class Mistake(_Model):
    """A known wrong version: an edit of the solution that a test of its step must reject."""

    id: Text
    step: Text  # id of the step whose tests must reject it
    name: Text  # completes the sentence "looks like: …"
    symptom: Text
    cause: Text
    hint: Text
    find: Text  # occurs exactly once in the solution
    replace: str
    source: str = ""  # where it was seen in the wild; these are the common ones, which the page lists


_MISTAKES = TypeAdapter(tuple[Mistake, ...])


# Imports that are harmless in any lab; a lab's own list replaces it.
HARMLESS_IMPORTS = (
    *("__future__", "abc", "collections", "copy", "dataclasses", "enum", "functools", "itertools", "logging"),
    *("math", "matplotlib", "numbers", "numpy", "random", "sys", "threading", "time", "torch", "typing"),
    *("typing_extensions", "warnings"),
)


class Rules(_Model):
    """What a submission may not use instead of writing it, and which imports go without a question."""

    imports: tuple[Text, ...] = HARMLESS_IMPORTS  # top-level modules
    banned_operators: tuple[Text, ...] = ()  # of the dispatcher, with wildcards: "aten::*layer_norm*"
    banned_names: tuple[Text, ...] = ()  # classes, functions or whole modules: "torch.optim.adamw"


class Lab(_Model):
    """One lab: its manifest, its mistakes, and where its files lie."""

    name: str
    folder: Path
    solution_folder: Path
    title: Text
    summary: Text
    test_file: Text
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    mistakes: tuple[Mistake, ...] = ()
    rules: Rules = Rules()

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    @property
    def exercise(self) -> Path:
        return self.folder / "exercise.py"

    @property
    def page(self) -> Path:
        return self.folder / "README.md"

    @property
    def tests_path(self) -> Path:
        return self.folder / self.test_file

    @property
    def sketches(self) -> Path:
        return self.folder / "sketches.json"

    @property
    def notebook(self) -> Path:
        return self.folder / "notebook.ipynb"

    @property
    def solution(self) -> Path:
        return self.solution_folder / "solution.py"

    @property
    def max_points(self) -> int:
        return sum(step.points for step in self.steps if not step.bonus)

    @cached_property
    def _step_by_function(self) -> dict[str, Step]:
        return {test: step for step in self.steps for test in step.tests}

    def step_of(self, test: str) -> Step:
        """The step that a test (with or without parameters) belongs to."""
        step = self._step_by_function.get(function_name(test))
        if step is None:
            raise CourseError(
                f"{self.tests_path}: {test} belongs to no step; add it to {self.folder / 'lab.toml'}"
            )
        return step

    def find_step(self, text: str) -> Step:
        """The step with this number or id."""
        for step in self.steps:
            if text in (str(step.number), step.id):
                return step
        known = ", ".join(f"{step.number} ({step.id})" for step in self.steps)
        raise CourseError(f"lab {self.number} has no step {text!r}; its steps are {known}")

    def mistake(self, id: str) -> Mistake:
        for mistake in self.mistakes:
            if mistake.id == id:
                return mistake
        raise CourseError(
            f"lab {self.number} has no mistake {id!r}; see {self.solution_folder / 'mistakes.toml'}"
        )


class Course(_Model):
    """All labs, in order."""

    root: Path
    labs: tuple[Lab, ...]

    def find_lab(self, text: str) -> Lab:
        """The lab with this name or number: "2", "02" and "02_training_core" are the same."""
        wanted = Path(text).name or text
        for lab in self.labs:
            if wanted in (lab.name, lab.number, lab.number.lstrip("0")):
                return lab
        known = ", ".join(lab.name for lab in self.labs)
        raise CourseError(f"there is no lab {text!r}; the labs are {known}")


def find_root(start: Path | None = None) -> Path:
    """The course's folder: the nearest one above `start` (default: where we are) that holds `labs/`.

    Away from a course, the folder that this package lies in.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / "labs").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise CourseError(f"{here} is not inside the course; go to the folder that holds labs/ and try again")


def load_course(root: Path) -> Course:
    """Read every `labs/NN_name/` that has a manifest."""
    folders = sorted(path.parent for path in root.glob("labs/[0-9][0-9]_*/lab.toml"))
    if not folders:
        raise CourseError(f"{root / 'labs'} holds no lab (a folder NN_name with a lab.toml)")
    return Course(
        root=root, labs=tuple(load_lab(folder, root / "solutions" / folder.name) for folder in folders)
    )


def load_lab(folder: Path, solution_folder: Path) -> Lab:
    """Read one lab; a student's copy of the course may lack the solutions, and then has no mistakes."""
    manifest = _read_toml(folder / "lab.toml")
    mistakes_path = solution_folder / "mistakes.toml"
    mistakes = _read_toml(mistakes_path).get("mistakes", []) if mistakes_path.is_file() else []
    try:
        lab = Lab.model_validate(
            {**manifest, "name": folder.name, "folder": folder, "solution_folder": solution_folder}
        )
    except ValidationError as error:
        raise CourseError(f"{folder / 'lab.toml'}: {_first_error(error)}") from None
    try:
        lab = lab.model_copy(update={"mistakes": _MISTAKES.validate_python(mistakes)})
    except ValidationError as error:
        raise CourseError(f"{mistakes_path}: mistake {_first_error(error)}") from None
    _check_references(lab, mistakes_path)
    return lab


def _check_references(lab: Lab, mistakes_path: Path) -> None:
    manifest = lab.folder / "lab.toml"
    if [step.number for step in lab.steps] != list(range(1, len(lab.steps) + 1)):
        raise CourseError(f"{manifest}: steps must be numbered 1, 2, 3, … in order")
    _require_unique(manifest, "step id", (step.id for step in lab.steps))
    _require_unique(manifest, "test", (test for step in lab.steps for test in step.tests))
    _require_unique(manifest, "function to write", (name for step in lab.steps for name in step.todo))
    _require_unique(mistakes_path, "mistake id", (mistake.id for mistake in lab.mistakes))
    ids = {step.id for step in lab.steps}
    for mistake in lab.mistakes:
        if mistake.step not in ids:
            raise CourseError(
                f"{mistakes_path}: mistake {mistake.id!r} names the unknown step {mistake.step!r}"
            )


def _require_unique(path: Path, what: str, values: Iterable[str]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise CourseError(f"{path}: the {what} {twice[0]!r} is listed twice")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CourseError(f"{path}: {error}") from None


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])
