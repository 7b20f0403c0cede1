"""The series and windows that are drawn: best, median, worst; the newest windows, a limited number of steps."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from logsparse.reporting.numbers import STEPS_SHOWN, Results, format_time, shown_series
from report_pages import results


@pytest.mark.parametrize(
    ("series", "roles"), [(1, ["The only"]), (2, ["Best", "Worst"]), (4, ["Best", "Median", "Worst"])]
)
def test_the_best_the_median_and_the_worst_series_are_shown(series: int, roles: list[str]) -> None:
    found = Results(results(series=series))
    ranked = found.by_series["unique_id"].to_list()
    shown = shown_series(found)
    assert [entry.role for entry in shown] == roles
    assert (shown[0].name, shown[-1].name) == (ranked[0], ranked[-1])
    if series == 4:
        assert shown[1].name == ranked[1]


def test_a_series_that_cannot_be_ranked_is_not_shown() -> None:
    frame = results().with_columns(
        seasonal_error=pl.when(pl.col("unique_id") == "s1").then(0.0).otherwise("seasonal_error")
    )
    assert "s1" not in [entry.name for entry in shown_series(Results(frame))]


def test_each_window_holds_its_own_rows_from_old_to_new_whatever_their_order() -> None:
    frame = results(series=1, windows=3)
    [shown] = shown_series(Results(frame.sample(fraction=1, shuffle=True, seed=1)))
    assert [window.times.tolist() for window in shown.windows] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert np.concatenate([window.truth_H for window in shown.windows]).tolist() == frame["y"].to_list()
    assert shown.windows[0].quantiles_QH.shape == (5, 4)


def test_of_overlapping_windows_the_newest_that_do_not_overlap_are_drawn() -> None:
    frame = results(series=1, windows=5).with_columns(
        cutoff=pl.col("cutoff") // 2, ds=pl.col("ds") - pl.col("cutoff") // 2
    )
    [shown] = shown_series(Results(frame))
    assert [window.times[0] for window in shown.windows] == [1, 5, 9]
    assert shown.of_windows == 5


def test_the_number_of_steps_drawn_is_limited() -> None:
    [many] = shown_series(Results(results(series=1, windows=100, horizon=24)))
    assert sum(len(window.times) for window in many.windows) == STEPS_SHOWN
    assert many.windows[-1].times[-1] == 2400
    [long] = shown_series(Results(results(series=1, windows=2, horizon=10_000)))
    assert len(long.windows) == 1
    assert len(long.windows[0].times) <= STEPS_SHOWN


def test_missing_and_infinite_values_are_gaps() -> None:
    frame = results(series=1, windows=1).with_columns(
        y=pl.when(pl.col("ds") != 2).then("y"), mean=pl.when(pl.col("ds") == 2).then(np.inf).otherwise("mean")
    )
    [window] = shown_series(Results(frame))[0].windows
    assert np.isnan(window.truth_H).tolist() == [False, True, False, False]
    assert window.mean_H is not None
    assert np.isnan(window.mean_H[1])


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2024, 1, 31, 15), "2024-01-31 15:00"),  # noqa: DTZ001
        (datetime(2024, 1, 31, 15, 0, 7), "2024-01-31 15:00:07"),  # noqa: DTZ001
        ("2024-01-31 15:00:00.000000", "2024-01-31 15:00"),
        (96, "96"),
    ],
)
def test_times_are_written_without_seconds_that_are_zero(time: Any, text: str) -> None:
    assert format_time(time) == text
