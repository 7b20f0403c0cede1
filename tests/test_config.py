"""Settings refuse what cannot work, and survive JSON unchanged."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from logsparse import presets
from logsparse.attention.pattern import full, logsparse, restart
from logsparse.config import Config, ModelConfig, TrainConfig
from logsparse.errors import ConfigError
from logsparse.model.likelihood import LIKELIHOODS


def as_any(**settings: Any) -> dict[str, Any]:
    """Past the type checker."""
    return settings


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
        (lambda: ModelConfig(lags=(24,)), "lags must be 1 and then other numbers of steps from 2 on, each once. Got"),
        (lambda: ModelConfig(lags=(1, 7, 7)), "each once. Got .1, 7, 7.*write lags="),
        (lambda: ModelConfig(lags=(1, 0)), "from 2 on"),
        (lambda: ModelConfig(layers=10**9), "layers must be at most 1000. Got 1000000000"),
        (lambda: ModelConfig(layers=10**5000), "layers must be at most 1000. Got a whole number of about 5000 digits"),
        (lambda: ModelConfig(width=10**9), "width must be at most 100000. Got"),
        (lambda: ModelConfig(heads=10**9), "heads must be at most 1000. Got"),
        (lambda: ModelConfig(kernel=10**9), "kernel must be at most 100000. Got"),
        (lambda: ModelConfig(embedding=10**9), "embedding must be at most 100000. Got"),
        (lambda: TrainConfig(batch=10**20), "batch must be at most 10000000. Got"),
        (lambda: TrainConfig(windows=10**20), "windows must be at most 1000000000. Got"),
        (lambda: TrainConfig(epochs=10**20), "epochs must be at most 1000000000. Got"),
        (lambda: TrainConfig(steps_per_epoch=10**20), "steps_per_epoch must be at most 1000000000. Got"),
        (lambda: TrainConfig(seeds=10**20), "seeds must be at most 10000. Got"),
        (lambda: Config(context=10**20, horizon=1), "context must be at most 1000000. Got"),
        (lambda: Config(context=1, horizon=10**20), "horizon must be at most 100000. Got"),
        (lambda: ModelConfig(width=0), "width must be at least 1. Got 0"),
        (lambda: TrainConfig(clip=0), "clip must be above 0"),
        (lambda: TrainConfig(weight_decay=-1), "weight_decay must be at least 0"),
        (lambda: TrainConfig(patience=0), "patience must be at least 1. Got 0"),
        (lambda: ModelConfig(unknown_series=2), "unknown_series must be between 0 and 1"),
        (lambda: ModelConfig(hidden_history=1), "hidden_history must be at least 0 and below 1"),
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


def test_a_scale_that_the_likelihood_does_not_allow_is_refused_by_its_traits() -> None:
    for name, family in LIKELIHOODS.items():
        for scale in ("one-plus-mean", "mean", "deviation"):
            if scale in family.scales:
                assert ModelConfig(likelihood=name, **as_any(scale=scale)).scale == scale
            else:
                with pytest.raises(ConfigError, match=rf"scale of likelihood '{name}' must be one of one-plus-mean, "):
                    ModelConfig(likelihood=name, **as_any(scale=scale))
    with pytest.raises(ConfigError, match=r"likelihood must be a known one. Got \"gausian\". Hint: did you mean"):
        ModelConfig(likelihood="gausian")


def test_the_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(ModelConfig()) == "ModelConfig()"
    config = Config(context=2, horizon=1, train=TrainConfig(lr=0.1))
    assert repr(config) == "Config(context=2, horizon=1, train=TrainConfig(lr=0.1))"


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
        (
            lambda: Config(context=2, horizon=1, method="x"),  # type: ignore[arg-type]
            "method must be one of ancestral, mean-path, two-way, direct. Got",
        ),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_and_not_taken_for_another(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ModelConfig(**as_any(layers="3")), "layers must be a whole number. Got '3'"),
        (lambda: ModelConfig(**as_any(layers=None)), "layers must be a whole number. Got None"),
        (lambda: ModelConfig(**as_any(embedding=True)), "embedding must be a whole number. Got True"),
        (lambda: ModelConfig(**as_any(lags=1)), "lags must be a list of whole numbers. Got 1"),
        (lambda: ModelConfig(**as_any(lags=np.array(1))), r"lags must be a list of whole numbers. Got array\(1\)"),
        (lambda: ModelConfig(**as_any(norm=np.array(["pre", "post"]))), r"norm must be one of post, pre. Got array"),
        (lambda: TrainConfig(**as_any(lr=10**400)), "lr must be a number. Got 10000"),
        (lambda: ModelConfig(**as_any(lags=(1, 2.5))), "Each of lags must be a whole number. Got 2.5"),
        (
            lambda: ModelConfig(**as_any(patterns=full())),
            r"a list of patterns. Got full\(\). Hint: write patterns=\[full\(\)\].",
        ),
        (lambda: ModelConfig(**as_any(patterns="full")), "patterns must be a list of patterns. Got 'full'"),
        (
            lambda: ModelConfig(**as_any(patterns=("full",))),
            "Each of patterns must be a pattern of `logsparse.patterns`",
        ),
        (lambda: ModelConfig(**as_any(likelihood=3)), "likelihood must be a name. Got 3"),
        (lambda: ModelConfig(**as_any(dropout="some")), "dropout must be a number. Got 'some'"),
        (lambda: ModelConfig(**as_any(dropout=float("nan"))), "dropout must be a number. Got nan"),
        (lambda: TrainConfig(**as_any(epochs=1.5)), "epochs must be a whole number. Got 1.5"),
        (lambda: TrainConfig(**as_any(minutes="two")), "minutes must be a number. Got 'two'"),
        (
            lambda: Config(context=2, horizon=1, **as_any(features="hour")),
            "features must be a list of names. Got 'hour'",
        ),
        (lambda: Config(context=2, horizon=1, **as_any(model={})), "model must be a ModelConfig. Got {}"),
        (lambda: Config.from_dict({}), "Config must be given context and horizon. Got"),
        (lambda: Config.from_dict({"context": 2, "horizon": 1, "train": {"epoch": 2}}), "did you mean 'epochs'"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_by_its_name(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_lists_and_numbers_of_numpy_become_tuples_and_plain_numbers() -> None:
    loose = ModelConfig(lags=[1, np.int64(24)], dropout=np.float32(0.5), width=np.int32(8))  # type: ignore[arg-type]
    assert loose == ModelConfig(lags=(1, 24), dropout=0.5, width=8)
    assert json.dumps([loose.lags, loose.dropout, loose.width]) == "[[1, 24], 0.5, 8]"


def test_texts_truth_values_and_arrays_of_numpy_become_plain() -> None:
    given = as_any(
        lags=np.array([1, 24], np.uint8), embed_series=np.False_, norm=np.str_("pre"), likelihood=np.str_("gaussian")
    )
    loose = ModelConfig(**given)
    assert loose == ModelConfig(lags=(1, 24), embed_series=False, norm="pre")
    kinds = {type(value) for value in (*loose.lags, loose.embed_series, loose.norm, loose.likelihood)}
    assert kinds == {int, bool, str}


def test_what_is_left_out_of_a_dict_has_its_default() -> None:
    assert Config.from_dict({"context": 2, "horizon": 1}) == Config(context=2, horizon=1)


def test_settings_saved_under_their_former_names_are_read() -> None:
    saved = presets.solar().to_dict()
    saved["train"]["look_every"] = saved["train"].pop("validate_every")
    saved["train"]["held_back"] = saved["train"].pop("validation_steps")
    assert Config.from_dict(saved) == presets.solar()
