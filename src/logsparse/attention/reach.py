"""Distances of a pattern -> what a row has received after some layers.

Without dense rows, whether row l has received cell j depends on l - j alone, so one line of distances stands for the
square of cells. A row that has received dense row p receives, one layer later, everything before p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# numpy is imported where it is used, as in attention/pattern.
Bools: TypeAlias = "NDArray[np.bool_]"
Numbers: TypeAlias = "NDArray[np.int_]"


def crossings(distances: Sequence[int], length: int) -> Iterator[Bools]:
    """Yield which distances information has crossed after 0, 1, 2, ... layers, until nothing changes."""
    import numpy as np

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
            # Dense rows lag by one layer: what reached them last is passed on in the next one.
            yield after
            return


def entry(before: Bools, dense_rows: int) -> Numbers:
    """Return, per row, the latest dense row received by way of the distances in `before`; negative if none."""
    import numpy as np

    rows = np.arange(len(before))
    crossed = np.where(before, rows, len(before))
    next_crossed = np.minimum.accumulate(crossed[::-1])[::-1]
    latest: Numbers = rows - next_crossed[np.maximum(rows - dense_rows + 1, 0)]
    return latest
