"""Frozen: what tests ask of torch can't be replaced, and everything that people write still works.

Freezing can't be taken back in a process, so the cases run in a child.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REFUSED = (
    "torch.Tensor.std = f",
    "torch.equal = f",
    "torch.nn.Module.__call__ = f",
    "torch.nn.Parameter.__eq__ = f",
    "torch.optim.Optimizer.step = f",
    "torch.nn.functional.pad = f",
    "math.isclose = f",
    "builtins.float = f",
    "del torch.Tensor.std",
    "del torch.equal",
    "setattr(torch, 'equal', f)",
    "exec('for torch.equal in [f]: pass')",
)
ALLOWED = (
    "torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)",
    "torch.set_default_device('cpu')",
    "torch.backends.cudnn.deterministic = True",
    "type('T', (torch.Tensor,), {}).std = f",
    "type('M', (torch.nn.Module,), {'forward': f})().std = f",
    "torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()",
    "torch.func.vmap(lambda x: 2 * x)(torch.ones(2, 2))",
    "import torch.utils.checkpoint, torch.distributions",
    "copy.deepcopy(torch.nn.Linear(2, 2)).to(torch.bfloat16)",
    "type('O', (torch.optim.Optimizer,), {'step': f})([torch.ones(1)], {}).zero_grad()",
    "torch.nn.Parameter(torch.ones(1)).mine = 3",
)
CHILD = """
import builtins, copy, json, math, sys
import torch
from grader.freezing import freeze

freeze()
f = lambda *arguments, **options: True
found = {}
for code in json.loads(sys.stdin.read()):
    try:
        exec(code)
        found[code] = "done"
    except (TypeError, AttributeError) as error:
        found[code] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([*REFUSED, *ALLOWED]),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("code", REFUSED)
def test_what_tests_rely_on_stays(found: dict[str, str], code: str) -> None:
    assert "immutable type" in found[code] or "here" in found[code]


@pytest.mark.parametrize("code", ALLOWED)
def test_what_people_write_works(found: dict[str, str], code: str) -> None:
    assert found[code] == "done"
