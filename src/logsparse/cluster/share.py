"""A folder of parts and the ranks of a training -> one panel of all series, of which each rank holds some.

Every rank knows the ids, lengths, times and categories of all series, in the order in which one process reads the
folder, and has the values of those in its own parts. What follows from values, such as scales and default settings, is
computed where they are and gathered (`Panel.everywhere`), and so it is the same on every rank.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from logsparse.cluster.shards import series_per_part
from logsparse.data.calendar import Freq, Ints
from logsparse.data.columns import Columns, ColumnSpec, validate_columns
from logsparse.data.files import count_rows, scan_parts
from logsparse.data.frame import Data, read_as, read_panel, refuse_empty
from logsparse.data.grid import check_words
from logsparse.data.panel import Floats, Panel, Static
from logsparse.data.series_index import pack_panel, recode, unpack_panel
from logsparse.data.times import When, clock_time
from logsparse.errors import DataError, StepUnknownError
from logsparse.process import available
from logsparse.train.distributed import Ranks, join, several

# S series of all ranks, N stored steps of the series that are held here

# Bytes per cell while the ends of all series are gathered: as they are, sent, received, joined.
_BYTES_PER_CELL = 16

log = logging.getLogger("logsparse")


@dataclass(frozen=True, repr=False, eq=False)
class Shared(Panel):
    """A panel of all series, of which this rank holds the values of `count` from `first` on; others have no steps."""

    ranks: Ranks = field(default_factory=Ranks)
    first: int = 0
    count: int = 0
    missing: int = 0
    """Number of missing values of all series."""

    @classmethod
    def of(cls, own: Panel, ranks: Ranks) -> Shared:
        """Share the panels of all ranks, which agree on everything but their series."""
        parts = ranks.gather(_Series(own.ids, own.starts, own.lengths, {n: c.codes for n, c in own.static.items()}))
        before, here = sum(len(part.ids) for part in parts[: ranks.rank]), len(own)
        after = sum(len(part.ids) for part in parts) - before - here
        missing = sum(ranks.gather(own._missing()))  # noqa: SLF001 - our own base
        return cls(
            values=own.values,
            indptr=np.concatenate([np.zeros(before, np.int64), own.indptr, np.full(after, own.indptr[-1])]),
            lengths=np.concatenate([part.lengths for part in parts]),
            ids=tuple(chain.from_iterable(part.ids for part in parts)),
            starts=np.concatenate([part.starts for part in parts]),
            freq=own.freq,
            covariates=own.covariates,
            static={
                name: Static(np.concatenate([part.codes[name] for part in parts]), column.categories)
                for name, column in own.static.items()
            },
            origin=own.origin,
            past=own.past,
            words=own.words,
            ranks=ranks,
            first=before,
            count=here,
            missing=missing,
        )

    def __getitem__(self, series: int) -> Floats:
        assert series in self.held, "the values of this series are with another rank"
        return super().__getitem__(series)

    @property
    def held(self) -> range:
        return range(self.first, self.first + self.count)

    def everywhere(self, own: Any) -> list[Any]:
        return self.ranks.gather(own)

    def _missing(self) -> int:
        return self.missing

    def own(self) -> Panel:
        """Return the series that are held here, as a panel of their own."""
        here = slice(self.first, self.first + self.count)
        return Panel(
            values=self.values,
            indptr=self.indptr[self.first : self.first + self.count + 1],
            lengths=self.lengths[here],
            ids=self.ids[here],
            starts=self.starts[here],
            freq=self.freq,
            covariates=self.covariates,
            static={name: Static(column.codes[here], column.categories) for name, column in self.static.items()},
            origin=self.origin,
            past=self.past,
            words=self.words,
        )


@dataclass(frozen=True)
class _Series:
    """What every rank knows of the series of another."""

    ids: tuple[Any, ...]
    starts: Ints
    lengths: Ints
    codes: dict[str, Ints]


Reader = Callable[[When | None, Columns], tuple[Panel, Columns]]
"""Time of the last step to use, columns -> the panel, and the columns that were named, checked."""


@contextmanager
def training_data(data: Data, device: torch.device) -> Iterator[Reader]:
    """Yield the reader of the data: of a folder, if there are several ranks, as one panel that they share.

    Then an error of one rank inside the block is raised on all ranks.
    """
    if not (isinstance(data, (str, Path)) and several() and Path(data).is_dir()):
        yield lambda until, columns: read_panel(data, until, columns)
        return
    folder = Path(data)
    with join(device) as ranks, ranks.together():
        yield lambda until, columns: _read(folder, until, columns, ranks)


def _read(folder: Path, until: When | None, columns: Columns, ranks: Ranks) -> tuple[Panel, Columns]:
    given = validate_columns(columns)
    spec = ColumnSpec.of(given)
    series_per_part(folder, spec.id_col, spec.used)
    parts = scan_parts(folder, spec.used)
    if len(parts) < ranks.count:
        raise DataError(
            "Every process must have a part of the data.",
            got=f"{ranks.count} processes, and {len(parts)} parts in {folder}",
            hint=f"write more parts: `logsparse shard {folder} -o {folder.name}-more --parts {4 * ranks.count}`.",
        )
    shares = _shares([count_rows(part) for part in parts.values()], ranks.count)
    own = {name: parts[name] for name in list(parts)[shares[ranks.rank]]}
    panels = _agreed(own, spec, ranks)
    if until is not None:
        panels = [panel.until(clock_time(panel, until)) for panel in panels]
    return Shared.of(Panel.joined(panels), ranks), given


def _shares(rows: Sequence[int], count: int) -> list[slice]:
    """Return the parts of each rank, at least one and neighbours, so that all have about as many rows."""
    middle = np.cumsum(rows) - np.asarray(rows) / 2
    cuts = np.searchsorted(middle, sum(rows) * np.arange(1, count) / count).tolist()
    edges = [0]
    for rank, cut in enumerate(cuts, start=1):
        edges.append(min(max(cut, edges[-1] + 1), len(rows) - count + rank))
    return [slice(begin, end) for begin, end in zip(edges, [*edges[1:], len(rows)], strict=True)]


def _agreed(parts: dict[Path, Any], spec: ColumnSpec, ranks: Ranks) -> list[Panel]:
    """Read the parts of this rank, with the step, the words and the categories of all parts."""
    panels = {name: _panel(part, spec) for name, part in parts.items()}
    known = [(str(name), panel.freq, len(panel.values)) for name, panel in panels.items() if panel is not None]
    freq = _common(list(chain.from_iterable(ranks.gather(known))))
    if freq is None:
        # No part shows its step, and no other can say it: this raises.
        read_as(next(iter(parts.values())), spec)
    for name, panel in panels.items():
        if panel is None or panel.freq != freq:
            # As if the step of the others were found in it, so that a series with a step of its own is refused.
            panels[name] = read_as(parts[name], replace(spec, step=freq))
    read = [panel for panel in panels.values() if panel is not None]
    for panel in read:
        refuse_empty(panel)
    _check_origins(dict(zip(parts, read, strict=True)), ranks)
    facts = ranks.gather([(panel.words, {n: c.categories for n, c in panel.static.items()}) for panel in read])
    every = list(chain.from_iterable(facts))
    words = {name: _sorted_union(found.get(name, ()) for found, _ in every) for name in spec.timed}
    for column, found in words.items():
        check_words(column, found)
    categories = {name: _sorted_union(found[name] for _, found in every) for name in spec.static}
    return [_in_terms_of(panel, {n: w for n, w in words.items() if w}, categories) for panel in read]


def _panel(part: Any, spec: ColumnSpec) -> Panel | None:
    try:
        return read_as(part, spec)
    except StepUnknownError:
        return None


def _common(known: Sequence[tuple[str, Freq, int]]) -> Freq | None:
    """Return the step of most values."""
    cells: dict[Freq, int] = {}
    for _, freq, count in known:
        cells[freq] = cells.get(freq, 0) + count
    return max(cells, key=lambda freq: cells[freq]) if cells else None


def _check_origins(panels: dict[Path, Panel], ranks: Ranks) -> None:
    origins = list(chain.from_iterable(ranks.gather([(str(name), panel.origin) for name, panel in panels.items()])))
    first, usual = origins[0]
    for name, origin in origins:
        if origin != usual:
            raise DataError(
                "All parts must have times of one kind and zone.",
                got=f"{usual.time_type} in {usual.zone or 'no zone'} in {first}, {origin.time_type} in "
                f"{origin.zone or 'no zone'} in {name}",
                hint="write the times of all parts alike.",
            )


def _sorted_union(parts: Any) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(parts))))


def _in_terms_of(panel: Panel, words: dict[str, tuple[str, ...]], categories: dict[str, tuple[str, ...]]) -> Panel:
    """Return the panel with indices of these words and categories in place of its own."""
    covariates = dict(panel.covariates)
    for name, own in panel.words.items():
        number = np.array([*(words[name].index(word) for word in own), np.nan], np.float32)
        flat = covariates[name]
        covariates[name] = number[np.where(np.isnan(flat), len(own), flat).astype(np.int64)]
    static = {name: recode(column, categories[name]) for name, column in panel.static.items()}
    return replace(panel, covariates=covariates, words=words, static=static)


def remembered(panel: Panel, steps: int, device: torch.device) -> Panel:
    """Return what a fitted model keeps of its data: of a shared panel, the last `steps` per series, on the first rank.

    Other ranks keep no values, and neither does the first if all do not fit into its memory.
    """
    if not isinstance(panel, Shared):
        return panel
    with join(device) as ranks:
        own = unpack_panel(*pack_panel(panel.own(), steps))
        needed = _BYTES_PER_CELL * sum(ranks.gather(own.values.size * (1 + len(own.covariates))))
        fits = bool(ranks.gather(needed <= available())[0])
        found = ranks.gather_on_first(own) if fits else None
    if found is not None:
        return Panel.joined(found)
    if not fits and ranks.leads:
        log.warning(
            "The model does not keep the last %d steps per series, which need %.1f GiB: `predict` must be given them.",
            steps,
            needed / 2**30,
        )
    nothing = np.full(len(panel), np.nan, np.float32)
    return Panel(
        values=nothing,
        indptr=np.arange(len(panel) + 1),
        lengths=np.ones(len(panel), np.int64),
        ids=panel.ids,
        starts=panel.ends(),
        freq=panel.freq,
        covariates=dict.fromkeys(panel.covariates, nothing),
        static=panel.static,
        origin=panel.origin,
        elapsed=panel.lengths - 1,
        past=panel.past,
        words=panel.words,
    )
