"""Values of windows and of long before -> mean and spread at the same phase of earlier seasons, at every position.

A season ago says what was; four weeks of the same hour say what is usual, and how sure that is. Only steps that are
known at the forecast start count, for every position of the horizon: a profile never waits for a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from logsparse.data.panel import Floats
from logsparse.data.scale import Doubles

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
