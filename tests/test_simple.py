"""Simple rules: sane forecasts from a few values, the same alone and in batches, and their part in LogSparse."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.calendar import Freq
from logsparse.data.frame import to_panel
from logsparse.data.sampler import Pairs
from logsparse.simple import REACH, Seasons, simple_forecast, simple_forecasts

LEVELS = (0.1, 0.5, 0.9)
HOURLY, MONTHLY, YEARLY = Seasons(24, 168), Seasons(12, 0), Seasons(1, 0)


def daily_wave(days: int, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    t = np.arange(24 * days)
    return 20 + 10 * np.sin(2 * np.pi * t / 24) + noise * np.random.default_rng(seed).normal(size=len(t))


def forecast(history: np.ndarray, seasons: Seasons = HOURLY, horizon: int = 24) -> tuple[np.ndarray, np.ndarray]:
    found = simple_forecast(history, seasons, horizon, LEVELS)
    assert found is not None
    return found


def test_seasons_of_a_day_have_a_week_above_them() -> None:
    assert Seasons.of(Freq.parse("h")) == HOURLY
    assert Seasons.of(Freq.parse("15min")) == Seasons(96, 672)
    assert Seasons.of(Freq.parse("d")) == Seasons(7, 0)
    assert Seasons.of(Freq.parse("MS")) == MONTHLY


def test_noise_around_a_wave_is_averaged_out_and_its_interval_holds() -> None:
    inside, error, naive = [], [], []
    for seed in range(40):
        wave, truth = daily_wave(8, seed=seed), daily_wave(8, noise=0)[:24]
        mean, (low, _, high) = forecast(wave[:-24])
        inside.append((low <= wave[-24:]) & (wave[-24:] <= high))
        error.append(np.abs(mean - truth).mean())
        naive.append(np.abs(wave[-48:-24] - truth).mean())
    assert np.mean(error) < 0.7 * np.mean(naive)
    assert 0.76 < np.mean(inside) < 0.86


def test_a_steady_yearly_growth_goes_on() -> None:
    t = np.arange(120)
    mean, _ = forecast(100 + t + 20 * np.sin(2 * np.pi * t / 12), MONTHLY, 12)
    then = np.arange(120, 132)
    np.testing.assert_allclose(mean, 100 + then + 20 * np.sin(2 * np.pi * then / 12), atol=2)


def test_the_mean_of_a_short_rise_is_not_left_behind_by_its_quantiles() -> None:
    t = np.arange(24)
    mean, (low, middle, _) = forecast(100 + 5.0 * t + np.random.default_rng(3).normal(size=24), MONTHLY, 12)
    assert (low < mean).all()
    np.testing.assert_allclose(mean, middle, rtol=0.02)


def test_the_mean_of_rare_sales_is_that_of_the_past_not_their_median() -> None:
    means = [forecast(np.random.default_rng(seed).poisson(0.2, 400) * 5.0, Seasons(7, 0), 7)[0] for seed in range(20)]
    np.testing.assert_allclose(np.mean(means), 1.0, atol=0.2)


def test_a_constant_stays_and_nights_stay_dark() -> None:
    mean, quantiles = forecast(np.full(60, 7.0))
    np.testing.assert_allclose(mean, 7)
    np.testing.assert_allclose(quantiles, 7)
    wave = np.maximum(daily_wave(6) - 20, 0)
    night = (np.maximum(daily_wave(6).reshape(6, 24) - 20, 0) == 0).all(axis=0)
    mean, quantiles = forecast(wave)
    assert night.sum() > 5
    assert (mean[night] == 0).all()
    assert quantiles[:, night].max() < 0.2 * quantiles.max(), "but for the first and last hour of the night"
    assert (quantiles >= 0).all()
    assert mean[~night].max() > 5


def test_quantiles_rise_with_their_level_for_any_history_and_horizon() -> None:
    rng = np.random.default_rng(0)
    for steps, horizon in ((4, 1), (4, 30), (5, 8), (23, 24), (25, 24), (49, 3), (100, 96), (700, 24), (3000, 200)):
        for seasons in (HOURLY, MONTHLY, YEARLY, Seasons(52, 0)):
            mean, quantiles = forecast(rng.normal(size=steps), seasons, horizon)
            assert mean.shape == (horizon,)
            assert quantiles.shape == (3, horizon)
            assert np.isfinite(quantiles).all()
            assert (np.diff(quantiles, axis=0) >= 0).all()


def test_missing_values_are_bridged_and_hardly_a_value_is_no_history() -> None:
    wave = daily_wave(10)
    holey = wave.copy()
    holey[np.random.default_rng(1).random(len(wave)) < 0.2] = np.nan
    mean, _ = forecast(holey)
    assert np.abs(mean - forecast(wave)[0]).mean() < 1
    assert simple_forecast(np.full(50, np.nan), HOURLY, 24, LEVELS) is None
    assert simple_forecast(np.array([1.0, 2.0, np.nan, 3.0]), HOURLY, 24, LEVELS) is None
    assert simple_forecast(np.array([]), HOURLY, 24, LEVELS) is None


def test_only_the_last_steps_count_and_huge_values_stay_finite() -> None:
    wave = daily_wave(120)
    for own, cut in zip(forecast(wave), forecast(wave[-REACH:]), strict=True):
        np.testing.assert_array_equal(own, cut)
    assert np.isfinite(forecast(1e29 * wave)[1]).all()


def frame(values: np.ndarray, name: str = "a") -> pl.DataFrame:
    ds = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2026, 1, 1), "1h", eager=True)[: len(values)]
    return pl.DataFrame({"unique_id": name, "ds": ds, "y": values})


def test_a_window_is_forecast_as_it_would_be_alone() -> None:
    panel = to_panel(pl.concat([frame(daily_wave(9), "a"), frame(5 * daily_wave(6, seed=1), "b")]))
    both = simple_forecasts(panel, Pairs(np.array([1, 0, 1]), np.array([100, 200, 144])), 24, LEVELS)
    for place, (series, start) in enumerate(((1, 100), (0, 200), (1, 144))):
        alone = simple_forecasts(panel, Pairs(np.array([series]), np.array([start])), 24, LEVELS)
        for some, one in zip(both, alone, strict=True):
            np.testing.assert_array_equal(some[place], one[0])


@pytest.fixture(scope="module")
def fitted() -> ls.LogSparse:
    return ls.LogSparse(24, verbose=False, samples=40).fit(frame(daily_wave(8)))


def test_little_data_are_forecast_mostly_by_simple_rules_and_say_so(fitted: ls.LogSparse) -> None:
    assert fitted.config_.blend == 0.7
    assert "70 % of the forecast from simple rules" in repr(fitted)
    assert ls.LogSparse(24, verbose=False).plan(frame(daily_wave(80))).config.blend == 0.7
    assert ls.LogSparse(24, verbose=False).plan(frame(daily_wave(90))).config.blend == 0, "enough data: a network"


def test_the_forecast_lies_between_network_and_rules_as_the_weight_says(fitted: ls.LogSparse) -> None:
    alone = ls.LogSparse(24, verbose=False, samples=40, blend=0.0).fit(frame(daily_wave(8)))
    mean, quantiles = simple_forecasts(fitted.panel_, Pairs(np.array([0]), np.array([192])), 24, LEVELS)
    mixed, network, blend = fitted.forecast(quantiles=LEVELS), alone.forecast(quantiles=LEVELS), fitted.config_.blend
    np.testing.assert_allclose(mixed.mean, (1 - blend) * network.mean + blend * mean, rtol=1e-5)
    np.testing.assert_allclose(mixed.quantiles, (1 - blend) * network.quantiles + blend * quantiles, rtol=1e-5)
    assert "simple rules" not in repr(alone)


def test_paths_have_the_quantiles_of_the_blended_forecast(fitted: ls.LogSparse) -> None:
    found = fitted.forecast(quantiles=[0.5])
    assert found.samples is not None
    np.testing.assert_allclose(np.median(found.samples, axis=1), found.quantiles[:, 0], atol=0.5)


def test_a_blended_model_is_saved_and_forecasts_alone_as_in_batches(fitted: ls.LogSparse, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = ls.load(tmp_path / "model")
    assert again.predict().equals(fitted.predict())
    assert repr(again) == repr(fitted)
    later = frame(daily_wave(11))
    results = ls.backtest(fitted, later, windows=3, quantiles=[0.5])
    alone = fitted.predict(later.head(24 * 8), quantiles=[0.5])
    window = results.filter(pl.col("cutoff") == pl.col("cutoff").min())
    np.testing.assert_array_equal(window["q0.5"], alone["q0.5"])


def test_a_series_too_short_to_hold_back_a_horizon_is_forecast_by_rules_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="logsparse"):
        model = ls.LogSparse(96, verbose=False).fit(frame(daily_wave(5)[:100]))
    assert "100 values are few for a network" in caplog.text
    assert "100 % of the forecast comes from simple rules per series (blend=1)" in caplog.text
    found = model.forecast(quantiles=LEVELS)
    mean, quantiles = simple_forecasts(model.panel_, Pairs(np.array([0]), np.array([100])), 96, LEVELS)
    np.testing.assert_array_equal(found.mean, mean)
    np.testing.assert_array_equal(found.quantiles, quantiles)


def test_known_covariates_are_left_to_the_network() -> None:
    data = frame(daily_wave(8)).with_columns(sun=pl.Series(daily_wave(8, seed=3)))
    plan = ls.LogSparse(24, verbose=False).plan(data, covariates=["sun"])
    assert plan.config.blend == 0


def test_counts_stay_whole_numbers() -> None:
    counts = np.random.default_rng(0).poisson(3, 200).astype(float)
    model = ls.LogSparse(12, verbose=False, samples=20).fit(frame(counts))
    assert model.config_.model.likelihood == "negative-binomial"
    assert model.config_.blend > 0
    found = model.forecast(quantiles=LEVELS)
    for part in (found.quantiles, found.samples):
        assert part is not None
        assert (part == np.round(part)).all()
        assert (part >= 0).all()


def test_a_weight_above_1_is_refused() -> None:
    with pytest.raises(ls.ConfigError, match="blend must be between 0 and 1"):
        ls.LogSparse(12, blend=1.5)
