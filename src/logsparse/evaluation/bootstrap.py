"""Losses of two models on the same windows -> relative difference with its 95 % interval, by a paired bootstrap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from logsparse.data.columns import CUTOFF, ID
from logsparse.data.scale import Doubles

# K seeds, U units (cutoffs, or series where there is one cutoff), R replicates

REPLICATES = 4000
# More units than this are summed into this many groups: memory and time stay bounded, the interval hardly changes.
MOST_UNITS = 2000


class Interval(NamedTuple):
    """Relative difference of two losses with its 95 % interval: -0.1 is a loss lower by a tenth."""

    change: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.change:+.1f} % [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def difference(mine_KU: Doubles, theirs_KU: Doubles) -> Interval | None:
    """Return the relative difference of two losses by a paired bootstrap over units and seeds.

    Units are resampled for both models together, so that a unit that is hard for both does not widen the interval;
    seeds are resampled for each. None with fewer than two units, or without a loss to compare with.
    """
    if mine_KU.shape[1] < 2:
        return None
    losses = [_grouped(losses_KU) for losses_KU in (mine_KU, theirs_KU)]
    generator = np.random.default_rng(0)
    weights_RU = _resampled(losses[0].shape[1], generator)
    sums = [
        np.einsum("rk,ku,ru->r", _resampled(len(losses_KU), generator) / len(losses_KU), losses_KU, weights_RU)
        for losses_KU in losses
    ]
    if not mine_KU.sum() or not sums[1].all():
        return None
    low, high = np.quantile(sums[0] / sums[1], (0.025, 0.975)).tolist()
    change = float(mine_KU.mean(0).sum() / theirs_KU.mean(0).sum())
    return Interval(change - 1, low - 1, high - 1)


def unit_of(results: pl.DataFrame) -> str:
    """Return the column of the units to resample: cutoffs, or series where each has one cutoff."""
    starts, series = results[CUTOFF].n_unique(), results[ID].n_unique()
    # Series that end at different times have cutoffs of their own, one each.
    rolling = results.select(ID, CUTOFF).n_unique() > series
    return CUTOFF if starts > 1 and (rolling or starts < series) else ID


def _grouped(losses_KU: Doubles) -> Doubles:
    if losses_KU.shape[1] <= MOST_UNITS:
        return losses_KU
    parts = (losses_KU[:, begin::MOST_UNITS].sum(axis=1) for begin in range(MOST_UNITS))
    return np.stack(list(parts), axis=1)


def _resampled(count: int, generator: np.random.Generator) -> Doubles:
    """(R, count): how often each is drawn in a replicate."""
    return generator.multinomial(count, np.full(count, 1 / count), REPLICATES).astype(np.float64)
