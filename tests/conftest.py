"""What several tests share: the real data beside the checkout, and small frames."""

from __future__ import annotations

import os
from pathlib import Path

# Two test workers with two threads each would wait for one another; set before torch starts its threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

# The machine may be busy: a slow example is no failure. Everything else stays strict.
settings.register_profile("logsparse", deadline=None, derandomize=True)
settings.load_profile("logsparse")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; a machine without it skips, a wrong path fails."""
    folder = os.environ.get("LOGSPARSE_DATA")
    if folder is None:
        pytest.skip("LOGSPARSE_DATA is not set: this test needs the real data sets")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"LOGSPARSE_DATA names {path}, which is not a folder")
    return path


@pytest.fixture
def hourly() -> pl.DataFrame:
    """Two series of hours: b starts a day later, is shorter, and comes first in the rows."""
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 8), "1h", eager=True, closed="left")
    wave = 10 + 5 * np.sin(np.arange(len(times)) * 2 * np.pi / 24)
    a = pl.DataFrame({"unique_id": "a", "ds": times, "y": wave})
    b = pl.DataFrame({"unique_id": "b", "ds": times[24:120], "y": 100 * wave[24:120]})
    return pl.concat([b, a])
