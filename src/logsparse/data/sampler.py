"""(Candidates, Scaling, generator) -> windows drawn with replacement, in proportion to their scale or all alike.

A panel may hold 10^8 windows, so their weights are never held at once: a block of neighbours keeps only its sum, and
the weights inside a block are computed again when one is drawn from it. Memory grows by 8 bytes a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from logsparse.data.calendar import Ints
from logsparse.data.candidates import Candidates, Pairs
from logsparse.data.panel import Floats
from logsparse.data.scale import Doubles, Scaling

# B windows drawn, N candidates in a row, W candidates of a block, K blocks, G runs of neighbouring candidates

BLOCK = 64
# Steps worked on at once: bounds the memory of a pass over all candidates.
_STEPS = 1 << 17


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws windows: with a scaling in proportion to their scale, for which the panel is read once; else all alike."""

    candidates: Candidates
    scaling: Scaling | None = None
    _block_K: Doubles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weights = () if self.scaling is None else self._stream(self.scaling)
        sums = [np.add.reduceat(weight_N, np.arange(0, len(weight_N), BLOCK)) for weight_N in weights]
        object.__setattr__(self, "_block_K", np.cumsum(np.concatenate(sums)) if sums else np.empty(0))

    def draw(self, size: int, generator: np.random.Generator) -> Pairs:
        """So many windows, with replacement."""
        if self.scaling is None:
            return self.candidates.at(generator.integers(len(self.candidates), size=size))
        place_B2 = generator.random((size, 2))
        block_B = np.searchsorted(self._block_K, place_B2[:, 0] * self._block_K[-1], side="right")
        block_B = np.minimum(block_B, len(self._block_K) - 1)
        index_B = np.empty(size, np.int64)
        pieces = -(-size * (BLOCK + self.context) // _STEPS)
        for piece in np.array_split(np.argsort(block_B, kind="stable"), pieces):
            index_B[piece] = self._inside(block_B[piece], place_B2[piece, 1], self.scaling)
        return self.candidates.at(index_B)

    def _inside(self, block_B: Ints, place_B: Doubles, scaling: Scaling) -> Ints:
        """The candidate of each block at this share of its weights."""
        total = len(self.candidates)
        used_K, row_B = np.unique(block_B, return_inverse=True)
        index_KW = used_K[:, None] * BLOCK + np.arange(BLOCK)
        weight_KW = self._weights(np.minimum(index_KW, total - 1).ravel(), scaling).reshape(index_KW.shape)
        # The last block may be only partly filled.
        sum_BW = np.cumsum(np.where(index_KW < total, weight_KW, 0), axis=1)[row_B]
        inside_B = (sum_BW <= place_B[:, None] * sum_BW[:, -1:]).sum(axis=1)
        return np.asarray(np.minimum(block_B * BLOCK + inside_B, total - 1))

    def _weights(self, index_N: Ints, scaling: Scaling) -> Doubles:
        """The scale of the windows with these numbers; quick where the numbers run on."""
        pairs, context = self.candidates.at(index_N), self.context
        begins = np.diff(pairs.series_B, prepend=-1) != 0
        begins[1:] |= np.diff(index_N) != 1
        begin_G = np.flatnonzero(begins)
        count_G = np.diff(np.append(begin_G, len(index_N)))
        values = self._histories(pairs.at(begin_G), count_G)
        # Run g begins in `values` after all earlier runs, each of which takes context - 1 more steps than windows.
        lead_N = np.repeat(np.arange(len(begin_G)) * (context - 1), count_G)
        place_N = np.arange(len(index_N)) + lead_N
        return scaling.along(values, place_N, pairs.series_B, pairs.start_B, steps=context)

    def _histories(self, first_G: Pairs, count_G: Ints) -> Floats:
        """The steps that the histories of each run touch, run after run; NaN before a series begins."""
        size_G = count_G + self.context - 1
        offset_G = np.cumsum(size_G) - size_G
        step_N = np.arange(size_G.sum()) + np.repeat(first_G.start_B - self.context - offset_G, size_G)
        begin_N = np.repeat(self.candidates.panel.indptr[first_G.series_B], size_G)
        values_N: Floats = self.candidates.panel.values[begin_N + np.maximum(step_N, 0)]
        values_N[step_N < 0] = np.nan
        return values_N

    @property
    def context(self) -> int:
        """Steps of history that the scale reads: no more than the longest series has."""
        return min(self.candidates.context, int(self.candidates.panel.lengths.max()))

    def _stream(self, scaling: Scaling) -> Iterator[Doubles]:
        """The weights of all candidates, some blocks at a time."""
        candidates, begin = self.candidates, 0
        # Each run of neighbours costs its context once more, so steps are counted, not candidates.
        cost_S = candidates.end_S - candidates.count_S + self.context * np.arange(len(candidates.panel))
        while begin < len(candidates):
            series = int(np.searchsorted(candidates.end_S, begin, side="right"))
            budget = begin + self.context * series + _STEPS
            last = int(np.searchsorted(cost_S, budget, side="right")) - 1
            end = min(budget - self.context * last, int(candidates.end_S[last]))
            # Whole blocks only, but for the last.
            end = min(max(end // BLOCK * BLOCK, begin + BLOCK), len(candidates)) if end < len(candidates) else end
            yield self._weights(np.arange(begin, end), scaling)
            begin = end
