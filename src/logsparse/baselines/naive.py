"""Panel -> Forecast: the value of one season ago, with intervals from the past errors of that forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.data.panel import Floats, Panel
from logsparse.errors import whole
from logsparse.forecast import Forecast, Forecaster

# S series, K seasons, P phases of a season, H steps of the horizon, Q quantile levels

# From this number of seasons on, errors are taken per phase (nights apart from noons).
_SEASONS_FOR_PHASES = 8
# Fewest errors, of all phases together, that give an interval.
_FEWEST_ERRORS = 5
# Eleven days of seconds; an array has a column for each phase.
_LONGEST_SEASON = 1_000_000

Doubles = NDArray[np.float64]


class SeasonalNaive(Forecaster):
    """Forecast each step by the last value seen at its phase of the season.

    Intervals are quantiles of the past errors of that forecast.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    season
        Steps of a season, at most 1,000,000; from the frequency if left out (24 for hours, 7 for days).

    Raises
    ------
    ConfigError
        At `fit`, not here, if a parameter has a wrong value.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=3, season=7).fit(frame)
    >>> model
    SeasonalNaive(horizon=3, season=7) fitted: 1 series, step 1
    >>> model.predict()["mean"].to_list()
    [0.0, 1.0, 2.0]
    """

    def __init__(self, horizon: int, season: int | None = None) -> None:
        super().__init__(horizon)
        self.season = season

    def check(self) -> None:
        super().check()
        if self.season is not None:
            self.season = check_season(self.season)

    def _fit(self, panel: Panel) -> None:
        self.season_ = panel.freq.season if self.season is None else self.season

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        mean_SH = np.empty((len(panel), self.horizon), np.float32)
        quantiles_SQH = np.empty((len(panel), len(levels), self.horizon), np.float32)
        largest = np.finfo(np.float32).max
        for series in range(len(panel)):
            history = panel[series]
            mean_SH[series] = last_season(history, self.season_, self.horizon)
            spread_QH = _spread(history.astype(np.float64), self.season_, self.horizon, np.array(levels))
            quantiles_SQH[series] = np.clip(mean_SH[series] + spread_QH, -largest, largest)
        return Forecast(panel, mean_SH, levels, quantiles_SQH)


def check_season(season: Any) -> int:
    """Return the steps of a season as given by a user, checked."""
    hint = "count its steps, or leave it out for the usual one."
    return whole("season", season, most=_LONGEST_SEASON, hint=hint)


def _spread(history: Doubles, season: int, horizon: int, levels_Q: Doubles) -> Doubles:
    """Return quantiles (Q, H) of the past errors at the same distance in seasons, around 0.

    Where the past has too few errors of that distance, those of fewer seasons are used, scaled by the square root of
    the distance as for a random walk. A series shorter than a season is treated as a random walk of its steps. So
    intervals never shrink for lack of data.
    """
    spread_QH = np.empty((levels_Q.size, horizon))
    by_phase_QP = np.full((levels_Q.size, season), np.nan)
    pooled_Q1: Doubles | None = None
    for number, begin in enumerate(range(0, horizon, season), start=1):
        errors_KP = _errors(history, season, number * season)
        count_P = (~np.isnan(errors_KP)).sum(axis=0)
        growth = np.sqrt(number / max(number - 1, 1))
        enough_P = count_P >= _SEASONS_FOR_PHASES
        by_phase_QP = np.where(enough_P, _quantiles(errors_KP, levels_Q), by_phase_QP * growth)
        if count_P.sum() >= max(_FEWEST_ERRORS, season if pooled_Q1 is not None else 0):
            pooled_Q1 = _quantiles(errors_KP.reshape(-1, 1), levels_Q)
        elif pooled_Q1 is not None:
            pooled_Q1 = pooled_Q1 * growth
        else:
            return _quantiles(_seasons(_step_errors(history), 1), levels_Q) * np.sqrt(np.arange(1, horizon + 1))
        stop = min(begin + season, horizon)
        filled_QP = np.where(np.isnan(by_phase_QP), pooled_Q1, by_phase_QP)
        spread_QH[:, begin:stop] = filled_QP[:, : stop - begin]
    return spread_QH


def last_season(history: Floats, season: int, horizon: int) -> Floats:
    """Return the newest value of each phase, repeated; the newest value of all for a phase that was never seen."""
    newest = history[np.flatnonzero(~np.isnan(history))[-1]]
    by_phase_KP = _seasons(history, season)[::-1]
    row_P = np.argmax(~np.isnan(by_phase_KP), axis=0)
    value_P = by_phase_KP[row_P, np.arange(season)]
    value_P = np.where(np.isnan(value_P), newest, value_P)
    return np.resize(value_P, horizon)


def seasonal_error(history: Floats, season: int) -> float:
    """Return the mean absolute error of seasonal naive over the history, the unit of MASE; NaN if there is none."""
    errors = _errors(history.astype(np.float64), season, season)
    return float(np.nanmean(np.abs(errors))) if not np.isnan(errors).all() else float("nan")


def _seasons(values: NDArray[Any], season: int) -> NDArray[Any]:
    """Return seasons as rows (K, P), counted back from the end; padded with NaN at the front."""
    rows = max(1, -(-values.size // season))
    padded = np.full(rows * season, np.nan, values.dtype)
    padded[rows * season - values.size :] = values
    return padded.reshape(rows, season)


def _errors(history: Doubles, season: int, lag: int) -> Doubles:
    return _seasons(history[lag:] - history[:-lag] if lag < history.size else history[:0], season)


def _step_errors(history: Doubles) -> Doubles:
    """Return the differences of neighbouring observed values, divided by the root of their distance in steps."""
    seen = np.flatnonzero(~np.isnan(history))
    return np.asarray(np.diff(history[seen]) / np.sqrt(np.diff(seen)))


def _quantiles(errors_KP: Doubles, levels_Q: Doubles) -> Doubles:
    """Return quantiles (Q, P) of each column and its negation, without NaN; 0 for a column of NaN.

    Errors are taken with both signs: the median is 0, and a steady trend gives wide intervals instead of narrow ones
    beside the truth.
    """
    rising_KP = np.sort(np.concatenate([errors_KP, -errors_KP]), axis=0)  # NaN last
    count_P = np.maximum((~np.isnan(rising_KP)).sum(axis=0), 1)
    place_QP = levels_Q[:, None] * (count_P - 1)
    below_QP = np.floor(place_QP).astype(np.int64)
    low, high = (np.take_along_axis(rising_KP, i, 0) for i in (below_QP, np.minimum(below_QP + 1, count_P - 1)))
    return np.asarray(np.nan_to_num(low + (place_QP - below_QP) * (high - low)))
