"""Quantile levels that a user asks for -> the same in rising order, each once; what is no level is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import ConfigError

Levels = Sequence[float] | NDArray[np.floating[Any]]
LEVELS: Levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Quantile levels in rising order, each once."""
    try:
        found = sorted({float(level) for level in levels})
    except (TypeError, ValueError):  # one number, or text
        found = []
    if not found or not all(0 < level < 1 for level in found):
        raise ConfigError(
            "Quantiles must be a list of levels between 0 and 1, both excluded.",
            got=f"{levels}",
            hint="write quantiles=[0.1, 0.5, 0.9].",
        )
    for low, high in pairwise(found):
        if f"{low:g}" == f"{high:g}":
            raise ConfigError(
                "Quantiles must differ in their first six digits, which name their columns.",
                got=f"{low!r} and {high!r}",
                hint="leave one of them out.",
            )
    return tuple(found)
