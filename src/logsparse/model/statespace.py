"""Batch -> a linear-Gaussian state space of level and season, driven by an LSTM; its filter, density and forecasts.

    state_0 ~ N(mean, covariance)
    value_t = emission_t . state_t + offset_t + N(0, noise_t)
    state_t+1 = transition state_t + innovation_t N(0, 1)

An observation is one number, so that the filter divides by a number and never solves. All is computed in float64: at
noises of a thousandth of the values, the differences of covariances in float32 would be noise themselves.

The LSTM reads covariates and embeddings, never the values: those come in through the Kalman filter alone. What it says
of a window is in units of the window's scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from logsparse.attention.inputs import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.network import Decoded, Network
from logsparse.model.recurrent import initialise_lstm, lstm_layers, read_layers

# B windows, L steps, D states, N sample paths


@dataclass(frozen=True, kw_only=True)
class LinearGaussian:
    """One model a window; the transition is shared by all."""

    mean_BD: Tensor
    covariance_BDD: Tensor
    """Of the state at the first step, before it is observed."""
    emission_BLD: Tensor
    offset_BL: Tensor
    noise_BL: Tensor
    """Variance of the observation around its state; above 0."""
    innovation_BLD: Tensor
    """How the state moves with one standard normal draw after each step."""
    transition_DD: Tensor | None = None
    """None: the state stays as it is, but for innovations."""
    begun_BL: Tensor | None = None
    """False on padding (bool): the state stays as it began until the first real step. None: there is no padding."""

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if part is not None and name != "begun_BL":
                object.__setattr__(self, name, part.double())

    def between(self, begin: int, end: int | None = None) -> LinearGaussian:
        """These steps only; the state that it begins with is left as it is."""
        steps = slice(begin, end)
        return replace(
            self,
            emission_BLD=self.emission_BLD[:, steps],
            offset_BL=self.offset_BL[:, steps],
            noise_BL=self.noise_BL[:, steps],
            innovation_BLD=self.innovation_BLD[:, steps],
            begun_BL=None if self.begun_BL is None else self.begun_BL[:, steps],
        )


@dataclass(frozen=True)
class Filtered:
    """Each observation as it was expected from those before it, and the state expected after the last step."""

    mean_BL: Tensor
    variance_BL: Tensor
    mean_BD: Tensor
    covariance_BDD: Tensor

    def log_density(self, value_BL: Tensor) -> Tensor:
        """(B, L) of values, of which those observed make up their joint density."""
        squared_BL = (value_BL - self.mean_BL).square() / self.variance_BL
        return -0.5 * (squared_BL + torch.log(self.variance_BL) + math.log(2 * math.pi))


def run_filter(model: LinearGaussian, value_BL: Tensor, observed_BL: Tensor) -> Filtered:
    """The Kalman filter. What is not observed teaches nothing, whatever stands there.

    Where nothing is observed, the expectations are the forecast: mean and variance of every step.
    """
    seen_LB1 = observed_BL.to(torch.float64).T.unsqueeze(-1)
    error_LB = torch.where(observed_BL, value_BL.double() - model.offset_BL, 0).T
    state_BD, covariance_BDD = model.mean_BD, model.covariance_BDD
    means, variances = [], []
    for step, (a_BD, noise_B, g_BD, seen_B1, value_B) in enumerate(_steps(model, seen_LB1, error_LB)):
        shared_BD, variance_B = _seen_through(covariance_BDD, a_BD, noise_B)
        mean_B = (state_BD * a_BD).sum(-1)
        # Gain = shared / variance; its root twice keeps the covariance symmetric to the last bit.
        root_B1 = torch.rsqrt(variance_B).unsqueeze(-1) * seen_B1
        pull_BD = shared_BD * root_B1
        state_BD = torch.addcmul(state_BD, pull_BD, root_B1 * (value_B - mean_B).unsqueeze(-1))
        covariance_BDD = _learned(covariance_BDD, pull_BD, g_BD, model.transition_DD)
        if model.transition_DD is not None:
            state_BD = state_BD @ model.transition_DD.T
        if model.begun_BL is not None:
            begun_B1 = model.begun_BL[:, step, None]
            state_BD = torch.where(begun_B1, state_BD, model.mean_BD)
            covariance_BDD = torch.where(begun_B1[..., None], covariance_BDD, model.covariance_BDD)
        means.append(mean_B)
        variances.append(variance_B)
    return Filtered(torch.stack(means, 1) + model.offset_BL, torch.stack(variances, 1), state_BD, covariance_BDD)


def draw_paths(model: LinearGaussian, normal_BNL: Tensor) -> Tensor:
    """(B, N, L) joint paths from one standard normal draw a step; every step of the model is real.

    Each path is filtered with its own values: a draw around what is expected after them, step by step, is a draw of all
    steps together. All paths are as sure of their states as each other, so that they share one covariance.
    """
    normal_BNL = normal_BNL.double()
    state_BND, covariance_BDD = model.mean_BD[:, None].expand(-1, normal_BNL.shape[1], -1), model.covariance_BDD
    values = []
    for a_BD, noise_B, g_BD, normal_BN in _steps(model, normal_BNL.permute(2, 0, 1)):
        shared_BD, variance_B = _seen_through(covariance_BDD, a_BD, noise_B)
        values.append((state_BND @ a_BD.unsqueeze(-1)).squeeze(-1) + torch.sqrt(variance_B)[:, None] * normal_BN)
        pull_BD = shared_BD * torch.rsqrt(variance_B).unsqueeze(-1)
        state_BND = state_BND + pull_BD[:, None] * normal_BN.unsqueeze(-1)
        covariance_BDD = _learned(covariance_BDD, pull_BD, g_BD, model.transition_DD)
        if model.transition_DD is not None:
            state_BND = state_BND @ model.transition_DD.T
    return torch.stack(values, -1) + model.offset_BL[:, None]


def _steps(model: LinearGaussian, *more: Tensor) -> zip[tuple[Tensor, ...]]:
    parts = (model.emission_BLD.transpose(0, 1), model.noise_BL.T, model.innovation_BLD.transpose(0, 1), *more)
    return zip(*(part.unbind(0) for part in parts), strict=True)


def _seen_through(covariance_BDD: Tensor, a_BD: Tensor, noise_B: Tensor) -> tuple[Tensor, Tensor]:
    """Covariance of the state with the value, and the variance of the value."""
    shared_BD = (covariance_BDD @ a_BD.unsqueeze(-1)).squeeze(-1)
    return shared_BD, (shared_BD * a_BD).sum(-1) + noise_B


def _learned(covariance_BDD: Tensor, pull_BD: Tensor, g_BD: Tensor, transition_DD: Tensor | None) -> Tensor:
    """The covariance after a step: less by what was seen, moved on, more by what may have happened."""
    if transition_DD is not None:
        pull_BD = pull_BD @ transition_DD.T
        covariance_BDD = (covariance_BDD @ transition_DD.T).mT @ transition_DD.T
    return torch.baddbmm(covariance_BDD, torch.stack((-pull_BD, g_BD), 2), torch.stack((pull_BD, g_BD), 1))


# B windows, N sample paths, L positions, H horizon, W hidden size, P outputs, D states, S those of the season, Q levels

# What the LSTM says of a step -> what it says before it has learned anything; all but the first are above 0.
STARTS = {
    "offset": 0.0,
    "noise": 0.3,
    "sight": 1.0,
    "level": 0.05,
    "slope": 0.005,
    "season": 0.1,
    "first_level": 0.5,
    "first_slope": 0.01,
    "first_season": 0.5,
}
# A thousandth of the scale: a value that is known better than that need not be known better still.
NOISE_FLOOR = 1e-3
# The longest season with a state for each of its steps: the filter's work grows with the square of their number.
LONGEST_SEASON = 31
# Waves of a longer one: what is sharper than they can follow is left to the offset, which sees the calendar.
WAVES = 8
# Drawing so many paths costs about as much as reading a window.
_PATHS_AS_ONE = 64


@dataclass(frozen=True)
class Structure:
    """`season` in steps, 1 for none; `trend`: the share of the slope that lasts from step to step, 0 for no slope."""

    season: int = 1
    trend: float = 0.0

    def emission(self, length: int) -> Tensor:
        """(L, D): level, slope if there is one, and how each step looks at the season."""
        level_L1 = torch.ones(length, 1, dtype=torch.float64)
        slope = [level_L1 * self.trend] if self.trend else []
        return torch.cat([level_L1, *slope, self._season(length)], 1)

    def transition(self, length: int) -> Tensor | None:
        """(D, D): the slope moves the level; the season stays where it is, it is the steps that look elsewhere."""
        if not self.trend:
            return None
        states = self.emission(length).shape[1]
        transition_DD = torch.eye(states, dtype=torch.float64)
        transition_DD[:2, 1] = self.trend
        return transition_DD

    def _season(self, length: int) -> Tensor:
        """(L, S), rows of length 1: which step of the season it is, counted from the window's first, or waves."""
        if self.season == 1:
            return torch.empty(length, 0, dtype=torch.float64)
        step_L = torch.arange(length)
        if self.season <= LONGEST_SEASON:
            phases = min(self.season, length)
            return torch.eye(self.season, phases, dtype=torch.float64)[step_L % self.season]
        wave_K = torch.arange(1, WAVES + 1, dtype=torch.float64)
        turn_LK = 2 * math.pi / self.season * (step_L % self.season)[:, None] * wave_K
        return torch.cat([turn_LK.cos(), turn_LK.sin()], 1) / math.sqrt(WAVES)


class Structural(Network):
    """`layers` of `width` LSTM cells over the covariates; Gaussian, since a filter knows no other law."""

    has_positions = False
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
        """(B, L, P). Dropout between the layers is active when a generator is given, and only then."""
        x_BLI = torch.cat([batch.features_BLF, self.embeddings(batch, generator).expand(len(batch), -1, -1)], dim=-1)
        starts_B = batch.starts_B
        x_BLI = without_padding(x_BLI, starts_B)
        x_BLW, _ = read_layers(self.layers, x_BLI, None, self.config.dropout, generator, starts_B)
        raw_BLP: Tensor = self.output(x_BLW)
        return raw_BLP

    def model(self, raw_BLP: Tensor, starts_B: Tensor | None = None) -> LinearGaussian:
        """Strengths at every step; the first states as they are first looked at, each at its own real step."""
        raw = dict(zip(STARTS, raw_BLP.double().unbind(-1), strict=True))
        told = {name: part if name == "offset" else softplus(part) for name, part in raw.items()}
        slopes = int(self.structure.trend != 0)
        level_LD, basis_LS = self.emission_LD[:, : 1 + slopes], self.emission_LD[:, 1 + slopes :]
        # A level that all steps saw alike would be as uncertain at night as the sun at noon (docs/LOG.md).
        level_BLD = told["sight"].unsqueeze(-1) * level_LD
        emission_BLD = torch.cat([level_BLD, basis_LS.expand(len(raw_BLP), -1, -1)], -1)
        moves = ["level", *["slope"] * slopes]
        innovation_BLD = torch.cat(
            [torch.stack([told[name] for name in moves], -1), told["season"].unsqueeze(-1) * basis_LS], -1
        )
        seasons, length = basis_LS.shape[1], raw_BLP.shape[1]
        start_B1 = torch.zeros(1, 1, dtype=torch.int64, device=raw_BLP.device).expand(len(raw_BLP), 1)
        if starts_B is not None:
            start_B1 = starts_B[:, None]
        first_BS = start_B1.expand(-1, seasons)
        if self.structure.season <= LONGEST_SEASON:
            # A state for each phase: the first real step that looks at it.
            phase_S = torch.arange(seasons, device=raw_BLP.device)
            first_BS = (start_B1 + (phase_S - start_B1) % self.structure.season).clamp(max=length - 1)
        first_BD = torch.cat(
            [*(told[f"first_{name}"].gather(1, start_B1) for name in moves), told["first_season"].gather(1, first_BS)],
            -1,
        )
        place_L = torch.arange(length, device=raw_BLP.device)
        return LinearGaussian(
            mean_BD=torch.zeros_like(first_BD),
            covariance_BDD=torch.diag_embed(first_BD.square()),
            emission_BLD=emission_BLD,
            offset_BL=told["offset"],
            noise_BL=(told["noise"] + NOISE_FLOOR).square(),
            innovation_BLD=innovation_BLD,
            transition_DD=self.transition_DD,
            begun_BL=None if starts_B is None else place_L >= start_B1,
        )

    def log_density(self, raw_BLP: Tensor, batch: Batch, begin: int = 0) -> Tensor:
        """By the filter, which reads the whole window."""
        scale_B1 = batch.scale_B[:, None].double()
        scaled_BL = torch.where(batch.observed_BL, batch.values_BL / scale_B1, 0)
        filtered = run_filter(self.model(raw_BLP, batch.starts_B), scaled_BL, batch.observed_BL)
        density_BL = filtered.log_density(scaled_BL) - torch.log(scale_B1)
        return torch.where(batch.observed_BL, density_BL, 0)[:, begin:].float()

    @torch.no_grad()
    def forecast(self, batch: Batch, uniform_BNH: Tensor, levels: Sequence[float], method: str) -> Decoded:
        """Mean and quantiles exactly, without drawing; paths are joint ones, whatever the method."""
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
        """None: the filter knows the law of every step."""
        del levels, method
        return 0

    def paths_read(self, paths: int, method: str) -> int:
        """None by itself: a path is a state of the filter, drawn beside the others."""
        del method
        return -(-paths // _PATHS_AS_ONE)

    @property
    def memory_width(self) -> int:
        """What the layers and the filter hold of one position."""
        return len(self.layers) * self.width + 4 * self.emission_LD.shape[1]

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """As every LSTM here; what it says of a step begins at `STARTS`."""
        initialise_lstm(self, self.width, generator)
        for place, start in enumerate(STARTS.values()):
            # The inverse of softplus.
            self.output.bias[place] = math.log(math.expm1(start)) if start else 0.0
