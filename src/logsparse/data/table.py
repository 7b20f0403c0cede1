"""Any frame -> polars table, and back to the kind that came. Columns that nobody asks for may hold anything."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import polars as pl

from logsparse.data.columns import names_once
from logsparse.data.files import collect, scan
from logsparse.data.times import fixed_zone
from logsparse.errors import DataError
from logsparse.forks import refuse_forked

Library = Literal["pandas", "polars", "pyarrow"]


def take(frame: Any, *, ids: str | None = None) -> tuple[pl.DataFrame, Library]:
    """A pandas, polars or pyarrow frame, or a path, as a polars table; and whose kind it was."""
    lazy, library = take_lazily(frame, ids=ids)
    return collect(lazy), library


def take_lazily(frame: Any, *, ids: str | None = None, needed: Sequence[str] = ()) -> tuple[pl.LazyFrame, Library]:
    """The same, with the columns of a parquet file left on disk until they are asked for."""
    refuse_forked()
    if isinstance(frame, (str, os.PathLike)):
        if not os.fspath(frame):
            raise DataError.unreadable("''", "an empty path")
        return scan(Path(frame), ids=ids, needed=needed), "polars"
    if isinstance(frame, pl.LazyFrame):
        return frame, "polars"
    if nw.dependencies.is_pandas_dataframe(frame):
        named = _pandas_columns(frame)
        names = names_once(name for name, _ in named)
        table = pl.DataFrame([_from_pandas(name, column) for name, (_, column) in zip(names, named, strict=True)])
        return table.lazy(), "pandas"
    if nw.dependencies.is_pyarrow_table(frame):
        names = names_once(frame.column_names)
        table = pl.DataFrame([_from_arrow(name, column) for name, column in zip(names, frame.columns, strict=True)])
        return table.lazy(), "pyarrow"
    try:
        return nw.from_native(frame, eager_only=True).to_polars().lazy(), "polars"
    except TypeError as error:
        raise DataError(
            "Data must be a pandas, polars or pyarrow frame, or the path of a file.",
            got=f"{type(frame).__module__}.{type(frame).__name__}",
            hint="make a frame of it first, for example with polars.DataFrame(...).",
        ) from error


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
            levels.append((called, index.get_level_values(level).to_series(index=range(len(frame)))))
    return levels + columns


def _from_pandas(name: str, column: Any) -> pl.Series:
    """One pandas column, without the detour over pyarrow that not every pandas user has installed."""
    series = nw.from_native(column, series_only=True)
    if isinstance(series.dtype, nw.Datetime):
        zone = series.dtype.time_zone
        moment = series if zone is None else series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        times = moment.to_numpy()
        # Nanoseconds are kept, so that what would be lost can be refused.
        stamps = pl.Series(name, times if times.dtype == "datetime64[ns]" else times.astype("datetime64[us]"))
        return stamps if zone is None else _zoned(stamps, str(zone))
    if isinstance(series.dtype, nw.Decimal):
        series = series.cast(nw.Float64)
    if series.dtype.is_numeric() and not series.is_null().any():
        return pl.Series(name, series.to_numpy())
    if series.dtype.is_float():
        return pl.Series(name, series.cast(nw.Float64).to_numpy(), nan_to_null=True)
    return _from_objects(name, series.to_list())


def _from_objects(name: str, listed: list[Any]) -> pl.Series:
    listed = [None if _is_missing(value) else value for value in listed]
    zones = {str(value.tzinfo) for value in listed if isinstance(value, datetime)}
    if len(zones) > 1:
        return pl.Series(name, [str(value) for value in listed])  # polars would settle on one zone without a word
    try:
        column = pl.Series(name, listed, strict=False)
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        return pl.Series(name, [str(value) for value in listed])
    if column.dtype == pl.Object:
        return pl.Series(name, [None if value is None else str(value) for value in listed])
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
        return _zoned(column.dt.convert_time_zone("UTC").dt.replace_time_zone(None), zones.pop())
    return column


def _from_arrow(name: str, column: Any) -> pl.Series:
    zone = getattr(column.type, "tz", None)
    try:
        if zone is None:
            return pl.Series(name, column)
        unit = {"s": "ms"}.get(column.type.unit, column.type.unit)
        utc = pl.Series(name, column.cast(f"timestamp[{unit}]"))
        return _zoned(utc, str(zone))
    except (TypeError, ValueError, pl.exceptions.PolarsError):  # pyarrow's own errors are among these
        return pl.Series(name, [None if value is None else str(value) for value in column.to_pylist()])


def _zoned(utc: pl.Series, zone: str) -> pl.Series:
    """Naive UTC as times of a zone; where polars does not know its name, the instants stay in UTC."""
    there = utc.dt.replace_time_zone("UTC")
    try:
        return there.dt.convert_time_zone(fixed_zone(zone))
    except pl.exceptions.ComputeError:
        return there


def _is_missing(value: object) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


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
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return pl.Series(column.name, [None if value is None else str(value) for value in column.to_list()], pl.String)
