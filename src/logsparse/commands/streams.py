"""Standard input -> a path or frame that commands read; a frame -> standard output, in the format asked for."""

from __future__ import annotations

import atexit
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from logsparse.errors import ConfigError, DataError, suggest

if TYPE_CHECKING:
    import polars as pl

STREAM = Path("-")
FORMATS = ("csv", "json", "parquet", "feather")
# First bytes of a file -> ending of its name; anything else is csv.
_ENDINGS = {b"PAR1": ".parquet", b"ARROW1": ".feather"}

Format = Annotated[
    str | None, typer.Option("--format", help="of `-o -`, standard output: csv, json, parquet or feather [csv]")
]


def source(path: Path) -> Path | pl.DataFrame:
    """Return the path; for `-`, what is on standard input: a temporary file, or a frame if it is JSON.

    A file, so that the rules of files apply: ids of csv stay as written, and a table that is too large is refused.
    """
    if path != STREAM:
        return path
    blob = sys.stdin.buffer.read()
    start = blob.lstrip()[:6]
    if not start:
        raise DataError("Standard input must hold a table.", got="nothing", hint="pipe a file into the command.")
    if start[:1] in (b"[", b"{"):
        return _from_json(blob, lines=start[:1] == b"{")
    folder = Path(mkdtemp(prefix="logsparse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ending = next((ending for magic, ending in _ENDINGS.items() if start.startswith(magic)), ".csv")
    place = folder / f"standard-input{ending}"
    place.write_bytes(blob)
    return place


def check_format(format_: str | None, out: Path | None) -> None:
    """Raise ConfigError for an unknown format, or for one beside the name of a file, whose ending is its format."""
    if format_ is not None and out != STREAM:
        raise ConfigError(
            "--format is for standard output.", got=f"--format {format_}", hint="add -o -, or end the name of -o in it."
        )
    if format_ is not None and format_ not in FORMATS:
        raise ConfigError(
            f"--format must be one of: {', '.join(FORMATS)}.",
            got=repr(format_),
            hint=suggest(format_, FORMATS, "leave it out for csv."),
        )


def write_stream(table: pl.DataFrame, format_: str | None) -> None:
    """Write to standard output, as csv unless another format is named."""
    from logsparse.data.files import encode

    sys.stdout.buffer.write(encode(table, format_ or "csv"))
    sys.stdout.buffer.flush()


def _from_json(blob: bytes, *, lines: bool) -> pl.DataFrame:
    """Read a list of records, or one record per line."""
    import polars as pl

    try:
        return pl.read_ndjson(blob) if lines else pl.read_json(blob)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            "JSON on standard input must be a list of records, or one record per line.",
            got=f"what polars reports as: {str(error).splitlines()[0].rstrip('.')}",
            hint='write [{"unique_id": "a", "ds": "2024-01-01", "y": 1.0}, ...].',
        ) from error
