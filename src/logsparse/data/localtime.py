"""A column of times as people write them (any text, local time of a zone) -> dates or datetimes that data/times reads.

`read_times` follows what the user said with `tz=`, `time_format=` and `dayfirst=` (`ColumnSpec`). `with_clock` puts a
panel on the clock of a fitted model: by instant, or not at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, Freq, Ints
from logsparse.data.columns import ColumnSpec
from logsparse.data.panel import Origin, Panel
from logsparse.data.times import (
    NAIVE,
    READER_ERRORS,
    days_of_changing_offset,
    form_of,
    from_text,
    from_wall,
    instants,
    looks_like_times,
    other_clock,
    stray_text,
    to_wall,
)
from logsparse.errors import ConfigError, DataError

# Groups: first number, second number, year, hour, minutes and the rest.
_DAY_FIRST = r"^([0-9]{1,2})[./-]([0-9]{1,2})[./-]([0-9]{4})(?:,?[T ]+([0-9]{1,2})(:[0-9]{2}.*))?$"
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
# Names of months in English and German, whole and shortened.
_NAMES = (
    *("january jan januar jänner jän", "february feb februar", "march mar märz mär mrz", "april apr", "may mai"),
    *("june jun juni", "july jul juli", "august aug", "september sep sept", "october oct oktober okt"),
    *("november nov", "december dec dezember dez"),
)
_MONTHS = {name: month for month, names in enumerate(_NAMES, start=1) for name in names.split()}
# Months, quarters and weeks whose year has four digits: no two readings are possible. They begin on their first day.
_PERIODS = (
    r"^(?<year>[0-9]{4})[-/.](?<month>0?[1-9]|1[0-2])$",
    r"^(?<month>0?[1-9]|1[0-2])[-/.](?<year>[0-9]{4})$",
    rf"(?i)^(?<name>{'|'.join(_MONTHS)})[.,]?[ /-]*(?<year>[0-9]{{4}})$",
    rf"(?i)^(?<year>[0-9]{{4}})[ /-]*(?<name>{'|'.join(_MONTHS)})\.?$",
    r"(?i)^(?<year>[0-9]{4})[ /.-]*Q(?<quarter>[1-4])$",
    r"(?i)^Q(?<quarter>[1-4])[ /.-]*(?<year>[0-9]{4})$",
    r"(?i)^(?<year>[0-9]{4})[ /-]?W(?<week>[0-9]{2})$",
)


def looks_like(column: pl.Series, spec: ColumnSpec) -> bool:
    """Return True if the first text of a column is a time, in the form that the user named or in a common one."""
    first = column.drop_nulls().head(1)
    if spec.time_format is not None:
        return len(first) == 1 and not _by_format(first, spec.time_format).null_count()
    # Day first counts also if it was not asked for: the error then names this column.
    return looks_like_times(column) or (len(first) == 1 and bool(first.str.strip_chars().str.contains(_DAY_FIRST)[0]))


def looks_like_period(column: pl.Series) -> bool:
    """Return True if the first text of a column is a month, quarter or week, or a date of which an error can tell."""
    first = column.drop_nulls().head(1).str.strip_chars()
    return any(bool(first.str.contains(form).any()) for form in _PERIODS) or (
        len(first) == 1 and bool(form_of(first[0]))
    )


def read_times(column: pl.Series, codes: Ints, spec: ColumnSpec) -> tuple[pl.Series, str | None]:
    """Return the column as integers, dates or datetimes, with a zone if they are instants; and `Origin.written`.

    `codes` is the number of the series of each row: the order of its rows tells the two hours of autumn apart.
    """
    text = column.dtype in _TEXTS
    if text or (spec.time_format is not None and column.dtype.is_integer()):
        column = _parsed(column.cast(pl.String), spec)
    elif column.dtype.is_integer() and spec.freq is None:
        _refuse_dates_in_digits(column)
    if spec.tz is not None and column.dtype.is_integer():
        raise DataError(
            "A time zone is for dates and datetimes.",
            got=f"integers such as {column.drop_nulls()[0]} in {column.name!r}, and tz={spec.tz!r}",
            hint="leave tz out; if they are dates, name their form, such as time_format='%Y%m%d'.",
        )
    if column.dtype == pl.Date and spec.tz is not None:
        if spec.freq is None or Freq.parse(spec.freq).counts_days:
            return column, NAIVE
        column = column.cast(pl.Datetime("us"))
    if not isinstance(column.dtype, pl.Datetime):
        return column, None
    own, zone = column.dtype.time_zone, spec.tz or spec.home
    if own is None and spec.tz is None and spec.home is not None:
        raise other_clock(f"Times in {column.name!r}", None, spec.home)
    if own is None:
        return (column, None) if spec.tz is None else (localised(column, codes, spec.tz), NAIVE)
    if zone is None or own == zone:
        return column, None
    return column.dt.convert_time_zone(zone), None if text else own


def _parsed(column: pl.Series, spec: ColumnSpec) -> pl.Series:
    text = column.str.strip_chars()
    if spec.time_format is not None:
        stamps = _by_format(text, spec.time_format).alias(column.name)
        if (unread := stamps.is_null() & column.is_not_null()).any():
            shown_text, stray = stray_text(column, unread)
            raise DataError(
                f"The times in {column.name!r} must be written as time_format says.",
                got=f"{shown_text} and time_format={spec.time_format!r}",
                hint=f"{stray}describe the whole text: %d day, %m month, %Y year, %H hour, %M minute, %S second, "
                "%z offset.",
            )
        return stamps
    if spec.dayfirst is not None:
        order = "the day" if spec.dayfirst else "the month"
        return from_text(
            _from_periods(_year_first(text, dayfirst=spec.dayfirst)),
            original=column,
            hint=f"dayfirst={spec.dayfirst} reads {order} first, dayfirst={not spec.dayfirst} the other, and "
            "time_format= any other form.",
        )
    if spec.tz is None and spec.home is None and (offsets := days_of_changing_offset(column)):
        raise DataError(
            f"Days in {column.name!r} whose offset changes need the name of their time zone.",
            got=f"the offsets {offsets}",
            hint="name it with tz=, such as tz='Europe/Berlin'.",
        )
    return from_text(_from_periods(text), original=column)


def _refuse_dates_in_digits(column: pl.Series) -> None:
    """Raise for integers such as 202401 or 20240131 that turn a month or a year: as numbers they would have gaps."""
    lowest, highest = cast("int", column.min() or 0), cast("int", column.max() or 0)
    for form, low, high in (("%Y%m", 1000_01, 2999_12), ("%Y%m%d", 1000_01_01, 2999_12_31)):
        if not low <= lowest <= highest <= high or lowest // 100 == highest // 100:
            continue
        if _by_format(column.drop_nulls().unique().cast(pl.String), form).null_count() == 0:
            raise DataError(
                f"Integers in {column.name!r} are steps that are counted, not dates.",
                got=f"{column.drop_nulls()[0]}, and all of them can be dates",
                hint=f"if they are dates, pass time_format={form!r}; if not, freq=1.",
            )


def _from_periods(text: pl.Series) -> pl.Series:
    """Rewrite months, quarters or weeks, if the first text is one, as their first day; text of another form is null."""
    first = text.drop_nulls().head(1)
    form = next((form for form in _PERIODS if first.str.contains(form).any()), None)
    if form is None:
        return text
    parts = text.str.extract_groups(form).struct.unnest()
    year = parts["year"]
    if "week" in parts.columns:
        days = (year + "-W" + parts["week"] + "-1").str.to_date("%G-W%V-%u", strict=False)
        return days.cast(pl.String).alias(text.name)
    if "quarter" in parts.columns:
        month = (parts["quarter"].cast(pl.Int64) * 3 - 2).cast(pl.String)
    elif "name" in parts.columns:
        month = parts["name"].str.to_lowercase().replace_strict(_MONTHS, default=None).cast(pl.String)
    else:
        month = parts["month"]
    return (year + "-" + month.str.zfill(2) + "-01").alias(text.name)


def _by_format(text: pl.Series, form: str) -> pl.Series:
    if "%H" in form and "%M" not in form:  # polars reads no hour without its minutes
        text, form = text + " 00", form + " %M"
    timed = any(part in form for part in ("%H", "%I", "%T", "%R", "%c", "%k", "%l", "%s", "%r", "%X"))
    try:
        if timed:
            return text.str.to_datetime(form, time_unit="us", strict=False)
        return text.str.to_date(form, strict=False)
    except READER_ERRORS as error:
        raise ConfigError(
            "time_format must be a format of strftime.", got=repr(form), hint="write it like '%d.%m.%Y %H:%M'."
        ) from error


def _year_first(text: pl.Series, *, dayfirst: bool) -> pl.Series:
    """Rewrite 1.2.2024 9:00 as 2024-02-01T09:00; text of another form stays."""
    first, second, year, hour, rest = text.str.extract_groups(_DAY_FIRST).struct.unnest().get_columns()
    day, month = (first, second) if dayfirst else (second, first)
    date = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)
    clock = ("T" + hour.str.zfill(2) + rest).fill_null("")
    return pl.select(pl.coalesce(date + clock, text)).to_series().alias(text.name)


def localised(column: pl.Series, codes: Ints, zone: str) -> pl.Series:
    """Return local times as instants; of an hour that comes twice the first is summer time, by the order of rows.

    Rows of a series may be written from old to new or from new to old.
    """
    if column.null_count():
        return column  # refused by the caller, who knows the series
    wall = instants(column)[0].to_numpy().astype(np.int64)
    early, late = from_wall(wall, zone), from_wall(wall, zone, "latest")
    skipped = to_wall(early, zone) != wall
    if skipped.any():
        _refuse_skipped(column, wall, codes, skipped, zone)
    twice = np.flatnonzero((early != late) & ~skipped)
    if twice.size:
        again = twice[_comes_again(wall, codes, twice)]
        early = early.copy()
        early[again] = late[again]
    utc = pl.Series(column.name, early.astype("datetime64[us]"))
    return utc.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def _comes_again(wall: Ints, codes: Ints, twice: Ints) -> NDArray[np.bool_]:
    """Mark the rows after the clock went back, of the rows `twice`: a time as late or later stands before."""
    _, first = np.unique(codes, return_index=True)
    _, last = np.unique(codes[::-1], return_index=True)
    falling = (wall[len(codes) - 1 - last] < wall[first])[codes[twice]]
    unique = np.unique(wall[twice])
    change = np.cumsum(np.diff(unique, prepend=unique[0]) > DAY // 2)[np.searchsorted(unique, wall[twice])]
    rows = pl.DataFrame(
        {"series": codes[twice], "change": change, "wall": wall[twice], "place": np.where(falling, -twice, twice)}
    ).with_row_index()
    of_change = ("series", "change")
    ahead = (pl.col("wall").cum_max().shift(1).over(of_change) - pl.col("wall")).fill_null(-1)
    # Rows sorted by local time have no step back, but several times twice: 2:00, 2:00, 2:30, 2:30.
    by_value = ((ahead <= 0).all() & ((ahead == 0).sum() > 1)).over(of_change)
    went_back = (ahead >= 0).cast(pl.Int8).cum_max().over(of_change).cast(pl.Boolean)
    found = rows.sort("place").with_columns(pl.when(by_value).then(ahead == 0).otherwise(went_back).alias("again"))
    return found.sort("index")["again"].to_numpy()


def _refuse_skipped(column: pl.Series, wall: Ints, codes: Ints, skipped: NDArray[np.bool_], zone: str) -> None:
    """Raise for times that the clock skipped, unless steps are of days: a midnight may be missing."""
    order = np.lexsort((wall, codes))
    gaps = np.diff(wall[order])[np.diff(codes[order]) == 0]
    if not gaps.size or gaps.min() >= DAY:
        return
    raise DataError(
        f"Times in {column.name!r} must exist on the clocks of {zone}.",
        got=f"{column.filter(pl.Series(skipped))[0]!s}, which they skip when summer time begins",
        hint="if this clock never changes, leave tz out or name a zone without summer time, such as tz='Etc/GMT-1'; if "
        "the times are UTC, mark them as UTC first, in polars with dt.replace_time_zone('UTC'), in pandas with "
        "dt.tz_localize('UTC'), in text with a final Z.",
    )


def on_any_clock(panel: Panel) -> bool:
    """Return True for integers, and for dates without a zone, which are days of any clock."""
    dates = panel.origin.time_type == "date" and panel.freq.counts_days and panel.origin.zone is None
    return dates or panel.freq.kind == "index"


def with_clock(panel: Panel, fitted: Origin) -> Panel:
    """Return the panel on the clock of the data that a model was fitted on, converted by instant, or raise."""
    given, known = panel.origin.zone, fitted.zone
    if given == known or on_any_clock(panel):
        return panel
    if given is None or known is None:
        raise other_clock("New data", given, known)
    if panel.freq.counts_days:
        raise DataError(
            "Days must be counted on the clock that was fitted.",
            got=f"a panel of days in {given} after {known}",
            hint=f"give the frame itself, or to_panel(frame, tz={known!r}).",
        )
    return replace(panel, origin=replace(panel.origin, zone=known, written=panel.origin.written or given))


def in_zone(panel: Panel) -> Panel:
    """Return the panel with its zone in written times: a backtest must tell the two hours of autumn apart."""
    if panel.origin.written != NAIVE or panel.freq.counts_days:
        return panel
    return replace(panel, origin=replace(panel.origin, written=None))
