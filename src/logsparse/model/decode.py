"""Network + windows whose horizon is unknown -> sample paths, mean and quantiles of every step.

Methods (docs/forecaster.md):
- `ancestral` feeds each path its own samples, so that paths are joint trajectories.
- `mean-path` feeds the mean to one path and draws all samples around it, as the authors of the paper did.
- `direct` reads the distributions of all steps from one forward pass in which lags within the horizon are masked.
- `two-way` averages the quantiles of `direct` and `ancestral`: one is better on ordinary days, the other after a break.
  The farther the step, the more `direct` counts, since paths add up the errors of all steps before (docs/RECIPE.md).

Where things are: `sample_paths` is the loop over steps. Each step calls `Transformer.advance`, which calls `advance` in
model/block.py, which calls the C++ kernel (native/advance.h, bound in native/attention.cpp). Quantiles of a forecast
are those of the mixture of all paths' distributions, computed by `mixture_quantiles`; those of one distribution come
from `Distribution.quantile` in model/likelihood.py. `sample` splits many windows into batches of bounded
memory and calls `network.forecast`. `decode_plainly`, one forward pass per step, is the reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs
from logsparse.data.windows import Batch, Windows
from logsparse.model.likelihood import Distribution
from logsparse.model.network import Autoregressive, Decoded, Memory, Network, rows_alike, to_input
from logsparse.process import kept_memory

# Shapes: W windows, B windows of a batch, U series, N sample paths, M distributions (one per path or one for all, and
# perhaps the direct one), L positions, I inputs, H horizon, h its steps after the first, Q quantile levels, P
# parameters, X any, k points of one distribution, n points of all.

ACCURACY = 0.06
"""Error that sampling adds where the number of paths is left to the library: the RMS error of the 0.1 and 0.9 quantiles
in widths of the 80 % interval. At levels down to 0.01 it is 0.04 to 0.08 (docs/LOG.md)."""
# Paths needed for it, as measured: factor * tail ** power, where the tail is the farthest level asked for, at most 0.1.
# `two-way` halves the error of the paths, so a third of them is enough.
_PATHS, _TAIL, _POWER = {"ancestral": 3.0, "two-way": 1.0}, 0.1, -1.2
_MOST_PATHS = 1000
# Step of the horizon at which both ways of `two-way` count the same (docs/RECIPE.md).
_EVEN = 12

# A mixture quantile takes at least this many points of all distributions, and this many beyond the outermost level.
_POINTS, _POINTS_BEYOND = 400, 4
# Fewer points per distribution are hardly better than one sample (docs/LOG.md).
_FEWEST_POINTS_PER_PATH, _MOST_POINTS_PER_PATH = 16, 64
# Points held in memory at once.
_CELLS = 1 << 19

# Paths decoded together: enough for large matrix products, few enough to stay in the CPU caches (docs/LOG.md).
ROWS = 512
# Windows decoded together, for the same reason.
WINDOWS = 256
# Limit on the keys, values and states of the windows decoded together.
BYTES = 512 * 2**20

# Distance from 1 to the next float32 below it.
_EDGE = 2.0**-24

Keys = NDArray[np.uint64]


class Decoder(Autoregressive[Memory]):
    """An autoregressive network that forecasts by decoding; `Transformer` and `Recurrent` extend it."""

    def forecast(self, batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str) -> Decoded:
        """Forecast by one of the methods above."""
        if method == "direct":
            return decode_direct(self, batch, levels)
        if method == "two-way":
            return decode_two_ways(self, batch, uniform_BNH, levels)
        return decode(self, batch, uniform_BNH, levels, method)

    def paths_needed(self, levels: Sequence[float], method: str) -> int:
        """Return the number of paths that keeps to `ACCURACY`; 0 where quantiles are exact without any."""
        if method not in _PATHS:
            return 0
        tail = min(_TAIL, *(min(level, 1 - level) for level in levels))
        return min(math.ceil(_PATHS[method] * math.pow(tail, _POWER)), _MOST_PATHS)

    def paths_read(self, paths: int, method: str) -> int:
        """Return the number of paths decoded individually."""
        return {"ancestral": paths, "two-way": paths + 1}.get(method, 1)


@dataclass(frozen=True)
class SampledPaths:
    """Sample paths over the horizon and the distributions they were drawn from."""

    drawn_HBN: Tensor
    first: Distribution
    """(B, 1): of the first step, shared by all paths."""
    later: Distribution
    """(H - 1, B, M): of the steps after it."""

    def distributions(self, paths: slice) -> Distribution:
        """Return the distributions of these paths at all steps, (H, B, paths)."""
        pairs = zip(self.first.parameters, self.later.parameters, strict=True)
        parts = [torch.cat([one.expand(-1, rest[..., paths].shape[2])[None], rest[..., paths]]) for one, rest in pairs]
        return Distribution(self.first.family, tuple(parts))


def decode(
    network: Autoregressive[Any], batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str = "ancestral"
) -> Decoded:
    """Decode step by step, with paths from uniform draws in (0, 1), one per window, path and step.

    Mean and quantiles come from the mixture of all paths' distributions: more accurate than those of the samples
    (docs/LOG.md).
    """
    sampled = sample_paths(network, batch, uniform_BNH, feed="samples" if method == "ancestral" else "mean")
    return _summary(network, batch, sampled, slice(None), levels)


@torch.no_grad()
def decode_two_ways(
    network: Autoregressive[Any], batch: Batch, uniform_BNH: Tensor, levels: Sequence[float]
) -> Decoded:
    """Average the paths' mixture and the direct distribution, quantile by quantile; paths keep their ranks.

    At step h, counted from 1, the direct distribution has the weight h / (h + 12).

    The direct distribution is decoded as one more path that nothing is fed to, so the history is read once. Windows
    without a history have it alone: their first step is known so badly that errors of a path would add up.
    """
    paths = uniform_BNH.shape[1]
    sampled = sample_paths(network, batch, uniform_BNH, feed="samples", direct=True)
    stepwise = _summary(network, batch, sampled, slice(paths), levels)
    direct = sampled.distributions(slice(paths, None))
    direct_HBQ = direct.quantile(levels).squeeze(-2)
    rank_BNH = stepwise.paths_BNH.argsort(1).argsort(1)
    level_HBN = ((rank_BNH + 0.5) / paths).movedim(-1, 0)
    blank_B11 = ~batch.observed_BL[:, : batch.context].any(1)[:, None, None]

    step_H = torch.arange(1, batch.horizon + 1, dtype=direct_HBQ.dtype, device=direct_HBQ.device)
    share_H = step_H / (step_H + _EVEN)

    def averaged(one_BXH: Tensor, other_HBX: Tensor) -> Tensor:
        other_BXH = network.bounded(other_HBX, batch).movedim(0, -1)
        return torch.where(blank_B11, other_BXH, (1 - share_H) * one_BXH + share_H * other_BXH)

    paths_BNH = averaged(stepwise.paths_BNH, direct.sample(level_HBN))
    quantiles_BQH = averaged(stepwise.quantiles_BQH, direct_HBQ)
    if network.likelihood.integer:
        paths_BNH, quantiles_BQH = (paths_BNH + 0.5).floor(), (quantiles_BQH + 0.5).floor()
    return Decoded(paths_BNH, averaged(stepwise.mean_BH[:, None], direct.mean)[:, 0], quantiles_BQH)


@torch.no_grad()
def decode_direct(network: Autoregressive[Any], batch: Batch, levels: Sequence[float]) -> Decoded:
    """Forecast every step from one forward pass: exact quantiles, no paths."""
    distribution = direct_distributions(network, batch)
    quantiles_BQH = distribution.quantile(levels).movedim(-1, 1)
    return Decoded(
        quantiles_BQH.new_empty(len(batch), 0, batch.horizon),
        network.bounded(distribution.mean, batch),
        network.bounded(quantiles_BQH.flatten(1), batch).view(quantiles_BQH.shape),
    )


def direct_distributions(network: Autoregressive[Any], batch: Batch) -> Distribution:
    """Return the distributions (B, H) of every step given the history alone."""
    masked = batch.clone()
    masked.mask_future_lags(network.config.lags)
    return network.likelihood.distribution(network(masked)[:, batch.context :], batch.scale_B[:, None])


@torch.no_grad()
def sample_paths(
    network: Autoregressive[Any],
    batch: Batch,
    uniform_BNH: Tensor,
    *,
    feed: Literal["samples", "mean"],
    direct: bool = False,
) -> SampledPaths:
    """Read the history once, then one position of every path per step.

    Each path is fed its own samples, or one path, from which all samples are drawn, is fed the mean. With `direct`, a
    last path is fed nothing.
    """
    size, paths, horizon = uniform_BNH.shape
    scale_B1, fed = batch.scale_B[:, None], (paths if feed == "samples" else 1)
    read = fed + direct
    shared_BLI = network.inputs(batch)
    network.mask_future_lags(shared_BLI, batch.context)
    # Steps first: what one step reads and writes is contiguous.
    uniform_HBN = uniform_BNH.movedim(-1, 0).contiguous()
    drawn_HBN, fed_HBN = torch.empty_like(uniform_HBN), uniform_BNH.new_empty(horizon, size, fed)
    raw_BP, memory = network.begin(
        shared_BLI[:, : batch.context + 1], paths=read, steps=max(1, horizon - 1), starts_B=batch.starts_B
    )
    raw_hBMP = raw_BP.new_empty(horizon - 1, size, read, raw_BP.shape[-1])
    first = distribution = network.likelihood.distribution(raw_BP[:, None], scale_B1)
    for step in range(horizon):
        if step:
            position = batch.context + step
            inputs_BMI = network.inputs_at(position, shared_BLI, fed_HBN, read, batch.context)
            raw_hBMP[step - 1] = network.advance(inputs_BMI, memory)
            distribution = network.likelihood.distribution(raw_hBMP[step - 1, :, :fed], scale_B1)
        drawn_HBN[step] = network.bounded(distribution.sample(uniform_HBN[step]), batch)
        value_BN = drawn_HBN[step] if feed == "samples" else network.bounded(distribution.mean, batch)
        fed_HBN[step] = to_input(value_BN, scale_B1)
    return SampledPaths(drawn_HBN, first, network.likelihood.distribution(raw_hBMP, scale_B1))


def _summary(
    network: Autoregressive[Any], batch: Batch, sampled: SampledPaths, paths: slice, levels: Sequence[float]
) -> Decoded:
    """Return all samples, with mean and quantiles of the mixture of these paths' distributions."""
    mean_HB = network.bounded(sampled.distributions(paths).mean, batch).mean(-1)
    later = [part[..., paths].flatten(0, 1) for part in sampled.later.parameters]
    mixed_XQ = mixture_quantiles(Distribution(sampled.later.family, tuple(later)), levels)
    first_1BQ = sampled.first.quantile(levels).movedim(1, 0)
    quantiles_HBQ = torch.cat([first_1BQ, mixed_XQ.view(-1, *first_1BQ.shape[1:])])
    return Decoded(sampled.drawn_HBN.movedim(0, -1), mean_HB.mT, network.bounded(quantiles_HBQ, batch).movedim(0, -1))


def mixture_quantiles(distribution: Distribution, levels: Sequence[float]) -> Tensor:
    """Return quantiles (X, Q) of mixtures in equal parts of distributions (X, M).

    Computed from evenly spread points of each distribution; exact where M is 1.
    """
    count = distribution.parameters[0].shape[1]
    if count == 1:
        return distribution.quantile(levels)[:, 0]
    outermost = min(min(level, 1 - level) for level in levels)
    wanted = max(_POINTS, math.ceil(_POINTS_BEYOND / outermost))
    points = min(max(math.ceil(wanted / count), _FEWEST_POINTS_PER_PATH), _MOST_POINTS_PER_PATH)
    rows = max(1, _CELLS // (count * points))
    quantiles_XQ = distribution.parameters[0].new_empty(len(distribution.parameters[0]), len(levels))
    for begin in range(0, len(quantiles_XQ), rows):
        some = slice(begin, begin + rows)
        part = Distribution(distribution.family, tuple(parameter[some] for parameter in distribution.parameters))
        quantiles_XQ[some] = _quantiles_of_points(part, points, levels)
    return quantiles_XQ


def _quantiles_of_points(distribution: Distribution, points: int, levels: Sequence[float]) -> Tensor:
    """Return quantiles (X, Q) of `points` points of each distribution (X, M), all pooled."""
    # Paths first: the points of one path have the same levels in all rows.
    by_path = Distribution(distribution.family, tuple(part.mT for part in distribution.parameters))
    count, device = len(by_path.parameters[0]), by_path.parameters[0].device
    # Shifted from path to path, so that the pooled points of equal distributions are evenly spread too.
    shift_M11 = (torch.arange(count, device=device)[:, None, None] + 0.5) / count
    points_MXk = by_path.at((torch.arange(points, device=device) + shift_M11) / points)
    sorted_Xn = _sorted(points_MXk.movedim(0, 1).flatten(1))
    total = sorted_Xn.shape[1]
    place_Q = torch.tensor([level * total - 0.5 for level in levels], device=device).clamp(0, total - 1)
    if distribution.family.integer:
        return sorted_Xn[:, place_Q.ceil().long()]
    below_Q = place_Q.floor().long()
    low, high = sorted_Xn[:, below_Q], sorted_Xn[:, (below_Q + 1).clamp(max=total - 1)]
    return torch.lerp(low, high, (place_Q - below_Q).to(low.dtype))


def _sorted(x_Xn: Tensor) -> Tensor:
    """Sort each row."""
    if x_Xn.device.type != "cpu":
        return x_Xn.sort(1).values
    # numpy sorts with vector instructions, in a tenth of torch's time (docs/LOG.md).
    return torch.from_numpy(np.sort(x_Xn.numpy(), axis=1))


@torch.no_grad()
def decode_plainly(
    network: Autoregressive[Any], batch: Batch, uniform_BNH: Tensor, method: str = "ancestral"
) -> Tensor:
    """Return paths (B, N, H) by one forward pass over all windows and paths per step: the reference of `decode`."""
    size, paths, horizon = uniform_BNH.shape
    fed = _repeat(batch, paths if method == "ancestral" else 1)
    drawn_BNH = torch.empty_like(uniform_BNH)
    for step in range(horizon):
        position = batch.context + step
        raw_BNP = network(fed)[:, position].unflatten(0, (size, -1))
        distribution = network.likelihood.distribution(raw_BNP, batch.scale_B[:, None])
        drawn_BNH[..., step] = network.bounded(distribution.sample(uniform_BNH[..., step]), batch)
        value_BN = drawn_BNH[..., step] if method == "ancestral" else network.bounded(distribution.mean, batch)
        _feed(fed, position, value_BN.flatten(), network.config.lags)
    return drawn_BNH


@torch.no_grad()
def along_the_mean(network: Autoregressive[Any], batch: Batch) -> Batch:
    """Return the windows with the mean path as values of the horizon and in all lags that refer to them."""
    middle_B1H = torch.full((len(batch), 1, batch.horizon), 0.5, device=batch.scale_B.device)
    mean_BH = decode(network, batch, middle_B1H, (0.5,), "mean-path").mean_BH
    filled = batch.clone()
    filled.values_BL[:, batch.context :] = mean_BH
    for step, value_B in enumerate(mean_BH.unbind(1)):
        _feed(filled, batch.context + step, value_B, network.config.lags)
    return filled


def _repeat(batch: Batch, paths: int) -> Batch:
    """Return a copy in which each window is repeated `paths` times in a row."""
    return batch.each(lambda tensor: tensor.repeat_interleave(paths, dim=0))


def _feed(batch: Batch, position: int, value_B: Tensor, lags: tuple[int, ...]) -> None:
    """Write the values at a position into the lags of later positions, in place."""
    length = batch.lagged_BLK.shape[1]
    for k, lag in enumerate(lags):
        if position + lag < length:
            batch.lagged_BLK[:, position + lag, k] = value_B
            batch.lag_observed_BLK[:, position + lag, k] = True


def draws(seed: int, key_B: Keys, paths: int, horizon: int) -> Tensor:
    """Return uniform draws (B, N, H) keyed by (seed, window, path, step): the same however the work is split.

    The N draws of a window and step are stratified: one in each of N equal parts of (0, 1), in a random order per step.
    """
    with np.errstate(over="ignore"):
        cell_BNH = _mix(
            _mix(
                _mix(key_B + _mix(np.uint64(seed % 2**64)))[:, None, None] + np.arange(paths, dtype=np.uint64)[:, None]
            )
            + np.arange(horizon, dtype=np.uint64)
        )
        place_BNH = cell_BNH.argsort(axis=1).argsort(axis=1)
        drawn_BNH = (_mix(cell_BNH) >> np.uint64(11)) * 2.0**-53
    # In place: allocating this much costs more than the arithmetic.
    drawn_BNH += place_BNH
    drawn_BNH /= paths
    return torch.from_numpy(drawn_BNH.clip(_EDGE, 1 - _EDGE, out=drawn_BNH).astype(np.float32))


def _mix(z: Any) -> Any:
    """Hash 64-bit numbers (splitmix64)."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@dataclass(frozen=True)
class Sampled:
    """Forecasts of all windows; `paths_WNH` is None unless `Sampling.keep_paths`."""

    mean_WH: Floats
    quantiles_WQH: Floats
    paths_WNH: Floats | None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of `sample`: number of paths, quantile levels, decoding method, seed."""

    paths: int
    levels: Sequence[float]
    method: str
    seed: int
    keep_paths: bool


def sample(
    network: Network, windows: Windows, pairs: Pairs, sampling: Sampling, *, report: Callable[[int], None] | None = None
) -> Sampled:
    """Forecast every window; the result for a window does not depend on the others, to the last bit.

    Windows with padding are decoded apart from those without, since some layers compute the two in another order, and
    windows are filled up to `Network.windows_alike`. `report` is called with the number of windows of each batch.
    """
    horizon = windows.horizon
    result = Sampled(
        np.empty((len(pairs), horizon), np.float32),
        np.empty((len(pairs), len(sampling.levels), horizon), np.float32),
        np.empty((len(pairs), sampling.paths, horizon), np.float32) if sampling.keep_paths else None,
    )
    device = next(network.parameters()).device
    size, parts = _split(network, windows, max(1, network.paths_read(sampling.paths, sampling.method)))
    key_W = window_keys(windows.panel, pairs)
    padding_W = np.maximum(windows.context - pairs.start_B, 0)
    groups_W = padding_W if network.windows_alike > 1 else np.minimum(padding_W, 1)
    # Every batch needs the same memory; returning it in between would cost a fifth of the time.
    with rows_alike(), kept_memory() if len(pairs) > size else nullcontext():
        for part in _parts(groups_W, size):
            filled = np.pad(part, (0, -len(part) % network.windows_alike), mode="edge")
            batch = windows(pairs.series_B[filled], pairs.start_B[filled]).to(device)
            uniform_BNH = draws(sampling.seed, key_W[filled], sampling.paths, horizon).to(device)
            decoded = _joined(
                [
                    network.forecast(batch, u, sampling.levels, sampling.method)
                    for u in uniform_BNH.tensor_split(parts, 1)
                ]
            )
            centre_B1, count = batch.centre_B[:, None], len(part)
            result.mean_WH[part] = (decoded.mean_BH + centre_B1)[:count].cpu().numpy()
            result.quantiles_WQH[part] = (decoded.quantiles_BQH + centre_B1[:, None])[:count].cpu().numpy()
            if result.paths_WNH is not None:
                result.paths_WNH[part] = (decoded.paths_BNH + centre_B1[:, None])[:count].cpu().numpy()
            if report is not None:
                report(count)
    return result


def _parts(groups_W: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the windows of each batch, at most `size` of them, all of one group."""
    for group in np.unique(groups_W).tolist():
        numbers = np.flatnonzero(groups_W == group)
        yield from (numbers[begin : begin + size] for begin in range(0, len(numbers), size))


def _split(network: Network, windows: Windows, paths: int) -> tuple[int, int]:
    """Return the number of windows decoded together, and into how many parts the paths of a window are split."""
    bytes_per_path = 4 * network.memory_width * windows.horizon
    most = max(1, min(ROWS, BYTES // bytes_per_path))
    bytes_per_window = 4 * network.memory_width * windows.context + min(paths, most) * bytes_per_path
    return max(1, min(most // paths, BYTES // bytes_per_window, WINDOWS)), -(-paths // most)


def _joined(parts: Sequence[Decoded]) -> Decoded:
    """Join parts of the paths; means and quantiles are averages, weighted by the number of paths."""
    if len(parts) == 1:
        return parts[0]
    share = [part.paths_BNH.shape[1] / sum(part.paths_BNH.shape[1] for part in parts) for part in parts]
    return Decoded(
        torch.cat([part.paths_BNH for part in parts], dim=1),
        sum((part.mean_BH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
        sum((part.quantiles_BQH * s for part, s in zip(parts, share, strict=True)), torch.tensor(0.0)),
    )


def window_keys(panel: Panel, pairs: Pairs) -> Keys:
    """Return a number per series id and forecast start, the same in every panel."""
    series_U, which_W = np.unique(pairs.series_B, return_inverse=True)
    names = [repr(panel.ids[series]).encode() for series in series_U.tolist()]
    name_U = np.array([int.from_bytes(blake2b(name, digest_size=8).digest(), "little") for name in names], np.uint64)
    time_W = panel.freq.add(panel.starts[pairs.series_B], pairs.start_B)
    # Overflow is intended; `draws` hashes the sum.
    return np.asarray(name_U[which_W] + time_W.astype(np.uint64))
