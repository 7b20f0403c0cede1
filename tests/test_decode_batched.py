"""A forecast is the same to the last bit alone and beside any number of others."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.data.panel import Panel
from logsparse.forecaster import LogSparse
from logsparse.model.likelihood import LIKELIHOODS

LEVELS = (0.1, 0.5, 0.9)
SIZES = (1, 2, 3, 7, 64, 257)
LENGTH = 40


def whole_numbers(count: int, *, seed: int = 0) -> pl.DataFrame:
    """Return series of counts, some shorter than the context, some with gaps."""
    rng = np.random.default_rng(seed)
    lengths = np.where(np.arange(count) % 5 == 3, 9, LENGTH)
    frames = []
    for number, length in enumerate(lengths.tolist()):
        values = rng.poisson(3 + number % 7, length).astype(float)
        gaps = (rng.random(length) < 0.1) & (np.arange(length) > 0) & (number % 4 == 1)
        frames.append(
            pl.DataFrame(
                {
                    "unique_id": f"s{number}",
                    "ds": np.arange(LENGTH - length, LENGTH),
                    "y": pl.Series(np.where(gaps, np.nan, values)).fill_nan(None),
                }
            )
        )
    return pl.concat(frames)


@lru_cache(maxsize=1)
def panel() -> Panel:
    return ls.to_panel(whole_numbers(max(SIZES)))


def some(of: Panel, chosen: np.ndarray) -> Panel:
    return of.keep(np.isin(np.arange(len(of)), chosen))


def fitted(kind: type[LogSparse], **settings: object) -> LogSparse:
    small = {"steps": 2, "batch": 8, "context": 16, "lags": (1, 2, 7), "profiles": (), "minutes": None}
    model = kind(horizon=5, verbose=False, **{**small, **settings})  # type: ignore[arg-type]
    return model.fit(some(panel(), np.arange(20)))


def assert_alike(model: LogSparse) -> None:
    def forecast(history: Panel) -> np.ndarray:
        (found,) = model.summaries([history], LEVELS)
        return np.concatenate([found.mean[:, None], found.quantiles], axis=1)

    checked = [0, 1, 2, 3, 6, 63, 256]
    alone = {row: forecast(some(panel(), np.array([row])))[0] for row in checked}
    for size in SIZES:
        together = forecast(some(panel(), np.arange(size)))
        for row in (row for row in checked if row < size):
            np.testing.assert_array_equal(together[row], alone[row], err_msg=f"row {row} of {size}")


@pytest.mark.parametrize("method", ["two-way", "direct", "ancestral", "mean-path"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_transformer_forecasts_a_series_alike_alone_and_in_any_batch(method: str, likelihood: str) -> None:
    scale = {"scale": "one-plus-mean"}
    assert_alike(fitted(LogSparse, method=method, likelihood=likelihood, layers=2, width=24, heads=2, **scale))


@pytest.mark.parametrize(
    "settings", [{"norm": "post", "width": None, "head_width": "full"}, {"see_missing": False, "anchor": False}]
)
def test_so_does_a_transformer_of_other_settings(settings: dict[str, object]) -> None:
    shape = {"layers": 2, "heads": 2, "method": "two-way", "likelihood": "gaussian", "kernel": 3}
    assert_alike(fitted(LogSparse, **shape, **settings))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_so_does_deepar(likelihood: str) -> None:
    assert_alike(fitted(ls.DeepAR, layers=2, likelihood=likelihood))


def test_so_does_deepstate() -> None:
    assert_alike(fitted(ls.DeepState, layers=2))


def test_histories_of_several_panels_are_forecast_together_as_each_alone() -> None:
    model = fitted(LogSparse, layers=2, width=24, heads=2, method="two-way", likelihood="gaussian")
    # Two requests may name different histories alike.
    twin = ls.to_panel(whole_numbers(3, seed=1))
    histories = [some(panel(), np.array([4])), twin, some(panel(), np.arange(3, 9)), twin.cut(twin.lengths - 2)]
    together = list(model.summaries(histories, LEVELS))
    for history, found in zip(histories, together, strict=True):
        (alone,) = model.summaries([history], LEVELS)
        assert found.panel is history
        np.testing.assert_array_equal(found.mean, alone.mean)
        np.testing.assert_array_equal(found.quantiles, alone.quantiles)
