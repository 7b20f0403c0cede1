"""History of one series -> mean and quantiles of the next steps, by simple rules weighted by their past errors.

The rules are means of the same phase of the last seasons, with and without the newest level and the newest error, and,
for steps of a day and longer, means of the last steps. Everything is computed anew from the history: there is nothing
to learn and to keep. A few seasons suffice, where a network has hardly a window to learn from (docs/RECIPE.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, Freq
from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs

# N steps of the history, T origins (steps at which past forecasts begin), H steps of the horizon, K rules, Q levels,
# P phases of a season, W windows

REACH = 2000
"""Number of last steps that are used."""
# Fewest observed values; below, there is no forecast.
_FEWEST = 4
# Seasons, weeks and steps over which rules take the mean.
_SEASONS, _WEEKS, _STEPS = (1, 2, 4, 7), (1, 2, 4), (1, 2, 4, 8, 16, 32)
# The newest error is the mean over so many steps; this share of it is left a step later.
_NEWEST, _FADES = 3, 0.85
# Share of a trend, or of the distance to the mean, that is left a step later, and steps over which a trend is taken.
_DAMPED, _TREND = 0.8, 8
# A rule with half the error of another has this power of two times its weight, less if few spans show it: so many
# spans without a difference are added to those that were seen.
_POWER, _UNSEEN_SPANS = 4.0, 2.0
# A past forecast counts if rules with at least this weight together could make it.
_ENOUGH = 0.3
# Errors at a step, and seasons of errors at a phase, that are added with the mean error of all.
_PRIOR_ERRORS, _PRIOR_SEASONS = 5, 2.0
# A phase whose errors are smaller than this share of the mean is at rest, as a night without sun: it says nothing about
# the shape of the others.
_AT_REST, _SEASONS_AT_REST = 0.1, 3
# Most origins, and most cells of origins and steps.
_MOST_ORIGINS, _MOST_CELLS = 300, 100_000
# Quantiles of few independent spans lie further out than the past errors, as those of Student's t do.
_FEW_SPANS = 0.3

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Seasons:
    """Steps of a season and, for steps below a day, of a week; else 0."""

    season: int
    week: int

    @classmethod
    def of(cls, freq: Freq) -> Seasons:
        """Return the seasons of a frequency."""
        fine = freq.kind == "tick" and freq.count < DAY and freq.season > 1
        return cls(freq.season, 7 * freq.season if fine else 0)


def simple_forecasts(panel: Panel, pairs: Pairs, horizon: int, levels: Sequence[float]) -> tuple[Floats, Floats]:
    """Return means (W, H) and quantiles (W, Q, H) from the start of each window on; NaN if it has hardly a history.

    A window is forecast as it would be alone.
    """
    mean_WH = np.full((len(pairs), horizon), np.nan, np.float32)
    quantiles_WQH = np.full((len(pairs), len(levels), horizon), np.nan, np.float32)
    seasons, largest = Seasons.of(panel.freq), np.finfo(np.float32).max
    for window, (series, start) in enumerate(zip(pairs.series_B.tolist(), pairs.start_B.tolist(), strict=True)):
        begin = int(panel.indptr[series])
        found = simple_forecast(panel.values[begin : begin + start], seasons, horizon, levels)
        if found is not None:
            mean_WH[window], quantiles_WQH[window] = (np.clip(part, -largest, largest) for part in found)
    return mean_WH, quantiles_WQH


def simple_forecast(
    history: NDArray[Any], seasons: Seasons, horizon: int, levels: Sequence[float]
) -> tuple[Doubles, Doubles] | None:
    """Return mean (H,) and quantiles (Q, H) of the steps after the history; None if it has hardly a value.

    Missing values are NaN. A history without negative values has no forecast below zero.
    """
    value_N = history[-REACH:].astype(np.float64)
    seen_N = ~np.isnan(value_N)
    if seen_N.sum() < _FEWEST:
        return None
    value_N = value_N[np.argmax(seen_N) :]
    filled_N, steps = _filled(value_N, seasons.season), len(value_N)
    origin_T = _origins(steps, seasons.season, horizon)
    rules = [rule_TH for rule_TH in _rules(filled_N, seasons, horizon, origin_T) if not np.isnan(rule_TH[-1]).any()]
    lowest = 0.0 if np.nanmin(value_N) >= 0 else -np.inf
    cell_TH = origin_T[:, None] + np.arange(horizon)
    rest_TH = _at_rest(filled_N, seasons.season)[cell_TH % seasons.season]
    rules_KTH = np.where(np.isnan(rest_TH), np.maximum(np.stack(rules), lowest), rest_TH)
    truth_TH = np.where(cell_TH < steps, value_N[np.minimum(cell_TH, steps - 1)], np.nan)
    weight_K = _weights(rules_KTH, truth_TH, origin_T)
    share_KTH = np.where(np.isnan(rules_KTH), 0.0, weight_K[:, None, None])
    known_TH = share_KTH.sum(axis=0)
    combined_TH = (share_KTH * np.nan_to_num(rules_KTH)).sum(axis=0) / np.where(known_TH > 0, known_TH, 1)
    error_TH = np.where(known_TH >= _ENOUGH, truth_TH - combined_TH, np.nan)
    mean_H, spread_QH = _spread(error_TH, cell_TH, seasons.season, np.asarray(levels, np.float64))
    factor = 1 + _FEW_SPANS * horizon / steps
    mean_H, quantile_QH = (np.maximum(combined_TH[-1] + part * factor, lowest) for part in (mean_H, spread_QH))
    return mean_H, quantile_QH


def _filled(value_N: Doubles, season: int) -> Doubles:
    """Return the values, missing ones replaced by that of a season ago, or else by the one before."""
    filled_N = value_N.copy()
    for step in np.flatnonzero(np.isnan(value_N)).tolist():
        filled_N[step] = filled_N[step - season if step >= season else step - 1]
    return filled_N


def _at_rest(filled_N: Doubles, season: int) -> Doubles:
    """Return the value of each phase (P,) that had the same one in all of three seasons or more; NaN for the others."""
    rows = len(filled_N) // season
    if rows < _SEASONS_AT_REST:
        return np.full(season, np.nan)
    whole_KP = filled_N[: rows * season].reshape(rows, season)
    low_P, high_P = whole_KP.min(axis=0), whole_KP.max(axis=0)
    # The season that has begun counts too.
    begun_P = np.resize(filled_N[rows * season :], season) if len(filled_N) % season else low_P
    known_P = np.arange(season) < len(filled_N) % season
    return np.where((low_P == high_P) & (~known_P | (begun_P == low_P)), low_P, np.nan)


def _origins(steps: int, season: int, horizon: int) -> Ints:
    """Return rising origins, evenly spaced; the last is the end of the history, where the forecast begins."""
    first = season + 1 if 2 * season < steps else _FEWEST
    most = min(_MOST_ORIGINS, max(_MOST_CELLS // horizon, 20))
    stride = -(-(steps - first + 1) // most)
    return np.arange(steps, min(first, steps) - 1, -max(stride, 1))[::-1]


def _rules(value_N: Doubles, seasons: Seasons, horizon: int, origin_T: Ints) -> Iterator[Doubles]:
    """Yield the forecasts (T, H) of each rule; NaN where the history before the origin is too short for it."""
    season, week = seasons.season, seasons.week
    cycles = [(season, count) for count in _SEASONS if season > 1] + [(week, count) for count in _WEEKS if week]
    fade_H = _FADES ** np.arange(1, horizon + 1)
    for step, count in cycles:
        phase_TH = _phase_means(value_N, step, count, horizon, origin_T)
        error_N = value_N - _phase_means(value_N, step, count, 1, np.arange(len(value_N)))[:, 0]
        level_T1 = _recent_mean(error_N, season, origin_T)[:, None]
        newest_T1 = _recent_mean(error_N, min(_NEWEST, season), origin_T)[:, None]
        yield phase_TH
        yield phase_TH + level_T1
        yield phase_TH + newest_T1 * fade_H
        yield phase_TH + level_T1 + (newest_T1 - level_T1) * fade_H
    if week and len(value_N) >= 2 * season:
        return
    last_T1, mean_T1 = value_N[origin_T - 1, None], (np.cumsum(value_N)[origin_T - 1] / origin_T)[:, None]
    for count in _STEPS:
        yield np.repeat(_recent_mean(value_N, count, origin_T)[:, None], horizon, axis=1)
    yield np.repeat(mean_T1, horizon, axis=1)
    damp_H = _DAMPED ** np.arange(1, horizon + 1)
    yield mean_T1 + (last_T1 - mean_T1) * damp_H
    back_T = np.minimum(_TREND, origin_T - 1)
    yield last_T1 + ((value_N[origin_T - 1] - value_N[origin_T - 1 - back_T]) / back_T)[:, None] * np.cumsum(damp_H)


def _phase_means(value_N: Doubles, step: int, count: int, horizon: int, origin_T: Ints) -> Doubles:
    """Return the means (T, H) of the newest `count` values at the same phase of a cycle of `step` steps."""
    ahead_H = np.arange(horizon)
    newest_TH = origin_T[:, None] + ahead_H - (ahead_H // step + 1) * step
    total_TH = np.zeros(newest_TH.shape)
    for before in range(0, count * step, step):
        total_TH += value_N[np.maximum(newest_TH - before, 0)]
    return np.where(newest_TH >= (count - 1) * step, total_TH / count, np.nan)


def _recent_mean(value_N: Doubles, count: int, origin_T: Ints) -> Doubles:
    """Return the mean of the `count` steps before each origin; NaN if there are not so many, or one is NaN."""
    seen_N = ~np.isnan(value_N)
    total_N, seen_count_N = (np.concatenate(([0], np.cumsum(part))) for part in (np.nan_to_num(value_N), seen_N))
    begin_T = np.maximum(origin_T - count, 0)
    whole_T = seen_count_N[origin_T] - seen_count_N[begin_T] == count
    return np.where(whole_T, (total_N[origin_T] - total_N[begin_T]) / count, np.nan)


def _weights(rules_KTH: Doubles, truth_TH: Doubles, origin_T: Ints) -> Doubles:
    """Return a weight per rule, by its past absolute error relative to the rule that needs least history."""
    error_KTH = np.abs(truth_TH - rules_KTH)
    seen_KTH = ~np.isnan(error_KTH)
    most = int(np.argmax(seen_KTH.sum(axis=(1, 2))))
    both_KTH = seen_KTH & seen_KTH[most]
    own_K = np.where(both_KTH, error_KTH, 0).sum(axis=(1, 2))
    other_K = np.where(both_KTH, error_KTH[most], 0).sum(axis=(1, 2))
    # Equal rules stay equal where nothing moves and all errors are nearly 0.
    least = 1e-9 * np.nanmax(np.abs(rules_KTH)) + np.finfo(np.float64).tiny
    stride = int(origin_T[-1] - origin_T[-2]) if len(origin_T) > 1 else 1
    spans_K = both_KTH.sum(axis=(1, 2)) * stride / truth_TH.shape[1] ** 2
    ratio_K = np.log((own_K + least) / (other_K + least)) * spans_K / (spans_K + _UNSEEN_SPANS)
    # A rule that was never tried is not trusted, unless none was.
    ratio_K = np.where((spans_K > 0) | ~seen_KTH.any(), ratio_K, np.inf)
    weight_K = np.exp(-_POWER * (ratio_K - ratio_K.min()))
    return np.asarray(weight_K / weight_K.sum())


def _spread(error_TH: Doubles, cell_TH: Ints, season: int, level_Q: Doubles) -> tuple[Doubles, Doubles]:
    """Return mean (H,) and quantiles (Q, H) of the past errors: one shape, a scale by step and by phase."""
    seen_TH, horizon = ~np.isnan(error_TH), error_TH.shape[1]
    size_TH = np.abs(np.nan_to_num(error_TH))
    if not size_TH.any():
        return np.zeros(horizon), np.zeros((len(level_Q), horizon))
    count_H = seen_TH.sum(axis=0)
    typical = size_TH.sum() / count_H.sum()
    scale_H = (size_TH.sum(axis=0) + _PRIOR_ERRORS * typical) / (count_H + _PRIOR_ERRORS)
    scale_H = np.maximum.accumulate(np.convolve(np.pad(scale_H, 2, mode="edge"), np.ones(5) / 5, "valid"))
    scale_TH = np.broadcast_to(scale_H, error_TH.shape)
    if season > 1 and cell_TH[-1, 0] >= 3 * season:
        phase_TH = cell_TH % season
        factor_TH = _by_phase(size_TH / scale_H, seen_TH, phase_TH, season)[phase_TH]
        scale_TH, seen_TH = scale_H * factor_TH, seen_TH & (factor_TH > _AT_REST)
    shape = error_TH[seen_TH] / scale_TH[seen_TH]
    # Half of the skew, and of the mean: that of few errors is chance.
    quantile_Q = (np.quantile(shape, level_Q) + np.quantile(np.concatenate([shape, -shape]), level_Q)) / 2
    return shape.mean() / 2 * scale_TH[-1], np.asarray(quantile_Q[:, None] * scale_TH[-1])


def _by_phase(size_TH: Doubles, seen_TH: NDArray[np.bool_], phase_TH: Ints, season: int) -> Doubles:
    """Return the size of the errors at each phase (P,), relative to the mean of all."""
    total_P = np.bincount(phase_TH.ravel(), size_TH.ravel(), season)
    count_P = np.bincount(phase_TH.ravel(), seen_TH.ravel(), season)
    mean = total_P.sum() / count_P.sum()
    size_P = np.where(count_P > 0, total_P / np.maximum(count_P, 1), mean)
    if season >= 12:
        size_P = np.convolve(np.concatenate([size_P[-1:], size_P, size_P[:1]]), (0.25, 0.5, 0.25), "valid")
    seasons_P = count_P / min(seen_TH.shape[1], season)
    drawn_P = (size_P * seasons_P + _PRIOR_SEASONS * mean) / (seasons_P + _PRIOR_SEASONS)
    return np.asarray(np.where(size_P > _AT_REST * mean, drawn_P, size_P) / mean)
