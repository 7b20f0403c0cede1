"""`logsparse fit`: a model from a horizon alone, printed settings, an interrupted training that resumes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import logsparse as ls
from command import QUICK, logsparse, refusal
from logsparse.train.loop import Training


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hourly: pl.DataFrame) -> None:
    monkeypatch.chdir(tmp_path)
    hourly.write_csv("hours.csv")


def weights(path: str) -> list[torch.Tensor]:
    model = ls.load(path)
    assert isinstance(model, ls.LogSparse)
    return list(model.network_.state_dict().values())


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_settings_are_printed_before_and_the_result_after() -> None:
    done = logsparse("fit", "hours.csv", "--horizon", 6, *QUICK)
    assert done.code == 0, done.err
    printed = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in done.out.splitlines()}
    assert printed["data"].startswith("long table: Panel(2 series, 264 values, h, 2024-01-01 to")
    assert (printed["horizon"], printed["context"], printed["lags"]) == ("6", "12", "1, 2, 3, 23, 24, 25, 47, 48, 49")
    assert (printed["profiles"], printed["scale"]) == ("24x7, 24x28", "deviation")
    assert (printed["features"], printed["likelihood"]) == ("weekday, hour", "student-t")
    assert printed["holidays"] == "none"
    assert printed["attention"] == "logsparse(base=2), 1 layers, 2 heads, kernel 2"
    assert printed["training"] == "4 steps of 4 windows, then again on all data"
    assert printed["ended"] == "all steps taken"
    assert printed["validation set"].startswith("the last fourth of each series")
    assert re.fullmatch(r"the 80 % interval held \d+ % of the values held back", printed["intervals"])
    assert printed["steps"] == "4 of 4"
    model = ls.load("model")
    assert isinstance(model, ls.LogSparse)
    assert printed["parameters"] == f"{sum(weight.numel() for weight in model.network_.parameters()):,}"
    assert printed["validation"] == f"{model.history_.best:.4f} (negative log-likelihood per step)"
    assert done.out.startswith("data")
    assert "wrote model" in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["hours.csv", "model"]


def test_a_depth_that_does_not_reach_the_window_is_a_line_on_the_error_stream() -> None:
    words = [sys.executable, "-m", "logsparse", "fit", "hours.csv", "--horizon", "6", *QUICK, "--set", "model.lags=1,2"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    line = "The attention pattern does not reach the whole window of 18 steps in 1 layer of logsparse(base=2): "
    assert done.stderr.count(f"{line}it would take 4 (model.layers).\n") == 1


def test_the_horizon_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def fit(self: ls.LogSparse, *_: Any, **options: Any) -> None:
        given.update(self.get_params(), **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(ls.LogSparse, "fit", fit)
    assert logsparse("fit", "hours.csv", "--horizon", 6).code == 130
    # Without a preset or --set the model chooses its settings itself.
    usual = ls.LogSparse(6).get_params()
    assert given == {**usual, "folder": Path("model.training")}


def test_a_preset_brings_its_settings_and_options_win_over_it() -> None:
    words = ["--preset", "solar", *QUICK, "--set", "train.windows=none", "--seed", 3]
    assert logsparse("fit", "hours.csv", "-o", "a", *words).code == 0
    model = ls.load("a")
    assert isinstance(model, ls.LogSparse)
    assert (model.horizon, model.seed, model.config_.context, model.config_.model.layers) == (24, 3, 12, 1)
    assert model.config_.model.lags == (1,)
    assert logsparse("fit", "hours.csv", "-o", "b", "--horizon", 3, *words).code == 0
    assert ls.load("b").horizon == 3


def test_columns_and_the_end_of_training_are_remembered(hourly: pl.DataFrame) -> None:
    kinds = pl.when(pl.col("unique_id") == "a").then(pl.lit("x")).otherwise(pl.lit("z")).alias("kind")
    renamed = hourly.with_columns(pl.col("y").alias("price"), kinds)
    renamed.rename({"unique_id": "name", "ds": "at", "y": "load"}).write_parquet("named.parquet")
    names = ["--id-col", "name", "--time-col", "at", "--target-col", "load"]
    extra = ["--covariates", "price", "--static", "kind", "--until", "2024-01-05T12:00"]
    done = logsparse("fit", "named.parquet", "--horizon", 6, *names, *extra, *QUICK)
    assert done.code == 0, done.err
    assert {("covariates", "price"), ("static", "kind")} <= {tuple(line.split()) for line in done.out.splitlines()}
    model = ls.load("model")
    assert model.columns_.get("id_col") == "name"
    assert str(model.panel_.freq.show(int(model.panel_.ends().max()))) == "2024-01-05 12:00"
    assert logsparse("backtest", "model", "named.parquet", "-o", "r.parquet").code == 0
    assert pl.read_parquet("r.parquet")["at"].max() == hourly["ds"].max()


def test_a_training_that_was_killed_resumes_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fit", "hours.csv", "--horizon", 6, *QUICK]
    assert logsparse(*words, "-o", "whole").code == 0
    learn, killed = Training.learn, RuntimeError("as if killed")

    def until_the_third(self: Training) -> float:
        if self.step == 3:
            raise killed
        return learn(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "learn", until_the_third)
        with pytest.raises(RuntimeError, match="as if killed"):
            logsparse(*words)
    assert Path("model.training").is_dir()
    assert not Path("model").exists()
    assert "Got checkpoints of another seed" in logsparse(*words, "--seed", 1).err
    shutil.copytree("model.training", "other.training")
    done = logsparse(*words)
    assert done.code == 0, done.err
    assert "resuming the training in model.training" in done.err
    assert not Path("model.training").exists()
    assert same(weights("model"), weights("whole"))
    # The next night has newer data: without --again, what was killed would stand in its way every night.
    newer = [*words, "--until", "2024-01-04T12:00", "-o", "other"]
    done = logsparse(*newer)
    assert (done.code, "other data in other.training" in done.err, "fit --again" in done.err) == (2, True, True)
    done = logsparse(*newer, "--again")
    assert (done.code, "removed the unfinished training in other.training" in done.err) == (0, True), done.err
    assert not Path("other.training").exists()


def test_ctrl_c_saves_the_best_weights_and_the_same_command_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fit", "hours.csv", "--horizon", 6, *QUICK]
    learn = Training.learn

    def until_the_third(self: Training) -> float:
        if self.step == 3:
            raise KeyboardInterrupt
        return learn(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "learn", until_the_third)
        done = logsparse(*words)
    assert done.code == 130
    assert "model has the best weights so far; the same command resumes the training." in done.err
    assert logsparse("predict", "model").code == 0
    assert Path("model.training").is_dir()
    done = logsparse(*words)
    assert (done.code, "resuming the training" in done.err) == (0, True)
    assert not Path("model.training").exists()


def test_ctrl_c_before_the_first_step_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(_self: Training) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "learn", at_once)
    done = logsparse("fit", "hours.csv", "--horizon", 6, *QUICK)
    assert (done.code, Path("model").exists()) == (130, False)
    assert "nothing was saved in model: training was stopped before its first validation.\n" in done.err
    assert done.err.endswith("logsparse: stopped.\n")


IMPATIENT = """
import sys, time
from logsparse.cli import main
from logsparse.train.loop import Training
def learn(self):
    print("at the first step", flush=True)
    time.sleep(600)
Training.learn = learn
sys.argv[0] = "logsparse"
main()
"""


def test_two_real_signals_before_the_first_validation_save_nothing_and_say_so() -> None:
    words = ["fit", "hours.csv", "--horizon", "6", *QUICK]
    command = [sys.executable, "-c", IMPATIENT, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while "at the first step" not in running.stdout.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert running.poll() is None, "a first one waits for the end of the step"
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "nothing was saved in model: training was stopped before its first validation.\n" in err
    assert not Path("model").exists()


def test_a_signal_before_the_training_saves_nothing_and_says_so() -> None:
    script = (
        "import time, logsparse.data.frame as frame\n"
        "frame.to_panel = lambda *_, **__: (print('reading', flush=True), time.sleep(60))\n"
        "import sys; sys.argv = ['logsparse', 'fit', 'hours.csv', '--horizon', '6']\n"
        "from logsparse.cli import main; main()"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "reading\n"
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert err == "nothing was saved in model: the command was stopped before training started.\nlogsparse: stopped.\n"


def test_hardly_any_training_is_said_and_shown_by_the_exit_code_and_again_by_predict() -> None:
    words = ["fit", "hours.csv", "--horizon", "6", *QUICK, "--set", "train.epochs=100"]
    command = [sys.executable, "-m", "logsparse", *words]
    done = subprocess.run([*command, "--minutes", "1e-9"], capture_output=True, text=True, check=False, timeout=300)
    said = "Training took 1 of 200 planned steps (time limit of 1e-09 minutes reached): forecasts may be poor"
    assert (done.returncode, done.stderr.count(said)) == (4, 1), done.stderr
    assert "steps       1 of 200\n" in done.stdout
    assert not Path("model.training").exists()
    again = logsparse("predict", "model")
    assert (again.code, again.err.count(f"model: {said}")) == (0, 1), again.err


def test_steps_plan_a_short_training_which_is_a_whole_one() -> None:
    done = logsparse("fit", "hours.csv", "--horizon", 6, *QUICK, "--steps", 3)
    assert (done.code, "planned" in done.err) == (0, False), done.err
    assert "3 steps of 4 windows" in done.out
    model = ls.load("model")
    assert isinstance(model, ls.LogSparse)
    assert (model.history_.steps, model.steps, model.get_params()["layers"]) == (3, 3, 1)
    assert "Training" not in logsparse("predict", "model").err
    assert logsparse("fit", "hours.csv", "--horizon", 6, *QUICK, "--steps", 3, "--set", "train.steps=9").code == 0
    again = ls.load("model")
    assert isinstance(again, ls.LogSparse)
    assert again.history_.planned == 3


def test_a_model_is_trained_further_on_other_data(hourly: pl.DataFrame) -> None:
    assert logsparse("fit", "hours.csv", "--horizon", 6, *QUICK).code == 0
    before = weights("model")
    hourly.with_columns(pl.lit("new").alias("unique_id")).unique("ds").sort("ds").write_csv("next.csv")
    words = ["fit", "next.csv", "--from", "model", "--steps", 2]
    done = logsparse(*words, "-o", "newer", "--set", "train.lr=0.01")
    assert (done.code, "steps       2 of 2" in done.out) == (0, True), done.err
    assert same(weights("model"), before)
    assert not same(weights("newer"), before)
    newer = ls.load("newer")
    assert newer.panel_.ids == ("new",)
    assert newer.horizon == 6
    # In place, with the learning rate of fine-tuning.
    assert logsparse(*words, "-o", "model").code == 0
    assert not same(weights("model"), before)
    assert not same(weights("model"), weights("newer"))
    assert sorted(path.name for path in Path().iterdir()) == ["hours.csv", "model", "newer", "next.csv"]


def test_what_a_model_knows_already_is_not_given_when_it_is_trained_further(hourly: pl.DataFrame) -> None:
    ls.SeasonalNaive(6).fit(hourly).save("naive")
    words = ["fit", "hours.csv", "--from", "naive", "-o", "newer"]
    text = "keeps its horizon, columns and settings. Got --from naive and --horizon, --id-col, --set layers. Hint: "
    assert text in refusal(*words, "--horizon", 6, "--id-col", "name", "--set", "model.layers=2")
    assert "Only a model with a network can be trained further. Got SeasonalNaive in naive." in refusal(*words)
    assert "nowhere must be the folder of a saved logsparse model" in refusal("fit", "hours.csv", "--from", "nowhere")
    assert not Path("newer").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_signal_ends_with_130_and_a_model(number: signal.Signals) -> None:
    words = ["fit", "hours.csv", "--horizon", "6", *QUICK, "--set", "train.epochs=100000"]
    with subprocess.Popen([sys.executable, "-m", "logsparse", *words], stderr=subprocess.PIPE, text=True) as running:
        checkpoint, patience = Path("model.training/seed-0/checkpoint/state.json"), time.monotonic() + 120
        while not checkpoint.exists() and running.poll() is None and time.monotonic() < patience:
            time.sleep(0.1)
        running.send_signal(number)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "the same command resumes" in err
    assert len(ls.load("model").predict()) == 12


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["hours.csv"], "A model needs --horizon, the number of steps to forecast. Got none. Hint: try --horizon 24."),
        (["hours.csv", "--horizon", 0], "horizon must be at least 1. Got 0."),
        (["hours.csv", "--horizon", 6, "--context", 0], "context must be at least 1. Got 0."),
        (["hours.csv", "--horizon", 6, "--minutes", 0], "minutes must be a number above 0. Got 0.0."),
        (["hours.csv", "--horizon", 6, "--device", "gpu"], "Got 'gpu'. Hint: use 'auto'"),
        (["hours.csv", "--horizon", 6, "--preset", "solr"], "Got 'solr'. Hint: did you mean 'solar'?"),
        (
            ["hours.csv", "--horizon", 6, "--set", "model.layers=1000000000"],
            "layers must be at most 1000. Got 1000000000",
        ),
        (["hours.csv", "--horizon", 6, "--set", "train.lrr=1"], "Hint: did you mean 'train.lr'?"),
        (["hours.csv", "--horizon", 6, "--contxt", 3], "No such option: --contxt. Hint: did you mean '--context'?"),
        (["nowhere.csv", "--horizon", 6], "nowhere.csv: no such file"),
        (["hours.csv", "--horizon", 6, "--covariates", "prize"], "no prize among unique_id, ds, y"),
        (["hours.csv", "--horizon", 6, "--set", "model.likelihood=t"], "Hint: choose one of gaussian, student-t"),
        (["hours.csv", "--horizon", 400], "the longest of 168 steps"),
        (["hours.csv", "--horizon", 6, "--until", "yesterday"], "'yesterday'"),
        (["hours.csv", "--horizon", 6, "-o", "hours.csv"], "hours.csv"),
        (["hours.csv", "--horizon", 6, "-o", "/proc/model"], "The result must be writable."),
        (["hours.csv", "--horizon", 6, "-o", "."], "A model must be saved to a new or empty folder"),
    ],
)
def test_an_error_is_one_line_before_any_work(words: list[Any], text: str) -> None:
    assert text in refusal("fit", *words)
    assert [path.name for path in Path().iterdir()] == ["hours.csv"]


MONTHS = "Monat;Umsatz\n" + "".join(f"{i % 12 + 1:02d}/{2020 + i // 12};{1000 + 10 * i + i % 12}\n" for i in range(40))


def test_forty_months_are_fitted_by_ets_forecast_and_drawn() -> None:
    Path("sales.csv").write_text(MONTHS)
    done = logsparse("fit", "sales.csv", "--model", "ets", "--horizon", 6)
    assert done.code == 0, done.err
    assert "40 values, MS, 2020-01-01 to 2023-04-01" in done.out
    assert "wrote model" in done.err
    assert isinstance(ls.load("model"), ls.AutoETS)
    done = logsparse("predict", "model", "-o", "forecast.csv", "--draw", "forecast.svg")
    assert done.code == 0, done.err
    assert "6, from 2023-05-01 to 2023-10-01" in done.out
    assert "Umsatz" in Path("forecast.svg").read_text()
    assert Path("forecast.csv").exists()


def test_a_picture_of_another_kind_is_refused_before_the_forecast() -> None:
    assert logsparse("fit", "hours.csv", "--model", "seasonal-naive", "--horizon", 6).code == 0
    assert "A picture is written as svg, png or pdf. Got forecast.bmp" in refusal(
        "predict", "model", "-o", "forecast.csv", "--draw", "forecast.bmp"
    )
    assert not Path("forecast.csv").exists()


def test_every_series_of_a_few_is_drawn() -> None:
    assert logsparse("fit", "hours.csv", "--model", "seasonal-naive", "--horizon", 6).code == 0
    assert logsparse("predict", "model", "-o", "both.csv", "--draw", "both.svg").code == 0
    drawn = Path("both.svg").read_text()
    assert all(f"<!-- {name} -->" in drawn for name in ls.load("model").panel_.ids)


def test_a_network_of_another_kind_is_trained_by_its_name() -> None:
    done = logsparse("fit", "hours.csv", "--model", "DeepAR", "--horizon", 6, "--steps", 2)
    assert done.code == 0, done.err
    assert isinstance(ls.load("model"), ls.DeepAR)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model", "ets", "--steps", 5, "--set", "model.layers=2"],
            "--set layers, --steps are for networks. Got --model ets. Hint: leave",
        ),
        (["--model", "ests"], "did you mean 'ets'?"),
        (["--model", "ets", "--from", "model"], "keeps its horizon, columns and settings. Got --from model and "),
    ],
)
def test_options_that_do_not_go_with_a_model_are_refused(words: list[object], message: str) -> None:
    assert message in refusal("fit", "hours.csv", "--horizon", 6, *words)


def test_a_model_without_a_network_needs_a_horizon_too() -> None:
    assert "A model needs --horizon" in refusal("fit", "hours.csv", "--model", "ets")


def test_few_values_are_told_and_who_forecasts_instead(caplog: pytest.LogCaptureFixture) -> None:
    Path("sales.csv").write_text(MONTHS)
    assert logsparse("fit", "sales.csv", "--horizon", 6, *QUICK).code == 0
    assert [line for line in caplog.messages if line.startswith("40 values are few") and "from simple rules" in line]
    caplog.clear()
    assert logsparse("fit", "sales.csv", "--horizon", 6, "-o", "alone", "--set", "blend=0", *QUICK).code == 0
    assert [line for line in caplog.messages if line.startswith("40 values are few") and "`fit --model ets`" in line]
    caplog.clear()
    assert logsparse("fit", "hours.csv", "--horizon", 6, "-o", "other", *QUICK).code == 0
    assert not [line for line in caplog.messages if "are few" in line]
