"""Experiments + a folder of results -> figures as FOLDER/NAME.svg."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logsparse.attention.pattern import full, local, logsparse, restart
from logsparse.data.calendar import Freq
from logsparse.errors import DataError
from logsparse.paper.catalogue import DATASETS, DataSet, step_in_words
from logsparse.paper.claims import CLAIMS_TABLE
from logsparse.paper.curves import CURVES, LEARNED, MATRIX
from logsparse.paper.experiment import Experiment, Table, Traces, anything, never, nothing_known, nothing_to_run
from logsparse.paper.ledger import Row, Run, run_of, unfinished
from logsparse.paper.long_waves import LONG_WAVES
from logsparse.paper.prepare import compare, how_to_get, load, locate
from logsparse.paper.shapes import MATCHING
from logsparse.paper.synthetic import SYNTHETIC
from logsparse.paper.tables import TABLES_OF_THE_PAPER
from logsparse.pictures import INK, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH = 16
KINDS = {
    "full": full(),
    "LogSparse": logsparse(),
    "local + LogSparse": local(4),
    "restart + local + LogSparse": restart(8),
}


def tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """Return the cells of each kind of attention and the layers it needs."""
    lines = [
        [name, str(kind.cells(LENGTH)), str(kind.row_cells(LENGTH)), str(kind.layers_to_reach(LENGTH))]
        for name, kind in KINDS.items()
    ]
    title = f"Figure 3, kinds of attention, length {LENGTH}"
    return [Table(title, ["kind", "cells", "fullest row", "layers to reach"], lines)]


def figure(_rows: Sequence[Row], _traces: Traces) -> Figure:
    """Draw one panel per kind: rows of cells, the input lowest, and the paths into the last cell."""
    from matplotlib.figure import Figure

    from logsparse.attention.draw import draw_reach

    drawn = Figure(figsize=(13, 8), layout="constrained")
    for letter, axes, (name, kind) in zip("abcd", drawn.subplots(2, 2).flat, KINDS.items(), strict=True):
        draw_reach(axes, kind, LENGTH)
        axes.set_title(f"({letter}) {name}\n{axes.get_title(loc='left')}", loc="left", fontsize=10, color=INK)
    return drawn


ATTENTION_KINDS = Experiment(
    "attention-kinds",
    (),
    nothing_to_run,
    nothing_known,
    never,
    tables,
    figure,
    shows="Figure 3, four kinds of attention",
)


_WHAT = ("T", "M", "S")
_HEAD = ["set", *(f"{what} {where}" for what in _WHAT for where in ("paper", "here")), "note"]


def statistics_tables(_rows: Sequence[Row], _traces: Traces) -> list[Table]:
    """Return all sets of the paper, and the other sets that are available."""
    lines = [_line(one) for one in DATASETS if one.paper or locate(one) is not None]
    return [Table("Table 5, data sets: T steps, M series, S sample rate", _HEAD, lines)]


def _line(dataset: DataSet) -> list[str]:
    here, note = dict.fromkeys(_WHAT, "-"), f"no data: {how_to_get(dataset)}"
    if locate(dataset) is not None:
        try:
            findings = {finding.what: finding for finding in compare(dataset, load(dataset.name))}
        except DataError as error:
            # One file that cannot be read costs its own line, not the table.
            return _set_line(dataset, here, str(error))
        here = {what: findings[what].here for what in _WHAT}
        differ = [what for what, finding in findings.items() if not finding.agrees]
        note = f"differs from what is expected in: {', '.join(differ)}" if differ else dataset.note
    return _set_line(dataset, here, note)


def _set_line(dataset: DataSet, here: Mapping[str, str], note: str) -> list[str]:
    return [dataset.name, *(cell for what in _WHAT for cell in (_theirs(dataset, what), here[what])), note]


def _theirs(dataset: DataSet, what: str) -> str:
    if not dataset.paper:
        return "-"
    known = {"T": "/".join(map(str, dataset.lengths)), "M": str(dataset.series)}
    return known.get(what) or step_in_words(str(Freq.parse(dataset.step)))


STATISTICS = Experiment("statistics", (), nothing_to_run, nothing_known, never, statistics_tables)


FIGURES_OF_THE_PAPER = [MATCHING, LEARNED, ATTENTION_KINDS, CURVES, MATRIX]
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (SYNTHETIC, *TABLES_OF_THE_PAPER, LONG_WAVES, STATISTICS, *FIGURES_OF_THE_PAPER, CLAIMS_TABLE)
}


def draw(experiment: Experiment, folder: Path) -> Path | None:
    """Draw from what is recorded, without training; return None where there is nothing to draw."""
    found = experiment.recorded(folder)
    if experiment.figure is None or (experiment.models and not found):
        return None
    drawn = experiment.figure(found, experiment.traced(folder)[0])
    if drawn is None:
        return None
    save_figure(drawn, path(experiment, folder))
    return path(experiment, folder)


def path(experiment: Experiment, folder: Path) -> Path:
    """Return the path of its figure."""
    return folder / f"{experiment.name}.svg"


def figures(experiments: Iterable[Experiment], folder: Path) -> Table:
    """Return a table of all figures: drawn, or what is missing and how to get it."""
    drawn = sorted((one for one in experiments if one.figure is not None), key=lambda one: one.shows)
    lines = [[one.name, one.shows, _state_if_known(one, folder)] for one in drawn]
    return Table("Figures", ["name", "figure", "here"], lines)


def state(experiment: Experiment, folder: Path) -> str:
    """Return the state of a figure in words, with the command that draws it."""
    command = f"`logsparse reproduce {experiment.name}{'' if folder == Path('results') else f' -o {folder}'}`"
    runs = experiment.runs(None, experiment.models)
    todo, there = unfinished(folder, runs), path(experiment, folder).exists()
    if there:
        rest = f", {_count(todo, runs)} still to do: {command}" if todo else ""
        return f"{path(experiment, folder)}{rest}{without(experiment, folder)}"
    if experiment.models and not runs:
        return "no data: `logsparse data list` says how to get them"
    if todo:
        return f"{_count(todo, runs)} still to do: {command}"
    if not drawable(experiment, folder):
        again = f"`logsparse reproduce {experiment.name} -o ANOTHER`"
        return f"no traces of its runs, whose scores stay: {again}, copy ANOTHER/traces here, then {command}"
    return f"not drawn yet: {command}"


def without(experiment: Experiment, folder: Path) -> str:
    """Return the recorded models that the figure cannot show, in words: their traces are gone or unusable."""
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
    """Return True if the recorded runs left what the figure needs."""
    found, (traces, _) = experiment.recorded(folder), experiment.traced(folder)
    return experiment.figure is not None and experiment.figure(found, traces) is not None


def _count(todo: list[Run], runs: list[Run]) -> str:
    return f"{len(todo)} of {len(runs)} runs"
