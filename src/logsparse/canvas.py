"""Figures and axes of matplotlib as notebooks need them: a figure that displays itself, time labels that never collide.

The only module that imports matplotlib when it is imported: others import this one where they draw.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from matplotlib.ticker import Formatter, Locator, MaxNLocator, StrMethodFormatter

# Pixels of a displayed picture per pixel of its size: sharp on screens of high density.
_SHARPNESS = 2
# Formats of years, months, days, hours, minutes, seconds; of ticks at which the next larger unit begins; and of what
# the ticks do not say, which is written once, below their end.
_TICKS = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%M:%S"]
_FIRST_TICKS = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]
_REST = ["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M"]
# Room for the label of a time, and the least gap between two labels, in units of the font size.
_ROOM, _GAP = 5.0, 0.6


class Picture(Figure):
    """A matplotlib Figure that a notebook displays if it is the last line of a cell, and an ordinary one elsewhere."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the picture and its size in pixels; unused where the inline backend has a formatter of its own."""
        return png(self, _SHARPNESS * self.dpi), dict(zip(("width", "height"), self._pixels(), strict=True))

    def html(self, alt: str) -> str:
        """Return the picture as an element of a page, in its size or as wide as the page."""
        width, _ = self._pixels()
        data = base64.b64encode(self._repr_png_()[0]).decode()
        return f'<img alt="{alt}" width="{width}" style="max-width: 100%" src="data:image/png;base64,{data}">'

    def _pixels(self) -> list[int]:
        return [round(inches * self.dpi) for inches in self.get_size_inches()]


def png(figure: Figure, dpi: float) -> bytes:
    """Return the figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def label_times(axes: Axes, times: Any) -> None:
    """Label the x axis with these times, dates or integers; at any width of the axes no label touches another."""
    locator: Locator
    formatter: Formatter
    if np.issubdtype(np.asarray(times).dtype, np.datetime64):
        locator = _DateLocator()  # type: ignore[no-untyped-call]
        formatter = _Dates(  # type: ignore[no-untyped-call]
            locator, formats=_TICKS, zero_formats=_FIRST_TICKS, offset_formats=_REST
        )
    else:
        locator, formatter = MaxNLocator("auto", integer=True), _Integers("{x:.0f}")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.get_offset_text().set_fontsize(_font(axes.xaxis).get_size_in_points())


class _DateLocator(AutoDateLocator):
    """As many ticks as there is room for: matplotlib's own number does not depend on the width."""

    def get_locator(self, dmin: Any, dmax: Any) -> Any:
        most = max(3, int(_points(self.axis) / (_ROOM * _font(self.axis).get_size_in_points())))
        self.maxticks = dict.fromkeys(self.maxticks, most)
        # Half of the most: the next smaller unit (hours after days) then always has an interval that fits.
        self.minticks = (most - 1) // 2
        return super().get_locator(dmin, dmax)  # type: ignore[no-untyped-call]


class _Dates(ConciseDateFormatter):
    """Matplotlib's labels of dates, but midnight has the name of its day, and what labels say is not written below."""

    _year = ""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        labels = super().format_ticks(values)  # type: ignore[no-untyped-call]
        times = [num2date(value) for value in values]  # type: ignore[no-untyped-call]
        days = [f"{time:%d %b}" for time in times]
        midnight = [f"{time:%H:%M}" == label == "00:00" for time, label in zip(times, labels, strict=True)]
        labels = [day if first else label for day, first, label in zip(days, midnight, labels, strict=True)]
        labels = _apart(self.axis, values, labels)
        low, high = sorted(self.axis.get_view_interval())  # type: ignore[union-attr]
        named = [label == day and low <= x <= high for label, day, x in zip(labels, days, values, strict=True)]
        self._year = f"{times[-1]:%Y}" if any(named) else ""
        return labels

    def get_offset(self) -> str:
        return self._year or str(super().get_offset())  # type: ignore[no-untyped-call]


class _Integers(StrMethodFormatter):
    def format_ticks(self, values: Sequence[float]) -> list[str]:
        return _apart(self.axis, values, super().format_ticks(values))  # type: ignore[arg-type]


def _apart(axis: Any, values: Sequence[float], labels: list[str]) -> list[str]:
    """Return the labels, those empty that would touch the label before them."""
    font, axes, labels = _font(axis), axis.axes, list(labels)
    low, high = sorted(axis.get_view_interval())
    pixels = axes.get_xaxis_transform().transform([(value, 0) for value in values])[:, 0] if labels else []
    places = np.asarray(pixels) * 72 / axes.figure.dpi
    end = -np.inf
    for number in np.argsort(places).tolist():
        # Ticks outside the view are not drawn, and take no room.
        if not labels[number] or not low <= values[number] <= high:
            continue
        half = _width(labels[number], font) / 2
        if places[number] - half < end + _GAP * font.get_size_in_points():
            labels[number] = ""
        else:
            end = places[number] + half
    return labels


def _points(axis: Any) -> float:
    """Return the width of the axes in points."""
    return float(axis.axes.bbox.width * 72 / axis.axes.figure.dpi)


def _font(axis: Axis | Any) -> FontProperties:
    import matplotlib as mpl

    params = axis.get_tick_params()
    family = params.get("labelfontfamily", mpl.rcParams["font.family"])
    return FontProperties(family=family, size=params.get("labelsize", mpl.rcParams["xtick.labelsize"]))


def _width(text: str, font: FontProperties) -> float:
    """Return the width of a text in points, for any backend."""
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)
