"""Training curves come from the runs of table 2, smoothed, one panel per set and one line per kernel."""

from __future__ import annotations

import numpy as np
import pytest

from logsparse.paper.figures import CURVES, smooth

CASE = "traffic-c20-hourly, 1 day x 28"
LOSSES = np.linspace(3, 1, 40) + np.resize([0.2, -0.2], 40)
TRACES = {
    (CASE, model): {
        "curve": {"step": list(range(100, 4100, 100)), "nll": (LOSSES + k).tolist(), "validation_nll": [k] * 40}
    }
    for k, model in enumerate(("k=1", "k=2", "k=9"))
}


def test_smoothing_keeps_the_level_and_removes_the_noise() -> None:
    assert smooth([2.0] * 30).tolist() == [2.0] * 30
    assert np.abs(np.diff(smooth(LOSSES.tolist()))).max() < np.abs(np.diff(LOSSES)).max() / 2
    assert smooth([1.0]).tolist() == [1.0]
    middle = smooth(LOSSES.tolist())[20]
    assert middle == pytest.approx(LOSSES[18:23].mean())


def test_the_figure_has_a_smooth_line_for_each_kernel_of_the_paper() -> None:
    assert CURVES.figure is not None
    figure = CURVES.figure([], TRACES)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == CASE
    bold = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in bold] == ["k=1", "k=9", "validation"]
    np.testing.assert_allclose(np.asarray(bold[1].get_ydata()), smooth((LOSSES + 2).tolist()))
    dashed = [line for line in axes.get_lines() if line.get_linestyle() == "--" and len(np.asarray(line.get_ydata()))]
    assert [set(np.asarray(line.get_ydata()).tolist()) for line in dashed] == [{0}, {2}]
    assert CURVES.figure([], {}) is None


def test_the_table_has_the_last_step_and_loss_of_each_curve() -> None:
    (table,) = CURVES.tables([], TRACES)
    assert [line[:3] for line in table.lines] == [[CASE, "k=1", "4000"], [CASE, "k=9", "4000"]]
    assert table.lines[0][4] == "0.0000"


CURVE = {"step": [100, 200], "nll": [2.0, 1.0], "validation_nll": [2, 1.5]}


def test_a_curve_must_have_a_number_for_each_of_its_losses() -> None:
    assert CURVES.fits({"curve": CURVE})
    assert not CURVES.fits({})
    assert not CURVES.fits({"curve": None})
    assert not CURVES.fits({"curve": {**CURVE, "nll": [2.0]}})
    assert not CURVES.fits({"curve": {**CURVE, "nll": [2.0, None]}})
    assert not CURVES.fits({"curve": {name: [] for name in CURVE}})
    assert not CURVES.fits({"curve": {"step": [100], "nll": [2.0]}})


def test_the_runs_are_those_of_table_2(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from logsparse.paper import tables

    monkeypatch.setattr(tables, "locate", lambda _set: tmp_path)
    runs = CURVES.runs(1, CURVES.models)
    assert {run.task for run in runs} == {"kernels"}
    assert [run.model for run in runs[:3]] == ["k=1", "k=3", "k=9"]
    assert set(runs) < set(tables.KERNELS_TABLE.runs(1, tables.KERNELS_TABLE.models))
