"""(Panel, context, horizon) -> every window there is, numbered but never listed; training apart from validation.

A window is named by its series and its forecast start s, the step at which the horizon begins: it reaches from
s - context to s + horizon. Long series give whole windows only; a series shorter than one window gives every s with a
step of history and a whole horizon, and is padded on the left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from logsparse.data.calendar import Ints
from logsparse.data.panel import Panel
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
