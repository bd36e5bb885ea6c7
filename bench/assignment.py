"""One small assignment, written once and rendered for each tool: five functions, one check each.

The checks' inputs are fixed, so that every tool computes and compares the same numbers. A check calls the
submission as `lab.NAME(...)`; where a tool puts the names elsewhere, the prefix goes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SOLUTION = """\
def rms_norm(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def log_sum_exp(x):
    top = x.amax(-1, keepdim=True)
    return (x - top).exp().sum(-1).log() + top.squeeze(-1)


def smoothed(values, beta):
    average = torch.zeros_like(values[0])
    for value in values:
        average = beta * average + (1 - beta) * value
    return average


def momentum_step(weight, gradient, buffer, lr, mu):
    return weight - lr * (mu * buffer + gradient)


def clipped(gradient, most):
    return gradient * torch.clamp(most / gradient.square().sum().sqrt(), max=1.0)
"""
RIGHT = SOLUTION.split("\n\n\n")
WRONG = [*RIGHT[:-1], "def clipped(gradient, most):\n    return gradient"]  # loses one check

LINE = "torch.linspace({}, dtype=torch.float64)"
CHECKS = {  # function → inputs, what is got, what is expected
    "rms_norm": (
        f"x = {LINE.format('-3, 3, 24')}.reshape(4, 6)",
        "lab.rms_norm(x, 1e-6)",
        "torch.nn.functional.rms_norm(x, (6,), eps=1e-6)",
    ),
    "log_sum_exp": (
        f"x = {LINE.format('-900, 900, 24')}.reshape(4, 6)",
        "lab.log_sum_exp(x)",
        "torch.logsumexp(x, -1)",
    ),
    "smoothed": (
        f"v = {LINE.format('0, 1, 15')}.reshape(5, 3)",
        "lab.smoothed(v, 0.9)",
        "torch.stack([0.1 * 0.9 ** (4 - i) * v[i] for i in range(5)]).sum(0)",
    ),
    "momentum_step": (
        f"w, g, b = {LINE.format('-1, 1, 12')}.reshape(3, 4)",
        "lab.momentum_step(w, g, b, 0.1, 0.9)",
        "w - 0.09 * b - 0.1 * g",
    ),
    "clipped": (
        f"g = {LINE.format('-2, 2, 12')}",
        "lab.clipped(g, 1.0)",
        "g / torch.linalg.vector_norm(g)",
    ),
}
CLOSE = "atol=1e-12, rtol=1e-10"


def script(functions: list[str]) -> str:
    """Return a submission as a Python file."""
    return "\n\n\n".join(["import torch", *functions])


def statements(name: str, prefix: str) -> str:
    """Return a check as statements that raise AssertionError."""
    inputs, got, expected = CHECKS[name]
    return f"{inputs}\ntorch.testing.assert_close({got}, {expected}, {CLOSE})".replace("lab.", prefix)


def pytest_file() -> str:
    """Return the checks as a pytest file on the module `submission`."""
    tests = [f"def test_{name}():\n{_indented(name, 4)}\n" for name in CHECKS]
    return "\n\n".join(["import submission as lab\nimport torch\n", *tests])


def unittest_file() -> str:
    """Return the checks as gradescope-utils wants them: a test case with weights."""
    head = "import unittest\nimport submission as lab\nimport torch\n"
    head += "from gradescope_utils.autograder_utils.decorators import weight\n\n\n"
    tests = [f"    @weight(1)\n    def test_{name}(self):\n{_indented(name, 8)}\n" for name in CHECKS]
    return "\n".join([head, "class Test(unittest.TestCase):", *tests])


def _indented(name: str, by: int) -> str:
    return "\n".join(" " * by + line for line in statements(name, "lab.").splitlines())


def doctest_file(name: str) -> str:
    """Return a check as a test file of otter-grader (the doctest format of its documentation)."""
    code = "\n".join(f">>> {line}" for line in statements(name, "").splitlines())
    suite = {"cases": [{"code": code, "hidden": False, "locked": False}], "scored": True, "type": "doctest"}
    return f"OK_FORMAT = True\ntest = {{'name': {name!r}, 'points': 1, 'suites': [{suite!r}]}}\n"


def notebook(functions: list[str]) -> str:
    """Return a submission as a notebook that nbgrader and otter-grader take: functions and their checks."""
    cells = [_cell("setup", "import torch", grade=False, solution=False, locked=True)]
    for name, function in zip(CHECKS, functions, strict=True):
        cells.append(_cell(name, function, grade=False, solution=True, locked=False))
        check = statements(name, "")
        cells.append(_cell(f"check_{name}", check, grade=True, solution=False, locked=True, points=1))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content)


def _cell(name: str, source: str, **kind: object) -> dict[str, Any]:
    metadata = {"nbgrader": {"grade_id": name, "schema_version": 3, "task": False, **kind}}
    cell = {"cell_type": "code", "id": name, "source": source, "metadata": metadata}
    return {**cell, "execution_count": None, "outputs": []}


STEP = """
[[steps]]
number = {number}
id = "{name}"
title = "{name}"
points = 1
section = "1"
todo = ["{name}"]
tests = ["test_{name}"]
hints = ["a", "b", "c"]
"""
LAB_TEST = """
def test_{name}(lab):
    {inputs}
    assert_matches({got}, lambda: {expected}, {close}, what="{name}")
"""


def write_course(root: Path) -> None:
    """Write the assignment below `root` as a course of this grader with one lab."""
    lab, solutions = root / "labs" / "01_small", root / "solutions" / "01_small"
    lab.mkdir(parents=True)
    solutions.mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    manifest = 'title = "Small"\nsummary = "Five functions."\ntest_file = "test_small.py"\n'
    tests = "import torch\n\nfrom grader.checks import assert_matches\n"
    for number, (name, (inputs, got, expected)) in enumerate(CHECKS.items(), start=1):
        manifest += STEP.format(number=number, name=name)
        tests += LAB_TEST.format(name=name, inputs=inputs, got=got, expected=expected, close=CLOSE)
    (lab / "lab.toml").write_text(manifest)
    (lab / "test_small.py").write_text(tests)
    stubs = [f"{text.splitlines()[0]}\n    raise NotImplementedError" for text in RIGHT]
    (lab / "exercise.py").write_text(script(stubs))
    (solutions / "solution.py").write_text(script(RIGHT))
