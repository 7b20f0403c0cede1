"""Before `reproduce` starts it says how long it takes: by earlier runs, by a few steps of the runs, or by a budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import small
from command import logsparse
from logsparse.forecaster import LogSparse
from logsparse.paper import experiment as module
from logsparse.paper.commands import _run
from logsparse.paper.experiment import Experiment, Prepared, announce, facts_of, timed_minutes
from logsparse.paper.figures import EXPERIMENTS
from logsparse.paper.ledger import Identity, Run, record, rows

TRAINED, UNTRAINED = Identity({"train": {"lr": 0.1}}, "abc"), Identity({"season": 24}, "abc")
NAIVE = "seasonal-naive"


def identify(runs: Sequence[Run]) -> dict[Run, Identity]:
    return {run: UNTRAINED if run.model == NAIVE else TRAINED for run in runs}


def network(**train: Any) -> LogSparse:
    return LogSparse(6, config=small.config(**train), verbose=False)


def prepare(run: Run) -> Prepared:
    """Twelve steps of a small network; only what is trained is asked for."""
    assert run.model != NAIVE
    return Prepared(network(), small.panel())


def carry_out(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    del verbose
    model, panel, _ = prepare(run)
    assert isinstance(model, LogSparse)
    return {"R0.5": 0.1, "R0.9": 0.05, **facts_of(model.fit(panel, folder=folder))}


def experiment(runs: Sequence[Run]) -> Experiment:
    return Experiment(
        "waves",
        ("a", "b", NAIVE),
        lambda _seeds, _models, budget=None: [replace(run, budget=budget) for run in runs],
        identify,
        carry_out,
        lambda _rows, _traces: [],
        prepare=prepare,
    )


def recorded(folder: Path, run: Run, minutes: float, **others: Any) -> None:
    facts = {"R0.5": 0.1, "R0.9": 0.05, "validation_nll": 1.0, "steps": 9, "minutes": minutes, **others}
    record(folder, run, identify([run])[run], facts)


def said(runs: Sequence[Run], folder: Path) -> list[str]:
    lines: list[str] = []
    announce(experiment(runs), identify(runs), folder, lines.append)
    return lines


def seeds(model: str, *numbers: int, budget: float | None = None) -> list[Run]:
    return [Run("waves", "t0=24", model, seed, budget) for seed in numbers]


def test_runs_take_as_long_as_earlier_ones_of_the_same_cell_did(tmp_path: Path) -> None:
    for run, minutes in zip(seeds("a", 0, 1, 2), (10.0, 30.0, 31.0), strict=True):
        recorded(tmp_path, run, minutes)
    recorded(tmp_path, seeds("a", 9, budget=1.0)[0], 1.0)
    assert said(seeds("a", 3), tmp_path) == [
        "waves: 1 run to do, about 30 minutes on this machine, plus scoring (1 by earlier runs)"
    ]
    assert said(seeds("a", *range(3, 103)), tmp_path) == [
        "waves: 100 runs to do, about 2.1 days on this machine, plus scoring (100 by earlier runs)"
    ]


def test_a_run_that_nobody_has_done_here_is_timed_and_one_that_is_not_trained_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, seeds("b", 0)[0], 5.0)
    monkeypatch.setattr(module, "machine", lambda: "another-machine")
    runs = [*seeds("a", 0, 1), *seeds("b", 1), *seeds(NAIVE, 0)]
    assert said(runs, tmp_path) == [
        "waves: 4 runs to do; timing a few steps of 2 models",
        "waves: 4 runs to do, about a minute or less on this machine, plus scoring (3 by timing a few steps; unknown "
        "and not counted: seasonal-naive)",
    ]
    recorded(tmp_path, seeds(NAIVE, 1)[0], 90.0, steps=None, validation_nll=None)
    assert said(seeds(NAIVE, 0), tmp_path) == [
        "waves: 1 run to do, about 1.5 hours on this machine, plus scoring (1 by earlier runs)"
    ]


def test_a_trial_takes_its_budget_at_most(tmp_path: Path) -> None:
    assert said(seeds("a", 0, 1, budget=2.5), tmp_path) == [
        "waves: 2 runs to do, about 5 minutes on this machine, plus scoring (2 by their budget)"
    ]
    recorded(tmp_path, seeds("a", 0)[0], 1.25)
    assert said(seeds("a", 1, budget=2.5), tmp_path)[0].endswith(
        "about a minute or less on this machine, plus scoring (1 by earlier runs)"
    )


def test_nothing_known_is_said_so(tmp_path: Path) -> None:
    assert said(seeds(NAIVE, 0), tmp_path)[-1] == (
        "waves: 1 run to do, of unknown length: no earlier run of them is recorded"
    )


def test_timed_steps_tell_the_length_of_the_whole_training(caplog: pytest.LogCaptureFixture) -> None:
    panel = small.panel()
    began = time.monotonic()
    short, long = (timed_minutes(Prepared(network(epochs=epochs), panel, panel)) for epochs in (4_000, 400_000))
    # Far apart, since other work on the machine changes the speed meanwhile.
    assert 10 < long / short < 1_000
    assert 60 * long > 10 * (time.monotonic() - began)
    assert not caplog.records, "that few steps were taken is no news here"


def test_the_command_says_it_before_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "long-waves", experiment(seeds("a", 0, 1)))
    done = logsparse("reproduce", "long-waves", "-o", tmp_path)
    assert done.code == 0, done.err
    assert done.err.splitlines()[:3] == [
        "waves: 2 runs to do; timing a few steps of 1 model",
        "waves: 2 runs to do, about a minute or less on this machine, plus scoring (2 by timing a few steps)",
        "run 1 of 2: waves, t0=24, a, seed 0",
    ]
    assert len(rows(tmp_path, "waves")) == 2
    assert "to do" not in logsparse("reproduce", "long-waves", "-o", tmp_path).err


def test_what_is_timed_does_not_change_the_run(tmp_path: Path) -> None:
    found = []
    for name, prepared in (("timed", prepare), ("not", None)):
        _run(replace(experiment(seeds("a", 0)), prepare=prepared), ["a"], 1, None, tmp_path / name)
        (row,) = rows(tmp_path / name, "waves")
        found.append((row["steps"], row["validation_nll"]))
    assert found[0] == found[1]
