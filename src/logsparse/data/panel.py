"""Panel: many series in one flat array on a regular grid, cut by time without copying.

Frames and files become panels in data/frame; models and baselines read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import Freq, Ints
from logsparse.data.mapped import empty_like, gathered, pieces
from logsparse.errors import DataError

# S series, N stored steps of all series together

Floats = NDArray[np.float32]
SeriesId = str | int


@dataclass(frozen=True)
class Origin:
    """The kind of frame and of times that were read: results are returned in the same kind."""

    library: Literal["pandas", "polars", "pyarrow"] = "polars"
    layout: Literal["long", "wide"] = "long"
    time_type: str = "datetime"
    """`integer`, `date` or `datetime`."""
    zone: str | None = None
    """Zone whose clock counts days and hours."""
    written: str | None = None
    """How results write times: None in `zone`, `naive` as local times without a zone, or in another zone."""
    names: tuple[str, str, str] | None = None
    """Columns of ids, times and values in a long table, which results have again; None: the default names."""


@dataclass(frozen=True)
class Static:
    """One category per series: `codes` (S,) index into `categories`, -1 if unknown."""

    codes: Ints
    categories: tuple[str, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Panel:
    """Many series on a regular grid, stored in one flat array.

    Series `i` is `values[indptr[i] : indptr[i] + lengths[i]]`, or `panel[i]`. Make a panel with `to_panel`.

    Steps stored beyond the length of a series lie after its cutoff: covariates known in the future, and the values
    that a backtest scores against. Nothing else reads them.

    Values and covariates may be maps of files, such as `numpy.load(path, mmap_mode="r")`: they are read as needed.

    Parameters
    ----------
    values : array of float32, shape (N,)
        Values of all series, one series after the other; NaN where nothing was observed.
    indptr : array of int64, shape (S + 1,)
        Where each series begins in `values`.
    lengths : array of int64, shape (S,)
        Number of visible steps per series.
    ids : tuple of str or int
        One id per series.
    starts : array of int64, shape (S,)
        Time of the first step per series: microseconds since 1970, or the number itself for integer times.
    freq : Freq
        The step of the grid, common to all series.
    covariates : mapping of str to array of float32, shape (N,)
        Numbers beside the values, by name; for those in `words`, indices of words.
    static : mapping of str to Static
        One category per series, by name.
    origin : Origin
        The kind of frame and of times that were read.
    numbers : array of int64, shape (S,), optional
        Index of each series in the training data, -1 if unknown. Default: the order in this panel.
    elapsed : array of int64, shape (S,), optional
        Steps of each series before its first step in this panel. Default: 0.
    units : array of float64, shape (S,), optional
        Scale of a history that is all zeros, above 0, from training. Default: 1.
    past : tuple of str
        Names of the covariates that are known up to the cutoff only; the others are known in the future too.
    words : mapping of str to tuple of str
        Words of the covariates that are text.
    typical : array of float64, shape (S, 3), optional
        Mean size, mean and standard deviation of the training series most like each one, itself left out.

    Raises
    ------
    DataError
        By `cut` and `until`, if a series has no value up to the cutoff.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(4), "y": [1.0, 2.0, None, 4.0]})
    >>> panel = ls.to_panel(frame)
    >>> panel
    Panel(1 series, 4 values (25.0% missing), 1, 0 to 3)
    >>> panel[0]
    array([ 1.,  2., nan,  4.], dtype=float32)
    >>> panel.until(1)
    Panel(1 series, 2 values, 1, 0 to 1)

    """

    values: Floats
    indptr: Ints
    lengths: Ints
    ids: tuple[SeriesId, ...]
    starts: Ints
    freq: Freq
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    static: Mapping[str, Static] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    numbers: Ints | None = None
    elapsed: Ints | None = None
    units: NDArray[np.float64] | None = None
    past: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    typical: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        total = int(self.lengths.sum())
        missing = self._missing()
        parts = [
            f"{len(self):_} series" + (" from a wide table" if self.origin.layout == "wide" else ""),
            f"{total:_} values" + (f" ({100 * missing / total:.1f}% missing)" if missing else ""),
            str(self.freq),
            f"{self.freq.show(int(self.starts.min()))} to {self.freq.show(int(self.ends().max()))}"
            + (" UTC" if self.origin.zone and not self.freq.counts_days else ""),
            *(f"{kind} {', '.join(names)}" for kind, names in self._extras() if names),
        ]
        return f"Panel({', '.join(parts)})"

    def __getitem__(self, series: int) -> Floats:
        """Return the visible values of one series, as a view."""
        begin = self.indptr[series]
        return self.values[begin : begin + self.lengths[series]]

    def _missing(self) -> int:
        return sum(int(np.isnan(self[i]).sum()) for i in self.held)

    def _extras(self) -> list[tuple[str, list[str]]]:
        return [("covariates", list(self.ahead)), ("past covariates", list(self.past)), ("static", list(self.static))]

    @property
    def ahead(self) -> tuple[str, ...]:
        """Names of the covariates that are known in the future."""
        return tuple(name for name in self.covariates if name not in self.past)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        floats = (self.values, *self.covariates.values())
        ints = (self.indptr, self.lengths, self.starts, *(static.codes for static in self.static.values()))
        return sum(array.nbytes for array in floats) + sum(array.nbytes for array in ints)

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Mask of the observed values among the stored steps."""
        return ~np.isnan(self.values)

    @property
    def is_blank(self) -> bool:
        """True if no stored step has a value."""
        return all(np.isnan(self.values[piece]).all() for piece in pieces(len(self.values)))

    @property
    def stored(self) -> Ints:
        """Number of stored steps per series, including those after the cutoff."""
        return np.diff(self.indptr)

    @property
    def held(self) -> range:
        """Series whose values are here: all, unless several processes share them (cluster/share)."""
        return range(len(self))

    def everywhere(self, own: Any) -> list[Any]:
        """Return what each process made of the series that it holds, in their order; one process holds all of them."""
        return [own]

    def ends(self) -> Ints:
        """Return the time of the last visible step per series: its cutoff."""
        return self.freq.add(self.starts, self.lengths - 1)

    def cut(self, lengths: Ints) -> Panel:
        """Return the panel with at most these many visible steps per series; nothing is copied."""
        visible = np.minimum(lengths, self.lengths)
        empty = visible < 1
        for series in np.flatnonzero(~empty & np.isnan(self.values[self.indptr[:-1]])).tolist():
            empty[series] = np.isnan(self[series][: visible[series]]).all()
        if empty.any():
            self._refuse_empty(int(np.argmax(empty)), lengths)
        return replace(self, lengths=visible)

    def _refuse_empty(self, series: int, lengths: Ints) -> None:
        steps = np.array([np.argmax(~np.isnan(self[series])), lengths[series] - 1])
        first, cutoff = self.freq.add(np.full(2, self.starts[series]), steps).tolist()
        raise DataError(
            "Every series must have at least one value up to the cutoff.",
            got=f"series {self.ids[series]!r}, whose first value is at {self.freq.show(first)}, and a cutoff at "
            f"{self.freq.show(cutoff)}",
            hint="choose a later cutoff, fewer windows, or leave that series out.",
        )

    def reaching(self, steps: int) -> Panel:
        """Return the panel with at least `steps` steps stored after each series; covariates keep their last value."""
        stored, reach = self.stored, np.maximum(self.stored, self.lengths + steps)
        if (reach == stored).all():
            return self
        indptr = np.concatenate([[0], np.cumsum(reach)])

        def longer(flat: Floats, *, repeat: bool) -> Floats:
            new = empty_like(flat, int(indptr[-1]))
            for begin, end, old, count in zip(indptr, indptr[1:], self.indptr, stored, strict=False):
                new[begin : begin + count] = flat[old : old + count]
                new[begin + count : end] = flat[old + count - 1] if repeat else np.nan
            return new

        covariates = {name: longer(flat, repeat=True) for name, flat in self.covariates.items()}
        return replace(self, values=longer(self.values, repeat=False), indptr=indptr, covariates=covariates)

    @classmethod
    def joined(cls, panels: Sequence[Panel]) -> Panel:
        """Return the series of all panels as one panel, with the origin of the first; ids may be there twice.

        All have the same step, and the same covariates and static columns with the same words and categories. Values
        are copied.
        """
        first = panels[0]

        def flat(parts: Iterable[Any]) -> Any:
            chosen = list(parts)
            return None if chosen[0] is None else np.concatenate(chosen)

        return replace(
            first,
            values=flat(panel.values for panel in panels),
            indptr=np.concatenate([[0], np.cumsum(flat(panel.stored for panel in panels))]),
            lengths=flat(panel.lengths for panel in panels),
            ids=tuple(name for panel in panels for name in panel.ids),
            starts=flat(panel.starts for panel in panels),
            covariates={name: flat(panel.covariates[name] for panel in panels) for name in first.covariates},
            static={
                name: Static(flat(panel.static[name].codes for panel in panels), column.categories)
                for name, column in first.static.items()
            },
            numbers=flat(panel.numbers for panel in panels),
            elapsed=flat(panel.elapsed for panel in panels),
            units=flat(panel.units for panel in panels),
            typical=flat(panel.typical for panel in panels),
        )

    def keep(self, kept: NDArray[np.bool_]) -> Panel:
        """Return the panel with those series only for which `kept` is True, one per series; values are copied."""
        begins, counts = self.indptr[:-1][kept], self.stored[kept]

        def some(one_per_series: Ints | NDArray[np.float64] | None) -> Any:
            return None if one_per_series is None else one_per_series[kept]

        return replace(
            self,
            values=gathered(self.values, begins, counts),
            indptr=np.concatenate([[0], np.cumsum(counts)]),
            lengths=self.lengths[kept],
            ids=tuple(name for name, one in zip(self.ids, kept, strict=True) if one),
            starts=self.starts[kept],
            covariates={name: gathered(flat, begins, counts) for name, flat in self.covariates.items()},
            static={name: Static(column.codes[kept], column.categories) for name, column in self.static.items()},
            numbers=some(self.numbers),
            elapsed=some(self.elapsed),
            units=some(self.units),
            typical=some(self.typical),
        )

    def to_last_value(self) -> Panel:
        """Return the panel without the missing steps after the last value of each series."""
        ends = []
        for series in self.held:
            seen = np.flatnonzero(~np.isnan(self[series]))
            ends.append(int(seen[-1]) + 1 if len(seen) else int(self.lengths[series]))
        return replace(self, lengths=np.concatenate(self.everywhere(np.array(ends, np.int64))))

    def until(self, time: int) -> Panel:
        """Return the panel up to and including this time on its clock (see data/calendar)."""
        return self.cut(self.freq.steps(self.starts, np.full_like(self.starts, time)) + 1)


def in_common_categories(panels: Sequence[Panel]) -> list[Panel]:
    """Return panels with the static categories of all of them, sorted, as `Panel.joined` asks for."""
    names = panels[0].static
    every = {name: tuple(sorted({word for p in panels for word in p.static[name].categories})) for name in names}
    places = {name: {word: place for place, word in enumerate(words)} for name, words in every.items()}

    def recoded(panel: Panel, name: str) -> Static:
        code = np.array([places[name][word] for word in panel.static[name].categories], np.int64)
        return Static(code[panel.static[name].codes], every[name])

    return [replace(panel, static={name: recoded(panel, name) for name in names}) for panel in panels]
