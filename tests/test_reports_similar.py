"""Submissions that resemble each other."""

from __future__ import annotations

import re

import pytest

from grader.reports import similar
from grader.reports.similar import Pair, how_compared, similar_pairs

STUB = '''
import torch


def mean(x):
    """The mean of all entries, as a float: do not call a finished function for it."""
    raise NotImplementedError("lab 01, step 1: mean (README section 1)")


class Counter:
    """Counts."""

    def step(self, values):
        raise NotImplementedError("lab 01, step 2: Counter.step (README section 2)")
'''
BODIES = """
def mean(x):
    total = 0.0
    for row in x.reshape(-1, 4).tolist():
        for value in row:
            if value != value:
                continue
            total = total + float(value) * 2.0 / 2.0
    return total / max(1, x.numel())


def helper(first, second, third):
    kept = {key: first[key] for key in sorted(first) if key not in second}
    while third and len(kept) < 10:
        kept[third.pop()] = [None for _ in range(3)]
    return tuple(kept.items())[::-1]


class Counter:
    def step(self, values):
        for index, value in enumerate(values):
            self.seen = getattr(self, "seen", {})
            self.seen[value] = self.seen.get(value, 0) + index % 2
        return [self.seen[key] for key in self.seen if self.seen[key] > 1]
"""
OTHER = """
def mean(x):
    return float((x.sum() / x.numel()).item())


class Counter:
    def __init__(self, *, start=()):
        self.numbers = list(start)

    def step(self, values):
        try:
            self.numbers += [int(value) for value in values]
        except ValueError as error:
            raise TypeError(f"numbers, please: {error}") from None
        assert all(number >= 0 for number in self.numbers), "negative"
        return sum(self.numbers, start=-1) // (len(self.numbers) or 1)

    def reset(self):
        del self.numbers[:]
        with open("log.txt", mode="w") as file:
            print("reset", file=file, flush=True)
        return lambda: not self.numbers and file.closed is True
"""


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_library")
def test_identical_submissions_are_found_without_the_library() -> None:
    sources = {
        "bob": STUB + BODIES,
        "ada": (STUB + BODIES).replace("\n", "  \n") + "\n\n",
        "cyd": STUB + OTHER,
    }
    assert similar_pairs(sources, STUB, "02") == [Pair("ada", "bob", 1.0, True, "02")]
    assert "pip install 'llm-training-labs[similar]'" in how_compared()
    assert "\n" not in how_compared()


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("source", ["", "  \n", STUB, STUB.replace("\n", "\r\n")])
def test_untouched_stubs_and_empty_files_are_not_alike(source: str) -> None:
    assert similar_pairs({"ada": source, "bob": source, "cyd": "\n" + source}, STUB) == []


def with_library() -> None:
    pytest.importorskip("copydetect", reason="the extra `similar` isn't installed")


def test_a_copy_with_other_names_comments_and_layout_is_found() -> None:
    with_library()
    copy = re.sub(r"\b(total|kept|value|first|helper)\b", r"\1_of_mine", BODIES)
    copy = copy.replace("    return", "    # mine\n\n    return")
    found = similar_pairs({"ada": STUB + BODIES, "bob": STUB + copy, "cyd": STUB + OTHER}, STUB)
    assert [(pair.one, pair.other, pair.identical) for pair in found] == [("ada", "bob", False)]
    assert 0.9 <= found[0].score <= 1
    assert how_compared() == ""


def test_what_the_stub_has_already_is_no_likeness() -> None:
    with_library()
    long_stub = STUB + BODIES.replace("mean", "given").replace("Counter", "Given")
    sources = {"ada": long_stub + "\nx = 1\n", "bob": long_stub + "\nprint(2)\n"}
    assert similar_pairs(sources, long_stub) == []


def test_pairs_are_the_same_in_every_order_and_identical_ones_come_first() -> None:
    with_library()
    renamed = BODIES.replace("total", "acc")
    sources = {"ada": BODIES, "bob": renamed, "cyd": BODIES}
    found = similar_pairs(sources, STUB)
    assert found == similar_pairs(dict(reversed(sources.items())), STUB)
    assert [(pair.one, pair.other, pair.identical) for pair in found] == [
        ("ada", "cyd", True), ("ada", "bob", False), ("bob", "cyd", False),
    ]  # fmt: skip


@pytest.mark.parametrize("source", ["'\x00", "\ud800 = 1", "def (:\n\t '''", "é" * 50, "%%bash\nrm"])
def test_sources_that_are_no_python_are_borne(source: str) -> None:
    assert similar_pairs({"ada": source, "bob": source + "#"}, STUB) == []
