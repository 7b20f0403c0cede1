"""Bytes -> files that are whole at every moment -> the bytes again; values of a saved file -> the same, checked.

The one way in which models, checkpoints, results, reports and pictures reach the disk. A file is written beside its
place, flushed to the disk and renamed; then the folder is flushed. Killed or failed at any moment, the old content or
the new is there, and trouble with the disk is one DataError. Nothing that is read here is ever run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from logsparse.checks import is_number, is_whole
from logsparse.errors import DataError

# How a kind of file is refused: its path and the reason -> an error with that kind's rule and way out.
Refusal = Callable[[Path, str], DataError]

SAVING, SAVED = ".logsparse-saving", ".logsparse-saved"


def unwritable(what: str, path: Path, reason: str) -> DataError:
    return DataError(f"{what} must be writable.", got=f"{path}: {reason}", hint="give another path, or make room.")


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Trouble with the disk inside the block is one clear error that names the path."""
    try:
        yield
    except OSError as error:
        raise unwritable(what, path, error.strerror or str(error)) from error


def write_whole(path: Path, blob: bytes, what: str) -> None:
    """All of the bytes, or what was there before."""
    with whole_file(path, what) as file:
        file.write(blob)


@contextmanager
def whole_file(path: Path, what: str) -> Iterator[BinaryIO]:
    """A file to write to, which is at `path` after the block; after any trouble, what was there before still is."""
    with writing(what, path):
        make_folder(path.parent)
        clear_parts(path.parent, re.escape(path.name))
        part, handle = _new_part(path)
        try:
            # Buffered: a write that the system cuts short is completed.
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(handle)
                # Still open, so still locked: nobody takes it for a leftover.
                part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


def make_folder(folder: Path) -> None:
    """The folder and those above it, made to last."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in made:
        flush_folder(place.parent)


def flush_folder(folder: Path) -> None:
    """Names that came, went or changed survive a power cut from here on."""
    if os.name == "posix":
        try:
            handle = os.open(folder, os.O_RDONLY)
        except PermissionError:  # a folder that may be written and not read: there is no way to flush it
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def clear_parts(folder: Path, name: str) -> None:
    """Remove what killed writers left of files whose name matches; the part of a living one is locked, and stays."""
    with suppress(OSError):
        for part in folder.iterdir():
            if re.fullmatch(rf"\.{name}\.[0-9a-f]{{8}}\.part", part.name):
                with suppress(OSError), part.open("rb") as file:
                    _flock(file.fileno(), wait=False)
                    part.unlink()


def _new_part(path: Path) -> tuple[Path, int]:
    """A file beside `path` that is ours alone."""
    while True:
        part = path.with_name(f".{path.name}.{token_hex(4)}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks: nobody can take it for a leftover either
            _flock(handle)
        if os.fstat(handle).st_nlink:
            return part, handle
        os.close(handle)  # made and not yet locked, it was taken for a leftover


def _flock(handle: int, *, wait: bool = True) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def checksum(blob: bytes) -> dict[str, Any]:
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
    if entry and checksum(blob)["sha256"] != entry["sha256"]:
        raise refuse(path, "content that does not match its checksum")
    return blob


def _open_at_once(path: str, flags: int) -> int:
    """Opened without waiting: a pipe in a stranger's folder would make us wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def replace_files(folder: Path, blobs: Mapping[str, bytes | None], what: str) -> None:
    """Replace a set of files in one stroke; None takes a file away.

    All are written into the folder SAVING, which is then renamed to SAVED: this is the one switch. A reader looks for
    each file in SAVED first (`fetch`). Killed before the switch, the old set is whole; killed after it, the new one is,
    and the next writer moves it into place.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with writing(what, folder):
            make_folder(folder)
            with lock(folder):
                for place in (folder / SAVING, folder / SAVED):
                    if place.is_symlink():  # a stranger's: what it leads to is not ours to move or clear
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
    """A file of the set in force, wherever its writer has it just now."""
    try:
        return read_file(folder / SAVED / name, refuse, entry)
    except DataError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return read_file(folder / name, refuse, entry)


@contextmanager
def lock(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Writers take turns; the turn of one that is killed ends with it. Without `wait`: whether it is ours."""
    if os.name != "posix":
        yield True
        return
    with writing("A folder of results", folder):
        handle = os.open(folder, os.O_RDONLY)
    ours = True
    try:
        try:
            _flock(handle, wait=wait)
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
            with (saving / name).open("wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
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


_LONGEST_SHOWN = 60


class InvalidContentError(ValueError):
    """What a saved file holds cannot be what was saved."""

    def __init__(self, name: str, must: str, got: object) -> None:
        shown = repr(got)
        super().__init__(f"{name} must be {must}, not {shown[:_LONGEST_SHOWN]}{'...' * (len(shown) > _LONGEST_SHOWN)}")


def require(name: str, must: str, got: object, *, holds: bool) -> None:
    if not holds:
        raise InvalidContentError(name, must, got)


def entries(name: str, value: Any, *keys: str) -> Mapping[str, Any]:
    """A dict that has all these keys."""
    require(name, f"a dict with {', '.join(keys)}", value, holds=isinstance(value, dict) and set(keys) <= set(value))
    found: Mapping[str, Any] = value
    return found


def a_list(name: str, value: Any, count: int | None = None) -> Sequence[Any]:
    """A list, of `count` entries where that is known."""
    holds = isinstance(value, list) and count in (None, len(value))
    require(name, "a list" if count is None else f"a list of {count}", value, holds=holds)
    found: Sequence[Any] = value
    return found


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    require(name, f"a whole number from {least} to {most}", value, holds=is_whole(value) and least <= value <= most)
    return int(value)


def number(name: str, value: Any, least: float = -np.inf, most: float = np.inf) -> float:
    """A finite number within these bounds."""
    require(name, f"a number from {least} to {most}", value, holds=is_number(value) and least <= value <= most)
    return float(value)


def text(name: str, value: Any) -> str:
    require(name, "a text", value, holds=isinstance(value, str))
    return str(value)


def texts(name: str, value: Any, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """Different texts, all of them `known` where that is given."""
    found = tuple(text(name, entry) for entry in a_list(name, value))
    require(name, "each a different one", value, holds=len(set(found)) == len(found))
    if known is not None:
        require(name, f"among {', '.join(known)}", value, holds=set(found) <= set(known))
    return found


def ids(name: str, value: Any) -> tuple[str | int, ...]:
    """Names of series: different ones, at least one, all texts or all whole numbers of 64 bits."""
    found = tuple(a_list(name, value))
    of_numbers = all(is_whole(entry) and -(2**63) <= entry < 2**63 for entry in found)
    holds = (of_numbers or all(isinstance(entry, str) for entry in found)) and len(set(found)) == len(found) > 0
    require(name, "texts, or whole numbers of 64 bits, each once", value, holds=holds)
    return found


def wholes(name: str, value: Any, count: int, least: int, most: int) -> NDArray[np.int64]:
    """So many whole numbers within these bounds."""
    return np.array([whole_number(name, entry, least, most) for entry in a_list(name, value, count)], np.int64)


def numbers(name: str, value: Any, count: int, least: float = -np.inf) -> tuple[float, ...]:
    """So many finite numbers."""
    return tuple(number(name, entry, least) for entry in a_list(name, value, count))


def array(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array of this shape and number type, without infinities; NaN may stand for what is missing."""
    found = np.asarray(value)
    require(name, f"of shape {shape}", found.shape, holds=found.shape == shape)
    require(name, f"of type {np.dtype(dtype)}", found.dtype, holds=found.dtype == dtype)
    require(name, "without infinities", "inf", holds=not np.isinf(found).any())
    return found
