"""Yesterday's forecast is scored against the values that came since, in Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import logsparse
from logsparse.errors import DataError

DAYS = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 29), eager=True)


@pytest.fixture
def sales() -> pl.DataFrame:
    values = [float(n % 7 + n // 30) for n in range(len(DAYS))]
    one = pl.DataFrame({"ds": DAYS, "y": values})
    return pl.concat(
        one.select(pl.lit(n).alias("unique_id"), pl.all(), pl.lit(f"r{n}").alias("region")) for n in (7, 8)
    )


def split(sales: pl.DataFrame, **names: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Forecast of the last week, and all that is known a day after it began."""
    time = names.get("time_col", "ds")
    until = sales.filter(pl.col(time) <= DAYS[-8])
    return ls.SeasonalNaive(7).fit(until, **names).predict(), sales.filter(pl.col(time) <= DAYS[-6])


def test_the_scores_are_those_of_the_join_by_hand(sales: pl.DataFrame) -> None:
    forecast, today = split(sales)
    joined = forecast.join(today, on=["unique_id", "ds"], how="left")
    scores = ls.score(forecast, actuals=today)
    assert scores.equals(ls.score(joined))
    assert scores["count"].item() == 4  # two series, two of seven days have come
    assert scores["mae"].item() == pytest.approx((joined["y"] - joined["q0.5"]).abs().mean())


def test_forecasts_and_actuals_in_folders_of_parts_have_the_scores_of_the_tables(
    sales: pl.DataFrame, tmp_path: Path
) -> None:
    forecast, today = split(sales)
    ls.shard(forecast, tmp_path / "forecast", parts=2)
    ls.shard(today, tmp_path / "today", parts=2)
    assert ls.score(tmp_path / "forecast", actuals=tmp_path / "today").equals(ls.score(forecast, actuals=today))


def test_a_category_of_the_actuals_groups_the_scores(sales: pl.DataFrame) -> None:
    forecast, today = split(sales)
    scores = ls.score(forecast, actuals=today, by="region")
    assert scores["region"].to_list() == ["r7", "r8"]
    assert scores["count"].to_list() == [2, 2]


def test_own_names_and_other_libraries_come_out_again(sales: pl.DataFrame) -> None:
    named = sales.rename({"unique_id": "sku", "ds": "date", "y": "qty"})
    forecast, today = split(named, id_col="sku", time_col="date", target_col="qty")
    scores = ls.score(forecast.to_pandas(), actuals=today, by="sku", target_col="qty")
    assert scores.columns.tolist()[0] == "sku"
    assert scores["count"].tolist() == [2, 2]


def test_the_command_scores_files_of_any_two_formats(sales: pl.DataFrame, tmp_path: Path) -> None:
    forecast, today = split(sales)
    forecast.write_csv(tmp_path / "forecast.csv")
    today.write_parquet(tmp_path / "today.parquet")
    asked = ["score", tmp_path / "forecast.csv", "--actuals", tmp_path / "today.parquet", "--by", "region"]
    done = logsparse(*asked, "-o", tmp_path / "scores.json")
    assert done.code == 0, done.err
    assert [row["count"] for row in json.loads((tmp_path / "scores.json").read_text())] == [2, 2]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.filter(pl.col("ds") < DAYS[9]), "Actuals must have values of the series and times that were"),
        (lambda t: t.clear(), "Actuals must have rows"),
        (
            lambda t: pl.concat([t, t]),
            "Actuals must have one row for each series and time. Got two for series 7 at 2024",
        ),
        (lambda t: t.drop("y"), "Actuals must have the columns unique_id, ds, y. Got no y among unique_id, ds, region"),
        (
            lambda t: t.with_columns(pl.col("ds").cast(pl.Datetime("us", "UTC"))),
            "both with a time zone or both without",
        ),
    ],
)
def test_actuals_that_do_not_fit_are_refused(change: Any, text: str, sales: pl.DataFrame) -> None:
    forecast, today = split(sales)
    with pytest.raises(DataError, match=text):
        ls.score(forecast, actuals=change(today))


def test_a_forecast_without_values_says_what_it_needs(sales: pl.DataFrame, tmp_path: Path) -> None:
    forecast, today = split(sales)
    with pytest.raises(DataError, match="what predict returns needs actuals=, the values that came"):
        ls.score(forecast)
    with pytest.raises(DataError, match=r"must be without values\. Got a column 'y'"):
        ls.score(forecast.with_columns(y=1.0), actuals=today)
    forecast.write_csv(tmp_path / "forecast.csv")
    assert "needs --actuals" in logsparse("score", tmp_path / "forecast.csv").err
