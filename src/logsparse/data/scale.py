"""Histories -> centre and scale of each: a window is told as (z - centre) / scale, and drawn with its scale.

DeepAR's scale, and the paper's, is 1 + mean |z|, with centre 0. The 1 has a unit: shares of a road's use and watts are
not treated alike; without it, mean |z|, they are. Both leave a series that varies little around a high level almost
constant; its deviation from its mean is what a network can see. Only the history counts, never the horizon; only
observed steps count; where nothing is left to divide by, the scale is 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from logsparse.data.panel import Floats

# B windows, C context, T steps in a row

Doubles = NDArray[np.float64]

_STILL = 1e-3
# Spreads a million times smaller than the scale must be single numbers yet: values below it are as good as zero.
_LEAST = 1e6 * float(np.finfo(np.float32).tiny)


def centre_and_scale(values_BC: Floats, observed_BC: NDArray[np.bool_], kind: str) -> tuple[Doubles, Doubles]:
    """Of each history; values where nothing was observed are not read."""
    count_B = np.maximum(observed_BC.sum(axis=-1), 1)
    size_B = np.abs(values_BC).sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    if kind == "one-plus-mean":
        return np.zeros_like(size_B), 1 + size_B
    if kind == "mean":
        return np.zeros_like(size_B), _divisor(size_B)
    centre_B = values_BC.sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    away_BC = np.abs(values_BC - centre_B[..., None])
    # A history that stood still says little about how far the next step may lie, and one of few values less.
    least_B = np.maximum(_STILL, 1.0 / count_B**2) * size_B
    scale_B = np.maximum(away_BC.sum(axis=-1, where=observed_BC) / count_B, least_B)
    return centre_B, _divisor(scale_B)


def _divisor(size_B: Doubles) -> Doubles:
    return np.where(size_B > 0, np.maximum(size_B, _LEAST), 1.0)


def rolling_scale(values_T: Floats, context: int) -> Doubles:
    """1 + mean |z| of every history of `context` neighbouring steps (T - context + 1 of them); NaN is not observed."""
    observed_T = ~np.isnan(values_T)
    size_T = np.where(observed_T, np.abs(values_T), 0).astype(np.float64)
    count_T = np.concatenate(([0], np.cumsum(observed_T)))
    counts = count_T[context:] - count_T[:-context]
    return np.asarray(1 + _rolling_sum(size_T, context) / np.maximum(counts, 1))


def _rolling_sum(size_T: Doubles, context: int) -> Doubles:
    """Sums of `context` neighbours by additions only.

    The difference of two cumulative sums would drown small values behind a large one. Cut into blocks of `context`,
    a run of that length is the end of one block and the beginning of the next.
    """
    blocks = np.concatenate((size_T, np.zeros(-len(size_T) % context))).reshape(-1, context)
    heads_T = np.cumsum(blocks, axis=1).ravel()[: len(size_T)]
    tails_T = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].ravel()[: len(size_T)]
    sums = tails_T[: len(size_T) - context + 1].copy()
    sums += heads_T[context - 1 :]
    # A run that is one whole block is both its end and its beginning: count it once.
    sums[::context] = heads_T[context - 1 :: context]
    return sums
