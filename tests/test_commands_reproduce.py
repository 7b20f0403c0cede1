"""`logsparse reproduce`: runs are recorded, resumed and shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from command import logsparse, refusal
from logsparse.paper import synthetic
from logsparse.paper.commands import NAMES, _models, _run
from logsparse.paper.experiment import Experiment, Runs, keep
from logsparse.paper.figures import EXPERIMENTS
from logsparse.paper.ledger import Identity, Run, record, rows, trials
from logsparse.storage import lock

KNOWN = Identity({"context": 3}, "abc")


def _known(runs: Sequence[Run]) -> dict[Run, Identity]:
    return dict.fromkeys(runs, KNOWN)


def _only(runs: Sequence[Run]) -> Runs:
    """Of a model that is trained: each under the budget that is asked for."""
    return lambda _seeds, _models, budget=None: [replace(run, budget=budget) for run in runs]


def test_what_is_recorded_is_not_run_again_and_is_shown(tmp_path: Path) -> None:
    facts = {"R0.5": 0.0125, "R0.9": 0.006, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    for run, identity in synthetic.identify(synthetic.runs(1, ["deepar-20"])).items():
        record(tmp_path, run, identity, facts)
    done = logsparse("reproduce", "synthetic", "--model", "deepar-20", "-o", tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:3] == ["Synthetic study, R0.5", "t0   deepar-20", "24      0.0125"]
    assert "run 1" not in done.err
    assert (tmp_path / "synthetic.svg").exists()
    shown = logsparse("reproduce", "synthetic", "--show", "-o", tmp_path).out
    assert shown.startswith(done.out)
    assert f"synthetic  Figure 4, an example and error against t0  {tmp_path / 'synthetic.svg'}" in shown


def test_two_processes_share_the_runs_of_an_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"R0.5": 0.1, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    runs = [Run("waves", case, "a") for case in ("mine", "done meanwhile", "begun by another", "mine too")]
    done = []

    def run_one(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
        assert verbose
        assert folder.is_dir()
        done.append(run)
        record(tmp_path, runs[1], KNOWN, facts)
        return facts

    waves = Experiment("waves", ("a",), _only(runs), _known, run_one, lambda _rows, _traces: [])
    begun = tmp_path / ".unfinished" / runs[2].folder
    begun.mkdir(parents=True)
    with lock(begun):
        _run(waves, ["a"], 1, None, tmp_path)
    assert done == [runs[0], runs[3]]
    message = capsys.readouterr().err
    assert "run 2 of 4: waves, done meanwhile, a, seed 0, done by another process" in message
    assert "run 3 of 4: waves, begun by another, a, seed 0, being done by another process" in message
    assert list(begun.parent.iterdir()) == [begun]
    _run(waves, ["a"], 1, None, tmp_path)
    assert done[2:] == [runs[2]]


def test_a_run_under_a_budget_is_shown_as_a_trial_and_the_run_itself_is_still_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"R0.5": 0.1234, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    run, done = Run("kernels", "traffic-c20-hourly, 1 day x 28", "k=1"), []

    def run_one(one: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
        del folder, verbose
        done.append(one.budget)
        return {**facts, "trace": {"curve": {"step": [1], "nll": [1.0], "validation_nll": [float(len(done))]}}}

    kernels = replace(EXPERIMENTS["kernels"], runs=_only([run]), identify=_known, run=run_one)
    monkeypatch.setitem(EXPERIMENTS, "kernels", kernels)
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    trial = logsparse("reproduce", "kernels", "--budget", "2.5", "-o", tmp_path)
    assert trial.code == 0, trial.err
    assert "run 1 of 1: kernels, traffic-c20-hourly, 1 day x 28, k=1, seed 0, trial of 2.5 minutes" in trial.err
    assert "kernels: no finished run is recorded" in trial.err
    title, head, line, *_ = trial.out.splitlines()
    assert title == "Trials of kernels: with a budget of minutes, no results"
    assert dict(zip(head.split(), line.replace(", 1 day x 28", "").split(), strict=True))["budget"] == "2.5"
    whole = logsparse("reproduce", "kernels", "-o", tmp_path)
    assert "0.1234/0.0500" in whole.out
    assert logsparse("reproduce", "kernels", "-o", tmp_path).out == whole.out
    assert done == [2.5, None]
    assert len(trials(rows(tmp_path, "kernels"))) == 1
    # The figure is drawn from the run itself.
    shown = logsparse("reproduce", "curves", "--show", "-o", tmp_path).out
    assert [line.split()[-1] for line in shown.splitlines() if " k=1 " in line][:1] == ["2.0000"]


def test_rows_that_do_not_record_their_data_are_shown_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    facts = {"R0.5": 0.1234, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    for seed in (0, 1):
        record(tmp_path, Run("granularities", "solar, 1 day x 7", "paper", seed), KNOWN, facts)
    path = tmp_path / "granularities.csv"
    path.write_text(path.read_text().replace(",abc,", ",,"))
    done = logsparse("reproduce", "granularities", "--show", "-o", tmp_path)
    assert done.err == "granularities: 2 of 2 recorded runs do not say on which data: none is finished.\n"
    assert "not a finished run" in next(line for line in done.out.splitlines() if "0.1234/0.0500" in line)


def test_settings_that_differ_from_those_recorded_are_refused_before_a_training(tmp_path: Path) -> None:
    facts = {"R0.5": 0.1, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    (run, *_), identity = synthetic.runs(1, ["deepar-20"]), Identity({"context": 24}, "abc")
    record(tmp_path, run, identity, facts)
    message = refusal("reproduce", "synthetic", "--model", "deepar-20", "-o", tmp_path)
    assert (
        f"synthetic, t0=24, deepar-20, seed 0 must have the config and data of the rows of its cell in {tmp_path}"
        in message
    )
    assert "and abc in the row of seed 0. Hint: record other settings or data in another folder" in message


def test_the_claim_of_a_killed_process_ends_with_it(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from logsparse.storage import lock
with lock(Path({str(tmp_path)!r})):
    print("claimed", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "claimed\n"
        with lock(tmp_path, wait=False) as ours:
            assert not ours
        victim.send_signal(signal.SIGKILL)
    with lock(tmp_path, wait=False) as ours:
        assert ours


def test_a_damaged_trace_costs_its_line_of_the_figure_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    facts = {"R0.5": 0.1234, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    curve = {"step": [1, 2], "nll": [2.0, 1.0], "validation_nll": [2.0, 1.0]}
    runs = [Run("kernels", "traffic-c20-hourly, 1 day x 28", model) for model in ("k=1", "k=3", "k=9")]
    for run, losses in zip(runs, (curve, {}, curve), strict=True):
        keep(tmp_path, run, {"curve": losses})
        record(tmp_path, run, KNOWN, facts)
    damaged, odd = (tmp_path / "traces" / f"{run.folder}.json" for run in runs[:2])
    damaged.write_text("{")
    table = logsparse("reproduce", "kernels", "--show", "-o", tmp_path)
    assert table.code == 0
    assert [line.split(" must hold ")[0] for line in table.err.splitlines()] == [
        f"kernels: {one}" for one in (damaged, odd)
    ]
    assert table.out.count("0.1234/0.0500") == 3
    done = logsparse("reproduce", "curves", "--show", "-o", tmp_path)
    assert done.code == 0
    message = done.err.splitlines()
    assert message[0].startswith(f"curves: {damaged} must hold what its run left for a figure. Got no valid JSON")
    assert message[1].startswith(f"curves: {odd} must hold what its run left for a figure. Got content that its figure")
    assert len(message) == 2
    lines = [line for line in done.out.splitlines() if "traffic-c20" in line]
    assert len(lines) == 1
    assert " k=9 " in lines[0]


def test_unreadable_results_are_reported_once_and_the_other_tables_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    facts = {"R0.5": 0.1234, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": 1.0}
    record(tmp_path, Run("granularities", "solar, 1 day x 7", "paper"), KNOWN, facts)
    (tmp_path / "kernels.csv").write_text("a,b\n")
    done = logsparse("reproduce", "--show", "-o", tmp_path)
    assert done.code == 2
    assert done.err.count("kernels.csv must hold complete rows of") == 1
    assert "0.1234/0.0500" in done.out


def test_nothing_recorded_is_said_so_and_what_to_do_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    done = logsparse("reproduce", "--show", "-o", tmp_path)
    assert done.code == 0
    assert "main: no finished run is recorded" in done.err
    lines = done.out.splitlines()
    assert "no data" in next(line for line in lines if line.startswith("traffic-c "))
    matching = next(line for line in lines if "Figure 1," in line)
    assert f"2 of 2 runs still to do: `logsparse reproduce matching -o {tmp_path}`" in matching
    assert "no data" in next(line for line in lines if "Figure 5," in line)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_figure_without_runs_is_drawn_at_once(tmp_path: Path) -> None:
    done = logsparse("reproduce", "attention-kinds", "-o", tmp_path)
    assert done.code == 0, done.err
    assert "Figure 3, kinds of attention" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["attention-kinds.svg"]


def test_the_names_are_those_of_the_experiments() -> None:
    assert list(EXPERIMENTS) == list(NAMES)


@pytest.mark.skipif("LOGSPARSE_DATA" not in os.environ, reason="LOGSPARSE_DATA is not set: this test needs solar")
def test_a_table_of_the_paper_is_run_and_shown_beside_it(tmp_path: Path) -> None:
    done = logsparse("reproduce", "granularities", "--model", "seasonal-naive", "-o", tmp_path)
    assert done.code == 0, done.err
    solar = next(line for line in done.out.splitlines() if "solar" in line and "seasonal-naive" in line)
    assert "0.2565/0.1372" in solar
    paper = next(line for line in done.out.splitlines() if "solar" in line and " paper " in line)
    assert "0.210/0.082" in paper
    assert "not run yet" in paper
    assert "no data" in next(line for line in done.out.splitlines() if line.startswith("wind"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            [],
            "An experiment must be one of: synthetic, main, kernels, sparse, granularities, long-waves, patterns,",
        ),
        (["synthetik"], "did you mean 'synthetic'?"),
        (["synthetic", "--model", "deepar-30"], "did you mean 'deepar-"),
        (["statistics", "--model", "a"], "statistics has no models to run. Got 'a'. Hint: leave --model out."),
        (["sparse", "--budget", "0"], "--budget must be a number above 0. Got 0.0."),
        (["synthetic", "--seeds", "0"], "seeds must be at least 1. Got 0."),
        (["main", "--model", "nonsense", "--show"], "A model of main must be one of: seasonal-naive, paper,"),
        (["sparse", "--seeds", "2", "--model", "sparse", "--show"], "Got --seeds and --model beside it."),
        (["--model", "paper", "--show"], "--model is for one experiment. Got 'paper' and no NAME."),
    ],
)
def test_an_error_is_one_line_with_a_hint(words: list[str], text: str, tmp_path: Path) -> None:
    assert text in refusal("reproduce", *words, "-o", tmp_path)


def test_a_model_that_is_named_twice_is_run_once() -> None:
    assert _models(EXPERIMENTS["synthetic"], "transformer, transformer") == ["transformer"]


def test_a_file_that_is_not_its_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    times = pl.datetime_range(pl.datetime(2006, 1, 1), pl.datetime(2006, 2, 1), "1h", eager=True)
    pl.DataFrame({"ds": times, "a": 1.0}).write_parquet(tmp_path / "solar_hourly.parquet")
    done = logsparse("reproduce", "granularities", "--model", "seasonal-naive", "-o", tmp_path / "results")
    assert done.code == 2
    assert "solar_hourly.parquet must be the data set solar. Got T = 745 where 5832 is known" in done.err
    assert not (tmp_path / "results" / "granularities.csv").exists()


@pytest.mark.parametrize("nothing", [",", " , "])
def test_no_model_is_not_all_models(nothing: str, tmp_path: Path) -> None:
    message = refusal("reproduce", "synthetic", "--model", nothing, "-o", tmp_path)
    assert "A model of synthetic must be one of: transformer, deepar-20" in message
    assert "Got ''." in message


@pytest.mark.parametrize("how", [[], ["--show"]])
def test_what_is_no_folder_of_results_is_refused(how: list[str], tmp_path: Path) -> None:
    rule = "-o must name a folder of results. Got"
    file = tmp_path / "file"
    file.touch()
    assert f"{rule} {file}, which is a file." in refusal("reproduce", "synthetic", *how, "-o", file)
    (tmp_path / "synthetic.csv").mkdir()
    message = refusal("reproduce", "synthetic", *how, "-o", tmp_path)
    assert f"{tmp_path / 'synthetic.csv'} must hold complete rows of" in message
    assert "Got content that cannot be read (Is a directory)." in message


@pytest.mark.parametrize(
    ("name", "lacking", "way"),
    [
        ("kernels", "electricity-c, traffic-c, solar, traffic-c20-hourly", "electricity-c: run `logsparse data get"),
        ("curves", "electricity-c, traffic-c, solar, traffic-c20-hourly", "traffic-c20-hourly: there is no source"),
        ("attention-matrix", "traffic-c, traffic-c20-hourly", "traffic-c: run `logsparse data get traffic-c`; "),
        ("learned-attention", "traffic-f, traffic-c20-hourly", "traffic-f: run `logsparse data get traffic-f`; "),
    ],
)  # fmt: skip
def test_where_no_set_is_here_all_are_named_with_the_way_to_get_them(
    name: str, lacking: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    message = refusal("reproduce", name, "-o", tmp_path / "results")
    assert f"{name} must have a data set to run on. Got no {lacking} in {tmp_path}. Hint: " in message
    assert way in message
    assert message.endswith(". --show prints what is recorded.\n")
    assert list(tmp_path.iterdir()) == []
