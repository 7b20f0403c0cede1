"""The section on data health: findings in the data that the model was fitted on, at most ten."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import logsparse as ls
from meters import changed, frame_of


def page(frame: pl.DataFrame, folder: Path, *, history: bool = True) -> str:
    """Return the report of a backtest with a model of the frame, which was saved and loaded."""
    model = ls.SeasonalNaive(horizon=24).fit(frame, id_col="meter")
    model.save(folder / "model", history=history)
    results = ls.backtest(ls.SeasonalNaive(horizon=24), frame_of("a", "b"), id_col="meter")
    return ls.report(results, folder / "report.html", model=ls.load(folder / "model")).read_text()


def test_findings_are_listed_and_escaped(tmp_path: Path) -> None:
    text = page(changed(frame_of("a", "<b>", "c"), "<b>", -9999.0, 3), tmp_path)
    assert "<h2>Data health</h2>" in text
    assert "In the data that the model was fitted on: 1 of 3 series has findings: 1 sentinel." in text
    assert "<strong>&lt;b&gt;</strong>" in text
    assert "-9999 in 3 of its" in text


def test_healthy_data_are_said_to_be_so(tmp_path: Path) -> None:
    text = page(frame_of("a", "b", "c"), tmp_path)
    assert "In the data that the model was fitted on: 3 series, nothing found." in text
    assert "<li><strong>" not in text


def test_ten_of_many_findings_are_shown(tmp_path: Path) -> None:
    names = [f"m{number:02d}" for number in range(30)]
    frame = frame_of(*names)
    for name in names[:12]:
        frame = changed(frame, name, 500.0, 1)
    text = page(frame, tmp_path)
    assert text.count("<li><strong>") == 10
    assert "The worst 10 of 12 findings." in text


@pytest.mark.parametrize("known", [True, False])
def test_without_data_there_is_no_section(known: bool, tmp_path: Path) -> None:
    if known:
        assert "Data health" not in page(frame_of("a", "b"), tmp_path, history=False)
    else:
        results = ls.backtest(ls.SeasonalNaive(horizon=24), frame_of("a", "b"), id_col="meter")
        assert "Data health" not in ls.report(results, tmp_path / "report.html").read_text()
