"""Little data: few steps, then all data; intervals that were too narrow on held-back windows are widened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.calibration import Calibration
from logsparse.defaults import for_amount, recommend
from logsparse.finish import widened
from logsparse.train.loop import INTERRUPTED, Training, TrainingHistory


def monthly(values: int = 144, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    t = np.arange(values)
    y = 100 + t + 20 * np.sin(2 * np.pi * t / 12) + 5 * rng.normal(size=values)
    start = pl.datetime_range(pl.datetime(1990, 1, 1), pl.datetime(2060, 1, 1), "1mo", eager=True)[:values]
    return pl.DataFrame({"unique_id": "sales", "ds": start, "y": y})


def quick(**settings: Any) -> ls.LogSparse:
    usual: dict[str, Any] = {"config": small.config(), "verbose": False}
    return ls.LogSparse(6, **{**usual, **settings})


@pytest.fixture(scope="module")
def of_months() -> ls.LogSparse:
    return ls.LogSparse(12, verbose=False).fit(monthly())


def test_few_values_get_a_small_network_few_steps_and_all_data_in_the_end(of_months: ls.LogSparse) -> None:
    train = of_months.config_.train
    assert (of_months.history_.planned, train.refit, train.calibrate) == (60, True, "measure")
    assert sum(weight.numel() for weight in of_months.network_.parameters()) < 40_000
    first = of_months.history_.rows[0]["step"]
    assert first <= 4, "validated from the first steps on"
    mean = of_months.predict()["mean"].to_numpy()
    truth = monthly(156)["y"].to_numpy()[-12:]
    assert np.abs(mean - truth).mean() < 25


def test_many_values_keep_their_settings_and_are_measured_only() -> None:
    panel = small.panel(steps=20_000)
    usual = recommend(panel, 24)
    assert for_amount(usual, panel) == replace(usual, train=replace(usual.train, calibrate="measure"))


@pytest.mark.parametrize(("steps", "planned"), [(1_000, 940), (9_000, 1_600)])
def test_a_few_series_of_a_year_get_a_small_network_that_holds_back_the_newest_week_only(
    steps: int, planned: int
) -> None:
    panel = small.panel(steps=steps)
    usual = recommend(panel, 24)
    found = for_amount(usual, panel)
    assert (found.model.width, found.model.layers, found.train.batch, found.blend) == (24, 2, 16, 0)
    assert found.train.epochs * found.train.steps_per_epoch == planned
    held_back = ("validation_steps", "validation_share", "refit")
    assert [getattr(found.train, name) for name in held_back] == [getattr(usual.train, name) for name in held_back]


def test_the_coverage_is_kept_shown_and_saved(of_months: ls.LogSparse, tmp_path: Path) -> None:
    measured = of_months.calibration_
    assert measured is not None
    assert str(measured) in repr(of_months)
    assert of_months.diagnostics().settings["intervals"] == str(measured)
    of_months.save(tmp_path / "model")
    again = ls.load(tmp_path / "model")
    assert isinstance(again, ls.LogSparse)
    assert again.calibration_ == measured
    assert again.predict().equals(of_months.predict())


def test_a_folder_without_a_calibration_loads_and_forecasts(tmp_path: Path) -> None:
    model = quick().fit(small.panel())
    assert model.calibration_ is None
    model.save(tmp_path / "model")
    assert "calibration" not in json.loads((tmp_path / "model" / "series.json").read_text())["learned"]
    assert ls.load(tmp_path / "model").predict().equals(model.predict())


def test_measuring_changes_no_forecast() -> None:
    plain, measured = (quick(calibrate=how).fit(small.panel()) for how in ("off", "measure"))
    assert measured.calibration_ is not None
    assert measured.predict().equals(plain.predict())


def test_widened_intervals_of_any_levels_agree_and_the_mean_stays() -> None:
    model = quick(samples=30).fit(small.panel())
    before = model.forecast(quantiles=[0.1, 0.5, 0.9])
    model.calibration_ = Calibration(0.5, 16, 3.0, (1.0, 1.0, 2.0, 2.0, 2.0, 2.0))
    after = model.forecast(quantiles=[0.1, 0.9])
    np.testing.assert_array_equal(after.mean, before.mean)
    low, middle, high = np.moveaxis(before.quantiles, 1, 0)
    assert before.samples is not None
    assert after.samples is not None
    np.testing.assert_array_equal(after.quantiles[:, 1, :2], high[:, :2])
    np.testing.assert_allclose(after.quantiles[:, 1, 2:], (middle + 2 * (high - middle))[:, 2:], rtol=1e-5)
    np.testing.assert_allclose(after.quantiles[:, 0, 2:], (middle + 2 * (low - middle))[:, 2:], rtol=1e-5)
    wider = after.samples.std(axis=1) / before.samples.std(axis=1)
    np.testing.assert_allclose(wider[:, 2:], 2, rtol=1e-3)
    np.testing.assert_allclose(wider[:, :2], 1, rtol=1e-6)


def test_widened_intervals_stay_above_the_lowest_value() -> None:
    model = quick(lowest=0.0, likelihood="gaussian").fit(small.panel())
    model.calibration_ = Calibration(0.5, 16, 3.0, (4.0,) * 6)
    assert model.forecast(quantiles=[0.001]).quantiles.min() == 0


def test_a_calibration_that_widens_nothing_returns_the_forecast_itself() -> None:
    model = quick().fit(small.panel())
    unit = Calibration(0.8, 16, 3.0, (1.0,) * 6)
    found: Any = object()
    assert widened(unit, found, (0.5,), model.network_) is found


def test_the_second_training_learns_from_the_last_part_and_repeats_exactly() -> None:
    """A level that only the last part has is learned by the second training alone."""
    panel = small.panel(missing=0)
    first, second, same = (quick(refit=refit).fit(panel) for refit in (False, True, True))
    assert not second.predict().equals(first.predict())
    assert second.predict().equals(same.predict())
    assert second.history_.best == first.history_.best, "the loss shown is that of values not learned from"


def test_a_training_cut_by_the_clock_is_not_followed_by_another(tmp_path: Path) -> None:
    model = quick(refit=True, minutes=1e-5).fit(small.panel(), folder=tmp_path)
    assert model.history_.ended.startswith("time limit")
    assert not (tmp_path / "seed-0" / "all").exists()


def test_an_interrupted_second_training_says_so_and_keeps_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = small.panel()
    first, run, runs = quick().fit(panel), Training.run, []

    def stopped(self: Training) -> TrainingHistory:
        runs.append(self)
        if len(runs) == 2:
            self.history.ended = INTERRUPTED
            return self.history
        return run(self)

    monkeypatch.setattr(Training, "run", stopped)
    model = quick(refit=True).fit(panel)
    assert model.history_.ended == INTERRUPTED
    assert model.predict().equals(first.predict())


def test_a_second_training_resumes_in_its_folder(tmp_path: Path) -> None:
    panel = small.panel()
    model = quick(refit=True).fit(panel, folder=tmp_path)
    assert (tmp_path / "seed-0" / "all").exists()
    again = quick(refit=True).fit(panel, folder=tmp_path)
    assert again.predict().equals(model.predict())


def test_fine_tuning_trains_once_and_measures_again() -> None:
    model = quick(refit=True, calibrate="measure").fit(small.panel())
    tuned = model.fine_tune(small.panel(seed=1), steps=4)
    assert tuned.history_.planned == 4
    assert tuned.calibration_ is not None


def test_importance_of_a_model_that_learned_everything_asks_for_later_data() -> None:
    model = quick(refit=True).fit(small.panel())
    with pytest.raises(ls.DataError, match="held back from training") as caught:
        ls.importance(model)
    assert "refit=False" in str(caught.value)


@pytest.mark.parametrize(("blend", "horizon", "needed"), [({"blend": 0.0}, 15, 31), ({}, 25, 26)])
def test_a_series_too_short_for_its_horizon_is_refused_in_plain_words(
    blend: dict[str, Any], horizon: int, needed: int
) -> None:
    with pytest.raises(ls.DataError, match=f"the longest of 20 steps, while {needed} are needed") as caught:
        ls.LogSparse(horizon, verbose=False, **blend).fit(monthly(20))
    assert "AutoETS" in str(caught.value)
