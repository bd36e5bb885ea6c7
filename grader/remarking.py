"""Decisions of a person, and the marks that follow from them, in the gradebook at once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from grader.course import Course, CourseError, Lab
from grader.decisions import Review
from grader.differences import Change
from grader.gradebook import Basis, Gradebook
from grader.marking import number
from grader.verdicts import one_line, printable

MOST_LISTED = 8


def find_one(what: str, wanted: str, known: Iterable[str]) -> str:
    """The one of `known` that is `wanted`, or the only one that begins so; CourseError lists several."""
    names = sorted(set(known))
    if wanted in names:
        return wanted
    found = [name for name in names if name.casefold().startswith(wanted.casefold())]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(printable(name) for name in (found or names)[:MOST_LISTED])
    rest = len(found or names) - MOST_LISTED
    shown += f" and {rest} more" if rest > 0 else ""
    if found:
        raise CourseError(f"several {what}s begin with {wanted!r}: {shown}")
    raise CourseError(f"there is no {what} {wanted!r}; there are: {shown or 'none'}")


def find_basis(gradebook: Gradebook, course: Course, student: str, lab: str | None) -> tuple[Basis, Lab]:
    """What a student's marks rest on; without `lab` for the only lab that the student has marks for."""
    marks = gradebook.students()
    name = find_one("student", student, (one for one, _ in marks))
    labs = sorted(one for who, one in marks if who == name)
    wanted = course.find_lab(lab).name if lab is not None else labs[0]
    if lab is None and len(labs) > 1:
        raise CourseError(f"{name} has marks for {', '.join(labs)}: say which with --lab")
    basis = gradebook.basis(name, wanted)
    if basis is None:
        raise CourseError(f"{name} has no marks for {wanted}; grade first")
    return basis, course.find_lab(wanted)


def without_a_pass(basis: Basis) -> str:
    """Why no test of a submission has passed, so that accepting it gives 0; "" if one has."""
    judgement = basis.judgement
    if any(verdict.passed for verdict in judgement.verdicts):
        return ""
    said = [judgement.message, *(verdict.message for verdict in judgement.verdicts)]
    return one_line(next(filter(None, said), "no test was run"))


def review(
    gradebook: Gradebook,
    basis: Basis,
    lab: Lab,
    step: int | None,
    accepted: bool,
    reason: str,
    line: int | None = None,
) -> Change:
    """Decide the findings of a line, of a step, or of all steps that wait; return what follows for the marks.

    Accepted, a step gets what its tests earned, once all its lines are; rejected, it is worth 0. This holds
    for exactly this source.
    """
    reason = _reason(reason)
    if line is not None and step is not None:
        raise CourseError("give --line, for all steps that wait for it, or --step; not both")
    found = {one.step for one in basis.findings if line in (None, one.line)}
    if line is not None:
        steps = sorted(found)
    elif step is None:
        result = gradebook.result(basis.student, basis.lab)
        steps = sorted({one.step for one in result.findings}) if result is not None else []
    else:
        steps = [lab.find_step(str(step)).number]
    if not found.issuperset(steps) or not steps:
        where = f"step {step} of {basis.student}" if step is not None else basis.student
        where = f"line {line} of {basis.student}" if line is not None else where
        raise CourseError(
            f"{where} has no finding to decide for {lab.name}; to give points by hand: grader override"
        )
    with gradebook.transaction():
        for one in steps:
            gradebook.add_review(basis, Review(one, accepted, reason, line))
        return _mark_again(gradebook, basis, lab, steps)


def override(
    gradebook: Gradebook, basis: Basis, lab: Lab, step: int | None, points: float | None, reason: str
) -> Change:
    """Give points by hand for a step, or for the lab (no step), or take them back (None).

    A step can't get more than it has; the lab as a whole can.
    """
    if points is not None and not (math.isfinite(points) and points >= 0):
        raise CourseError(f"points by hand are a number from 0 on, not {points:g}")
    chosen = None
    if step is not None:
        found = lab.find_step(str(step))
        chosen = found.number
        if points is not None and points > found.points:
            raise CourseError(
                f"step {chosen} ({found.title}) has {found.points} points, and {number(points)} are more; "
                "for points on top of the lab leave --step out"
            )
    reason = "" if points is None else _reason(reason)
    with gradebook.transaction():
        gradebook.add_override(basis.student, basis.lab, chosen, points, reason)
        return _mark_again(gradebook, basis, lab, [] if chosen is None else [chosen])


def _reason(text: str) -> str:
    reason = one_line(text)
    if not reason:
        raise CourseError("say why: --reason TEXT")
    return reason


def _mark_again(gradebook: Gradebook, basis: Basis, lab: Lab, steps: list[int]) -> Change:
    """Store the marks that follow now, unless the lab has changed so that other steps would change along.

    `basis` was read before the transaction; if another grader has stored a new hand-in meanwhile, nothing is.
    """
    if basis.source_hash is None:
        raise CourseError(f"the marks of {basis.student} are of an older grader: grade the class again first")
    if gradebook.basis(basis.student, basis.lab) != basis:
        raise CourseError(f"{basis.student} has just been graded again: look again")
    old = gradebook.result(basis.student, basis.lab)
    new = gradebook.mark(basis, lab)
    before = [one for one in old.steps if one.step not in steps] if old is not None else []
    if before != [one for one in new.steps if one.step not in steps]:
        raise CourseError(
            f"{lab.name} has changed since {basis.student} was graded: first grade, or regrade, the class"
        )
    gradebook.store_mark(basis, new)
    return Change(lab, basis, basis, old, new)
