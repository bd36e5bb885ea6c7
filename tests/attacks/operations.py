"""The run as a whole: cases that no single hand-in shows, and the tests that show them."""

from __future__ import annotations

from tests.attacks.case import Case

CASES = [
    Case(
        "name-06-moodle-folder", elsewhere="tests/test_lms_names.py::test_moodle_students_are_their_numbers"
    ),
    Case(
        "dup-01-several-attempts",
        elsewhere="tests/test_lms_names.py::test_of_what_canvas_numbers_the_latest_counts",
    ),
    Case("dup-04-group", elsewhere="tests/test_settled.py::test_names_are_given_to_students_and_to_groups"),
    Case(
        "dup-05-identical-submissions",
        elsewhere="tests/test_reports_similar.py::test_identical_submissions_are_found_without_the_library",
    ),
    Case(
        "ops-01-one-bad-stops-all",
        elsewhere="tests/test_attacks.py::test_a_neighbour_judged_after_all_of_them_has_full_marks",
    ),
    Case(
        "ops-02-resume",
        elsewhere="tests/test_resume.py::test_a_grader_killed_at_any_moment_loses_nothing_and_repeats_nothing",
    ),
    Case(
        "ops-04-timeout-as-pass",
        elsewhere="tests/test_worker.py::test_a_test_that_waits_is_stopped_by_the_clock_on_the_wall",
    ),
    Case(
        "ops-05-parallel-load-changes-marks",
        elsewhere="tests/test_grading.py::test_one_and_two_jobs_give_the_same_marks",
    ),
    Case(
        "ops-06-regrade-diff",
        elsewhere="tests/test_instructor.py::test_a_regrade_shows_first_and_replaces_nothing_without_a_yes",
    ),
    Case(
        "ops-08-xdist-worker-death",
        elsewhere="tests/test_worker.py::test_a_trusted_process_that_is_killed_is_started_anew",
    ),
    Case(
        "ops-09-signal-to-grader",
        elsewhere="tests/test_grading.py::test_a_signal_that_ends_a_run_leaves_no_process",
    ),
]
