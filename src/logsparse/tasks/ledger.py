"""A finished run -> one row of FOLDER/TASK.csv, with all that is needed to run it again; and such rows back."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from logsparse.errors import DataError
from logsparse.storage import make_folder, turn, write_whole, writing

_FACTS = ("R0.5", "R0.9", "validation_nll", "steps", "minutes", "config")
COLUMNS = ("task", "case", "model", "seed", *_FACTS, "version", "machine", "time")

Row = dict[str, str]


@dataclass(frozen=True)
class Run:
    """One cell of a table."""

    task: str
    case: str
    """Where in the table, such as t0=96."""
    model: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.task}, {self.case}, {self.model}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """A name for its checkpoints."""
        return re.sub(r"[^a-z0-9]+", "-", str(self).lower()).strip("-")


def rows(folder: Path, task: str) -> list[Row]:
    """What was recorded of this task, oldest first; a run that was recorded twice counts once."""
    path = folder / f"{task}.csv"
    found = _cells(path) if path.exists() else []
    for row in found:
        if row["task"] != task:
            raise _refuse(path, f"a row of {row['task'] or 'no task'}")
        if not _counts(row):
            raise _refuse(path, f"a score or seed that is no number from 0 on, of {row['case']}, {row['model']}")
        if not _is_object(row["config"]):
            raise _refuse(path, f"no settings in the column config, of {row['case']}, {row['model']}")
    first: dict[Run, Row] = {}
    for row in found:
        first.setdefault(run_of(row), row)
    return list(first.values())


def _cells(path: Path) -> list[Row]:
    """Every row with all its columns."""
    try:
        # A blank file is one that nothing was recorded in yet.
        if not (text := path.read_bytes().decode()).strip():
            return []
        reader = csv.DictReader(io.StringIO(text, newline=""))
        names, found = tuple(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise _refuse(path, f"what cannot be read ({getattr(error, 'strerror', None) or error})") from error
    # In this order: it is the one that rows are added in.
    if names != COLUMNS:
        raise _refuse(path, f"the columns {', '.join(names)[:80]}")
    for number, row in enumerate(found, start=1):
        if None in row or None in row.values():
            raise _refuse(path, f"a row that was cut, or has more cells, number {number}")
    return found


def run_of(row: Row) -> Run:
    """What it is the result of."""
    return Run(row["task"], row["case"], row["model"], int(row["seed"]))


def _refuse(path: Path, got: str) -> DataError:
    return DataError(
        f"{path} must hold whole rows of {', '.join(COLUMNS)}.",
        got=got,
        hint="mend it, or move it away: its runs are then done again.",
    )


def _counts(row: Row) -> bool:
    """Whether its figures are figures; a model of points has no R0.9, one that is not trained no loss."""
    try:
        figures = [float(row[name]) for name in ("R0.5", "minutes")] + [float(row["R0.9"] or 0)]
        loss, seed = float(row["validation_nll"] or 0), int(row["seed"])
    except ValueError:
        return False
    # A seed is written in one way only: 00 would count as another run than 0.
    return min(*figures, seed) >= 0 and all(map(math.isfinite, [*figures, loss])) and str(seed) == row["seed"]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def missing(folder: Path, runs: Sequence[Run]) -> list[Run]:
    """Those not recorded yet, in their order."""
    done = {run_of(row) for task in {run.task for run in runs} for row in rows(folder, task)}
    return [run for run in runs if run not in done]


def best(rows: Sequence[Row]) -> Row | None:
    """Of several seeds the one with the lowest validation loss, as the paper chose."""
    return min(rows, key=lambda row: float(row["validation_nll"] or "inf")) if rows else None


def record(folder: Path, run: Run, facts: Mapping[str, Any]) -> None:
    """Append a row, unless another process has recorded the run; the file is whole at every moment."""
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in facts.items()}
    row = {
        "task": run.task,
        "case": run.case,
        "model": run.model,
        "seed": str(run.seed),
        **{name: shown.get(name, "") for name in _FACTS},
        "config": json.dumps(facts["config"], sort_keys=True),
        "version": f"logsparse {version('logsparse')}",
        "machine": machine(),
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
    }
    if not _counts({name: "" if cell is None else str(cell) for name, cell in row.items()}):
        raise DataError(
            "A run must end with scores that are finite numbers.",
            got=f"R0.5 {row['R0.5']}, R0.9 {row['R0.9']}, validation_nll {row['validation_nll']} of {run}",
            hint="look for extreme values in its data; nothing is recorded of it.",
        )
    path = folder / f"{run.task}.csv"
    with writing("The table of results", path):
        make_folder(folder)
    with turn(folder):
        # Looked at first: what is no table of results is refused, and stays.
        if not missing(folder, [run]):
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
    """The processor and its cores, as a file name can hold it."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    name = found[1] if found else platform.processor() or platform.machine()
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {os.cpu_count()} cores".lower()).strip("-")
