"""A forecast is the same to the last bit alone and beside any number of others."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl
import pytest

import logsparse as ls
from logsparse.calibration import Calibration
from logsparse.data.panel import Panel
from logsparse.forecaster import LogSparse
from logsparse.model.likelihood import LIKELIHOODS

LEVELS = (0.1, 0.5, 0.9)
SIZES = (1, 2, 3, 7, 64, 257)
LENGTH = 40
ROWS = (0, 1, 2, 3, 6, 63, 256)


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


HORIZON = 5
# Of so many series, the last has no history.
COLD = 6


def described(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with a text covariate, a past covariate with gaps and a static column."""
    number = pl.col("unique_id").str.slice(1).cast(pl.Int64)
    words = ["none", "flyer", "radio"]
    return table.with_columns(
        campaign=((pl.col("ds") // 4 + number) % 3).replace_strict(range(3), words, return_dtype=pl.String),
        visits=pl.when(pl.col("ds") % 5 > 0).then((pl.col("ds") * 7 + number) % 11),
        kind=pl.format("kind_{}", number % 4),
    )


def cold(table: pl.DataFrame) -> pl.Series:
    return table["unique_id"].str.slice(1).cast(pl.Int64) % COLD == COLD - 1


def unfitted(kind: type[LogSparse], **settings: object) -> LogSparse:
    small = {"steps": 2, "batch": 8, "context": 16, "lags": (1, 2, 7), "profiles": (), "minutes": None}
    return kind(horizon=HORIZON, verbose=False, **{**small, **settings})  # type: ignore[arg-type]


def fitted(kind: type[LogSparse], **settings: object) -> LogSparse:
    return unfitted(kind, **settings).fit(some(panel(), np.arange(20)))


def assert_alike(model: LogSparse, histories: Panel | None = None, checked: tuple[int, ...] = ROWS) -> None:
    def forecast(history: Panel) -> np.ndarray:
        (found,) = model.summaries([history], LEVELS)
        return np.concatenate([found.mean[:, None], found.quantiles], axis=1)

    every = panel() if histories is None else histories
    alone = {row: forecast(some(every, np.array([row])))[0] for row in checked}
    for size in SIZES:
        together = forecast(some(every, np.arange(size)))
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


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((LogSparse, {"method": method, "width": 24, "heads": 2}) for method in ("two-way", "direct", "mean-path")),
        (LogSparse, {"method": "two-way", "width": 24, "heads": 2, "likelihood": "negative-binomial"}),
        (ls.DeepAR, {}),
        (ls.DeepState, {}),
    ],
)
def test_so_are_series_without_a_history_beside_words_and_past_covariates(
    kind: type[LogSparse], settings: dict[str, object]
) -> None:
    count = max(SIZES)
    table = described(whole_numbers(count))
    coming = pl.DataFrame({"unique_id": [f"s{number}" for number in range(count)]}).join(
        pl.DataFrame({"ds": np.arange(LENGTH, LENGTH + HORIZON)}), how="cross"
    )
    past = table.filter(~cold(table))
    model = unfitted(kind, layers=2, **settings).fit(
        past.filter(pl.col("unique_id").str.slice(1).cast(pl.Int64) < 20),
        covariates=["campaign"],
        past_covariates=["visits"],
        static=["kind"],
    )
    histories = model.history(past, described(coming).drop("visits"))
    # In the order of their numbers, so that every batch has series of both kinds.
    order = np.argsort([int(str(name)[1:]) for name in histories.ids])
    mixed = Panel.joined([some(histories, row) for row in order[:, None]])
    assert (mixed.lengths[COLD - 1 :: COLD] == 0).all()
    assert_alike(model, mixed, (*ROWS, 5, 11, 251))


def test_so_are_widened_intervals() -> None:
    model = fitted(LogSparse, layers=2, width=24, heads=2, method="two-way")
    usual = model.forecast(panel(), quantiles=LEVELS).quantiles
    model.calibration_ = Calibration(0.5, 10, 3.0, tuple(np.linspace(1, 1.5, HORIZON).tolist()))
    assert (np.abs(model.forecast(panel(), quantiles=LEVELS).quantiles - usual) > 0).any()
    assert_alike(model)


def test_requests_with_and_without_a_history_are_forecast_together_as_each_alone() -> None:
    table = described(whole_numbers(30))
    steps = pl.DataFrame({"ds": np.arange(LENGTH, LENGTH + HORIZON)})
    coming = described(table.select("unique_id").unique(maintain_order=True).join(steps, how="cross")).drop("visits")
    model = unfitted(LogSparse, layers=2, width=24, heads=2, method="two-way")
    model.fit(table, covariates=["campaign"], past_covariates=["visits"], static=["kind"])

    def request(*numbers: int, new: str = "") -> Panel:
        """Return series that are known, with other words and categories per request, and one that is new."""
        chosen = [f"s{number}" for number in numbers]
        future = coming.filter(pl.col("unique_id").is_in(chosen))
        others = future.filter(pl.col("unique_id") == chosen[0]).with_columns(
            unique_id=pl.lit(new), campaign=pl.lit("radio")
        )
        return model.history(
            table.filter(pl.col("unique_id").is_in(chosen)), pl.concat([future, others] if new else [future])
        )

    histories = [request(0), request(3, 7, new="first"), request(0, 1, 2), request(9, new="second")]
    assert [len(history) for history in histories] == [1, 3, 3, 2]
    for history, found in zip(histories, model.summaries(histories, LEVELS), strict=True):
        (alone,) = model.summaries([history], LEVELS)
        np.testing.assert_array_equal(found.mean, alone.mean)
        np.testing.assert_array_equal(found.quantiles, alone.quantiles)


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
