"""Two versions of logsparse -> seconds of their forecasts, and the accuracy of the quantiles of this version.

    LOGSPARSE_DATA=folder python benchmarks/forecast.py --reference other/.venv/bin/python --deepar third/bin/python

Networks are the defaults, hardly trained, since time does not depend on training. The reference draws 100 paths, its
default; this version draws as many as it needs, or none (`direct`). `m4` is M4-Hourly, 414 series, 48 steps; `backtest`
735 windows of 96 quarter hours; `many` 10,000 series of 500 hours, 24 steps (the reference forecasts some of them, and
rates are compared); `one` a single series. The error is that of the 0.1 and 0.9 quantiles of `m4` after some minutes of
training, against 10,000 paths: RMS, in widths of the 80 % interval. GluonTS's DeepAR alternates with them on `m4`,
with 200 paths, and its error is computed in the same way; it needs a python with gluonts. With `--threads 1`,
processor time is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

import logsparse as ls
from logsparse.data.calendar import Freq
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.data.sampler import Pairs
from logsparse.defaults import recommend
from logsparse.model.decode import Sampling, sample
from logsparse.train.batches import windows_of
from machine import fair_clock, write_result

# S series, Q levels, H horizon

PATHS, MANY = 100, 10_000
# Series of `many` that the reference forecasts; the error is computed on every n-th series of `m4`.
PART, EVERY = 500, 20
CASES = ("m4", "backtest", "many", "one")


def waves(series: int, steps: int, freq: str) -> Panel:
    """Return noisy series with daily and weekly waves of different sizes."""
    rng, step = np.random.default_rng(0), np.arange(steps)
    day = 96 if freq == "15min" else 24
    shape = 3 + np.sin(step * 2 * np.pi / day) + 0.5 * np.sin(step * 2 * np.pi / (7 * day))
    values = rng.uniform(1, 50, (series, 1)) * shape + 3 * rng.normal(size=(series, steps))
    return Panel(
        values=values.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * steps,
        lengths=np.full(series, steps),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq.parse(freq),
    )


def m4() -> Panel:
    whole = to_panel(Path(os.environ["LOGSPARSE_DATA"]) / "m4_hourly.parquet")
    return whole.cut(whole.lengths - 48)


def fitted(panel: Panel, horizon: int, context: int, minutes: float | None = None, **settings: Any) -> ls.LogSparse:
    """Train the default network for two steps, or some minutes."""
    config = recommend(panel, horizon, context)
    if minutes is None:
        train = replace(config.train, windows=None, epochs=1, steps_per_epoch=2, batch=8, validation_windows=8)
        config = replace(config, train=train)
    return ls.LogSparse(horizon, config=config, minutes=minutes, verbose=False, **settings).fit(panel)


class Case(NamedTuple):
    """A timed case: a number of series or windows, and their model."""

    model: ls.LogSparse
    run: Callable[[], Any]
    series: int


def cases_of(settings: dict[str, Any], part: int) -> dict[str, Case]:
    hours, quarters, many = m4(), waves(105, 1500, "15min"), waves(10_000, 500, "h")
    of_m4, of_many = fitted(hours, 48, 168, **settings), fitted(waves(16, 500, "h"), 24, 168, **settings)
    of_quarters = fitted(quarters.cut(quarters.lengths - 7 * 96), 96, 336, **settings)
    return {
        "m4": Case(of_m4, of_m4.predict, len(hours)),
        "backtest": Case(of_quarters, partial(ls.backtest, of_quarters, quarters, windows=7), 7 * len(quarters)),
        "many": Case(of_many, partial(of_many.predict, first(many, part)), part),
        "one": Case(of_many, partial(of_many.predict, first(many, 1)), 1),
    }


def first(panel: Panel, series: int) -> Panel:
    """Return the first series of a panel."""
    end = int(panel.indptr[series])
    return replace(
        panel,
        values=panel.values[:end],
        indptr=panel.indptr[: series + 1],
        lengths=panel.lengths[:series],
        ids=panel.ids[:series],
        starts=panel.starts[:series],
    )


def serve(version: str) -> None:
    """Read names of cases and methods, one per line, and print seconds per series."""
    cases = cases_of({"samples": PATHS}, PART) if version == "reference" else cases_of({}, 10_000)
    clock = fair_clock()
    print("ready", flush=True)
    for line in sys.stdin:
        name, method = line.split()
        case = cases[name]
        case.model.config_ = replace(case.model.config_, method=method)  # type: ignore[arg-type]
        begin = clock()
        case.run()
        print(json.dumps((clock() - begin) / case.series), flush=True)


class Version:
    """A process that forecasts with one version."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self._line()

    @staticmethod
    def of(python: str, version: str, threads: int) -> Version:
        return Version([python, __file__, "--serve", version, "--threads", str(threads)])

    def seconds(self, case: str, method: str = "two-way") -> float:
        """Return the seconds per series or window."""
        return self.ask(f"{case} {method}")

    def ask(self, line: str) -> float:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return float(json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a version exited early; see its output above")
        return line


def deepar(python: str, minutes: float, threads: int, folder: str) -> Version | None:
    """Return a process with GluonTS's DeepAR, trained, or None if gluonts is not installed."""
    hours, series = m4(), Path(folder) / "series.npz"
    np.savez(series, values=hours.values, lengths=hours.lengths)
    script = Path(__file__).with_name("gluonts_deepar.py")
    settings = ["--minutes", str(minutes), "--threads", str(threads), "--every", str(EVERY)]
    rival = Version([python, str(script), str(series), *settings])
    if rival.first.startswith("missing"):
        print(f"DeepAR is left out: {python} has no gluonts ({rival.first.strip()}); --deepar names one that has")
        return None
    return rival


def compared(
    reference: str, rounds: int, threads: int, cases: Iterable[str], rival: Version | None
) -> list[dict[str, Any]]:
    """Measure both versions in every round; return the best round of each."""
    then, now = Version.of(reference, "reference", threads), Version.of(sys.executable, "this", threads)
    rows = []
    for case in cases:
        then.seconds("one"), now.seconds("one")  # warm-up
        found: dict[str, list[float]] = {"reference": [], "this": [], "direct": []}
        for _ in range(rounds):
            found["reference"].append(then.seconds(case))
            found["this"].append(now.seconds(case))
            found["direct"].append(now.seconds(case, "direct"))
            if rival is not None and case == "m4":
                found.setdefault("gluonts deepar", []).append(rival.ask("seconds"))
        best = {name: min(times) for name, times in found.items()}
        rows += [
            {"case": case, "way": name, "threads": threads, "milliseconds_a_series": 1e3 * seconds,
             "series_a_second": 1 / seconds, "times_the_reference": best["reference"] / seconds}
            for name, seconds in best.items()
        ]  # fmt: skip
    for version in (then, now):
        version.process.communicate()
    return rows


def errors(minutes: float) -> list[dict[str, Any]]:
    """Return the error with the default number of paths, for the default levels and for extreme ones."""
    hours = m4()
    model = fitted(hours, 48, 168, minutes)
    windows = windows_of(model.series_index_.encode(hours), model.features_, model.config_)
    chosen = np.arange(0, len(hours), EVERY)

    def quantiles(paths: int, seed: int, levels: tuple[float, ...]) -> Any:
        ask = Sampling(paths=paths, levels=levels, method=model.method, seed=seed, keep_paths=False)
        return sample(model.network_, windows, Pairs(chosen, hours.lengths[chosen]), ask).quantiles_WQH

    rows = []
    for tail in (0.1, 0.05, 0.01):
        levels = (tail, 1 - tail) if tail == 0.1 else (tail, 0.1, 0.9, 1 - tail)
        true_SQH = np.mean([quantiles(MANY // 10, seed, levels) for seed in range(1, 11)], axis=0)
        paths = model.network_.paths_needed(levels, model.method)
        width_SH = true_SQH[:, levels.index(0.9)] - true_SQH[:, levels.index(0.1)]
        away_SQH = (quantiles(paths, 0, levels) - true_SQH) / np.maximum(width_SH, 1e-9)[:, None]
        low, high = np.sqrt(np.mean(away_SQH[:, [0, -1]] ** 2, axis=(0, 2))).tolist()
        rows.append({"case": "m4", "levels": [tail, 1 - tail], "paths": paths, "rms_error": [low, high]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", help="python with the other version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="training before the error is measured; 0: not measured"
    )
    parser.add_argument("--deepar", default=sys.executable, help="python with gluonts")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.serve:
        serve(args.serve)
        return
    if args.reference is None:
        parser.error("--reference is needed: the python of a worktree at another version.")
    cases = args.cases.split(",")
    with TemporaryDirectory() as folder:
        rival = deepar(args.deepar, args.minutes or 1.0, args.threads, folder) if "m4" in cases else None
        rows = compared(args.reference, args.rounds, args.threads, cases, rival)
        if rival is not None:
            row = {"case": "m4", "way": "gluonts deepar", "levels": [0.9], "paths": 200}
            rows.append({**row, "rms_error": [rival.ask("error")]})
            rival.process.communicate()
    rows += errors(args.minutes) if args.minutes else []
    for row in rows:
        print(json.dumps(row))
    print(f"wrote {write_result('forecast', rows).name}")


if __name__ == "__main__":
    main()
