"""Batch -> raw parameters of the likelihood at every position: the paper's decoder, and room for a better one.

The paper's stream is the concatenation of lagged value, covariates and (position + series) embedding, without a
projection; post-norm blocks. The default projects it to a width and normalises before each sublayer. Same code.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from logsparse.attention.layer import ConvAttention
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.likelihood import likelihood

# B windows, L positions, W width of the stream, E embedding, I inputs, P parameters of the likelihood

UNKNOWN = 0
"""Row of the series embedding for a series that was not there in training."""


class Transformer(nn.Module):
    """`length` positions, `features` covariates, `series` known series."""

    def __init__(self, config: ModelConfig, *, length: int, features: int, series: int) -> None:
        super().__init__()
        self.config = config
        self.likelihood = likelihood(config.likelihood)
        lag_inputs = len(config.lags) * (2 if config.see_missing else 1)
        inputs = lag_inputs + features + config.embedding
        width = config.width or inputs
        self.position = nn.Embedding(length, config.embedding)
        self.series = nn.Embedding(series + 1, config.embedding) if config.embed_series else None
        self.project = nn.Linear(inputs, width) if config.width else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, width, layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.output = nn.Linear(width, len(self.likelihood.parameters))

    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, P). Dropout is active when a generator is given, and only then."""
        x_BLW = self.project(self.inputs(batch, generator))
        for block in self.blocks:
            x_BLW = block(x_BLW, generator)
        raw_BLP: Tensor = self.output(self.norm(x_BLW))
        return raw_BLP

    def inputs(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, I): scaled lags, whether they were seen, covariates, embeddings."""
        parts = [batch.lagged_BLK / batch.scale_B[:, None, None]]
        if self.config.see_missing:
            parts.append(batch.lag_observed_BLK.to(parts[0].dtype))
        return torch.cat([*parts, batch.features_BLF, self._embedding(batch, generator)], dim=-1)

    def _embedding(self, batch: Batch, generator: Generator | None) -> Tensor:
        size, length = batch.values_BL.shape
        where_LE: Tensor = self.position.weight[:length]
        if self.series is None:
            return where_LE.expand(size, -1, -1)
        row_B = batch.series_B + 1
        if generator is not None and self.config.unknown_series > 0:
            hidden_B = torch.rand(size, generator=generator, device=row_B.device) < self.config.unknown_series
            row_B = torch.where(hidden_B, UNKNOWN, row_B)
        who_BE: Tensor = self.series(row_B)
        return where_LE + who_BE[:, None]

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """As the authors did: queries, keys and output N(0, .01), the rest N(0, .02), biases 0, norms 1."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
            elif "norm" in name:
                weight.fill_(1)
            else:
                narrow = "query_key" in name or name.startswith("output")
                weight.normal_(0, 0.01 if narrow else 0.02, generator=generator)
        if isinstance(self.project, nn.Linear):
            # A projection must let the inputs through at their own size; the paper has none.
            self.project.weight.normal_(0, self.project.in_features**-0.5, generator=generator)


class Block(nn.Module):
    """Attention, then a feed-forward of two layers, each with its residual and its norm."""

    def __init__(self, config: ModelConfig, width: int, layer: int) -> None:
        super().__init__()
        self.dropout, self.pre = config.dropout, config.norm == "pre"
        self.attention = ConvAttention(
            width,
            heads=config.heads,
            head_width=width if config.head_width == "full" else width // config.heads,
            kernel=config.kernel,
            pattern=config.layer_patterns[layer],
            dropout=config.dropout,
        )
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x_BLW: Tensor, generator: Generator | None = None) -> Tensor:
        """(B, L, W) -> (B, L, W)"""
        attended = self.attention(self.attention_norm(x_BLW) if self.pre else x_BLW, generator=generator)
        x_BLW = x_BLW + drop(attended, self.dropout, generator)
        x_BLW = x_BLW if self.pre else self.attention_norm(x_BLW)
        fed = self.narrow(relu(self.widen(self.feedforward_norm(x_BLW) if self.pre else x_BLW)))
        x_BLW = x_BLW + drop(fed, self.dropout, generator)
        return x_BLW if self.pre else self.feedforward_norm(x_BLW)


def drop(x: Tensor, share: float, generator: Generator | None) -> Tensor:
    """Dropout whose draws come from a generator; none without one."""
    if generator is None or share == 0:
        return x
    keep = torch.empty_like(x).bernoulli_(1 - share, generator=generator)
    return x * keep.mul_(1 / (1 - share))
