"""A run and its identity -> one row of FOLDER/TASK.csv with all that is needed to repeat it; rows -> runs.

A run is identified by its cell, seed, budget, whole config and a fingerprint of its data. A setting of a network that
an earlier version did not have counts as its default, as in a model that it saved. A run under a budget is a
trial and never counts as finished. Rows of version 0.1.0 do not record their data: they never count as finished, and
are shown until the run has been repeated.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from logsparse.config import Config
from logsparse.errors import ConfigError, DataError
from logsparse.storage import lock, make_folder, write_whole, writing

_FACTS = ("R0.5", "R0.9", "validation_nll", "steps", "minutes")
COLUMNS = ("task", "case", "model", "seed", "budget", *_FACTS, "config", "data", "version", "machine", "time")
_NO_BUDGET = "none"
# What the config of a network has, and that of a baseline does not.
_NETWORK = {"context", "model", "train"}

Row = dict[str, str]


@dataclass(frozen=True)
class Run:
    """One seed of one cell of a table."""

    task: str
    case: str
    """Row of the table, such as t0=96."""
    model: str
    seed: int = 0
    budget: float | None = None
    """Time limit of a trial, in minutes of training; None: all epochs."""

    def __str__(self) -> str:
        limit = "" if self.budget is None else f", trial of {_minutes(self.budget)} minutes"
        return f"{self.task}, {self.case}, {self.model}, seed {self.seed}{limit}"

    @property
    def folder(self) -> str:
        """Name of the folder of its checkpoints."""
        # The decimal point stays: 2.5 and 25 minutes are different trials.
        return re.sub(r"[^a-z0-9.]+", "-", str(self).lower()).strip("-")


@dataclass(frozen=True)
class Identity:
    """What all seeds of a cell must have in common."""

    config: Mapping[str, Any]
    """Every setting that scores depend on, as plain JSON."""
    data: str
    """Fingerprint of all series used for training or scoring."""

    @property
    def text(self) -> str:
        """The config as canonical JSON."""
        return json.dumps(self.config, sort_keys=True)


def rows(folder: Path, task: str) -> list[Row]:
    """Return the rows of a task, oldest first; a run that was recorded twice counts once."""
    path = folder / f"{task}.csv"
    found = _cells(path) if path.exists() else []
    for row in found:
        if row["task"] != task:
            raise _refuse(path, f"a row of {row['task'] or 'no task'}")
        if not _counts(row):
            bad = "a score, seed, budget or number of steps that is not a non-negative number"
            raise _refuse(path, f"{bad}, for {row['case']}, {row['model']}")
        if not _are_settings(row["config"]):
            raise _refuse(path, f"no settings of its model in the column config, for {row['case']}, {row['model']}")
    agreed: dict[Run, Row] = {}
    first: dict[tuple[Run, str], Row] = {}
    for row in found:
        run = run_of(row)
        if row["data"]:
            _check_agreement(path, run, _settings(row["config"], row["data"]), agreed.setdefault(_cell(run), row))
        first.setdefault((run, row["data"]), row)
    return list(first.values())


def counted(found: Sequence[Row]) -> list[Row]:
    """Return the rows that tables show: no trials; rows without data only where the cell has no finished run."""
    whole = [row for row in found if row["budget"] == _NO_BUDGET]
    finished = {_cell(run_of(row)) for row in whole if row["data"]}
    return [row for row in whole if row["data"] or _cell(run_of(row)) not in finished]


def trials(found: Sequence[Row]) -> list[Row]:
    """Return the rows of runs under a budget."""
    return [row for row in found if row["budget"] != _NO_BUDGET]


def _cells(path: Path) -> list[Row]:
    """Read every row; each must have all columns."""
    try:
        # A blank file has no rows.
        if not (text := path.read_bytes().decode()).strip():
            return []
        reader = csv.DictReader(io.StringIO(text, newline=""))
        names, found = tuple(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise _refuse(path, f"content that cannot be read ({getattr(error, 'strerror', None) or error})") from error
    # The order counts too: rows are appended in it.
    if names != COLUMNS:
        raise _refuse(path, f"the columns {', '.join(names)[:80]}")
    for number, row in enumerate(found, start=1):
        if None in row or None in row.values():
            raise _refuse(path, f"too few or too many cells in row {number}")
    return found


def run_of(row: Row) -> Run:
    """Return the run of a row."""
    budget = None if row["budget"] == _NO_BUDGET else float(row["budget"])
    return Run(row["task"], row["case"], row["model"], int(row["seed"]), budget)


def _cell(run: Run) -> Run:
    """The key shared by all seeds of a cell."""
    return replace(run, seed=0)


def _check_agreement(path: Path, run: Run, settings: Mapping[str, str], row: Row) -> None:
    """Raise unless the run agrees with a row of its cell in everything but the seed."""
    recorded = _settings(row["config"], row["data"])
    for name in sorted({*settings, *recorded}):
        ours, theirs = settings.get(name, "unknown"), recorded.get(name, "unknown")
        if ours != theirs:
            raise DataError(
                f"{run} must have the config and data of the rows of its cell in {path}.",
                got=f"{name} {ours}, and {theirs} in the row of seed {row['seed']}",
                hint="record other settings or data in another folder (-o FOLDER), or move those rows away.",
            )


def _settings(config: str, data: str) -> dict[str, str]:
    """Every setting by its dotted name, such as train.lr, and the fingerprint of the data."""
    found = json.loads(config)
    if found.keys() >= _NETWORK:
        usual = Config(context=1, horizon=1).to_dict()
        found = {**usual, **found, **{part: {**usual[part], **found[part]} for part in ("model", "train")}}

    def flat(part: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
        for name, value in part.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{before}{name}.")
            else:
                yield before + name, json.dumps(value, sort_keys=True)

    return {**dict(flat(found, "")), "data": data}


def _refuse(path: Path, got: str) -> DataError:
    return DataError(
        f"{path} must hold complete rows of {', '.join(COLUMNS)}.",
        got=got,
        hint="repair it, or move it away: its runs are then repeated.",
    )


def _counts(row: Row) -> bool:
    """True if all numeric columns parse; a point forecast has no R0.9, an untrained model no loss."""
    try:
        figures = [float(row[name]) for name in ("R0.5", "minutes")] + [float(row["R0.9"] or 0)]
        loss, seed = float(row["validation_nll"] or 0), int(row["seed"])
        budget = math.inf if row["budget"] == _NO_BUDGET else float(row["budget"])
        steps = int(row["steps"] or 0)
    except ValueError:
        return False
    # Seed and budget have one spelling only: 00 and 0 would count as different runs.
    written = (str(seed), _budget_text(None if math.isinf(budget) else budget)) == (row["seed"], row["budget"])
    return min(*figures, seed, steps) >= 0 and budget > 0 and all(map(math.isfinite, [*figures, loss])) and written


def _budget_text(budget: float | None) -> str:
    return _NO_BUDGET if budget is None else _minutes(budget)


def _minutes(budget: float) -> str:
    """All digits, since a rounded budget is that of another trial."""
    return repr(float(budget)).removesuffix(".0")


def _are_settings(text: str) -> bool:
    """True for an object whose parts for network and training, if it has them, are such."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in ("model", "train")):
        return False
    try:
        Config.from_dict({"context": 1, "horizon": 1, "train": found.get("train", {})})
    except ConfigError:
        return False
    return True


def missing(folder: Path, runs: Mapping[Run, Identity]) -> list[Run]:
    """Return the runs that are not recorded yet, in their order; raise if one disagrees with the rows of its cell."""
    found = {task: _identified(folder, task) for task in {run.task for run in runs}}
    for run, identity in runs.items():
        same = [row for row in found[run.task] if _cell(run_of(row)) == _cell(run)]
        if same:
            settings = _settings(identity.text, identity.data)
            _check_agreement(folder / f"{run.task}.csv", run, settings, same[0])
    return unfinished(folder, list(runs))


def unfinished(folder: Path, runs: Sequence[Run]) -> list[Run]:
    """Return the runs without an identified row, whatever its settings, in their order."""
    done = {run_of(row) for task in {run.task for run in runs} for row in _identified(folder, task)}
    return [run for run in runs if run not in done]


def _identified(folder: Path, task: str) -> list[Row]:
    return [row for row in rows(folder, task) if row["data"]]


def best(rows: Sequence[Row]) -> Row | None:
    """Return the seed with the lowest validation loss, as the paper does; None without rows."""
    return min(rows, key=lambda row: float(row["validation_nll"] or "inf")) if rows else None


def record(folder: Path, run: Run, identity: Identity, facts: Mapping[str, Any]) -> None:
    """Append a row atomically, unless another process has recorded the run."""
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in facts.items()}
    row = {
        "task": run.task,
        "case": run.case,
        "model": run.model,
        "seed": str(run.seed),
        "budget": _budget_text(run.budget),
        **{name: shown.get(name, "") for name in _FACTS},
        "config": identity.text,
        "data": identity.data,
        "version": f"logsparse {version('logsparse')}",
        "machine": machine(),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
    }
    if not _counts({name: "" if cell is None else str(cell) for name, cell in row.items()}):
        raise DataError(
            "The scores of a run must be finite numbers.",
            got=f"R0.5 {row['R0.5']}, R0.9 {row['R0.9']}, validation_nll {row['validation_nll']} of {run}",
            hint="check its data for extreme values; nothing is recorded.",
        )
    path = folder / f"{run.task}.csv"
    with writing("The table of results", path):
        make_folder(folder)
    with lock(folder):
        # Read first: a file that is not a table of results is refused and left as it is.
        if not missing(folder, {run: identity}):
            return
        with writing("The table of results", path):
            before = path.read_bytes() if path.exists() else b""
        if not before.strip():
            before = _line(COLUMNS)
        elif not before.endswith(b"\n"):
            before += b"\n"
        write_whole(path, before + _line(list(row.values())), "The table of results")


def _line(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def machine() -> str:
    """Return processor and cores as a string for file names."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    name = found[1] if found else platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {os.cpu_count()} cores".lower()).strip("-")
