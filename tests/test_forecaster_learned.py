"""Learned attention: which runs are looked at, and that the pictures show their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logsparse.paper import tables
from logsparse.paper.cases import ten_layers
from logsparse.paper.figures import COLOURS, LEARNED, MATRIX, same_hour
from logsparse.pictures import save_figure

CASE = "traffic-c20-hourly, 1 day x 7"
CONTEXT, LENGTH = 168, 192
RNG = np.random.default_rng(0)
TIMES = [str(np.datetime64("2016-12-18T00:00") + np.timedelta64(hour, "h"))[:16] for hour in range(LENGTH)]
WINDOW = {"series": "r1", "times": TIMES, "values": RNG.random(LENGTH).tolist(), "context": CONTEXT}


def weights(row: int) -> list[float]:
    found = RNG.dirichlet(np.full(row + 1, 0.1))
    return [round(float(weight), 5) for weight in found]


LAYERS: list[dict[str, Any]] = [
    {"layer": layer, "head": 3, "weights": weights(CONTEXT) + [0.0] * 23} for layer in COLOURS
]
TRACES: dict[tuple[str, str], dict[str, Any]] = {
    ("solar-10min, 1 day x 7", "full-length"): {"curve": {}},
    (CASE, "full-length"): {"window": WINDOW, "layers": LAYERS},
    (CASE, "k=1"): {"window": WINDOW, "matrix": {"head": 7, "weights": [weights(row) for row in range(LENGTH)]}},
}


def test_a_panel_a_layer_shows_its_weights_in_the_colours_of_the_paper(tmp_path: Path) -> None:
    assert LEARNED.figure is not None
    figure = LEARNED.figure([], TRACES)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.get_ylabel() == "weight"]
    assert [axes.get_title(loc="left") for axes in panels] == [f"layer {layer}, head 4" for layer in (2, 6, 10)]
    for axes, layer in zip(panels, LAYERS, strict=True):
        line, start = axes.get_lines()
        np.testing.assert_allclose(np.asarray(line.get_ydata()), np.array(layer["weights"])[: CONTEXT + 1])
        assert line.get_color() == COLOURS[layer["layer"]]
        assert (start.get_linestyle(), np.asarray(start.get_xdata())[0]) == ("--", np.datetime64(TIMES[CONTEXT]))
    save_figure(figure, tmp_path / "layers.svg")
    assert (tmp_path / "layers.svg").stat().st_size < 300_000


def test_the_matrix_is_shown_whole_under_its_window(tmp_path: Path) -> None:
    assert MATRIX.figure is not None
    figure = MATRIX.figure([], TRACES)
    assert figure is not None
    above, below, _ = figure.axes
    assert above.get_title(loc="left") == "traffic-c20-hourly, series r1: last layer, head 8"
    shown = below.images[0].get_array()
    assert shown is not None
    last = TRACES[CASE, "k=1"]["matrix"]["weights"][-1]
    np.testing.assert_allclose(np.ma.filled(shown[-1], 0), last, rtol=1e-5)
    save_figure(figure, tmp_path / "matrix.svg")
    assert (tmp_path / "matrix.svg").stat().st_size < 300_000


@pytest.mark.parametrize(
    "odd",
    [
        {"window": None},
        {"window": {**WINDOW, "context": LENGTH}},
        {"window": {**WINDOW, "values": [None] * LENGTH + [1.0]}},
        {"window": {**WINDOW, "times": [*TIMES[:-1], "noon"]}},
        {"window": {**WINDOW, "times": [*TIMES[:-1], 7]}},
        {"window": {name: part for name, part in WINDOW.items() if name != "series"}},
    ],
)
def test_a_trace_whose_window_cannot_be_drawn_does_not_fit(odd: dict[str, Any]) -> None:
    whole = TRACES[CASE, "full-length"], TRACES[CASE, "k=1"]
    for experiment, trace in zip((LEARNED, MATRIX), whole, strict=True):
        assert experiment.fits(trace)
        assert not experiment.fits({**trace, **odd})


@pytest.mark.parametrize(
    "layers",
    [None, [], [7], [{**LAYERS[0], "layer": 3}], [{**LAYERS[0], "head": "first"}], [{**LAYERS[0], "weights": [0.5]}]],
)
def test_a_trace_whose_layers_cannot_be_drawn_does_not_fit(layers: Any) -> None:
    assert not LEARNED.fits({"window": WINDOW, "layers": layers})


@pytest.mark.parametrize("rows", [None, [[1.0]], [[1.0]] * LENGTH])
def test_a_trace_whose_matrix_is_not_of_its_window_does_not_fit(rows: Any) -> None:
    assert not MATRIX.fits({"window": WINDOW, "matrix": {"head": 7, "weights": rows}})
    assert not MATRIX.fits({"window": WINDOW, "matrix": rows})


def test_traces_of_runs_that_are_not_looked_at_fit_all_the_same() -> None:
    assert LEARNED.fits({"curve": {}})
    assert MATRIX.fits({"curve": {}})


def test_without_traces_there_is_no_figure() -> None:
    assert LEARNED.figure is not None
    assert MATRIX.figure is not None
    assert LEARNED.figure([], {}) is None
    assert MATRIX.figure([], {}) is None


def test_the_table_says_how_far_each_layer_looks() -> None:
    first = LEARNED.tables([], TRACES)[0]
    back = CONTEXT - int(np.argmax(LAYERS[0]["weights"]))
    assert first.lines[0][:4] == [CASE, "2", "4", str(back)]


def test_the_weight_at_the_same_hour_is_counted_against_that_of_cells_all_alike() -> None:
    alike = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    own, expected = same_hour(alike.astype(np.float32), day=2)
    assert own == pytest.approx(expected)
    assert expected == pytest.approx(np.mean([2 / 3, 2 / 4, 3 / 5, 3 / 6]))
    assert same_hour(np.eye(6, k=-1, dtype=np.float32), day=2)[0] == 0
    (table,) = MATRIX.tables([], TRACES)
    assert table.lines[0][:2] == [CASE, "8"]


@pytest.mark.parametrize(
    ("here", "layers", "matrix"),
    [
        (
            ["traffic-c20-hourly", "solar-10min"],
            ("learned-attention", CASE),
            ("kernels", "traffic-c20-hourly, 1 day x 28"),
        ),
        (
            ["traffic-f", "traffic-c", "traffic-c20-hourly"],
            ("sparse", "traffic-f, 1 day x 7"),
            ("kernels", "traffic-c"),
        ),
        (["electricity-c", "electricity-f"], None, None),
    ],
)
def test_the_paper_s_own_set_comes_first_and_the_runs_are_those_of_the_tables(
    here: list[str],
    layers: tuple[str, str] | None,
    matrix: tuple[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "locate", lambda dataset: dataset.name if dataset.name in here else None)
    for experiment, expected in ((LEARNED, layers), (MATRIX, matrix)):
        runs = experiment.runs(2, experiment.models)
        if expected is None:
            assert runs == []
        else:
            trained = [run for run in runs if run.model != "seasonal-naive"]
            assert [(run.task, run.seed) for run in trained] == [(expected[0], 0), (expected[0], 1)]
            assert all(run.case.startswith(expected[1]) for run in runs)


def test_the_model_has_ten_layers_of_canonical_full_attention() -> None:
    config = ten_layers()
    assert (config.context, config.horizon, config.model.layers, config.model.kernel) == (168, 24, 10, 1)
    assert [pattern.rule for pattern in config.model.patterns] == ["full"]
    assert config.train.optimiser == "bertadam"
