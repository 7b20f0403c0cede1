"""Seasonal naive repeats the last season, and is as unsure as it has been wrong."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logsparse.baselines.naive import SeasonalNaive, last_season, seasonal_error
from logsparse.data.frame import to_panel
from logsparse.data.panel import Floats
from logsparse.errors import ConfigError


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


def width(values: Floats, horizon: int, season: int) -> Floats:
    forecast = SeasonalNaive(horizon, season).fit(frame(values)).forecast(quantiles=[0.1, 0.5, 0.9])
    np.testing.assert_array_equal(forecast.quantile(0.5), forecast.mean)
    return np.asarray((forecast.quantile(0.9) - forecast.quantile(0.1))[0])


def noise(length: int) -> Floats:
    return np.random.default_rng(length).normal(size=length).astype(np.float32)


def test_seasons_beyond_the_history_grow_from_those_within_it() -> None:
    wide = width(noise(30), 96, 24).reshape(4, 24)
    assert (wide[0] > 0).all()
    for number in (2, 3, 4):
        np.testing.assert_allclose(wide[number - 1], wide[0] * np.sqrt(number), rtol=1e-5)


def test_a_history_shorter_than_a_season_goes_by_its_steps() -> None:
    wide = width(noise(20), 48, 24)
    np.testing.assert_allclose(wide, wide[0] * np.sqrt(np.arange(1, 49)), rtol=1e-5)
    assert wide[0] > 0


def test_steps_over_a_hole_count_for_as_many_as_they_are() -> None:
    holes = np.array([0, np.nan, np.nan, np.nan, 2], np.float32)
    np.testing.assert_allclose(width(holes, 4, 24), width(np.array([0, 1], np.float32), 4, 24), rtol=1e-6)


@pytest.mark.parametrize("season", [1, 7, 24])
@pytest.mark.parametrize("length", [2, 5, 8, 23, 24, 25, 26, 30, 47, 48, 50, 60, 71, 72, 75, 100, 199])
def test_no_interval_collapses_for_lack_of_history(length: int, season: int) -> None:
    wide = width(noise(length), 3 * season, season)
    assert (wide > 0).all()


def test_a_phase_with_few_errors_takes_the_width_of_all() -> None:
    values = noise(24 * 20)
    values[5::24] = np.nan
    values[5 + 24 * 18] = 0.0
    wide = width(values, 24, 24)
    assert wide[5] > 0.5 * np.median(wide)


def test_certainty_needs_errors_that_are_zero_or_a_single_value() -> None:
    assert (width(np.tile(np.arange(4, dtype=np.float32), 12), 8, 4) == 0).all()
    assert (width(np.array([3], np.float32), 8, 4) == 0).all()
    assert (width(np.arange(100, dtype=np.float32), 8, 4) > 0).all(), "a steady trend is an error each season"


@pytest.mark.parametrize("season", [0, -1, 1.5, 10**9, 10**20])
def test_a_season_that_cannot_be_meant_is_refused(season: int) -> None:
    with pytest.raises(
        ConfigError, match=r"season must be (at least 1|a whole number|at most 1000000). Got .* Hint: count its steps"
    ):
        SeasonalNaive(3, season=season).fit(frame(noise(9)))


def test_the_seasonal_error_is_the_mean_absolute_difference_one_season_apart() -> None:
    assert seasonal_error(np.array([1, 2, 4, np.nan, 7], np.float32), 2) == 3.0
    assert np.isnan(seasonal_error(np.array([1], np.float32), 2))
