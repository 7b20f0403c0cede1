"""Forecasts of many windows: independent draws at every cutoff, the same however the work is split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import small
from logsparse.data.panel import Floats, Panel
from logsparse.data.sampler import Pairs
from logsparse.data.windows import Windows
from logsparse.model import decode as module
from logsparse.model.decode import Sampling, sample
from logsparse.model.transformer import Transformer
from logsparse.train.batches import TrainingSet

# W windows, N paths, H horizon

SETTINGS = replace(small.config({"lags": (1, 5)}), features=("hour",))


def repeating(days: int = 5) -> Panel:
    """Every day is the same, so that a window is the same at every midnight."""
    panel = small.panel(steps=24, missing=0)
    values = np.tile(panel.values.reshape(len(panel), 24), days).ravel()
    return replace(panel, values=values, indptr=panel.indptr * days, lengths=panel.lengths * days)


def trained(panel: Panel) -> tuple[Transformer, Windows]:
    data = TrainingSet.of(panel, SETTINGS)
    network = small.network(SETTINGS, data)
    with torch.no_grad():
        network.output.weight.mul_(30)  # far from constant outputs
    return network, data.windows


def paths(network: Transformer, windows: Windows, pairs: Pairs, number: int = 40) -> Floats:
    sampling = Sampling(paths=number, levels=(0.5,), method="ancestral", seed=3, keep_paths=True)
    found = sample(network, windows, pairs, sampling).paths_WNH
    assert found is not None
    return found


def pairs_of(series: list[int], starts: list[int]) -> Pairs:
    return Pairs(np.array(series), np.array(starts))


def test_cutoffs_of_one_series_have_independent_draws() -> None:
    network, windows = trained(repeating())
    one_NH, other_NH, third_NH = paths(network, windows, pairs_of([2, 2, 2], [72, 96, 120]), number=2000)
    far_H = np.abs(one_NH.mean(0) - other_NH.mean(0)) / one_NH.std(0)
    assert (far_H < 5 * (2 / 2000) ** 0.5).all(), "the windows are the same"
    for x, y in [(one_NH, other_NH), (one_NH, third_NH), (other_NH, third_NH)]:
        for step in (0, 5):
            assert abs(np.corrcoef(x[:, step], y[:, step])[0, 1]) < 5 / 2000**0.5


@pytest.mark.parametrize("rows", [1, 80, 100_000])
def test_a_forecast_does_not_depend_on_other_cutoffs_or_their_order(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, windows = trained(small.panel())
    together = paths(network, windows, pairs_of([0, 3, 3, 1], [90, 100, 110, 120]))
    monkeypatch.setattr(module, "ROWS", rows)
    again = paths(network, windows, pairs_of([1, 3, 0, 4, 3], [120, 110, 90, 50, 100]))
    np.testing.assert_allclose(again[[2, 4, 1, 0]], together, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("begin", [1, 40, 120 - 24 - 5])
def test_a_forecast_does_not_depend_on_how_much_older_history_there_is(begin: int) -> None:
    panel = small.panel()
    network, windows = trained(panel)
    size = 120 - begin
    later = replace(
        panel,
        values=panel.values.reshape(5, 120)[:, begin:].ravel(),
        indptr=np.arange(6) * size,
        lengths=np.full(5, size),
        starts=panel.freq.add(panel.starts, np.full(5, begin)),
    )
    tail = Windows(later, windows.features, context=24, horizon=6, lags=(1, 5))
    every = np.arange(5)
    found = paths(network, tail, Pairs(every, later.lengths))
    np.testing.assert_array_equal(found, paths(network, windows, Pairs(every, panel.lengths)))
