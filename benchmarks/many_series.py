"""50,000 series of 500 steps, from a parquet file to a frame of quantiles: seconds and peak memory.

The network is small and hardly trained, on the first 200 series: only time and memory matter here.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import logsparse as ls
from logsparse import presets
from machine import peak_of, write_result

STEPS, HORIZON, SAMPLES = 500, 24, 20


def write_series(path: Path, series: int) -> None:
    """Return daily waves of different sizes, one row per series and hour."""
    rng = np.random.default_rng(0)
    hours = np.arange(STEPS)
    wave = 2 + np.sin(hours * np.pi / 12)
    size = rng.lognormal(3, 1, (series, 1))
    values = (size * (wave + 0.2 * rng.normal(size=(series, STEPS)))).astype(np.float32)
    stamps = np.datetime64("2024-01-01", "us") + hours.astype("timedelta64[h]")
    pl.DataFrame(
        {"unique_id": np.repeat(np.arange(series), STEPS), "ds": np.tile(stamps, series), "y": values.ravel()}
    ).write_parquet(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=50_000)
    args = parser.parse_args()
    base = presets.default(96, HORIZON)
    train = replace(base.train, epochs=1, steps_per_epoch=20, validation_windows=64)
    config = replace(base, model=replace(base.model, layers=2, width=32, kernel=3), train=train)
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.parquet", Path(folder) / "many.parquet"
        write_series(few, 200)
        write_series(many, args.series)
        model = ls.LogSparse(horizon=HORIZON, config=config, samples=SAMPLES).fit(few)
        found: list[pl.DataFrame] = []
        begin = time.perf_counter()
        peak = peak_of(lambda: found.append(model.predict(many)))
    seconds = time.perf_counter() - begin
    row = {
        "series": args.series,
        "steps": STEPS,
        "horizon": HORIZON,
        "samples": SAMPLES,
        "rows_out": len(found[0]),
        "seconds": round(seconds, 1),
        "series_per_second": round(args.series / seconds, 1),
        "peak_mib": round(peak / 2**20),
        "values_mib": round(args.series * STEPS * 4 / 2**20),
        "result_mib": round(found[0].estimated_size() / 2**20),
    }
    print(row)
    print(f"wrote {write_result('many-series', [row]).name}")


if __name__ == "__main__":
    main()
