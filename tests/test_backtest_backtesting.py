"""A backtest forecasts from the past only, at the right cutoffs, beside the true values."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError
from logsparse.train.loop import Training


class Spy(SeasonalNaive):
    """Seasonal naive that remembers what it was shown."""

    fits: list[list[int]]
    shown: list[list[int]]

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon)
        self.fits, self.shown = [], []

    def clone(self) -> Spy:
        twin = Spy(self.horizon)
        twin.fits, twin.shown = self.fits, self.shown
        return twin

    def _fit(self, panel: Panel) -> None:
        super()._fit(panel)
        self.fits.append(panel.lengths.tolist())

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> ls.Forecast:
        self.shown.append(panel.lengths.tolist())
        return super()._forecast(panel, levels)


def test_the_rolling_day_moves_the_start_and_fits_once(hourly: pl.DataFrame) -> None:
    spy = Spy(24)
    ls.backtest(spy, hourly, windows=3)
    assert spy.fits == [[96 - 72, 168 - 72]]
    assert spy.shown == [[24, 96], [48, 120], [72, 144]]


def test_refitting_fits_at_every_cutoff(hourly: pl.DataFrame) -> None:
    spy = Spy(24)
    ls.backtest(spy, hourly, windows=2, refit=True)
    assert spy.fits == [[48, 120], [72, 144]]


def test_a_smaller_step_gives_overlapping_windows(hourly: pl.DataFrame) -> None:
    results = ls.backtest(SeasonalNaive(24), hourly, windows=3, step=6)
    cutoffs = results.filter(pl.col("unique_id") == "a")["cutoff"].unique().sort().dt.to_string("%d %H").to_list()
    assert cutoffs == ["06 11", "06 17", "06 23"]


def test_cutoffs_count_back_from_each_series_own_end_or_from_a_given_time(hourly: pl.DataFrame) -> None:
    own = ls.backtest(SeasonalNaive(24), hourly)
    assert own.group_by("unique_id").agg(pl.col("ds").max()).sort("unique_id")["ds"].dt.day().to_list() == [7, 5]
    given = ls.backtest(SeasonalNaive(24), hourly, until="2024-01-04T23:00")
    assert given.group_by("unique_id").agg(pl.col("ds").max())["ds"].dt.day().to_list() == [4, 4]


def test_the_truth_stands_beside_the_forecast(hourly: pl.DataFrame) -> None:
    results = ls.backtest(SeasonalNaive(24), hourly, windows=2)
    joined = results.join(hourly, on=["unique_id", "ds"], suffix="_true")
    assert joined.height == results.height == 2 * 2 * 24
    np.testing.assert_allclose(joined["y"], joined["y_true"], rtol=1e-6)
    assert (results["cutoff"] < results["ds"]).all()
    assert results.columns[:5] == ["unique_id", "ds", "cutoff", "y", "mean"]


def test_values_after_the_cutoff_never_reach_the_forecast(hourly: pl.DataFrame) -> None:
    plain = ls.backtest(SeasonalNaive(24), hourly)
    last_day = pl.col("ds") >= pl.col("ds").max().over("unique_id") - pl.duration(hours=23)
    changed = hourly.with_columns(pl.when(last_day).then(1e6).otherwise("y").alias("y"))
    poisoned = ls.backtest(SeasonalNaive(24), changed)
    assert plain.drop("y").equals(poisoned.drop("y"))
    assert (poisoned["y"] == 1e6).all()


def test_a_fitted_model_is_used_as_it_is_and_refused_on_what_it_has_seen(hourly: pl.DataFrame) -> None:
    spy = Spy(24)
    spy.fit(hourly, until="2024-01-04T23:00")
    ls.backtest(spy, hourly)
    assert len(spy.fits) == 1
    with pytest.raises(
        DataError,
        match=r"begin after the model's training ended. Got series 'b': trained up to 2024-01-04 23:00; "
        r"first cutoff 2024-01-02 23:00. Hint: fit with until= an earlier time, or test with refit=True",
    ):
        ls.backtest(spy, hourly, windows=3)


def test_a_backtest_longer_than_a_series_is_refused_by_name(hourly: pl.DataFrame) -> None:
    with pytest.raises(DataError, match=r"longer than the span of the backtest. Got series 'b' with 96 steps, 96 of"):
        ls.backtest(SeasonalNaive(24), hourly, windows=4)


@pytest.mark.parametrize("huge", [10**9, 2**62, 2**64, 10**20, 10**5000], ids=lambda huge: f"{huge.bit_length()} bits")
@pytest.mark.parametrize("name", ["windows", "step"])
def test_a_span_beyond_all_memory_is_refused_as_any_other_that_is_too_long(
    name: str, huge: int, hourly: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_table(*_: object, **__: object) -> None:
        raise AssertionError("a table of cutoffs was begun")

    panel, asked = to_panel(hourly), dict[str, Any]({"windows": 2, name: huge})
    monkeypatch.setattr("logsparse.evaluation.backtest.np.arange", no_table)
    with pytest.raises(DataError, match=r"longer than the span of the backtest. Got series 'b' with 96 steps, .* of"):
        ls.backtest(SeasonalNaive(24), panel, **asked)


def test_a_step_between_cutoffs_says_nothing_where_there_is_one_cutoff(hourly: pl.DataFrame) -> None:
    usual = ls.backtest(SeasonalNaive(24), hourly)
    assert ls.backtest(SeasonalNaive(24), hourly, step=10**20).equals(usual)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": 0}, "windows must be at least 1. Got 0. Hint: count the cutoffs"),
        ({"windows": 1.5}, "windows must be a whole number. Got 1.5. Hint"),
        ({"step": 0}, "step must be at least 1. Got 0. Hint: count the steps from one cutoff to the next"),
        ({"step": "2"}, "step must be a whole number. Got '2'. Hint"),
        ({"season": 0}, "season must be at least 1. Got 0. Hint: count its steps, or leave it out for the usual one"),
        ({"season": 10**9}, "season must be at most 1000000. Got 1000000000. Hint: count its steps"),
        ({"season": 0.5}, "season must be a whole number. Got 0.5. Hint"),
        ({"idcol": "x"}, "Got the unknown keyword 'idcol'. Hint: did you mean 'id_col'"),
    ],
)
def test_settings_of_a_backtest_are_refused_by_name(
    settings: dict[str, Any], message: str, hourly: pl.DataFrame
) -> None:
    with pytest.raises(ConfigError, match=message):
        ls.backtest(SeasonalNaive(24), hourly, **settings)


def test_a_backtest_takes_a_forecaster_with_settings_that_can_be_meant(hourly: pl.DataFrame) -> None:
    with pytest.raises(ConfigError, match=r"Got the class SeasonalNaive. Hint: write backtest\(SeasonalNaive\(horizon"):
        ls.backtest(SeasonalNaive, hourly)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"needs a forecaster with its settings. Got str. Hint"):
        ls.backtest("seasonal-naive", hourly)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^horizon must be at least 1. Got 0"):
        ls.backtest(SeasonalNaive(0), hourly)


def test_values_near_the_limit_of_float32_are_forecast_without_overflow() -> None:
    frame = pl.DataFrame({"ds": np.arange(24), "y": [3e38, -3e38] * 12})
    results = ls.backtest(SeasonalNaive(2, season=3), frame)
    assert np.isfinite(results.drop("ds", "unique_id").to_numpy()).all()
    assert (results["q0.9"] > results["q0.1"]).all()


def test_the_seasonal_error_comes_from_before_the_first_cutoff(hourly: pl.DataFrame) -> None:
    results = ls.backtest(SeasonalNaive(24), hourly.filter(pl.col("unique_id") == "a"), windows=2)
    assert results["seasonal_error"].unique().to_list() == [pytest.approx(0, abs=1e-5)]


def test_seasonal_naive_stands_beside_any_forecast_as_it_would_have_been_said_at_each_cutoff(
    hourly: pl.DataFrame,
) -> None:
    class Zero(SeasonalNaive):
        def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> ls.Forecast:
            said = super()._forecast(panel, levels)
            return ls.Forecast(panel, 0 * said.mean, levels, 0 * said.quantiles)

    noisy = hourly.with_columns(y=pl.col("y") + pl.int_range(pl.len()) % 7)
    beside = ls.backtest(Zero(24), noisy, windows=3, step=5)
    alone = ls.backtest(SeasonalNaive(24), noisy, windows=3, step=5)
    assert beside.columns[-2:] == ["seasonal_naive", "seasonal_error"]
    assert (beside["mean"] == 0).all()
    assert beside["seasonal_naive"].equals(alone["mean"])
    assert alone["seasonal_naive"].equals(alone["mean"])


def test_a_season_that_is_given_holds_for_what_is_compared_with() -> None:
    frame = pl.DataFrame({"ds": np.arange(24), "y": np.arange(24) % 3 * 1.0})
    usual = ls.backtest(SeasonalNaive(6), frame)
    assert usual["seasonal_naive"].to_list() == [2.0] * 6
    assert usual["seasonal_error"].unique().item() > 1
    given = ls.backtest(SeasonalNaive(6), frame, season=3)
    assert given["seasonal_naive"].to_list() == [0.0, 1.0, 2.0] * 2
    assert given["seasonal_error"].unique().item() == 0


@pytest.mark.parametrize(
    ("name", "horizon", "windows", "until", "expected"),
    [
        ("solar_hourly", 24, 7, "2006-08-31T23:00", 0.2565),
        ("m4_hourly", 48, 1, None, 0.0483),
        ("electricity_c_fortnight", 24, 7, None, 0.0693),
    ],
)
def test_seasonal_naive_scores_what_is_known_of_it_on_the_papers_sets(
    name: str, horizon: int, windows: int, until: str | None, expected: float, shared_data: Path
) -> None:
    results = ls.backtest(SeasonalNaive(horizon), shared_data / f"{name}.parquet", windows=windows, until=until)
    assert round(ls.score(results)["R0.5"][0], 4) == expected


@pytest.mark.parametrize("refit", [False, True])
def test_an_interrupted_training_ends_the_backtest(refit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on with the next window, and score weights that were hardly trained."""
    steps, learn = [], Training.learn

    def interrupted(training: Training) -> float:
        steps.append(training.step)
        signal.raise_signal(signal.SIGINT)
        return learn(training)

    monkeypatch.setattr(Training, "learn", interrupted)
    model = ls.LogSparse(6, config=small.config(windows=64, batch=16), verbose=False)
    with pytest.raises(KeyboardInterrupt, match="backtest"):
        ls.backtest(model, small.panel(), windows=2, refit=refit)
    assert steps == [0]
