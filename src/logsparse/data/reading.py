"""A library at work on a user's data -> its result, or one DataError that keeps the cause."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from logsparse.errors import DataError, LogsparseError

# Readers raise anything; polars also panics, over time zones or dates that it does not know, by a BaseException.
TROUBLE = (Exception, pl.exceptions.PanicException)


@contextmanager
def reading(*, path: Path | None = None, column: str | None = None) -> Iterator[None]:
    """Turn whatever a reader raises into a DataError; our own errors, MemoryError and Ctrl-C pass."""
    try:
        yield
    except (LogsparseError, MemoryError):
        raise
    except TROUBLE as error:
        if path is not None:
            raise DataError.unreadable(path, _reported(error)) from error
        raise DataError(
            "A table must be readable to its end." if column is None else f"The column {column!r} must be readable.",
            got=_reported(error),
            hint="collect or open it with polars alone to see what is wrong."
            if column is None
            else "write it as numbers, text or times first.",
        ) from error


def _reported(error: BaseException) -> str:
    polars = isinstance(error, (pl.exceptions.PolarsError, pl.exceptions.PanicException))
    said = getattr(error, "strerror", None) or str(error)
    text = next((line for line in said.splitlines() if line.strip()), type(error).__name__)
    return f"what {'polars' if polars else 'the reader'} reports as: {text.rstrip('.')}"


def check_path(path: Path) -> None:
    """Refuse, before anything is opened, what is no regular file or folder, and names that polars cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError.unreadable(path, "a name that is not UTF-8", "rename it.") from error
    try:
        mode = path.stat().st_mode  # of what a link leads to
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise DataError.unreadable(path, "no such file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        # A pipe blocks until someone writes, and some devices never end.
        raise DataError.unreadable(path, "a pipe, socket or device", "write its content to a file first.")
