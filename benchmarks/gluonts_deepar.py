"""GluonTS's DeepAR on M4-Hourly, after a short training: seconds of 200 paths, error of the 0.9 quantile.

    python benchmarks/gluonts_deepar.py series.npz --minutes 1 --threads 1

Needs gluonts, not logsparse: the two need different versions of pandas. For each line on its input, `seconds` or
`error`, it prints a number; `forecast.py` uses this to alternate between the two. Without gluonts it prints `missing`
and exits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

# S series, Q levels, H horizon

CONTEXT, HORIZON, PATHS, MANY = 168, 48, 200, 10_000
LEVELS = (0.1, 0.5, 0.9)


class DeepAR:
    """DeepAR with 3 layers of 40 units and default batches."""

    def __init__(self, series: Sequence[Any], minutes: float, folder: str) -> None:
        import pandas as pd
        from gluonts.dataset.common import ListDataset
        from gluonts.torch import DeepAREstimator

        start = pd.Period("2015-07-01", freq="h")
        self.listed: Callable[[Sequence[Any]], Any] = lambda some: ListDataset(
            [{"start": start, "target": values} for values in some], freq="h"
        )
        self.series, self.data = series, self.listed(series)
        estimator = DeepAREstimator(
            freq="h",
            prediction_length=HORIZON,
            context_length=CONTEXT,
            num_layers=3,
            hidden_size=40,
            num_parallel_samples=PATHS,
            num_batches_per_epoch=100,
            trainer_kwargs={
                "max_epochs": 5,
                "max_time": {"minutes": minutes},
                "enable_progress_bar": False,
                "logger": False,
                "default_root_dir": folder,
            },
        )
        # GluonTS loads its own checkpoint with objects that torch refuses by default.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
        self.predictor = estimator.train(self.data)

    def forecast(self) -> None:
        """Return the seconds of forecasting all series."""
        list(self.predictor.predict(self.data, num_samples=PATHS))

    def error(self, every: int) -> float:
        """Return the error of every n-th series against many paths."""
        some = self.listed(self.series[::every])

        def quantiles(paths: int) -> Any:
            found = self.predictor.predict(some, num_samples=paths)
            return np.stack([np.quantile(forecast.samples, LEVELS, axis=0) for forecast in found])

        return error(quantiles(PATHS), np.mean([quantiles(1000) for _ in range(MANY // 1000)], axis=0))


def error(found_SQH: Any, true_SQH: Any) -> float:
    """Return the RMS error of the 0.9 quantile in units of the width of the 80 % interval."""
    width_SH = np.maximum(true_SQH[:, 2] - true_SQH[:, 0], 1e-9)
    return float(np.sqrt(np.mean(((found_SQH[:, 2] - true_SQH[:, 2]) / width_SH) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", help="npz with the concatenated values and the lengths of all series")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=20, help="the error is computed on every n-th series")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    # Output of GluonTS and Lightning must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    with np.load(args.series) as file, TemporaryDirectory() as scratch:
        series = np.split(file["values"], np.cumsum(file["lengths"])[:-1])
        try:
            deepar = DeepAR(series, args.minutes, scratch)
        except ImportError as missing:
            print("missing", missing, file=answers, flush=True)
            return
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            if line.strip() == "error":
                answer = deepar.error(args.every)
            else:
                begin = clock()
                deepar.forecast()
                answer = (clock() - begin) / len(series)
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
