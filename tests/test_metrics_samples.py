"""CRPS of samples against its definitions, and against CRPS of quantiles."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logsparse.errors import DataError
from logsparse.evaluation.metrics import crps_samples, score


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), offset=st.sampled_from([0.0, 1e6]))
def test_crps_of_samples_is_the_energy_form_over_all_pairs(seed: int, n: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    samples, y = offset + rng.normal(size=(3, 2, n)).round(1), offset + rng.normal(size=(3, 2)).round(1)
    to_y = np.abs(samples - y[..., None]).mean(axis=-1)
    pairs = np.abs(samples[..., None] - samples[..., None, :]).mean(axis=(-2, -1))
    crps = crps_samples(samples, y)
    assert crps.shape == y.shape
    assert (crps >= 0).all()
    np.testing.assert_allclose(crps, to_y - pairs / 2, atol=1e-9)


def test_crps_of_samples_is_the_integral_of_squared_distance_to_the_step() -> None:
    samples, y = np.array([3.0, 1.0, 1.0, 6.0]), 2.0
    # Between 1 and 2 the samples' distribution stands at 1/2, from 2 to 3 still, then at 3/4 up to 6.
    assert crps_samples(samples, y) == pytest.approx(0.5**2 * 1 + 0.5**2 * 1 + 0.25**2 * 3)


def test_crps_of_samples_and_of_quantiles_agree_where_the_quantiles_are_the_samples() -> None:
    rng = np.random.default_rng(3)
    samples, y = np.sort(rng.normal(size=(6, 20)), axis=1), rng.normal(size=6)
    columns = {f"q{(i + 0.5) / 20:g}": samples[:, i] for i in range(20)}
    scores = score(pl.DataFrame({"unique_id": range(6), "y": y, **columns}))
    assert scores["crps_quantiles"][0] == pytest.approx(crps_samples(samples, y).mean())


def test_crps_of_samples_without_y_is_nan_and_of_one_sample_the_distance() -> None:
    np.testing.assert_array_equal(crps_samples([[1, 2], [3, 3]], [np.nan, 1]), [np.nan, 2.0])
    assert crps_samples([5], 2) == 3


@pytest.mark.parametrize("shape", [(4,), (3, 2), (3, 0), (5, 3, 4)])
def test_crps_of_samples_says_which_shapes_it_takes(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"samples must have the shape of y and a last axis.*moveaxis"):
        crps_samples(np.zeros(shape), np.zeros(3) if shape != (3, 2) else np.zeros(2))
