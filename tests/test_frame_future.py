"""Future covariates are joined to the end of each series, from long frames or, after wide tables, shared ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from logsparse.baselines.naive import SeasonalNaive
from logsparse.errors import DataError


def test_after_a_wide_table_all_series_share_the_covariates() -> None:
    times = pd.date_range("2024-01-01", periods=6, freq="h")
    wide = pd.DataFrame({"when": times, "a": 1.0, "b": [np.nan] + [2.0] * 5, "heat": np.arange(6.0)})
    model = SeasonalNaive(2).fit(wide, covariates=["heat"])
    later = pd.DataFrame({"when": pd.date_range(times[-2], periods=5, freq="h")})
    panel = model.forecast(future=later.assign(heat=[-1.0, -1.0, 10.0, 11.0, 12.0])).panel
    assert panel.covariates["heat"].tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 1, 2, 3, 4, 5, 10, 11]
    with pytest.raises(DataError, match="Got two rows for series 'a' at 2024-01-01 06:00"):
        model.forecast(future=later.iloc[[2, 2, 3]].assign(heat=1.0))


def test_rows_of_the_past_and_of_later_steps_are_not_used(hourly: pl.DataFrame) -> None:
    model = SeasonalNaive(2).fit(hourly.with_columns(heat=pl.lit(1.0)), covariates=["heat"])
    ahead = SeasonalNaive(5).fit(hourly).predict().select("unique_id", "ds").with_columns(heat=pl.lit(2.0))
    past = hourly.select("unique_id", "ds", heat=pl.lit(9.0))
    panel = model.forecast(future=pl.concat([past, ahead])).panel
    heat = panel.covariates["heat"]
    assert heat[panel.indptr[1] - 2 : panel.indptr[1]].tolist() == [2.0, 2.0]
    assert heat[: panel.lengths[0]].tolist() == [1.0] * 96


def test_a_day_without_midnight_can_be_given_as_predict_writes_it() -> None:
    times = pd.date_range("2024-04-20", periods=4, freq="D").tz_localize("Africa/Cairo")
    frame = pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0, "heat": 1.0})
    ahead = SeasonalNaive(4).fit(frame).predict()[["unique_id", "ds"]].assign(heat=[1.0, 2.0, 3.0, 4.0])
    assert ahead["ds"].dt.hour.tolist() == [0, 0, 1, 0]
    panel = SeasonalNaive(4).fit(frame, covariates=["heat"]).forecast(future=ahead).panel
    assert panel.covariates["heat"][-4:].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_missing_future_hour_is_named_on_the_clock_of_the_file() -> None:
    times = pd.date_range("2024-10-26", periods=24, freq="h").astype(str)
    frame = pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0, "heat": 1.0})
    model = SeasonalNaive(6).fit(frame, covariates=["heat"], tz="Europe/Berlin")
    ahead = _heat(6)
    with pytest.raises(DataError, match=r"no row of series 'a' at 2024-10-27 02:00\+01:00\. Hint: add that row\."):
        model.predict(future=ahead.drop(index=3))
    ahead.loc[1, "heat"] = np.nan
    with pytest.raises(DataError, match=r"no value in series 'a' at 2024-10-27 01:00\+02:00\."):
        model.predict(future=ahead)


def _heat(hours: int) -> pd.DataFrame:
    times = pd.date_range("2024-10-27", periods=hours, freq="h", tz="Europe/Berlin").tz_localize(None).astype(str)
    return pd.DataFrame({"unique_id": "a", "ds": times, "heat": 1.0})
