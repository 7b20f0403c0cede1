"""(Panel, series, forecast starts) -> Batch of tensors. The only place where numpy becomes torch.

The forecast start always stands at position `context`. A value is read only where it is visible: the horizon of a
window that starts at the cutoff (`start = panel.lengths[series]`) comes back unobserved, with its features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logsparse.data.calendar import Ints
from logsparse.data.features import Features
from logsparse.data.panel import Panel
from logsparse.data.scale import Profile, Scaling, profile_of, reach
from logsparse.errors import ConfigError

# B windows, L = context + horizon steps, E = reach + L steps, K lags, R profiles, F features, C static columns


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Windows side by side; whatever is missing, padded or after the cutoff is 0 and not observed."""

    values_BL: Tensor
    """Target, less the centre of its window."""
    observed_BL: Tensor
    """Where there is a target (bool)."""
    lagged_BLK: Tensor
    """Target so many steps earlier, which may lie before the window, less the centre."""
    lag_observed_BLK: Tensor
    """Where there is one (bool)."""
    profile_BLR: Tensor
    """Mean target at the same phase of earlier seasons, less the centre."""
    spread_BLR: Tensor
    """Mean distance from that mean."""
    profile_observed_BLR: Tensor
    """Where there is one (bool)."""
    features_BLF: Tensor
    """Standardised; 0 on padding."""
    centre_B: Tensor
    """What was taken from all values, to be added to what is forecast; 0 for scales without a centre."""
    scale_B: Tensor
    """v of the history: divides what goes into a network, multiplies what comes out."""
    series_B: Tensor
    """Number of the series in training, -1 for one unknown (int64)."""
    static_BC: Tensor
    """Number of each static category, -1 for one unknown (int64)."""
    padding_B: Tensor
    """Positions on the left that lie before the series begins (int64)."""
    context: int
    """Position of the forecast start."""

    def __len__(self) -> int:
        return len(self.series_B)

    @property
    def horizon(self) -> int:
        """Steps from the forecast start to the end."""
        return self.values_BL.shape[1] - self.context

    @property
    def starts_B(self) -> Tensor | None:
        """First real position of each window, int64; None where no window is padded, which spares looking for it."""
        return self.padding_B if bool(self.padding_B.any()) else None

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with every tensor changed."""
        tensors = {f.name: change(getattr(self, f.name)) for f in fields(self) if f.name != "context"}
        return Batch(context=self.context, **tensors)

    def mask_future_lags(self, lags: Sequence[int], rows: Tensor | slice = slice(None)) -> None:
        """Hide, in these windows, the lags that lie at or after the forecast start: not known when it is made."""
        for k, lag in enumerate(lags):
            self.lagged_BLK[rows, self.context + lag :, k] = 0
            self.lag_observed_BLK[rows, self.context + lag :, k] = False

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device; without a copy where it already is there."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def clone(self) -> Batch:
        """A batch of its own memory, which outlives the next gathering."""
        return self.each(torch.clone)


class Windows:
    """Gathers batches of one panel into the same memory: a batch is valid until the next one, or cloned."""

    def __init__(
        self,
        panel: Panel,
        features: Features,
        *,
        context: int,
        horizon: int,
        lags: Sequence[int] = (1,),
        profiles: Sequence[Profile] = (),
        scale: str = "one-plus-mean",
    ) -> None:
        if not lags or min(lags) < 1:
            raise ConfigError(
                "lags must be one or more numbers of steps, each at least 1.",
                got=repr(tuple(lags)),
                hint="lags=(1,) is the previous value; add for example the season.",
            )
        self.panel, self.features = panel, features
        self.context, self.horizon = context, horizon
        self.scaling = Scaling(panel, context, scale)
        self.lags, self.profiles = tuple(lags), tuple(profiles)
        self._buffers = self._allocate(0)

    def __call__(self, series_B: Ints, start_B: Ints) -> Batch:
        """The windows with these forecast starts."""
        batch = self._room(len(series_B))
        length, before = self.context + self.horizon, reach(self.lags, self.profiles, self.horizon)
        values_BE, observed_BE = self._gather(series_B, start_B - self.context - before, length + before)
        history = slice(before, before + self.context)
        centre_B, scale_B = self.scaling(values_BE[:, history], observed_BE[:, history], series_B, start_B)
        batch.centre_B.numpy()[:], batch.scale_B.numpy()[:] = centre_B, scale_B
        np.subtract(values_BE, centre_B[:, None], out=values_BE, where=observed_BE, casting="same_kind")
        batch.values_BL.numpy()[:] = values_BE[:, before:]
        batch.observed_BL.numpy()[:] = observed_BE[:, before:]
        for k, lag in enumerate(self.lags):
            batch.lagged_BLK.numpy()[..., k] = values_BE[:, before - lag : before - lag + length]
            batch.lag_observed_BLK.numpy()[..., k] = observed_BE[:, before - lag : before - lag + length]
        parts = (batch.profile_BLR, batch.spread_BLR, batch.profile_observed_BLR)
        for r, profile in enumerate(self.profiles):
            found = profile_of(values_BE, observed_BE, profile.back(self.horizon), length)
            for part_BLR, found_BL in zip(parts, found, strict=True):
                part_BLR.numpy()[..., r] = found_BL
        batch.series_B.numpy()[:] = series_B if self.panel.numbers is None else self.panel.numbers[series_B]
        for c, column in enumerate(self.panel.static.values()):
            batch.static_BC.numpy()[:, c] = column.codes[series_B]
        batch.padding_B.numpy()[:] = np.maximum(self.context - start_B, 0)
        step_BL = (start_B - self.context)[:, None] + np.arange(length)
        self.features(self.panel, series_B, step_BL, batch.features_BLF.numpy())
        if (start_B < self.context).any():
            batch.features_BLF.numpy()[step_BL < 0] = 0
        return batch

    def _gather(self, series_B: Ints, first_B: Ints, size: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """`size` steps of each series from `first_B` on; 0 where there is nothing to see."""
        begin_B, length_B = self.panel.indptr[series_B], self.panel.lengths[series_B]
        if len(series_B) and (first_B >= 0).all() and (first_B + size <= length_B).all():
            # Nothing sticks out: whole rows can be copied.
            rows = np.lib.stride_tricks.sliding_window_view(self.panel.values, size)
            values_BE = rows[begin_B + first_B]
            observed_BE = ~np.isnan(values_BE)
        else:
            step_BE = first_B[:, None] + np.arange(size)
            # Kept inside the visible part, so that a value after the cutoff is not even read.
            near_BE = np.clip(step_BE, 0, length_B[:, None] - 1)
            values_BE = self.panel.values[begin_B[:, None] + near_BE]
            observed_BE = (near_BE == step_BE) & ~np.isnan(values_BE)
        np.copyto(values_BE, 0, where=~observed_BE)
        return values_BE, observed_BE

    def _room(self, size: int) -> Batch:
        """The first `size` rows of the buffers, which grow when a larger batch comes."""
        if size > len(self._buffers):
            self._buffers = self._allocate(size)
        return self._buffers.each(lambda tensor: tensor[:size])

    def _allocate(self, size: int) -> Batch:
        length, lags, profiles = self.context + self.horizon, len(self.lags), len(self.profiles)
        return Batch(
            values_BL=torch.empty(size, length),
            observed_BL=torch.empty(size, length, dtype=torch.bool),
            lagged_BLK=torch.empty(size, length, lags),
            lag_observed_BLK=torch.empty(size, length, lags, dtype=torch.bool),
            profile_BLR=torch.empty(size, length, profiles),
            spread_BLR=torch.empty(size, length, profiles),
            profile_observed_BLR=torch.empty(size, length, profiles, dtype=torch.bool),
            features_BLF=torch.empty(size, length, len(self.features)),
            centre_B=torch.empty(size),
            scale_B=torch.empty(size),
            series_B=torch.empty(size, dtype=torch.int64),
            static_BC=torch.empty(size, len(self.panel.static), dtype=torch.int64),
            padding_B=torch.empty(size, dtype=torch.int64),
            context=self.context,
        )
