"""Histories -> centre and scale of each window; values of earlier seasons -> their mean and spread at every position.

DeepAR's scale, and the paper's, is 1 + mean |z|, with centre 0. The 1 has a unit: shares of a road's use and watts are
not treated alike; without it, mean |z|, they are. Both leave a series that varies little around a high level almost
constant; its deviation from its mean is what a network can see. Only the history counts, never the horizon; only
observed steps count. A history of zeros says nothing of the unit: its scale is the mean size of what was learned of its
series, or of a typical series where that was all zeros too, so that data in another unit are treated alike. Only with
1 + mean |z|, which has a unit anyway, it is 1.

A season ago says what was; four weeks of the same hour say what is usual, and how sure that is. Only steps that are
known at the forecast start count, for every position of the horizon: a profile never waits for a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import Ints
from logsparse.data.panel import Floats, Panel

# B windows, C context, T steps in a row

Doubles = NDArray[np.float64]

_STILL = 1e-3
# Values of histories worked on at once.
_CELLS = 1 << 20
# Spreads a million times smaller than the scale must be single numbers yet: values below it are as good as zero.
_LEAST = 1e6 * float(np.finfo(np.float32).tiny)


def centre_and_scale(
    values_BC: Floats, observed_BC: NDArray[np.bool_], kind: str, unit_B: Doubles
) -> tuple[Doubles, Doubles]:
    """Of each history; values where nothing was observed are not read. `unit_B` is the scale of nothing but zeros."""
    count_B = np.maximum(observed_BC.sum(axis=-1), 1)
    size_B = np.abs(values_BC).sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    if kind != "deviation":
        return np.zeros_like(size_B), _scale_of(size_B, kind, unit_B)
    centre_B = values_BC.sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    away_BC = np.abs(values_BC - centre_B[..., None])
    # A history that stood still says little about how far the next step may lie, and one of few values less.
    least_B = np.maximum(_STILL, 1.0 / count_B**2) * size_B
    scale_B = np.maximum(away_BC.sum(axis=-1, where=observed_BC) / count_B, least_B)
    return centre_B, _divisor(scale_B, unit_B)


def mean_sizes(panel: Panel, lengths_S: Ints) -> Doubles:
    """Mean |z| over the first so many steps of each series; 0 where there is nothing but zeros."""
    size_S = np.zeros(len(panel))
    for series, length in enumerate(lengths_S.tolist()):
        values = panel[series][: max(length, 0)].astype(np.float64)
        seen = np.abs(values[~np.isnan(values)])
        size_S[series] = seen.sum() / max(len(seen), 1)
    return size_S


def _scale_of(size_B: Doubles, kind: str, unit_B: Doubles) -> Doubles:
    """Of the mean sizes of histories, for the scales without a centre."""
    return 1 + size_B if kind == "one-plus-mean" else _divisor(size_B, unit_B)


def _divisor(size_B: Doubles, unit_B: Doubles) -> Doubles:
    return np.maximum(np.where(size_B > 0, size_B, unit_B), _LEAST)


@dataclass(frozen=True, eq=False)
class Scaling:
    """The one rule for windows of a panel: what a window is divided by is also its weight when windows are drawn."""

    panel: Panel
    context: int
    kind: str

    def __call__(
        self, values_BC: Floats, observed_BC: NDArray[np.bool_], series_B: Ints, start_B: Ints
    ) -> tuple[Doubles, Doubles]:
        """Centre and scale of these windows, whose histories were gathered."""
        centre_B, scale_B = centre_and_scale(values_BC, observed_BC, self.kind, self._units(series_B))
        empty = np.flatnonzero(~observed_BC.any(axis=1))
        centre_B[empty], scale_B[empty] = self._earlier(series_B[empty], start_B[empty])
        return centre_B, scale_B

    def along(self, values_T: Floats, place_B: Ints, series_B: Ints, start_B: Ints, *, steps: int) -> Doubles:
        """Scales of these windows, whose histories of `steps` steps begin at these places of `values_T`.

        Histories may overlap; NaN is not observed.
        """
        observed_T = ~np.isnan(values_T)
        total_T = np.concatenate(([0], np.cumsum(observed_T)))
        count_B = total_T[place_B + steps] - total_T[place_B]
        if self.kind == "deviation":
            scale_B = _deviations(values_T, place_B, steps, self._units(series_B))
        else:
            size_T = np.where(observed_T, np.abs(values_T), 0).astype(np.float64)
            size_B = _rolling_sum(size_T, steps)[place_B] / np.maximum(count_B, 1)
            scale_B = _scale_of(size_B, self.kind, self._units(series_B))
        empty = np.flatnonzero(count_B == 0)
        scale_B[empty] = self._earlier(series_B[empty], start_B[empty])[1]
        return scale_B

    def _units(self, series_B: Ints) -> Doubles:
        return np.ones(len(series_B)) if self.panel.units is None else self.panel.units[series_B]

    def _earlier(self, series_B: Ints, start_B: Ints) -> tuple[Doubles, Doubles]:
        """Of empty histories: the last values before them stand for them, however long ago."""
        centre_B, scale_B = np.empty((2, len(series_B)))
        unit_B = self._units(series_B)
        for series in np.unique(series_B).tolist():
            seen = np.flatnonzero(~np.isnan(self.panel[series]))
            rows = np.flatnonzero(series_B == series)
            count_B = np.searchsorted(seen, start_B[rows])
            for count in np.unique(count_B).tolist():
                end = int(seen[count - 1]) + 1 if count else 0
                last = self.panel[series][max(0, end - self.context) : end]
                same = rows[count_B == count]
                found = centre_and_scale(last[None], ~np.isnan(last)[None], self.kind, unit_B[same[:1]])
                centre_B[same], scale_B[same] = found
        return centre_B, scale_B


def _deviations(values_T: Floats, place_B: Ints, steps: int, unit_B: Doubles) -> Doubles:
    """By the definition, some histories at a time: their means differ, so that no sum can be carried along."""
    histories = np.lib.stride_tricks.sliding_window_view(values_T, steps)
    scale_B = np.empty(len(place_B))
    size = max(1, _CELLS // steps)
    for begin in range(0, len(place_B), size):
        part = slice(begin, begin + size)
        values_BC = histories[place_B[part]]
        _, scale_B[part] = centre_and_scale(values_BC, ~np.isnan(values_BC), "deviation", unit_B[part])
    return scale_B


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


# B windows, L steps of a window, E = reach + L steps, R profiles


@dataclass(frozen=True)
class Profile:
    """So many earlier values, `step` steps apart."""

    step: int
    count: int

    def back(self, horizon: int) -> range:
        """How many steps each lies back: the nearest is known from the first step of the horizon to its last."""
        nearest = -(-horizon // self.step)
        return range(nearest * self.step, (nearest + self.count) * self.step, self.step)


def reach(lags: Sequence[int], profiles: Sequence[Profile], horizon: int) -> int:
    """Steps before a position that its inputs look back at."""
    return max(*lags, *(profile.back(horizon)[-1] for profile in profiles), 1)


def profile_of(
    values_BE: Floats, observed_BE: NDArray[np.bool_], back: range, length: int
) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
    """Mean, mean distance from it, and whether there was anything (else both are 0), (B, L) each.

    Values that were not observed are 0.
    """
    size = values_BE.shape[1] - length
    cuts = [slice(size - steps, size - steps + length) for steps in back]
    total_BL, away_BL = np.zeros((2, len(values_BE), length))
    count_BL = np.zeros((len(values_BE), length), np.int64)
    for cut in cuts:
        total_BL += values_BE[:, cut]
        count_BL += observed_BE[:, cut]
    mean_BL = total_BL / np.maximum(count_BL, 1)
    for cut in cuts:
        away_BL += np.abs(values_BE[:, cut] - mean_BL) * observed_BE[:, cut]
    return mean_BL, away_BL / np.maximum(count_BL, 1), count_BL > 0
