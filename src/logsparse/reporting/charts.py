"""Arrays -> the figures of a report -> SVG text that stands within a page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from logsparse.pictures import FORECAST, INK, TRUTH, draw_fan, draw_losses, new_figure, settle
from logsparse.reporting.numbers import Level, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, MUTED = "#8a94a1", "#5c6775"
# Inches: as wide as a telephone or half a page, and as wide as a page. Text keeps its size in both.
NARROW, WIDE = (4.2, 2.6), (8.8, 2.7)
# Beyond so many, dots would melt into a fat line.
DOTS_SHOWN = 31
# Ticks of years, months, days, hours, minutes, seconds; and where the next larger unit begins.
_TICKS = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%M:%S"]
_FIRST_TICKS = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]

Errors = Sequence[float | None]


def steps_chart(steps: Sequence[int], ours: Errors, theirs: Errors | None, name: str) -> Figure:
    """Error against the step of the horizon."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(*NARROW)
    marker = "o" if len(steps) <= DOTS_SHOWN else ""
    if theirs is not None:
        axes.plot(
            steps,
            np.array(theirs, np.float64),
            color=GREY,
            linewidth=1.4,
            marker=marker,
            markersize=3,
            label="seasonal naive",
        )
    axes.plot(
        steps, np.array(ours, np.float64), color=FORECAST, linewidth=1.8, marker=marker, markersize=3.5, label=name
    )
    axes.set_ylim(bottom=0)
    if len(steps) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step of the horizon")
    _finish(axes)
    return figure


def calibration_chart(levels: Sequence[Level]) -> Figure:
    """The share of values below each quantile against its level."""
    figure, axes = new_figure(*NARROW)
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="as promised")
    at, seen = [100 * entry.level for entry in levels], [100 * entry.observed for entry in levels]
    axes.plot(at, seen, color=FORECAST, linewidth=1.8, marker="o", markersize=4.5, label="observed")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)])
    axes.set_yticks(range(20, 101, 20), [f"{tick} %" for tick in range(20, 101, 20)])
    axes.set_xlabel("level of the quantile")
    _finish(axes)
    return figure


def fan_chart(windows: Sequence[Window], levels: Sequence[float], size: tuple[float, float]) -> Figure:
    """Each window's fan, the truth over all of them, and seasonal naive thinly beside."""
    figure, axes = new_figure(*size)
    whole = joined(windows)
    # Windows of one step each make one band together.
    fans = whole if max(len(window.times) for window in windows) == 1 else joined(windows, apart=True)
    if fans.naive_H is not None:
        _line(axes, fans.times, fans.naive_H, "seasonal naive", color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    if len(fans.times) == 1:
        _upright(axes, fans, levels)
    else:
        draw_fan(axes, fans.times, levels, fans.quantiles_QH)
    if 0.5 not in levels and fans.mean_H is not None:
        _line(axes, fans.times, fans.mean_H, "mean", color=FORECAST, linewidth=1.6)
    _line(axes, whole.times, whole.truth_H, "truth", color=INK, linewidth=1.2)
    _name_times(axes, whole.times)
    _finish(axes, 3 if size == NARROW else 6)
    return figure


def losses_chart(rows: Sequence[Mapping[str, float]], size: tuple[float, float]) -> Figure:
    """Training and validation loss, in the looks of the others."""
    figure = draw_losses(rows, size)
    _finish(figure.axes[0])
    return figure


def joined(windows: Sequence[Window], *, apart: bool = False) -> Window:
    """Windows as one; an empty cell keeps a line from leaping over a gap, or (`apart`) to the next window at all."""
    parts = [windows[0]]
    for early, late in pairwise(windows):
        if apart or late.times[0] - early.times[-1] > 1.5 * _usual_step(windows):
            parts.append(_empty_like(early))
        parts.append(late)
    means = [part.mean_H for part in parts if part.mean_H is not None]
    naives = [part.naive_H for part in parts if part.naive_H is not None]
    return Window(
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.truth_H for part in parts]),
        np.concatenate([part.quantiles_QH for part in parts], axis=1),
        np.concatenate(means) if means else None,
        np.concatenate(naives) if naives else None,
    )


def _usual_step(windows: Sequence[Window]) -> Any:
    within = [np.diff(window.times).min() for window in windows if len(window.times) > 1]
    return min(within or [late.times[0] - early.times[-1] for early, late in pairwise(windows)])


def _empty_like(window: Window) -> Window:
    nothing = np.full(1, np.nan)
    return Window(
        window.times[-1:],
        nothing,
        np.full((len(window.quantiles_QH), 1), np.nan),
        None if window.mean_H is None else nothing,
        None if window.naive_H is None else nothing,
    )


def _line(axes: Axes, times: Any, values: Any, label: str, **look: Any) -> None:
    """A line; values without a neighbour, which a line cannot show, as dots."""
    axes.plot(times, values, label=label, **look)
    seen = np.concatenate([[False], ~np.isnan(values), [False]])
    alone = seen[1:-1] & ~seen[:-2] & ~seen[2:]
    if alone.any():
        axes.plot(times[alone], values[alone], "o", color=look["color"], markersize=4)


def _upright(axes: Axes, band: Window, levels: Sequence[float]) -> None:
    """The fan of one single step."""
    for low in range(len(levels) // 2):
        if np.isclose(levels[low] + levels[-1 - low], 1):
            ends = band.quantiles_QH[low], band.quantiles_QH[-1 - low]
            axes.vlines(band.times, *ends, color=FORECAST, linewidth=12, alpha=0.2)
    if 0.5 in levels:
        _line(axes, band.times, band.quantiles_QH[list(levels).index(0.5)], "median", color=FORECAST)


def _name_times(axes: Axes, times: Any) -> None:
    if np.issubdtype(times.dtype, np.datetime64):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
        look = {"formats": _TICKS, "zero_formats": _FIRST_TICKS, "show_offset": False}
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, **look))  # type: ignore[no-untyped-call]
    axes.margins(x=0.01)


def _finish(axes: Axes, columns: int = 3) -> None:
    """Quiet ticks, and a legend above that names each look once."""
    axes.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=MUTED, fontsize=9)
    axes.xaxis.get_offset_text().set(color=MUTED, fontsize=9)
    axes.yaxis.get_offset_text().set(color=MUTED, fontsize=9)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(reversed(labels), reversed(handles), strict=True))
    look = {"frameon": False, "fontsize": 9, "labelcolor": MUTED, "handlelength": 1.4, "columnspacing": 1.2}
    place = {"bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "ncols": columns}
    axes.legend([*named.values()], [*named], loc="lower left", **place, **look)


if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Drawn colour -> the page's, which knows light and dark.
COLOURS = {
    INK: "--ink",
    "#000000": "--ink",
    "#262626": "--ink",
    "#b0b0b0": "--naive",
    FORECAST: "--forecast",
    TRUTH: "--truth",
    GREY: "--naive",
    MUTED: "--muted",
}
# A picture of more characters than this is sent as points instead of lines.
LARGEST = 400_000


def inline(figure: Figure, *, key: str, says: str, foreign: bool = False) -> Markup:
    """The figure as it is (`foreign`, on white paper) or in the page's colours; `key` tells its ids from others'."""
    text = _svg(figure, key, transparent=not foreign)
    if len(text) > LARGEST:
        return _points(figure, says)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'\bd="[^"]*"', _rounded, text)
    if not foreign:
        for drawn, name in COLOURS.items():
            text = text.replace(drawn, f"var({name})")
    view = re.search(r'viewBox="[^"]*"', text)
    assert view, "matplotlib always writes one"
    rest = text[text.index(">") + 1 :]
    kind = "paper" if foreign else "drawn"
    return Markup(f'<svg class="{kind}" {view[0]} role="img" aria-label="{escape(says)}">{rest.strip()}')  # noqa: S704


def _svg(figure: Figure, key: str, *, transparent: bool) -> str:
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": key, "svg.fonttype": "none"}):
        settle(figure)
        figure.savefig(file, format="svg", transparent=transparent, metadata={"Date": None})
    return file.getvalue()


def _rounded(path: re.Match[str]) -> str:
    """Hundredths of a point are enough."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path[0])


def _points(figure: Figure, says: str) -> Markup:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    data = base64.b64encode(file.getvalue()).decode()
    return Markup('<img class="paper" alt="{}" src="data:image/png;base64,{}">').format(says, data)
