"""Any frame -> polars table, and back to the kind that came. Columns that nobody asks for may hold anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl

from logsparse.data.columns import names_once
from logsparse.data.files import collect, collect_whole, scan, schema_of
from logsparse.data.objects import from_objects, texts
from logsparse.data.reading import TROUBLE, reading
from logsparse.data.times import zoned
from logsparse.errors import DataError
from logsparse.forks import refuse_forked

Library = Literal["pandas", "polars", "pyarrow"]
# Times are read in these years only (data/times); beyond them these units of pandas do not fit into microseconds.
_COARSE = ("datetime64[s]", "datetime64[ms]")
_FIRST, _BEYOND = np.datetime64("0001-01-01", "s"), np.datetime64("10000-01-01", "s")


def take(frame: Any, *, ids: str | None = None) -> tuple[pl.DataFrame, Library]:
    """A pandas, polars or pyarrow frame, or a path, as a polars table; and whose kind it was."""
    lazy, library = take_lazily(frame, ids=ids)
    return collect_whole(lazy), library


def take_lazily(frame: Any, *, ids: str | None = None, needed: Sequence[str] = ()) -> tuple[pl.LazyFrame, Library]:
    """The same, with the columns of a parquet file left on disk until they are asked for.

    The columns `needed`, and the `ids`, must be readable; any other may hold anything.
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
    names = names_once(name for name, _ in named)
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
    """The columns of a frame of any library, by name; what reads one of them (are they ids?); and the library."""
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
            hint="make a frame of it first, for example with polars.DataFrame(...).",
        ) from error
    return [(column.name, column) for column in table], _from_polars, "polars"


def give(table: pl.DataFrame, library: Library) -> Any:
    """The table as a frame of that library."""
    if library == "polars":
        return table
    if library == "pyarrow":
        return table.to_arrow()
    import pandas as pd

    return pd.DataFrame({name: _to_pandas(table[name]) for name in table.columns})


def _pandas_columns(frame: Any) -> list[tuple[object, Any]]:
    """An index that has a name or holds dates is a column in its owner's mind, unless a column has its name."""
    import pandas as pd

    columns = [(frame.columns[i], frame.iloc[:, i]) for i in range(frame.shape[1])]
    index, taken = frame.index, {str(name) for name in frame.columns}
    if not isinstance(index, pd.DatetimeIndex) and all(name is None for name in index.names):
        return columns
    levels = []
    for level, name in enumerate(index.names):
        spare = "index" if index.nlevels == 1 and "index" not in taken else f"level_{level}"
        called = spare if name is None else name
        if str(called) not in taken:
            values = index.get_level_values(level)
            # With its type named: pandas would try to make its own text of objects, and fail on a lone surrogate.
            levels.append((called, pd.Series(values.array, dtype=values.dtype)))
    return levels + columns


def _from_polars(name: str, column: pl.Series, ids: bool) -> pl.Series:
    return from_objects(name, column.to_list(), ids=ids) if column.dtype == pl.Object else column


def _from_pandas(name: str, column: Any, ids: bool) -> pl.Series:
    """One pandas column, without the detour over pyarrow that not every pandas user has installed."""
    series = nw.from_native(column, series_only=True)
    if isinstance(series.dtype, nw.Datetime):
        zone = series.dtype.time_zone
        moment = series if zone is None else series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        times = moment.to_numpy()
        if times.dtype in _COARSE and ((times < _FIRST) | (times >= _BEYOND)).any():
            return texts(name, [None if np.isnat(time) else time for time in times])
        # Nanoseconds are kept, so that what would be lost can be refused.
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
        if kind.startswith(("decimal256", "extension")):  # polars panics, or sees the bytes that a UUID is stored in
            return from_objects(name, column.to_pylist(), ids=ids)
        if not kind.startswith("timestamp"):
            return pl.Series(name, column)
        unit = {"s": "ms"}.get(column.type.unit, column.type.unit)
        utc = pl.Series(name, column.cast(f"timestamp[{unit}]"))
        return utc if column.type.tz is None else zoned(utc, str(column.type.tz))
    except TROUBLE:
        return from_objects(name, column.to_pylist(), ids=ids)


def _to_pandas(column: pl.Series) -> Any:
    import pandas as pd

    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
        wall = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
        return pd.Series(wall).dt.tz_localize("UTC").dt.tz_convert(column.dtype.time_zone)
    return column.to_list() if column.dtype in (pl.String, pl.Date) else column.to_numpy()


def as_text(column: pl.Series) -> pl.Series:
    """A column of any kind as people would write it."""
    try:
        return column.cast(pl.String)
    except TROUBLE:
        with reading(column=column.name):
            return texts(column.name, column.to_list())
