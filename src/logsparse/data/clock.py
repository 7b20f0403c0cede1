"""Times as users write them <-> int64 on a panel's clock."""

from __future__ import annotations

import numpy as np
import polars as pl

from logsparse.data.calendar import DAY, Ints
from logsparse.data.panel import Panel
from logsparse.data.times import LAST_DAY, UNTIL, When, from_wall, mixed_zones, moments, parse_time, to_days, to_wall
from logsparse.errors import DataError


def clock_time(panel: Panel, when: When) -> int:
    """A time as a user writes it, on the panel's clock; without an offset it is read as local time."""
    return int(on_clock(panel, parse_time(when))[0])


def on_clock(panel: Panel, column: pl.Series, series: Ints | None = None) -> Ints:
    """A column of times on the panel's clock; `series` says to which of the panel's series each belongs."""
    if column.null_count():
        raise DataError(
            f"Every row needs a time in {column.name!r}.",
            got=f"none in row {int(column.is_null().arg_max() or 0) + 1}",
            hint="drop those rows.",
        )
    times, zone = moments(column)
    if times.dtype.is_temporal() == (panel.freq.kind == "index"):
        raise DataError(
            f"Times in {column.name!r} must be of the kind of the panel's times.",
            got=f"{column[0]!r} for times like {panel.freq.show(int(panel.starts[0]))}",
            hint="write it like those.",
        )
    if zone and zone != panel.origin.zone and column.name != UNTIL:
        raise mixed_zones(column.name, f"{zone} after {panel.origin.zone or 'times without a zone'}")
    found = (times.cast(pl.Datetime("us")) if times.dtype.is_temporal() else times).to_numpy().astype(np.int64)
    if panel.origin.zone and zone is None and not panel.freq.counts_days:
        return from_wall(found, panel.origin.zone)
    if panel.origin.zone and zone is not None and panel.freq.counts_days:
        if series is None:
            return to_wall(found, panel.origin.zone)
        return to_days(found, panel.origin.zone, series, panel.starts % DAY)
    return np.asarray(found)


def stamps(panel: Panel, times: Ints) -> pl.Series:
    """Times on the panel's clock as the kind of column that came; dates only where steps are made of whole days."""
    origin = panel.origin
    if origin.time_type == "integer":
        return pl.Series(times)
    if times.max(initial=0) >= (LAST_DAY + 1) * DAY:
        raise DataError(
            "Times must lie in the years 1 to 9999.",
            got=panel.freq.show(int(times.max())),
            hint="mend times that are far off, or choose a shorter horizon.",
        )
    if origin.zone:
        utc = from_wall(times, origin.zone) if panel.freq.counts_days else times
        column = pl.Series(utc.astype("datetime64[us]"))
        return column.dt.replace_time_zone("UTC").dt.convert_time_zone(origin.zone)
    column = pl.Series(times.astype("datetime64[us]"))
    return column.cast(pl.Date) if origin.time_type == "date" and panel.freq.counts_days else column
