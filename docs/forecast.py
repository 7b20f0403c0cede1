"""The data of the README -> docs/forecast.svg and .json: `python docs/forecast.py`, 20 seconds of one core.

The model has all default settings, so the work is fixed. It is then tested on the 100 days after its data:
about 80 % of their values must lie between the quantiles 0.1 and 0.9, or the script fails.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import torch

import logsparse as ls
from logsparse.pictures import save_figure

DAYS = 100
HERE = Path(__file__).parent

torch.set_num_threads(1)
hours = np.arange("2024-01-01", "2024-06-09", dtype="datetime64[h]").astype("datetime64[us]")
wave = 10 + 5 * np.sin(np.arange(len(hours)) * np.pi / 12) + np.random.default_rng(0).normal(size=len(hours))
frame = pl.DataFrame({"unique_id": "north", "ds": hours, "y": wave})

model = ls.LogSparse(horizon=24).fit(frame.head(len(frame) - 24 * DAYS))
save_figure(model.forecast().plot(), HERE / "forecast.svg")

scores = ls.score(ls.backtest(model, frame, windows=DAYS))
coverage = scores["coverage_80"].item()
(HERE / "forecast.json").write_text(json.dumps({"days": DAYS, "coverage_80": round(coverage, 4)}) + "\n")
print(f"{100 * coverage:.1f} % of the values of {DAYS} days lie between the quantiles 0.1 and 0.9")
if not 0.75 <= coverage <= 0.85:
    raise SystemExit("The picture shows a model that is not calibrated.")
