"""Seasonal naive: the value of one season ago, with intervals from how wrong that was in the past."""

from __future__ import annotations

import numpy as np

from logsparse.data.panel import Floats, Panel
from logsparse.forecast import Forecast, Forecaster

# K seasons, P phases of a season, H steps of the horizon, Q quantile levels

# Errors are taken phase by phase (nights apart from noons) once so many seasons are there to take them from.
_SEASONS_FOR_PHASES = 8


class SeasonalNaive(Forecaster):
    """`season` in steps; None takes the usual one of the data's frequency (24 for hours, 7 for days, ...)."""

    def __init__(self, horizon: int, season: int | None = None) -> None:
        super().__init__(horizon)
        self.season = season

    def _fit(self, panel: Panel) -> None:
        self.season_ = self.season or panel.freq.season

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        mean_SH = np.empty((len(panel), self.horizon), np.float32)
        quantiles_SQH = np.empty((len(panel), len(levels), self.horizon), np.float32)
        for series in range(len(panel)):
            history = panel[series]
            mean_SH[series] = last_season(history, self.season_, self.horizon)
            quantiles_SQH[series] = mean_SH[series] + self._spread(history, levels)
        return Forecast(panel, mean_SH, levels, quantiles_SQH)

    def _spread(self, history: Floats, levels: tuple[float, ...]) -> Floats:
        """Quantiles of the past errors around their median, for as many seasons ahead as each step lies."""
        spread_QH = np.empty((len(levels), self.horizon), np.float32)
        for begin in range(0, self.horizon, self.season_):
            stop = min(begin + self.season_, self.horizon)
            errors_KP = _errors(history, self.season_, begin + self.season_)
            if errors_KP.shape[0] < _SEASONS_FOR_PHASES:
                errors_KP = np.repeat(errors_KP.reshape(-1, 1), self.season_, axis=1)
            spread_QH[:, begin:stop] = _around_median(errors_KP[:, : stop - begin], levels)
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
    errors = _errors(history, season, season)
    return float(np.nanmean(np.abs(errors))) if not np.isnan(errors).all() else float("nan")


def _seasons(values: Floats, season: int) -> Floats:
    """Whole seasons as rows, counted back from the end; what is missing at the front is NaN."""
    rows = max(1, -(-values.size // season))
    padded = np.full(rows * season, np.nan, np.float32)
    padded[rows * season - values.size :] = values
    return padded.reshape(rows, season)


def _errors(history: Floats, season: int, lag: int) -> Floats:
    return _seasons(history[lag:] - history[:-lag] if lag < history.size else history[:0], season)


def _around_median(errors_KP: Floats, levels: tuple[float, ...]) -> Floats:
    """Quantiles of each column less its median, NaN left out; 0 where a column has nothing else."""
    rising_KP = np.sort(errors_KP, axis=0)  # NaN last
    count_P = np.maximum((~np.isnan(rising_KP)).sum(axis=0), 1)
    place_QP = np.array([*levels, 0.5])[:, None] * (count_P - 1)
    below_QP = np.floor(place_QP).astype(np.int64)
    low, high = (np.take_along_axis(rising_KP, i, 0) for i in (below_QP, np.minimum(below_QP + 1, count_P - 1)))
    quantiles_QP = low + (place_QP - below_QP) * (high - low)
    return np.asarray(np.nan_to_num(quantiles_QP[:-1] - quantiles_QP[-1]), np.float32)
