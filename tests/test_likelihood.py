"""The likelihoods against scipy: densities, quantiles, means, samples, scale, gradients at the edge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as scipy_stats

from logsparse.defaults import LARGEST
from logsparse.errors import ConfigError, DataError
from logsparse.model.likelihood import LIKELIHOODS, SCALE_FLOOR, Distribution, likelihood

stats: Any = scipy_stats  # its names are made at run time, where mypy cannot see them
LEVELS = [0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999]
NAMES = list(LIKELIHOODS)
SIMPLE = [name for name in NAMES if name != "zero-inflated"]
PARAMETERS = {  # three elements each, in raw units
    "gaussian": ([-3.0, 0.0, 250.0], [0.01, 1.0, 40.0]),
    "student-t": ([-3.0, 0.0, 250.0], [0.01, 1.0, 40.0], [2.2, 4.0, 300.0]),
    "negative-binomial": ([0.05, 4.0, 800.0], [2.0, 0.01, 0.5]),
    "zero-inflated": ([-0.5, 2.0, 30.0], [0.4, 1.5, 7.0], [0.9, 0.3, 2.0], [1.0, -0.5, -6.0]),
}
VALUES = {
    "gaussian": [-3.01, 2.0, 300.0],
    "student-t": [-3.5, -2.0, 1.0],
    "negative-binomial": [0.0, 3.0, 1234.0],
    "zero-inflated": [0.2, 1.0, 33.0],
}


def example(name: str, dtype: torch.dtype = torch.float32) -> Distribution:
    return Distribution(likelihood(name), tuple(torch.tensor(part, dtype=dtype) for part in PARAMETERS[name]))


def drawn(distribution: Distribution, samples: int, *, seed: int) -> torch.Tensor:
    return distribution.sample(torch.rand(samples, 3, generator=torch.Generator().manual_seed(seed)))


def of_scipy(name: str) -> Any:
    first, second, *third = (np.array(part) for part in PARAMETERS[name])
    if name == "gaussian":
        return stats.norm(first, second)
    if name == "student-t":
        return stats.t(third[0], first, second)
    return stats.nbinom(1 / second, 1 / (1 + second * first))


def zero_probability() -> Any:
    return stats.logistic.cdf(np.array(PARAMETERS["zero-inflated"][3]))


def halves() -> tuple[Any, Any, Any, Any]:
    """The location, the lower and the upper logistic, and the share below the location."""
    location, lower, upper, _ = (np.array(part) for part in PARAMETERS["zero-inflated"])
    return location, stats.logistic(location, lower), stats.logistic(location, upper), lower / (lower + upper)


@pytest.mark.parametrize("name", SIMPLE)
def test_the_density_is_that_of_scipy_also_in_float32(name: str) -> None:
    got = example(name).log_density(torch.tensor(VALUES[name])).numpy()
    exact = of_scipy(name)
    want = (exact.logpmf if name == "negative-binomial" else exact.logpdf)(np.array(VALUES[name]))
    np.testing.assert_allclose(got, want, rtol=2e-5)


@pytest.mark.parametrize("name", SIMPLE)
def test_the_quantiles_are_those_of_scipy(name: str) -> None:
    got = example(name).quantile(LEVELS)
    assert got.shape == (3, len(LEVELS))
    want = np.stack([of_scipy(name).ppf(level) for level in LEVELS], axis=-1)
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", SIMPLE)
def test_the_mean_is_that_of_scipy(name: str) -> None:
    np.testing.assert_allclose(example(name).mean.numpy(), of_scipy(name).mean(), rtol=1e-6)


def test_the_zero_inflated_distribution_has_total_probability_one() -> None:
    distribution = example("zero-inflated", torch.float64)
    at_zero = distribution.log_density(torch.zeros(3, dtype=torch.float64)).exp().numpy()
    for element in range(3):
        single = Distribution(distribution.family, tuple(part[element] for part in distribution.parameters))

        def density(value: float, single: Distribution = single) -> float:
            return float(single.log_density(torch.tensor(value, dtype=torch.float64)).exp())

        above, _ = integrate.quad(density, 1e-12, 150.0, points=[1.0, 30.0])
        assert at_zero[element] + above == pytest.approx(1.0, abs=1e-6)


def test_the_zero_inflated_distribution_is_a_mass_at_zero_and_two_half_logistics_cut_off_below() -> None:
    p, distribution = zero_probability(), example("zero-inflated")
    location, lower, upper, share = halves()

    def by_half(value: Any, below: Any, above: Any) -> Any:
        return np.where(value < location, below, above)

    cut = by_half(0, 2 * share * lower.cdf(0), 1 - 2 * (1 - share) * upper.sf(0))
    np.testing.assert_allclose(distribution.log_density(torch.zeros(3)).numpy(), np.log(p + (1 - p) * cut), rtol=1e-5)
    values = np.array(VALUES["zero-inflated"])
    density = by_half(values, 2 * share * lower.pdf(values), 2 * (1 - share) * upper.pdf(values))
    got = distribution.log_density(torch.tensor(VALUES["zero-inflated"])).numpy()
    np.testing.assert_allclose(got, np.log((1 - p) * density), rtol=1e-5)
    for column, level in enumerate(LEVELS):
        rest = np.clip((level - p) / (1 - p), 0, 1)
        ends = lower.ppf(np.clip(rest / (2 * share), 0, 0.5)), upper.isf(np.clip((1 - rest) / (2 - 2 * share), 0, 0.5))
        want = np.maximum(np.where(rest < share, *ends), 0)
        np.testing.assert_allclose(distribution.quantile(LEVELS)[:, column].numpy(), want, rtol=2e-5, atol=1e-6)


def test_the_zero_inflated_mean_is_the_integral_over_its_quantiles() -> None:
    distribution = example("zero-inflated", torch.float64)
    levels = ((torch.arange(200_000) + 0.5) / 200_000).tolist()
    torch.testing.assert_close(distribution.mean, distribution.quantile(levels).mean(-1), rtol=2e-4, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_the_quantile_at_its_uniform_draw(name: str) -> None:
    distribution = example(name)
    samples = distribution.sample(torch.tensor(LEVELS, dtype=torch.float64)[:, None])
    torch.testing.assert_close(samples, distribution.quantile(LEVELS).T, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_many_samples_agree_with_the_quantiles(name: str) -> None:
    distribution = example(name)
    samples = drawn(distribution, 20_000, seed=7)
    assert samples.shape == (20_000, 3)
    for level, value in zip([0.25, 0.5, 0.9], distribution.quantile([0.25, 0.5, 0.9]).T, strict=True):
        # Counts and the mass at zero step over the level, so the share is bounded from both sides.
        assert ((samples <= value + 1e-5).float().mean(0) >= level - 0.015).all()
        assert ((samples < value - 1e-5).float().mean(0) <= level + 0.015).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_uniform_draws_zero_and_one_give_finite_samples(name: str) -> None:
    samples = example(name).sample(torch.tensor([0.0, 1.0])[:, None])
    assert samples.isfinite().all()
    assert (samples[0] <= samples[1]).all()


@pytest.mark.parametrize("name", ["gaussian", "student-t", "zero-inflated"])
def test_the_scale_stretches_values_and_moves_the_density_by_its_logarithm(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(6, len(likelihood(name).parameters), generator=generator).double()
    one, many = (likelihood(name).distribution(raw, torch.tensor(v).double()) for v in (1.0, 50.0))
    value = torch.linspace(0.1, 2, 6).double()
    torch.testing.assert_close(many.quantile(LEVELS), 50 * one.quantile(LEVELS))
    torch.testing.assert_close(many.mean, 50 * one.mean)
    torch.testing.assert_close(many.log_density(50 * value), one.log_density(value) - math.log(50.0))


def test_the_scale_does_not_change_the_probability_of_an_exact_zero() -> None:
    raw = torch.tensor([[0.3, 0.1, 0.6, -0.4]])
    one, many = (likelihood("zero-inflated").distribution(raw, torch.tensor(v)) for v in (1.0, 50.0))
    torch.testing.assert_close(many.log_density(torch.zeros(1)), one.log_density(torch.zeros(1)))


def test_the_scale_of_counts_acts_on_the_mean_and_leaves_the_dispersion() -> None:
    raw = torch.tensor([[0.3, -0.4]])
    family = likelihood("negative-binomial")
    one, many = (family.distribution(raw, torch.tensor(v)) for v in (1.0, 50.0))
    torch.testing.assert_close(many.mean, 50 * one.mean)
    torch.testing.assert_close(many.parameters[1], one.parameters[1])
    samples = many.quantile(LEVELS)
    assert torch.equal(samples, samples.round())


@pytest.mark.parametrize("name", ["gaussian", "student-t", "zero-inflated"])
def test_the_deviation_never_falls_below_its_floor(name: str) -> None:
    raw = torch.full((len(likelihood(name).parameters),), -1e4)
    distribution = likelihood(name).distribution(raw, torch.tensor(100.0))
    assert distribution.parameters[1].item() == pytest.approx(100 * SCALE_FLOOR)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_in_bfloat16_have_a_density_in_float32(name: str) -> None:
    raw = torch.zeros(4, len(likelihood(name).parameters), dtype=torch.bfloat16)
    assert likelihood(name).distribution(raw, torch.ones(4)).log_density(torch.ones(4)).dtype == torch.float32


extreme = st.floats(-1e4, 1e4, width=32) | st.sampled_from([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(
    outputs=st.lists(extreme, min_size=4, max_size=4),
    relative=st.floats(0, 1e6, width=32) | st.just(0.0),
    scale=st.sampled_from([1.0, 37.0, 1e7]),
)
def test_gradients_are_finite_for_extreme_outputs(
    name: str, outputs: list[float], relative: float, scale: float
) -> None:
    family = likelihood(name)
    raw = torch.tensor(outputs[: len(family.parameters)], requires_grad=True)
    value = torch.tensor(relative * scale)
    distribution = family.distribution(raw, torch.tensor(scale))
    density = distribution.log_density(value.round() if family.integer else value)
    assert density.isfinite()
    density.backward()  # type: ignore[no-untyped-call]
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert distribution.mean.isfinite()
    assert distribution.quantile([0.1, 0.5, 0.9]).isfinite().all()


# What a network can output: an anchor lies within 1e4 scales of the centre, the rest comes from a normalised layer.
locations = st.floats(-1.1e4, 1.1e4, width=32) | st.sampled_from([-1.1e4, 0.0, 1.1e4])
others = st.floats(-1e3, 1e3, width=32) | st.sampled_from([-1e3, -100.0, -16.0, 0.0, 13.0, 16.0, 100.0, 1e3])
# From the smallest scale to the largest value that a network accepts.
scales = st.floats(-32, 30).map(lambda power: 10.0**power) | st.sampled_from([1e-32, 1e20, LARGEST])
levels = st.lists(
    st.integers(1, 999_999).map(lambda millionths: millionths / 1e6) | st.sampled_from([1e-6, 0.5, 1 - 1e-6]),
    min_size=1,
    max_size=6,
    unique=True,
).map(sorted)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=300, deadline=None)
@given(location=locations, rest=st.lists(others, min_size=3, max_size=3), scale=scales, asked=levels)
def test_mean_samples_and_quantiles_are_finite_and_in_order_in_every_unit(
    name: str, location: float, rest: list[float], scale: float, asked: list[float]
) -> None:
    family = likelihood(name)
    raw = torch.tensor([location, *rest][: len(family.parameters)])
    distribution = family.distribution(raw, torch.tensor(scale))
    quantiles, edges = distribution.quantile(asked), distribution.sample(torch.tensor([0.0, 1.0]))
    assert distribution.mean.isfinite(), distribution
    assert quantiles.isfinite().all(), quantiles
    assert edges.isfinite().all(), edges
    assert (quantiles.diff() >= 0).all(), quantiles


@pytest.mark.parametrize("power", [-20, 20, 30])
def test_the_zero_inflated_distribution_is_the_same_in_every_unit(power: int) -> None:
    raw = 3 * torch.randn(200, 4, generator=torch.Generator().manual_seed(5))
    family, unit = likelihood("zero-inflated"), 2.0 ** (10 * power / 3 // 1)
    one, many = (family.distribution(raw, torch.tensor(v)) for v in (1.0, unit))
    torch.testing.assert_close(many.mean / unit, one.mean, rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(many.quantile(LEVELS) / unit, one.quantile(LEVELS), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    family = likelihood(name)
    raw = torch.randn(5, len(family.parameters), generator=torch.Generator().manual_seed(2)).double()
    value = torch.tensor([0.0, 1.0, 2.0, 7.0, 31.0]).double()
    scale = torch.tensor(3.0).double()
    assert torch.autograd.gradcheck(
        lambda part: family.distribution(part, scale).log_density(value), raw.requires_grad_()
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_traits_agree_with_the_quantiles_and_with_each_other(name: str) -> None:
    family, extremes = likelihood(name), example(name).quantile([1e-6, 0.37, 1 - 1e-6])
    assert (extremes.min() >= 0) == (family.support == "nonnegative")
    assert torch.equal(extremes, extremes.round()) == family.integer
    # A scale that subtracts the mean would move zero, and values below it out of the support.
    assert family.keeps_zero == ("deviation" not in family.scales)
    assert family.keeps_zero or family.support == "real"


def test_an_unknown_likelihood_is_refused_with_the_list_of_known_ones() -> None:
    known = "gaussian, student-t, negative-binomial, zero-inflated"
    with pytest.raises(ConfigError, match=f'must be a known one. Got "poisson". Hint: choose one of {known}'):
        likelihood("poisson")


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan])
def test_a_quantile_level_outside_the_open_interval_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match=r"between 0 and 1, both excluded. Got .*0.1, 0.5, 0.9"):
        example("gaussian").quantile([0.5, level])


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        ("negative-binomial", 2.5, r'"negative-binomial" must be whole numbers from 0 on. Got 2.5.'),
        ("negative-binomial", -1.0, r"whole numbers from 0 on. Got -1."),
        ("zero-inflated", -0.5, r'"zero-inflated" must be numbers from 0 on. Got -0.5. Hint: choose'),
    ],
)
def test_targets_outside_the_support_are_refused(name: str, bad: float, rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        likelihood(name).check(torch.tensor([0.0, math.nan, bad, 3.0]))


@pytest.mark.parametrize("name", NAMES)
def test_missing_targets_and_counts_pass_every_check(name: str) -> None:
    likelihood(name).check(torch.tensor([0.0, math.nan, 4.0]))
