"""Forked processes are refused with a clear error instead of hanging; spawned and forkserver ones forecast the same."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
import small
from logsparse.baselines.naive import SeasonalNaive

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="no fork there"),
    # Python 3.12 and later warn of a fork in a process with threads, which is what is tested here.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
REFUSED = r"^logsparse must not run in a fork of .*: their threads are lost. Got the forked process \d+. Hint: start"


def predict(folder: Path, frame: pl.DataFrame) -> Any:
    return ls.load(folder).predict(frame)


def predict_as_loaded(model: ls.Forecaster) -> Any:
    return model.predict()


def fit(frame: pl.DataFrame) -> Any:
    return SeasonalNaive(3).fit(frame).predict()


def done_in(method: str, work: Callable[..., Any], *arguments: Any, seconds: float = 120) -> Any:
    """What a process started by this method answers; one that never answers is an error too."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply_async(work, arguments).get(timeout=seconds)


@pytest.fixture
def model(hourly: pl.DataFrame) -> ls.LogSparse:
    config = small.config({"lags": (1, 5)}, epochs=1)
    return ls.LogSparse(6, config=config, samples=20, verbose=False).fit(hourly)


def test_work_in_a_forked_process_is_refused_and_does_not_hang(
    model: ls.LogSparse, hourly: pl.DataFrame, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    for work, arguments in (
        (predict, (tmp_path / "model", hourly)),
        (predict_as_loaded, (model,)),
        (fit, (hourly,)),
        (ls.to_panel, (hourly,)),
    ):
        with pytest.raises(ls.ConfigError, match=REFUSED):
            done_in("fork", work, *arguments, seconds=20)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_or_forkserver_process_forecasts_the_same(
    method: str, model: ls.LogSparse, hourly: pl.DataFrame, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    found = done_in(method, predict, tmp_path / "model", hourly)
    assert_frame_equal(found, model.predict(hourly), check_exact=True)


FIT_IN_A_FORK = """
import multiprocessing
import polars as pl
import logsparse as ls
frame = {"unique_id": ["a"] * 20, "ds": list(range(20)), "y": [float(i % 7) for i in range(20)]}
def fit():
    return ls.SeasonalNaive(3, season=7).fit(pl.DataFrame(frame)).predict()["mean"].to_list()
BEFORE
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.apply_async(fit).get(timeout=60))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("pass", r"[6.0, 0.0, 1.0]"),
        ("pl.DataFrame(frame).lazy().select(pl.col('y').sum()).collect()", "ConfigError: logsparse must not run"),
    ],
    ids=["nothing", "polars"],
)
def test_a_fork_is_refused_only_if_the_pools_had_threads_before_it(before: str, expected: str) -> None:
    script = textwrap.dedent(FIT_IN_A_FORK).replace("BEFORE", before)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200)
    assert expected in done.stdout + done.stderr
