"""`logsparse attend`: a picture, and the times of most weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of two series called 7 and 8, and a model of them."""
    folder = tmp_path_factory.mktemp("attend")
    times = list(range(96))
    series = [pl.DataFrame({"unique_id": name, "ds": times, "y": [name + t % 12 for t in times]}) for name in (7, 8)]
    pl.concat(series).write_parquet(folder / "waves.parquet")
    assert logsparse("fit", folder / "waves.parquet", "--horizon", 6, "-o", folder / "model", *QUICK).code == 0
    ls.SeasonalNaive(horizon=6).fit(pl.concat(series)).save(folder / "naive")
    return folder


def test_the_weights_are_drawn_and_the_largest_printed(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "picture.svg"
    done = logsparse("attend", place / "model", "--series", 8, "--step", 2, "-o", out)
    assert done.code == 0, done.err
    assert out.read_text().startswith("<?xml")
    assert "Attention(step 3 of 6, series 8 over 18 positions, layer 1 of 1, mean of 2 heads)" in done.err
    model = ls.load(place / "model")
    assert isinstance(model, ls.LogSparse)
    assert model.attention(series=8, step=2).caption() in done.err
    top = model.attention(series=8, step=2).table().sort("weight", descending=True).row(0)
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["ds", "value", "weight"]
    assert len(lines) == 6, "cells outside the pattern have no weight"
    assert lines[1] == [str(top[1]), f"{top[2]:.4f}", f"{top[3]:.4f}"]


def test_the_matrix_of_another_history_is_drawn(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "matrix.png"
    words = ["--matrix", "--layer", 0, "--head", 1, "-o", out]
    done = logsparse("attend", place / "model", place / "waves.parquet", *words)
    assert done.code == 0, done.err
    assert "Attention(every position, series 7 over 18 positions, layer 1 of 1, head 2 of 2)" in done.err
    assert "the forecast looks most at " in done.err
    assert len(done.out.splitlines()) == 11
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["model", "--series", "77"],
            "a series in the data. Got '77'. Hint: did you mean '7'?",
        ),
        (["model", "--layer", 4], "layer must be 0 to 0"),
        (["model", "--head", 2], "head must be 0 to 1"),
        (["model", "--step", 6], "step must be a step of the horizon, 0 to 5"),
        (
            ["naive"],
            "Only a model with attention can show it. Got SeasonalNaive. Hint: fit one with `logsparse fit`.",
        ),
        (["model", "-o", "x.gif"], "A picture is written as svg, png or pdf. Got x.gif."),
        (["model", "-o", "/proc/x.svg"], "The result must be writable."),
        (["model", "--hed", 1], "No such option: --hed. Hint: did you mean '--head'?"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    place: Path, words: list[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert text in refusal("attend", *words)
    assert sorted(path.name for path in place.iterdir()) == ["model", "naive", "waves.parquet"]
