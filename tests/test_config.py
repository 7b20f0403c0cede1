"""Settings refuse what cannot work, and survive JSON unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logsparse import presets
from logsparse.attention.pattern import full, logsparse, restart
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.errors import ConfigError


@pytest.mark.parametrize("make", [presets.solar, presets.electricity_f, lambda: presets.default(168, 24)])
def test_settings_survive_json(make: Any) -> None:
    config = make()
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_an_unknown_setting_is_named() -> None:
    settings = presets.solar().to_dict()
    settings["model"]["layrs"] = 3
    with pytest.raises(ConfigError, match=r"ModelConfig knows .*layers.*Got 'layrs'"):
        Config.from_dict(settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig(layers=0), "layers must be at least 1. Got 0"),
        (lambda: ModelConfig(layers=3, patterns=(full(), full())), "one for each layer. Got '2 for 3 layers'"),
        (lambda: ModelConfig(dropout=1.0), "dropout must be at least 0 and below 1"),
        (lambda: ModelConfig(head_width="split"), "Split heads need a width that is a multiple of heads"),
        (lambda: ModelConfig(head_width="split", width=50, heads=4), "multiple of heads. Got 'width=50, heads=4'"),
        (lambda: ModelConfig(lags=(24,)), "lags must be whole numbers of steps, 1 first"),
        (lambda: ModelConfig(unknown_series=2), "unknown_series must be between 0 and 1"),
        (lambda: TrainConfig(windows=3), "windows must be at least one batch. Got 3"),
        (lambda: TrainConfig(lr=0), "lr must be above 0"),
        (lambda: TrainConfig(average=1), "average must be at least 0 and below 1"),
        (lambda: TrainConfig(minutes=0), "minutes must be above 0"),
        (lambda: Config(context=0, horizon=1), "context must be at least 1. Got 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_one_pattern_serves_all_layers_and_each_layer_may_have_its_own() -> None:
    assert ModelConfig(layers=2, patterns=(logsparse(),)).layer_patterns == (logsparse(), logsparse())
    own = (full(), restart(24))
    assert ModelConfig(layers=2, patterns=own).layer_patterns == own


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ModelConfig(norm="mid"), "norm must be one of post, pre. Got 'mid'"),  # type: ignore[arg-type]
        (lambda: ModelConfig(embed_series="no"), "embed_series must be True or False. Got 'no'"),  # type: ignore[arg-type]
        (lambda: TrainConfig(precision="float16"), "precision must be one of float32, bfloat16. Got 'float16'"),  # type: ignore[arg-type]
        (lambda: Config(context=2, horizon=1, method="x"), "method must be one of ancestral, mean-path. Got 'x'"),  # type: ignore[arg-type]
    ],
)
def test_a_choice_that_does_not_exist_is_refused_and_not_taken_for_another(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()
