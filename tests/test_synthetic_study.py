"""The synthetic study: its runs, a small one end to end, its table and figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from logsparse.config import Config
from logsparse.paper import synthetic
from logsparse.paper import synthetic as waves
from logsparse.paper.ledger import COLUMNS, Run


def row(t0: int, model: str, error: float) -> dict[str, str]:
    return {**dict.fromkeys(COLUMNS, ""), "case": f"t0={t0}", "model": model, "R0.5": str(error)}


def test_the_runs_are_those_of_the_paper_and_the_ends_come_first() -> None:
    runs = synthetic.runs(2, synthetic.MODELS)
    assert len(runs) == 2 * 8 * 6 == len(set(runs))
    assert [run.case for run in runs[:18:6]] == ["t0=24", "t0=96", "t0=192"]
    assert [run.model for run in runs[:3]] == ["transformer", "deepar-20", "deepar-40"]


@pytest.mark.parametrize("model", ["transformer", "deepar-140"])
def test_models_differ_in_the_network_only(model: str) -> None:
    config = synthetic.config(model, 96)
    assert (config.context, config.horizon, config.features, config.method) == (96, 24, ("age",), "mean-path")
    assert (config.model.layers, config.model.kernel, config.model.embed_series) == (3, 1, False)
    assert config.model.width == (32 if model == "transformer" else 140)
    assert (config.train.windows, config.train.loss_on, config.train.weighted) == (4500, "horizon", False)
    assert replace(config.train, lr=1) == replace(synthetic.config("deepar-20", 24).train, lr=1)


@pytest.mark.parametrize("model", ["transformer", "deepar-20"])
def test_a_small_run_returns_all_facts_of_a_row(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "SIZES", (96, 16, 8))
    whole = synthetic.config(model, 24)

    def quick(_model: str, _t0: int) -> Config:
        return replace(whole, train=replace(whole.train, epochs=1, windows=64))

    monkeypatch.setattr(synthetic, "config", quick)
    facts = synthetic.run_one(Run("synthetic", "t0=24", model), folder=tmp_path, verbose=False)
    assert set(facts) == {"R0.5", "R0.9", "validation_nll", "steps", "minutes", "trace"}
    assert facts["steps"] == 1
    assert 0 < facts["R0.5"] < 2


def test_the_table_has_a_row_for_each_t0_and_the_mean_over_seeds() -> None:
    rows = [row(96, "deepar-40", 0.4), row(24, "transformer", 0.1), row(24, "transformer", 0.3)]
    assert synthetic.table(rows) == (["t0", "transformer", "deepar-40"], [["24", "0.2000", "-"], ["96", "-", "0.4000"]])


def test_the_figure_has_a_line_for_each_model_and_the_floor_of_the_noise() -> None:
    rows = [row(t0, model, t0 / 1000) for t0 in (24, 96) for model in ("transformer", "deepar-200")]
    _, axes = synthetic.figure(rows).axes
    assert [line.get_label() for line in axes.get_lines()] == ["transformer", "deepar-200", "the noise alone"]
    found = np.asarray(axes.get_lines()[0].get_xydata(), float)
    np.testing.assert_allclose(found, [[24, 0.024], [96, 0.096]])


def test_beside_it_is_a_series_whose_last_wave_is_as_high_as_the_higher_of_the_first_two() -> None:
    example, _ = synthetic.figure([row(96, "transformer", 0.1)]).axes
    history, target = (np.asarray(line.get_ydata(), float) - 72 for line in example.get_lines())
    assert len(history) == 96
    assert max(abs(history[:24])) == pytest.approx(max(abs(target[1:])), rel=0.1)
    assert target[0] == history[-1]
