"""Matrix with holes -> loadings, factors and the weights by which each factor follows from its own past.

The three parts of temporal regularised matrix factorisation (Yu, Rao and Dhillon, NIPS 2016), each the exact minimum of

    |Y - F X|^2 over what was observed + ridge |F|^2 + temporal (|residual|^2 + SHRINK |X|^2) + ridge |W|^2

while the others stand still; residual_t = x_t - sum over lags l of w_l x_{t-l}, for every t that has all its lags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# S series, T steps of time, K factors, L lags

Doubles = NDArray[np.float64]

# Keeps factors bounded where neither data nor lags say anything of them.
SHRINK = 1e-3
_MOST_ITERATIONS = 500
_ACCURACY_OF_A_SWEEP = 1e-4


@dataclass(frozen=True)
class Strength:
    """How strongly factors are held to their lags, and loadings and weights to zero."""

    temporal: float = 1.0
    ridge: float = 1.0


@dataclass(frozen=True)
class Observed:
    """The matrix with 0 in its holes, and 1 where something was observed; None where there is no hole."""

    values_ST: Doubles
    mask_ST: Doubles | None

    @classmethod
    def of(cls, values_ST: Doubles) -> Observed:
        hole_ST = np.isnan(values_ST)
        return cls(np.where(hole_ST, 0.0, values_ST), (~hole_ST).astype(np.float64) if hole_ST.any() else None)


def factorise(
    data: Observed, lags: Sequence[int], rank: int, strength: Strength, generator: np.random.Generator
) -> Iterator[tuple[Doubles, Doubles, Doubles]]:
    """Loadings (S, K), factors (K, T) and weights (K, L), a little better each time: take as many as there is time."""
    series, steps = data.values_ST.shape
    # A random look at the rows' products finds the directions of most variance.
    sketch_SK = data.values_ST @ (data.values_ST.T @ generator.normal(size=(series, rank)))
    loadings_SK = np.linalg.qr(sketch_SK)[0]
    factors_KT = loadings_SK.T @ data.values_ST
    # Only the product of the two is known: begin with both of one size.
    size_K1 = np.sqrt(np.linalg.norm(factors_KT, axis=1, keepdims=True))
    factors_KT /= np.where(size_K1 > 0, size_K1, 1.0)
    weights_KL = solve_weights(factors_KT, lags, strength)
    while True:
        loadings_SK = solve_loadings(data, factors_KT, strength)
        lagged = Lagged(weights_KL, lags, steps)
        factors_KT = solve_factors(data, loadings_SK, lagged, strength, factors_KT, accuracy=_ACCURACY_OF_A_SWEEP)
        weights_KL = solve_weights(factors_KT, lags, strength)
        yield loadings_SK, factors_KT, weights_KL


def solve_loadings(data: Observed, factors_KT: Doubles, strength: Strength) -> Doubles:
    """(S, K): how much of each factor is in each series, by ridge regression over its observed steps."""
    ridge_KK = strength.ridge * np.eye(len(factors_KT))
    right_KS = factors_KT @ data.values_ST.T
    if data.mask_ST is None:
        return np.asarray(np.linalg.solve(factors_KT @ factors_KT.T + ridge_KK, right_KS).T, np.float64)
    loadings_SK = np.empty(right_KS.T.shape)
    for series, mask_T in enumerate(data.mask_ST):
        gram_KK = (factors_KT * mask_T) @ factors_KT.T
        loadings_SK[series] = np.linalg.solve(gram_KK + ridge_KK, right_KS[:, series])
    return loadings_SK


def solve_weights(factors_KT: Doubles, lags: Sequence[int], strength: Strength) -> Doubles:
    """(K, L): each factor regressed on its own past."""
    longest, steps = max(lags), factors_KT.shape[1]
    ridge_LL = strength.ridge * np.eye(len(lags))
    weights_KL = np.zeros((len(factors_KT), len(lags)))
    if steps <= longest:
        return weights_KL
    for factor, values_T in enumerate(factors_KT):
        past_LT = np.stack([values_T[longest - lag : steps - lag] for lag in lags])
        gram_LL, right_L = past_LT @ past_LT.T, past_LT @ values_T[longest:]
        weights_KL[factor] = np.linalg.solve(strength.temporal * gram_LL + ridge_LL, strength.temporal * right_L)
    return weights_KL


def solve_factors(
    data: Observed,
    loadings_SK: Doubles,
    lagged: Lagged,
    strength: Strength,
    start_KT: Doubles,
    *,
    accuracy: float,
) -> Doubles:
    """(K, T) by conjugate gradients from `start_KT`; all factors and steps hang together, so nothing splits."""
    gram_KK, mask_ST = loadings_SK.T @ loadings_SK, data.mask_ST

    def curvature(factors_KT: Doubles) -> Doubles:
        seen_KT = gram_KK @ factors_KT if mask_ST is None else loadings_SK.T @ (mask_ST * (loadings_SK @ factors_KT))
        return seen_KT + strength.temporal * (lagged.back(lagged.residual(factors_KT)) + SHRINK * factors_KT)

    size_K = np.diag(gram_KK) + strength.temporal * (1 + (lagged.weights_KL**2).sum(axis=1) + SHRINK)
    return _conjugate_gradients(curvature, loadings_SK.T @ data.values_ST, start_KT, size_K[:, None], accuracy)


class Lagged:
    """x -> x_t - sum of w_l x_{t-l}, and its transpose: by Fourier transform, at one cost for any number of lags."""

    def __init__(self, weights_KL: Doubles, lags: Sequence[int], steps: int) -> None:
        self.weights_KL, self.steps, self.longest = weights_KL, steps, max(lags)
        self.padded = 1 << (steps + self.longest).bit_length()
        taps = np.zeros((len(weights_KL), self.longest + 1))
        taps[:, 0] = 1.0
        taps[:, list(lags)] -= weights_KL
        self.spectrum = np.fft.rfft(taps, self.padded, axis=1)

    def residual(self, factors_KT: Doubles) -> Doubles:
        """0 where a lag would reach before the first step."""
        residual_KT = self._apply(factors_KT, self.spectrum)
        residual_KT[:, : self.longest] = 0.0
        return residual_KT

    def back(self, residual_KT: Doubles) -> Doubles:
        return self._apply(residual_KT, self.spectrum.conj())

    def _apply(self, values_KT: Doubles, spectrum: NDArray[np.complex128]) -> Doubles:
        product = np.fft.rfft(values_KT, self.padded, axis=1) * spectrum
        return np.asarray(np.fft.irfft(product, self.padded, axis=1)[:, : self.steps])


def _conjugate_gradients(
    curvature: Callable[[Doubles], Doubles], right: Doubles, start: Doubles, size: Doubles, accuracy: float
) -> Doubles:
    """Where the curvature equals `right`, up to a share of `accuracy` of it; `size` is about its diagonal."""
    found, residual = start.copy(), right - curvature(start)
    scaled = residual / size
    direction, product = scaled.copy(), float((residual * scaled).sum())
    goal = accuracy * float(np.linalg.norm(right))
    for _ in range(_MOST_ITERATIONS):
        if np.linalg.norm(residual) <= goal:
            break
        bent = curvature(direction)
        pace = product / float((direction * bent).sum())
        found += pace * direction
        residual -= pace * bent
        scaled = residual / size
        product, before = float((residual * scaled).sum()), product
        direction = scaled + (product / before) * direction
    return found
