"""Pattern, length -> a table of what it costs and reaches, and a picture (SVG, PNG) of its reach and mask."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from logsparse.attention.pattern import Pattern
from logsparse.checks import a_path
from logsparse.pictures import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(pattern: Pattern, length: int) -> list[tuple[str, str]]:
    """Label and value, ready to print. Memory is the paper's count: length times the fullest row."""
    cells, row = pattern.cells(length), pattern.row_cells(length)
    layers = pattern.layers_to_reach(length)
    return [
        ("pattern", repr(pattern)),
        ("length", f"{length:,}"),
        ("cells", f"{cells:,}"),
        ("density", f"{_percent(cells, length * (length + 1) // 2)} of the causal cells"),
        ("fullest row", f"{row:,} cells"),
        ("layers to reach", "no number is enough" if layers is None else str(layers)),
        (
            "memory a layer",
            f"{length * row:,} scores, {_percent(row, length)} of full attention's {length**2:,}",
        ),
        ("costs as much as", f"full attention of length {round(math.sqrt(length * row)):,}"),
    ]


def draw(pattern: Pattern, length: int, path: str | Path) -> Path:
    """Write the picture; the same pattern, length and matplotlib give the same bytes."""
    import matplotlib as mpl

    target = a_path("A picture is written to the path of a file.", path, hint='write "pattern.svg".')
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        save_figure(_figure(pattern, length), target)
    return target


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


def _figure(pattern: Pattern, length: int) -> Figure:
    from matplotlib.figure import Figure

    from logsparse.attention.panels import GREY, INK, WHITE, draw_mask, draw_reach

    facts = dict(summary(pattern, length))
    figure = Figure(figsize=(11, 4.9), facecolor=WHITE)
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
