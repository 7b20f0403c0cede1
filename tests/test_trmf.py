"""TRMF finds the model that made the data, rolls on without a new fit, and refuses what is no matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.baselines.trmf import TRMF, Doubles, _usual_lags, extend
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError, DataError

# S series, K factors, T steps, H horizon

LAGS = [1, 2, 12]
WEIGHTS_KL = np.array([[0.5, 0.0, 0.45], [0.2, -0.3, 0.7], [1.6, -0.8, 0.0]])
HORIZON = 12


def known_model(series: int = 30, steps: int = 700, noise: float = 0.1) -> tuple[Doubles, Doubles]:
    """What is observed, and what three factors with known weights would have foreseen of its last steps."""
    rng = np.random.default_rng(0)
    factors_KT = np.zeros((3, steps))
    for t in range(12, steps):
        past_KL = factors_KT[:, [t - lag for lag in LAGS]]
        factors_KT[:, t] = (WEIGHTS_KL * past_KL).sum(axis=1) + rng.normal(size=3) * [1.0, 1.0, 0.5]
    loadings_SK = rng.normal(size=(series, 3))
    level_S1 = rng.uniform(50, 100, (series, 1))
    observed_ST = level_S1 + loadings_SK @ factors_KT + noise * rng.normal(size=(series, steps))
    best_KH = np.zeros((3, HORIZON))
    path = np.concatenate([factors_KT[:, :-HORIZON], best_KH], axis=1)
    for t in range(steps - HORIZON, steps):
        path[:, t] = (WEIGHTS_KL * path[:, [t - lag for lag in LAGS]]).sum(axis=1)
    return observed_ST, level_S1 + loadings_SK @ path[:, -HORIZON:]


def panel(values_ST: Any, freq: str = "1") -> Panel:
    series, steps = values_ST.shape
    return Panel(
        values=values_ST.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * steps,
        lengths=np.full(series, steps),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq.parse(freq),
    )


def trmf(rank: int = 3, **settings: Any) -> TRMF:
    return TRMF(HORIZON, rank, lags=LAGS, verbose=False, **settings)


def error(found: Any, truth: Any) -> float:
    return float(np.abs(found - truth).mean())


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_it_foresees_nearly_what_the_true_model_does(missing: float) -> None:
    values_ST, best_SH = known_model()
    seen_ST, truth_SH = values_ST[:, :-HORIZON].copy(), values_ST[:, -HORIZON:]
    seen_ST[np.random.default_rng(1).random(seen_ST.shape) < missing] = np.nan
    # Data that hardly err leave it to the lags alone to tell the factors apart, which takes many sweeps.
    found_SH = trmf(sweeps=400).fit(panel(seen_ST)).forecast().mean
    level_S1 = np.nanmean(seen_ST, axis=1, keepdims=True)
    assert error(found_SH, best_SH) < 0.25 * error(level_S1, best_SH)
    assert error(found_SH, truth_SH) < 1.15 * error(best_SH, truth_SH)


def test_the_weights_of_a_single_factor_are_found() -> None:
    rng = np.random.default_rng(2)
    factor_T = np.zeros(2000)
    for t in range(12, 2000):
        factor_T[t] = 0.5 * factor_T[t - 1] - 0.2 * factor_T[t - 2] + 0.6 * factor_T[t - 12] + rng.normal()
    values_ST = rng.uniform(1, 3, (12, 1)) * factor_T + 0.01 * rng.normal(size=(12, 2000))
    model = trmf(rank=1).fit(panel(values_ST))
    np.testing.assert_allclose(model.weights_, [[0.5, -0.2, 0.6]], atol=0.05)


def test_rolling_on_sees_the_new_values_and_keeps_what_was_learned() -> None:
    values_ST, best_SH = known_model()
    data = panel(values_ST)
    early = trmf(sweeps=400).fit(data.cut(data.lengths - 100))
    fresh = trmf(sweeps=400).fit(data.cut(data.lengths - HORIZON))
    moved = early.forecast(data.cut(data.lengths - HORIZON)).mean
    assert error(moved, best_SH) < 1.3 * error(fresh.forecast().mean, best_SH)
    assert error(moved, best_SH) < 0.5 * error(early.forecast().mean, best_SH)


def test_some_of_the_fitted_series_in_any_order_may_come_later() -> None:
    values_ST, _ = known_model()
    model = trmf().fit(panel(values_ST))
    whole = model.forecast().mean
    few = pl.concat(
        pl.DataFrame({"unique_id": row, "ds": range(700), "y": values_ST[row]}) for row in (20, 3, 7, 11, 1)
    )
    found = model.forecast(few).mean
    np.testing.assert_allclose(found, whole[[20, 3, 7, 11, 1]], rtol=0.02)


def test_unobserved_steps_are_bridged_by_the_weights() -> None:
    day = np.sin(np.arange(240) * np.pi / 6)
    values_ST = np.array([[1.0], [2.0], [-1.0]]) * day + 5
    values_ST[:, -5:] = np.nan
    found = trmf(rank=1, ridge=1e-3).fit(panel(values_ST)).forecast().mean
    expected = np.array([[1.0], [2.0], [-1.0]]) * np.sin(np.arange(240, 252) * np.pi / 6) + 5
    assert error(found, expected) < 0.1


def test_the_seed_decides_where_it_begins() -> None:
    data = panel(known_model(series=8, steps=100)[0])
    one, again, other = (trmf(seed=seed, sweeps=1).fit(data).forecast().mean for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_series_that_leaps_far_out_of_its_range_does_not_carry_the_others_along() -> None:
    values_ST, _ = known_model()
    data = panel(values_ST)
    model = trmf().fit(data.cut(data.lengths - 50))
    calm = model.forecast(data).mean
    values_ST[0, -20:] *= 1000
    wild = model.forecast(panel(values_ST)).mean
    assert error(wild[1:], calm[1:]) < float(np.std(values_ST[1:], axis=1).mean())


def test_weights_that_grow_without_end_are_held_within_a_range_of_what_was_seen() -> None:
    factors_KT = np.array([[-1.0, 0.0, 1.0]])
    assert extend(factors_KT, np.array([[2.0]]), [1], 4).tolist() == [[2.0, 3.0, 3.0, 3.0]]
    assert extend(factors_KT, np.array([[0.5, 1.0]]), [1, 2], 2).tolist() == [[0.5, 1.25]]
    assert extend(factors_KT, np.array([[1.0]]), [5], 3).tolist() == [[0.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("freq", "steps", "lags"),
    [
        ("h", 1000, [*range(1, 25), *range(168, 192)]),
        ("h", 340, [*range(1, 25), 168, 169, 170]),
        ("15min", 5000, [*range(1, 25), *range(73, 97), *range(672, 696)]),
        ("D", 100, [1, 2, 3, 4, 5, 6, 7]),
        ("W", 300, [*range(1, 25), *range(29, 53)]),
        ("1", 100, [1, 2, 3, 4, 5, 6, 7, 8]),
        ("1", 1, [1]),
    ],
)
def test_the_usual_lags_are_the_last_steps_a_season_and_a_week_ago(freq: str, steps: int, lags: list[int]) -> None:
    assert _usual_lags(Freq.parse(freq), steps) == lags


def test_a_backtest_gives_the_median_alone_and_its_score() -> None:
    results = ls.backtest(trmf(), panel(known_model(series=8, steps=200)[0]), windows=2)
    assert [column for column in results.columns if column.startswith("q")] == ["q0.5"]
    scores = ls.score(results)
    assert scores["R0.5"][0] > 0
    assert "R0.9" not in scores.columns


def test_other_quantiles_are_refused_before_anything_is_fitted() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^TRMF forecasts one value per step, which is its median. Got quantiles 0.1, 0.9. "
        r"Hint: leave quantiles out, or ask for \[0.5\]",
    ):
        ls.backtest(trmf(), "no such file", quantiles=[0.1, 0.9])


def test_series_of_different_spans_are_refused_at_fit_and_later() -> None:
    times = {"a": range(20), "b": range(5, 25)}
    frame = pl.concat(pl.DataFrame({"unique_id": name, "ds": time, "y": 1.0}) for name, time in times.items())
    text = r"TRMF needs series of one span.* Got series 'a' from 0 to 19 and 'b' from 5 to 24. Hint: cut them to a comm"
    with pytest.raises(DataError, match=text):
        TRMF(3).fit(frame)
    fitted = TRMF(3).fit(frame.filter(pl.col("ds").is_between(5, 19)))
    with pytest.raises(DataError, match=text):
        fitted.predict(frame)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rank": 0}, "rank must be at least 1. Got 0. Hint: count the factors"),
        ({"sweeps": 0}, "sweeps must be at least 1. Got 0. Hint: count how often"),
        ({"seed": -1}, "seed must be at least 0. Got -1. Hint: write any number"),
        ({"temporal": 0}, "temporal must be a number above 0. Got 0. Hint: 1.0 is usual"),
        ({"ridge": "1"}, "ridge must be a number above 0. Got '1'. Hint"),
        ({"lags": []}, r"lags must be a list of whole numbers of steps, at least 1. Got \[\]. Hint: write lags="),
        ({"lags": [0, 1]}, r"lags must be a list .* Got \[0, 1\]. Hint"),
        ({"lags": iter([1, 7])}, r"lags must be a list .* Got <list_iterator .*. Hint"),
        ({"lags": 24}, r"lags must be a list .* Got 24. Hint"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TRMF(3, **settings).fit("no such file")


def test_lags_longer_than_the_series_are_refused() -> None:
    with pytest.raises(DataError, match=r"longer than the longest lag. Got 20 steps and lag 24. Hint: leave lags out"):
        TRMF(3, lags=[1, 24]).fit(panel(np.ones((2, 20))))
