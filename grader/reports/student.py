"""One student's own page, in HTML and in Markdown: what passed, what didn't, where to read, a first hint.

It never holds the seed, an input or an expected value (see `feedback`), and nothing of another student.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.course import CourseError, Lab, Step
from grader.reports.feedback import LOOKS_LIKE, OR, SECTION, for_student, hand_in_line
from grader.reports.rows import NOT_RUN, PASSED, UNDECIDED, Outcome, Row, StepRow, common_error
from grader.reports.tallies import LabTally
from grader.reports.templates import render
from grader.verdicts import Finding, Verdict, function_name


@dataclass(frozen=True)
class Failure:
    """Tests of a step that aren't passed and of which the same is said."""

    functions: Counter[str]  # test function → how many of its cases
    text: str


@dataclass(frozen=True)
class StepPage:
    """What a student reads of one step."""

    number: int
    title: str
    section: str  # of the lab's page; "" where the lab no longer has the step
    points: float | None
    max_points: float
    outcome: Outcome
    passed: int
    total: int
    failures: tuple[Failure, ...]
    mistakes: tuple[str, ...]  # names of those that it looks like, the most frequent first
    findings: tuple[Finding, ...]  # for a person to look at before the step has a mark
    hint: str

    @property
    def text(self) -> str:
        """All of it as plain lines."""
        lines = [f"{self.passed} of {self.total} tests passed"]
        lines += [f"looks like: {name}" for name in self.mistakes]
        for failure in self.failures:
            lines += [", ".join(failure.functions), *(f"  {line}" for line in failure.text.splitlines())]
        lines += [self.waiting] if self.waiting else []
        lines += [f"read section {self.section} of the lab's page"] if self.reads else []
        lines += [f"hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)

    @property
    def reads(self) -> bool:
        """Whether the section is worth naming."""
        return bool(self.section) and _helps(self.outcome)

    @property
    def waiting(self) -> str:
        """Why there is no mark yet, "" if there is one."""
        if self.points is not None:
            return ""
        if not self.findings:
            return "not marked yet: it counts 0 until that is decided"
        return "a person looks at it before it is marked, and it counts 0 until then"


@dataclass(frozen=True)
class LabPage:
    """What a student reads of one lab."""

    lab: Lab
    row: Row
    hand_in: str  # the line about the hand-in, "" when all is well
    steps: tuple[StepPage, ...]


def lab_page(lab: Lab, row: Row) -> LabPage:
    """One lab of a student's page."""
    names = {mistake.name for mistake in lab.mistakes}
    steps = tuple(_step_page(lab, row, step, names) for step in row.steps)
    return LabPage(lab, row, hand_in_line(row.result), steps)


def student_pages(labs: Iterable[LabTally]) -> dict[str, list[LabPage]]:
    """Student → what each reads, lab by lab."""
    pages: dict[str, list[LabPage]] = {}
    for tally in labs:
        for row in tally.rows:
            pages.setdefault(row.result.student, []).append(lab_page(tally.lab, row))
    return pages


def page_files(
    pages: Mapping[str, Sequence[LabPage]], names: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    """For each student the names of both files below `students/`, and their content."""
    for student, labs in pages.items():
        yield f"{names[student]}.html", html_page(student, labs)
        yield f"{names[student]}.md", markdown_page(student, labs)


def html_page(student: str, labs: Sequence[LabPage]) -> bytes:
    """The page as one file for a browser without a network."""
    return render("student.html.j2", student=student, labs=labs).encode("utf-8")


def markdown_page(student: str, labs: Sequence[LabPage]) -> bytes:
    """The page in Markdown, for a mail, an issue or a repository."""
    return render("student.md.j2", student=student, labs=labs).encode("utf-8")


def _step_page(lab: Lab, row: Row, step: StepRow, names: set[str]) -> StepPage:
    known = _find_step(lab, step.marks.step)
    never_begun = bool(common_error(row.result))  # the line about the hand-in says why
    failures, mistakes = ((), ()) if never_begun else _failures(step, names)
    helps = known is not None and not never_begun and _helps(step.outcome)
    return StepPage(
        number=step.marks.step,
        title=step.marks.title,
        section=known.section if known and not never_begun else "",
        points=step.marks.points,
        max_points=step.marks.max_points,
        outcome=step.outcome,
        passed=len(step.passed),
        total=len(step.passed) + sum(len(group.tests) for group in step.failed),
        failures=failures,
        mistakes=mistakes,
        findings=tuple(one for one in row.findings if one.step == step.marks.step),
        hint=known.hints[0] if known and known.hints and helps else "",
    )


def _helps(outcome: Outcome) -> bool:
    return outcome not in (PASSED, NOT_RUN, UNDECIDED)


def _failures(step: StepRow, names: set[str]) -> tuple[tuple[Failure, ...], tuple[str, ...]]:
    """What is said of which tests, and the mistakes that are named in it."""
    functions: dict[str, Counter[str]] = {}
    mistakes: Counter[str] = Counter()
    for group in step.failed:
        for test in group.tests:
            said = []
            for line in for_student(Verdict(test, group.verdict, group.message), names).splitlines():
                if line.startswith(LOOKS_LIKE):
                    mistakes.update(line.removeprefix(LOOKS_LIKE).split(OR))
                elif not SECTION.fullmatch(line):
                    said.append(line)
            functions.setdefault("\n".join(said), Counter())[function_name(test)] += 1
    failures = tuple(Failure(counts, text) for text, counts in functions.items())
    return failures, tuple(name for name, _ in mistakes.most_common())


def _find_step(lab: Lab, number: int) -> Step | None:
    try:
        return lab.find_step(str(number))
    except CourseError:
        return None
