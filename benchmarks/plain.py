"""A plain implementation of the paper, the reference of benchmarks/train.py: Conv1d, masked SDPA, torch's DataLoader.

It is what a careful user would write in an afternoon: one dataset item per window, Conv1d for queries and keys, the
pattern as an L x L mask, nn.Dropout, Adam. Network, dropout and float32 are those of logsparse.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from logsparse.config import Config
from logsparse.data.features import Features
from logsparse.data.sampler import Candidates

# B windows, L positions, W width, H heads, D head width


class PlainWindows(Dataset[tuple[Tensor, ...]]):
    """One item per window: lagged value, features, target, scale, series."""

    def __init__(self, candidates: Candidates, features: Features, config: Config) -> None:
        self.candidates, self.features, self.config = candidates, features, config

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        panel, config = self.candidates.panel, self.config
        pair = self.candidates.at(np.array([index]))
        series, start = int(pair.series_B[0]), int(pair.start_B[0])
        begin = start - config.context
        values = panel[series][begin : begin + config.length]
        before = panel[series][begin - 1 : begin] if begin else np.zeros(1, np.float32)
        scale = 1 + np.abs(values[: config.context]).mean()
        lagged = np.concatenate([before, values[:-1]]) / scale
        steps = np.arange(begin, begin + config.length)[None]
        covariates = self.features(panel, pair.series_B, steps)[0]
        return (
            torch.from_numpy(lagged.astype(np.float32)),
            torch.from_numpy(covariates),
            torch.from_numpy(values.copy()),
            torch.tensor(scale, dtype=torch.float32),
            torch.tensor(series),
        )


class PlainAttention(nn.Module):
    def __init__(self, width: int, config: Config, mask_LL: Tensor) -> None:
        super().__init__()
        self.heads, self.kernel, self.dropout = config.model.heads, config.model.kernel, config.model.dropout
        self.query_key = nn.Conv1d(width, 2 * self.heads * width, self.kernel)
        self.value, self.out = nn.Linear(width, self.heads * width), nn.Linear(self.heads * width, width)
        self.mask_LL = mask_LL

    def forward(self, x_BLW: Tensor) -> Tensor:
        padded = functional.pad(x_BLW.transpose(1, 2), (self.kernel - 1, 0))
        q_k = self.query_key(padded).transpose(1, 2).unflatten(2, (2, self.heads, -1))
        q_BHLD, k_BHLD = (part.transpose(1, 2) for part in q_k.unbind(2))
        v_BHLD = self.value(x_BLW).unflatten(2, (self.heads, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            q_BHLD, k_BHLD, v_BHLD, attn_mask=self.mask_LL, dropout_p=self.dropout if self.training else 0.0
        )
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class PlainBlock(nn.Module):
    def __init__(self, width: int, config: Config, mask_LL: Tensor) -> None:
        super().__init__()
        self.attention = PlainAttention(width, config, mask_LL)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = nn.Dropout(config.model.dropout)

    def forward(self, x_BLW: Tensor) -> Tensor:
        x_BLW = self.norms[0](x_BLW + self.dropout(self.attention(x_BLW)))
        out: Tensor = self.norms[1](x_BLW + self.dropout(self.feed(x_BLW)))
        return out


class PlainTransformer(nn.Module):
    def __init__(self, config: Config, *, features: int, series: int) -> None:
        super().__init__()
        width = config.model.embedding + 1 + features
        self.position = nn.Embedding(config.length, config.model.embedding)
        self.series = nn.Embedding(series, config.model.embedding)
        masks = [torch.from_numpy(pattern.mask(config.length)) for pattern in config.model.layer_patterns]
        self.blocks = nn.Sequential(*(PlainBlock(width, config, mask) for mask in masks))
        self.output = nn.Linear(width, 2)

    def forward(self, lagged_BL: Tensor, features_BLF: Tensor, series_B: Tensor) -> tuple[Tensor, Tensor]:
        who = self.position.weight + self.series(series_B)[:, None]
        raw = self.output(self.blocks(torch.cat([lagged_BL[..., None], features_BLF, who], dim=-1)))
        return raw[..., 0], functional.softplus(raw[..., 1]) + 1e-6


def plain_steps(candidates: Candidates, features: Features, config: Config) -> Iterator[int]:
    """Train step by step; yield the number of windows of each step."""
    network = PlainTransformer(config, features=len(features), series=len(candidates.panel))
    optim = torch.optim.Adam(network.parameters(), lr=config.train.lr)
    loader = DataLoader(
        PlainWindows(candidates, features, config), batch_size=config.train.batch, shuffle=True, drop_last=True
    )
    for lagged, covariates, target, scale, series in loader:
        mean, deviation = network(lagged, covariates, series)
        deviation = deviation * scale[:, None]
        loss = functional.gaussian_nll_loss(mean * scale[:, None], target, deviation.square(), full=True)
        optim.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(network.parameters(), config.train.clip)
        optim.step()
        yield len(series)
