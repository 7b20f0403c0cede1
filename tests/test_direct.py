"""Forecasts of all steps at once: from what is known at their start alone, with paths whose steps go together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import logsparse as ls
import small
from logsparse.config import Config
from logsparse.data.windows import Batch
from logsparse.model.decode import draws, going_together
from logsparse.model.together import correlations, together
from logsparse.train.batches import TrainingSet, windows_of

# 5 series of the small panel, contexts of 24, horizons of 6

LEVELS = [0.1, 0.5, 0.9]


def direct(model: dict[str, Any] | None = None, **train: Any) -> Config:
    return replace(small.config({"see_missing": True, "lags": (1, 3, 8), **(model or {})}, **train), method="direct")


def batches(start: int) -> tuple[Batch, Batch]:
    """Windows that start in the middle of the panel: blind ones, and those that see every lag."""
    panel, config = small.panel(missing=0), direct()
    features = TrainingSet.of(panel, config).features
    starts = np.full(5, start)
    blind, seeing = (windows_of(panel, features, replace(config, method=m)) for m in ("direct", "ancestral"))
    return blind(np.arange(5), starts).clone(), seeing(np.arange(5), starts).clone()


def test_blind_windows_hide_the_lags_after_the_forecast_start_and_nothing_else() -> None:
    blind, seeing = batches(60)
    for k, lag in enumerate((1, 3, 8)):
        known = 24 + lag  # from here on the value so many steps ago is part of the horizon
        assert torch.equal(blind.lagged_BLK[:, :known, k], seeing.lagged_BLK[:, :known, k])
        assert seeing.lag_observed_BLK[:, known:, k].all()
        assert not blind.lag_observed_BLK[:, known:, k].any()
        assert not blind.lagged_BLK[:, known:, k].any()
    assert torch.equal(blind.values_BL, seeing.values_BL)


def fitted(data: Any = None) -> ls.LogSparse:
    config = direct({"unknown_series": 0.2, "scale": "mean"}, epochs=2)
    model = ls.LogSparse(6, config=config, samples=20, verbose=False)
    return model.fit(small.panel() if data is None else data)


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    return fitted()


def test_each_step_has_the_law_of_one_forward_pass(model: ls.LogSparse) -> None:
    panel = model.panel_
    windows = windows_of(model.known_.retell(panel), model.features_, model.config_)
    batch = windows(np.arange(5), panel.lengths)
    law = model.network_.likelihood.distribution(model.network_(batch)[:, 24:], batch.scale_B[:, None])
    found = model.forecast(quantiles=LEVELS)
    np.testing.assert_allclose(found.mean, law.mean.detach().numpy(), rtol=1e-5)
    for n, level in enumerate(LEVELS):
        np.testing.assert_allclose(found.quantile(level), law.quantile(LEVELS)[..., n].detach().numpy(), rtol=1e-5)


def test_a_backtest_in_the_middle_sees_what_a_forecast_there_would() -> None:
    panel = small.panel()
    model = fitted(panel.cut(panel.lengths - 18))
    results, first = ls.backtest(model, panel, windows=3, quantiles=LEVELS), model.predict(quantiles=LEVELS)
    together = first.join(results, on=["unique_id", "ds"], suffix="_tested")
    assert len(together) == 30
    for name in ("q0.1", "q0.5", "q0.9"):
        np.testing.assert_allclose(together[name], together[f"{name}_tested"], rtol=1e-4)


def test_training_and_validation_are_blind_too() -> None:
    data = TrainingSet.of(small.panel(), direct())
    assert data.windows.blind
    assert data.validation_windows.blind


def test_paths_have_the_law_of_each_step_and_go_together() -> None:
    model = fitted()
    model.samples = 4000
    model.together_ = np.array([1, 0.9, 0.8, 0.7, 0.6, 0.5], np.float32)
    found = model.forecast(quantiles=LEVELS)
    paths = found.samples
    assert paths is not None
    for n in range(5):
        ranks = pl.DataFrame(paths[n]).select(pl.all().rank()).to_numpy()
        near, far = (np.corrcoef(ranks[:, 0], ranks[:, step])[0, 1] for step in (1, 5))
        assert near == pytest.approx(0.9, abs=0.05)
        assert far == pytest.approx(0.5, abs=0.08)
    share = (paths <= found.quantile(0.9)[:, None]).mean(axis=1)
    np.testing.assert_allclose(share, 0.9, atol=0.03)


def test_draws_that_go_together_are_as_uniform_as_those_that_do_not() -> None:
    uniform = draws(0, np.arange(50, dtype=np.uint64), 400, 3)
    moved = going_together(uniform, torch.tensor([1, 0.8, -0.7]))  # which no law can have: the nearest one is taken
    assert ((moved > 0) & (moved < 1)).all()
    for level in (0.1, 0.5, 0.9):
        assert (moved < level).float().mean((0, 1)).numpy() == pytest.approx(level, abs=0.01)
    assert torch.allclose(going_together(uniform, torch.tensor([1.0, 0.0, 0.0])), uniform, atol=1e-5)


def test_correlations_are_those_of_scores_that_both_were_observed() -> None:
    rng = np.random.default_rng(0)
    score = np.zeros((5000, 4), np.float32)
    score[:, 0] = rng.normal(size=5000)
    for step in range(1, 4):
        score[:, step] = 0.8 * score[:, step - 1] + 0.6 * rng.normal(size=5000)
    observed = rng.random(score.shape) < 0.7
    found = correlations(np.where(observed, score, 1e6), observed)
    np.testing.assert_allclose(found, [1, 0.8, 0.64, 0.512], atol=0.04)
    np.testing.assert_array_equal(correlations(score[:5], observed[:5]), [1, 0, 0, 0])  # too few to tell


def test_what_goes_together_in_the_data_is_found() -> None:
    rng = np.random.default_rng(0)
    level = np.repeat(rng.normal(size=(5, 200)), 6, axis=1)  # six steps in a row lie high or low together
    values = 50 + 10 * level + rng.normal(size=level.shape)
    panel = replace(small.panel(steps=1200), values=values.astype(np.float32).ravel())
    data = TrainingSet.of(panel, direct({"scale": "deviation"}))
    network = small.network(direct({"scale": "deviation"}), data)
    found = together(network, data.validation_windows, data.held_back(300))
    assert found is not None
    assert found[1] > 0.6 > found[5] + 0.2


def test_a_saved_model_keeps_how_its_steps_go_together(model: ls.LogSparse, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    again = ls.load(tmp_path / "m")
    assert isinstance(again, ls.LogSparse)
    np.testing.assert_array_equal(again.together_, model.together_)
    again.verbose = False
    np.testing.assert_array_equal(again.forecast().samples, model.forecast().samples)


def test_what_a_direct_forecast_looks_at_can_be_shown(model: ls.LogSparse) -> None:
    seen = model.attention(step=None)
    np.testing.assert_allclose(seen.values[24:], model.forecast().mean[0], rtol=1e-4)
    np.testing.assert_allclose(seen.weights.sum(-1), 1, rtol=1e-5)


def test_deepstate_is_joint_by_itself_and_refuses_the_method() -> None:
    config = direct({"likelihood": "gaussian"})
    with pytest.raises(ls.ConfigError, match="DeepState must not have the method direct"):
        ls.DeepState(6, config=config).fit(small.panel())
