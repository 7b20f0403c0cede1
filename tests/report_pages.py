"""Helpers of the tests of the report: small result frames, and a forecaster with all diagnostics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

import logsparse as ls
from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.panel import Panel
from logsparse.pictures import new_figure

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


class LastWeeks(SeasonalNaive):
    """The mean of the last seven seasons, with made-up training losses."""

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> ls.Forecast:
        naive = super()._forecast(panel, levels)
        season = self.season_
        days_SP = [panel[i][-7 * season :].reshape(7, season).mean(axis=0) for i in range(len(panel))]
        mean_SH = np.stack([np.resize(day_P, self.horizon) for day_P in days_SP])
        return ls.Forecast(panel, mean_SH, levels, naive.quantiles + (mean_SH - naive.mean)[:, None])

    def diagnostics(self) -> ls.Diagnostics:
        figure, axes = new_figure()
        axes.imshow(np.arange(48).reshape(4, 12), aspect="auto")
        axes.set_xlabel("steps back")
        losses = [
            {"step": 10 * i, "seconds": 1.0 * i, "nll": 2 / i, "validation_nll": 2 / i + 0.02 * i} for i in range(1, 20)
        ]
        settings = {"horizon": self.horizon, "config": {"model": {"layers": 3}}, "note": "<b>bold</b>"}
        return ls.Diagnostics(settings, losses, figure)


def hours(series: int = 5, days: int = 20) -> pl.DataFrame:
    """Hourly series with a daily wave, each noisier than the one before."""
    rng = np.random.default_rng(0)
    begin = datetime(2024, 1, 1)  # noqa: DTZ001
    times = pl.datetime_range(begin, begin.replace(day=1 + days), "1h", eager=True, closed="left")
    wave = 10 + 5 * np.sin(np.arange(len(times)) * 2 * np.pi / 24)
    return pl.concat(
        pl.DataFrame({"unique_id": f"s{i}", "ds": times, "y": wave + (i + 1) * 0.3 * rng.normal(size=len(times))})
        for i in range(series)
    )


def results(series: int = 3, windows: int = 2, horizon: int = 4, **columns: Any) -> pl.DataFrame:
    """A random result frame at integer times, with any column replaced or (None) left out."""
    rng = np.random.default_rng(0)
    count = series * windows * horizon
    quantiles = np.sort(rng.normal(5, 1, (count, len(LEVELS))), axis=1)
    cutoff = np.tile(np.repeat(np.arange(windows) * horizon, horizon), series)
    frame = pl.DataFrame(
        {
            "unique_id": np.repeat([f"s{i}" for i in range(series)], windows * horizon),
            "ds": cutoff + np.tile(np.arange(horizon) + 1, series * windows),
            "cutoff": cutoff,
            "y": rng.normal(5, 1, count),
            "mean": rng.normal(5, 1, count),
            **{f"q{level:g}": quantiles[:, i] for i, level in enumerate(LEVELS)},
            "seasonal_naive": rng.normal(5, 2, count),
            "seasonal_error": np.repeat(rng.uniform(0.5, 2, series), windows * horizon),
        }
    )
    gone = [name for name, column in columns.items() if column is None]
    return frame.with_columns(**{name: c for name, c in columns.items() if c is not None}).drop(gone)


def models(**frames: pl.DataFrame) -> pl.DataFrame:
    """Results of several models as one frame."""
    named = (frame.with_columns(model=pl.lit(name)) for name, frame in frames.items())
    return pl.concat(named, how="diagonal")


def nearer(frame: pl.DataFrame, share: float) -> pl.DataFrame:
    """The same results with all forecasts moved towards y."""
    y, forecasts = pl.col("y"), [name for name in frame.columns if name == "mean" or name.startswith("q")]
    return frame.with_columns((y + (1 - share) * (pl.col(name) - y)).alias(name) for name in forecasts)
