"""What a person decided about a student's marks: reviews of findings, and points given by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Review:
    """A person has looked at the findings of a step: its tests count (accepted), or it is worth nothing."""

    step: int
    accepted: bool
    reason: str


@dataclass(frozen=True)
class Override:
    """Points that a person gave, for a step or (None) for the whole lab, whatever the tests say."""

    step: int | None
    points: float
    reason: str
