"""What a run leaves for a figure (its losses, the weights of a head) -> FOLDER/traces/RUN.json; and such files back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from logsparse.errors import DataError
from logsparse.tasks.ledger import Row, Run, best, run_of
from logsparse.train.sealed import check_document, pack_document, read_file, unpack_object, write_whole

Traces = Mapping[tuple[str, str], Mapping[str, Any]]
"""By case and model."""
NO_TRACES: Traces = {}


def keep(folder: Path, run: Run, trace: Mapping[str, Any]) -> None:
    """One file a run that says whose it is; whole at every moment."""
    path = _path(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"run": asdict(run), "version": f"logsparse {version('logsparse')}", "trace": trace}
    write_whole(path, pack_document(content, indent=None))


def traces(folder: Path, rows: Sequence[Row]) -> Traces:
    """Of the recorded runs that left one; of several seeds, that of the lowest validation loss."""
    left: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if _path(folder, run_of(row)).exists():
            left.setdefault((row["case"], row["model"]), []).append(row)
    return {cell: _read(folder, run_of(found)) for cell, seeds in left.items() if (found := best(seeds))}


def plain(values: Any) -> list[Any]:
    """An array as JSON keeps it: four digits, which no eye tells from all, and None where nothing is known."""
    if np.ndim(values) > 1:
        return [plain(row) for row in values]
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in np.asarray(values, float).tolist()]


def array(values: Sequence[Any]) -> Any:
    """What `plain` was given."""
    return np.array(values, float)


def _path(folder: Path, run: Run) -> Path:
    return folder / "traces" / f"{run.folder}.json"


def _read(folder: Path, run: Run) -> Mapping[str, Any]:
    path = _path(folder, run)
    content = check_document(path, unpack_object(path, read_file(path, _refuse), _refuse), _refuse)
    if content.get("run") != asdict(run):
        raise _refuse(path, "that of another run")
    trace: Mapping[str, Any] = content["trace"]
    return trace


def _refuse(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} must hold what its run left for a figure.",
        got=reason,
        hint="remove it and its row in the table of results; the run is then done again.",
    )
