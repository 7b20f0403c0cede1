"""Single settings by name: LogSparse(24, layers=2), checked at once, in place of those of a config or of the data."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from logsparse.settings import SETTINGS, Settings

NETWORKS = [ls.LogSparse, ls.DeepAR, ls.DeepState]


def test_settings_replace_those_that_follow_from_the_data() -> None:
    usual = ls.LogSparse(6).plan(small.panel()).config
    plan = ls.LogSparse(6, layers=2, dropout=0.2, lr=1e-4, features=("hour",), steps=5).plan(small.panel())
    assert (plan.config.model.layers, plan.config.model.dropout, plan.config.train.lr) == (2, 0.2, 1e-4)
    assert (plan.config.features, plan.features, plan.steps) == (("hour",), ("hour",), 5)
    assert plan.config.model.lags == usual.model.lags


def test_settings_replace_those_of_a_config() -> None:
    config = ls.DeepAR(6, config=small.config(), width=8, batch=4, verbose=False).plan(small.panel()).config
    assert (config.model.width, config.train.batch, config.model.kernel) == (8, 4, 3)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"layer": 2}, r"has the parameters horizon, .* Got 'layer'. Hint: did you mean 'layers'\?"),
        ({"model.layers": 2}, r"Got 'model.layers'. Hint: did you mean 'layers'\?"),
        ({"contxt": 24}, r"Got 'contxt'. Hint: did you mean 'context'\?"),
        ({"preset": "solar"}, r"Got 'preset'. Hint: write config=logsparse.presets.named\('solar'\)."),
        ({"layers": 0}, "layers must be at least 1. Got 0"),
        ({"layers": "two"}, "layers must be a whole number. Got 'two'"),
        ({"dropout": 1}, "dropout must be at least 0 and below 1. Got 1.0"),
        ({"lags": (24,)}, "lags must be 1 and then other numbers"),
        ({"norm": "prae"}, "norm must be one of post, pre. Got 'prae'"),
        ({"method": "directly"}, "method must be one of"),
        ({"likelihood": "gauss"}, "gauss"),
        ({"patterns": ["full"]}, "Each of patterns must be a pattern"),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(kind: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ls.ConfigError, match=text):
        kind(6, **settings)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"horizon": 0}, "horizon must be at least 1. Got 0"),
        ({"horizon": 7.5}, "horizon must be a whole number. Got 7.5"),
        ({"holidays": "XX"}, "holidays must name a country by its two letters. Got 'XX'"),
        ({"features": ["noon"]}, "noon"),
    ],
)
def test_other_parameters_countries_and_features_are_refused_at_fit(
    kind: Any, parameters: dict[str, Any], text: str
) -> None:
    model = kind(**{"horizon": 6, "verbose": False, **parameters})
    with pytest.raises(ls.ConfigError, match=text):
        model.fit(small.panel())
    assert not hasattr(model, "history_")


def test_settings_that_contradict_the_others_are_refused_before_training() -> None:
    with pytest.raises(ls.ConfigError, match="Split heads need a width that is a multiple of heads"):
        ls.LogSparse(6, heads=5).plan(small.panel())
    with pytest.raises(ls.ConfigError, match="patterns must be one pattern, or one for each layer"):
        ls.LogSparse(6, config=small.config(), patterns=(ls.patterns.full(),) * 3).fit("no such file")
    with pytest.raises(ls.ConfigError, match="DeepState must have the gaussian likelihood"):
        ls.DeepState(6, likelihood="student-t").fit("no such file")
    with pytest.raises(ls.ConfigError, match="DeepState must not have the method direct"):
        ls.DeepState(6, method="direct").fit("no such file")


def test_a_setting_that_is_spoilt_later_is_refused_at_fit() -> None:
    with pytest.raises(ls.ConfigError, match=r"layers must be at least 1. Got 0"):
        ls.LogSparse(6, layers=2).set_params(layers=0).fit("no such file")
    with pytest.raises(ls.ConfigError, match=r"steps must be at least 1. Got 0"):
        ls.LogSparse(6, steps=0).fit("no such file")


def test_settings_are_parameters_like_any_other() -> None:
    base = pytest.importorskip("sklearn.base")
    given: dict[str, Any] = {"layers": np.int64(2), "lags": [1, 3], "patterns": [ls.patterns.local(3)]}
    model = ls.LogSparse(6, steps=4, **given)
    shown = f"layers={given['layers']!r}, patterns=[local(width=3, base=2)], lags=[1, 3]"
    assert repr(model) == f"LogSparse(horizon=6, steps=4, {shown})"
    for twin in (model.clone(), base.clone(model), ls.LogSparse(6).set_params(steps=4, **given)):
        assert twin.get_params() == model.get_params()
    assert all(model.get_params()[name] is value for name, value in given.items())
    assert "layers" not in ls.LogSparse(6).get_params()


@pytest.mark.parametrize("kind", NETWORKS)
def test_settings_are_saved_with_the_model(kind: Any, tmp_path: Path) -> None:
    given = {"layers": np.int64(1), "lags": np.array([1, 3]), "patterns": [ls.patterns.local(3)], "method": "mean-path"}
    model = kind(6, steps=2, batch=4, context=12, verbose=False, **given).fit(small.panel())
    assert (model.config_.model.lags, model.config_.model.patterns) == ((1, 3), (ls.patterns.local(3),))
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model")
    assert loaded.settings() == model.settings()
    assert loaded.get_params() == model.get_params()
    assert repr(loaded) == repr(model)
    assert loaded.predict().equals(model.predict())


def test_a_method_that_was_given_changes_with_the_model(tmp_path: Path) -> None:
    model = ls.LogSparse(6, method="two-way", steps=1, batch=4, context=12, verbose=False)
    assert model.method == "two-way"
    model.fit(small.panel())
    model.method = "direct"
    assert (model.method, model.get_params()["method"]) == ("direct", "direct")
    model.save(tmp_path / "model")
    loaded = ls.load(tmp_path / "model", method="two-way")
    assert loaded.get_params()["method"] == "two-way"


def test_every_setting_has_a_type_for_editors() -> None:
    assert set(typing.get_type_hints(Settings)) == {*SETTINGS, "device", "verbose"}
    assert set(SETTINGS) >= {"layers", "lr", "method", "features"}


def test_fine_tuning_takes_steps_minutes_and_a_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ls.LogSparse(6, config=small.config(lr=0.5), verbose=False)
    with pytest.raises(ls.NotFittedError):
        model.fine_tune(small.panel(), steps=2)
    model = ls.LogSparse(6, config=small.config(lr=1e-3), verbose=False).fit(small.panel())
    rates: list[float] = []
    monkeypatch.setattr("logsparse.train.loop.set_rate", lambda _optim, rate: rates.append(rate))
    model.fine_tune(small.panel(seed=1), steps=3)
    assert rates == pytest.approx([1e-4] * 3)
    model.fine_tune(small.panel(seed=1), steps=2, lr=0.01)
    assert rates[3:] == pytest.approx([0.01] * 2)
    model.fine_tune(small.panel(seed=1), minutes=1e-9)
    assert (model.history_.steps, model.history_.planned) == (1, 12)
    # The time limit of `fit` does not cut the steps that are asked for.
    assert model.set_params(minutes=1e-9).fine_tune(small.panel(), steps=15).history_.steps == 15
    with pytest.raises(ls.ConfigError, match="steps must be at least 1"):
        model.fine_tune(small.panel(), steps=0)
    with pytest.raises(ls.ConfigError, match="lr must be above 0"):
        model.fine_tune(small.panel(), lr=0)
    with pytest.raises(ls.ConfigError, match="minutes must be above 0"):
        model.fine_tune(small.panel(), minutes=-1)


def test_a_shorter_horizon_needs_the_covariates_of_its_steps_only(hourly: pl.DataFrame) -> None:
    data = hourly.with_columns(price=pl.col("y").fill_null(1.0) * 2)
    past = data.group_by("unique_id", maintain_order=True).head(60)
    after = data.join(past, on=["unique_id", "ds"], how="anti", maintain_order="left")
    for kind in NETWORKS:
        model = kind(6, steps=2, batch=4, context=12, verbose=False).fit(past, covariates=["price"])
        whole = model.predict(future=after.group_by("unique_id", maintain_order=True).head(6).drop("y"))
        asked = after.group_by("unique_id", maintain_order=True).head(2).drop("y")
        assert model.predict(future=asked, horizon=2).equals(whole.group_by("unique_id", maintain_order=True).head(2))
        with pytest.raises(ls.DataError, match="must be known for all 6 steps"):
            model.predict(future=asked)
