"""The settings a user gets who names only the horizon follow from the data."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from holidays import country_holidays
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import logsparse as ls
import small
from logsparse import presets
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.data.calendar import Freq
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.defaults import _outline, layers_needed, likelihood_for, recommend, warn_of_depth, warn_of_precision


def panel(values: NDArray[np.float64], freq: str = "h") -> Panel:
    made = small.panel(series=1, steps=len(values), missing=0)
    return replace(made, values=values.astype(np.float32), freq=Freq.parse(freq))


RNG = np.random.default_rng(0)
FAMILIES = {
    "student-t": RNG.normal(size=300),
    "zero-inflated": np.where(RNG.random(300) < 0.4, 0, RNG.gamma(2, size=300)),
    "negative-binomial": RNG.poisson(3, 300).astype(float),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_likelihood_fits_the_values(name: str) -> None:
    assert likelihood_for(panel(FAMILIES[name])) == name


def test_large_whole_numbers_and_switches_are_no_counts() -> None:
    assert likelihood_for(panel(RNG.integers(1, 10_000, 300).astype(float))) == "student-t"
    assert likelihood_for(panel(RNG.integers(0, 2, 300).astype(float))) == "zero-inflated"


def test_whole_degrees_are_no_counts() -> None:
    hour = np.arange(300)
    degrees = np.round(20 + 5 * np.sin(hour * np.pi / 12) + RNG.normal(size=300))
    assert likelihood_for(panel(degrees)) == "student-t"
    visitors = RNG.poisson(20 + 15 * np.sin(hour * np.pi / 12)).astype(float)
    assert likelihood_for(panel(visitors)) == "negative-binomial"


def test_a_dead_series_does_not_choose_for_the_others() -> None:
    both = small.panel(series=2, steps=300, missing=0)
    both.values[300:] = 0
    assert recommend(both, 12).model.likelihood == "student-t"
    assert recommend(both, 12).model.lowest is None
    both.values[:] = 0
    assert recommend(both, 12).model.likelihood == "zero-inflated"


def test_missing_values_do_not_count() -> None:
    values = FAMILIES["negative-binomial"].copy()
    values[::3] = np.nan
    assert likelihood_for(panel(values)) == "negative-binomial"


@pytest.mark.parametrize(
    ("freq", "horizon", "context", "lags"),
    [
        ("h", 24, 168, (1, 2, 3, 23, 24, 25, 47, 48, 49, 72, 96, 167, 168, 169, 336)),
        ("D", 14, 28, (1, 2, 3, 6, 7, 8, 13, 14, 15, 21, 28)),
        ("MS", 12, 48, (1, 2, 3, 11, 12, 13, 23, 24, 25, 36, 48)),
        ("15min", 96, 336, (1, 2, 3, 95, 96, 97, 191, 192, 193, 288, 384, 671, 672, 673, 1344)),
    ],
)
def test_context_and_lags_follow_from_the_frequency(
    freq: str, horizon: int, context: int, lags: tuple[int, ...]
) -> None:
    found = recommend(panel(np.ones(4000), freq), horizon)
    assert (found.context, found.model.lags) == (context, lags)


@pytest.mark.parametrize(
    ("freq", "horizon", "batch"),
    [
        ("h", 24, 64),
        ("h", 48, 64),
        ("D", 14, 64),
        ("30min", 48, 36),
        ("15min", 96, 32),
        ("5min", 288, 16),
        ("h", 720, 8),
    ],
)
def test_long_windows_come_in_small_batches(freq: str, horizon: int, batch: int) -> None:
    found = recommend(panel(RNG.random(100_000), freq), horizon)
    assert found.train.batch == batch


@pytest.mark.parametrize(
    ("freq", "steps", "far"),
    [
        ("h", 2 * 365 * 24, (8736, 8904)),
        ("h", 13_355, ()),  # not a third of it has the value of 53 weeks ago
        ("30min", 2 * 365 * 48, (17472, 17808)),
        ("10min", 120_000, ()),  # too far to gather
        ("W", 1000, ()),
        ("MS", 1000, ()),
    ],
)
def test_the_same_weekday_a_year_ago_is_a_lag_where_most_can_see_it(
    freq: str, steps: int, far: tuple[int, ...]
) -> None:
    of_the_year = np.sin(np.arange(steps) * 2 * np.pi / (far[0] if far else 8736))
    lags = recommend(panel(of_the_year, freq), 24).model.lags
    assert tuple(lag for lag in lags if lag > 5000) == far


def test_a_year_ago_is_no_lag_of_series_that_only_drift() -> None:
    rng = np.random.default_rng(0)
    drift, year = np.cumsum(rng.normal(size=17_520)), 200 * np.sin(np.arange(17_520) * 2 * np.pi / 8736)
    assert 8736 not in recommend(panel(drift), 24).model.lags
    assert 8736 in recommend(panel(drift + year), 24).model.lags
    with_holes = np.where(rng.random(17_520) < 0.3, np.nan, drift + year)
    assert 8736 in recommend(panel(with_holes), 24).model.lags


@pytest.mark.parametrize("size", [1e30, 3e38])
def test_huge_values_overflow_nowhere(size: float) -> None:
    few = np.where(RNG.random(17_520) < 0.001, size, RNG.poisson(3, 17_520))
    assert recommend(panel(few), 24).model.likelihood
    assert recommend(panel(size * RNG.random(17_520)), 24).model.lags


@given(
    st.lists(
        st.sampled_from([logsparse(), logsparse(3), local(2), local(5), restart(8, 2), full()]), min_size=1, max_size=3
    ),
    st.integers(1, 60),
    st.integers(0, 12),
)
def test_layers_needed_are_those_after_which_the_last_row_has_received_all(
    patterns: list[Pattern], length: int, dense_rows: int
) -> None:
    patterns = [replace(pattern, dense_rows=dense_rows) for pattern in patterns]
    found = layers_needed(patterns, length)
    masks = [pattern.mask(length).astype(int) for pattern in patterns]
    received = np.eye(length, dtype=int)
    expected = 0 if length == 1 else None
    for layers in range(4 * length):
        received = np.minimum(received @ masks[layers % len(masks)], 1)
        if expected is None and received[-1].all():
            expected = layers + 1
    assert found == expected


@pytest.mark.parametrize("length", [2, 30, 192, 768])
def test_of_one_pattern_the_layers_needed_are_those_of_the_theorem(length: int) -> None:
    assert layers_needed([logsparse()], length) == logsparse().layers_to_reach(length)
    assert layers_needed([local(1)], length) == local(1).layers_to_reach(length)


@pytest.mark.parametrize("name", presets.NAMES)
def test_the_runs_of_the_paper_and_the_default_are_deep_enough(name: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_depth(presets.named(name))
    warn_of_depth(recommend(panel(np.ones(4000)), 24))
    assert not caplog.records


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            {"patterns": (logsparse(),), "layers": 2},
            "The attention pattern does not reach the whole window of 30 steps in 2 layers of logsparse(base=2): "
            "it would take 4 (model.layers).",
        ),
        ({"patterns": (local(4),), "layers": 1}, "in 1 layer of local(width=4, base=2): it would take"),
        ({"patterns": (from_distances([0, 2]),), "layers": 9}, "no number of layers would."),
        ({"patterns": (full(), logsparse()), "layers": 2}, None),
        ({"patterns": (logsparse(),), "layers": 4}, None),
        ({"patterns": (logsparse(),), "layers": 2, "lags": (1, 23)}, "it would take 4"),
        ({"patterns": (logsparse(),), "layers": 2, "lags": (1, 24)}, None),
    ],
)
def test_a_pattern_that_cannot_reach_its_window_is_warned_of(
    model: dict[str, Any], text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_depth(small.config(model))
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == (text is not None)
    assert text is None or text in found[0]


def test_short_series_get_a_short_context_and_few_lags() -> None:
    found = recommend(panel(np.ones(60)), 12)
    assert found.context == 24
    assert found.model.lags == (1, 2, 3, 23, 24, 25)
    assert recommend(panel(np.ones(9)), 2).context >= 1


def test_of_long_series_a_week_of_hours_is_held_back_and_a_horizon() -> None:
    assert recommend(panel(np.ones(4000)), 24).train.validation_steps == 192
    assert recommend(panel(np.ones(4000), "D"), 14).train.validation_steps == 63


def test_a_given_context_is_kept() -> None:
    assert recommend(panel(np.ones(900)), 24, 500).context == 500


@pytest.mark.parametrize(
    ("freq", "profiles"),
    [
        ("h", ("24x7", "24x28", "168x4")),
        ("D", ("7x4",)),
        ("MS", ("12x4",)),
        ("15min", ("96x7", "96x28", "672x4")),
        ("YS", ()),
    ],
)
def test_profiles_follow_from_the_frequency(freq: str, profiles: tuple[str, ...]) -> None:
    assert recommend(panel(np.ones(4000), freq), 8).model.profiles == profiles


def test_short_series_get_the_profiles_they_can_fill() -> None:
    assert recommend(panel(np.ones(100)), 12).model.profiles == ("24x7", "24x28")
    assert recommend(panel(np.ones(60)), 12).model.profiles == ()


def test_a_calendar_feature_must_have_come_round() -> None:
    assert recommend(panel(np.ones(4000)), 24).features == ("weekday", "hour")
    assert recommend(panel(np.ones(2 * 365 * 24 + 2)), 24).features == ("month", "weekday", "hour")
    assert recommend(panel(np.ones(300), "D"), 7).features == ("day", "weekday")


def test_short_series_years_apart_have_seen_no_month_twice() -> None:
    hours = np.arange(700).astype("timedelta64[h]")
    tables = [
        pl.DataFrame({"unique_id": start, "ds": np.datetime64(f"{start}-03-01T00", "us") + hours, "y": 1.0})
        for start in ("2015", "2016", "2019")
    ]
    assert recommend(to_panel(pl.concat(tables)), 24).features == ("weekday", "hour")


def test_zero_is_a_bound_where_values_rest_on_it_and_not_because_none_was_below_it() -> None:
    assert recommend(panel(FAMILIES["zero-inflated"]), 5).model.lowest == 0
    assert recommend(panel(RNG.uniform(0.1, 30, 300)), 5).model.lowest is None
    assert recommend(panel(np.where(RNG.random(300) < 0.4, 0, RNG.normal(size=300))), 5).model.lowest is None


@pytest.mark.parametrize(
    ("listed", "slow"),
    [
        ("flags\t\t: fpu avx2 avx512f\n", True),
        ("flags\t\t: fpu avx512f avx512_bf16\n", False),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", False),
        ("Features\t: fp asimd bf16\n", False),
        ("model name\t: one that lists nothing\n", False),
        (None, False),
    ],
)
def test_bfloat16_is_warned_of_where_the_processor_has_none(
    listed: str | None,
    slow: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if listed is not None:
        (tmp_path / "cpuinfo").write_text(listed)
    monkeypatch.setattr("logsparse.defaults._PROCESSOR", tmp_path / "cpuinfo")
    warn_of_precision("float32", "cpu")
    warn_of_precision("bfloat16", "cuda")
    assert caplog.text == ""
    ls.LogSparse(6, steps=1, batch=4, precision="bfloat16", verbose=False).fit(small.panel())
    assert ("no instructions for bfloat16" in caplog.text) == slow


def test_most_values_are_small_if_their_quantile_is() -> None:
    rng = np.random.default_rng(0)
    decided = set()
    for size in (*range(1, 40), 1000):
        for limit in (51, 53, 60):
            values = rng.integers(48, limit, size).astype(np.float32)
            small = bool(np.quantile(values, 0.9) <= 50)
            assert _outline(values).mostly_small == small
            decided.add(small)
    assert decided == {True, False}


def test_holidays_of_rows_from_monday_to_friday_need_steps_of_days() -> None:
    days = pl.date_range(date(2022, 1, 1), date(2023, 12, 31), eager=True).alias("ds")
    off = days.is_in(list(country_holidays("DE", years=(2022, 2023))))
    week = pl.DataFrame({"unique_id": "a", "ds": days, "y": 30.0 - 25 * off.cast(pl.Float64)})
    noise = np.random.default_rng(0).normal(size=(4, len(days)))
    frame = pl.concat(
        week.with_columns(unique_id=pl.lit(name), y=pl.col("y") + own) for name, own in zip("abcd", noise, strict=True)
    )
    weekdays = frame.filter(pl.col("ds").dt.weekday() < 6)
    business, daily = to_panel(weekdays), to_panel(weekdays, freq="d")
    assert (str(business.freq), str(daily.freq)) == ("B", "d")
    assert recommend(business, 7).holidays == ()
    assert not any("alike" in profile for profile in recommend(business, 7, holidays=("DE",)).model.profiles)
    assert recommend(daily, 7).holidays == ("DE",)
    assert "1x4-alike" in recommend(daily, 7).model.profiles
