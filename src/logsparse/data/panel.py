"""Many series -> one flat array, cut by time without copying; what would not fit into memory is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import Freq, Ints
from logsparse.errors import DataError

# S series, N stored steps of all series together

Floats = NDArray[np.float32]
SeriesId = str | int


@dataclass(frozen=True)
class Origin:
    """What the frame looked like, so that the same kind of frame goes back and messages speak of what came."""

    library: Literal["pandas", "polars", "pyarrow"] = "polars"
    layout: Literal["long", "wide"] = "long"
    time_type: str = "datetime"
    """`integer`, `date` or `datetime`."""
    zone: str | None = None


@dataclass(frozen=True)
class Static:
    """One category a series: `codes` (S,) index into `categories`."""

    codes: Ints
    categories: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Panel:
    """`values[indptr[i] : indptr[i] + lengths[i]]` is series i on its grid; NaN where nothing was observed.

    What is stored beyond a series' length lies after the cutoff: covariates known in the future, and values that a
    backtest scores against. Only those two may look there.
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
    """What a trained model calls each series, -1 for one it does not know; none: as they stand here."""
    elapsed: Ints | None = None
    """Steps of each series' life before its start here; none: it begins here."""
    units: NDArray[np.float64] | None = None
    """The scale of each series' histories of zeros, above 0, from training; none: 1."""

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        total = int(self.lengths.sum())
        missing = sum(int(np.isnan(self[i]).sum()) for i in range(len(self)))
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
        """The visible values of one series, as a view."""
        begin = self.indptr[series]
        return self.values[begin : begin + self.lengths[series]]

    def _extras(self) -> list[tuple[str, list[str]]]:
        return [("covariates", list(self.covariates)), ("static", list(self.static))]

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored."""
        floats = (self.values, *self.covariates.values())
        ints = (self.indptr, self.lengths, self.starts, *(static.codes for static in self.static.values()))
        return sum(array.nbytes for array in floats) + sum(array.nbytes for array in ints)

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Mask over the stored steps; derived on demand, since NaN already says it."""
        return ~np.isnan(self.values)

    @property
    def stored(self) -> Ints:
        """Steps stored for each series, those after the cutoff included."""
        return np.diff(self.indptr)

    def ends(self) -> Ints:
        """Time of the last visible step of each series: its cutoff."""
        return self.freq.add(self.starts, self.lengths - 1)

    def cut(self, lengths: Ints) -> Panel:
        """The same panel, seen only up to these lengths; nothing is copied."""
        seen = np.minimum(lengths, self.lengths)
        blind = seen < 1
        for series in np.flatnonzero(~blind & np.isnan(self.values[self.indptr[:-1]])).tolist():
            blind[series] = np.isnan(self[series][: seen[series]]).all()
        if blind.any():
            self._refuse_blind(int(np.argmax(blind)), lengths)
        return replace(self, lengths=seen)

    def _refuse_blind(self, series: int, lengths: Ints) -> None:
        steps = np.array([np.argmax(~np.isnan(self[series])), lengths[series] - 1])
        first, cutoff = self.freq.add(np.full(2, self.starts[series]), steps).tolist()
        raise DataError(
            "Every series must have at least one value up to the cutoff.",
            got=f"series {self.ids[series]!r}, whose first value stands at {self.freq.show(first)}, and the cutoff "
            f"{self.freq.show(cutoff)}",
            hint="choose a later cutoff, fewer windows, or leave that series out.",
        )

    def to_last_value(self) -> Panel:
        """The same panel, seen only up to the last value of each series: empty steps after it teach nothing."""
        values = [np.flatnonzero(~np.isnan(self[series])) for series in range(len(self))]
        ends = [seen[-1] + 1 if len(seen) else length for seen, length in zip(values, self.lengths, strict=True)]
        return replace(self, lengths=np.array(ends, np.int64))

    def until(self, time: int) -> Panel:
        """The same panel, seen only up to and including this time on its clock."""
        return self.cut(self.freq.steps(self.starts, np.full_like(self.starts, time)) + 1)
