"""Each part of the factorisation is the exact minimum of the one objective, holes and lags included."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from logsparse.baselines.trmf import (
    SHRINK,
    Doubles,
    Lagged,
    Observed,
    Strength,
    factorise,
    solve_factors,
    solve_loadings,
    solve_weights,
)

S, K, T, LAGS = 5, 2, 23, (1, 3, 4)
STRENGTH = Strength(temporal=0.7, ridge=0.3)


def objective(values_ST: Doubles, loadings_SK: Doubles, factors_KT: Doubles, weights_KL: Doubles) -> float:
    """As the module's docstring has it, term by term."""
    error_ST = values_ST - loadings_SK @ factors_KT
    total = float((error_ST[~np.isnan(values_ST)] ** 2).sum()) + STRENGTH.ridge * float((loadings_SK**2).sum())
    residual = 0.0
    for factor, weights_L in zip(factors_KT, weights_KL, strict=True):
        for t in range(max(LAGS), factors_KT.shape[1]):
            past = sum(w * factor[t - lag] for w, lag in zip(weights_L, LAGS, strict=True))
            residual += float(factor[t] - past) ** 2
    total += STRENGTH.temporal * (residual + SHRINK * float((factors_KT**2).sum()))
    return total + STRENGTH.ridge * float((weights_KL**2).sum())


@pytest.fixture(params=[False, True], ids=["whole", "holes"])
def parts(request: pytest.FixtureRequest) -> dict[str, Doubles]:
    rng = np.random.default_rng(0)
    shapes = {"values_ST": (S, T), "loadings_SK": (S, K), "factors_KT": (K, T), "weights_KL": (K, len(LAGS))}
    made: dict[str, Doubles] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    if request.param:
        made["values_ST"][rng.random((S, T)) < 0.3] = np.nan
        made["values_ST"][:, 7] = np.nan
    return made


def solved(name: str, parts: dict[str, Doubles]) -> Doubles:
    data = Observed.of(parts["values_ST"])
    if name == "loadings_SK":
        return solve_loadings(data, parts["factors_KT"], STRENGTH)
    if name == "weights_KL":
        return solve_weights(parts["factors_KT"], LAGS, STRENGTH)
    lagged = Lagged(parts["weights_KL"], LAGS, T)
    return solve_factors(data, parts["loadings_SK"], lagged, STRENGTH, parts["factors_KT"], accuracy=1e-12)


@pytest.mark.parametrize("name", ["loadings_SK", "factors_KT", "weights_KL"])
def test_each_part_is_the_minimum_while_the_others_stand_still(name: str, parts: dict[str, Doubles]) -> None:
    parts[name] = solved(name, parts)
    least = objective(**parts)
    # The objective is quadratic in the part: at its minimum every direction rises by the same amount both ways.
    for place in np.ndindex(parts[name].shape):
        moved = []
        for sign in (-1, 1):
            nudged = {**parts, name: parts[name].copy()}
            nudged[name][place] += sign * 1e-3
            moved.append(objective(**nudged) - least)
        assert min(moved) > 0
        np.testing.assert_allclose(moved[0], moved[1], rtol=1e-4)


def test_the_lags_by_fourier_are_the_lags_by_hand_and_their_transpose() -> None:
    rng = np.random.default_rng(1)
    weights_KL, x_KT, y_KT = rng.normal(size=(K, len(LAGS))), rng.normal(size=(K, T)), rng.normal(size=(K, T))
    lagged = Lagged(weights_KL, LAGS, T)
    by_hand = np.zeros((K, T))
    for t in range(max(LAGS), T):
        by_hand[:, t] = x_KT[:, t] - sum(weights_KL[:, i] * x_KT[:, t - lag] for i, lag in enumerate(LAGS))
    np.testing.assert_allclose(lagged.residual(x_KT), by_hand, atol=1e-12)
    y_KT[:, : max(LAGS)] = 0
    np.testing.assert_allclose((lagged.residual(x_KT) * y_KT).sum(), (x_KT * lagged.back(y_KT)).sum())


def test_every_sweep_is_better_than_the_one_before() -> None:
    rng = np.random.default_rng(2)
    values_ST = rng.normal(size=(S, 60)).cumsum(axis=1)
    values_ST[rng.random(values_ST.shape) < 0.1] = np.nan
    better = factorise(Observed.of(values_ST), LAGS, K, STRENGTH, np.random.default_rng(0))
    losses = [objective(values_ST, *parts) for parts in islice(better, 12)]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(losses))
    assert losses[-1] < 0.95 * losses[0]


def test_a_series_shorter_than_its_lags_has_no_weights() -> None:
    assert solve_weights(np.ones((2, 3)), [3, 4], STRENGTH).tolist() == [[0, 0], [0, 0]]
