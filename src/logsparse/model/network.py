"""Batch -> raw parameters, log-density of the targets, forecast: the interface of every network.

`Network` also holds what all networks share: embeddings of positions, series and categories. Training uses nothing
else. model/autoregressive.py and model/decode.py extend it for step-by-step networks, model/statespace.py for a filter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.errors import DataError
from logsparse.model.likelihood import likelihood

# Shapes: B windows, N sample paths, L positions, H horizon, E embedding, P parameters, C static columns,
# Q quantile levels.

UNKNOWN = 0
"""Embedding row for series and categories that training did not contain."""


@dataclass(frozen=True)
class Decoded:
    """Sample paths, and mean and quantiles of each step; values relative to the centre of their window."""

    paths_BNH: Tensor
    mean_BH: Tensor
    quantiles_BQH: Tensor


class Network(nn.Module, ABC):
    """Base of all networks.

    `length` is the number of positions, `features` of covariates, `series` of known series; `static` is the number of
    categories per static column.
    """

    has_positions: ClassVar[bool] = True
    """Whether positions have an embedding."""

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.config = config
        self.likelihood = likelihood(config.likelihood)
        self.input_width = features + config.embedding
        self.position = nn.Embedding(length, config.embedding) if self.has_positions else None
        self.series = nn.Embedding(series + 1, config.embedding) if config.embed_series else None
        self.static = nn.ModuleList(nn.Embedding(count + 1, config.embedding) for count in static)

    @abstractmethod
    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """Return raw parameters (B, L, P). Dropout is active if and only if a generator is given."""

    def log_density(self, raw_BLP: Tensor, batch: Batch, begin: int = 0) -> Tensor:
        """Return (B, L - begin): log-density of each target given those before it, 0 where the target is missing."""
        distribution = self.likelihood.distribution(raw_BLP[:, begin:], batch.scale_B[:, None])
        # Missing targets are 0 in a batch, which every support contains.
        density_BL = distribution.log_density(batch.values_BL[:, begin:])
        return torch.where(batch.observed_BL[:, begin:], density_BL, 0)

    def check(self, values: Tensor) -> None:
        """Raise DataError for targets outside the support of the likelihood or below `ModelConfig.lowest`."""
        self.likelihood.check(values)
        lowest = self.config.lowest
        if lowest is not None and bool((values < lowest).any()):
            raise DataError(
                "No target may lie below model.lowest.",
                got=f"{values[values < lowest][0].item():g}, and model.lowest {lowest:g}",
                hint="lower model.lowest, or leave it out.",
            )

    @abstractmethod
    def forecast(self, batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str) -> Decoded:
        """Forecast a batch whose horizon is unknown; paths come from uniform draws in (0, 1).

        Results are relative to the centre of each window, like all values of a batch.
        """

    @abstractmethod
    def paths_needed(self, levels: Sequence[float], method: str) -> int:
        """Return the number of paths that accurate quantiles need; 0 where they are exact without any."""

    @abstractmethod
    def paths_read(self, paths: int, method: str) -> int:
        """Return the number of paths decoded individually."""

    @property
    @abstractmethod
    def memory_width(self) -> int:
        """Numbers stored per position of one path."""

    @abstractmethod
    def initialise(self, generator: Generator) -> None:
        """Set fresh random weights."""

    def embeddings(self, batch: Batch, generator: Generator | None) -> Tensor:
        """Return the sum of position, series and category embeddings: (B, L, E), or (1, L, E) if windows share it."""
        length = batch.values_BL.shape[1]
        position_LE = batch.scale_B.new_zeros(length, self.config.embedding)
        if self.position is not None:
            position_LE = self.position.weight[:length]
        tables: list[tuple[Any, Tensor]] = list(zip(self.static, batch.static_BC.unbind(1), strict=True))
        if self.series is not None:
            tables.insert(0, (self.series, batch.series_B))
        if not tables:
            return position_LE[None]
        unknown_B = self._counted_as_unknown(batch, generator)
        rows = [table(torch.where(unknown_B, UNKNOWN, code_B + 1)) for table, code_B in tables]
        return position_LE + torch.stack(rows).sum(0)[:, None]

    def _counted_as_unknown(self, batch: Batch, generator: Generator | None) -> Tensor:
        """Return (B,) bool: windows whose series counts as unknown, so that its embedding row is trained."""
        if generator is None or self.config.unknown_series == 0:
            return torch.zeros_like(batch.series_B, dtype=torch.bool)
        chance_B = torch.rand(len(batch), generator=generator, device=batch.series_B.device)
        return chance_B < self.config.unknown_series

    @torch.no_grad()
    def fill_unknown(self) -> None:
        """Set the rows of unknown series and categories to the mean of the known rows, if they were not trained."""
        if self.config.unknown_series == 0:
            # A series without a history counts as unknown too.
            untrained = self.series is not None and self.config.hidden_history == 0
            for table in (*([self.series] if untrained else []), *self.static):
                table.weight[UNKNOWN] = table.weight[1:].mean(0)

    @torch.no_grad()
    def copy_weights(self, old: Network) -> None:
        """Copy the weights of `old`; rows of series and categories that it did not have become its unknown row."""
        state = self.state_dict()
        for name, weight in old.state_dict().items():
            state[name][: len(weight)] = weight
            if len(state[name]) > len(weight):
                state[name][len(weight) :] = weight[UNKNOWN]
