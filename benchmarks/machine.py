"""The machine -> the columns that identify a result, its copy bandwidth, the peak memory of a piece of work."""

from __future__ import annotations

import csv
import json
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from logsparse.paper.ledger import machine

RESULTS = Path(__file__).parent / "results"


def append_row(table: Path, columns: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Append a row to a CSV file, which is created if missing; return the row as written."""
    shown = {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()}
    new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(shown)
    return shown


def write_result(theme: str, rows: list[dict[str, Any]]) -> Path:
    """Write one JSON file per run, named theme_machine_date."""
    now = datetime.now(UTC)
    versions = {name: version(name) for name in ("logsparse", "torch", "polars", "numpy")}
    path = RESULTS / f"{theme}_{machine()}_{now:%Y-%m-%d}.json"
    RESULTS.mkdir(exist_ok=True)
    head = {"theme": theme, "machine": machine(), "time": f"{now:%Y-%m-%dT%H:%MZ}", "versions": versions}
    path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    return path


def fair_clock() -> Callable[[], float]:
    """Return the clock: with one thread, processor time, which other load hardly affects."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def measured_copy(mebibytes: int = 256) -> float:
    """Return bytes read plus bytes written per second, best of ten copies."""
    clock = fair_clock()
    source = torch.ones(mebibytes * 2**18)
    target = torch.ones_like(source)
    best = float("inf")
    for _ in range(10):
        start = clock()
        target.copy_(source)
        best = min(best, clock() - start)
    return 2 * source.numel() * 4 / best


def peak_of(work: Callable[[], object]) -> int:
    """Return the bytes by which the process grows at its peak while `work` runs."""
    before = psutil.Process().memory_info().rss
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak, for example that of the imports
    except OSError:
        status = Path()
    work()
    if status.is_file() and (found := re.search(r"VmHWM:\s*(\d+)", status.read_text())):
        return int(found.group(1)) * 1024 - before
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
