"""The figures of a report: gaps stay gaps, isolated values are visible, each label appears once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logsparse.reporting.charts import NARROW, WIDE, calibration_chart, fan_chart, joined, steps_chart
from logsparse.reporting.numbers import Level, Window

LEVELS = (0.1, 0.5, 0.9)


def window(times: Any, *, naive: bool = True) -> Window:
    times = np.asarray(times)
    quantiles_QH = np.arange(3.0)[:, None] + np.zeros(len(times))
    return Window(times, np.ones(len(times)), quantiles_QH, np.ones(len(times)), np.ones(len(times)) if naive else None)


def points(line: Any) -> list[list[float]]:
    return np.asarray(line.get_xydata(), np.float64).tolist()  # type: ignore[no-any-return]


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_windows_that_touch_are_one_line_and_others_leave_a_gap() -> None:
    touching = joined([window([1, 2]), window([3, 4])])
    assert touching.times.tolist() == [1, 2, 3, 4]
    apart = joined([window([1, 2]), window([5, 6])])
    assert np.isnan(apart.truth_H).tolist() == [False, False, True, False, False]
    asked = joined([window([1, 2], naive=False), window([3, 4], naive=False)], apart=True)
    assert np.isnan(asked.quantiles_QH[0]).tolist() == [False, False, True, False, False]
    assert asked.naive_H is None


def test_months_of_different_length_touch() -> None:
    months = [window(np.array(pair, "datetime64[D]")) for pair in (["2024-02-01", "2024-03-01"], ["2024-04-01"])]
    assert not np.isnan(joined(months).truth_H).any()


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_each_label_of_a_fan_appears_once(size: tuple[float, float]) -> None:
    figure = fan_chart([window([1, 2]), window([3, 4]), window([5, 6])], LEVELS, size)
    assert labels(figure) == ["actual", "median", "80 %", "seasonal naive"]
    assert figure.get_size_inches().tolist() == list(size)


def test_windows_of_one_step_make_one_band_and_a_single_step_a_vertical_bar() -> None:
    band = fan_chart([window([1]), window([2]), window([3])], LEVELS, WIDE).axes[0]
    assert len(np.asarray(band.collections[0].get_paths()[0].vertices)) > 6
    upright = fan_chart([window([1])], LEVELS, WIDE).axes[0]
    assert [np.asarray(path.vertices).tolist() for path in upright.collections[0].get_paths()] == [[[1, 0], [1, 2]]]


def test_a_value_without_neighbours_is_a_dot() -> None:
    lone = window([1, 2, 3])
    lone.truth_H[[0, 2]] = np.nan
    lines = fan_chart([lone], LEVELS, WIDE).axes[0].lines
    assert [points(line) for line in lines if line.get_marker() == "o"] == [[[2, 1]]]


def test_without_a_median_the_mean_is_drawn() -> None:
    assert "mean" in labels(fan_chart([window([1, 2])], (0.1, 0.4, 0.9), WIDE))


def test_steps_without_a_value_are_gaps_and_errors_begin_at_zero() -> None:
    axes = steps_chart([1, 2, 3], {"model": [1.0, None, 3.0]}, [2.0, 2.0, 2.0]).axes[0]
    assert axes.get_ylim()[0] == 0
    assert labels(axes.figure) == ["model", "seasonal naive"]
    assert np.isnan(points(axes.lines[1])).tolist() == [[False, False], [False, True], [False, False]]


def test_calibration_is_drawn_against_the_diagonal() -> None:
    axes = calibration_chart({"observed": [Level(0.1, 0.2, 0.0), Level(0.9, 0.8, 0.0)]}).axes[0]
    assert points(axes.lines[0]) == [[0, 0], [100, 100]]
    assert points(axes.lines[1]) == [[10, 20], [90, 80]]
