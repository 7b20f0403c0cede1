"""How to forecast series that the model has not seen in training: one frame to fit, another to predict."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

import logsparse as ls

hours = pl.datetime_range(datetime(2024, 1, 1), datetime(2024, 2, 1), "1h", eager=True)  # noqa: DTZ001
rng = np.random.default_rng(0)


def shop(name: str, level: float) -> pl.DataFrame:
    """Return the customers of a shop: more by day, more in larger shops."""
    wave = 2 + np.sin(np.arange(len(hours)) * 2 * np.pi / 24)
    return pl.DataFrame({"unique_id": name, "ds": hours, "y": level * wave + rng.normal(size=len(hours))})


known = pl.concat([shop("north", 10), shop("south", 25), shop("west", 40)])
model = ls.LogSparse(horizon=24, minutes=0.1, samples=50).fit(known)

# Only two days of the new shop are known: its forecast relies on what all shops have in common.
opened = shop("east", 60).tail(48)
print(model.predict(opened, quantiles=[0.1, 0.5, 0.9]).head(8))
