"""Intervals that held too little of the windows held back are stretched until they hold what they promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import logsparse as ls
import small
from logsparse.data.candidates import Pairs
from logsparse.data.panel import Floats
from logsparse.forecast import Forecast
from logsparse.model.calibrate import stretch
from logsparse.model.sample import Sampling, sample
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet

CALIBRATED: dict[str, Any] = {"calibration_windows": 200}


def network_and_data(spread: float, likelihood: str = "gaussian") -> tuple[Transformer, TrainingSet]:
    """A network whose law is as wide as it is told, around 0, on noise of deviation 1."""
    panel = small.panel(series=20, steps=200, missing=0.02)
    noise = np.random.default_rng(1).normal(size=panel.values.shape).astype(np.float32)
    panel = replace(panel, values=np.where(np.isnan(panel.values), np.nan, noise).astype(np.float32))
    settings = small.config({"likelihood": likelihood, "scale": "mean"})
    data = TrainingSet.of(panel, settings)
    network = small.network(settings, data)
    with torch.no_grad():
        for weight in network.output.parameters():
            weight.zero_()
        # softplus of it, times the mean of |noise|, is the deviation asked for
        network.output.bias[1] = float(np.log(np.expm1(spread / np.sqrt(2 / np.pi))))
    return network, data


def central(network: Transformer, data: TrainingSet, factors: Floats | None) -> float:
    pairs = data.held_back(1000)
    ask = Sampling(paths=20, levels=(0.1, 0.9), method="ancestral", seed=1, keep_paths=False, stretch_H=factors)
    found = sample(network, data.validation_windows, pairs, ask).quantiles_WQH
    batch = data.validation_windows(pairs.series_B, pairs.start_B)
    truth, seen = batch.values_BL[:, batch.context :].numpy(), batch.observed_BL[:, batch.context :].numpy()
    return float(((truth >= found[:, 0]) & (truth <= found[:, 1]))[seen].mean())


@pytest.mark.parametrize("spread", [0.4, 1.0, 2.0])
def test_intervals_of_any_width_come_to_hold_four_fifths(spread: float) -> None:
    network, data = network_and_data(spread)
    factors = stretch(network, data.validation_windows, data.held_back(300), "ancestral", 0)
    assert factors is not None
    assert factors.shape == (6,)
    assert factors.mean() == pytest.approx(1 / spread, rel=0.1)
    assert central(network, data, factors) == pytest.approx(0.8, abs=0.03)


def test_counts_and_an_empty_validation_are_left_alone() -> None:
    network, data = network_and_data(1.0)
    nothing = Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    assert stretch(network, data.validation_windows, nothing, "ancestral", 0) is None
    counting = Transformer(replace(network.config, likelihood="negative-binomial"), length=30, features=4, series=20)
    assert stretch(counting, data.validation_windows, data.held_back(9), "ancestral", 0) is None


def test_a_series_that_never_moves_does_not_blow_up_the_others() -> None:
    panel = small.panel(series=4, steps=200, missing=0)
    flat = replace(panel, values=np.where(np.arange(panel.values.size) < 600, np.float32(1), panel.values))
    model = ls.LogSparse(6, config=small.config(**CALIBRATED), samples=20, verbose=False).fit(flat)
    assert model.stretch_ is not None
    assert ((model.stretch_ >= 0.25) & (model.stretch_ <= 4)).all()
    assert np.isfinite(model.forecast().quantiles).all()


def test_a_handful_of_windows_changes_nothing() -> None:
    network, data = network_and_data(0.4)
    factors = stretch(network, data.validation_windows, data.held_back(5), "ancestral", 0)
    assert factors is not None
    assert (factors == 1).all()


def fitted(**train: Any) -> ls.LogSparse:
    return ls.LogSparse(6, config=small.config(**train), samples=20, verbose=False).fit(small.panel())


def test_paths_mean_and_quantiles_are_stretched_together_and_the_median_stays() -> None:
    model = fitted(**CALIBRATED)
    assert model.stretch_ is not None
    stretched = model.forecast()
    factors, model.stretch_ = model.stretch_, None
    plain = model.forecast()
    middle = plain.quantile(0.5)

    def as_it_should_be(value: Floats) -> Floats:
        return middle + factors * (value - middle)

    np.testing.assert_allclose(stretched.quantile(0.5), middle, rtol=1e-4)
    np.testing.assert_allclose(stretched.mean, as_it_should_be(plain.mean), rtol=1e-4)
    for n in range(3):
        np.testing.assert_allclose(paths(stretched)[:, n], as_it_should_be(paths(plain)[:, n]), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(stretched.quantile(0.9), as_it_should_be(plain.quantile(0.9)), rtol=1e-4)


def paths(found: Forecast) -> Floats:
    assert found.samples is not None
    return found.samples


def test_nothing_is_stretched_below_the_lowest_value() -> None:
    model = ls.LogSparse(6, config=small.config({"lowest": 0.0}), samples=20, verbose=False).fit(small.panel())
    model.stretch_ = np.full(6, 50, np.float32)
    found = model.forecast()
    assert paths(found).min() == 0
    assert found.quantiles.min() == 0


def test_a_saved_model_stays_calibrated(tmp_path: Path) -> None:
    model = fitted(**CALIBRATED)
    model.save(tmp_path / "model")
    again = ls.load(tmp_path / "model")
    np.testing.assert_array_equal(again.forecast().quantiles, model.forecast().quantiles)
    assert fitted().stretch_ is None
