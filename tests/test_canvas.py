"""A picture displays itself in a notebook; labels of times never touch, at any width and for any step."""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from logsparse.baselines.naive import SeasonalNaive
from logsparse.canvas import Picture, label_times
from logsparse.pictures import new_grid

STEPS = {
    "15min": ("2024-02-28T21:15", "m", 15),
    "hours": ("2023-12-29T05:00", "h", 1),
    "days": ("2024-01-20", "D", 1),
    "weeks": ("2024-01-01", "W", 1),
    "months": ("2020-11", "M", 1),
    "years": ("1990", "Y", 1),
}


def times(kind: str, count: int) -> NDArray[Any]:
    if kind == "integers":
        return 1_000_000_000 + np.arange(count)
    start, unit, every = STEPS[kind]
    first = np.array([start], f"datetime64[{unit}]")
    return np.asarray((first + every * np.arange(count)).astype("datetime64[us]"))


def shown_labels(axes: Axes) -> list[tuple[float, float, str]]:
    """Left end, right end and text of the labels that are drawn, in pixels."""
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    texts = [tick.label1 for tick in ticks if tick.label1.get_text()]
    return [(text.get_window_extent().x0, text.get_window_extent().x1, text.get_text()) for text in texts]


@pytest.mark.parametrize("width", [1.2, 2.0, 3.1, 4.5, 8.0, 14.0])
@pytest.mark.parametrize(
    ("kind", "count"),
    [(kind, count) for kind in [*STEPS, "integers"] for count in (2, 17, 96, 400, 3000)[: 4 if kind == "years" else 5]],
)
def test_labels_of_times_never_touch(kind: str, count: int, width: float) -> None:
    figure = Picture(figsize=(width, 2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(times(kind, count), np.arange(count))
    label_times(axes, times(kind, count))
    figure.canvas.draw()
    labels = shown_labels(axes)
    assert labels, "an axis without a label says nothing"
    for (_, end, left), (start, _, right) in pairwise(labels):
        assert end + 2 < start, f"{left!r} touches {right!r}"


def test_a_wide_picture_has_more_labels_than_a_narrow_one() -> None:
    counts = []
    for width in (2, 4, 8, 16):
        figure = Figure(figsize=(width, 2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.plot(times("days", 400), np.arange(400))
        label_times(axes, times("days", 400))
        figure.canvas.draw()
        counts.append(len(shown_labels(axes)))
    assert counts == sorted(counts)
    assert counts[0] >= 2
    assert counts[-1] >= 10


@pytest.mark.parametrize("count", [1, 2, 4, 5, 60])
def test_a_grid_has_a_panel_per_series_and_no_empty_ones(count: int) -> None:
    figure, panels = new_grid(count)
    assert len(panels) == len(figure.axes) == count


def test_the_labels_of_neighbouring_panels_do_not_touch(hourly: pl.DataFrame) -> None:
    tables = [hourly.filter(pl.col("unique_id") == "a").with_columns(unique_id=pl.lit(f"s{n}")) for n in range(6)]
    forecast = SeasonalNaive(horizon=24).fit(pl.concat(tables)).forecast()
    figure = forecast.plot(list(forecast.panel.ids))
    FigureCanvasAgg(figure)
    figure.canvas.draw()
    rows = [[label for axes in figure.axes[first : first + 3] for label in shown_labels(axes)] for first in (0, 3)]
    for row in rows:
        assert len(row) >= 6
        for (_, end, left), (start, _, right) in pairwise(row):
            assert end < start, f"{left!r} touches {right!r}"


def test_a_picture_shows_itself_in_its_size_and_is_a_figure_of_matplotlib() -> None:
    figure = Picture(figsize=(4, 2))
    figure.add_subplot().plot([1, 2, 3])
    data, size = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size == {"width": 400, "height": 200}
    assert struct.unpack(">II", data[16:24]) == (800, 400)
    file = io.BytesIO()
    figure.savefig(file, format="svg")
    assert b"<svg" in file.getvalue()
    assert isinstance(figure, Figure)


@pytest.mark.parametrize(
    ("start", "minutes", "labels", "rest"),
    [
        (
            "2024-01-02T22:30",
            120,
            ["22:30", "22:45", "23:00", "23:15", "23:30", "23:45", "03 Jan", "00:15", "00:30"],
            "2024",
        ),
        ("2024-01-02T18:00", 72 * 60, ["03 Jan", "12:00", "04 Jan", "12:00", "05 Jan", "12:00"], "2024"),
        (
            "2024-01-02T08:30",
            120,
            ["08:30", "08:45", "09:00", "09:15", "09:30", "09:45", "10:00", "10:15", "10:30"],
            "02 Jan 2024",
        ),
    ],
)
def test_midnight_is_named_by_its_day_which_is_not_said_again(
    start: str, minutes: int, labels: list[str], rest: str
) -> None:
    figure = Figure(figsize=(9, 2))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = np.datetime64(start, "us") + np.arange(minutes).astype("timedelta64[m]")
    axes.plot(shown, np.arange(minutes))
    label_times(axes, shown)
    figure.canvas.draw()
    found = [text for _, _, text in shown_labels(axes)]
    assert found == labels
    assert axes.xaxis.get_offset_text().get_text() == rest
