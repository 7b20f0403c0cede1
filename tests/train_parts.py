"""What test_share runs under torchrun, and alone: fit a folder of parts, print losses, settings and peak memory."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import logsparse as ls

folder, out, asked = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
columns = asked.pop("columns", {})
until, run = asked.pop("until", None), asked.pop("run", None)
try:
    model = ls.LogSparse(**asked, verbose=False).fit(folder, until=until, folder=run, **columns)
except ls.DataError as error:
    sys.stdout.write(f"refused {os.environ.get('RANK', '0')} {error}\n")
    sys.exit(2)
rank = int(os.environ.get("RANK", "0"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
report = {
    "rank": rank,
    "peak": peak,
    "rows": model.history_.rows,
    "config": model.config_.to_dict(),
    "features": model.features_.to_dict(),
    "known": model.series_index_.to_dict(),
    "calibration": str(model.calibration_),
    "weights": {name: float(weight.double().abs().sum()) for name, weight in model.network_.state_dict().items()},
}
# One write per line: the other rank writes to the same pipe.
sys.stdout.write(json.dumps(report, default=str) + "\n")
sys.stdout.flush()
if rank == 0:
    model.save(out)
