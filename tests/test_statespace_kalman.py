"""The Kalman filter against two others: the joint Gaussian of all values, written out, and statsmodels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from logsparse.model.statespace import LinearGaussian, draw_paths, run_filter

# B windows, L steps, D states, N sample paths

SIZES = [(1, 1, 1), (3, 7, 2), (2, 12, 5), (4, 23, 3)]


def some_model(size: tuple[int, int, int], seed: int = 0, *, moving: bool = True) -> LinearGaussian:
    windows, steps, states = size
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    half_BDD = normal(windows, states, states)
    return LinearGaussian(
        mean_BD=normal(windows, states),
        covariance_BDD=half_BDD @ half_BDD.mT + 0.1 * torch.eye(states),
        emission_BLD=normal(windows, steps, states),
        offset_BL=normal(windows, steps),
        noise_BL=0.05 + normal(windows, steps).square(),
        innovation_BLD=0.5 * normal(windows, steps, states),
        transition_DD=torch.eye(states) + 0.2 * normal(states, states) if moving else None,
    )


def some_values(size: tuple[int, int, int], seed: int = 1) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    value_BL = 2 * torch.randn(size[:2], generator=rng, dtype=torch.float64)
    return value_BL, torch.rand(size[:2], generator=rng) > 0.3


def joint(model: LinearGaussian) -> tuple[Tensor, Tensor]:
    """Return mean (B, L) and covariance (B, L, L) of all values, written out as sums."""
    windows, steps, states = model.innovation_BLD.shape
    move_DD = torch.eye(states, dtype=torch.float64) if model.transition_DD is None else model.transition_DD
    power = [torch.linalg.matrix_power(move_DD, n) for n in range(steps)]
    means, rows = [], []
    for t in range(steps):
        # What the first state, the innovations and the noise of every step weigh in the value of step t.
        first_BD = model.emission_BLD[:, t] @ power[t]
        moved = [
            (model.innovation_BLD[:, s] @ power[t - s - 1].T * model.emission_BLD[:, t]).sum(1)
            if s < t
            else torch.zeros(windows)
            for s in range(steps)
        ]
        noise = [model.noise_BL[:, t].sqrt() if s == t else torch.zeros(windows) for s in range(steps)]
        means.append((first_BD * model.mean_BD).sum(1) + model.offset_BL[:, t])
        root_BDD = torch.linalg.cholesky(model.covariance_BDD)
        rows.append(torch.cat([(first_BD[:, None] @ root_BDD)[:, 0], torch.stack([*moved, *noise], 1)], 1))
    weight_BLs = torch.stack(rows, 1)
    return torch.stack(means, 1), weight_BLs @ weight_BLs.mT


def joint_log_density(model: LinearGaussian, value_BL: Tensor, observed_BL: Tensor) -> Tensor:
    """Return the log-density of the observed values of all windows under the joint distribution."""
    mean_BL, covariance_BLL = joint(model)
    total = 0 * mean_BL.sum()
    for row, seen in enumerate(observed_BL):
        if seen.any():
            covariance_ll, error_l = covariance_BLL[row][seen][:, seen], value_BL[row, seen] - mean_BL[row, seen]
            squared = error_l @ torch.linalg.solve(covariance_ll, error_l)
            total = total - 0.5 * (squared + torch.logdet(covariance_ll) + len(error_l) * math.log(2 * math.pi))
    return total


def filter_log_density(model: LinearGaussian, value_BL: Tensor, observed_BL: Tensor) -> Tensor:
    return run_filter(model, value_BL, observed_BL).log_density(value_BL)[observed_BL].sum()


@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_density_and_gradients_are_those_of_the_joint_distribution(size: tuple[int, int, int], moving: bool) -> None:
    value_BL, observed_BL = some_values(size)
    names = ["mean_BD", "covariance_BDD", "emission_BLD", "offset_BL", "noise_BL", "innovation_BLD"]

    def found(density: Callable[..., Tensor]) -> tuple[Tensor, list[Tensor]]:
        model = some_model(size, moving=moving)
        leaves = {name: getattr(model, name).clone().requires_grad_() for name in names}
        total = density(replace(model, **leaves), value_BL, observed_BL)
        torch.autograd.backward(total)
        gradients = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
        # The root of the oracle's covariance has a gradient of one triangle: what counts is the sum of both.
        gradients["covariance_BDD"] = gradients["covariance_BDD"] + gradients["covariance_BDD"].mT
        return total, list(gradients.values())

    (total, gradients), (expected, others) = found(filter_log_density), found(joint_log_density)
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_values_that_are_not_observed_are_not_read() -> None:
    size = (3, 9, 2)
    model, (value_BL, observed_BL) = some_model(size), some_values(size)
    other_BL = torch.where(observed_BL, value_BL, torch.nan)
    one, other = run_filter(model, value_BL, observed_BL), run_filter(model, other_BL, observed_BL)
    assert torch.equal(one.mean_BL, other.mean_BL)
    assert torch.equal(one.mean_BD, other.mean_BD)


@pytest.mark.parametrize("moving", [True, False])
def test_a_forecast_is_the_joint_distribution_given_the_past(moving: bool) -> None:
    size, now = (2, 14, 3), 9
    model, (value_BL, observed_BL) = some_model(size, moving=moving), some_values(size)
    past = run_filter(model.between(0, now), value_BL[:, :now], observed_BL[:, :now])
    ahead = replace(model.between(now), mean_BD=past.mean_BD, covariance_BDD=past.covariance_BDD)
    found = run_filter(ahead, torch.zeros(2, 5), torch.zeros(2, 5, dtype=torch.bool))
    draws_BNH = torch.randn(2, 200_000, 5, generator=torch.Generator().manual_seed(3))
    paths_BNH = draw_paths(ahead, draws_BNH)
    mean_BL, covariance_BLL = joint(model)
    for row in range(2):
        seen = observed_BL[row, :now].nonzero()[:, 0]
        own, cross = covariance_BLL[row][seen][:, seen], covariance_BLL[row, now:][:, seen]
        gain = torch.linalg.solve(own, cross.mT).mT
        mean_H = mean_BL[row, now:] + gain @ (value_BL[row, seen] - mean_BL[row, seen])
        covariance_HH = covariance_BLL[row, now:, now:] - gain @ cross.mT
        torch.testing.assert_close(found.mean_BL[row], mean_H)
        torch.testing.assert_close(found.variance_BL[row], covariance_HH.diagonal())
        size_H = covariance_HH.diagonal().sqrt()
        assert ((paths_BNH[row].mean(0) - mean_H) / size_H).abs().max() < 0.01
        error_HH = (torch.cov(paths_BNH[row].mT) - covariance_HH) / (size_H[:, None] * size_H)
        assert error_HH.abs().max() < 0.02, "paths are joint, not step by step"


def test_one_draw_is_one_path_whatever_its_neighbours() -> None:
    model, draws_BNH = some_model((3, 6, 2)), torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(0))
    part = draw_paths(model, draws_BNH[:, 2:5])
    torch.testing.assert_close(draw_paths(model, draws_BNH)[:, 2:5], part, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize("end", [1, 8, 24])
def test_statsmodels_finds_the_same(end: int, moving: bool) -> None:
    kalman = pytest.importorskip("statsmodels.tsa.statespace.kalman_filter", reason="needs logsparse[baselines]")
    windows, steps, states = size = (2, 25, 4)
    model, (value_BL, observed_BL) = some_model(size, moving=moving), some_values(size)
    found = run_filter(model.between(0, end), value_BL[:, :end], observed_BL[:, :end])
    ahead = replace(model.between(end), mean_BD=found.mean_BD, covariance_BDD=found.covariance_BDD)
    nothing_BH = torch.zeros(windows, steps - end, dtype=torch.bool)
    forecast = run_filter(ahead, nothing_BH.double(), nothing_BH)
    move_DD = torch.eye(states).double() if model.transition_DD is None else model.transition_DD
    for row in range(windows):
        values = torch.where(observed_BL, value_BL, torch.nan)[row].numpy().copy()
        values[end:] = np.nan
        theirs: Any = kalman.KalmanFilter(k_endog=1, k_states=states, k_posdef=1, tolerance=0)
        theirs.bind(np.asfortranarray(values[:, None]))
        theirs["design"] = model.emission_BLD[row].T[None].numpy()
        theirs["obs_intercept"] = model.offset_BL[row][None].numpy()
        theirs["obs_cov"] = model.noise_BL[row][None, None].numpy()
        theirs["transition"] = move_DD.numpy()
        theirs["selection"] = model.innovation_BLD[row].T[:, None].numpy()
        theirs["state_cov"] = np.eye(1)
        theirs.initialize_known(model.mean_BD[row].numpy(), model.covariance_BDD[row].numpy())
        result = theirs.filter()
        density_L = torch.where(observed_BL[:, :end], found.log_density(value_BL[:, :end]), 0)[row]
        np.testing.assert_allclose(density_L, result.llf_obs[:end], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.mean_BD[row], result.predicted_state[:, end], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(
            found.covariance_BDD[row], result.predicted_state_cov[..., end], rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(forecast.mean_BL[row], result.forecasts[0, end:], rtol=1e-8, atol=1e-8)
        variance_H = result.forecasts_error_cov[0, 0, end:]
        np.testing.assert_allclose(forecast.variance_BL[row], variance_H, rtol=1e-8, atol=1e-8)


def test_the_filter_stays_exact_where_noise_is_a_thousandth_of_the_states_over_many_steps() -> None:
    steps, states = 2000, 25
    emission_LD = torch.cat([torch.ones(steps, 1), torch.eye(24)[torch.arange(steps) % 24]], 1)
    model = LinearGaussian(
        mean_BD=torch.zeros(1, states),
        covariance_BDD=100 * torch.eye(states)[None],
        emission_BLD=emission_LD[None],
        offset_BL=torch.zeros(1, steps),
        noise_BL=torch.full((1, steps), 1e-6),
        innovation_BLD=1e-4 * emission_LD[None],
    )
    value_BL = torch.sin(torch.arange(steps) * math.pi / 12)[None]
    found = run_filter(model, value_BL, torch.ones(1, steps, dtype=torch.bool))
    assert (found.variance_BL >= 1e-6).all()
    assert torch.equal(found.covariance_BDD, found.covariance_BDD.mT)
    assert torch.linalg.eigvalsh(found.covariance_BDD).min() > -1e-12
    assert (found.mean_BL - value_BL)[:, 24:].abs().max() < 1e-3
