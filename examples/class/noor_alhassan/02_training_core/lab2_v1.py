"""Version 1."""
import torch


@torch.no_grad()
def kaiming_normal_(w, fan_in, gain=2**0.5, *, generator=None):
    return w.normal_(std=gain / fan_in**0.5, generator=generator)


@torch.no_grad()
def xavier_uniform_(w, fan_in, fan_out, *, generator=None):
    a = (2 / (fan_in + fan_out)) ** 0.5
    return w.uniform_(-a, a, generator=generator)
