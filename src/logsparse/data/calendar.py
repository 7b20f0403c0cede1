"""Times <-> positions on a regular grid: steps of seconds to years, month ends, business days, plain integers.

Inside the library, a time is an int64 on the *clock* of its panel: microseconds since 1970 for dates, the number
itself for integer times. Time zones are converted when data are read (data/times): local time for steps of whole days,
UTC for finer steps, so that a daylight-saving change is neither a gap nor a duplicate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import ConfigError, DataError, is_whole, shown

Ints = NDArray[np.int64]

SECOND = 1_000_000
DAY = 86_400 * SECOND
_TICKS = {"s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY, "w": 7 * DAY}
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_NANOSECONDS |= {"D": 86_400 * 10**9, "W": 7 * 86_400 * 10**9}
_MONTHS = {"mo": 1, "q": 3, "y": 12}
# Spellings of pandas and polars; anchors such as the SUN of W-SUN follow from the data.
_SPELLINGS = {
    "t": "min",
    "m": "min",  # as polars writes it; M, which pandas used for months, is refused
    "me": "mo",
    "ms": "mo",
    "qe": "q",
    "qs": "q",
    "ye": "y",
    "ys": "y",
    "a": "y",
}
# Case matters: MS is the start of a month.
_BELOW_SECONDS = ("ms", "us", "ns", "L", "U", "N")
# Times and their differences must fit into 64 bits.
FARTHEST = 2**62
# All years that a date can have.
_MOST_MONTHS = 12 * 9999
# The step is the smallest gap with at least this share of all gaps: rarer gaps are errors in the data.
_STEP_SHARE = 0.1


class Offset(Protocol):
    """A pandas offset."""

    @property
    def freqstr(self) -> str: ...


Step = str | int | timedelta | np.timedelta64 | Offset


@dataclass(frozen=True)
class Freq:
    """The step of a grid; `month_end` pins steps of months to the last day."""

    kind: Literal["index", "tick", "business", "month"]
    count: int
    month_end: bool = False

    @classmethod
    def parse(cls, asked: Step) -> Freq:
        """Parse `15min`, `h`, `D`, `B`, `W`, `MS`, `ME`, `1y`, ..., a timedelta, or an integer for integer times."""
        if isinstance(asked, (timedelta, np.timedelta64)):
            return cls._ticks(_exactly(asked), asked)
        if is_whole(asked):
            count, unit, text = int(cast(int, asked)), "index", ""
        else:
            text = _spelled(asked)
            # At most 19 digits: Python refuses to parse thousands of them.
            match = re.fullmatch(r"([0-9]{0,19})(?:([A-Za-z]+)(?:-[A-Za-z]+)?)?", text)
            count, written = (int(match[1] or 1), match[2] or "") if match and text else (0, "")
            if written == "M":
                raise ConfigError(
                    "freq='M' is ambiguous: minutes or months.",
                    got=shown(asked),
                    hint="write 'min' or 'ME' (month ends).",
                )
            if written in _BELOW_SECONDS:
                raise _whole_seconds(asked)
            unit = _SPELLINGS.get(written.lower(), written.lower()) or "index"
        most = _MOST_MONTHS // _MONTHS[unit] if unit in _MONTHS else FARTHEST // _TICKS.get(unit, 1)
        if not 1 <= count <= most or (unit == "b" and count > 1):
            unit = "?"
        if unit in _TICKS:
            return cls._ticks(count * _TICKS[unit], asked)
        if unit in _MONTHS:
            return cls("month", count * _MONTHS[unit], re.search(r"[mqy]e(-|$)", text.lower()) is not None)
        if unit not in ("b", "index"):
            raise _no_step(asked)
        return cls("business" if unit == "b" else "index", count)

    @classmethod
    def _ticks(cls, count: int | Fraction, asked: Step) -> Freq:
        if not 1 <= count <= FARTHEST:
            raise _no_step(asked)
        if count % SECOND:
            raise _whole_seconds(asked)
        return cls("tick", int(count))

    def __str__(self) -> str:
        """Return the shortest spelling that `parse` reads back."""
        if self.kind == "index":
            return str(self.count)
        if self.kind == "business":
            return "B"
        if self.kind == "month":
            size, name = next((size, n) for n, size in (("Y", 12), ("Q", 3), ("M", 1)) if self.count % size == 0)
            return f"{self._times(self.count // size)}{name}{'E' if self.month_end else 'S'}"
        for unit in ("w", "d", "h", "min", "s"):
            if self.count % _TICKS[unit] == 0:
                return f"{self._times(self.count // _TICKS[unit])}{unit}"
        return f"{self.count / SECOND:g}s"  # only for the message that refuses it

    @staticmethod
    def _times(count: int) -> str:
        return "" if count == 1 else str(count)

    @property
    def counts_days(self) -> bool:
        """True if a step is made of whole days."""
        return self.kind in ("business", "month") or (self.kind == "tick" and self.count % DAY == 0)

    @property
    def divides_day(self) -> bool:
        """True if a whole number of steps makes a day of 24 hours."""
        return self.kind == "tick" and DAY % self.count == 0

    @property
    def season(self) -> int:
        """Default season in steps: a day of hours or minutes, a week of days, a year of months."""
        if self.kind == "month":
            return max(1, 12 // self.count)
        if self.kind == "business":
            return 5
        if self.kind == "index":
            return 1
        # Upper bound of the step -> period: seconds per hour, minutes and hours per day, days per week, weeks per year.
        below = {60 * SECOND: 3600 * SECOND, DAY: DAY, 7 * DAY: 7 * DAY, 365 * DAY: 364 * DAY}
        period = next((period for limit, period in below.items() if self.count < limit), 0)
        return period // self.count if period and period % self.count == 0 else 1

    def add(self, start: Ints, steps: Ints) -> Ints:
        """Return the time `steps` steps after `start`."""
        # A month has at most 31 days, and five business days span at most nine: no sum below can overflow.
        longest = {"index": self.count, "tick": self.count, "business": 2 * DAY, "month": 31 * DAY * self.count}
        farthest = longest[self.kind] * _extent(steps) + _extent(start)
        if farthest > 2 * FARTHEST - 1:
            raise DataError(
                "Times must fit into 64-bit integers.",
                got=f"times up to {farthest:.3g} with steps of {self}",
                hint="count from a later start, or in larger units.",
            )
        if self.kind in ("index", "tick"):
            return np.asarray(start + steps * self.count)
        day, rest = np.divmod(start, DAY)
        if self.kind == "business":
            moved = np.busday_offset(day.astype("datetime64[D]"), steps, roll="forward")
            return np.asarray(moved.astype(np.int64) * DAY + rest)
        month = _months(start) + steps * self.count
        last = _first_day(month + 1) - 1
        target = last if self.month_end else np.minimum(_first_day(month) + _day_of_month(start), last)
        return np.asarray(target * DAY + rest)

    def steps(self, start: Ints, time: Ints) -> Ints:
        """Return the number of whole steps from `start` to `time`: the largest k with add(start, k) <= time."""
        if self.kind in ("index", "tick"):
            return np.asarray((time - start) // self.count)
        if self.kind == "business":
            weekday = np.busday_offset((time // DAY).astype("datetime64[D]"), 0, roll="backward")
            first = np.busday_offset((start // DAY).astype("datetime64[D]"), 0, roll="forward")
            steps = np.busday_count(first, weekday).astype(np.int64)
        else:
            steps = (_months(time) - _months(start)) // self.count
        return np.asarray(steps - (self.add(start, steps) > time))

    def restart(self, start: int, late: int) -> int:
        """Return the last step up to `late` at which a grid can restart: from January 31, not February 29."""
        if self.kind == "month" and not self.month_end:
            day = _day_of_month(np.array([start]))
            while (_day_of_month(self.add(np.array([start]), np.array([late]))) != day).any():
                late -= 1
        return late

    def show(self, time: int) -> str:
        """Format a time on the clock for messages."""
        if self.kind == "index":
            return str(time)
        text = str(np.datetime64(int(time), "us")).replace("T", " ").removesuffix(".000000")
        return text.rstrip("0") if "." in text else text.removesuffix(" 00:00:00").removesuffix(":00")


def _exactly(asked: timedelta | np.timedelta64) -> Fraction:
    """Return exact microseconds: numpy's own conversion overflows silently."""
    if isinstance(asked, timedelta):
        return Fraction(asked // timedelta(microseconds=1))
    unit, multiple = np.datetime_data(asked.dtype)
    if np.isnat(asked) or unit not in _NANOSECONDS:  # years and months of numpy have no length
        return Fraction(0)
    return Fraction(int(asked.astype(np.int64)) * multiple * _NANOSECONDS[unit], 1000)


def _spelled(asked: object) -> str:
    try:
        return str(getattr(asked, "freqstr", asked)).strip()
    except Exception as error:
        raise _no_step(asked) from error


def _no_step(asked: object) -> ConfigError:
    return ConfigError(
        "freq must be a number and a unit: s, min, h, D, B, W, MS, ME, QS, QE, YS, YE, or an integer.",
        got=shown(asked),
        hint="use for example freq='15min', freq='D' or freq='ME'.",
    )


def _whole_seconds(asked: object) -> ConfigError:
    return ConfigError("Steps must be whole seconds.", got=shown(asked), hint="round the times, or use integer times.")


def infer(times: Ints, series: Ints, *, dates: bool) -> Freq | None:
    """Infer the most common step from times sorted by series and time; None if no series has two times."""
    within = series[1:] == series[:-1]
    gaps = np.diff(times)[within]
    if gaps.size == 0:
        return None
    if not dates:
        return Freq("index", _common(gaps))
    if gaps.min() >= 28 * DAY and (month := _infer_months(times, within)):
        return month
    step = _common(gaps)
    weekday = (times // DAY + 3) % 7
    if step == DAY and weekday.max() < 5 and gaps.max() > DAY:
        return Freq("business", 1)
    return Freq("tick", step)


def clock_went_back(repeated: Ints) -> bool:
    """Return True if times repeat as local times do: in the first hours of at most one day per half of a year."""
    days = np.unique(repeated // DAY).astype("datetime64[D]")
    months = days.astype("datetime64[M]").astype(np.int64)
    changes = np.isin(months % 12, (2, 3, 8, 9, 10)).all() and len(np.unique(months // 6)) == len(days)
    return bool(changes and (repeated % DAY < 4 * 3600 * SECOND).all())


def every_other_business_day(times: Ints, series: Ints) -> bool:
    """Return True if steps of two days skip every weekend: pandas' 2B, which is not supported."""
    gaps = np.diff(times)[series[1:] == series[:-1]]
    weekday = (times // DAY + 3) % 7
    return bool(gaps.size >= 4 and weekday.max() < 5 and set(np.unique(gaps).tolist()) == {2 * DAY, 4 * DAY})


def _infer_months(times: Ints, within: NDArray[np.bool_]) -> Freq | None:
    months = _months(times)
    day, rest = np.divmod(times, DAY)
    gaps = np.diff(months)[within]
    if np.ptp(rest) or not gaps.all():
        return None
    if (day == _first_day(months + 1) - 1).all():
        return Freq("month", _common(gaps), month_end=True)
    if np.ptp(_day_of_month(times)) == 0:
        return Freq("month", _common(gaps))
    return None


def _common(gaps: Ints) -> int:
    if gaps.min() == gaps.max():
        return int(gaps[0])
    sizes, counts = np.unique(gaps, return_counts=True)
    frequent = counts >= _STEP_SHARE * gaps.size
    return int(sizes[frequent].min() if frequent.any() else sizes[counts.argmax()])


def _extent(numbers: Ints) -> int:
    array = np.asarray(numbers)
    return max(int(array.max(initial=0)), -int(array.min(initial=0)))


def _months(time: Ints) -> Ints:
    return time.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _first_day(month: Ints) -> Ints:
    return month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _day_of_month(time: Ints) -> Ints:
    """Return the day of the month, counted from 0."""
    return np.asarray(time // DAY - _first_day(_months(time)))
