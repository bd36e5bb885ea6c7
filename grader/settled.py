"""`intake.toml` in the folder of a class: what its hand-ins leave open, settled by the instructor."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from grader.course import Course, CourseError

SETTLED = "intake.toml"
SETTLED_BYTES = 1 << 20


class Settled(BaseModel):
    """Names that are nobody's, whose a hand-in is (several people for a group), and which file counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ignore: tuple[str, ...] = ()
    students: dict[str, str | tuple[str, ...]] = {}
    files: dict[str, str | dict[str, str]] = {}

    def owners(self, name: str) -> tuple[str, ...]:
        """The students that an entry of this name is of, none if it is not mentioned."""
        told = self.students.get(name, ())
        return (told,) if isinstance(told, str) else told

    def file(self, student: str, lab: str) -> str:
        """The path of the file that counts for a student and a lab, "" if none is named."""
        of_lab, of_all = self.files.get(lab), self.files.get(student)
        if isinstance(of_lab, dict) and student in of_lab:
            return of_lab[student]
        return of_all if isinstance(of_all, str) else ""

    def mentioned(self) -> dict[str, set[str]]:
        """All entries and students that the file speaks of, by the place in it."""
        names = {"ignore": {*self.ignore}, "[students]": {*self.students}}
        for key, told in self.files.items():
            where = "[files]" if isinstance(told, str) else f'[files."{key}"]'
            names.setdefault(where, set()).update([key] if isinstance(told, str) else told)
        return names


def read_settled(folder: Path, course: Course) -> Settled:
    """Read the `intake.toml` of a class; without one nothing is settled.

    One that is broken, names a lab that the course doesn't have, or a path that leads out of a hand-in, is a
    CourseError.
    """
    path = folder / SETTLED
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise CourseError(f"{path}: not a file of its own; write it there, no link")
    if not path.exists():
        return Settled()
    try:
        with path.open("rb") as file:
            text = file.read(SETTLED_BYTES).decode("utf-8-sig")
        settled = Settled.model_validate(tomllib.loads(text))
    except OSError as error:
        raise CourseError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise CourseError(f"{path}: not a text in UTF-8; save it as such") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CourseError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise CourseError(f"{path}: {'.'.join(map(str, first['loc'][:2]))}: {first['msg']}") from None
    for told in settled.files.values():
        for file_name in (told,) if isinstance(told, str) else told.values():
            _require_inside(path, file_name)
    return settled.model_copy(update={"files": _by_lab(path, course, settled)})


def _by_lab(path: Path, course: Course, settled: Settled) -> dict[str, str | dict[str, str]]:
    """The files by labs' full names and by students."""
    files: dict[str, str | dict[str, str]] = {}
    for key, told in settled.files.items():
        if isinstance(told, str):
            files[key] = told
            continue
        try:
            lab = course.find_lab(key).name
        except CourseError as error:
            raise CourseError(f'{path}: [files."{key}"]: {error}; correct the name there') from None
        before = files.get(lab, {})
        files[lab] = {**(before if isinstance(before, dict) else {}), **told}
    return files


def _require_inside(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or name[1:2] == ":":
        raise CourseError(f"{path}: [files]: {name!r} leads out of the hand-in; give a path inside it")
