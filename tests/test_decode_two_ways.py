"""Forecasts of one network step by step, of all steps at once from the history, and by both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import logsparse as ls
import small
from logsparse.config import Config
from logsparse.data.windows import Batch
from logsparse.model.decode import decode, decode_direct, decode_two_ways, direct_distributions, draws, sample_paths
from logsparse.model.recurrent import Recurrent
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet
from logsparse.train.distributed import Ranks

# 5 series of the small panel, contexts of 24, horizons of 6

LAGS, LEVELS = (1, 3, 8), [0.1, 0.5, 0.9]


def two_ways(model: dict[str, Any] | None = None, **train: Any) -> Config:
    return replace(small.config({"see_missing": True, "lags": LAGS, **(model or {})}, **train), method="two-way")


def in_the_middle() -> tuple[Transformer, Batch]:
    """Windows whose horizon is observed."""
    config = two_ways()
    data = TrainingSet.of(small.panel(missing=0), config)
    network = small.network(config, data)
    with torch.no_grad():
        network.output.weight.mul_(30)  # far from constant outputs
    return network, data.windows(np.arange(5), np.full(5, 60)).clone()


def test_masking_hides_the_lags_after_the_forecast_start_and_nothing_else() -> None:
    _, batch = in_the_middle()
    masked = batch.clone()
    masked.mask_future_lags(LAGS, slice(1, None, 2))
    for k, lag in enumerate(LAGS):
        known = 24 + lag  # from here on the lagged value lies in the horizon
        assert torch.equal(masked.lagged_BLK[:, :known, k], batch.lagged_BLK[:, :known, k])
        assert torch.equal(masked.lagged_BLK[::2], batch.lagged_BLK[::2])
        assert batch.lag_observed_BLK[:, known:, k].all()
        assert not masked.lag_observed_BLK[1::2, known:, k].any()
        assert not masked.lagged_BLK[1::2, known:, k].any()
    assert torch.equal(masked.values_BL, batch.values_BL)


def test_quantiles_and_means_are_those_of_both_ways_the_direct_one_counting_more_from_step_to_step() -> None:
    network, batch = in_the_middle()
    uniform = draws(0, np.arange(5, dtype=np.uint64), 50, 6)
    found, stepwise = decode_two_ways(network, batch, uniform, LEVELS), decode(network, batch, uniform, LEVELS)
    with torch.no_grad():
        distribution = direct_distributions(network, batch)
    share_H = torch.tensor([1 / 13, 2 / 14, 3 / 15, 4 / 16, 5 / 17, 6 / 18])
    mean_BH = torch.lerp(stepwise.mean_BH, distribution.mean, share_H)
    torch.testing.assert_close(found.mean_BH, mean_BH, rtol=1e-4, atol=1e-4)
    for n, level in enumerate(LEVELS):
        at_once_BH = distribution.quantile([level])[..., 0]
        between_BH = torch.lerp(stepwise.quantiles_BQH[:, n], at_once_BH, share_H)
        torch.testing.assert_close(found.quantiles_BQH[:, n], between_BH, rtol=1e-4, atol=1e-4)


def test_a_window_without_a_history_is_forecast_directly_alone() -> None:
    network, batch = in_the_middle()
    batch.observed_BL[2:4, :24] = False
    uniform = draws(0, np.arange(5, dtype=np.uint64), 50, 6)
    found, direct = decode_two_ways(network, batch, uniform, LEVELS), decode_direct(network, batch, LEVELS)
    for one, other in ((found.quantiles_BQH, direct.quantiles_BQH), (found.mean_BH, direct.mean_BH)):
        torch.testing.assert_close(one[2:4], other[2:4])
        assert ((one - other).abs() > 1e-3).flatten(1).any(1).tolist() == [True, True, False, False, True]


def test_paths_keep_their_ranks_and_have_the_forecast_quantiles() -> None:
    network, batch = in_the_middle()
    uniform = draws(0, np.arange(5, dtype=np.uint64), 2000, 6)
    found = decode_two_ways(network, batch, uniform, LEVELS)
    drawn_BNH = sample_paths(network, batch, uniform, feed="samples", direct=True).drawn_HBN.movedim(0, -1)
    assert torch.equal(found.paths_BNH.argsort(1), drawn_BNH.argsort(1))
    share = (found.paths_BNH <= found.quantiles_BQH[:, None, 2]).float().mean(1)
    np.testing.assert_allclose(share, 0.9, atol=0.02)


@pytest.mark.parametrize("lowest", [None, 30.0])
@pytest.mark.parametrize("kind", [Transformer, Recurrent])
def test_the_direct_path_has_the_distributions_of_one_forward_pass(kind: type[Any], lowest: float | None) -> None:
    config = two_ways({"width": 8, "lowest": lowest})
    data = TrainingSet.of(small.panel(), config)
    network = kind(config.model, length=config.length, features=len(data.features), series=5)
    network.initialise(torch.Generator().manual_seed(0))
    batch = small.short_windows(data)
    uniform = draws(0, np.arange(5, dtype=np.uint64), 3, 6)
    sampled = sample_paths(network, batch, uniform, feed="samples", direct=True)
    with torch.no_grad():
        expected = direct_distributions(network, batch)
    for found_HB1, expected_BH in zip(
        sampled.distributions(slice(3, None)).parameters, expected.parameters, strict=True
    ):
        torch.testing.assert_close(found_HB1[..., 0].mT, expected_BH, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["gaussian", "student-t", "negative-binomial", "zero-inflated"])
def test_direct_returns_the_distributions_of_one_forward_pass_and_no_paths(family: str) -> None:
    config = two_ways({"likelihood": family, "lowest": 40.0})
    data = TrainingSet.of(small.panel(), config)
    network, batch = small.network(config, data), small.short_windows(data)
    found = decode_direct(network, batch, LEVELS)
    with torch.no_grad():
        distribution = direct_distributions(network, batch)
    assert found.paths_BNH.shape == (5, 0, 6)
    torch.testing.assert_close(found.mean_BH, distribution.mean.clamp(min=40))
    for n, level in enumerate(LEVELS):
        torch.testing.assert_close(found.quantiles_BQH[:, n], distribution.quantile([level])[..., 0].clamp(min=40))


def test_direct_does_not_read_the_horizon() -> None:
    network, batch = in_the_middle()
    before = decode_direct(network, batch, LEVELS)
    batch.values_BL[:, 24:] = 1e6
    for k, lag in enumerate(LAGS):
        batch.lagged_BLK[:, 24 + lag :, k] = -1e6
    assert torch.equal(decode_direct(network, batch, LEVELS).quantiles_BQH, before.quantiles_BQH)


def test_counts_stay_whole() -> None:
    rng = np.random.default_rng(0)
    panel = small.panel(missing=0)
    counts = replace(panel, values=rng.poisson(3, len(panel.values)).astype(np.float32))
    config = two_ways({"likelihood": "negative-binomial", "scale": "mean"}, epochs=2)
    found = ls.LogSparse(6, config=config, samples=20, verbose=False).fit(counts).forecast(quantiles=LEVELS)
    assert found.samples is not None
    for values in (found.samples, *(found.quantile(level) for level in LEVELS)):
        np.testing.assert_array_equal(values, np.round(values))


def test_neither_way_reads_the_horizon() -> None:
    network, batch = in_the_middle()
    uniform = draws(0, np.arange(5, dtype=np.uint64), 10, 6)
    before = decode_two_ways(network, batch, uniform, LEVELS)
    batch.values_BL[:, 24:] = 1e6
    for k, lag in enumerate(LAGS):
        batch.lagged_BLK[:, 24 + lag :, k] = -1e6
    after = decode_two_ways(network, batch, uniform, LEVELS)
    assert torch.equal(after.quantiles_BQH, before.quantiles_BQH)
    assert torch.equal(after.paths_BNH, before.paths_BNH)


@pytest.mark.parametrize("method", ["ancestral", "two-way", "direct"])
def test_three_windows_of_four_are_masked_in_training_and_validation(method: Any) -> None:
    data = TrainingSet.of(small.panel(missing=0), replace(two_ways(), method=method))
    pairs = data.validation_pairs(7)
    whole = data.gather(data.windows, pairs, Ranks()).clone()
    hidden_B = ~whole.lag_observed_BLK[:, 25:, 0].any(1)
    assert hidden_B.tolist() == [method != "ancestral" and n % 4 > 0 for n in range(7)]
    parts = [data.gather(data.windows, pairs, Ranks(rank=rank, count=2)).clone() for rank in range(2)]
    assert torch.equal(torch.cat([part.lagged_BLK for part in parts]), whole.lagged_BLK)


def fitted(data: Any) -> ls.LogSparse:
    config = two_ways({"unknown_series": 0.2, "scale": "mean"}, epochs=2)
    return ls.LogSparse(6, config=config, samples=20, verbose=False).fit(data)


def test_a_backtest_in_the_middle_sees_what_a_forecast_there_would() -> None:
    panel = small.panel()
    model = fitted(panel.cut(panel.lengths - 18))
    results, first = ls.backtest(model, panel, windows=3, quantiles=LEVELS), model.predict(quantiles=LEVELS)
    together: pl.DataFrame = first.join(results, on=["unique_id", "ds"], suffix="_tested")
    assert len(together) == 30
    for name in ("q0.1", "q0.5", "q0.9"):
        np.testing.assert_allclose(together[name], together[f"{name}_tested"], rtol=1e-4)


def test_a_forecast_is_the_same_alone_and_among_others() -> None:
    panel = small.panel()
    model = fitted(panel)
    whole, alone = model.forecast(quantiles=LEVELS), model.forecast(_only(panel, 3), quantiles=LEVELS)
    np.testing.assert_allclose(alone.quantile(0.9)[0], whole.quantile(0.9)[3], rtol=1e-4)


def _only(panel: ls.Panel, series: int) -> ls.Panel:
    return replace(
        panel,
        values=panel[series],
        indptr=np.array([0, len(panel[series])]),
        lengths=panel.lengths[[series]],
        ids=(panel.ids[series],),
        starts=panel.starts[[series]],
    )


@pytest.mark.parametrize("method", ["two-way", "direct"])
def test_deepstate_refuses_methods_other_than_its_own(method: Any) -> None:
    with pytest.raises(ls.ConfigError, match=f"DeepState must not have the method {method}"):
        ls.DeepState(6, config=replace(two_ways({"likelihood": "gaussian"}), method=method)).fit(small.panel())
