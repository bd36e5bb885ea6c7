"""Sketches: equal within the tolerance, different beyond it, and stored without loss."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from grader.diagnosis import Sketch, SketchBook, sketch


def values(seed: int = 0) -> torch.Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_change_within_the_tolerance_keeps_the_sketch_fitting() -> None:
    change = torch.rand(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2e-6 - 1e-6
    assert sketch(values()).fits(sketch(values() + change), allowed=1e-6)


def test_another_wrong_value_does_not_fit() -> None:
    assert not sketch(values()).fits(sketch(values() * 1.001), allowed=1e-6)
    assert not sketch(values()).fits(sketch(-values()), allowed=1e-6)
    assert not sketch(values()).fits(sketch(values().T), allowed=1e-6)
    assert not sketch(values()).fits(sketch(values().float()), allowed=1e-6)


@pytest.mark.parametrize(
    "value", [0.5, True, None, "raised TypeError", math.nan, torch.tensor([math.inf, 1.0])]
)
def test_every_kind_of_value_has_a_sketch_that_fits_itself(value: float) -> None:
    assert sketch(value).fits(sketch(value), allowed=0.0)


def test_nan_and_infinity_are_told_apart() -> None:
    kinds = [sketch(torch.tensor([x, 1.0])) for x in (math.nan, math.inf, -math.inf, 0.0)]
    assert not any(a.fits(b, 0.0) for a in kinds for b in kinds if a is not b)


def test_the_quantity_of_a_trajectory_belongs_to_the_sketch() -> None:
    assert not sketch(1.0, "step 1, weight").fits(sketch(1.0, "step 2, weight"), allowed=0.0)


def test_a_book_names_the_mistake_and_survives_its_file(tmp_path: Path) -> None:
    book = SketchBook(0, {"halved": "one half", "negative": "a minus – too many"})
    book.add("test_x", 2, "halved", sketch(values() / 2))
    book.add("test_x", 2, "negative", sketch(-values()))
    path = tmp_path / "sketches.json"
    path.write_text(book.dump(), encoding="utf-8")
    read = SketchBook.load(path)
    assert read is not None
    assert read.seed == 0
    assert read.names["negative"] == "a minus – too many"
    assert read.match("test_x", 2, sketch(values() / 2), allowed=1e-9) == ["halved"]
    assert read.match("test_x", 2, sketch(values() / 3), allowed=1e-9) == []
    assert read.match("test_x", 1, sketch(values() / 2), allowed=1e-9) == []
    assert read.dump() == book.dump()


def test_a_value_that_fits_too_many_mistakes_names_none() -> None:
    book = SketchBook(0, {})
    for id in ("a", "b", "c"):
        book.add("test_x", 0, id, sketch(True))
    assert book.match("test_x", 0, sketch(True), allowed=0.0) == []


def test_no_file_is_no_book(tmp_path: Path) -> None:
    assert SketchBook.load(tmp_path / "sketches.json") is None


def test_a_sketch_reveals_few_numbers() -> None:
    assert len(sketch(torch.randn(1000)).numbers) == 8
    assert sketch(torch.empty(0)) == Sketch("float32(0,)")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"seed": 0}', '{"seed": 0, "names": {}, "checks": {"a": 1}}']
)
def test_a_damaged_book_says_how_to_mend_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sketches.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is damaged; get it back"):
        SketchBook.load(path)
