"""Standard input and output of the command: tables go through pipes in every format."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logsparse.data.files import encode


def pipe(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "logsparse", *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


@pytest.fixture
def model(hourly: pl.DataFrame, tmp_path: Path) -> Path:
    import logsparse as ls

    ls.SeasonalNaive(horizon=3).fit(hourly).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "feather"])
def test_a_forecast_goes_through_a_pipe_in_every_format(kind: str, hourly: pl.DataFrame, model: Path) -> None:
    done = pipe("predict", model, "-", "-o", "-", "--format", kind, stdin=encode(hourly, kind))
    assert done.returncode == 0, done.stderr
    readers: dict[str, Any] = {
        "csv": pl.read_csv,
        "json": pl.read_json,
        "parquet": pl.read_parquet,
        "feather": pl.read_ipc,
    }
    table = readers[kind](io.BytesIO(done.stdout))
    assert table.columns[:3] == ["unique_id", "ds", "mean"]
    assert table.height == 3 * hourly["unique_id"].n_unique()
    # What a person reads is beside the table.
    assert b"series" in done.stderr


def test_json_on_standard_output_has_iso_times(model: Path) -> None:
    done = pipe("predict", model, "-o", "-", "--format", "json")
    assert "T" in json.loads(done.stdout)[0]["ds"]


def test_check_and_score_read_standard_input(hourly: pl.DataFrame, model: Path, tmp_path: Path) -> None:
    csv = encode(hourly, "csv")
    assert b"layout" in pipe("check", "-", stdin=csv).stdout
    results = pipe("backtest", "seasonal-naive", "-", "--horizon", 3, "-o", "-", stdin=csv)
    scores = pipe("score", "-", "-o", "-", "--format", "json", stdin=results.stdout)
    assert json.loads(scores.stdout)[0]["count"] == 3 * hourly["unique_id"].n_unique()
    del model, tmp_path


@pytest.mark.parametrize(
    ("words", "stdin", "text"),
    [
        (["check", "-"], b"", b"Standard input must hold a table. Got nothing. Hint: pipe a file into the command."),
        (["check", "-"], b"[1, 2", b"JSON on standard input must be a list of records, or one record per line."),
        (
            ["score", "x.csv", "-o", "-", "--format", "xls"],
            b"",
            b"--format must be one of: csv, json, parquet",
        ),
        (["score", "x.csv", "--format", "csv"], b"", b"--format is for standard output. Got --format csv."),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(words: list[str], stdin: bytes, text: bytes) -> None:
    done = pipe(*words, stdin=stdin)
    assert done.returncode == 2
    assert text in done.stderr
    assert b"Traceback" not in done.stderr
