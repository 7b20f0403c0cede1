"""Quantile levels that a user asks for -> the same in rising order, each once; what is no level is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import ConfigError, shown

Levels = Sequence[float] | NDArray[np.floating[Any]]
LEVELS: Levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# A tail of a millionth: the name of its column tells it from 0 and 1, and float32 holds its draws.
_OUTERMOST = 1e-6


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Quantile levels in rising order, each once."""
    try:
        found = sorted({float(level) for level in levels})
    except (TypeError, ValueError, OverflowError):  # one number, or text, or a number of 400 digits
        found = []
    if not found or not all(0 < level < 1 for level in found):
        raise ConfigError(
            "Quantiles must be a list of levels between 0 and 1, both excluded.",
            got=shown(levels),
            hint="write quantiles=[0.1, 0.5, 0.9].",
        )
    if found[0] < _OUTERMOST or found[-1] > 1 - _OUTERMOST:
        raise ConfigError(
            "Quantile levels must lie between 0.000001 and 0.999999.",
            got=f"{found[0] if found[0] < _OUTERMOST else found[-1]!r}",
            hint="ask for a level that the data can tell of, such as 0.001 or 0.999.",
        )
    for low, high in pairwise(found):
        if f"{low:g}" == f"{high:g}":
            raise ConfigError(
                "Quantiles must differ in their first six digits, which name their columns.",
                got=f"{low!r} and {high!r}",
                hint="leave one of them out.",
            )
    return tuple(found)
