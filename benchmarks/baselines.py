"""Every baseline on the paper's solar week -> R0.5, R0.9 and minutes, one row per run in results/baselines_solar.csv.

    LOGSPARSE_DATA=folder python benchmarks/baselines.py [NAME ...]

A row contains all that is needed to repeat the run; a second run of the same model replaces the first. Processor
minutes are summed over all processes and hardly depend on other load on the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

import logsparse as ls
from logsparse.data.files import write
from logsparse.paper.ledger import machine
from logsparse.registry import NAMES, named
from machine import RESULTS

TASK: dict[str, Any] = {"data": "solar_hourly.parquet", "until": "2006-08-31T23:00", "horizon": 24, "windows": 7}
TABLE = RESULTS / "baselines_solar.csv"


def run(name: str, data: Path) -> dict[str, Any]:
    forecaster = named(name, TASK["horizon"])
    settings = {key: value for key, value in vars(forecaster).items() if key not in ("horizon", "verbose")}
    began, worked = time.monotonic(), sum(os.times()[:4])
    results = ls.backtest(forecaster, data, windows=TASK["windows"], until=TASK["until"])
    minutes, cpu_minutes = (time.monotonic() - began) / 60, (sum(os.times()[:4]) - worked) / 60
    scores = ls.score(results).row(0, named=True)
    packages = ("logsparse", *(["statsforecast"] if name in ("arima", "ets") else []))
    return {
        "task": json.dumps(TASK),
        "data_sha256": hashlib.sha256(data.read_bytes()).hexdigest()[:12],
        "model": name,
        "settings": json.dumps(settings),
        "seed": settings.get("seed"),
        "version": " ".join(f"{package} {version(package)}" for package in packages),
        "machine": machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "minutes": round(minutes, 2),
        "cpu_minutes": round(cpu_minutes, 2),
        **{score: round(scores[score], 4) if score in scores else None for score in ("R0.5", "R0.9")},
    }


def main() -> None:
    data = Path(os.environ["LOGSPARSE_DATA"]) / TASK["data"]
    for name in sys.argv[1:] or NAMES:
        row = run(name, data)
        print({key: row[key] for key in ("model", "R0.5", "R0.9", "minutes")}, flush=True)
        kept = pl.read_csv(TABLE).filter(pl.col("model") != name).rows(named=True) if TABLE.exists() else []
        rows = sorted([*kept, row], key=lambda one: list(NAMES).index(one["model"]))
        write(pl.DataFrame(rows, infer_schema_length=None), TABLE)


if __name__ == "__main__":
    main()
