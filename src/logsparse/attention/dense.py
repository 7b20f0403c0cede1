"""q, k, v, mask -> attention by an L x L mask: the oracle that every other backend is compared with.

Slow and obvious on purpose.
"""

# B batch, H heads, L length (queries), J keys (= L), D channels of q and k, E channels of v

from __future__ import annotations

import math

import torch
from torch import Tensor

from logsparse.attention.dropout import factors


def dense(q: Tensor, k: Tensor, v: Tensor, mask_LJ: Tensor, dropout: float, seed: Tensor | None) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E), mask true where row l sees cell j -> (B, H, L, E)."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores_BHLJ = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    weights_BHLJ = scores_BHLJ.masked_fill(~mask_LJ, -math.inf).softmax(-1)
    if seed is not None:
        rows_L = torch.arange(q.shape[-2], device=q.device)
        distance_LJ = (rows_L[:, None] - rows_L).clamp(min=0)
        heads = (q.shape[0], q.shape[1])
        weights_BHLJ = weights_BHLJ * factors(seed, heads, rows_L[:, None], distance_LJ, dropout).to(weights_BHLJ)
    return (weights_BHLJ @ v.to(weights_BHLJ.dtype)).to(v.dtype)
