"""`logsparse reproduce`: runs are recorded, go on where they stopped, and are shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from command import logsparse, refusal
from logsparse.commands.reproduce import NAMES
from logsparse.tasks import synthetic
from logsparse.tasks.catalogue import EXPERIMENTS
from logsparse.tasks.ledger import record


def test_what_is_recorded_is_not_run_again_and_is_shown(tmp_path: Path) -> None:
    facts = {"R0.5": 0.0125, "R0.9": 0.006, "validation_nll": 1.0, "steps": 9, "minutes": 1.0, "config": {}}
    for run in synthetic.runs(1, ["deepar-20"]):
        record(tmp_path, run, facts)
    done = logsparse("reproduce", "synthetic", "--model", "deepar-20", "-o", tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:3] == ["Synthetic study, R0.5", "t0   deepar-20", "24      0.0125"]
    assert "run 1" not in done.err
    assert (tmp_path / "synthetic.svg").exists()
    shown = logsparse("reproduce", "synthetic", "--show", "-o", tmp_path).out
    assert shown.startswith(done.out)
    assert f"synthetic  Figure 4(b), error against t0  {tmp_path / 'synthetic.svg'}" in shown


def test_nothing_recorded_is_said_so_and_what_to_do_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", str(tmp_path))
    done = logsparse("reproduce", "--show", "-o", tmp_path)
    assert done.code == 0
    assert "main: nothing is recorded" in done.err
    lines = done.out.splitlines()
    assert "the data are not here" in next(line for line in lines if line.startswith("traffic-c "))
    matching = next(line for line in lines if "Figure 1," in line)
    assert f"2 of 2 runs still to do: `logsparse reproduce matching -o {tmp_path}`" in matching
    assert "the data are not here" in next(line for line in lines if "Figure 5," in line)
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
    assert "the data are not here" in next(line for line in done.out.splitlines() if "wind" in line)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "An experiment must be one of: synthetic, main, kernels, sparse, granularities, statistics, matching,"),
        (["synthetik"], "did you mean 'synthetic'?"),
        (["synthetic", "--model", "deepar-30"], "did you mean 'deepar-"),
        (["statistics", "--model", "a"], "statistics has no models to run. Got 'a'. Hint: leave --model out."),
        (["sparse", "--budget", "0"], "--budget must be a number above 0. Got 0.0."),
        (["synthetic", "--seeds", "0"], "seeds must be at least 1. Got 0."),
    ],
)
def test_a_mistake_is_one_line(words: list[str], text: str, tmp_path: Path) -> None:
    assert text in refusal("reproduce", *words, "-o", tmp_path)
