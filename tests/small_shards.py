"""Small folders of parts and models that tests of shards share, and jobs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logsparse as ls

PARTS = 8


def frame(series: int = 40, days: int = 10) -> pl.DataFrame:
    """Hourly waves with noise, in the order of time, as a nightly export has them."""
    hours = np.arange(24 * days)
    rng = np.random.default_rng(0)
    wave_SL = 20 + 5 * np.sin(hours * np.pi / 12) + rng.normal(size=(series, len(hours)))
    times = np.datetime64("2024-01-01", "us") + hours * np.timedelta64(3_600_000_000, "us")
    return pl.DataFrame(
        {
            "unique_id": np.tile([f"meter_{i}" for i in range(series)], len(hours)),
            "ds": np.repeat(times, series),
            "y": wave_SL.T.ravel(),
        }
    )


def naive(place: Path) -> Path:
    """Save a model that ends three days before the data."""
    ls.SeasonalNaive(horizon=24).fit(frame(), until="2024-01-07 23:00").save(place)
    return place


def network(place: Path) -> Path:
    """Save a network whose forecasts take a while if they are drawn from many samples."""
    small = ls.LogSparse(24, context=48, steps=2, layers=1, width=8, heads=2, kernel=2, batch=4, verbose=False)
    small.fit(frame()).save(place)
    return place


def contents(folder: Path) -> dict[str, bytes]:
    """The parts of a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def entries(out: Path) -> set[str]:
    """The parts that the ledger has as done."""
    return {path.stem for path in (out / "_ledger" / "done").glob("*.json")}


@contextmanager
def command(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process group of its own, which does not outlive the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "logsparse", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A disk of this size."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "logsparse-test", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs Linux and the right to mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def wait_for_entries(out: Path, count: int, process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Wait until so many parts are done, or the process has ended."""
    limit = time.monotonic() + seconds
    while len(entries(out)) < count and process.poll() is None:
        assert time.monotonic() < limit, "no progress"
        time.sleep(0.005)
