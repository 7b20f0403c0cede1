"""Times and positions on a grid agree with each other and with pandas."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data.calendar import DAY, Freq, Ints, Step, infer
from logsparse.errors import ConfigError, DataError

SPELLINGS = ["s", "30s", "min", "15min", "h", "6h", "D", "W", "B", "MS", "ME", "QS", "QE", "YS", "YE", "2h", "3", "1"]


def micros(times: pd.DatetimeIndex) -> Ints:
    return times.to_numpy().astype("datetime64[us]").astype(np.int64)


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_freq_reads_back_what_it_writes(text: str) -> None:
    assert Freq.parse(str(Freq.parse(text))) == Freq.parse(text)


@pytest.mark.parametrize("text", ["s", "15min", "h", "D", "W-SUN", "B", "MS", "ME", "QS", "QE", "YS", "YE"])
def test_adding_steps_agrees_with_pandas(text: str) -> None:
    times = micros(pd.date_range("2023-11-30", periods=200, freq=text))
    freq = Freq.parse(text)
    start, steps = np.full_like(times, times[0]), np.arange(200)
    np.testing.assert_array_equal(freq.add(start, steps), times)
    np.testing.assert_array_equal(freq.steps(start, times), steps)


@pytest.mark.parametrize("text", ["s", "15min", "h", "D", "W-SUN", "B", "MS", "ME", "QS", "QE", "YS", "YE"])
def test_the_step_is_inferred_from_regular_times_and_from_times_with_holes(text: str) -> None:
    times = micros(pd.date_range("2023-11-30", periods=60, freq=text))
    holes = np.delete(times, [7, 20, 21, 40])
    for found in (times, holes):
        assert infer(found, np.zeros_like(found), dates=True) == Freq.parse(text)


@given(
    kind=st.sampled_from(["tick", "business", "month"]),
    month_end=st.booleans(),
    count=st.integers(1, 24),
    day=st.integers(-20_000, 40_000),
    second=st.integers(0, 86_399),
    steps=st.integers(0, 5_000),
    late=st.integers(0, 40 * DAY),
)
def test_steps_counts_the_whole_steps_before_any_time(
    kind: Literal["tick", "business", "month"],
    month_end: bool,
    count: int,
    day: int,
    second: int,
    steps: int,
    late: int,
) -> None:
    size = {"tick": count * DAY, "business": 1, "month": count}[kind]
    freq = Freq(kind, size, month_end and kind == "month")
    start = freq.add(np.array([day * DAY + second * 1_000_000]), np.array([0]))
    time = freq.add(start, np.array([steps]))
    assert freq.steps(start, time) == steps
    counted = freq.steps(start, time + late)
    assert freq.add(start, counted) <= time + late < freq.add(start, counted + 1)


def test_a_day_missing_from_a_month_becomes_its_last_day() -> None:
    start = micros(pd.DatetimeIndex(["2024-01-30"]))
    found = Freq.parse("1mo").add(np.repeat(start, 3), np.arange(3))
    assert [Freq.parse("1mo").show(int(time)) for time in found] == ["2024-01-30", "2024-02-29", "2024-03-30"]


@pytest.mark.parametrize(
    ("text", "season"),
    [("s", 3600), ("10s", 360), ("15min", 96), ("10min", 144), ("h", 24), ("D", 7), ("B", 5), ("W", 52), ("MS", 12)],
)
def test_each_step_has_its_usual_season(text: str, season: int) -> None:
    assert Freq.parse(text).season == season


def test_a_rare_gap_does_not_become_the_step() -> None:
    times = np.cumsum(np.array([0] + [60] * 50 + [30]))
    assert infer(times, np.zeros_like(times), dates=False) == Freq("index", 60)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (timedelta(hours=2), "2h"),
        (np.timedelta64(15, "m"), "15min"),
        (pd.Timedelta("1D"), "d"),
        (pd.offsets.Hour(6), "6h"),
        (pd.offsets.MonthEnd(), "ME"),
        (pd.offsets.QuarterBegin(startingMonth=1), "QS"),
        (np.int64(3), "3"),
        ("15m", "15min"),
    ],
)
def test_a_step_may_be_a_timedelta_an_offset_or_a_number_of_numpy(step: Step, text: str) -> None:
    assert str(Freq.parse(step)) == text


@pytest.mark.parametrize("text", ["M", "1M", "3M"])
def test_m_is_refused_since_it_may_be_minutes_or_months(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is ambiguous: minutes or months. Got .*Hint: write 'min' or 'ME'"):
        Freq.parse(text)


@pytest.mark.parametrize("step", ["ms", "500ms", "us", "10ns", timedelta(milliseconds=5), pd.offsets.Milli(2)])
def test_steps_below_a_second_are_refused(step: Step) -> None:
    with pytest.raises(ConfigError, match=r"Steps must be whole seconds. Got .*Hint: round"):
        Freq.parse(step)
    assert Freq.parse("MS") == Freq("month", 1)


def test_times_beyond_64_bits_are_refused() -> None:
    with pytest.raises(DataError, match=r"must fit into 64-bit integers. Got times up to .* Hint: count from"):
        Freq("index", 2**61).add(np.array([0]), np.array([4]))


@pytest.mark.parametrize("freq", ["B", "MS", "100000MS", "YE"])
def test_dates_beyond_64_bits_are_refused_too(freq: str) -> None:
    with pytest.raises(DataError, match=r"must fit into 64-bit integers. Got times up to .* Hint: count from"):
        Freq.parse(freq).add(np.array([0]), np.array([10**12]))


@pytest.mark.parametrize(
    ("step", "text"),
    [(np.timedelta64(3600 * 10**9, "ns"), "h"), (np.timedelta64(2, "W"), "2w"), (np.timedelta64(5, ("s", 30)), "150s")],
)
def test_a_timedelta_of_numpy_is_counted_exactly(step: Step, text: str) -> None:
    assert str(Freq.parse(step)) == text
    with pytest.raises(ConfigError, match="Steps must be whole seconds"):
        Freq.parse(np.timedelta64(10**9 + 5, "ns"))


def test_fractions_of_a_second_are_shown() -> None:
    assert Freq.parse("s").show(1_500_000) == "1970-01-01 00:00:01.5"
    assert str(Freq("tick", 500_000)) == "0.5s"


def test_an_unknown_step_is_refused_with_examples() -> None:
    odd: list[Any] = ["fortnight", "0h", "2B", "-1", "²", "SM", True, 1.5, pd.offsets.BusinessDay(2), timedelta(0)]
    odd += [pd.offsets.SemiMonthEnd(), "9999999999999999999h", None, "", "5-SUN", "-SUN", b"h", [1], np.array([1, 2])]
    odd += ["9" * 5000, "9" * 5000 + "h", 10**5000, -(10**5000), float("nan"), "\ud800", timedelta.max]
    odd += [np.timedelta64(1, "Y"), np.timedelta64(1, "M"), np.timedelta64("NaT", "s"), np.timedelta64(2**60, "D")]
    odd += ["4611686018427387904MS", "119989MS", "1000000000000000000YS"]
    for text in odd:
        with pytest.raises(ConfigError, match=r"freq must be a number and a unit.*Got .*Hint: use for example"):
            Freq.parse(text)
