"""What a run leaves for a figure (its losses, the weights of a head) -> FOLDER/traces/RUN.json; and such files back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from logsparse.checks import is_number, is_whole
from logsparse.errors import DataError
from logsparse.storage import read_file, write_whole
from logsparse.tasks.ledger import Row, Run, best, run_of
from logsparse.train.sealed import check_document, pack_document, unpack_object

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
