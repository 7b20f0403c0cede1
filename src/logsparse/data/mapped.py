"""Flat arrays larger than memory -> temporary files that are mapped into memory: pages are read when they are used.

The files have no name: the system removes them with the last array that uses them, after a kill too. What is derived
from a mapped array and as large is mapped as well (`empty_like`, `gathered`), and is made piece by piece.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from logsparse.errors import DataError

# S series, N cells

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Cells that are in memory at once.
_PIECE = 2**22
_CELL = 4
# For large files, unlike /tmp, which may be in memory itself.
_LARGE = Path("/var/tmp")  # noqa: S108 - files there have no name


def place() -> Path:
    """Return the folder of temporary files: TMPDIR if it is set, else /var/tmp if there is one."""
    chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")) or not os.access(_LARGE, os.W_OK)
    return Path(tempfile.gettempdir()) if chosen else _LARGE


class Spool:
    """Arrays that are written one after the other, and then read as one: `with Spool() as spool: spool.add(flat)`."""

    def __init__(self) -> None:
        self.cells = 0

    def __enter__(self) -> Self:
        with _writing():
            self._file = tempfile.TemporaryFile(dir=place())
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()  # a map keeps its file

    def add(self, flat: Floats) -> None:
        """Append to the file."""
        with _writing():
            self._file.write(np.ascontiguousarray(flat, np.float32).data)
        self.cells += len(flat)

    def array(self) -> Floats:
        """Return all that was written, as a mapped array."""
        with _writing():
            self._file.flush()
            return _mapped(self._file, self.cells)


def is_mapped(flat: Floats) -> bool:
    """Return True if the array, or the one that it is a view of, is a mapped file."""
    base: object = flat
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def empty_like(flat: Floats, cells: int) -> Floats:
    """Return an array of arbitrary values, in memory or in a file as `flat` is."""
    if not is_mapped(flat):
        return np.empty(cells, np.float32)
    with _writing(), tempfile.TemporaryFile(dir=place()) as file:
        _reserve(file, _CELL * cells)
        return _mapped(file, cells)


def gathered(flat: Floats, begin_S: Ints, count_S: Ints) -> Floats:
    """Return `flat[begin : begin + count]` of every series, one after the other."""
    found, end = empty_like(flat, int(count_S.sum())), 0
    for begin, count in zip(begin_S.tolist(), count_S.tolist(), strict=True):
        found[end : end + count] = flat[begin : begin + count]
        end += count
    return found


def pieces(cells: int) -> Iterator[slice]:
    """Yield slices that cover that many cells, each of bounded size."""
    yield from (slice(begin, min(begin + _PIECE, cells)) for begin in range(0, cells, _PIECE))


def _mapped(file: IO[bytes], cells: int) -> Floats:
    if not cells:
        return np.empty(0, np.float32)
    return np.frombuffer(mmap.mmap(file.fileno(), _CELL * cells), np.float32)


def _reserve(file: IO[bytes], size: int) -> None:
    """Give the file its size: without room on the disk, writing to a map would end the process."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            "Data that do not fit into memory need a temporary file.",
            got=f"{place()}: {error.strerror or error}",
            hint="name a folder on a disk with more room in the environment variable TMPDIR.",
        ) from error
