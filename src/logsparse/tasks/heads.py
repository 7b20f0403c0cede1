"""A fitted model -> the window of its forecast and what one head of some layers attends to, as plain JSON.

The head is not chosen by hand: it is the one with the largest sum of squared weights on cells a day or more back.
Such a head looks far, and at few cells; one that looks at itself alone, or at all cells alike, scores next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from logsparse.attended import Attention
from logsparse.data.panel import Floats
from logsparse.forecaster import LogSparse
from logsparse.tasks.traces import plain

# L positions of the window, J positions attended to (= L)

LAYERS = (2, 6, 10)
"""Those of the paper's figure, counted from 1."""


def look_of_layers(model: LogSparse) -> dict[str, Any]:
    """The first step of the first series' forecast, in the layers that the paper shows."""
    wanted = [layer for layer in LAYERS if layer <= model.config_.model.layers]
    found = [chosen(model, layer=layer - 1, step=0) for layer in wanted]
    layers = [
        {"layer": layer, "head": head, "weights": plain(look.weights)}
        for layer, (head, look) in zip(wanted, found, strict=True)
    ]
    return {"window": window_of(found[0][1]), "layers": layers}


def look_of_all_positions(model: LogSparse) -> dict[str, Any]:
    """Every position of the first series' window, in the last layer."""
    head, look = chosen(model, layer=model.config_.model.layers - 1, step=None)
    # Row by row up to the position that looks: what lies after it is 0 always.
    rows = [plain(row[: position + 1]) for position, row in enumerate(look.weights)]
    return {"window": window_of(look), "matrix": {"head": head, "weights": rows}}


def whole_matrix(rows: Sequence[Sequence[float]]) -> Floats:
    """(L, J) from its rows up to the position that looks."""
    matrix_LJ = np.zeros((len(rows), len(rows)), np.float32)
    for position, row in enumerate(rows):
        matrix_LJ[position, : len(row)] = row
    return matrix_LJ


def window_of(look: Attention) -> dict[str, Any]:
    """History and mean path, with their times as clocks show them."""
    times = [time.isoformat()[:16] if hasattr(time, "isoformat") else time for time in look.times.to_list()]
    return {"series": look.series, "times": times, "values": plain(look.values), "context": look.context}


def chosen(model: LogSparse, *, layer: int, step: int | None) -> tuple[int, Attention]:
    """The head that the rule names, and its look; a day is the horizon of these sets."""
    looks = [model.attention(layer=layer, head=head, step=step) for head in range(model.config_.model.heads)]
    best = int(np.argmax([farsight(look, model.config_.horizon) for look in looks]))
    return best, looks[best]


def farsight(look: Attention, far: int) -> float:
    """Sum of squared weights on cells at least so far back; of a matrix the mean over the rows that have such cells."""
    if look.step is not None:
        return float(np.square(look.weights[: max(look.context + look.step + 1 - far, 0)]).sum())
    return float(np.square(np.tril(look.weights, -far)[far:]).sum(1).mean())
