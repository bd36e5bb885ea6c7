"""Where an implementation stands in a lab: each step's state, and the next thing to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grader import verdicts
from grader.course import Lab, Step
from grader.verdicts import Verdict

STUB_MESSAGE = re.compile(r"step (\d+): (\S+) \(README")  # "lab 02, step 3: cross_entropy (README section 3)"


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


def load_error(states: Sequence[StepState]) -> str:
    """The line that says why the file can't be loaded, if every test ended with the same one."""
    tests = [test for state in states for test in state.tests]
    messages = {test.message for test in tests}
    same = len(tests) > 1 and len(messages) == 1 and all(test.verdict == verdicts.ERROR for test in tests)
    return messages.pop() if same else ""


def next_line(lab: Lab, states: Sequence[StepState]) -> str:
    """The next thing to do, where the page explains it, and the command for a hint."""
    broken = load_error(states)
    if broken:
        return f"next: the file can't be loaded, so no test could begin; mend {broken}"
    for state in states:
        if state.passed or not state.tests:
            continue
        step = state.step
        missing = _still_to_do(state)
        doing = f"write {', '.join(missing)}" if missing else f"mend {_first_open(state)}"
        return (
            f"next: step {step.number} ({step.title}): {doing}; "
            f"see labs/{lab.name}/README.md section {step.section}; "
            f"stuck? grader hint {lab.number} {step.number}"
        )
    if any(not state.tests for state in states):
        return f"next: all that ran has passed; run the whole lab: pytest labs/{lab.name}"
    return f"lab {lab.number} is done: all {len(states)} steps passed"


def _still_to_do(state: StepState) -> list[str]:
    """What must be written before the step's tests can run, if nothing else keeps it from passing.

    It may belong to another step: accumulation needs the cross-entropy.
    """
    if state.to_do:
        return list(state.step.todo)
    if any(not test.passed and test.verdict != verdicts.TO_DO for test in state.tests):
        return []
    met = [STUB_MESSAGE.search(test.message) for test in state.tests if not test.passed]
    names = [f"{match[2]} (step {match[1]})" for match in met if match is not None]
    return list(dict.fromkeys(names))


def _first_open(state: StepState) -> str:
    """The first test that tells the student most: a wrong value before what is merely still to do."""
    order = sorted(state.tests, key=lambda test: (test.passed, test.verdict == verdicts.TO_DO))
    return order[0].test
