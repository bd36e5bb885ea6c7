"""Bans: the finished thing raises by every route, what the lab allows works.

Bans can't be lifted in a process, so all cases run in a child.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader import bans
from grader.course import Rules, load_course

ROOT = Path(__file__).resolve().parents[1]
LABS = load_course(ROOT).labs
RULES = load_course(ROOT).find_lab("02").rules

REFUSED = {
    "functional": "F.layer_norm(x, (4,))",
    "module": "torch.nn.modules.normalization.LayerNorm(4)",
    "alias of the module": "torch.nn.LayerNorm(4)",
    "assembled name": "getattr(torch, 'layer' + '_norm')(x, (4,))",
    "operator": "torch.ops.aten.native_layer_norm.default(x, (4,), None, None, 1e-5)",
    "packet": "torch.ops.aten.layer_norm(x, (4,))",
    "binding": "torch._C._nn.cross_entropy_loss(x, torch.tensor([0, 1]))",
    "variable functions": "torch._C._VariableFunctions.softmax(x, -1)",
    "method": "x.softmax(-1)",
    "method of the base": "torch._C.TensorBase.log_softmax(x, -1)",
    "special": "torch.special.softmax(x, -1)",
    "sibling group norm": "F.group_norm(x, 1)",
    "sibling batch norm": "F.batch_norm(x.T, None, None, training=True)",
    "sibling instance norm": "F.instance_norm(x[None])",
    "rms norm": "F.rms_norm(x, (4,))",
    "attention as a softmax": "F.scaled_dot_product_attention(x[None], x[None], x[None])",
    "reference": "torch._refs.nn.functional.layer_norm(x, (4,))",
    "reference of softmax": "torch._refs.softmax(x, -1)",
    "decomposition": "torch._decomp.decompositions._log_softmax(x, -1, False)",
    "script": "torch.jit.trace(lambda x: torch.softmax(x, -1), x)",
    "vmap": "torch.func.vmap(lambda row: row.softmax(-1))(x)",
    "with a gradient": "torch.softmax(x.clone().requires_grad_(), -1)",
    "in another dtype": "torch.softmax(x.half(), -1, dtype=torch.float64)",
    "loss": "F.nll_loss(x, torch.tensor([0, 1]))",
    "loss module": "torch.nn.CrossEntropyLoss()(x, torch.tensor([0, 1]))",
    "optimizer": "torch.optim.AdamW([p])",
    "another optimizer": "torch.optim.SGD([p], lr=0.1)",
    "found by its base": "[c for c in below(torch.optim.Optimizer) if c.__name__ == 'Adam'][0]([p])",
    "functional optimizer": "sys.modules['torch.optim.adamw'].adamw()",
    "single tensor": "sys.modules['torch.optim.adam']._single_tensor_adam()",
    "step without a constructor": "torch.optim.AdamW.step(torch.optim.Optimizer([p], {}))",
    "fused": "torch._fused_sgd_([p.data], [p.data], [], lr=1.0, weight_decay=0.0, momentum=0.0, "
    "dampening=0.0, nesterov=False, maximize=False, is_first_step=True)",
    "schedule": "torch.optim.lr_scheduler.CosineAnnealingLR(torch.optim.Optimizer([p], {'lr': 1}), 9)",
    "clip": "torch.nn.utils.clip_grad_norm_([p], 1.0)",
    "init": "torch.nn.init.kaiming_normal_(p)",
    "init through a module's own walk": "torch.nn.Linear(4, 2)._apply(torch.nn.init.xavier_uniform_)",
    "SVD": "torch.linalg.svd(x)",
    "SVD method": "x.svd()",
    "QR": "torch.linalg.qr(x)",
    "eigenvectors": "torch.linalg.eigh(x @ x.T)",
    "pseudo-inverse": "torch.linalg.pinv(x)",
    "NumPy's SVD": "numpy.linalg.svd(x.numpy())",
    "NumPy's QR": "numpy.linalg.qr(x.numpy())",
}
ALLOWED = {
    "logsumexp": "x.clone().requires_grad_().logsumexp(-1).sum().backward()",
    "elementary": "(x.exp() / x.exp().sum(-1, keepdim=True)).log().rsqrt().sqrt()",
    "moments": "torch.var_mean(x, -1, correction=0), x.std(), x.norm(), torch.linalg.vector_norm(x)",
    "products": "torch.einsum('ij,kj->ik', x, x) @ (x @ x.T)",
    "picking": "x.gather(-1, torch.tensor([[0], [1]])), x[torch.arange(2), torch.tensor([0, 1])]",
    "filling": "p.data.normal_(0, 1, generator=torch.Generator()), torch.randn(2).uniform_(-1, 1)",
    "base class": "torch.optim.Optimizer([p], {'lr': 1}).zero_grad()",
    "parameter and module": "torch.nn.Parameter(torch.ones(2)), torch.nn.Module(), torch.nn.ReLU()(x)",
    "a layer that fills its own weights": "torch.nn.Linear(4, 2)(x), torch.nn.Embedding(3, 4), "
    "torch.nn.Conv1d(1, 1, 2), torch.nn.MultiheadAttention(4, 2)",
    "autograd": "torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)",
}
CHILD = """
import json, sys
import numpy, torch
from torch.nn import functional as F
from grader import bans
from grader.course import Rules

cases, rules = json.loads(sys.stdin.read())

def below(found):
    return [found] + [other for one in found.__subclasses__() for other in below(one)]

import torch._refs, torch._decomp.decompositions, torch.cpu.amp, torch.cuda.amp, torch.utils.checkpoint
held = bans.apply_bans(Rules(**rules))
found = {}
for name, code in cases.items():
    x, p = torch.ones(2, 4), torch.nn.Parameter(torch.ones(2))
    try:
        eval(code)
        found[name] = "returned"
    except BaseException as error:
        found[name] = "refused" if isinstance(error, bans.ForbiddenCall) else repr(error)
print(json.dumps(found))
"""


def outcomes(cases: dict[str, str], rules: Rules) -> dict[str, str]:
    """What becomes of each case under a lab's bans, in one process: "refused", "returned", or the error."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD],
        input=json.dumps([cases, rules.model_dump()]),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return outcomes({**REFUSED, **ALLOWED}, RULES)


@pytest.mark.parametrize("name", REFUSED)
def test_the_finished_thing_is_refused_by_every_route(found: dict[str, str], name: str) -> None:
    assert found[name] == "refused"


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_lab_is_written_with_works(found: dict[str, str], name: str) -> None:
    assert found[name] == "returned"


@pytest.mark.parametrize("name", dict.fromkeys(name for lab in LABS for name in lab.rules.banned_names))
def test_every_banned_name_exists_in_this_torch(name: str) -> None:
    assert bans.find(name) is not None


@pytest.mark.parametrize("pattern", dict.fromkeys(one for lab in LABS for one in lab.rules.banned_operators))
def test_every_pattern_fits_an_operator_of_this_torch(pattern: str) -> None:
    assert bans._operators(RULES.model_copy(update={"banned_operators": (pattern,)}))


def test_a_class_that_refers_to_itself_is_walked_once() -> None:
    """As torch.autograd.Function's do: each names the class of its backward, which names it in turn."""

    class Forward:
        def run(self) -> None: ...

    class Backward:
        there = Forward

        def run(self) -> None: ...

    Forward.back = Backward  # type: ignore[attr-defined]
    assert len(list(bans._functions_in(Forward))) == 2
