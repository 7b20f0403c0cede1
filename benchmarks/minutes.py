"""Default settings and data of several steps -> minutes of one core that a training takes, and its ratio to hours.

    LOGSPARSE_DATA=folder python benchmarks/minutes.py

Steps of the training and one validation are timed, and multiplied by how many of them the training has.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch

import logsparse as ls
from logsparse.paper.ledger import machine
from logsparse.process import kept_memory
from logsparse.train.loop import Training
from machine import write_result

_WARM_UP, _TIMED = 4, 24

# Name -> file, horizon, what a step is made of, and the number of series; None: all.
DATA: dict[str, tuple[str, int, str | None, int | None]] = {
    "hours, 20 series": ("traffic_c20_hourly", 24, None, None),
    "half hours, 77 series": ("parking_germany_15min", 48, "30m", None),
    "quarter hours, 77 series": ("parking_germany_15min", 96, None, None),
    "ten minutes, 137 series": ("solar_10min", 144, None, None),
    "five minutes, 118 series": ("traffic_pems_orange_5min", 288, None, None),
    "days, 45 series": ("cambridge_buildings_2011_hourly", 14, "1d", None),
    "hours, 1 series": ("traffic_c20_hourly", 24, None, 1),
    "quarter hours, 1 series": ("parking_germany_15min", 96, None, 1),
}
REFERENCE = "hours, 20 series"


def rows_of(file: str, every: str | None, series: int | None) -> pl.DataFrame:
    """Return a wide table, as it is or as means of longer steps."""
    wide = pl.read_parquet(Path(os.environ["LOGSPARSE_DATA"]) / f"{file}.parquet")
    wide = wide if series is None else wide[:, : 1 + series]
    return wide if every is None else wide.group_by_dynamic("ds", every=every).agg(pl.exclude("ds").mean())


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median processor time."""
    found = []
    for _ in range(times):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return statistics.median(found)


def measure(name: str) -> dict[str, Any]:
    """Time steps of the default training."""
    file, horizon, every, series = DATA[name]
    model = ls.LogSparse(horizon, verbose=False)
    plan = model.plan(ls.to_panel(rows_of(file, every, series)))
    network = model._network(plan.config, len(plan.data.features), plan.known, plan.panel.freq)  # noqa: SLF001
    network.initialise(torch.Generator().manual_seed(0))
    training = Training(network, plan.data, plan.config.train, seed=0, verbose=False)
    with kept_memory():
        seconds(training.learn, _WARM_UP)
        step, validation = seconds(training.learn, _TIMED), seconds(training.validate, 2)
    config = plan.config
    return {
        "data": name,
        "horizon": horizon,
        "context": config.context,
        "batch": config.train.batch,
        "steps": plan.steps,
        "parameters": plan.parameters,
        "minutes": (plan.steps * step + math.ceil(plan.steps / training.validate_every) * validation) / 60,
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = [measure(name) for name in DATA]
    reference = next(row["minutes"] for row in rows if row["data"] == REFERENCE)
    print(f"{machine()}, one core\n{'data':<28}{'context':>8}{'batch':>7}{'steps':>7}{'minutes':>9}{'ratio':>7}")
    for row in rows:
        row["ratio"] = row["minutes"] / reference
        shown = f"{row['context']:>8}{row['batch']:>7}{row['steps']:>7}{row['minutes']:>9.1f}{row['ratio']:>7.2f}"
        print(f"{row['data']:<28}{shown}")
    print(write_result("minutes", rows))


if __name__ == "__main__":
    main()
