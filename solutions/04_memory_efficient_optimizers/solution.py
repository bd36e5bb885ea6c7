"""Lab 04, memory-efficient optimizers: what Adam stores, and five ways to store less.

Adam keeps two numbers for every weight. GaLore keeps them for a low-rank shadow of the gradient; Adam-mini
shares the second among many weights; Adafactor and SM3 keep only what rows and columns have in common;
Lion does without it. One ledger at the end counts what each of them really holds.

Conventions of the whole file: results have the dtype of the input and carry no graph, inputs are left
untouched, and optimizers write into the parameters and `self.state[p]`, nowhere else.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

# -------------------------------------------------------------------- step 1: projecting a gradient


def _is_left(side: str, rows: int, columns: int) -> bool:
    """Whether the basis multiplies from the left; "left" and "right" are the answers themselves."""
    wide = rows < columns
    return {"short": wide, "long": not wide, "left": True, "right": False}[side]


def _basis(G: Tensor, rank: int, left: bool) -> Tensor:
    """The first `rank` singular vectors of G on one side, with signs that don't depend on the library."""
    wide_enough = G.float() if G.dtype in (torch.float16, torch.bfloat16) else G
    # The vectors of the columns are those of the rows of the transpose. Only a basis that is larger than the
    # shorter side needs the full set.
    A = wide_enough if left else wide_enough.T
    U = torch.linalg.svd(A, full_matrices=rank > min(A.shape))[0][:, :rank]
    largest = U.gather(0, U.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -U, U).to(G.dtype)


def _shrink(basis: Tensor, G: Tensor, left: bool) -> Tensor:
    return basis.T @ G if left else G @ basis


def _expand(basis: Tensor, R: Tensor, left: bool) -> Tensor:
    return basis @ R if left else R @ basis.T


class GaLoreProjector:
    """A gradient G of shape (rows, columns), seen through an orthonormal basis B of few vectors.

        left:   B has shape (rows, r),     R = Bᵀ G of shape (r, columns),   back: B R
        right:  B has shape (columns, r),  R = G B of shape (rows, r),       back: R Bᵀ

    with r = min(rank, rows) on the left and min(rank, columns) on the right.
    B holds the first r left (right) singular vectors of the G that it was taken from. They are orthonormal;
    if r is above min(rows, columns), they are completed to an orthonormal set. Each has the sign that makes
    its entry of largest absolute value (the first on a tie) positive.

    Attributes, once there is a basis:
    basis: the tensor B.
    is_identity: True if rank >= the projected dimension. Then B Bᵀ is the identity and nothing is saved.
    basis_floats: numel of B, an int.
    low_rank_floats: 2 · numel of R, an int: Adam's two moments of R.
    full_adam_floats: 2 · rows · columns, an int: Adam's two moments of G.

    Source: Zhao et al. 2024, GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection.
    """

    def __init__(self, rank: int, update_every: int = 200, side: str = "short") -> None:
        """Remember the options; there is no basis yet.

        rank: at least 1, else ValueError.
        update_every: how many ticks a basis is kept; at least 1, else ValueError.
        side: "short" is left if rows < columns, else right (the basis lies on the shorter side, and on the
            right of a square). "long" is the other one, always. Anything else is a ValueError.
        """
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        if update_every < 1:
            raise ValueError(f"update_every must be at least 1, not {update_every}")
        if side not in ("short", "long"):
            raise ValueError(f"side must be short or long, not {side!r}")
        self.rank, self.update_every, self.side = rank, update_every, side
        self.basis: Tensor | None = None
        self._left = False
        self._ticks = 0
        self._fresh = False  # refresh() was called since the last tick

    def refresh(self, G: Tensor) -> None:
        """Take the basis from this G, now. The counter of ticks stays where it is.

        The SVD runs in the dtype of G (in float32 if G is narrower); B has the dtype of G and no graph.
        The first basis of a projector that saves nothing (`is_identity`) gives a UserWarning, later ones
        don't.
        """
        first = self.basis is None
        rows, columns = G.shape
        self._left = _is_left(self.side, rows, columns)
        projected = rows if self._left else columns
        self.basis = _basis(G.detach(), min(self.rank, projected), self._left)
        self._fresh = True

        self.is_identity = self.rank >= projected
        self.basis_floats = self.basis.numel()
        self.low_rank_floats = 2 * self.basis.shape[1] * (columns if self._left else rows)
        self.full_adam_floats = 2 * rows * columns
        if first and self.is_identity:
            warnings.warn(
                f"rank {self.rank} of {projected} projects nothing and needs more memory than Adam",
                stacklevel=2,
            )

    def low_rank(self, G: Tensor) -> Tensor:
        """R for this G: one tick.

        Ticks are counted from 0. Tick n takes the basis from this G if n % update_every == 0, unless
        `refresh` was called since the last tick. In all other ticks the basis stays the one that is there.
        Returns R in the dtype of G, without graph. G is not changed.
        """
        due = self._ticks % self.update_every == 0
        if due and not self._fresh:
            self.refresh(G)
        self._ticks += 1
        self._fresh = False
        return _shrink(self._require_basis(), G.detach(), self._left)

    def back(self, R: Tensor) -> Tensor:
        """B R (left) or R Bᵀ (right), of shape (rows, columns). No tick."""
        return _expand(self._require_basis(), R.detach(), self._left)

    def project(self, G: Tensor) -> Tensor:
        """back(low_rank(G)): G without what lies outside the basis. One tick."""
        return self.back(self.low_rank(G))

    def _require_basis(self) -> Tensor:
        if self.basis is None:
            raise RuntimeError("there is no basis yet: call refresh or low_rank first")
        return self.basis


# -------------------------------------------------------------- step 2: many gradients, and what they cost


class GaLoreManager:
    """A `GaLoreProjector` (side "short") for each matrix of a model that is worth one.

    A name is judged at its first gradient that isn't None, once and for all: it is tracked if that gradient
    is 2-D, has at least `min_elements` elements, and no word of `exclude` is a substring of the name.

    projectors: a dict, name → projector, of the tracked names. Each counts its own ticks.
    """

    def __init__(
        self,
        rank: int,
        update_every: int = 200,
        min_elements: int = 4096,
        exclude: tuple[str, ...] = ("embed",),
    ) -> None:
        """Remember the options. rank and update_every are those of every projector.

        exclude: a tuple of words, compared with names as they are, upper and lower case.
        """
        self.rank, self.update_every = rank, update_every
        self.min_elements, self.exclude = min_elements, exclude
        self.projectors: dict[str, GaLoreProjector] = {}
        self._shapes: dict[str, tuple[int, int]] = {}
        self._judged: set[str] = set()

    def process_gradients(self, named_grads: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
        """Project the gradients that are tracked: a new dict with the same keys in the same order.

        named_grads: name → gradient, or None where there is none (no tick). It and its tensors don't change.
        Tracked gradients come back projected (`GaLoreProjector.project`), all others as the very objects.
        """
        return {name: g if g is None else self._process(name, g) for name, g in named_grads.items()}

    def _process(self, name: str, g: Tensor) -> Tensor:
        if name not in self._judged:
            self._judged.add(name)
            if g.ndim == 2 and g.numel() >= self.min_elements and not any(w in name for w in self.exclude):
                self.projectors[name] = GaLoreProjector(self.rank, self.update_every)
                self._shapes[name] = (g.shape[0], g.shape[1])
        projector = self.projectors.get(name)
        return g if projector is None else projector.project(g)

    def memory_report(self, bytes_per_float: int = 4) -> dict[str, Any]:
        """What Adam would hold for the tracked matrices, in full size and projected; from shapes alone.

        tracked: how many matrices.
        full_adam_floats: both moments in full size.
        galore_floats: bases and both moments, as tracked (side short).
        full_adam_mib, galore_mib: floats · bytes_per_float / 2²⁰.
        ratio: galore / full (what it is when nothing is tracked is yours to choose).
        rules_mib: the MiB that five accounting rules give, a dict: "short", "long", "left", "right" (a basis
            on that side of every matrix, and both moments of what it leaves) and "moments_only" (side short,
            without the bases). On each side r = min(rank, that side).
        """
        full = sum(2 * rows * columns for rows, columns in self._shapes.values())
        floats = {side: self._floats(side) for side in ("short", "long", "left", "right")}
        floats["moments_only"] = self._floats("short", bases=False)
        rules = {rule: count * bytes_per_float / 2**20 for rule, count in floats.items()}
        return {
            "tracked": len(self._shapes),
            "full_adam_floats": full,
            "galore_floats": floats["short"],
            "full_adam_mib": full * bytes_per_float / 2**20,
            "galore_mib": rules["short"],
            "ratio": floats["short"] / full if full else math.nan,
            "rules_mib": rules,
        }

    def _floats(self, side: str, bases: bool = True) -> int:
        """Floats of all tracked matrices with the basis on this side."""
        total = 0
        for rows, columns in self._shapes.values():
            projected, other = (rows, columns) if _is_left(side, rows, columns) else (columns, rows)
            r = min(self.rank, projected)
            total += (projected * r if bases else 0) + 2 * r * other
        return total


# ------------------------------------------------------------------------------- step 3: GaLoreAdamW


def _run(
    optimizer: Optimizer,
    closure: Callable[[], Any] | None,
    update: Callable[[Tensor, Tensor, dict[str, Any], dict[str, Any]], None],
) -> Any:
    """What every `step` does: the closure, then update(p, g, group, state) for each p that has a gradient."""
    value = None
    if closure is not None:
        with torch.enable_grad():
            value = closure()
    with torch.no_grad():
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = optimizer.state[p]
                    state["step"] = state.get("step", 0) + 1
                    update(p, p.grad, group, state)
    return value


class GaLoreAdamW(Optimizer):
    """AdamW whose moments live in the low-rank space of `GaLoreProjector`.

    For a 2-D parameter p with gradient G, at its own step t = 1, 2, ...:

        at t = 1, update_every + 1, 2·update_every + 1, ...:   B from this G, on the short side
        R = low-rank gradient of G
        m ← β₁ m + (1 − β₁) R          v ← β₂ v + (1 − β₂) R²
        N = m / (sqrt(v) + ε) · sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ)
        p ← p − lr · scale · back(N)
        p ← p · (1 − lr·wd)

    m and v start at 0; they have the shape of R and are neither reset nor rotated when B changes.
    ε is added to the root of the *uncorrected* v, the decay comes *last* and knows no scale: both unlike
    torch's AdamW, and both as in the authors' package galore-torch.
    All other parameters: the same with R = G and N itself for scale · back(N), in full size.

    Source: Zhao et al. 2024, GaLore; galore-torch 1.0 for ε and the order.
    """

    def __init__(
        self,
        params: ParamsT,
        rank: int,
        update_every: int = 200,
        scale: float = 0.25,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        defaults = {"rank": rank, "update_every": update_every, "scale": scale, "lr": lr, "betas": betas}
        super().__init__(params, {**defaults, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        closure: is called once, before the update, with gradients switched on.
        Options (rank and update_every too) are read from each of `self.param_groups` at every step.
        A parameter whose grad is None is neither moved nor decayed nor counted. `p.grad` is not changed.
        State, in `self.state[p]`, without graph: the basis, m and v of R's shape, the count t. Tensors,
        numbers, dicts and lists only, so that a `state_dict` holds everything: no projector object.
        """
        return _run(self, closure, self._update)

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        t, lr = state["step"], group["lr"]
        beta1, beta2 = group["betas"]
        R, left = g, False
        if p.ndim == 2:
            left = _is_left("short", *g.shape)
            if (t - 1) % group["update_every"] == 0:
                state["basis"] = _basis(g, min(group["rank"], *g.shape), left)
            R = _shrink(state["basis"], g, left)
        if "m" not in state:
            state["m"], state["v"] = torch.zeros_like(R), torch.zeros_like(R)
        m, v = state["m"], state["v"]

        m.mul_(beta1).add_(R, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(R, R, value=1 - beta2)
        correction = math.sqrt(1 - beta2**t) / (1 - beta1**t)
        N = correction * m / (v.sqrt() + group["eps"])
        if p.ndim == 2:
            N = group["scale"] * _expand(state["basis"], N, left)
        p.sub_(lr * N)
        p.mul_(1 - lr * group["weight_decay"])


# ---------------------------------------------------------------------------------- step 4: Adam-mini

_HEAD_WORDS = ("k_proj", "q_proj", "wq", "wk", "query", "key")
_ROW_WORDS = (
    *("embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv", "value", "o_proj", "wo"),
    *("attn.proj", "feed_forward", "linear", "mlp"),
)


def _kind(name: str) -> str:
    """How Adam-mini cuts a parameter of this name: "elementwise", "head" or "row"."""
    lower = name.lower()
    owner = lower.split(".")[-2:-1]  # the module that holds the parameter, if the name tells
    if any(word in lower for word in ("bias", "norm", "ln_")) or (owner and owner[0].startswith("ln")):
        return "elementwise"
    if any(word in lower for word in _HEAD_WORDS):
        return "head"
    if any(word in lower for word in _ROW_WORDS):
        return "row"
    raise ValueError(f"Adam-mini can't tell from its name how to cut {name!r} into blocks")


class AdamMini(Optimizer):
    """AdamW with one second moment for a whole block of weights: half of Adam's memory.

    For each parameter p with gradient g, at its own step t = 1, 2, ...:

        p ← p · (1 − lr·wd)
        m ← β₁ m + (1 − β₁) g
        v_b ← β₂ v_b + (1 − β₂) · (mean of g² over block b)            for each block b
        p ← p − lr · (m / (1 − β₁ᵗ)) / (sqrt(v_b / (1 − β₂ᵗ)) + ε)     each entry with the v of its block

    The name decides how a parameter is cut. It is lower-cased; the first rule that fits wins:

    1. elementwise, each entry a block of its own, never decayed: the name contains "bias", "norm" or "ln_",
       or its last part but one (between dots) begins with "ln", as in "h.0.ln1.weight";
    2. head, blocks of dim·dim // n_heads consecutive entries in the order of their indices, as `reshape(-1)`
       gives them: the name contains "k_proj", "q_proj", "wq", "wk", "query" or "key";
    3. row, one block per index of dimension 0: the name contains "embed", "embd", "wte", "lm_head", "output",
       "final_layer", "v_proj", "wv", "value", "o_proj", "wo", "attn.proj", "feed_forward", "linear" or "mlp";
    4. else a ValueError that names the parameter: a wrong block is worse than none.

    Source: Zhang et al. 2024, Adam-mini: Use Fewer Learning Rates To Gain More; adam-mini 1.1.1 (the names).
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        dim: int,
        n_heads: int,
    ) -> None:
        """Sort the parameters into groups by their names, and hand these to `Optimizer.__init__`.

        named_parameters: (name, parameter) pairs, as `model.named_parameters()` gives them; walked once.
            Parameters that don't require grad are left out, whatever their names.
        dim: the width of the model. n_heads: its number of query heads.
        An unknown name is a ValueError here, not in `step`. How many groups there are is yours to choose;
        each holds lr, betas, eps and weight_decay, and a schedule may write into them (weight_decay only
        where no parameter of the group is elementwise).
        """
        self.head_block = dim * dim // n_heads
        kinds: dict[str, list[Tensor]] = {"elementwise": [], "head": [], "row": []}
        for name, p in named_parameters:
            if p.requires_grad:
                kinds[_kind(name)].append(p)
        groups: list[dict[str, Any]] = [
            {"params": params, "kind": kind} for kind, params in kinds.items() if params
        ]
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: m of p's shape, one v per block, the count t.
        """
        return _run(self, closure, self._update)

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        t, lr = state["step"], group["lr"]
        beta1, beta2 = group["betas"]
        blocks = self._cut(g, group["kind"])  # (number of blocks, entries of each)
        if "m" not in state:
            state["m"] = torch.zeros_like(p)
            state["v"] = torch.zeros(len(blocks), 1, dtype=p.dtype, device=p.device)
        m, v = state["m"], state["v"]

        if group["kind"] != "elementwise":
            p.mul_(1 - lr * group["weight_decay"])
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).add_(blocks.square().mean(dim=1, keepdim=True), alpha=1 - beta2)
        m_hat = self._cut(m, group["kind"]) / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p.sub_((lr * m_hat / (v_hat.sqrt() + group["eps"])).reshape(p.shape))

    def _cut(self, x: Tensor, kind: str) -> Tensor:
        """The blocks of x as rows."""
        if kind == "head":
            return x.reshape(-1, self.head_block)
        if kind == "row" and x.ndim > 0:
            return x.reshape(len(x), -1)
        return x.reshape(-1, 1)


# ---------------------------------------------------------------------------------- step 5: Adafactor


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


class Adafactor(Optimizer):
    """Adam's second moment as an outer product of row and column means, and no first moment.

    For each parameter p with gradient g, at its own step t = 1, 2, ...:

        w = t ** beta2_decay
        α = max(ε₂, rms(p)) · min(lr, 1/sqrt(t))              from p before the decay
        p ← p · (1 − lr·wd)
        2-D and more:   R ← R + w · (mean of g² over the last dimension − R)
                        C ← C + w · (mean of g² over the last but one − C)
                        V = R · C / max(mean of R over the last but one, ε₁)
        else:           V ← V + w · (g² − V)
        u = g / sqrt(max(V, ε₁²))
        p ← p − α · u / max(1, rms(u) / d)

    with eps = (ε₁, ε₂); ε₁ = None stands for torch.finfo(p.dtype).eps. R, C and V start at 0.
    rms is the root of the mean square over all entries. This is `torch.optim.Adafactor`, to 1e-10 in float64.

    Source: Shazeer and Stern 2018, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        defaults = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: R and C for 2 and more dimensions, V for fewer, and the count t.
        """
        return _run(self, closure, self._update)

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        t, lr = state["step"], group["lr"]
        eps1, eps2 = group["eps"]
        if eps1 is None:
            eps1 = torch.finfo(p.dtype).eps
        w = t ** group["beta2_decay"]
        alpha = _rms(p).clamp(min=eps2) * min(lr, 1 / math.sqrt(t))
        p.mul_(1 - lr * group["weight_decay"])

        square = g.square()
        if g.ndim >= 2:
            rows, columns = square.mean(dim=-1, keepdim=True), square.mean(dim=-2, keepdim=True)
            if "R" not in state:
                state["R"], state["C"] = torch.zeros_like(rows), torch.zeros_like(columns)
            R, C = state["R"].lerp_(rows, w), state["C"].lerp_(columns, w)
            V = R * C / R.mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            if "V" not in state:
                state["V"] = torch.zeros_like(square)
            V = state["V"].lerp_(square, w)
        u = g / V.clamp(min=eps1**2).sqrt()
        p.sub_(alpha * u / (_rms(u) / group["d"]).clamp(min=1.0))


# ---------------------------------------------------------------------------------------- step 6: SM3


class SM3(Optimizer):
    """AdaGrad with one accumulator for each slice along each axis instead of one for each weight (SM3-II).

    A parameter of shape (n₁, ..., n_k) has accumulators μ₁ (n₁ numbers), ..., μ_k (n_k numbers), at first 0.
    At each step, with gradient g:

        ν = min over the axes of the accumulators, each broadcast to the shape of g,   + g²
        μ_a ← max of ν over all axes but a                            for each axis a, after ν
        u = g / sqrt(ν + eps)                                         0 where ν = 0
        m ← β m + (1 − β) u         p ← p − lr · m                    β = momentum; no bias correction
        momentum 0:                 p ← p − lr · u                    and no m is kept

    One dimension: ν = μ₁ + g², which is AdaGrad. None: one number. Every ν is at least the sum of all g² of
    its entry, and no accumulator ever falls.

    Source: Anil et al. 2019, Memory-Efficient Adaptive Optimization (algorithm SM3-II).
    """

    def __init__(self, params: ParamsT, lr: float = 0.1, momentum: float = 0.9, eps: float = 1e-30) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "eps": eps})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`. eps may be 0.
        State: one vector for each axis (a number for a parameter without axes), and m unless momentum is 0.
        """
        return _run(self, closure, self._update)

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        axes = range(g.ndim)
        if "accumulators" not in state:
            sizes = [[n if axis == a else 1 for axis, n in enumerate(g.shape)] for a in axes] or [[]]
            state["accumulators"] = [torch.zeros(size, dtype=p.dtype, device=p.device) for size in sizes]
        smallest = state["accumulators"][0]
        for accumulator in state["accumulators"][1:]:
            smallest = torch.minimum(smallest, accumulator)
        nu = smallest + g.square()
        for a, accumulator in enumerate(state["accumulators"]):
            others = [axis for axis in axes if axis != a]
            accumulator.copy_(nu.amax(dim=others, keepdim=True) if others else nu)

        u = torch.where(nu == 0, 0.0, g / (nu + group["eps"]).sqrt())
        beta = group["momentum"]
        if beta:
            if "m" not in state:
                state["m"] = torch.zeros_like(p)
            u = state["m"].mul_(beta).add_(u, alpha=1 - beta)
        p.sub_(group["lr"] * u)


# ------------------------------------------------------------------------- step 7: Lion, and the ledger


class Lion(Optimizer):
    """The sign of a momentum: every weight moves by lr, whatever its gradient's size.

    For each parameter p with gradient g:

        p ← p · (1 − lr·wd)
        p ← p − lr · sign(β₁ m + (1 − β₁) g)      m as it was, at first 0; sign(0) = 0
        m ← β₂ m + (1 − β₂) g                     after the move, with the *other* beta

    Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        """Store the options as the defaults of every parameter group (given)."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter once, in place, and return the closure's value (None without closure).

        Closure, options, missing gradients and p.grad: as in `GaLoreAdamW.step`.
        State: m.
        """
        return _run(self, closure, self._update)

    def _update(self, p: Tensor, g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        lr = group["lr"]
        beta1, beta2 = group["betas"]
        if "m" not in state:
            state["m"] = torch.zeros_like(p)
        m = state["m"]

        p.mul_(1 - lr * group["weight_decay"])
        p.sub_(lr * (beta1 * m + (1 - beta1) * g).sign())
        m.mul_(beta2).add_(g, alpha=1 - beta2)


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes that an optimizer holds between two steps: what its state really costs.

    The sum of numel · element_size over every tensor in `optimizer.state`, in nested dicts, lists and tuples
    too. Parameters, gradients and plain numbers don't count, so it is 0 before the first step.
    """
    return sum(_tensor_bytes(state) for state in optimizer.state.values())


def _tensor_bytes(value: object) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_tensor_bytes, value)) if isinstance(value, list | tuple) else 0
