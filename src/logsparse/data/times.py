"""Columns and texts of times -> int64 on a panel's clock, dates or UTC with a zone; and back."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any, cast

import numpy as np
import polars as pl

from logsparse.checks import is_whole
from logsparse.data.calendar import DAY, FARTHEST, Ints
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError, shown

# Readers raise anything; polars also panics, over time zones or dates that it does not know, by a BaseException.
READER_ERRORS = (Exception, pl.exceptions.PanicException)

UNTIL = "until"
When = str | int | date | datetime | np.datetime64
# Year first, so that nobody has to guess which number is the day: day, hours and minutes, seconds, fraction, offset.
_TEXT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}/[0-9]{2}/[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
_FIXED = r"(?:UTC|GMT)?([+-][0-9]{2}):?([0-9]{2})?"
# No zone lies this far from UTC, and no zone has ever skipped more than a day.
_FAR = DAY + DAY // 2


# What a calendar date can be: the days of the years 1 to 9999, counted from 1970.
_FIRST_DAY, LAST_DAY = -719_162, 2_932_896


def instants(column: pl.Series) -> tuple[pl.Series, str | None]:
    """A column of times as integers, dates or naive datetimes (UTC where there is a zone), and that zone."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = from_text(column.cast(pl.String))
    _refuse_far(column)
    if isinstance(column.dtype, pl.Datetime):
        if column.dtype.time_unit == "ns" and (fine := column.dt.nanosecond() % 1000 != 0).any():
            raise _too_fine(column.name, str(column.filter(fine)[:1].dt.to_string()[0]))
        zone = column.dtype.time_zone
        naive = column if zone is None else column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return naive.dt.cast_time_unit("us"), zone
    if column.dtype == pl.Date:
        return column, None
    if column.dtype.is_integer():
        numbers = column.cast(pl.Int64, strict=False)
        if (far := (numbers.is_null() | (numbers.abs() >= FARTHEST)) & column.is_not_null()).any():
            raise DataError(
                f"Integer times in {column.name!r} must lie below 2^62.",
                got=f"{column.filter(far)[0]}",
                hint="count from a later start, or in larger units.",
            )
        return numbers, None
    raise DataError(
        f"The time column {column.name!r} must hold integers, dates or datetimes.",
        got=f"{column.dtype} such as {column.drop_nulls().head(1).to_list()}",
        hint="name another column with time_col=, or parse it first.",
    )


def _refuse_far(column: pl.Series) -> None:
    """Years beyond those of people's calendars overflow one library or the other, some without a word."""
    unit = "D" if column.dtype == pl.Date else getattr(column.dtype, "time_unit", "")
    a_day = {"D": 1, "ms": DAY // 1000, "us": DAY}.get(unit)
    if a_day is None:  # no dates, or nanoseconds, which reach from 1677 to 2262
        return
    counts = column.to_physical()
    far = (counts < _FIRST_DAY * a_day) | (counts >= (LAST_DAY + 1) * a_day)
    if far.any():
        raise DataError(
            f"Times in {column.name!r} must lie in the years 1 to 9999.",
            got=f"{counts.filter(far).to_numpy().astype(f'datetime64[{unit}]')[0]}",
            hint="mend times that are far off, or count the steps with integers.",
        )


def looks_like_times(column: pl.Series) -> bool:
    """Whether a column of text begins like a column of times."""
    first = column.drop_nulls().head(1)
    return len(first) == 1 and bool(first.str.strip_chars().str.contains(_TEXT)[0])


def fixed_zone(name: str) -> str:
    """A fixed offset, however it is written, as a zone: whole hours keep theirs, others are read as instants in UTC."""
    if not (match := re.fullmatch(_FIXED, name)):
        return name
    hours, minutes = int(match[1]), int(match[2] or 0)
    return "UTC" if minutes or not -12 <= hours <= 14 or not hours else f"Etc/GMT{-hours:+d}"


def zoned(utc: pl.Series, zone: str) -> pl.Series:
    """Naive UTC as times of a zone; where polars does not know its name, the instants stay in UTC."""
    there = utc.dt.replace_time_zone("UTC")
    try:
        return there.dt.convert_time_zone(fixed_zone(zone))
    except READER_ERRORS:
        return there


def from_text(column: pl.Series) -> pl.Series:
    """Dates, or datetimes with or without a zone, from text written year first; anything else is refused."""
    parts = column.str.strip_chars().str.extract_groups(_TEXT).struct.unnest()
    day, clock, second, fraction, offset = (parts.to_series(i) for i in range(5))
    day = day.str.replace_all("/", "-", literal=True)
    if not clock.null_count() < len(clock):
        stamps = day.str.to_date("%Y-%m-%d", strict=False)
    else:
        text = day + "T" + clock.fill_null("00:00") + ":" + second.fill_null("00") + fraction.fill_null("")
        stamps = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    stamps = stamps.alias(column.name)
    if (unread := stamps.is_null() & column.is_not_null()).any():
        raise DataError(
            f"The time column {column.name!r} must hold integers, dates or datetimes.",
            got=f"the text {column.filter(unread)[0]!r}",
            hint="write times year first, like 2024-01-31 or 2024-01-31T15:00.",
        )
    if (fine := fraction.str.contains(r"\.[0-9]{6}[0-9]*[1-9]").fill_null(value=False)).any():
        raise _too_fine(column.name, column.filter(fine)[0])
    return _in_zone(stamps, offset)


def _in_zone(stamps: pl.Series, offset: pl.Series) -> pl.Series:
    written = [None if text is None else str(text) for text in offset.filter(stamps.is_not_null()).unique()]
    shifts = {text: _microseconds(text) for text in written}
    if len(set(shifts.values())) > 1:
        zones = ", ".join(sorted(text or "none" for text in written))
        raise mixed_zones(stamps.name, f"{len(written)} of them: {zones}")
    if not shifts or None in shifts:
        return stamps
    text, shift = next(iter(shifts.items()))
    utc = pl.Series(stamps.name, stamps.cast(pl.Datetime("us")).to_physical() - shift).cast(pl.Datetime("us", "UTC"))
    return utc.dt.convert_time_zone(fixed_zone(str(text).replace("Z", "+00:00")))


def _microseconds(offset: str | None) -> int | None:
    if offset is None:
        return None
    digits = offset.replace(":", "").replace("Z", "+0000").ljust(5, "0")
    minutes = 60 * int(digits[1:3]) + int(digits[3:5])
    return (-1 if digits[0] == "-" else 1) * minutes * 60_000_000


def mixed_zones(name: str, got: str) -> DataError:
    return DataError(
        f"The time column {name!r} must keep to one time zone.",
        got=got,
        hint="convert all times to one zone, for example UTC, first.",
    )


def _too_fine(name: str, text: str) -> DataError:
    return DataError(f"Times in {name!r} must be whole microseconds.", got=text, hint="round them first.")


def to_wall(utc: Ints, zone: str) -> Ints:
    """UTC microseconds -> what the clock on the wall shows there, as microseconds."""
    series = pl.Series(utc.astype("datetime64[us]")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return cast(Ints, series.dt.replace_time_zone(None).to_numpy().astype(np.int64))


def from_wall(wall: Ints, zone: str) -> Ints:
    """Wall-clock microseconds -> UTC: the first of two equal times; the end of the gap where the time is skipped."""
    series = pl.Series(wall.astype("datetime64[us]"))
    there = series.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.convert_time_zone("UTC")
    skipped = there.is_null().to_numpy()
    utc = there.dt.replace_time_zone(None).to_numpy().astype(np.int64)
    if skipped.any():
        utc = utc.copy()
        unique, back = np.unique(wall[skipped], return_inverse=True)
        utc[skipped] = _after_gap(unique, zone)[back]
    return cast(Ints, utc)


def _after_gap(skipped: Ints, zone: str) -> Ints:
    """The first instant whose wall time lies beyond each, by halving: a gap has no wall times to look up."""
    low, high = skipped - _FAR, skipped + _FAR
    while (high - low > 1).any():
        middle = (low + high) // 2
        beyond = to_wall(middle, zone) > skipped
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return high


def to_days(utc: Ints, zone: str, series: Ints, usual: Ints | None = None) -> Ints:
    """Wall time for a clock that counts days: the first instant after a skipped time of day counts as that time.

    Where a summer begins at midnight, pandas writes 01:00 for that day, and so do we. `usual` is each series' time of
    day in microseconds; without it the commonest counts, and midnight where a series has nothing else.
    """
    wall = to_wall(utc, zone)
    rest = wall % DAY
    if usual is None and (rest == rest[:1]).all() and not rest[:1].any():
        return wall
    gap = wall - to_wall(utc - 1, zone) - 1
    late = gap > 0
    if not late.any():
        return wall
    if usual is None:
        usual = _commonest(series[~late], rest[~late], int(series.max()) + 1)
    since = (wall - usual[series]) % DAY
    return np.asarray(np.where(late & (since <= gap), wall - since, wall))


def _commonest(series: Ints, rest: Ints, number: int) -> Ints:
    counts = pl.DataFrame({"series": series, "rest": rest}).group_by("series", "rest").len().sort("len", "rest")
    usual = np.zeros(number, np.int64)
    usual[counts["series"].to_numpy()] = counts["rest"].to_numpy()  # the last of each series counts: the commonest
    return usual


def parse_time(when: When) -> pl.Series:
    """One time as a user writes it."""
    value: Any = when
    try:
        if isinstance(value, np.datetime64):
            year = 1970 + int(value.astype("datetime64[Y]").astype(np.int64))
            value = value.astype("datetime64[us]").item() if 1 <= year <= 9999 else None
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC)
        if isinstance(value, str):
            value = int(value) if re.fullmatch(r"-?[0-9]+", value) else from_text(pl.Series(UNTIL, [value]))
        if isinstance(value, pl.Series):
            return value
        if is_whole(value) and abs(int(value)) < FARTHEST:
            return pl.Series(UNTIL, [int(value)])
        if isinstance(value, date) and value == value:  # noqa: PLR0124 - pandas' NaT is a date that equals nothing
            return pl.Series(UNTIL, [value])
    except READER_ERRORS as error:
        raise _no_time(when) from error
    raise _no_time(when)


def _no_time(when: object) -> ConfigError:
    return ConfigError(
        "until must be a time, or an integer where times are integers.",
        got=shown(when),
        hint="write it like 2024-01-31 or 2024-01-31T15:00.",
    )


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
    times, zone = instants(column)
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
