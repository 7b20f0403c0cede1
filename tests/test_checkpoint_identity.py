"""A training is identified by its seed, settings, network and data; differences are described."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import small
from logsparse.attention.pattern import full
from logsparse.config import Config
from logsparse.data.panel import Panel, Static
from logsparse.train.batches import TrainingSet
from logsparse.train.checkpoint import Identity, differences, fingerprint, identity


def identity_of(config: Config, panel: Panel | None = None, seed: int = 0) -> Identity:
    data = TrainingSet.of(small.panel() if panel is None else panel, config)
    return identity(small.network(config, data), data, config.train, seed)


NOW = identity_of(small.config())


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"config": small.config({"kernel": 2})}, ["another network"]),
        ({"config": small.config({"patterns": (full(),)})}, ["another network"]),
        ({"config": small.config(), "panel": small.panel(seed=1)}, ["other data"]),
        ({"config": replace(small.config(), horizon=7)}, ["other data"]),
        ({"config": small.config(), "seed": 1}, ["seed 1 (was 0)"]),
        ({"config": small.config(minutes=5)}, ["train.minutes 5 (was none)"]),
        ({"config": small.config(lr=0.01), "seed": 1}, ["seed 1 (was 0)", "train.lr 0.01 (was 0.001)"]),
        ({"config": small.config()}, []),
    ],
)
def test_differences_are_described_in_words(other: dict[str, Any], words: list[str]) -> None:
    assert differences(NOW, identity_of(**other)) == words


def test_other_series_to_validate_with_are_other_data() -> None:
    config, panels = small.config(), [small.panel(seed=seed) for seed in (0, 1, 2)]
    sets = [TrainingSet.of_two(panels[0], other, config) for other in panels[1:]]
    prints = [identity(small.network(config, data), data, config.train, 0) for data in sets]
    assert differences(*prints) == ["other data"]


def test_the_fingerprint_covers_all_data_that_a_training_reads() -> None:
    panel = small.panel()
    codes = np.zeros(5, np.int64)
    others = [
        small.panel(seed=1),
        panel.cut(panel.lengths - 1),
        replace(panel, ids=tuple("abcde")),
        replace(panel, starts=panel.starts + 3_600_000_000),
        replace(panel, covariates={"price": panel.values}),
        replace(panel, static={"kind": Static(codes, ("a",))}),
        replace(panel, static={"kind": Static(codes, ("b",))}),
    ]
    prints = [fingerprint(one) for one in (panel, *others)]
    assert len(set(prints)) == len(prints)
    assert fingerprint(small.panel()) == prints[0]
