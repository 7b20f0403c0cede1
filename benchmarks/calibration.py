"""Rows of recipe.csv -> a calibration chart: share of values below each quantile, one panel per data set.

Uses all seeds of the newest trial of each set.

python benchmarks/calibration.py            # test spans; --span validation for the others
"""

from __future__ import annotations

import argparse
import csv
import json

from matplotlib.figure import Figure

from logsparse.pictures import FORECAST, INK, save_figure
from machine import RESULTS
from recipe import LEVELS, TABLE

TITLES = {"m4": "M4-Hourly", "solar": "solar, by day", "traffic": "traffic-c20-hourly", "etth1": "etth1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--span", choices=("test", "validation"), default="test")
    args = parser.parse_args()
    with TABLE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["span"] == args.span and row["below"]]
    rows = [row for row in rows if row["change"] == "[]"]
    shown = [name for name in TITLES if any(row["set"] == name for row in rows)]
    figure = Figure(figsize=(2.6 * len(shown), 2.9), layout="constrained")
    panels = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
        held = [row for row in rows if row["set"] == name]
        held = [row for row in held if row["why"] == held[-1]["why"]]
        for row in held:
            axes.plot(LEVELS, json.loads(row["below"]), color=FORECAST, linewidth=1.2, marker="o", markersize=3)
        mean = sum(float(row["coverage_80"]) for row in held) / len(held)
        axes.set_title(f"{TITLES[name]}: 80 % hold {100 * mean:.0f} %", loc="left", fontsize=9)
        axes.set_xlabel("quantile")
        axes.set_aspect("equal")
    panels[0].set_ylabel("share of the truth below it")
    save_figure(figure, RESULTS / f"calibration_{args.span}.svg")


if __name__ == "__main__":
    main()
