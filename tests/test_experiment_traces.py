"""The trace of a run is read back unchanged, names its run, and is left out if it was changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.baselines.naive import SeasonalNaive
from logsparse.errors import DataError
from logsparse.evaluation.backtest import backtest
from logsparse.evaluation.metrics import score
from logsparse.paper.experiment import array, keep, losses, plain, traces
from logsparse.paper.ledger import Identity, Run, record, rows
from logsparse.storage import pack_document

FACTS = {"R0.5": 0.1, "R0.9": 0.05, "validation_nll": 1.5, "steps": 7, "minutes": 2.0}
KNOWN = Identity({}, "abc")


def done(folder: Path, run: Run, loss: float = 1.5, **trace: object) -> Path:
    if trace:
        keep(folder, run, trace)
    record(folder, run, KNOWN, {**FACTS, "validation_nll": loss})
    return folder / "traces" / f"{run.folder}.json"


def test_a_trace_says_whose_it_is_and_comes_back(tmp_path: Path) -> None:
    path = done(tmp_path, Run("waves", "x, 1 day", "k=1", 2), weights=[0.25, None])
    document = json.loads(path.read_text())
    assert document["run"] == {"task": "waves", "case": "x, 1 day", "model": "k=1", "seed": 2}
    assert document["version"].startswith("logsparse ")
    assert traces(tmp_path, rows(tmp_path, "waves")) == ({("x, 1 day", "k=1"): {"weights": [0.25, None]}}, [])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_of_several_seeds_the_one_with_the_lowest_validation_loss_speaks_if_it_left_a_trace(tmp_path: Path) -> None:
    for seed, loss in enumerate((3.0, 2.0)):
        done(tmp_path, Run("waves", "x", "a", seed), loss, number=seed)
    done(tmp_path, Run("waves", "x", "a", 2), 1.0)
    assert traces(tmp_path, rows(tmp_path, "waves")) == ({("x", "a"): {"number": 1}}, [])


def test_arrays_keep_four_digits_and_their_holes() -> None:
    assert plain(np.array([[0.123456, np.nan], [1e-7, 2]], np.float32)) == [[0.1235, None], [1e-7, 2.0]]
    np.testing.assert_array_equal(array([1.5, None]), [1.5, np.nan])


@pytest.mark.parametrize(
    ("was", "becomes", "text"),
    [
        (b"0.25", b"0.26", "content that does not match its checksum"),
        (b'"run"', b"run", "no valid JSON"),
    ],
)
def test_a_changed_trace_is_reported_and_the_others_are_read(
    was: bytes, becomes: bytes, text: str, tmp_path: Path
) -> None:
    path = done(tmp_path, Run("waves", "x", "a"), weights=[0.25])
    done(tmp_path, Run("waves", "x", "b"), weights=[0.5])
    path.write_bytes(path.read_bytes().replace(was, becomes))
    whole, (error,) = traces(tmp_path, rows(tmp_path, "waves"))
    assert whole == {("x", "b"): {"weights": [0.5]}}
    with pytest.raises(
        DataError, match=rf"{path} must hold what .* Got {text}.* Hint: scores stand without it; for fig"
    ):
        raise error


def test_a_trace_of_another_run_is_refused(tmp_path: Path) -> None:
    one, other = (done(tmp_path, Run("waves", "x", model), weights=[1]) for model in "ab")
    other.write_bytes(one.read_bytes())
    _, (error,) = traces(tmp_path, rows(tmp_path, "waves"))
    with pytest.raises(DataError, match="Got that of another run"):
        raise error


def test_a_trace_that_its_figure_cannot_read_is_refused(tmp_path: Path) -> None:
    path = done(tmp_path, Run("waves", "x", "a"), weights=[0.25])
    document = {"run": json.loads(path.read_text())["run"]}
    found = rows(tmp_path, "waves")
    _, (error,) = traces(tmp_path, found, lambda trace: "curve" in trace)
    with pytest.raises(DataError, match="Got content that its figure cannot be drawn from"):
        raise error
    for odd in (document, {**document, "trace": [1]}):
        path.write_bytes(pack_document(odd))
        assert traces(tmp_path, found)[0] == {}


def test_losses_per_forecast_start_add_up_to_the_score() -> None:
    frame = pl.DataFrame({"unique_id": np.repeat(["a", "b", "c"], 480), "ds": np.tile(np.arange(480), 3)})
    frame = frame.with_columns(y=np.random.default_rng(0).gamma(2, size=len(frame)))
    for windows, by, count in ((2, "cutoff", 2), (1, "unique_id", 3)):
        results = backtest(SeasonalNaive(horizon=24, season=24), frame, windows=windows)
        found = losses(results)
        assert (found["by"], len(found["of"])) == (by, count)
        for name in ("R0.5", "R0.9"):
            assert sum(found[name]) / sum(found["size"]) == pytest.approx(score(results)[name].item(), rel=1e-6)
