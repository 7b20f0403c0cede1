"""Stepwise network + Batch whose horizon is unknown -> sample paths, mean and quantiles of every step.

`ancestral` feeds each path's own samples back, so that paths are joint trajectories; `mean-path` feeds the mean back
and draws around that one path, as the authors did. `decode` reads the history once and then one position a step;
`decode_plainly` makes a whole forward pass a step, short and obvious: its oracle. A network that learned from blind
windows too can tell the laws of all steps in one forward pass, without feeding anything back; `two-way` is the mean of
that and of `ancestral`, quantile by quantile: one is better on ordinary days, the other after a break (docs/LOG.md).
`direct` is that forward pass alone, without any path: for millions of series.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from logsparse.attention.inputs import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.likelihood import Distribution
from logsparse.model.network import Decoded, Network

# B windows, N sample paths, M laws (one a path or one for all, and the blind one), L positions, T positions read,
# I inputs, K lags, A lags and profiles, X anything, H horizon, h its steps after the first, Q quantile levels,
# W channels of the last layer, P parameters, k points of a law, n points of all

METHODS = ("ancestral", "mean-path")

ACCURACY = 0.06
"""What drawing adds to a forecast that is not told how many paths to draw: the RMS error of the 0.1 and 0.9 quantiles,
in widths of the 80 % interval. Of farther levels, down to 0.01, it is 0.04 to 0.08 (docs/LOG.md)."""
# What keeps to it, as measured: so many times tail ** -1.2 paths, where the tail is the farthest asked, at most 0.1.
# With two ways the error of the paths is halved, which takes a third of them.
_PATHS, _TAIL, _POWER = {"ancestral": 3.0, "two-way": 1.0}, 0.1, -1.2
_MOST_PATHS = 1000

Keys = NDArray[np.uint64]

# At least so many points of all paths' laws together make a quantile, and so many lie beyond the outermost level.
_POINTS, _POINTS_BEYOND = 400, 4
# Fewer of one law would tell little more than a sample of it (docs/LOG.md).
_FEWEST_POINTS_A_PATH, _MOST_POINTS_A_PATH = 16, 64
# Points worked on at once.
_CELLS = 1 << 19

_NEVER = -1e4
# A lag may reach a value before the window whose size the scale does not know: beyond so many scales it is cut, lest
# squares of it are infinite.
_FARTHEST = 1e4

# float32 knows no number between 1 and this much less.
_EDGE = 2.0**-24

Memory = TypeVar("Memory")


class Stepwise(Network, Generic[Memory]):
    """What the paper's decoder and DeepAR share: lagged values go in too, and a forecast is made step by step."""

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        # An anchor may lie on any lag or profile; the inputs begin with them.
        self.anchors = len(config.lags) + len(config.profiles)
        self.input_width += self.anchors * (2 if config.see_missing else 1) + len(config.profiles)

    def make_head(self, width: int) -> None:
        """What turns the last layer's channels into raw parameters."""
        self.output = nn.Linear(width, len(self.likelihood.parameters))
        self.mix = nn.Linear(width, self.anchors) if self.config.anchor else None

    def head(self, x_W: Tensor, inputs_I: Tensor) -> Tensor:
        """Channels and inputs of any positions -> their raw parameters, (..., P)."""
        raw_P: Tensor = self.output(x_W)
        if self.mix is None:
            return raw_P
        weight_A: Tensor = self.mix(x_W)
        # Lags and profiles are data: no gradient is to be computed for them.
        inputs_I = inputs_I.detach()
        if self.config.see_missing:
            seen_A = inputs_I[..., self._seen_from : self._seen_from + self.anchors]
            # Not -inf: a position without any lag must come out as a number. What was not seen is 0 among the inputs.
            weight_A = torch.add(weight_A, 1 - seen_A, alpha=_NEVER)
        weight_A = torch.softmax(weight_A, -1)
        location = raw_P[..., :1] + (weight_A * inputs_I[..., : self.anchors]).sum(-1, keepdim=True)
        return torch.cat([location, raw_P[..., 1:]], -1)

    def bounded(self, value_XBX: Tensor, batch: Batch) -> Tensor:
        """Not below the lowest value there can be: training never saw such lags, so none may be fed back."""
        known = self.config.lowest if self.config.lowest is not None else -math.inf
        lowest = max(known, self.likelihood.lowest)
        return value_XBX if lowest == -math.inf else torch.maximum(value_XBX, (lowest - batch.centre_B)[:, None])

    @property
    def _seen_from(self) -> int:
        """The input that says whether the first lag was observed."""
        return self.anchors + len(self.config.profiles)

    @abstractmethod
    def begin(
        self, inputs_BTI: Tensor, *, paths: int, steps: int, starts_B: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Read what all paths share; (B, P) of the last position read, and a memory for so many steps of each path.

        Positions before `starts_B` are padding, and not read.
        """

    @abstractmethod
    def advance(self, inputs_BNI: Tensor, memory: Memory) -> Tensor:
        """Read one more position of every path: (B, N, P)."""

    def forecast(self, batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str) -> Decoded:
        """Step by step, all steps at once, or both."""
        if method == "direct":
            return decode_at_once(self, batch, levels)
        if method == "two-way":
            return decode_two_ways(self, batch, uniform_BNH, levels)
        return decode(self, batch, uniform_BNH, levels, method)

    def paths_needed(self, levels: Sequence[float], method: str) -> int:
        """Enough for `ACCURACY`; none where one law tells each step."""
        if method not in _PATHS:
            return 0
        tail = min(_TAIL, *(min(level, 1 - level) for level in levels))
        return min(math.ceil(_PATHS[method] * math.pow(tail, _POWER)), _MOST_PATHS)

    def paths_read(self, paths: int, method: str) -> int:
        """Every path that is fed its own samples, and the blind one of two ways; only one is fed the mean."""
        return {"ancestral": paths, "two-way": paths + 1}.get(method, 1)

    def inputs(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, I): what `data_inputs` gives, and embeddings; zeros in the padding."""
        where_BLE = self.embeddings(batch, generator).expand(len(batch), -1, -1)
        return without_padding(torch.cat([self.data_inputs(batch), where_BLE], dim=-1), batch.starts_B)

    def data_inputs(self, batch: Batch) -> Tensor:
        """(B, L, I - E): scaled lags, profiles and spreads, whether they were seen, covariates."""
        parts = [
            (part / batch.scale_B[:, None, None]).clamp(-_FARTHEST, _FARTHEST)
            for part in (batch.lagged_BLK, batch.profile_BLR, batch.spread_BLR)
        ]
        if self.config.see_missing:
            parts += [seen.to(parts[0].dtype) for seen in (batch.lag_observed_BLK, batch.profile_observed_BLR)]
        return torch.cat([*parts, batch.features_BLF], dim=-1)

    def hide_unknown(self, shared_BLI: Tensor, context: int) -> None:
        """The lags of inputs that lie at or after the forecast start: not known when it is made."""
        for k, lag in enumerate(self.config.lags):
            shared_BLI[:, context + lag :, k] = 0
            if self.config.see_missing:
                shared_BLI[:, context + lag :, self._seen_from + k] = 0

    def inputs_at(self, position: int, shared_BLI: Tensor, fed_HBN: Tensor, paths: int, context: int) -> Tensor:
        """(B, M, I): inputs after the forecast start; near lags of the first N paths are their own scaled values."""
        inputs_BMI = shared_BLI[:, position, None].repeat(1, paths, 1)
        fed = fed_HBN.shape[2]
        for k, lag in enumerate(self.config.lags):
            if position - lag >= context:
                inputs_BMI[:, :fed, k] = fed_HBN[position - lag - context]
                if self.config.see_missing:
                    inputs_BMI[:, :fed, self._seen_from + k] = 1
        return inputs_BMI


@dataclass(frozen=True)
class Walk:
    """Paths from the forecast start to the end of the horizon, and the laws met on the way."""

    drawn_HBN: Tensor
    first: Distribution
    """(B, 1): of the first step, the same for every path."""
    later: Distribution
    """(H - 1, B, M): of the steps after it."""

    def laws(self, paths: slice) -> Distribution:
        """(H, B, m): of these paths."""
        pairs = zip(self.first.parameters, self.later.parameters, strict=True)
        parts = [torch.cat([one.expand(-1, rest[..., paths].shape[2])[None], rest[..., paths]]) for one, rest in pairs]
        return Distribution(self.first.family, tuple(parts))


@torch.no_grad()
def decode_two_ways(network: Stepwise[Any], batch: Batch, uniform_BNH: Tensor, levels: Sequence[float]) -> Decoded:
    """The mean of the paths' laws and of those told at once; a path keeps its rank at every step, so it stays joint.

    What is told at once is read beside the paths, as one more that is fed nothing: the history is read once for both.
    """
    paths = uniform_BNH.shape[1]
    walked = walk(network, batch, uniform_BNH, fed="samples", blind=True)
    stepwise = _summary(network, batch, walked, slice(paths), levels)
    law = walked.laws(slice(paths, None))
    at_once_HBQ = law.quantile(levels).squeeze(-2)
    rank_BNH = stepwise.paths_BNH.argsort(1).argsort(1)
    level_HBN = ((rank_BNH + 0.5) / paths).movedim(-1, 0)

    def between(one_BXH: Tensor, other_HBX: Tensor) -> Tensor:
        return (one_BXH + network.bounded(other_HBX, batch).movedim(0, -1)) / 2

    paths_BNH = between(stepwise.paths_BNH, law.sample(level_HBN))
    quantiles_BQH = between(stepwise.quantiles_BQH, at_once_HBQ)
    if network.likelihood.integer:
        paths_BNH, quantiles_BQH = (paths_BNH + 0.5).floor(), (quantiles_BQH + 0.5).floor()
    return Decoded(paths_BNH, between(stepwise.mean_BH[:, None], law.mean)[:, 0], quantiles_BQH)


@torch.no_grad()
def decode_at_once(network: Stepwise[Any], batch: Batch, levels: Sequence[float]) -> Decoded:
    """Every step by itself, from one forward pass: exact quantiles, and no paths."""
    law = laws_at_once(network, batch)
    quantiles_BQH = law.quantile(levels).movedim(-1, 1)
    return Decoded(
        quantiles_BQH.new_empty(len(batch), 0, batch.horizon),
        network.bounded(law.mean, batch),
        network.bounded(quantiles_BQH.flatten(1), batch).view(quantiles_BQH.shape),
    )


def laws_at_once(network: Stepwise[Any], batch: Batch) -> Distribution:
    """(B, H): of every step given the history alone."""
    blind = batch.clone()
    blind.mask_future_lags(network.config.lags)
    return network.likelihood.distribution(network(blind)[:, batch.context :], batch.scale_B[:, None])


def decode(
    network: Stepwise[Any], batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str = "ancestral"
) -> Decoded:
    """Paths from uniform draws in (0, 1), one for each window, path and step.

    A path knows the law of its next value, not only the value drawn: mean and quantiles come from the mixture of all
    paths' laws, which tells more than their samples do (docs/LOG.md).
    """
    walked = walk(network, batch, uniform_BNH, fed="samples" if method == "ancestral" else "mean")
    return _summary(network, batch, walked, slice(None), levels)


@torch.no_grad()
def walk(
    network: Stepwise[Any],
    batch: Batch,
    uniform_BNH: Tensor,
    *,
    fed: Literal["samples", "mean"],
    blind: bool = False,
) -> Walk:
    """Each path is fed its own samples; or one path that all draw from is fed the mean. The `blind` one comes last."""
    size, paths, horizon = uniform_BNH.shape
    scale_B1, read = batch.scale_B[:, None], (paths if fed == "samples" else 1)
    laws = read + blind
    shared_BLI = network.inputs(batch)
    network.hide_unknown(shared_BLI, batch.context)
    # Steps first: what a step reads and writes lies together.
    uniform_HBN = uniform_BNH.movedim(-1, 0).contiguous()
    drawn_HBN, fed_HBN = torch.empty_like(uniform_HBN), uniform_BNH.new_empty(horizon, size, read)
    raw_BP, memory = network.begin(
        shared_BLI[:, : batch.context + 1], paths=laws, steps=max(1, horizon - 1), starts_B=batch.starts_B
    )
    raw_hBMP = raw_BP.new_empty(horizon - 1, size, laws, raw_BP.shape[-1])
    first = law = network.likelihood.distribution(raw_BP[:, None], scale_B1)
    for step in range(horizon):
        if step:
            position = batch.context + step
            inputs_BMI = network.inputs_at(position, shared_BLI, fed_HBN, laws, batch.context)
            raw_hBMP[step - 1] = network.advance(inputs_BMI, memory)
            law = network.likelihood.distribution(raw_hBMP[step - 1, :, :read], scale_B1)
        drawn_HBN[step] = network.bounded(law.sample(uniform_HBN[step]), batch)
        told_BN = drawn_HBN[step] if fed == "samples" else network.bounded(law.mean, batch)
        fed_HBN[step] = (told_BN / scale_B1).clamp(-_FARTHEST, _FARTHEST)
    return Walk(drawn_HBN, first, network.likelihood.distribution(raw_hBMP, scale_B1))


def _summary(network: Stepwise[Any], batch: Batch, walked: Walk, paths: slice, levels: Sequence[float]) -> Decoded:
    """The laws of these paths, mixed: their mean and quantiles."""
    mean_HB = network.bounded(walked.laws(paths).mean, batch).mean(-1)
    later = [part[..., paths].flatten(0, 1) for part in walked.later.parameters]
    mixed_XQ = mixture_quantiles(Distribution(walked.later.family, tuple(later)), levels)
    first_1BQ = walked.first.quantile(levels).movedim(1, 0)
    quantiles_HBQ = torch.cat([first_1BQ, mixed_XQ.view(-1, *first_1BQ.shape[1:])])
    return Decoded(walked.drawn_HBN.movedim(0, -1), mean_HB.mT, network.bounded(quantiles_HBQ, batch).movedim(0, -1))


def mixture_quantiles(law: Distribution, levels: Sequence[float]) -> Tensor:
    """(X, Q) of laws (X, M) mixed in equal parts: from evenly spread points of each, exact where M is 1."""
    laws = law.parameters[0].shape[1]
    if laws == 1:
        return law.quantile(levels)[:, 0]
    outermost = min(min(level, 1 - level) for level in levels)
    wanted = max(_POINTS, math.ceil(_POINTS_BEYOND / outermost))
    each = min(max(math.ceil(wanted / laws), _FEWEST_POINTS_A_PATH), _MOST_POINTS_A_PATH)
    rows = max(1, _CELLS // (laws * each))
    found = law.parameters[0].new_empty(len(law.parameters[0]), len(levels))
    for begin in range(0, len(found), rows):
        some = slice(begin, begin + rows)
        found[some] = _mixed(Distribution(law.family, tuple(part[some] for part in law.parameters)), each, levels)
    return found


def _mixed(law: Distribution, each: int, levels: Sequence[float]) -> Tensor:
    """The same from so many points of each law."""
    # Paths first: the points of one path are at the same levels in all rows.
    law_MX = Distribution(law.family, tuple(part.mT for part in law.parameters))
    laws, device = len(law_MX.parameters[0]), law_MX.parameters[0].device
    # Shifted from path to path: where all laws agree, their points together are spread evenly too.
    shift_M11 = (torch.arange(laws, device=device)[:, None, None] + 0.5) / laws
    points_MXk = law_MX.at((torch.arange(each, device=device) + shift_M11) / each)
    sorted_Xn = _sorted(points_MXk.movedim(0, 1).flatten(1))
    total = sorted_Xn.shape[1]
    place_Q = torch.tensor([level * total - 0.5 for level in levels], device=device).clamp(0, total - 1)
    if law.family.integer:
        return sorted_Xn[:, place_Q.ceil().long()]
    below_Q = place_Q.floor().long()
    low, high = sorted_Xn[:, below_Q], sorted_Xn[:, (below_Q + 1).clamp(max=total - 1)]
    return torch.lerp(low, high, (place_Q - below_Q).to(low.dtype))


def _sorted(x_Xn: Tensor) -> Tensor:
    """Each row in rising order."""
    if x_Xn.device.type != "cpu":
        return x_Xn.sort(1).values
    # numpy sorts with vector instructions, in a tenth of torch's time (docs/LOG.md).
    return torch.from_numpy(np.sort(x_Xn.numpy(), axis=1))


@torch.no_grad()
def decode_plainly(network: Stepwise[Any], batch: Batch, uniform_BNH: Tensor, method: str = "ancestral") -> Tensor:
    """(B, N, H) paths, one forward pass over all windows and paths a step."""
    size, paths, horizon = uniform_BNH.shape
    fed = _repeat(batch, paths if method == "ancestral" else 1)
    drawn = torch.empty_like(uniform_BNH)
    for step in range(horizon):
        position = batch.context + step
        raw_BNP = network(fed)[:, position].unflatten(0, (size, -1))
        law = network.likelihood.distribution(raw_BNP, batch.scale_B[:, None])
        drawn[..., step] = network.bounded(law.sample(uniform_BNH[..., step]), batch)
        fed_back = drawn[..., step] if method == "ancestral" else network.bounded(law.mean, batch)
        _feed(fed, position, fed_back.flatten(), network.config.lags)
    return drawn


@torch.no_grad()
def along_the_mean(network: Stepwise[Any], batch: Batch) -> Batch:
    """The windows as the mean path goes through them: its values stand in the horizon and in every lag after them."""
    middle_B1H = torch.full((len(batch), 1, batch.horizon), 0.5, device=batch.scale_B.device)
    mean_BH = decode(network, batch, middle_B1H, (0.5,), "mean-path").mean_BH
    filled = batch.clone()
    filled.values_BL[:, batch.context :] = mean_BH
    for step, value_B in enumerate(mean_BH.unbind(1)):
        _feed(filled, batch.context + step, value_B, network.config.lags)
    return filled


def _repeat(batch: Batch, paths: int) -> Batch:
    """Each window so many times in a row, in memory of its own."""
    return batch.each(lambda tensor: tensor.repeat_interleave(paths, dim=0))


def _feed(batch: Batch, position: int, value_B: Tensor, lags: tuple[int, ...]) -> None:
    """The value at this position becomes the lagged input of every later position that looks back at it."""
    length = batch.lagged_BLK.shape[1]
    for k, lag in enumerate(lags):
        if position + lag < length:
            batch.lagged_BLK[:, position + lag, k] = value_B
            batch.lag_observed_BLK[:, position + lag, k] = True


def draws(seed: int, key_B: Keys, paths: int, horizon: int) -> Tensor:
    """Uniform draws (B, N, H) keyed by (seed, window, path, step): the same however the work is split.

    The N draws of a window and step fall into N equal parts of (0, 1), one into each, in an order of their own at
    every step: each is uniform, and together they are more even than independent ones.
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
    # In place: fresh memory of this size costs more than the sums.
    drawn_BNH += place_BNH
    drawn_BNH /= paths
    return torch.from_numpy(drawn_BNH.clip(_EDGE, 1 - _EDGE, out=drawn_BNH).astype(np.float32))


def _mix(z: Any) -> Any:
    """64-bit numbers -> others, far apart for neighbours (splitmix64)."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
