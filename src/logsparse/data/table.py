"""Any frame -> polars table, and back to the kind that came; timestamps <-> microseconds on a clock."""

from __future__ import annotations

import math
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

import narwhals as nw
import numpy as np
import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.files import collect, scan
from logsparse.errors import DataError

Library = Literal["pandas", "polars", "pyarrow"]
UNTIL = "until"
_OFFSET = r"(?:\d{2}:\d{2}\S*?)(Z|[+-]\d{2}:?\d{2})$"


def take(frame: Any) -> tuple[pl.DataFrame, Library]:
    """A pandas, polars or pyarrow frame, or a path, as a polars table; and whose kind it was."""
    lazy, library = take_lazily(frame)
    return collect(lazy), library


def take_lazily(frame: Any) -> tuple[pl.LazyFrame, Library]:
    """The same, with the columns of a parquet file left on disk until they are asked for."""
    if isinstance(frame, (str, os.PathLike)):
        return scan(Path(frame)), "polars"
    if isinstance(frame, pl.LazyFrame):
        return frame, "polars"
    try:
        native = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        raise DataError(
            "Data must be a pandas, polars or pyarrow frame, or the path of a file.",
            got=f"{type(frame).__module__}.{type(frame).__name__}",
            hint="make a frame of it first, for example with polars.DataFrame(...).",
        ) from error
    if native.implementation.is_pandas():
        table = _index_as_column(frame)
        return pl.DataFrame([_from_pandas(table[name]) for name in table.columns]).lazy(), "pandas"
    return native.to_polars().lazy(), "pyarrow" if native.implementation.is_pyarrow() else "polars"


def give(table: pl.DataFrame, library: Library) -> Any:
    """The table as a frame of that library."""
    if library == "polars":
        return table
    if library == "pyarrow":
        return table.to_arrow()
    import pandas as pd

    return pd.DataFrame({name: _to_pandas(table[name]) for name in table.columns})


def _index_as_column(frame: Any) -> Any:
    """A pandas index that has a name or holds dates is a column in its owner's mind."""
    import pandas as pd

    meant = isinstance(frame.index, pd.DatetimeIndex) or any(name is not None for name in frame.index.names)
    return frame.reset_index() if meant else frame


def _from_pandas(column: Any) -> pl.Series:
    """One pandas column, without the detour over pyarrow that not every pandas user has installed."""
    name, series = str(column.name), nw.from_native(column, series_only=True)
    if isinstance(series.dtype, nw.Datetime):
        zone = series.dtype.time_zone
        moment = series if zone is None else series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        stamps = pl.Series(name, moment.to_numpy().astype("datetime64[us]"))
        return stamps if zone is None else stamps.dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone))
    if series.dtype.is_numeric() and not series.is_null().any():
        return pl.Series(name, series.to_numpy())
    if series.dtype.is_float():
        return pl.Series(name, series.cast(nw.Float64).to_numpy(), nan_to_null=True)
    listed = series.to_list()
    if len({str(value.tzinfo) for value in listed if isinstance(value, datetime) and not _is_missing(value)}) > 1:
        listed = [str(value) for value in listed]  # polars would settle on one zone without a word
    try:
        return pl.Series(name, [None if _is_missing(value) else value for value in listed], strict=False)
    except (
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
    ):  # a column of odd things, which nobody may have asked for
        return pl.Series(name, [str(value) for value in listed])


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


def moments(column: pl.Series) -> tuple[pl.Series, str | None]:
    """A column of times as integers, dates or naive datetimes (UTC where there is a zone), and that zone."""
    if column.dtype == pl.String:
        column = _from_text(column)
    if isinstance(column.dtype, pl.Datetime):
        zone = column.dtype.time_zone
        naive = column if zone is None else column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return naive.dt.cast_time_unit("us"), zone
    if column.dtype.is_integer() or column.dtype == pl.Date:
        return column, None
    raise DataError(
        f"The time column {column.name!r} must hold integers, dates or datetimes.",
        got=f"{column.dtype} such as {column.drop_nulls().head(1).to_list()}",
        hint="name another column with time_col=, or parse it first.",
    )


def _from_text(column: pl.Series) -> pl.Series:
    offsets = column.str.extract(_OFFSET)
    kinds = offsets.drop_nulls().unique().to_list() + ([None] if offsets.null_count() > column.null_count() else [])
    if len(kinds) > 1:
        raise _mixed_zones(column.name, {str(kind or "none") for kind in kinds})
    bare = column.str.replace(r"(Z|[+-]\d{2}:?\d{2})$", "") if kinds != [None] else column
    parsed = _parse_text(bare)
    if kinds == [None] or not kinds:
        return parsed
    hours, minutes = (0, 0) if kinds[0] == "Z" else (int(kinds[0][:3]), int(kinds[0][0] + kinds[0][-2:]))
    utc = (parsed - pl.duration(hours=hours, minutes=minutes)) if hours or minutes else parsed
    column = pl.select(utc).to_series() if isinstance(utc, pl.Expr) else utc
    zone = "UTC" if minutes or not hours else f"Etc/GMT{-hours:+d}"
    return column.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def _parse_text(column: pl.Series) -> pl.Series:
    unread = column.is_not_null()
    for parse in (column.str.to_date, column.str.to_datetime):
        try:
            parsed: pl.Series = parse(strict=False)
        except pl.exceptions.ComputeError:  # of no known format
            continue
        unread = parsed.is_null() & column.is_not_null()
        if not unread.any():
            return parsed
    raise DataError(
        f"The time column {column.name!r} must hold integers, dates or datetimes.",
        got=f"the text {column.filter(unread)[0]!r}",
        hint="write times like 2024-01-31 or 2024-01-31T15:00.",
    )


def _mixed_zones(name: str, zones: set[str]) -> DataError:
    return DataError(
        f"The time column {name!r} must keep to one time zone.",
        got=f"{len(zones)} of them: {', '.join(sorted(zones))}",
        hint="convert all times to one zone, for example UTC, first.",
    )


def to_wall(utc: Ints, zone: str) -> Ints:
    """UTC microseconds -> what the clock on the wall shows there, as microseconds."""
    series = pl.Series(utc.astype("datetime64[us]")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return cast(Ints, series.dt.replace_time_zone(None).to_numpy().astype(np.int64))


def from_wall(wall: Ints, zone: str) -> Ints:
    """Wall-clock microseconds -> UTC: the first of two equal times; an hour later where the time is skipped."""
    series = pl.Series(wall.astype("datetime64[us]"))
    there = series.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    later = series.dt.offset_by("1h").dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    utc = there.fill_null(later).dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return cast(Ints, utc.to_numpy().astype(np.int64))


def parse_time(text: str | int | datetime) -> pl.Series:
    """One time as a user writes it."""
    if isinstance(text, datetime):
        return pl.Series(UNTIL, [text])
    if isinstance(text, int) or re.fullmatch(r"-?\d+", text):
        return pl.Series(UNTIL, [int(text)])
    return _from_text(pl.Series(UNTIL, [text]))
