"""Experiment: what every table or figure of the paper offers; and what a run leaves for a figure.

The head is not chosen by hand: it is the one with the largest sum of squared weights on cells a day or more back.
Such a head looks far, and at few cells; one that looks at itself alone, or at all cells alike, scores next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from logsparse.attention.maps import Attention
from logsparse.checks import is_number, is_whole
from logsparse.data.columns import CUTOFF, ID, TARGET
from logsparse.data.panel import Floats, Panel
from logsparse.errors import DataError
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.paper.ledger import Identity, Row, Run, best, counted, rows, run_of, trials
from logsparse.storage import check_document, pack_document, read_file, unpack_object, write_whole
from logsparse.train.checkpoint import fingerprint
from logsparse.train.loop import INTERRUPTED

Traces = Mapping[tuple[str, str], Mapping[str, Any]]
"""By case and model."""
NO_TRACES: Traces = {}
Fits = Callable[[Mapping[str, Any]], bool]
"""Whether a trace has what a figure reads."""


def keep(folder: Path, run: Run, trace: Mapping[str, Any]) -> None:
    """One file a run that says whose it is; whole at every moment."""
    content = {"run": _named(run), "version": f"logsparse {version('logsparse')}", "trace": trace}
    write_whole(_path(folder, run), pack_document(content, indent=None), "A trace")


def anything(_trace: Mapping[str, Any]) -> bool:
    """For a figure that looks for its parts itself."""
    return True


def traces(folder: Path, rows: Sequence[Row], fits: Fits = anything) -> tuple[Traces, list[DataError]]:
    """Of the recorded runs that left one; of several seeds, that of the lowest validation loss.

    One that cannot be used is told and left out: it costs a figure one of its lines, and no score.
    """
    left: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if _path(folder, run_of(row)).exists():
            left.setdefault((row["case"], row["model"]), []).append(row)
    whole: dict[tuple[str, str], Mapping[str, Any]] = {}
    refused = []
    for cell, seeds in left.items():
        found = best(seeds)
        assert found is not None, "every cell has a row"
        try:
            whole[cell] = _read(folder, run_of(found), fits)
        except DataError as error:
            refused.append(error)
    return whole, refused


def seed_traces(folder: Path, rows: Sequence[Row], fits: Fits = anything) -> tuple[Traces, list[DataError]]:
    """Return the traces of every seed of a cell, by seed, and the errors of those that cannot be used."""
    whole: dict[tuple[str, str], dict[str, Any]] = {}
    refused = []
    for row in rows:
        if _path(folder, run_of(row)).exists():
            try:
                trace = _read(folder, run_of(row), fits)
            except DataError as error:
                refused.append(error)
            else:
                whole.setdefault((row["case"], row["model"]), {})[row["seed"]] = trace
    return whole, refused


def plain(values: Any) -> list[Any]:
    """An array as JSON keeps it: four digits, which no eye tells from all, and None where nothing is known."""
    if np.ndim(values) > 1:
        return [plain(row) for row in values]
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def array(values: Sequence[Any]) -> Any:
    """What `plain` was given."""
    return np.array(values, float)


def are_numbers(values: Any, count: int | None = None, *, holes: bool = False) -> bool:
    """Whether it is a list of numbers, at least one or `count` of them, among which None may stand for a hole."""
    if not isinstance(values, list) or (len(values) == 0 if count is None else len(values) != count):
        return False
    return all(is_number(value) or (holes and value is None) for value in values)


def are_places(values: Any, below: int) -> bool:
    """Whether it is a list of whole numbers from 0 on, all of them below this one; there may be none."""
    return isinstance(values, list) and all(is_whole(value) and 0 <= value < below for value in values)


def _named(run: Run) -> dict[str, Any]:
    """As a trace says it: a budget only where there is one."""
    return {name: value for name, value in asdict(run).items() if value is not None}


def _path(folder: Path, run: Run) -> Path:
    return folder / "traces" / f"{run.folder}.json"


def _read(folder: Path, run: Run, fits: Fits) -> Mapping[str, Any]:
    path = _path(folder, run)
    content = check_document(path, unpack_object(path, read_file(path, _refuse), _refuse), _refuse)
    if content.get("run") != _named(run):
        raise _refuse(path, "that of another run")
    trace = content.get("trace")
    if not isinstance(trace, dict) or not fits(trace):
        raise _refuse(path, "content that its figure cannot be drawn from")
    return trace


def _refuse(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} must hold what its run left for a figure.",
        got=reason,
        hint=f"no score needs it; for its figure, run the same with -o ANOTHER and copy {path.name} from there.",
    )


# Paths drawn for every forecast that is scored; it is part of what a recorded run is known by.
SAMPLES = 100
# Seed and budget identify a run beside its config; the others change no score.
_NO_SETTINGS = ("seed", "minutes", "device", "processes", "verbose")
# Half of a sha256: panels that differ have another one, and a person can compare two of them.
_DIGITS = 32


def known_by(forecaster: Forecaster, learned_from: Panel, *data: Panel) -> Identity:
    """All its settings, those included that follow from what it learns from, and a fingerprint of all data."""
    settings = {name: value for name, value in forecaster.settings().items() if name not in _NO_SETTINGS}
    if isinstance(forecaster, LogSparse):
        config = forecaster.config or forecaster.plan(learned_from).config
        del settings["config"]
        settings |= config.to_dict()
    prints = " ".join(fingerprint(panel) for panel in data)
    # A trip through JSON turns tuples into lists, as a reader of the row will find them.
    return Identity(json.loads(json.dumps(settings)), sha256(prints.encode()).hexdigest()[:_DIGITS])


def facts_of(model: LogSparse) -> dict[str, Any]:
    """Every trained run leaves its curve. Interrupted, there is nothing to tell yet: it goes on another time."""
    story = model.history_
    if story.ended == INTERRUPTED:
        raise KeyboardInterrupt
    return {
        "validation_nll": story.best,
        "steps": int(story.rows[-1]["step"]),
        "minutes": story.seconds / 60,
        "trace": {
            "curve": {
                "step": [int(row["step"]) for row in story.rows],
                **{name: plain([row[name] for row in story.rows]) for name in ("nll", "validation_nll")},
            }
        },
    }


def losses(results: pl.DataFrame) -> dict[str, Any]:
    """Quantile losses per forecast start, or per series where there is one start only: what a bootstrap resamples.

    R of any set of them is the sum of its losses over the sum of `size`.
    """
    starts, series = results[CUTOFF].n_unique(), results[ID].n_unique()
    # Series that end at different times have starts of their own, one each.
    rolling = results.select(ID, CUTOFF).n_unique() > series
    by = CUTOFF if starts > 1 and (rolling or starts < series) else ID
    scores: pl.DataFrame = score(results, by=by)
    sizes = results.group_by(by).agg(size=pl.col(TARGET).abs().sum())
    table = scores.join(sizes, on=by, how="left", maintain_order="left")
    kept = [name for name in ("R0.5", "R0.9") if name in table.columns]
    return {
        "by": by,
        "of": [str(name) for name in table[by]],
        **{name: [float(f"{value:.7g}") for value in (table[name].fill_null(0.0) * table["size"])] for name in kept},
        "size": [float(f"{value:.7g}") for value in table["size"]],
    }


# L positions of the window, J positions attended to (= L)

LAYERS = (2, 6, 10)
"""Those of the paper's figure, counted from 1."""


def look_of_layers(model: LogSparse) -> dict[str, Any]:
    """The first step of the first series' forecast, in the layers that the paper shows."""
    wanted = [layer for layer in LAYERS if layer <= model.config_.model.layers]
    found = [chosen(model, layer=layer - 1, step=0) for layer in wanted]
    layers = [
        {"layer": layer, "head": head, "weights": plain(look.weights)}
        for layer, (head, look) in zip(wanted, found, strict=True)
    ]
    return {"window": window_of(found[0][1]), "layers": layers}


def look_of_all_positions(model: LogSparse) -> dict[str, Any]:
    """Every position of the first series' window, in the last layer."""
    head, look = chosen(model, layer=model.config_.model.layers - 1, step=None)
    # Row by row up to the position that looks: what lies after it is 0 always.
    rows = [plain(row[: position + 1]) for position, row in enumerate(look.weights)]
    return {"window": window_of(look), "matrix": {"head": head, "weights": rows}}


def whole_matrix(rows: Sequence[Sequence[float]]) -> Floats:
    """(L, J) from its rows up to the position that looks."""
    matrix_LJ = np.zeros((len(rows), len(rows)), np.float32)
    for position, row in enumerate(rows):
        matrix_LJ[position, : len(row)] = row
    return matrix_LJ


def window_of(look: Attention) -> dict[str, Any]:
    """History and mean path, with their times as clocks show them."""
    times = [time.isoformat()[:16] if hasattr(time, "isoformat") else time for time in look.times.to_list()]
    return {"series": look.series, "times": times, "values": plain(look.values), "context": look.context}


def chosen(model: LogSparse, *, layer: int, step: int | None) -> tuple[int, Attention]:
    """The head that the rule names, and its look; a day is the horizon of these sets."""
    looks = [model.attention(layer=layer, head=head, step=step) for head in range(model.config_.model.heads)]
    best = int(np.argmax([long_range_score(look, model.config_.horizon) for look in looks]))
    return best, looks[best]


def long_range_score(look: Attention, far: int) -> float:
    """Sum of squared weights on cells at least so far back; of a matrix the mean over the rows that have such cells."""
    if look.step is not None:
        return float(np.square(look.weights[: max(look.context + look.step + 1 - far, 0)]).sum())
    return float(np.square(np.tril(look.weights, -far)[far:]).sum(1).mean())


if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNIDENTIFIED = "not a finished run: its row does not record its data"
"""What tables note beside such a row."""


class Runs(Protocol):
    """How many seeds of which models, and minutes of training at most -> the runs to do.

    Without a number of seeds, as many as each model has by default. A model that is not trained has no budget.
    """

    def __call__(
        self, seeds: int | None, models: Sequence[str], budget: float | None = None, /
    ) -> list[Run]: ...  # pragma: no cover


class RunExperiment(Protocol):
    """A run and a folder to go on in -> what the ledger records of it.

    Under `trace` it may give what a figure needs beside the row: plain JSON.
    """

    def __call__(self, run: Run, /, *, folder: Path, verbose: bool = True) -> dict[str, Any]: ...  # pragma: no cover


@dataclass(frozen=True)
class Table:
    """What a person reads."""

    title: str
    head: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Experiment:
    """Runs to do, how each is done, and what their rows and traces show; without models there is nothing to run."""

    name: str
    models: tuple[str, ...]
    runs: Runs
    identify: Callable[[Sequence[Run]], dict[Run, Identity]]
    """What each of these runs is known by, before any of them is done; in their order."""
    run: RunExperiment
    tables: Callable[[Sequence[Row], Traces], list[Table]]
    figure: Callable[[Sequence[Row], Traces], Figure | None] | None = None
    """None comes out of it where nothing is left to draw."""
    shows: str = ""
    """What its figure is in the paper."""
    tasks: tuple[str, ...] = ()
    """Whose rows these are, where the same runs serve several experiments; none: its own."""
    sets: tuple[str, ...] = ()
    """Data sets of its runs, each of which is left out where it is not here; none: it makes its own data."""
    fits: Fits = anything
    """Whether a trace has what its figure or tables read."""
    every_seed: bool = False
    """Whether its tables read the traces of every seed."""

    def recorded(self, folder: Path) -> list[Row]:
        """Its rows that count: no trials."""
        return [row for task in self.tasks or (self.name,) for row in counted(rows(folder, task))]

    def trials(self, folder: Path) -> Table:
        """Its runs under a budget, apart: they are no results."""
        found = [
            row
            for task in self.tasks or (self.name,)
            for row in trials(rows(folder, task))
            if row["model"] in self.models
        ]
        names = ("case", "model", "seed", "budget", "R0.5", "R0.9", "steps")
        lines = [[row[name] or "-" for name in names] for row in found]
        return Table(f"Trials of {self.name}: ended by a budget of minutes, no results", list(names), lines)

    def traced(self, folder: Path) -> tuple[Traces, list[DataError]]:
        """Return what its runs left, and the errors of what cannot be used.

        Figures read the best seed of each cell, tables of evidence every seed, other tables nothing.
        """
        if self.every_seed:
            return seed_traces(folder, self.recorded(folder), self.fits)
        return (NO_TRACES, []) if self.figure is None else traces(folder, self.recorded(folder), self.fits)


def nothing_to_run(_seeds: int | None, _models: Sequence[str], _budget: float | None = None) -> list[Run]:
    """The runs of an experiment that has none."""
    return []


def nothing_known(_runs: Sequence[Run]) -> dict[Run, Identity]:
    """The identities of no runs."""
    return {}


def never(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """How a run is done where there is none."""
    del folder, verbose
    raise AssertionError(f"{run} is no run of this experiment")
