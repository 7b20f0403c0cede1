"""(seed, batch, head, position, distance) -> the factor dropout puts on that attention weight.

The rule, in 32-bit arithmetic that wraps around, with mix(x) = x ^= x >> 16, x *= 0x7FEB352D, x ^= x >> 15,
x *= 0x846CA68B, x ^= x >> 16, and G = 0x9E3779B9:

    key  = mix(mix(low half of seed) ^ high half of seed)
    key  = mix(key + batch * G);  key = mix(key + head * G)
    cell = mix(mix(position ^ key) + distance * G)

A cell stays, multiplied by 1 / (1 - rate), when cell >> 8 >= round(rate * 2^24); else it becomes 0. Position
is the query's, distance = query - key. No mask is ever stored: every backend and both passes compute the same
one. `native/dropout.h` holds this rule a second time.
"""

# B batch, H heads

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9


def draw_seed(generator: torch.Generator | None, device: torch.device) -> Tensor:
    """One whole number as a tensor, so that drawing it neither interrupts a compiled graph nor waits for a GPU.

    It is drawn where the generator is; without one, by the global generator of `device`.
    """
    where = device if generator is None else generator.device
    return torch.randint(0, 2**62, (), generator=generator, dtype=torch.int64, device=where)


def factors(seed: Tensor, heads: tuple[int, int], position: Tensor, distance: Tensor, rate: float) -> Tensor:
    """(B, H, ...) in float64, for `position` and `distance` of one broadcast shape (...)."""
    batch_B, head_H = (torch.arange(size, device=position.device) for size in heads)
    seed = seed.to(position.device)
    key = _mix(_mix(seed & _LOW) ^ (seed >> 32))
    key_BH = _mix((_mix((key + batch_B * _GOLDEN) & _LOW)[:, None] + head_H * _GOLDEN) & _LOW)
    key_BH = key_BH.reshape(*key_BH.shape, *(1,) * max(position.ndim, distance.ndim))
    cell = _mix((_mix(position ^ key_BH) + distance * _GOLDEN) & _LOW)
    return ((cell >> 8) >= int(rate * 2**24 + 0.5)).to(torch.float64) / (1.0 - rate)


def _mix(x: Tensor) -> Tensor:
    # int64 products wrap, and their low 32 bits are the product's.
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)
