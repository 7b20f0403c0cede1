"""Settings and data that LogSparse cannot mean or use are refused with one clear sentence, before any training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logsparse as ls
import small
from test_forecaster import frame, quick


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"samples": 0}, "samples must be at least 1. Got 0"),
        ({"context": 10**20}, "context must be at most 100000. Got 1000"),
        ({"context": 9}, "context must agree with the config. Got context=9 and a config with 24"),
        ({"horizon": 5}, "horizon must agree with the config"),
        ({"minutes": 0}, "minutes must be a number above 0. Got 0"),
        ({"minutes": "two"}, "minutes must be a number above 0. Got 'two'"),
        ({"device": "abacus"}, "device must be one that torch can use here. Got 'abacus'"),
        ({"device": "meta"}, "device must be one that torch can use here. Got 'meta'"),
        ({"device": np.array([6, 7])}, r"device must be one that torch can use here. Got array\(\[6, 7\]\)"),
        ({"device": 10**20}, "device must be one that torch can use here. Got 1000"),
        ({"device": None}, "device must be one that torch can use here. Got None"),
        ({"seed": -1}, "seed must be at least 0. Got -1"),
        ({"seed": 2**70}, "seed must be at most"),
        ({"config": {"context": 24}}, "config must be a logsparse.Config. Got {'context': 24}. Hint: use one"),
    ],
)
def test_settings_that_cannot_be_meant(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ls.ConfigError, match=text):
        quick(**options).fit(frame())


def test_settings_that_were_spoilt_after_the_fit() -> None:
    model = quick().fit(frame())
    for samples in (0, 2.5):
        model.samples = samples  # type: ignore[assignment]
        with pytest.raises(ls.ConfigError, match="samples must be"):
            model.predict()


def test_a_context_or_lag_that_no_series_can_fill() -> None:
    config = replace(small.config(), context=10**6)
    with pytest.raises(
        ls.ConfigError, match=r"context must not be longer than the longest series. Got 1000000 steps, and 90"
    ):
        quick(config=config).fit(frame())
    with pytest.raises(
        ls.ConfigError, match=r"The longest lag must not be longer than the longest series. Got 91 steps"
    ):
        quick({"lags": (1, 91)}).fit(frame())


class Unprintable:
    """A value whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError


def test_a_column_with_two_meanings() -> None:
    with pytest.raises(ls.ConfigError, match=r"one role. Got 'y' as target_col and as covariates"):
        quick().fit(frame(), covariates=["y"])
    with pytest.raises(ls.ConfigError, match=r"one role. Got 'unique_id' as id_col and as static"):
        quick().fit(frame(), static=["unique_id"])


def test_a_covariate_without_values() -> None:
    with pytest.raises(ls.DataError, match=r"Every covariate must have at least one value. Got none in 'price'"):
        quick().fit(frame().with_columns(price=pl.lit(None, pl.Float32)), covariates=["price"])


def test_new_data_of_another_step_by_a_saved_model_too(tmp_path: Path) -> None:
    model = quick().fit(frame())
    model.save(tmp_path / "model")
    slower = frame().gather_every(2)
    for call in (model.predict, model.fine_tune, ls.load(tmp_path / "model").predict):
        with pytest.raises(ls.DataError, match=r"New data must have the step that was fitted. Got steps of 2h after h"):
            call(slower)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"horizon": 12},
            "verbose of a saved LogSparse can be changed on loading. Got horizon=12. Hint: fit again for another one.",
        ),
        ({"context": 3}, "Got context=3. Hint: fit again"),
        ({"sample": 1}, "Got sample=1. Hint: did you mean 'samples'?"),
        ({"samples": 0}, "samples must be at least 1. Got 0."),
    ],
)
def test_changes_on_loading_that_cannot_be(changed: dict[str, Any], text: str, tmp_path: Path) -> None:
    quick().fit(frame()).save(tmp_path / "model")
    with pytest.raises(ls.ConfigError) as caught:
        ls.load(tmp_path / "model", **changed)
    assert text in str(caught.value)


@pytest.mark.parametrize("path", [None, 5, b"x", "a\0b", Path("a\0b")], ids=repr)
def test_what_is_no_path_is_refused_before_any_work(path: Any) -> None:
    with pytest.raises(ls.ConfigError, match=r"^A model is loaded from the path of its folder. Got .* Hint: write l"):
        ls.load(path)
    naive = ls.SeasonalNaive(2).fit(frame())
    with pytest.raises(ls.ConfigError, match=r"^A model is saved to the path of a folder. Got .* Hint: write save"):
        naive.save(path)
    with pytest.raises(ls.ConfigError, match=r"^A report is written to the path of a file. Got .* Hint: write report"):
        ls.report(ls.backtest(naive, frame(), refit=True), path)
    if path is not None:
        with pytest.raises(ls.ConfigError, match=r"^A run is kept in the path of a folder. Got .* Hint: write folder="):
            quick().fit(frame(), folder=path)


def test_a_path_of_none_is_named_in_the_refusal() -> None:
    with pytest.raises(ls.ConfigError, match=r"A model is loaded from the path of its folder. Got None."):
        ls.load(None)  # type: ignore[arg-type]


def test_targets_below_the_lowest_value() -> None:
    with pytest.raises(ls.DataError, match=r"No target may lie below model.lowest. Got .*, and model.lowest 1e\+06"):
        quick({"lowest": 1e6}).fit(frame())


def test_a_model_is_not_tested_on_what_it_learned_before_its_fine_tuning(tmp_path: Path) -> None:
    model = quick().fit(frame())
    model.fine_tune(frame(series=1, first=9))
    with pytest.raises(ls.DataError, match="A backtest must begin after the model's training ended"):
        ls.backtest(model, frame(), windows=2)
    model.save(tmp_path / "m")
    with pytest.raises(ls.DataError, match="A backtest must begin after the model's training ended"):
        ls.backtest(ls.load(tmp_path / "m"), frame(), windows=2)


def test_another_horizon_after_fit(tmp_path: Path) -> None:
    model = quick().fit(frame())
    config, model.config = model.config, None
    model.set_params(horizon=9)
    for call in (model.predict, model.forecast, model.learned_until, lambda: model.save(tmp_path / "model")):
        with pytest.raises(
            ls.ConfigError, match=r"horizon it was trained for. Got horizon=9 for .* Hint: fit again, or"
        ):
            call()
    assert list(tmp_path.iterdir()) == []
    assert model.set_params(horizon=6, config=config).predict().height == 6 * frame()["unique_id"].n_unique()


def test_a_wrong_parameter_after_fit_is_not_saved(tmp_path: Path) -> None:
    model = quick().fit(frame()).set_params(samples=np.arange(3))
    with pytest.raises(ls.ConfigError, match=r"samples must be a whole number. Got array\(\[0, 1, 2\]\)"):
        model.save(tmp_path / "model")


def test_validation_data_of_another_step() -> None:
    with pytest.raises(ls.DataError, match=r"must have the step that was fitted. Got steps of 2h after h. Hint: re"):
        quick().plan(frame(), validation=frame().gather_every(2))


@pytest.mark.parametrize("config", ["default", 3, {}, Unprintable()], ids=["text", "number", "dict", "unprintable"])
def test_a_config_of_another_type_in_every_method(config: Any) -> None:
    model = ls.LogSparse(6, config=config)
    for call in (model.diagnostics, model.settings, lambda: model.plan(frame())):
        with pytest.raises(ls.ConfigError, match=r"config must be a logsparse.Config. Got "):
            call()
