"""Times are read the same way from every source, and no time is lost or added on the odd days of a zone."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.frame import to_panel
from logsparse.data.times import from_text, from_wall, to_wall
from logsparse.errors import ConfigError, DataError

pa: Any = import_module("pyarrow")
MIDNIGHTS_SKIPPED = {
    "Africa/Cairo": "2024-04-20",
    "America/Santiago": "2024-09-01",
    "Asia/Beirut": "2024-03-25",
    "America/Havana": "2024-03-05",
    "America/Sao_Paulo": "2018-10-30",
}


def frame(times: Any) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": times, "y": np.arange(float(len(times)))})


@pytest.mark.parametrize(
    "text",
    ["2024-01-31T15:00", "2024-01-31 15:00", "2024/01/31 15:00:00", "2024-01-31T15:00:00.000000", " 2024-01-31T15:00"],
)
def test_text_is_read_year_first_from_frames_and_csv_alike(text: str, tmp_path: Path) -> None:
    assert str(from_text(pl.Series([text]))[0]) == "2024-01-31 15:00:00"
    path = tmp_path / "one.csv"
    path.write_text(f"unique_id,ds,y\na,{text},1\n")
    assert to_panel(path, freq="h").freq.show(int(to_panel(path, freq="h").starts[0])) == "2024-01-31 15:00"


@pytest.mark.parametrize(
    "text",
    [
        "01/05/2024", "01/02/24", "31.01.2024", "2024-1-5", "2024-02-30", "2024-01-31T25:00", "20240131", "2024-01",
        "2024-01/31", "2024-01-31Z", "01/05/2024 10:00", "2024-01-31T15",
    ],
)  # fmt: skip
def test_any_other_text_is_refused_from_frames_and_csv_alike(text: str, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text(f"unique_id,ds,y\na,2024-01-30,1\na,{text},1\n")
    for data in (path, pl.DataFrame({"unique_id": "a", "ds": ["2024-01-30", text], "y": 1.0})):
        with pytest.raises(
            DataError, match=rf"Got the text '{text}' in row 2\. Hint: .*(write times year first|say how)"
        ):
            to_panel(data)


def test_dates_and_times_may_mix_in_text_and_dates_alone_stay_dates() -> None:
    mixed = from_text(pl.Series(["2024-01-31", None, "2024-01-31 12:00"]))
    assert [str(time) for time in mixed] == ["2024-01-31 00:00:00", "None", "2024-01-31 12:00:00"]
    assert from_text(pl.Series(["2024-01-31"])).dtype == pl.Date


@pytest.mark.parametrize("offset", ["Z", "+00:00", "+0000", "-00:00", "+00"])
def test_utc_may_be_written_in_many_ways(offset: str) -> None:
    assert from_text(pl.Series([f"2024-01-31T15:00{offset}", "2024-01-31T16:00Z"])).dtype == pl.Datetime("us", "UTC")


@pytest.mark.parametrize(("hours", "minutes", "zone"), [(2, 0, "Etc/GMT-2"), (-3, 0, "Etc/GMT+3"), (5, 30, "UTC")])
def test_a_fixed_offset_is_the_same_zone_from_every_source(hours: int, minutes: int, zone: str, tmp_path: Path) -> None:
    fixed = timezone(timedelta(hours=hours, minutes=minutes))
    data = frame(pd.date_range("2024-01-01", periods=5, freq="h", tz=fixed))
    path = tmp_path / "data.csv"
    data.to_csv(path, index=False)
    text = data.assign(ds=data["ds"].map(lambda time: time.isoformat()))
    sources = [data, data.assign(ds=data["ds"].astype(object)), pa.Table.from_pandas(data), text, path]
    for source in sources:
        panel = to_panel(source)
        assert panel.origin.zone == zone
        first = datetime(2024, 1, 1, tzinfo=fixed)
        assert panel.starts[0] == int(first.timestamp()) * 1_000_000
    until = datetime(2024, 1, 1, 2, tzinfo=fixed)
    assert SeasonalNaive(1).fit(data, until=until).panel_.lengths.tolist() == [3]


def test_a_zone_that_polars_does_not_know_is_read_as_instants() -> None:
    data = frame(pd.date_range("2024-01-01", periods=5, freq="h", tz="dateutil/Europe/Berlin"))
    # pandas names the zone by its offset with some versions of dateutil.
    assert to_panel(data).origin.zone in ("UTC", "Etc/GMT-1")
    assert to_panel(data).freq.show(int(to_panel(data).starts[0])) == "2023-12-31 23:00"


def test_a_skipped_wall_time_is_the_first_instant_after_the_gap() -> None:
    def utc(text: str) -> int:
        return int(np.datetime64(text, "us").astype(np.int64))

    for zone, skipped, after in (
        ("Europe/Berlin", "2024-03-31T02:30", "2024-03-31T01:00"),
        ("Australia/Lord_Howe", "2024-10-06T02:10", "2024-10-05T15:30"),
        ("Pacific/Apia", "2011-12-30T13:00", "2011-12-30T10:00"),
    ):
        found = from_wall(np.array([utc(skipped), utc("2024-06-01"), utc(skipped)]), zone)
        assert found[[0, 2]].tolist() == [utc(after)] * 2
        assert to_wall(found[1:2], zone).tolist() == [utc("2024-06-01")]


def test_a_day_that_a_zone_skipped_is_forecast_at_a_real_time() -> None:
    times = pd.date_range("2011-12-20", periods=8, freq="D", tz="Pacific/Apia")
    found = SeasonalNaive(4).fit(frame(times)).predict()["ds"]
    assert found.notna().all()
    assert [str(time) for time in found] == [
        "2011-12-28 00:00:00-10:00",
        "2011-12-29 00:00:00-10:00",
        "2011-12-31 00:00:00+14:00",
        "2011-12-31 00:00:00+14:00",
    ]
    around = pd.date_range("2011-12-20", "2012-01-05").drop("2011-12-30").tz_localize("Pacific/Apia")
    assert np.isnan(to_panel(frame(around))[0]).sum() == 1


@pytest.mark.parametrize("zone", MIDNIGHTS_SKIPPED)
@pytest.mark.parametrize("hour", [0, 6])
def test_days_without_a_midnight_are_days_and_forecasts_of_them_can_be_read(zone: str, hour: int) -> None:
    naive = pd.date_range(MIDNIGHTS_SKIPPED[zone], periods=14, freq="D") + pd.Timedelta(hours=hour)
    times = naive.tz_localize(zone, nonexistent="shift_forward")
    panel = to_panel(frame(times))
    assert (str(panel.freq), panel.lengths.tolist()) == ("d", [14])
    forecast = SeasonalNaive(10).fit(frame(times[:4])).predict()
    assert forecast["ds"].tolist() == times[4:].tolist()
    again = to_panel(forecast.rename(columns={"mean": "y"}))
    assert (str(again.freq), again.lengths.tolist()) == ("d", [10])


def test_a_skipped_time_of_day_is_recognised_wherever_a_series_begins() -> None:
    times = (pd.date_range("2024-03-30", periods=5) + pd.Timedelta(hours=2, minutes=30)).tz_localize(
        "Europe/Berlin", nonexistent="shift_forward"
    )
    for begin in (0, 1, 2):
        assert to_panel(frame(times[begin:])).lengths.tolist() == [5 - begin]
    alone = frame(pd.DatetimeIndex(["2024-04-26 01:00"]).tz_localize("Africa/Cairo"))
    assert to_panel(alone, freq="D").freq.show(int(to_panel(alone, freq="D").starts[0])) == "2024-04-26"


def test_two_days_across_a_daylight_saving_change_are_one_day_apart() -> None:
    times = pd.DatetimeIndex(["2024-03-31", "2024-04-01"]).tz_localize("Europe/Berlin")
    assert str(to_panel(frame(times)).freq) == "d"
    months = pd.DatetimeIndex(["2024-03-01", "2024-04-01"]).tz_localize("Europe/Berlin")
    assert str(to_panel(frame(months)).freq) == "MS"


@pytest.mark.parametrize("freq", ["6h", "12h"])
def test_steps_that_are_regular_in_utc_are_forecast_in_utc(freq: str) -> None:
    times = pd.date_range("2024-03-25", periods=40, freq=freq, tz="Europe/Berlin")
    assert SeasonalNaive(1).fit(frame(times[:-1])).predict()["ds"].tolist() == [times[-1]]
    for asked in (None, freq):
        wall = frame(pd.date_range("2024-03-25", periods=80, freq=freq).tz_localize("Europe/Berlin"))
        with pytest.raises(DataError, match=f"steps of {freq} that are regular only in Europe/Berlin time"):
            to_panel(wall, freq=asked)


def test_integers_of_any_width_are_times_if_they_fit() -> None:
    wide = pl.DataFrame({"ds": pl.Series([1, 2, 3], dtype=pl.Int128), "y": 1.0})
    assert to_panel(wide).starts.tolist() == [1]
    for times in (
        pl.Series([1, 2**70], dtype=pl.Int128),
        pl.Series([2**63, 2**63 + 1], dtype=pl.UInt64),
        [0, -(2**62)],
    ):
        with pytest.raises(DataError, match=r"must be below 2\^62. Got .* Hint: count from a later start"):
            to_panel(pl.DataFrame({"ds": times, "y": 1.0}))


def test_until_is_refused_if_it_is_not_a_valid_time() -> None:
    odd: list[Any] = [np.datetime64(10**15, "s"), np.datetime64(2**62, "us"), np.datetime64("NaT")]
    odd += ["9" * 5000, 10**5000, "\ud800", object()]
    for until in odd:
        with pytest.raises(ConfigError, match=r"until must be a time, or an integer .* Got .* Hint: write it like"):
            SeasonalNaive(1).fit(frame(pd.date_range("2024-01-01", periods=5)), until=until)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("us")])
def test_a_forecast_that_leaves_the_calendar_is_refused(kind: Any, library: str) -> None:
    days = pl.Series("ds", [2_932_894, 2_932_895, 2_932_896], dtype=pl.Int32).cast(pl.Date).cast(kind)
    data = pl.DataFrame({"ds": days, "y": 1.0})
    with pytest.raises(
        DataError, match=r"Times must lie in the years 1 to 9999. Got 10000-01-01.*Hint: .* shorter horizon"
    ):
        SeasonalNaive(1).fit(data.to_pandas() if library == "pandas" else data).predict()


@pytest.mark.parametrize(
    ("freq", "wanted"),
    [
        ("h", ["2024-01-03 01:00", "2024-01-03 02:00", "2024-01-03 03:00"]),
        ("12h", ["2024-01-03 12:00", "2024-01-04 00:00", "2024-01-04 12:00"]),
    ],
)
def test_dates_with_a_step_below_a_day_are_forecast_at_times_of_day(
    freq: str, wanted: list[str], tmp_path: Path
) -> None:
    days = [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]
    path = tmp_path / "days.csv"
    frame(days).to_csv(path, index=False)
    for data in (path, frame(days), pl.DataFrame({"unique_id": "a", "ds": days, "y": [0.0, 1.0, 2.0]})):
        found = SeasonalNaive(3).fit(data, freq=freq).predict()["ds"]
        assert [f"{time:%Y-%m-%d %H:%M}" for time in found] == wanted


@pytest.mark.parametrize("freq", ["D", "2d", "W", "48h", None])
def test_dates_with_a_step_of_whole_days_stay_dates(freq: str | None) -> None:
    length = {"W": 7, "2d": 2, "48h": 2}.get(freq or "D", 1)
    days = [date(2024, 1, 1) + timedelta(days=length * step) for step in range(3)]
    found = SeasonalNaive(2).fit(pl.DataFrame({"ds": days, "y": 1.0}), freq=freq).predict()["ds"]
    assert found.to_list() == [date(2024, 1, 1) + timedelta(days=length * step) for step in (3, 4)]


def test_a_text_after_others_that_were_read_is_named_with_its_row() -> None:
    column = pl.Series("ds", ["2024-01-01 00:00", "2024-01-01 01:00", "20" + 50 * "\0"])
    with pytest.raises(
        DataError, match=r"Got the text '20(.x00)+\.\.\.' in row 3\. Hint: if the file was cut there, copy"
    ):
        from_text(column)
    with pytest.raises(DataError, match=r"Got the text 'x'\. Hint: write times year first"):
        from_text(pl.Series("ds", [None, "x"]))
