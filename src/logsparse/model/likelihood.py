"""Raw network outputs (..., P) and a scale -> the distribution of the next value, in the units of the data.

To add a likelihood, write one class with its traits here and add it to `LIKELIHOODS`: settings and defaults read the
traits. A class does not see the scale: `Likelihood.distribution` multiplies the parameters marked in `scaled` by it
once, and density, samples, quantiles and mean then follow in the units of the data. `Distribution.quantile` is the
quantile of one distribution; quantiles of a forecast mix those of all paths (`mixture_quantiles` in model/decode.py).

Missing values: replace them by any number of the support before `log_density`, and mask the result. A NaN would reach
the gradients even where the result is masked.
"""

# Shapes: ... any (window, path, step), P parameters, Q quantile levels.

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from logsparse.errors import ConfigError, DataError, suggest
from logsparse.model.inverse_cdf import negative_binomial_quantile, student_t_quantile

SCALE_FLOOR = 1e-6
# The mean of a count is never known to better than 1 %, and log-gamma of 1 / dispersion stays accurate.
DISPERSION_FLOOR = 1e-4


class Likelihood(ABC):
    """A family of distributions: its traits, and functions of its parameters."""

    name: ClassVar[str]
    """The value of `ModelConfig.likelihood` that selects it."""
    parameters: ClassVar[tuple[str, ...]]
    """Names of the parameters; the first is the location or the mean."""
    scaled: ClassVar[tuple[bool, ...]]
    """For each parameter, whether it is multiplied by the scale; the first always is."""
    support: ClassVar[Literal["real", "nonnegative"]] = "real"
    """The numbers that have a density."""
    integer: ClassVar[bool] = False
    """Whether only whole numbers have a density."""
    keeps_zero: ClassVar[bool] = False
    """Whether zero has a meaning of its own, so that values must not be shifted."""
    scales: ClassVar[tuple[str, ...]] = ("one-plus-mean", "mean", "deviation")
    """Allowed values of `ModelConfig.scale`; "deviation" subtracts the mean of the history."""

    @abstractmethod
    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Map raw outputs (..., P) to P valid parameters of shape (...)."""

    @abstractmethod
    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        """Return the log-density, or the log-probability where a value has one."""

    @abstractmethod
    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        """Return the quantile at each level in (0, 1)."""

    def mean(self, *parameters: Tensor) -> Tensor:
        """Return the mean; by default the first parameter."""
        return parameters[0]

    @property
    def lowest(self) -> float:
        """Lower end of the support."""
        return 0.0 if self.support == "nonnegative" else -math.inf

    def distribution(self, raw: Tensor, scale: Tensor) -> Distribution:
        """Return the distribution for raw outputs (..., P) and a scale that broadcasts against (...)."""
        if raw.dtype in (torch.bfloat16, torch.float16):
            raw = raw.float()
        pairs = zip(self.domain(raw), self.scaled, strict=True)
        # The first parameter is always scaled, so it has the broadcast shape.
        return Distribution(self, tuple(part * scale if scaled else part for part, scaled in pairs))

    def check(self, values: Tensor) -> None:
        """Raise DataError if a value lies outside the support; NaN means missing and passes."""
        bad = values < self.lowest
        if self.integer:
            bad = bad | ((values != values.floor()) & ~values.isnan())
        if bool(bad.any()):
            kind = "whole numbers" if self.integer else "numbers"
            real = [f'"{name}"' for name, family in LIKELIHOODS.items() if family.support == "real"]
            raise DataError(
                f'The targets of likelihood "{self.name}" must be {kind} from {self.lowest:g} on.',
                got=f"{values[bad][0].item():g}",
                hint=f"choose likelihood {' or '.join(real)}, or correct the data.",
            )


class Gaussian(Likelihood):
    """The normal distribution."""

    name = "gaussian"
    parameters = ("mean", "deviation")
    scaled = (True, True)

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
    """Student's t with a location, a scale and 2 to 1,000 degrees of freedom."""

    name = "student-t"
    parameters = ("location", "scale", "df")
    scaled = (True, True, False)

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        location, scale, df = raw.unbind(-1)
        # Above 2 the variance is finite; at 1,000 the distribution is Gaussian in float32.
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
    """Counts with variance mean + dispersion * mean^2; the scale multiplies the mean only."""

    name = "negative-binomial"
    parameters = ("mean", "dispersion")
    scaled = (True, False)
    support = "nonnegative"
    integer = True
    keeps_zero = True
    scales = ("one-plus-mean", "mean")

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        mean, dispersion = raw.unbind(-1)
        return softplus(mean) + SCALE_FLOOR, softplus(dispersion) + DISPERSION_FLOOR

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        # float64: the three log-gammas are large and nearly cancel.
        count, mean, r = value.double(), parameters[0].double(), 1 / parameters[1].double()
        ways = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
        result = ways - r * torch.log1p(mean / r) - count * torch.log1p(r / mean)
        return result.to(parameters[0].dtype)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        return negative_binomial_quantile(uniform, *parameters)


class ZeroInflated(Likelihood):
    """Zero with probability p, else a logistic variable with a scale for each half, censored below at zero.

    Two scales, because distributions several steps ahead are skewed: no clear noon is much brighter than the others,
    a cloudy one is much darker. Density, quantile and mean are elementary and exact in float32. The gradient of an
    outlier is bounded for the location and linear for the scale (Gaussian: linear and quadratic). Night, dawn (part of
    the logistic lies below zero) and full sun (none does) change into each other smoothly.
    """

    name = "zero-inflated"
    parameters = ("location", "lower scale", "upper scale", "zero")
    scaled = (True, True, True, False)
    support = "nonnegative"
    keeps_zero = True
    scales = ("one-plus-mean", "mean")

    def domain(self, raw: Tensor) -> tuple[Tensor, ...]:
        location, lower, upper, zero = raw.unbind(-1)
        # p stays a logit, so that log p and log (1 - p) are exact.
        return location, softplus(lower) + SCALE_FLOOR, softplus(upper) + SCALE_FLOOR, zero

    def log_density(self, value: Tensor, *parameters: Tensor) -> Tensor:
        """Return the log-density of positive values, the log-probability of zero."""
        location, lower, upper, zero = parameters
        z = (value - location) / torch.where(value < location, lower, upper)
        above = math.log(2) - torch.log(lower + upper) + logsigmoid(z) + logsigmoid(-z) + logsigmoid(-zero)
        # The censored part: the end of the lower half, or all of it and the beginning of the upper half. Logarithms of
        # ratios, not of scales, so that rounding does not depend on the unit.
        end = torch.log(2 * lower / (lower + upper)) + logsigmoid(-location.clamp(min=0) / lower)
        more = torch.log((lower - upper * torch.tanh(location.clamp(max=0) / (2 * upper))) / (lower + upper))
        cut = torch.where(location > 0, end, more)
        at_zero = torch.logaddexp(logsigmoid(zero), logsigmoid(-zero) + cut)
        return torch.where(value > 0, above, at_zero)

    def inverse_cdf(self, uniform: Tensor, *parameters: Tensor) -> Tensor:
        location, lower, upper, zero = parameters
        rest, both = uniform - _sigmoid(zero), 2 * _sigmoid(-zero)
        # Level within each half, counted from its own end so that nothing cancels: 1/2 is the location. Only ratios of
        # scales are used: a product of two would overflow where the data are large.
        below, above = rest / both * (1 + upper / lower), (1 - uniform) / both * (1 + lower / upper)
        value = torch.where(below < above, location + lower * _logit(below), location - upper * _logit(above))
        return torch.where(rest > 0, value.clamp(min=0), 0.0)

    def mean(self, *parameters: Tensor) -> Tensor:
        location, lower, upper, zero = parameters
        up, down = location.clamp(min=0), location.clamp(max=0)
        lower_share, upper_share = lower / (lower + upper), upper / (lower + upper)
        lower_part = up - 2 * lower * lower_share * (math.log(2) - _softplus(-up / lower))
        upper_part = 2 * upper * upper_share * _softplus(down / upper)
        return _sigmoid(-zero) * (lower_part + upper_part)


@dataclass(frozen=True)
class Distribution:
    """A family with parameters of shape (...), in the units of the data."""

    family: Likelihood
    parameters: tuple[Tensor, ...]

    def log_density(self, value: Tensor) -> Tensor:
        """Return the log-density of values, of shape (...)."""
        return self.family.log_density(value, *self.parameters)

    def sample(self, uniform: Tensor) -> Tensor:
        """Map uniform draws to values by the inverse distribution function: equal draws give equal values.

        The draws broadcast against (...). 0 and 1, which float32 generators can return, are moved inwards.
        """
        half = torch.finfo(uniform.dtype).eps / 2
        values = self.family.inverse_cdf(uniform.clamp(half / 2, 1 - half), *self.parameters)
        return values.to(self.parameters[0].dtype)

    def quantile(self, levels: Sequence[float]) -> Tensor:
        """Return quantiles of shape (..., Q) at levels between 0 and 1."""
        for level in levels:
            if not 0 < level < 1:
                raise ConfigError(
                    "A quantile level must lie between 0 and 1, both excluded.",
                    got=f"{level:g}",
                    hint="use numbers such as 0.1, 0.5, 0.9.",
                )
        first = self.parameters[0]
        # float64 keeps levels such as 1 - 1e-9 apart from 1.
        return self.at(torch.tensor(levels, dtype=torch.float64, device=first.device))

    def at(self, level_Q: Tensor) -> Tensor:
        """Return quantiles of shape (..., Q) at levels that broadcast against it."""
        first = self.parameters[0]
        return self.family.inverse_cdf(level_Q, *(part.unsqueeze(-1) for part in self.parameters)).to(first.dtype)

    @property
    def mean(self) -> Tensor:
        """Mean, of shape (...)."""
        return self.family.mean(*self.parameters)


def _sigmoid(x: Tensor) -> Tensor:
    """Return the logistic function; torch's own rounds the last few numbers of a tensor differently from the others."""
    return 1 / (1 + torch.exp(-x.clamp(-80, 80)))


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)), for the same reason not by torch's own."""
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _logit(share: Tensor) -> Tensor:
    """Return the logit of a level up to 1/2; levels above belong to the other half and are clamped."""
    share = share.clamp(1e-30, 0.5)
    return torch.log(share) - torch.log1p(-share)


def _log_gamma_half_step(a: Tensor) -> Tensor:
    """Return log(gamma(a + 1/2) / gamma(a)) for a >= 1; a difference of log-gammas would cancel in float32."""
    shifts = torch.zeros_like(a)
    for step in range(4):
        shifts = shifts - torch.log1p(0.5 / (a + step))
    b = a + 4
    return shifts + 0.5 * torch.log(b) - 1 / (8 * b) + 1 / (192 * b**3) - 1 / (640 * b**5)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    family.name: family for family in (Gaussian, StudentT, NegativeBinomial, ZeroInflated)
}


def likelihood(name: str) -> Likelihood:
    """Return the family of this name."""
    if name not in LIKELIHOODS:
        raise ConfigError(
            "The likelihood must be a known one.",
            got=f'"{name}"',
            hint=suggest(name, LIKELIHOODS, f"choose one of {', '.join(LIKELIHOODS)}."),
        )
    return LIKELIHOODS[name]()
