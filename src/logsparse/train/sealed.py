"""Tensors and JSON values -> files written whole and sealed by checksums -> the same again, or the reason why not.

What a checkpoint and a saved model are made of. Nothing that is read here is ever run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from stat import S_ISREG
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from logsparse.errors import DataError

# How a kind of file is refused: its path and the reason -> an error with that kind's rule and way out.
Refusal = Callable[[Path, str], DataError]

SAVING, SAVED = ".logsparse-saving", ".logsparse-saved"


def write_whole(path: Path, blob: bytes) -> None:
    """All or nothing: beside first, flushed to the disk, then renamed, and the folder's entry flushed too."""
    beside = path.with_name(path.name + ".part")
    try:
        _write_through(beside, blob)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def _write_through(path: Path, blob: bytes) -> None:
    with path.open("wb") as file:
        file.write(blob)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Names that came, went or changed survive a power cut from here on."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def seal(blob: bytes) -> dict[str, Any]:
    """What a file must be like to be the one that was written."""
    return {"bytes": len(blob), "sha256": sha256(blob).hexdigest()}


def read_file(path: Path, refuse: Refusal, entry: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a file; with the `entry` of its seal only those that were sealed, the size looked at first."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode):
                raise refuse(path, "no ordinary file")
            if entry and status.st_size != entry["bytes"]:
                raise refuse(path, f"{status.st_size} bytes where {entry['bytes']} were written")
            blob = file.read()
    except OSError as error:
        raise refuse(path, error.strerror or str(error)) from error
    if entry and seal(blob)["sha256"] != entry["sha256"]:
        raise refuse(path, "content that does not match its checksum")
    return blob


def _open_at_once(path: str, flags: int) -> int:
    """Opened without waiting: a pipe in a stranger's folder would make us wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def replace_files(folder: Path, blobs: Mapping[str, bytes | None]) -> None:
    """Replace a set of files in one stroke; None takes a file away.

    All are written into the folder SAVING, which is then renamed to SAVED: this is the one switch. A reader looks for
    each file in SAVED first (`fetch`). Killed before the switch, the old set is whole; killed after it, the new one is,
    and the next writer moves it into place.
    """
    with turn(folder):
        for place in (folder / SAVING, folder / SAVED):
            if place.is_symlink():  # a stranger's: what it leads to is not ours to move or clear
                place.unlink()
        _move_in(folder)
        _stage(folder, {name: blob for name, blob in blobs.items() if blob is not None})
        for name in (name for name, blob in blobs.items() if blob is None):
            (folder / name).unlink(missing_ok=True)
        _move_in(folder)


def fetch(folder: Path, name: str, refuse: Refusal, entry: Mapping[str, Any] | None = None) -> bytes:
    """A file of the set in force, wherever its writer has it just now."""
    try:
        return read_file(folder / SAVED / name, refuse, entry)
    except DataError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return read_file(folder / name, refuse, entry)


@contextmanager
def turn(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Writers take turns; the turn of one that is killed ends with it. Without `wait`: whether it is ours."""
    if os.name != "posix":
        yield True
        return
    import fcntl

    handle, ours = os.open(folder, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ours = False
        except OSError:  # a file system without locks: the folder has one writer at a time then
            pass
        yield ours
    finally:
        os.close(handle)


def _stage(folder: Path, blobs: Mapping[str, bytes]) -> None:
    saving = folder / SAVING
    _clear(saving)
    try:
        saving.mkdir()
        for name, blob in blobs.items():
            _write_through(saving / name, blob)
        flush_folder(saving)
        saving.rename(folder / SAVED)
    except BaseException:
        with suppress(OSError):
            _clear(saving)
        raise
    flush_folder(folder)


def _clear(saving: Path) -> None:
    with suppress(FileNotFoundError):
        for file in saving.iterdir():
            file.unlink()
        saving.rmdir()


def _move_in(folder: Path) -> None:
    """End a save after its switch, file by file in any order: readers find each where it is."""
    saved = folder / SAVED
    if saved.is_dir():
        for file in saved.iterdir():
            file.replace(folder / file.name)
        saved.rmdir()


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors with names and number types that come back, since what cannot be read must not replace what can."""
    try:
        unpack(pack({key: torch.empty(0, dtype=tensor.dtype) for key, tensor in tensors.items()}))
    except (SafetensorError, KeyError, UnicodeEncodeError) as error:
        raise TypeError(f"Tensors must have names and number types that safetensors knows. {error}") from error
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        memory = dense.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory, as tied weights do; all others go without a copy.
        apart[key] = dense.clone() if memory in seen else dense
        seen.add(memory)
    return pack(apart)


def unpack_tensors(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Tensor]:
    try:
        tensors = unpack(blob)
    except (SafetensorError, KeyError) as error:  # KeyError: a number type that torch does not have
        raise refuse(path, f"no safetensors content ({error})") from error
    # Sorted: safetensors gives them in an order that changes from process to process.
    return dict(sorted(tensors.items()))


def plain(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The values after a trip through JSON, which must not change them: tuples and number keys would change."""
    rule = f"{what} must be plain JSON: text keys, lists, finite numbers."
    try:
        back: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{rule} {error}") from error
    if back != values:
        raise TypeError(rule)
    return back


def pack_document(content: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """JSON that carries the checksum of its own values, so that any edit shows."""
    return json.dumps({**content, "sha256": _digest(content)}, indent=indent, allow_nan=False).encode()


def check_document(path: Path, document: dict[str, Any], refuse: Refusal) -> dict[str, Any]:
    content = {key: value for key, value in document.items() if key != "sha256"}
    if document.get("sha256") != _digest(content):
        raise refuse(path, "content that does not match its checksum")
    return content


def unpack_object(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Any]:
    try:
        value = json.loads(blob, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise refuse(path, f"no valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise refuse(path, "JSON that is no object")
    return value


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse_constant(digits)


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
