"""Ensembles by name on the command line: `fit --model a+b`, `backtest a+b,c`, and what `predict` says of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hourly: pl.DataFrame) -> None:
    monkeypatch.chdir(tmp_path)
    hourly.write_csv("hours.csv")


def test_fit_makes_an_ensemble_of_the_names_and_its_folder_is_used_like_any_other() -> None:
    words = ["--model", "LogSparse+seasonal-naive", "--horizon", 6, "--seed", 3, "--until", "2024-01-07T12:00"]
    done = logsparse("fit", "hours.csv", *words, *QUICK)
    assert done.code == 0, done.err
    printed = {line.split("  ")[0]: line.split("  ", 1)[-1].strip() for line in done.out.splitlines()}
    assert printed["model"].startswith("Ensemble(members=[LogSparse(horizon=6, context=12, seed=3")
    model = ls.load("model")
    assert isinstance(model, ls.Ensemble)
    shown = ", ".join(f"{weight:.2f} {name}" for name, weight in model.weights_.items())
    assert printed["weights"] == shown
    assert printed["held back"].endswith(f"{model.losses_['combined']:.4f} combined")
    assert "wrote model" in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["hours.csv", "model"]
    assert logsparse("predict", "model", "-o", "forecast.csv").code == 0
    assert pl.read_csv("forecast.csv").height == 12
    assert logsparse("backtest", "model", "hours.csv", "--until", "2024-01-07T20:00", "-o", "r.parquet").code == 2
    assert logsparse("backtest", "model,seasonal-naive", "hours.csv", "-o", "r.parquet", "--refit").code == 0
    assert pl.read_parquet("r.parquet")["model"].unique(maintain_order=True).to_list() == ["model", "SeasonalNaive"]
    assert logsparse("report", "r.parquet", "--model", "model").code == 0
    assert "Settings of Ensemble" in Path("report.html").read_text()


def test_fit_takes_the_name_of_any_single_forecaster() -> None:
    assert logsparse("fit", "hours.csv", "--model", "seasonal-naive", "--horizon", 6).code == 0
    assert repr(ls.load("model")) == "SeasonalNaive(horizon=6) fitted: 2 series, step h"
    done = logsparse("fit", "hours.csv", "--model", "deepar", "--horizon", 6, *QUICK)
    assert done.code == 0, done.err
    assert isinstance(ls.load("model"), ls.DeepAR)
    assert "4 of 4" in done.out


def test_backtest_compares_ensembles_with_others_under_the_names_of_their_members() -> None:
    done = logsparse("backtest", "seasonal-naive+SeasonalNaive,trmf", "hours.csv", "--horizon", 6, "-o", "r.parquet")
    assert done.code == 2, "series of different spans are refused by a matrix"
    pl.read_csv("hours.csv").filter(pl.col("unique_id") == "a").write_csv("one.csv")
    words = ["--horizon", 6, "--minutes", 0.01, "--samples", 5, "-o", "r.parquet"]
    done = logsparse("backtest", "logsparse+seasonal-naive,trmf", "one.csv", *words)
    assert done.code == 0, done.err
    found = pl.read_parquet("r.parquet")["model"].unique(maintain_order=True).to_list()
    assert found == ["LogSparse+SeasonalNaive", "TRMF"]


def test_options_that_no_member_has_and_unknown_names_are_refused() -> None:
    fit = ["fit", "hours.csv", "--horizon", 6, "--model"]
    assert refusal(*fit, "ets+seasonal-naive", "--steps", 5).startswith(
        "logsparse: --steps is for networks. Got --model ets+seasonal-naive. Hint: leave it out, or add a network"
    )
    assert "--context, --set layers are for networks. Got" in refusal(
        *fit, "trmf", "--context", 5, "--set", "model.layers=2"
    )
    assert "Got 'etz'. Hint: did you mean 'ets'?" in refusal(*fit, "logsparse+etz")
    assert "Got ''. Hint: " in refusal(*fit, "logsparse+")
    assert "Got 'etz'. Hint: did you mean 'ets'?" in refusal("backtest", "ets+etz", "hours.csv", "--horizon", 6)
    assert "A model needs --horizon" in refusal("fit", "hours.csv", "--model", "logsparse+ets")
    assert "but nothing is trained" in refusal(
        "backtest", "seasonal-naive+ets", "hours.csv", "--horizon", 6, "--minutes", 1
    )
    logsparse("fit", "hours.csv", "--horizon", 6, "--model", "seasonal-naive+ets", "-o", "both")
    assert "Got --from both and --model. Hint: leave" in refusal("fit", "hours.csv", "--from", "both", "--model", "ets")
    assert "Only a model with a network can be trained further. Got Ensemble in both." in refusal(
        "fit", "hours.csv", "--from", "both"
    )
