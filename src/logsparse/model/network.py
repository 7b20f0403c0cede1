"""Batch -> what every network reads and how it is asked: inputs, a pass over whole windows, a pass step by step.

`Network` holds what the paper's decoder and DeepAR share: lagged values, covariates and embeddings go in, raw
parameters of a likelihood come out. The decoder knows this face only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.likelihood import likelihood

# B windows, N sample paths, L positions, T positions read so far, E embedding, I inputs, P parameters, C static columns

UNKNOWN = 0
"""Row of an embedding for a series or a category that was not there in training."""

Memory = TypeVar("Memory")


class Network(nn.Module, ABC, Generic[Memory]):
    """`length` positions, `features` covariates, `series` known series, `static`: categories of each static column."""

    has_positions: ClassVar[bool] = True
    """Whether a position is told apart from others by an embedding."""

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.config = config
        self.likelihood = likelihood(config.likelihood)
        lag_inputs = len(config.lags) * (2 if config.see_missing else 1)
        self.input_width = lag_inputs + features + config.embedding
        self.position = nn.Embedding(length, config.embedding) if self.has_positions else None
        self.series = nn.Embedding(series + 1, config.embedding) if config.embed_series else None
        self.static = nn.ModuleList(nn.Embedding(count + 1, config.embedding) for count in static)

    @abstractmethod
    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, P) raw parameters. Dropout is active when a generator is given, and only then."""

    @abstractmethod
    def begin(self, inputs_BTI: Tensor, *, paths: int, steps: int) -> tuple[Tensor, Memory]:
        """Read what all paths share; (B, P) of the last position read, and a memory for so many steps of each path."""

    @abstractmethod
    def advance(self, inputs_BNI: Tensor, memory: Memory) -> Tensor:
        """Read one more position of every path: (B, N, P)."""

    @property
    @abstractmethod
    def memory_width(self) -> int:
        """Numbers remembered of one position of one path."""

    @abstractmethod
    def initialise(self, generator: Generator) -> None:
        """Fresh weights."""

    def inputs(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, I): scaled lags, whether they were seen, covariates, embeddings."""
        parts = [batch.lagged_BLK / batch.scale_B[:, None, None]]
        if self.config.see_missing:
            parts.append(batch.lag_observed_BLK.to(parts[0].dtype))
        return torch.cat([*parts, batch.features_BLF, self._embedding(batch, generator)], dim=-1)

    def inputs_at(self, position: int, shared_BLI: Tensor, fed_BNH: Tensor, context: int) -> Tensor:
        """(B, N, I): inputs after the forecast start, where near lags are a path's own scaled values."""
        inputs_BNI = shared_BLI[:, position, None].repeat(1, fed_BNH.shape[1], 1)
        lags = self.config.lags
        for k, lag in enumerate(lags):
            if position - lag >= context:
                inputs_BNI[..., k] = fed_BNH[..., position - lag - context]
                if self.config.see_missing:
                    inputs_BNI[..., len(lags) + k] = 1
        return inputs_BNI

    def _embedding(self, batch: Batch, generator: Generator | None) -> Tensor:
        size, length = batch.values_BL.shape
        where_LE = batch.scale_B.new_zeros(length, self.config.embedding)
        if self.position is not None:
            where_LE = self.position.weight[:length]
        tables: list[tuple[Any, Tensor]] = list(zip(self.static, batch.static_BC.unbind(1), strict=True))
        if self.series is not None:
            tables.insert(0, (self.series, batch.series_B))
        if not tables:
            return where_LE.expand(size, -1, -1)
        hidden_B = self._hidden(batch, generator)
        rows = [table(torch.where(hidden_B, UNKNOWN, code_B + 1)) for table, code_B in tables]
        return where_LE + torch.stack(rows).sum(0)[:, None]

    def _hidden(self, batch: Batch, generator: Generator | None) -> Tensor:
        """(B,): windows whose series counts as unknown, so that the row of the unknown is trained."""
        if generator is None or self.config.unknown_series == 0:
            return torch.zeros_like(batch.series_B, dtype=torch.bool)
        chance_B = torch.rand(len(batch), generator=generator, device=batch.series_B.device)
        return chance_B < self.config.unknown_series

    @torch.no_grad()
    def settle_unknown(self) -> None:
        """A row of the unknown that was never trained becomes the mean of the known."""
        if self.config.unknown_series == 0:
            for table in (*([self.series] if self.series is not None else []), *self.static):
                table.weight[UNKNOWN] = table.weight[1:].mean(0)

    @torch.no_grad()
    def take_over(self, old: Network[Any]) -> None:
        """The old one's weights; rows for series and categories that it did not have start as the unknown."""
        state = self.state_dict()
        for name, weight in old.state_dict().items():
            state[name][: len(weight)] = weight
            if len(state[name]) > len(weight):
                state[name][len(weight) :] = weight[UNKNOWN]
