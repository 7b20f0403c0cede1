"""q, k, v, distances -> attention in plain torch: by an L x L mask, the oracle; or by shifted copies, O(L * M).

Distance s pairs every row l with cell l - s: one shifted view of k and v, no gather. `pattern_weights` returns the
weights themselves, for pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from logsparse.attention.inputs import factors

# B batch, H heads, L length (queries), J keys (= L), R rows computed, M distances or cells, D channels of q and k,
# E channels of v, N series, P paths

Rows = Callable[..., Tensor]
"""(q, k, v, distances, first_row, dropout, seed, starts) -> the rows from `first_row` on."""


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
    """Compute attention by a masked L x L matrix: q, k (B, H, L, D), v (B, H, L, E) -> (B, H, L, E).

    Rows and cells before a batch row's start are padding: they are zero in q, k and v, and have no weight.
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


def with_dense_rows(rows: Rows) -> Rows:
    """Return a function of all rows, with `dense_rows` instead of `first_row`: these rows see their whole past."""

    def whole(q: Tensor, k: Tensor, v: Tensor, distances: Sequence[int], dense_rows: int, *how: Any) -> Tensor:
        first = [x[:, :, :dense_rows] for x in (q, k, v)]
        parts = [rows(*first, range(dense_rows), 0, *how)] if dense_rows else []
        if dense_rows < q.shape[2]:
            parts.append(rows(q, k, v, distances, dense_rows, *how))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    return whole


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
    """Return the rows from `first_row` on, (B, H, R, E)."""
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


shifted = with_dense_rows(_rows)


def pattern_weights(q: Tensor, k: Tensor, distances: Sequence[int], starts_B: Tensor | None) -> Tensor:
    """Return (B, H, L, M): the weight of row l on cell l - distances[m], 0 before the start."""
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
    # A row of padding attends to itself, so that its softmax is finite; its weights become 0 afterwards.
    hidden_MBR = (cell_MR[:, None] < starts_B[:, None]) & (cell_MR != rows_R)[:, None]
    weights_MBHR = torch.stack(scores).masked_fill(hidden_MBR[:, :, None], -math.inf).softmax(0)
    return weights_MBHR.masked_fill((rows_R < starts_B[:, None])[:, None], 0)


def _pad(x: Tensor, distances: Sequence[int]) -> Tensor:
    return pad(x, (0, 0, distances[-1], 0))


def _shift(padded: Tensor, s: int, distances: Sequence[int], first_row: int, length: int) -> Tensor:
    return padded[:, :, distances[-1] - s + first_row : distances[-1] - s + length]


def shifted_step(
    q: Tensor,
    history: tuple[Tensor, Tensor],
    steps: tuple[Tensor, Tensor],
    cells: tuple[Sequence[int], Sequence[int]],
    starts_N: Tensor | None,
) -> Tensor:
    """Compute one position of every path, (N, P, H, E), from history and steps as laid out by `attention.step`.

    `cells`: those of the history and those of the steps. Runs on any device; the oracle of the native kernel.
    """
    (history_k, history_v), (steps_k, steps_v), (old, new) = history, steps, cells
    q_NHPD = q.transpose(1, 2) / math.sqrt(q.shape[-1])

    old_k_NHMD = take(history_k, 2, old)
    new_k_NHPMD = take(steps_k, 3, new).transpose(1, 2)
    old_v_NHME = take(history_v, 2, old)
    old_scores_NHPM, seen_N11M = q_NHPD @ old_k_NHMD.mT, None
    if starts_N is not None:
        seen_N11M = real(old, starts_N)
        old_scores_NHPM = old_scores_NHPM.masked_fill(~seen_N11M, -math.inf)
        old_v_NHME = old_v_NHME.masked_fill(~seen_N11M.mT, 0)
    scores_NHPM = torch.cat([old_scores_NHPM, (new_k_NHPMD @ q_NHPD[..., None])[..., 0]], dim=-1)
    weights_NHPM = scores_NHPM.softmax(-1)
    if seen_N11M is not None and not new:
        # A position of padding attends to nothing.
        weights_NHPM = weights_NHPM.masked_fill(~seen_N11M.any(-1, keepdim=True), 0)
    old_w_NHPM, new_w_NHPM = weights_NHPM.tensor_split([len(old)], dim=-1)

    new_v_NHPME = take(steps_v, 3, new).transpose(1, 2)
    out_NHPE: Tensor = old_w_NHPM @ old_v_NHME + (new_w_NHPM[..., None, :] @ new_v_NHPME)[..., 0, :]
    return out_NHPE.transpose(1, 2)


def real(cells: Sequence[int], starts_N: Tensor) -> Tensor:
    """Return (N, 1, 1, M): True for cells that are not padding."""
    cells_M = torch.tensor(cells, dtype=torch.int64, device=starts_N.device)
    return (cells_M >= starts_N[:, None])[:, None, None]


def take(x: Tensor, dim: int, cells: Sequence[int]) -> Tensor:
    """Return these cells of x; a view if they are contiguous."""
    if cells and cells[-1] - cells[0] == len(cells) - 1:
        return x.narrow(dim, cells[0], len(cells))
    return x.index_select(dim, torch.tensor(cells, dtype=torch.int64, device=x.device))
