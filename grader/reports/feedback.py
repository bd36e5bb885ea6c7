"""What a failed test may tell a student about hidden inputs: what differs, in words, and no value.

A message of a class seed names numbers, shapes and lines of the test, and an exercise can put whatever it has
seen into an exception's text. So nothing is passed on but what is known to be harmless.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection

from grader import verdicts
from grader.advice import LACKS, SENTENCES
from grader.marking import Result
from grader.reports.rows import common_error
from grader.verdicts import Verdict, one_line

_HEADLINE = re.compile(
    r"(?P<what>.+?)(?:"
    r": not the expected value"
    r"|: (?P<first>first differs at step .+)"
    r"|: must raise (?P<error>\w+), raised .*"
    r"| is \S+, must lie between .*"
    r"|: (?:has shape \(|\d+ steps against ).*"
    r"|: (?:is .+, expected one number|.+ is no record of its steps)"
    r")"
)
_HOLDS = re.compile(r"this does not hold: (?P<what>.+)")
# A number that says where in the test, not what was computed.
_NUMBER = re.compile(
    r"(?P<place>\b(?:step \d+(?: of \d+)?|parameter \d+))\b"
    r"|(?<![\w.])[-−+]?(?:\d[\d_]*(?:\.\d*)?(?:[eE][-+−]?\d+)?|\.\d+|inf|nan)(?![\w.])"
)
_TUPLE = re.compile(r"[(\[][\s…,]*…[\s…,]*[)\]]")
_DETAILS = (  # how the second line of a message begins, and what of it is told
    ("largest error", "the values differ"),
    ("at [", "the values differ"),
    ("got ", "the values differ"),
    ("has shape", "the shape differs"),
    ("has dtype", "the dtype differs"),
    ("has layout", "the layout differs"),
    ("has ", "the length differs"),
    ("is ", "it is of another type than expected"),
)
_RAISED = re.compile(r"(?P<place>(?:[\w.-]+ line \d+: )?)(?P<type>\w+)(?:[:;] .*)?")
_PLACE = re.compile(r"(?P<place>[\w.-]+ line \d+: ).*")
_SYNTAX = re.compile(  # what Python says of a file that it can't read; the file's own text follows
    r"(?P<told>[\w.-]+ line \d+: (?:invalid syntax|unexpected indent|unexpected EOF while parsing"
    r"|unindent does not match any outer indentation level|inconsistent use of tabs and spaces in indentation"
    r"|'[(\[{]' was never closed|unmatched '[)\]}]'|expected ':'|expected an indented block"
    r"|unterminated string literal|unterminated triple-quoted string literal|'return' outside function"
    r"|from __future__ imports must occur at the beginning of the file|invalid decimal literal"
    r"|expected 'except' or 'finally' block|unexpected character after line continuation character"
    r"|positional argument follows keyword argument|Missing parentheses in call to 'print'))"
    r"(?:\W.*)?"
)
_LACKS = re.compile(
    r"[\w.-]+ defines no '(?P<name>\w+)'(?P<near>; it has '\w+')?; the stub had it \(step \d+\)"
)
_FORBIDDEN = re.compile(r"(?P<place>exercise\.py line \d{1,5}: )ForbiddenCall: .*")
_SKIPPED = "the exercise skipped its own test, which counts as not passed"
_SAID = re.compile(r"\b(\w*(?:Error|Exception|Exit|Interrupt|Warning|Iteration))\b: [^;]*")
_ENOUGH = 60  # characters that tell a message from another: the line about a hand-in may be cut
_ADVICE = (*SENTENCES, "the stub's signatures must stay as they were")
_IMPORTS = re.compile(rf"it imports `[\w.]{{1,60}}`, {re.escape(LACKS)}")
LOOKS_LIKE, OR = "looks like: ", ", or "
SECTION = re.compile(r"→ README section \d+(?:\.\d+)*")
_IN_WORDS = {
    verdicts.TO_DO: "still to do: NotImplementedError",
    verdicts.TIME_OUT: "stopped: it did not finish in time",
    verdicts.MEMORY: "stopped: it needed more memory than it may have",
    verdicts.CRASHED: "the test ended the process that ran it",
    verdicts.FORBIDDEN: "a call of something that the lab asks you to write yourself",
    verdicts.MISSING: "not run",
    verdicts.GRADER_ERROR: "the grader itself failed here, which is no fault of yours; it has to run again",
}


def for_student(verdict: Verdict, mistakes: Collection[str] = ()) -> str:
    """Return what a student may read of a test that isn't passed: a few lines without a number of the test.

    The first says in words what differs. Then come "looks like: …", for names that are among `mistakes`, and
    where to read, as the message has them. Values, shapes, texts of exceptions and the test's lines stay out.
    """
    first, *rest = verdict.message.splitlines() or [""]
    rest = [line.strip() for line in rest]
    lines = [_first_line(verdict.verdict, first.strip(), rest)]
    lines += [line for line in rest if line in _ADVICE]
    named = [line for line in rest if line.startswith(LOOKS_LIKE)]
    lines += [line for line in named if set(line.removeprefix(LOOKS_LIKE).split(OR)) <= set(mistakes)]
    lines += [line for line in rest if SECTION.fullmatch(line)]
    return "\n".join(lines)


def without_values(text: str) -> str:
    """`text` with an ellipsis in place of each number but those that count steps and parameters."""
    shortened = _NUMBER.sub(lambda found: found["place"] or "…", text)
    return _TUPLE.sub("…", shortened)


def hand_in_line(result: Result) -> str:
    """Return the message about a student's hand-in without the text of an exception that it may quote."""
    line = result.message
    error = one_line(common_error(result).partition("\n")[0])
    if error and error[:_ENOUGH] in line:
        # No input was there yet when the file could not be loaded: which module it lacks tells nothing.
        lacks = _IMPORTS.findall(error)
        told = [_exception(error), *(one for one in _ADVICE if one in error), *lacks]
        return line.partition(error[:_ENOUGH])[0] + "; ".join(told)
    return _SAID.sub(r"\1", line)


def _first_line(kind: str, first: str, rest: list[str]) -> str:
    if kind == verdicts.WRONG:
        return _difference(first, rest[0] if rest else "")
    if kind == verdicts.ERROR:
        return _exception(first)
    found = _FORBIDDEN.fullmatch(first) if kind == verdicts.FORBIDDEN else None
    return (found["place"] if found else "") + _IN_WORDS.get(kind, "not passed")


def _difference(first: str, second: str) -> str:
    """What a check compared, and in which way it differs."""
    if found := _HOLDS.fullmatch(first):
        return f"this does not hold: {without_values(found['what'])}"
    found = _HEADLINE.fullmatch(first)
    if found is None:
        return "not the expected result"
    what = without_values(found["what"])
    if found["error"]:
        return f"{what}: must raise {found['error']}"
    if found["first"]:
        what = f"{what}: {without_values(found['first'])}"
    detail = next((told for start, told in _DETAILS if second.startswith(start)), "not the expected value")
    return f"{what}: {detail}"


def _exception(first: str) -> str:
    """Where an exception left the exercise, and its type if it is one of Python's own."""
    if first == _SKIPPED:
        return first
    if found := _LACKS.fullmatch(first):
        return f"the exercise defines no {found['name']!r}, which the stub had{found['near'] or ''}"
    if found := _FORBIDDEN.fullmatch(first):
        return found["place"] + _IN_WORDS[verdicts.FORBIDDEN]
    if found := _SYNTAX.fullmatch(first):
        return found["told"]
    found = _RAISED.fullmatch(first)
    if found is None:
        found = _PLACE.fullmatch(first)
        return f"{found['place'] if found else ''}an error"
    known = getattr(builtins, found["type"], None)
    is_pythons_own = isinstance(known, type) and issubclass(known, BaseException)
    return f"{found['place']}{found['type'] if is_pythons_own else 'an exception'}"
