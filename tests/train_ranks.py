"""What test_distributed runs under torchrun: train a little, print losses; a rank can be made to die."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

import small
from logsparse.train.batches import TrainingSet
from logsparse.train.distributed import join
from logsparse.train.loop import Training

folder, dies_at = Path(sys.argv[1]), int(sys.argv[2])
config = small.config({"dropout": 0.0}, epochs=4, patience=None)
data = TrainingSet.of(small.panel(), config)
with join(torch.device("cpu")) as ranks:
    run = Training(small.network(config, data), data, config.train, seed=0, folder=folder, ranks=ranks, verbose=False)
    seen: list[list[int]] = []
    take_step = run.learn
    first_life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    def watched() -> float:
        if ranks.rank == 1 and run.step == dies_at and first_life:
            os._exit(7)
        windows = run.draws(run.step)
        pairs = zip(windows.series_B.tolist(), windows.values_BL.sum(1).tolist(), strict=True)
        loss = take_step()
        # One write per line: the other rank writes to the same pipe.
        sys.stdout.write(f"rank {ranks.rank} step {run.step} loss {loss:.6f} windows {sorted(pairs)}\n")
        sys.stdout.flush()
        return loss

    run.learn = watched  # type: ignore[method-assign]
    history = run.run()
    if ranks.leads:
        total = sum(float(weight.detach().abs().sum()) for weight in run.network.parameters())
        sys.stdout.write(f"end {history.best:.6f} {total:.6f}\n")
