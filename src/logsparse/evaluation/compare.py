"""Results of several models -> the difference in quantile loss of each two of them, with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from logsparse.data.columns import TARGET
from logsparse.data.scale import Doubles
from logsparse.evaluation.bootstrap import Interval, difference, unit_of
from logsparse.evaluation.metrics import MEAN, quantile_columns, quantile_loss


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
