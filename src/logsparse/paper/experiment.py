"""Experiment, the interface of every table and figure; traces: what a run leaves in addition to its row.

The attention head that is shown is chosen by rule: the largest sum of squared weights on cells a day or more back. Such
a head attends far back and to few cells; a head that attends to itself or to all cells alike scores close to zero.

`announce` says before the first run about how long all of them take on this machine.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from logsparse.attention.maps import Attention
from logsparse.data.columns import TARGET
from logsparse.data.panel import Floats, Panel
from logsparse.errors import DataError, is_number, is_whole
from logsparse.evaluation.compare import unit_of
from logsparse.evaluation.metrics import score
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.paper.ledger import Identity, Row, Run, best, counted, machine, rows, run_of, trials
from logsparse.storage import check_document, pack_document, read_file, unpack_object, write_whole
from logsparse.train.checkpoint import fingerprint
from logsparse.train.loop import INTERRUPTED, LOSSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# L positions of the window, J positions attended to (= L)

Traces = Mapping[tuple[str, str], Mapping[str, Any]]
"""By case and model."""
NO_TRACES: Traces = {}
Fits = Callable[[Mapping[str, Any]], bool]
"""True if a trace has what a figure reads."""


def keep(folder: Path, run: Run, trace: Mapping[str, Any]) -> None:
    """Write the trace of a run atomically, with the name of the run in it."""
    content = {"run": _named(run), "version": f"logsparse {version('logsparse')}", "trace": trace}
    write_whole(_path(folder, run), pack_document(content, indent=None), "A trace")


def anything(_trace: Mapping[str, Any]) -> bool:
    """Accept every trace: for a figure that selects its parts itself."""
    return True


def traces(folder: Path, rows: Sequence[Row], fits: Fits = anything) -> tuple[Traces, list[DataError]]:
    """Return the trace of each cell, of several seeds the one with the lowest validation loss, and errors.

    A trace that cannot be used is left out and its error returned: it costs a figure one line, and no score.
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
    """Return an array as plain JSON: four significant digits, None for non-finite values."""
    if np.ndim(values) > 1:
        return [plain(row) for row in values]
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def array(values: Sequence[Any]) -> Any:
    """Return the array that `plain` made a list of."""
    return np.array(values, float)


def are_numbers(values: Any, count: int | None = None, *, holes: bool = False) -> bool:
    """Return True for a list of numbers, at least one or exactly `count`; with `holes`, None may stand among them."""
    if not isinstance(values, list) or (len(values) == 0 if count is None else len(values) != count):
        return False
    return all(is_number(value) or (holes and value is None) for value in values)


def are_places(values: Any, below: int) -> bool:
    """Return True for a list, possibly empty, of whole numbers from 0 up to below `below`."""
    return isinstance(values, list) and all(is_whole(value) and 0 <= value < below for value in values)


def _named(run: Run) -> dict[str, Any]:
    """The fields of a run as a trace holds them: without a budget where there is none."""
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
        hint=f"scores stand without it; for figures and claims, run the same with -o ANOTHER and copy {path.name}.",
    )


# Sample paths of every scored forecast; part of the identity of a run.
SAMPLES = 100
# Seed and budget identify a run in addition to its config; the others change no score.
_NO_SETTINGS = ("seed", "steps", "minutes", "device", "processes", "verbose")
# Half of a sha256 is enough to tell panels apart, and short enough to compare by eye.
_DIGITS = 32


def known_by(forecaster: Forecaster, learned_from: Panel, *data: Panel) -> Identity:
    """Return all settings, including those that follow from the training data, and a fingerprint of all data."""
    settings = {name: value for name, value in forecaster.settings().items() if name not in _NO_SETTINGS}
    if isinstance(forecaster, LogSparse):
        config = forecaster.config or forecaster.plan(learned_from).config
        del settings["config"]
        settings |= config.to_dict()
    prints = " ".join(fingerprint(panel) for panel in data)
    # The round trip through JSON turns tuples into lists, as they are read back from a row.
    return Identity(json.loads(json.dumps(settings)), sha256(prints.encode()).hexdigest()[:_DIGITS])


def facts_of(model: LogSparse) -> dict[str, Any]:
    """Return the facts of a finished training and its curve; an interrupted one raises KeyboardInterrupt."""
    history = model.history_
    if history.ended == INTERRUPTED:
        raise KeyboardInterrupt
    # A training resumed from an earlier version lacks some losses of its beginning.
    whole = [name for name in LOSSES if all(name in row for row in history.rows)]
    return {
        "validation_nll": history.best,
        "steps": int(history.rows[-1]["step"]),
        "minutes": history.seconds / 60,
        "trace": {
            "curve": {
                "step": [int(row["step"]) for row in history.rows],
                **{name: plain([row[name] for row in history.rows]) for name in whole},
            }
        },
    }


def losses(results: pl.DataFrame) -> dict[str, Any]:
    """Return quantile losses per forecast start, or per series where there is only one start, for a bootstrap.

    R of any subset is the sum of its losses divided by the sum of its `size`.
    """
    by = unit_of(results)
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


LAYERS = (2, 6, 10)
"""Layers of the paper's figure, counted from 1."""


def attention_of_layers(model: LogSparse) -> dict[str, Any]:
    """Return the attention of the first forecast step of the first series, in the layers that the paper shows."""
    wanted = [layer for layer in LAYERS if layer <= model.config_.model.layers]
    found = [chosen(model, layer=layer - 1, step=0) for layer in wanted]
    layers = [
        {"layer": layer, "head": head, "weights": plain(seen.weights)}
        for layer, (head, seen) in zip(wanted, found, strict=True)
    ]
    return {"window": window_of(found[0][1]), "layers": layers}


def attention_of_all_positions(model: LogSparse) -> dict[str, Any]:
    """Return the attention of every position of the first series' window, in the last layer."""
    head, seen = chosen(model, layer=model.config_.model.layers - 1, step=None)
    # Each row up to its own position: weights after it are always 0.
    rows = [plain(row[: position + 1]) for position, row in enumerate(seen.weights)]
    return {"window": window_of(seen), "matrix": {"head": head, "weights": rows}}


def whole_matrix(rows: Sequence[Sequence[float]]) -> Floats:
    """Return the (L, J) matrix from rows that end at their own position."""
    matrix_LJ = np.zeros((len(rows), len(rows)), np.float32)
    for position, row in enumerate(rows):
        matrix_LJ[position, : len(row)] = row
    return matrix_LJ


def window_of(seen: Attention) -> dict[str, Any]:
    """Return history and mean path with their times."""
    times = [time.isoformat()[:16] if hasattr(time, "isoformat") else time for time in seen.times.to_list()]
    return {"series": seen.series, "times": times, "values": plain(seen.values), "context": seen.context}


def chosen(model: LogSparse, *, layer: int, step: int | None) -> tuple[int, Attention]:
    """Return the head chosen by the rule and its attention; the horizon of these sets is a day."""
    heads = [model.attention(layer=layer, head=head, step=step) for head in range(model.config_.model.heads)]
    best = int(np.argmax([long_range_score(seen, model.config_.horizon) for seen in heads]))
    return best, heads[best]


def long_range_score(seen: Attention, far: int) -> float:
    """Return the sum of squared weights on cells at least `far` back; for a matrix, the mean over its rows."""
    if seen.step is not None:
        return float(np.square(seen.weights[: max(seen.context + seen.step + 1 - far, 0)]).sum())
    return float(np.square(np.tril(seen.weights, -far)[far:]).sum(1).mean())


UNIDENTIFIED = "not a finished run: its row does not record its data"
"""Note beside rows without a data fingerprint."""


class Runs(Protocol):
    """Number of seeds, models and maximal minutes of training -> the runs to do.

    Without a number of seeds, each model has its default number. A model that is not trained has no budget.
    """

    def __call__(
        self, seeds: int | None, models: Sequence[str], budget: float | None = None, /
    ) -> list[Run]: ...  # pragma: no cover


class RunExperiment(Protocol):
    """A run and a folder for its checkpoints -> the facts that the ledger records.

    `trace` may hold what figures and claims need in addition to the row, as plain JSON.
    """

    def __call__(self, run: Run, /, *, folder: Path, verbose: bool = True) -> dict[str, Any]: ...  # pragma: no cover


class Prepared(NamedTuple):
    """What a run trains: an unfitted forecaster, and the series that it learns from and is validated on."""

    forecaster: Forecaster
    training: Panel
    validation: Panel | None = None
    """None: the last part of the others."""


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text."""

    title: str
    head: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Experiment:
    """The runs of a table or figure, how to do one, and how to show rows and traces; without models nothing runs."""

    name: str
    models: tuple[str, ...]
    runs: Runs
    identify: Callable[[Sequence[Run]], dict[Run, Identity]]
    """The identity of each run, computed before any of them is done; in their order."""
    run: RunExperiment
    tables: Callable[[Sequence[Row], Traces], list[Table]]
    figure: Callable[[Sequence[Row], Traces], Figure | None] | None = None
    """Returns None where there is nothing to draw."""
    shows: str = ""
    """Number and subject of its figure in the paper."""
    tasks: tuple[str, ...] = ()
    """Experiments whose rows it shows; empty: its own."""
    sets: tuple[str, ...] = ()
    """Data sets of its runs; a set that is not available is skipped. Empty: it generates its data."""
    fits: Fits = anything
    """Whether a trace has what its figure or tables read."""
    every_seed: bool = False
    """Whether its tables read the traces of every seed."""
    prepare: Callable[[Run], Prepared] | None = None
    """Reads what a run trains, so that a few of its steps can be timed."""

    def recorded(self, folder: Path) -> list[Row]:
        """Return its rows that count: no trials."""
        return [row for task in self.tasks or (self.name,) for row in counted(rows(folder, task))]

    def trials(self, folder: Path) -> Table:
        """Return a table of its runs under a budget, which are not results."""
        found = [
            row
            for task in self.tasks or (self.name,)
            for row in trials(rows(folder, task))
            if row["model"] in self.models
        ]
        names = ("case", "model", "seed", "budget", "R0.5", "R0.9", "steps")
        lines = [[row[name] or "-" for name in names] for row in found]
        return Table(f"Trials of {self.name}: with a budget of minutes, no results", list(names), lines)

    def traced(self, folder: Path) -> tuple[Traces, list[DataError]]:
        """Return what its runs left, and the errors of what cannot be used.

        Figures read the best seed of each cell, tables of evidence every seed, other tables nothing.
        """
        if self.every_seed:
            return seed_traces(folder, self.recorded(folder), self.fits)
        return (NO_TRACES, []) if self.figure is None else traces(folder, self.recorded(folder), self.fits)


def nothing_to_run(_seeds: int | None, _models: Sequence[str], _budget: float | None = None) -> list[Run]:
    """Return no runs."""
    return []


def nothing_known(_runs: Sequence[Run]) -> dict[Run, Identity]:
    """Return no identities."""
    return {}


def never(run: Run, *, folder: Path, verbose: bool = True) -> dict[str, Any]:
    """Refuse to run: for an experiment without runs."""
    del folder, verbose
    raise AssertionError(f"{run} is no run of this experiment")


log = logging.getLogger("logsparse")

# Long enough for several steps of most networks; a step that takes longer is still finished.
_SECONDS = 2.0
_HOUR, _DAY = 60, 24 * 60
ROWS, BUDGET, TIMED = "earlier runs", "their budget", "timing a few steps"


def announce(experiment: Experiment, todo: Mapping[Run, Identity], folder: Path, say: Callable[[str], None]) -> None:
    """Say how many runs there are to do, about how long they take, and what that rests on."""
    runs = f"{experiment.name}: {len(todo):,} {'run' if len(todo) == 1 else 'runs'} to do"
    found = {run: _recorded(run, folder) for run in todo}
    # A model that is not trained has no steps to time.
    untold = {_cell(run): run for run in todo if found[run] is None and "train" in todo[run].config}
    if untold and experiment.prepare:
        say(f"{runs}; timing a few steps of {len(untold):,} {'model' if len(untold) == 1 else 'models'}")
        timed = {cell: timed_minutes(experiment.prepare(run)) for cell, run in untold.items()}
        found = {run: found[run] or ((timed[_cell(run)], TIMED) if _cell(run) in timed else None) for run in todo}
    say(f"{runs}, {_in_words(found)}")


def _cell(run: Run) -> tuple[str, str]:
    return run.case, run.model


def _recorded(run: Run, folder: Path) -> tuple[float, str] | None:
    """Return the usual minutes of the cell on this machine, or the budget if that is less, and what they rest on."""
    found = [
        float(row["minutes"])
        for row in rows(folder, run.task)
        if (row["case"], row["model"]) == _cell(run)
        and run_of(row).budget is None
        # A network that only other machines have run, or only a version that recorded no data, is timed instead.
        and (not row["steps"] or (row["data"] and row["machine"] == machine()))
    ]
    usual = median(found) if found else None
    if run.budget is not None and (usual is None or usual > run.budget):
        return run.budget, BUDGET
    return None if usual is None else (usual, ROWS)


def timed_minutes(prepared: Prepared) -> float:
    """Train for some seconds; return the minutes that the whole training takes."""
    model = prepared.forecaster
    assert isinstance(model, LogSparse), "only a network is timed"
    model.minutes, model.verbose = _SECONDS / 60, False
    plan = model.plan(prepared.training, validation=prepared.validation)
    level = log.level
    log.setLevel(logging.ERROR)  # that few steps were taken is no news
    try:
        history = model.fit(plan).history_
    finally:
        log.setLevel(level)
    if history.ended == INTERRUPTED:
        raise KeyboardInterrupt
    if history.steps >= plan.steps:
        return history.seconds / 60
    # The last validation comes after the last step; those before it are within the time of the steps.
    stepping = history.rows[-1]["seconds"]
    validation = history.seconds - stepping
    step = max(stepping - validation * (len(history.rows) - 1), 0) / history.steps
    train = plan.config.train
    every = min(train.validate_every, max(plan.steps // train.epochs, 1))
    return plan.steps * (step + validation / every) / 60


def _in_words(found: Mapping[Run, tuple[float, str] | None]) -> str:
    known = [estimate for estimate in found.values() if estimate is not None]
    unknown = dict.fromkeys(run.model for run, estimate in found.items() if estimate is None)
    if not known:
        return "of unknown length: no earlier run of them is recorded"
    by = ", ".join(f"{count:,} by {source}" for source, count in Counter(source for _, source in known).items())
    also = f"; unknown and not counted: {', '.join(unknown)}" if unknown else ""
    return f"about {_about(sum(minutes for minutes, _ in known))} on this machine, plus scoring ({by}{also})"


def _about(minutes: float) -> str:
    if minutes < 1.5:
        return "a minute or less"
    for size, name in ((_DAY, "days"), (_HOUR, "hours")):
        if minutes >= 1.5 * size:
            return f"{minutes / size:.2g} {name}"
    return f"{minutes:.0f} minutes"
