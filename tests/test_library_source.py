"""The library's own source is recognised under other names; what two people write alike is not."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from grader import library_source
from grader.library_source import Function, Likeness, compare


def likeness(source: str) -> Likeness:
    """Of the first function in a source."""
    tree = ast.parse(textwrap.dedent(source))
    return compare(next(node for node in ast.walk(tree) if isinstance(node, Function)))


PASTES = [
    ("optim/adam.py", "_single_tensor_adam"),
    ("optim/sgd.py", "_single_tensor_sgd"),
    ("nn/utils/clip_grad.py", "clip_grad_norm_"),
    ("nn/init.py", "kaiming_normal_"),
    ("nn/init.py", "kaiming_uniform_"),
    ("nn/init.py", "xavier_uniform_"),
    ("nn/init.py", "_calculate_fan_in_and_fan_out"),
    ("nn/init.py", "orthogonal_"),
    ("nn/functional.py", "local_response_norm"),
    ("_decomp/decompositions.py", "_log_softmax"),
    ("_decomp/decompositions.py", "nll_loss_forward"),
]


def source_of(file: str, name: str) -> str:
    """A function's text in the installed library."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    text = (Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function) and node.name == name]
    return ast.get_source_segment(text, found[0]) or ""


@pytest.mark.parametrize(("file", "name"), PASTES, ids=[name for _, name in PASTES])
def test_a_paste_of_the_library_is_recognised(file: str, name: str) -> None:
    assert likeness(source_of(file, name)).is_paste


def test_a_paste_is_recognised_under_other_names_and_without_its_text() -> None:
    tree = ast.parse(source_of("nn/init.py", "orthogonal_"))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                node.id = f"my_{name}"
            case ast.arg(arg=name):
                node.arg, node.annotation = f"my_{name}", None
            case ast.Constant(value=str()):
                node.value = "another text"
            case ast.FunctionDef():
                node.name, node.body = "total", node.body[1:]
    assert likeness(ast.unparse(tree)).share > 0.9


PRUNED = """
def update(params, grads, ms, vs, steps, beta1, beta2, lr, weight_decay, eps):
    for i, p in enumerate(params):
        g = grads[i]
        m = ms[i]
        v = vs[i]
        t = steps[i]
        t += 1
        if weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        step = t.item()
        c1 = 1 - beta1**step
        c2 = 1 - beta2**step
        size = lr / c1
        root = c2**0.5
        denom = (v.sqrt() / root).add_(eps)
        p.addcdiv_(m, denom, value=-size)
"""


def test_a_paste_is_recognised_without_the_branches_that_nobody_needs() -> None:
    assert likeness(PRUNED).is_paste


def test_a_paste_is_recognised_among_other_code() -> None:
    padding = "".join(f"    q{i} = other(x[{i}:], thing{i}.name{i}) + {i}\n" for i in range(150))
    whole = source_of("optim/adam.py", "_single_tensor_adam")
    assert likeness(f"{whole}\n{padding}").is_paste


HONEST = {
    "AdamW as textbooks have it": """
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                bias_correction1 = 1 - beta1 ** state["step"]
                bias_correction2 = 1 - beta2 ** state["step"]
                denom = (exp_avg_sq.sqrt() / math.sqrt(bias_correction2)).add_(group["eps"])
                step_size = group["lr"] / bias_correction1
                p.addcdiv_(exp_avg, denom, value=-step_size)
        return loss
    """,
    "AdamW from the formula": """
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    b1, b2 = group["betas"]
                    s = self.state[p]
                    s["t"] = s.get("t", 0) + 1
                    s["m"] = b1 * s.get("m", 0) + (1 - b1) * p.grad
                    s["v"] = b2 * s.get("v", 0) + (1 - b2) * p.grad**2
                    m_hat = s["m"] / (1 - b1 ** s["t"])
                    v_hat = s["v"] / (1 - b2 ** s["t"])
                    p -= group["lr"] * (m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * p)
        return loss
    """,
    "clipping as courses teach it": """
    def clip_grad_norm_(params, max_norm):
        if isinstance(params, torch.Tensor):
            params = [params]
        grads = [p.grad for p in params if p.grad is not None]
        if len(grads) == 0:
            return torch.tensor(0.0)
        total_norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        clip_coef = max_norm / (total_norm + 1e-6)
        clip_coef_clamped = torch.clamp(clip_coef, max=1.0)
        for g in grads:
            g.mul_(clip_coef_clamped)
        return total_norm
    """,
    "Newton-Schulz as published": """
    def newton_schulz(G, steps=10, eps=1e-7):
        assert len(G.shape) == 2
        a, b, c = (3.4445, -4.7750, 2.0315)
        X = G.bfloat16()
        X /= X.norm() + eps
        if G.size(0) > G.size(1):
            X = X.T
        for _ in range(steps):
            A = X @ X.T
            B = b * A + c * A @ A
            X = a * X + B @ X
        if G.size(0) > G.size(1):
            X = X.T
        return X
    """,
    "a closure and a loop": """
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * p.grad)
        return loss
    """,
}


@pytest.mark.parametrize("source", HONEST.values(), ids=list(HONEST))
def test_what_two_people_write_alike_is_no_paste(source: str) -> None:
    assert not likeness(source).is_paste


def test_the_courses_own_solutions_keep_their_distance() -> None:
    root = Path(__file__).resolve().parents[1]
    for path in [*root.glob("solutions/*/solution.py"), *root.glob("examples/class/*/*/exercise.py")]:
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
        assert [node.name for node in functions if compare(node).share > 0.6] == []
        assert library_source.pasted(functions) == []


def test_the_library_is_read_without_importing_it() -> None:
    code = "import sys, grader.library_source as l; print(len(l._index()[1]), 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    functions, imported = run.stdout.split()
    assert int(functions) > 200
    assert imported == "False"
