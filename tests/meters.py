"""Hours of some meters, healthy or with a few last values replaced."""

from __future__ import annotations

import numpy as np
import polars as pl

HOURS = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 21), "1h", eager=True, closed="left")


def frame_of(*names: str, zone: str | None = None) -> pl.DataFrame:
    """Return 20 days of these meters, each with a noise of its own: meter, ds, y."""
    rng = np.random.default_rng(0)
    wave = 10 + 4 * np.sin(np.arange(len(HOURS)) * 2 * np.pi / 24)
    return pl.concat(
        pl.DataFrame({"meter": name, "ds": HOURS.dt.replace_time_zone(zone), "y": wave + rng.normal(0, 0.5, len(wave))})
        for name in names
    )


def changed(frame: pl.DataFrame, name: str, value: float | None, last: int) -> pl.DataFrame:
    """Return the frame with `value` in the last steps of one meter."""
    there = (pl.col("meter") == name) & (pl.col("ds") >= HOURS[-last])
    return frame.with_columns(y=pl.when(there).then(value).otherwise("y"))
