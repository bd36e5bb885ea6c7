"""The late policy: what is late, by how many days, and what a wrong file says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from grader.course import Course, CourseError
from grader.late import Lateness, LatePolicy, lateness, load_policy
from tests.tiny_course import make_course

POLICY = """
[late]
timezone = "Europe/Berlin"
grace_minutes = 10
percent_per_day = 10
cap_percent = 25
[late.deadlines]
01_tiny = "2026-12-01 23:59"
[late.extensions."01"]
ben = 2026-12-05 23:59:00
"""


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def policy(course: Course, text: str = POLICY) -> LatePolicy:
    (course.root / "course.toml").write_text(text)
    found = load_policy(course)
    assert found is not None
    return found


def berlin(text: str, hours: int = 1) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone(timedelta(hours=hours)))


def late(policy: LatePolicy, when: datetime, student: str = "anna") -> tuple[int, float] | None:
    found = lateness(policy, "01_tiny", student, when, False)
    return None if found is None else (found.days, found.percent)


def test_without_the_file_or_its_table_there_is_no_policy(course: Course) -> None:
    assert load_policy(course) is None
    (course.root / "course.toml").touch()
    assert load_policy(course) is None


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2026-12-01 23:59", None),
        ("2026-12-02 00:09", None),  # the grace period
        ("2026-12-02 00:09:01", (1, 10)),
        ("2026-12-02 23:59", (1, 10)),
        ("2026-12-03 00:00", (2, 20)),
        ("2026-12-04 12:00", (3, 25)),  # the cap
        ("2027-12-04 12:00", (368, 25)),
    ],
)
def test_each_started_day_costs_up_to_the_cap(
    course: Course, when: str, expected: tuple[int, float] | None
) -> None:
    assert late(policy(course), berlin(when)) == expected


def test_times_of_any_zone_are_compared(course: Course) -> None:
    assert late(policy(course), datetime(2026, 12, 1, 23, 5, tzinfo=UTC)) is None
    assert late(policy(course), datetime(2026, 12, 1, 23, 10, tzinfo=UTC)) == (1, 10)


def test_an_extension_counts_for_its_student_alone(course: Course) -> None:
    when = berlin("2026-12-05 23:00")
    assert late(policy(course), when, "ben") is None
    assert late(policy(course), when, "anna") == (4, 25)


def test_the_note_says_how_late_and_what_was_due(course: Course) -> None:
    found = lateness(policy(course), "01_tiny", "anna", berlin("2026-12-03 12:00"), False)
    assert found == Lateness(2, 20, "2 days late (due 2026-12-01 23:59 Europe/Berlin)")


@pytest.mark.parametrize(
    "source", ["the file's time on disk", "the file's time in the archive", "Gradescope's metadata"]
)
def test_the_note_says_where_the_time_is_from(course: Course, source: str) -> None:
    found = lateness(policy(course), "01_tiny", "anna", datetime(2026, 12, 3, 11, tzinfo=UTC), False, source)
    assert found is not None
    assert found.note == f"2 days late (2026-12-03 12:00 by {source}, due 2026-12-01 23:59 Europe/Berlin)"
    flagged = lateness(policy(course), "01_tiny", "anna", None, True, "a checkout does not say when")
    assert flagged is not None
    assert flagged.note.endswith("(the time is not known: a checkout does not say when)")


def test_late_without_a_policy_a_deadline_or_a_time_is_only_flagged(course: Course) -> None:
    when = berlin("2027-01-01 00:00")
    assert lateness(None, "01_tiny", "anna", when, False) is None
    assert lateness(policy(course), "02_next", "anna", when, False) is None
    assert lateness(policy(course), "01_tiny", "anna", None, False) is None
    for found in (
        lateness(None, "01_tiny", "anna", when, True),
        lateness(policy(course), "01_tiny", "anna", None, True),
    ):
        assert found is not None
        assert (found.days, found.percent) == (0, 0)
        assert "late, nothing is taken" in found.note
    assert lateness(policy(course), "01_tiny", "ben", berlin("2026-12-04 00:00"), True) is None


@pytest.mark.parametrize(
    ("due", "last", "over"),
    [
        # The night of 25 October has 02:30 twice: the second one counts.
        ("2026-10-25 02:30", berlin("2026-10-25 02:30", 1), berlin("2026-10-25 02:31", 1)),
        # The night of 29 March has no 02:30: an hour later counts.
        ("2026-03-29 02:30", berlin("2026-03-29 03:30", 2), berlin("2026-03-29 03:31", 2)),
    ],
)
def test_where_the_clocks_change_the_later_reading_counts(
    course: Course, due: str, last: datetime, over: datetime
) -> None:
    found = policy(course, POLICY.replace("2026-12-01 23:59", due).replace("= 10\n", "= 0\n", 1))
    assert late(found, last) is None
    assert late(found, over) == (1, 10)


def test_a_day_ends_by_the_clock_on_the_wall_also_where_it_has_25_hours(course: Course) -> None:
    found = policy(course, POLICY.replace("2026-12-01", "2026-10-24"))
    assert late(found, berlin("2026-10-25 23:59", 1)) == (1, 10)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Europe/Berlin", "Europe/Berlyn", "there is no time zone 'Europe/Berlyn'"),
        ("Europe/Berlin", "../../etc/passwd", "there is no time zone"),
        ("Europe/Berlin", "Europe", "there is no time zone"),
        ('timezone = "Europe/Berlin"', "", "a deadline needs a time zone"),
        ("2026-12-01 23:59", "2026-13-01 23:59", "late.deadlines.01_tiny: not a date and time"),
        ("2026-12-01 23:59", "2026-12-01", "give date and time"),
        ('"2026-12-01 23:59"', "2026-12-01", "give date and time"),
        ("2026-12-01 23:59", "2026-12-01 23:59+01:00", "leave the offset out"),
        ("01_tiny", "09_tiny", "there is no lab '09_tiny'"),
        ("cap_percent = 25", "cap_percent = 125", "late.cap_percent"),
        ("cap_percent", "cap_procent", "late.cap_procent"),
        ("[late]", "[lates]", "course.toml"),
        ("[late]", "[late", "course.toml"),
    ],
)
def test_a_wrong_file_is_one_clear_line(course: Course, old: str, new: str, said: str) -> None:
    with pytest.raises(CourseError) as caught:
        policy(course, POLICY.replace(old, new, 1))
    assert said in str(caught.value)
    assert str(course.root / "course.toml") in str(caught.value)
    assert "\n" not in str(caught.value)
