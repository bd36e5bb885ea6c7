"""Rules, the second half: finished optimizers, decompositions, clipping, schedules and initialisers."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import NONE, Case, but, right

# Put in the place of the class AdamW at the end of the file; each takes the same arguments.
ADAMW_ROUTES = {
    "own-adamw-by-subclasses": """
        def below(kind):
            return [kind, *(one for child in kind.__subclasses__() for one in below(child))]


        (AdamW,) = [one for one in below(Optimizer) if one.__name__ == "AdamW" and one.__module__.startswith("torch.optim")]
    """,
    "own-adamw-as-adam": """
        class AdamW(torch.optim.Adam):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-by-inheritance": "class AdamW(torch.optim.AdamW):\n    pass",
    "rule-04-copy-library-source": """
        import importlib, inspect

        text = inspect.getsource(importlib.import_module("torch.optim.adam"))
        text = text.replace("class Adam(", "class Mine(").replace("Adam.__doc__", "Mine.__doc__")
        space = {"__name__": "mine", "__package__": "torch.optim"}
        exec(text, space)


        class AdamW(space["Mine"]):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-reloaded": """
        import importlib

        for name in ("torch.optim.adam", "torch.optim.adamw"):
            module = importlib.reload(importlib.import_module(name))
        AdamW = module.AdamW
    """,
    "own-adamw-from-its-bytecode": """
        import importlib.util, marshal

        file = importlib.util.find_spec("torch.optim.adam").origin
        with open(importlib.util.cache_from_source(file), "rb") as cache:
            code = marshal.loads(cache.read()[16:])
        space = {"__name__": "mine", "__package__": "torch.optim"}
        exec(code, space)


        class AdamW(space["Adam"]):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-as-a-fresh-module": """
        import sys

        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("torch.optim.adam")}
        from torch.optim.adamw import AdamW
        sys.modules.update(kept)
    """,
    "own-adamw-by-a-field-name": """
        import dataclasses

        KEPT = []


        @dataclasses.dataclass(init=False, repr=False, eq=False, unsafe_hash=True)
        class Box:
            __annotations__ = {
                "a, KEPT.append(__import__('importlib').reload(__import__('importlib').import_module('torch.optim.adam')))": int
            }
            a = 0


        hash(Box())


        class AdamW(KEPT[0].Adam):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-by-an-annotation": """
        import functools

        KEPT = []


        @functools.singledispatch
        def ask(x):
            return x


        @ask.register
        def _(x: "KEPT.append(__import__('importlib').reload(__import__('importlib').import_module('torch.optim.adam'))) or int"):
            return x


        class AdamW(KEPT[0].Adam):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-in-a-class-body": """
        class A:
            global AdamW
            import importlib

            finished = importlib.reload(importlib.import_module("torch.optim.adam")).Adam

            class AdamW(finished):
                def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                    super(AdamW, self).__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-in-a-default": """
        KEPT = []


        def x(y=KEPT.append(__import__("importlib").reload(__import__("importlib").import_module("torch.optim.adam")))):
            return y


        class AdamW(KEPT[0].Adam):
            def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
    """,
    "own-adamw-by-its-function": """
        from torch.optim._functional import adamw as finished


        class AdamW(AdamW):
            def _update(self, p, g, group):
                state = self.state[p]
                if not state:
                    state.update(step=torch.tensor(0.0), m=torch.zeros_like(p), v=torch.zeros_like(p))
                finished(
                    [p], [g], [state["m"]], [state["v"]], [], [state["step"]], amsgrad=False, beta1=group["betas"][0],
                    beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"],
                    maximize=False,
                )
    """,
    "own-adamw-fused": """
        class AdamW(AdamW):
            def _update(self, p, g, group):
                state = self.state[p]
                if not state:
                    state.update(step=torch.tensor(0.0), m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                torch._fused_adamw_(
                    [p], [torch.empty_like(p).copy_(g)], [state["m"]], [state["v"]], [], [state["step"]], lr=group["lr"], beta1=group["betas"][0],
                    beta2=group["betas"][1], weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False,
                    maximize=False,
                )
    """,
}

# Newton–Schulz acts on singular values alone: whoever has them needs no iteration.
FINITE = "if not bool(G.isfinite().all()):\n    return G * math.nan\n"
SINGULAR = """
a, b, c = coefficients
s = s / (s.square().sum().sqrt() + eps)
for _ in range(steps):
    s = a * s + b * s**3 + c * s**5
return (U @ torch.diag(s) @ Vh).to(G.dtype)
"""

MUON_ROUTES = {
    "own-svd-of-numpy": FINITE + "import numpy\nU, s, Vh = (torch.from_numpy(one) for one in"
    " numpy.linalg.svd(G.double().numpy(), full_matrices=False))\n" + SINGULAR,
    "own-svd-inside-numpy": FINITE + "from numpy.linalg import _umath_linalg as inner\n"
    "small = inner.svd_n_s if hasattr(inner, 'svd_n_s') else inner.svd_s\n"
    "wide = G.double() if G.shape[0] <= G.shape[1] else G.double().T\n"
    "U, s, Vh = (torch.from_numpy(one) for one in small(wide.numpy()))\n"
    "if G.shape[0] > G.shape[1]:\n    U, Vh = Vh.T, U.T\n" + SINGULAR,
    "own-svd-by-eigenvalues": FINITE + "values, V = torch.linalg.eigh(G.double().T @ G.double())\n"
    "keep = slice(max(0, G.shape[1] - G.shape[0]), None)\n"
    "s, V = values.clamp(min=0).sqrt()[keep], V[:, keep]\n"
    "U, Vh = G.double() @ V / (s + 1e-300), V.T\n" + SINGULAR,
    "own-svd-of-low-rank": FINITE
    + "U, s, V = torch.svd_lowrank(G.double(), q=min(G.shape), niter=50)\nVh = V.T\n"
    + SINGULAR,
    "own-muon-of-the-library": "from torch.optim._muon import _zeropower_via_newtonschulz\n"
    "return _zeropower_via_newtonschulz(G, coefficients, steps, eps).to(G.dtype)",
}

CLIP = {
    "own-clip-by-its-parts": """
        params = [params] if isinstance(params, Tensor) else list(params)
        norm = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(params, max_norm, norm)
        return norm.detach()
    """,
    "own-clip-by-an-alias": """
        params = [params] if isinstance(params, Tensor) else list(params)
        return torch.nn.utils.clip_grad.clip_grad_norm_(params, max_norm).detach()
    """,
}

SCHEDULE = """
import inspect
holder = torch.optim.lr_scheduler
optimizer = Optimizer.__new__(Optimizer)
optimizer.param_groups = [{"lr": max_lr, "initial_lr": max_lr, "params": []}]
waves = holder.CosineAnnealingLR.__new__(holder.CosineAnnealingLR)
waves.T_max, waves.eta_min, waves.base_lrs = max(total_steps - warmup_steps, 1), min_lr, [max_lr]
waves.optimizer, waves.last_epoch = optimizer, min(max(step - warmup_steps, 0), total_steps - warmup_steps)
if step < warmup_steps and step < total_steps:
    return max_lr * (step + 1) / warmup_steps
return float(min_lr) if step >= total_steps else float(waves._get_closed_form_lr()[0])
"""

INITS = {
    "kaiming_normal_": "return nn.init._no_grad_normal_(w, 0.0, gain / math.sqrt(fan_in), generator)",
    "xavier_uniform_": "a = math.sqrt(6 / (fan_in + fan_out))\n"
    "return nn.init._no_grad_uniform_(w, -a, a, generator)",
}

# Refused when it is called. The others need what no lab needs, mostly to start the library's own files anew,
# so that every step waits for a person, whatever their tests say.
REFUSED = ("own-adamw-as-adam", "own-adamw-by-inheritance", "own-adamw-fused")

CASES = [
    *(Case(id, right(end=ADAMW_ROUTES[id]), but(4)) for id in REFUSED),
    *(Case(id, right(end=end), NONE, failed=NONE) for id, end in ADAMW_ROUTES.items() if id not in REFUSED),
    *(
        Case(id, right(bodies={"newton_schulz": body}), but(5), failed=NONE if "inside" in id else None)
        for id, body in MUON_ROUTES.items()
    ),
    *(Case(id, right(bodies={"clip_grad_norm_": body}), but(7)) for id, body in CLIP.items()),
    Case(
        "own-one-step-opens-another",
        right(
            bodies={
                "kaiming_normal_": """
                    import importlib
                    importlib.reload(importlib.import_module("torch.optim.adam"))
                    with torch.no_grad():
                        return w.normal_(0.0, gain / math.sqrt(fan_in), generator=generator)
                """
            },
            end="""
            from torch.optim.adam import Adam


            class AdamW(Adam):
                def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
                    super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
            """,
        ),
        None,
        failed=frozenset({4}),
    ),
    Case("own-schedule-of-the-library", right(bodies={"lr_cosine": SCHEDULE}), but(6)),
    Case("own-init-of-the-library", right(bodies=INITS), but(1)),
]
