"""Batch -> what every network is asked: raw parameters, the log-density of the targets under them, a forecast.

`Network` holds what all share: the embeddings of positions, series and categories. Training knows this face only.
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

# B windows, N sample paths, L positions, H horizon, E embedding, I inputs, P parameters, C static columns, Q levels

UNKNOWN = 0
"""Row of an embedding for a series or a category that was not there in training."""


@dataclass(frozen=True)
class Decoded:
    """What was drawn, and what is known of the law of each step."""

    paths_BNH: Tensor
    mean_BH: Tensor
    quantiles_BQH: Tensor


class Network(nn.Module, ABC):
    """`length` positions, `features` covariates, `series` known series, `static`: categories of each static column."""

    has_positions: ClassVar[bool] = True
    """Whether a position is told apart from others by an embedding."""

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
        """(B, L, P) raw parameters. Dropout is active when a generator is given, and only then."""

    def log_density(self, raw_BLP: Tensor, batch: Batch, begin: int = 0) -> Tensor:
        """(B, L - begin): of each target from `begin` on, given those before it; one that is missing counts as 0."""
        law = self.likelihood.distribution(raw_BLP[:, begin:], batch.scale_B[:, None])
        # Missing targets are 0 in a batch: inside every family's support, and masked here.
        return torch.where(batch.observed_BL[:, begin:], law.log_density(batch.values_BL[:, begin:]), 0)

    def check(self, values: Tensor) -> None:
        """Refuse targets that there cannot be."""
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
        """Of a batch whose horizon is unknown: paths from uniform draws in (0, 1), means and quantiles.

        Less the centre of each window, as all values of a batch are.
        """

    @abstractmethod
    def paths_needed(self, levels: Sequence[float], method: str) -> int:
        """Paths that quantiles of these levels need to be accurate; 0 where they are exact without any."""

    @abstractmethod
    def paths_read(self, paths: int, method: str) -> int:
        """Of so many paths of a window, those that the network reads one by one."""

    @property
    @abstractmethod
    def memory_width(self) -> int:
        """Numbers remembered of one position of one path."""

    @abstractmethod
    def initialise(self, generator: Generator) -> None:
        """Fresh weights."""

    def embeddings(self, batch: Batch, generator: Generator | None) -> Tensor:
        """(B, L, E), or (1, L, E) where all windows share it: of position, series and static categories, summed."""
        length = batch.values_BL.shape[1]
        where_LE = batch.scale_B.new_zeros(length, self.config.embedding)
        if self.position is not None:
            where_LE = self.position.weight[:length]
        tables: list[tuple[Any, Tensor]] = list(zip(self.static, batch.static_BC.unbind(1), strict=True))
        if self.series is not None:
            tables.insert(0, (self.series, batch.series_B))
        if not tables:
            return where_LE[None]
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
    def take_over(self, old: Network) -> None:
        """The old one's weights; rows for series and categories that it did not have start as the unknown."""
        state = self.state_dict()
        for name, weight in old.state_dict().items():
            state[name][: len(weight)] = weight
            if len(state[name]) > len(weight):
                state[name][len(weight) :] = weight[UNKNOWN]
