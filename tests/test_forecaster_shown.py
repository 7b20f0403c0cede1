"""What LogSparse shows of itself: the plan of a training, and the diagnostics for a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import logsparse as ls
import small
from logsparse.data.panel import Panel
from logsparse.model.network import Network


def quick(**train: Any) -> ls.LogSparse:
    return ls.LogSparse(6, config=small.config(**train), verbose=False)


def test_the_plan_is_what_fit_then_does() -> None:
    model = quick(windows=64, batch=16)
    plan = model.plan(small.panel())
    assert not hasattr(model, "config_")
    model.fit(small.panel())
    assert plan.config == model.config_
    assert plan.features == model.features_.names == ("month", "weekday", "hour", "age")
    assert plan.parameters == sum(weight.numel() for weight in model.network_.parameters())
    assert plan.steps == model.history_.rows[-1]["step"] == 16


def test_a_plan_is_fitted_without_preparing_the_data_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = quick(epochs=1).fit(small.panel(), validation=other(1))
    model = quick(epochs=1)
    plan = model.plan(small.panel(), validation=other(1))
    monkeypatch.setattr("logsparse.train.batches.TrainingSet.of_two", None)
    built: list[Network] = []
    build = model._network

    def counted(*sizes: Any) -> Network:
        built.append(build(*sizes))
        return built[-1]

    monkeypatch.setattr(model, "_network", counted)
    assert model.fit(plan, folder=tmp_path / "run") is model
    assert len(built) == 1
    assert (tmp_path / "run" / "seed-0").is_dir()
    assert model.panel_ is plan.panel
    # The plan is not used up, and the forecasters that fitted it share no weights.
    again = quick(epochs=1).fit(plan)
    for one in (model, again):
        assert all(
            torch.equal(a, b)
            for a, b in zip(whole.network_.state_dict().values(), one.network_.state_dict().values(), strict=True)
        )
    assert again.network_ is not model.network_


def test_a_plan_is_refused_with_other_settings_or_with_its_data_again() -> None:
    plan = quick().plan(small.panel())
    with pytest.raises(ls.ConfigError, match=r"settings it was made with. Got LogSparse\(.*seed=1.* for a plan of Log"):
        quick().set_params(seed=1).fit(plan)
    with pytest.raises(ls.ConfigError, match=r"settings it was made with. Got DeepAR\(horizon=6.* for a plan of LogSp"):
        ls.DeepAR(6, config=small.config(), verbose=False).fit(plan)
    for given, text in (({"until": "1970-01-03"}, "until"), ({"validation": small.panel()}, "validation")):
        with pytest.raises(ls.ConfigError, match=f"holds its data already.* Got a plan and {text}. Hint: pass them"):
            quick().fit(plan, **given)


def test_a_plan_without_a_config_follows_from_the_data() -> None:
    plan = ls.LogSparse(4, context=10, minutes=7).plan(small.panel())
    assert (plan.config.horizon, plan.config.context, plan.config.train.minutes) == (4, 10, 7)
    with pytest.raises(ls.ConfigError, match="horizon must be at least 1"):
        ls.LogSparse(0).plan(small.panel())


def other(seed: int) -> Panel:
    """Series that the training does not have."""
    return replace(small.panel(seed=seed), ids=tuple("abcde"))


def test_validation_series_of_their_own_choose_the_best_weights() -> None:
    panel = small.panel()
    losses = [quick(epochs=2).fit(panel, validation=other(seed)).history_.rows for seed in (1, 2)]
    assert losses[0][0]["nll"] == losses[1][0]["nll"]
    assert losses[0][0]["validation_nll"] != losses[1][0]["validation_nll"]
    # Then all windows are there to learn from, those of the last tenth too.
    validation_steps, free = (quick(windows=10_000, weighted=False) for _ in range(2))
    assert validation_steps.plan(panel).steps < free.fit(panel, validation=other(1)).history_.rows[-1]["step"]


def test_a_second_fit_forgets_the_validation_series() -> None:
    model = quick(epochs=1).fit(small.panel(), validation=other(1)).fit(small.panel())
    again = quick(epochs=1).fit(small.panel())
    for a, b in zip(model.network_.state_dict().values(), again.network_.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_diagnostics_are_settings_losses_and_a_picture(tmp_path: Path) -> None:
    model = quick(epochs=1)
    assert model.diagnostics() == ls.Diagnostics(model.settings())
    model.fit(small.panel())
    found = model.diagnostics()
    assert found.losses == model.history_.rows
    assert found.settings["config"]["model"]["patterns"] == [{"rule": "logsparse", "base": 2, "dense_rows": 0}]
    assert found.attention is not None
    model.save(tmp_path / "whole")
    assert ls.load(tmp_path / "whole").diagnostics().losses == found.losses
    model.save(tmp_path / "bare", history=False)
    bare = ls.load(tmp_path / "bare").diagnostics()
    assert (bare.losses, bare.attention) == (found.losses, None)


def test_diagnostics_need_no_future_of_the_covariates() -> None:
    panel = small.panel()
    price = np.arange(len(panel.values), dtype=np.float32)
    found = quick(epochs=1).fit(replace(panel, covariates={"price": price})).diagnostics()
    assert found.attention is None


def test_the_report_shows_the_diagnostics(tmp_path: Path) -> None:
    model = quick(epochs=1).fit(small.panel(), until="1970-01-04T00:00")
    results = ls.backtest(model, small.panel(), windows=2)
    page = ls.report(results, tmp_path / "report.html", model=model).read_text()
    assert "model.layers" in page
    assert "mean of 2 heads" in page


def test_plans_panels_and_forecasts_are_compared_by_identity() -> None:
    panel = small.panel()
    forecast = ls.SeasonalNaive(6).fit(panel).forecast()
    for one, other in (
        (quick().plan(panel), quick().plan(panel)),
        (panel, small.panel()),
        (forecast, replace(forecast)),
    ):
        assert one == one  # noqa: PLR0124
        assert one != other
        assert len({one, other}) == 2


@pytest.mark.parametrize("show", [repr, lambda model: model._repr_html_()], ids=["repr", "html"])
def test_any_value_of_a_parameter_can_be_shown(show: Any) -> None:
    assert "a whole number of about 5000 digits" in show(ls.LogSparse(10**5000))


def test_a_parameter_that_cannot_be_copied() -> None:
    with pytest.raises(
        ls.ConfigError, match=r"horizon must be a value that can be copied. Got <generator .* Hint: pass"
    ):
        ls.LogSparse(step for step in (1, 2)).clone()  # type: ignore[arg-type]


ONES = np.ones(3)


class Weighted(ls.LogSparse):
    """A forecaster whose parameter has an array as default."""

    def __init__(self, horizon: int, weights: Any = ONES, **settings: Any) -> None:
        super().__init__(horizon, **settings)
        self.weights = weights


def test_a_parameter_may_be_an_array() -> None:
    model = Weighted(6, np.ones(3), config=small.config(epochs=1), verbose=False)
    assert repr(Weighted(6, np.ones(3), seed=4)) == "Weighted(horizon=6, seed=4)"
    assert "weights=array([0., 1.])" in repr(Weighted(6, np.arange(2.0)))
    plan = model.plan(small.panel())
    with pytest.raises(ls.ConfigError, match="settings it was made with"):
        model.clone().set_params(weights=np.zeros(3)).fit(plan)
    assert model.fit(plan).panel_ is plan.panel


def test_a_training_shows_its_outcome_and_in_a_notebook_its_losses() -> None:
    history = quick(windows=64, batch=16).fit(small.panel()).history_
    assert repr(history).startswith("TrainingHistory(16 steps in ")
    assert f"all steps taken, best validation loss {history.best:.4f}" in repr(history)
    shown = history._repr_html_()
    assert repr(history) in shown
    assert '<img alt="TrainingHistory(16 ' in shown
    assert 'width="800"' in shown
    cut = replace(history, planned=1600, ended="interrupted")
    assert repr(cut).startswith("TrainingHistory(16 of 1_600 steps in ")
    assert "forecasts may be poor" in cut._repr_html_()
    assert "<img" not in replace(history, rows=[])._repr_html_()
