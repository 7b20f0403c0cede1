"""What `score` makes of odd columns and missing values, and the text of every refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import logsparse as ls
from logsparse.errors import ConfigError, DataError
from logsparse.evaluation.metrics import score


def results() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    keys = {"unique_id": np.repeat(["T0", "T1", "T2"], 8), "ds": np.tile(np.arange(8) + 1, 3)}
    numbers = {name: rng.normal(1, 2, 24) for name in ("y", "mean", "q0.1", "q0.5", "q0.9")}
    scale = np.repeat([1.0, 2.0, 3.0], 8)
    return pl.DataFrame(keys | {"cutoff": (keys["ds"] - 1) // 4 * 4} | numbers | {"seasonal_error": scale})


def row(frame: pl.DataFrame) -> dict[str, Any]:
    return score(frame).row(0, named=True)  # type: ignore[no-any-return]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_y_are_not_scored_even_where_the_forecast_is_missing(missing: float | None) -> None:
    frame = results()
    gone = pl.col("ds") % 3 == 0
    holes = frame.with_columns(
        pl.when(gone).then(pl.lit(missing)).otherwise(name).alias(name) for name in ("y", "mean", "q0.1", "q0.9")
    )
    assert row(holes) == pytest.approx(row(frame.filter(~gone)))


def test_a_series_never_observed_keeps_its_row_without_scores() -> None:
    scores = score(results().with_columns(y=pl.when(pl.col("unique_id") != "T1").then("y")), by="unique_id")
    assert scores["count"].to_list() == [8, 0, 8]
    assert set(scores.drop("unique_id", "count").row(1)) == {None}


def test_an_empty_frame_has_no_scores() -> None:
    scores = row(results().clear())
    assert scores.pop("count") == 0
    assert set(scores.values()) == {None}
    assert score(results().clear(), by="step").height == 0


def test_all_zero_targets_leave_only_the_ratios_null() -> None:
    scores = row(results().with_columns(y=pl.lit(0.0)))
    assert {name for name, value in scores.items() if value is None} == {
        *("R0.1", "R0.5", "R0.9", "wql", "width_80", "nd"),
    }
    assert row(results().with_columns(y=0.0, mean=0.0).select("unique_id", "y", "mean"))["smape"] == 0


def test_what_cannot_be_computed_is_left_out() -> None:
    frame = results()
    mean = row(frame.select("unique_id", "y", "mean"))
    assert list(mean) == ["count", "nd", "smape", "mae", "rmse"]
    assert mean["nd"] == pytest.approx(float((frame["y"] - frame["mean"]).abs().sum()) / float(frame["y"].abs().sum()))
    median = row(frame.select("unique_id", "y", "q0.5"))
    assert list(median) == ["count", "R0.5", "wql", "crps_quantiles", "nd", "smape", "mae"]
    assert median["crps_quantiles"] == pytest.approx((frame["y"] - frame["q0.5"]).abs().mean())
    assert list(row(frame.select("unique_id", "y", "q0.1"))) == ["count", "R0.1", "wql", "crps_quantiles"]


@pytest.mark.parametrize("bad", [None, float("nan"), 0.0, float("inf")])
def test_series_without_a_seasonal_error_are_left_out_of_mase_alone(bad: float | None) -> None:
    frame = results()
    first = pl.col("unique_id") == "T0"
    scores = row(frame.with_columns(seasonal_error=pl.when(first).then(pl.lit(bad)).otherwise("seasonal_error")))
    assert scores["mase"] == pytest.approx(row(frame.filter(~first))["mase"])
    assert scores["nd"] == row(frame)["nd"]
    assert row(frame.with_columns(seasonal_error=None))["mase"] is None


def test_intervals_are_named_by_their_share_and_other_columns_ignored() -> None:
    frame = results().select("unique_id", "y", *[pl.col("q0.1").alias(f"q{q}") for q in ("0.025", "0.05", "0.9")])
    frame = frame.with_columns(pl.col("y").alias("q0.975"), q1=pl.lit("x"), quarter=1, qa=2, R=None)
    names = set(row(frame))
    assert {"R0.025", "R0.05", "R0.9", "R0.975", "coverage_95", "width_95"} <= names
    assert not names & {"R1", "coverage_90", "coverage_80"}


def test_float32_columns_are_summed_in_float64() -> None:
    count = 300_000
    frame = pl.DataFrame({"unique_id": ["a"], "y": [1.0], "mean": [1.1]}).select(pl.all().repeat_by(count).explode())
    frame = frame.with_columns(pl.col("y", "mean").cast(pl.Float32))
    assert row(frame)["nd"] == pytest.approx(float(np.float32(1.1)) - 1, rel=1e-12)


def test_a_row_that_comes_twice_is_refused() -> None:
    frame = results()
    with pytest.raises(
        DataError, match=r"one row for each series, time and cutoff. Got two for series 'T0' at 3, cutoff"
    ):
        score(pl.concat([frame, frame[2:3]]))
    assert score(frame.drop("cutoff")).height == 1


def test_columns_that_come_twice_are_refused_if_they_are_scored() -> None:
    frame = results().to_pandas()
    for name in ("y", "q0.5"):
        with pytest.raises(DataError, match=f"The column '{name}' must be unique. Got two columns of that name"):
            score(pd.concat([frame, frame[[name]]], axis=1))
    assert len(score(pd.concat([frame.assign(z=1), frame[["y"]].set_axis(["z"], axis=1)], axis=1))) == 1


def test_ids_of_a_csv_file_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    results().with_columns(pl.col("unique_id").replace({"T0": "007", "T1": "7", "T2": "NA"})).write_csv(path)
    assert score(path, by="unique_id")["unique_id"].to_list() == ["007", "7", "NA"]


def test_crps_of_samples_is_public() -> None:
    assert ls.crps_samples([1.0, 2.0], 1.0) == 0.25


def test_unknown_by_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"by must be None, 'unique_id'.* Got \['step'\]. Hint: did you mean 'step'"):
        score(results(), by=["step"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"'cutoff' or another column of the results, such .* Got 'series'\. Hint"):
        score(results(), by="series")


@pytest.mark.parametrize(
    ("by", "gone"), [(None, "y"), ("cutoff", "cutoff"), ("step", "ds"), ("unique_id", "unique_id")]
)
def test_missing_columns_are_named(by: str | None, gone: str) -> None:
    with pytest.raises(DataError, match=rf"must have the columns .*{gone}.*Got no {gone} among .*mean"):
        score(results().drop(gone), by=by)


def test_a_frame_without_forecasts_is_refused() -> None:
    with pytest.raises(DataError, match=r"must have a forecast: .* Got only unique_id, y\. Hint: name"):
        score(results().select("unique_id", "y"))


def test_two_columns_for_one_quantile_are_refused() -> None:
    with pytest.raises(DataError, match=r"Each quantile must have one column\. Got a second for 0\.5, 'q0\.50'"):
        score(results().with_columns(pl.col("q0.5").alias("q0.50")))


@pytest.mark.parametrize("name", ["y", "mean", "q0.9", "seasonal_error"])
def test_text_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=rf"Column '{name}' must hold numbers\. Got String"):
        score(results().with_columns(pl.lit("12").alias(name)))


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mean", "q0.9"])
def test_a_missing_forecast_is_an_error_that_names_the_series(name: str, bad: float | None) -> None:
    hole = (pl.col("unique_id") == "T1") & (pl.col("cutoff") == 4)
    frame = results().with_columns(pl.when(hole).then(pl.lit(bad)).otherwise(name).alias(name))
    text = rf"A forecast must be finite wherever y is known\. Got {name} = .* in series 'T1' at ds 5, cutoff 4, "
    with pytest.raises(DataError, match=text + r"in 4 rows of 1 series\. Hint: set y to missing"):
        score(frame)


def test_infinite_y_is_an_error_that_names_the_series() -> None:
    frame = results().select("unique_id", "mean", y=pl.when(pl.col("unique_id") == "T2").then(-np.inf).otherwise("y"))
    with pytest.raises(DataError, match=r"y must be finite or missing\. Got y = -inf in series 'T2', in 8 rows"):
        score(frame)
