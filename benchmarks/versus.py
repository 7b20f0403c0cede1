"""Two versions of the library -> training in windows per second and attention in calls per second, in one run.

Each version works in its own process, which waits while the other one runs; turns alternate, so that both see the same
machine. The ratio of the best turns counts; the median ratio of neighbouring turns is printed beside it.

    python benchmarks/versus.py --reference ../other/.venv/bin/python --parts training,losses
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from logsparse import presets
from logsparse.attention.attend import attend
from logsparse.attention.pattern import Pattern, logsparse, restart
from logsparse.config import Config
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet
from logsparse.train.loop import Training
from machine import fair_clock, write_result
from train import long_run, panel, with_batch


def default_network() -> Config:
    """Return the default for hourly data, as `LogSparse` chooses it for a panel with months of history."""
    config = presets.default(168, 24)
    lags = (1, 2, 3, 4, 5, 6, 23, 24, 25, 47, 48, 49, 167, 168, 169, 336)
    inputs = replace(config.model, lags=lags, profiles=("24x7", "24x28", "168x4"), likelihood="student-t")
    return replace(config, model=inputs)


TRAINING: dict[str, tuple[Config, str]] = {
    "paper, 192 steps, k=9": (presets.electricity_c(), "h"),
    "default, 192 steps": (default_network(), "h"),
    "768 steps, restart and dense rows": (with_batch(presets.electricity_f(), 16), "15min"),
    "4096 steps, logsparse": (long_run(4096, 2), "15min"),
}
KERNEL: dict[str, tuple[Pattern, int, int]] = {
    "kernel, 768 logsparse": (logsparse(), 768, 32),
    "kernel, 768 restart": (restart(96), 768, 25),
    "kernel, 4096 logsparse": (logsparse(), 4096, 32),
    "kernel, 8192 logsparse": (logsparse(), 8192, 32),
}
PARTS = {"training": list(TRAINING), "kernel": [f"{name}, {way}" for name in KERNEL for way in ("forward", "both")]}


def run_of(name: str) -> tuple[Training, int]:
    """A training with new draws, and its windows per step."""
    config, freq = TRAINING[name]
    config = replace(config, train=replace(config.train, windows=None))
    data = TrainingSet.of(panel(freq, config.length), config)
    network = Transformer(config.model, length=config.length, features=len(data.features), series=40)
    network.initialise(torch.Generator().manual_seed(0))
    return Training(network, data, config.train, seed=0, verbose=False), config.train.batch


def work_of(name: str) -> tuple[Callable[[], object], int]:
    """A piece of work, and the number of its units."""
    if name in TRAINING:
        run, windows = run_of(name)
        return run.learn, windows
    pattern, length, width = KERNEL[name.rpartition(", ")[0]]
    q, k, v = (torch.randn(4, 8, width, length).mT.requires_grad_() for _ in range(3))

    def forward() -> object:
        with torch.no_grad():
            return attend(q, k, v, pattern, backend="native")

    def both() -> object:
        out = attend(q, k, v, pattern, backend="native")
        return torch.autograd.grad(out, [q, k, v], torch.ones_like(out))

    return forward if name.endswith("forward") else both, 1


def serve(name: str, threads: int) -> None:
    """Read seconds of work from each line of input; print the units per second of the best third."""
    torch.set_num_threads(threads)
    clock = fair_clock()
    work, units = work_of(name)
    with contextlib.ExitStack() as stack:
        if name in TRAINING:
            with contextlib.suppress(ImportError):  # an older version
                from logsparse.process import kept_memory

                stack.enter_context(kept_memory())  # as `Training.run` does
        answer(work, units, clock)


def answer(work: Callable[[], object], units: int, clock: Callable[[], float]) -> None:
    work()
    work()
    print("ready", flush=True)
    for line in sys.stdin:
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < 3 or time.perf_counter() - began < float(line):
            start = clock()
            work()
            times.append(clock() - start)
        best = sorted(times)[: max(1, len(times) // 3)]
        print(units * len(best) / sum(best), flush=True)


def losses(steps: int = 6) -> Iterator[dict[str, Any]]:
    """Yield the first losses of each training, to compare them up to rounding."""
    for name in TRAINING:
        run, _ = run_of(name)
        yield {"name": name, "losses": [run.learn() for _ in range(steps)]}


def compare_losses(reference: str) -> Iterator[dict[str, Any]]:
    def run(python: str) -> list[dict[str, Any]]:
        done = subprocess.run([python, __file__, "--losses"], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    for this, other in zip(run(sys.executable), run(reference), strict=True):
        pairs = list(zip(this["losses"], other["losses"], strict=True))
        yield {"name": this["name"], "losses": pairs, "largest_difference": max(abs(a - b) for a, b in pairs)}


def alternate(name: str, reference: str, rounds: int, seconds: float, threads: int) -> dict[str, Any]:
    workers = {
        who: subprocess.Popen(
            [python, __file__, "--serve", name, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who, python in (("reference", reference), ("new", sys.executable))
    }
    rates: dict[str, list[float]] = {who: [] for who in workers}
    for worker in workers.values():
        assert worker.stdout is not None
        worker.stdout.readline()
    for _ in range(rounds):
        for who, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(f"{seconds}\n")
            worker.stdin.flush()
            rates[who].append(float(worker.stdout.readline()))
    for worker in workers.values():
        worker.communicate()
    neighbours = [new / old for new, old in zip(rates["new"], rates["reference"], strict=True)]
    return {
        "name": name,
        "threads": threads,
        "reference": max(rates["reference"]),
        "new": max(rates["new"]),
        "ratio": max(rates["new"]) / max(rates["reference"]),
        "median_ratio": statistics.median(neighbours),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", help="python with the other version")
    parser.add_argument("--parts", default="training,kernel,losses")
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds per turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--losses", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
        return
    if args.losses:
        for row in losses():
            print(json.dumps(row))
        return
    rows: list[dict[str, Any]] = []
    for part in args.parts.split(","):
        if part == "losses":
            for row in compare_losses(args.reference):
                rows.append(row)
                print(f"{row['name']:<40} losses differ by {row['largest_difference']:.1e} at most", flush=True)
            continue
        for name in PARTS[part]:
            if args.only not in name:
                continue
            row = alternate(name, args.reference, args.rounds, args.seconds, args.threads)
            rows.append(row)
            print(
                f"{name:<40} {row['reference']:8.2f} -> {row['new']:8.2f} a second"
                f"  {row['ratio']:.2f}x (median {row['median_ratio']:.2f}x)",
                flush=True,
            )
    print(f"wrote {write_result('versus', rows).name}")


if __name__ == "__main__":
    main()
