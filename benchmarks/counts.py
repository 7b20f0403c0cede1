"""Nothing -> seconds of forecasts of counts by the kernel and by plain torch, in one run, and their ratio.

    python benchmarks/counts.py --rounds 3

200 items, 28 days, 100 samples, negative binomial, hardly trained, since time does not depend on training. Means of the
items range from 0.1 to 200 a day. Processor time of one thread; both ways alternate, and the best round of each counts.
`quantiles` is the inverse distribution function alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import logsparse as ls
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.defaults import recommend
from logsparse.model import likelihood
from logsparse.model.inverse_cdf import negative_binomial_quantile, negative_binomial_quantile_plainly
from machine import write_result

ITEMS, DAYS, HORIZON, PATHS = 200, 400, 28, 100
WAYS = {"kernel": negative_binomial_quantile, "torch": negative_binomial_quantile_plainly}


def items() -> Panel:
    """Return daily counts with a weekly wave."""
    rng = np.random.default_rng(0)
    wave = 1 + 0.5 * np.sin(np.arange(DAYS) * 2 * np.pi / 7)
    mean = np.exp(rng.uniform(np.log(0.1), np.log(200), (ITEMS, 1))) * wave
    values = rng.poisson(mean * rng.gamma(3, 1 / 3, (ITEMS, DAYS)))
    return Panel(
        values=values.astype(np.float32).ravel(),
        indptr=np.arange(ITEMS + 1) * DAYS,
        lengths=np.full(ITEMS, DAYS),
        ids=tuple(range(ITEMS)),
        starts=np.zeros(ITEMS, np.int64),
        freq=Freq.parse("D"),
    )


def fitted(panel: Panel) -> ls.LogSparse:
    config = recommend(panel, HORIZON, 84)
    train = replace(config.train, windows=None, epochs=1, steps_per_epoch=20, batch=16, validation_windows=8)
    model = replace(config.model, likelihood="negative-binomial", scale="one-plus-mean")
    config = replace(config, model=model, train=train)
    return ls.LogSparse(HORIZON, config=config, samples=PATHS, verbose=False).fit(panel)


def seconds(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    model = fitted(items())
    generator = torch.Generator().manual_seed(0)
    mean_X1 = 10 ** (3.3 * torch.rand(20_000, 1, generator=generator) - 1)
    level_Q = (torch.arange(16) + 0.5) / 16
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, way in WAYS.items():
            likelihood.negative_binomial_quantile = way  # type: ignore[attr-defined]
            found.setdefault(("forecast", name), []).append(seconds(model.predict))
            alone = seconds(lambda way=way: way(level_Q, mean_X1, torch.tensor(0.4)))  # type: ignore[misc]
            found.setdefault(("quantiles", name), []).append(alone)
    rows = []
    for case in ("forecast", "quantiles"):
        kernel, torch_ = (min(found[case, name]) for name in WAYS)
        rows.append({"case": case, "kernel_seconds": kernel, "torch_seconds": torch_, "times_torch": torch_ / kernel})
        print(f"{case}: {kernel:.2f} s, in plain torch {torch_:.2f} s: {torch_ / kernel:.1f} times as fast")
    write_result("counts", rows)


if __name__ == "__main__":
    main()
