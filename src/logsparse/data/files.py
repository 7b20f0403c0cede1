"""A path -> polars table, read when its columns are asked for; a polars table -> a whole file or none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logsparse.data.delimited import read_csv
from logsparse.data.memory import A_COLUMN_BESIDE, check_memory
from logsparse.data.parts import scan_folder
from logsparse.data.reading import check_path, reading
from logsparse.errors import DataError
from logsparse.storage import unwritable, whole_file

FileKinds = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
}
_RESULT = "The result"


def scan(path: Path, *, ids: str | None = None, needed: Sequence[str] = ()) -> pl.LazyFrame:
    """A parquet, csv or feather file, or a folder of parquet parts; parquet columns stay on disk until asked for.

    `ids` names the column that a csv file must give as it is written, `needed` those that all parts must have.
    """
    with reading(path=path):
        lazy = _scan(path, ids, needed)
        lazy.collect_schema()
    return lazy


def _scan(path: Path, ids: str | None, needed: Sequence[str]) -> pl.LazyFrame:
    check_path(path)
    if path.is_dir():
        return scan_folder(path, needed)
    kind = FileKinds.get(path.suffix.lower())
    if kind is None:
        raise DataError.unreadable(path, f"a file that ends in {path.suffix or 'nothing'}")
    if kind == "parquet":
        return pl.scan_parquet(path, glob=False)
    if kind == "csv":
        return read_csv(path, ids).lazy()
    return pl.scan_ipc(path, glob=False)


def collect(lazy: pl.LazyFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """These columns of a table, or all."""
    with reading():
        return (lazy if columns is None else lazy.select(columns)).collect()


def schema_of(lazy: pl.LazyFrame) -> pl.Schema:
    """Names and types, without reading."""
    with reading():
        return lazy.collect_schema()


def rows_of(lazy: pl.LazyFrame) -> int:
    """The number of rows; of a parquet or feather file by what it says of itself, without reading."""
    return int(collect(lazy.select(pl.len())).item())


def collect_whole(lazy: pl.LazyFrame) -> pl.DataFrame:
    """All columns, if they fit into memory."""
    height, width = rows_of(lazy), len(schema_of(lazy))
    check_memory(height * width * A_COLUMN_BESIDE, f"{height} rows of {width} columns")
    return collect(lazy)


def read(path: Path, *, ids: str | None = None) -> pl.DataFrame:
    """The whole file."""
    return collect_whole(scan(path, ids=ids))


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Refuse, before the work begins, a path that could not be written after it; a `folder` is one to write into."""
    if not folder and path.suffix.lower() not in FileKinds:
        raise DataError(
            "Results are written as parquet, csv or feather.",
            got=f"{path}",
            hint="end the name in .parquet, .csv or .feather.",
        )
    try:
        if not folder and path.is_dir():
            raise unwritable(_RESULT, path, "a folder of that name is there")
        into = path.absolute() if folder else path.absolute().parent
        there = next(parent for parent in (into, *into.parents) if parent.exists())
        if not there.is_dir():
            raise unwritable(_RESULT, path, f"{there} is no folder")
        # Permissions alone do not tell: root may write anywhere, but not in /proc.
        probe = there / f".logsparse.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(_RESULT, path, error.strerror or str(error)) from error


def write(table: pl.DataFrame, path: Path) -> None:
    """To parquet, csv or feather by the ending of the name; the old table or the new is there, never half of one."""
    check_writable(path)
    kind = FileKinds[path.suffix.lower()]
    try:
        with whole_file(path, _RESULT) as file:
            if kind == "parquet":
                table.write_parquet(file)
            elif kind == "csv":
                table.write_csv(file)
            else:
                table.write_ipc(file)
    except pl.exceptions.PolarsError as error:
        raise unwritable(_RESULT, path, str(error)) from error
