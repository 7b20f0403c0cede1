"""Single and short series, model and seed -> wQL, R0.5, MASE, coverage, ratio to simple models: rows of single.csv.

    LOGSPARSE_DATA=folder python benchmarks/single.py --groups etth1-300 solar-daily --models logsparse --set steps=200

A group is a set and a length, such as etth1-300: the model is trained on the last 300 steps before the windows. Sums
of days and weeks have all of the history. The scores are of rolling windows just before the test span, with `--back N`
of N such spans earlier: one span is a week or a few sums, in which the series of a group move together. Rows that the
table has already are skipped; the baselines, seasonal naive and AutoETS, are run first. `--test` uses the test span;
every such use needs a label and is listed in docs/RECIPE.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import logsparse as ls
from logsparse.data.frame import to_panel
from logsparse.paper.ledger import machine
from logsparse.registry import NAMES, named
from logsparse.train.loop import INTERRUPTED
from machine import RESULTS, append_row
from recipe import LEVELS, Task, scores

TABLE = RESULTS / "single.csv"
COLUMNS = ("group", "series", "model", "change", "label", "seed", "span", "wql", "R0.5", "mase", "coverage_80",
           "ratio", "seconds", "note", "version", "machine", "time")  # fmt: skip
KEY = COLUMNS[:7]
BASELINES = ("seasonal-naive", "ets")
NETWORKS = ("logsparse", "deepar", "deepstate")

# A sum is missing if more than this share of its steps is.
_MISSING = 0.1
_M4_SERIES, _M4_HORIZON, _M4_WINDOWS = 20, 48, 4


@dataclass(frozen=True)
class Set:
    """A wide table and which part of it is used."""

    file: str
    series: int
    """Number of series, evenly spaced over the columns."""
    horizon: int
    """Steps of a day."""
    until: str | None
    """Last step used, that of the test span of the panel in recipe.py; the end of the data if left out."""
    weeks: int
    """Number of windows of weekly sums that leave enough history before them."""


SETS = {
    "etth1": Set("etth1", 7, 24, None, 3),
    "traffic": Set("traffic_c20_hourly", 8, 24, None, 3),
    "solar": Set("solar_hourly", 8, 24, "2006-08-31T23:00", 1),
    "cambridge": Set("cambridge_buildings_2011_hourly", 8, 24, "2014-09-07T23:00", 4),
    "parking": Set("parking_germany_15min", 8, 96, "2023-12-17T23:45", 2),
}
LENGTHS = ("full", "1000", "300", "100")
SUMS = {"daily": "1d", "weekly": "1w"}
GROUPS = (*(f"{name}-{kind}" for name in SETS for kind in (*LENGTHS, *SUMS)), "m4")


@dataclass(frozen=True)
class Single:
    """A series, and the rolling windows of its spans: the validation windows end where the test windows begin."""

    group: str
    series: str
    horizon: int
    test_windows: int
    validation_windows: int
    length: int | None = None
    """Number of steps before the first window; all if left out."""
    back: int = 0
    """Spans by which the validation windows lie further back."""

    def windows(self, span: str) -> int:
        """Return the number of windows of a span."""
        return self.test_windows if span == "test" else self.validation_windows

    def ends(self, span: str) -> tuple[int, int]:
        """Return how many steps lie before the first window and before the end of the last; can be negative."""
        later = 0 if span == "test" else self.test_windows + self.back * self.validation_windows
        end = _values(self.group, self.series).height - self.horizon * later
        return end - self.horizon * self.windows(span), end

    def has_history(self, span: str) -> bool:
        """Return True if the length, or else half of what the validation windows have, lies before the windows."""
        needed = self.length or replace(self, back=0).ends("validation")[0] // 2
        return self.ends(span)[0] >= needed

    def rows(self, span: str) -> pl.DataFrame:
        """Return unique_id, ds and y up to the end of the span, from `length` steps before its first window on."""
        known, end = self.ends(span)
        begin = 0 if self.length is None else max(0, known - self.length)
        return _values(self.group, self.series)[begin:end].select(pl.lit(self.series).alias("unique_id"), "ds", "y")


def tasks(groups: Sequence[str] = GROUPS, series: int | None = None) -> Iterator[Single]:
    """Yield the tasks of some groups; of each group the first `series` only."""
    for group in groups:
        name, _, kind = group.partition("-")
        if group == "m4":
            ids = _table("m4_hourly")["unique_id"].unique(maintain_order=True).to_list()
            made = [Single(group, one, _M4_HORIZON, 1, _M4_WINDOWS) for one in _spread(ids, _M4_SERIES)]
        else:
            one_set = SETS[name]
            horizon, windows = {"daily": (14, 4), "weekly": (8, one_set.weeks)}.get(kind, (one_set.horizon, 7))
            length = int(kind) if kind.isdigit() else None
            ids = _spread(_table(one_set.file).columns[1:], one_set.series)
            made = [Single(group, one, horizon, windows, windows, length) for one in ids]
        yield from made[:series]


def _spread(names: Sequence[str], count: int) -> list[str]:
    return [names[place] for place in np.linspace(0, len(names) - 1, count).round().astype(int)]


@lru_cache
def _table(file: str) -> pl.DataFrame:
    return pl.read_parquet(Path(os.environ["LOGSPARSE_DATA"]) / f"{file}.parquet")


def _values(group: str, series: str) -> pl.DataFrame:
    """Return ds and y of a series up to the end of its test span."""
    if group == "m4":
        return _table("m4_hourly").filter(pl.col("unique_id") == series).sort("ds").select("ds", "y")
    name, _, kind = group.partition("-")
    one_set = SETS[name]
    rows = _table(one_set.file).select("ds", y=series)
    if one_set.until is not None:
        rows = rows.filter(pl.col("ds") <= pl.lit(one_set.until).str.to_datetime())
    return _sums(rows, SUMS[kind], one_set.horizon) if kind in SUMS else rows


def _sums(rows: pl.DataFrame, every: str, day: int) -> pl.DataFrame:
    """Return the sums of whole days, or of whole weeks from Monday on; steps that are missing count as the mean."""
    steps = {"1d": day, "1w": 7 * day}[every]
    found = rows.group_by_dynamic("ds", every=every).agg(pl.len(), mean=pl.col("y").mean(), seen=pl.col("y").count())
    y = pl.when(pl.col("seen") >= (1 - _MISSING) * steps).then(pl.col("mean") * steps)
    return found.filter(pl.col("len") == steps).select("ds", y=y)


@dataclass(frozen=True)
class Run:
    """A model, with settings that differ from the default, a label and a seed."""

    model: str
    changes: tuple[str, ...] = ()
    label: str = ""
    seed: int | None = None

    def forecaster(self, horizon: int) -> ls.Forecaster:
        """Return the forecaster, not fitted: the default of the library but for the changes."""
        settings = dict(map(_setting, self.changes))
        if self.model in NETWORKS:
            settings |= {"seed": self.seed, "verbose": False}
        if self.model in ("ets", "arima"):
            settings |= {"processes": 1, "verbose": False}
        return named(self.model, horizon, **settings)

    def key(self, task: Single, span: str) -> dict[str, Any]:
        """Return the columns that identify a row."""
        seed = "" if self.seed is None else self.seed
        values = (task.group, task.series, self.model, json.dumps(self.changes), self.label, seed, span)
        return dict(zip(KEY, values, strict=True))


def _setting(text: str) -> tuple[str, Any]:
    """Return name and value of steps=200 or train.steps=200."""
    name, _, value = text.partition("=")
    try:
        return name.rpartition(".")[2], json.loads(value)
    except json.JSONDecodeError:
        return name.rpartition(".")[2], value


def evaluate(task: Single, runs: Sequence[Run], span: str) -> list[dict[str, Any]]:
    """Return a row per run, without its ratio."""
    torch.set_num_threads(1)
    panel, windows = to_panel(task.rows(span)), task.windows(span)
    rows = []
    for run in runs:
        found, note, before = {}, "", sum(os.times()[:4])
        try:
            model = run.forecaster(task.horizon).fit(panel.cut(panel.lengths - task.horizon * windows))
            if isinstance(model, ls.LogSparse) and model.history_.ended == INTERRUPTED:
                raise SystemExit("interrupted; the rows so far are kept")
            results = ls.backtest(model, panel, windows=windows, quantiles=LEVELS)
            found = scores(results, panel, Task(task.group, task.horizon, windows))
        except ls.DataError as error:  # too short for this model
            note = str(error).splitlines()[0]
        row = {
            **run.key(task, span),
            **{name: found.get(name) for name in ("wql", "R0.5", "mase", "coverage_80")},
            "seconds": sum(os.times()[:4]) - before,
            "note": note,
            "version": f"logsparse {version('logsparse')}",
            "machine": machine(),
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        }
        rows.append(row)
    return rows


class Table:
    """The rows on disk, by their key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {}
        if path.exists():
            with path.open(newline="") as file:
                self.rows = {self._key(row): row for row in csv.DictReader(file)}

    @staticmethod
    def _key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in KEY)

    def row(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row of a run, if it was made."""
        return self.rows.get(self._key(key))

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows, each with its ratio to the better baseline."""
        made = list(rows)
        self.rows |= {self._key(row): row for row in made}
        for row in made:
            wql, best = row["wql"], self._best(row)
            row["ratio"] = wql / best if wql is not None and best else None
            shown = append_row(self.path, COLUMNS, row)
            print(*(f"{name}={shown[name]}" for name in (*KEY[:6], *COLUMNS[7:14]) if shown[name] != ""), flush=True)

    def _best(self, row: dict[str, Any]) -> float | None:
        losses = []
        for model in BASELINES:
            other = self.rows.get(self._key({**row, **Run(model).key(_named_as(row), row["span"])}))
            if other is not None and other["wql"] not in (None, ""):
                losses.append(float(other["wql"]))
        return min(losses, default=None)


def _named_as(row: dict[str, Any]) -> Single:
    return Single(row["group"], row["series"], 1, 1, 1)


def summary(table: Table, chosen: Sequence[Single], runs: Sequence[Run], span: str) -> str:
    """Return per group and over all the median ratio, and the worst, and the mean coverage; each first over seeds."""
    lines = []
    for model, changes, label in dict.fromkeys((run.model, run.changes, run.label) for run in runs):
        same = [run for run in runs if (run.model, run.changes, run.label) == (model, changes, label)]
        lines += ["", " ".join([model, *changes, *([f"({label})"] if label else []), span])]
        lines.append(f"{'group':<18}{'tasks':>6}{'refused':>8}{'ratio':>8}{'worst':>8}{'coverage':>10}{'seconds':>9}")
        found = {task: [row for run in same if (row := table.row(run.key(task, span)))] for task in chosen}
        for group in dict.fromkeys(task.group for task in chosen):
            lines.append(_line(group, [rows for task, rows in found.items() if rows and task.group == group]))
        lines.append(_line("all", [rows for rows in found.values() if rows]))
    return "\n".join(lines)


def _line(name: str, per_task: Sequence[Sequence[dict[str, Any]]]) -> str:
    def means(column: str) -> list[float]:
        values = [[float(row[column]) for row in rows if row[column] not in (None, "")] for rows in per_task]
        return [float(np.mean(one)) for one in values if one]

    refused = len(per_task) - len(means("wql"))
    ratios = [*means("ratio"), *[np.inf] * refused]  # no forecast is worse than any
    numbers = f"{np.median(ratios):>8.3f}{max(ratios):>8.2f}" if ratios else ""
    if covered := means("coverage_80"):
        numbers += f"{100 * np.mean(covered):>9.1f}%{np.mean(means('seconds')):>9.1f}"
    return f"{name:<18}{len(per_task):>6}{refused:>8}{numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP")
    parser.add_argument("--series", type=int, default=None, help="of each group the first ones only")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=["logsparse"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--label", default="", help="what is new in the code, or the number of a look at the test span")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--back", type=int, default=0, help="spans by which the windows lie further back")
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    if args.test and not args.label:
        parser.error("a use of the test span is numbered: give --label 'look N'")
    if args.test and args.back:
        parser.error("the test span has a fixed place")
    span = "test" if args.test else f"validation, {args.back} back" if args.back else "validation"
    shifted = [replace(task, back=args.back) for task in tasks(args.groups, args.series)]
    chosen, table = [task for task in shifted if not args.back or task.has_history(span)], Table(TABLE)
    baselines = [Run(name) for name in BASELINES]
    runs = [
        Run(model, tuple(args.changes), args.label, seed)
        for model in args.models
        if model not in BASELINES
        for seed in (args.seeds if model in NETWORKS else [None])
    ]
    units = [(task, baselines) for task in chosen] + [(task, [run]) for run in runs for task in chosen]
    missing = [(task, new) for task, some in units if (new := [r for r in some if not table.row(r.key(task, span))])]
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
            for rows in pool.map(evaluate, *zip(*((task, new, span) for task, new in missing), strict=True)):
                table.add(rows)
    else:
        for task, new in missing:
            table.add(evaluate(task, new, span))
    print(summary(table, chosen, [*baselines, *runs], span))


if __name__ == "__main__":
    main()
