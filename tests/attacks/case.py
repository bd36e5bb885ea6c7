"""What a case is: a hand-in for lab 02, and what the grader must make of it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.course import load_lab

ROOT = Path(__file__).resolve().parents[2]
LAB = load_lab(ROOT / "labs" / "02_training_core", ROOT / "solutions" / "02_training_core")
RIGHT = LAB.solution.read_text(encoding="utf-8")

ALL = frozenset(step.number for step in LAB.steps)
NONE: frozenset[int] = frozenset()

# An attack prints this once it has done what no submission may do.
REACHED = "REACHED"
# Every file that an attack writes, wherever it can, has a name that begins like this.
LEFT = "left-by-a-submission"

Bodies = Mapping[str, str]  # dotted name of a function → the statements that replace its body

# Values of the right types, so that they would pass wherever the comparison can be switched off.
WRONG_BODIES: Bodies = {
    "kaiming_normal_": "return w",
    "xavier_uniform_": "return w",
    "LayerNorm.forward": "return x * 1",
    "RMSNorm.forward": "return x * 1",
    "cross_entropy": """
        zeros = logits.reshape(-1, logits.shape[-1])[:, 0] * 0
        return zeros if reduction == "none" else zeros.sum()
    """,
    "AdamW.step": "return None if closure is None else closure()",
    "newton_schulz": "return G * 1",
    "Muon.add_param_group": "super().add_param_group(param_group)",
    "Muon.step": "return None if closure is None else closure()",
    "lr_cosine": "return 0.0",
    "lr_wsd": "return 0.0",
    "clip_grad_norm_": "return torch.tensor(0.0)",
    "accumulate_gradients": "return torch.tensor(0.0)",
}


@dataclass(frozen=True)
class Case:
    """A hand-in (the text of an exercise, or files that `files` puts into the student's folder) and its fate.

    `elsewhere` names the test that shows a case which isn't a matter of one hand-in; it has none here.
    """

    id: str
    source: str = ""
    earned: frozenset[int] | None = NONE  # the steps that get their points, exactly; None: any
    withheld: frozenset[int] = NONE  # the steps that wait for a person, at least
    failed: frozenset[int] | None = None  # whose tests don't all pass, at least; None: all that earn nothing
    said: tuple[str, ...] = ()  # patterns, each found in a message, a verdict or a finding
    unsaid: tuple[str, ...] = ()  # texts found in none of them
    files: Callable[[Path], object] | None = None
    repeatable: bool = False  # judged twice, with equal verdicts
    elsewhere: str = ""


def rewritten(source: str, bodies: Bodies) -> str:
    """The source with other bodies; a docstring goes with the old one."""
    lines = source.splitlines()
    found = {name: node for name, node in _functions(ast.parse(source).body, "")}
    for name in sorted(bodies, key=lambda name: -found[name].lineno):
        first, last = found[name].body[0], found[name].body[-1]
        lines[first.lineno - 1 : last.end_lineno] = indented(
            bodies[name], " " * first.col_offset
        ).splitlines()
    return "\n".join(lines) + "\n"


def indented(code: str, by: str) -> str:
    """A block of code at another depth."""
    return textwrap.indent(textwrap.dedent(code).strip("\n"), by)


def _functions(body: list[ast.stmt], prefix: str) -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            found += _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            found.append((prefix + node.name, node))
    return found


def right(top: str = "", bodies: Bodies | None = None, end: str = "") -> str:
    """The solution with some bodies replaced; `top` runs after the imports, `end` at the end of the file."""
    source = rewritten(RIGHT, bodies or {})
    place = source.index("# ------")
    return source[:place] + textwrap.dedent(top) + "\n\n" + source[place:] + "\n\n" + textwrap.dedent(end)


def wrong(top: str = "", bodies: Bodies | None = None, end: str = "") -> str:
    """An exercise that is wrong in every step, but for what an attack can do about it."""
    return right(top, {**WRONG_BODIES, **(bodies or {})}, end)


def but(*steps: int) -> frozenset[int]:
    """All steps without these."""
    return ALL - frozenset(steps)
