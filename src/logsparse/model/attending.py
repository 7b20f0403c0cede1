"""Transformer + one window -> the weights with which its positions attend to each other, and its values."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from logsparse.attention.weights import weights_matrix, weights_row
from logsparse.data.panel import Floats
from logsparse.data.windows import Batch
from logsparse.model.decode import along_the_mean
from logsparse.model.transformer import Block, Transformer

# H heads, L positions of the window, J positions attended to (= L)


class Attending(NamedTuple):
    """Of one window: history, then the mean path."""

    weights: Floats
    """(H, J) of one step of the horizon, or (H, L, J) of all positions."""
    values_L: Floats
    """NaN where nothing was observed."""


@torch.no_grad()
def attending(network: Transformer, batch: Batch, layer: int, step: int | None) -> Attending:
    """Weights of all heads of one layer; the horizon before the step that asks is the mean path's."""
    filled = along_the_mean(network, batch)
    q, k = network.queries_keys(filled, layer)
    starts_B = filled.starts_B
    pattern = cast("Block", network.blocks[layer]).attention.pattern
    if step is None:
        weights = weights_matrix(q, k, pattern, starts_B)
    else:
        weights = weights_row(q, k, pattern, batch.context + step, starts_B)
    values_L = filled.values_BL[0] + batch.centre_B[0]
    unseen_L = ~batch.observed_BL[0]
    unseen_L[batch.context :] = False
    values_L[unseen_L] = torch.nan
    return Attending(weights[0].cpu().numpy(), values_L.cpu().numpy())
