"""Experiments + a folder of results -> their figures as FOLDER/NAME.svg; which are there, and how to get the others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from logsparse.errors import DataError
from logsparse.pictures import save_figure
from logsparse.tasks.experiment import Experiment, Table
from logsparse.tasks.ledger import Run, run_of, unfinished
from logsparse.tasks.traces import anything


def draw(experiment: Experiment, folder: Path) -> Path | None:
    """From what is recorded, without a training; None where nothing is left to draw."""
    found = experiment.recorded(folder)
    if experiment.figure is None or (experiment.models and not found):
        return None
    drawn = experiment.figure(found, experiment.traced(folder)[0])
    if drawn is None:
        return None
    save_figure(drawn, path(experiment, folder))
    return path(experiment, folder)


def path(experiment: Experiment, folder: Path) -> Path:
    """Where its figure is."""
    return folder / f"{experiment.name}.svg"


def figures(experiments: Iterable[Experiment], folder: Path) -> Table:
    """Every figure of the paper: there, or what is missing and how to get it."""
    drawn = sorted((one for one in experiments if one.figure is not None), key=lambda one: one.shows)
    lines = [[one.name, one.shows, _state_if_known(one, folder)] for one in drawn]
    return Table("Figures", ["name", "figure", "here"], lines)


def state(experiment: Experiment, folder: Path) -> str:
    """In words, with the command to give."""
    command = f"`logsparse reproduce {experiment.name}{'' if folder == Path('results') else f' -o {folder}'}`"
    runs = experiment.runs(None, experiment.models)
    todo, there = unfinished(folder, runs), path(experiment, folder).exists()
    if there:
        rest = f", {_count(todo, runs)} still to do: {command}" if todo else ""
        return f"{path(experiment, folder)}{rest}{without(experiment, folder)}"
    if experiment.models and not runs:
        return "the data are not here: `logsparse data list` tells how to get them"
    if todo:
        return f"{_count(todo, runs)} still to do: {command}"
    if not drawable(experiment, folder):
        again = f"`logsparse reproduce {experiment.name} -o ANOTHER`"
        return f"no traces of its runs, whose scores stay: {again}, copy ANOTHER/traces here, then {command}"
    return f"not drawn yet: {command}"


def without(experiment: Experiment, folder: Path) -> str:
    """In words, the recorded runs that it cannot show: what they left is gone, or cannot be used."""
    if experiment.fits is anything:
        return ""
    left, runs = experiment.traced(folder)[0], set(experiment.runs(None, experiment.models))
    trained = {run_of(row) for row in experiment.recorded(folder) if row["steps"]}
    shown = [run.model for run in sorted(trained & runs, key=str) if (run.case, run.model) not in left]
    lacking = list(dict.fromkeys(shown))
    return f", without {', '.join(lacking)}, of which there is no trace" if lacking else ""


def _state_if_known(experiment: Experiment, folder: Path) -> str:
    try:
        return state(experiment, folder)
    except DataError:
        return "not known: its results cannot be read"


def drawable(experiment: Experiment, folder: Path) -> bool:
    """Whether the recorded runs left what the figure needs."""
    found, (traces, _) = experiment.recorded(folder), experiment.traced(folder)
    return experiment.figure is not None and experiment.figure(found, traces) is not None


def _count(todo: list[Run], runs: list[Run]) -> str:
    return f"{len(todo)} of {len(runs)} runs"
