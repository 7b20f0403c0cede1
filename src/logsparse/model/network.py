"""Batch -> raw parameters, log-density of the targets, forecast: the interface of every network.

`Network` holds what all networks share: embeddings of positions, series and categories. Training uses nothing else.
model/statespace.py extends it by a filter, `Autoregressive` for networks that go step by step. The inputs of the
latter are the paper's: lagged values, covariates and embeddings, concatenated; profiles and flags of observed values
where the settings ask for them. The output layer may add a learned mix of the lagged values to the location
(`ModelConfig.anchor`). Such a network reads whole windows in `forward`, or the history in `begin` and then one position
of every path per call of `advance`; model/decode.py does the latter.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.plain import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.errors import DataError
from logsparse.model.likelihood import likelihood

# Shapes: B windows, N sample paths, M paths (N and perhaps the direct one), L positions, T positions read, H horizon,
# I inputs, E embedding, C static columns, K lags, R profiles, A lags and profiles, W channels of the last layer,
# P parameters, Q quantile levels, X any.

UNKNOWN = 0
"""Embedding row for series and categories that training did not contain."""
# Added to the logit of an anchor that was not observed. Finite: a position without any must not become NaN.
_MASKED = -1e4
# Scaled values are clipped here. A lag may reach back before the window, where values can be of any size relative to
# the window's scale, and their squares must not overflow.
_LARGEST_INPUT = 1e4

# A matrix product computes the rows beyond a multiple of a few by another loop, with other roundings.
_ROWS_ALIKE = 16
_alike: ContextVar[bool] = ContextVar("alike", default=False)

Memory = TypeVar("Memory")


@dataclass(frozen=True)
class Decoded:
    """Sample paths, and mean and quantiles of each step; values relative to the centre of their window."""

    paths_BNH: Tensor
    mean_BH: Tensor
    quantiles_BQH: Tensor


@contextmanager
def rows_alike() -> Iterator[None]:
    """Let every row of `linear` be the same to the last bit, whatever the number of rows is."""
    token = _alike.set(True)
    try:
        yield
    finally:
        _alike.reset(token)


def linear(x_XI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return x @ weight + bias; within `rows_alike`, over a number of rows that is rounded up."""
    if not _alike.get():
        return F.linear(x_XI, weight_OI, bias_O)
    rows_RI = x_XI.reshape(-1, x_XI.shape[-1])
    count = len(rows_RI)
    padded = F.pad(rows_RI, (0, 0, 0, -count % _ROWS_ALIKE)) if count % _ROWS_ALIKE else rows_RI
    return F.linear(padded, weight_OI, bias_O)[:count].view(*x_XI.shape[:-1], -1)


class Network(nn.Module, ABC):
    """Base of all networks.

    `length` is the number of positions, `features` of covariates, `series` of known series; `static` is the number of
    categories per static column.
    """

    has_positions: ClassVar[bool] = True
    """Whether positions have an embedding."""
    windows_alike: ClassVar[int] = 1
    """Windows are decoded in multiples of this number, so that each is the same whatever else is decoded.

    If it is above 1, windows of a batch are also padded alike."""

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

    def quantiles(self, raw_BLP: Tensor, batch: Batch, begin: int, levels: Sequence[float]) -> Tensor:
        """Return (B, L - begin, Q): quantiles of each target given those before it, relative to the centre."""
        return self.likelihood.distribution(raw_BLP[:, begin:], batch.scale_B[:, None]).quantile(levels)

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

    def embeddings(self, batch: Batch) -> Tensor:
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
        rows = [table(code_B + 1) for table, code_B in tables]
        return position_LE + torch.stack(rows).sum(0)[:, None]

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


class Autoregressive(Network, Generic[Memory]):
    """A network whose inputs contain lagged values: its inputs, its output layer, and the interface of one step."""

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        # The inputs begin with the anchors: all lags, then all profiles.
        self.anchors = len(config.lags) + len(config.profiles)
        self.input_width += self.anchors * (2 if config.see_missing else 1) + len(config.profiles)

    @abstractmethod
    def begin(
        self, inputs_BTI: Tensor, *, paths: int, steps: int, starts_B: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Read the positions that all paths share.

        Return (B, P) of the last position and a memory with room for `steps` more positions of each of `paths` paths.
        Positions before `starts_B` are padding and are not read.
        """

    @abstractmethod
    def advance(self, inputs_BNI: Tensor, memory: Memory) -> Tensor:
        """Read one more position of every path and return its raw parameters, (B, N, P)."""

    def inputs(self, batch: Batch) -> Tensor:
        """Return (B, L, I): `data_inputs` and the embeddings; zeros on padding."""
        embedded_BLE = self.embeddings(batch).expand(len(batch), -1, -1)
        return without_padding(torch.cat([self.data_inputs(batch), embedded_BLE], dim=-1), batch.starts_B)

    def data_inputs(self, batch: Batch) -> Tensor:
        """Return (B, L, I - E): scaled lags, profiles and spreads, flags of observed values, covariates."""
        scale_B11 = batch.scale_B[:, None, None]
        parts = [to_input(part, scale_B11) for part in (batch.lagged_BLK, batch.profile_BLR, batch.spread_BLR)]
        if self.config.see_missing:
            parts += [flags.to(parts[0].dtype) for flags in (batch.lag_observed_BLK, batch.profile_observed_BLR)]
        return torch.cat([*parts, batch.features_BLF], dim=-1)

    @property
    def observed_from(self) -> int:
        """Index of the first input that flags an observed lag."""
        return self.anchors + len(self.config.profiles)

    def mask_future_lags(self, inputs_BLI: Tensor, context: int) -> None:
        """Set lags that lie at or after the forecast start to zero, in place."""
        for k, lag in enumerate(self.config.lags):
            inputs_BLI[:, context + lag :, k] = 0
            if self.config.see_missing:
                inputs_BLI[:, context + lag :, self.observed_from + k] = 0

    def inputs_at(self, position: int, shared_BLI: Tensor, fed_HBN: Tensor, paths: int, context: int) -> Tensor:
        """Return (B, M, I): the inputs of M paths at a position of the horizon.

        Lags within the horizon of the first N paths are the scaled values fed back so far; other paths keep zeros.
        """
        inputs_BMI = shared_BLI[:, position, None].repeat(1, paths, 1)
        fed = fed_HBN.shape[2]
        for k, lag in enumerate(self.config.lags):
            if position - lag >= context:
                inputs_BMI[:, :fed, k] = fed_HBN[position - lag - context]
                if self.config.see_missing:
                    inputs_BMI[:, :fed, self.observed_from + k] = 1
        return inputs_BMI

    def make_head(self, width: int) -> None:
        """Create the output layer for `width` channels."""
        self.output = nn.Linear(width, len(self.likelihood.parameters))
        self.mix = nn.Linear(width, self.anchors) if self.config.anchor else None

    def head(self, x_W: Tensor, inputs_I: Tensor) -> Tensor:
        """Map channels (..., W) and inputs (..., I) to raw parameters (..., P)."""
        raw_P = linear(x_W, self.output.weight, self.output.bias)
        if self.mix is None:
            return raw_P
        weight_A = linear(x_W, self.mix.weight, self.mix.bias)
        # Lags and profiles are data and need no gradient.
        inputs_I = inputs_I.detach()
        if self.config.see_missing:
            observed_A = inputs_I[..., self.observed_from : self.observed_from + self.anchors]
            weight_A = torch.add(weight_A, 1 - observed_A, alpha=_MASKED)
        weight_A = torch.softmax(weight_A, -1)
        location = raw_P[..., :1] + (weight_A * inputs_I[..., : self.anchors]).sum(-1, keepdim=True)
        return torch.cat([location, raw_P[..., 1:]], -1)

    def bounded(self, value_XBX: Tensor, batch: Batch) -> Tensor:
        """Clamp values at `ModelConfig.lowest` and at the lower end of the likelihood's support.

        Values below are never forecast, and never fed back: training has not seen such lags.
        """
        configured = self.config.lowest if self.config.lowest is not None else -math.inf
        lowest = max(configured, self.likelihood.lowest)
        return value_XBX if lowest == -math.inf else torch.maximum(value_XBX, (lowest - batch.centre_B)[:, None])


def to_input(value: Tensor, scale: Tensor) -> Tensor:
    """Divide by the scale and clip, as all values that become inputs."""
    return (value / scale).clamp(-_LARGEST_INPUT, _LARGEST_INPUT)
