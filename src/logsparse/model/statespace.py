"""Batch -> a linear-Gaussian state-space model per window -> density of the targets and forecasts, by a Kalman filter.

    state_0 ~ N(mean, covariance)
    value_t = emission_t . state_t + offset_t + N(0, noise_t)
    state_t+1 = transition state_t + innovation_t N(0, 1)

`LinearGaussian` holds such a model, `run_filter` and `draw_paths` compute with it. Observations are scalar, so the
filter divides by a number and never solves a system. It computes in float64: where the noise is a thousandth of the
values, differences of covariances would cancel in float32.

`Structural` is the network of DeepState: an LSTM over covariates and embeddings outputs the parameters of level, slope
and season at every step, in units of the window's scale. Values enter through the filter only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from logsparse.attention.plain import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.network import Decoded, Network
from logsparse.model.recurrent import initialise_lstm, lstm_layers, read_layers

# Shapes: B windows, N sample paths, L positions, T positions of the history, H horizon, I inputs, W hidden size,
# P outputs, D states, S states of the season, K waves, Q quantile levels.

# Outputs of the LSTM -> their values before training; all but the offset are positive.
STARTS = {
    "offset": 0.0,
    "noise": 0.3,
    "level_weight": 1.0,
    "level": 0.05,
    "slope": 0.005,
    "season": 0.1,
    "first_level": 0.5,
    "first_slope": 0.01,
    "first_season": 0.5,
}
# Lowest standard deviation of an observation, as a share of the scale.
NOISE_FLOOR = 1e-3
# The longest season with one state per step: the cost of the filter grows with the square of the number of states.
LONGEST_SEASON = 31
# Sine and cosine waves of a longer season; what they cannot follow is left to the offset, which sees the calendar.
WAVES = 8
# Drawing this many paths costs about as much as reading a window.
_PATHS_PER_READ = 64


@dataclass(frozen=True, kw_only=True)
class LinearGaussian:
    """One model per window; all share the transition."""

    mean_BD: Tensor
    covariance_BDD: Tensor
    """Of the state at the first step, before its observation."""
    emission_BLD: Tensor
    offset_BL: Tensor
    noise_BL: Tensor
    """Variance of the observation given the state; positive."""
    innovation_BLD: Tensor
    """What one standard normal draw adds to the state after each step."""
    transition_DD: Tensor | None = None
    """None for the identity."""
    started_BL: Tensor | None = None
    """False on padding, where the state keeps its initial distribution; None for no padding."""

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if part is not None and name != "started_BL":
                object.__setattr__(self, name, part.double())

    def between(self, begin: int, end: int | None = None) -> LinearGaussian:
        """Return the model of these steps, with the same initial state."""
        steps = slice(begin, end)
        return replace(
            self,
            emission_BLD=self.emission_BLD[:, steps],
            offset_BL=self.offset_BL[:, steps],
            noise_BL=self.noise_BL[:, steps],
            innovation_BLD=self.innovation_BLD[:, steps],
            started_BL=None if self.started_BL is None else self.started_BL[:, steps],
        )


@dataclass(frozen=True)
class Filtered:
    """Distribution of each observation given those before it, and of the state after the last step."""

    mean_BL: Tensor
    variance_BL: Tensor
    mean_BD: Tensor
    covariance_BDD: Tensor

    def log_density(self, value_BL: Tensor) -> Tensor:
        """Return (B, L); the sum over observed values is their joint log-density."""
        squared_BL = (value_BL - self.mean_BL).square() / self.variance_BL
        return -0.5 * (squared_BL + torch.log(self.variance_BL) + math.log(2 * math.pi))


def run_filter(model: LinearGaussian, value_BL: Tensor, observed_BL: Tensor) -> Filtered:
    """Run the Kalman filter. Values that are not observed are ignored, and may be anything.

    Where nothing is observed, the result is the forecast: mean and variance of every step.
    """
    seen_LB1 = observed_BL.to(torch.float64).T.unsqueeze(-1)
    error_LB = torch.where(observed_BL, value_BL.double() - model.offset_BL, 0).T
    state_BD, covariance_BDD = model.mean_BD, model.covariance_BDD
    means, variances = [], []
    for step, (a_BD, noise_B, g_BD, seen_B1, value_B) in enumerate(_steps(model, seen_LB1, error_LB)):
        shared_BD, variance_B = _observation(covariance_BDD, a_BD, noise_B)
        mean_B = (state_BD * a_BD).sum(-1)
        # The gain is shared / variance. Its two factors of 1 / sqrt(variance) are applied one by one, which keeps the
        # covariance exactly symmetric.
        root_B1 = torch.rsqrt(variance_B).unsqueeze(-1) * seen_B1
        response_BD = shared_BD * root_B1
        state_BD = torch.addcmul(state_BD, response_BD, root_B1 * (value_B - mean_B).unsqueeze(-1))
        covariance_BDD = _next_covariance(covariance_BDD, response_BD, g_BD, model.transition_DD)
        if model.transition_DD is not None:
            state_BD = state_BD @ model.transition_DD.T
        if model.started_BL is not None:
            started_B1 = model.started_BL[:, step, None]
            state_BD = torch.where(started_B1, state_BD, model.mean_BD)
            covariance_BDD = torch.where(started_B1[..., None], covariance_BDD, model.covariance_BDD)
        means.append(mean_B)
        variances.append(variance_B)
    return Filtered(torch.stack(means, 1) + model.offset_BL, torch.stack(variances, 1), state_BD, covariance_BDD)


def draw_paths(model: LinearGaussian, normal_BNL: Tensor) -> Tensor:
    """Return joint paths (B, N, L) from one standard normal draw per step; the model must have no padding.

    Each path is filtered with its own values: drawing each step given the path so far is a draw from the joint
    distribution. The covariance does not depend on the values, so all paths share it.
    """
    normal_BNL = normal_BNL.double()
    state_BND, covariance_BDD = model.mean_BD[:, None].expand(-1, normal_BNL.shape[1], -1), model.covariance_BDD
    values = []
    for a_BD, noise_B, g_BD, normal_BN in _steps(model, normal_BNL.permute(2, 0, 1)):
        shared_BD, variance_B = _observation(covariance_BDD, a_BD, noise_B)
        values.append((state_BND @ a_BD.unsqueeze(-1)).squeeze(-1) + torch.sqrt(variance_B)[:, None] * normal_BN)
        response_BD = shared_BD * torch.rsqrt(variance_B).unsqueeze(-1)
        state_BND = state_BND + response_BD[:, None] * normal_BN.unsqueeze(-1)
        covariance_BDD = _next_covariance(covariance_BDD, response_BD, g_BD, model.transition_DD)
        if model.transition_DD is not None:
            state_BND = state_BND @ model.transition_DD.T
    return torch.stack(values, -1) + model.offset_BL[:, None]


def _steps(model: LinearGaussian, *more: Tensor) -> zip[tuple[Tensor, ...]]:
    """Iterate over steps: emission, noise, innovation, and slices of further tensors whose first axis is the step."""
    parts = (model.emission_BLD.transpose(0, 1), model.noise_BL.T, model.innovation_BLD.transpose(0, 1), *more)
    return zip(*(part.unbind(0) for part in parts), strict=True)


def _observation(covariance_BDD: Tensor, a_BD: Tensor, noise_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the covariance of state and observation, and the variance of the observation."""
    shared_BD = (covariance_BDD @ a_BD.unsqueeze(-1)).squeeze(-1)
    return shared_BD, (shared_BD * a_BD).sum(-1) + noise_B


def _next_covariance(covariance_BDD: Tensor, response_BD: Tensor, g_BD: Tensor, transition_DD: Tensor | None) -> Tensor:
    """Return the covariance after a step: reduced by the observation, moved by the transition, plus the innovation."""
    if transition_DD is not None:
        response_BD = response_BD @ transition_DD.T
        covariance_BDD = (covariance_BDD @ transition_DD.T).mT @ transition_DD.T
    return torch.baddbmm(covariance_BDD, torch.stack((-response_BD, g_BD), 2), torch.stack((response_BD, g_BD), 1))


@dataclass(frozen=True)
class Structure:
    """Season in steps (1 for none) and damping of the trend: share of the slope kept per step (0 for no slope)."""

    season: int = 1
    trend: float = 0.0

    def emission(self, length: int) -> Tensor:
        """Return (L, D): level, slope if there is one, season."""
        level_L1 = torch.ones(length, 1, dtype=torch.float64)
        slope = [level_L1 * self.trend] if self.trend else []
        return torch.cat([level_L1, *slope, self._season(length)], 1)

    def transition(self, length: int) -> Tensor | None:
        """Return (D, D): the slope is added to the level, the states of the season stay. None for the identity."""
        if not self.trend:
            return None
        states = self.emission(length).shape[1]
        transition_DD = torch.eye(states, dtype=torch.float64)
        transition_DD[:2, 1] = self.trend
        return transition_DD

    def _season(self, length: int) -> Tensor:
        """Return (L, S), rows of norm 1: one-hot phase counted from the first step of the window, or waves."""
        if self.season == 1:
            return torch.empty(length, 0, dtype=torch.float64)
        step_L = torch.arange(length)
        if self.season <= LONGEST_SEASON:
            phases = min(self.season, length)
            return torch.eye(self.season, phases, dtype=torch.float64)[step_L % self.season]
        wave_K = torch.arange(1, WAVES + 1, dtype=torch.float64)
        angle_LK = 2 * math.pi / self.season * (step_L % self.season)[:, None] * wave_K
        return torch.cat([angle_LK.cos(), angle_LK.sin()], 1) / math.sqrt(WAVES)


class Structural(Network):
    """`config.layers` LSTM layers of `config.width` cells, 40 by default, over the covariates; Gaussian only."""

    has_positions = False
    windows_alike = 16
    emission_LD: Tensor
    transition_DD: Tensor | None

    def __init__(
        self,
        config: ModelConfig,
        structure: Structure,
        *,
        length: int,
        features: int,
        series: int,
        static: Sequence[int] = (),
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        self.structure, self.width = structure, config.width or 40
        self.layers = lstm_layers(self.input_width, self.width, config.layers)
        self.output = nn.Linear(self.width, len(STARTS))
        self.register_buffer("emission_LD", structure.emission(length), persistent=False)
        self.register_buffer("transition_DD", structure.transition(length), persistent=False)

    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """Return (B, L, P). Dropout between the layers is active if and only if a generator is given."""
        x_BLI = torch.cat([batch.features_BLF, self.embeddings(batch).expand(len(batch), -1, -1)], dim=-1)
        starts_B = batch.starts_B
        x_BLI = without_padding(x_BLI, starts_B)
        x_BLW, _ = read_layers(self.layers, x_BLI, None, self.config.dropout, generator, starts_B)
        raw_BLP: Tensor = self.output(x_BLW)
        return raw_BLP

    def model(self, raw_BLP: Tensor, starts_B: Tensor | None = None) -> LinearGaussian:
        """Return the state-space model; the variance of an initial state comes from the first step that observes it."""
        raw = dict(zip(STARTS, raw_BLP.double().unbind(-1), strict=True))
        output = {name: part if name == "offset" else softplus(part) for name, part in raw.items()}
        slopes = int(self.structure.trend != 0)
        level_LD, basis_LS = self.emission_LD[:, : 1 + slopes], self.emission_LD[:, 1 + slopes :]
        # Without a weight, the level would be as uncertain at night as at noon (docs/LOG.md).
        level_BLD = output["level_weight"].unsqueeze(-1) * level_LD
        emission_BLD = torch.cat([level_BLD, basis_LS.expand(len(raw_BLP), -1, -1)], -1)
        moves = ["level", *["slope"] * slopes]
        innovation_BLD = torch.cat(
            [torch.stack([output[name] for name in moves], -1), output["season"].unsqueeze(-1) * basis_LS], -1
        )
        seasons, length = basis_LS.shape[1], raw_BLP.shape[1]
        start_B1 = torch.zeros(1, 1, dtype=torch.int64, device=raw_BLP.device).expand(len(raw_BLP), 1)
        if starts_B is not None:
            start_B1 = starts_B[:, None]
        first_BS = start_B1.expand(-1, seasons)
        if self.structure.season <= LONGEST_SEASON:
            # One state per phase: the first step with this phase after the padding.
            phase_S = torch.arange(seasons, device=raw_BLP.device)
            first_BS = (start_B1 + (phase_S - start_B1) % self.structure.season).clamp(max=length - 1)
        first_BD = torch.cat(
            [
                *(output[f"first_{name}"].gather(1, start_B1) for name in moves),
                output["first_season"].gather(1, first_BS),
            ],
            -1,
        )
        place_L = torch.arange(length, device=raw_BLP.device)
        return LinearGaussian(
            mean_BD=torch.zeros_like(first_BD),
            covariance_BDD=torch.diag_embed(first_BD.square()),
            emission_BLD=emission_BLD,
            offset_BL=output["offset"],
            noise_BL=(output["noise"] + NOISE_FLOOR).square(),
            innovation_BLD=innovation_BLD,
            transition_DD=self.transition_DD,
            started_BL=None if starts_B is None else place_L >= start_B1,
        )

    def log_density(self, raw_BLP: Tensor, batch: Batch, begin: int = 0) -> Tensor:
        """Return (B, L - begin) by the filter, which reads the whole window."""
        filtered, scaled_BL, scale_B1 = self._filtered(raw_BLP, batch)
        density_BL = filtered.log_density(scaled_BL) - torch.log(scale_B1)
        return torch.where(batch.observed_BL, density_BL, 0)[:, begin:].float()

    def quantiles(self, raw_BLP: Tensor, batch: Batch, begin: int, levels: Sequence[float]) -> Tensor:
        """Return (B, L - begin, Q) by the filter, which reads the whole window."""
        filtered, _, scale_B1 = self._filtered(raw_BLP, batch)
        normal_Q = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64, device=raw_BLP.device))
        quantile_BLQ: Tensor = filtered.mean_BL[..., None] + filtered.variance_BL.sqrt()[..., None] * normal_Q
        return (quantile_BLQ * scale_B1[..., None])[:, begin:].float()

    def _filtered(self, raw_BLP: Tensor, batch: Batch) -> tuple[Filtered, Tensor, Tensor]:
        """Return what the filter says of each target, the targets over their scale, and the scale (B, 1)."""
        scale_B1 = batch.scale_B[:, None].double()
        scaled_BL = torch.where(batch.observed_BL, batch.values_BL / scale_B1, 0)
        return run_filter(self.model(raw_BLP, batch.starts_B), scaled_BL, batch.observed_BL), scaled_BL, scale_B1

    @torch.no_grad()
    def forecast(self, batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str) -> Decoded:
        """Return exact mean and quantiles, and joint paths; `method` makes no difference."""
        del method
        scale_B1, now = batch.scale_B[:, None].double(), batch.context
        model = self.model(self(batch), batch.starts_B)
        seen_BT = batch.observed_BL[:, :now]
        past = run_filter(model.between(0, now), batch.values_BL[:, :now] / scale_B1, seen_BT)
        ahead = replace(model.between(now), mean_BD=past.mean_BD, covariance_BDD=past.covariance_BDD)
        nothing_BH = torch.zeros_like(batch.observed_BL[:, now:])
        expected = run_filter(ahead, torch.zeros_like(ahead.offset_BL), nothing_BH)
        normal_Q = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64, device=scale_B1.device))
        spread_BQH = expected.variance_BL.sqrt()[:, None] * normal_Q[:, None]
        paths_BNH = draw_paths(ahead, torch.special.ndtri(uniform_BNH.double()))
        return Decoded(
            (paths_BNH * scale_B1[:, None]).float(),
            (expected.mean_BL * scale_B1).float(),
            ((expected.mean_BL[:, None] + spread_BQH) * scale_B1[:, None]).float(),
        )

    def paths_needed(self, levels: Sequence[float], method: str) -> int:
        """Return 0: quantiles are exact."""
        del levels, method
        return 0

    def paths_read(self, paths: int, method: str) -> int:
        """Return the equivalent number of window reads: drawing paths is cheap."""
        del method
        return -(-paths // _PATHS_PER_READ)

    @property
    def memory_width(self) -> int:
        """Numbers stored per position by the LSTM and the filter."""
        return len(self.layers) * self.width + 4 * self.emission_LD.shape[1]

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """Set fresh random weights; the outputs start around `STARTS`."""
        initialise_lstm(self, self.width, generator)
        for place, start in enumerate(STARTS.values()):
            # Inverse of softplus.
            self.output.bias[place] = math.log(math.expm1(start)) if start else 0.0
