"""Arrays -> matplotlib figures, and figures -> files. Drawing only: nothing is computed here."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import DataError
from logsparse.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from logsparse.canvas import Picture

# Q quantile levels, H steps of the horizon, L positions of a window, J positions attended to (= L)

INK, FORECAST, TRUTH, START, EARLIER = "#333333", "#1f6fb2", "#c8553d", "#3a8f4d", "#8662a8"
# Points per side of a drawn matrix; in larger ones, a point stands for a square of cells.
_MATRIX_POINTS = 480


def new_figure(width: float = 8, height: float = 3) -> tuple[Picture, Axes]:
    """Return a figure and its axes outside pyplot: no global state, no window, safe in threads."""
    from logsparse.canvas import Picture

    figure = Picture(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    _style(axes)
    return figure, axes


def new_panels(size: tuple[float, float], ratios: Sequence[float]) -> tuple[Picture, list[Axes]]:
    """Return a figure of panels stacked over one time axis, with heights in these ratios."""
    from logsparse.canvas import Picture

    figure = Picture(figsize=size, layout="constrained")
    panels: list[Axes] = list(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False)[:, 0])
    for axes in panels:
        _style(axes)
        axes.tick_params(labelsize=8)
    return figure, panels


def new_grid(count: int) -> tuple[Picture, list[Axes]]:
    """Return a figure of this many panels, side by side and in rows, each with a time axis of its own."""
    from logsparse.canvas import Picture

    across = 1 if count == 1 else 2 if count <= 4 else 3
    rows = -(-count // across)
    size = (8, 3) if count == 1 else (9, 0.5 + 1.9 * rows)
    figure = Picture(figsize=size, layout="constrained")
    cells: list[Axes] = list(figure.subplots(rows, across, squeeze=False).ravel())
    for axes in cells[count:]:
        axes.remove()
    for axes in cells[:count]:
        _style(axes)
        axes.tick_params(labelsize=9 if count == 1 else 8)
    return figure, cells[:count]


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


@dataclass(frozen=True)
class Fan:
    """Quantiles of successive steps, and the line in their middle."""

    times_H: NDArray[Any]
    levels: Sequence[float]
    quantiles_QH: NDArray[Any]
    mean_H: NDArray[Any] | None
    """Drawn if the median is not among the levels."""

    @property
    def middle(self) -> tuple[str, NDArray[Any] | None]:
        """Name and values of the line in the middle: the median, or else the mean."""
        if 0.5 in self.levels:
            return "median", self.quantiles_QH[list(self.levels).index(0.5)]
        return "mean", self.mean_H

    def bands(self) -> list[tuple[str, NDArray[Any], NDArray[Any]]]:
        """Return name, lower and upper end of the central intervals, the widest first."""
        ends = [(i, len(self.levels) - 1 - i) for i in range(len(self.levels) // 2)]
        return [
            (f"{100 * (self.levels[high] - self.levels[low]):.0f} %", self.quantiles_QH[low], self.quantiles_QH[high])
            for low, high in ends
            if np.isclose(self.levels[low] + self.levels[high], 1)
        ]


@dataclass(frozen=True)
class View:
    """What a picture shows of one series."""

    name: str
    history: tuple[NDArray[Any], NDArray[Any]]
    """Times and values."""
    forecast: Fan
    actual: tuple[NDArray[Any], NDArray[Any]] | None = None
    earlier: Sequence[Fan] = field(default_factory=tuple)
    """Past forecasts, one per cutoff."""


def draw_view(axes: Axes, view: View) -> None:
    """Draw one series: history, past forecasts, forecast and actual values, under its name."""
    from logsparse.canvas import label_times

    draw_line(axes, *view.history, "history", color=INK, linewidth=1.2)
    for number, fan in enumerate(view.earlier):
        for _, low, high in fan.bands()[:1]:
            axes.fill_between(fan.times_H, low, high, color=EARLIER, alpha=0.18, linewidth=0)
        _draw_middle(axes, fan, EARLIER, None if number else "past forecast")
    fan = view.forecast
    if len(fan.times_H) > 1:
        draw_fan(axes, fan.times_H, fan.levels, fan.quantiles_QH)
        if fan.middle[0] == "mean":
            _draw_middle(axes, fan, FORECAST, "mean")
    else:  # a band of one step has no area
        for name, low, high in fan.bands()[:1]:
            axes.vlines(fan.times_H, low, high, color=FORECAST, linewidth=5, alpha=0.25, label=name)
        _draw_middle(axes, fan, FORECAST, fan.middle[0])
    if view.actual is not None:
        draw_line(axes, *view.actual, "actual", color=TRUTH, linewidth=1.2)
    axes.set_title(view.name, loc="left", fontsize=10, parse_math=False)
    label_times(axes, fan.times_H)


def _draw_middle(axes: Axes, fan: Fan, colour: str, label: str | None) -> None:
    _, values = fan.middle
    if values is not None:
        # Past forecasts lie behind the history.
        style = {"linewidth": 1.6} if colour == FORECAST else {"linewidth": 1.2, "zorder": 1.9}
        draw_line(axes, fan.times_H, values, label, color=colour, **style)


def draw_views(views: Sequence[View]) -> Picture:
    """Draw one panel per series, and one legend above all."""
    figure, panels = new_grid(len(views))
    for axes, view in zip(panels, views, strict=True):
        draw_view(axes, view)
    # The panel of most lines has an entry for everything drawn.
    handles, labels = max((axes.get_legend_handles_labels() for axes in panels), key=lambda found: len(found[1]))
    figure.legend(handles, labels, loc="outside upper right", frameon=False, ncols=len(labels), fontsize=8)
    return figure


def draw_line(axes: Axes, times: Any, values: Any, label: str | None, **style: Any) -> None:
    """Draw a line; isolated values, which a line cannot show, become dots."""
    axes.plot(times, values, label=label, **style)
    known = np.concatenate([[False], ~np.isnan(values), [False]])
    isolated = known[1:-1] & ~known[:-2] & ~known[2:]
    if isolated.any():
        axes.plot(times[isolated], values[isolated], "o", color=style["color"], markersize=4)


def draw_fan(axes: Axes, times: Any, levels: Sequence[float], quantiles_QH: Any) -> None:
    """Draw central intervals, one shade each, and the median."""
    outer_first = [i for i in range(len(levels) // 2) if np.isclose(levels[i] + levels[-1 - i], 1)]
    for shade, i in enumerate(outer_first, start=1):
        axes.fill_between(
            times,
            quantiles_QH[i],
            quantiles_QH[-1 - i],
            color=FORECAST,
            alpha=0.15 + 0.35 * (shade - 1) / len(outer_first),
            linewidth=0,
            label=f"{100 * (levels[-1 - i] - levels[i]):.0f} %" if shade in (1, len(outer_first)) else None,
        )
    if 0.5 in levels:
        axes.plot(times, quantiles_QH[list(levels).index(0.5)], color=FORECAST, linewidth=1.6, label="median")


def draw_losses(rows: Sequence[Mapping[str, float]], size: tuple[float, float] = (8, 3)) -> Picture:
    """Draw training and validation loss over steps, from the rows of a training history; a star marks the best."""
    from logsparse.canvas import label_times

    figure, axes = new_figure(*size)
    steps = np.array([row["step"] for row in rows])
    validation = np.array([row["validation_nll"] for row in rows])
    draw_line(axes, steps, np.array([row["nll"] for row in rows]), "training", color=INK, linewidth=1, alpha=0.6)
    draw_line(axes, steps, validation, "validation", color=FORECAST, linewidth=1.6)
    best = int(np.argmin(validation))
    axes.plot(steps[best], validation[best], "*", color=TRUTH, markersize=10, label=f"best: {validation[best]:.4g}")
    label_times(axes, steps)
    axes.set_xlabel("step")
    axes.set_ylabel("negative log-likelihood")
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_importance(rows: Sequence[Mapping[str, Any]], size: tuple[float, float] | None = None) -> Figure:
    """Draw the increase of the loss without each input as a point with its interval, in the order of the rows."""
    figure, axes = new_figure(*(size or (8, 0.9 + 0.34 * len(rows))))
    known = [(place, row) for place, row in enumerate(rows) if row["increase"] is not None]
    for place, row in known:
        # What may be nothing is drawn pale.
        found = row["low"] > 0
        color, low, high = FORECAST if found else INK, 100 * row["low"], 100 * row["high"]
        axes.plot([low, high], [place, place], color=color, linewidth=2, alpha=0.6 if found else 0.3)
        axes.plot(100 * row["increase"], place, "o", color=color, markersize=6, alpha=1 if found else 0.4)
    axes.axvline(0, color=INK, linewidth=0.8)
    # The names of lags and of the past say what they are.
    names = [row["input"] if row["kind"] in ("lags", "past") else f"{row['input']} ({row['kind']})" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=9, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("% more quantile loss without it", fontsize=9)
    return figure


def draw_what_if(
    history: tuple[Any, Any], times_H: Any, levels: Sequence[float], quantiles_2QH: Any, means_2H: Any, title: str
) -> Figure:
    """Draw the unchanged and the changed forecast after the history; below, the difference of their means."""
    from logsparse.canvas import label_times

    figure, (above, below) = new_panels((8, 4.4), (3, 1))
    if len(history[0]):
        above.plot(*history, color=INK, linewidth=1.2, label="history")
    outer = bool(len(levels) > 1 and np.isclose(levels[0] + levels[-1], 1))
    both = zip(("unchanged", "changed"), (FORECAST, TRUTH), quantiles_2QH, means_2H, strict=True)
    for name, color, quantiles_QH, mean_H in both:
        if outer:
            share = f"{100 * (levels[-1] - levels[0]):.0f} %"
            above.fill_between(
                times_H,
                quantiles_QH[0],
                quantiles_QH[-1],
                color=color,
                alpha=0.18,
                linewidth=0,
                label=f"{name}, {share}",
            )
        above.plot(times_H, mean_H, color=color, linewidth=1.6, label=f"{name}, mean")
    below.axhline(0, color=INK, linewidth=0.8)
    below.plot(times_H, means_2H[1] - means_2H[0], color=START, linewidth=1.6, drawstyle="steps-mid")
    below.set_ylabel("difference", fontsize=8)
    label_times(below, times_H)
    above.set_title(title, loc="left", fontsize=10, parse_math=False)
    above.legend(frameon=False, ncols=5, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.08), borderaxespad=0)
    return figure


def draw_attention(
    times_L: NDArray[Any], values_L: Any, weights_J: Any, start_and_step: tuple[int, int], titles: tuple[str, str]
) -> Picture:
    """Draw history and mean path; below them, at the same times, the attention weights of one step."""
    from logsparse.canvas import label_times

    start, step = start_and_step
    figure, (above, below) = new_panels((8, 4), (1, 1))
    _draw_window(above, times_L, values_L, start)
    cells = np.flatnonzero(weights_J)
    below.vlines(times_L[cells], 0, weights_J[cells], color=TRUTH, linewidth=1.2)
    below.set_ylim(bottom=0)
    below.set_ylabel("weight")
    for axes in (above, below):
        axes.axvline(times_L[step], color=START, linestyle="--", linewidth=1)
    label_times(below, times_L)
    _entitle(above, titles[0])
    _entitle(below, titles[1], legend=False)
    return figure


def draw_attention_matrix(
    times_L: NDArray[Any], values_L: Any, weights_LJ: Any, start: int, titles: tuple[str, str]
) -> Picture:
    """Draw the window; below it the matrix of weights, a row per attending position."""
    from matplotlib.colors import PowerNorm

    length = len(values_L)
    figure, (above, below) = new_panels((8, 8), (1, 4))
    _draw_window(above, np.arange(length), values_L, start)
    side = -(-length // _MATRIX_POINTS)
    padded = np.pad(weights_LJ, (0, -length % side))
    # The maximum of a square: a mean would hide the thin lines of a sparse pattern.
    pooled = padded.reshape(len(padded) // side, side, -1, side).max(axis=(1, 3))
    edge = side * len(pooled) - 0.5
    below.grid(visible=False)
    # The first rows spread their weight over few cells: without a limit they would outshine all others.
    most = float(np.quantile(weights_LJ[weights_LJ > 0], 0.99))
    image = below.imshow(
        np.ma.masked_equal(pooled, 0),
        norm=PowerNorm(0.5, vmin=0, vmax=most),
        cmap="Blues",
        extent=(-0.5, edge, edge, -0.5),
        interpolation="none",
        aspect="auto",
    )
    # Beside both panels, whose time axes stay aligned.
    figure.colorbar(image, ax=(above, below), extend="max", label="weight", shrink=0.7, pad=0.02)
    places = np.unique(np.linspace(0, length - 1, 6).astype(int))
    names = [str(time)[:16].replace("T", " ") for time in times_L[places]]
    below.set_xlim(-0.5, length - 0.5)
    below.set_ylim(length - 0.5, -0.5)
    below.set_xticks(places, names, rotation=20, ha="right", fontsize=8)
    below.set_yticks(places, names, fontsize=8)
    below.set_xlabel("attended")
    below.set_ylabel("attending")
    for draw in (above.axvline, below.axvline, below.axhline):
        draw(start, color=START, linestyle="--", linewidth=1)
    _entitle(above, titles[0])
    _entitle(below, titles[1], legend=False)
    return figure


def _draw_window(axes: Axes, times_L: Any, values_L: Any, start: int) -> None:
    axes.plot(times_L[:start], values_L[:start], color=INK, linewidth=1.2, label="history")
    # From the last value of the history on, so that both lines connect.
    axes.plot(times_L[start - 1 :], values_L[start - 1 :], color=FORECAST, linewidth=1.2, label="mean path")


def _entitle(axes: Axes, title: str, *, legend: bool = True) -> None:
    """Set the title on the left and the legend on the right, both above the lines."""
    axes.set_title(title, loc="left", fontsize=10 if legend else 8, parse_math=False)
    if legend:
        axes.legend(frameon=False, ncols=2, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0)


def settle(figure: Figure) -> None:
    """Lay out the figure and round: the solver's last digit varies by run, and with it the ids within an SVG."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = axes.get_position(original=True).bounds
        axes.set_position((round(left, 5), round(bottom, 5), round(width, 5), round(height, 5)))


def save_figure(figure: Figure, path: Path, about: str = "") -> None:
    """Write SVG, with a description if given, PNG or PDF by the suffix, atomically, the same bytes every time."""
    import matplotlib as mpl

    _check_kind(path)
    kind, drawn = path.suffix.lower().removeprefix("."), io.BytesIO()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None, "Description": about or None}}.get(kind, {})
    with mpl.rc_context({"svg.hashsalt": "logsparse"}):
        settle(figure)
        figure.savefig(drawn, format=kind, metadata=undated, dpi=150)
    write_whole(path, drawn.getvalue(), "The picture")


def check_picture(path: Path) -> None:
    """Raise DataError, before the work begins, if no picture can be written to this path."""
    from logsparse.data.files import check_writable

    _check_kind(path)
    check_writable(path.parent, folder=True)


def _check_kind(path: Path) -> None:
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise DataError("A picture is written as svg, png or pdf.", got=f"{path}", hint="end the name in .svg.")
