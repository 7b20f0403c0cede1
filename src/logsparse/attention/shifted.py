"""q, k, v, distances -> attention over the pattern's cells in plain torch: any device, O(L * M) memory.

Distance s pairs every row l with cell l - s: one shifted view of k and v, no gather. `pattern_weights` gives
the weights themselves, for pictures.
"""

# B batch, H heads, L length, R rows asked for, M distances, D channels of q and k, E channels of v

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from logsparse.attention.dropout import factors


def shifted(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E), zero where padding stands -> (B, H, L, E)."""
    how = dropout, seed, starts_B
    first = [x[:, :, :dense_rows] for x in (q, k, v)]
    parts = [_rows(*first, range(dense_rows), 0, *how)] if dense_rows else []
    if dense_rows < q.shape[2]:
        parts.append(_rows(q, k, v, distances, dense_rows, *how))
    return torch.cat(parts, dim=2)


def _rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """Rows from `first_row` on, (B, H, R, E)."""
    weights_MBHR = _weights(q, k, distances, first_row, starts_B)
    if seed is not None:
        rows_R = torch.arange(first_row, q.shape[-2], device=q.device)
        steps_M1 = torch.tensor(list(distances), device=q.device)[:, None]
        kept_BHMR = factors(seed, (q.shape[0], q.shape[1]), rows_R, steps_M1, dropout)
        weights_MBHR = weights_MBHR * kept_BHMR.movedim(2, 0).to(weights_MBHR)
    padded_v = _pad(v, distances).to(weights_MBHR.dtype)
    out_BHRE = torch.zeros((), dtype=weights_MBHR.dtype, device=v.device)
    for weights_BHR, s in zip(weights_MBHR, distances, strict=True):
        out_BHRE = out_BHRE + weights_BHR[..., None] * _shift(padded_v, s, distances, first_row, q.shape[-2])
    return out_BHRE.to(v.dtype)


def pattern_weights(q: Tensor, k: Tensor, distances: Sequence[int], starts_B: Tensor | None) -> Tensor:
    """(B, H, L, M): the weight of row l on cell l - distances[m]; 0 where that lies before the start."""
    return _weights(q, k, distances, 0, starts_B).movedim(0, -1)


def _weights(q: Tensor, k: Tensor, distances: Sequence[int], first_row: int, starts_B: Tensor | None) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    q_BHRD = q[:, :, first_row:].to(wide) / math.sqrt(q.shape[-1])
    padded_k = _pad(k, distances).to(wide)
    length = q.shape[-2]
    scores = [(q_BHRD * _shift(padded_k, s, distances, first_row, length)).sum(-1) for s in distances]
    rows_R = torch.arange(first_row, length, device=q.device)
    cell_MR = rows_R - torch.tensor(list(distances), device=q.device)[:, None]
    if starts_B is None:
        return torch.stack(scores).masked_fill((cell_MR < 0)[:, None, None], -math.inf).softmax(0)
    # A row of the padding sees itself, so that its softmax is a number, until its weights become 0.
    hidden_MBR = (cell_MR[:, None] < starts_B[:, None]) & (cell_MR != rows_R)[:, None]
    weights_MBHR = torch.stack(scores).masked_fill(hidden_MBR[:, :, None], -math.inf).softmax(0)
    return weights_MBHR.masked_fill((rows_R < starts_B[:, None])[:, None], 0)


def _pad(x: Tensor, distances: Sequence[int]) -> Tensor:
    return pad(x, (0, 0, distances[-1], 0))


def _shift(padded: Tensor, s: int, distances: Sequence[int], first_row: int, length: int) -> Tensor:
    return padded[:, :, distances[-1] - s + first_row : distances[-1] - s + length]
