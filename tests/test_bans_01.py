"""Bans of lab 01: the finished activations, norms and checks raise by every route, building stones work."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.course import load_course
from tests.test_bans import outcomes

ROOT = Path(__file__).resolve().parents[1]
RULES = load_course(ROOT).find_lab("01").rules

REFUSED = {
    "leaky ReLU": "F.leaky_relu(x)",
    "leaky ReLU with a gradient": "F.leaky_relu(x.clone().requires_grad_())",
    "leaky ReLU in place": "F.leaky_relu_(x)",
    "leaky ReLU's module": "torch.nn.LeakyReLU()(x)",
    "leaky ReLU's backward": "torch.ops.aten.leaky_relu_backward(x, x, 0.01, False)",
    "PReLU": "F.prelu(x, torch.tensor([0.01]))",
    "PReLU's method": "x.prelu(torch.tensor([0.01]))",
    "RReLU with equal ends": "F.rrelu(x, 0.01, 0.01)",
    "Mish": "F.mish(x)",
    "Mish's module": "torch.nn.Mish()(x)",
    "Mish's binding": "torch._C._nn.mish(x)",
    "Mish's backward": "torch.ops.aten.mish_backward(x, x)",
    "Mish in float64": "F.mish(x.double())",
    "SiLU": "F.silu(x)",
    "SiLU's backward": "torch.ops.aten.silu_backward(x, x)",
    "GLU": "F.glu(x)",
    "softplus": "F.softplus(x)",
    "softplus's backward": "torch.ops.aten.softplus_backward(x, x, 1, 20)",
    "log-sigmoid": "F.logsigmoid(x)",
    "GELU": "F.gelu(x)",
    "hard swish": "F.hardswish(x)",
    "layer norm": "F.layer_norm(x, (4,))",
    "layer norm's backward": "torch.ops.aten.native_layer_norm_backward"
    "(x, x, (4,), x[:, :1], x[:, :1], None, None, (True, False, False))",
    "group norm": "F.group_norm(x, 1)",
    "batch norm": "F.batch_norm(x.T, None, None, training=True)",
    "reference": "torch._refs.nn.functional.mish(x)",
    "decomposition": "torch._decomp.decompositions.silu(x)",
    "gradcheck": "torch.autograd.gradcheck(torch.sin, x.double().requires_grad_())",
    "gradgradcheck": "torch.autograd.gradgradcheck(torch.sin, x.double().requires_grad_())",
    "its Jacobians": "sys.modules['torch.autograd.gradcheck'].get_numerical_jacobian(torch.sin, (x,))",
    "trace": "torch.jit.trace(lambda x: F.mish(x), x)",
    "vmap": "torch.func.vmap(F.silu)(x)",
}
ALLOWED = {
    "hyperbolic": "torch.tanh(x), torch.atanh(x / 2), torch.cosh(x), x.tanh().sum()",
    "their backward": "torch.tanh(x.clone().requires_grad_()).sum().backward()",
    "exponentials": "torch.exp(x), torch.log1p(x), torch.expm1(x), torch.logaddexp(x, x), torch.sigmoid(x)",
    "sigmoid's backward": "torch.sigmoid(x.clone().requires_grad_()).sum().backward()",
    "cases": "torch.where(x > 0, x, 0.01 * x), x.clamp(min=0), torch.relu(x), x.sign(), x.abs()",
    "moments": "torch.var_mean(x, -1, correction=0), x.mean(-1), x.var(-1, correction=0), x.rsqrt()",
    "Function": "torch.autograd.Function",
    "autograd": "torch.autograd.grad((x.requires_grad_() ** 2).sum(), x, allow_unused=True)",
    "functional autograd": "torch.autograd.functional.vjp(torch.sin, x, x), torch.func.vjp(torch.sin, x)",
    "randomness": "torch.randn(3, generator=torch.Generator().manual_seed(1))",
    "places": "torch.unravel_index(torch.tensor(3), (2, 4)), x.argmax(), x.isfinite().all()",
}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What became of each case, all in one process."""
    return outcomes({**REFUSED, **ALLOWED}, RULES)


@pytest.mark.parametrize("name", REFUSED)
def test_the_finished_thing_is_refused_by_every_route(found: dict[str, str], name: str) -> None:
    assert found[name] == "refused"


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_lab_is_written_with_works(found: dict[str, str], name: str) -> None:
    assert found[name] == "returned"
