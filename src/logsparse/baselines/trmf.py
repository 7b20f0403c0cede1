"""Panel -> Forecast by TRMF: series are mixtures of a few factors, each an autoregression. Point forecasts only.

Minimises |Y - F X|^2 over the observed cells + ridge |F|^2 + temporal (|residual|^2 + SHRINK |X|^2) + ridge |W|^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, Freq
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError, above_zero, is_whole, truth, whole
from logsparse.forecast import Forecast, Forecaster
from logsparse.process import Progress
from logsparse.storage import a_list, array, entries, require, wholes

# S series, T steps of time, K factors, L lags, H steps of the horizon

Doubles = NDArray[np.float64]

# Keeps factors bounded where neither data nor lags determine them.
SHRINK = 1e-3
_MOST_ITERATIONS = 500
_ACCURACY_OF_A_SWEEP = 1e-4
# The factors at the end of a history are computed from this many times the longest lag.
_LONGEST_LAGS_SEEN = 4
_ACCURACY = 1e-6
_ARRAYS = ("loadings", "weights", "center", "scale", "low", "high")
_LONGEST_LAG = 1_000_000
_NEAR = 24
_NEAR_WITHOUT_SEASON = 8


@dataclass(frozen=True)
class Strength:
    """Weights of the penalties: of factors against their lags, of loadings and weights against zero."""

    temporal: float = 1.0
    ridge: float = 1.0


@dataclass(frozen=True)
class Observed:
    """The matrix with 0 for NaN, and a mask of the observed cells; None if all are observed."""

    values_ST: Doubles
    mask_ST: Doubles | None

    @classmethod
    def of(cls, values_ST: Doubles) -> Observed:
        hole_ST = np.isnan(values_ST)
        return cls(np.where(hole_ST, 0.0, values_ST), (~hole_ST).astype(np.float64) if hole_ST.any() else None)


def factorise(
    data: Observed, lags: Sequence[int], rank: int, strength: Strength, generator: np.random.Generator
) -> Iterator[tuple[Doubles, Doubles, Doubles]]:
    """Yield loadings (S, K), factors (K, T) and weights (K, L) after each sweep, without end."""
    series, steps = data.values_ST.shape
    # A random sketch of the rows finds the directions of most variance.
    sketch_SK = data.values_ST @ (data.values_ST.T @ generator.normal(size=(series, rank)))
    loadings_SK = np.linalg.qr(sketch_SK)[0]
    factors_KT = loadings_SK.T @ data.values_ST
    # Only the product is determined: start with loadings and factors of one size.
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
    """Return the loadings (S, K) by ridge regression of each series on the factors over its observed steps."""
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
    """Return the weights (K, L) by ridge regression of each factor on its own past."""
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
    """Return the factors (K, T) by conjugate gradients from `start_KT`, all factors and steps jointly."""
    gram_KK, mask_ST = loadings_SK.T @ loadings_SK, data.mask_ST

    def curvature(factors_KT: Doubles) -> Doubles:
        seen_KT = gram_KK @ factors_KT if mask_ST is None else loadings_SK.T @ (mask_ST * (loadings_SK @ factors_KT))
        return seen_KT + strength.temporal * (lagged.back(lagged.residual(factors_KT)) + SHRINK * factors_KT)

    size_K = np.diag(gram_KK) + strength.temporal * (1 + (lagged.weights_KL**2).sum(axis=1) + SHRINK)
    return _conjugate_gradients(curvature, loadings_SK.T @ data.values_ST, start_KT, size_K[:, None], accuracy)


class Lagged:
    """The map x -> x_t - sum of w_l x_{t-l} and its transpose, by Fourier transform: any number of lags costs alike."""

    def __init__(self, weights_KL: Doubles, lags: Sequence[int], steps: int) -> None:
        self.weights_KL, self.steps, self.longest = weights_KL, steps, max(lags)
        self.padded = 1 << (steps + self.longest).bit_length()
        taps = np.zeros((len(weights_KL), self.longest + 1))
        taps[:, 0] = 1.0
        taps[:, list(lags)] -= weights_KL
        self.spectrum = np.fft.rfft(taps, self.padded, axis=1)

    def residual(self, factors_KT: Doubles) -> Doubles:
        """Return the residuals (K, T); 0 where a lag reaches before the first step."""
        residual_KT = self._apply(factors_KT, self.spectrum)
        residual_KT[:, : self.longest] = 0.0
        return residual_KT

    def back(self, residual_KT: Doubles) -> Doubles:
        """Apply the transpose."""
        return self._apply(residual_KT, self.spectrum.conj())

    def _apply(self, values_KT: Doubles, spectrum: NDArray[np.complex128]) -> Doubles:
        product = np.fft.rfft(values_KT, self.padded, axis=1) * spectrum
        return np.asarray(np.fft.irfft(product, self.padded, axis=1)[:, : self.steps])


def _conjugate_gradients(
    curvature: Callable[[Doubles], Doubles], right: Doubles, start: Doubles, size: Doubles, accuracy: float
) -> Doubles:
    """Solve curvature(x) = right to a relative accuracy; `size` approximates the diagonal, as a preconditioner."""
    found, residual = start.copy(), right - curvature(start)
    scaled = residual / size
    direction, product = scaled.copy(), float((residual * scaled).sum())
    goal = accuracy * float(np.linalg.norm(right))
    for _ in range(_MOST_ITERATIONS):
        if np.linalg.norm(residual) <= goal:
            break
        curved = curvature(direction)
        length = product / float((direction * curved).sum())
        found += length * direction
        residual -= length * curved
        scaled = residual / size
        product, before = float((residual * scaled).sum()), product
        direction = scaled + (product / before) * direction
    return found


class TRMF(Forecaster):
    """Temporal regularised matrix factorisation (Yu, Rao and Dhillon, NIPS 2016): point forecasts, no quantiles.

    All series must cover the same span; missing values are allowed. A later history of the fitted series keeps loadings
    and weights; the factors of its steps are computed from them and the new values.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    rank
        Largest number of factors.
    lags
        Lags of the factors; if left out, the last steps, those a season ago and, for steps within a day, a week ago.
    temporal
        Weight of the penalty on the distance of factors from their autoregression.
    ridge
        Weight of the penalty on loadings and weights.
    sweeps
        Number of passes of the alternating solver.
    seed
        Seed of the starting point.
    verbose
        Whether to show progress.

    Raises
    ------
    ConfigError, DataError
        At `fit`, not here, if a parameter has a wrong value or the series cover different spans.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.TRMF(horizon=3, lags=[7], verbose=False).fit(frame)
    >>> model.forecast().mean.round().tolist()
    [[0.0, 1.0, 2.0]]
    """

    changeable = ("verbose",)
    point_only = True

    lags_: list[int]
    loadings_: Doubles
    """Array (S, K), for series less their center, divided by their scale."""
    weights_: Doubles
    """Array (K, L)."""
    center_: Doubles
    scale_: Doubles
    low_: Doubles
    high_: Doubles

    def __init__(
        self,
        horizon: int,
        rank: int = 20,
        *,
        lags: Sequence[int] | None = None,
        temporal: float = 1.0,
        ridge: float = 1.0,
        sweeps: int = 100,
        seed: int = 0,
        verbose: bool = True,
    ) -> None:
        super().__init__(horizon)
        self.rank, self.lags, self.temporal, self.ridge = rank, lags, temporal, ridge
        self.sweeps, self.seed, self.verbose = sweeps, seed, verbose

    def check(self) -> None:
        super().check()
        self.rank = whole("rank", self.rank, hint="count the factors.")
        self.sweeps = whole("sweeps", self.sweeps, hint="count how often each part is solved.")
        self.seed = whole("seed", self.seed, hint="write any number from 0 on.", least=0)
        self.temporal = above_zero("temporal", self.temporal, hint="1.0 is usual.")
        self.ridge = above_zero("ridge", self.ridge, hint="1.0 is usual.")
        self.verbose = truth("verbose", self.verbose)
        if self.lags is not None:
            self.lags = _lags(self.lags)

    def _fit(self, panel: Panel) -> None:
        values_ST = _matrix(panel)
        steps = values_ST.shape[1]
        self.lags_ = _usual_lags(panel.freq, steps) if self.lags is None else sorted(set(self.lags))
        if self.lags is not None and self.lags_[-1] >= steps:
            raise DataError(
                "Series must be longer than the longest lag.",
                got=f"{steps} steps and lag {self.lags_[-1]}",
                hint="leave lags out, or name shorter ones.",
            )
        self.low_, self.high_ = np.nanmin(values_ST, axis=1), np.nanmax(values_ST, axis=1)
        self.center_ = np.nanmean(values_ST, axis=1)
        spread_S = np.nanstd(values_ST, axis=1)
        self.scale_ = np.where(spread_S > 0, spread_S, 1.0)
        data = Observed.of((values_ST - self.center_[:, None]) / self.scale_[:, None])
        better = factorise(
            data, self.lags_, min(self.rank, *values_ST.shape), self._strength(), np.random.default_rng(self.seed)
        )
        with Progress("trmf", self.sweeps, verbose=self.verbose) as progress:
            for loadings_SK, _, weights_KL in islice(better, self.sweeps):
                self.loadings_, self.weights_ = loadings_SK, weights_KL
                progress.step()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"lags": self.lags_}, {name: getattr(self, f"{name}_") for name in _ARRAYS}

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        known = entries("learned", facts, "lags")["lags"]
        lags = wholes("learned/lags", known, len(a_list("learned/lags", known)), 1, _LONGEST_LAG)
        require("learned/lags", "in order, each once", known, holds=len(lags) > 0 and bool((np.diff(lags) > 0).all()))
        self.lags_ = lags.tolist()
        series, rank = len(self.panel_), arrays["weights"].shape[0]
        shapes = {"loadings": (series, rank), "weights": (rank, len(lags))}
        require("weights", f"the arrays {', '.join(_ARRAYS)}", list(arrays), holds=set(arrays) == set(_ARRAYS))
        for name in _ARRAYS:
            setattr(self, f"{name}_", array(name, arrays[name], shapes.get(name, (series,)), np.float64))
        require("scale", "above 0", "another", holds=bool((self.scale_ > 0).all()))

    def _remembered(self) -> int:
        return _LONGEST_LAGS_SEEN * self.lags_[-1]

    def _strength(self) -> Strength:
        return Strength(self.temporal, self.ridge)

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        rows_S = self._rows(panel)
        recent_ST = _matrix(panel)[:, -self._remembered() :]
        # One series that jumps far beyond its range would distort the factors of all others.
        values_ST = _clip_to_range(recent_ST, self.low_[rows_S, None], self.high_[rows_S, None])
        center_S1, scale_S1 = self.center_[rows_S, None], self.scale_[rows_S, None]
        factors_KT = self._factors((values_ST - center_S1) / scale_S1, self.loadings_[rows_S])
        ahead_KH = extend(factors_KT, self.weights_, self.lags_, self.horizon)
        mean_SH = (self.loadings_[rows_S] @ ahead_KH) * scale_S1 + center_S1
        largest = np.finfo(np.float32).max
        narrow_SH = np.clip(mean_SH, -largest, largest).astype(np.float32)
        return Forecast(panel, narrow_SH, levels, narrow_SH[:, None])

    def _factors(self, values_ST: Doubles, loadings_SK: Doubles) -> Doubles:
        start_KT = np.zeros((loadings_SK.shape[1], values_ST.shape[1]))
        lagged = Lagged(self.weights_, self.lags_, values_ST.shape[1])
        data = Observed.of(values_ST)
        return solve_factors(data, loadings_SK, lagged, self._strength(), start_KT, accuracy=_ACCURACY)

    def _rows(self, panel: Panel) -> list[int]:
        known = {name: row for row, name in enumerate(self.panel_.ids)}
        for name in panel.ids:
            if name not in known:
                raise DataError(
                    "TRMF forecasts only the series that it was fitted on: the loadings of others are unknown.",
                    got=f"series {name!r}",
                    hint="fit with that series, or leave it out.",
                )
        return [known[name] for name in panel.ids]


def _lags(asked: Any) -> list[int]:
    """Return the lags as a list; an iterator is refused, since it can be read only once."""
    entries = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, Iterator) else []
    if not entries or not all(is_whole(lag) and lag > 0 for lag in entries):
        raise ConfigError(
            "lags must be a list of whole numbers of steps, at least 1.",
            got=f"{asked!r}",
            hint="write lags=[1, 2, 24, 168], or leave it out.",
        )
    return [int(lag) for lag in entries]


def extend(factors_KT: Doubles, weights_KL: Doubles, lags: Sequence[int], horizon: int) -> Doubles:
    """Return the factors (K, H) continued by their weights; bounded, since an autoregression may grow without end."""
    longest = max(lags)
    low_K, high_K = factors_KT.min(axis=1), factors_KT.max(axis=1)
    path = np.zeros((len(factors_KT), longest + horizon))
    seen = min(longest, factors_KT.shape[1])
    path[:, longest - seen : longest] = factors_KT[:, factors_KT.shape[1] - seen :]
    for step in range(longest, longest + horizon):
        value_K = (weights_KL * path[:, step - np.array(lags)]).sum(axis=1)
        path[:, step] = _clip_to_range(value_K, low_K, high_K)
    return path[:, longest:]


def _clip_to_range(values: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Clip the values to the range [low, high], extended by its width on both sides."""
    return np.clip(values, 2 * low - high, 2 * high - low)


def _usual_lags(freq: Freq, steps: int) -> list[int]:
    """Return up to 24 lags each: the last steps, those up to a season ago, from a week ago if a season is a day.

    For hours: 1 to 24 and 168 to 191, as in the paper of TRMF. Lags longer than half of the data are left out.
    """
    season = freq.season
    near = min(season, _NEAR) if season > 1 else _NEAR_WITHOUT_SEASON
    lags = {*range(1, near + 1), *range(max(season - near, 0) + 1, season + 1)}
    if freq.kind == "tick" and season * freq.count == DAY:
        lags |= set(range(7 * season, 7 * season + near))
    return sorted(lag for lag in lags if lag <= max(steps // 2, 1))


def _matrix(panel: Panel) -> Doubles:
    starts, lengths = panel.starts, panel.lengths
    odd_S = (starts != starts[0]) | (lengths != lengths[0])
    if odd_S.any():
        odd = int(np.argmax(odd_S))
        spans = [
            f"{panel.ids[i]!r} from {panel.freq.show(int(starts[i]))} to {panel.freq.show(int(panel.ends()[i]))}"
            for i in (0, odd)
        ]
        raise DataError(
            "TRMF needs series of one span: together they form one matrix.",
            got=f"series {spans[0]} and {spans[1]}",
            hint="cut them to a common span, or fit those of one span at a time.",
        )
    return np.stack([panel[i] for i in range(len(panel))]).astype(np.float64)
