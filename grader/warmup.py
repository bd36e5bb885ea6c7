"""Use once what costs most the first time: what a server has done, its children need not do again.

A general exercise of operators, never a solution: a child has all of the server's memory.
`bench/cold.py` measures what is still cold.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class _Step(Optimizer):
    """An optimizer that does a little of everything."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        m = self.state[p].setdefault("m", torch.zeros_like(p))
                        m.mul_(0.9).add_(p.grad, alpha=0.1).addcmul_(p.grad, p.grad, value=0.1).lerp_(p, 0.1)
                        p.mul_(0.9).sub_(group["lr"] * m / (m.square().sqrt() + 1e-8)).addcdiv_(m, m + 1)
        return loss


class _Net(nn.Module):
    """A module with a parameter, a buffer and a child."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(()))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(x * self.weight)
        return out


def warm_up() -> None:
    """Use tensors, autograd, modules and optimizers once each, in all floating dtypes."""
    generator = torch.Generator().manual_seed(1)
    for dtype in DTYPES:
        _operators(torch.randn(2, 3, generator=generator).to(dtype))
    _indexing(generator)
    _modules()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        torch.ones(2, requires_grad=True).exp().sum().backward()  # type: ignore[no-untyped-call]
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad((x**3).sum(), x, create_graph=True)
    # With a gradient given, it imports for the better part of a second.
    (x**2).backward(torch.ones(2))  # type: ignore[no-untyped-call]


def _operators(x: Tensor) -> None:
    """Element-wise operators, reductions and products, forward and backward."""
    x = (x.abs() + 0.5).requires_grad_()
    y = ((x - x.mean(-1, keepdim=True)) ** 2 / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()).sum()
    y = (
        y
        + (x.exp() / x.exp().sum(-1, keepdim=True)).log().mean()
        + x.logsumexp(-1).sum()
        + x.square().rsqrt().sum()
    )
    y = y + (x @ x.T).tanh().sigmoid().sum() + torch.einsum("ij,kj->ik", x, x).norm() + x.amax(-1).sum()
    y = (
        y
        + torch.where(x > 0, x, -x).clamp(0, 1).max()
        + x.reciprocal().cumsum(0).prod()
        + x.std()
        + x.pow(2).sum()
    )
    y = (
        y
        + torch.stack([x, x]).sum()
        + torch.cat([x, x]).flatten()[1]
        + x.masked_fill(x > 1, 0).sum()
        + x.min()
    )
    y = (
        y
        + functional.relu(x).sum()
        + functional.silu(x).sum()
        + functional.gelu(x).sum()
        + torch.sin(x).cos().sum()
    )
    y.backward()
    plain = x.detach()
    plain.clone().normal_().uniform_().mul_(2).add_(1).sub_(1).div_(2).zero_().fill_(1).copy_(plain)
    for test in (plain.isnan(), plain.isfinite(), plain == plain, ~(plain < 1)):
        bool((test & test).any() | test.all())
    plain.to(torch.float32).double(), plain.tolist(), torch.allclose(plain, plain), torch.equal(plain, plain)
    (
        torch.full_like(plain, math.nan).nan_to_num(),
        plain.float().double().argmax(),
        plain.numpy(force=True) if (plain.dtype != torch.bfloat16) else None,
    )
    torch.linalg.vector_norm(plain), torch.cumsum(plain, 0), plain.transpose(0, 1).contiguous().view(-1)
    plain.sort(), plain.abs().topk(1), plain.sign(), plain.sum((0, 1)), plain.reshape(-1, 1).expand(-1, 2)


def _indexing(generator: torch.Generator) -> None:
    x = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(5, (4,), generator=generator)
    order = torch.randperm(4, generator=generator)
    picked = (
        x.gather(-1, labels[:, None]).squeeze(-1).sum()
        + x[torch.arange(4), labels].sum()
        + x[order][1:, ::2].sum()
    )
    picked = (
        picked
        + x[labels > 1].sum()
        + x.index_select(0, order).sum()
        + functional.one_hot(labels, 5).sum() * x.sum()
    )
    picked.backward()  # type: ignore[no-untyped-call]
    torch.zeros(5).scatter_(0, labels, 1.0).index_add_(0, labels, torch.ones(4))
    (
        torch.tril(torch.ones(3, 3)),
        torch.linspace(0, 1, 3),
        torch.diag(torch.ones(3)),
        torch.eye(3),
        torch.tensor([1.0]),
    )
    torch.bincount(labels), torch.unique(labels), (labels != 2).sum().item()


def _modules() -> None:
    net = _Net().double()
    optimizer = _Step([{"params": list(net.parameters())}])
    optimizer.add_param_group({"params": nn.Parameter(torch.ones(2))})
    handle = net.weight.register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = net(torch.ones(2, 3, dtype=torch.float64)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    handle.remove()
    net.to(torch.bfloat16).to(torch.float64)
    repr(net), net.train(False), dict(net.named_parameters()), net.requires_grad_(False)
    torch.testing.assert_close(torch.ones(2), torch.ones(2))
    with torch.inference_mode():
        net(torch.ones(3, dtype=torch.float64))
