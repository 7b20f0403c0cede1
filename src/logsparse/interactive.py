"""Views of series -> a plotly figure to zoom, pan and hover over. plotly is an extra, imported here alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logsparse.errors import ConfigError
from logsparse.pictures import EARLIER, FORECAST, INK, TRUTH, Fan, View

# Opacity of a band of the forecast, and of a past one.
_BAND, _PAST_BAND = 0.18, 0.12

# Pixels between two rows: room for a title and the labels of an axis.
_BETWEEN = 75


def draw_interactive(views: Sequence[View]) -> Any:
    """Return a plotly figure with one row per series; a click on the legend hides a line in all of them."""
    try:
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ConfigError(
            "An interactive picture needs plotly.",
            got="an environment without it",
            hint="pip install logsparse[interactive], or leave interactive= out.",
        ) from error
    height, titles = 120 + 260 * len(views), [_escaped(view.name) for view in views]
    figure = make_subplots(rows=len(views), cols=1, subplot_titles=titles, vertical_spacing=_BETWEEN / height)
    named: set[str] = set()
    for row, view in enumerate(views, start=1):
        for name, trace in _traces(view):
            shown = {"showlegend": name not in named, **trace}
            figure.add_scatter(row=row, col=1, name=name, legendgroup=name, **shown)
            named |= {name} if shown["showlegend"] else set()
    figure.update_layout(template="plotly_white", hovermode="x unified", height=height)
    figure.update_layout(margin={"l": 50, "r": 20, "t": 50, "b": 40})
    return figure


def _traces(view: View) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and parts of every line and band, from the back to the front."""
    for fan in view.earlier:
        yield from _fan(fan, EARLIER, _PAST_BAND, bands=1, name="past forecast")
    yield "history", _line(*view.history, INK)
    yield from _fan(view.forecast, FORECAST, _BAND, bands=len(view.forecast.levels))
    if view.actual is not None:
        yield "actual", _line(*view.actual, TRUTH)


def _fan(fan: Fan, colour: str, opacity: float, *, bands: int, name: str | None = None) -> Iterator[tuple[str, Any]]:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    clear = {**_line(fan.times_H, fan.mean_H, colour), "line": {"width": 0}}
    for interval, low, high in fan.bands()[:bands]:
        label = name or interval
        yield label, {**clear, "y": low, "hoverinfo": "skip", "showlegend": False}
        fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},{opacity})"}
        yield label, {**clear, "y": high, "hoverinfo": "skip", **fill}
    middle, values = fan.middle
    if values is not None:
        yield name or middle, _line(fan.times_H, values, colour)


def _line(times: Any, values: Any, colour: str) -> dict[str, Any]:
    # A line cannot show a single point.
    mode = "lines" if len(times) > 1 else "markers"
    return {"x": times, "y": values, "mode": mode, "line": {"color": colour, "width": 1.6}, "marker": {"color": colour}}


def _escaped(name: str) -> str:
    """Return a name as text: plotly reads some of HTML in titles."""
    return name.replace("&", "&amp;").replace("<", "&lt;")
