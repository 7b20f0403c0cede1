"""Series that are larger than memory, in a folder of parts: seconds and peak memory of a fit and of a forecast of all.

    python benchmarks/mapped.py --series 20000 --steps 10000

The panel is read part by part into a temporary file. Anonymous memory is what the process holds beside files; a limit
(`--limit`, in GiB) ends it with an error where it would hold more. The training is short: only time and memory matter.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

import logsparse as ls
from logsparse.data import frame
from logsparse.data.mapped import is_mapped
from machine import write_result

HORIZON, ROWS_OF_PART = 24, 1_000_000


def write_parts(folder: Path, series: int, steps: int) -> None:
    """Write daily waves of different sizes, a part at a time; the same for the same numbers."""
    folder.mkdir(parents=True)
    hours = np.arange(steps)
    wave = 2 + np.sin(hours * np.pi / 12)
    times = np.datetime64("2020-01-01", "us") + hours.astype("timedelta64[h]")
    at_once = max(1, ROWS_OF_PART // steps)
    for begin in range(0, series, at_once):
        ids = np.arange(begin, min(begin + at_once, series))
        rng = np.random.default_rng([0, begin])
        values = rng.lognormal(3, 1, (len(ids), 1)) * (wave + 0.2 * rng.standard_normal((len(ids), steps)))
        table = {"unique_id": np.repeat(ids, steps), "ds": np.tile(times, len(ids)), "y": values.ravel()}
        pl.DataFrame(table, schema_overrides={"y": pl.Float32}).write_parquet(folder / f"part-{begin:09}.parquet")


class Peak:
    """The largest anonymous memory of this process while a block runs, looked at 20 times a second."""

    def __enter__(self) -> Self:
        self.bytes, self._ended = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self.bytes = max(self.bytes, anonymous())


def anonymous() -> int:
    """Return the bytes of memory that are not those of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


def timed(work: Callable[[], Any], what: str, row: dict[str, Any]) -> Any:
    """Run the work; add its seconds and its peak to the row."""
    began = time.perf_counter()
    with Peak() as peak:
        found = work()
    row |= {f"{what}_seconds": round(time.perf_counter() - began, 1), f"{what}_peak_mib": round(peak.bytes / 2**20)}
    print(row, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--limit", type=float, help="GiB of private memory (ulimit -d)")
    parser.add_argument("--folder", type=Path, help="where to write the parts [a temporary folder]")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="logsparse-mapped-", dir=args.folder))
    try:
        write_parts(place / "parts", args.series, args.steps)
        if args.limit:
            limit = int(args.limit * 2**30)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        frame._MOST_MEMORY = 0  # noqa: SLF001 - also where there would be enough memory
        row: dict[str, Any] = {"series": args.series, "steps": args.steps, "limit_gib": args.limit}
        row["values_mib"] = round(args.series * args.steps * 4 / 2**20)
        row["parts_mib"] = round(sum(path.stat().st_size for path in (place / "parts").iterdir()) / 2**20)
        row["before_mib"] = round(anonymous() / 2**20)
        panel = timed(lambda: ls.to_panel(place / "parts"), "read", row)
        assert is_mapped(panel.values)
        model = ls.LogSparse(
            HORIZON, steps=20, layers=2, width=32, validation_windows=64, method="direct", verbose=False
        )
        timed(lambda: model.fit(panel), "fit", row)
        found = timed(lambda: model.predict(panel), "predict", row)
        assert found.height == HORIZON * args.series
        print(f"wrote {write_result(f'mapped-{args.series}', [row]).name}")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
