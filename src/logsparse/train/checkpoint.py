"""Tensors and JSON values -> a folder that is whole at every moment -> the same tensors and values.

A checkpoint is a pair of files: `<name>.json`, and the safetensors file it names together with its checksum.
New tensors are written beside the old ones, under a name made of their checksum; renaming the JSON file into
place is the one switch. Killed before it, the old pair is whole; killed after it, the new one is.
A folder has one writer at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from logsparse.errors import DataError
from logsparse.storage import clear_parts, read_file, seal, write_whole
from logsparse.train.sealed import (
    check_document,
    pack_document,
    pack_tensors,
    plain,
    unpack_object,
    unpack_tensors,
)

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
    blob = pack_tensors(tensors)
    entry = seal(blob)
    file = f"{name}-{entry['sha256'][:16]}.safetensors"
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tensors": {"file": file, **entry},
        "state": plain(state, "The state of a checkpoint"),
    }
    clear_parts(folder, _tensor_file(name))
    write_whole(folder / file, blob, "A checkpoint")
    write_whole(folder / f"{name}.json", pack_document(content), "A checkpoint")
    # The new pair is whole: tensors of earlier ones that cannot be removed now are removed by the next save.
    with suppress(OSError):
        for old in folder.iterdir():
            if old.name != file and re.fullmatch(_tensor_file(name), old.name):
                old.unlink(missing_ok=True)


def exists(folder: str | Path, *, name: str = "checkpoint") -> bool:
    return (Path(folder) / f"{name}.json").exists()


def load(folder: str | Path, *, name: str = "checkpoint") -> Checkpoint:
    """Read the pair back, or refuse it with the file's name and the reason. Nothing in it is ever run."""
    path = Path(folder) / f"{name}.json"
    content = _read_document(path)
    match content:
        case {"tensors": {"file": str(file), "bytes": int(), "sha256": str()} as entry, "state": dict(state)}:
            pass
        case _:
            raise damaged(path, "values that no checkpoint has")
    # The name comes from a file that may be a stranger's: it must not lead out of the folder.
    if not re.fullmatch(_tensor_file(name), file):
        raise damaged(path, f"a JSON file that names {file!r} as its tensors")
    tensor_path = path.with_name(file)
    blob = read_file(tensor_path, damaged, entry)
    return Checkpoint(unpack_tensors(tensor_path, blob, damaged), state)


def _read_document(path: Path) -> dict[str, Any]:
    document = unpack_object(path, read_file(path, damaged), damaged)
    if document.get("format") != FORMAT:
        raise damaged(path, "a JSON file of another program")
    version = document.get("version")
    if version != VERSION:
        raise DataError(
            f"{path} must have checkpoint version {VERSION}.",
            got=f"version {version}",
            hint="read it with the version of logsparse that wrote it, or upgrade logsparse.",
        )
    return check_document(path, document, damaged)


def _tensor_file(name: str) -> str:
    return re.escape(name) + r"-[0-9a-f]{16}\.safetensors"


def damaged(path: Path, reason: str) -> DataError:
    """How a file of a checkpoint is refused."""
    return DataError(
        f"{path} must be a whole file of a logsparse checkpoint.",
        got=reason,
        hint="use another checkpoint, or start the run anew in an empty folder.",
    )
