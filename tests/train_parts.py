"""What test_share runs under torchrun, and alone: fit folders of parts, print what was learned, or the error."""

from __future__ import annotations

import json
import os
import resource
import sys

import logsparse as ls

rank = int(os.environ.get("RANK", "0"))
for job in json.loads(sys.argv[1]):
    found = {"rank": rank, "name": job["name"]}
    try:
        model = ls.LogSparse(**job["settings"], verbose=False).fit(job["folder"], **job.get("fit", {}))
    except ls.LogsparseError as error:
        found["refused"] = f"{type(error).__name__}: {error}"
    else:
        found |= {
            "rows": model.history_.rows,
            "config": json.loads(json.dumps(model.config_.to_dict())),
            "features": model.features_.to_dict(),
            "known": model.series_index_.to_dict(),
            "calibration": str(model.calibration_),
            "panel": repr(model.panel_),
        }
        if rank == 0 and "save" in job:
            model.save(job["save"])
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # One write per line: the other rank writes to the same pipe.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
