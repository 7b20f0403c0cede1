"""`logsparse backtest`: a saved model or the name of one; what each needs and refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import logsparse as ls
from command import QUICK, logsparse, refusal
from logsparse.config import Config
from logsparse.presets import default, named


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a model trained on all but the last day."""
    folder = tmp_path_factory.mktemp("backtest")
    times = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 8), "1h", eager=True, closed="left")
    wave = [10.0 + hour % 24 for hour in range(len(times))]
    pl.DataFrame({"name": "a", "ds": times, "y": wave}).write_csv(folder / "hours.csv")
    words = ["--horizon", 6, "--id-col", "name", "--until", "2024-01-06T23:00", "-o", folder / "model"]
    assert logsparse("fit", folder / "hours.csv", *words, *QUICK).code == 0
    return folder


def test_a_saved_model_is_tested_as_it_is_with_the_columns_it_knows(place: Path, tmp_path: Path) -> None:
    done = logsparse("backtest", place / "model", place / "hours.csv", "--windows", 4, "-o", tmp_path / "r.parquet")
    assert done.code == 0, done.err
    assert "R0.5" in done.out
    data = pl.read_csv(place / "hours.csv", try_parse_dates=True)
    expected = ls.backtest(ls.load(place / "model"), data, windows=4, id_col="name")
    assert pl.read_parquet(tmp_path / "r.parquet").equals(expected)


def test_a_saved_model_can_be_tested_by_another_method(place: Path, tmp_path: Path) -> None:
    words = ["--windows", 4, "--method", "direct", "-o", tmp_path / "r.parquet"]
    assert logsparse("backtest", place / "model", place / "hours.csv", *words).code == 0
    data = pl.read_csv(place / "hours.csv", try_parse_dates=True)
    expected = ls.backtest(ls.load(place / "model", method="direct"), data, windows=4, id_col="name")
    assert pl.read_parquet(tmp_path / "r.parquet").equals(expected)


def test_a_model_is_not_tested_on_its_training_data_unless_it_is_refitted(place: Path) -> None:
    words = ["backtest", place / "model", place / "hours.csv", "--windows", 5]
    err = logsparse(*words).err
    assert "A backtest must begin after the model's training ended." in err
    assert "Hint: fit with --until an earlier time, or test with --refit." in err
    assert logsparse(*words, "--refit", "--minutes", 5).code == 0


def test_the_name_logsparse_trains_a_fresh_model(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes: list[float | None] = []
    fit = ls.LogSparse._fit

    def record(self: ls.LogSparse, *prepared: Any) -> None:
        minutes.append(self.minutes)
        fit(self, *prepared)

    def small(_panel: object, horizon: int, *_others: object) -> Config:
        config = default(12, horizon)
        return replace(config, train=replace(config.train, epochs=1, steps_per_epoch=2, batch=4, validation_windows=4))

    monkeypatch.setattr(ls.LogSparse, "_fit", record)
    monkeypatch.setattr("logsparse.forecaster.recommend", small)
    words = ["--horizon", 6, "--id-col", "name", "--minutes", 3]
    done = logsparse("backtest", "logsparse", place / "hours.csv", *words)
    assert done.code == 0, done.err
    assert minutes == [3]


@pytest.mark.parametrize("model", ["deepar", "logsparse"])
@pytest.mark.parametrize("horizon", [[], ["--horizon", 6]])
def test_a_preset_brings_the_settings_of_the_paper_for_its_network(
    model: str, horizon: list[Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[Any] = []

    def record(forecaster: ls.LogSparse, *_rest: object, **_words: object) -> pl.DataFrame:
        tested.append(forecaster)
        raise KeyboardInterrupt

    monkeypatch.setattr("logsparse.evaluation.backtest.backtest", record)
    logsparse("backtest", model, place / "hours.csv", *horizon, "--preset", "paper", "--id-col", "name")
    (one,) = tested
    assert type(one) is (ls.DeepAR if model == "deepar" else ls.LogSparse)
    assert one.config == replace(named("paper", model), horizon=6 if horizon else 24)
    assert one.horizon == one.config.horizon


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["logsparse", "hours.csv", "--horizon", 6, "--method", "direct"],
            "--method is for a fitted model that is tested",
        ),
        (
            ["model", "hours.csv", "--refit", "--method", "direct"],
            "Got --method direct, and a model that is fitted here",
        ),
        (["model", "hours.csv", "--preset", "paper"], "--preset is for a model that is fitted here, by its name. Got"),
        (
            ["deepstate", "hours.csv", "--preset", "paper"],
            "A preset must be for one of: logsparse, deepar. Got 'deepst",
        ),
        (["deepar", "hours.csv", "--preset", "papr"], "Got 'papr'. Hint: did you mean 'paper'?"),
        (["model", "hours.csv", "--horizon", 7], "Got 7 for a model of 6. Hint: leave it out, or fit another model."),
        (
            ["model", "hours.csv", "--minutes", 1],
            "limits the training. Got --minutes 1, but nothing is trained",
        ),
        (["seasonal-naive", "hours.csv", "--horizon", 2, "--minutes", 1], "--minutes limits the training."),
        (["seasonal-naive", "hours.csv"], "A model that is fitted here needs --horizon. Got none."),
        (["seasonal-naiv", "hours.csv"], "Got 'seasonal-naiv'. Hint: did you mean 'seasonal-naive'?"),
        (["modell/", "hours.csv"], "modell must be the folder of a saved logsparse model. Got no such folder."),
        (["hours.csv", "hours.csv"], "hours.csv must be the folder of a saved logsparse model. Got a file."),
        ([".", "hours.csv"], "Got a folder without config.json."),
    ],
)
def test_an_error_is_one_line(place: Path, words: list[Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert text in refusal("backtest", *words)


def test_a_folder_with_the_name_of_a_forecaster_does_not_hide_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seasonal-naive").mkdir()
    words = ["seasonal-naive", place / "hours.csv", "--horizon", 6, "--id-col", "name"]
    assert logsparse("backtest", *words).code == 0
    ls.load(place / "model").save("seasonal-naive")
    assert logsparse("backtest", "seasonal-naive", place / "hours.csv").code == 0


def test_a_horizon_of_zero_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hours.csv"
    pl.DataFrame({"unique_id": "a", "ds": range(100), "y": range(100)}).write_csv(path)
    assert "horizon must be at least 1. Got 0." in refusal("backtest", "seasonal-naive", path, "--horizon", 0)
