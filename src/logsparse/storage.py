"""Bytes -> files that are complete at every moment -> the same bytes; values of a saved file -> the same, validated.

Models, checkpoints, results, reports and pictures are all written here. A single file (`whole_file`) is written next
to its destination, flushed and renamed. A set of files (`replace_files`) is written to a folder, which is renamed. If
the process is killed or the disk fails at any moment, either the old or the new content is there, and an error of the
disk is raised as one DataError. Nothing that is read is executed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import DataError, is_number, is_whole

Refusal = Callable[[Path, str], DataError]
"""Path and reason -> the error for a file of this kind."""

SAVING, SAVED = ".logsparse-saving", ".logsparse-saved"


def unwritable(what: str, path: Path, reason: str) -> DataError:
    """Return the error for a path that cannot be written."""
    return DataError(f"{what} must be writable.", got=f"{path}: {reason}", hint="give another path, or make room.")


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a DataError that names the path."""
    try:
        yield
    except OSError as error:
        raise unwritable(what, path, error.strerror or str(error)) from error


def write_whole(path: Path, blob: bytes, what: str) -> None:
    """Replace a file; on failure its old content stays."""
    with whole_file(path, what) as file:
        file.write(blob)


@contextmanager
def whole_file(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` at the end of the block; on failure the old content stays."""
    with writing(what, path):
        make_folder(path.parent)
        _clear_parts(path)
        part, handle = _new_part(path)
        try:
            # A buffered file completes short writes.
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(handle)
                # The part is still open, hence locked: no other writer removes it.
                part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and flush them to the disk."""
    made = _missing(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for place in made:
        _flush_folder(place.parent)


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder, so that they survive a power failure."""
    if os.name == "posix":
        try:
            handle = os.open(folder, os.O_RDONLY)
        except PermissionError:  # a folder that is writable but not readable cannot be flushed
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _missing(folder: Path) -> list[Path]:
    """Return the folders that `make_folder` would create, innermost first."""
    return [place for place in (folder, *folder.parents) if not place.exists()]


def _clear_parts(path: Path) -> None:
    """Remove the parts that killed writers of this file left; the part of a running writer is locked and stays."""
    with suppress(OSError):
        for part in path.parent.iterdir():
            if re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part", part.name):
                with suppress(OSError), part.open("rb") as file:
                    _flock(file.fileno(), wait=False)
                    part.unlink()


def _new_part(path: Path) -> tuple[Path, int]:
    """Create and lock a new file next to `path`."""
    while True:
        part = path.with_name(f".{path.name}.{token_hex(4)}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # without file locks no other writer can remove it either
            _flock(handle)
        if os.fstat(handle).st_nlink:
            return part, handle
        os.close(handle)  # another writer removed it before it was locked


def _flock(handle: int, *, wait: bool = True) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def checksum(blob: bytes) -> dict[str, Any]:
    """Return the size and SHA-256 of a file's content."""
    return {"bytes": len(blob), "sha256": sha256(blob).hexdigest()}


def read_file(path: Path, refuse: Refusal, entry: Mapping[str, Any] | None = None) -> bytes:
    """Return the content of a regular file.

    With an `entry` made by `checksum`, the size is compared before reading and the hash after it.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode):
                raise refuse(path, "no ordinary file")
            if entry and status.st_size != entry["bytes"]:
                raise refuse(path, f"{status.st_size} bytes where {entry['bytes']} were written")
            blob = file.read()
    except OSError as error:
        raise refuse(path, error.strerror or str(error)) from error
    if entry and checksum(blob)["sha256"] != entry["sha256"]:
        raise refuse(path, "content that does not match its checksum")
    return blob


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe would otherwise block until somebody writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def replace_files(folder: Path, blobs: Mapping[str, bytes | None], what: str) -> None:
    """Replace a set of files at once; None removes a file.

    All files are written to the subfolder SAVING, which is then renamed to SAVED: this rename is the switch. Readers
    look for each file in SAVED first (`fetch`). Killed before the switch, the old set is complete; killed after it, the
    new set is, and the next writer moves it into place.
    """
    made = _missing(folder)
    try:
        with writing(what, folder):
            make_folder(folder)
            with lock(folder):
                for place in (folder / SAVING, folder / SAVED):
                    if place.is_symlink():  # not created here: its target must not be moved or cleared
                        place.unlink()
                _move_in(folder)
                _stage(folder, {name: blob for name, blob in blobs.items() if blob is not None})
                for name in (name for name, blob in blobs.items() if blob is None):
                    (folder / name).unlink(missing_ok=True)
                _move_in(folder)
    except BaseException:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        raise


def fetch(folder: Path, name: str, refuse: Refusal, entry: Mapping[str, Any] | None = None) -> bytes:
    """Read a file of the current set, whether or not its writer has moved it into place yet."""
    try:
        return read_file(folder / SAVED / name, refuse, entry)
    except DataError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return read_file(folder / name, refuse, entry)


@contextmanager
def lock(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on a folder; a killed process releases its lock.

    Yields True if the lock is held, which only `wait=False` can leave False.
    """
    if os.name != "posix":
        yield True
        return
    with writing("A folder of results", folder):
        handle = os.open(folder, os.O_RDONLY)
    held = True
    try:
        try:
            _flock(handle, wait=wait)
        except BlockingIOError:
            held = False
        except OSError:  # a file system without locks: one writer at a time is the user's responsibility
            pass
        yield held
    finally:
        os.close(handle)


def _stage(folder: Path, blobs: Mapping[str, bytes]) -> None:
    """Write the files to SAVING, then rename it to SAVED."""
    saving = folder / SAVING
    _clear(saving)
    try:
        saving.mkdir()
        for name, blob in blobs.items():
            with (saving / name).open("wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
        _flush_folder(saving)
        saving.rename(folder / SAVED)
    except BaseException:
        with suppress(OSError):
            _clear(saving)
        raise
    _flush_folder(folder)


def _clear(saving: Path) -> None:
    with suppress(FileNotFoundError):
        for file in saving.iterdir():
            file.unlink()
        saving.rmdir()


def _move_in(folder: Path) -> None:
    """Finish a save after its switch: move the files of SAVED into the folder, one by one."""
    saved = folder / SAVED
    if saved.is_dir():
        for file in saved.iterdir():
            file.replace(folder / file.name)
        saved.rmdir()


def plain(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the values after a round trip through JSON, which must not change them, as it would tuples."""
    rule = f"{what} must be plain JSON: text keys, lists, finite numbers."
    try:
        back: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{rule} {error}") from error
    if back != values:
        raise TypeError(rule)
    return back


def pack_document(content: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """Return JSON with a checksum of its own values."""
    return json.dumps({**content, "sha256": _digest(content)}, indent=indent, allow_nan=False).encode()


def check_document(path: Path, document: dict[str, Any], refuse: Refusal) -> dict[str, Any]:
    """Return the values of a parsed document without their checksum, which must match."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    if document.get("sha256") != _digest(content):
        raise refuse(path, "content that does not match its checksum")
    return content


def unpack_object(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Any]:
    """Parse a JSON object of finite numbers."""
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
    value = float(digits)
    return value if isfinite(value) else _refuse_constant(digits)


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


_LONGEST_SHOWN = 60


class InvalidContentError(ValueError):
    """A value in a saved file that no version of logsparse writes."""

    def __init__(self, name: str, must: str, got: object) -> None:
        shown = repr(got)
        super().__init__(f"{name} must be {must}, not {shown[:_LONGEST_SHOWN]}{'...' * (len(shown) > _LONGEST_SHOWN)}")


def require(name: str, must: str, got: object, *, holds: bool) -> None:
    """Raise an InvalidContentError unless the condition holds."""
    if not holds:
        raise InvalidContentError(name, must, got)


def entries(name: str, value: Any, *keys: str) -> Mapping[str, Any]:
    """Return a dict that has all these keys."""
    require(name, f"a dict with {', '.join(keys)}", value, holds=isinstance(value, dict) and set(keys) <= set(value))
    return dict(value)


def a_list(name: str, value: Any, count: int | None = None) -> Sequence[Any]:
    """Return a list, of `count` entries if given."""
    holds = isinstance(value, list) and count in (None, len(value))
    require(name, "a list" if count is None else f"a list of {count}", value, holds=holds)
    return list(value)


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return an integer within these bounds."""
    require(name, f"a whole number from {least} to {most}", value, holds=is_whole(value) and least <= value <= most)
    return int(value)


def number(name: str, value: Any, least: float = -np.inf, most: float = np.inf) -> float:
    """Return a finite number within these bounds."""
    require(name, f"a number from {least} to {most}", value, holds=is_number(value) and least <= value <= most)
    return float(value)


def text(name: str, value: Any) -> str:
    """Return a string."""
    require(name, "a text", value, holds=isinstance(value, str))
    return str(value)


def texts(name: str, value: Any, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return distinct strings, all of them among `known` if given."""
    found = tuple(text(name, entry) for entry in a_list(name, value))
    require(name, "each a different one", value, holds=len(set(found)) == len(found))
    if known is not None:
        require(name, f"among {', '.join(known)}", value, holds=set(found) <= set(known))
    return found


def ids(name: str, value: Any) -> tuple[str | int, ...]:
    """Return distinct series ids, at least one: all strings or all 64-bit integers."""
    found = tuple(a_list(name, value))
    of_numbers = all(is_whole(entry) and -(2**63) <= entry < 2**63 for entry in found)
    holds = (of_numbers or all(isinstance(entry, str) for entry in found)) and len(set(found)) == len(found) > 0
    require(name, "texts, or whole numbers of 64 bits, each once", value, holds=holds)
    return found


def wholes(name: str, value: Any, count: int, least: int, most: int) -> NDArray[np.int64]:
    """Return `count` integers within these bounds."""
    return np.array([whole_number(name, entry, least, most) for entry in a_list(name, value, count)], np.int64)


def numbers(name: str, value: Any, count: int, least: float = -np.inf) -> tuple[float, ...]:
    """Return `count` finite numbers."""
    return tuple(number(name, entry, least) for entry in a_list(name, value, count))


def array(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array of this shape and type without infinities; NaN marks missing values."""
    found = np.asarray(value)
    require(name, f"of shape {shape}", found.shape, holds=found.shape == shape)
    require(name, f"of type {np.dtype(dtype)}", found.dtype, holds=found.dtype == dtype)
    require(name, "without infinities", "inf", holds=not np.isinf(found).any())
    return found
