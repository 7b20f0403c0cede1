"""One set -> the error of the default if only the last 1, 3, 12, ... steps of each series are known: rows of a CSV.

    LOGSPARSE_DATA=folder python benchmarks/short_histories.py solar --model folder --label "before"

The model is trained once on whole histories before the test span (or loaded, if the folder has one) with a context
of 168 steps; the forecasts of the test span then see that many steps and nothing before them.
"""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import torch

import logsparse as ls
from logsparse.paper.ledger import machine
from machine import RESULTS, append_row
from recipe import TASKS, panel_of

TABLE = RESULTS / "short_histories.csv"
COLUMNS = ("set", "label", "steps", "context", "seed", "R0.5", "R0.9", "coverage_80", "naive_R0.5", "training_steps",
           "threads", "version", "machine", "time")  # fmt: skip
CONTEXT = 168
STEPS = (1, 3, 12, 24, 48, 168)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("solar", "traffic"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task = TASKS[args.task]
    panel = panel_of(task, "test")
    history = panel.cut(panel.lengths - task.horizon * task.windows)
    if not args.model.exists():
        ls.LogSparse(task.horizon, context=CONTEXT, seed=args.seed).fit(history).save(args.model)
    model = ls.load(args.model)
    assert isinstance(model, ls.LogSparse)
    wide = pl.read_parquet(Path(os.environ["LOGSPARSE_DATA"]) / f"{task.file}.parquet")
    if task.until is not None:
        wide = wide.filter(pl.col("ds") <= pl.lit(task.until).str.to_datetime())
    rows = wide.unpivot(index="ds", variable_name="unique_id", value_name="y").select("unique_id", "ds", "y")
    naive = ls.score(ls.backtest(ls.SeasonalNaive(task.horizon), rows, windows=task.windows))["R0.5"].item()
    last = wide.height - task.horizon * task.windows
    for steps in STEPS:
        parts = []
        for window in range(task.windows):
            end = last + window * task.horizon
            known = wide[end - steps : end]["ds"]
            past = rows.filter(pl.col("ds").is_between(known[0], known[-1]))
            # The frequency cannot be inferred from one step; the model knows it.
            forecast = model.predict(past)
            parts.append(forecast.with_columns(cutoff=pl.lit(known[-1])).join(rows, on=["unique_id", "ds"]))
        found = ls.score(pl.concat(parts)).row(0, named=True)
        row: dict[str, Any] = {
            "set": args.task,
            "label": args.label,
            "steps": steps,
            "context": CONTEXT,
            "seed": args.seed,
            "R0.5": found["R0.5"],
            "R0.9": found["R0.9"],
            "coverage_80": found["coverage_80"],
            "naive_R0.5": naive,
            "training_steps": int(model.history_.rows[-1]["step"]),
            "threads": args.threads,
            "version": f"logsparse {version('logsparse')}",
            "machine": machine(),
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        }
        print(append_row(TABLE, COLUMNS, row))


if __name__ == "__main__":
    main()
