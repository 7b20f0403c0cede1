"""A wide parquet file of the size of electricity-f -> time and peak memory of loading it, against plain polars.

Each measurement runs in a fresh process; the two alternate, and the best time of several counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from machine import write_result

SERIES, STEPS, REPEATS = 370, 129_120, 7

POLARS = "import polars as pl; table = pl.read_parquet(path); size = table.estimated_size()"
OURS = "from logsparse.data.frame import to_panel; panel = to_panel(path); size = panel.nbytes"
MEASURE = """
import json, re, sys, time
from pathlib import Path
path = sys.argv[1]
def peak_bytes():  # of this process alone: ru_maxrss starts at that of the parent
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
import numpy, polars, logsparse.data.frame
polars.DataFrame({{"a": [1.0]}}).lazy().select(polars.col("a") + 1).collect()
before = peak_bytes()
begin = time.perf_counter()
{work}
seconds = time.perf_counter() - begin
print(json.dumps({{"seconds": seconds, "peak_bytes": peak_bytes() - before, "size": size}}))
"""


def make(path: Path) -> None:
    """Return loads of customers: a daily wave, a level and noise, with two decimals."""
    rng = np.random.default_rng(0)
    wave = 1 + 0.5 * np.sin(np.arange(STEPS) * 2 * np.pi / 96)
    times = pl.datetime_range(pl.datetime(2011, 1, 1, 0, 15), pl.datetime(2014, 9, 7), "15m", eager=True)
    columns = {
        f"MT_{i + 1:03d}": (rng.lognormal(3, 1) * wave * rng.gamma(20, 0.05, STEPS)).round(2).astype(np.float32)
        for i in range(SERIES)
    }
    pl.DataFrame({"ds": times[:STEPS], **columns}).write_parquet(path, compression="zstd")


def measure(work: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(work=work), str(path)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.parquet"
        make(path)
        runs: dict[str, list[dict[str, float]]] = {"polars": [], "logsparse": []}
        for _ in range(REPEATS):
            runs["polars"].append(measure(POLARS, path))
            runs["logsparse"].append(measure(OURS, path))
    best = {name: min(run["seconds"] for run in found) for name, found in runs.items()}
    peak = {name: float(np.median([run["peak_bytes"] for run in found])) for name, found in runs.items()}
    panel_bytes = runs["logsparse"][0]["size"]
    rows = [
        {"what": name, "series": SERIES, "steps": STEPS, "best_seconds": best[name], "peak_bytes": peak[name]}
        for name in runs
    ]
    ratios = {
        "what": "ratios",
        "time_to_polars": best["logsparse"] / best["polars"],
        "peak_beyond_polars_in_panels": (peak["logsparse"] - peak["polars"]) / panel_bytes,
        "panel_bytes": panel_bytes,
    }
    for name in runs:
        print(f"{name:<10} {best[name]:.3f} s  peak {peak[name] / 2**20:.0f} MiB")
    print(f"time      {ratios['time_to_polars']:.2f} of polars (at most 1.5)")
    print(f"memory    polars' peak + {ratios['peak_beyond_polars_in_panels']:.2f} panels (at most 1.2)")
    print(f"wrote {write_result('load', [*rows, ratios]).name}")


if __name__ == "__main__":
    main()
