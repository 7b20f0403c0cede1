"""Sample paths feed back what they should, repeat with their seed, and do not depend on how the work is split."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import small
from logsparse.data.windows import Batch
from logsparse.model.decode import decode_plainly, draws
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet


def at_the_end(lags: tuple[int, ...] = (1,)) -> tuple[Transformer, Batch]:
    settings = small.config({"lags": lags, "see_missing": True})
    data = TrainingSet.of(small.panel(), settings)
    network = small.network(settings, data)
    with torch.no_grad():
        network.output.weight.mul_(30)  # far from constant outputs
    series = np.arange(5)
    return network, data.windows(series, data.windows.panel.lengths[series]).clone()


@pytest.mark.parametrize("method", ["ancestral", "mean-path"])
@pytest.mark.parametrize("lags", [(1,), (1, 3)])
def test_each_step_is_drawn_from_a_forward_pass_over_what_was_fed_back(method: str, lags: tuple[int, ...]) -> None:
    network, batch = at_the_end(lags)
    uniform = torch.rand(5, 4, 6, generator=torch.Generator().manual_seed(0))
    paths = decode_plainly(network, batch, uniform, method)
    values = torch.where(batch.observed_BL, batch.values_BL, 0).clone()
    for path in range(4):
        fed = batch.clone()
        known = values.clone()
        for step in range(6):
            position = batch.context + step
            law = network.likelihood.distribution(network(fed)[:, position], batch.scale_B)
            torch.testing.assert_close(paths[:, path, step], law.sample(uniform[:, path, step]))
            known[:, position] = paths[:, path, step] if method == "ancestral" else law.mean
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


def test_draws_depend_on_the_series_and_not_on_its_neighbours() -> None:
    both = draws(7, torch.tensor([3, 8]), 10, 6)
    torch.testing.assert_close(draws(7, torch.tensor([8]), 10, 6)[0], both[1], rtol=0, atol=0)
    torch.testing.assert_close(draws(7, torch.tensor([8]), 4, 6)[0], both[1, :4], rtol=0, atol=0)
    assert (both[0] != both[1]).any()
    assert (draws(8, torch.tensor([3]), 10, 6)[0] != both[0]).any()
