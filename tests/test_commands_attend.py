"""`logsparse attend`: a picture, and the times that weigh most."""

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
    assert "Attention(step 2 of 8 over 18 positions, layer 0 of 0 to 0, mean of 2 heads)" in done.err
    model = ls.load(place / "model")
    assert isinstance(model, ls.LogSparse)
    top = model.attention(series=8, step=2).table().sort("weight", descending=True).row(0)
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["ds", "value", "weight"]
    assert len(lines) == 11
    assert lines[1] == [str(top[1]), f"{top[2]:.4f}", f"{top[3]:.4f}"]


def test_the_matrix_of_another_history_is_drawn(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "matrix.png"
    words = ["--matrix", "--layer", 0, "--head", 1, "-o", out]
    done = logsparse("attend", place / "model", place / "waves.parquet", *words)
    assert (done.code, done.out) == (0, "")
    assert "Attention(every position of 7 over 18 positions, layer 0 of 0 to 0, head 1 of 0 to 1)" in done.err
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["model", "--series", "77"],
            "a series that is there. Got '77'. Hint: did you mean '7'?",
        ),
        (["model", "--layer", 4], "layer must be one of the 1 there are"),
        (["model", "--head", 2], "head must be one of the 2 there are"),
        (["model", "--step", 6], "step must be a step of the horizon, 0 to 5"),
        (
            ["naive"],
            "a model that has some. Got SeasonalNaive. Hint: fit one with `logsparse fit`.",
        ),
        (["model", "-o", "x.gif"], "A picture is written as svg, png or pdf. Got x.gif."),
        (["model", "-o", "/proc/x.svg"], "The result must be writable."),
        (["model", "--hed", 1], "No such option: --hed. Hint: did you mean '--head'?"),
    ],
)
def test_a_mistake_is_one_line(place: Path, words: list[Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert text in refusal("attend", *words)
    assert sorted(path.name for path in place.iterdir()) == ["model", "naive", "waves.parquet"]
