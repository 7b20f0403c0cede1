"""`logsparse reproduce` of every figure, end to end with small models: trained once, drawn again without a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import small
from command import logsparse
from logsparse.attention.pattern import full
from logsparse.config import Config
from logsparse.paper import shapes, tables
from logsparse.paper import shapes as matching
from logsparse.paper.cases import TABLES

STAND_IN = "traffic-c20-hourly, 1 day x {}"


def tiny(layers: int, kernel: int) -> Config:
    model = {"layers": layers, "kernel": kernel, "patterns": (full(),)}
    return replace(small.config(model, epochs=2), context=48, horizon=24)


@pytest.fixture(autouse=True)
def only_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set that stands in for traffic is here and small, and so is every model."""
    monkeypatch.setattr(tables, "checked", lambda _name: small.panel(series=2, steps=400))
    monkeypatch.setattr(tables, "locate", lambda dataset: Path() if dataset.name == "traffic-c20-hourly" else None)
    for name, configs in (
        ("kernels", {f"k={kernel}": lambda kernel=kernel: tiny(1, kernel) for kernel in (1, 3, 9)}),
        ("learned-attention", {"full-length": lambda: tiny(6, 1)}),
    ):
        title = STAND_IN.format(28 if name == "kernels" else 7)
        case = replace(TABLES[name][1][title], configs=configs, windows=1, until=None, seeds=1)
        monkeypatch.setitem(TABLES[name][1], title, case)
    whole = {model: matching.config(model) for model in matching.MODELS}
    monkeypatch.setattr(shapes, "SIZES", (64, 16, 6))
    monkeypatch.setattr(
        matching,
        "config",
        lambda model: replace(whole[model], train=replace(whole[model].train, epochs=1, windows=64)),
    )


@pytest.mark.parametrize(
    ("name", "runs", "title"),
    [
        ("matching", 2, "Figure 1, what a query"),
        ("learned-attention", 2, "Figure 2, scores of its model"),
        ("curves", 3, "Figure 5, training curves"),
        ("attention-matrix", 1, "Figure 6, attention matrix"),
    ],
)
def test_a_figure_is_trained_once_and_drawn_as_often_as_asked(name: str, runs: int, title: str, tmp_path: Path) -> None:
    done = logsparse("reproduce", name, "-o", tmp_path)
    assert done.code == 0, done.err
    assert f"run {runs} of {runs}: " in done.err
    assert title in done.out
    picture = tmp_path / f"{name}.svg"
    first = picture.read_bytes()
    assert len(first) < 300_000
    picture.unlink()
    shown = logsparse("reproduce", name, "--show", "-o", tmp_path).out
    assert f"not drawn yet: `logsparse reproduce {name} -o {tmp_path}`" in shown
    again = logsparse("reproduce", name, "-o", tmp_path)
    assert (again.code, again.out) == (0, done.out)
    assert "run 1" not in again.err
    assert picture.read_bytes() == first


def test_curves_and_matrix_share_the_runs_of_table_2(tmp_path: Path) -> None:
    assert "run 1 of 1: kernels" in logsparse("reproduce", "attention-matrix", "-o", tmp_path).err
    curves = logsparse("reproduce", "curves", "--model", "k=1", "-o", tmp_path)
    assert curves.code == 0, curves.err
    assert "run 1" not in curves.err
    assert f"wrote {tmp_path / 'curves.svg'}" in curves.err
    table = logsparse("reproduce", "kernels", "--show", "-o", tmp_path).out
    assert "stands in for traffic-c" in next(line for line in table.splitlines() if "c20" in line and " k=1 " in line)
