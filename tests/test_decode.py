"""Sample paths feed back what they should, repeat with their seed, and do not depend on how the work is split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import small
from logsparse.attention.pattern import Pattern, from_distances, full, local, logsparse, restart
from logsparse.data.windows import Batch
from logsparse.model.decode import ACCURACY, Keys, decode, decode_plainly, draws, mixture_quantiles
from logsparse.model.likelihood import likelihood
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet

METHODS = ("ancestral", "mean-path")


def at_the_end(model: dict[str, Any] | None = None) -> tuple[Transformer, Batch]:
    settings = small.config({"see_missing": True, **(model or {})})
    data = TrainingSet.of(small.panel(), settings)
    network = small.network(settings, data)
    with torch.no_grad():
        network.output.weight.mul_(30)  # far from constant outputs
    series = np.arange(5)
    return network, data.windows(series, data.windows.panel.lengths[series]).clone()


@pytest.mark.parametrize("method", ["ancestral", "mean-path"])
@pytest.mark.parametrize("lags", [(1,), (1, 3)])
def test_each_step_is_drawn_from_a_forward_pass_over_what_was_fed_back(method: str, lags: tuple[int, ...]) -> None:
    network, batch = at_the_end({"lags": lags})
    uniform = torch.rand(5, 4, 6, generator=torch.Generator().manual_seed(0))
    paths = decode_plainly(network, batch, uniform, method)
    values = torch.where(batch.observed_BL, batch.values_BL, 0).clone()
    for path in range(4):
        fed = batch.clone()
        known = values.clone()
        for step in range(6):
            position = batch.context + step
            distribution = network.likelihood.distribution(network(fed)[:, position], batch.scale_B)
            torch.testing.assert_close(paths[:, path, step], distribution.sample(uniform[:, path, step]))
            known[:, position] = paths[:, path, step] if method == "ancestral" else distribution.mean
            for k, lag in enumerate(lags):
                later = position + lag
                if later < known.shape[1]:
                    fed.lagged_BLK[:, later, k], fed.lag_observed_BLK[:, later, k] = known[:, position], True


def test_ancestral_paths_are_joint_and_the_mean_path_is_shared() -> None:
    network, batch = at_the_end()
    uniform = torch.full((5, 2, 6), 0.5)
    uniform[:, 1, 0] = 0.99
    joint = decode_plainly(network, batch, uniform, "ancestral")
    assert (joint[:, 0, 1:] - joint[:, 1, 1:]).abs().max() > 0
    shared = decode_plainly(network, batch, uniform, "mean-path")
    torch.testing.assert_close(shared[:, 0, 1:], shared[:, 1, 1:])


def test_decoding_leaves_the_batch_as_it_was() -> None:
    network, batch = at_the_end()
    before = batch.clone()
    decode_plainly(network, batch, torch.full((5, 1, 6), 0.5))
    torch.testing.assert_close(batch.lagged_BLK, before.lagged_BLK, rtol=0, atol=0)


def keys(*numbers: int) -> Keys:
    return np.array(numbers, np.uint64)


def test_draws_depend_on_the_series_and_not_on_its_neighbours() -> None:
    both = draws(7, keys(3, 8), 10, 6)
    torch.testing.assert_close(draws(7, keys(8), 10, 6)[0], both[1], rtol=0, atol=0)
    torch.testing.assert_close(draws(7, keys(8), 10, 4)[0], both[1, :, :4], rtol=0, atol=0)
    assert (both[0] != both[1]).all()
    assert (draws(8, keys(3), 10, 6)[0] != both[0]).any()


@pytest.mark.parametrize("paths", [1, 2, 7, 200])
def test_draws_of_a_step_fall_one_into_each_equal_part(paths: int) -> None:
    uniform = draws(0, keys(1, 2, 2**63), paths, 5)
    assert ((uniform > 0) & (uniform < 1)).all()
    parts = (uniform.double() * paths).floor().sort(dim=1).values
    assert (parts == torch.arange(paths)[:, None]).all()


def test_draws_of_neighbouring_steps_series_and_seeds_are_uncorrelated() -> None:
    uniform = draws(5, np.arange(40, dtype=np.uint64), 500, 4).double() - 0.5
    other = draws(6, np.arange(40, dtype=np.uint64), 500, 4).double() - 0.5
    for x, y in [(uniform[..., 0], uniform[..., 1]), (uniform[:-1], uniform[1:]), (uniform, other)]:
        assert abs(float((x * y).mean()) * 12) < 5 / x.numel() ** 0.5


PATTERNS: list[Pattern] = [
    full(),
    logsparse(),
    local(4),
    restart(8, 2),
    restart(8, 2, dense_rows=12),
    logsparse(dense_rows=27),
    from_distances([0, 5]),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kernel", [1, 2, 6, 40])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(
    "model",
    [{}, {"width": 12, "norm": "pre", "head_width": "split", "lags": (1, 2, 9), "anchor": True, "profiles": ("2x3",)}],
    ids=str,
)
def test_cached_paths_equal_plain_ones(method: str, kernel: int, pattern: Pattern, model: dict[str, Any]) -> None:
    network, batch = at_the_end({"patterns": (pattern,), "kernel": kernel, **model})
    uniform = draws(0, keys(*range(5)), 4, 6)
    found = decode(network, batch, uniform, [0.5], method).paths_BNH
    torch.testing.assert_close(found, decode_plainly(network, batch, uniform, method), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_forecast_or_fed_back_is_below_the_lowest_value(method: str) -> None:
    network, batch = at_the_end({"lowest": 30.0})
    uniform = draws(0, keys(*range(5)), 4, 6)
    found = decode(network, batch, uniform, [0.1, 0.9], method)
    assert min(float(part.min()) for part in (found.paths_BNH, found.mean_BH, found.quantiles_BQH)) == 30
    torch.testing.assert_close(found.paths_BNH, decode_plainly(network, batch, uniform, method), rtol=1e-5, atol=1e-4)
    free = decode(at_the_end()[0], batch, uniform, [0.1, 0.9], method)
    assert float(free.paths_BNH.min()) < 30


def test_paths_do_not_depend_on_how_windows_are_batched() -> None:
    network, batch = at_the_end()
    uniform = draws(0, keys(*range(5)), 4, 6)
    whole = decode(network, batch, uniform, [0.1, 0.9])
    for rows in (slice(0, 2), slice(2, 5)):
        part = decode(network, batch.each(lambda t, rows=rows: t[rows]), uniform[rows], [0.1, 0.9])  # type: ignore[misc]
        torch.testing.assert_close(part.paths_BNH, whole.paths_BNH[rows], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(part.quantiles_BQH, whole.quantiles_BQH[rows], rtol=1e-5, atol=1e-5)


def test_values_after_the_forecast_start_are_not_read() -> None:
    network, batch = at_the_end()
    filled = batch.clone()
    filled.values_BL[:, batch.context :] = 1e6
    later = torch.arange(batch.values_BL.shape[1])[:, None] - torch.tensor(network.config.lags) >= batch.context
    filled.lagged_BLK[:, later], filled.lag_observed_BLK[:, later] = 1e6, True
    uniform = draws(0, keys(*range(5)), 4, 6)
    assert (decode(network, filled, uniform, [0.5]).paths_BNH == decode(network, batch, uniform, [0.5]).paths_BNH).all()


@pytest.mark.parametrize("family", ["gaussian", "student-t", "negative-binomial", "zero-inflated"])
def test_quantiles_and_mean_are_those_of_many_paths(family: str) -> None:
    network, batch = at_the_end({"likelihood": family})
    levels = [0.05, 0.3, 0.5, 0.9]
    few = decode(network, batch, draws(0, keys(*range(5)), 400, 6), levels)
    many = decode(network, batch, draws(1, keys(*range(5)), 20_000, 6), [0.5]).paths_BNH.double()
    expected = many.quantile(torch.tensor(levels, dtype=torch.float64), dim=1).transpose(0, 1)
    spread = many.quantile(0.9, dim=1) - many.quantile(0.1, dim=1)
    width = 0.06 * spread[:, None] + (1 if network.likelihood.integer else 0.02)
    assert ((few.quantiles_BQH - expected).abs() <= width).all()
    assert (few.quantiles_BQH.diff(dim=1) >= 0).all()
    assert ((few.mean_BH - many.mean(1)).abs() <= 0.06 * spread + 0.02).all()


def test_counts_have_whole_quantiles() -> None:
    network, batch = at_the_end({"likelihood": "negative-binomial"})
    for method in METHODS:
        found = decode(network, batch, draws(0, keys(*range(5)), 50, 6), [0.1, 0.55, 0.9], method).quantiles_BQH
        assert (found == found.round()).all()


@pytest.mark.parametrize("count", [1, 2, 7, 60])
@pytest.mark.parametrize("name", ["gaussian", "student-t"])
def test_quantiles_of_a_mixture_are_those_of_many_points_of_all_its_distributions(name: str, count: int) -> None:
    family, generator = likelihood(name), torch.Generator().manual_seed(count)
    raw_XMP = torch.randn(13, count, len(family.parameters), generator=generator)
    distribution = family.distribution(raw_XMP, torch.linspace(1, 9, 13)[:, None])
    levels = [0.05, 0.1, 0.5, 0.73, 0.9, 0.95]
    points_Xn = distribution.at((torch.arange(20_000) + 0.5) / 20_000).flatten(1).double()
    expected_XQ = points_Xn.quantile(torch.tensor(levels, dtype=torch.float64), dim=1).mT
    width_X1 = (points_Xn.quantile(0.9, dim=1) - points_Xn.quantile(0.1, dim=1))[:, None]
    error_Q = ((mixture_quantiles(distribution, levels) - expected_XQ) / width_X1).square().mean(0).sqrt()
    assert (error_Q < 0.04).all()
    assert (error_Q[1:-1] < 0.02).all()


def test_quantiles_of_a_mixture_do_not_depend_on_how_rows_are_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distribution = likelihood("student-t").distribution(
        torch.randn(11, 5, 3, generator=torch.Generator().manual_seed(0)), torch.ones(11, 1)
    )
    whole = mixture_quantiles(distribution, [0.1, 0.9])
    monkeypatch.setattr("logsparse.model.decode._CELLS", 1)
    torch.testing.assert_close(mixture_quantiles(distribution, [0.1, 0.9]), whole)


def test_a_horizon_of_one_step_has_the_quantiles_of_its_distribution() -> None:
    network, batch = at_the_end()
    ends = batch.context + 1
    long = {name: part for name, part in vars(batch).items() if name.endswith(("_BL", "_BLK", "_BLR", "_BLF"))}
    short = replace(batch, **{name: part[:, :ends] for name, part in long.items()})
    for method in METHODS:
        found = decode(network, batch, draws(0, keys(*range(5)), 3, 6), [0.1, 0.9], method)
        first = decode(network, short, draws(0, keys(*range(5)), 3, 1), [0.1, 0.9], method)
        torch.testing.assert_close(first.quantiles_BQH[..., 0], found.quantiles_BQH[..., 0])


@pytest.mark.parametrize("levels", [(0.5,), (0.1, 0.9), (0.05, 0.95), (0.01, 0.99)])
def test_as_many_paths_as_needed_keep_to_the_accuracy(levels: tuple[float, ...]) -> None:
    network, batch = at_the_end({"likelihood": "student-t"})
    needed = network.paths_needed(levels, "ancestral")
    seen = (0.1, *levels, 0.9)
    true = decode(network, batch, draws(1, keys(*range(5)), 20_000, 6), seen).quantiles_BQH
    width_BH = true[:, -1] - true[:, 0]
    runs = [decode(network, batch, draws(seed, keys(*range(5)), needed, 6), seen).quantiles_BQH for seed in range(20)]
    for n in range(1, len(seen) - 1):
        error = torch.stack([(found[:, n] - true[:, n]) / width_BH for found in runs])
        assert error.square().mean().sqrt() < ACCURACY


def test_farther_tails_need_more_paths_and_one_distribution_needs_none() -> None:
    network, _ = at_the_end()
    for method in ("ancestral", "two-way"):
        needed = [network.paths_needed([0.5, 1 - tail], method) for tail in (0.4, 0.1, 0.05, 0.001, 1e-6)]
        assert needed == sorted(needed)
        assert needed[0] == needed[1] < needed[2] < needed[3] == needed[4]
        assert needed[1:3] == [network.paths_needed([tail], method) for tail in (0.1, 0.05)]
    assert network.paths_needed([0.1, 0.9], "two-way") == 16
    assert network.paths_needed([0.1, 0.9], "ancestral") == 48
    assert network.paths_needed([0.01], "mean-path") == network.paths_needed([0.01], "direct") == 0
