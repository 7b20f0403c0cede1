"""A default network -> its scores with the methods two-way and direct, with few and many paths, as rows.

    LOGSPARSE_DATA=folder python benchmarks/methods.py solar models/solar

The network is loaded from that folder, or trained as in recipe.py and saved there. It is scored on the test span: every
use of the test span is a numbered row in docs/LOG.md.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

import logsparse as ls
from logsparse.defaults import recommend
from logsparse.paper.experiment import known_by
from logsparse.paper.ledger import machine
from machine import RESULTS, append_row, fair_clock
from recipe import LEVELS, TASKS, panel_of, scores

TABLE = RESULTS / "methods.csv"
COLUMNS = ("set", "method", "samples", "seed", "R0.5", "R0.9", "wql", "mase", "coverage_80", "seconds", "config",
           "data", "threads", "version", "machine", "time")  # fmt: skip
# Number of paths; None: as many as needed.
WAYS = (("direct", None), ("two-way", 5), ("two-way", 10), ("two-way", 20), ("two-way", None), ("two-way", 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    task, clock = TASKS[args.task], fair_clock()
    panel = panel_of(task, "test")
    history = panel.cut(panel.lengths - task.horizon * task.windows)
    if not args.folder.exists():
        ls.LogSparse(task.horizon, config=recommend(history, task.horizon, None)).fit(history).save(args.folder)
    model = ls.load(args.folder, verbose=False)
    assert isinstance(model, ls.LogSparse)
    known = known_by(model, history, history, panel)
    config = {name: value for name, value in known.config.items() if name not in ("method", "samples")}
    for method, samples in WAYS:
        model.method, model.samples = method, samples  # type: ignore[assignment]
        begin = clock()
        results = ls.backtest(model, panel, windows=task.windows, quantiles=LEVELS)
        seconds = clock() - begin
        found = scores(results, panel, task)
        row = {
            "set": args.task,
            "method": method,
            "samples": "" if samples is None else samples,
            "seed": model.seed,
            **{name: found[name] for name in ("R0.5", "R0.9", "wql", "mase", "coverage_80")},
            "seconds": seconds,
            "config": json.dumps(config),
            "data": known.data,
            "threads": args.threads,
            "version": f"logsparse {version('logsparse')}",
            "machine": machine(),
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        }
        shown = append_row(TABLE, COLUMNS, row)
        print({name: shown[name] for name in COLUMNS[:10]}, flush=True)


if __name__ == "__main__":
    main()
