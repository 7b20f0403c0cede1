"""Which figures exist, what the others need, and that a figure is redrawn without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logsparse.paper.experiment import Experiment, Table, Traces, keep, never, nothing_known, nothing_to_run
from logsparse.paper.figures import draw, figures, state, without
from logsparse.paper.ledger import Identity, Row, Run, record
from logsparse.pictures import new_figure

FACTS: dict[str, Any] = {"R0.5": 0.1, "R0.9": 0.05, "validation_nll": 1.5, "steps": 7, "minutes": 2.0}
KNOWN = Identity({}, "abc")
RUNS = [Run("waves", "x", model) for model in "ab"]


def _tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    return []


def _figure(_rows: Sequence[Row], traces: Traces) -> Any:
    return new_figure()[0] if traces else None


def experiment(runs: Sequence[Run] = RUNS, models: tuple[str, ...] = ("a", "b")) -> Experiment:
    wanted = lambda _seeds, _models, _budget=None: list(runs)  # noqa: E731
    return Experiment("waves", models, wanted, nothing_known, never, _tables, _figure, "Figure 9, waves")


def test_a_figure_is_listed_from_its_first_run_to_its_picture(tmp_path: Path) -> None:
    command = f"`logsparse reproduce waves -o {tmp_path}`"
    assert state(experiment(), tmp_path) == f"2 of 2 runs still to do: {command}"
    keep(tmp_path, RUNS[0], {"weights": [1]})
    record(tmp_path, RUNS[0], KNOWN, FACTS)
    assert state(experiment(), tmp_path) == f"1 of 2 runs still to do: {command}"
    assert draw(experiment(), tmp_path) == tmp_path / "waves.svg"
    assert state(experiment(), tmp_path) == f"{tmp_path / 'waves.svg'}, 1 of 2 runs still to do: {command}"
    record(tmp_path, RUNS[1], KNOWN, FACTS)
    assert state(experiment(), tmp_path) == f"{tmp_path / 'waves.svg'}, drawn from other runs: {command}"
    draw(experiment(), tmp_path)
    assert state(experiment(), tmp_path) == str(tmp_path / "waves.svg")
    (tmp_path / "waves.svg").unlink()
    assert state(experiment(), tmp_path) == f"not drawn yet: {command}"


def test_a_figure_says_which_of_its_recorded_runs_it_cannot_show(tmp_path: Path) -> None:
    shown = replace(experiment(), fits=lambda trace: "weights" in trace)
    for run in RUNS:
        keep(tmp_path, run, {"weights": [1]})
        record(tmp_path, run, KNOWN, FACTS)
    draw(shown, tmp_path)
    assert state(shown, tmp_path) == str(tmp_path / "waves.svg")
    (tmp_path / "traces" / f"{RUNS[1].folder}.json").unlink()
    assert without(shown, tmp_path) == ", without b, of which there is no trace"
    draw(shown, tmp_path)
    assert state(shown, tmp_path) == f"{tmp_path / 'waves.svg'}, without b, of which there is no trace"


def test_rows_without_traces_and_sets_that_are_not_here_are_said(tmp_path: Path) -> None:
    assert state(experiment([]), tmp_path).startswith("no data: `logsparse data list`")
    for run in RUNS:
        record(tmp_path, run, KNOWN, FACTS)
    assert state(experiment(), tmp_path).startswith("no traces of its runs, whose scores stay: `logsparse repro")
    assert draw(experiment(), tmp_path) is None


def test_the_list_has_experiments_with_a_figure_in_the_order_of_the_paper(tmp_path: Path) -> None:
    early = Experiment("early", (), nothing_to_run, nothing_known, never, _tables, _figure, "Figure 1, early")
    table = Experiment("table", (), nothing_to_run, nothing_known, never, _tables)
    found = figures([experiment(), early, table], tmp_path)
    assert [line[1] for line in found.lines] == ["Figure 1, early", "Figure 9, waves"]
    assert draw(table, tmp_path) is None


def test_a_figure_whose_results_cannot_be_read_is_listed_as_such(tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text("a,b\n")
    assert figures([experiment()], tmp_path).lines[0][2] == "not known: its results cannot be read"


def test_what_has_no_runs_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is no run of this experiment"):
        never(RUNS[0], folder=tmp_path)
