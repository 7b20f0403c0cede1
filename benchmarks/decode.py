"""Series x samples x steps per second of the decoder, against slower decoders and GluonTS's DeepAR in the same run.

The shape of M4-Hourly: 414 series, context 168, 48 steps, 200 samples. `authors` feeds the mean back through a whole
forward pass per step, `uncached` does so for every sample path; both are measured on a few series, and rates compared.
`two-way` is the method of the default, cached; its ratio is to `uncached`, which omits the direct part.
The accuracy of the quantiles is the RMS error of the 0.9 quantile against 10,000 paths, in units of the width between
the 0.1 and 0.9 quantiles. `context` compares the time of a step at context 4096 with 256, without the history.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import logsparse as ls
from gluonts_deepar import CONTEXT, HORIZON, LEVELS, MANY, PATHS, DeepAR, error
from logsparse import presets
from logsparse.attention.pattern import logsparse
from logsparse.config import Config, ModelConfig
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.data.sampler import Pairs
from logsparse.defaults import recommend
from logsparse.model.decode import Sampling, decode_plainly, draws, sample, window_keys
from logsparse.model.transformer import Transformer
from logsparse.train.batches import windows_of
from machine import write_result

# S series, N paths, H horizon

# Every n-th series is enough to measure the accuracy of the quantiles.
EVERY = 40


def panel() -> Panel:
    whole = to_panel(Path(os.environ["LOGSPARSE_DATA"]) / "m4_hourly.parquet")
    return whole.cut(whole.lengths - HORIZON)


CONFIGS: dict[str, Callable[[], Config]] = {
    "paper": presets.m4_hourly,
    "default": lambda: recommend(panel(), HORIZON, CONTEXT),
}


def clock(work: Callable[[], object], rounds: int) -> float:
    """Return the best time of some rounds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def trained(config: Config, minutes: float) -> ls.LogSparse:
    fresh = replace(config.train, windows=None, steps_per_epoch=100, epochs=5, validation_windows=128)
    model = ls.LogSparse(horizon=HORIZON, config=replace(config, train=fresh), minutes=minutes, verbose=False)
    return model.fit(panel())


def decoders(name: str, minutes: float, rounds: int) -> list[dict[str, Any]]:
    """Measure the cached decoder with both methods, and the plain one on a few series."""
    model = trained(CONFIGS[name](), minutes)
    rows: list[dict[str, Any]] = []
    history = panel()
    config, series = model.config_, len(history)
    windows = windows_of(model.series_index_.encode(history), model.features_, config)

    def cached(method: str, paths: int, seed: int = 0, every: int = 1) -> Any:
        chosen = np.arange(0, series, every)
        ask = Sampling(paths=paths, levels=LEVELS, method=method, seed=seed, keep_paths=False)
        return sample(model.network_, windows, Pairs(chosen, history.lengths[chosen]), ask)

    def plain(method: str, few: int) -> Any:
        batch = windows(np.arange(few), history.lengths[:few])
        uniform = draws(0, window_keys(history, Pairs(np.arange(few), history.lengths[:few])), PATHS, HORIZON)
        assert isinstance(model.network_, Transformer)
        return decode_plainly(model.network_, batch, uniform, method)

    cached("ancestral", 2)  # warm-up
    for method, few, slow in (("mean-path", 16, "authors"), ("ancestral", 1, "uncached")):
        seconds = clock(partial(cached, method, PATHS), rounds)
        reference = clock(partial(plain, method, few), 1)
        rate, plain_rate = series * PATHS * HORIZON / seconds, few * PATHS * HORIZON / reference
        rows += [
            {"model": name, "method": method, "way": "cached", "seconds_for_all": seconds, "rate": rate},
            {
                "model": name,
                "method": method,
                "way": slow,
                "series": few,
                "rate": plain_rate,
                "ratio": rate / plain_rate,
            },
        ]
    if name == "paper":
        return rows  # the accuracy of quantiles does not depend on the size of the network
    seconds, uncached = clock(partial(cached, "two-way", PATHS), rounds), rows[-1]["rate"]
    rate = series * PATHS * HORIZON / seconds
    both = {"model": name, "method": "two-way", "way": "cached", "seconds_for_all": seconds}
    rows.append({**both, "rate": rate, "ratio": rate / uncached})
    true = cached("ancestral", MANY, seed=1, every=EVERY).quantiles_WQH
    for paths in (5, 10, 25, 50, 100, PATHS):
        row: dict[str, Any] = {"model": name, "way": "cached", "paths": paths}
        row["rms_error"] = error(cached("ancestral", paths, every=EVERY).quantiles_WQH, true)
        if paths < 100:
            row["seconds_for_all"] = clock(partial(cached, "ancestral", paths), rounds)
        rows.append(row)
    return rows


def deepar(minutes: float, rounds: int, folder: str) -> list[dict[str, Any]]:
    """Measure GluonTS's predictor after a short training; 200 paths, its default batches."""
    history = panel()
    try:
        rival = DeepAR([history[i] for i in range(len(history))], minutes, folder)
    except ImportError:
        return [{"model": "gluonts deepar", "way": "not installed"}]
    seconds = clock(rival.forecast, rounds)
    return [
        {"model": "gluonts deepar", "way": "independent paths", "paths": PATHS, "seconds_for_all": seconds,
         "rate": len(history) * PATHS * HORIZON / seconds, "rms_error": rival.error(EVERY)}
    ]  # fmt: skip


def step_time(context: int, rounds: int) -> float:
    """Return the seconds of one decoding step of 8 series with 100 paths, pattern logsparse, without the history."""
    config = ModelConfig(kernel=6, patterns=(logsparse(),), width=48, heads=4, head_width="split", norm="pre")
    network = Transformer(config, length=context + HORIZON, features=4, series=1)
    network.initialise(torch.Generator().manual_seed(0))
    inputs_BTI = torch.randn(8, context + 1, network.input_width, generator=torch.Generator().manual_seed(0))
    times = []
    with torch.no_grad():
        for _ in range(rounds + 1):
            _, memory = network.begin(inputs_BTI, paths=100, steps=HORIZON)
            next_BNI = inputs_BTI[:, :1].expand(-1, 100, -1).contiguous()
            begin = time.perf_counter()
            for _ in range(HORIZON):
                network.advance(next_BNI, memory)
            times.append((time.perf_counter() - begin) / HORIZON)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="training of each model before it is measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", default="context,default,deepar,paper")
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    rows: list[dict[str, Any]] = []
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "context": lambda: [{"context": c, "seconds_a_step": step_time(c, 4 * args.rounds)} for c in (256, 4096)],
        "default": lambda: decoders("default", args.minutes, args.rounds),
        "deepar": lambda: deepar(args.minutes, args.rounds, scratch),
        "paper": lambda: decoders("paper", args.minutes, args.rounds),
    }
    with TemporaryDirectory() as scratch:
        for name in args.parts.split(","):
            for row in parts[name]():
                print(json.dumps(row), flush=True)
                rows.append(row)
    print(f"wrote {write_result('decode', rows).name}")


if __name__ == "__main__":
    main()
