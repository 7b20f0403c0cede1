"""Batch -> inputs at every position, and last-layer channels -> raw parameters of the likelihood.

The inputs are the paper's: lagged values, covariates and embeddings, concatenated; profiles and flags of observed
values where the settings ask for them. The output layer may add a learned mix of the lagged values to the location
(`ModelConfig.anchor`). A network reads whole windows in `forward`, or the history in `begin` and then one position of
every path per call of `advance`; model/decode.py does the latter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from logsparse.attention.inputs import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.network import Network

# Shapes: B windows, N sample paths, M paths (N and perhaps the direct one), L positions, T positions read, H horizon,
# I inputs, E embedding, K lags, R profiles, A lags and profiles, W channels of the last layer, P parameters, X any.

# Added to the logit of an anchor that was not observed. Finite: a position without any must not become NaN.
_MASKED = -1e4
# Scaled values are clipped here. A lag may reach back before the window, where values can be of any size relative to
# the window's scale, and their squares must not overflow.
_LARGEST_INPUT = 1e4

Memory = TypeVar("Memory")


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

    def inputs(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """Return (B, L, I): `data_inputs` and the embeddings; zeros on padding."""
        embedded_BLE = self.embeddings(batch, generator).expand(len(batch), -1, -1)
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
        raw_P: Tensor = self.output(x_W)
        if self.mix is None:
            return raw_P
        weight_A: Tensor = self.mix(x_W)
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
