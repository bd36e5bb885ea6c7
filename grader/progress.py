"""Where an implementation stands in a lab: each step's state, and the next thing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader import verdicts
from grader.course import Lab, Step
from grader.verdicts import Verdict


@dataclass(frozen=True)
class StepState:
    """One step and the verdicts of its tests."""

    step: Step
    tests: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether every test of the step ran and passed."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def to_do(self) -> bool:
        """Whether nothing of the step but stubs has been met yet."""
        return all(test.verdict == verdicts.TO_DO for test in self.tests)

    @property
    def text(self) -> str:
        if not self.tests:
            return "not run"
        if self.passed:
            return "passed"
        if self.to_do:
            return "to do"
        failing = sum(not test.passed for test in self.tests)
        return f"{failing} of {len(self.tests)} tests not passed"


def step_states(lab: Lab, results: Sequence[Verdict]) -> list[StepState]:
    """The state of every step of the lab, in order."""
    return [
        StepState(step, tuple(result for result in results if lab.step_of(result.test) == step))
        for step in lab.steps
    ]


def next_line(lab: Lab, states: Sequence[StepState]) -> str:
    """The next thing to do, where the page explains it, and the command for a hint."""
    for state in states:
        if state.passed or not state.tests:
            continue
        step = state.step
        doing = f"write {', '.join(step.todo)}" if state.to_do else f"mend {_first_open(state)}"
        return (
            f"next: step {step.number} ({step.title}): {doing}; "
            f"see labs/{lab.name}/README.md section {step.section}; "
            f"stuck? grader hint {lab.number} {step.number}"
        )
    if any(not state.tests for state in states):
        return f"next: all that ran has passed; run the whole lab: pytest labs/{lab.name}"
    return f"lab {lab.number} is done: all {len(states)} steps passed"


def _first_open(state: StepState) -> str:
    """The first test that tells the student most: a wrong value before what is merely still to do."""
    order = sorted(state.tests, key=lambda test: (test.passed, test.verdict == verdicts.TO_DO))
    return order[0].test
