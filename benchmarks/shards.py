"""Hourly series through `logsparse shard` and `logsparse predict --jobs`: rates, memory of all processes, disk.

    python benchmarks/shards.py                        all sizes; writes the rows and the cost section of docs/scale.md
    python benchmarks/shards.py --divide 100 --try     sizes a hundredth as large; writes nothing

The network is the default one, hardly trained: only time and memory matter here. The first rows give the constants of
the cost model, the last two check it. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import psutil

import logsparse as ls
from machine import write_result
from mapped import write_parts

HORIZON = 24
# Series, steps, jobs: almost nothing but the start; one process; two; longer series; and the two that check the model.
SIZES = ((20, 500, 1), (10_000, 500, 1), (10_000, 500, 2), (2_500, 2_000, 1), (10_000, 2_000, 2), (100_000, 500, 2))
METHOD = "two-way"
NEW_LINE = "\n"  # not allowed within the braces of an f-string before Python 3.12
BEGIN, END = "<!-- cost: benchmarks/shards.py writes this -->\n", "<!-- end of cost -->\n"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


class Watched:
    """A command with all its processes: seconds, peak of their memory together, processor time of the caller."""

    def __init__(self, *arguments: object) -> None:
        began = time.perf_counter()
        self.peak, self.caller_seconds = 0, 0.0
        with tempfile.TemporaryFile("w+") as shown:
            command = [sys.executable, "-m", "logsparse", *map(str, arguments)]
            process = subprocess.Popen(command, stdout=shown, stderr=shown)
            ended = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(process.pid, ended))
            watcher.start()
            code = process.wait()
            self.seconds = time.perf_counter() - began
            ended.set()
            watcher.join()
            shown.seek(0)
            assert code == 0, shown.read()

    def _watch(self, pid: int, ended: threading.Event) -> None:
        caller = psutil.Process(pid)
        while not ended.wait(0.1):
            total = 0
            try:
                spent = caller.cpu_times()
                self.caller_seconds = spent.user + spent.system
                processes = [caller, *caller.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak = max(self.peak, total)


def measured(model: Path, place: Path, series: int, steps: int, jobs: int) -> dict[str, Any]:
    """Make the series, shard them and forecast them."""
    data, parts, out = (place / f"{name}-{series}-{steps}-{jobs}" for name in ("data", "parts", "out"))
    write_parts(data, series, steps)
    # As many for each worker: with few parts, one more would let all but one wait for it.
    count = jobs * ceil(series * steps / 1_000_000 / jobs)
    sharded = Watched("shard", data, "-o", parts, "--parts", count)
    done = Watched("predict", model, parts, "-o", out, "--jobs", jobs, "--method", METHOD)
    row = {
        "series": series,
        "steps": steps,
        "jobs": jobs,
        "method": METHOD,
        "parts": len(list(parts.glob("*.parquet"))),
        "shard_seconds": round(sharded.seconds, 2),
        "shard_peak_mib": round(sharded.peak / 2**20),
        "predict_seconds": round(done.seconds, 2),
        "series_per_second": round(series / done.seconds, 1),
        "predict_peak_mib": round(done.peak / 2**20),
        "caller_seconds": round(done.caller_seconds, 2),
        "parts_mib": round(_size(parts) / 2**20, 1),
        "results_mib": round(_size(out) / 2**20, 1),
    }
    print(row, flush=True)
    return row


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Cost:
    """The cost model: seconds, MiB of memory and of disk for a number of series, steps and workers."""

    start: float
    """Seconds before the first part."""
    series: float
    """Seconds of one worker per series."""
    step: float
    """Seconds of one worker per step of a series."""
    efficiency: float
    """Rate per worker beside another, relative to that of one alone."""
    caller: float
    """Seconds of the caller per step: it reads and checks parts, and writes results."""
    shard: float
    """Seconds of `shard` per step."""
    base_mib: float
    worker_mib: float
    step_bytes: float
    result_bytes: float

    @classmethod
    def of(cls, rows: list[dict[str, Any]]) -> Cost:
        """Fit the constants of time and memory of workers to the first four rows, the others to the largest."""
        start, one, two, longer, *_, large = rows
        begin = start["predict_seconds"]
        per_series = [(row["predict_seconds"] - begin) / row["series"] for row in (one, longer)]
        step = max((per_series[1] - per_series[0]) / (longer["steps"] - one["steps"]), 0.0)
        alone, beside = (row["predict_seconds"] - begin for row in (one, two))
        worker = two["predict_peak_mib"] - one["predict_peak_mib"]
        cells = large["series"] * large["steps"]
        return cls(
            start=begin,
            series=per_series[0] - step * one["steps"],
            step=step,
            efficiency=alone / beside / 2,
            caller=max(large["caller_seconds"] - start["caller_seconds"], 0.01) / cells,
            shard=max(large["shard_seconds"] - start["shard_seconds"], 0.01) / cells,
            base_mib=one["predict_peak_mib"] - worker,
            worker_mib=worker,
            step_bytes=large["parts_mib"] * 2**20 / cells,
            result_bytes=large["results_mib"] * 2**20 / large["series"],
        )

    def predict_seconds(self, series: int, steps: int, workers: int) -> float:
        """Return the time of `predict`: that of the workers, or of the caller if it is the slower."""
        per_worker = self.series + self.step * steps
        work = series * per_worker / workers / (self.efficiency if workers > 1 else 1)
        return self.start + max(work, self.caller * series * steps)

    def most_workers(self, steps: int) -> int:
        """Return the number of workers that one caller keeps busy."""
        return int((self.series + self.step * steps) / (self.caller * steps) / self.efficiency)

    def shard_seconds(self, series: int, steps: int) -> float:
        return self.shard * series * steps

    def memory_gib(self, workers: int) -> float:
        return (self.base_mib + workers * self.worker_mib) / 1024

    def disk_gib(self, series: int, steps: int) -> float:
        return series * (self.step_bytes * steps + self.result_bytes) / 2**30


def section(rows: list[dict[str, Any]], machine: str, version: str) -> str:
    """Return the section of the page that holds figures."""
    cost = Cost.of(rows)
    alone, large = rows[1], rows[-1]
    table = [
        f"| {row['series']:,} | {row['steps']:,} | {row['jobs']} | {row['shard_seconds']:.1f} | "
        f"{row['predict_seconds']:.1f} | {row['series_per_second']:,.0f} | {row['predict_peak_mib'] / 1024:.2f} | "
        f"{row['parts_mib'] + row['results_mib']:,.0f} |"
        for row in rows[1:]
    ]
    checks = []
    for row in rows[4:]:
        said, took = cost.predict_seconds(row["series"], row["steps"], row["jobs"]), row["predict_seconds"]
        size = f"{row['series']:,} series, {row['steps']:,} steps, {row['jobs']} workers"
        checks.append(f"| {size} | {said:.0f} | {took:.0f} | {said / took - 1:+.0%} |")
    plans = []
    for name, workers, memory in (
        ("2 workers, as measured", 2, f"{cost.memory_gib(2):.1f}"),
        ("one machine, 32 workers", 32, f"{cost.memory_gib(32):.0f}"),
        ("10 nodes of 32 workers, Ray", 320, f"{cost.memory_gib(32):.0f} per node"),
    ):
        seconds, before = cost.predict_seconds(10**6, 500, workers), cost.shard_seconds(10**6, 500)
        plans.append(f"| {name} | {before / 60:.0f} | {seconds / 60:.1f} | {10**6 / seconds:,.0f} | {memory} |")
    micro = {name: 1e6 * getattr(cost, name) for name in ("series", "step", "caller", "shard")}
    times = large["series_per_second"] / alone["series_per_second"]
    return f"""
Measured on {machine}, logsparse {version}: hourly series, the default network and method, a horizon of {HORIZON}.
Memory is that of all processes together.

| series | steps | workers | `shard`, s | `predict`, s | series/s | memory, GiB | disk, MiB |
|---:|---:|---:|---:|---:|---:|---:|---:|
{NEW_LINE.join(table)}

Two workers with {large["series"]:,} series have {times:.2f} times the rate of one worker with {alone["series"]:,}.

With S series of T steps and W workers:

```text
shard, seconds      {micro["shard"]:.2f}e-6 S T
predict, seconds    {cost.start:.1f} + max(workers, caller)
    workers         S ({micro["series"]:.0f}e-6 + {micro["step"]:.2f}e-6 T) / (W e)
        e           {cost.efficiency:.2f}, or 1 if W is 1
    caller          {micro["caller"]:.3f}e-6 S T
memory, MiB         {cost.base_mib:.0f} + {cost.worker_mib:.0f} W, for parts of a million rows
disk, bytes         S ({cost.step_bytes:.1f} T + {cost.result_bytes:.0f})
```

The last two rows check the time of the workers, whose constants are those of the other rows:

| size | model, s | measured, s | difference |
|---|---:|---:|---:|
{NEW_LINE.join(checks)}

A million series of 500 steps, by the model:

| on | `shard`, min | `predict`, min | series/s | memory, GiB |
|---|---:|---:|---:|---:|
{NEW_LINE.join(plans)}

Their parts and results take {cost.disk_gib(10**6, 500):.1f} GiB; while `shard` runs, the parts are there twice.

Where it is not linear:

- The start, {cost.start:.0f} s, is most of the time of a few thousand series.
- With fewer than a few parts per worker, some workers wait for the last part.
- One caller keeps about {cost.most_workers(500):,} workers busy with series of 500 steps. More need several
  calls, each with a folder of its own.
- `shard` is one process. A table that is written in parts from the start, each series whole in one, does not need it.
- The efficiency of 32 workers on one machine is assumed to be that of two; they share its memory bandwidth.

"""


def write_page(result: Path) -> None:
    """Replace the figures of the page by those of a file of results."""
    found, text = json.loads(result.read_text()), PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    figures = section(found["rows"], found["machine"], found["versions"]["logsparse"])
    PAGE.write_text(text[:begin] + figures + text[end:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--divide", type=int, default=1, help="divide the numbers of series by this")
    parser.add_argument("--try", dest="only_try", action="store_true", help="write nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_parts(place / "few", 200, 500)
        model = ls.LogSparse(HORIZON, steps=20, validation_windows=64, verbose=False).fit(place / "few")
        model.save(place / "model")
        sizes = [(max(20, series // args.divide), steps, jobs) for series, steps, jobs in SIZES]
        rows = [measured(place / "model", place, *size) for size in sizes]
    print(section(rows, "this machine", ls.__version__))
    if not args.only_try:
        result = write_result("shards", rows)
        write_page(result)
        print(f"wrote {result.name} and {PAGE.name}")


if __name__ == "__main__":
    main()
