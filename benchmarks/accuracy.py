"""Train one run and score it on its test span: `synthetic` (t0 = 96), or `solar` with the paper's preset.

One pass over the windows of solar unless --epochs is given. Forecasts are mean paths, one forward pass per step.
Resumes from --folder. Prints one row and writes it as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from logsparse import presets
from logsparse.attention.pattern import full
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.data.times import clock_time
from logsparse.data.windows import Windows
from logsparse.evaluation.metrics import score
from logsparse.model.decode import decode_plainly
from logsparse.model.transformer import Transformer
from logsparse.paper.synthetic import study
from logsparse.train.batches import TrainingSet, windows_of
from logsparse.train.loop import Training, TrainingHistory
from machine import write_result

# W cutoffs, S series, N paths, H horizon

PATHS = 201


def synthetic(epochs: int) -> Config:
    """Three layers of canonical attention; small heads, one cycle, averaged weights."""
    model = ModelConfig(
        heads=4, kernel=1, patterns=(full(),), width=32, head_width="split", norm="pre", embed_series=False, dropout=0.0
    )
    train = TrainConfig(
        windows=4500,
        epochs=epochs,
        weighted=False,
        loss_on="horizon",
        optimiser="adamw",
        schedule="one-cycle",
        lr=4e-3,
        average=0.99,
        patience=None,
    )
    return Config(context=96, horizon=24, features=("age",), model=model, train=train)


def train(config: Config, data: TrainingSet, seed: int, folder: Path | None) -> tuple[Transformer, TrainingHistory]:
    network = Transformer(
        config.model, length=config.length, features=len(data.features), series=len(data.windows.panel)
    )
    network.initialise(torch.Generator().manual_seed(seed))
    return network, Training(network, data, config.train, seed=seed, folder=folder).run()


def judge(network: Transformer, windows: Windows, panel: Panel, cutoffs: list[Any]) -> dict[str, Any]:
    """R0.5 and R0.9 pooled over all series and cutoffs; panel has the actual values."""
    levels = ((np.arange(PATHS) + 0.5) / PATHS).astype(np.float32)
    rows = []
    for lengths_S in cutoffs:
        series_S = np.arange(len(panel))
        for part in np.array_split(series_S, max(1, len(series_S) // 200)):
            batch = windows(part, lengths_S[part])
            uniform = torch.from_numpy(levels)[None, :, None].expand(len(part), PATHS, windows.horizon).contiguous()
            paths_SNH = decode_plainly(network, batch, uniform, "mean-path").numpy()
            median, high = np.quantile(paths_SNH, [0.5, 0.9], axis=1)
            cells = (panel.indptr[part] + lengths_S[part])[:, None] + np.arange(windows.horizon)
            rows.append(
                pl.DataFrame(
                    {
                        "unique_id": np.repeat(part, windows.horizon),
                        "ds": (lengths_S[part][:, None] + np.arange(windows.horizon)).ravel(),
                        "cutoff": np.repeat(lengths_S[part] - 1, windows.horizon),
                        "y": panel.values[cells].ravel(),
                        "q0.5": median.ravel(),
                        "q0.9": high.ravel(),
                    }
                )
            )
    found: dict[str, Any] = score(pl.concat(rows)).select("count", "R0.5", "R0.9").row(0, named=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["synthetic", "solar"])
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="one per free core")
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.task == "synthetic":
        config = synthetic(args.epochs or 60)
        sets = study(96, np.random.default_rng(0))
        data, panel = TrainingSet.of_two(sets.training, sets.validation, config), sets.test
        cutoffs = [panel.lengths - config.horizon]
    else:
        config = presets.solar()
        config = replace(config, train=replace(config.train, epochs=args.epochs or 1))
        whole = to_panel(Path(os.environ["LOGSPARSE_DATA"]) / "solar_hourly.parquet")
        panel = whole.until(clock_time(whole, "2006-08-31T23:00"))
        cutoffs = [panel.lengths - 24 * days for days in range(7, 0, -1)]
        data = TrainingSet.of(panel.cut(cutoffs[0]), config)
    network, history = train(config, data, args.seed, args.folder)
    windows = windows_of(panel, data.features, config)
    found = judge(network, windows, panel, cutoffs)
    row = {
        "task": args.task,
        "seed": args.seed,
        "threads": args.threads,
        "minutes": round(history.seconds / 60, 2),
        "validation_nll": history.best,
        "ended": history.ended,
        **found,
        "config": config.to_dict(),
        "rows": history.rows,
    }
    print(json.dumps({key: value for key, value in row.items() if key not in ("config", "rows")}))
    print(f"wrote {write_result(f'accuracy-{args.task}', [row]).name}")


if __name__ == "__main__":
    main()
