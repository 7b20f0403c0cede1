"""Several forecasts as one: weights that pay, quantiles that do not cross, paths that stay joint."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.combine import (
    HeldBackLoss,
    average,
    greedy_weights,
    joint_paths,
    middles,
    path_quantiles,
    quantile_loss,
)

# M members, W windows, S series, Q quantile levels, H steps, N sample paths

LEVELS = (0.1, 0.5, 0.9)
seeds = st.integers(0, 2**32 - 1)
counts = st.integers(1, 4)


def case(seed: int, members: int) -> tuple[Any, list[Any]]:
    """Held-back values (W, S, H) of series of very different sizes, and forecasts that do not cross."""
    rng = np.random.default_rng(seed)
    windows, series, horizon = rng.integers(1, 4, 3)
    size_S11 = 10.0 ** rng.uniform(-3, 4, (series, 1, 1))
    truth_WSH = (size_S11[:, 0] * (1 + rng.normal(size=(windows, series, horizon)))).astype(np.float32)
    truth_WSH[rng.random(truth_WSH.shape) < 0.1] = np.nan
    parts = []
    for _ in range(members):
        middle = np.nan_to_num(truth_WSH) + size_S11[:, 0] * rng.normal(size=truth_WSH.shape) * rng.uniform(0.1, 2)
        width = np.sort(rng.normal(size=(*truth_WSH.shape[:2], len(LEVELS), horizon)), axis=2) * rng.uniform(0.1, 2)
        parts.append((middle[:, :, None] + size_S11 * width).astype(np.float32))
    return truth_WSH, parts


def weights_of(truth: Any, parts: list[Any]) -> Any:
    return greedy_weights(parts, HeldBackLoss(truth, parts, LEVELS))


@given(seeds, counts)
def test_weights_are_shares_that_sum_to_one(seed: int, members: int) -> None:
    found = weights_of(*case(seed, members))
    assert found.shape == (members,)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-12)


@given(seeds, counts)
def test_the_chosen_weights_are_never_worse_than_the_best_member(seed: int, members: int) -> None:
    truth, parts = case(seed, members)
    loss = HeldBackLoss(truth, parts, LEVELS)
    together = average([part.astype(float) for part in parts], greedy_weights(parts, loss))
    assert loss(together) <= min(map(loss, parts)) * (1 + 1e-9)


def best_on_a_grid(parts: list[Any], loss: Any, parts_of_one: int) -> float:
    grid = [w for w in product(range(parts_of_one + 1), repeat=len(parts)) if sum(w) == parts_of_one]
    doubles = [part.astype(float) for part in parts]
    return min(float(loss(average(doubles, np.array(w) / parts_of_one))) for w in grid)


@pytest.mark.parametrize("members", [2, 3])
def test_greedy_weights_are_about_as_good_as_the_best_of_all_on_a_grid(members: int) -> None:
    for seed in range(25):
        truth, parts = case(seed, members)
        loss = HeldBackLoss(truth, parts, LEVELS)
        found = loss(average([part.astype(float) for part in parts], greedy_weights(parts, loss)))
        assert found <= 1.02 * best_on_a_grid(parts, loss, 8)


@given(seeds, counts)
def test_a_member_that_is_there_twice_changes_nothing(seed: int, members: int) -> None:
    truth, parts = case(seed, members)
    twice = [*parts, parts[seed % members]]
    usual, found = weights_of(truth, parts), weights_of(truth, twice)
    np.testing.assert_array_equal(found, [*usual, 0])
    np.testing.assert_array_equal(average(twice, found), average(parts, usual))


@given(seeds, counts, st.sampled_from([np.float32, np.float64]))
def test_averaged_quantiles_do_not_cross(seed: int, members: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    # Many equal values, and neighbours that differ in the last bit.
    steps = rng.integers(0, 3, (members, 5, 9, 4)) * rng.choice([0, 1e-7, 1], (members, 5, 9, 4))
    parts = [np.cumsum(part, axis=1).astype(dtype) for part in steps * 10.0 ** rng.integers(-6, 6)]
    weights = rng.dirichlet(np.ones(members))
    assert (np.diff(average(parts, weights), axis=1) >= 0).all()
    assert average(parts, weights).dtype == dtype


@given(seeds)
def test_one_member_alone_is_itself(seed: int) -> None:
    truth, parts = case(seed, 1)
    assert weights_of(truth, parts).tolist() == [1]
    np.testing.assert_array_equal(average(parts, [1.0]), parts[0])
    paths = np.random.default_rng(seed).normal(size=(2, 11, 3)).astype(np.float32)
    np.testing.assert_array_equal(joint_paths([paths], [1.0], path_quantiles(paths, 11)), paths)


def test_the_loss_of_a_quantile_is_the_tilted_error_and_skips_missing_values() -> None:
    truth, quantiles = np.array([[3.0, np.nan]]), np.array([[[1.0, 0.0], [5.0, 0.0]]])
    assert quantile_loss(truth, quantiles, (0.1, 0.9)).tolist() == [pytest.approx(0.1 * 2 + 0.1 * 2)]


def held_back(truth_S: list[list[float]], *of_members: list[float]) -> list[float]:
    """Weights for one window per series and medians of each member that are off by a constant per series."""
    truth = np.array(truth_S)[None]
    parts = [truth[:, :, None] + np.array(off)[:, None, None] for off in of_members]
    return greedy_weights(parts, HeldBackLoss(truth, parts, (0.5,))).tolist()  # type: ignore[no-any-return]


WAVE = [1.0, 3.0, 1.0, 3.0]


def test_a_huge_series_does_not_decide_alone() -> None:
    huge = [1e6 * value for value in WAVE]
    assert held_back([WAVE, WAVE, huge], [0.1, 0.1, 5e5], [0.8, 0.8, 4.9e5]) == [1, 0]


def test_a_series_that_nobody_foresees_does_not_decide_alone() -> None:
    assert held_back([WAVE, WAVE, WAVE], [0.1, 0.1, 1e4], [0.8, 0.8, 9e3]) == [1, 0]


def test_a_series_that_all_forecast_almost_exactly_has_no_say_by_its_last_digits() -> None:
    assert held_back([WAVE, WAVE], [0.1, 1e-6], [0.8, 0.0]) == [1, 0]


def test_a_series_that_does_not_move_has_no_say_unless_none_moves() -> None:
    still = [7.0] * 4
    assert held_back([WAVE, still, still], [0.1, 1.0, 1.0], [0.8, 0.0, 0.0]) == [1, 0]
    assert held_back([still, still], [0.1, 1.0], [0.8, 0.0]) == [0, 1]
    assert held_back([WAVE, [np.nan] * 4], [0.1, 1.0], [0.8, 0.0]) == [1, 0]


def test_members_that_err_to_opposite_sides_share_the_weight_and_one_that_hardly_helps_has_none() -> None:
    assert held_back([WAVE], [0.5], [-0.5], [0.9]) == [0.5, 0.5, 0]
    assert held_back([WAVE], [0.5], [-0.25]) == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    # Together they are better in one series of 400, by less than half a per cent of all.
    assert held_back([WAVE] * 400, [0.5] * 400, [0.5] * 399 + [-0.6]) == [1, 0]


@given(seeds, st.integers(1, 3), st.integers(1, 12))
def test_paths_have_the_combined_quantiles_at_every_step(seed: int, members: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    paths = [rng.normal(size=(2, count + int(rng.integers(0, 5)), 3)) for _ in range(members)]
    combined = np.sort(rng.normal(size=(2, count, 3)), axis=1)
    found = joint_paths(paths, rng.dirichlet(np.ones(members)), combined)
    np.testing.assert_array_equal(np.sort(found, axis=1), combined)


def test_a_path_keeps_its_course_in_other_values() -> None:
    rng = np.random.default_rng(0)
    level = rng.normal(size=(1, 100, 1))
    rising = level + np.zeros((1, 100, 5))  # the same rank at every step
    swinging = 1000 + level * np.array([1, -1, 1, -1, 1])  # the other end at every second step
    grid = np.broadcast_to(np.array(middles(100))[None, :, None], (1, 100, 5))
    found = joint_paths([rising, swinging], [0.6, 0.4], grid)[0]
    first, second = found[:60], found[60:]
    assert np.corrcoef(first[:, 0], first[:, 1])[0, 1] > 0.95
    assert np.corrcoef(second[:, 0], second[:, 1])[0, 1] < -0.95
    assert abs(first[:, 0].mean() - second[:, 0].mean()) < 0.2, "ranks are those within a member, not of its level"


def test_quantiles_of_more_paths_than_needed_are_between_them() -> None:
    paths = np.arange(8.0)[None, ::-1, None]
    np.testing.assert_allclose(path_quantiles(paths, 4)[0, :, 0], [0.5, 2.5, 4.5, 6.5])
    np.testing.assert_array_equal(path_quantiles(paths, 8)[0, :, 0], np.arange(8.0))
