"""A path -> polars table, read when its columns are asked for; a polars table -> a whole file or none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from logsparse.errors import DataError

FileKinds = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".feather": "feather",
}
FileKinds |= {".arrow": "feather", ".ipc": "feather"}
_NO_VALUE = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]


def scan(path: Path) -> pl.LazyFrame:
    """A parquet, csv or feather file, or a folder of parquet parts; parquet columns stay on disk until asked for."""
    if path.is_dir():
        parts = sorted(path.rglob("*.parquet"))
        if not parts:
            raise _unreadable(path, "a folder without parquet files in it")
        return _checked(lambda: pl.scan_parquet(parts, hive_partitioning=False), path)
    if not path.exists():
        raise _unreadable(path, "no such file")
    kind = FileKinds.get(path.suffix.lower())
    if kind is None:
        raise _unreadable(path, f"a file that ends in {path.suffix or 'nothing'}")
    if kind == "parquet":
        return _checked(lambda: pl.scan_parquet(path), path)
    whole = _read_csv if kind == "csv" else pl.read_ipc
    return _checked(lambda: whole(path).lazy(), path)


def _checked(act: Callable[[], pl.LazyFrame], path: Path) -> pl.LazyFrame:
    try:
        lazy = act()
        lazy.collect_schema()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"what polars reports as: {str(error).splitlines()[0]}") from error
    return lazy


def collect(lazy: pl.LazyFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """These columns of a table, or all."""
    try:
        return (lazy if columns is None else lazy.select(columns)).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(Path("its contents"), f"what polars reports as: {str(error).splitlines()[0]}") from error


def read(path: Path) -> pl.DataFrame:
    """The whole file."""
    return collect(scan(path))


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        "DATA must be a readable parquet, csv or feather file, or a folder of parquet files.",
        got=f"{path}: {reason}",
        hint="check the path and the ending of the name.",
    )


def _read_csv(path: Path) -> pl.DataFrame:
    with path.open(encoding="utf-8-sig") as lines:
        head, first = lines.readline(), lines.readline()
    separator = max(",;\t", key=head.count)
    # Where semicolons separate, a comma between digits is a decimal point.
    decimal_comma = separator != "," and re.search(r"\d,\d", first) is not None
    for rows in (10_000, None):  # the types of the first rows, unless later rows contradict them
        try:
            table = pl.read_csv(
                path,
                separator=separator,
                decimal_comma=decimal_comma,
                infer_schema_length=rows,
                null_values=_NO_VALUE,
                try_parse_dates=True,
            )
            # A column without any value would be taken for text.
            return table.with_columns(pl.lit(None).alias(c.name) for c in table if c.null_count() == len(c))
        except pl.exceptions.ComputeError:
            if rows is None:
                raise
    raise AssertionError


def write(table: pl.DataFrame, path: Path) -> None:
    """To parquet, csv or feather by the ending of the name; written beside, then renamed, so never half a file."""
    kind = FileKinds.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            "Results are written as parquet, csv or feather.",
            got=f"{path}",
            hint="end the name in .parquet, .csv or .feather.",
        )
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            table.write_parquet(beside)
        elif kind == "csv":
            table.write_csv(beside)
        else:
            table.write_ipc(beside)
        beside.replace(path)
    except OSError as error:
        raise DataError(
            "The result must be writable.", got=f"{path}: {error.strerror}", hint="give another -o."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
