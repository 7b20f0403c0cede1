"""Training windows are drawn in proportion to the scale in use, from fresh draws and from a fixed set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import small
from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.data.scale import Doubles
from logsparse.train.batches import Draws, TrainingSet
from logsparse.train.distributed import Ranks

KINDS = ["one-plus-mean", "mean", "deviation"]
LARGE = 2


def shaped_like_m4(series: int = 60) -> Panel:
    """Two series so large that they hold more than a third of all weight."""
    panel = small.panel(series=series, missing=0)
    size_S = np.where(np.arange(series) < LARGE, 20.0, 1.0)
    return replace(panel, values=(panel.values * np.repeat(size_S, panel.lengths)).astype(np.float32))


def settings(kind: str, **train: object) -> Config:
    return small.config({"scale": kind}, **train)


def shares(data: TrainingSet) -> Doubles:
    """Share of each series in the sum of the scales of all training windows."""
    every = data.training.at(np.arange(len(data.training)))
    scale_B = data.windows(every.series_B, every.start_B).scale_B.double().numpy()
    return np.asarray(np.bincount(every.series_B, scale_B) / scale_B.sum())


def series_of_an_epoch(draws: Draws) -> Doubles:
    """Share of each series in one pass over the set."""
    drawn = np.concatenate([draws._pairs(step).series_B for step in range(draws.steps_per_epoch)])
    return np.bincount(drawn, minlength=len(draws.data.windows.panel)) / len(drawn)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("windows", [2_000, 20_000], ids=["fewer than there are", "more than there are"])
def test_a_fixed_set_holds_each_series_in_proportion_to_its_scale(kind: str, windows: int) -> None:
    config = settings(kind, windows=windows)
    data = TrainingSet.of(shaped_like_m4(), config)
    share_S = shares(data)
    large = share_S[:LARGE].sum()
    assert large > 1 / 3
    found = series_of_an_epoch(Draws(data, config.train, seed=0, ranks=Ranks()))[:LARGE].sum()
    assert abs(found - large) < 4 * np.sqrt(large * (1 - large) / windows)


def test_large_series_have_no_larger_share_of_an_unweighted_set() -> None:
    config = settings("mean", windows=2_000, weighted=False)
    data = TrainingSet.of(shaped_like_m4(), config)
    found = series_of_an_epoch(Draws(data, config.train, seed=0, ranks=Ranks()))[:LARGE].sum()
    assert found < 2 * LARGE / len(data.windows.panel)


def test_an_unweighted_set_as_large_as_all_windows_has_each_of_them_once_per_epoch() -> None:
    config = settings("mean", windows=10_000, weighted=False, batch=1)
    data = TrainingSet.of(small.panel(), config)
    draws = Draws(data, config.train, seed=0, ranks=Ranks())
    assert draws.steps_per_epoch == len(data.training)
    pairs = [draws._pairs(step) for step in range(draws.steps_per_epoch)]
    assert len({(int(pair.series_B[0]), int(pair.start_B[0])) for pair in pairs}) == len(data.training)


def test_a_share_of_the_training_windows_has_no_history_whoever_gathers_them() -> None:
    config = small.config({"hidden_history": 0.3}, batch=200)
    data = TrainingSet.of(small.panel(missing=0), config)

    def hidden(ranks: Ranks, seed: int = 0, step: int = 0) -> list[bool]:
        batch = Draws(data, config.train, seed=seed, ranks=ranks)(step)
        found_B = batch.padding_B == config.context
        assert not batch.observed_BL[found_B, : config.context].any()
        assert batch.observed_BL[:, config.context :].all()
        assert batch.observed_BL[~found_B, : config.context].any(1).all()
        return found_B.tolist()

    whole = hidden(Ranks())
    assert 0.2 < np.mean(whole) < 0.4
    assert hidden(Ranks()) == whole
    assert hidden(Ranks(0, 2)) + hidden(Ranks(1, 2)) == whole
    assert hidden(Ranks(), seed=1) != whole != hidden(Ranks(), step=1)
    for batch in data.validation_batches(config.train, Ranks()):
        assert (batch.padding_B < config.context).all()
