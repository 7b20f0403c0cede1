"""Long waves: what each model sees of them, and that every model runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from logsparse.paper import synthetic
from logsparse.paper.ledger import COLUMNS, Run
from logsparse.paper.synthetic import LONG_CASE, LONG_MODELS, LONG_T0, LONG_WAVES


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "SIZES", (4, 2, 3))


def test_the_sparse_pattern_reaches_its_whole_window_and_the_short_one_has_its_memory() -> None:
    configs = {model: synthetic.long_config(model) for model in LONG_MODELS[1:]}
    (pattern,) = configs["sparse"].model.patterns
    assert {model: config.length for model, config in configs.items()} == {
        "sparse": 768,
        "full-memory": 293,
        "full-length": 768,
    }
    assert round((768 * len(pattern.distances(768))) ** 0.5) == 293
    layers = pattern.layers_to_reach(768)
    assert {config.model.layers for config in configs.values()} == {layers}
    assert len({config.train for config in configs.values()}) == 1


def test_the_short_window_holds_the_same_waves_without_their_amplitudes() -> None:
    whole = synthetic.study(LONG_T0, np.random.default_rng(LONG_T0)).test
    short = synthetic._last(whole, 293)
    for series in range(len(whole)):
        assert short[series].tolist() == whole[series][-293:].tolist()
    assert short.ends().tolist() == whole.ends().tolist()


def test_a_forecast_without_the_amplitudes_has_the_error_that_networks_are_measured_by() -> None:
    waves = synthetic.synthetic(LONG_T0, 4000, np.random.default_rng(0))
    last_SH = waves.values.reshape(4000, -1)[:, -24:]
    error = np.abs(last_SH - np.median(last_SH, axis=0)).sum() / np.abs(last_SH).sum()
    assert error == pytest.approx(synthetic.UNSEEN, rel=0.03)


@pytest.mark.parametrize("model", LONG_MODELS)
def test_every_model_runs_and_leaves_losses_of_the_same_series(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = synthetic.long_config

    def quick(name: str) -> object:
        config = make(name)
        return replace(config, train=replace(config.train, windows=4, batch=2, epochs=1, validation_windows=2))

    monkeypatch.setattr(synthetic, "long_config", quick)
    facts = LONG_WAVES.run(Run("long-waves", LONG_CASE, model), folder=tmp_path, verbose=False)
    assert facts["R0.5"] > 0
    ((_, losses),) = facts["trace"]["losses"].items()
    assert losses["of"] == ["6", "7", "8"]
    assert ("curve" in facts["trace"]) == (model != "seasonal-naive")


def test_runs_go_seed_by_seed_and_seasonal_naive_runs_once() -> None:
    found = [(run.model, run.seed) for run in LONG_WAVES.runs(2, ("seasonal-naive", "sparse"))]
    assert found == [("seasonal-naive", 0), ("sparse", 0), ("sparse", 1)]
    assert len(LONG_WAVES.runs(None, ("sparse",))) == 3


def test_models_are_known_by_the_series_they_see() -> None:
    runs = LONG_WAVES.runs(1, LONG_MODELS)
    known = {run.model: one.data for run, one in LONG_WAVES.identify(runs).items()}
    assert known["sparse"] == known["full-length"] == known["seasonal-naive"] != known["full-memory"]


def test_the_table_shows_each_model_beside_the_sparse_one() -> None:
    def row(model: str, error: float) -> dict[str, str]:
        return {**dict.fromkeys(COLUMNS, ""), "case": LONG_CASE, "model": model, "seed": "0", "R0.5": f"{error}"}

    traces = {
        (LONG_CASE, model): {"0": {"losses": {model: {"of": ["1", "2"], "R0.5": [loss, loss]}}}}
        for model, loss in (("sparse", 1.0), ("full-memory", 4.0))
    }
    (table,) = LONG_WAVES.tables([row("sparse", 0.02), row("full-memory", 0.08)], traces)
    assert table.lines == [
        ["sparse", "768", "0.0200", "-", "1", "-", "-"],
        ["full-memory", "293", "0.0800", "-", "1", "-", "-75.0 % [-75.0, -75.0]"],
    ]
