"""What a person decided about a student's marks: reviews of findings, and points given by hand."""

from __future__ import annotations

from dataclasses import dataclass

from grader.verdicts import Finding


@dataclass(frozen=True)
class Review:
    """A person has looked at the findings of a step: its tests count (accepted), or it is worth nothing.

    With a `line`, only at those of this line; what is decided later counts more.
    """

    step: int
    accepted: bool
    reason: str
    line: int | None = None

    def decides(self, finding: Finding) -> bool:
        return self.step == finding.step and self.line in (None, finding.line)


@dataclass(frozen=True)
class Override:
    """Points that a person gave, for a step or (None) for the whole lab, whatever the tests say."""

    step: int | None
    points: float
    reason: str
