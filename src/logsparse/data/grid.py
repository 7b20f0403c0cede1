"""Any frame -> polars table -> rows on one regular grid; a polars table -> a frame of any library.

Called by data/frame in this order: `scan_native`, `number_series`, `place_on_grid`, `check_size`, then `read_numbers`
and `read_category` per column. Every error names the first offending value with its series and time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, SECOND, Freq, Ints, Step, clock_went_back, every_other_business_day, infer
from logsparse.data.columns import first_wrong, from_objects, texts, to_pandas, unique_names
from logsparse.data.files import BYTES_PER_CELL, collect, collect_whole, reading, scan, schema_of
from logsparse.data.panel import Floats, SeriesId, Static
from logsparse.data.times import READER_ERRORS, instants, show_time, to_days, zoned
from logsparse.errors import DataError, StepUnknownError
from logsparse.process import check_memory, refuse_forked

Library = Literal["pandas", "polars", "pyarrow"]
# Type of the times, and their zone.
TimeKind = tuple[Literal["integer", "date", "datetime"], str | None]
# A grid with more than this many cells per row comes from a wrong step or a stray time; small grids always pass.
_MOST_CELLS_PER_ROW, _SMALL_GRID = 100, 100_000
# A text covariate becomes one input per word, but a price such as `1,47 €` is no word.
_MOST_WORDS, _PRICE = 100, r"^[\s€$£¥]*-?\d+([.,']\d{3})*([.,]\d+)?[\s€$£¥]*$"
# Times outside these years are refused (data/times); in these units of pandas they overflow microseconds.
_COARSE = ("datetime64[s]", "datetime64[ms]")
_FIRST, _BEYOND = np.datetime64("0001-01-01", "s"), np.datetime64("10000-01-01", "s")


def from_native(frame: Any, *, ids: str | None = None) -> tuple[pl.DataFrame, Library]:
    """Convert a pandas, polars or pyarrow frame, or read a path, into a polars table; also return the library."""
    lazy, library = scan_native(frame, ids=ids)
    return collect_whole(lazy), library


def scan_native(frame: Any, *, ids: str | None = None, needed: Sequence[str] = ()) -> tuple[pl.LazyFrame, Library]:
    """Open a frame or path as a lazy polars table: columns of a parquet file are read on demand.

    The columns `needed` and `ids` must be readable; others may hold anything.
    """
    refuse_forked()
    if isinstance(frame, (str, os.PathLike)):
        if not os.fspath(frame):
            raise DataError.unreadable("''", "an empty path")
        return scan(Path(frame), ids=ids, needed=needed), "polars"
    if isinstance(frame, pl.LazyFrame) and pl.Object not in schema_of(frame).dtypes():
        return frame, "polars"
    with reading():
        named, make, library = _columns(collect(frame) if isinstance(frame, pl.LazyFrame) else frame)
    names = unique_names(name for name, _ in named)
    table = []
    for name, (_, column) in zip(names, named, strict=True):
        try:
            with reading(column=name):
                table.append(make(name, column, name == ids))
        except DataError:
            if name in (*needed, ids):
                raise
            table.append(pl.Series(name, ["unreadable"]).new_from_index(0, len(column)))
    return pl.DataFrame(table).lazy(), library


def _columns(frame: Any) -> tuple[list[tuple[object, Any]], Callable[[str, Any, bool], pl.Series], Library]:
    """Return the named columns of a frame, the function (name, column, ids) that converts one, and the library."""
    if nw.dependencies.is_pandas_series(frame):  # one series, with its times in the index
        frame = frame.to_frame()
    if nw.dependencies.is_pandas_dataframe(frame):
        return _pandas_columns(frame), _from_pandas, "pandas"
    if nw.dependencies.is_pyarrow_table(frame):
        return list(zip(frame.column_names, frame.columns, strict=True)), _from_arrow, "pyarrow"
    try:
        table = nw.from_native(frame, eager_only=True).to_polars()
    except TypeError as error:
        raise DataError(
            "Data must be a pandas, polars or pyarrow frame, or the path of a file.",
            got=f"{type(frame).__module__}.{type(frame).__name__}",
            hint="convert it first, for example with polars.DataFrame(...).",
        ) from error
    return [(column.name, column) for column in table], _from_polars, "polars"


def to_native(table: pl.DataFrame, library: Library) -> Any:
    """Convert the table to a frame of that library."""
    # A saved model remembers the library of its data, which may not be installed here.
    if library == "polars" or find_spec(library) is None:
        return table
    if library == "pyarrow":
        return table.to_arrow()
    import pandas as pd

    return pd.DataFrame({name: to_pandas(table[name]) for name in table.columns})


def _pandas_columns(frame: Any) -> list[tuple[object, Any]]:
    """Return columns and index levels: an index with a name or of dates is a column, unless its name is taken."""
    import pandas as pd

    columns = [(frame.columns[i], frame.iloc[:, i]) for i in range(frame.shape[1])]
    index, taken = frame.index, {str(name) for name in frame.columns}
    if not isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)) and all(name is None for name in index.names):
        return columns
    levels = []
    for level, name in enumerate(index.names):
        default = "index" if index.nlevels == 1 and "index" not in taken else f"level_{level}"
        label = default if name is None else name
        if str(label) not in taken:
            values = index.get_level_values(level)
            # With an explicit type: pandas would convert objects to its own text type, and fail on a lone surrogate.
            levels.append((label, pd.Series(values.array, dtype=values.dtype)))
    return levels + columns


def _from_polars(name: str, column: pl.Series, ids: bool) -> pl.Series:
    return from_objects(name, column.to_list(), ids=ids) if column.dtype == pl.Object else column


def _from_pandas(name: str, column: Any, ids: bool) -> pl.Series:
    """Convert one pandas column without pyarrow, which not every pandas user has installed."""
    periods = str(column.dtype).startswith("period[")  # a period begins at its time
    series = nw.from_native(column.dt.to_timestamp() if periods else column, series_only=True)
    if isinstance(series.dtype, nw.Datetime):
        zone = series.dtype.time_zone
        utc = series if zone is None else series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        times = utc.to_numpy()
        if times.dtype in _COARSE and ((times < _FIRST) | (times >= _BEYOND)).any():
            return texts(name, [None if np.isnat(time) else time for time in times])
        # Nanoseconds are kept here, so that times with nanoseconds can be refused later.
        stamps = pl.Series(name, times if times.dtype == "datetime64[ns]" else times.astype("datetime64[us]"))
        return stamps if zone is None else zoned(stamps, str(zone))
    if series.dtype.is_decimal():
        return from_objects(name, series.to_list(), ids=ids)
    if series.dtype.is_numeric() and not series.is_null().any():
        return pl.Series(name, series.to_numpy())
    if series.dtype.is_float():
        return pl.Series(name, series.cast(nw.Float64).to_numpy(), nan_to_null=True)
    return from_objects(name, series.to_list(), ids=ids)


def _from_arrow(name: str, column: Any, ids: bool) -> pl.Series:
    kind = str(column.type)
    try:
        if kind.startswith(("decimal256", "extension")):  # polars panics, or reads a UUID as bytes
            return from_objects(name, column.to_pylist(), ids=ids)
        if not kind.startswith("timestamp"):
            return pl.Series(name, column)
        unit = {"s": "ms"}.get(column.type.unit, column.type.unit)
        utc = pl.Series(name, column.cast(f"timestamp[{unit}]"))
        return utc if column.type.tz is None else zoned(utc, str(column.type.tz))
    except READER_ERRORS:
        return from_objects(name, column.to_pylist(), ids=ids)


def as_text(column: pl.Series) -> pl.Series:
    """Convert a column of any type to text."""
    try:
        return column.cast(pl.String)
    except READER_ERRORS:
        with reading(column=column.name):
            return texts(column.name, column.to_list())


@dataclass(frozen=True)
class Rows:
    """Rows sorted by series and time: `order` are their positions in the table."""

    ids: tuple[SeriesId, ...]
    """Empty for a wide table, whose rows belong to all series."""
    order: Ints
    codes: Ints
    times: Ints
    zone: str | None = None
    """Zone that times have in messages, with their offset; None if they are shown as they are."""

    def first(self, where: NDArray[np.bool_], freq: Freq, how: str = "in") -> str:
        """Describe the first row that `where` marks, for a message."""
        row = int(np.argmax(where))
        series = f"{how} series {self.ids[self.codes[row]]!r} " if self.ids else ""
        return f"{series}at {show_time(freq, int(self.times[row]), self.zone)}"

    @property
    def begins(self) -> Ints:
        """Position of the first row of each series."""
        return np.flatnonzero(np.diff(self.codes, prepend=-1))

    def off_grid(self, freq: Freq) -> NDArray[np.bool_]:
        """Mark times off the grid that begins at the first time of their series."""
        starts = self.times[self.begins][self.codes]
        return np.asarray(freq.add(starts, freq.steps(starts, self.times)) != self.times)


def number_series(table: pl.DataFrame, id_col: str) -> tuple[tuple[SeriesId, ...], Ints]:
    """Return the ids in order of appearance, and the number of each row's series."""
    column = id_column(table, id_col).alias("id")
    unique = column.unique(maintain_order=True)
    numbered = pl.DataFrame({"id": unique, "code": np.arange(len(unique))})
    codes = column.to_frame().join(numbered, on="id", how="left", maintain_order="left")["code"]
    return tuple(unique.to_list()), codes.to_numpy()


def id_column(table: pl.DataFrame, id_col: str) -> pl.Series:
    """Return the ids of all rows, as whole numbers or text; raise if one is missing."""
    column = table[id_col]
    if column.null_count():
        raise DataError(f"Every row must have an id in {id_col!r}.", got="missing ids", hint="fill or drop those rows.")
    if column.dtype.is_nested():
        raise DataError(
            f"The ids in {id_col!r} must be text or numbers.",
            got=f"{column.dtype} such as {column.head(1).to_list()[0]!r}",
            hint="convert them to text first, or name another column with id_col=.",
        )
    return column if column.dtype.is_integer() else as_text(column)


def place_on_grid(
    ids: tuple[SeriesId, ...], codes: Ints, stamps: pl.Series, asked: Step | None, found: Freq | None = None
) -> tuple[Rows, Freq, TimeKind]:
    """Sort the rows, find their step, and check that every time lies on the grid; also return the type of times.

    `found` is a step that was found in other data, of which these are a part.
    """
    if stamps.null_count():
        row = int(stamps.is_null().arg_max() or 0)
        raise DataError(
            f"Every row must have a time in {stamps.name!r}.",
            got=f"none in series {ids[codes[row]]!r}" if ids else f"none in row {row + 1}",
            hint="drop those rows.",
        )
    column, zone = instants(stamps)
    dates = column.dtype.is_temporal()
    times = (column.cast(pl.Datetime("us")) if dates else column).to_numpy().astype(np.int64)
    rows = _sorted_rows(ids, codes, times, zone)
    same = (np.diff(rows.times) == 0) & (np.diff(rows.codes) == 0)
    if same.any():
        at = rows.first(np.append(False, same), Freq("tick" if dates else "index", 1), "for")
        raise DataError(
            f"{'Each series' if ids else 'A wide table'} must have one row per time; {stamps.name!r} repeats.",
            got=f"two rows {at}",
            hint="local times repeat where the clock went back: name their zone with tz=, such as tz='Europe/Berlin'."
            if column.dtype == pl.Datetime and zone is None and clock_went_back(rows.times[1:][same])
            else "drop or aggregate the duplicates, or name the column that identifies the series with id_col=.",
        )
    freq = Freq.parse(asked) if asked is not None else found or infer(rows.times, rows.codes, dates=dates)
    if zone and (freq is None or freq.kind != "index"):
        rows, freq = _choose_clock(rows, freq, zone, given=asked is not None or found is not None)
    freq = freq or (Freq("index", 1) if not dates else None)
    if freq is None or (freq.kind == "index") == dates:
        raise (StepUnknownError if freq is None else DataError)(
            "The step must be given, or follow from the times.",
            got="no series with two times" if freq is None else f"freq={asked!r} for {column.dtype} times",
            hint="pass it with freq=, such as freq='h' for dates or freq=1 for integers.",
        )
    _check_step(rows, freq, asked, zone)
    kind: Literal["integer", "date", "datetime"] = (
        "integer" if not dates else "date" if column.dtype == pl.Date else "datetime"
    )
    return rows, freq, (kind, zone)


def _sorted_rows(ids: tuple[SeriesId, ...], codes: Ints, times: Ints, zone: str | None) -> Rows:
    rising = (np.diff(codes) > 0) | ((np.diff(codes) == 0) & (np.diff(times) > 0))
    if rising.all():
        return Rows(ids, np.arange(times.size), codes, times, zone)
    order = pl.DataFrame({"c": codes, "t": times}).select(pl.arg_sort_by("c", "t")).to_series().to_numpy()
    return Rows(ids, order, codes[order], times[order], zone)


def _choose_clock(rows: Rows, freq: Freq | None, zone: str, *, given: bool) -> tuple[Rows, Freq | None]:
    """Return rows and step in local time for steps of whole days, since days may have 23 or 25 hours; else in UTC."""
    in_utc = freq is not None and not freq.counts_days and not _nearly_days(freq) and not rows.off_grid(freq).any()
    if in_utc:
        return rows, freq
    wall = replace(rows, times=to_days(rows.times, zone, rows.codes), zone=None)
    rising = bool((np.diff(wall.times)[np.diff(rows.codes) == 0] > 0).all())
    local = freq if given or not rising else infer(wall.times, wall.codes, dates=True)
    if local is None or local.counts_days or (freq is not None and freq.counts_days):
        if (
            local is not None
            and freq is not None
            and (off_grid := wall.off_grid(local)).any()
            and not rows.off_grid(freq).any()
        ):
            raise DataError(
                "Steps of whole days must be regular in local time.",
                got=f"steps of {freq} that are regular in UTC but not in {zone}: irregular "
                f"{wall.first(off_grid, freq)}",
                hint="convert the times to UTC.",
            )
        return wall, local
    if freq is not None and rising and (off_grid := rows.off_grid(freq)).any() and not wall.off_grid(local).any():
        raise DataError(
            "Steps shorter than a day must be regular in UTC.",
            got=f"steps of {local} that are regular only in {zone} time: irregular {rows.first(off_grid, freq)}",
            hint="convert the times to regular steps in UTC, or drop the zone.",
        )
    return rows, freq


def _nearly_days(freq: Freq) -> bool:
    """Return True if a step may be whole days with a daylight-saving change in them."""
    return freq.kind == "tick" and freq.count > DAY // 2 and abs((freq.count + DAY // 2) % DAY - DAY // 2) <= DAY // 12


def _check_step(rows: Rows, freq: Freq, asked: Step | None, zone: str | None) -> None:
    elsewhere = "if days begin at midnight elsewhere, name that zone with tz=, such as tz='Europe/Berlin'; else "
    other = elsewhere if zone and freq.counts_days else ""
    if freq.kind == "tick" and freq.count % SECOND:
        raise DataError(
            "Steps must be whole seconds.",
            got=f"steps of {freq}",
            hint="round the times, or use integer times.",
        )
    if asked is None and freq == Freq("tick", 2 * DAY) and every_other_business_day(rows.times, rows.codes):
        raise DataError(
            "Steps of several business days are not supported.",
            got="every second business day",
            hint="pass freq='B' (the days in between become missing values).",
        )
    if asked is not None and (off_grid := rows.off_grid(freq)).any():
        raise DataError(
            "Every time must lie on the grid of the given step.",
            got=f"freq={str(freq)!r} and a time off that grid {rows.first(off_grid, freq)}",
            hint=f"{other}pass the right step, or resample the data to this one.",
        )
    if (off_grid := rows.off_grid(freq)).any() or (asked is None and (off_grid := _own_step(freq, rows)).any()):
        raise DataError(
            "All series must share one step." if rows.ids else "All rows must share one step.",
            got=f"mostly steps of {freq}, but not {rows.first(off_grid, freq)}",
            hint=f"{other}pass the step with freq= (times in between become missing values), or resample "
            + ("that series." if rows.ids else "the table."),
        )


def _own_step(freq: Freq, rows: Rows) -> NDArray[np.bool_]:
    """Mark series with a coarser step of their own: at least three gaps, all equal and larger than the step."""
    begins = rows.begins
    steps = freq.steps(rows.times[begins][rows.codes], rows.times)
    gaps = np.diff(steps, append=steps[-1])
    gaps[np.append(begins[1:], rows.times.size) - 1] = 0
    largest = np.maximum.reduceat(gaps, begins)
    counts = np.diff(np.append(begins, rows.times.size)) - 1
    total = np.add.reduceat(gaps, begins)
    return np.asarray((largest > 1) & (counts >= 3) & (total == largest * counts))[rows.codes]


def check_size(rows: Rows, freq: Freq, lengths: Ints, columns: int) -> None:
    """Raise if the grid is far larger than its rows or does not fit into memory; `lengths` in steps per series."""
    total = float(lengths.sum(dtype=np.float64))
    if total * columns > _MOST_CELLS_PER_ROW * rows.times.size * columns + _SMALL_GRID:
        longest = int(np.argmax(lengths))
        own = rows.times[rows.codes == longest]
        span = f"{freq.show(int(own[0]))} to {freq.show(int(own[-1]))}"
        raise DataError(
            "The grid must not be much larger than the number of rows.",
            got=f"{rows.times.size} rows on a grid of {total:.0f} steps of {freq}"
            + (f"; series {rows.ids[longest]!r} alone spans {span}" if rows.ids else f", from {span}"),
            hint="pass the right step with freq=, or correct times that are far off.",
        )
    check_memory(BYTES_PER_CELL * total * columns, f"{total:.0f} steps in {columns} columns")


def read_numbers(column: pl.Series, rows: Rows, freq: Freq, *, in_order: bool = False) -> Floats:
    """Return finite float32 in the order of `rows`, NaN if missing; `in_order`: the table already has that order."""
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean or column.null_count() == len(column)):
        text = as_text(column)
        row = first_wrong(text)
        raise DataError(
            f"The column {column.name!r} must hold numbers.",
            got=f"{text[row]!r} {rows.first(rows.order == row, freq)}",
            hint="convert the column to numbers; leave missing values empty.",
        )
    numbers = column.cast(pl.Float32, strict=False).to_numpy()
    numbers = numbers if in_order else numbers[rows.order]
    if (infinite := np.isinf(numbers)).any():
        row = int(np.argmax(infinite))
        value = float(column[row if in_order else int(rows.order[row])])
        raise DataError(
            f"The column {column.name!r} must hold finite numbers.",
            got=("an infinite value" if np.isinf(value) else f"{value:g}, too large for float32,")
            + f" {rows.first(infinite, freq)}",
            hint="replace it by a number, or leave it empty: missing values are allowed."
            if np.isinf(value)
            else "divide the column by a power of ten: values up to 3.4e38 can be stored.",
        )
    return np.asarray(numbers, np.float32)


def read_covariate(
    column: pl.Series, rows: Rows, freq: Freq, *, words: Sequence[str] = (), in_order: bool = False
) -> tuple[Floats, tuple[str, ...]]:
    """Return a column of numbers and (); or, for text, indices into the words, with new words after those given."""
    if not (words or _is_text(column)):
        return read_numbers(column, rows, freq, in_order=in_order), ()
    text = as_text(column)
    text = text.set(text.str.strip_chars() == "", None)
    every = tuple(dict.fromkeys((*words, *text.drop_nulls().unique().sort())))
    check_words(column.name, every)
    codes = text.replace_strict(every, range(len(every)), default=None, return_dtype=pl.Float32).to_numpy()
    return np.asarray(codes if in_order else codes[rows.order], np.float32), every


def check_words(name: str, words: Sequence[str]) -> None:
    """Raise if a text covariate has so many words that they cannot be categories."""
    if len(words) > _MOST_WORDS:
        raise DataError(
            f"A text covariate must have at most {_MOST_WORDS} different words.",
            got=f"{len(words)} in {name!r}",
            hint="group them, convert them to numbers, or leave the column out.",
        )


def _is_text(column: pl.Series) -> bool:
    """Return True for words; a column in which half of the texts are numbers or prices holds mistakes among numbers."""
    if not isinstance(column.dtype, (pl.String, pl.Categorical, pl.Enum)):
        return False
    seen = column.drop_nulls().unique().cast(pl.String)
    return 2 * (seen.cast(pl.Float64, strict=False).is_not_null() | seen.str.contains(_PRICE)).sum() < len(seen)


def read_category(column: pl.Series, rows: Rows) -> Static:
    """Return one category per series."""
    if column.dtype.is_nested():
        raise DataError(
            f"The static column {column.name!r} must hold text or numbers.",
            got=f"{column.dtype}",
            hint="convert it to text first.",
        )
    text = as_text(column).fill_null("")
    categories = text.unique().sort()
    codes = text.cast(pl.Enum(categories)).to_physical().to_numpy().astype(np.int64)[rows.order]
    begins = rows.begins
    changes = codes != codes[begins][rows.codes]
    if changes.any():
        raise DataError(
            f"The static column {column.name!r} must have one value per series.",
            got=f"several in series {rows.ids[rows.codes[int(np.argmax(changes))]]!r}",
            hint="name it in covariates= if it changes with time.",
        )
    return Static(codes[begins], tuple(categories.to_list()))
