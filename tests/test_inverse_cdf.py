"""The inverse distribution functions against scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy import stats as scipy_stats

from logsparse.attention.native import available, extension
from logsparse.model.inverse_cdf import (
    _counted_by_kernel,
    beta_cdf,
    negative_binomial_quantile,
    negative_binomial_quantile_plainly,
    stretched,
    student_t_quantile,
    student_t_quantile_exactly,
)

stats: Any = scipy_stats  # its names are made at run time, out of mypy's sight
TAILS = np.array([1e-8, 1e-5, 1e-3, 1 - 1e-3, 1 - 1e-5, 1 - 1e-8])
LEVELS = np.sort(np.concatenate([TAILS, np.linspace(0.005, 0.995, 199)]))


def tensor(values: float | np.ndarray) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("a", [1e-4, 0.5, 1.0, 7.3, 400.0, 1e4])
@pytest.mark.parametrize("b", [0.5, 1.0, 30.0, 1e3, 1e6])
def test_the_incomplete_beta_function_agrees_with_scipy_at_every_level(a: float, b: float) -> None:
    x = special.betaincinv(a, b, LEVELS)
    got = beta_cdf(tensor(a), tensor(b), tensor(x), tensor(1 - x)).numpy()
    np.testing.assert_allclose(got, special.betainc(a, b, x), atol=2e-6)


@pytest.mark.parametrize("df", [2.0, 2.1, 2.5, 3.0, 4.4, 5.0, 12.0, 99.0, 120.0, 1e3])
@pytest.mark.parametrize("found", [student_t_quantile, student_t_quantile_exactly])
def test_the_student_t_quantile_agrees_with_scipy_far_into_the_tails(found: Any, df: float) -> None:
    got = found(tensor(LEVELS), tensor(df)).numpy()
    np.testing.assert_allclose(got, stats.t.ppf(LEVELS, df), rtol=3e-6, atol=1e-12)


@given(st.floats(2, 1e3), st.floats(1e-9, 1 - 1e-9))
def test_the_quick_student_t_quantile_is_the_exact_one(df: float, level: float) -> None:
    quick, exact = (found(tensor(level), tensor(df)) for found in (student_t_quantile, student_t_quantile_exactly))
    torch.testing.assert_close(quick, exact, rtol=3e-6, atol=1e-9)


def test_beyond_the_farthest_deviate_the_student_t_quantile_is_still_exact() -> None:
    levels, df = np.array([1e-30, 1e-12, 0.3]), 2.5
    np.testing.assert_allclose(student_t_quantile(tensor(levels), tensor(df)), stats.t.ppf(levels, df), rtol=3e-6)


def test_parameters_and_levels_broadcast() -> None:
    level_NK, df_BN1 = (
        torch.rand(4, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[2.0], [7.5]])[..., None],
    )
    together = student_t_quantile(level_NK, df_BN1.expand(2, 4, 1))
    assert together.shape == (2, 4, 3)
    for number, df in enumerate((2.0, 7.5)):
        np.testing.assert_allclose(together[number], stats.t.ppf(level_NK.double(), df), rtol=3e-6)


@pytest.mark.parametrize("df", [2.0, 3.7, 40.0])
def test_the_student_t_quantile_rises_with_the_level_and_is_symmetric(df: float) -> None:
    levels = torch.linspace(0.001, 0.999, 5_001, dtype=torch.float64)
    values = student_t_quantile(levels, tensor(df))
    assert (values.diff() > 0).all()
    torch.testing.assert_close(values, -values.flip(0), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", [(7,), (3, 1, 7)], ids=str)
def test_shared_levels_give_the_quantiles_of_each_distribution_alone(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    level, df_MX1 = torch.rand(shape, generator=generator), 2 + 20 * torch.rand(3, 5, 1, generator=generator)
    together = student_t_quantile(level, df_MX1)
    one_by_one = student_t_quantile(level.expand(3, 5, 7).contiguous(), df_MX1.expand(3, 5, 7).contiguous())
    torch.testing.assert_close(together, one_by_one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mean", [1e-6, 0.01, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("dispersion", [1e-4, 0.01, 0.3, 1.0, 8.0])
def test_the_count_quantile_is_exactly_that_of_scipy(mean: float, dispersion: float) -> None:
    r = 1 / dispersion
    got = negative_binomial_quantile(tensor(LEVELS), tensor(mean), tensor(dispersion)).numpy()
    np.testing.assert_array_equal(got, stats.nbinom.ppf(LEVELS, r, r / (r + mean)))


@pytest.mark.parametrize("dispersion", [1e-4, 0.3, 8.0])
def test_the_quantile_of_counts_in_the_millions_is_right_to_the_sixth_digit(dispersion: float) -> None:
    r, mean = 1 / dispersion, 3e6
    got = negative_binomial_quantile(tensor(LEVELS), tensor(mean), tensor(dispersion)).numpy()
    np.testing.assert_allclose(got, stats.nbinom.ppf(LEVELS, r, r / (r + mean)), rtol=2e-6)


@pytest.mark.parametrize("mean", [1e16, 1e20, 1e30])
def test_the_quantile_of_a_count_beyond_all_whole_numbers_is_found_too(mean: float) -> None:
    dispersion = 0.3
    got = negative_binomial_quantile(tensor(LEVELS), tensor(mean), tensor(dispersion)).numpy()
    np.testing.assert_allclose(got, stats.gamma.ppf(LEVELS, 1 / dispersion, scale=mean * dispersion), rtol=1e-5)


def test_a_count_far_beyond_its_mean_and_all_whole_numbers_is_found_too() -> None:
    # The search never ended here: its last two candidates were neighbours among numbers 64 apart.
    mean, dispersion = 1.1e14, 1e3
    got = negative_binomial_quantile(tensor(1 - 1e-6), tensor(mean), tensor(dispersion)).item()
    assert got == pytest.approx(stats.gamma.ppf(1 - 1e-6, 1 / dispersion, scale=mean * dispersion), rel=1e-5)
    assert got > 2.0**53


def test_every_element_is_found_by_its_own_parameters() -> None:
    uniform = torch.rand(4, 1, 5, generator=torch.Generator().manual_seed(0))
    mean, dispersion = torch.tensor([[0.5], [20.0], [300.0]]), torch.tensor(0.4)
    together = negative_binomial_quantile(uniform, mean, dispersion)
    assert together.shape == (4, 3, 5)
    for row in range(3):
        alone = negative_binomial_quantile(uniform[:, 0], mean[row], dispersion)
        torch.testing.assert_close(together[:, row], alone, rtol=0, atol=0)


@pytest.mark.skipif(not available(), reason="the kernel was not built")
@pytest.mark.parametrize("count", [2, 3, 7, 8, 1001])
def test_the_kernel_stretches_deviates_as_torch_does(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(count, generator=generator, dtype=torch.float64).clamp(1e-8, 1 - 1e-8)
    df = 2 + 998 * torch.rand(count, generator=generator, dtype=torch.float64) ** 4
    before = extension().level()
    for level in extension().levels():
        extension().use(level)
        found = student_t_quantile(uniform, df)
        torch.testing.assert_close(found, stretched(torch.special.ndtri(uniform), df), rtol=1e-10, atol=1e-12)
        assert (student_t_quantile(uniform[1:3], df[1:3]) == found[1:3]).all()
    extension().use(before)


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers whose logarithm is spread evenly."""
    return st.floats(math.log10(low), math.log10(high)).map(lambda exponent: 10.0**exponent)


@pytest.mark.skipif(not available(), reason="the kernel was not built")
@given(st.lists(st.tuples(st.floats(1e-9, 1 - 1e-9), between(1e-6, 1e6), between(1e-4, 1e3)), min_size=1, max_size=9))
def test_the_kernel_finds_the_counts_that_torch_finds(cells: list[tuple[float, float, float]]) -> None:
    level, mean, dispersion = tensor(np.array(cells)).T
    found = negative_binomial_quantile(level, mean, dispersion)
    plain = negative_binomial_quantile_plainly(level, mean, dispersion)
    assert_same_counts(found, plain, level, mean, dispersion)


@pytest.mark.skipif(not available(), reason="the kernel was not built")
@pytest.mark.parametrize("rows", [1, 3, 257, 1001])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_kernel_finds_the_counts_of_many_levels_of_one_distribution(rows: int, threads: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    mean_X1 = 10 ** (4 * torch.rand(rows, 1, generator=generator, dtype=torch.float64) - 1)
    dispersion_X1 = 10 ** (5 * torch.rand(rows, 1, generator=generator, dtype=torch.float64) - 4)
    level_Q = tensor(np.concatenate([LEVELS[::13], LEVELS[::-29], [0.5, 0.5]]))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found_XQ = negative_binomial_quantile(level_Q, mean_X1, dispersion_X1)
    torch.set_num_threads(before)
    plain_XQ = negative_binomial_quantile_plainly(level_Q, mean_X1, dispersion_X1)
    assert_same_counts(found_XQ, plain_XQ, level_Q, mean_X1, dispersion_X1)


@pytest.mark.skipif(not available(), reason="the kernel was not built")
def test_few_counts_of_a_shop_are_left_to_bisection() -> None:
    # Each bisection costs a thousand calls of torch, which made forecasts of counts slow.
    generator = torch.Generator().manual_seed(0)
    mean = 10 ** (3 * torch.rand(20_000, generator=generator, dtype=torch.float64) - 1)
    r = 10 ** (1.5 * torch.rand(20_000, generator=generator, dtype=torch.float64) - 0.5)
    level = torch.rand(20_000, generator=generator, dtype=torch.float64).clamp(1e-3, 1 - 1e-3)
    assert (_counted_by_kernel(level, mean, r) < 0).sum() <= 2


@pytest.mark.parametrize("found", [negative_binomial_quantile, negative_binomial_quantile_plainly])
def test_a_count_of_an_unknown_mean_is_unknown(found: Any) -> None:
    counts = found(tensor(0.5), tensor(np.array([np.nan, 3.0, 300.0])), tensor(0.4))
    assert counts.isnan().tolist() == [True, False, False]


def assert_same_counts(found: torch.Tensor, plain: torch.Tensor, level: Any, mean: Any, dispersion: Any) -> None:
    """Equal, or neighbours between which the level falls to the last digits."""
    away = (found - plain).abs()
    assert (away <= 1 + 1e-9 * plain).all()
    r = 1 / dispersion
    lower = torch.minimum(found, plain)
    total = beta_cdf(r, lower + 1, r / (r + mean), mean / (r + mean))
    assert ((total - level).abs()[away > 0] < 5e-6).all()
