"""Forecasts of windows that were held back, and what came -> coverage of the 80 % interval, and factors to widen it by.

A factor multiplies the distance of every quantile and path from the median. It is at least 1, and above 1 only where
the intervals are too narrow beyond chance. Windows that overlap in time, or that several series share, say nearly the
same: units of evidence are spans of one horizon, however many series and cutoffs they hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs
from logsparse.storage import entries, require, whole_number

# W windows, H steps of the horizon, Q quantile levels, X any, C cells that count

LEVELS = (0.1, 0.5, 0.9)
"""Quantiles that are compared with what came: the 80 % interval and its centre."""
NOMINAL = 0.8
MOST = 4.0
"""Largest factor: what lies further out is a change that no interval should have to hold."""
# A coverage this much below 80 % is within the chance of one span; within that of n spans, this by the root of n.
_CHANCE = 0.3
# A factor counts as if so many spans more had asked for none: one span may be unlike all others (docs/RECIPE.md).
_UNSEEN_SPANS = 3
# So many spans are needed for each part of the horizon that has a factor of its own.
_SPANS_PER_PART, _MOST_PARTS = 8, 4
# An interval narrower than this share of the widest of its window is that of a known value, such as zero at night.
_NO_WIDTH = 1e-3


@dataclass(frozen=True)
class Calibration:
    """How many values the 80 % interval held in the part held back, and by how much intervals are widened."""

    coverage: float
    """Share of the values within the interval, before it is widened."""
    windows: int
    """Number of windows measured."""
    spans: float
    """Number of horizons that the windows cover: as many windows that do not overlap."""
    factors: tuple[float, ...]
    """One per step of the horizon, at least 1."""

    @property
    def widens(self) -> bool:
        """True if a factor is above 1."""
        return max(self.factors) > 1

    def __str__(self) -> str:
        held = f"the 80 % interval held {100 * self.coverage:.0f} % of the values held back"
        low, high = min(self.factors), max(self.factors)
        by = f"{high:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        return f"{held}; intervals are widened by {by}" if self.widens else held

    def levels_read(self, asked: tuple[float, ...]) -> tuple[float, ...]:
        """Return the levels asked for, and that of the median, around which intervals are widened."""
        return tuple(sorted({*asked, 0.5})) if self.widens else asked

    def widened(self, value_WXH: Floats, median_WH: Floats, *, lowest: float, integer: bool) -> Floats:
        """Return quantiles or paths at their distance from the median times the factors, not below `lowest`."""
        if not self.widens:
            return value_WXH
        median_W1H, factor_H = median_WH[:, None], np.asarray(self.factors, np.float32)
        # Where the factor is 1 the values stay as they are, bit for bit.
        moved_WXH = np.where(factor_H > 1, median_W1H + (value_WXH - median_W1H) * factor_H, value_WXH)
        if integer:
            moved_WXH = np.floor(moved_WXH + np.float32(0.5))
        found: Floats = np.maximum(moved_WXH, np.float32(lowest))
        return found

    @classmethod
    def from_dict(cls, facts: Any, horizon: int) -> Self:
        """Return what `asdict` was given; raise InvalidContentError for anything else."""
        place = "learned/calibration"
        entries(place, facts, "coverage", "windows", "spans", "factors")
        coverage, spans, factors = float(facts["coverage"]), float(facts["spans"]), tuple(map(float, facts["factors"]))
        require(f"{place}/coverage", "from 0 to 1", coverage, holds=0 <= coverage <= 1)
        require(f"{place}/spans", "above 0", spans, holds=0 < spans < math.inf)
        fits = len(factors) == horizon and all(1 <= factor <= MOST for factor in factors)
        require(f"{place}/factors", f"{horizon} numbers from 1 to {MOST:g}", factors, holds=fits)
        return cls(coverage, whole_number(f"{place}/windows", facts["windows"], 1, 10**9), spans, factors)


def measure(truth_WH: Floats, quantiles_WQH: Floats, before_W: NDArray[np.int64], *, widen: bool) -> Calibration | None:
    """Compare forecasts with what came.

    Parameters
    ----------
    truth_WH
        Observed values; NaN where there are none.
    quantiles_WQH
        Forecasts at `LEVELS`.
    before_W
        Number of steps from the first step of each forecast to the end of its series.
    widen
        Whether factors may be above 1.

    Returns
    -------
    Calibration | None
        None if no value counts: nothing was observed, or every interval has no width.
    """
    horizon = truth_WH.shape[1]
    distance_WH = distances(truth_WH, quantiles_WQH)
    counts_WH = ~np.isnan(distance_WH)
    if not counts_WH.any():
        return None
    spans = 1 + (int(before_W.max()) - int(before_W.min())) / horizon
    coverage = float((distance_WH[counts_WH] <= 1).mean())
    parts = int(min(max(spans // _SPANS_PER_PART, 1), _MOST_PARTS, horizon)) if widen else 0
    factors = np.ones(horizon)
    for part in np.array_split(np.arange(horizon), parts) if parts else ():
        factors[part] = _factor(distance_WH[:, part][counts_WH[:, part]], spans)
    return Calibration(coverage, len(truth_WH), spans, tuple(factors.tolist()))


def distances(truth_WH: Floats, quantiles_WQH: Floats) -> NDArray[np.float64]:
    """Return how far values lie from the median, in widths of their side of the interval: up to 1 it holds them.

    NaN where a value does not count: it is missing, or its interval has no width, as that of a series at rest.
    """
    low_WH, median_WH, high_WH = np.moveaxis(quantiles_WQH.astype(np.float64), 1, 0)
    truth_WH = truth_WH.astype(np.float64)
    width_WH = high_WH - low_WH
    wide_WH = width_WH > _NO_WIDTH * width_WH.max(axis=1, keepdims=True)
    above_WH = truth_WH >= median_WH
    side_WH = np.where(above_WH, high_WH - median_WH, median_WH - low_WH)
    away_WH = np.abs(truth_WH - median_WH)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A side without width holds its own value only.
        found_WH = np.where(away_WH == 0, 0.0, away_WH / side_WH)
    return np.where(wide_WH & ~np.isnan(truth_WH), found_WH, np.nan)


def _factor(distance_C: NDArray[np.float64], spans: float) -> float:
    """Return 1 if the coverage is within chance of what it should be, else the factor with which it would be right.

    Of few spans the factor is drawn towards 1.
    """
    if len(distance_C) == 0:
        return 1.0
    if (distance_C <= 1).mean() >= NOMINAL - _CHANCE / math.sqrt(spans):
        return 1.0
    right = float(np.clip(np.quantile(distance_C, NOMINAL), 1.0, MOST))
    return float(right ** (spans / (spans + _UNSEEN_SPANS)))


def came(panel: Panel, pairs: Pairs, horizon: int) -> Floats:
    """Return what the windows have in their horizon; NaN for series at rest, which are no evidence for the others."""
    first_W = panel.indptr[pairs.series_B] + pairs.start_B
    truth_WH: Floats = panel.values[first_W[:, None] + np.arange(horizon)].copy()
    for series in np.unique(pairs.series_B).tolist():
        if np.nanmin(panel[series], initial=np.inf) >= np.nanmax(panel[series], initial=-np.inf):
            truth_WH[pairs.series_B == series] = np.nan
    return truth_WH
