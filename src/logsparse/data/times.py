"""A column of times (integers, text, dates, datetimes with or without a zone) -> int64 on a panel's clock; and back.

The clock is explained in data/calendar. Reading: `instants` (any column), `from_text`, `on_clock` (for a given panel),
`clock_time` (one time that a user wrote). Writing: `stamps`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any, Literal, cast
from zoneinfo import available_timezones

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, FARTHEST, Freq, Ints
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError, is_whole, shown, suggest

# Readers raise anything; polars also panics on unknown time zones or dates, with a BaseException.
READER_ERRORS = (Exception, pl.exceptions.PanicException)

UNTIL = "until"
NAIVE = "naive"
When = str | int | date | datetime | np.datetime64
# Year first, since other orders are ambiguous. Groups: day, hours and minutes, seconds, fraction, offset.
_TEXT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}/[0-9]{2}/[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
_FIXED = r"(?:UTC|GMT)?([+-][0-9]{2}):?([0-9]{2})?"
# Characters of a text that is no time, in messages.
_LONG_TEXT = 40
_YEAR_FIRST = (
    "write times year first, like 2024-01-31T15:00, or say how they are written: dayfirst=True for 31.01.2024 15:00, "
    "time_format='%m/%d/%Y %H:%M' for any other form."
)
# Forms that a hint names if a text has one of them; none of them is read unasked: they lack digits, or an order.
_FORMS = (
    *("%b-%y", "%b %y", "%B %y", "%y-%b", "%d.%m.%y", "%d-%b-%Y", "%d %b %Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%Y.%m.%d", "%d.%m.%y %H:%M", "%Y.%m.%d %H:%M", "%Y%m%d", "%Y%m%d %H:%M", "%Y%m%d%H%M"),
)
# More than any offset from UTC, and than any time that a zone has skipped.
_FAR = DAY + DAY // 2
# The years 1 to 9999, in days from 1970.
_FIRST_DAY, LAST_DAY = -719_162, 2_932_896


def instants(column: pl.Series) -> tuple[pl.Series, str | None]:
    """Return a column of times as integers, dates or naive datetimes (UTC if they have a zone), and the zone."""
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
                f"Integer times in {column.name!r} must be below 2^62.",
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
    """Raise for years outside 1 to 9999: they overflow in some libraries, without an error in others."""
    unit = "D" if column.dtype == pl.Date else getattr(column.dtype, "time_unit", "")
    a_day = {"D": 1, "ms": DAY // 1000, "us": DAY}.get(unit)
    if a_day is None:  # not dates, or nanoseconds, which span only 1677 to 2262
        return
    counts = column.to_physical()
    far = (counts < _FIRST_DAY * a_day) | (counts >= (LAST_DAY + 1) * a_day)
    if far.any():
        raise DataError(
            f"Times in {column.name!r} must lie in the years 1 to 9999.",
            got=f"{counts.filter(far).to_numpy().astype(f'datetime64[{unit}]')[0]}",
            hint="correct times that are far off, or use integer times.",
        )


def looks_like_times(column: pl.Series) -> bool:
    """Return True if the first text of a column is a time written year first."""
    first = column.drop_nulls().head(1)
    return len(first) == 1 and bool(first.str.strip_chars().str.contains(_TEXT)[0])


def zone_named(value: object) -> str:
    """Return the name of a time zone, given by its name or as an object such as a ZoneInfo."""
    name = fixed_zone(str(value))
    try:
        to_wall(np.zeros(1, np.int64), name or "?")  # polars takes an empty name for no zone
    except READER_ERRORS as error:
        known = available_timezones()
        cities = {zone.rpartition("/")[2].lower(): zone for zone in sorted(known)}
        near = cities.get(str(value).lower().replace(" ", "_"))
        raise ConfigError(
            "tz must be the name of a time zone.",
            got=shown(value),
            hint=f"did you mean {near!r}?" if near else suggest(value, known, "write it like 'Europe/Berlin'."),
        ) from error
    if name == "UTC" and (match := re.fullmatch(_FIXED, str(value))) and int(match[1] + (match[2] or "00")):
        raise ConfigError(
            "tz must be the name of a time zone, or an offset of whole hours.",
            got=shown(value),
            hint="name the zone, such as 'Asia/Kolkata'.",
        )
    return name


def fixed_zone(name: str) -> str:
    """Return the zone name of a fixed offset: Etc/GMT... for whole hours, UTC for others."""
    if not (match := re.fullmatch(_FIXED, name)):
        return name
    hours, minutes = int(match[1]), int(match[2] or 0)
    return "UTC" if minutes or not -12 <= hours <= 14 or not hours else f"Etc/GMT{-hours:+d}"


def zoned(utc: pl.Series, zone: str) -> pl.Series:
    """Convert naive UTC to times of a zone; they stay in UTC if polars does not know the zone."""
    aware = utc.dt.replace_time_zone("UTC")
    try:
        return aware.dt.convert_time_zone(fixed_zone(zone))
    except READER_ERRORS:
        return aware


def from_text(column: pl.Series, *, original: pl.Series | None = None, hint: str | None = None) -> pl.Series:
    """Parse text written year first into dates, or datetimes with or without a zone; raise for other text.

    Offsets that change give datetimes in UTC. An error shows the `original` text, if the column was rewritten; what was
    not understood is null then.
    """
    shown_text = column if original is None else original
    parts = column.str.strip_chars().str.extract_groups(_TEXT).struct.unnest()
    day, clock, second, fraction, offset = (parts.to_series(i) for i in range(5))
    day = day.str.replace_all("/", "-", literal=True)
    if clock.null_count() == len(clock):
        stamps = day.str.to_date("%Y-%m-%d", strict=False)
    else:
        text = day + "T" + clock.fill_null("00:00") + ":" + second.fill_null("00") + fraction.fill_null("")
        stamps = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    stamps = stamps.alias(column.name)
    if (unread := stamps.is_null() & shown_text.is_not_null()).any():
        raise _unread(shown_text, unread, hint)
    if (fine := fraction.str.contains(r"\.[0-9]{6}[0-9]*[1-9]").fill_null(value=False)).any():
        raise _too_fine(column.name, shown_text.filter(fine)[0])
    return _in_zone(stamps, offset)


def _unread(column: pl.Series, unread: pl.Series, hint: str | None) -> DataError:
    """Return the error for text that is no time: a row that differs from the others, or a form that can be named."""
    rule = f"The time column {column.name!r} must hold integers, dates or datetimes."
    got, stray = stray_text(column, unread)
    read = column.count() - int(unread.sum())
    if read > unread.sum():
        return DataError(rule, got=got, hint=f"{stray}drop or correct it: {read:,} other rows are read.")
    form = form_of(str(column.filter(unread)[0]))
    named = f"say how they are written, if this is their form: time_format={form!r}." if form else _YEAR_FIRST
    return DataError(rule, got=got, hint=stray + (hint or named))


def form_of(text: str) -> str | None:
    """Return the form of a time that is not read unasked, for time_format=; None if it is none of the common ones."""
    written = pl.Series([text.strip()])
    for form in _FORMS:
        kind = pl.Datetime("us") if "%H" in form else pl.Date
        if written.str.strptime(kind, form, strict=False)[0] is not None:
            return form
    return None


def stray_text(column: pl.Series, unread: pl.Series) -> tuple[str, str]:
    """Describe the first text that was not read; also return the start of a hint if those before it were."""
    row = int(unread.arg_max() or 0)
    text = str(column[row])
    shown_text = repr(text if len(text) <= _LONG_TEXT else f"{text[:_LONG_TEXT]}...")
    if not column[:row].count():
        return f"the text {shown_text}", ""
    return f"the text {shown_text} in row {row + 1:,}", "if the file was cut there, copy it again; if not, "


def _in_zone(stamps: pl.Series, offset: pl.Series) -> pl.Series:
    written = [None if text is None else str(text) for text in offset.filter(stamps.is_not_null()).unique()]
    shifts = {text: _microseconds(text) for text in written}
    if None in shifts and len(shifts) > 1:
        zones = ", ".join(sorted(text or "none" for text in written))
        raise DataError(
            f"All times in {stamps.name!r} must have an offset, or none.",
            got=f"the offsets {zones}",
            hint="write the offset of every time, such as 2024-01-31T15:00+01:00.",
        )
    if not shifts or None in shifts:
        return stamps
    shift = offset.replace_strict(list(shifts), list(shifts.values()), default=None, return_dtype=pl.Int64)
    utc = pl.Series(stamps.name, stamps.cast(pl.Datetime("us")).to_physical() - shift).cast(pl.Datetime("us", "UTC"))
    if len(set(shifts.values())) > 1:
        return utc
    return utc.dt.convert_time_zone(fixed_zone(next(iter(shifts)).replace("Z", "+00:00")))  # type: ignore[union-attr]


def days_of_changing_offset(column: pl.Series) -> str:
    """Return the offsets in a column of text if they change while the time of day does not; else an empty text."""
    parts = column.str.strip_chars().str.extract_groups(_TEXT).struct.unnest()
    clock, offset = parts.to_series(1).drop_nulls(), parts.to_series(4).drop_nulls().unique()
    changes = len({_microseconds(text) for text in offset}) > 1 and clock.n_unique() == 1 and len(clock) > 1
    return ", ".join(sorted(offset)) if changes else ""


def _microseconds(offset: str | None) -> int | None:
    if offset is None:
        return None
    digits = offset.replace(":", "").replace("Z", "+0000").ljust(5, "0")
    minutes = 60 * int(digits[1:3]) + int(digits[3:5])
    return (-1 if digits[0] == "-" else 1) * minutes * 60_000_000


def _too_fine(name: str, text: str) -> DataError:
    return DataError(f"Times in {name!r} must be whole microseconds.", got=text, hint="round them first.")


def show_time(freq: Freq, time: int, zone: str | None) -> str:
    """Format a time for messages; one that was read in a zone as its local time with the offset, which is unambiguous.

    Steps of whole days count local time already.
    """
    if zone is None or zone == "UTC" or freq.kind == "index" or freq.counts_days:
        return freq.show(time)
    local = pl.Series([time]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)[0]
    return str(local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes"))


def to_wall(utc: Ints, zone: str) -> Ints:
    """Convert UTC microseconds to local (wall clock) microseconds."""
    series = pl.Series(utc.astype("datetime64[us]")).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return cast(Ints, series.dt.replace_time_zone(None).to_numpy().astype(np.int64))


def from_wall(wall: Ints, zone: str, ambiguous: Literal["earliest", "latest"] = "earliest") -> Ints:
    """Convert local microseconds to UTC: of two instants the earliest or latest, for a skipped time the gap's end."""
    series = pl.Series(wall.astype("datetime64[us]"))
    utc_column = series.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null").dt.convert_time_zone("UTC")
    skipped = utc_column.is_null().to_numpy()
    utc = utc_column.dt.replace_time_zone(None).to_numpy().astype(np.int64)
    if skipped.any():
        utc = utc.copy()
        unique, back = np.unique(wall[skipped], return_inverse=True)
        utc[skipped] = _after_gap(unique, zone)[back]
    return cast(Ints, utc)


def _after_gap(skipped: Ints, zone: str) -> Ints:
    """Return the first instant whose local time is after each skipped time, by bisection."""
    low, high = skipped - _FAR, skipped + _FAR
    while (high - low > 1).any():
        middle = (low + high) // 2
        beyond = to_wall(middle, zone) > skipped
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return high


def to_days(utc: Ints, zone: str, series: Ints, usual: Ints | None = None) -> Ints:
    """Convert UTC to local time for steps of whole days; the first instant after a skipped time counts as that time.

    If summer time begins at midnight, pandas writes 01:00 for that day, and so does this library. `usual` is the time
    of day per series in microseconds; the default is the most common one, or midnight if all are such first instants.
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
        usual = _most_common(series[~late], rest[~late], int(series.max()) + 1)
    since = (wall - usual[series]) % DAY
    return np.asarray(np.where(late & (since <= gap), wall - since, wall))


def _most_common(series: Ints, rest: Ints, number: int) -> Ints:
    counts = pl.DataFrame({"series": series, "rest": rest}).group_by("series", "rest").len().sort("len", "rest")
    usual = np.zeros(number, np.int64)
    usual[counts["series"].to_numpy()] = counts["rest"].to_numpy()  # the last row per series wins: its most common time
    return usual


def parse_time(when: When) -> pl.Series:
    """Parse one time that a user wrote."""
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
        "until must be a time, or an integer if times are integers.",
        got=shown(when),
        hint="write it like 2024-01-31 or 2024-01-31T15:00.",
    )


def clock_time(panel: Panel, when: When) -> int:
    """Parse a time that a user wrote, on the panel's clock; without an offset it is local time."""
    return int(on_clock(panel, parse_time(when))[0])


def on_clock(panel: Panel, column: pl.Series, series: Ints | None = None) -> Ints:
    """Convert a column of times to the panel's clock; `series` is the number of the series of each row."""
    if column.null_count():
        raise DataError(
            f"Every row must have a time in {column.name!r}.",
            got=f"none in row {int(column.is_null().arg_max() or 0) + 1}",
            hint="drop those rows.",
        )
    naive, zone = instants(column)
    if naive.dtype.is_temporal() == (panel.freq.kind == "index"):
        raise DataError(
            f"Times in {column.name!r} must have the type of the panel's times.",
            got=f"{column[0]!r}, while the panel has times like {panel.freq.show(int(panel.starts[0]))}",
            hint="use the same type.",
        )
    if column.name != UNTIL and (zone is None) != (panel.origin.zone is None) and naive.dtype == pl.Datetime:
        raise other_clock(f"Times in {column.name!r}", zone, panel.origin.zone)
    times = (naive.cast(pl.Datetime("us")) if naive.dtype.is_temporal() else naive).to_numpy().astype(np.int64)
    if panel.origin.zone and zone is None and not panel.freq.counts_days:
        return from_wall(times, panel.origin.zone)
    if panel.origin.zone and zone is not None and panel.freq.counts_days:
        if series is None:
            return to_wall(times, panel.origin.zone)
        return to_days(times, panel.origin.zone, series, panel.starts % DAY)
    return np.asarray(times)


def other_clock(what: str, zone: str | None, fitted: str | None) -> DataError:
    """Return the error for times with a zone after times without one, or the other way round."""
    if zone is None:
        return DataError(
            f"{what} must have a time zone, as those that were fitted.",
            got=f"times without a zone after times of {fitted}",
            hint=f"give them their zone, or fit with tz={fitted!r}, which reads times without a zone as local times.",
        )
    return DataError(
        f"{what} must have no time zone, as those that were fitted.",
        got=f"times of {zone} after times without a zone",
        hint="convert them to the local time of the fitted data and drop the zone, or fit with tz=, which reads both.",
    )


def stamps(panel: Panel, times: Ints) -> pl.Series:
    """Convert times on the panel's clock to what was read; dates become datetimes if steps are finer than a day."""
    origin = panel.origin
    if origin.time_type == "integer":
        return pl.Series(times)
    if times.max(initial=0) >= (LAST_DAY + 1) * DAY:
        raise DataError(
            "Times must lie in the years 1 to 9999.",
            got=panel.freq.show(int(times.max())),
            hint="correct times that are far off, or choose a shorter horizon.",
        )
    if origin.zone and not (origin.written == NAIVE and panel.freq.counts_days):
        utc = from_wall(times, origin.zone) if panel.freq.counts_days else times
        column = pl.Series(utc.astype("datetime64[us]"))
        local = column.dt.replace_time_zone("UTC").dt.convert_time_zone(origin.zone)
        if origin.written == NAIVE:
            return local.dt.replace_time_zone(None)
        return local if origin.written is None else local.dt.convert_time_zone(origin.written)
    column = pl.Series(times.astype("datetime64[us]"))
    return column.cast(pl.Date) if origin.time_type == "date" and panel.freq.counts_days else column


def wall_times(panel: Panel, times: Ints) -> NDArray[Any]:
    """Convert times on the panel's clock to what a picture shows: local times without a zone, or integers."""
    column = stamps(panel, times)
    return (column.dt.replace_time_zone(None) if panel.origin.zone else column).to_numpy()
