"""A change of the default recipe on one set -> its NLL, R0.5, R0.9, wQL, MASE, coverage, minutes: a row of recipe.csv.

    LOGSPARSE_DATA=folder python benchmarks/recipe.py solar --set model.width=64 --why "wider"

The test span is not used: the scores are of as many rolling windows just before it, and training ends before these.
A special week is validated on an earlier one, since the week just before it has no holiday. `--test` uses the test
span; every such use is numbered and listed in docs/RECIPE.md. `--keep` stores the forecasts, so that those of several
runs can be combined afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import logsparse as ls
from logsparse.data.frame import to_panel
from logsparse.data.holidays import holiday_texts
from logsparse.data.panel import Panel
from logsparse.data.times import clock_time, stamps
from logsparse.defaults import recommend
from logsparse.paper.ledger import machine
from logsparse.settings import apply, read_settings
from machine import RESULTS, append_row

TABLE = RESULTS / "recipe.csv"
COLUMNS = ("set", "span", "change", "why", "seed", "nll", "R0.5", "R0.9", "wql", "mase", "coverage_80", "below",
           "dark_80", "minutes", "steps", "parameters", "threads", "version", "machine", "time")  # fmt: skip
LEVELS = tuple(round(0.1 * n, 1) for n in range(1, 10))


@dataclass(frozen=True)
class Task:
    """A set, and the rolling windows of its test and validation spans."""

    file: str
    horizon: int
    windows: int
    until: str | None = None
    """Last step of the test span; the end of the data if left out."""
    validated_until: str | None = None
    """Last step of the validation span; the step before the test span if left out."""


TASKS = {
    "m4": Task("m4_hourly", 48, 1),
    "solar": Task("solar_hourly", 24, 7, "2006-08-31T23:00"),
    "traffic": Task("traffic_c20_hourly", 24, 7),
    "etth1": Task("etth1", 24, 7),
    "solar10": Task("solar_10min", 144, 7),
    "cambridge": Task("cambridge_buildings_2011_hourly", 24, 7, "2014-09-07T23:00"),
    "parking": Task("parking_germany_15min", 96, 7, "2023-12-17T23:45"),
    # The last whole days with forecasts of the wind, which end at noon of 28 June.
    "wind": Task("gefcom2012_wind_hourly", 24, 7, "2012-06-27T23:00"),
    "traffic-thanksgiving": Task("traffic_c20_hourly", 24, 7, "2016-11-27T23:00", "2015-11-29T23:00"),
    "traffic-christmas": Task("traffic_c20_hourly", 24, 7, "2016-12-31T23:00", "2015-12-31T23:00"),
    "cambridge-christmas": Task("cambridge_buildings_2011_hourly", 24, 7, "2014-12-28T23:00", "2013-12-28T23:00"),
    # The data have one Christmas; the week of 3 October, a holiday, comes before every test span.
    "parking-christmas": Task("parking_germany_15min", 96, 7, "2023-12-28T23:45", "2023-10-08T23:45"),
}


def panel_of(task: Task, span: str) -> Panel:
    """Return the set up to the end of its test span, or of the span before it."""
    path = Path(os.environ["LOGSPARSE_DATA"]) / f"{task.file}.parquet"
    wind = task.file == "gefcom2012_wind_hourly"
    whole = to_panel(wind_rows(path), covariates=["wind_speed"]) if wind else to_panel(path)
    if span != "test" and task.validated_until is not None:
        return whole.until(clock_time(whole, task.validated_until))
    if task.until is not None:
        whole = whole.until(clock_time(whole, task.until))
    return whole if span == "test" else whole.cut(whole.lengths - task.horizon * task.windows)


def wind_rows(path: Path) -> pl.DataFrame:
    """Return the power of each wind farm and the wind speed forecast for it, one row per farm and hour with both."""
    wide = pl.read_parquet(path)
    farms = [name for name in wide.columns if name.startswith("wp")]
    speed = {name: f"ws{name.removeprefix('wp')}_fc" for name in farms}
    parts = [wide.select(pl.lit(name).alias("unique_id"), "ds", y=name, wind_speed=speed[name]) for name in farms]
    return pl.concat(parts).drop_nulls("wind_speed")


def scores(results: pl.DataFrame, panel: Panel, task: Task) -> dict[str, Any]:
    """Return the scores, and as `below` the share of values under each of the nine quantiles.

    Nights are exactly 0 and say nothing about intervals: on solar, coverage and `below` count the times of day at which
    a series had sun on any of the 7 days before the windows; coverage of the rest is `dark_80`.
    """
    found: dict[str, Any] = ls.score(results).row(0, named=True)
    counted, found["dark_80"] = results, ""
    if task.file.startswith("solar") and not panel.freq.counts_days:
        results = results.with_columns(time=pl.col("ds").dt.time())
        sunny = _sunny(panel, task)
        counted = results.join(sunny, on=["unique_id", "time"], how="semi").drop("time")
        rest = results.join(sunny, on=["unique_id", "time"], how="anti").drop("time")
        found["coverage_80"], found["dark_80"] = (ls.score(part)["coverage_80"].item() for part in (counted, rest))
    shares = [counted.select((pl.col("y") <= pl.col(f"q{level:g}")).mean()).item() for level in LEVELS]
    found["below"] = json.dumps([round(share, 4) for share in shares])
    return found


def _sunny(panel: Panel, task: Task) -> pl.DataFrame:
    """Return the pairs of series and time of day with a value above 0 within the 7 days before the windows."""
    day = panel.freq.season
    before = panel.cut(panel.lengths - task.horizon * task.windows)
    rows = []
    for i, name in enumerate(before.ids):
        steps = np.arange(int(before.lengths[i]))[-7 * day :]
        times = stamps(before, before.freq.add(np.full_like(steps, before.starts[i]), steps))
        week = pl.DataFrame({"unique_id": [name] * len(steps), "time": times.dt.time(), "y": before[i][-7 * day :]})
        rows.append(week.filter(pl.col("y") > 0).select("unique_id", "time").unique())
    return pl.concat(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--holidays", default=None, help="country, such as US-CA, or none [recognised]")
    parser.add_argument("--context", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--why", default="")
    parser.add_argument("--windows", type=int, default=None, help="before the test span [as many as it has]")
    parser.add_argument("--keep", type=Path, default=None, metavar="FILE", help="parquet file for the forecasts")
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    if args.test and args.windows is not None:
        parser.error("the test span has a fixed number of windows")
    torch.set_num_threads(args.threads)
    task, span = TASKS[args.task], "test" if args.test else "validation"
    panel = panel_of(task, span)
    if args.windows is not None:
        task, span = replace(task, windows=args.windows), f"validation, {args.windows} windows"
    history = panel.cut(panel.lengths - task.horizon * task.windows)
    named = None if args.holidays is None else holiday_texts([] if args.holidays == "none" else args.holidays)
    usual = recommend(history, task.horizon, args.context, named)
    config = apply(usual, read_settings(args.changes))
    if args.minutes is not None:
        config = replace(config, train=replace(config.train, minutes=args.minutes))
    model = ls.LogSparse(task.horizon, config=config, seed=args.seed, samples=args.samples)
    model.fit(history)
    results = ls.backtest(model, panel, windows=task.windows, quantiles=LEVELS)
    if args.keep is not None:
        results.write_parquet(args.keep)
    found = scores(results, panel, task)
    trained = model.history_
    change = [
        *args.changes,
        *([f"holidays={args.holidays}"] if args.holidays else [f"recognised={name}" for name in config.holidays]),
        *([f"context={args.context}"] if args.context else []),
    ]
    row: dict[str, Any] = {
        "set": args.task,
        "span": span,
        "change": json.dumps(change),
        "why": args.why,
        "seed": args.seed,
        "nll": trained.best,
        **{name: found[name] for name in ("R0.5", "R0.9", "wql", "mase", "coverage_80", "below", "dark_80")},
        "minutes": trained.seconds / 60,
        "steps": int(trained.rows[-1]["step"]),
        "parameters": int(np.sum([weight.numel() for weight in model.network_.parameters()])),
        "threads": args.threads,
        "version": f"logsparse {version('logsparse')}",
        "machine": machine(),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
    }
    shown = append_row(TABLE, COLUMNS, row)
    print({name: shown[name] for name in COLUMNS[:12]})


if __name__ == "__main__":
    main()
