"""Experiments + a folder of results -> their figures as FOLDER/NAME.svg; which are there, and how to get the others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from logsparse.pictures import save_figure
from logsparse.tasks.experiment import Experiment, Table
from logsparse.tasks.ledger import Run, missing


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
    lines = [[one.name, one.shows, state(one, folder)] for one in drawn]
    return Table("Figures", ["name", "figure", "here"], lines)


def state(experiment: Experiment, folder: Path) -> str:
    """In words, with the command to give."""
    command = f"`logsparse reproduce {experiment.name}{'' if folder == Path('results') else f' -o {folder}'}`"
    runs = experiment.runs(1, experiment.models)
    todo, there = missing(folder, runs), path(experiment, folder).exists()
    if there:
        return f"{path(experiment, folder)}" + (f", {_count(todo, runs)} still to do: {command}" if todo else "")
    if experiment.models and not runs:
        return "the data are not here: `logsparse data list` tells how to get them"
    if todo:
        return f"{_count(todo, runs)} still to do: {command}"
    if not drawable(experiment, folder):
        again = f"`logsparse reproduce {experiment.name} -o ANOTHER`"
        return f"no traces of its runs, whose scores stay: {again}, copy ANOTHER/traces here, then {command}"
    return f"not drawn yet: {command}"


def drawable(experiment: Experiment, folder: Path) -> bool:
    """Whether the recorded runs left what the figure needs."""
    found, (traces, _) = experiment.recorded(folder), experiment.traced(folder)
    return experiment.figure is not None and experiment.figure(found, traces) is not None


def _count(todo: list[Run], runs: list[Run]) -> str:
    return f"{len(todo)} of {len(runs)} runs"
