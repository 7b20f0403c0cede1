"""Results of several models -> the difference in quantile loss of each two of them, with its 95 % interval.

The interval comes from a paired bootstrap over the windows that both have forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from logsparse.data.columns import CUTOFF, ID, TARGET
from logsparse.data.scale import Doubles
from logsparse.evaluation.metrics import MEAN, quantile_columns, quantile_loss

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


@dataclass(frozen=True)
class Pair:
    """Two models, and the loss of the first relative to that of the second; None if it cannot be told."""

    first: str
    second: str
    interval: Interval | None

    @property
    def better(self) -> str | None:
        """Name of the model whose loss is lower beyond chance; None if the interval has 0 in it."""
        if self.interval is None or self.interval.low <= 0 <= self.interval.high:
            return None
        return self.first if self.interval.high < 0 else self.second


@dataclass(frozen=True)
class Pairs:
    """All pairs, in the order of the models, and the column and number of the units that were resampled."""

    pairs: list[Pair]
    unit: str
    units: int


def compare(parts: Mapping[str, pl.DataFrame]) -> Pairs:
    """Compare the results of each two models, as `metrics.by_model` returns them.

    The loss is the mean quantile loss over the levels that both have, or the absolute error of the mean if they have
    none in common. Windows (cutoffs), or series where each has one window, are resampled.
    """
    first = next(iter(parts.values()))
    unit = unit_of(first)
    pairs = [Pair(one, other, _interval(parts[one], parts[other], unit)) for one, other in combinations(parts, 2)]
    return Pairs(pairs, unit, first[unit].n_unique())


def _interval(one: pl.DataFrame, other: pl.DataFrame, unit: str) -> Interval | None:
    levels = [{level: name for name, level in quantile_columns(table.columns).items()} for table in (one, other)]
    common = sorted(set(levels[0]) & set(levels[1]))
    if not common and not (MEAN in one.columns and MEAN in other.columns):
        return None
    mine_U, theirs_U = (
        _losses(table, unit, {names[level]: level for level in common} or {MEAN: 0.5})
        for table, names in zip((one, other), levels, strict=True)
    )
    return difference(mine_U[None], theirs_U[None])


def _losses(table: pl.DataFrame, unit: str, levels: Mapping[str, float]) -> Doubles:
    """Return the loss of each unit, in the order of the units; the loss of the mean is half its absolute error."""
    y = pl.col(TARGET).cast(pl.Float64).fill_nan(None)
    losses = [quantile_loss(y - pl.col(name).cast(pl.Float64), level) for name, level in levels.items()]
    sums = table.group_by(unit).agg(pl.sum_horizontal(losses).sum().alias("loss")).sort(unit)
    return sums["loss"].to_numpy()
