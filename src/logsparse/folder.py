"""Settings, values and tensors of a fitted model -> a folder -> the same again.

    config.json           kind of model, format, version, settings; sizes and checksums of the other files
    model.safetensors     weights
    series.json           what the model knows of each series
    history.safetensors   last values of each series, NaN where missing; optional

A save replaces all files at once (storage.py). Nothing outside the folder is touched: it may be a mount point, and it
may hold other files. Nothing in it is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from logsparse import __version__
from logsparse.errors import DataError
from logsparse.storage import (
    SAVING,
    check_document,
    checksum,
    fetch,
    pack_document,
    plain,
    replace_files,
    unpack_object,
    writing,
)
from logsparse.train.checkpoint import are_finite, pack_tensors, unpack_tensors

PROGRAM = "logsparse"
FORMAT = 1
CONFIG, WEIGHTS, SERIES, HISTORY = "config.json", "model.safetensors", "series.json", "history.safetensors"

_REASONS: dict[type[OSError], str] = {FileNotFoundError: "no such folder", NotADirectoryError: "a file"}


@dataclass(frozen=True, eq=False)
class ModelFolder:
    kind: str
    """Name of the model's class."""
    config: dict[str, Any]
    """Settings, as plain JSON."""
    series: dict[str, Any]
    """What the model knows of each series, as plain JSON; ids are in lists, where they keep their type."""
    weights: dict[str, Tensor]
    history: dict[str, Tensor] | None = None
    version: str = __version__
    """Version of logsparse that wrote the folder; `write` ignores it and stores the current one."""


def is_model(path: str | Path) -> bool:
    """Return True if the folder holds a logsparse model of any format."""
    try:
        _marked(Path(path))
    except DataError:
        return False
    return True


def read(path: str | Path, device: str | torch.device = "cpu") -> ModelFolder:
    """Read a model, with weights on `device` and history on the CPU; damage raises a DataError that names the file."""
    folder = Path(path)
    while True:
        document = _document(folder)
        try:
            return _READERS[document["format"]](folder, document, torch.device(device))
        except DataError:
            # If another process has saved in the meantime, the new files are read instead.
            if _document(folder) == document:
                raise


def write(path: str | Path, model: ModelFolder) -> None:
    """Save a model to a new or empty folder, or over another model; any other folder raises a DataError."""
    blobs = _pack(model)
    check_replaceable(Path(path))
    replace_files(Path(path), blobs, "The model")


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Convert arrays to the tensors of a folder."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Convert the tensors of a folder to arrays."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _pack(model: ModelFolder) -> dict[str, bytes | None]:
    _check_weights(model.weights)
    # One line, so that a tool which changes line ends, such as git, does not break the checksum.
    series = json.dumps(plain(model.series, "The series of a model")).encode()
    blobs = {WEIGHTS: pack_tensors(model.weights), SERIES: series}
    if model.history is not None:
        blobs[HISTORY] = pack_tensors(model.history)
    content = {
        # These three stay in all future formats, so that an older logsparse can explain why it cannot read them.
        "program": PROGRAM,
        "format": FORMAT,
        "version": __version__,
        "kind": model.kind,
        "config": plain(model.config, "The config of a model"),
        "files": {name: checksum(blob) for name, blob in blobs.items()},
    }
    return {HISTORY: None, **blobs, CONFIG: pack_document(content)}


def check_replaceable(folder: Path) -> None:
    """Raise a DataError if saving a model here would overwrite something else."""
    with writing("The model", folder):
        if folder.exists() and not folder.is_dir():
            raise _occupied(folder, "a file")
        names = sorted(place.name for place in folder.iterdir()) if folder.exists() else []
    if is_model(folder):
        _document(folder)
    elif names not in ([], [SAVING]):
        raise _occupied(folder, f"a folder with {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}")


def _marked(folder: Path) -> dict[str, Any]:
    """Return the content of config.json if logsparse wrote it; nothing else in it is validated yet."""
    try:
        names = [place.name for place in folder.iterdir()]
    except OSError as error:
        raise _no_model(folder, _REASONS.get(type(error), error.strerror or str(error))) from error
    try:
        blob = fetch(folder, CONFIG, _damaged)
    except DataError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = "a first save that was not finished" if names == [SAVING] else f"a folder without {CONFIG}"
        raise _no_model(folder, reason) from error
    document = unpack_object(folder / CONFIG, blob, _damaged)
    if document.get("program") != PROGRAM:
        raise _no_model(folder, f"a folder with a {CONFIG} of another program")
    return document


def _document(folder: Path) -> dict[str, Any]:
    """Return the content of config.json if its format is known."""
    document = _marked(folder)
    number, version = document.get("format"), document.get("version")
    if type(number) is not int or number not in _READERS:
        raise DataError(
            f"{folder} must be a model of a format that logsparse {__version__} knows, up to {FORMAT}.",
            got=f"format {number}, written by logsparse {version}",
            hint="update logsparse to read or replace it.",
        )
    return document


def _read_1(folder: Path, document: dict[str, Any], device: torch.device) -> ModelFolder:
    content = check_document(folder / CONFIG, document, _damaged)
    match content:
        case {"kind": str(kind), "version": str(version), "config": dict(config), "files": dict(files)}:
            pass
        case _:
            raise _damaged(folder / CONFIG, "values that no model has")
    # The names must not lead out of the folder.
    if not {WEIGHTS, SERIES} <= files.keys() <= {WEIGHTS, SERIES, HISTORY}:
        raise _damaged(folder / CONFIG, f"a list of files that no model has: {', '.join(files) or 'none'}")
    blobs = {}
    for name, entry in files.items():
        match entry:
            case {"bytes": int(), "sha256": str()}:
                blobs[name] = fetch(folder, name, _damaged, entry)
            case _:
                raise _damaged(folder / CONFIG, f"no size and checksum of {name}")
    weights = unpack_tensors(folder / WEIGHTS, blobs[WEIGHTS], _damaged)
    _check_weights(weights)
    return ModelFolder(
        kind=kind,
        config=config,
        series=unpack_object(folder / SERIES, blobs[SERIES], _damaged),
        weights={name: tensor.to(device) for name, tensor in weights.items()},
        history=unpack_tensors(folder / HISTORY, blobs[HISTORY], _damaged) if HISTORY in blobs else None,
        version=version,
    )


# A released format keeps its reader.
_READERS: dict[int, Callable[[Path, dict[str, Any], torch.device], ModelFolder]] = {1: _read_1}


def _check_weights(weights: Mapping[str, Tensor]) -> None:
    for name, tensor in weights.items():
        if not are_finite(tensor):
            raise DataError(
                "The weights of a model must be finite numbers.",
                got=f"{'NaN' if tensor.isnan().any() else 'infinity'} in {name!r}",
                hint="fit the model again, with a lower learning rate if this happens again.",
            )


def _no_model(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{folder} must be the folder of a saved logsparse model.", got=reason, hint="check the path of the model."
    )


def _occupied(folder: Path, what: str) -> DataError:
    return DataError(
        f"A model must be saved to a new or empty folder, or over another logsparse model, not {folder}.",
        got=what,
        hint="save it to another path.",
    )


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} must be a complete file of a logsparse model.",
        got=reason,
        hint="copy the folder again from its source, or save the model again.",
    )
