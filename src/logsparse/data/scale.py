"""Histories -> centre and scale of each window; values of earlier seasons -> their mean and spread at every position.

The scale of DeepAR, and of the paper, is 1 + mean |z|, with centre 0 ("one-plus-mean"). The 1 makes it depend on the
unit of the data; mean |z| does not. With both, a series that varies little around a high level is almost constant to a
network; "deviation", the mean distance from the mean, shows its variation. Only observed steps of the history count,
never the horizon. A history of zeros has no scale of its own: it gets the mean size of the training part of its series,
or of a typical series if that is all zeros too, so that results do not depend on the unit. With "one-plus-mean", the
scale of zeros is 1. A series without any history has the centre and scale of the training series most like it.

A profile is the mean and spread of earlier values at the same phase, such as the same hour of the last four weeks. It
reads only steps before the forecast start, for every position of the horizon, and so is known when a forecast is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import Ints
from logsparse.data.holidays import looked_back
from logsparse.data.panel import Floats, Panel

# B windows, C context, T steps in a row, L steps of a window, E = reach + L steps, R profiles

Doubles = NDArray[np.float64]

# Least deviation of a constant history, relative to its size.
_LEAST_DEVIATION = 1e-3
# Values of histories processed at once.
_CELLS = 1 << 20
# Spreads down to a millionth of the scale must be normal float32 numbers.
_LEAST_SCALE = 1e6 * float(np.finfo(np.float32).tiny)


def centre_and_scale(
    values_BC: Floats, observed_BC: NDArray[np.bool_], kind: str, unit_B: Doubles
) -> tuple[Doubles, Doubles]:
    """Return centre and scale per history from its observed values; `unit_B` is the scale of a history of zeros."""
    count_B = np.maximum(observed_BC.sum(axis=-1), 1)
    size_B = np.abs(values_BC).sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    if kind != "deviation":
        return np.zeros_like(size_B), _scale_of(size_B, kind, unit_B)
    centre_B = values_BC.sum(axis=-1, where=observed_BC, dtype=np.float64) / count_B
    distance_BC = np.abs(values_BC - centre_B[..., None])
    # A constant history says little about the next step, and one of few values even less.
    least_B = np.maximum(_LEAST_DEVIATION, 1.0 / count_B**2) * size_B
    scale_B = np.maximum(distance_BC.sum(axis=-1, where=observed_BC) / count_B, least_B)
    return centre_B, _divisor(scale_B, unit_B)


def mean_sizes(panel: Panel, lengths_S: Ints) -> Doubles:
    """Return mean |z| over the first `lengths_S` steps per series; 0 if they are all zeros."""
    own = np.array([np.abs(seen).sum() / max(len(seen), 1) for seen in _seen(panel, lengths_S)])
    return np.concatenate(panel.everywhere(own))


def mean_moments(panel: Panel, lengths_S: Ints) -> Doubles:
    """Return the means of z and of its square over the first `lengths_S` steps per series, (S, 2)."""
    moments = [(seen.sum(), np.square(seen).sum()) / np.maximum(len(seen), 1) for seen in _seen(panel, lengths_S)]
    return np.concatenate(panel.everywhere(np.array(moments)))


def _seen(panel: Panel, lengths_S: Ints) -> Iterator[Doubles]:
    """Yield the observed values among the first `lengths_S` steps per series."""
    for series in panel.held:
        values = panel[series][: max(int(lengths_S[series]), 0)].astype(np.float64)
        yield values[~np.isnan(values)]


def _scale_of(size_B: Doubles, kind: str, unit_B: Doubles) -> Doubles:
    """Return the scale for mean sizes of histories, for kinds without a centre."""
    return 1 + size_B if kind == "one-plus-mean" else _divisor(size_B, unit_B)


def _divisor(size_B: Doubles, unit_B: Doubles) -> Doubles:
    return np.maximum(np.where(size_B > 0, size_B, unit_B), _LEAST_SCALE)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Scale of the windows of a panel: values are divided by it, and windows are drawn in proportion to it."""

    panel: Panel
    context: int
    kind: str

    def __call__(
        self, values_BC: Floats, observed_BC: NDArray[np.bool_], series_B: Ints, start_B: Ints
    ) -> tuple[Doubles, Doubles]:
        """Return centre and scale of these windows from their histories."""
        centre_B, scale_B = centre_and_scale(values_BC, observed_BC, self.kind, self._units(series_B))
        empty = np.flatnonzero(~observed_BC.any(axis=1))
        centre_B[empty], scale_B[empty] = self._earlier(series_B[empty], start_B[empty])
        return centre_B, scale_B

    def along(self, values_T: Floats, place_B: Ints, series_B: Ints, start_B: Ints, *, steps: int) -> Doubles:
        """Return the scales of windows whose histories of `steps` steps begin at `place_B` in `values_T`.

        Histories may overlap; NaN is a missing value.
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

    def typical(self, series_B: Ints) -> tuple[Doubles, Doubles]:
        """Return centre and scale of windows without any history, from training series like theirs."""
        unit_B = self._units(series_B)
        if self.panel.typical is None:
            size_B, level_B, spread_B = unit_B, np.zeros_like(unit_B), unit_B
        else:
            size_B, level_B, spread_B = self.panel.typical[series_B].T
        if self.kind != "deviation":
            return np.zeros_like(size_B), _scale_of(size_B, self.kind, unit_B)
        return level_B, _divisor(np.maximum(spread_B, _LEAST_DEVIATION * size_B), unit_B)

    def _units(self, series_B: Ints) -> Doubles:
        return np.ones(len(series_B)) if self.panel.units is None else self.panel.units[series_B]

    def _earlier(self, series_B: Ints, start_B: Ints) -> tuple[Doubles, Doubles]:
        """Return centre and scale of empty histories, from the last context that ends in a value before them."""
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
                one = centre_and_scale(last[None], ~np.isnan(last)[None], self.kind, unit_B[same[:1]])
                centre_B[same], scale_B[same] = one
        return centre_B, scale_B


def _deviations(values_T: Floats, place_B: Ints, steps: int, unit_B: Doubles) -> Doubles:
    """Compute the deviation of each history directly, some at a time: with different means, no rolling sum applies."""
    histories = np.lib.stride_tricks.sliding_window_view(values_T, steps)
    scale_B = np.empty(len(place_B))
    size = max(1, _CELLS // steps)
    for begin in range(0, len(place_B), size):
        part = slice(begin, begin + size)
        values_BC = histories[place_B[part]]
        _, scale_B[part] = centre_and_scale(values_BC, ~np.isnan(values_BC), "deviation", unit_B[part])
    return scale_B


def _rolling_sum(size_T: Doubles, context: int) -> Doubles:
    """Return rolling sums of `context` values, using additions only.

    In the difference of two cumulative sums, small values after a large one would be lost. In blocks of `context`
    values, every run of that length is the tail of one block and the head of the next.
    """
    blocks = np.concatenate((size_T, np.zeros(-len(size_T) % context))).reshape(-1, context)
    heads_T = np.cumsum(blocks, axis=1).ravel()[: len(size_T)]
    tails_T = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].ravel()[: len(size_T)]
    sums = tails_T[: len(size_T) - context + 1].copy()
    sums += heads_T[context - 1 :]
    # A run that is a whole block is both tail and head: count it once.
    sums[::context] = heads_T[context - 1 :: context]
    return sums


@dataclass(frozen=True)
class Profile:
    """`count` earlier values, `step` steps apart; or those of the last `count` days alike, of `step` steps each."""

    step: int
    count: int
    alike: bool = False

    @classmethod
    def parse(cls, text: str) -> Profile:
        """Parse 24x7, or 24x4-alike."""
        numbers, _, alike = text.partition("-")
        step, count = map(int, numbers.split("x"))
        return cls(step, count, bool(alike))

    def __str__(self) -> str:
        return f"{self.step}x{self.count}{'-alike' if self.alike else ''}"

    def nearest(self, horizon: int) -> int:
        """Return the fewest times `step` that are at least the horizon."""
        return -(-horizon // self.step)

    def back(self, horizon: int) -> range:
        """Return the lags of these values; the smallest is at least the horizon, so all values are known."""
        nearest = self.nearest(horizon)
        count = looked_back(self.count) + 1 if self.alike else self.count
        return range(nearest * self.step, (nearest + count) * self.step, self.step)


def reach(lags: Sequence[int], profiles: Sequence[Profile], horizon: int) -> int:
    """Return the largest lag that the inputs of a position read."""
    return max(*lags, *(profile.back(horizon)[-1] for profile in profiles), 1)


def profile_of(
    values_BE: Floats, observed_BE: NDArray[np.bool_], back: Iterable[int] | Ints, length: int
) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
    """Return the mean, the mean distance from it, and whether any value was observed (else both are 0), (B, L) each.

    `back` are lags, or for each position lags of its own (K, B, L), where 0 is none. Values that were not observed
    must be 0.
    """
    size = values_BE.shape[1] - length
    if isinstance(back, np.ndarray):
        place_BL = np.arange(size, size + length)
        parts = [_at(values_BE, observed_BE, place_BL - back_BL, back_BL > 0) for back_BL in back]
    else:
        cuts = [slice(size - steps, size - steps + length) for steps in back]
        parts = [(values_BE[:, cut], observed_BE[:, cut]) for cut in cuts]
    total_BL, distance_BL = np.zeros((2, len(values_BE), length))
    count_BL = np.zeros((len(values_BE), length), np.int64)
    for part_BL, seen_BL in parts:
        total_BL += part_BL
        count_BL += seen_BL
    mean_BL = total_BL / np.maximum(count_BL, 1)
    for part_BL, seen_BL in parts:
        distance_BL += np.abs(part_BL - mean_BL) * seen_BL
    return mean_BL, distance_BL / np.maximum(count_BL, 1), count_BL > 0


def _at(
    values_BE: Floats, observed_BE: NDArray[np.bool_], place_BL: Ints, wanted_BL: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the values at these places, and whether they are wanted and observed; 0 where they are not."""
    seen_BL = np.take_along_axis(observed_BE, place_BL, 1) & wanted_BL
    return np.where(seen_BL, np.take_along_axis(values_BE, place_BL, 1), np.float32(0)), seen_BL
