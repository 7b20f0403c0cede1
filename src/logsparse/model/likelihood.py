"""Raw network outputs (..., P) and a scale v -> the distribution of the next value, in raw units.

A family knows its parameters, never the scale: `Likelihood.distribution` multiplies the parameters that carry
the unit of the data by v, once, and everything after that (density, sample, quantile, mean) is in raw units.
A missing value must be replaced by any number of the support before `log_density`, and its result masked:
a NaN that goes in comes back in the gradients even where the result is masked.
"""

# Shapes: `...` any (series, step, path), P parameters of the family, Q quantile levels, S samples.

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from logsparse.checks import suggest
from logsparse.errors import ConfigError, DataError
from logsparse.model.inverse_cdf import negative_binomial_quantile, student_t_quantile

SCALE_FLOOR = 1e-6
# Nobody knows the mean of a count better than to 1 %, and 1 / dispersion stays in reach of log-gamma.
DISPERSION_FLOOR = 1e-4


class Likelihood(ABC):
    """One family: everything but the scale."""

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    with_unit: ClassVar[tuple[bool, ...]]
    """Which parameters the scale multiplies."""
    lowest: ClassVar[float] = -math.inf
    whole: ClassVar[bool] = False
    """The support: numbers from `lowest` on, whole numbers only or all."""

    @abstractmethod
    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Raw outputs (..., P) -> P valid parameters of shape (...)."""

    @abstractmethod
    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor: ...

    @abstractmethod
    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor: ...

    def mean(self, *parameters: Tensor) -> Tensor:
        return parameters[0]

    def distribution(self, raw: Tensor, scale: Tensor) -> Distribution:
        """Raw outputs (..., P) and the scale v, which broadcasts against (...)."""
        if raw.dtype in (torch.bfloat16, torch.float16):
            raw = raw.float()
        pairs = zip(self.domain(raw), self.with_unit, strict=True)
        # The first parameter of every family carries the unit, so its shape is the broadcast one.
        return Distribution(self, tuple(part * scale if unit else part for part, unit in pairs))

    def check(self, values: Tensor) -> None:
        """Refuse targets that this family cannot have produced; NaN means missing and passes."""
        bad = values < self.lowest
        if self.whole:
            bad = bad | ((values != values.floor()) & ~values.isnan())
        if bool(bad.any()):
            kind = "whole numbers" if self.whole else "numbers"
            raise DataError(
                f'The targets of likelihood "{self.name}" must be {kind} from {self.lowest:g} on.',
                got=f"{values[bad][0].item():g}",
                hint='choose likelihood "gaussian" or "student-t", or mend the data.',
            )


class Gaussian(Likelihood):
    name = "gaussian"
    parameters = ("mean", "deviation")
    with_unit = (True, True)

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        mean, deviation = raw.unbind(-1)
        return mean, softplus(deviation) + SCALE_FLOOR

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        mean, deviation = parameters
        z = (value - mean) / deviation
        return -0.5 * z.square() - torch.log(deviation) - 0.5 * math.log(2 * math.pi)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        z: Tensor = torch.special.ndtri(uniform)
        return parameters[0] + parameters[1] * z


class StudentT(Likelihood):
    name = "student-t"
    parameters = ("location", "scale", "df")
    with_unit = (True, True, False)

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        location, scale, df = raw.unbind(-1)
        # From 2 on there is a variance; from 1000 on the law is the Gaussian.
        return location, softplus(scale) + SCALE_FLOOR, (2 + softplus(df)).clamp(max=1e3)

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        location, scale, df = parameters
        z = (value - location) / scale
        log_norm = _log_gamma_half_step(df / 2) - 0.5 * torch.log(df * math.pi) - torch.log(scale)
        return log_norm - (df + 1) / 2 * torch.log1p(z**2 / df)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        location, scale, df = parameters
        return location + scale * student_t_quantile(uniform, df)


class NegativeBinomial(Likelihood):
    """Counts with variance mean + dispersion * mean^2; the scale acts on the mean, dispersion has no unit."""

    name = "negative-binomial"
    parameters = ("mean", "dispersion")
    with_unit = (True, False)
    lowest, whole = 0.0, True

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        mean, dispersion = raw.unbind(-1)
        return softplus(mean) + SCALE_FLOOR, softplus(dispersion) + DISPERSION_FLOOR

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        # In float64: the three log-gammas are large and nearly cancel.
        count, mean, r = value.double(), parameters[0].double(), 1 / parameters[1].double()
        ways = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
        result = ways - r * torch.log1p(mean / r) - count * torch.log1p(r / mean)
        return result.to(parameters[0].dtype)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        return negative_binomial_quantile(uniform, *parameters)


class ZeroInflated(Likelihood):
    """Zero with probability p, else a logistic variable of two halves, each with its scale, cut off below at zero.

    Two halves, because what is forecast at once leans: no cloudless noon lies far above the others, a cloudy one far
    below. Density, quantile and mean are elementary and exact in float32, an outlier pulls the location with bounded
    force and the scale linearly (Gaussian: linearly and squared), and night, dawn (part of the logistic below zero)
    and full sun (none of it) pass into each other smoothly.
    """

    name = "zero-inflated"
    parameters = ("location", "lower scale", "upper scale", "zero")
    with_unit = (True, True, True, False)
    lowest = 0.0

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        location, lower, upper, zero = raw.unbind(-1)
        # p stays a logit, so log p and log (1 - p) are exact.
        return location, softplus(lower) + SCALE_FLOOR, softplus(upper) + SCALE_FLOOR, zero

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        """Density of a positive value, probability of zero."""
        location, lower, upper, zero = parameters
        z = (value - location) / torch.where(value < location, lower, upper)
        above = math.log(2) - torch.log(lower + upper) + logsigmoid(z) + logsigmoid(-z) + logsigmoid(-zero)
        # What is cut off: the end of the lower half, or all of it and the beginning of the upper one. Logarithms of
        # shares, not of scales: they must not round differently in another unit.
        end = torch.log(2 * lower / (lower + upper)) + logsigmoid(-location.clamp(min=0) / lower)
        more = torch.log((lower - upper * torch.tanh(location.clamp(max=0) / (2 * upper))) / (lower + upper))
        cut = torch.where(location > 0, end, more)
        at_zero = torch.logaddexp(logsigmoid(zero), logsigmoid(-zero) + cut)
        return torch.where(value > 0, above, at_zero)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        location, lower, upper, zero = parameters
        rest, both = uniform - torch.sigmoid(zero), 2 * torch.sigmoid(-zero)
        # Shares of each half, in units that make its median the location: from both ends, so that none cancels. Of the
        # scales only their ratio counts: a product of two would overflow where the data are large.
        below, above = rest / both * (1 + upper / lower), (1 - uniform) / both * (1 + lower / upper)
        value = torch.where(below < above, location + lower * _logit(below), location - upper * _logit(above))
        return torch.where(rest > 0, value.clamp(min=0), 0.0)

    def mean(self, *parameters: Tensor) -> Tensor:
        location, lower, upper, zero = parameters
        up, down = location.clamp(min=0), location.clamp(max=0)
        lower_share, upper_share = lower / (lower + upper), upper / (lower + upper)
        lower_part = up - 2 * lower * lower_share * (math.log(2) - softplus(-up / lower))
        upper_part = 2 * upper * upper_share * softplus(down / upper)
        return torch.sigmoid(-zero) * (lower_part + upper_part)


@dataclass(frozen=True)
class Distribution:
    """A family with parameters of shape (...) in raw units."""

    family: Likelihood
    parameters: tuple[Tensor, ...]

    def log_density(self, value: Tensor) -> Tensor:
        """Log-density of raw values; shape (...)."""
        return self.family.log_density(value, *self.parameters)

    def sample(self, uniform: Tensor) -> Tensor:
        """Uniform draws -> values, by the inverse distribution function: the same draw gives the same value.

        The draws broadcast against (...). 0 and 1, which generators of float32 do return, are moved inwards.
        """
        half = torch.finfo(uniform.dtype).eps / 2
        values = self.family.inverse_cdf(uniform.clamp(half / 2, 1 - half), *self.parameters)
        return values.to(self.parameters[0].dtype)

    def draw(self, samples: int, generator: torch.Generator) -> Tensor:
        """Independent samples of shape (S, ...)."""
        first = self.parameters[0]
        return self.sample(torch.rand((samples, *first.shape), generator=generator, device=first.device))

    def quantile(self, levels: Sequence[float]) -> Tensor:
        """Values of shape (..., Q) at the levels, each between 0 and 1."""
        for level in levels:
            if not 0 < level < 1:
                raise ConfigError(
                    "A quantile level must lie between 0 and 1, both excluded.",
                    got=f"{level:g}",
                    hint="use numbers such as 0.1, 0.5, 0.9.",
                )
        first = self.parameters[0]
        # float64: 0.9 and 1 - 1e-9 are what was asked for, their float32 neighbours are not.
        return self.at(torch.tensor(levels, dtype=torch.float64, device=first.device))

    def at(self, level_Q: Tensor) -> Tensor:
        """Values of shape (..., Q) at levels that broadcast against it."""
        first = self.parameters[0]
        return self.family.inverse_cdf(level_Q, *(part.unsqueeze(-1) for part in self.parameters)).to(first.dtype)

    @property
    def mean(self) -> Tensor:
        return self.family.mean(*self.parameters)


def _logit(share: Tensor) -> Tensor:
    """Of a share up to a half; what is more belongs to the other half of the law."""
    share = share.clamp(1e-30, 0.5)
    return torch.log(share) - torch.log1p(-share)


def _log_gamma_half_step(a: Tensor) -> Tensor:
    """log(gamma(a + 1/2) / gamma(a)) for a >= 1; as a difference of log-gammas float32 would lose it."""
    shifts = torch.zeros_like(a)
    for step in range(4):
        shifts = shifts - torch.log1p(0.5 / (a + step))
    b = a + 4
    return shifts + 0.5 * torch.log(b) - 1 / (8 * b) + 1 / (192 * b**3) - 1 / (640 * b**5)


LIKELIHOODS: dict[str, Likelihood] = {
    family.name: family for family in (Gaussian(), StudentT(), NegativeBinomial(), ZeroInflated())
}


def likelihood(name: str) -> Likelihood:
    """The family of this name."""
    if name not in LIKELIHOODS:
        raise ConfigError(
            "The likelihood must be a known one.",
            got=f'"{name}"',
            hint=suggest(name, LIKELIHOODS, f"choose one of {', '.join(LIKELIHOODS)}."),
        )
    return LIKELIHOODS[name]
