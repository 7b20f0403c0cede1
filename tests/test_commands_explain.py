"""`logsparse explain`: what the forecast rests on, and what a changed future would change."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import logsparse as ls
from command import logsparse, refusal
from explained import future_of, sales, trained, until_last


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    frame = sales(4)
    trained(until_last(frame), steps=100).save(folder / "model")
    until_last(frame).write_csv(folder / "sales.csv")
    frame.write_csv(folder / "newer.csv")
    future_of(frame).write_csv(folder / "future.csv")
    future_of(frame).with_columns(pl.col("price") * 0.8).write_csv(folder / "cheaper.csv")
    return folder


def test_the_importance_is_printed_written_drawn_and_reported(place: Path, tmp_path: Path) -> None:
    table, picture = tmp_path / "importance.csv", tmp_path / "importance.svg"
    done = logsparse("explain", place / "model", place / "sales.csv", "--windows", 2, "-o", table, "--draw", picture)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:5] == ["input", "kind", "wql", "without", "increase"]
    assert {lines[1][0], lines[2][0]} == {"price", "promo"}
    assert "Importance(13 inputs on 8 windows of 4 series, 5 repeats)" in done.err
    written = pl.read_csv(table)
    assert written["input"].to_list()[0] == lines[1][0]
    assert picture.read_text().startswith("<?xml")

    results = tmp_path / "results.csv"
    assert logsparse("backtest", place / "model", place / "newer.csv", "-o", results).code == 0
    page = tmp_path / "report.html"
    assert logsparse("report", results, "--importance", table, "-o", page).code == 0
    assert "What the forecast rests on" in page.read_text()
    assert f"% without {written['input'][0]}" in page.read_text()
    assert logsparse("report", results, "-o", page).code == 0
    assert "What the forecast rests on" not in page.read_text()


def test_a_changed_future_is_compared(place: Path, tmp_path: Path) -> None:
    table, picture = tmp_path / "what_if.csv", tmp_path / "what_if.svg"
    futures = ["--future", place / "future.csv", "--changed", place / "cheaper.csv"]
    done = logsparse("explain", place / "model", *futures, "--series", "s1", "-o", table, "--draw", picture)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["series", "sum", "of", "means", "changed", "difference"]
    assert "WhatIf(4 series, 7 steps, the mean changes by +" in done.err
    written = pl.read_csv(table)
    assert written["scenario"].unique().sort().to_list() == ["changed", "difference", "unchanged"]
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "pass the data that it was fitted on."),
        (["sales.csv", "--windows", 9], "held back from training"),
        (["sales.csv", "--windows", 0], "windows must be at least 1"),
        (["--future", "future.csv"], "Got --future alone. Hint: give both, or neither"),
        (["--changed", "cheaper.csv"], "Got --changed alone."),
        (["--series", "s1"], "Got --series alone."),
        (["--future", "future.csv", "--changed", "cheaper.csv", "--seed", 1], "Got --changed and --seed."),
        (["--future", "future.csv", "--changed", "none.csv"], "none.csv"),
        (["sales.csv", "--draw", "picture.gif"], "svg, png or pdf"),
        (["sales.csv", "-o", "table.xls"], "table.xls"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(place: Path, words: list[object], text: str) -> None:
    paths = [place / str(word) if str(word).endswith((".csv", ".gif", ".xls")) else word for word in words]
    assert text in refusal("explain", place / "model", *paths)


def test_a_file_that_is_no_importance_is_refused_by_the_report(place: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    frame = pl.read_csv(place / "sales.csv", try_parse_dates=True).select("unique_id", "ds", "y")
    ls.backtest(ls.SeasonalNaive(horizon=7), frame).write_csv(results)
    text = refusal("report", results, "--importance", place / "sales.csv", "-o", tmp_path / "report.html")
    assert "An importance must have rows with the columns kind, input, increase, low, high. Got no kind." in text
