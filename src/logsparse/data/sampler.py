"""(Candidates, generator) -> windows drawn with probability proportional to their scale, or all alike.

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
from logsparse.data.scale import Doubles, rolling_scale
from logsparse.errors import ConfigError

# B windows drawn, N candidates in a row, W candidates of a block, K blocks, G runs of neighbouring candidates

BLOCK = 64
# Steps worked on at once: bounds the memory of a pass over all candidates.
_STEPS = 1 << 17


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws windows; building a weighted one reads the panel once."""

    candidates: Candidates
    weighted: bool = True
    _block_K: Doubles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sums = (
            [np.add.reduceat(w_N, np.arange(0, len(w_N), BLOCK)) for _, w_N in self._stream()] if self.weighted else []
        )
        object.__setattr__(self, "_block_K", np.cumsum(np.concatenate(sums)) if sums else np.empty(0))

    def draw(self, size: int, generator: np.random.Generator) -> Pairs:
        """Fresh draws, with replacement."""
        total = len(self.candidates)
        if not self.weighted:
            return self.candidates.at(generator.integers(total, size=size))
        place_B2 = generator.random((size, 2))
        block_B = np.searchsorted(self._block_K, place_B2[:, 0] * self._block_K[-1], side="right")
        block_B = np.minimum(block_B, len(self._block_K) - 1)
        index_B = np.empty(size, np.int64)
        pieces = -(-size * (BLOCK + self.context) // _STEPS)
        for piece in np.array_split(np.argsort(block_B, kind="stable"), pieces):
            index_B[piece] = self._inside(block_B[piece], place_B2[piece, 1])
        return self.candidates.at(index_B)

    def _inside(self, block_B: Ints, place_B: Doubles) -> Ints:
        """The candidate of each block at this share of its weights."""
        total = len(self.candidates)
        used_K, row_B = np.unique(block_B, return_inverse=True)
        index_KW = used_K[:, None] * BLOCK + np.arange(BLOCK)
        weight_KW = self.weights(np.minimum(index_KW, total - 1).ravel()).reshape(index_KW.shape)
        # The last block may be only partly filled.
        sum_BW = np.cumsum(np.where(index_KW < total, weight_KW, 0), axis=1)[row_B]
        inside_B = (sum_BW <= place_B[:, None] * sum_BW[:, -1:]).sum(axis=1)
        return np.asarray(np.minimum(block_B * BLOCK + inside_B, total - 1))

    def fixed(self, size: int, generator: np.random.Generator) -> Pairs:
        """A set drawn without replacement, in the order of the draws; one pass over all candidates.

        An exponential time divided by its weight is when a candidate is drawn: the earliest are the set.
        """
        if not 1 <= size <= len(self.candidates):
            raise ConfigError(
                "A set of windows drawn without replacement must not be larger than the number of windows.",
                got=f"{size} of {len(self.candidates)}",
                hint="ask for fewer windows, or draw with replacement.",
            )
        when, which, latest = np.empty(0), np.empty(0, np.int64), np.inf
        for begin, weight_N in self._stream():
            when_N = generator.standard_exponential(len(weight_N)) / weight_N
            early = np.flatnonzero(when_N < latest)
            when, which = np.concatenate((when, when_N[early])), np.concatenate((which, begin + early))
            if len(when) > 2 * size:
                kept = np.argpartition(when, size - 1)[:size]
                when, which = when[kept], which[kept]
                latest = float(when.max())
        return self.candidates.at(which[np.argsort(when, kind="stable")[:size]])

    def weights(self, index_N: Ints) -> Doubles:
        """The scale of the windows with these numbers; quick where the numbers run on."""
        pairs, context = self.candidates.at(index_N), self.context
        begins = np.diff(pairs.series_B, prepend=-1) != 0
        begins[1:] |= np.diff(index_N) != 1
        begin_G = np.flatnonzero(begins)
        count_G = np.diff(np.append(begin_G, len(index_N)))
        values = self._histories(pairs.at(begin_G), count_G)
        # Run g begins in `values` after all earlier runs, each of which takes context - 1 more steps than windows.
        lead_N = np.repeat(np.arange(len(begin_G)) * (context - 1), count_G)
        return np.asarray(rolling_scale(values, context)[np.arange(len(index_N)) + lead_N])

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

    def _stream(self) -> Iterator[tuple[int, Doubles]]:
        """(number of the first, weights) of all candidates, some blocks at a time."""
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
            index_N = np.arange(begin, end)
            yield begin, self.weights(index_N) if self.weighted else np.ones(len(index_N))
            begin = end
