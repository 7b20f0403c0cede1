"""DeepState as a forecaster: what it refuses, what it learns, that its quantiles are exact and its paths joint."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
import small
from logsparse.data.frame import to_panel
from logsparse.errors import ConfigError
from logsparse.model.statespace import Structural, Structure
from logsparse.train.loop import Training

BEGIN = datetime(2024, 1, 1)  # noqa: DTZ001


def frame(steps: int = 240, series: int = 4, seed: int = 0) -> pl.DataFrame:
    """Hours: a day's wave on a level of each series' own that wanders."""
    rng = np.random.default_rng(seed)
    hours = [BEGIN + timedelta(hours=hour) for hour in range(steps)]
    wave = np.sin(np.arange(steps) * np.pi / 12)
    return pl.concat(
        pl.DataFrame(
            {
                "unique_id": f"s{number}",
                "ds": hours,
                "y": 20 * (1 + number) + 5 * wave + rng.normal(size=steps).cumsum() * 0.1 + 2 * rng.normal(size=steps),
            }
        )
        for number in range(series)
    )


def model(horizon: int = 12, *, model: dict[str, Any] | None = None, epochs: int = 2, **settings: Any) -> ls.DeepState:
    train: dict[str, Any] = {"epochs": epochs, "steps_per_epoch": 10, "lr": 1e-2, "optimiser": "adamw", "batch": 16}
    config = small.config({"width": 8, "layers": 1, "unknown_series": 0.1, **(model or {})}, **train)
    return ls.DeepState(
        horizon, config=replace(config, context=48, horizon=horizon), **{"samples": 20, "verbose": False, **settings}
    )


@pytest.fixture(scope="module")
def fitted() -> ls.DeepState:
    return model().fit(frame())


def test_only_the_gaussian_likelihood_is_taken() -> None:
    with pytest.raises(
        ConfigError, match=r'DeepState must have the gaussian likelihood, .* Got student-t. Hint: set .* "gaussian"'
    ):
        model(model={"likelihood": "student-t"}).fit("no such file")


@pytest.mark.parametrize("trend", [-0.1, 1.5, "damped", float("nan")])
def test_a_trend_is_a_share(trend: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"trend must be a number from 0 to 1. Got .* Hint: 0 is no slope, 1 one that"
    ):
        model(trend=trend).fit("no such file")


def test_a_season_is_a_number_of_steps() -> None:
    with pytest.raises(ConfigError, match=r"season must be at least 1. Got 0. Hint: count its steps; 1 is no season"):
        model(season=0).fit("no such file")


def test_the_settings_that_follow_from_the_data_are_gaussian_whatever_the_data() -> None:
    counts = frame().with_columns(pl.col("y").round().abs())
    plan = ls.DeepState(12, verbose=False).plan(to_panel(counts))
    assert plan.config.model.likelihood == "gaussian"
    assert plan.config.model.lags == (1,)


def test_the_season_follows_from_the_step_unless_given(fitted: ls.DeepState) -> None:
    assert fitted.structure_ == Structure(24, 0.0)
    other = model(season=12, trend=0.9, epochs=1).fit(frame())
    assert other.structure_ == Structure(12, 0.9)


def test_it_learns_better_than_a_season_ago() -> None:
    hours = frame()
    ours = ls.score(ls.backtest(model(24, epochs=10), hours, windows=1))["R0.5"][0]
    naive = ls.score(ls.backtest(ls.SeasonalNaive(24), hours, windows=1))["R0.5"][0]
    assert ours < 0.9 * naive


def test_quantiles_are_those_of_a_normal_law_and_do_not_depend_on_samples(fitted: ls.DeepState, tmp_path: Path) -> None:
    levels = [0.01, 0.1, 0.5, 0.9, 0.99]
    found = fitted.forecast(quantiles=levels)
    spread = (found.quantile(0.9) - found.quantile(0.5)) / 1.2815515655
    np.testing.assert_allclose(found.quantile(0.5), found.mean, rtol=1e-6)
    np.testing.assert_allclose(found.quantile(0.01), found.mean - 2.3263478740 * spread, rtol=1e-4)
    fitted.save(tmp_path / "model")
    few = ls.load(tmp_path / "model", samples=3).forecast(quantiles=levels)
    np.testing.assert_array_equal(few.quantiles, found.quantiles)
    assert few.samples is not None
    assert few.samples.shape == (4, 3, 12)


def test_samples_are_joint_paths(fitted: ls.DeepState) -> None:
    many = copy.copy(fitted)
    many.samples = 3000
    found = many.forecast()
    assert found.samples is not None
    np.testing.assert_allclose(found.samples.std(1), (found.quantile(0.9) - found.mean) / 1.28155, rtol=0.1)
    neighbours = [np.corrcoef(paths.T).diagonal(1) for paths in found.samples]
    assert np.mean(neighbours) > 0.05, "what raises one step raises the next; of independent ones it would be 0.00"


def test_it_is_less_sure_after_a_hole_and_farther_ahead(fitted: ls.DeepState) -> None:
    hours = frame()
    holed = hours.with_columns(
        pl.when(pl.col("ds") >= BEGIN + timedelta(hours=220)).then(None).otherwise("y").alias("y")
    )
    widths = [
        (found["q0.9"] - found["q0.1"]).to_numpy().reshape(4, 12) for found in (fitted.predict(), fitted.predict(holed))
    ]
    assert (widths[1][:, 0] > widths[0][:, 0]).all()
    assert (widths[0][:, -1] > 0).all()


def test_a_series_is_forecast_the_same_alone_and_among_others(fitted: ls.DeepState) -> None:
    together = fitted.forecast()
    alone = fitted.forecast(frame().filter(pl.col("unique_id") == "s2"))
    assert together.samples is not None
    assert alone.samples is not None
    np.testing.assert_allclose(alone.quantiles[0], together.quantiles[2], rtol=1e-5)
    np.testing.assert_allclose(alone.samples[0], together.samples[2], rtol=1e-5)


def test_what_was_saved_has_its_structure(tmp_path: Path) -> None:
    slim = model(trend=0.9, season=36).fit(frame(steps=150, series=2))
    slim.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert isinstance(loaded, ls.DeepState)
    assert loaded.structure_ == Structure(36, 0.9)
    assert isinstance(loaded.network_, Structural)
    assert_frame_equal(loaded.predict(), slim.predict(), check_exact=True)


def test_an_interrupted_fit_goes_on_from_its_folder(
    fitted: ls.DeepState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Training.learn

    def interrupted(run: Training) -> float:
        if run.step == 13:
            raise KeyboardInterrupt
        return learn(run)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "learn", interrupted)
        half = model().fit(frame(), folder=tmp_path)
    assert half.history_.ended == "interrupted"
    assert_frame_equal(model().fit(frame(), folder=tmp_path).predict(), fitted.predict(), check_exact=True)


def test_fine_tuning_takes_new_series_in(fitted: ls.DeepState) -> None:
    tuned = model().fit(frame(series=2))
    tuned.fine_tune(frame(series=4))
    assert tuned.forecast().panel.ids == ("s0", "s1", "s2", "s3")
    assert fitted.structure_ == tuned.structure_


def test_it_has_no_attention_to_show(fitted: ls.DeepState) -> None:
    with pytest.raises(ConfigError, match=r"Only a network with attention can show it. Got Structural"):
        fitted.attention()
    assert fitted.diagnostics().attention is None
    assert fitted.diagnostics().losses
