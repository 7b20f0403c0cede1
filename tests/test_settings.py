"""`--set name=value`: each value is parsed by the type of its field, each wrong one refused with a hint."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from logsparse import presets
from logsparse.attention.pattern import full, local, logsparse, restart
from logsparse.config import ModelConfig, TrainConfig
from logsparse.errors import ConfigError
from logsparse.settings import apply, dotted, read_settings


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("model.layers=6", 6),
        ("model.width=none", None),
        ("model.width=64", 64),
        ("model.dropout=0", 0.0),
        ("model.embed_series=false", False),
        ("model.norm=pre", "pre"),
        ("model.likelihood=student-t", "student-t"),
        ("model.lags=1,24,168", (1, 24, 168)),
        ("model.patterns=logsparse", (logsparse(),)),
        ("model.patterns=restart:96", (restart(96),)),
        ("model.patterns=restart:96:7", (restart(96, 7),)),
        ("model.patterns=full,local:7,logsparse:3", (full(), local(7), logsparse(3))),
        ("train.minutes=1.5", 1.5),
        ("train.windows=none", None),
        ("train.lr=1e-4", 1e-4),
        ("train.loss_on=horizon", "horizon"),
        ("method=mean-path", "mean-path"),
        ("features=hour,age", ("hour", "age")),
        ("features=none", ()),
        ("model.profiles=none", ()),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(word: str, value: Any) -> None:
    part, _, name = word.partition("=")[0].rpartition(".")
    changed = apply(presets.solar(), read_settings([word]))
    assert getattr(getattr(changed, part) if part else changed, name) == value


def test_every_field_can_be_set() -> None:
    expected = {f"model.{f.name}" for f in fields(ModelConfig)} | {f"train.{f.name}" for f in fields(TrainConfig)}
    assert set(dotted()) == expected | {"method", "features", "holidays", "blend"}


def test_settings_that_depend_on_each_other_are_changed_together() -> None:
    words = ["model.head_width=split", "model.heads=3", "model.width=48", "model.layers=2", "model.patterns=full,full"]
    changed = apply(presets.solar(), read_settings(words))
    assert (changed.model.heads, changed.model.width, changed.model.layer_patterns) == (3, 48, (full(), full()))


def test_no_changes_change_nothing_and_the_last_value_wins() -> None:
    assert read_settings([]) == {}
    assert apply(presets.wind(), {}) == presets.wind()
    assert read_settings(["train.lr=1", "train.lr=2"]) == {"lr": 2.0}


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("model.layer=6", r"with the name of a setting\. Got model\.layer=6\. Hint: did you mean 'model\.layers'\?"),
        ("layers=6", r"Hint: did you mean 'model\.layers'\?"),
        ("zzz=6", r"Hint: write for example --set model\.layers=6; help\(logsparse\.config\) lists all settings"),
        ("train.held_back=9", r"Hint: it is called train\.validation_steps now"),
        ("train.look_every=9", r"Hint: it is called train\.validate_every now"),
        ("model.layers", r"Got model\.layers\. Hint: write --set model\.layers=value"),
        ("context=9", r"--set does not change the context\. Got context=9\. Hint: give --context instead"),
        ("model.layers=six", r"model\.layers must be a whole number\. Got 'six'\. Hint: write model\.layers=6"),
        ("train.lr=fast", r"train\.lr must be a number\. Got 'fast'"),
        ("model.lags=1;24", r"model\.lags must be a whole number\. Got '1;24'"),
        ("model.norm=prae", r"model\.norm must be one of post, pre\. Got 'prae'\. Hint: did you mean 'pre'\?"),
        ("model.embed_series=maybe", r"must be one of true, false\. Got 'maybe'"),
        ("model.patterns=logspars", r"must be one of full, logsparse, .* Hint: did you mean 'logsparse'\?"),
        ("model.patterns=restart", r"must be a rule and its numbers, as in restart:96\. Got 'restart'"),
        ("model.patterns=local:x", r"must be a rule and its numbers, as in local:96\. Got 'local:x'"),
        ("model.patterns=local:0", r"width must be at least 1\. Got 0"),
    ],
)
def test_a_wrong_value_is_refused_with_a_hint(word: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings([word])


def test_values_that_contradict_each_other_are_refused_by_the_config() -> None:
    with pytest.raises(ConfigError, match="Split heads need a width that is a multiple of heads"):
        apply(presets.solar(), read_settings(["model.head_width=split", "model.width=7", "model.heads=2"]))
