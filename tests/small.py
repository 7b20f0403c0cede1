"""A small network, panel and training set that several tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from logsparse.attention.pattern import logsparse
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.data.calendar import Freq
from logsparse.data.panel import Panel
from logsparse.data.windows import Batch
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet


def panel(series: int = 5, steps: int = 120, seed: int = 0, missing: float = 0.05) -> Panel:
    """Hourly waves of different levels, a little noisy, with holes."""
    rng = np.random.default_rng(seed)
    level_S = rng.uniform(1, 50, series)
    values = level_S[:, None] * (2 + np.sin(np.arange(steps) * np.pi / 12) + 0.1 * rng.normal(size=(series, steps)))
    values[rng.random(values.shape) < missing] = np.nan
    return Panel(
        values=values.astype(np.float32).ravel(),
        indptr=np.arange(series + 1) * steps,
        lengths=np.full(series, steps),
        ids=tuple(range(series)),
        starts=np.zeros(series, np.int64),
        freq=Freq.parse("h"),
    )


def config(model: dict[str, Any] | None = None, **train: Any) -> Config:
    """A network of two small layers; 4 epochs of 3 steps."""
    small = ModelConfig(layers=2, heads=2, kernel=3, embedding=4, patterns=(logsparse(),), dropout=0.1)
    quick = TrainConfig(batch=8, steps_per_epoch=3, epochs=4, validation_windows=16)
    return Config(context=24, horizon=6, model=replace(small, **(model or {})), train=replace(quick, **train))


def short_windows(data: TrainingSet) -> Batch:
    """The windows after the first 1, 3, 10, 24 and 60 steps of five series: a history is 24 steps, the rest padding.

    The history of the last one is hidden.
    """
    hidden_B = np.arange(5) == 4
    return data.windows(np.arange(5), np.array([1, 3, 10, 24, 60]), hidden_B).clone()


def soiled(batch: Batch, filling: float) -> Batch:
    """The same with something else in every padded cell."""
    other = batch.clone()
    for row, padding in enumerate(batch.padding_B.tolist()):
        for part in (other.lagged_BLK, other.profile_BLR, other.spread_BLR, other.features_BLF):
            part[row, :padding] = filling
        other.values_BL[row, :padding] = 7  # a target that is not observed may be any number
        for seen in (other.lag_observed_BLK, other.profile_observed_BLR):
            seen[row, :padding] = True
    return other


def network(settings: Config, data: TrainingSet, seed: int = 0) -> Transformer:
    """Initialised from a seed."""
    made = Transformer(
        settings.model, length=settings.length, features=len(data.features), series=len(data.windows.panel)
    )
    made.initialise(torch.Generator().manual_seed(seed))
    return made
