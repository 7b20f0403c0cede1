"""Seasonal naive repeats the last season, and is as unsure as it has been wrong."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logsparse.baselines.naive import SeasonalNaive, last_season, seasonal_error
from logsparse.data.frame import to_panel
from logsparse.data.panel import Floats


def frame(values: Floats) -> pl.DataFrame:
    return pl.DataFrame({"ds": np.arange(len(values)), "y": values})


def test_the_last_season_is_repeated_over_the_horizon() -> None:
    assert last_season(np.array([9, 1, 2, 3], np.float32), 3, 7).tolist() == [1, 2, 3, 1, 2, 3, 1]


def test_a_missing_value_is_taken_from_the_season_before() -> None:
    assert last_season(np.array([1, 2, 3, 4, np.nan, 6], np.float32), 3, 3).tolist() == [4, 2, 6]


def test_a_phase_never_seen_takes_the_newest_value() -> None:
    assert last_season(np.array([5, np.nan], np.float32), 4, 4).tolist() == [5, 5, 5, 5]


@given(
    history=hnp.arrays(
        np.float32, st.integers(1, 60), elements=st.one_of(st.floats(-100, 100, width=32), st.just(np.nan))
    ),
    season=st.integers(1, 10),
    horizon=st.integers(1, 25),
)
def test_every_step_equals_the_newest_value_of_its_phase(history: Floats, season: int, horizon: int) -> None:
    if np.isnan(history).all():
        history = np.ones_like(history)
    found = last_season(history, season, horizon)
    for step, value in enumerate(found):
        seen = [v for v in history[::-1][(season - 1 - step % season) :: season] if not np.isnan(v)]
        assert value == (seen[0] if seen else history[~np.isnan(history)][-1])


def test_the_median_is_the_seasonal_value_itself_even_under_a_trend() -> None:
    values = (np.arange(100) + 5 * np.sin(np.arange(100))).astype(np.float32)
    forecast = SeasonalNaive(horizon=14, season=7).fit(frame(values)).forecast(quantiles=[0.5])
    np.testing.assert_array_equal(forecast.quantile(0.5), forecast.mean)


def test_intervals_cover_about_what_they_say() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 7 * 60)).astype(np.float32)
    frames = pl.concat(
        pl.DataFrame({"unique_id": i, "ds": np.arange(7 * 60), "y": row}) for i, row in enumerate(values)
    )
    panel = to_panel(frames)
    forecast = SeasonalNaive(horizon=7, season=7).fit(panel.cut(panel.lengths - 7)).forecast(quantiles=[0.1, 0.9])
    truth = values[:, -7:]
    inside = (forecast.quantile(0.1) <= truth) & (truth <= forecast.quantile(0.9))
    assert 0.75 < inside.mean() < 0.85


def test_later_seasons_are_less_sure() -> None:
    walk = np.cumsum(np.random.default_rng(1).normal(size=700)).astype(np.float32)
    forecast = SeasonalNaive(horizon=28, season=7).fit(frame(walk)).forecast(quantiles=[0.1, 0.9])
    width = (forecast.quantile(0.9) - forecast.quantile(0.1))[0].reshape(4, 7).mean(axis=1)
    assert (np.diff(width) > 0).all()


def test_nights_are_certain_where_all_nights_were_zero() -> None:
    day = np.array([0, 0, 5, 3], np.float32)
    values = np.concatenate([day * scale for scale in np.random.default_rng(2).uniform(0.5, 2, 40)]).astype(np.float32)
    forecast = SeasonalNaive(horizon=4, season=4).fit(frame(values)).forecast(quantiles=[0.1, 0.9])
    assert forecast.quantile(0.9)[0, :2].tolist() == [0, 0]
    assert forecast.quantile(0.9)[0, 2] > forecast.quantile(0.1)[0, 2]


def test_a_history_shorter_than_a_season_still_gives_a_forecast() -> None:
    forecast = SeasonalNaive(horizon=5, season=24).fit(frame(np.array([1, 2, 3], np.float32))).forecast()
    assert np.isfinite(forecast.quantiles).all()


def test_the_seasonal_error_is_the_mean_absolute_difference_one_season_apart() -> None:
    assert seasonal_error(np.array([1, 2, 4, np.nan, 7], np.float32), 2) == 3.0
    assert np.isnan(seasonal_error(np.array([1], np.float32), 2))
