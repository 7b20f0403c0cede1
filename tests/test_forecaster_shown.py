"""What LogSparse tells of itself: the plan of a training, and the evidence for a report."""

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


def test_the_evidence_is_settings_losses_and_a_picture(tmp_path: Path) -> None:
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


def test_evidence_needs_no_future_of_the_covariates() -> None:
    panel = small.panel()
    price = np.arange(len(panel.values), dtype=np.float32)
    evidence = quick(epochs=1).fit(replace(panel, covariates={"price": price})).diagnostics()
    assert evidence.attention is None


def test_the_report_shows_the_evidence(tmp_path: Path) -> None:
    model = quick(epochs=1).fit(small.panel(), until="1970-01-04T00:00")
    results = ls.backtest(model, small.panel(), windows=2)
    page = ls.report(results, tmp_path / "report.html", model=model).read_text()
    assert "model.layers" in page
    assert "mean of 2 heads" in page
