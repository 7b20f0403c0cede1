"""(Panel, series, forecast starts) -> Batch of tensors. The only place where numpy becomes torch.

The forecast start is always at position `context`. Only visible values are read: if the forecast starts at the cutoff
(`start = panel.lengths[series]`), the horizon has features, but no observed values. A window without any history, of a
series that begins at its forecast start or whose history is hidden, is all padding before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logsparse.data.calendar import DAY, Ints
from logsparse.data.features import Features, local_times
from logsparse.data.panel import Floats, Panel
from logsparse.data.scale import Profile, Scaling, profile_of, reach
from logsparse.errors import ConfigError

# B windows, L = context + horizon steps, E = reach + L steps, K lags, R profiles, F features, C static columns


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Windows as tensors; values that are missing, padded or after the cutoff are 0 and not observed."""

    values_BL: Tensor
    """Target minus the centre of its window."""
    observed_BL: Tensor
    """True if the target is observed."""
    lagged_BLK: Tensor
    """Target at each lag, possibly before the window, minus the centre."""
    lag_observed_BLK: Tensor
    """True if the lagged target is observed."""
    profile_BLR: Tensor
    """Mean target at the same phase of earlier seasons, minus the centre."""
    spread_BLR: Tensor
    """Mean distance from that mean."""
    profile_observed_BLR: Tensor
    """True if any of these targets is observed."""
    features_BLF: Tensor
    """Standardised; 0 on padding."""
    centre_B: Tensor
    """Subtracted from all values, added to the forecast; 0 for scales without a centre."""
    scale_B: Tensor
    """v of the history: divides the inputs of a network and multiplies its outputs."""
    series_B: Tensor
    """Number of the series in training, -1 if unknown (int64)."""
    static_BC: Tensor
    """Number of each static category, -1 if unknown (int64)."""
    padding_B: Tensor
    """Number of positions before the series begins (int64)."""
    context: int
    """Position of the forecast start."""

    def __len__(self) -> int:
        return len(self.series_B)

    @property
    def horizon(self) -> int:
        """Number of steps from the forecast start to the end."""
        return self.values_BL.shape[1] - self.context

    @property
    def starts_B(self) -> Tensor | None:
        """First real position of each window (int64), or None if no window is padded."""
        return self.padding_B if bool(self.padding_B.any()) else None

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with `change` applied to every tensor."""
        tensors = {f.name: change(getattr(self, f.name)) for f in fields(self) if f.name != "context"}
        return Batch(context=self.context, **tensors)

    def mask_future_lags(self, lags: Sequence[int], rows: Tensor | slice = slice(None)) -> None:
        """Hide the lags of these windows that lie at or after the forecast start, which a forecast does not know."""
        for k, lag in enumerate(lags):
            self.lagged_BLK[rows, self.context + lag :, k] = 0
            self.lag_observed_BLK[rows, self.context + lag :, k] = False

    def forget_series(self, rows: Tensor) -> None:
        """Let the series of these windows, and their categories, count as unknown."""
        self.series_B[rows] = -1
        self.static_BC[rows] = -1

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device, without a copy if it is there already."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def clone(self) -> Batch:
        """Return a copy, which stays valid after the next batch."""
        return self.each(torch.clone)


def lag_input(lag: int) -> str:
    """Return the name of a lag among the inputs."""
    return f"lag {lag}"


def profile_input(profile: Profile) -> str:
    """Return the name of a profile among the inputs."""
    return f"profile {profile}"


class Windows:
    """Gathers batches of one panel in reused memory: a batch is valid until the next call, unless cloned.

    `delays` are numbers of steps by which single inputs are read too early: calendar features by name, lags and
    profiles as `lag_input` and `profile_input` call them. evaluation/importance compares with such batches.
    """

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
        delays: Mapping[str, int] | None = None,
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
        self.delays = dict(delays or {})
        self._alike_days: dict[Profile, tuple[int, Ints]] = {}
        self._buffers = self._allocate(0)

    def __call__(self, series_B: Ints, start_B: Ints, hidden_B: NDArray[np.bool_] | None = None) -> Batch:
        """Return the windows with these series and forecast starts; those marked as hidden without their history."""
        new_B = start_B == 0 if hidden_B is None else hidden_B | (start_B == 0)
        batch = self._buffer(len(series_B))
        length = self.context + self.horizon
        before = reach(self.lags, self.profiles, self.horizon) + max(self.delays.values(), default=0)
        values_BE, observed_BE = self._gather(series_B, start_B - self.context - before, length + before)
        history = slice(before, before + self.context)
        centre_B, scale_B = self.scaling(values_BE[:, history], observed_BE[:, history], series_B, start_B)
        if new_B.any():
            values_BE[new_B, : before + self.context] = 0
            observed_BE[new_B, : before + self.context] = False
            centre_B[new_B], scale_B[new_B] = self.scaling.typical(series_B[new_B])
        batch.centre_B.numpy()[:], batch.scale_B.numpy()[:] = centre_B, scale_B
        np.subtract(values_BE, centre_B[:, None], out=values_BE, where=observed_BE, casting="same_kind")
        batch.values_BL.numpy()[:] = values_BE[:, before:]
        batch.observed_BL.numpy()[:] = observed_BE[:, before:]
        for k, lag in enumerate(self.lags):
            first = before - lag - self.delays.get(lag_input(lag), 0)
            batch.lagged_BLK.numpy()[..., k] = values_BE[:, first : first + length]
            batch.lag_observed_BLK.numpy()[..., k] = observed_BE[:, first : first + length]
        parts = (batch.profile_BLR, batch.spread_BLR, batch.profile_observed_BLR)
        for r, profile in enumerate(self.profiles):
            last = before + length - self.delays.get(profile_input(profile), 0)
            back = self._alike(profile, series_B, start_B) if profile.alike else profile.back(self.horizon)
            computed = profile_of(values_BE[:, :last], observed_BE[:, :last], back, length)
            for part_BLR, computed_BL in zip(parts, computed, strict=True):
                part_BLR.numpy()[..., r] = computed_BL
        batch.series_B.numpy()[:] = series_B if self.panel.numbers is None else self.panel.numbers[series_B]
        for c, column in enumerate(self.panel.static.values()):
            batch.static_BC.numpy()[:, c] = column.codes[series_B]
        batch.padding_B.numpy()[:] = np.maximum(self.context - start_B, 0)
        self._write_features(batch.features_BLF.numpy(), series_B, start_B, new_B)
        if new_B.any():
            batch.series_B.numpy()[new_B] = -1
            batch.padding_B.numpy()[new_B] = self.context
        return batch

    def blank(self) -> Batch:
        """Return one window of zeros without a target: the share of a rank that has no window of a batch."""
        batch = self._buffer(1).each(torch.zero_)
        batch.scale_B.fill_(1)
        return batch

    def _alike(self, profile: Profile, series_B: Ints, start_B: Ints) -> Ints:
        """Return (K, B, L): how many steps back the same time of the last days alike is."""
        first, back_KD = self._days_back(profile)
        step_BL = (start_B - self.context)[:, None] + np.arange(self.context + self.horizon)
        time_BL = self.panel.freq.add(self.panel.starts[series_B][:, None], step_BL)
        return profile.step * back_KD[:, local_times(self.panel, time_BL) // DAY - first]

    def _days_back(self, profile: Profile) -> tuple[int, Ints]:
        """Return the first day of all windows, and how many days back the last days alike are, of each from it on."""
        if profile not in self._alike_days:
            panel, holidays = self.panel, self.features.holidays
            assert holidays is not None
            steps_S = (np.full_like(panel.starts, -self.context), panel.lengths + self.horizon)
            days = [panel.freq.add(panel.starts, part_S) // DAY for part_S in steps_S]
            # A local day may be the one before or after that of UTC.
            day_D = np.arange(int(days[0].min()) - 1, int(days[1].max()) + 2)
            back_KD = holidays.alike(day_D, profile.nearest(self.horizon), profile.count)
            self._alike_days[profile] = int(day_D[0]), back_KD
        return self._alike_days[profile]

    def _write_features(self, out_BLF: Floats, series_B: Ints, start_B: Ints, new_B: NDArray[np.bool_]) -> None:
        step_BL = (start_B - self.context)[:, None] + np.arange(self.context + self.horizon)
        self.features(self.panel, series_B, step_BL, out_BLF)
        for f, name in enumerate(self.features.names):
            if back := self.delays.get(name):
                out_BLF[..., f] = self.features.earlier(name, self.panel, series_B, step_BL, back)
        if self.features.past:
            self.features.read_past(self.panel, series_B, step_BL, (np.where(new_B, start_B, 0), start_B), out_BLF)
        if (start_B < self.context).any():
            out_BLF[step_BL < 0] = 0
        if new_B.any():
            self.features.restart_age(out_BLF, new_B, self.context)

    def _gather(self, series_B: Ints, first_B: Ints, size: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return `size` steps per series from `first_B` on; 0 if not observed or not visible."""
        begin_B, length_B = self.panel.indptr[series_B], self.panel.lengths[series_B]
        if len(series_B) and (first_B >= 0).all() and (first_B + size <= length_B).all():
            # All windows are inside their series: whole rows are copied.
            rows = np.lib.stride_tricks.sliding_window_view(self.panel.values, size)
            values_BE = rows[begin_B + first_B]
            observed_BE = ~np.isnan(values_BE)
        else:
            step_BE = first_B[:, None] + np.arange(size)
            # Clipped to the visible part, so that no value after the cutoff is read.
            near_BE = np.clip(step_BE, 0, np.maximum(length_B - 1, 0)[:, None])
            values_BE = self.panel.values[begin_B[:, None] + near_BE]
            observed_BE = (near_BE == step_BE) & (step_BE < length_B[:, None]) & ~np.isnan(values_BE)
        np.copyto(values_BE, 0, where=~observed_BE)
        return values_BE, observed_BE

    def _buffer(self, size: int) -> Batch:
        """Return the first `size` rows of the buffers, which grow if needed."""
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
