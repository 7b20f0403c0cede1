"""`logsparse backtest a,b,c DATA`: names in any case and folders side by side, a leaderboard on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal

HORIZON = ["--horizon", 6]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores, and a model trained on all but the last day, which knows their kinds."""
    folder = tmp_path_factory.mktemp("several")
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 8), "1h", eager=True, closed="left")
    stores = [
        pl.DataFrame(
            {"unique_id": name, "ds": times, "y": [level + hour % 24 for hour in range(len(times))], "kind": kind}
        )
        for name, level, kind in (("a", 10.0, "big"), ("b", 3.0, "small"))
    ]
    pl.concat(stores).write_csv(folder / "hours.csv")
    words = ["--horizon", 6, "--static", "kind", "--until", "2024-01-06T23:00", "-o", folder / "mine"]
    words += ["--set", "method=ancestral"]
    assert logsparse("fit", folder / "hours.csv", *words, *QUICK).code == 0
    return folder


def test_names_and_a_folder_are_tested_side_by_side(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    models = f"SeasonalNaive,{place / 'mine'},TRMF,seasonal-NAIVE"
    done = logsparse("backtest", models, place / "hours.csv", "--windows", 3, "-o", out)
    assert done.code == 0, done.err
    results = pl.read_parquet(out)
    names = ["SeasonalNaive", "mine", "TRMF", "SeasonalNaive-2"]
    assert results["model"].unique(maintain_order=True).to_list() == names
    frame = pl.read_csv(place / "hours.csv", try_parse_dates=True)
    alone = ls.backtest(ls.load(place / "mine"), frame, windows=3, static=["kind"])
    assert results.filter(model="mine").drop("model").equals(alone)
    lines = done.out.splitlines()
    assert lines[0].split() == ["model", "wql", "skill", "nd", "mase", "rmse", "coverage_80", "count"]
    assert [line.split()[0] for line in lines[1:]] == ls.score(results)["model"].to_list()
    assert "models by nd, best first; skill is 1 - mae / that of seasonal naive" in done.err


def test_the_leaderboard_is_scored_by_a_static_column(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    words = [*HORIZON, "--static", "kind", "-o", out]
    assert logsparse("backtest", "seasonal-naive,trmf", place / "hours.csv", *words).code == 0
    done = logsparse("score", out, "--by", "kind")
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["kind", "model"],
        ["big", "SeasonalNaive"],
        ["big", "TRMF"],
        ["small", "SeasonalNaive"],
        ["small", "TRMF"],
    ]


def test_one_name_in_any_case_gives_the_frame_and_the_scores_of_one_model(place: Path, tmp_path: Path) -> None:
    done = logsparse("backtest", "Seasonal-Naive", place / "hours.csv", *HORIZON, "-o", tmp_path / "r.parquet")
    assert "model" not in pl.read_parquet(tmp_path / "r.parquet").columns
    assert done.out.startswith("count")


def test_samples_and_quantiles_are_those_that_were_asked_for(place: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "r.parquet", place / "mine"
    words = ["--samples", 7, "--quantiles", "0.25,0.5,0.75", "-o", out]
    assert logsparse("backtest", model, place / "hours.csv", *words).code == 0
    frame = pl.read_csv(place / "hours.csv", try_parse_dates=True)
    seven, usual = (
        ls.backtest(ls.load(model, samples=samples), frame, quantiles=[0.25, 0.5, 0.75], static=["kind"])
        for samples in (7, None)
    )
    assert pl.read_parquet(out).equals(seven)
    assert not seven.equals(usual)


def test_an_option_goes_to_the_models_that_have_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested: dict[str, Any] = {}

    def record(forecasters: dict[str, Any], *_rest: object, **_words: object) -> None:
        tested.update(forecasters)
        raise KeyboardInterrupt

    monkeypatch.setattr("logsparse.evaluation.backtest.backtest", record)
    words = ["--minutes", 3, "--samples", 9, "--preset", "paper", "--method", "mean-path"]
    models = f"logsparse,DeepAR,deepstate,ets,{place / 'mine'}"
    assert logsparse("backtest", models, place / "hours.csv", *words).code == 130
    assert {name: model.horizon for name, model in tested.items()} == dict.fromkeys(tested, 6), "that of the folder"
    networks = [tested[name] for name in ("LogSparse", "DeepAR", "DeepState", "mine")]
    assert [model.minutes for model in networks] == [3, 3, 3, None]
    assert [model.samples for model in networks] == [9] * 4
    assert [model.config is None for model in networks[:3]] == [False, False, True]
    assert tested["mine"].method == "mean-path"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["logsparse,nope", "hours.csv", *HORIZON], "A model must be one of: arima, deepar"),
        (["logsparse,etts", "hours.csv", *HORIZON], "Got 'etts'. Hint: did you mean 'ets'?"),
        (["ets,trmf", "hours.csv"], "A model that is fitted here needs --horizon. Got none."),
        (
            ["ets,mine", "hours.csv", "--horizon", 7],
            "Got 7 for a model of 6. Hint: leave it out, or fit another model.",
        ),
        (
            ["ets,trmf", "hours.csv", *HORIZON, "--samples", 9],
            "--samples is for networks, which draw sample paths. Got",
        ),
        (["seasonal-naive", "hours.csv", *HORIZON, "--samples", 9], "Got --samples 9 for seasonal-naive. Hint: leave"),
        (["mine", "hours.csv", "--samples", 0], "samples must be at least 1. Got 0."),
        (["ets,trmf", "hours.csv", *HORIZON, "--minutes", 9], "--minutes limits the training."),
        (["ets,mine", "hours.csv", "--preset", "paper"], "A preset must be for one of: logsparse, deepar. Got 'ets'"),
        (
            ["ets", "hours.csv", *HORIZON, "--quantiles", "0.1;0.9"],
            "--quantiles must be levels between 0 and 1. Got '0.1;",
        ),
        (["ets,mine/nope", "hours.csv"], "nope must be the folder of a saved logsparse model. Got no such folder."),
        ([",", "hours.csv", *HORIZON], "A model must be one of: arima"),
        (["trmf", "hours.csv", *HORIZON, "--static", "knd"], "no knd among"),
    ],
)
def test_what_no_model_of_the_list_takes_is_refused_in_one_line(
    place: Path, words: list[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert text in refusal("backtest", *words)


def test_a_folder_with_a_comma_in_its_name_is_one_model(place: Path, tmp_path: Path) -> None:
    ls.load(place / "mine").save(tmp_path / "big,small")
    done = logsparse("backtest", tmp_path / "big,small", place / "hours.csv")
    assert done.out.startswith("count")
