"""Network + Batch whose horizon is unknown -> sample paths: the plain decoder, one forward pass a step.

`ancestral` feeds each path's own samples back, so that paths are joint trajectories; `mean-path` feeds the mean back
and draws around that one path, as the authors did. Short and obvious: the oracle of the cached decoder.
"""

from __future__ import annotations

import torch
from torch import Tensor

from logsparse.data.windows import Batch
from logsparse.model.transformer import Transformer

# B windows, N sample paths, L positions, K lags, H horizon

METHODS = ("ancestral", "mean-path")


@torch.no_grad()
def decode_plainly(network: Transformer, batch: Batch, uniform_BNH: Tensor, method: str = "ancestral") -> Tensor:
    """(B, N, H) paths from uniform draws in (0, 1), one for each window, path and step."""
    size, paths, horizon = uniform_BNH.shape
    fed = _repeat(batch, paths if method == "ancestral" else 1)
    drawn = torch.empty_like(uniform_BNH)
    for step in range(horizon):
        position = batch.context + step
        raw_BNP = network(fed)[:, position].unflatten(0, (size, -1))
        law = network.likelihood.distribution(raw_BNP, batch.scale_B[:, None])
        drawn[..., step] = law.sample(uniform_BNH[..., step])
        fed_back = drawn[..., step] if method == "ancestral" else law.mean
        _feed(fed, position, fed_back.flatten(), network.config.lags)
    return drawn


def _repeat(batch: Batch, paths: int) -> Batch:
    """Each window so many times in a row, in memory of its own."""
    return batch.each(lambda tensor: tensor.repeat_interleave(paths, dim=0))


def _feed(batch: Batch, position: int, value_B: Tensor, lags: tuple[int, ...]) -> None:
    """The value at this position becomes the lagged input of every later position that looks back at it."""
    length = batch.lagged_BLK.shape[1]
    for k, lag in enumerate(lags):
        if position + lag < length:
            batch.lagged_BLK[:, position + lag, k] = value_B
            batch.lag_observed_BLK[:, position + lag, k] = True


def draws(seed: int, series_B: Tensor, paths: int, horizon: int) -> Tensor:
    """Uniform draws (B, N, H) keyed by (seed, series, path, step): the same however the work is split."""
    rows = []
    for series in series_B.tolist():
        generator = torch.Generator().manual_seed(_mix(seed, series))
        rows.append(torch.rand((paths, horizon), generator=generator))
    return torch.stack(rows)


def _mix(seed: int, series: int) -> int:
    """Two numbers -> one 63-bit seed, far apart for neighbours (splitmix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + series * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) % 2**63
