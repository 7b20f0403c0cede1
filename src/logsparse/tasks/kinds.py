"""Nothing -> the paper's figure of the kinds of attention (figure 3): four patterns, drawn, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logsparse.attention.pattern import full, local, logsparse, restart
from logsparse.pictures import INK
from logsparse.tasks.experiment import Experiment, Table, never, nothing_known, nothing_to_run
from logsparse.tasks.ledger import Row
from logsparse.tasks.traces import Traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH = 16
KINDS = {
    "full": full(),
    "LogSparse": logsparse(),
    "local + LogSparse": local(4),
    "restart + local + LogSparse": restart(8),
}


def tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """What each costs."""
    lines = [
        [name, str(kind.cells(LENGTH)), str(kind.row_cells(LENGTH)), str(kind.layers_to_reach(LENGTH))]
        for name, kind in KINDS.items()
    ]
    title = f"Figure 3, kinds of attention, length {LENGTH}"
    return [Table(title, ["kind", "cells", "fullest row", "layers to reach"], lines)]


def figure(_rows: Sequence[Row], _traces: Traces) -> Figure:
    """A panel a kind: rows of cells, the input lowest, and the lines that lead into the last cell."""
    from matplotlib.figure import Figure

    from logsparse.attention.panels import draw_reach

    drawn = Figure(figsize=(13, 8), layout="constrained")
    for letter, axes, (name, kind) in zip("abcd", drawn.subplots(2, 2).flat, KINDS.items(), strict=True):
        draw_reach(axes, kind, LENGTH)
        axes.set_title(f"({letter}) {name}\n{axes.get_title(loc='left')}", loc="left", fontsize=10, color=INK)
    return drawn


ATTENTION_KINDS = Experiment(
    "attention-kinds",
    (),
    nothing_to_run,
    nothing_known,
    never,
    tables,
    figure,
    shows="Figure 3, four kinds of attention",
)
