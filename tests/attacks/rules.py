"""Rules: the finished thing called instead of written, by whatever route."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import ALL, NONE, Case, but, indented, right

# Routes to a finished layer norm; whichever works first is used.
NORM_ROUTES = {
    "own-norm-by-decomposition": """
        from torch._decomp import decomposition_table as known
        finished = known.get(torch.ops.aten.native_layer_norm.default, torch._refs.native_layer_norm)
        return finished(x, [x.shape[-1]], self.weight, self.bias, self.eps)[0]
    """,
    "own-norm-by-reference-library": """
        import torch._refs
        return torch._refs.native_layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)[0]
    """,
    "own-norm-by-script": """
        unit = torch.jit.CompilationUnit(
            "def f(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:\\n"
            "    return torch.layer_norm(x, [x.shape[-1]], w, b, eps)\\n"
        )
        return unit.f(x, self.weight, self.bias, self.eps)
    """,
    "own-norm-by-pickle": """
        import pickle
        finished = pickle.loads(b"ctorch.nn.functional\\nlayer_norm\\n.")
        return finished(x, (x.shape[-1],), self.weight, self.bias, self.eps)
    """,
    "own-norm-by-batch-norm": """
        rows = x.reshape(-1, x.shape[-1])
        return (torch.native_batch_norm(rows.T, None, None, None, None, True, 0.0, self.eps)[0].T.reshape(x.shape)
                * self.weight + self.bias)
    """,
    "own-norm-by-instance-norm": """
        rows = x.reshape(1, -1, x.shape[-1])
        out = torch.nn.functional.instance_norm(rows, eps=self.eps).reshape(x.shape)
        return out * self.weight + self.bias
    """,
    "own-norm-by-redispatch": """
        operator = torch.ops.aten.native_layer_norm.default
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
        return operator.redispatch(keys, x, [x.shape[-1]], self.weight, self.bias, self.eps)[0]
    """,
    "own-norm-by-functional-transform": """
        finished = torch.func.vmap(lambda row: torch.nn.functional.layer_norm(row, (row.shape[-1],), self.weight, self.bias, self.eps))
        return finished(x.reshape(-1, x.shape[-1])).reshape(x.shape)
    """,
    "own-norm-by-transformer-layer": """
        layer = nn.TransformerEncoderLayer(x.shape[-1], 1, 1, norm_first=True, layer_norm_eps=self.eps)
        layer = layer.to(x.dtype).norm1
        return layer(x) * self.weight + self.bias
    """,
}

RMS_ROUTES = {
    "own-norm-by-normalize": """
        wide = x.float() if x.dtype.itemsize == 2 else x
        size = x.shape[-1]
        extra = torch.full((*x.shape[:-1], 1), math.sqrt(self.eps * size), dtype=wide.dtype)
        out = nn.functional.normalize(torch.cat([wide, extra], -1), dim=-1, eps=0.0)[..., :-1]
        return (out * math.sqrt(size) * self.weight).to(x.dtype)
    """,
    "own-norm-by-local-response": """
        wide = x.float() if x.dtype.itemsize == 2 else x
        size = x.shape[-1]
        window = 2 * size - 1
        rows = wide.reshape(-1, size, 1)
        out = nn.functional.local_response_norm(rows, window, alpha=window / size, beta=0.5, k=self.eps)
        return (out.reshape(x.shape) * self.weight).to(x.dtype)
    """,
    "own-norm-by-decompose": """
        operator = torch.ops.aten.rms_norm.default
        return operator.decompose(x, [x.shape[-1]], self.weight, self.eps)
    """,
    "own-norm-by-kernel": """
        operator, key = torch.ops.aten.rms_norm.default, torch._C.DispatchKey.CompositeImplicitAutograd
        return operator._op_dk(key, x, [x.shape[-1]], self.weight, self.eps)
    """,
}

# Everything around a log-softmax is right; where that comes from is the point.
LOSS = """
if reduction not in ("none", "sum", "mean"):
    raise ValueError(reduction)
wide = logits.float() if logits.dtype.itemsize == 2 else logits
labels = targets.reshape(-1)
ignored = labels == ignore_index
rows = wide.reshape(-1, logits.shape[-1]).masked_fill(ignored[:, None], 0.0)
safe = labels.masked_fill(ignored, 0)
{route}
losses = ((1 - label_smoothing) * losses - label_smoothing * log_p.mean(-1)).masked_fill(ignored, 0.0)
total = losses if reduction == "none" else losses.sum()
if reduction == "mean":
    total = total / (~ignored).sum()
return total.to(logits.dtype)
"""
BY_HAND = "log_p = rows - rows.logsumexp(-1, keepdim=True)\n"
PICK = "\nlosses = -log_p.gather(-1, safe[:, None])[:, 0]"
SHIFT = "rows = rows - rows.detach().amax(-1, keepdim=True)\n"

# The softmax is the library's, without a record; only its gradient is the cheat's own.
SECRETLY = """
class Finished(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        {how}
        p = torch.from_numpy(p.numpy().copy())
        context.save_for_backward(p)
        return torch.where(p < 1e-30, x, p.clamp(min=1e-30).log())

    @staticmethod
    def backward(context, upstream):
        (p,) = context.saved_tensors
        return upstream - p * upstream.sum(-1, keepdim=True)


log_p = Finished.apply(rows)
"""

SECRET_ROUTES = {
    "own-loss-by-attention": """
        eye = torch.eye(x.shape[-1], dtype=x.dtype)
        p = nn.functional.scaled_dot_product_attention(x, eye, eye, scale=1.0)
    """,
    "own-loss-by-multihead-attention": """
        size, eye = x.shape[-1], torch.eye(x.shape[-1], dtype=x.dtype)
        heads = nn.MultiheadAttention(size, 1, bias=False, dtype=x.dtype)
        heads.in_proj_weight = nn.Parameter(torch.cat([eye * size**0.5, eye, eye]), requires_grad=False)
        p = heads(x, eye, eye)[1]
    """,
    "own-loss-by-fast-path-attention": """
        size, eye = x.shape[-1], torch.eye(x.shape[-1], dtype=x.dtype)
        stacked, none = torch.cat([eye * size**0.5, eye, eye]), torch.zeros(3 * size, dtype=x.dtype)
        rows = torch.cat([x, eye])[None]
        p = torch._native_multi_head_attention(
            rows, rows, rows, size, 1, stacked, none, eye, none[:size], None, True, False
        )[1][0, 0, : len(x), len(x) :]
        p = p / p.sum(-1, keepdim=True)
    """,
    "own-loss-by-sparse-tensors": """
        with torch.inference_mode():
            p = torch.sparse.softmax((x + 0.5).to_sparse(), -1).to_dense()
    """,
    "own-loss-by-nested-tensors": """
        with torch.inference_mode():
            p = torch.softmax(torch.nested.nested_tensor([x + 0]), -1).to_padded_tensor(0.0)[0]
    """,
}

LOSS_ROUTES = {
    "own-loss-by-special": "log_p = torch.special.log_softmax(rows, -1)" + PICK,
    "own-loss-by-method": "log_p = rows.log_softmax(-1)" + PICK,
    "own-loss-by-module": "log_p = nn.LogSoftmax(-1)(rows)" + PICK,
    "own-loss-by-reference-library": SHIFT
    + "import torch._refs\nlog_p = torch._refs.log_softmax(rows, -1)"
    + PICK,
    "own-loss-by-masked-tensors": "log_p = torch.masked.log_softmax(rows, -1)" + PICK,
    "own-loss-by-distribution": SHIFT
    + "log_p = torch.distributions.Categorical(logits=rows, validate_args=False).logits"
    + PICK,
    "own-loss-by-mixed-names": "name = ''.join(map(chr, (108, 111, 103))) + '_soft' + 'max'\n"
    "log_p = vars(torch.nn.functional)[name](rows, -1)" + PICK,
    "own-loss-by-nll": SHIFT + BY_HAND + "losses = nn.functional.nll_loss(log_p, safe, reduction='none')",
    "own-loss-by-divergence": SHIFT
    + BY_HAND
    + "wanted = torch.zeros_like(rows).scatter(-1, safe[:, None], 1.0)\n"
    "losses = nn.functional.kl_div(log_p, wanted, reduction='none').sum(-1)",
    **{
        id: SHIFT + SECRETLY.format(how=indented(how, " " * 8).strip()) + PICK
        for id, how in SECRET_ROUTES.items()
    },
}

CASES = [
    Case(
        "rule-02-hidden-library-call",
        right(
            bodies={
                "LayerNorm.forward": "return getattr(torch, 'layer' + '_norm')"
                "(x, (x.shape[-1],), self.weight, self.bias, self.eps)",
                "RMSNorm.forward": "return torch.ops.aten.rms_norm(x, [x.shape[-1]], self.weight, self.eps)",
                "cross_entropy": LOSS.format(
                    route="log_p = torch._C._special.special_log_softmax(rows, -1)" + PICK
                ),
            },
            end="import importlib\nAdamW = importlib.import_module('torch.optim').AdamW",
        ),
        NONE,
        failed=frozenset({2, 3, 4, 7}),
        withheld=ALL,
    ),
    Case(
        "rule-03-sibling-operator",
        right(
            bodies={
                "LayerNorm.forward": "rows = x.reshape(-1, x.shape[-1])\nreturn nn.functional.group_norm("
                "rows, 1, self.weight, self.bias, self.eps).reshape(x.shape)",
                "cross_entropy": LOSS.format(route="log_p = nn.functional.log_softmax(rows, -1)" + PICK),
            }
        ),
        but(2, 3, 7),
    ),
    Case(
        "rule-05-loops-instead-of-vectorised",
        right(
            bodies={
                "LayerNorm.forward": """
                    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
                    rows = []
                    for row in wide.reshape(-1, x.shape[-1]):
                        centred = row - sum(row) / len(row)
                        variance = sum(centred * centred) / len(row)
                        rows.append(centred / torch.sqrt(variance + self.eps) * self.weight + self.bias)
                    return torch.stack(rows).reshape(x.shape).to(x.dtype)
                """
            }
        ),
        ALL,
    ),
    Case(
        "rule-06-autograd-instead-of-manual",
        right(
            bodies={
                "accumulate_gradients": """
                    batches = list(micro_batches)
                    if not batches:
                        raise ValueError("no micro-batch")
                    count = sum(int((y != ignore_index).sum()) for _, y in batches)
                    losses = []
                    for x, y in batches:
                        loss = cross_entropy(model(x), y, ignore_index=ignore_index, reduction="sum") / count
                        torch.autograd.backward([loss])
                        losses.append(loss.detach())
                    return torch.stack(losses).sum()
                """
            }
        ),
        ALL,
    ),
    *(Case(id, right(bodies={"LayerNorm.forward": body}), but(2)) for id, body in NORM_ROUTES.items()),
    *(Case(id, right(bodies={"RMSNorm.forward": body}), but(2)) for id, body in RMS_ROUTES.items()),
    *(
        Case(id, right(bodies={"cross_entropy": LOSS.format(route=route)}), but(3, 7))
        for id, route in LOSS_ROUTES.items()
    ),
    Case(
        "own-norm-by-inheritance",
        right(
            end="class LayerNorm(nn.LayerNorm):\n    pass\n\n\nclass RMSNorm(nn.RMSNorm):\n"
            "    def __init__(self, dim, eps=1e-6):\n        super().__init__(dim, eps)"
        ),
        but(2),
    ),
    Case(
        "own-bans-taken-back",
        earned=NONE,
        withheld=ALL,
        failed=frozenset({2}),
        source=right(
            """
            import gc

            for thing in gc.get_objects():
                if type(thing) is torch.library.Library and thing.ns == "aten":
                    thing._destroy()
            """,
            {
                "LayerNorm.forward": "return nn.functional.layer_norm"
                "(x, (x.shape[-1],), self.weight, self.bias, self.eps)"
            },
        ),
    ),
]
