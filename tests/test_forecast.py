"""A forecast has quantiles, a frame and a picture; a forecaster reads columns, times and levels of any kind."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logsparse.baselines.naive import SeasonalNaive
from logsparse.diagnostics import Diagnostics
from logsparse.errors import ConfigError, DataError, NotFittedError
from logsparse.forecast import Forecast
from logsparse.registry import load


@pytest.fixture
def fitted(hourly: pl.DataFrame) -> SeasonalNaive:
    return SeasonalNaive(horizon=24).fit(hourly)


def test_the_frame_has_a_row_a_series_and_step_after_each_series_own_end(fitted: SeasonalNaive) -> None:
    frame = fitted.predict(quantiles=[0.9, 0.5])
    assert frame.columns == ["unique_id", "ds", "mean", "q0.5", "q0.9"]
    firsts = frame.group_by("unique_id", maintain_order=True).agg(pl.col("ds").min(), pl.len())
    assert firsts["ds"].dt.to_string().to_list() == ["2024-01-06 00:00:00.000000", "2024-01-08 00:00:00.000000"]
    assert firsts["len"].to_list() == [24, 24]


def test_a_quantile_that_was_not_forecast_is_refused_with_the_way_to_get_it(fitted: SeasonalNaive) -> None:
    forecast = fitted.forecast(quantiles=[0.5])
    with pytest.raises(ConfigError, match=r"must be among those forecast. Got 0.7, with 0.5 there. Hint: forecast\("):
        forecast.quantile(0.7)


def test_samples_answer_for_any_quantile(fitted: SeasonalNaive) -> None:
    samples = np.arange(2 * 101 * 24, dtype=np.float32).reshape(2, 24, 101).swapaxes(1, 2)
    plain = fitted.forecast(quantiles=[0.5])
    forecast = Forecast(plain.panel, plain.mean, plain.levels, plain.quantiles, samples)
    np.testing.assert_allclose(forecast.quantile(0.25)[0, 0], 25)
    assert repr(forecast) == "Forecast(2 series, 24 steps, 101 samples)"


@pytest.mark.parametrize(
    "levels",
    [[0.0], [1.0], [0.5, 1.5], [], [float("nan")], 0.5, "0.5", [10**400], [10**5000], 10**5000],
    ids=lambda levels: f"{type(levels).__name__}",
)
def test_levels_outside_the_open_unit_interval_are_refused(levels: Any, fitted: SeasonalNaive) -> None:
    with pytest.raises(
        ConfigError, match=r"must be a list of levels between 0 and 1, both excluded. Got .*Hint: write"
    ):
        fitted.predict(quantiles=levels)


@pytest.mark.parametrize("level", [1e-300, 9e-7, 1 - 9e-7, 1 - 1e-16])
def test_levels_nearer_to_the_ends_than_a_millionth_are_refused(level: float, fitted: SeasonalNaive) -> None:
    rule = r"^Quantile levels must lie between 0.000001 and 0.999999. Got .*. Hint: "
    with pytest.raises(ConfigError, match=rule):
        fitted.predict(quantiles=[0.5, level])
    assert fitted.predict(quantiles=[1e-6, 0.999999]).columns[-2:] == ["q1e-06", "q0.999999"]


@pytest.mark.parametrize("part", ["mean", "quantiles", "samples"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_forecast_that_is_not_finite_is_never_made(part: str, bad: float, fitted: SeasonalNaive) -> None:
    found = fitted.forecast()
    parts = {"mean": found.mean, "quantiles": found.quantiles, "samples": np.zeros((2, 5, 24), np.float32)}
    parts[part] = parts[part].copy()
    parts[part][1, ..., -1] = bad
    with pytest.raises(DataError, match=r"^A forecast must be finite. Got .* for series 'a'. Hint: "):
        Forecast(fitted.panel_, parts["mean"], found.levels, parts["quantiles"], parts["samples"])


def test_levels_may_come_as_an_array_and_must_have_columns_of_their_own(fitted: SeasonalNaive) -> None:
    assert fitted.predict(quantiles=np.array([0.9, 0.1])).columns[-2:] == ["q0.1", "q0.9"]
    with pytest.raises(ConfigError, match=r"first six digits.* Got 0.1234567 and 0.1234568. Hint: leave one"):
        fitted.predict(quantiles=[0.1234567, 0.1234568])


def test_predicting_before_fitting_names_the_class() -> None:
    with pytest.raises(NotFittedError, match=r"SeasonalNaive must be fitted .* Hint: call SeasonalNaive\(...\).fit"):
        SeasonalNaive(horizon=1).predict()


def test_a_horizon_below_one_is_refused(hourly: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"horizon must be at least 1. Got 0"):
        SeasonalNaive(horizon=0).fit(hourly)
    with pytest.raises(ConfigError, match=r"horizon must be a whole number. Got 1.5. Hint: count"):
        SeasonalNaive(horizon=1.5).fit(hourly)  # type: ignore[arg-type]


def test_a_second_fit_forgets_the_first(hourly: pl.DataFrame) -> None:
    model = SeasonalNaive(horizon=3).fit(hourly)
    again = model.fit(hourly.filter(pl.col("unique_id") == "a"))
    assert again is model
    assert model.predict()["unique_id"].unique().to_list() == ["a"]


def test_until_hides_what_comes_later(hourly: pl.DataFrame) -> None:
    model = SeasonalNaive(horizon=1).fit(hourly, until="2024-01-03T05:00")
    assert model.predict()["ds"].unique().dt.to_string("%d %H").to_list() == ["03 06"]


@pytest.mark.parametrize(
    "until",
    [
        "2024-01-03",
        "2024/01/03 00:00:00",
        date(2024, 1, 3),
        datetime(2024, 1, 3),  # noqa: DTZ001
        np.datetime64("2024-01-03"),
        pd.Timestamp("2024-01-03"),
    ],
)
def test_until_may_be_any_kind_of_time(until: Any, hourly: pl.DataFrame) -> None:
    model = SeasonalNaive(horizon=1).fit(hourly, until=until)
    assert model.predict()["ds"].dt.to_string("%d %H").unique().to_list() == ["03 01"]


@pytest.mark.parametrize("until", ["foo", "01/02/2024", True, 1.5, pd.NaT, np.datetime64("NaT"), 2**70, []])
def test_until_that_is_no_time_is_refused_as_such(until: Any, hourly: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"^until must be a time, or an integer if times are integers. Got .*Hint:"):
        SeasonalNaive(horizon=1).fit(hourly, until=until)


@pytest.mark.parametrize(
    "listed",
    [np.array, pd.Index, set, iter, lambda names: (name for name in names), tuple],
    ids=["array", "Index", "set", "iterator", "generator", "tuple"],
)
def test_columns_named_in_any_kind_of_list_can_be_saved_and_read_again(
    listed: Any, hourly: pl.DataFrame, tmp_path: Path
) -> None:
    table = hourly.with_columns(heat=pl.col("y") / 2, wind=pl.col("y") + 1, shop=pl.col("unique_id"), n=pl.lit(1))
    ahead = table.group_by("unique_id").tail(24).with_columns(pl.col("ds") + pl.duration(days=1))
    fitted = SeasonalNaive(24).fit(table, covariates=listed(["heat", "wind"]), static=listed(["shop"]))
    assert fitted.columns_ == {"covariates": ["heat", "wind"], "static": ["shop"]}
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_frame_equal(again.predict(table, future=ahead), fitted.predict(table, future=ahead), check_exact=True)


def test_columns_named_by_numbers_of_numpy_can_be_saved(hourly: pl.DataFrame, tmp_path: Path) -> None:
    numbered = pd.DataFrame(hourly.to_dict(as_series=False))
    numbered.columns = pd.Index([0, 1, 2])
    fitted = SeasonalNaive(24).fit(numbered, id_col=np.int64(0), time_col=np.int64(1), target_col=np.int64(2))  # type: ignore[arg-type]
    fitted.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(numbered), fitted.predict())


def test_another_history_is_forecast_with_the_same_columns(hourly: pl.DataFrame) -> None:
    renamed = hourly.rename({"unique_id": "shop"})
    model = SeasonalNaive(horizon=1).fit(renamed, id_col="shop")
    other = renamed.with_columns(shop=pl.col("shop") + "2")
    assert model.predict(other)["shop"].to_list() == ["b2", "a2"]


def test_a_notebook_shows_the_picture_and_the_first_rows(fitted: SeasonalNaive) -> None:
    page = fitted.forecast()._repr_html_()
    assert 'src="data:image/png;base64,iVBOR' in page
    assert "unique_id" in page
    assert "Forecast(2 series, 24 steps)" in page


def test_future_values_for_a_model_without_covariates_are_refused(fitted: SeasonalNaive, hourly: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"Future values are for covariates named at fit. Got future=, and no cov"):
        fitted.predict(future=hourly)


def test_the_diagnostics_of_a_forecaster_are_its_settings(fitted: SeasonalNaive) -> None:
    assert fitted.diagnostics() == Diagnostics({"horizon": 24, "season": None}, losses=[], attention=None)
