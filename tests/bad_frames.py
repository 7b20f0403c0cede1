"""Every bad input that the door knows, made small: name -> (what to call, the message it gets)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import polars as pl

from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.frame import to_panel
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
    times = [hour.replace(tzinfo=UTC if i % 2 else berlin) for i, hour in enumerate(HOURS)]
    return pd.DataFrame({"unique_id": "a", "ds": pd.Series(times, dtype=object), "y": 1.0})


def with_heat() -> Forecaster:
    return SeasonalNaive(horizon=3).fit(long(heat=[1.0] * 12), covariates=["heat"])


def future(steps: int) -> pl.DataFrame:
    """Heat for so many steps of a, and three of b."""
    ahead = [HOURS[-1] + timedelta(hours=h) for h in range(1, 4)]
    return pl.DataFrame({"unique_id": ["a"] * steps + ["b"] * 3, "ds": ahead[:steps] + ahead, "heat": 1.0})


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "duplicate timestamps": (
        lambda: to_panel(long(ds=[HOURS[0], *HOURS[:5], *HOURS])),
        "A series must have one row a time; 'ds' repeats. Got two rows for series 'a' at 2024-01-01. "
        "Hint: drop or aggregate the doubles, or name the column that tells the series apart with id_col=.",
    ),
    "a time off the grid": (
        lambda: to_panel(irregular()),
        "All series must share one step. Got most steps are h, but not in series 'b' at 2024-01-01 05:30. "
        "Hint: give the step with freq= (what lies between becomes missing), or resample that series.",
    ),
    "no common frequency": (
        lambda: to_panel(two_steps()),
        "All series must share one step. Got most steps are h, but not in series 'b' at 2024-01-01. "
        "Hint: give the step with freq= (what lies between becomes missing), or resample that series.",
    ),
    "one time only": (
        lambda: to_panel(long().head(1)),
        "The step must follow from the times, or be given. Got no series with two times. "
        "Hint: give it with freq=, such as freq='h' for dates or freq=1 for integers.",
    ),
    "text in y": (
        lambda: to_panel(long(y=["1", "2", "three", *map(str, range(9))])),
        "The column 'y' must hold numbers. Got 'three' in series 'a' at 2024-01-01 02:00. "
        "Hint: convert the column to numbers; leave missing values empty.",
    ),
    "infinite values": (
        lambda: to_panel(long(y=[1.0] * 7 + [float("inf")] + [1.0] * 4)),
        "The column 'y' must hold finite numbers. Got an infinite value in series 'b' at 2024-01-01 01:00. "
        "Hint: replace it by a number, or by nothing: missing values are allowed.",
    ),
    "empty frame": (
        lambda: to_panel(long().clear()),
        "A frame must have rows. Got an empty frame. Hint: check what was read or filtered.",
    ),
    "missing columns": (
        lambda: to_panel(long().rename({"unique_id": "uniqueid"})),
        "A frame must have the columns unique_id, ds, y, or be wide: a time column and one number column a series. "
        "Got no unique_id among uniqueid, ds, y. "
        "Hint: 'unique_id' may be 'uniqueid'; name your columns with id_col=, time_col=, target_col=.",
    ),
    "a mistyped covariate": (
        lambda: to_panel(long(heat=1.0), covariates=["heta"]),
        "A frame must have the columns unique_id, ds, y, heta, or be wide: a time column and one number column a "
        "series. Got no heta among unique_id, ds, y, heat. "
        "Hint: 'heta' may be 'heat'; name your columns with id_col=, time_col=, target_col=.",
    ),
    "future covariates that end too early": (
        lambda: with_heat().predict(future=future(2)),
        "The covariate 'heat' must be known for all 3 steps to forecast. Got series 'a' with 2 of them. "
        "Hint: give future values up to 3 steps after 2024-01-01 05:00.",
    ),
    "future covariates not given": (
        lambda: with_heat().predict(),
        "The covariates heat must be known for the 3 steps to forecast. Got no future values. "
        "Hint: give them with predict(future=frame); leave out what is known of the past only.",
    ),
    "mixed time zones": (
        lambda: to_panel(mixed_zones()),
        "The time column 'ds' must keep to one time zone. Got 2 of them: +00:00, +01:00. "
        "Hint: convert all times to one zone, for example UTC, first.",
    ),
    "mixed time zones in text": (
        lambda: to_panel(long(ds=[f"{hour.isoformat()}{'Z' if i else '+02:00'}" for i, hour in enumerate(HOURS * 2)])),
        "The time column 'ds' must keep to one time zone. Got 2 of them: +02:00, Z. "
        "Hint: convert all times to one zone, for example UTC, first.",
    ),
    "another time zone in the future": (
        lambda: with_heat().predict(future=future(3).with_columns(pl.col("ds").dt.replace_time_zone("UTC"))),
        "The time column 'ds' must keep to one time zone. Got UTC after times without a zone. "
        "Hint: convert all times to one zone, for example UTC, first.",
    ),
    "unreadable times": (
        lambda: to_panel(long(ds=["yesterday"] * 12)),
        "The time column 'ds' must hold integers, dates or datetimes. Got the text 'yesterday'. "
        "Hint: write times like 2024-01-31 or 2024-01-31T15:00.",
    ),
    "times that are no times": (
        lambda: to_panel(long(ds=[0.5] * 12)),
        "The time column 'ds' must hold integers, dates or datetimes. Got Float64 such as [0.5]. "
        "Hint: name another column with time_col=, or parse it first.",
    ),
    "a missing time": (
        lambda: to_panel(long(ds=[*HOURS, *HOURS[:5], None])),
        "Every row needs a time in 'ds'. Got none in series 'b'. Hint: drop those rows.",
    ),
    "a missing id": (
        lambda: to_panel(long(unique_id=[None] + ["a"] * 11)),
        "Every row needs an id in 'unique_id'. Got empty ids. Hint: fill or drop those rows.",
    ),
    "a series without a value": (
        lambda: to_panel(long(y=[1.0] * 6 + [None] * 6)),
        "Every series must have at least one value. Got none in series 'b'. Hint: leave that series out.",
    ),
    "a step much too small": (
        lambda: to_panel(long(ds=[*HOURS, *(datetime(1990 + i, 1, 1) for i in range(6))]), freq="s"),  # noqa: DTZ001
        "The grid must be about as large as the rows that fill it. Got 12 rows on a grid of 157784402 steps of s. "
        "Hint: give the true step with freq=.",
    ),
    "a step of the wrong kind": (
        lambda: to_panel(long(), freq=1),
        "The step must follow from the times, or be given. Got freq=1 for Datetime(time_unit='us', time_zone=None) "
        "times. Hint: give it with freq=, such as freq='h' for dates or freq=1 for integers.",
    ),
    "a static column that changes": (
        lambda: to_panel(long(shop=list("xxxxxyzzzzzz")), static=["shop"]),
        "The static column 'shop' must keep one value a series. Got two in series 'a'. "
        "Hint: name it in covariates= if it changes with time.",
    ),
    "something that is no frame": (
        lambda: to_panel([1, 2, 3]),
        "Data must be a pandas, polars or pyarrow frame, or the path of a file. Got builtins.list. "
        "Hint: make a frame of it first, for example with polars.DataFrame(...).",
    ),
    "a file that is not there": (
        lambda: to_panel("nowhere.parquet"),
        "DATA must be a readable parquet, csv or feather file, or a folder of parquet files. "
        "Got nowhere.parquet: no such file. Hint: check the path and the ending of the name.",
    ),
}
