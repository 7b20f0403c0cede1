"""q, k, v, distances -> attention by an L x L mask: the oracle that every other backend is compared with.

Slow and obvious on purpose.
"""

# B batch, H heads, L length (queries), J keys (= L), D channels of q and k, E channels of v

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from logsparse.attention.dropout import factors


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E) -> (B, H, L, E).

    Rows and cells before a batch row's start are padding: zero in q, k and v, and never seen.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores_BHLJ = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    place_L = torch.arange(q.shape[-2], device=q.device)
    begin_B11 = torch.zeros((), device=q.device) if starts_B is None else starts_B[:, None, None]
    itself_LJ = place_L[:, None] == place_L
    back_LJ = place_L[:, None] - place_L
    near_LJ = torch.isin(back_LJ, torch.tensor(distances, device=q.device))
    mask_LJ = (back_LJ >= 0) & (near_LJ | (place_L[:, None] < dense_rows))
    seen_BLJ = mask_LJ & (place_L >= begin_B11) | itself_LJ
    weights_BHLJ = scores_BHLJ.masked_fill(~seen_BLJ.unsqueeze(-3), -math.inf).softmax(-1)
    weights_BHLJ = weights_BHLJ.masked_fill((place_L[:, None] < begin_B11).unsqueeze(-3), 0)
    if seed is not None:
        distance_LJ = back_LJ.clamp(min=0)
        heads = (q.shape[0], q.shape[1])
        weights_BHLJ = weights_BHLJ * factors(seed, heads, place_L[:, None], distance_LJ, dropout).to(weights_BHLJ)
    return (weights_BHLJ @ v.to(weights_BHLJ.dtype)).to(v.dtype)
