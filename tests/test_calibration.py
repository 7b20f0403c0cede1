"""Factors by which intervals are widened: never below 1, of evidence that counts, and right for known noise."""

from __future__ import annotations

from dataclasses import asdict
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from logsparse.calibration import LEVELS, MOST, Calibration, came, distances, measure
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.sampler import Pairs
from logsparse.storage import InvalidContentError

HORIZON = 12
LEVEL_SETS = [(0.1, 0.5, 0.9), (0.01, 0.2, 0.5, 0.55, 0.99)]


def normal(windows: int, sure: float, levels: tuple[float, ...] = LEVELS, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return unit noise, quantiles of a model whose deviation is `sure` times too small, and cutoffs at every step."""
    rng = np.random.default_rng(seed)
    center_WH = rng.normal(scale=5, size=(windows, HORIZON))
    truth_WH = (center_WH + rng.normal(size=center_WH.shape)).astype(np.float32)
    shift_Q = np.array([NormalDist().inv_cdf(level) for level in levels]) / sure
    quantiles_WQH = (center_WH[:, None] + shift_Q[:, None]).astype(np.float32)
    return truth_WH, quantiles_WQH, np.arange(windows)


def covered(truth_WH: NDArray[Any], quantiles_WQH: NDArray[Any]) -> float:
    return float(((truth_WH >= quantiles_WQH[:, 0]) & (truth_WH <= quantiles_WQH[:, -1])).mean())


def found(truth: Any, quantiles: Any, before: Any, *, widen: bool = True) -> Calibration:
    made = measure(truth, quantiles, before, widen=widen)
    assert made is not None
    return made


def widened(made: Calibration, quantiles_WQH: NDArray[Any], lowest: float = -np.inf) -> NDArray[Any]:
    return made.widened(quantiles_WQH, quantiles_WQH[:, quantiles_WQH.shape[1] // 2], lowest=lowest, integer=False)


@pytest.mark.parametrize("sure", [1.4, 2.0, 3.0])
def test_intervals_of_a_model_that_is_too_sure_hold_80_percent_of_later_values(sure: float) -> None:
    made = found(*normal(2000, sure))
    assert made.coverage < 0.72
    truth, quantiles, _ = normal(2000, sure, seed=1)
    assert covered(truth, quantiles) < 0.72
    assert 0.77 < covered(truth, widened(made, quantiles)) < 0.83


@pytest.mark.parametrize("sure", [0.5, 0.8, 1.0])
def test_intervals_that_hold_enough_are_not_changed(sure: float) -> None:
    truth, quantiles, before = normal(400, sure)
    made = found(truth, quantiles, before)
    assert not made.widens
    assert widened(made, quantiles) is quantiles


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("levels", LEVEL_SETS)
def test_intervals_never_get_narrower_and_quantiles_stay_in_order(seed: int, levels: tuple[float, ...]) -> None:
    rng = np.random.default_rng(seed)
    windows = int(rng.integers(1, 60))
    made = found(*normal(windows, float(rng.uniform(0.3, 6)), seed=seed))
    quantiles_WQH = np.sort(rng.standard_t(2, size=(30, len(levels), HORIZON)), axis=1).astype(np.float32)
    wide_WQH = made.widened(quantiles_WQH, quantiles_WQH[:, levels.index(0.5)], lowest=-1.0, integer=False)
    assert min(made.factors) >= 1
    assert max(made.factors) <= MOST
    assert (np.diff(wide_WQH, axis=1) >= 0).all()
    free_WQH = made.widened(quantiles_WQH, quantiles_WQH[:, levels.index(0.5)], lowest=-np.inf, integer=False)
    assert (free_WQH[:, -1] >= quantiles_WQH[:, -1] - 1e-4).all()
    assert (free_WQH[:, 0] <= quantiles_WQH[:, 0] + 1e-4).all()
    np.testing.assert_array_equal(free_WQH[:, levels.index(0.5)], quantiles_WQH[:, levels.index(0.5)])


def test_paths_keep_their_ranks_and_the_lower_bound() -> None:
    made = found(*normal(400, 2.5))
    paths_WNH = np.random.default_rng(0).exponential(size=(3, 50, HORIZON)).astype(np.float32)
    wide_WNH = made.widened(paths_WNH, np.median(paths_WNH, axis=1), lowest=0.0, integer=False)
    assert wide_WNH.min() == 0
    assert wide_WNH.max() > paths_WNH.max()
    order_WNH = paths_WNH.argsort(axis=1)
    assert (np.diff(np.take_along_axis(wide_WNH, order_WNH, axis=1), axis=1) >= 0).all()


def test_counts_stay_whole_numbers() -> None:
    made = found(*normal(400, 2.5))
    counts_WNH = np.random.default_rng(0).poisson(4, size=(3, 50, HORIZON)).astype(np.float32)
    wide_WNH = made.widened(counts_WNH, np.full((3, HORIZON), 4, np.float32), lowest=0.0, integer=True)
    assert (wide_WNH == np.floor(wide_WNH)).all()


def test_intervals_without_width_stay_so_and_are_no_evidence() -> None:
    """At night every interval is zero: neither holding zeros nor missing a lamp says anything about the day."""
    truth, quantiles, before = normal(400, 2.0)
    alone = found(np.where(np.arange(HORIZON) < 6, truth, np.nan), quantiles, before)
    truth[:, 6:], quantiles[..., 6:] = 0, 0
    made = found(truth, quantiles, before)
    assert made.factors[0] == alone.factors[0] > 1
    assert made.coverage == alone.coverage
    assert (widened(made, quantiles)[..., 6:] == 0).all()
    truth[:, 6:] = 1
    assert found(truth, quantiles, before).coverage == alone.coverage


def test_series_at_rest_have_no_effect() -> None:
    values = np.concatenate([np.arange(50.0), np.full(50, 7.0), np.full(50, np.nan)]).astype(np.float32)
    panel = Panel(
        values=values,
        indptr=np.array([0, 50, 100, 150]),
        lengths=np.full(3, 50),
        ids=("moves", "rests", "unknown"),
        starts=np.zeros(3, np.int64),
        freq=Freq.parse("h"),
    )
    truth_WH = came(panel, Pairs(np.array([0, 1, 2, 0]), np.array([10, 10, 10, 38])), 12)
    np.testing.assert_array_equal(truth_WH[0], np.arange(10, 22))
    np.testing.assert_array_equal(truth_WH[3], np.arange(38, 50))
    assert np.isnan(truth_WH[1:3]).all()


def test_one_jump_among_many_series_widens_nothing() -> None:
    truth, quantiles, before = normal(400, 1.0)
    truth[::50] += 1000
    assert not found(truth, quantiles, before).widens


def test_a_jump_that_overlapping_windows_share_is_one_event() -> None:
    """Forty series and twelve cutoffs of one day, all missed by half: still one day."""
    truth, quantiles, _ = normal(480, 1.0)
    truth[:, 9:] += 1000
    assert not found(truth, quantiles, np.tile(np.arange(1), 480)).widens
    assert found(truth, quantiles, np.tile(np.arange(12) * 20, 40)).widens


def test_a_factor_is_bounded() -> None:
    truth, quantiles, before = normal(2000, 1.0)
    assert 0.95 * MOST < max(found(truth + 1e6, quantiles, before).factors) <= MOST


def test_parts_of_a_long_record_have_factors_of_their_own() -> None:
    """The last quarter is three times as wide as thought."""
    truth, quantiles, before = normal(2000, 1.0)
    center_WH = quantiles[:, 1, 9:]
    truth[:, 9:] = center_WH + 3 * (truth[:, 9:] - center_WH)
    made = found(truth, quantiles, before)
    assert set(made.factors[:9]) == {1.0}
    assert made.factors[-1] == pytest.approx(3, rel=0.1)


def test_measuring_alone_changes_nothing() -> None:
    made = found(*normal(400, 2.0), widen=False)
    assert made.coverage < 0.6
    assert not made.widens
    assert str(made) == f"the 80 % interval held {100 * made.coverage:.0f} % of the values held back"


def test_without_any_observed_value_there_is_no_calibration() -> None:
    truth, quantiles, before = normal(5, 1.0)
    assert measure(truth * np.nan, quantiles, before, widen=True) is None


def test_missing_values_do_not_count() -> None:
    truth, quantiles, _ = normal(50, 2.0)
    truth[::2] = np.nan
    assert np.isnan(distances(truth, quantiles)[::2]).all()
    assert not np.isnan(distances(truth, quantiles)[1::2]).any()


def test_a_calibration_comes_back_from_plain_values_and_others_are_refused() -> None:
    made = found(*normal(400, 2.0))
    facts = {**asdict(made), "factors": list(made.factors)}
    assert Calibration.from_dict(facts, HORIZON) == made
    for wrong in ({"factors": [1.0]}, {"factors": [0.5] * HORIZON}, {"coverage": 2.0}, {"windows": 0}, {"spans": 0}):
        with pytest.raises(InvalidContentError):
            Calibration.from_dict({**facts, **wrong}, HORIZON)
    with pytest.raises(InvalidContentError):
        Calibration.from_dict(["no"], HORIZON)
