"""A generator -> series of one shape that comes back at uneven distances, with lone spikes as high as its top.

Every series has a shape of its own: what follows a point of it can be told only from where it was seen before. A spike
has the value of the shape's top but not its surroundings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from logsparse.data.calendar import Freq
from logsparse.data.panel import Origin, Panel
from logsparse.data.scale import Doubles

# S series, X steps

CONTEXT, HORIZON = 84, 12
SHAPE = 9
"""Steps of the shape."""
LENGTH = CONTEXT + HORIZON
SIZES = (4000, 300, 200)
_GAPS = (5, 13)
_SPIKES = 0.6
"""Share of the gaps of seven steps and more that have one."""
_NOISE = 0.02

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Shapes:
    """Series, and where in them the tops of the shape and the spikes are."""

    panel: Panel
    tops_SX: Bools
    spikes_SX: Bools


class Sets(NamedTuple):
    """Series to learn from, to validate with, and, their history ending at a top, to look at."""

    training: Shapes
    validation: Shapes
    test: Shapes


def sets(generator: Generator) -> Sets:
    """All series differ."""
    training, validation, test = SIZES
    return Sets(
        shapes(training, generator),
        shapes(validation, generator, first=training),
        shapes(test, generator, first=training + validation, history_ends_at_a_top=True),
    )


def shapes(series: int, generator: Generator, *, first: int = 0, history_ends_at_a_top: bool = False) -> Shapes:
    """So many, with ids from `first` on; windows are cut at random, or where the history ends at the shape's top."""
    cut = [_window(generator, at_top=history_ends_at_a_top) for _ in range(series)]
    values_SX, tops_SX, spikes_SX = (np.stack(part) for part in zip(*cut, strict=True))
    panel = Panel(
        values=values_SX.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * LENGTH,
        lengths=np.full(series, LENGTH),
        ids=tuple(range(first, first + series)),
        starts=np.zeros(series, np.int64),
        freq=Freq("index", 1),
        origin=Origin(time_type="integer"),
    )
    return Shapes(panel, tops_SX, spikes_SX)


def _window(generator: Generator, *, at_top: bool) -> tuple[Doubles, Bools, Bools]:
    """Values, tops and spikes of LENGTH steps out of a series that is longer."""
    while True:
        values, tops, spikes = _series(generator)
        starts = np.arange(len(values) - LENGTH)
        if at_top:
            seen = np.array([spikes[start : start + CONTEXT - SHAPE].any() for start in starts])
            starts = starts[tops[starts + CONTEXT - 1] & seen]
        if len(starts):
            start = int(generator.choice(starts))
            part = slice(start, start + LENGTH)
            return values[part], tops[part], spikes[part]


def _series(generator: Generator) -> tuple[Doubles, Bools, Bools]:
    shape = _shape(generator)
    parts: list[Doubles] = []
    kinds: list[NDArray[np.int_]] = []
    for _ in range(2 * LENGTH // SHAPE):
        gap = int(generator.integers(*_GAPS))
        between, kind = np.zeros(gap), np.zeros(gap, int)
        if gap >= 7 and generator.random() < _SPIKES:
            between[gap // 2], kind[gap // 2] = 1, 2
        parts += [shape, between]
        kinds += [(np.arange(SHAPE) == shape.argmax()).astype(int), kind]
    values, kind = np.concatenate(parts), np.concatenate(kinds)
    noisy = 1 + 3 * values + _NOISE * generator.normal(size=len(values))
    return noisy, kind == 1, kind == 2


def _shape(generator: Generator) -> Doubles:
    """Three waves of random size; from above 0 to 1 at its top, which has neighbours on both sides."""
    x = np.arange(1, SHAPE + 1) * np.pi / (SHAPE + 1)
    while True:
        sizes = np.array([1, 0, 0]) + np.array([0, 0.5, 0.5]) * generator.normal(size=3)
        wave = sizes @ np.sin(np.arange(1, 4)[:, None] * x)
        raised = wave - wave.min() + 0.3
        shape: Doubles = raised / raised.max()
        if 2 <= shape.argmax() < SHAPE - 1:
            return shape
