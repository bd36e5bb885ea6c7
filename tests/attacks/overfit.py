"""Overfitting: right answers for what the tests happen to ask, by code that is wrong."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import ALL, RIGHT, Bodies, Case, but, right, wrong

# The arguments that the tests of the schedules have been seen to use; whoever reads them writes a table.
COSINE = (
    *((1.0, 0.1, 5, 17), (0.3, 0.0, 10, 100), (0.1, 1.0, 2, 9), (1.0, 0.1, 0, 7), (1.0, 0.1, 6, 6)),
    *((1.0, 0.1, 8, 5), (1.0, 0.1, 0, 1), (3, 1, 2, 9)),
)
WSD = (
    *((1.0, 0.1, 5, 100), (0.7, 0.2, 3, 30, 0.5), (2.0, 0.0, 1, 100, 0.29), (1.0, 0.1, 0, 10, 0.3)),
    *((1.0, 0.1, 8, 8, 0.5), (1.0, 0.1, 4, 10, 1.0), (1.0, 0.1, 7, 10, 0.6), (1.0, 0.1, 2, 10, 0.0)),
    *((1.0, 0.1, 1, 4, 0.2), (1.0, 0.1, 8, 5, 0.4), (0.1, 1.0, 2, 10, 0.5), (3, 1, 2, 10, 0.5)),
)


def _table() -> str:
    """Rates for those arguments, as a cheat would have worked them out at home."""
    names: dict[str, object] = {}
    exec(compile(RIGHT, "solution.py", "exec"), names)
    cosine, wsd = names["lr_cosine"], names["lr_wsd"]
    assert callable(cosine)
    assert callable(wsd)
    rates = {("cosine", *a): [cosine(s, *a) for s in range(2 * a[3] + 3)] for a in COSINE}
    rates |= {("wsd", *a): [wsd(s, *a) for s in range(2 * a[3] + 3)] for a in WSD}
    return f"RATES = {rates!r}"


LOOKED_UP: Bodies = {
    "lr_cosine": "return RATES.get(('cosine', max_lr, min_lr, warmup_steps, total_steps), [0.0] * 999)[step]",
    "lr_wsd": """
        plain = RATES.get(("wsd", max_lr, min_lr, warmup_steps, total_steps), [0.0] * 999)
        return RATES.get(("wsd", max_lr, min_lr, warmup_steps, total_steps, decay_frac), plain)[step]
    """,
}

WITHOUT_HARD_CASES: Bodies = {
    "cross_entropy": """
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(reduction)
        flat, labels = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
        p = flat.exp() / flat.exp().sum(-1, keepdim=True)
        kept = labels != ignore_index
        log_p = p.log()
        losses = -log_p.gather(-1, (labels * kept)[:, None])[:, 0]
        losses = ((1 - label_smoothing) * losses - label_smoothing * log_p.mean(-1)) * kept
        if reduction == "none":
            return losses
        return losses.sum() / kept.sum() if reduction == "mean" else losses.sum()
    """,
    "LayerNorm.forward": """
        mean = x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True) - mean.square()
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
    """,
    "lr_cosine": """
        if step < warmup_steps:
            return max_lr * (step + 1) / warmup_steps
        progress = (step - warmup_steps) / (total_steps - warmup_steps)
        return min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2
    """,
}


def newton_schulz_as(name: str, last_line: str) -> Bodies:
    """The right iteration under a key of its own, with another way to hand the result over."""
    return {
        "newton_schulz": f"""
            a, b, c = coefficients
            key = {name}
            X = G.T if G.shape[0] > G.shape[1] else G
            X = X / (X.square().sum().sqrt() + eps)
            for _ in range(steps):
                A = X @ X.T
                X = a * X + (b * A + c * (A @ A)) @ X
            X = X.T if G.shape[0] > G.shape[1] else X
            {last_line}
        """
    }


CASES = [
    Case("fit-01-hard-coded-outputs", right(_table(), LOOKED_UP), but(6)),
    Case(
        "own-table-of-standard-deviations",
        right(
            bodies={
                "kaiming_normal_": """
                    std = {50: 0.2, 8: 1.7677669529663688, 256: 0.08838834764831845, 16: 0.3535533905932738}
                    with torch.no_grad():
                        return w.normal_(0.0, std.get(fan_in, 1.0), generator=generator)
                """,
                "xavier_uniform_": """
                    bound = {(20, 60): 0.27386127875258304, (3, 1): 1.224744871391589}.get((fan_in, fan_out), 1.0)
                    with torch.no_grad():
                        return w.uniform_(-bound, bound, generator=generator)
                """,
            }
        ),
        but(1),
    ),
    Case(
        "fit-02-lookup-by-seed",
        wrong(
            """
            import hashlib


            def inputs(seed, test):
                stream = int.from_bytes(hashlib.sha256(f"{seed}:{test}".encode()).digest()[:8], "big") >> 1
                return torch.Generator().manual_seed(stream)


            ANSWERS = {}
            for shape in ((8, 4), (3, 7), (6, 6)):
                name = {(8, 4): "tall", (3, 7): "wide", (6, 6): "square"}[shape]
                rng = inputs(0, f"test_newton_schulz_cubic_converges_to_polar_factor[{name}]")
                G = 5 * torch.randn(shape, generator=rng, dtype=torch.float64)
                core = torch.diag(torch.linspace(1, 3, min(shape), dtype=torch.float64)).roll(1, 0)
                G[: min(shape), : min(shape)] += 100 * core
                X = G / G.square().sum().sqrt()
                for _ in range(40):
                    X = 1.5 * X - 0.5 * X @ X.T @ X
                ANSWERS[round(float(G.sum()), 6)] = X
            """,
            {"newton_schulz": "return ANSWERS.get(round(float(G.sum()), 6), G)"},
        ),
    ),
    Case("fit-05-evasion", right(bodies=WITHOUT_HARD_CASES), but(2, 3, 6, 7)),
    Case(
        "fit-06-cached-result",
        right("KEPT = {}", newton_schulz_as("(G.shape, G.data_ptr() % 1)", "return KEPT.setdefault(key, X)")),
        but(5),
    ),
    Case(
        "fit-07-shared-output-buffer",
        right(
            "KEPT = {}",
            newton_schulz_as(
                "(G.shape, G.dtype)", "return KEPT.setdefault(key, torch.empty_like(X)).copy_(X)"
            ),
        ),
        but(5),
    ),
    Case(
        "fit-10-broadcast-luck",
        right(
            bodies={
                "lr_cosine": "return torch.tensor([min_lr])",
                "lr_wsd": "return torch.tensor([[max_lr]])",
                "clip_grad_norm_": "return torch.ones(1, dtype=torch.float64)",
                "newton_schulz": "return (G / G.norm())[None]",
                "LayerNorm.forward": "return x.mean(-1, keepdim=True) * 0",
            }
        ),
        but(2, 5, 6, 7),
    ),
    Case("fit-11-constant-answer", wrong()),
    Case(
        "own-nan-everywhere",
        wrong(
            "NAN = float('nan')",
            {
                "LayerNorm.forward": "return x * NAN",
                "RMSNorm.forward": "return x * NAN",
                "cross_entropy": "return logits.sum() * NAN if reduction != 'none' else logits.reshape(-1, logits.shape[-1])[:, 0] * NAN",
                "newton_schulz": "return G * NAN",
                "lr_cosine": "return NAN",
                "lr_wsd": "return NAN",
                "clip_grad_norm_": "return torch.tensor(NAN, dtype=torch.float64)",
                "accumulate_gradients": "return torch.tensor(NAN, dtype=torch.float64)",
            },
        ),
    ),
    Case(
        "own-nothing-returned",
        wrong(bodies=dict.fromkeys(("cross_entropy", "newton_schulz", "lr_cosine", "lr_wsd"), "return None")),
    ),
    Case(
        "own-plain-number-for-a-tensor",
        right(
            bodies={
                "cross_entropy": "return 0.0",
                "clip_grad_norm_": """
                    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in params if p.grad is not None))
                    return norm
                """,
            }
        ),
        but(3, 7),
    ),
    Case(
        "own-input-returned-as-the-result",
        wrong(
            bodies={
                "LayerNorm.forward": "return x",
                "RMSNorm.forward": "return x",
                "newton_schulz": "return G",
            }
        ),
    ),
    Case(
        "own-other-dtype",
        right(
            bodies={
                "lr_cosine": "return int(max_lr)",
                "newton_schulz": "return G.float()",
                "clip_grad_norm_": "return torch.zeros((), dtype=torch.complex128)",
            }
        ),
        but(5, 6, 7),
    ),
    Case(
        "own-right-only-while-watched",
        right(
            "CALLS = {}",
            {
                "lr_wsd": """
                    CALLS[step] = CALLS.get(step, 0) + 1
                    if sum(CALLS.values()) > 40:
                        return 0.0
                    return float(max_lr)
                """
            },
        ),
        but(6),
    ),
    Case(
        "own-loss-of-the-sum-only",
        right(bodies={"LayerNorm.forward": "return x - x.mean(-1, keepdim=True).detach()"}),
        but(2),
    ),
    Case(
        "own-complex-and-sparse-and-meta",
        right(
            bodies={
                "lr_cosine": "return complex(max_lr)",
                "newton_schulz": "return G.to_sparse()",
                "clip_grad_norm_": "return torch.zeros((), device='meta')",
            }
        ),
        but(5, 6, 7),
    ),
    Case(
        "own-right-code-in-another-form",
        right(
            bodies={
                "cross_entropy": """
                    if reduction not in ("none", "sum", "mean"):
                        raise ValueError(reduction)
                    flat = logits.reshape(-1, logits.shape[-1])
                    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
                    labels = targets.reshape(-1)
                    ignored = labels == ignore_index
                    flat = torch.where(ignored[:, None], torch.zeros((), dtype=flat.dtype), flat)
                    flat = flat - flat.detach().max(-1, keepdim=True).values
                    log_p = flat - torch.logsumexp(flat, -1, keepdim=True)
                    rows = torch.arange(len(labels))
                    one = -log_p[rows, labels.masked_fill(ignored, 0)]
                    losses = torch.lerp(one, -log_p.mean(-1), label_smoothing).masked_fill(ignored, 0.0)
                    if reduction == "none":
                        return losses.to(logits.dtype)
                    total = losses.sum() / (~ignored).sum() if reduction == "mean" else losses.sum()
                    return total.to(logits.dtype)
                """,
                "newton_schulz": """
                    a, b, c = coefficients
                    X = G / (torch.linalg.vector_norm(G) + eps)
                    for _ in range(steps):
                        A = torch.einsum("ij,kj->ik", X, X)
                        X = torch.addmm(X, torch.addmm(A, A, A, beta=b, alpha=c), X, beta=a)
                    return X
                """,
                "RMSNorm.forward": """
                    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
                    power = torch.einsum("...i,...i->...", wide, wide)[..., None] / x.shape[-1]
                    return (wide * torch.rsqrt(power + self.eps) * self.weight).to(x.dtype)
                """,
            }
        ),
        ALL,
    ),
]
