"""Every bad input that has an error of its own: name -> (call, message)."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pandas as pd
import polars as pl

from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.frame import to_panel
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster

HOURS = [datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(hours=h) for h in range(6)]


def long(**changes: Any) -> pl.DataFrame:
    """Two series of six hours, with columns changed or added."""
    columns = {"unique_id": ["a"] * 6 + ["b"] * 6, "ds": HOURS * 2, "y": [float(v) for v in range(12)]}
    return pl.DataFrame({**columns, **changes}, strict=False)


def irregular() -> pl.DataFrame:
    times = [*HOURS, *HOURS[:5], HOURS[5] + timedelta(minutes=30)]
    return long(ds=times)


def two_steps() -> pl.DataFrame:
    return long(ds=[*HOURS, *(HOURS[0] + timedelta(days=d) for d in range(6))])


def mixed_zones() -> pd.DataFrame:
    berlin = timezone(timedelta(hours=1))
    times = [hour.replace(tzinfo=None if i % 2 else berlin) for i, hour in enumerate(HOURS)]
    return pd.DataFrame({"unique_id": "a", "ds": pd.Series(times, dtype=object), "y": 1.0})


def with_heat() -> Forecaster:
    return SeasonalNaive(horizon=3).fit(long(heat=[1.0] * 12), covariates=["heat"])


def future(steps: int) -> pl.DataFrame:
    """Heat for `steps` steps of a, and three of b."""
    ahead = [HOURS[-1] + timedelta(hours=h) for h in range(1, 4)]
    return pl.DataFrame({"unique_id": ["a"] * steps + ["b"] * 3, "ds": ahead[:steps] + ahead, "heat": 1.0})


def hours_from(start: str, periods: int, freq: str, zone: str | None = None) -> pd.DataFrame:
    """One series at times of pandas, in the local time of a zone."""
    times = pd.date_range(start, periods=periods, freq=freq)
    return pd.DataFrame({"unique_id": "a", "ds": times.tz_localize(zone), "y": 1.0})


def days_in_utc() -> pd.DataFrame:
    frame = hours_from("2024-03-25", 10, "D", "UTC")
    return frame.assign(ds=frame["ds"].dt.tz_convert("Europe/Berlin"))


def days_written_in_utc() -> pd.DataFrame:
    """Midnights of Berlin: 23:00 of UTC, after the change of the clock 22:00."""
    frame = hours_from("2024-03-01", 60, "D", "Europe/Berlin")
    return frame.assign(ds=frame["ds"].dt.tz_convert("UTC"))


def new_folder() -> Path:
    """An empty folder that is removed when the tests end."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


def written(frame: pd.DataFrame) -> Path:
    """The path of the frame, written to csv by pandas."""
    path = new_folder() / "data.csv"
    frame.to_csv(path, index=False)
    return path


def parts(*frames: pl.DataFrame) -> Path:
    """A folder with these parts, called a, b, ..."""
    folder = new_folder()
    for name, frame in zip("abc", frames, strict=False):
        frame.write_parquet(folder / f"{name}.parquet")
    return folder


def ahead(minutes: list[int]) -> pl.DataFrame:
    """Heat for both series, `minutes` after the last hour."""
    times = [HOURS[-1] + timedelta(minutes=m) for m in minutes]
    return pl.DataFrame({"unique_id": ["a"] * len(times) + ["b"] * len(times), "ds": times * 2, "heat": 1.0})


def empty_at_first() -> pl.DataFrame:
    return long(y=[None] * 4 + [1.0] * 8)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "duplicate timestamps": (
        lambda: to_panel(long(ds=[HOURS[0], *HOURS[:5], *HOURS])),
        "Each series must have one row per time; 'ds' repeats. Got two rows for series 'a' at 2024-01-01. Hint: "
        "drop or aggregate the duplicates, or name the column that identifies the series with id_col=.",
    ),
    "a time off the grid": (
        lambda: to_panel(irregular()),
        "All series must share one step. Got mostly steps of h, but not in series 'b' at 2024-01-01 05:30. Hint: "
        "pass the step with freq= (times in between become missing values), or resample that series.",
    ),
    "no common frequency": (
        lambda: to_panel(two_steps()),
        "All series must share one step. Got mostly steps of h, but not in series 'b' at 2024-01-01. Hint: pass "
        "the step with freq= (times in between become missing values), or resample that series.",
    ),
    "one time only": (
        lambda: to_panel(long().head(1)),
        "The step must be given, or follow from the times. Got no series with two times. Hint: pass it with "
        "freq=, such as freq='h' for dates or freq=1 for integers.",
    ),
    "text in y": (
        lambda: to_panel(long(y=["1", "2", "three", *map(str, range(9))])),
        "The column 'y' must hold numbers. Got 'three' in series 'a' at 2024-01-01 02:00. "
        "Hint: convert the column to numbers; leave missing values empty.",
    ),
    "infinite values": (
        lambda: to_panel(long(y=[1.0] * 7 + [float("inf")] + [1.0] * 4)),
        "The column 'y' must hold finite numbers. Got an infinite value in series 'b' at 2024-01-01 01:00. Hint: "
        "replace it by a number, or leave it empty: missing values are allowed.",
    ),
    "empty frame": (
        lambda: to_panel(long().clear()),
        "A frame must have rows. Got an empty frame. Hint: check how it was read or filtered.",
    ),
    "missing columns": (
        lambda: to_panel(long().rename({"unique_id": "uniqueid"})),
        "A frame must have the columns unique_id, ds, y, or be wide: a time column and one numeric column per "
        "series. Got no unique_id among uniqueid, ds, y. Hint: 'uniqueid' is similar to 'unique_id'; name your "
        "columns with id_col=, time_col=, target_col=.",
    ),
    "a mistyped covariate": (
        lambda: to_panel(long(heat=1.0), covariates=["heta"]),
        "A frame must have the columns unique_id, ds, y, heta, or be wide: a time column and one numeric column "
        "per series. Got no heta among unique_id, ds, y, heat. Hint: 'heat' is similar to 'heta'; name your "
        "columns with id_col=, time_col=, target_col=.",
    ),
    "future covariates that end too early": (
        lambda: with_heat().predict(future=future(2)),
        "The covariate 'heat' must be known for all 3 steps to forecast. Got series 'a' with 2 of them, without "
        "2024-01-01 08:00. Hint: pass future values of every step up to 2024-01-01 08:00.",
    ),
    "future covariates not given": (
        lambda: with_heat().predict(),
        "The covariates heat must be known for the 3 steps to forecast. Got no future values. Hint: pass them "
        "with predict(future=frame); those known only for the past are fit(past_covariates=[...]).",
    ),
    "times with and without an offset": (
        lambda: to_panel(mixed_zones()),
        "All times in 'ds' must have an offset, or none. Got the offsets +01:00, none. Hint: write the offset of "
        "every time, such as 2024-01-31T15:00+01:00.",
    ),
    "a time zone in the future only": (
        lambda: with_heat().predict(future=future(3).with_columns(pl.col("ds").dt.replace_time_zone("UTC"))),
        "Times in 'ds' must have no time zone, as those that were fitted. Got times of UTC after times without a "
        "zone. Hint: convert them to the local time of the fitted data and drop the zone, or fit with tz=, which "
        "reads both.",
    ),
    "a time zone in the fitted data only": (
        lambda: SeasonalNaive(3).fit(long().with_columns(pl.col("ds").dt.replace_time_zone("UTC"))).predict(long()),
        "Times in 'ds' must have a time zone, as those that were fitted. Got times without a zone after times of UTC. "
        "Hint: give them their zone, or fit with tz='UTC', which reads times without a zone as local times.",
    ),
    "a time that the clock skips": (
        lambda: to_panel(hours_from("2024-03-31", 6, "h"), tz="Europe/Berlin"),
        "Times in 'ds' must exist on the clocks of Europe/Berlin. Got 2024-03-31 02:00:00, which they skip when "
        "summer time begins. Hint: if this clock never changes, leave tz out or name a zone without summer time, "
        "such as tz='Etc/GMT-1'; if the times are UTC, mark them as UTC first, in polars with "
        "dt.replace_time_zone('UTC'), in pandas with dt.tz_localize('UTC'), in text with a final Z.",
    ),
    "local times that repeat in autumn": (
        lambda: to_panel(long(ds=[HOURS[0].replace(month=10, day=27, hour=h) for h in (0, 1, 2, 2, 3, 4)] * 2)),
        "Each series must have one row per time; 'ds' repeats. Got two rows for series 'a' at 2024-10-27 02:00. Hint: "
        "local times repeat where the clock went back: name their zone with tz=, such as tz='Europe/Berlin'.",
    ),
    "an unknown time zone": (
        lambda: to_panel(long(), tz="Berlin"),
        "tz must be the name of a time zone. Got 'Berlin'. Hint: did you mean 'Europe/Berlin'?",
    ),
    "a time zone of integers": (
        lambda: to_panel(long(ds=[*range(6), *range(6)]), tz="UTC"),
        "A time zone is for dates and datetimes. Got integers such as 0 in 'ds', and tz='UTC'. Hint: leave tz out; "
        "if they are dates, name their form, such as time_format='%Y%m%d'.",
    ),
    "times of another form than time_format": (
        lambda: to_panel(long(ds=["31.01.2024"] * 12), time_format="%d.%m.%y"),
        "The times in 'ds' must be written as time_format says. Got the text '31.01.2024' and "
        "time_format='%d.%m.%y'. Hint: describe the whole text: %d day, %m month, %Y year, %H hour, %M minute, %S "
        "second, %z offset.",
    ),
    "the month where dayfirst expects the day": (
        lambda: to_panel(long(ds=["01/31/2024"] * 12), dayfirst=True),
        "The time column 'ds' must hold integers, dates or datetimes. Got the text '01/31/2024'. Hint: "
        "dayfirst=True reads the day first, dayfirst=False the other, and time_format= any other form.",
    ),
    "unreadable times": (
        lambda: to_panel(long(ds=["yesterday"] * 12)),
        "The time column 'ds' must hold integers, dates or datetimes. Got the text 'yesterday'. "
        "Hint: write times year first, like 2024-01-31T15:00, or say how they are written: dayfirst=True for "
        "31.01.2024 15:00, time_format='%m/%d/%Y %H:%M' for any other form.",
    ),
    "times of the wrong type": (
        lambda: to_panel(long(ds=[0.5] * 12)),
        "The time column 'ds' must hold integers, dates or datetimes. Got Float64 such as [0.5]. "
        "Hint: name another column with time_col=, or parse it first.",
    ),
    "a missing time": (
        lambda: to_panel(long(ds=[*HOURS, *HOURS[:5], None])),
        "Every row must have a time in 'ds'. Got none in series 'b'. Hint: drop those rows.",
    ),
    "a missing id": (
        lambda: to_panel(long(unique_id=[None] + ["a"] * 11)),
        "Every row must have an id in 'unique_id'. Got missing ids. Hint: fill or drop those rows.",
    ),
    "a series without a value": (
        lambda: to_panel(long(y=[1.0] * 6 + [None] * 6)),
        "Every series must have at least one value. Got none in series 'b'. Hint: drop that series.",
    ),
    "a step much too small": (
        lambda: to_panel(long(ds=[*HOURS, *(datetime(1990 + i, 1, 1) for i in range(6))]), freq="s"),  # noqa: DTZ001
        "The grid must not be much larger than the number of rows. Got 12 rows on a grid of 157784402 steps of s; "
        "series 'b' alone spans 1990-01-01 to 1995-01-01. Hint: pass the right step with freq=, or correct times "
        "that are far off.",
    ),
    "a step of the wrong kind": (
        lambda: to_panel(long(), freq=1),
        "The step must be given, or follow from the times. Got freq=1 for Datetime(time_unit='us', "
        "time_zone=None) times. Hint: pass it with freq=, such as freq='h' for dates or freq=1 for integers.",
    ),
    "a static column that changes": (
        lambda: to_panel(long(shop=list("xxxxxyzzzzzz")), static=["shop"]),
        "The static column 'shop' must have one value per series. Got several in series 'a'. Hint: name it in "
        "covariates= if it changes with time.",
    ),
    "not a frame": (
        lambda: to_panel(cast("Any", [1, 2, 3])),
        "Data must be a pandas, polars or pyarrow frame, or the path of a file. Got builtins.list. Hint: convert "
        "it first, for example with polars.DataFrame(...).",
    ),
    "a missing file": (
        lambda: to_panel("nowhere.parquet"),
        "DATA must be a readable parquet, csv or feather file, or a folder of parquet files. "
        "Got nowhere.parquet: no such file. Hint: check the path and the ending of the name.",
    ),
    "steps that are regular in local time only": (
        lambda: to_panel(hours_from("2024-03-25", 40, "12h", "Europe/Berlin")),
        "Steps shorter than a day must be regular in UTC. Got steps of 12h that are regular only in Europe/Berlin "
        "time: irregular in series 'a' at 2024-03-31 12:00+02:00. Hint: convert the times to regular steps in UTC, "
        "or drop the zone.",
    ),
    "the same with freq= given": (
        lambda: to_panel(hours_from("2024-03-25", 40, "12h", "Europe/Berlin"), freq="12h"),
        "Steps shorter than a day must be regular in UTC. Got steps of 12h that are regular only in Europe/Berlin "
        "time: irregular in series 'a' at 2024-03-31 12:00+02:00. Hint: convert the times to regular steps in UTC, "
        "or drop the zone.",
    ),
    "days of a zone in UTC": (
        lambda: to_panel(days_written_in_utc()),
        "All series must share one step. Got mostly steps of d, but not in series 'a' at 2024-03-31 22:00. Hint: if "
        "days begin at midnight elsewhere, name that zone with tz=, such as tz='Europe/Berlin'; else pass the step "
        "with freq= (times in between become missing values), or resample that series.",
    ),
    "the same with freq='D' given": (
        lambda: to_panel(days_written_in_utc(), freq="D"),
        "Every time must lie on the grid of the given step. Got freq='d' and a time off that grid in series 'a' at "
        "2024-03-31 22:00. Hint: if days begin at midnight elsewhere, name that zone with tz=, such as "
        "tz='Europe/Berlin'; else pass the right step, or resample the data to this one.",
    ),
    "days that are regular in UTC only": (
        lambda: to_panel(days_in_utc()),
        "Steps of whole days must be regular in local time. Got steps of d that are regular in UTC but not in "
        "Europe/Berlin: irregular in series 'a' at 2024-04-01 02:00. Hint: convert the times to UTC.",
    ),
    "a time off the given step": (
        lambda: to_panel(long(), freq="2h"),
        "Every time must lie on the grid of the given step. Got freq='2h' and a time off that grid in series 'a' "
        "at 2024-01-01 01:00. Hint: pass the right step, or resample the data to this one.",
    ),
    "steps below a second": (
        lambda: to_panel(hours_from("2024-01-01", 5, "500ms")),
        "Steps must be whole seconds. Got steps of 0.5s. Hint: round the times, or use integer times.",
    ),
    "a given step below a second": (
        lambda: to_panel(long(), freq="500ms"),
        "Steps must be whole seconds. Got '500ms'. Hint: round the times, or use integer times.",
    ),
    "times below a microsecond": (
        lambda: to_panel(hours_from("2024-01-01", 5, "100ns")),
        "Times in 'ds' must be whole microseconds. Got 2024-01-01 00:00:00.000000100. Hint: round them first.",
    ),
    "times below a microsecond in text": (
        lambda: to_panel(long(ds=["2024-01-01T00:00:00.0000001"] * 12)),
        "Times in 'ds' must be whole microseconds. Got 2024-01-01T00:00:00.0000001. Hint: round them first.",
    ),
    "every second business day": (
        lambda: to_panel(hours_from("2024-01-01", 20, "2B")),
        "Steps of several business days are not supported. Got every second business day. Hint: pass freq='B' "
        "(the days in between become missing values).",
    ),
    "freq='M'": (
        lambda: to_panel(hours_from("2024-01-31", 5, "ME"), freq="M"),
        "freq='M' is ambiguous: minutes or months. Got 'M'. Hint: write 'min' or 'ME' (month ends).",
    ),
    "an unknown step": (
        lambda: to_panel(long(), freq="fortnight"),
        "freq must be a number and a unit: s, min, h, D, B, W, MS, ME, QS, QE, YS, YE, or an integer. Got "
        "'fortnight'. Hint: use for example freq='15min', freq='D' or freq='ME'.",
    ),
    "integer times too large": (
        lambda: to_panel(long(ds=pl.Series([2**63 + i for i in range(12)], dtype=pl.UInt64))),
        "Integer times in 'ds' must be below 2^62. Got 9223372036854775808. Hint: count from a later start, or in "
        "larger units.",
    ),
    "forecast times too large": (
        lambda: SeasonalNaive(horizon=24).fit(pl.DataFrame({"ds": [0, 2**61], "y": 1.0})).predict(),
        "Times must fit into 64-bit integers. Got times up to 5.76e+19 with steps of 2305843009213693952. Hint: "
        "count from a later start, or in larger units.",
    ),
    "day-first dates in text": (
        lambda: to_panel(long(ds=["01/05/2024"] * 12)),
        "The time column 'ds' must hold integers, dates or datetimes. "
        "Got the text '01/05/2024'. "
        "Hint: write times year first, like 2024-01-31T15:00, or say how they are written: dayfirst=True for "
        "31.01.2024 15:00, time_format='%m/%d/%Y %H:%M' for any other form.",
    ),
    "days across a daylight-saving change": (
        lambda: to_panel(written(hours_from("2024-03-30", 20, "D", "Europe/Berlin"))),
        "Days in 'ds' whose offset changes need the name of their time zone. Got the offsets +01:00, +02:00. Hint: "
        "name it with tz=, such as tz='Europe/Berlin'.",
    ),
    "a value too large": (
        lambda: to_panel(long(y=[1.0] * 7 + [1e300] + [1.0] * 4)),
        "The column 'y' must hold finite numbers. Got 1e+300, too large for float32, in series 'b' at 2024-01-01 "
        "01:00. Hint: divide the column by a power of ten: values up to 3.4e38 can be stored.",
    ),
    "durations in y": (
        lambda: to_panel(long(y=[timedelta(hours=1)] * 12)),
        "The column 'y' must hold numbers. "
        "Got '1:00:00' in series 'a' at 2024-01-01. "
        "Hint: convert the column to numbers; leave missing values empty.",
    ),
    "lists in y": (
        lambda: to_panel(long(y=[[1.0]] * 12)),
        "The column 'y' must hold numbers. "
        "Got '[1.0]' in series 'a' at 2024-01-01. "
        "Hint: convert the column to numbers; leave missing values empty.",
    ),
    "lists as ids": (
        lambda: to_panel(long(unique_id=[[1]] * 12)),
        "The ids in 'unique_id' must be text or numbers. Got List(Int64) such as [1]. Hint: convert them to text "
        "first, or name another column with id_col=.",
    ),
    "lists in a static column": (
        lambda: to_panel(long(shop=[[1]] * 12), static=["shop"]),
        "The static column 'shop' must hold text or numbers. Got List(Int64). Hint: convert it to text first.",
    ),
    "a lazy frame that fails": (
        lambda: to_panel(long().lazy().select("x")),
        'The table must be readable. Got a polars error: unable to find column "x"; valid columns: ["unique_id", '
        '"ds", "y"]. Hint: read it with polars directly to see what is wrong.',
    ),
    "a duplicate column": (
        lambda: to_panel(pd.DataFrame([["a", 1, 1.0, 2.0]], columns=["unique_id", "ds", "y", "y"])),
        "The column 'y' must be unique. Got two columns of that name. Hint: drop or rename one of them.",
    ),
    "an empty path": (
        lambda: to_panel(""),
        "DATA must be a readable parquet, csv or feather file, or a folder of parquet files. "
        "Got '': an empty path. "
        "Hint: check the path and the ending of the name.",
    ),
    "parts of different types": (
        lambda: to_panel(parts(long(), long(y=["1"] * 12))),
        "The parts of a folder must agree on the column 'y'. Got Float64 in a.parquet, String in b.parquet. Hint: "
        "write all parts with the same columns and types, or remove those that do not belong.",
    ),
    "a part without a column": (
        lambda: to_panel(parts(long(), long().drop("y"))),
        "The parts of a folder must agree on the column 'y'. Got it in a.parquet, but not in b.parquet. Hint: "
        "write all parts with the same columns and types, or remove those that do not belong.",
    ),
    "text in a wide table": (
        lambda: to_panel(pl.DataFrame({"ds": [1, 2], "north": 1.0, "city": "Rome"})),
        "A wide table must hold only numbers besides its time column 'ds'. Got text in 'city'. Hint: drop that "
        "column; if the table is long, name its columns with id_col= and target_col=.",
    ),
    "a missing time in a wide table": (
        lambda: to_panel(pl.DataFrame({"ds": [1, None, 3], "north": 1.0})),
        "Every row must have a time in 'ds'. Got none in row 2. Hint: drop those rows.",
    ),
    "duplicate times in a wide table": (
        lambda: to_panel(pl.DataFrame({"ds": [1, 2, 2], "north": 1.0})),
        "A wide table must have one row per time; 'ds' repeats. Got two rows at 2. Hint: drop or aggregate the "
        "duplicates, or name the column that identifies the series with id_col=.",
    ),
    "a time off the grid in a wide table": (
        lambda: to_panel(pl.DataFrame({"ds": [*range(0, 200, 10), 195], "north": 1.0})),
        "All rows must share one step. Got mostly steps of 10, but not at 195. Hint: pass the step with freq= "
        "(times in between become missing values), or resample the table.",
    ),
    "one time far off in a wide table": (
        lambda: to_panel(pl.DataFrame({"ds": [0, 1, 2, 3, 10**12], "north": 1.0})),
        "The grid must not be much larger than the number of rows. Got 5 rows on a grid of 1000000000001 steps of "
        "1, from 0 to 1000000000000. Hint: pass the right step with freq=, or correct times that are far off.",
    ),
    "a cutoff before the first value": (
        lambda: SeasonalNaive(horizon=1).fit(empty_at_first(), until=HOURS[1]),
        "Every series must have at least one value up to the cutoff. Got series 'a', whose first value is at "
        "2024-01-01 04:00, and a cutoff at 2024-01-01 01:00. Hint: choose a later cutoff, fewer windows, or leave "
        "that series out.",
    ),
    "a backtest before the first value": (
        lambda: backtest(SeasonalNaive(horizon=1), empty_at_first(), windows=4),
        "Every series must be longer than the span of the backtest. "
        "Got series 'a' with 2 steps, 4 of them tested. "
        "Hint: test fewer windows, or leave that series out.",
    ),
    "a history of another step": (
        lambda: SeasonalNaive(horizon=1).fit(long()).predict(hours_from("2024-01-01", 5, "D")),
        "New data must have the step that was fitted. "
        "Got steps of d after h. "
        "Hint: resample it, or fit again; freq= at fit() holds for later histories too.",
    ),
    "future covariates off the grid": (
        lambda: with_heat().predict(future=ahead([60, 90, 120, 180])),
        "Future values must lie on the steps to forecast. Got a time off the grid of h in series 'a' at "
        "2024-01-01 06:30. Hint: write the times as predict() returns them.",
    ),
    "duplicate future covariates": (
        lambda: with_heat().predict(future=ahead([60, 60, 120, 180])),
        "Future values must be unique per series and time. Got two rows for series 'a' at 2024-01-01 06:00. Hint: "
        "drop or aggregate the duplicates.",
    ),
    "future covariates without a time": (
        lambda: with_heat().predict(future=future(3).with_columns(ds=pl.lit(None, pl.Datetime))),
        "Every row must have a time in 'ds'. Got none in row 1. Hint: drop those rows.",
    ),
    "future covariates of other series": (
        lambda: with_heat().predict(future=future(3).with_columns(unique_id=pl.lit(5))),
        "Future values must belong to the series to forecast. Got ids such as 5 for series such as 'a'. Hint: use "
        "the ids of the data that were fitted.",
    ),
    "future covariates without an id": (
        lambda: with_heat().predict(future=future(3).with_columns(unique_id=pl.lit(None, pl.String))),
        "Every row must have an id in 'unique_id'. Got missing ids. Hint: fill or drop those rows.",
    ),
    "until that is not a time": (
        lambda: SeasonalNaive(horizon=1).fit(long(), until="01/02/2024"),
        "until must be a time, or an integer if times are integers. Got '01/02/2024'. Hint: write it like "
        "2024-01-31 or 2024-01-31T15:00.",
    ),
    "until of another type": (
        lambda: SeasonalNaive(horizon=1).fit(long(), until=5),
        "Times in 'until' must have the type of the panel's times. Got 5, while the panel has times like "
        "2024-01-01. Hint: use the same type.",
    ),
    "covariates that are not a list": (
        lambda: to_panel(long(heat=1.0), covariates="heat"),
        "covariates must be a list of column names. Got 'heat'. Hint: write covariates=['heat'].",
    ),
    "an unknown keyword": (
        lambda: to_panel(long(), idcol="unique_id"),  # type: ignore[call-arg]
        "Columns are described by id_col, time_col, target_col, freq, covariates, past_covariates, static, tz, "
        "time_format, dayfirst. "
        "Got the unknown keyword 'idcol'. "
        "Hint: did you mean 'id_col'?",
    ),
    "duplicate result rows": (
        lambda: score(pl.concat([backtest(SeasonalNaive(horizon=1), long())] * 2)),
        "Results must have one row for each series, time and cutoff. "
        "Got two for series 'a' at 2024-01-01 05:00:00, cutoff 2024-01-01 04:00:00. "
        "Hint: score one backtest at a time, or drop the duplicates.",
    ),
}
