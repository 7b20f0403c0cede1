"""The first figure: two models that differ in the kernel only, and the weight of a query on tops and on spikes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logsparse.config import Config
from logsparse.forecaster import LogSparse
from logsparse.paper import shapes
from logsparse.paper import shapes as matching
from logsparse.paper.ledger import COLUMNS, Run
from logsparse.paper.shapes import CASE, CONTEXT, LENGTH, MATCHING, config, read_last


def test_the_models_differ_in_the_kernel_only() -> None:
    one, six = config("k=1"), config("k=6")
    assert (one.model.kernel, six.model.kernel, one.model.layers) == (1, 6, 1)
    assert replace(one, model=replace(one.model, kernel=6)) == six


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SIZES", (64, 16, 6))
        whole = config("k=6")

        def quick(_model: str) -> Config:
            return replace(whole, train=replace(whole.train, epochs=1, windows=64))

        patch.setattr(matching, "config", quick)
        folder = tmp_path_factory.mktemp("run")
        return MATCHING.run(Run("matching", CASE, "k=6"), folder=folder, verbose=False)


def test_a_small_run_returns_a_row_and_a_trace(facts: dict[str, Any]) -> None:
    assert set(facts) == {"R0.5", "R0.9", "validation_nll", "steps", "minutes", "trace"}
    trace = facts["trace"]
    assert set(trace) == {"curve", "values", "head", "weights", "tops", "spikes", "shares", "counted"}
    assert (len(trace["values"]), len(trace["weights"]), trace["counted"]) == (LENGTH, CONTEXT, 6)
    assert sum(trace["weights"]) == pytest.approx(1, abs=0.05)
    assert all(0 <= share <= 1 for share in trace["shares"].values())
    assert max(trace["tops"]) < CONTEXT - 1


def test_the_head_is_the_one_with_most_weight_on_tops_and_spikes_together() -> None:
    rng = np.random.default_rng(0)
    test = shapes.shapes(3, rng, history_ends_at_a_top=True)
    whole = config("k=6")
    quick = replace(whole, train=replace(whole.train, epochs=1, windows=64))
    model = LogSparse(shapes.HORIZON, config=quick, verbose=False).fit(
        shapes.shapes(64, rng).panel, validation=test.panel
    )
    found = matching.attended(model, test)
    history = test.panel.cut(test.panel.lengths - shapes.HORIZON)
    earlier = test.tops_SX & (np.arange(LENGTH) < CONTEXT - shapes.SHAPE)
    given = []
    for head in range(4):
        looks = [model.attention(history, series=one, layer=0, head=head).weights for one in history.ids]
        marks = zip(looks, earlier | test.spikes_SX, strict=True)
        given.append(np.mean([matching._share(weights, both) for weights, both in marks]))
    assert found["head"] == int(np.argmax(given))
    assert sum(found["shares"].values()) == pytest.approx(max(given), rel=1e-3)


def test_a_weight_stands_at_the_value_that_was_read_last() -> None:
    weights = np.zeros(LENGTH, np.float32)
    weights[11], weights[CONTEXT] = 0.25, 0.75
    found = read_last(weights)
    assert (found[10], found[CONTEXT - 1], len(found)) == (0.25, 0.75, CONTEXT)
    marked = np.arange(LENGTH) == 9
    assert matching._share(weights, marked) == 0.25
    assert matching._share(weights, np.roll(marked, 1)) == 0.25
    assert matching._share(weights, np.roll(marked, 2)) == 0


def test_the_figure_shows_the_window_and_the_weights_of_both(facts: dict[str, Any]) -> None:
    trace = facts["trace"]
    other = {**trace, "weights": [0.5, *trace["weights"][1:]]}
    assert MATCHING.figure is not None
    figure = MATCHING.figure([], {(CASE, "k=1"): trace, (CASE, "k=6"): other})
    assert figure is not None
    above, first, second = figure.axes
    assert len(above.get_lines()) == 5
    for axes, shown in ((first, trace), (second, other)):
        heights = [segment[1][1] for segment in axes.collections[0].get_segments()]  # type: ignore[attr-defined]
        np.testing.assert_allclose(heights, shown["weights"])
    assert first.get_ylim() == second.get_ylim()
    assert MATCHING.figure([], {}) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"values": [1.0]},
        {"weights": [None] * CONTEXT},
        {"tops": [0.5]},
        {"spikes": [LENGTH]},
        {"spikes": None},
        {"shares": {"tops": 0.5}},
        {"shares": [0.5, 0.5]},
        {"head": "first"},
        {"counted": None},
    ],
)
def test_a_trace_that_cannot_be_drawn_does_not_fit(odd: dict[str, Any], facts: dict[str, Any]) -> None:
    assert MATCHING.fits(facts["trace"])
    assert not MATCHING.fits({**facts["trace"], **odd})


def test_the_table_says_what_tops_and_spikes_get(facts: dict[str, Any]) -> None:
    rows = [{**dict.fromkeys(COLUMNS, ""), "model": model, "R0.5": "0.2"} for model in ("k=1", "k=6")]
    trace = {**facts["trace"], "shares": {"tops": 0.5, "spikes": 0.125}}
    (table,) = MATCHING.tables(rows, {(CASE, "k=6"): trace})
    assert table.lines == [["k=1", "-", "0.2000", "-", "-", "-"], ["k=6", "-", "0.2000", "0.500", "0.125", "6"]]


def test_each_seed_has_a_run_of_both_kernels() -> None:
    runs = MATCHING.runs(2, MATCHING.models)
    assert [(run.model, run.seed) for run in runs] == [("k=1", 0), ("k=6", 0), ("k=1", 1), ("k=6", 1)]
