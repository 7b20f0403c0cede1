"""q, k, pattern -> the weights themselves, cell by cell, for tables and pictures: one row, or the whole matrix."""

# B batch, H heads, L length (queries), J keys (= L), M cells of a row, D channels of q and k

from __future__ import annotations

import math

import torch
from torch import Tensor

from logsparse.attention.attend import attention_weights
from logsparse.attention.pattern import Pattern, full


def weights_row(q: Tensor, k: Tensor, pattern: Pattern, row: int, starts_B: Tensor | None = None) -> Tensor:
    """(B, H, J): how row `row` weighs every cell, 0 where the pattern has none; only its own cells are scored.

    Padding, which ends before each start, is not seen; the row itself must not be padding.
    """
    cells_M = torch.tensor(pattern.row(row), device=q.device)
    scores_BHM = (k[:, :, cells_M] @ q[:, :, row, :, None])[..., 0] / math.sqrt(q.shape[-1])
    if starts_B is not None:
        scores_BHM = scores_BHM.masked_fill((cells_M < starts_B[:, None])[:, None], -math.inf)
    weights_BHJ = q.new_zeros(q.shape[:3])
    weights_BHJ[:, :, cells_M] = scores_BHM.softmax(-1)
    return weights_BHJ


def weights_matrix(q: Tensor, k: Tensor, pattern: Pattern, starts_B: Tensor | None = None) -> Tensor:
    """(B, H, L, J): all rows; dense first rows included, rows of padding 0."""
    weights_BHLM, distances = attention_weights(q, k, pattern, starts_B)
    length = q.shape[2]
    matrix_BHLJ = weights_BHLM.new_zeros(*q.shape[:3], length)
    for m, s in enumerate(distances):
        matrix_BHLJ.diagonal(-s, 2, 3).copy_(weights_BHLM[:, :, s:, m])
    if corner := min(pattern.dense_rows, length):
        matrix_BHLJ[:, :, :corner, :corner] = weights_matrix(q[:, :, :corner], k[:, :, :corner], full(), starts_B)
    return matrix_BHLJ
