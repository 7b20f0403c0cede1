"""The numbers of a report: those of `score`, beside those of seasonal naive, and calibration with ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.errors import DataError
from logsparse.reporting.numbers import Results
from report_pages import results


def test_scores_are_those_of_score_with_seasonal_naive_beside_them() -> None:
    frame = results()
    for by in (None, "unique_id", "step", "cutoff"):
        scores = Results(frame).scores(by)
        assert scores.select(ls.score(frame, by=by).columns).equals(ls.score(frame, by=by))
        naive = ls.score(frame.select("unique_id", "ds", "cutoff", "y", "seasonal_error", mean="seasonal_naive"), by=by)
        for name in ("nd", "mase", "mae", "rmse"):
            assert scores[f"naive_{name}"].to_list() == naive[name].to_list()


def test_the_error_of_a_step_is_divided_by_the_mean_of_all_values_so_that_steps_of_zeros_stay_finite() -> None:
    frame = results(windows=1, horizon=2).with_columns(
        y=pl.when(pl.col("ds") == 2).then(0.0).otherwise(4.0), **{"q0.5": pl.lit(1.0)}, seasonal_naive=pl.lit(2.0)
    )
    table = Results(frame).by_step
    assert table["step"].to_list() == [1, 2]
    assert table["error"].to_list() == [3 / 2, 1 / 2]
    assert table["naive_error"].to_list() == [1.0, 1.0]
    assert table["error"].mean() == Results(frame).overall["nd"]


def test_series_are_ranked_by_a_score_without_a_unit() -> None:
    frame = results(series=4)
    assert Results(frame).ranking == "mase"
    assert Results(frame).by_series["mase"].is_sorted()
    assert Results(frame.drop("seasonal_error")).ranking == "nd"
    assert Results(frame.drop("seasonal_error").with_columns(y=0.0)).ranking == "mae"
    assert Results(frame.drop("mean", "q0.5")).ranking == "wql"


def test_calibration_counts_values_below_each_quantile() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": range(1, 5), "cutoff": 0, "y": [1.0, 2.0, 3.0, 4.0]})
    levels = Results(frame.with_columns(**{"q0.2": pl.lit(1.5), "q0.8": pl.lit(3.5)})).calibration
    assert [(e.level, e.observed, e.tied) for e in levels] == [(0.2, 0.25, 0), (0.8, 0.75, 0)]


def test_a_value_that_was_predicted_exactly_does_not_change_the_calibration() -> None:
    same = {f"q{level}": pl.lit(0.0) for level in (0.1, 0.5, 0.9)}
    frame = pl.DataFrame({"unique_id": "a", "ds": range(1, 5), "cutoff": 0, "y": [0.0] * 4})
    levels = Results(frame.with_columns(**same)).calibration
    assert [e.observed for e in levels] == pytest.approx([0.1, 0.5, 0.9])
    assert [e.tied for e in levels] == [1, 1, 1]
    # Two of three levels equal it: it is spread from 0 to 0.9, where the next quantile lies above.
    above = Results(frame.with_columns(**same | {"q0.9": pl.lit(1.0)})).calibration
    assert [e.observed for e in above] == pytest.approx([0.1 / 0.9, 0.5 / 0.9, 1.0])


def test_calibration_of_crossing_quantiles_stays_within_bounds() -> None:
    frame = results().with_columns(y=pl.col("q0.5"), **{"q0.1": pl.col("q0.9"), "q0.9": pl.col("q0.1")})
    assert all(0 <= entry.observed <= 1 for entry in Results(frame).calibration)


def test_calibration_of_the_true_distribution_is_the_diagonal() -> None:
    y = np.random.default_rng(0).uniform(size=20_000)
    frame = pl.DataFrame({"unique_id": "a", "ds": np.arange(y.size), "cutoff": -1, "y": y})
    levels = (0.1, 0.3, 0.5, 0.9)
    found = Results(frame.with_columns(pl.lit(level).alias(f"q{level}") for level in levels)).calibration
    assert [entry.observed for entry in found] == pytest.approx(levels, abs=0.01)


def test_intervals_are_those_of_score_from_narrow_to_wide() -> None:
    frame = results()
    scores = ls.score(frame).row(0, named=True)
    found = Results(frame).intervals
    assert [entry.nominal for entry in found] == [0.5, 0.8]
    assert [entry.coverage for entry in found] == [scores["coverage_50"], scores["coverage_80"]]


def test_series_on_which_the_model_beats_seasonal_naive_are_counted() -> None:
    frame = results().with_columns(y=1.0, seasonal_naive=2.0).with_columns(pl.lit(1.5).alias("q0.5"))
    worse = pl.when(pl.col("unique_id") == "s0").then(5.0).otherwise("q0.5").alias("q0.5")
    assert Results(frame.with_columns(worse)).wins == (2, 3)
    assert Results(frame.drop("seasonal_naive")).wins is None


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            results(y=None, cutoff=None),
            r"must have the columns unique_id, ds, cutoff, y and a forecast. Got no cutoff, y among unique_id, ds",
        ),
        (
            results().select("unique_id", "ds", "cutoff", "y"),
            r"Got no mean or quantiles such as q0.5 among unique_id, ds, cutoff, y. Hint: report on the frame",
        ),
        (pl.DataFrame(), r"Got no unique_id, ds, cutoff, y, mean or quantiles such as q0.5 among no columns. Hint"),
        (results().clear(), r"A report needs values of y to score the forecasts. Got none in 0 rows. Hint: report"),
        (results(y=pl.lit(None)), r"A report needs values of y .* Got none in 24 rows"),
        (results(cutoff=pl.lit(None, pl.Int64)), r"Every row of the results needs a cutoff. Got none in 24 rows. Hint"),
        (
            results(seasonal_naive=pl.lit(None)),
            r"seasonal_naive must be finite wherever y has a value. Got .*drop",
        ),
        (results(seasonal_naive=pl.lit("x")), r"seasonal_naive must be finite wherever y has a value"),
        (results(mean=pl.lit(np.nan)), r"A forecast must be finite wherever y is known. Got mean = nan"),
        (results(y=pl.lit("x")), r"Column 'y' must hold numbers. Got String"),
        (results(ds=pl.lit("soon")), r"must hold integers, dates or datetimes. Got the text 'soon'"),
        (results(ds=pl.lit(1)), r"one row for each series, time and cutoff. Got two for series 's0' at 1"),
    ],
)
def test_frames_that_cannot_be_reported_on_are_refused_with_the_reason(frame: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Results(frame)
