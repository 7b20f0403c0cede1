"""A library at work on a user's data -> its result, or one DataError that keeps the cause."""

from __future__ import annotations

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


def check_name(path: Path) -> None:
    """Refuse a name whose bytes are no UTF-8: polars cannot open it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError.unreadable(path, "a name that is not UTF-8", "rename it.") from error
