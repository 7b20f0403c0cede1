"""`logsparse demo`: trains, scores, and writes a forecast, pictures, a report and the model."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import logsparse as ls
from command import logsparse, refusal


def test_everything_is_written_and_both_models_are_scored(tmp_path: Path) -> None:
    # A second of training shows no skill; what the demo reaches in full is measured in docs/LOG.md.
    done = logsparse("demo", "-o", tmp_path / "demo", "--minutes", 0.02)
    assert done.code == 0, done.err
    lines = [line.rsplit(maxsplit=2) for line in done.out.splitlines()]
    assert [line[0] for line in lines] == ["model", "logsparse", "seasonal-naive", "the noise alone"]
    assert lines[0][1:] == ["R0.5", "R0.9"]
    assert 0.4 < float(lines[2][1]) < 0.45
    assert "must fail" in done.err
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "attention.svg",
        "forecast.parquet",
        "forecast.svg",
        "model",
        "report.html",
    ]
    results = pl.read_parquet(tmp_path / "demo" / "forecast.parquet")
    assert results.height == 24_000
    assert ls.score(results)["R0.5"].item() == pytest.approx(float(lines[1][1]), abs=1e-4)
    assert "actual" in (tmp_path / "demo" / "forecast.svg").read_text()
    model = ls.load(tmp_path / "demo" / "model")
    # The series tested are none of those learned.
    assert not set(results["unique_id"].unique()) & set(model.panel_.ids)


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "letter.txt").touch()
    assert "A model must be saved to a new or empty folder" in refusal("demo", "-o", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "letter.txt"]
