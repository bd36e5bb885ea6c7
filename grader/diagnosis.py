"""Naming a mistake: condense a wrong value to a sketch, and compare it with the sketches of known mistakes.

A sketch reveals no code: it is the value's form, its root mean square and a few signed means.
Signed means are chosen so that a change of at most d in every entry changes each of them by at most d:
two values that a check's tolerance can't tell apart have sketches within that same tolerance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from grader.comparison import Check, Value

PROJECTIONS = 4
DIGITS = 12  # what a sketch file keeps of each number
ROUNDING = 1e-9  # relative; another machine sums in another order
MOST_NAMES = 2  # a wrong value that fits more mistakes than this names none of them


@dataclass(frozen=True)
class Sketch:
    """A wrong value, condensed: `form` must agree exactly, `numbers` within a tolerance."""

    form: str
    numbers: tuple[float, ...] = ()

    def fits(self, other: Sketch, allowed: float) -> bool:
        """Whether both sketches may come from values that differ by at most `allowed` in every entry."""
        if self.form != other.form or len(self.numbers) != len(other.numbers):
            return False
        return all(
            math.isclose(a, b, rel_tol=ROUNDING, abs_tol=2 * allowed)  # each side errs by `allowed` at most
            for a, b in zip(self.numbers, other.numbers, strict=True)
        )


def sketch(value: Value | str, part: str = "") -> Sketch:
    """The sketch of a value that a check saw; `part` is the quantity of a trajectory."""
    if value is None or isinstance(value, str):
        return Sketch(f"{part}: {value}" if part else str(value))
    if isinstance(value, int) and value.bit_length() > 63:
        return Sketch(f"{part}: an int beyond 64 bits")
    tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    kind = f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}"
    flat = tensor.to(torch.float64).flatten()
    finite = flat.isfinite()
    kept = torch.where(finite, flat, torch.zeros_like(flat))
    counts = (flat.isnan().sum(), (flat == math.inf).sum(), (flat == -math.inf).sum())
    form = f"{part}: {kind}" if part else kind
    if not flat.numel():
        return Sketch(form)
    means = _signs(flat.numel()) @ kept / flat.numel()
    numbers = [float(kept.square().mean().sqrt()), *means.tolist(), *(float(count) for count in counts)]
    return Sketch(form, tuple(float(f"{number:.{DIGITS}g}") for number in numbers))


@lru_cache(maxsize=512)
def _signs(size: int) -> Tensor:
    """PROJECTIONS fixed rows of ±1; the first is all ones, so that a scalar keeps its sign."""
    generator = torch.Generator().manual_seed(size)
    signs = torch.randint(0, 2, (PROJECTIONS, size), generator=generator, dtype=torch.float64) * 2 - 1
    signs[0] = 1
    return signs


class SketchBook:
    """Sketches of a lab's known mistakes for one seed: (test, place of the check) → mistake → sketch.

    It carries the mistakes' names, so that a course without its solutions can still name them.
    """

    def __init__(
        self,
        seed: int,
        names: Mapping[str, str],
        entries: Mapping[str, Mapping[str, Sketch]] | None = None,
    ):
        self.seed = seed
        self.names = dict(names)
        self.entries = {key: dict(known) for key, known in (entries or {}).items()}

    @staticmethod
    def key(test: str, index: int) -> str:
        return f"{test} #{index}"

    def add(self, test: str, index: int, mistake: str, value: Sketch) -> None:
        self.entries.setdefault(self.key(test, index), {})[mistake] = value

    def match(self, test: str, index: int, value: Sketch, allowed: float) -> list[str]:
        """Ids of the mistakes whose wrong value this is; none if it fits too many to be a diagnosis."""
        known = self.entries.get(self.key(test, index), {})
        ids = [id for id, other in known.items() if other.fits(value, allowed)]
        return ids if len(ids) <= MOST_NAMES else []

    def match_check(self, test: str, index: int, check: Check) -> list[str]:
        return self.match(test, index, sketch(check.actual, check.part), check.allowed)

    def dump(self) -> str:
        """The book as text: stable order, one mistake or check a line."""
        names = [f"  {json.dumps(id)}: {json.dumps(self.names[id], ensure_ascii=False)}" for id in self.names]
        checks = [f"  {json.dumps(key)}: {json.dumps(self._rows(key))}" for key in sorted(self.entries)]
        return (
            f'{{"seed": {self.seed}, "names": {{\n'
            + ",\n".join(names)
            + '\n}, "checks": {\n'
            + ",\n".join(checks)
            + "\n}}\n"
        )

    def _rows(self, key: str) -> dict[str, list[str | float]]:
        return {id: [value.form, *value.numbers] for id, value in sorted(self.entries[key].items())}

    @classmethod
    def load(cls, path: Path) -> SketchBook | None:
        """The book in this file; None if there is no such file, ValueError if it is damaged."""
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            entries = {
                key: {id: Sketch(form, tuple(numbers)) for id, (form, *numbers) in known.items()}
                for key, known in data["checks"].items()
            }
            return cls(data["seed"], data["names"], entries)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{path} is damaged; get it back with git, or make it anew: grader generate"
            ) from None
