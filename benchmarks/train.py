"""Windows per second and peak memory of training, against a plain implementation of the paper in the same run.

Each contender trains in its own process, and they alternate; the best rate of its steps over a span counts. Peak memory
is that of the process, minus what it used before the network was created. Batches are as large as the plain
implementation has memory for; if it has none, the table shows its failure.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from logsparse import presets
from logsparse.attention.pattern import logsparse
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet
from logsparse.train.loop import Training
from machine import write_result
from plain import plain_steps


def long_run(length: int, batch: int) -> Config:
    return Config(
        context=length - 96,
        horizon=96,
        features=presets.FINE,
        model=ModelConfig(kernel=6, patterns=(logsparse(),)),
        train=TrainConfig(batch=batch),
    )


def with_batch(config: Config, batch: int) -> Config:
    return replace(config, train=replace(config.train, batch=batch))


SETTINGS: dict[str, tuple[Config, str]] = {
    "electricity-c (192, k=9, 3 layers)": (presets.electricity_c(), "h"),
    "electricity-f (768, restart 96, k=6, 6 layers)": (with_batch(presets.electricity_f(), 16), "15min"),
    "logsparse 4096 (k=6, 3 layers)": (long_run(4096, 2), "15min"),
    "logsparse 16384 (k=6, 3 layers)": (long_run(16_384, 1), "15min"),
}
CONTENDERS = ("ours", "ours, bfloat16", "plain")
# Memory limit of a process, so that it fails with an error instead of exhausting the machine.
MOST_BYTES = 20 * 2**30


def panel(freq: str, length: int) -> Panel:
    """Return noise around daily waves: the values do not matter here."""
    series, steps = 40, max(4000, 2 * length)
    values = 10 + np.random.default_rng(0).normal(size=(series, steps)).cumsum(axis=1) / 10
    return Panel(
        values=values.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * steps,
        lengths=np.full(series, steps),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq.parse(freq),
    )


def our_steps(config: Config, data: TrainingSet) -> Iterator[int]:
    network = Transformer(config.model, length=config.length, features=len(data.features), series=40)
    network.initialise(torch.Generator().manual_seed(0))
    run = Training(network, data, config.train, seed=0, verbose=False)
    while True:
        run.learn()
        yield config.train.batch


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0


def measure(name: str, contender: str, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(2)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    config, freq = SETTINGS[name]
    fresh = replace(config.train, windows=None, precision="bfloat16" if "bfloat16" in contender else "float32")
    config = replace(config, train=fresh)
    data = TrainingSet.of(panel(freq, config.length), config)
    before = peak_bytes()
    steps = plain_steps(data.training, data.features, config) if contender == "plain" else our_steps(config, data)
    for _ in range(2):
        next(steps)
    best, began = 0.0, time.perf_counter()
    while best == 0 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        count = sum(next(steps) for _ in range(3))
        best = max(best, count / (time.perf_counter() - start))
    return {"windows_per_second": best, "peak_bytes": peak_bytes() - before}


def alternate(name: str, seconds: float, rounds: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for contender in CONTENDERS:
            command = [sys.executable, __file__, "--one", name, contender, "--seconds", str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"signal {-done.returncode}"
                found.setdefault(contender, {"failed": reason})
                continue
            row = json.loads(done.stdout)
            kept = found.setdefault(contender, row)
            if row["windows_per_second"] > kept.get("windows_per_second", 0):
                found[contender] = row
    plain = found["plain"].get("windows_per_second")
    rows = []
    for contender, row in found.items():
        rate = row.get("windows_per_second")
        rows.append(
            {"setting": name, "contender": contender, **row, "to_plain": rate / plain if rate and plain else None}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("SETTING", "CONTENDER"))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="only settings whose name contains this")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], args.one[1], args.seconds)))
        return
    rows = []
    for name in SETTINGS:
        if args.only in name:
            for row in alternate(name, args.seconds, args.rounds):
                rows.append(row)
                ratio = f"{row['to_plain']:.1f}x" if row["to_plain"] else "-"
                text = (
                    f"{row['windows_per_second']:9.2f} windows/s  {row['peak_bytes'] / 2**20:7.0f} MiB  {ratio}"
                    if "failed" not in row
                    else f"failed: {row['failed']}"
                )
                print(f"{name:<48} {row['contender']:<15} {text}", flush=True)
    print(f"wrote {write_result('train', rows).name}")


if __name__ == "__main__":
    main()
