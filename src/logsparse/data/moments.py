"""Rows of many steps -> mean and deviation, a bounded number of steps at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import Ints

# N steps of one chunk, R rows

_CHUNK = 1 << 18


def chunks(length_R: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(row, step) of every step of every row, a bounded number at a time."""
    end_R = np.cumsum(length_R)
    for begin in range(0, int(end_R[-1]), _CHUNK):
        flat_N = np.arange(begin, min(begin + _CHUNK, end_R[-1]))
        row_N = np.searchsorted(end_R, flat_N, side="right")
        yield row_N, flat_N - (end_R - length_R)[row_N]


class Moments:
    """Mean and deviation of chunks, merged so that a large mean does not swallow a small deviation."""

    def __init__(self) -> None:
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def add(self, raw_N: NDArray[np.float64], weight_N: Ints) -> None:
        count = int(weight_N.sum())
        if count == 0:
            return
        mean = float(raw_N @ weight_N) / count
        apart, both = mean - self.mean, self.count + count
        self.square += float((raw_N - mean) ** 2 @ weight_N) + apart**2 * self.count * count / both
        self.mean += apart * count / both
        self.count = both

    def result(self) -> tuple[float, float]:
        return self.mean, (self.square / max(self.count, 1)) ** 0.5
