"""A model fitted in another unit gives the same forecasts in that unit, zeros at the beginning or between included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.data.panel import Floats

STEPS = 110
SCALES = [("mean", "gaussian"), ("deviation", "student-t"), ("mean", "zero-inflated")]


def nights(rng: np.random.Generator) -> Floats:
    """Solar power from the first night on, which is longer than the context."""
    return np.where(np.arange(STEPS) < 40, 0, np.maximum(0, np.sin(np.arange(STEPS) / 4)) * rng.uniform(5, 6, STEPS))


def launches(rng: np.random.Generator) -> Floats:
    """Nothing is sold before a day of its own."""
    return np.where(np.arange(STEPS) < rng.integers(20, 90), 0, rng.gamma(4, 3, STEPS))


def intermittent(rng: np.random.Generator) -> Floats:
    """Long pauses, the last of which goes on."""
    return np.where((np.arange(STEPS) // 30 % 2 == 1) | (np.arange(STEPS) > 85), 0, rng.gamma(4, 3, STEPS))


def frame(kind: object, unit: float = 1.0, series: int = 4) -> pl.DataFrame:
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(STEPS).astype("timedelta64[h]")
    tables = []
    for number in range(series):
        assert callable(kind)
        y = kind(np.random.default_rng(number)).astype(np.float32) * (1 + number)
        tables.append(pl.DataFrame({"unique_id": f"s{number}", "ds": hours, "y": y.astype(np.float64) * unit}))
    return pl.concat(tables)


def fitted(data: pl.DataFrame, scale: str, likelihood: str, *, weighted: bool = False) -> ls.LogSparse:
    model = {"scale": scale, "likelihood": likelihood, "embed_series": False}
    config = small.config(model, epochs=2, weighted=weighted)
    return ls.LogSparse(6, config=config, samples=20, verbose=False).fit(data)


@pytest.mark.parametrize("kind", [nights, launches, intermittent])
@pytest.mark.parametrize(("scale", "likelihood"), SCALES)
def test_data_in_another_unit_give_the_same_forecast_in_that_unit(kind: object, scale: str, likelihood: str) -> None:
    ones, others = (fitted(frame(kind, unit), scale, likelihood).forecast() for unit in (1.0, 2.0**10))
    np.testing.assert_array_equal(others.quantiles, ones.quantiles * 2**10)
    np.testing.assert_array_equal(others.mean, ones.mean * 2**10)


def test_weights_of_windows_do_not_depend_on_the_unit_either() -> None:
    ones, others = (
        fitted(frame(launches, unit), "mean", "gaussian", weighted=True).forecast() for unit in (1.0, 2.0**-30)
    )
    np.testing.assert_array_equal(others.quantiles, ones.quantiles * 2.0**-30)


def zeros(*ids: str) -> pl.DataFrame:
    nothing = frame(intermittent, series=1).with_columns(y=pl.lit(0.0))
    return pl.concat([nothing.with_columns(unique_id=pl.lit(name)) for name in ids])


def test_a_history_of_zeros_is_forecast_in_the_unit_that_was_learned_also_when_loaded(tmp_path: Path) -> None:
    ones, others = (fitted(frame(intermittent, unit), "deviation", "student-t") for unit in (1.0, 2.0**20))
    expected = ones.forecast(zeros("s0", "new")).quantiles * 2**20
    others.save(tmp_path / "model")
    for model in (others, ls.load(tmp_path / "model")):
        np.testing.assert_array_equal(model.forecast(zeros("s0", "new")).quantiles, expected)


def test_the_unit_of_a_history_of_zeros_is_its_series_own_however_little_of_it_is_given() -> None:
    model = fitted(frame(intermittent), "deviation", "student-t")
    found = model.forecast(zeros("s0", "s3")).quantiles
    size = model.series_index_.size_A
    np.testing.assert_allclose(found[1, :, 0] / found[0, :, 0], size[3] / size[0], rtol=1e-5)
    tails = zeros("s0", "s3").group_by("unique_id", maintain_order=True).tail(31)
    np.testing.assert_array_equal(model.forecast(tails).quantiles, found)


def test_what_is_held_back_for_validation_does_not_enter_the_units() -> None:
    late = frame(launches).with_columns(y=pl.when(pl.col("ds").rank("dense") > STEPS - 8).then(1e9).otherwise("y"))
    one, other = (fitted(data, "mean", "gaussian").series_index_.size_A for data in (frame(launches), late))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("unit", [1e-20, 1e20])
@pytest.mark.parametrize(("scale", "likelihood"), SCALES)
def test_a_model_is_fitted_in_any_unit(unit: float, scale: str, likelihood: str) -> None:
    found = fitted(frame(launches, unit), scale, likelihood).forecast().quantile(0.9)
    assert np.isfinite(found).all()
    assert (found > 0.01 * unit).any()
    assert (found < 1000 * unit).all()
