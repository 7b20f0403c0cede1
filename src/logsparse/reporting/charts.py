"""Arrays -> the figures of a report -> SVG text to embed in a page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from logsparse.pictures import FORECAST, INK, TRUTH, draw_fan, draw_line, draw_losses, new_figure, settle
from logsparse.reporting.numbers import Level, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, MUTED = "#8a94a1", "#5c6775"
# Lines of models: far apart in hue and in lightness. The page has a lighter set for its dark theme.
MODELS = (FORECAST, "#c45a1d", "#1b7f5c", "#8a4fa3", "#9a7b00", "#5d6b7a")
# Figure sizes in inches: a phone or half a page, and a full page. Text has the same size in both.
NARROW, WIDE = (4.2, 2.6), (8.8, 2.7)
# With more steps than this, the line is drawn without markers.
MARKERS_SHOWN = 31
# Colours of matplotlib -> variables of the page, which has a light and a dark theme.
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
COLOURS |= {colour: f"--model{number}" for number, colour in enumerate(MODELS) if number}
# Most labels side by side in a legend; height of one row of them in inches.
LEGEND_COLUMNS, ROW_OF_LEGEND = 3, 0.2
# Longer names of models are cut in legends.
LONGEST_LABEL = 18
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)))
# An SVG of more characters than this is embedded as PNG.
LARGEST = 400_000
Errors = Sequence[float | None]


def steps_chart(steps: Sequence[int], errors: Mapping[str, Errors], naive: Errors | None) -> Figure:
    """Draw the error of each model against the step of the horizon."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(*_size(errors))
    marker = "o" if len(steps) <= MARKERS_SHOWN else ""
    if naive is not None:
        thin: dict[str, Any] = {"color": GREY, "linewidth": 1.4, "marker": marker, "markersize": 3}
        axes.plot(steps, np.array(naive, np.float64), label="seasonal naive", **thin)
    # The first model is drawn last, on top.
    for number, (name, values) in reversed([*enumerate(errors.items())]):
        style = _style(number) | {"marker": marker, "markersize": 3.5}
        axes.plot(steps, np.array(values, np.float64), label=_plain(name), **style)
    axes.set_ylim(bottom=0)
    if len(steps) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step of the horizon")
    _finish(axes, _legend_columns(errors))
    return figure


def calibration_chart(levels: Mapping[str, Sequence[Level]]) -> Figure:
    """Draw the share of values below each quantile against its level, one line per model."""
    figure, axes = new_figure(*_size(levels))
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="ideal")
    for number, (name, entries) in reversed([*enumerate(levels.items())]):
        nominal, observed = [100 * entry.level for entry in entries], [100 * entry.observed for entry in entries]
        axes.plot(nominal, observed, marker="o", markersize=4.5, label=_plain(name), **_style(number))
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)])
    axes.set_yticks(range(20, 101, 20), [f"{tick} %" for tick in range(20, 101, 20)])
    axes.set_xlabel("level of the quantile")
    _finish(axes, _legend_columns(levels))
    return figure


def _size(models: Mapping[str, Any]) -> tuple[float, float]:
    """Return the size of a chart of these models, with room for all rows of its legend."""
    width, height = NARROW
    rows = -(-(len(models) + 1) // _legend_columns(models))
    return width, height + ROW_OF_LEGEND * (rows - 1)


def _legend_columns(models: Iterable[str]) -> int:
    """Return how many columns of labels fit above a narrow chart."""
    longest = max(len(label) for label in ("seasonal naive", *map(_plain, models)))
    return max(1, min(LEGEND_COLUMNS, int((NARROW[0] - 0.2) / (0.4 + 0.065 * longest))))


def _style(number: int) -> dict[str, Any]:
    """Return colour and dashes of the line of a model: after all colours, they return dashed."""
    dashes = _DASHES[number // len(MODELS) % len(_DASHES)]
    return {"color": MODELS[number % len(MODELS)], "linewidth": 1.8, "linestyle": dashes}


def _plain(name: str) -> str:
    """Return a label that matplotlib shows as it is: it omits those that begin with _, and reads $ as mathematics."""
    short = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
    return (short.lstrip("_") or "model").replace("$", r"\$")


def fan_chart(windows: Sequence[Window], levels: Sequence[float], size: tuple[float, float]) -> Figure:
    """Draw the fan of each window, the actual values over all windows, and seasonal naive as a thin line."""
    from logsparse.canvas import label_times

    figure, axes = new_figure(*size)
    whole = joined(windows)
    # Windows of one step are joined into one band.
    fans = whole if max(len(window.times) for window in windows) == 1 else joined(windows, apart=True)
    if fans.naive_H is not None:
        draw_line(axes, fans.times, fans.naive_H, "seasonal naive", color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    if len(fans.times) == 1:
        _draw_one_step(axes, fans, levels)
    else:
        draw_fan(axes, fans.times, levels, fans.quantiles_QH)
    if 0.5 not in levels and fans.mean_H is not None:
        draw_line(axes, fans.times, fans.mean_H, "mean", color=FORECAST, linewidth=1.6)
    draw_line(axes, whole.times, whole.truth_H, "actual", color=INK, linewidth=1.2)
    label_times(axes, whole.times)
    axes.margins(x=0.01)
    _finish(axes, 3 if size == NARROW else 6)
    return figure


def losses_chart(rows: Sequence[Mapping[str, float]], size: tuple[float, float]) -> Figure:
    """Draw training and validation loss in the style of the other charts."""
    figure = draw_losses(rows, size)
    _finish(figure.axes[0])
    return figure


def joined(windows: Sequence[Window], *, apart: bool = False) -> Window:
    """Join windows into one, with an empty cell in each gap (`apart`: between any two), which breaks the line."""
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
    empty = np.full(1, np.nan)
    return Window(
        window.times[-1:],
        empty,
        np.full((len(window.quantiles_QH), 1), np.nan),
        None if window.mean_H is None else empty,
        None if window.naive_H is None else empty,
    )


def _draw_one_step(axes: Axes, band: Window, levels: Sequence[float]) -> None:
    """Draw the fan of a single step as vertical bars."""
    for low in range(len(levels) // 2):
        if np.isclose(levels[low] + levels[-1 - low], 1):
            ends = band.quantiles_QH[low], band.quantiles_QH[-1 - low]
            axes.vlines(band.times, *ends, color=FORECAST, linewidth=12, alpha=0.2)
    if 0.5 in levels:
        draw_line(axes, band.times, band.quantiles_QH[list(levels).index(0.5)], "median", color=FORECAST)


def _finish(axes: Axes, columns: int = LEGEND_COLUMNS) -> None:
    """Style ticks and spines, and put a legend above the axes, one entry per label."""
    axes.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=MUTED, fontsize=9)
    axes.xaxis.get_offset_text().set(color=MUTED, fontsize=9)
    axes.yaxis.get_offset_text().set(color=MUTED, fontsize=9)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(reversed(labels), reversed(handles), strict=True))
    style = {"frameon": False, "fontsize": 9, "labelcolor": MUTED, "handlelength": 1.4, "columnspacing": 1.2}
    place = {"bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "ncols": columns}
    axes.legend([*named.values()], [*named], loc="lower left", **place, **style)


def inline(figure: Figure, *, key: str, alt: str, foreign: bool = False) -> Markup:
    """Return the figure as SVG in the page's colours, or in its own on white (`foreign`); `key` prefixes its ids."""
    text = _svg(figure, key, transparent=not foreign)
    if len(text) > LARGEST:
        return _png(figure, alt)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'\bd="[^"]*"', _rounded, text)
    if not foreign:
        for drawn, name in COLOURS.items():
            text = text.replace(drawn, f"var({name})")
    view = re.search(r'viewBox="[^"]*"', text)
    assert view, "matplotlib always writes a viewBox"
    rest = text[text.index(">") + 1 :]
    kind = "paper" if foreign else "drawn"
    return Markup(f'<svg class="{kind}" {view[0]} role="img" aria-label="{escape(alt)}">{rest.strip()}')  # noqa: S704


def _svg(figure: Figure, key: str, *, transparent: bool) -> str:
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": key, "svg.fonttype": "none"}):
        settle(figure)
        figure.savefig(file, format="svg", transparent=transparent, metadata={"Date": None})
    return file.getvalue()


def _rounded(path: re.Match[str]) -> str:
    """Round the coordinates of a path to hundredths of a point."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path[0])


def _png(figure: Figure, alt: str) -> Markup:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    data = base64.b64encode(file.getvalue()).decode()
    return Markup('<img class="paper" alt="{}" src="data:image/png;base64,{}">').format(alt, data)
