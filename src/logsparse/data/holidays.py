"""Country, dates or frame -> holidays as texts -> days; for every day, what holidays are near and which days are alike.

A holiday is rarely seen, but it resembles a day that is seen every week, mostly a Sunday. So each holiday counts as a
day of that weekday: `Holidays.alike` finds the last days of the same kind, and their values are inputs of a network.
Days are counted from 1970, in local time.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import ConfigError, shown, suggest
from logsparse.storage import entries, require, texts, whole_number

Ints = NDArray[np.int64]

FLAGS = ("holiday", "day_before_holiday", "day_after_holiday", "long_weekend")
"""Calendar features of a model with holidays."""
AUTO = "auto"
"""Asks for the days of the year on which the data broke their weekly rhythm."""
SUNDAY = 6
# Holidays are kept for so many years after the data end: a saved model needs no package to know them.
_YEARS_AHEAD = 20
# Deviations of the median series from its weekly rhythm that count as a break.
_BROKEN, _CLEARLY = 2.0, 4.0
# A calendar is recognised if so many of its holidays break the rhythm by chance less than once in 10^8: 900 calendars
# are tried, and data without a weekly rhythm reach 10^2 (docs/RECIPE.md).
_CHANCE = -8.0
# At least half of its holidays must break it, and a third of the breaks must be holidays: paydays break it, too.
_SHARE, _EXPLAINED = 1 / 2, 1 / 3
# A region is taken for its country if its chance is 10^2 times lower: one day that broke by chance brings 10^1.5.
_CLEARER = 2.0
# Years that are compared: calendars before and after are guesses.
_KNOWN = (1950, 2100)
# Standard deviation of normal values whose median distance from their median is 1.
_DEVIATION = 1.4826
_EPOCH = date(1970, 1, 1)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{1,2}:[0-9]{2}")
_YEARLY = re.compile(r"[0-9]{2}-[0-9]{2}")
_CODE = re.compile(r"[A-Z]{2}(-[A-Z0-9]{1,4})?")


@dataclass(frozen=True)
class Holidays:
    """Days that are holidays, in ascending order, and the weekday that they are like (0 is Monday)."""

    days: tuple[int, ...]
    like: int = SUNDAY

    @cached_property
    def _days(self) -> Ints:
        return np.array(self.days, np.int64)

    def has(self, day: Ints) -> NDArray[np.bool_]:
        """Return True for holidays."""
        return np.isin(day, self._days)

    def kind(self, day: Ints) -> Ints:
        """Return the weekday, 0 to 6; that of a holiday is the one it is like."""
        return np.where(self.has(day), self.like, weekday(day))

    def feature(self, name: str, day: Ints) -> Ints:
        """Return the weekday as `kind`, or one of FLAGS as 0 or 1.

        A long weekend has three free days or more, where a working day between two free ones counts as free.
        """
        if name == "weekday":
            return self.kind(day)
        flags = {
            "holiday": self.has,
            "day_before_holiday": lambda day: self.has(day + 1) & ~self.has(day),
            "day_after_holiday": lambda day: self.has(day - 1) & ~self.has(day),
            "long_weekend": self._in_long_weekend,
        }
        return flags[name](day).astype(np.int64)

    def _in_long_weekend(self, day: Ints) -> NDArray[np.bool_]:
        first = int(day.min()) - 7
        free = self._free(np.arange(first, int(day.max()) + 8))
        free[1:-1] |= free[:-2] & free[2:]
        three = free[:-2] & free[1:-1] & free[2:]
        within = np.zeros(len(free), bool)
        for shift in range(3):
            within[shift : shift + len(three)] |= three
        return np.asarray(within[day - first])

    def _free(self, day: Ints) -> NDArray[np.bool_]:
        return self.has(day) | (weekday(day) >= 5)

    def alike(self, day: Ints, nearest: int, count: int) -> Ints:
        """Return (count, *day.shape): how many days back the last days of the same kind are, `nearest` at least.

        0 where there is no such day in `looked_back` days.
        """
        most = nearest + looked_back(count)
        first = int(day.min()) - most
        kind_D = self.kind(np.arange(first, int(day.max()) + 1))
        back_KD = np.zeros((count, len(kind_D)), np.int64)
        found_D = np.zeros(len(kind_D), np.int64)
        for back in range(nearest, most + 1):
            same_D = np.zeros(len(kind_D), bool)
            same_D[back:] = kind_D[back:] == kind_D[: len(kind_D) - back]
            same_D &= found_D < count
            back_KD[found_D[same_D], np.flatnonzero(same_D)] = back
            found_D += same_D
        return back_KD[:, day - first]

    def to_dict(self) -> dict[str, Any]:
        """Return dates as texts and the weekday, ready for JSON."""
        return {"dates": [(_EPOCH + timedelta(day)).isoformat() for day in self.days], "like": self.like}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Validate and load the output of `to_dict`."""
        entries("features/holidays", state, "dates", "like")
        dates = texts("features/holidays/dates", state["dates"])
        require("features/holidays/dates", "dates such as 2024-12-25", dates, holds=all(map(_DATE.fullmatch, dates)))
        days = sorted({(date.fromisoformat(text) - _EPOCH).days for text in dates})
        return cls(tuple(days), whole_number("features/holidays/like", state["like"], 0, 6))


def looked_back(count: int) -> int:
    """Return the number of days among which `count` days of one kind are looked for."""
    return 7 * (count + 2)


def weekday(day: Ints | np.int64) -> Ints:
    """Return 0 for Monday to 6 for Sunday."""
    return np.asarray((day + 3) % 7)  # 1970-01-01 was a Thursday


def holiday_texts(value: Any) -> tuple[str, ...]:
    """Return countries and dates as texts: "DE", "DE-BY", "auto", "12-25", "2024-12-25", "2024-12-25 Christmas".

    Parameters
    ----------
    value
        A country code, a list of codes and dates, or a frame: its column of dates is read, and that of names if it has
        one ("name" or "holiday").

    Raises
    ------
    ConfigError
        For anything else.
    """
    if value is None:
        return ()
    if isinstance(value, (str, date, np.datetime64)):
        value = [value]
    elif hasattr(value, "columns"):
        return tuple(dict.fromkeys(_rows(value)))
    elif not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise _refused(value)
    return tuple(dict.fromkeys(_text(entry) for entry in value))


def _text(entry: Any) -> str:
    if not isinstance(entry, str):
        return _date(entry)
    text = entry.strip()
    yearly = _YEARLY.fullmatch(text) and _exists(f"2024-{text}")
    if text == AUTO or yearly or _CODE.fullmatch(text):
        return text
    # A time of day, as texts of dates often have one, is no name.
    named = text[10:11] == " " and not _TIME.match(text[11:])
    return f"{_date(text[:10])} {text[11:]}" if named else _date(text[:10])


def _date(entry: Any) -> str:
    """Return the day as written: that of a time with a zone is the day of that zone."""
    try:
        if isinstance(entry, str):
            day = date.fromisoformat(entry)
        elif isinstance(entry, datetime):
            day = entry.date()
        else:
            day = entry.astype("datetime64[D]").item() if isinstance(entry, np.datetime64) else entry
    except (TypeError, ValueError) as error:
        raise _refused(entry) from error
    text = day.isoformat() if isinstance(day, date) else ""
    if not _DATE.fullmatch(text):  # a number, NaT or nothing
        raise _refused(entry)
    return text


def _rows(frame: Any) -> list[str]:
    """Return date and name of each row of a frame of any library."""
    import narwhals.stable.v2 as nw

    table = nw.from_native(frame, eager_only=True)
    columns = {name: table[name].to_list() for name in table.columns}
    dated = next((name for name, column in columns.items() if column and _is_date(column[0])), None)
    if dated is None:
        first = ", ".join(f"{name} {shown(column[0])}" for name, column in columns.items() if column)
        raise ConfigError(
            "A table of holidays must have a column of dates.",
            got=f"a first row of {first}" if first else "a table without rows",
            hint="write dates as 2024-12-25, or pass a column of dates.",
        )
    days = [_day_of(entry, row, dated) for row, entry in enumerate(columns[dated], start=1)]
    named = next((columns[name] for name in ("name", "holiday") if name in columns and name != dated), None)
    return days if named is None else [f"{day} {name}" for day, name in zip(days, named, strict=True)]


def _day_of(entry: Any, row: int, column: str) -> str:
    if not _is_date(entry):
        raise ConfigError(
            "Every row of a table of holidays must have a date.",
            got=f"{shown(entry)} in row {row} of column {column!r}",
            hint="write dates as 2024-12-25, and remove rows without one.",
        )
    return _text(entry)[:10]


def _is_date(entry: Any) -> bool:
    try:
        return len(_text(entry)) >= len("2024-12-25")
    except ConfigError:
        return False


def _refused(value: object) -> ConfigError:
    return ConfigError(
        "holidays must be a country code, dates, or auto.",
        got=shown(value),
        hint='write holidays="DE", "DE-BY", ["12-24", "12-31"] for every year, ["2024-12-25"], or [] for none.',
    )


def resolved(given: Sequence[str], first: int, last: int) -> dict[int, str]:
    """Return days and their names, for countries from the year of day `first` to years after day `last`.

    A date without a name is named by itself.
    """
    years = range(_year(first), _year(last) + _YEARS_AHEAD + 1)
    names: dict[int, str] = {}
    for entry in given:
        if _CODE.fullmatch(entry):
            found = _of_country(entry, years)
        elif _YEARLY.fullmatch(entry):
            found = {date.fromisoformat(f"{year}-{entry}"): entry for year in years if _exists(f"{year}-{entry}")}
        else:
            found = {date.fromisoformat(entry[:10]): entry[11:] or entry}
        names |= {(day - _EPOCH).days: name for day, name in found.items()}
    return dict(sorted(names.items()))


def _exists(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:  # 29 February
        return False
    return True


def _year(day: int) -> int:
    return int(np.datetime64(day, "D").astype("datetime64[Y]").astype(np.int64)) + _EPOCH.year


def _of_country(entry: str, years: range) -> dict[date, str]:
    import holidays

    code, _, part = entry.partition("-")
    known = holidays.list_supported_countries(include_aliases=False)
    if code not in known:
        hint = suggest(code, known, "see holidays.list_supported_countries(), or give the dates themselves.")
        raise ConfigError("holidays must name a country by its two letters.", got=repr(entry), hint=hint)
    if part and part not in known[code]:
        hint = f"its regions are {', '.join(known[code])}." if known[code] else f"write {code!r}."
        raise ConfigError(f"holidays must name a region of {code}.", got=repr(entry), hint=hint)
    return _calendar(code, part or None, years)


def _calendar(country: str, region: str | None, years: range) -> dict[date, str]:
    import holidays

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of calendars that do not know all years
        return dict(holidays.country_holidays(country, subdiv=region, years=years))


def breaks(value_SD: NDArray[np.float64], first: int) -> tuple[Ints, NDArray[np.float64]]:
    """Return days, and how far most series were from their weekly rhythm on each, in deviations; NaN where unknown.

    `value_SD` are daily means from day `first` on, NaN where a series has no value. The rhythm of a day is the median
    of the same weekday in the four weeks before and after it. A series that never leaves it, such as one of zeros, says
    nothing; any break of one that keeps it on most days exactly, as opening hours do, is a clear one.
    """
    day_D = first + np.arange(value_SD.shape[1])
    padded_SE = np.pad(value_SD, ((0, 0), (28, 28)), constant_values=np.nan)
    around = [padded_SE[:, 28 + back : 28 + back + len(day_D)] for back in range(-28, 29, 7) if back]
    apart_SD = value_SD - _median(np.stack(around))
    usual_S1 = _median(np.abs(apart_SD).T)[:, None] * _DEVIATION
    exact_SD = np.where((apart_SD != 0).any(axis=1, keepdims=True), 2 * _CLEARLY * np.sign(apart_SD), np.nan)
    return day_D, np.abs(_median(np.where(usual_S1 > 0, apart_SD / np.where(usual_S1 > 0, usual_S1, 1), exact_SD)))


def _median(value_NX: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of the first axis without NaNs; NaN, and no warning as by numpy's own, where there is none."""
    sorted_NX = np.sort(value_NX, axis=0)
    count_X = np.maximum((~np.isnan(value_NX)).sum(0, keepdims=True), 1)
    middle = [np.take_along_axis(sorted_NX, place_X, 0)[0] for place_X in ((count_X - 1) // 2, count_X // 2)]
    return np.asarray((middle[0] + middle[1]) / 2)


def country_of(day_D: Ints, score_D: NDArray[np.float64]) -> str | None:
    """Return the country, or a region of it, on whose holidays these days broke their weekly rhythm.

    Monday to Friday are compared with every calendar of the package `holidays`. None if what fits may be chance. Of
    calendars that fit equally, that of a whole country is taken, and of these that with the most regions: holidays that
    fall on weekends in all years do not tell a region from another country, and some territories share their holidays.
    """
    import holidays

    known_D = ~np.isnan(score_D) & (weekday(day_D) < 5)
    days, broken = set(day_D[known_D].tolist()), set(day_D[known_D & (score_D >= _BROKEN)].tolist())
    # Even if every one of so few were a holiday, and no other day, that could be chance.
    if _log_chance(len(broken), len(days), len(broken), len(broken)) > _CHANCE:
        return None
    years = range(max(_year(min(days)), _KNOWN[0]), min(_year(max(days)), _KNOWN[1]) + 1)

    def chance(country: str, region: str | None) -> float:
        free = {(day - _EPOCH).days for day in _calendar(country, region, years)} & days
        hits = len(free & broken)
        fits = hits >= max(_SHARE * len(free), _EXPLAINED * len(broken), 1)
        return _log_chance(hits, len(days), len(broken), len(free)) if fits else 0.0

    found = []
    for country, regions in holidays.list_supported_countries(include_aliases=False).items():
        whole = chance(country, None)
        # Some regions have long names, which no setting can hold.
        coded = [region for region in regions if _CODE.fullmatch(f"{country}-{region}")]
        best, region = min([(chance(country, region), region) for region in coded], default=(0.0, ""))
        clearer = best < whole - _CLEARER
        found.append((min(best, whole), clearer, -len(regions), f"{country}-{region}" if clearer else country))
    best, _, _, name = min(found)
    return name if best <= _CHANCE else None


def _log_chance(hits: int, days: int, broken: int, free: int) -> float:
    """Return the logarithm of 10 of the chance that at least `hits` of `free` random days are among the broken ones."""

    def ways(of: int, some: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)

    most, every = min(broken, free), ways(days, free)
    each = [
        ways(broken, k) + ways(days - broken, free - k) - every
        for k in range(hits, most + 1)
        if free - k <= days - broken
    ]
    return float(np.logaddexp.reduce(each)) / math.log(10) if each else 0.0


def yearly_breaks(day_D: Ints, score_D: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the days of the year, such as 12-25, on which most series broke their weekly rhythm year after year.

    Every year must agree, where a weekend says nothing: the rhythm is broken in two years at least, or clearly in one,
    next to a day with two.
    """
    years: dict[str, list[tuple[float, bool]]] = {}
    for day, score, weekend in zip(day_D.tolist(), score_D.tolist(), (weekday(day_D) >= 5).tolist(), strict=True):
        if not math.isnan(score):
            years.setdefault((_EPOCH + timedelta(day)).isoformat()[5:], []).append((score, weekend))
    agreed = {name: scores for name, scores in years.items() if len(scores) >= 2 and _agree(scores)}
    found = {name for name, scores in agreed.items() if sum(score >= _BROKEN for score, _ in scores) >= 2}
    clear = {name for name, scores in agreed.items() if max(scores)[0] >= _CLEARLY}
    while more := {name for name in clear - found if not found.isdisjoint(_neighbours(name))}:
        found |= more
    return tuple(sorted(found))


def _agree(scores: Sequence[tuple[float, bool]]) -> bool:
    """Return True if a day of the year broke the rhythm in every year in which it was no weekend."""
    return all(score >= _BROKEN or weekend for score, weekend in scores)


def _neighbours(name: str) -> set[str]:
    """Return the days of the year before and after this one."""
    day = date.fromisoformat(f"2024-{name}")
    return {(day + timedelta(step)).isoformat()[5:] for step in (-1, 1)}
