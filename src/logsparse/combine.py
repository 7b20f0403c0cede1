"""Forecasts of several members -> one: weights found on held-back windows, averages by weight, paths that stay joint.

Quantiles are averaged level by level. Pure functions of arrays; what fits the members is in ensemble.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# M members, W windows, S series, Q quantile levels, H steps of the horizon, N sample paths, X any axes

# Weights are multiples of 1 / k, with k at most this number.
_ROUNDS = 20
# A further member, or a finer weight, must lower the loss by more than this share of it.
_PAYS = 5e-3

Doubles = NDArray[np.float64]
Array = NDArray[Any]


def average(parts_MX: Sequence[Array], weights_M: Sequence[float] | Doubles) -> Array:
    """Return the weighted average of the members, in their type.

    All cells are summed in the same order, so that quantiles which do not cross in any member do not cross in the
    average either, to the last bit.
    """
    total_X = np.zeros(np.shape(parts_MX[0]))
    for part_X, weight in zip(parts_MX, weights_M, strict=True):
        total_X += float(weight) * np.asarray(part_X, np.float64)
    return total_X.astype(np.asarray(parts_MX[0]).dtype)


def quantile_loss(truth_XH: Array, quantiles_XQH: Array, levels: Sequence[float]) -> Doubles:
    """Return the quantile loss (X,), summed over levels and steps; a missing true value counts nothing."""
    level_Q1 = np.asarray(levels, np.float64)[:, None]
    error_XQH = np.asarray(truth_XH, np.float64)[..., None, :] - quantiles_XQH
    return np.asarray(np.nansum(np.maximum(level_Q1 * error_XQH, (level_Q1 - 1) * error_XQH), axis=(-2, -1)))


class HeldBackLoss:
    """Loss of a forecast of held-back windows (W, S, Q, H) in which every series counts about the same.

    The loss of a series over all its windows is divided by its unit: what its best member loses there or, if that is
    more, what a constant at the median of its held-back values loses. So

    - a series of large values does not decide alone, as it would in a plain sum;
    - neither does one that no member foresees, such as a jump, as it would if the unit came from the past;
    - nor one that all forecast almost exactly, by its last digits, as it would if the best member were the unit;
    - a series that does not move in its windows (dead, or a sensor that is stuck) has no say, unless none moves;
    - a member that is there twice changes nothing, as it would if the mean over the members were the unit.

    Parameters
    ----------
    truth_WSH
        The held-back values, NaN if missing.
    parts_MWSQH
        The forecasts of the members.
    levels
        Quantile levels.
    """

    def __init__(self, truth_WSH: Array, parts_MWSQH: Sequence[Array], levels: Sequence[float]) -> None:
        self.truth_WSH, self.levels = truth_WSH, tuple(levels)
        series = truth_WSH.shape[1]
        middle_S = np.zeros(series)
        for place in range(series):
            seen = truth_WSH[:, place][~np.isnan(truth_WSH[:, place])]
            middle_S[place] = np.median(seen) if seen.size else 0
        constant_WSQH = np.broadcast_to(middle_S[:, None, None], (len(truth_WSH), series, len(self.levels), 1))
        spread_S = self._by_series(constant_WSQH)
        best_S = np.min([self._by_series(part_WSQH) for part_WSQH in parts_MWSQH], axis=0)
        moves_S = spread_S > 0
        unit_S = np.where(moves_S, np.maximum(spread_S, best_S), np.inf)
        self.unit_S = unit_S if moves_S.any() else np.ones(series)

    def __call__(self, quantiles_WSQH: Array) -> float:
        return float(np.sum(self._by_series(quantiles_WSQH) / self.unit_S) / np.isfinite(self.unit_S).sum())

    def _by_series(self, quantiles_WSQH: Array) -> Doubles:
        loss_WS = [quantile_loss(*window, self.levels) for window in zip(self.truth_WSH, quantiles_WSQH, strict=True)]
        return np.asarray(np.sum(loss_WS, axis=0))


def greedy_weights(parts_MX: Sequence[Array], loss: Callable[[Array], float]) -> Doubles:
    """Return one weight per member, which sum to 1, found by greedy forward selection with replacement.

    Members are added one after the other, each time the one whose addition to the average gives the lowest loss; one
    that is added again gains weight. Of all averages on the way, the first whose loss is within half a per cent of the
    lowest is taken: a member takes part only if it pays. The first average is the best single member, so the result is
    never worse. Of equal members the first is used.

    Parameters
    ----------
    parts_MX
        Forecasts of the members.
    loss
        Loss of a forecast, as `HeldBackLoss`.
    """
    total_X, count_M = np.zeros(np.shape(parts_MX[0])), np.zeros(len(parts_MX), np.int64)
    found: list[tuple[float, NDArray[np.int64]]] = []
    for size in range(1, _ROUNDS + 1 if len(parts_MX) > 1 else 2):
        losses_M = [loss((total_X + part_X) / size) for part_X in parts_MX]
        added = int(np.argmin(losses_M))
        total_X += parts_MX[added]
        count_M[added] += 1
        found.append((losses_M[added], count_M.copy()))
    least = min(lost for lost, _ in found)
    chosen_M = next(count for lost, count in found if lost <= least * (1 + _PAYS))
    return np.asarray(chosen_M / chosen_M.sum())


def middles(count: int) -> tuple[float, ...]:
    """Return the levels of `count` sorted draws: the middles of equal parts of (0, 1)."""
    return tuple(((np.arange(count) + 0.5) / count).tolist())


def path_quantiles(paths_SNH: Array, count: int) -> Array:
    """Return the quantiles (S, count, H) of sample paths at `middles(count)`: the sorted paths, if as many."""
    rising_SNH = np.sort(paths_SNH, axis=1)
    if paths_SNH.shape[1] == count:
        return rising_SNH
    found_NSH = np.asarray(np.quantile(rising_SNH, middles(count), axis=1, method="hazen"), paths_SNH.dtype)
    return found_NSH.swapaxes(0, 1)


def joint_paths(paths_of: Sequence[Array], weights: Sequence[float] | Doubles, quantiles_SNH: Array) -> Array:
    """Return whole paths of the members, in proportion to their weights, with other values of the same ranks.

    A path keeps its course: where it is high among the paths of its member, it is high among the combined values.

    Parameters
    ----------
    paths_of
        Sample paths (S, any number of at least N, H) of each member that has them.
    weights
        Their weights; they need not sum to 1.
    quantiles_SNH
        Combined quantiles at `middles(N)`, rising along N: the values of the paths returned.
    """
    count = quantiles_SNH.shape[1]
    level_SNH = []
    for paths_SNH, share in zip(paths_of, _apportioned(weights, count), strict=True):
        drawn = paths_SNH.shape[1]
        # Evenly spaced: neighbouring draws may belong together.
        taken = np.arange(share) * drawn // max(share, 1)
        level_SNH.append((_ranks(paths_SNH)[:, taken] + 0.5) / drawn)
    return np.take_along_axis(quantiles_SNH, _ranks(np.concatenate(level_SNH, axis=1)), axis=1)


def _ranks(values_SNH: Array) -> NDArray[np.int64]:
    return np.argsort(np.argsort(values_SNH, axis=1, kind="stable"), axis=1, kind="stable")


def _apportioned(weights: Sequence[float] | Doubles, count: int) -> list[int]:
    """Return whole numbers in proportion to the weights that sum to `count`; the largest remainders are rounded up."""
    exact_M = np.asarray(weights, np.float64) / np.sum(weights) * count
    whole_M = np.floor(exact_M).astype(np.int64)
    whole_M[np.argsort(whole_M - exact_M, kind="stable")[: count - whole_M.sum()]] += 1
    return [int(share) for share in whole_M]
