"""(t0, number, generator) -> Panel of the paper's piecewise sine waves (section 5.1), whose past tells their future.

Two waves of 12 steps have amplitudes A1 and A2, the rest of the history has A3, and the 24 steps after t0 repeat the
larger of A1 and A2: a model must look back t0 steps to know it. Each step carries noise N(0, 1) around 72.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from logsparse.data.calendar import Freq
from logsparse.data.panel import Origin, Panel
from logsparse.data.scale import Doubles
from logsparse.errors import ConfigError

# S series, X = t0 + 24 steps

HORIZON = 24
SIZES = (4500, 500, 1000)


class Study(NamedTuple):
    """One of the paper's eight sets."""

    training: Panel
    validation: Panel
    test: Panel


def signal(t0: int, amplitudes_S3: Doubles) -> Doubles:
    """The waves without noise, (S, X), for amplitudes A1, A2, A3; at t0 = 24 the third segment is empty."""
    if t0 < 24:
        raise ConfigError(
            "t0 must leave room for the first two waves.", got=f"t0={t0}", hint="use 24, 48, ..., 192 as in the paper."
        )
    x_X = np.arange(t0 + HORIZON)
    segment_X = np.digitize(x_X, (12, 24, t0))
    last_S1 = amplitudes_S3[:, :2].max(axis=1, keepdims=True)
    amplitude_SX = np.concatenate((amplitudes_S3, last_S1), axis=1)[:, segment_X]
    return np.asarray(amplitude_SX * np.sin(np.pi * x_X / np.where(x_X < t0, 6, 12)) + 72)


def synthetic(t0: int, series: int, generator: np.random.Generator) -> Panel:
    """So many series of t0 + 24 steps at integer times 0, 1, ...; amplitudes are drawn first, then the noise."""
    mean_SX = signal(t0, generator.uniform(0, 60, (series, 3)))
    values_SX = mean_SX + generator.standard_normal(mean_SX.shape)
    length = t0 + HORIZON
    return Panel(
        values=values_SX.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * length,
        lengths=np.full(series, length),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq("index", 1),
        origin=Origin(time_type="integer"),
    )


def study(t0: int, generator: np.random.Generator) -> Study:
    """4500 series to train on, 500 to validate with, 1000 to test on, all different and numbered through."""
    panels = [synthetic(t0, size, generator) for size in SIZES]
    begins = np.cumsum((0, *SIZES)).tolist()
    return Study(
        *(replace(panel, ids=tuple(range(*ends))) for panel, ends in zip(panels, pairwise(begins), strict=True))
    )
