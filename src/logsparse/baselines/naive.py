"""Seasonal naive: the value of one season ago, with intervals from how wrong that was in the past."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.checks import whole
from logsparse.data.panel import Floats, Panel
from logsparse.forecast import Forecast, Forecaster

# K seasons, P phases of a season, H steps of the horizon, Q quantile levels

# Errors are taken phase by phase (nights apart from noons) once so many seasons are there to take them from.
_SEASONS_FOR_PHASES = 8
# Errors of all phases together tell a width from so many on.
_FEWEST_ERRORS = 5
# Steps of a season: eleven days of seconds. A table has a column for each, and a larger number is a mistake.
_LONGEST_SEASON = 1_000_000

Doubles = NDArray[np.float64]


class SeasonalNaive(Forecaster):
    """`season` in steps, 1,000,000 at most; None: the usual one of the frequency (24 for hours, 7 for days, ...)."""

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
    """The steps of a season that a user gave, checked."""
    hint = "count its steps, or leave it out for the usual one."
    return whole("season", season, most=_LONGEST_SEASON, hint=hint)


def _spread(history: Doubles, season: int, horizon: int, levels_Q: Doubles) -> Doubles:
    """(Q, H): quantiles of the past errors so many seasons ahead, around 0.

    The past of a series says little of errors many seasons ahead. Where too few are there, those of fewer seasons
    stand in, grown by the square root of the distance as a random walk does; a series shorter than a season has
    only its steps to go by. So intervals never shrink for lack of data.
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
    """The newest value seen at each phase, over and over; where a phase was never seen, the newest value of all."""
    newest = history[np.flatnonzero(~np.isnan(history))[-1]]
    by_phase_KP = _seasons(history, season)[::-1]
    row_P = np.argmax(~np.isnan(by_phase_KP), axis=0)
    value_P = by_phase_KP[row_P, np.arange(season)]
    value_P = np.where(np.isnan(value_P), newest, value_P)
    return np.resize(value_P, horizon)


def seasonal_error(history: Floats, season: int) -> float:
    """Mean absolute error of seasonal naive over the history, the unit of MASE; NaN where no pair is seen."""
    errors = _errors(history.astype(np.float64), season, season)
    return float(np.nanmean(np.abs(errors))) if not np.isnan(errors).all() else float("nan")


def _seasons(values: NDArray[Any], season: int) -> NDArray[Any]:
    """Whole seasons as rows, counted back from the end; what is missing at the front is NaN."""
    rows = max(1, -(-values.size // season))
    padded = np.full(rows * season, np.nan, values.dtype)
    padded[rows * season - values.size :] = values
    return padded.reshape(rows, season)


def _errors(history: Doubles, season: int, lag: int) -> Doubles:
    return _seasons(history[lag:] - history[:-lag] if lag < history.size else history[:0], season)


def _step_errors(history: Doubles) -> Doubles:
    """From each value seen to the next, for one step: a random walk goes as far as the root of its steps."""
    seen = np.flatnonzero(~np.isnan(history))
    return np.asarray(np.diff(history[seen]) / np.sqrt(np.diff(seen)))


def _quantiles(errors_KP: Doubles, levels_Q: Doubles) -> Doubles:
    """(Q, P) of each column and its mirror image, NaN left out; 0 where a column has nothing else.

    Two values of one series differ one way as likely as the other, so every error stands for its opposite too: the
    median is 0, and a steady trend makes wide intervals instead of narrow ones beside the truth.
    """
    rising_KP = np.sort(np.concatenate([errors_KP, -errors_KP]), axis=0)  # NaN last
    count_P = np.maximum((~np.isnan(rising_KP)).sum(axis=0), 1)
    place_QP = levels_Q[:, None] * (count_P - 1)
    below_QP = np.floor(place_QP).astype(np.int64)
    low, high = (np.take_along_axis(rising_KP, i, 0) for i in (below_QP, np.minimum(below_QP + 1, count_P - 1)))
    return np.asarray(np.nan_to_num(low + (place_QP - below_QP) * (high - low)))
