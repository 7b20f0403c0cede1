"""DeepAR: by default the recipe of LogSparse with another network; with a preset, the settings of the paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

import logsparse as ls
import small
from logsparse import presets
from logsparse.config import Config
from logsparse.data.panel import Panel
from logsparse.model.recurrent import Recurrent


def without_network(config: Config) -> Config:
    usual = presets.default(1, 1).model
    return replace(config, model=replace(config.model, **{name: getattr(usual, name) for name in presets.NETWORK}))


@pytest.mark.parametrize("panel", [small.panel(steps=800), small.panel(series=3, steps=120)], ids=["long", "short"])
def test_by_default_deepar_differs_from_logsparse_in_the_network_only(panel: Panel) -> None:
    ours, theirs = (kind(6, verbose=False).plan(panel) for kind in (ls.LogSparse, ls.DeepAR))
    assert (theirs.config.model.layers, theirs.config.model.width) == (3, 40)
    assert ours.config != theirs.config
    assert without_network(ours.config) == without_network(theirs.config)
    assert (theirs.config.method, theirs.config.train.loss_on) == ("two-way", "both")
    assert (theirs.features, theirs.steps) == (ours.features, ours.steps)


@pytest.mark.parametrize("name", presets.NAMES)
def test_with_the_settings_of_the_paper_it_has_three_layers_of_forty_and_sees_the_previous_value_alone(
    name: str,
) -> None:
    config, beside = presets.named(name, "deepar"), presets.named(name)
    model = config.model
    assert (model.layers, model.width, model.lags, model.profiles, model.anchor) == (3, 40, (1,), (), False)
    assert (model.likelihood, model.scale, model.embed_series) == (
        "gaussian",
        "one-plus-mean",
        beside.model.embed_series,
    )
    assert (config.train.optimiser, config.train.schedule, config.train.lr) == ("adam", "constant", 1e-3)
    # The windows are those of the paper's own model.
    assert (config.context, config.horizon, config.features) == (beside.context, beside.horizon, beside.features)
    assert config.train.windows == beside.train.windows
    assert config.method == "ancestral"


def test_it_is_an_lstm_that_can_forecast_in_two_ways() -> None:
    config = replace(small.config({"width": 8}, epochs=1), method="two-way")
    fitted = ls.DeepAR(6, config=config, samples=10, verbose=False).fit(small.panel(series=2))
    assert isinstance(fitted.network_, Recurrent)
    assert fitted.predict()["mean"].is_finite().all()
