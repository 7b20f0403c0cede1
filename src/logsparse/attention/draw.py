"""Pattern, length -> a table of its cost and reach, and a picture (SVG, PNG) of its reach and mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logsparse.attention.pattern import Pattern
from logsparse.errors import a_path
from logsparse.pictures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from logsparse.canvas import Picture

INK, GREY, PALE, WHITE, ACCENT = "#1d2733", "#77869a", "#e8ecf1", "#ffffff", "#f0562b"
# Longest input whose cells are drawn one by one; of longer ones, neighbours merge into a strip, wedge or band.
CELLS_SHOWN = 64
# Longest input of which every line to the last cell is drawn; of longer ones, only those of its own layer.
LINES_SHOWN = 32
# Marks per strip; of longer inputs, one mark stands for several cells.
MARKS_SHOWN = 2048
LAYERS_SHOWN = 12

Cells = NDArray[np.int_]
Colours = Sequence[tuple[float, ...]]


def draw_reach(axes: Axes, pattern: Pattern, length: int) -> None:
    """Draw one row of cells per layer, the input lowest, with lines up to the last cell."""
    import matplotlib as mpl

    arrival = pattern.arrivals(length)
    deepest = int(arrival.max())
    layers = max(1, min(LAYERS_SHOWN, deepest))
    colours = [mpl.colors.to_rgba(INK), *mpl.colormaps["viridis"](np.linspace(0.3, 0.95, layers))]
    for level in range(layers + 1):
        received = np.where(arrival <= layers - level, arrival, -1)
        if level:
            _draw_lines(axes, pattern, np.flatnonzero(received >= 0), level, _half_height(layers))
        (_draw_dots if length <= CELLS_SHOWN else _draw_strip)(axes, received, level, colours)
    farthest = int(np.argmax(arrival == min(deepest, layers)))
    path = path_to_last(arrival, pattern, farthest)
    axes.plot(path, layers + 1 - np.arange(len(path), 0, -1), color=ACCENT, linewidth=1.6, zorder=4)
    axes.set_yticks(range(layers + 1), ["input", *(f"layer {level}" for level in range(1, layers + 1))])
    axes.set_xlim(-0.02 * length - 0.5, 1.02 * length - 0.5)
    axes.set_ylim(-0.35, layers + 0.35)
    _plain(axes, range(0, length, max(1, round(length / 8))))
    axes.set_title(_title(pattern, arrival, layers), loc="left", fontsize=10, color=INK)
    _legend(axes, colours, -(-length // MARKS_SHOWN))


def path_to_last(layer_of: Cells, pattern: Pattern, cell: int) -> list[int]:
    """Return a shortest path from `cell` to the last cell, given its arrivals; short steps first, as in the proof."""
    distances = np.array(pattern.distances(len(layer_of)))
    path = [cell]
    while layer_of[cell] > 0:
        receivers = np.union1d(cell + distances, np.arange(cell, pattern.dense_rows))
        receivers = receivers[receivers < len(layer_of)]
        cell = int(receivers[layer_of[receivers] == layer_of[cell] - 1][0])
        path.append(cell)
    return path


def _title(pattern: Pattern, arrival: Cells, layers: int) -> str:
    deepest, needed = int(arrival.max()), pattern.layers_to_reach(len(arrival))
    if (arrival < 0).any():
        title = f"The last cell never receives {np.sum(arrival < 0):,} of its {len(arrival):,} cells"
    else:
        title = f"The last cell receives its whole past after {deepest} layer{'' if deepest == 1 else 's'}"
    if needed and needed != deepest:
        title += f", every cell after {needed}"
    return title + (f" ({layers} of them drawn)" if deepest > layers else "")


def _legend(axes: Axes, colours: Colours, cells_per_mark: int) -> None:
    from matplotlib.lines import Line2D

    dot = {"marker": "o", "linestyle": "", "markersize": 5}
    handles = [Line2D([], [], color=colour, label=f"{layer}", **dot) for layer, colour in enumerate(colours)]  # type: ignore[arg-type]
    handles[0].set_label("received after 0")
    handles[-1].set_label("1 layer" if len(colours) == 2 else f"{len(colours) - 1} layers")
    handles.append(Line2D([], [], color=ACCENT, linewidth=1.6, label="a shortest path from the farthest cell"))
    if cells_per_mark > 1:
        note = f"one mark is {cells_per_mark} cells, at least one received"
        handles.append(Line2D([], [], linestyle="", label=note))
    style = {"frameon": False, "handletextpad": 0.3, "columnspacing": 0.9, "handlelength": 1.2, "fontsize": 8}
    axes.legend(
        handles=handles,
        ncols=len(handles),
        loc="upper left",
        bbox_to_anchor=(0, -0.06),
        labelcolor=GREY,
        **style,
    )


def _draw_dots(axes: Axes, received: Cells, level: int, colours: Colours) -> None:
    face = [colours[layer] if layer >= 0 else WHITE for layer in received]
    edge = [colours[layer] if layer >= 0 else "#c2cbd6" for layer in received]
    size, at = min(150, (340 / len(received)) ** 2), np.arange(len(received))
    axes.scatter(at, np.full(len(received), level), size, face, edgecolors=edge, linewidths=0.9, zorder=3)


def _draw_strip(axes: Axes, received: Cells, level: int, colours: Colours) -> None:
    half = _half_height(len(colours) - 1)
    place = (level - half, 2 * half)
    mark = -(-len(received) // MARKS_SHOWN)
    never = len(colours)
    padded = np.full(-(-len(received) // mark) * mark, never)
    padded[: len(received)] = np.where(received < 0, never, received)
    earliest = padded.reshape(-1, mark).min(axis=1)
    axes.broken_barh([(-0.5, len(received))], place, facecolor=PALE, linewidth=0, zorder=2)
    for layer, colour in enumerate(colours):
        runs = _runs(np.flatnonzero(earliest == layer))
        strips = [(a * mark - 0.5, (b - a + 1) * mark) for a, b in runs]
        # A thin edge keeps a single cell among thousands visible.
        axes.broken_barh(strips, place, facecolor=colour, edgecolor=colour, linewidth=0.3, zorder=3)


def _draw_lines(axes: Axes, pattern: Pattern, receivers: Cells, level: int, half: float) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    last = int(receivers[-1])
    if last >= CELLS_SHOWN:
        runs = _runs(_attended(pattern, last)) if len(receivers) == 1 else []
        top, foot = level - half, level - 1 + half
        wedges = [[(last, top), (a - 0.5, foot), (b + 0.5, foot)] for a, b in runs]
        axes.add_collection(PolyCollection(wedges, facecolor=INK, edgecolor=INK, alpha=0.25, linewidth=0.4))
        return
    for row in receivers if last < LINES_SHOWN else receivers[-1:]:
        lines = [[(row, level), (cell, level - 1)] for cell in _attended(pattern, int(row))]
        colour, width = (INK, 1.1) if row == last else ("#a9b4c2", 0.5)
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, zorder=1 + (row == last)))


def draw_mask(axes: Axes, pattern: Pattern, length: int) -> None:
    """Draw the mask: rows are queries from the top, columns are keys, the future is white."""
    from matplotlib.collections import PolyCollection

    if length <= CELLS_SHOWN:
        past, seen = np.argwhere(np.tri(length, dtype=bool)), np.argwhere(pattern.mask(length))
        shapes = [(_squares(past), PALE, WHITE), (_squares(seen), INK, WHITE)]
        width = min(1.0, 16 / length)
    else:
        bands = [_band(a, b, length) for a, b in _runs(np.array(pattern.distances(length)))]
        dense = min(pattern.dense_rows, length)
        shapes = [([_band(0, length - 1, length)], PALE, PALE), (bands, INK, INK)]
        shapes.append(([[(0, 0), (0, dense), (dense, dense)]], INK, INK))
        width = 0.25
    for marks, face, edge in shapes:
        axes.add_collection(PolyCollection(marks, facecolor=face, edgecolor=edge, linewidth=width))
    axes.set_xlim(0, length)
    axes.set_ylim(length, 0)
    axes.set_aspect("equal", anchor="NW")
    ticks = range(0, length, max(1, round(length / 8)))
    middle = 0.5 if length <= CELLS_SHOWN else 0
    axes.set_yticks([tick + middle for tick in ticks], [f"{tick:,}" for tick in ticks])
    _plain(axes, ticks, middle)
    axes.set_title("Mask: queries down, keys across", loc="left", fontsize=10, color=INK)


def _half_height(layers: int) -> float:
    """Return half the height of a strip, in units of the distance between two."""
    return min(0.14, 0.025 * (layers + 1))


def _attended(pattern: Pattern, row: int) -> Cells:
    return np.arange(row + 1) if row < pattern.dense_rows else row - np.array(pattern.distances(row + 1))[::-1]


def _runs(cells: Cells) -> list[tuple[int, int]]:
    """Return the first and last cell of each contiguous run of sorted cells."""
    parts = np.split(cells, np.flatnonzero(np.diff(cells) > 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts if len(part)]


def _squares(cells: Cells) -> list[list[tuple[float, float]]]:
    return [[(j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1)] for i, j in cells]


def _band(first: int, last: int, length: int) -> list[tuple[float, float]]:
    return [(0, first), (0, last + 1), (length - last - 1, length), (length - first, length)]


def _plain(axes: Axes, ticks: range, middle: float = 0) -> None:
    axes.set_xticks([tick + middle for tick in ticks], [f"{tick:,}" for tick in ticks])
    axes.tick_params(length=0, labelcolor=GREY, labelsize=8)
    axes.spines[:].set_visible(False)


def summary(pattern: Pattern, length: int) -> list[tuple[str, str]]:
    """Return labels and values, ready to print. Memory counts as in the paper: length times the fullest row."""
    cells, row = pattern.cells(length), pattern.row_cells(length)
    layers = pattern.layers_to_reach(length)
    return [
        ("pattern", repr(pattern)),
        ("length", f"{length:,}"),
        ("cells", f"{cells:,}"),
        ("density", f"{_percent(cells, length * (length + 1) // 2)} of the causal cells"),
        ("fullest row", f"{row:,} cells"),
        ("layers to reach", "no number suffices" if layers is None else str(layers)),
        (
            "memory per layer",
            f"{length * row:,} scores, {_percent(row, length)} of full attention's {length**2:,}",
        ),
        ("costs as much as", f"full attention of length {round(math.sqrt(length * row)):,}"),
    ]


def draw(pattern: Pattern, length: int, path: str | Path) -> Path:
    """Write the picture and return its path; the same pattern, length and matplotlib give the same bytes."""
    target = a_path("A picture is written to the path of a file.", path, hint='write "pattern.svg".')
    save_figure(picture(pattern, length), target)
    return target


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


def picture(pattern: Pattern, length: int) -> Picture:
    """Draw the reach and the mask of a pattern as a figure, which a notebook displays.

    Parameters
    ----------
    pattern
        One of `logsparse.patterns`.
    length
        Number of positions.

    Returns
    -------
    matplotlib.figure.Figure
        A figure, which a notebook displays if it is the last line of a cell.

    Examples
    --------
    >>> import logsparse as ls
    >>> from logsparse.attention.draw import picture
    >>> len(picture(ls.patterns.logsparse(), 16).axes)
    2
    """
    import matplotlib as mpl

    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        return _picture(pattern, length)


def _picture(pattern: Pattern, length: int) -> Picture:
    from logsparse.canvas import Picture

    facts = dict(summary(pattern, length))
    figure = Picture(figsize=(11, 4.9), facecolor=WHITE)
    reach, mask = figure.subplots(1, 2, width_ratios=[1.75, 1])
    figure.subplots_adjust(left=0.065, right=0.98, top=0.8, bottom=0.12, wspace=0.1)
    name = repr(pattern)
    if len(name) > 90:
        name = f"{pattern.rule}: {len(pattern.distances(length))} distances"
    figure.text(0.012, 0.94, name, fontsize=14, weight="bold", color=INK)
    line = f"length {facts['length']}  ·  {facts['cells']} cells, {facts['density']}"
    line += f"  ·  fullest row {facts['fullest row']}  ·  costs as much as {facts['costs as much as']}"
    figure.text(0.012, 0.89, line, color=GREY)
    draw_reach(reach, pattern, length)
    draw_mask(mask, pattern, length)
    return figure
