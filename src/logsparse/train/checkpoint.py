"""Tensors and JSON values -> a folder that is whole at every moment -> the same tensors and values.

A checkpoint is a pair of files: `<name>.json`, and the safetensors file it names together with its checksum.
New tensors are written beside the old ones, under a name made of their checksum; renaming the JSON file into
place is the one switch. Killed before it, the old pair is whole; killed after it, the new one is.
A folder has one writer at a time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from logsparse.errors import DataError

FORMAT = "logsparse-checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(
    folder: str | Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, name: str = "checkpoint"
) -> None:
    """Write the pair; a checkpoint of the same name is replaced in one stroke."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Copies, because safetensors refuses tensors that share memory, as tied weights do.
    copies = {key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()}
    blob = pack(copies)
    digest = sha256(blob).hexdigest()
    file = f"{name}-{digest[:16]}.safetensors"
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tensors": {"file": file, "bytes": len(blob), "sha256": digest},
        "state": _plain(state),
    }
    _write(folder / file, blob)
    document = {**content, "sha256": _digest(content)}
    _write(folder / f"{name}.json", json.dumps(document, indent=1, allow_nan=False).encode())
    for old in folder.iterdir():
        if old.name != file and re.fullmatch(_leftovers(name), old.name):
            old.unlink(missing_ok=True)


def exists(folder: str | Path, *, name: str = "checkpoint") -> bool:
    return (Path(folder) / f"{name}.json").exists()


def load(folder: str | Path, *, name: str = "checkpoint") -> Checkpoint:
    """Read the pair back, or refuse it with the file's name and the reason. Nothing in it is ever run."""
    path = Path(folder) / f"{name}.json"
    content = _read_document(path)
    entry = content.get("tensors", {})
    # The name comes from a file that may be a stranger's: it must not lead out of the folder.
    if not re.fullmatch(_tensor_file(name), str(entry.get("file"))):
        raise _damaged(path, f"a JSON file that names {entry.get('file')!r} as its tensors")
    tensor_path = path.with_name(entry["file"])
    blob = _read(tensor_path)
    if len(blob) != entry["bytes"]:
        raise _damaged(tensor_path, f"{len(blob)} bytes where {entry['bytes']} were written")
    if sha256(blob).hexdigest() != entry["sha256"]:
        raise _damaged(tensor_path, "content that does not match its checksum")
    try:
        tensors = unpack(blob)
    except SafetensorError as error:
        raise _damaged(tensor_path, f"no safetensors content ({error})") from error
    # Sorted: safetensors gives them in an order that changes from process to process.
    return Checkpoint(dict(sorted(tensors.items())), content["state"])


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(_read(path), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"no valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged(path, "a JSON file of another program")
    version = document.get("version")
    if version != VERSION:
        raise DataError(
            f"{path} must have checkpoint version {VERSION}.",
            got=f"version {version}",
            hint="read it with the version of logsparse that wrote it, or upgrade logsparse.",
        )
    if document.pop("sha256", None) != _digest(document):
        raise _damaged(path, "content that does not match its checksum")
    return document


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"{error.strerror}") from error


def _write(path: Path, blob: bytes) -> None:
    """All or nothing: beside first, flushed to the disk, then renamed, and the folder's entry flushed too."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state after a trip through JSON, which must not change it: tuples and number keys would change."""
    rule = "The state of a checkpoint must be plain JSON: text keys, lists, finite numbers."
    try:
        plain: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{rule} {error}") from error
    if plain != state:
        raise TypeError(rule)
    return plain


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _tensor_file(name: str) -> str:
    return re.escape(name) + r"-[0-9a-f]{16}\.safetensors"


def _leftovers(name: str) -> str:
    """Tensors of earlier checkpoints, and what a killed writer left."""
    return _tensor_file(name) + r"(\.part)?"


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} must be a whole file of a logsparse checkpoint.",
        got=reason,
        hint="use another checkpoint, or start the run anew in an empty folder.",
    )
