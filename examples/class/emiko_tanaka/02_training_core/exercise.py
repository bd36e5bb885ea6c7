"""Training core (E. Tanaka)."""

import math

import torch
from torch import nn

HALF = (torch.float16, torch.bfloat16)


def up(y):
    return y.to(torch.float32) if y.dtype in HALF else y


# Step 1


@torch.no_grad()
def kaiming_normal_(w, fan_in, gain=2**0.5, *, generator=None):
    return w.normal_(std=gain * fan_in**-0.5, generator=generator)


@torch.no_grad()
def xavier_uniform_(w, fan_in, fan_out, *, generator=None):
    # variance of U(-a, a) is a^2 / 3
    a = (3 * 2 / (fan_in + fan_out)) ** 0.5
    return w.uniform_(-a, a, generator=generator)


def activation_stds(depth, width, init, batch=512, seed=0):
    g = torch.Generator().manual_seed(seed)
    if init not in ('kaiming', 'standard', 'small'):
        raise ValueError(f'unknown init {init}')
    h = torch.randn(batch, width, generator=g)
    out = []
    for _ in range(depth):
        w = torch.empty(width, width)
        if init == 'kaiming':
            kaiming_normal_(w, width, generator=g)
        else:
            w.normal_(std=1.0 if init == 'standard' else 0.01, generator=g)
        h = (h @ w.T).clamp(min=0)
        out.append(h.std().item())
    return out


# Step 2


class LayerNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        h = up(x)
        h = h - h.mean(-1, keepdim=True)
        var = (h * h).mean(-1, keepdim=True)
        return (h * (var + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        h = up(x)
        scale = (h.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt()
        return (h * scale * self.weight).to(x.dtype)


# Step 3


def cross_entropy(logits, targets, ignore_index=-100, label_smoothing=0.0, reduction='mean'):
    if reduction not in {'none', 'mean', 'sum'}:
        raise ValueError(reduction)
    x = up(logits).reshape(-1, logits.shape[-1])
    y = targets.reshape(-1)
    valid = y != ignore_index
    # where() and not a product with the mask: 0 * nan is nan
    x = torch.where(valid.unsqueeze(1), x, torch.zeros((), dtype=x.dtype))
    y = torch.where(valid, y, torch.zeros((), dtype=y.dtype))
    x = x - x.detach().max(dim=1, keepdim=True).values
    lse = torch.logsumexp(x, dim=1)
    nll = lse - x[torch.arange(len(y)), y]
    if label_smoothing > 0:
        nll = torch.lerp(nll, lse - x.mean(1), label_smoothing)
    loss = torch.where(valid, nll, torch.zeros((), dtype=x.dtype))
    if reduction == 'mean':
        loss = loss.mean()
    elif reduction == 'sum':
        loss = loss.sum()
    return loss.to(logits.dtype)


# Step 4


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                b1, b2 = group['betas']
                for p in group['params']:
                    if p.grad is None:
                        continue
                    s = self.state[p]
                    if len(s) == 0:
                        s['y'], s['m'], s['v'] = 0, torch.zeros_like(p), torch.zeros_like(p)
                    s['y'] += 1
                    s['m'].lerp_(p.grad, 1 - b1)
                    s['v'].lerp_(p.grad**2, 1 - b2)
                    p *= 1 - group['lr'] * group['weight_decay']
                    denom = (s['v'] / (1 - b2 ** s['y'])).sqrt() + group['eps']
                    p.addcdiv_(s['m'], denom, value=-group['lr'] / (1 - b1 ** s['y']))
        return loss


# Step 5


def newton_schulz(G, steps=5, coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7):
    if G.size(0) > G.size(1):
        return newton_schulz(G.mT, steps, coefficients, eps).mT
    a, b, c = coefficients
    X = G / (G.pow(2).sum().sqrt() + eps)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + b * (A @ X) + c * (A @ (A @ X))
    return X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, nesterov=True, ns_steps=5, weight_decay=0.0):
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                nesterov=nesterov,
                ns_steps=ns_steps,
                weight_decay=weight_decay,
            ),
        )

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group['params']:
                if p.dim() != 2:
                    raise ValueError('Muon is for matrices, got shape %s' % (tuple(p.shape),))
                if p.grad is not None:
                    self.move(p, p.grad, group)
        return loss

    @torch.no_grad()
    def move(self, p, g, group):
        mu = group['momentum']
        buf = self.state[p].setdefault('buf', torch.zeros_like(p))
        buf.copy_(mu * buf + g)
        u = g + mu * buf if group['nesterov'] else buf
        u = newton_schulz(u, group['ns_steps'])
        p -= group['lr'] * group['weight_decay'] * p
        p -= group['lr'] * max(1, p.size(0) / p.size(1)) ** 0.5 * u


# Step 6


def lr_cosine(step, max_lr, min_lr, warmup_steps, total_steps):
    if step >= total_steps:
        lr = min_lr
    elif step < warmup_steps:
        lr = max_lr * (step + 1) / warmup_steps
    else:
        x = (step - warmup_steps) / (total_steps - warmup_steps)
        lr = min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(x * math.pi))
    return float(lr)


def lr_wsd(step, max_lr, min_lr, warmup_steps, total_steps, decay_frac=0.2):
    n = int(decay_frac * total_steps)
    if step >= total_steps:
        lr = min_lr
    elif step < warmup_steps:
        lr = max_lr * (step + 1) / warmup_steps
    elif step < total_steps - n:
        lr = max_lr
    else:
        left = (total_steps - step) / n
        lr = min_lr + left * (max_lr - min_lr)
    return float(lr)


# Step 7


@torch.no_grad()
def clip_grad_norm_(params, max_norm):
    if isinstance(params, torch.Tensor):
        params = [params]
    grads = [p.grad for p in params if p.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    norm = sum(up(g).pow(2).sum() for g in grads).sqrt()
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in grads:
            g *= factor
    return norm.to(grads[0].dtype)


def accumulate_gradients(model, micro_batches, ignore_index=-100):
    micro_batches = list(micro_batches)
    if not micro_batches:
        raise ValueError('no micro-batches')
    total = sum((y != ignore_index).sum().item() for _, y in micro_batches)
    mean = 0
    for x, y in micro_batches:
        loss = cross_entropy(model(x), y, ignore_index, reduction='sum') / total
        loss.backward()
        mean = mean + loss.detach()
    return mean
