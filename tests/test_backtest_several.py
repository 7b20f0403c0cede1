"""Several forecasters in one backtest: the same windows, one frame with the names of the models."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError

COLUMNS = ["unique_id", "ds", "cutoff", "y", "model", "mean"]


class Half(ls.SeasonalNaive):
    """A point forecaster: half of seasonal naive."""

    point_only = True

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> ls.Forecast:
        naive = super()._forecast(panel, levels)
        mean_SH = (naive.mean / 2).astype(np.float32)
        return ls.Forecast(panel, mean_SH, levels, mean_SH[:, None])


@pytest.fixture
def stores(hourly: pl.DataFrame) -> pl.DataFrame:
    return hourly.with_columns(kind=pl.when(pl.col("unique_id") == "a").then(pl.lit("big")))


def test_each_model_has_the_rows_that_it_has_alone(hourly: pl.DataFrame) -> None:
    models = {"day": ls.SeasonalNaive(24), "hour": ls.SeasonalNaive(24, season=1)}
    both = ls.backtest(models, hourly, windows=2, step=5)
    assert both.columns[:6] == COLUMNS
    assert both["model"].unique(maintain_order=True).to_list() == ["day", "hour"]
    for name, model in models.items():
        alone = ls.backtest(model, hourly, windows=2, step=5)
        assert "model" not in alone.columns
        assert both.filter(model=name).drop("model").equals(alone)


def test_a_list_is_named_by_class_and_number(hourly: pl.DataFrame) -> None:
    results = ls.backtest([ls.SeasonalNaive(24), Half(24), ls.SeasonalNaive(24, season=2)], hourly)
    assert results["model"].unique(maintain_order=True).to_list() == ["SeasonalNaive", "Half", "SeasonalNaive-2"]
    assert ls.backtest((Half(24),), hourly)["model"].unique().to_list() == ["Half"]


def test_a_point_forecaster_has_null_where_others_have_quantiles(hourly: pl.DataFrame) -> None:
    results = ls.backtest([Half(24), ls.SeasonalNaive(24)], hourly)
    assert results.columns[6:15] == [f"q0.{level}" for level in range(1, 10)]
    half = results.filter(model="Half")
    assert half["q0.9"].null_count() == half.height
    assert half["q0.5"].equals(half["mean"], check_names=False)
    assert results.filter(model="SeasonalNaive").null_count().sum_horizontal().item() == 0
    given = ls.backtest([Half(24), ls.SeasonalNaive(24)], hourly, quantiles=[0.1, 0.9])
    assert given.columns[5:9] == ["mean", "q0.1", "q0.9", "seasonal_naive"]


def test_static_columns_stay_in_the_frame(stores: pl.DataFrame) -> None:
    for results in (
        ls.backtest(ls.SeasonalNaive(24), stores, static=["kind"], windows=2),
        ls.backtest([ls.SeasonalNaive(24), Half(24)], stores, static=["kind"], windows=2),
    ):
        assert results.columns[-3:] == ["seasonal_naive", "seasonal_error", "kind"]
        kinds = dict(results.select("unique_id", "kind").unique().iter_rows())
        assert kinds == {"a": "big", "b": None}


def test_names_of_the_data_come_out_in_the_library_they_came_in(hourly: pl.DataFrame) -> None:
    frame = ls.backtest([ls.SeasonalNaive(24), Half(24)], hourly.to_pandas())
    assert list(frame.columns[:6]) == COLUMNS
    assert np.isnan(frame.loc[frame.model == "Half", "q0.1"]).all()


@pytest.mark.parametrize("name", ["model", "mean", "q0.5", "cutoff", "seasonal_naive"])
def test_a_static_column_with_the_name_of_a_result_is_refused(name: str, stores: pl.DataFrame) -> None:
    frame = stores.rename({"kind": name})
    with pytest.raises(DataError, match=rf"A static column must not have the name of .* Got '{name}'. Hint: rename it"):
        ls.backtest(ls.SeasonalNaive(24), frame, static=[name])


def test_fitted_models_are_used_as_they_are_and_checked_before_others_are_fitted(hourly: pl.DataFrame) -> None:
    class Untouched(ls.SeasonalNaive):
        def _fit(self, panel: Panel) -> None:
            del panel
            raise AssertionError("fitted before the others were checked")

    fitted = ls.SeasonalNaive(24).fit(hourly)
    with pytest.raises(DataError, match="A backtest must begin after the model's training ended"):
        ls.backtest([Untouched(24), fitted], hourly)
    early = ls.SeasonalNaive(24, season=1).fit(hourly, until="2024-01-04T23:00")
    results = ls.backtest({"early": early, "now": ls.SeasonalNaive(24, season=1)}, hourly)
    same = [results.filter(model=name).drop("model") for name in ("early", "now")]
    assert same[0]["mean"].equals(same[1]["mean"])


@pytest.mark.parametrize(
    ("forecasters", "message"),
    [
        ([], r"A backtest needs at least one forecaster. Got \[\]. Hint: write backtest\(\[a, b\], frame\)"),
        ({}, "A backtest needs at least one forecaster. Got {}"),
        ({3: ls.SeasonalNaive(24)}, "Forecasters are named by text. Got 3. Hint"),
        ([ls.SeasonalNaive(24), "ets"], "A backtest needs a forecaster with its settings. Got str"),
        ([ls.SeasonalNaive], "Got the class SeasonalNaive. Hint"),
        (
            [ls.SeasonalNaive(24), ls.SeasonalNaive(12)],
            "must have the same horizon. Got 24 for SeasonalNaive, 12 for SeasonalNaive-2. Hint: give all of them one",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(forecasters: object, message: str, hourly: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=message):
        ls.backtest(forecasters, hourly)  # type: ignore[arg-type]
