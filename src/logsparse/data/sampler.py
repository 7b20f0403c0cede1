"""(Panel, context, horizon) -> all windows, numbered but never listed -> windows drawn in proportion to their scale.

A window is named by its series and its forecast start s, the step at which the horizon begins: it reaches from
s - context to s + horizon. Long series give whole windows only; a series shorter than one window gives every s with a
step of history and a whole horizon, and is padded on the left.

A panel may hold 10^8 windows, so their weights are never held at once: a block of neighbours keeps only its sum, and
the weights inside a block are computed again when one is drawn from it. Memory grows by 8 bytes a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from logsparse.data.calendar import Ints
from logsparse.data.panel import Floats, Panel
from logsparse.data.scale import Doubles, Scaling
from logsparse.errors import ConfigError, DataError

# S series, B windows

VALIDATION_SHARE = 10
"""The last tenth of each series is held back for validation, or less if so asked, and at least one horizon."""
_PILE = 1 << 22


@dataclass(frozen=True)
class Pairs:
    """The names of some windows: series and forecast start, (B,) each."""

    series_B: Ints
    start_B: Ints

    def __len__(self) -> int:
        return len(self.series_B)

    def at(self, index_B: Ints) -> Pairs:
        """The windows at these places."""
        return Pairs(self.series_B[index_B], self.start_B[index_B])

    def share(self, rank: int, ranks: int) -> Pairs:
        """The part of one rank: the parts are disjoint, and in order of rank they are the whole batch."""
        part = slice(len(self) * rank // ranks, len(self) * (rank + 1) // ranks)
        return Pairs(self.series_B[part], self.start_B[part])


@dataclass(frozen=True, eq=False)
class Candidates:
    """For series i the starts `first_S[i]`, ..., `first_S[i] + count_S[i] - 1`, numbered through all series."""

    panel: Panel
    context: int
    horizon: int
    first_S: Ints
    count_S: Ints
    end_S: Ints = field(init=False, repr=False)
    """One more than the number of each series' last window."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_S", np.cumsum(self.count_S))

    @classmethod
    def of(cls, panel: Panel, context: int, horizon: int) -> Self:
        """Every window of the visible part of the panel."""
        self = cls(panel, context, horizon, *_starts(panel.lengths, context, horizon))
        if len(self) == 0:
            raise _too_short(
                panel, "At least one series must hold one step of history and a whole horizon.", 1 + horizon
            )
        return self

    def __len__(self) -> int:
        return int(self.end_S[-1])

    def at(self, index_B: Ints) -> Pairs:
        """The windows with these numbers."""
        series_B = np.searchsorted(self.end_S, index_B, side="right")
        number_B = index_B - self.end_S[series_B] + self.count_S[series_B]
        return Pairs(series_B, self.first_S[series_B] + number_B)


def learned_steps(panel: Panel, horizon: int, most: int | None = None) -> Ints:
    """Of each series, the steps before the part held back; below 0 where the series is shorter than that part.

    That part is a tenth, not more than `most` steps, and one horizon at least.
    """
    tenth_S = panel.lengths // VALIDATION_SHARE
    return panel.lengths - np.maximum(tenth_S if most is None else np.minimum(tenth_S, most), horizon)


def split(panel: Panel, context: int, horizon: int, most: int | None = None) -> tuple[Candidates, Candidates]:
    """Windows to train on, and windows whose whole horizon lies in the part of each series held back.

    No step of a training window is held back. A history may reach back from validation into training.
    """
    whole = Candidates.of(panel, context, horizon)
    border_S = learned_steps(panel, horizon, most)
    training = Candidates(panel, context, horizon, *_starts(border_S, context, horizon))
    if len(training) == 0:
        rule = "At least one series must hold a training window before the part held back for validation."
        raise _too_short(panel, rule, 2 * horizon + 1)
    end_S = whole.first_S + whole.count_S
    first_S = np.maximum(whole.first_S, border_S)
    return training, Candidates(panel, context, horizon, first_S, np.maximum(end_S - first_S, 0))


def epoch(source: Candidates | Pairs, size: int, generator: np.random.Generator | None = None) -> Iterator[Pairs]:
    """Each window once, in batches (the last may be smaller): shuffled by a generator, in order without one."""
    rest = np.empty(0, np.int64)
    for pile in _piles(len(source), generator):
        rest = np.concatenate((rest, pile))
        whole = len(rest) - len(rest) % size
        yield from (source.at(rest[begin : begin + size]) for begin in range(0, whole, size))
        rest = rest[whole:]
    if len(rest):
        yield source.at(rest)


def _piles(total: int, generator: np.random.Generator | None) -> Iterator[Ints]:
    """0, ..., total - 1 in pieces that fit into memory; one after the other they are a uniform shuffle."""
    if generator is None:
        yield from (np.arange(begin, min(begin + _PILE, total)) for begin in range(0, total, _PILE))
        return
    piles = -(-total // _PILE)
    seed = int(generator.integers(1 << 62))
    for pile in range(piles):
        # Every number falls on one pile by chance. The falls are drawn anew for each pile instead of being kept.
        falls = np.random.default_rng(seed)
        members = [
            begin + np.flatnonzero(falls.integers(piles, size=min(_PILE, total - begin), dtype=np.uint16) == pile)
            for begin in range(0, total, _PILE)
        ]
        yield generator.permutation(np.concatenate(members))


def _starts(length_S: Ints, context: int, horizon: int) -> tuple[Ints, Ints]:
    for name, value in (("context", context), ("horizon", horizon)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1 step.", got=str(value), hint=f"give a larger {name}.")
    first_S = np.where(length_S >= context + horizon, context, 1)
    return first_S, np.maximum(length_S - horizon - first_S + 1, 0)


def _too_short(panel: Panel, rule: str, needed: int) -> DataError:
    return DataError(
        rule,
        got=f"{len(panel)} series, the longest of {panel.lengths.max()} steps, where {needed} are needed",
        hint="shorten the horizon, or give longer series.",
    )


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
