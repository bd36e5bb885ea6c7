"""Late hand-ins: deadlines, extensions and what a late day costs, from `course.toml` at the course's root.

The file is optional; without it a late hand-in is only flagged. Times in it are wall-clock times of its
time zone. Where a change of the clocks makes one of them ambiguous or leaves it out, the later reading
counts, in favour of the student. Days are counted by the clock on the wall, from the deadline: one minute
over is one day, and so is the same time on the next day. The grace period only decides whether anything is
late at all.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from grader.course import Course, CourseError

FILE = "course.toml"
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Lateness:
    """How late a hand-in is: started days (0: only flagged as late), what is taken, and a line on it."""

    days: int
    percent: float
    note: str


def _wall_clock(value: object) -> datetime:
    """A date and time without a zone, written as text or as TOML's own kind."""
    if isinstance(value, str):
        if ":" not in value:
            raise ValueError('give date and time: "2026-12-01 23:59"')
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError('not a date and time; write "2026-12-01 23:59"') from None
    if not isinstance(value, datetime):
        raise ValueError('give date and time: "2026-12-01 23:59"')
    if value.tzinfo is not None:
        raise ValueError("leave the offset out: times are those of the file's timezone")
    return value


WallClock = Annotated[datetime, BeforeValidator(_wall_clock)]
Percent = Annotated[float, Field(ge=0, le=100)]


class LatePolicy(BaseModel):
    """The table `[late]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timezone: str = ""  # required as soon as there is a deadline
    grace_minutes: Annotated[float, Field(ge=0)] = 0
    percent_per_day: Percent = 0  # of the points, for each started day
    cap_percent: Percent = 100  # never more is taken
    deadlines: dict[str, WallClock] = {}  # by lab
    extensions: dict[str, dict[str, WallClock]] = {}  # by lab, then by student

    @model_validator(mode="after")
    def _has_a_zone(self) -> LatePolicy:
        if self.timezone:
            try:
                ZoneInfo(self.timezone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError(
                    f'there is no time zone {self.timezone!r}; write one like "Europe/Berlin" '
                    "(on Windows this needs: pip install tzdata)"
                ) from None
        elif self.deadlines or self.extensions:
            raise ValueError('a deadline needs a time zone: timezone = "Europe/Berlin"')
        return self

    def due(self, lab: str, student: str) -> datetime | None:
        """The wall-clock time at which this student's hand-in is due."""
        return self.extensions.get(lab, {}).get(student, self.deadlines.get(lab))

    def instant(self, wall_clock: datetime) -> datetime:
        """The moment of a wall-clock time; the later one where the clocks' change leaves two readings."""
        zone = ZoneInfo(self.timezone)
        return max(wall_clock.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))


class _CourseFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    late: LatePolicy | None = None


def load_policy(course: Course) -> LatePolicy | None:
    """Read the late policy; None without the file or its table, CourseError with one line if it is wrong."""
    path = course.root / FILE
    if not path.exists():
        return None
    try:
        policy = _CourseFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).late
    except OSError as error:
        raise CourseError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CourseError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    except ValueError as error:  # TOML, or the encoding
        raise CourseError(f"{path}: {error}") from None
    if policy is None:
        return None
    return policy.model_copy(
        update={
            "deadlines": _by_lab(path, course, policy.deadlines),
            "extensions": _by_lab(path, course, policy.extensions),
        }
    )


def lateness(
    policy: LatePolicy | None,
    lab: str,
    student: str,
    submitted: datetime | None,
    flagged: bool,
    submitted_from: str = "",
) -> Lateness | None:
    """How late a hand-in is, None if it is not; `submitted_from` says where the time is from.

    A deadline and a known time decide; else only what the hand-in was flagged with is passed on.
    """
    due = policy.due(lab, student) if policy is not None else None
    if policy is None or due is None or submitted is None:
        why = "no deadline is known" if due is None else "the time is not known"
        why += f": {submitted_from}" if due is not None and submitted_from else ""
        return Lateness(0, 0, f"handed in late, nothing is taken ({why})") if flagged else None
    if submitted <= policy.instant(due) + timedelta(minutes=policy.grace_minutes):
        return None
    wall_clock = submitted.astimezone(ZoneInfo(policy.timezone)).replace(tzinfo=None)
    days = _started_days(wall_clock - due)
    percent = min(days * policy.percent_per_day, policy.cap_percent)
    plural = "s" * (days > 1)
    came = f"{wall_clock:%Y-%m-%d %H:%M} by {submitted_from}, " if submitted_from else ""
    note = f"{days} day{plural} late ({came}due {due:%Y-%m-%d %H:%M} {policy.timezone})"
    return Lateness(days, percent, note)


def _started_days(over: timedelta) -> int:
    return max(1, math.ceil(over / DAY))


def _by_lab(path: Path, course: Course, table: dict[str, Any]) -> dict[str, Any]:
    """The table with labs' full names as keys."""
    try:
        return {course.find_lab(lab).name: value for lab, value in table.items()}
    except CourseError as error:
        raise CourseError(f"{path}: late: {error}") from None
