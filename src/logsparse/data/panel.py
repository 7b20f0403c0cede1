"""Many series -> one flat array, cut by time without copying; what would not fit into memory is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import Freq, Ints
from logsparse.errors import DataError, LogsparseError

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


# Measured peaks while a table is read (docs/data.md): ids, times, order and values of a row; a column beside them.
A_LONG_ROW, A_COLUMN_BESIDE = 120, 16
# A cell of the panel, and one of a wide table's columns that are read at once.
A_CELL, A_CELL_READ = 4, 16
# Of the size of a csv file: its text and the table made of it.
CSV_TIMES = 3


def check_memory(needed: float, of: str) -> None:
    """Refuse what would not fit into the memory that is free now."""
    free = available()
    if needed > free:
        raise DataError(
            "A table must fit into memory.",
            got=f"{of}, which take about {needed / 2**30:.1f} GiB where {free / 2**30:.1f} GiB are free",
            hint="read fewer series, a shorter span or fewer columns at a time, or use a machine with more memory.",
        )


def available() -> int:
    """Bytes that this process may still take: what the machine, the container and the shell's limit leave."""
    return min(_of_machine(), _of_container(), _of_limit())


def _of_machine() -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container() -> int:
    """By the limits of control groups as they are seen from within, of either version; files count as free."""
    left = [2**63]
    for folder, most, taken in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (Path(folder) / "memory.stat").read_text().splitlines())
            cached = int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
            left.append(int((Path(folder) / most).read_text()) - int((Path(folder) / taken).read_text()) + cached)
    return max(min(left), 0)


def _of_limit() -> int:
    """By `ulimit -v`, where there is one."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            return max(most - taken, 0)
    return 2**63


# Readers raise anything; polars also panics, over time zones or dates that it does not know, by a BaseException.
TROUBLE = (Exception, pl.exceptions.PanicException)


@contextmanager
def reading(*, path: Path | None = None, column: str | None = None) -> Iterator[None]:
    """Turn whatever a reader raises into a DataError; our own errors, MemoryError and Ctrl-C pass."""
    try:
        yield
    except (LogsparseError, MemoryError):
        raise
    except TROUBLE as error:
        if path is not None:
            raise DataError.unreadable(path, _reported(error)) from error
        raise DataError(
            "A table must be readable to its end." if column is None else f"The column {column!r} must be readable.",
            got=_reported(error),
            hint="collect or open it with polars alone to see what is wrong."
            if column is None
            else "write it as numbers, text or times first.",
        ) from error


def _reported(error: BaseException) -> str:
    polars = isinstance(error, (pl.exceptions.PolarsError, pl.exceptions.PanicException))
    said = getattr(error, "strerror", None) or str(error)
    text = next((line for line in said.splitlines() if line.strip()), type(error).__name__)
    return f"what {'polars' if polars else 'the reader'} reports as: {text.rstrip('.')}"


def check_path(path: Path) -> None:
    """Refuse, before anything is opened, what is no regular file or folder, and names that polars cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError.unreadable(path, "a name that is not UTF-8", "rename it.") from error
    try:
        mode = path.stat().st_mode  # of what a link leads to
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise DataError.unreadable(path, "no such file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        # A pipe blocks until someone writes, and some devices never end.
        raise DataError.unreadable(path, "a pipe, socket or device", "write its content to a file first.")
