"""The paper's synthetic set, against its formula written out step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from logsparse.errors import ConfigError
from logsparse.paper.synthetic import HORIZON, signal, study, synthetic


def formula(x: int, t0: int, a1: float, a2: float, a3: float) -> float:
    if x < 12:
        return a1 * math.sin(math.pi * x / 6) + 72
    if x < 24:
        return a2 * math.sin(math.pi * x / 6) + 72
    if x < t0:
        return a3 * math.sin(math.pi * x / 6) + 72
    return max(a1, a2) * math.sin(math.pi * x / 12) + 72


@pytest.mark.parametrize("t0", [24, 25, 48, 192])
def test_signal_is_the_formula_of_the_paper(t0: int) -> None:
    amplitudes_S3 = np.array([[10.0, 50.0, 3.0], [60.0, 0.0, 20.0]])
    expected = [[formula(x, t0, *row) for x in range(t0 + 24)] for row in amplitudes_S3.tolist()]
    np.testing.assert_allclose(signal(t0, amplitudes_S3), expected, rtol=1e-12)


def test_at_24_the_third_amplitude_plays_no_part() -> None:
    amplitudes_S3 = np.array([[10.0, 50.0, 3.0], [10.0, 50.0, 33.0]])
    first, second = signal(24, amplitudes_S3)
    np.testing.assert_array_equal(first, second)


def test_a_set_is_a_panel_at_integer_times() -> None:
    panel = synthetic(48, 5, np.random.default_rng(0))
    assert panel.ids == (0, 1, 2, 3, 4)
    assert panel.freq.kind == "index"
    assert panel.origin.time_type == "integer"
    assert panel.lengths.tolist() == [72] * 5
    assert panel.starts.tolist() == [0] * 5
    assert panel.values.dtype == np.float32
    assert len(panel[4]) == 72


def test_same_seed_same_set_and_another_seed_another() -> None:
    one, same, other = (synthetic(24, 3, np.random.default_rng(seed)).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_amplitudes_fill_0_to_60_and_noise_is_standard_normal() -> None:
    generator = np.random.default_rng(3)
    panel = synthetic(48, 4000, generator)
    amplitudes_S3 = np.random.default_rng(3).uniform(0, 60, (4000, 3))
    noise_SX = panel.values.reshape(4000, -1) - signal(48, amplitudes_S3)
    assert abs(noise_SX.mean()) < 0.01
    assert abs(noise_SX.std() - 1) < 0.01
    assert amplitudes_S3.mean() == pytest.approx(30, abs=0.5)


def test_the_study_has_4500_500_and_1000_different_series() -> None:
    training, validation, test = study(24, np.random.default_rng(0))
    assert (*training.ids, *validation.ids, *test.ids) == tuple(range(6000))
    assert [len(panel) for panel in (training, validation, test)] == [4500, 500, 1000]
    assert not np.array_equal(validation[0], test[0])
    assert not np.array_equal(training[0], validation[0])


@pytest.mark.parametrize(("rho", "floor"), [(0.5, 0.0111), (0.9, 0.0049)])
def test_whoever_knows_the_amplitudes_meets_the_noise_floor(rho: float, floor: float) -> None:
    panel = synthetic(96, 20_000, np.random.default_rng(7))
    mean_SH = signal(96, np.random.default_rng(7).uniform(0, 60, (20_000, 3)))[:, -HORIZON:]
    y_SH = panel.values.reshape(20_000, -1)[:, -HORIZON:]
    quantile_SH = mean_SH + {0.5: 0.0, 0.9: 1.2815515655}[rho]
    loss_SH = (rho - (y_SH <= quantile_SH)) * (y_SH - quantile_SH)
    assert 2 * loss_SH.sum() / np.abs(y_SH).sum() == pytest.approx(floor, abs=5e-5)


def test_too_short_a_history_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"t0 must leave room for the first two waves\. Got t0=23\. Hint: use 24"):
        synthetic(23, 1, np.random.default_rng(0))
