"""Distances, length, dense first rows -> what each row has received after some layers, and by how many paths.

`Pattern` is the face of these functions. Without dense rows, whether row l hears cell j depends on l - j
alone, so all is worked out on one line of `length` distances, never on a square. Dense rows add one thing: a
row that hears dense row p hears, one layer later, everything before p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]


def received(distances: Sequence[int], length: int, dense_rows: int, layers: int) -> Bools:
    """(L, L): entry [l, j] says whether row l has received cell j after so many layers."""
    crossings = _crossings(distances, length)
    before = after = next(crossings)
    for _ in range(layers):
        before, after = after, next(crossings, after)
    line = np.concatenate([after[::-1], np.zeros(length - 1, bool)])
    cells: Bools = np.lib.stride_tricks.sliding_window_view(line, length)[::-1].copy()
    if dense_rows and layers:
        cells |= np.arange(length) <= _entry(before, dense_rows)[:, None]
    return cells


def layers_until_complete(distances: Sequence[int], length: int, dense_rows: int) -> int | None:
    """The fewest layers after which every row has received its whole past; None if no number will do."""
    rows = np.arange(length)
    before: Bools | None = None
    for layers, after in enumerate(_crossings(distances, length)):
        gap = length if after.all() else int(np.argmin(after))
        complete = rows < gap
        if dense_rows and before is not None:
            complete |= rows - _entry(before, dense_rows) <= gap
        if complete.all():
            return layers
        before = after
    return None


def arrivals(distances: Sequence[int], length: int, dense_rows: int) -> NDArray[np.int_]:
    """For each cell, the number of layers after which the last row has received it; -1 if it never does."""
    layer_of = np.full(length, -1)
    before: Bools | None = None
    for layers, after in enumerate(_crossings(distances, length)):
        heard = after[::-1]
        if dense_rows and before is not None:
            heard = heard | (np.arange(length) <= _entry(before, dense_rows)[-1])
        layer_of[heard & (layer_of < 0)] = layers
        before = after
    return layer_of


def path_to_last(layer_of: NDArray[np.int_], distances: Sequence[int], dense_rows: int, cell: int) -> list[int]:
    """One shortest path from `cell` to the last, given its `arrivals`; short steps first, as in the proof."""
    path = [cell]
    while layer_of[cell] > 0:
        hearers = np.union1d(cell + np.array(distances), np.arange(cell, dense_rows))
        hearers = hearers[hearers < len(layer_of)]
        cell = int(hearers[layer_of[hearers] == layer_of[cell] - 1][0])
        path.append(cell)
    return path


def count_paths(distances: Sequence[int], span: int, dense_cells: int, edges: int) -> int:
    """Paths of exactly so many edges from the first of `span` cells to the last, none of them a self-edge."""
    # Python's own integers: path counts outgrow 64 bits.
    ways = np.zeros(span, dtype=object)
    ways[0] = 1
    for _ in range(edges):
        longer = np.zeros_like(ways)
        for step in distances[1:]:
            longer[step:] += ways[:-step]
        longer[:dense_cells] = np.cumsum(ways[:dense_cells]) - ways[:dense_cells]
        ways = longer
    return int(ways[-1])


def _crossings(distances: Sequence[int], length: int) -> Iterator[Bools]:
    """Which distances information has crossed after 0, 1, 2, ... layers, while anything can change."""
    after = np.zeros(length, bool)
    after[0] = True
    yield after
    after = after.copy()
    after[list(distances)] = True
    while True:
        yield after
        before, after = after, after.copy()
        for step in distances[1:]:
            after[step:] |= before[: length - step]
        if (before == after).all():
            # Dense rows lag by one layer: what reached them last is passed on in one layer more.
            yield after
            return


def _entry(before: Bools, dense_rows: int) -> NDArray[np.int_]:
    """For each row the latest dense row it hears by way of the distances in `before`; negative if none."""
    rows = np.arange(len(before))
    crossed = np.where(before, rows, len(before))
    next_crossed = np.minimum.accumulate(crossed[::-1])[::-1]
    entry: NDArray[np.int_] = rows - next_crossed[np.maximum(rows - dense_rows + 1, 0)]
    return entry
