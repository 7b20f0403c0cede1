"""Linear-Gaussian state space models + observations -> what is known of each before it came; forecasts; sample paths.

    state_0 ~ N(mean, covariance)
    value_t = emission_t . state_t + offset_t + N(0, noise_t)
    state_t+1 = transition state_t + innovation_t N(0, 1)

An observation is one number, so that the filter divides by a number and never solves. All is computed in float64: at
noises of a thousandth of the values, the differences of covariances in float32 would be noise themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
