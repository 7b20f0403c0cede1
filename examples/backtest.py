"""How good would forecasts have been over the last week? A frame in, scores out."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

import logsparse as ls

hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 3, 1), "1h", eager=True)  # noqa: DTZ001
rng = np.random.default_rng(0)
wave = np.sin(np.arange(len(hours)) * 2 * np.pi / 24)
frame = pl.concat(
    pl.DataFrame({"unique_id": name, "ds": hours, "y": level * (2 + wave + 0.1 * rng.normal(size=len(hours)))})
    for name, level in (("north", 10), ("south", 25))
)

results = ls.backtest(ls.SeasonalNaive(horizon=24), frame, windows=7)
print(ls.score(results).select("R0.5", "R0.9", "coverage_80"))
print(ls.score(results, by="unique_id").select("unique_id", "R0.5"))
