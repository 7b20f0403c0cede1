"""Special days: holidays of a country or given dates become features, and days like others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import holidays as calendars
import numpy as np
import pandas as pd
import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal
from logsparse.data import features
from logsparse.data.features import Features, holidays_of, recognised_holidays
from logsparse.data.holidays import FLAGS, Holidays, holiday_texts, resolved
from logsparse.data.scale import Profile
from logsparse.data.windows import Windows
from logsparse.errors import ConfigError
from logsparse.settings import read_settings
from logsparse.storage import InvalidContentError

CHRISTMAS = "2024-12-25"


def day(text: str) -> int:
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def hourly(days: int, special: tuple[str, ...] = (), start: str = "2024-01-01", tz: str | None = None) -> pl.DataFrame:
    """Return two series that are 10 on weekdays and 2 on Sundays and special days, with a daily wave."""
    first = datetime.fromisoformat(start)
    times = pl.datetime_range(first, first + pd.Timedelta(hours=24 * days - 1), "1h", eager=True)
    rest = (
        (times.dt.weekday() == 7) | times.dt.date().is_in([date.fromisoformat(text) for text in special])
    ).to_numpy()
    values = np.where(rest, 2.0, 10.0) + np.sin(np.arange(len(times)) * 2 * np.pi / 24)
    noise = np.random.default_rng(0).normal(size=(2, len(times))) / 10
    stamps = times if tz is None else times.dt.replace_time_zone(tz)
    parts = [pl.DataFrame({"unique_id": f"s{i}", "ds": stamps, "y": values * (i + 1) + noise[i]}) for i in range(2)]
    return pl.concat(parts)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("DE-BY", ("DE-BY",)),
        (["DE", "2024-12-31"], ("DE", "2024-12-31")),
        (date(2024, 12, 25), (CHRISTMAS,)),
        (pd.to_datetime([CHRISTMAS, CHRISTMAS]), (CHRISTMAS,)),
        (pd.DataFrame({"name": ["Christmas"], "ds": pd.to_datetime([CHRISTMAS])}), (f"{CHRISTMAS} Christmas",)),
        (pl.DataFrame({"date": [CHRISTMAS], "day": ["Wednesday"]}), (CHRISTMAS,)),
        (pl.DataFrame({"id": [1], "year": [2024], "date": [CHRISTMAS]}), (CHRISTMAS,)),
        # Midnight in Berlin is the day before in UTC.
        (pd.DataFrame({"date": pd.to_datetime([CHRISTMAS]).tz_localize("Europe/Berlin")}), (CHRISTMAS,)),
        (pl.Series([CHRISTMAS]).str.to_datetime(time_zone="Europe/Berlin").to_frame("date"), (CHRISTMAS,)),
        ([datetime(2024, 12, 25, tzinfo=ZoneInfo("Europe/Berlin"))], (CHRISTMAS,)),
        ([f"{CHRISTMAS} 00:00", f"{CHRISTMAS} The 25th"], (CHRISTMAS, f"{CHRISTMAS} The 25th")),
        (None, ()),
    ],
)
def test_a_country_dates_or_a_frame_are_holidays(given: Any, texts: tuple[str, ...]) -> None:
    assert holiday_texts(given) == texts


@pytest.mark.parametrize("given", ["Germany", 5, ["2024-13-01"], [None], [2020, 2021], [pd.NaT], {"a": 1}])
def test_anything_else_is_refused_where_it_is_given(given: Any) -> None:
    with pytest.raises(ConfigError, match="holidays must be a country code, dates, or auto"):
        ls.LogSparse(24, holidays=given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (pl.DataFrame(), r"must have a column of dates\. Got a table without rows\."),
        (pd.DataFrame({"a": [pd.NaT]}), r"must have a column of dates\. Got a first row of a NaT\."),
        (
            pl.DataFrame({"year": [2021], "date": ["25.12.2021"]}),
            r"Got a first row of year 2021, date '25\.12\.2021'\. Hint: write dates as 2024-12-25",
        ),
        (
            pl.DataFrame({"date": [CHRISTMAS, None]}),
            r"Every row of a table of holidays must have a date\. Got None in row 2 of column 'date'\.",
        ),
    ],
)
def test_a_table_of_holidays_is_refused_by_what_is_no_date(given: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        holiday_texts(given)


@pytest.mark.parametrize(
    ("given", "rule"), [("XX", "a country by its two letters"), ("DE-XX", "its regions are BB, BE")]
)
def test_an_unknown_country_or_region_is_refused(given: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        resolved([given], 19_000, 19_100)


def test_a_day_of_every_year_needs_no_year() -> None:
    days = resolved(["12-24", "02-29"], day("2023-03-01"), day("2024-03-01"))
    assert {day("2023-12-24"), day("2044-12-24"), day("2028-02-29")} <= set(days)
    with pytest.raises(ConfigError, match=r"for every year"):
        holiday_texts("02-30")


def closing_at_the_end_of_the_year(years: int) -> pl.DataFrame:
    """Return three series of days that rest on Sundays and from 24 December to 1 January, and one that never rests."""
    times = pl.date_range(date(2020, 1, 1), date(2020 + years, 12, 20), "1d", eager=True)
    closed = times.dt.strftime("%m-%d").is_in(
        ["12-24", "12-25", "12-26", "12-27", "12-28", "12-29", "12-30", "12-31", "01-01"]
    )
    rest = ((times.dt.weekday() == 7) | closed).to_numpy()
    noise = np.random.default_rng(1).normal(size=(4, len(times)))
    # One day on which all stood still is no yearly event.
    still = (times == date(2021, 6, 16)).to_numpy()
    level = [np.where(rest | still, 5.0, 30.0)] * 3 + [np.full(len(times), 20.0)]
    parts = [pl.DataFrame({"unique_id": f"s{i}", "ds": times, "y": level[i] + noise[i]}) for i in range(4)]
    return pl.concat(parts)


def test_days_that_break_the_weekly_rhythm_every_year_are_found() -> None:
    found = holidays_of(ls.to_panel(closing_at_the_end_of_the_year(3)), ["auto"])
    last = [number for number in found.days if number >= day("2023-12-20")][:10]
    assert last == [*range(day("2023-12-24"), day("2024-01-02")), day("2024-12-24")]
    assert day("2021-06-16") not in found.days


def test_one_year_is_too_little_to_find_days() -> None:
    assert holidays_of(ls.to_panel(closing_at_the_end_of_the_year(0)), ["auto"]).days == ()


def resting(days_off: Iterable[date], years: int = 2, freq: str = "1d", since: int = 2022) -> pl.DataFrame:
    """Return four series that rest on Sundays and on these days, and one that never rests."""
    first, last = (datetime.fromisoformat(f"{year}-01-01") for year in (since, since + years))
    times = pl.datetime_range(first, last, freq, eager=True, closed="left")
    rest = ((times.dt.weekday() == 7) | times.dt.date().is_in(list(days_off))).to_numpy()
    noise = np.random.default_rng(2).normal(size=(5, len(times)))
    level = [np.where(rest, 5.0, 30.0)] * 4 + [np.full(len(times), 20.0)]
    return pl.concat(pl.DataFrame({"unique_id": f"s{i}", "ds": times, "y": level[i] + noise[i]}) for i in range(5))


@pytest.mark.parametrize(
    ("country", "freq"), [("DE", "1d"), ("US", "1d"), ("GB-ENG", "1h"), ("JP", "1d"), ("PT", "1d"), ("DE-SN", "1d")]
)
def test_the_country_whose_holidays_the_data_follow_is_recognised(country: str, freq: str) -> None:
    code, _, region = country.partition("-")
    off = calendars.country_holidays(code, subdiv=region or None, years=(2022, 2023))
    plan = ls.LogSparse(7, verbose=False).plan(resting(off, freq=freq))
    assert plan.config.holidays == (country,)
    assert "holiday" in plan.features


def test_days_off_by_chance_and_data_without_a_rhythm_have_no_country() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        off = [date(2022, 1, 1) + timedelta(int(day)) for day in generator.choice(730, 24, replace=False)]
        assert recognised_holidays(ls.to_panel(resting(off))) == ()
    assert recognised_holidays(ls.to_panel(resting([]))) == ()
    assert recognised_holidays(ls.to_panel(hourly(60))) == ()
    first, last = (datetime.fromisoformat(text) for text in ("2015-01-01", "2023-01-01"))
    months = pl.datetime_range(first, last, "1mo", eager=True)
    assert recognised_holidays(ls.to_panel(pl.DataFrame({"ds": months, "y": np.arange(97.0)}))) == ()
    assert recognised_holidays(ls.to_panel(pl.DataFrame({"ds": np.arange(97), "y": np.arange(97.0)}))) == ()


@pytest.mark.parametrize(
    ("country", "years", "recognised"),
    [
        # Augsburg, which no setting can name, shares the holidays of Bavaria here; Turin those of Cesena.
        ("DE-Augsburg", (2022,), "DE-BW"),
        ("IT-TO", (2022, 2023), "IT-FI"),
        # One day of a region a year might be chance; two are its holidays.
        ("BE", (2022,), "BE"),
        ("DE-HE", (2022, 2023), "DE-HE"),
    ],
)
def test_what_is_recognised_is_the_best_calendar_that_a_setting_can_name(
    country: str, years: tuple[int, ...], recognised: str
) -> None:
    code, _, region = country.partition("-")
    off = calendars.country_holidays(code, subdiv=region or None, years=years)
    plan = ls.LogSparse(7, verbose=False).plan(resting(off, years=len(years)))
    assert plan.config.holidays == (recognised,)


def test_one_day_that_broke_the_rhythm_by_chance_does_not_name_a_region() -> None:
    # 15 August is a holiday of the Saarland and of Augsburg.
    off = [*calendars.country_holidays("DE", years=(2022, 2023)), date(2022, 8, 15)]
    assert recognised_holidays(ls.to_panel(resting(off))) == ("DE",)


def test_holidays_that_fall_on_weekends_do_not_name_a_region_of_another_country() -> None:
    # 3 October and 1 August are weekends in both years, so Germany and Basel-Landschaft look the same.
    off = calendars.country_holidays("DE", years=(2020, 2021))
    assert recognised_holidays(ls.to_panel(resting(off, since=2020))) == ("DE",)


def test_a_country_is_recognised_by_opening_hours_without_any_noise() -> None:
    # Four shops, and a meter that stands still.
    opened = resting(calendars.country_holidays("DE", years=(2022, 2023))).with_columns(y=(pl.col("y") > 15) * 8.0)
    assert recognised_holidays(ls.to_panel(opened)) == ("DE",)
    assert recognised_holidays(ls.to_panel(opened.with_columns(y=0.0))) == ()


def test_paydays_are_no_holidays() -> None:
    off = [date(2022, 1, 1) + timedelta(day) for day in range(730)]
    paydays = [day for day in off if day.day in (1, 15)]
    assert recognised_holidays(ls.to_panel(resting(paydays))) == ()


def test_a_first_row_of_long_ago_costs_neither_time_nor_memory() -> None:
    off = calendars.country_holidays("DE", years=(2022, 2023))
    early = pl.DataFrame({"unique_id": "s0", "ds": [datetime.fromisoformat("1700-01-01")], "y": [1.0]})
    panel = ls.to_panel(pl.concat([early, resting(off)], how="vertical_relaxed"))
    assert recognised_holidays(panel) == ("DE",)
    (mean_SD, _first) = features._daily(panel)
    assert mean_SD.shape[1] < 4000


def test_calendars_that_do_not_know_all_years_do_so_in_silence() -> None:
    # Warnings are errors here; the package knows lunar holidays of India up to 2035.
    assert len(holidays_of(ls.to_panel(hourly(60)), ["IN"]).days) > 0


def test_with_little_data_holidays_come_from_the_network_alone() -> None:
    frame = hourly(45, ("2024-02-07",))
    settings: dict[str, Any] = {"holidays": ["2024-02-07", "2024-02-15"], "steps": 3, "refit": False, "verbose": False}
    mixed = ls.LogSparse(48, blend=0.7, **settings).fit(frame).predict()
    alone = ls.LogSparse(48, blend=0.0, **settings).fit(frame).predict()
    same = (mixed["mean"] == alone["mean"]).to_numpy()
    assert same.tolist() == (mixed["ds"].dt.date() == date(2024, 2, 15)).to_list()


def test_one_occurrence_of_a_holiday_is_enough_but_few_holidays_are_not() -> None:
    off = calendars.country_holidays("DE", years=2022)
    whole = resting(off, years=1)
    assert recognised_holidays(ls.to_panel(whole)) == ("DE",)
    spring = whole.filter(pl.col("ds") < pl.datetime(2022, 6, 1))
    assert recognised_holidays(ls.to_panel(spring)) == ()


def test_a_country_is_recognised_only_where_holidays_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    frame = resting(calendars.country_holidays("DE", years=(2022, 2023)))
    with caplog.at_level("INFO", "logsparse"):
        assert ls.DeepAR(7, verbose=False).plan(frame).config.holidays == ("DE",)
    assert "break their weekly rhythm on holidays of DE" in caplog.text
    assert ls.LogSparse(7, holidays=[], verbose=False).plan(frame).config.holidays == ()
    assert ls.LogSparse(7, holidays="FR", verbose=False).plan(frame).config.holidays == ("FR",)
    assert ls.LogSparse(7, config=ls.presets.default(28, 7), verbose=False).plan(frame).config.holidays == ()


def test_holidays_of_a_country_reach_years_beyond_the_data() -> None:
    days = resolved(["GB-ENG", "2024-07-04"], day("2023-03-01"), day("2024-03-01"))
    assert {day("2023-12-25"), day("2024-07-04"), day("2030-12-26"), day("2044-12-25")} <= set(days)
    assert day("2022-12-25") not in days


def test_days_before_and_after_a_holiday_and_long_weekends_are_marked() -> None:
    # Thursday 9 May 2024 was Ascension Day: with the Friday between, four days are free.
    days = np.arange(day("2024-05-07"), day("2024-05-14"))
    found = Holidays((day("2024-05-09"),))
    assert found.feature("holiday", days).tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert found.feature("day_before_holiday", days).tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert found.feature("day_after_holiday", days).tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert found.feature("long_weekend", days).tolist() == [0, 0, 1, 1, 1, 1, 0]
    assert found.feature("weekday", days).tolist() == [1, 2, 6, 4, 5, 6, 0]


def test_days_alike_are_the_last_ones_of_the_same_kind() -> None:
    christmas = Holidays((day("2024-12-25"), day("2024-12-26")))
    days = np.array([day("2024-12-25"), day("2024-12-26"), day("2025-01-01"), day("2024-12-24")])
    # Sunday the 22nd; Christmas itself; a Wednesday, of which the last was Christmas; a Tuesday.
    assert christmas.alike(days, 1, 2).tolist() == [[3, 1, 14, 7], [10, 4, 21, 14]]
    assert christmas.alike(days, 2, 1).tolist() == [[3, 4, 14, 7]]


def test_a_profile_of_days_alike_reads_the_last_sunday_on_a_holiday() -> None:
    panel = ls.to_panel(hourly(60, ("2024-02-21",)))
    features = Features.fit(panel, holidays=holidays_of(panel, ["2024-02-21"]))
    windows = Windows(panel, features, context=24, horizon=24, profiles=[Profile(24, 1, alike=True)])
    start = 24 * (day("2024-02-21") - day("2024-01-01"))
    batch = windows(np.array([0, 1]), np.array([start, start]))
    sunday = slice(start - 72, start - 48)
    for i in range(2):
        assert np.array_equal(batch.profile_BLR[i, 24:, 0].numpy(), panel[i][sunday])
    assert batch.profile_observed_BLR.all()


def test_the_weekday_that_holidays_are_like_follows_from_the_data() -> None:
    special = ("2024-02-07", "2024-03-14")
    frame = hourly(120, special)
    assert holidays_of(ls.to_panel(frame), special).like == 6
    later = frame.with_columns(pl.col("ds").dt.offset_by("5d"))  # what was Sunday is Friday
    assert holidays_of(ls.to_panel(later), ("2024-02-12", "2024-03-19")).like == 4


def test_holidays_on_which_nothing_changes_count_as_usual_days() -> None:
    frame = hourly(120, ("2024-02-07", "2024-03-14"))
    named = ["2024-02-07 Rest", "2024-03-14 Rest", "2024-02-21 Work", "2025-02-07 Rest", "2025-02-21 Work"]
    found = holidays_of(ls.to_panel(frame), named)
    assert found.days == tuple(map(day, ("2024-02-07", "2024-03-14", "2025-02-07")))


def test_a_holiday_is_a_local_day() -> None:
    panel = ls.to_panel(hourly(60, tz="America/Los_Angeles"))
    features = Features.fit(panel, holidays=holidays_of(panel, ["2024-02-21"]))
    flag = features(panel, np.array([0]), np.arange(24 * 60)[None])[0, :, features.names.index("holiday")]
    first = 24 * (day("2024-02-21") - day("2024-01-01"))
    assert np.flatnonzero(flag > 0).tolist() == list(range(first, first + 24))


def test_flags_that_training_never_saw_are_left_out() -> None:
    panel = ls.to_panel(hourly(20))
    assert not set(FLAGS) & set(Features.fit(panel, holidays=holidays_of(panel, ["2024-12-25"])).names)


def test_a_saved_model_knows_its_holidays_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = hourly(60, ("2024-01-26",), tz="Australia/Sydney")
    model = ls.LogSparse(24, holidays="AU-NSW", steps=2, verbose=False).fit(frame)
    model.save(tmp_path / "model")
    assert "2029-01-26" in (tmp_path / "model" / "series.json").read_text()
    monkeypatch.setitem(sys.modules, "holidays", None)
    loaded = ls.LogSparse.load(tmp_path / "model")
    assert loaded.features_ == model.features_
    assert loaded.config_ == model.config_
    assert loaded.predict().equals(model.predict())


def test_a_folder_without_the_holidays_of_its_inputs_is_refused() -> None:
    model = ls.LogSparse(24, holidays="2030-01-01", steps=1, verbose=False).fit(hourly(60))
    facts, arrays = model._state()
    del facts["features"]["holidays"]
    with pytest.raises(InvalidContentError, match="learned/features/holidays must be given"):
        model._restore(facts, arrays)


def test_settings_with_holidays_survive_json_and_others_are_as_before() -> None:
    config = ls.Config(context=24, horizon=24, holidays=("DE", CHRISTMAS))
    assert ls.Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert "holidays" not in ls.Config(context=24, horizon=24).to_dict()
    assert read_settings(["holidays=DE,2024-12-31"]) == {"holidays": ("DE", "2024-12-31")}


@pytest.mark.parametrize("kind", [ls.LogSparse, ls.DeepAR, ls.DeepState])
def test_every_network_takes_holidays(kind: type[ls.LogSparse]) -> None:
    model = kind(24, holidays=["2024-02-07"], steps=2, verbose=False).fit(hourly(60))
    assert set(FLAGS[:3]) <= set(model.features_.names)
    assert len(model.predict()) == 48


def test_a_network_forecasts_a_holiday_like_the_sundays_it_knows() -> None:
    special = ("2024-02-07", "2024-03-14", "2024-04-09")
    history = hourly(99, special)  # up to Monday 8 April
    settings: dict[str, Any] = {"context": 48, "steps": 80, "layers": 1, "verbose": False, "method": "direct"}
    plain = ls.LogSparse(24, **settings).fit(history).predict()["mean"].mean()
    named = ls.LogSparse(24, holidays=special, **settings).fit(history).predict()["mean"].mean()
    assert plain > 12  # both series together have 15 on a weekday, 3 on a holiday
    assert named < 7


def test_importance_shows_holidays_as_calendar_features() -> None:
    model = ls.LogSparse(24, holidays=["2024-02-07", "2024-02-28"], steps=2, verbose=False).fit(hourly(60))
    shown = ls.importance(model, repeats=1).table()
    kinds = dict(zip(shown["input"], shown["kind"], strict=True))
    assert kinds["holiday"] == "calendar"


@pytest.mark.parametrize("freq", ["1w", "1mo"])
def test_steps_longer_than_a_day_have_no_holidays(freq: str) -> None:
    first, last = (datetime.fromisoformat(text) for text in ("2010-01-04", "2016-01-01"))
    times = pl.datetime_range(first, last, freq, eager=True)
    frame = pl.DataFrame({"unique_id": "a", "ds": times, "y": np.arange(len(times)) % 5.0})
    with pytest.raises(ConfigError, match="Holidays need dates and steps that divide a day"):
        ls.LogSparse(2, holidays="DE", steps=1, verbose=False).fit(frame)


def test_days_alike_need_holidays() -> None:
    with pytest.raises(ConfigError, match="A profile of days alike needs holidays"):
        ls.LogSparse(24, profiles=["24x1-alike"], steps=1, verbose=False).fit(hourly(60))


def test_the_command_takes_a_country_or_a_file_of_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hourly(60, ("2024-02-07",)).write_parquet("hours.parquet")
    pl.DataFrame({"name": ["Closed", "Closed"], "date": ["2024-02-07", "2024-03-05"]}).write_csv("special.csv")
    done = logsparse("fit", "hours.parquet", "--horizon", 24, "--holidays", "special.csv", "-o", "own", *QUICK)
    assert done.code == 0, done.err
    assert "2024-02-07 Closed, 2024-03-05 Closed" in done.out
    assert "day_before_holiday" in done.out
    assert ls.LogSparse.load("own").config_.holidays == ("2024-02-07 Closed", "2024-03-05 Closed")
    done = logsparse("fit", "hours.parquet", "--horizon", 24, "--holidays", "DE-BY,12-24", "-o", "country", *QUICK)
    assert done.code == 0, done.err
    assert ls.LogSparse.load("country").config_.holidays == ("DE-BY", "12-24")
    assert logsparse("predict", "country", "-o", "next.csv").code == 0
    resting(calendars.country_holidays("DE", years=(2022, 2023))).write_parquet("days.parquet")
    done = logsparse("fit", "days.parquet", "--horizon", 7, "-o", "recognised", *QUICK)
    assert ls.LogSparse.load("recognised").config_.holidays == ("DE",), done.err
    done = logsparse("fit", "days.parquet", "--horizon", 7, "--holidays", "none", "-o", "none", *QUICK)
    assert ls.LogSparse.load("none").config_.holidays == (), done.err
    assert "a country by its two letters" in refusal("fit", "hours.parquet", "--horizon", 24, "--holidays", "XX")
    assert "--holidays" in refusal("fit", "hours.parquet", "--from", "own", "--holidays", "DE", "-o", "again")
    assert "--holidays is for networks" in refusal(
        "fit", "hours.parquet", "--horizon", 24, "--model", "ets", "--holidays", "DE"
    )
