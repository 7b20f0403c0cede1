"""Times as people have them: any text, local times over both changes of the clock, offsets that change."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logsparse as ls
from logsparse.data.frame import to_panel
from logsparse.errors import ConfigError, DataError

BERLIN = "Europe/Berlin"
# Zone -> the two changes of a year, as local dates; some at midnight, some of half an hour, some in the south.
CHANGES = {
    BERLIN: ("2024-03-31", "2024-10-27"),
    "America/New_York": ("2024-03-10", "2024-11-03"),
    "Australia/Lord_Howe": ("2024-10-06", "2024-04-07"),
    "America/Santiago": ("2024-09-08", "2024-04-07"),
    "Africa/Cairo": ("2024-04-26", "2024-10-31"),
    "America/Havana": ("2024-03-10", "2024-11-03"),
}


def instants(zone: str, around: str, *, hours: int = 96, minutes: int = 60) -> pd.DatetimeIndex:
    """Every `minutes` for `hours` around a date, in the zone."""
    middle = pd.Timestamp(f"{around}T12:00", tz=zone).tz_convert("UTC")
    times = pd.date_range(middle - pd.Timedelta(hours=hours // 2), periods=hours * 60 // minutes, freq=f"{minutes}min")
    return times.tz_convert(zone)


def local(times: pd.DatetimeIndex, **columns: Any) -> pd.DataFrame:
    """The local times as a meter writes them: without a zone."""
    return pd.DataFrame({"unique_id": "a", "ds": times.tz_localize(None), "y": np.arange(float(len(times))), **columns})


def micros(times: pd.DatetimeIndex) -> list[int]:
    return [int(time) for time in times.tz_convert("UTC").tz_localize(None).astype("datetime64[us]").astype(np.int64)]


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(sorted(CHANGES)),
    spring=st.booleans(),
    minutes=st.sampled_from([15, 30, 60]),
    layout=st.sampled_from(["long", "reversed", "interleaved", "wide"]),
    ends=st.integers(0, 30),
)
def test_local_times_are_the_instants_they_were_over_both_changes_of_the_clock(
    zone: str, spring: bool, minutes: int, layout: str, ends: int
) -> None:
    times = instants(zone, CHANGES[zone][not spring], minutes=minutes)
    times = times[: len(times) - ends]
    frame = local(times)
    if layout == "reversed":
        frame = frame[::-1]
    elif layout == "interleaved":
        other = frame.assign(unique_id="b")
        frame = pd.concat([frame, other]).sort_index(kind="stable")
    elif layout == "wide":
        frame = frame[["ds", "y"]].rename(columns={"y": "a"})
    panel = to_panel(frame, tz=zone)
    assert panel.starts.tolist() == [micros(times)[0]] * len(panel)
    for series in range(len(panel)):
        assert panel[series].tolist() == list(range(len(times)))
    # What is forecast continues the same clock, and can be read again.
    horizon = 40
    after = pd.date_range(times[-1], periods=horizon + 1, freq=f"{minutes}min")[1:]
    forecast = ls.SeasonalNaive(horizon, season=1).fit(frame, tz=zone).predict()
    assert forecast["ds"].tolist()[:horizon] == after.tz_localize(None).tolist()
    again = to_panel(forecast, target_col="mean", tz=zone)
    assert again.starts[0] == micros(after)[0]
    assert again.lengths[0] == horizon


@settings(max_examples=40, deadline=None)
@given(zone=st.sampled_from(sorted(CHANGES)), spring=st.booleans(), given_in=st.sampled_from(sorted(CHANGES)))
def test_offsets_that_change_and_other_zones_are_the_same_instants(zone: str, spring: bool, given_in: str) -> None:
    times = instants(zone, CHANGES[zone][not spring])
    text = pl.DataFrame({"unique_id": "a", "ds": [time.isoformat() for time in times], "y": 1.0})
    assert text["ds"].str.slice(-6).n_unique() == 2
    objects = pd.DataFrame({"unique_id": "a", "ds": pd.Series(list(times.to_pydatetime()), dtype=object), "y": 1.0})
    elsewhere = pd.DataFrame({"unique_id": "a", "ds": times.tz_convert(given_in), "y": 1.0})
    for data in (text, objects, elsewhere):
        for named in (None, zone):
            panel = to_panel(data, tz=named)
            assert (panel.starts.tolist(), panel.lengths.tolist()) == ([micros(times)[0]], [len(times)])
            assert not np.isnan(panel.values).any()
            assert named is None or panel.origin.zone == zone
    assert to_panel(text).origin.zone == "UTC"


def test_a_quarter_missing_in_the_hour_that_comes_twice_moves_no_other() -> None:
    times = instants(BERLIN, CHANGES[BERLIN][1], minutes=15)
    twice = [place for place, time in enumerate(times) if f"{time:%d %H}" == "27 02"]
    assert len(twice) == 8
    for lost in twice:
        kept = local(times.delete(lost))
        for frame in (kept, kept[::-1]):
            values = to_panel(frame, tz=BERLIN)[0]
            assert np.flatnonzero(np.isnan(values)).tolist() == [lost]
    by_time = local(times).sort_values("ds", kind="stable")
    assert to_panel(by_time, tz=BERLIN)[0].tolist() == list(range(len(times)))


def test_an_hour_written_once_in_autumn_is_summer_time_and_the_other_is_missing() -> None:
    frame = local(instants(BERLIN, CHANGES[BERLIN][1])).drop_duplicates("ds")
    values = to_panel(frame, tz=BERLIN)[0]
    assert np.flatnonzero(np.isnan(values)).tolist() == [int(np.argmax(frame["ds"] == "2024-10-27 02:00")) + 1]


def test_an_hour_written_three_times_is_refused() -> None:
    frame = local(instants(BERLIN, CHANGES[BERLIN][1]))
    third = frame[frame["ds"] == "2024-10-27 02:00"].tail(1)
    with pytest.raises(DataError, match=r"must have one row per time.*2024-10-27 02:00\+01:00"):
        to_panel(pd.concat([frame, third]), tz=BERLIN)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["01.02.2024 00:00", "01.02.2024 01:00"], {"dayfirst": True}),
        (["1.2.2024 0:00", "1.2.2024 1:00"], {"dayfirst": True}),
        (["01/02/2024 00:00:00", "01/02/2024, 01:00:00"], {"dayfirst": True}),
        (["02/01/2024 00:00", "02/01/2024 01:00"], {"dayfirst": False}),
        (["01.02.24 00:00", "01.02.24 01:00"], {"time_format": "%d.%m.%y %H:%M"}),
        (["2/1/2024 12:00 AM", "2/1/2024 1:00 AM"], {"time_format": "%m/%d/%Y %I:%M %p"}),
        (["01.02.2024 00", "01.02.2024 01"], {"time_format": "%d.%m.%Y %H"}),
        (["2024-02-01T00:00", "2024-02-01T01:00"], {"dayfirst": True}),
    ],
)
def test_times_of_any_form_are_read_when_asked(texts: list[str], said: Any, tmp_path: Path) -> None:
    path = tmp_path / "meters.csv"
    path.write_text("zeit;a\n" + "".join(f"{text};{number},5\n" for number, text in enumerate(texts)))
    frame = pl.DataFrame({"unique_id": "a", "ds": texts, "y": [0.5, 1.5]})
    for panel in (to_panel(path, **said), to_panel(path, time_col="zeit", **said), to_panel(frame, **said)):
        assert (panel.freq.show(int(panel.starts[0])), str(panel.freq)) == ("2024-02-01", "h")
        assert panel[0].tolist() == [0.5, 1.5]


def test_dates_written_as_whole_numbers_are_dates_when_their_form_is_named(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("unique_id,ds,y\na,20240228,1\na,20240229,2\na,20240301,3\n")
    panel = to_panel(path, time_format="%Y%m%d")
    assert (str(panel.freq), panel.lengths.tolist(), panel.origin.time_type) == ("d", [3], "date")


@pytest.mark.parametrize("columns", [{}, {"time_col": "zeit"}])
def test_day_first_text_that_was_not_asked_for_is_refused_with_its_column_and_both_options(
    columns: Any, tmp_path: Path
) -> None:
    path = tmp_path / "meters.csv"
    path.write_text("zeit;a;b\n01.01.2024 00:00;1;2\n01.01.2024 01:00;1;2\n")
    with pytest.raises(DataError, match=r"'zeit'.*'01.01.2024 00:00'.*dayfirst=True.*time_format="):
        to_panel(path, **columns)


def test_formats_and_zones_are_checked_before_data_are_read() -> None:
    wrong: list[tuple[str, Any]] = [("time_format", "day"), ("time_format", 3), ("tz", ""), ("tz", 3)]
    for name, value in (*wrong, ("dayfirst", "yes")):
        with pytest.raises(ConfigError, match=name):
            to_panel("nowhere.csv", **{name: value})
    with pytest.raises(
        ConfigError, match=r"offset of whole hours. Got '.05:30'. Hint: name the zone, such as 'Asia/Ko"
    ):
        to_panel("nowhere.csv", tz="+05:30")
    with pytest.raises(ConfigError, match="time_format already says which number is the day"):
        to_panel("nowhere.csv", time_format="%d.%m.%Y", dayfirst=True)


@pytest.mark.parametrize("zone", [BERLIN, ZoneInfo(BERLIN), "+01:00", "UTC"])
def test_a_zone_may_be_a_name_an_object_or_an_offset(zone: Any) -> None:
    frame = local(pd.date_range("2024-06-01", periods=5, freq="h"))
    panel = to_panel(frame, tz=zone)
    ahead = {"+01:00": 1, "UTC": 0}.get(str(zone), 2)
    assert panel.starts[0] == int(datetime(2024, 6, 1, tzinfo=UTC).timestamp() - 3600 * ahead) * 1_000_000


@pytest.mark.parametrize("around", CHANGES[BERLIN])
def test_times_of_utc_are_read_on_a_local_clock_once_they_are_marked_as_utc(around: str) -> None:
    utc = instants("UTC", around)
    naive = local(utc)
    in_polars = pl.from_pandas(naive)
    marked: list[Any] = [
        naive.assign(ds=naive["ds"].dt.tz_localize("UTC")),
        in_polars.with_columns(pl.col("ds").dt.replace_time_zone("UTC")),
        in_polars.with_columns(pl.col("ds").dt.strftime("%Y-%m-%d %H:%MZ")),
    ]
    for frame in marked:
        panel = to_panel(frame, tz=BERLIN)
        assert (panel.starts.tolist(), panel.lengths.tolist(), panel.origin.zone) == (micros(utc)[:1], [96], BERLIN)


@pytest.mark.parametrize("step", ["1D", "7D", "MS"])
def test_days_weeks_and_months_of_a_zone_may_be_written_in_utc(step: str) -> None:
    times = pd.date_range("2024-01-01", periods=100, freq=step, tz=BERLIN)
    frame = pd.DataFrame({"unique_id": "a", "ds": times.tz_convert("UTC"), "y": 1.0})
    with pytest.raises(DataError, match=r"must share one step.* midnight elsewhere, name that zone with tz="):
        to_panel(frame)
    assert to_panel(frame, tz=BERLIN).lengths.tolist() == [100]


@pytest.mark.parametrize("zone", ["America/Santiago", "Africa/Cairo", BERLIN])
def test_days_in_local_time_are_days_whether_dates_or_midnights(zone: str) -> None:
    days = pd.date_range(pd.Timestamp(CHANGES[zone][0]) - pd.Timedelta(days=4), periods=9)
    midnights = pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.0})
    dates = pl.DataFrame({"unique_id": "a", "ds": [day.date() for day in days], "y": 1.0})
    for data in (midnights, dates):
        panel = to_panel(data, tz=zone)
        assert (str(panel.freq), panel.lengths.tolist(), panel.origin.zone) == ("d", [9], zone)
        forecast = ls.SeasonalNaive(7).fit(data, tz=zone).predict()
        assert type(forecast["ds"][0]) is (date if isinstance(data, pl.DataFrame) else pd.Timestamp)
    early = ls.SeasonalNaive(7).fit(midnights[:3], tz=zone).predict()
    assert early["ds"].tolist()[:6] == days[3:].tolist()


def hour_of_day(zone: str | None = BERLIN, **columns: Any) -> ls.SeasonalNaive:
    times = pd.date_range("2024-01-01", periods=72, freq="h", tz=zone)
    return ls.SeasonalNaive(24, season=24).fit(
        pd.DataFrame({"unique_id": "a", "ds": times, "y": np.arange(72) % 24.0}), **columns
    )


def test_a_model_given_another_zone_reads_the_same_instants_and_answers_in_that_zone() -> None:
    model = hour_of_day()
    there = pd.date_range("2024-01-10", periods=48, freq="h", tz="Asia/Tokyo")
    here = there.tz_convert(BERLIN)
    values = np.arange(48.0)
    one = model.predict(pd.DataFrame({"unique_id": "a", "ds": there, "y": values}))
    other = model.predict(pd.DataFrame({"unique_id": "a", "ds": here, "y": values}))
    assert str(one["ds"].dt.tz) == "Asia/Tokyo"
    assert one["ds"].tolist() == other["ds"].tolist()
    assert one["mean"].tolist() == other["mean"].tolist()
    history = model.history(pd.DataFrame({"unique_id": "a", "ds": there, "y": values}))
    assert history.origin.zone == BERLIN, "the calendar of the features is that of the training"
    panel = to_panel(pl.DataFrame({"unique_id": "a", "ds": pl.Series(there), "y": values}))
    assert model.history(panel).origin.zone == BERLIN


def test_days_of_another_zone_are_counted_on_the_fitted_clock() -> None:
    days = pd.date_range("2024-03-20", periods=20, tz=BERLIN)
    model = ls.SeasonalNaive(3).fit(pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.0}))
    in_utc = pd.DataFrame({"unique_id": "a", "ds": days.tz_convert("UTC"), "y": 1.0})
    found = model.predict(in_utc)["ds"]
    assert found.tolist() == [days[-1] + pd.DateOffset(days=n) for n in (1, 2, 3)]
    assert str(found.dt.tz) == "UTC"
    with pytest.raises(DataError, match=r"give the frame itself, or to_panel.frame, tz='Europe/Berlin'"):
        model.predict(to_panel(pl.DataFrame({"unique_id": "a", "ds": days[:5].tz_convert("Asia/Tokyo"), "y": 1.0})))
    assert model.predict(pl.DataFrame({"unique_id": "a", "ds": [day.date() for day in days], "y": 1.0}))["ds"][
        0
    ] == date(2024, 4, 9)


def test_a_zone_after_none_and_none_after_a_zone_are_refused_with_the_way_out() -> None:
    naive = local(pd.date_range("2024-01-10", periods=48, freq="h"))
    aware = naive.assign(ds=naive["ds"].dt.tz_localize(BERLIN))
    with pytest.raises(DataError, match=r"without a zone after times of Europe/Berlin.*fit with tz='Europe/Berlin'"):
        hour_of_day().predict(naive)
    with pytest.raises(DataError, match="New data must have a time zone"):
        hour_of_day().predict(to_panel(naive))
    with pytest.raises(DataError, match=r"times of Europe/Berlin after times without a zone.*fit with tz="):
        hour_of_day(None).predict(aware)
    both = [hour_of_day(None, tz=BERLIN).predict(frame) for frame in (naive, aware)]
    assert both[0]["ds"].dt.tz_localize(BERLIN).tolist() == both[1]["ds"].tolist()
    assert both[0]["mean"].tolist() == both[1]["mean"].tolist()


def test_a_saved_model_reads_local_times_as_it_was_fitted(tmp_path: Path) -> None:
    times = instants(BERLIN, CHANGES[BERLIN][1])
    rows = [f"{time:%d.%m.%Y %H:%M};{number}" for number, time in enumerate(times)]
    (tmp_path / "old.csv").write_text("\n".join(["zeit;m1", *rows[:48]]))
    (tmp_path / "all.csv").write_text("\n".join(["zeit;m1", *rows]))
    ls.SeasonalNaive(24).fit(tmp_path / "old.csv", tz=ZoneInfo(BERLIN), dayfirst=True).save(tmp_path / "model")
    model = ls.load(tmp_path / "model")
    expected = pd.date_range(times[-1], periods=25, freq="h")[1:].tz_localize(None)
    assert model.predict(tmp_path / "all.csv")["ds"].to_list() == expected.to_pydatetime().tolist()
    from_memory = pd.date_range(times[47], periods=25, freq="h")[1:].tz_localize(None)
    assert model.predict()["ds"].to_list() == from_memory.to_pydatetime().tolist()


def test_a_backtest_over_the_autumn_change_has_a_time_of_its_own_in_every_row(tmp_path: Path) -> None:
    frame = local(instants(BERLIN, CHANGES[BERLIN][1], hours=144))
    results = ls.backtest(ls.SeasonalNaive(24), frame, windows=4, tz=BERLIN)
    assert str(results["ds"].dt.tz) == BERLIN
    assert ls.score(results, by="step")["count"].tolist() == [4] * 24
    assert ls.report(results, tmp_path / "report.html").exists()
    days = local(pd.date_range("2024-03-01", periods=60, tz=BERLIN))
    assert ls.backtest(ls.SeasonalNaive(7), days, tz=BERLIN)["ds"].dt.tz is None


def test_future_values_are_read_on_the_same_local_clock_with_the_hour_that_comes_twice() -> None:
    times = instants(BERLIN, CHANGES[BERLIN][1])
    begin = 30
    past = local(times[:begin], heat=1.0)
    future = local(times[begin : begin + 24], heat=np.arange(24.0)).drop(columns="y")
    model = ls.SeasonalNaive(24).fit(past, covariates=["heat"], tz=BERLIN)
    assert (future["ds"] == "2024-10-27 02:00").sum() == 2
    history = model.history(future=future)
    assert history.covariates["heat"][begin:].tolist() == list(range(24))
    aware = future.assign(ds=times[begin : begin + 24].tz_convert("UTC"))
    assert model.history(future=aware).covariates["heat"].tolist() == history.covariates["heat"].tolist()
    zoned = ls.SeasonalNaive(24).fit(past.assign(ds=times[:begin]), covariates=["heat"])
    with pytest.raises(DataError, match="Times in 'ds' must have a time zone"):
        zoned.history(future=future)
    assert zoned.predict(future=aware)["ds"].iloc[0] == times[begin]


MONTHS = pl.date_range(date(2023, 1, 1), date(2023, 12, 1), "1mo", eager=True)
GERMAN = ["Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"]


@pytest.mark.parametrize(
    "form", ["%Y-%m", "%Y/%m", "%m/%Y", "%m.%Y", "%b %Y", "%B %Y", "%b. %Y", "%b-%Y", "%Y %b", "german", "upper"]
)
@pytest.mark.parametrize("dayfirst", [None, True])
def test_months_are_read_as_their_first_day_without_being_asked(form: str, dayfirst: bool | None) -> None:
    written = [
        f"{GERMAN[day.month - 1]} {day.year}"
        if form == "german"
        else f" {day:%b %Y}".upper()
        if form == "upper"
        else f"{day:{form}}"
        for day in MONTHS
    ]
    panel = to_panel(pl.DataFrame({"Month": written, "Sales": np.arange(12.0)}), dayfirst=dayfirst)
    assert str(panel) == "Panel(1 series from a wide table, 12 values, MS, 2023-01-01 to 2023-12-01)"


@pytest.mark.parametrize("form", ["{}Q{}", "{}-Q{}", "{} Q{}", "{}q{}"])
@pytest.mark.parametrize("turned", [False, True])
def test_quarters_are_read_as_their_first_day(form: str, turned: bool) -> None:
    shape = form.replace("{}Q{}", "Q{1} {0}") if turned else form
    quarters = [shape.format(2020 + i // 4, i % 4 + 1) for i in range(9)]
    panel = to_panel(pl.DataFrame({"Quartal": quarters, "Umsatz": np.arange(9.0)}))
    assert str(panel) == "Panel(1 series from a wide table, 9 values, QS, 2020-01-01 to 2022-01-01)"


def test_weeks_are_read_as_their_monday_over_a_year_of_53_weeks() -> None:
    weeks = ["2020-W52", "2020-W53", "2021-W01", "2021-W02"]
    panel = to_panel(pl.DataFrame({"week": weeks, "y": [1.0, 2, 3, 4]}))
    assert str(panel) == "Panel(1 series from a wide table, 4 values, w, 2020-12-21 to 2021-01-11)"


def test_periods_of_pandas_are_read() -> None:
    frame = pd.DataFrame({"Q": pd.period_range("2020Q1", periods=5, freq="Q"), "y": 1.0})
    assert "QS, 2020-01-01 to 2021-01-01" in str(to_panel(frame))


def test_a_total_below_the_months_is_refused_with_its_row() -> None:
    frame = pl.DataFrame({"Month": ["2020-01", "2020-02", "2020-03", "Total"], "Sales": [1.0, 2.0, 3.0, 6.0]})
    with pytest.raises(DataError, match=r"Got the text 'Total' in row 4. Hint: .*drop or correct it: 3 other rows are"):
        to_panel(frame)


@pytest.mark.parametrize(
    ("text", "form"),
    [("Jan-20", "%b-%y"), ("31.01.20", "%d.%m.%y"), ("31-Jan-2020", "%d-%b-%Y"), ("2020.01.31", "%Y.%m.%d")],
)
def test_a_common_form_that_is_not_read_unasked_is_named_and_then_read(text: str, form: str) -> None:
    frame = pl.DataFrame({"Month": [text], "Sales": [1.0]})
    with pytest.raises(DataError, match=rf"'Month' must hold .* Got the text '{text}'.*time_format='{form}'"):
        to_panel(frame)
    assert "2020-01" in str(to_panel(frame, time_format=form, freq="D"))


def test_a_date_wins_over_a_month_beside_it() -> None:
    frame = pl.DataFrame({"day": ["2020-01-01", "2020-01-02"], "unique_id": "a", "month": "2020-01", "y": 1.0})
    assert "d, 2020-01-01 to 2020-01-02" in str(to_panel(frame, time_col="day"))
    with pytest.raises(DataError, match=r"besides its time column 'day'. Got text in 'month'"):
        to_panel(frame.drop("unique_id").rename({"y": "sales"}))


@pytest.mark.parametrize(("months", "form"), [([202011, 202012, 202101], "%Y%m"), ([20201231, 20210101], "%Y%m%d")])
def test_whole_numbers_that_are_dates_are_not_counted_silently(months: list[int], form: str) -> None:
    frame = pl.DataFrame({"ds": months, "y": 1.0})
    with pytest.raises(DataError, match=rf"Got {months[0]}, .* pass time_format='{form}'; if not, freq=1"):
        to_panel(frame)
    assert "2021-01-01" in str(to_panel(frame, time_format=form))
    assert f"{months[0]} to {months[-1]}" in str(to_panel(frame, freq=1))


def test_years_and_other_whole_numbers_stay_numbers() -> None:
    assert "1, 1998 to 2002" in str(to_panel(pl.DataFrame({"ds": range(1998, 2003), "y": 1.0})))
    assert "1, 202001 to 202112" in str(to_panel(pl.DataFrame({"ds": range(202001, 202113), "y": 1.0})))
