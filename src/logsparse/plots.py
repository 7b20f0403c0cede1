"""Forecast, actual values and past forecasts -> a picture per series: a figure of matplotlib or of plotly.

plotly is an extra, imported here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from logsparse.data.columns import CUTOFF, ID, TIME, Columns, require
from logsparse.data.files import schema_of
from logsparse.data.frame import Data, to_panel
from logsparse.data.grid import from_native, scan_native
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.data.times import on_clock, wall_times
from logsparse.errors import ConfigError, DataError, shown, suggest, truth, whole
from logsparse.pictures import EARLIER, FORECAST, INK, TRUTH, Fan, View, draw_view, draw_views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from logsparse.canvas import Picture
    from logsparse.data.calendar import Ints

# H steps of the horizon or of a past forecast, Q quantile levels

# Panels of one picture: more cannot be read.
_MOST_SERIES = 60
_MODEL = "model"
# Opacity of a band of the forecast, and of a past one.
_BAND, _PAST_BAND = 0.18, 0.12
# Pixels between two rows: room for a title and the labels of an axis.
_BETWEEN = 75


class Plottable(Protocol):
    """What is drawn of a forecast."""

    @property
    def panel(self) -> Panel: ...
    @property
    def mean(self) -> Floats: ...
    @property
    def levels(self) -> tuple[float, ...]: ...
    @property
    def quantiles(self) -> Floats: ...


Names = SeriesId | Iterable[SeriesId] | None


@overload
def plot(
    self: Plottable,
    series: Names = None,
    *,
    history: int | None = None,
    actuals: Data | None = None,
    past: Data | None = None,
) -> Picture: ...
@overload
def plot(
    self: Plottable,
    series: SeriesId | None = None,
    *,
    ax: Axes,
    history: int | None = None,
    actuals: Data | None = None,
    past: Data | None = None,
) -> Axes: ...
@overload
def plot(
    self: Plottable,
    series: Names = None,
    *,
    interactive: Literal[True],
    history: int | None = None,
    actuals: Data | None = None,
    past: Data | None = None,
) -> Any: ...
def plot(  # noqa: D417 (self is the forecast: this is one of its methods)
    self: Plottable,
    series: Names = None,
    *,
    history: int | None = None,
    ax: Axes | None = None,
    actuals: Data | None = None,
    past: Data | None = None,
    interactive: bool = False,
) -> Any:
    """Draw the median and the central intervals of one or several series after the end of their history.

    Parameters
    ----------
    series
        Id of a series, or a list of ids, which become a grid of small panels; the first series if left out.
    history
        Number of past steps to show; if left out, three horizons, or back to the first of the past forecasts.
    ax
        Axes of matplotlib to draw one series into, instead of a new figure.
    actuals
        Frame, file or Panel with the values that followed, in the columns of the history; those of the steps
        forecast are drawn.
    past
        Frame or file as `backtest` returns it: its forecasts are drawn over the history.
    interactive
        Whether to return a figure of plotly, to zoom and hover over; needs `pip install logsparse[interactive]`.

    Returns
    -------
    matplotlib.figure.Figure, matplotlib.axes.Axes or plotly.graph_objects.Figure
        A figure, which a notebook displays if it is the last line of a cell; `figure.savefig("forecast.png")` writes
        it. `ax` itself if it was given; plotly's figure if `interactive`.

    Raises
    ------
    ConfigError, DataError
        For a series that was not forecast, or if an argument or a frame breaks a rule.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=3, season=7).fit(frame, until=66)
    >>> figure = model.forecast().plot(actuals=frame)
    >>> figure.axes[0].get_title(loc="left")
    'a'
    """
    names = _named(series, self.panel.ids)
    if ax is not None:
        _check_axes(ax, names, interactive=truth("interactive", interactive))
    steps = None if history is None else whole("history", history, hint="count the steps to show.")
    rows = [self.panel.ids.index(name) for name in names]
    lines = [None] * len(rows) if actuals is None else _actual(actuals, self.panel, rows, self.mean.shape[1])
    fans: list[list[_Earlier]] = [[]] * len(rows) if past is None else _earlier(past, self.panel, rows)
    views = [_view(self, row, steps, line, fan) for row, line, fan in zip(rows, lines, fans, strict=True)]
    if truth("interactive", interactive):
        return draw_interactive(views)
    if ax is None:
        return draw_views(views)
    draw_view(ax, views[0])
    ax.legend(frameon=False, fontsize=8)
    return ax


def _named(series: Any, ids: Sequence[SeriesId]) -> list[SeriesId]:
    """Return the ids to draw, each once."""
    if series is None:
        return [ids[0]]
    asked = list(series) if isinstance(series, Iterable) and not isinstance(series, str) else [series]
    for name in asked:
        if name not in ids:
            raise ConfigError(
                "A plot must be of a series that was forecast.",
                got=shown(name),
                hint=suggest(name, ids, f"name one such as {ids[0]!r}."),
            )
    if not 0 < len(asked) <= _MOST_SERIES:
        raise ConfigError(
            f"A plot must be of 1 to {_MOST_SERIES} series.",
            got=f"{len(asked)}",
            hint=f"plot({list(ids[:2])!r}) draws two of them; leave series out for the first.",
        )
    return list(dict.fromkeys(asked))


def _check_axes(ax: Any, names: list[SeriesId], *, interactive: bool) -> None:
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise ConfigError("ax must be the axes of a matplotlib figure.", got=shown(ax), hint="pass figure.axes[0].")
    if len(names) > 1 or interactive:
        raise ConfigError(
            "Axes of matplotlib show one series.",
            got="ax= and interactive=True" if interactive else f"ax= and {len(names)} series",
            hint="leave ax out, or draw each series into axes of its own.",
        )


# Steps of a past forecast on the panel's clock, and what was forecast.
_Earlier = tuple["Ints", Fan]
_Line = tuple[NDArray[Any], NDArray[Any]]


def _view(
    forecast: Plottable, row: int, history: int | None, actual: _Line | None, earlier: Sequence[_Earlier]
) -> View:
    panel, horizon = forecast.panel, forecast.mean.shape[1]
    length = int(panel.lengths[row])
    start = np.full(1, panel.starts[row])
    if history is None:
        first = min((int(panel.freq.steps(start, clock[:1])[0]) for clock, _ in earlier), default=length)
        history = max(3 * horizon, length - first)
    shown_steps = min(length, history)
    times = wall_times(panel, panel.freq.add(start, np.arange(length - shown_steps, length + horizon)))
    begin = panel.freq.add(start, np.full(1, length - shown_steps))[0]
    return View(
        name=str(panel.ids[row]),
        history=(times[:shown_steps], panel[row][length - shown_steps :]),
        forecast=Fan(times[shown_steps:], forecast.levels, forecast.quantiles[row], forecast.mean[row]),
        actual=actual,
        earlier=[fan for clock, fan in earlier if clock[0] >= begin],
    )


def _actual(data: Data, panel: Panel, rows: Sequence[int], horizon: int) -> list[_Line | None]:
    """Return times and actual values of the steps forecast, per series drawn; None for a series without any."""
    actual = _read_like(data, panel)
    if (actual.origin.zone, actual.freq.kind) != (panel.origin.zone, panel.freq.kind):
        raise DataError(
            "Actual values must have times like those forecast.",
            got=f"times {_zone(actual)} after a history {_zone(panel)}",
            hint="convert them to the time zone of the history.",
        )
    # Ids as text: a file may have made numbers of them, or text of numbers.
    places = {str(name): place for place, name in enumerate(actual.ids)}
    lines: list[_Line | None] = []
    for row in rows:
        line, place = None, places.get(str(panel.ids[row]))
        if place is not None:
            stored = actual.values[actual.indptr[place] : actual.indptr[place + 1]]
            times = actual.freq.add(np.full(1, actual.starts[place]), np.arange(len(stored)))
            ends = panel.freq.add(np.full(1, panel.starts[row]), panel.lengths[row] + np.array([0, horizon - 1]))
            within = (times >= ends[0]) & (times <= ends[1])
            if not np.isnan(stored[within]).all():
                line = wall_times(panel, times[within]), stored[within]
        lines.append(line)
    if all(line is None for line in lines):
        raise DataError(
            "actuals must have values of the steps forecast, of a series drawn.",
            got=f"none for {_listed(panel, rows)}",
            hint="pass a frame with the series and columns of the history that goes on after its end.",
        )
    return lines


def _read_like(data: Data, panel: Panel) -> Panel:
    """Read by the columns and the clock of the panel's own data, or else as any other frame."""
    origin, columns = panel.origin, Columns(freq=str(panel.freq))
    if origin.written is not None and origin.zone is not None:
        columns["tz"] = origin.zone
    if origin.names is not None and not isinstance(data, Panel):
        found = schema_of(scan_native(data, ids=origin.names[0])[0])
        if set(origin.names) <= set(found):
            columns["id_col"], columns["time_col"], columns["target_col"] = origin.names
    return to_panel(data, **columns)


def _zone(panel: Panel) -> str:
    return "as integers" if panel.freq.kind == "index" else f"in {panel.origin.zone or 'no zone'}"


def _listed(panel: Panel, rows: Sequence[int]) -> str:
    return ", ".join(f"{panel.ids[row]!r}" for row in rows[:5]) + (", ..." if len(rows) > 5 else "")


def _earlier(data: Data, panel: Panel, rows: Sequence[int]) -> list[list[_Earlier]]:
    """Return the past forecasts of each series drawn, by cutoff."""
    table, _ = from_native(data, ids=ID)
    # A backtest writes id, time, cutoff and target first, whatever their names.
    if ID not in table.columns and table.columns[2:3] == [CUTOFF]:
        table = table.rename(dict(zip(table.columns[:2], (ID, TIME), strict=True)))
    require(table.columns, (ID, TIME, CUTOFF))
    if "mean" not in table.columns and not any(map(_is_level, table.columns)):
        raise DataError(
            "Past forecasts must have a mean or quantiles.",
            got=f"the columns {', '.join(table.columns[:8])}",
            hint="pass what backtest returned.",
        )
    if _MODEL in table.columns and table[_MODEL].n_unique() > 1:
        raise DataError(
            "Past forecasts must be of one model.",
            got=f"{table[_MODEL].n_unique()} models in {_MODEL!r}",
            hint=f"keep the rows of {table[_MODEL][0]!r}.",
        )
    found: list[list[_Earlier]] = []
    for row in rows:
        own = table.filter(table[ID].cast(str) == str(panel.ids[row]))
        parts = [own.filter(own[CUTOFF] == cutoff) for cutoff in own[CUTOFF].unique().sort()]
        fans = [_past_fan(part, panel, row) for part in parts]
        # What was forecast after the end of the history is not past.
        found.append([(clock, fan) for clock, fan in fans if clock[0] <= panel.ends()[row]])
    if not any(found):
        raise DataError(
            "past must have forecasts of a series drawn, before the end of its history.",
            got=f"none for {_listed(panel, rows)}",
            hint="pass what backtest returned for these series.",
        )
    return found


def _past_fan(rows: Any, panel: Panel, row: int) -> _Earlier:
    clock = on_clock(panel, rows[TIME], np.full(len(rows), row))
    order = np.argsort(clock)
    levels = {float(name[1:]): name for name in rows.columns if _is_level(name)}
    chosen = sorted(levels)
    columns = [rows[levels[level]].to_numpy() for level in chosen]
    quantiles_QH = np.array(columns, np.float64).reshape(len(chosen), len(rows))[:, order]
    mean_H = rows["mean"].to_numpy().astype(np.float64)[order] if "mean" in rows.columns else None
    return clock[order], Fan(wall_times(panel, clock[order]), chosen, quantiles_QH, mean_H)


def _is_level(name: str) -> bool:
    try:
        return name.startswith("q") and 0 < float(name[1:]) < 1
    except ValueError:
        return False


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
