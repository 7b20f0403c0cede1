"""A finished training gives the facts of a row and a curve; an interrupted one raises."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import logsparse as ls
import small
from logsparse.paper.experiment import facts_of
from logsparse.train.loop import INTERRUPTED


@pytest.fixture(scope="module")
def model() -> ls.LogSparse:
    return ls.LogSparse(6, config=small.config(epochs=2), verbose=False).fit(small.panel(series=2))


def test_the_curve_has_a_point_per_validation(model: ls.LogSparse) -> None:
    facts = facts_of(model)
    curve = facts["trace"]["curve"]
    assert curve["step"] == [3, 6]
    assert curve["nll"] == pytest.approx([row["nll"] for row in model.history_.rows], rel=1e-3)
    assert min(curve["validation_nll"]) == pytest.approx(facts["validation_nll"], rel=1e-3)
    assert curve["validation_wql"] == pytest.approx([row["validation_wql"] for row in model.history_.rows], rel=1e-3)
    assert facts["steps"] == 6
    assert json.loads(json.dumps(facts["trace"])) == facts["trace"]


def test_a_curve_leaves_out_a_loss_that_an_earlier_version_did_not_record(
    model: ls.LogSparse, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = model.history_.rows
    old = {name: value for name, value in first.items() if name != "validation_wql"}
    monkeypatch.setattr(model, "history_", replace(model.history_, rows=[old, *others]))
    assert set(facts_of(model)["trace"]["curve"]) == {"step", "nll", "validation_nll"}


def test_an_interrupted_training_is_no_result(model: ls.LogSparse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "history_", replace(model.history_, ended=INTERRUPTED))
    with pytest.raises(KeyboardInterrupt):
        facts_of(model)
