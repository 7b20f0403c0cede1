"""The network has the paper's number of parameters, does not see the future, and accepts new series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import small
from logsparse.attention.pattern import full, logsparse, restart
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.block import drop
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet


@pytest.mark.parametrize(("kernel", "count"), [(1, 25_850), (6, 75_850), (9, 105_850)])
def test_a_layer_of_the_paper_has_exactly_the_authors_number_of_parameters(kernel: int, count: int) -> None:
    network = Transformer(ModelConfig(kernel=kernel), length=192, features=4, series=370)
    assert sum(weight.numel() for weight in network.blocks[0].parameters()) == count
    assert network.output.in_features == 25


@pytest.mark.parametrize(("features", "width"), [(4, 25), (5, 26), (3, 24)])
def test_the_stream_of_the_paper_is_the_concatenated_input(features: int, width: int) -> None:
    network = Transformer(ModelConfig(), length=192, features=features, series=3)
    assert network.output.in_features == width


def test_initialisation_is_the_authors() -> None:
    network = Transformer(ModelConfig(), length=192, features=4, series=370)
    network.initialise(torch.Generator().manual_seed(0))
    spread = {name: float(weight.detach().std()) for name, weight in network.named_parameters() if weight.ndim > 1}
    for name, std in spread.items():
        expected = 0.01 if "query_key" in name or name.startswith("output") else 0.02
        assert std == pytest.approx(expected, rel=0.2), name
    for name, weight in network.named_parameters():
        if weight.ndim == 1:
            assert (weight == (1 if "norm" in name and name.endswith("weight") else 0)).all(), name


def batch(settings: dict[str, object] | None = None, count: int = 3) -> tuple[Transformer, Batch]:
    config = small.config(settings)
    data = TrainingSet.of(small.panel(), config)
    pairs = data.training.at(np.arange(count) * 11)
    return small.network(config, data), data.windows(pairs.series_B, pairs.start_B).clone()


VARIANTS: dict[str, dict[str, object]] = {
    "paper": {},
    "default": {"width": 16, "head_width": "split", "norm": "pre", "see_missing": True, "lags": (1, 24)},
    "own pattern a layer": {"patterns": (full(), restart(8))},
    "no series": {"embed_series": False},
    "anchored": {"anchor": True, "lags": (1, 5)},
    "anchored, missing seen": {"anchor": True, "see_missing": True, "lags": (1, 5), "profiles": ("3x2",)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_no_output_depends_on_a_later_input(name: str) -> None:
    network, windows = batch(VARIANTS[name])
    before = network(windows)
    later = windows.clone()
    later.lagged_BLK[:, 20:] += 100
    later.features_BLF[:, 20:] += 100
    after = network(later)
    torch.testing.assert_close(after[:, :20], before[:, :20], rtol=0, atol=1e-6)
    assert (after[:, 20:] - before[:, 20:]).abs().max() > 1e-3


@pytest.mark.parametrize("see_missing", [True, False])
def test_an_anchored_location_starts_as_the_mean_of_the_lags_that_were_seen(see_missing: bool) -> None:
    network, windows = batch({"anchor": True, "see_missing": see_missing, "lags": (1, 5)})
    with torch.no_grad():
        for part in ("output", "mix"):
            getattr(network, part).weight.zero_()
    windows.lag_observed_BLK[0, 3] = False
    windows.lagged_BLK[~windows.lag_observed_BLK] = 0
    counted = windows.lag_observed_BLK if see_missing else torch.ones_like(windows.lag_observed_BLK)
    want = windows.lagged_BLK.sum(-1) / counted.sum(-1).clamp(min=1) / windows.scale_B[:, None]
    torch.testing.assert_close(network(windows)[..., 0], want)
    assert (network(windows)[..., 1] == 0).all()


def test_the_scale_divides_the_inputs() -> None:
    network, windows = batch()
    tripled = replace(windows, lagged_BLK=3 * windows.lagged_BLK, scale_B=3 * windows.scale_B)
    torch.testing.assert_close(network(tripled), network(windows))


def test_dropout_acts_with_a_generator_only_and_repeats_with_its_seed() -> None:
    network, windows = batch()
    first, again = (network(windows, torch.Generator().manual_seed(5)) for _ in range(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first - network(windows, torch.Generator().manual_seed(6))).abs().max() > 0
    torch.testing.assert_close(network(windows), network(windows), rtol=0, atol=0)


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    dropped = drop(torch.ones(100_000), 0.3, torch.Generator().manual_seed(0))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)


def test_an_unknown_series_is_row_zero() -> None:
    network, windows = batch({"dropout": 0.0})
    known, unknown = network(windows), windows.clone()
    unknown.forget_series(torch.tensor([0]))
    assert network.series is not None
    with torch.no_grad():
        network.series.weight[0] += 1
    changed = (network(unknown) - known).abs().amax((1, 2)) > 0
    assert changed.tolist() == [True] + [False] * (len(windows) - 1)


def test_every_pattern_serves() -> None:
    for pattern in (full(), logsparse(), restart(8, dense_rows=9)):
        network, windows = batch({"patterns": (pattern,)})
        assert network(windows).isfinite().all()
