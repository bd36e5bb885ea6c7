"""Which first uses are still slow in a child: python -m bench.cold

Each operation is a submission of its own, so that it runs in a fresh child: twice, at import, each time
under a clock. What costs more the first time is work that the warm server could have done before.
"""

from __future__ import annotations

import re
from threading import Event

from bench.measure import ROOT, finish, say, start, table
from grader.course import load_course
from grader.worker import Examiner, Limits

SEED = 2026
COLD = 0.005  # seconds more than the second time
TRIES = 3  # of what looks cold, in fresh children: the smallest difference counts

SUBMISSION = """
import copy, time
import torch
from torch import nn

x = torch.arange(12.0).reshape(3, 4) + 1
m = torch.arange(9.0).reshape(3, 3) + 1
i = torch.tensor([[0, 1], [2, 0], [1, 1]])
w = nn.Parameter(torch.ones(3, 4))
g = torch.Generator()


class Plain(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {{"lr": 0.1}})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def call():
    {code}


for _ in range(2):
    begin = time.perf_counter()
    call()
    print("took", time.perf_counter() - begin, flush=True)
"""

OPERATIONS = """
x.exp() | x.log() | x.sqrt() | x.rsqrt() | x.tanh() | x.sigmoid() | x.erf() | x.pow(3) | x ** 0.5 | x.sign()
x.clamp(min=2) | torch.where(x > 2, x, 0.0) | x.masked_fill(x > 2, 0.0) | torch.maximum(x, x)
x.isnan().any() | x.lerp(x, 0.5) | torch.addcdiv(x, x, x) | x.sum(-1) | x.mean(-1, keepdim=True)
x.var(-1, unbiased=False) | x.std() | x.amax(-1) | x.logsumexp(-1) | x.norm() | torch.linalg.vector_norm(x)
torch.linalg.matrix_norm(x) | x.cumsum(-1) | x.argmax(-1) | x.sort() | x.topk(2) | x.median()
x.sum().item() | x @ x.T | x.div(3).round() | torch.bmm(m[None], m[None]) | torch.einsum('ij,kj->ik', x, x)
torch.addmm(m, m, m) | m @ m[0] | m.trace() | torch.outer(m[0], m[1]) | torch.eye(3)
m.double() @ m.double() | x.gather(1, i) | x.clone().scatter_(1, i, 1.0) | x[[0, 2]] | x[x > 3]
x.nonzero() | x[:, None] | torch.cat([x, x]) | torch.stack([x, x]) | x.chunk(2) | x.flatten() | x.unbind()
nn.functional.one_hot(i) | torch.arange(5) | torch.linspace(0, 1, 5) | x.T.contiguous()
torch.randn(3, generator=g) | torch.rand(3) | x.clone().normal_(0, 1, generator=g)
x.clone().uniform_(-1, 1) | torch.randperm(5) | torch.manual_seed(1) | x.bfloat16().mean()
x.half() @ x.half().T | x.bfloat16() @ x.bfloat16().T | (w * w).sum().backward()
torch.autograd.grad((w * w).sum(), w) | Double.apply(w).sum().backward()
torch.autograd.grad((w * w).sum(), w, create_graph=True) | (w @ x.T).logsumexp(-1).sum().backward()
w.exp().mean().backward() | w[i].sum().backward() | w.register_hook(lambda gradient: None) | Net()(x)
Net().state_dict() | copy.deepcopy(Net()) | nn.Linear(4, 2) | nn.functional.linear(x, w)
nn.functional.gelu(x) | Plain([w]) | Plain([w]).zero_grad() | w.grad = x; Plain([w]).step()
copy.deepcopy(Plain([w]).state_dict()) | torch._foreach_mul([x, x], 2.0) | torch._foreach_norm([x])
with torch.no_grad(): w.mul_(0.9) | with torch.enable_grad(): (w * 2).sum().backward() | x.numpy()
x.tolist() | repr(x) | torch.allclose(x, x) | torch.testing.assert_close(x, x)
torch.func.grad(lambda v: (v * v).sum())(x) | torch.func.vmap(torch.sum)(x) | import numpy
import dataclasses | import warnings | import logging | import threading | import matplotlib.pyplot
"""


def main() -> None:
    operations = [code for line in OPERATIONS.strip().splitlines() for code in line.split(" | ")]
    found: dict[str, tuple[float, float]] = {}
    refused: list[str] = []
    with Examiner(load_course(ROOT).find_lab("02"), SEED, Limits()) as examiner:
        for number, code in enumerate(operations, start=1):
            say(f"{number} of {len(operations)}: {code}")
            for _ in range(TRIES):
                printed = examiner.judge(SUBMISSION.format(code=code), stop=Event()).output
                times = [float(text) for text in re.findall(r"^took (\S+)$", printed, re.MULTILINE)]
                if len(times) < 2:
                    refused.append(code)
                    break
                found[code] = min((times[0], times[1]), found.get(code, (1e9, 0.0)), key=_more)
                if _more(found[code]) < COLD:
                    break
    slowest = sorted(found.items(), key=lambda item: -_more(item[1]))
    cold = [item for item in slowest if _more(item[1]) > COLD]
    rows = [[f"`{code}`", f"{1000 * a:.3g}", f"{1000 * b:.3g}"] for code, (a, b) in cold or slowest[:5]]
    lines = [
        table(["operation" if cold else "the slowest", "first use, ms", "second use, ms"], rows),
        f"\nRefused, or lost: {', '.join(f'`{code}`' for code in refused) or 'none'}",
    ]
    title = f"{len(cold)} of {len(found)} operations cost over {1000 * COLD:g} ms more the first time"
    finish("cold", title, "\n".join(lines), {"seconds": found, "refused": refused})


def _more(times: tuple[float, float]) -> float:
    """How much longer the first time took."""
    return times[0] - times[1]


if __name__ == "__main__":
    start(main)
