"""Lengths, patterns, widths -> time and peak memory of attention: native, shifted, masked SDPA, causal SDPA.

One process, contenders alternate, best of several runs. native gets channel-first memory, the layout of a convolution's
output, and, as "native rows", row-major memory; SDPA gets row-major memory, on which it is fastest. Peak memory is
measured in a fresh process per point. Prints tables, writes one JSON file and one picture to results/. With one thread,
processor time is measured, which other load on the machine hardly affects.

    python benchmarks/attention.py [--quick] [--longest 65536] [--threads 2]
"""

# B batch, H heads, L length, D head width

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from logsparse.attention.attend import attend
from logsparse.attention.pattern import Pattern, local, logsparse, restart
from logsparse.paper.ledger import machine
from logsparse.pictures import save_figure
from machine import RESULTS, fair_clock, measured_copy, peak_of

LENGTHS = (192, 768, 1536, 4096, 8192, 16384, 32768, 65536)
HEADS = 8
COLOURS = {
    "native, logsparse": "#c02942",
    "native, local": "#e08a1e",
    "native, restart": "#7a4fb0",
    "shifted": "#2f8f5b",
    "causal SDPA": "#1f4fd8",
    "masked SDPA": "#5b6470",
}
CONTENDERS = ("native", "native rows", "shifted", "masked SDPA")
Run = Callable[[], object]


def patterns(length: int) -> dict[str, Pattern]:
    return {"logsparse": logsparse(), "local": local(7), "restart": restart(length // 8)}


def batch_of(length: int) -> int:
    return 4 if length <= 8192 else 1


def leaves(batch: int, length: int, width: int, *, rows: bool) -> list[Tensor]:
    """q, k, v and an incoming gradient, (B, H, L, D); row-major or channel-first in memory."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, HEADS, length, width) if rows else (batch, HEADS, width, length)
    made = [torch.randn(shape, generator=generator) for _ in range(4)]
    return [(x if rows else x.mT).detach().requires_grad_(index < 3) for index, x in enumerate(made)]


def forward_of(contender: str, pattern: Pattern, inputs: list[Tensor]) -> Callable[[], Tensor]:
    q, k, v, _ = inputs
    if contender == "causal SDPA":
        return lambda: sdpa(q, k, v, is_causal=True)
    if contender == "masked SDPA":
        mask = torch.from_numpy(pattern.mask(q.shape[2]))
        return lambda: sdpa(q, k, v, attn_mask=mask)
    return lambda: attend(q, k, v, pattern, backend=contender.split(maxsplit=1)[0])


def both_passes(forward: Callable[[], Tensor], inputs: list[Tensor]) -> Run:
    return lambda: torch.autograd.grad(forward(), inputs[:3], inputs[3])


def without_gradient(forward: Callable[[], Tensor]) -> Run:
    def run() -> object:
        with torch.no_grad():
            return forward()

    return run


def reason_to_skip(contender: str, pattern: Pattern, batch: int, length: int) -> str | None:
    """Return why a point is left out: more than half of the free memory, or minutes per run."""
    many = contender == "masked SDPA" or (contender == "shifted" and len(pattern.distances(length)) > 64)
    if length > 16384 and many:
        return "minutes a run"
    if contender == "masked SDPA":
        need = 5 * length**2  # a bool mask, and its float copy
    elif contender == "shifted":
        need = 20 * batch * HEADS * length * len(pattern.distances(length))
    else:
        return None
    free = psutil.virtual_memory().available
    return None if need < free / 2 else f"needs about {need / 2**30:.0f} GiB, {free / 2**30:.0f} free"


def best_times(runs: dict[Any, Run], budget: float) -> dict[Any, float]:
    """Return the best seconds of each; contenders alternate until each has used its time, at least two short runs."""
    clock, order = fair_clock(), random.Random(0)  # noqa: S311 - not for cryptography
    best = dict.fromkeys(runs, math.inf)
    spent, count = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0)
    while waiting := [r for r in runs if spent[r] < budget or (count[r] < 2 and spent[r] < 5)]:
        order.shuffle(waiting)  # in a fixed order, whatever follows a long run would be at a disadvantage
        for key in waiting:
            start = clock()
            runs[key]()
            took = clock() - start
            best[key] = min(best[key], took)
            spent[key] += took
            count[key] += 1
    return best


def measure_times(length: int, width: int, budget: float, copy_rate: float) -> list[dict[str, Any]]:
    """Return one row per contender and pattern at one length and width."""
    batch = batch_of(length)
    inputs = {rows: leaves(batch, length, width, rows=rows) for rows in (True, False)}
    runs: dict[Any, Run] = {}
    skipped = []
    points = [("causal SDPA", "full", logsparse())]
    points += [(c, name, p) for name, p in patterns(length).items() for c in CONTENDERS]
    for contender, name, pattern in points:
        about = {"length": length, "batch": batch, "width": width, "pattern": name, "contender": contender}
        if reason := reason_to_skip(contender, pattern, batch, length):
            skipped.append({**about, "skipped": reason})
            continue
        mine = inputs[contender != "native"]
        forward = forward_of(contender, pattern, mine)
        runs[contender, name, "forward"] = without_gradient(forward)
        runs[contender, name, "both"] = both_passes(forward, mine)
    best = best_times(runs, budget)
    floor = 4 * 4 * batch * HEADS * length * width / copy_rate
    rows = []
    for contender, name, direction in runs:
        if direction == "both":
            continue
        row = {"length": length, "batch": batch, "width": width, "pattern": name, "contender": contender}
        for passes in ("forward", "both"):
            row[f"{passes}_ms"] = best[contender, name, passes] * 1e3
            row[f"{passes}_ratio"] = best["causal SDPA", "full", passes] / best[contender, name, passes]
        row["bandwidth_share"] = floor / best[contender, name, "forward"]
        rows.append(row)
    return rows + skipped


def measure_memory(length: int, contender: str, name: str, width: int) -> dict[str, Any]:
    """Return the peak growth of a fresh process over both passes, B = 1, and the bytes of q, k, v, o, gradients."""
    about = {"length": length, "width": width, "pattern": name, "contender": contender}
    if reason := reason_to_skip(contender, patterns(length)[name], 1, length):
        return {**about, "skipped": reason}
    command = [sys.executable, __file__, "--point", contender, name, str(length), str(width)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown = int(done.stdout)
    return {**about, "peak_mib": grown / 2**20, "of_tensors": grown / (8 * 4 * HEADS * length * width)}


def memory_point(contender: str, name: str, length: int, width: int) -> int:
    """Return the bytes by which this process grows at its peak."""

    def passes(size: int) -> None:
        inputs = leaves(1, size, width, rows=contender != "native")
        both_passes(forward_of(contender, patterns(size)[name], inputs), inputs)()

    passes(64)
    return peak_of(lambda: passes(length))


def print_times(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        sizes = f"{row['length']:>6} B={row['batch']} d={row['width']:<3}"
        label = f"{sizes}{row['pattern']:<10}{row['contender']:<12}"
        if "skipped" in row:
            print(f"{label} skipped: {row['skipped']}")
            continue
        both = f"{row['both_ms']:10.2f} ms {row['both_ratio']:7.2f}x"
        share = f"{row['bandwidth_share']:6.0%} of copy" if row["contender"].startswith("native") else ""
        print(f"{label}{row['forward_ms']:10.2f} ms {row['forward_ratio']:7.2f}x |{both} {share}", flush=True)


def print_memory(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        label = f"{row['length']:>6} d={row['width']:<3}{row['pattern']:<10}{row['contender']:<12}"
        cell = row.get("skipped") or f"{row['peak_mib']:9.0f} MiB, {row['of_tensors']:6.2f} x q, k, v, o and gradients"
        print(label, cell, flush=True)


def draw(times: list[dict[str, Any]], memory: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, rows, value in ((panels[0], times, "both_ms"), (panels[1], memory, "peak_mib")):
        lines: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if value in row and row["width"] == 32 and row["contender"] != "native rows":
                scale = row.get("batch", 1) * HEADS if value == "both_ms" else 1
                is_pattern_line = row["contender"] == "native" and value == "both_ms"
                if row["pattern"] in {"full", "logsparse"} or is_pattern_line:
                    label = f"native, {row['pattern']}" if row["contender"] == "native" else row["contender"]
                    lines.setdefault(label, []).append((row["length"], row[value] / scale))
        for label, points in lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label, color=COLOURS[label])
        lengths = sorted({row["length"] for row in rows})
        axes.set(xscale="log", yscale="log", xlabel="length L")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set_xticks([], minor=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    panels[0].set_title("forward + backward, ms a head (d = 32)", loc="left", fontsize=10)
    panels[1].set_title("peak memory, MiB (B = 1, H = 8, d = 32)", loc="left", fontsize=10)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lengths up to 4096 only")
    parser.add_argument("--seconds", type=float, default=0.5, help="time per point")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="leave longer sequences out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--point", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.point:
        contender, name, length, width = options.point
        print(memory_point(contender, name, int(length), int(width)))
        return
    longest = min(options.longest, 4096) if options.quick else options.longest
    lengths = [length for length in LENGTHS if length <= longest]
    copy_rate = measured_copy()
    versions = f"{options.threads} threads, torch {torch.__version__}"
    print(f"{machine()}, {versions}, copy {copy_rate / 1e9:.1f} GB/s")
    print("forward, ratio to causal SDPA | forward + backward, ratio | share of the copy bandwidth")
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    about = {"machine": machine(), "threads": options.threads, "torch": torch.__version__, "date": today}
    threads = "" if options.threads == 2 else f"_{options.threads}-threads"
    stem = RESULTS / f"attention_{machine()}_{today}{threads}"
    times: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    for length in lengths:
        for width in (25, 32) if length <= 8192 else (32,):
            times += (rows := measure_times(length, width, options.seconds, copy_rate))
            print_times(rows)
        memory += (rows := [measure_memory(length, c, "logsparse", 32) for c in (*CONTENDERS, "causal SDPA")])
        print_memory(rows)
        record = {**about, "copy_gb_s": copy_rate / 1e9, "times": times, "memory": memory}
        stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
        draw(times, memory, stem.with_suffix(".svg"))
    print(f"wrote {stem.name}.json and .svg")


if __name__ == "__main__":
    main()
