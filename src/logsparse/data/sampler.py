"""(Panel, context, horizon) -> all windows, numbered but not stored -> windows drawn in proportion to their scale.

A window is identified by its series and its forecast start s, the step at which the horizon begins; it spans
s - context to s + horizon. From a long series only full windows are taken. From a series shorter than one window,
every s with at least one step of history and a full horizon is taken, padded on the left.

A panel may have 10^8 windows, so their weights are not stored: per block of neighbours only the sum is kept, and the
weights in a block are recomputed when a window is drawn from it. Memory grows by 8 bytes per block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from logsparse.data.calendar import Ints
from logsparse.data.panel import Floats, Panel
from logsparse.data.scale import Doubles, Scaling
from logsparse.errors import ConfigError, DataError

# S series, B windows, N candidates in a row, W candidates of a block, K blocks, G runs of neighbouring candidates

VALIDATION_SHARE = 0.1
"""Share of each series at its end that is for validation, unless another is given."""
BLOCK = 64
# Windows shuffled at once.
_PART = 1 << 22
# Steps processed at once: bounds the memory of a pass over all candidates.
_STEPS = 1 << 17


@dataclass(frozen=True)
class Pairs:
    """Some windows: series and forecast start, (B,) each."""

    series_B: Ints
    start_B: Ints

    def __len__(self) -> int:
        return len(self.series_B)

    def at(self, index_B: Ints) -> Pairs:
        """Return the windows at these positions."""
        return Pairs(self.series_B[index_B], self.start_B[index_B])

    def share(self, rank: int, ranks: int) -> Ints:
        """Return the positions of the windows of one rank; those of all ranks, concatenated, are the whole batch."""
        return np.arange(len(self) * rank // ranks, len(self) * (rank + 1) // ranks)

    def held_by(self, panel: Panel) -> Ints:
        """Return the positions of the windows whose series the panel holds here."""
        return np.flatnonzero((self.series_B >= panel.held.start) & (self.series_B < panel.held.stop))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Windows numbered over all series: series i has starts `first_S[i]`, ..., `first_S[i] + count_S[i] - 1`."""

    panel: Panel
    context: int
    horizon: int
    first_S: Ints
    count_S: Ints
    end_S: Ints = field(init=False, repr=False)
    """Number of the last window per series, plus one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_S", np.cumsum(self.count_S))

    @classmethod
    def of(cls, panel: Panel, context: int, horizon: int) -> Self:
        """Return every window of the visible part of the panel."""
        self = cls(panel, context, horizon, *_starts(panel.lengths, context, horizon))
        if len(self) == 0:
            raise _too_short(
                panel, "At least one series must have one step of history and a full horizon.", 1 + horizon
            )
        return self

    def __len__(self) -> int:
        return int(self.end_S[-1])

    def at(self, index_B: Ints) -> Pairs:
        """Return the windows with these numbers."""
        series_B = np.searchsorted(self.end_S, index_B, side="right")
        number_B = index_B - self.end_S[series_B] + self.count_S[series_B]
        return Pairs(series_B, self.first_S[series_B] + number_B)


def learned_steps(panel: Panel, horizon: int, most: int | None = None, share: float = VALIDATION_SHARE) -> Ints:
    """Return the number of steps before the validation part per series, below 0 if the series is shorter than it.

    The validation part is a share of the series, at most `most` steps, and at least one horizon.
    """
    # 0.1 is not a tenth in binary: of 10 steps it is one, not 0.9999.
    part_S: Ints = np.floor(panel.lengths * share + 1e-9).astype(np.int64)
    return panel.lengths - np.maximum(part_S if most is None else np.minimum(part_S, most), horizon)


def split(
    panel: Panel, context: int, horizon: int, most: int | None = None, share: float = VALIDATION_SHARE
) -> tuple[Candidates, Candidates]:
    """Return the training windows, and the validation windows, whose horizon lies in the validation part.

    No training window touches the validation part. The context of a validation window may reach into training data.
    """
    whole = Candidates.of(panel, context, horizon)
    border_S = learned_steps(panel, horizon, most, share)
    training = Candidates(panel, context, horizon, *_starts(border_S, context, horizon))
    if len(training) == 0:
        rule = "At least one series must have a training window before its validation part."
        raise _too_short(panel, rule, 2 * horizon + 1)
    end_S = whole.first_S + whole.count_S
    first_S = np.maximum(whole.first_S, border_S)
    return training, Candidates(panel, context, horizon, first_S, np.maximum(end_S - first_S, 0))


def epoch(source: Candidates | Pairs, size: int, generator: np.random.Generator | None = None) -> Iterator[Pairs]:
    """Yield each window once, in batches (the last may be smaller); shuffled if a generator is given."""
    rest = np.empty(0, np.int64)
    for part in _parts(len(source), generator):
        rest = np.concatenate((rest, part))
        whole = len(rest) - len(rest) % size
        yield from (source.at(rest[begin : begin + size]) for begin in range(0, whole, size))
        rest = rest[whole:]
    if len(rest):
        yield source.at(rest)


def _parts(total: int, generator: np.random.Generator | None) -> Iterator[Ints]:
    """Yield 0, ..., total - 1 in parts that fit into memory; with a generator, together a uniform shuffle."""
    if generator is None:
        yield from (np.arange(begin, min(begin + _PART, total)) for begin in range(0, total, _PART))
        return
    parts = -(-total // _PART)
    seed = int(generator.integers(1 << 62))
    for part in range(parts):
        # Every number belongs to a random part. The choice is drawn again for each part instead of being stored.
        choice = np.random.default_rng(seed)
        members = [
            begin + np.flatnonzero(choice.integers(parts, size=min(_PART, total - begin), dtype=np.uint16) == part)
            for begin in range(0, total, _PART)
        ]
        yield generator.permutation(np.concatenate(members))


def _starts(length_S: Ints, context: int, horizon: int) -> tuple[Ints, Ints]:
    for name, value in (("context", context), ("horizon", horizon)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1 step.", got=str(value), hint=f"choose a larger {name}.")
    first_S = np.where(length_S >= context + horizon, context, 1)
    return first_S, np.maximum(length_S - horizon - first_S + 1, 0)


def _too_short(panel: Panel, rule: str, needed: int) -> DataError:
    return DataError(
        rule,
        got=f"{len(panel)} series, the longest of {panel.lengths.max()} steps, while {needed} are needed",
        hint="shorten the horizon, use longer series, or a model without a network, such as AutoETS (`--model ets`).",
    )


class _Weights(NamedTuple):
    """Weights of windows: their cumulative sum by block, and those in blocks that processes share, by number."""

    block_K: Doubles
    edge_N: Ints
    weight_N: Doubles


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws windows in proportion to their scale, or uniformly without a `scaling`.

    Processes that share a panel draw the same windows, of which each knows those that it holds.
    """

    candidates: Candidates
    scaling: Scaling | None = None
    _once: list[_Weights] = field(default_factory=list, init=False, repr=False)

    @property
    def _weighed(self) -> _Weights:
        if not self._once:
            assert self.scaling is not None, "windows without weights are drawn uniformly"
            self._once.append(self._weigh(self.scaling))
        return self._once[0]

    def _weigh(self, scaling: Scaling) -> _Weights:
        first, end = self._own
        sum_K = np.zeros(-(-len(self.candidates) // BLOCK))
        for begin, weight_N in self._stream(scaling):
            block = begin // BLOCK
            cuts = np.maximum(np.arange(block * BLOCK, begin + len(weight_N), BLOCK) - begin, 0)
            sum_K[block : block + len(cuts)] += np.add.reduceat(weight_N, cuts)
        head = np.arange(first, min(end, -(-first // BLOCK) * BLOCK))
        tail = np.arange(max(first, end // BLOCK * BLOCK), end if end < len(self.candidates) else 0)
        edge_N = np.union1d(head, tail)
        own = slice(first // BLOCK, -(-end // BLOCK))
        parts = self.candidates.panel.everywhere((own.start, sum_K[own], edge_N, self._weights(edge_N, scaling)))
        total_K = np.zeros_like(sum_K)
        for block, part_K, _, _ in parts:
            total_K[block : block + len(part_K)] += part_K
        edges = [np.concatenate([part[column] for part in parts]) for column in (2, 3)]
        return _Weights(np.cumsum(total_K), *edges)

    @property
    def _own(self) -> tuple[int, int]:
        """Number of the first window that is held here, and of the last one, plus one."""
        held, end_S = self.candidates.panel.held, self.candidates.end_S
        return int(end_S[held.start - 1]) if held.start else 0, int(end_S[held.stop - 1])

    def draw(self, size: int, generator: np.random.Generator) -> Pairs:
        """Draw `size` windows with replacement; those that other processes hold may have the series -1."""
        if self.scaling is None:
            return self.candidates.at(generator.integers(len(self.candidates), size=size))
        place_B2 = generator.random((size, 2))
        block_K, (first, end) = self._weighed.block_K, self._own
        block_B = np.searchsorted(block_K, place_B2[:, 0] * block_K[-1], side="right")
        block_B = np.minimum(block_B, len(block_K) - 1)
        index_B = np.full(size, -1)
        pieces = -(-size * (BLOCK + self.context) // _STEPS)
        order = np.argsort(block_B, kind="stable")
        here = order[(block_B[order] >= first // BLOCK) & (block_B[order] * BLOCK < end)]
        for piece in np.array_split(here, pieces):
            index_B[piece] = self._inside(block_B[piece], place_B2[piece, 1], self.scaling)
        found = self.candidates.at(np.maximum(index_B, 0))
        return Pairs(np.where(index_B < 0, -1, found.series_B), found.start_B)

    def _inside(self, block_B: Ints, place_B: Doubles, scaling: Scaling) -> Ints:
        """Return the candidate of each block at this fraction of its total weight."""
        total, (first, end) = len(self.candidates), self._own
        used_K, row_B = np.unique(block_B, return_inverse=True)
        index_KW = used_K[:, None] * BLOCK + np.arange(BLOCK)
        # The last block may be partly filled.
        weight_KW, own_KW = np.zeros(index_KW.shape), (index_KW >= first) & (index_KW < end)
        weight_KW[own_KW] = self._weights(index_KW[own_KW], scaling)
        shared_KW = np.isin(index_KW, self._weighed.edge_N)
        if shared_KW.any():
            weight_KW[shared_KW] = self._weighed.weight_N[np.searchsorted(self._weighed.edge_N, index_KW[shared_KW])]
        sum_BW = np.cumsum(weight_KW, axis=1)[row_B]
        inside_B = (sum_BW <= place_B[:, None] * sum_BW[:, -1:]).sum(axis=1)
        return np.asarray(np.minimum(block_B * BLOCK + inside_B, total - 1))

    def _weights(self, index_N: Ints, scaling: Scaling) -> Doubles:
        """Return the scale of the windows with these numbers; fast for runs of consecutive numbers."""
        if len(index_N) == 0:
            return np.empty(0)
        pairs, context = self.candidates.at(index_N), self.context
        begins = np.diff(pairs.series_B, prepend=-1) != 0
        begins[1:] |= np.diff(index_N) != 1
        begin_G = np.flatnonzero(begins)
        count_G = np.diff(np.append(begin_G, len(index_N)))
        values = self._histories(pairs.at(begin_G), count_G)
        # In `values`, every run takes context - 1 more steps than it has windows.
        lead_N = np.repeat(np.arange(len(begin_G)) * (context - 1), count_G)
        place_N = np.arange(len(index_N)) + lead_N
        return scaling.along(values, place_N, pairs.series_B, pairs.start_B, steps=context)

    def _histories(self, first_G: Pairs, count_G: Ints) -> Floats:
        """Return the values that the histories of each run read, run after run; NaN before a series begins."""
        size_G = count_G + self.context - 1
        offset_G = np.cumsum(size_G) - size_G
        step_N = np.arange(size_G.sum()) + np.repeat(first_G.start_B - self.context - offset_G, size_G)
        begin_N = np.repeat(self.candidates.panel.indptr[first_G.series_B], size_G)
        values_N: Floats = self.candidates.panel.values[begin_N + np.maximum(step_N, 0)]
        values_N[step_N < 0] = np.nan
        return values_N

    @property
    def context(self) -> int:
        """Steps of history that the scale is computed from: at most those of the longest series."""
        return min(self.candidates.context, int(self.candidates.panel.lengths.max()))

    def _stream(self, scaling: Scaling) -> Iterator[tuple[int, Doubles]]:
        """Yield the weights of all candidates that are held here, some blocks at a time, with the first's number."""
        candidates, (begin, stop) = self.candidates, self._own
        # The cost is counted in steps: per run of neighbours, its candidates plus the context.
        cost_S = candidates.end_S - candidates.count_S + self.context * np.arange(len(candidates.panel))
        while begin < stop:
            series = int(np.searchsorted(candidates.end_S, begin, side="right"))
            budget = begin + self.context * series + _STEPS
            last = int(np.searchsorted(cost_S, budget, side="right")) - 1
            end = min(budget - self.context * last, int(candidates.end_S[last]))
            # Whole blocks only, except the first and the last.
            end = min(max(end // BLOCK * BLOCK, begin + BLOCK), stop) if end < stop else stop
            yield begin, self._weights(np.arange(begin, end), scaling)
            begin = end
