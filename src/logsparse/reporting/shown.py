"""Results -> the few series and windows that a report has room to draw, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.columns import CUTOFF, ID, NAIVE, TARGET, TIME
from logsparse.metrics import MEAN
from logsparse.reporting.numbers import Results

# H steps of a window, Q quantile levels

# Steps of a series that can be told apart on a page.
STEPS_SHOWN = 720

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """What was forecast at one cutoff, and what came."""

    times: NDArray[Any]
    truth_H: Doubles
    quantiles_QH: Doubles
    mean_H: Doubles | None
    naive_H: Doubles | None


@dataclass(frozen=True)
class Shown:
    """A series to draw: which one it is among all, its error, and its windows from old to new."""

    role: str
    name: Any
    error: float | None
    windows: list[Window]
    of_windows: int


def shown_series(results: Results) -> list[Shown]:
    """The best, the median and the worst series; fewer where there are fewer."""
    ranked = results.by_series
    count = ranked[results.ranking].drop_nulls().len()
    roles = {0: "Best", (count - 1) // 2: "Median", count - 1: "Worst"}
    if count == 1:
        roles = {0: "The only"}
    elif count == 2:
        roles = {0: "Best", 1: "Worst"}
    return [_shown(results, role, *ranked.select(ID, results.ranking).row(place)) for place, role in roles.items()]


def _shown(results: Results, role: str, name: Any, error: float | None) -> Shown:
    rows = results.table.filter(pl.col(ID) == name).sort(CUTOFF, TIME)
    parts = rows.partition_by(CUTOFF, maintain_order=True)
    return Shown(role, name, error, [_window(results, part) for part in _apart(parts)], len(parts))


def _apart(parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The newest windows that do not overlap, as many as there is room for; of a very long one, every so many steps."""
    kept: list[pl.DataFrame] = []
    room = STEPS_SHOWN
    for part in reversed(parts):
        if kept and (part.height > room or part[TIME].max() >= kept[-1][TIME].min()):  # type: ignore[operator]
            continue
        kept.append(part)
        room -= part.height
    return [part.gather_every(-(-part.height // STEPS_SHOWN)) for part in reversed(kept)]


def _window(results: Results, part: pl.DataFrame) -> Window:
    def numbers(name: str) -> Doubles:
        values = part[name].cast(pl.Float64).to_numpy().astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    return Window(
        _on_the_wall(part[TIME]).to_numpy(),
        numbers(TARGET),
        np.array([numbers(name) for name in results.levels]).reshape(len(results.levels), part.height),
        numbers(MEAN) if MEAN in part.columns else None,
        numbers(NAIVE) if results.with_naive else None,
    )


def _on_the_wall(times: pl.Series) -> pl.Series:
    """Times of a zone as its clocks show them: a chart knows no zones."""
    return times.dt.replace_time_zone(None) if isinstance(times.dtype, pl.Datetime) else times


def when(time: Any) -> str:
    """A time as people write it, without seconds that are none."""
    text = str(time)
    return text[:16] if text[16:] in (":00", ":00.000000") else text
