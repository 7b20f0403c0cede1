"""A table -> a folder of parquet parts, each series whole in one of them; such a folder -> its parts, checked.

A hash of its id says which part a series belongs to. Two tables of the same series, such as a history and the future
of its covariates, sharded into the same number of parts, therefore have parts of the same names and series.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from logsparse.data.columns import ID, require
from logsparse.data.files import (
    SHARDING,
    collect,
    count_rows,
    encode,
    part_names,
    reading,
    scan_folder,
    scan_part,
    schema_of,
)
from logsparse.data.grid import as_text, id_column, number_series, scan_native
from logsparse.data.panel import SeriesId
from logsparse.errors import DataError, SplitSeriesError, a_path, whole
from logsparse.storage import lock, make_folder, write_whole, writing

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

# Rows that are in memory at once while a table is sharded, and rows of a part if no number of parts is given.
_ROWS_AT_ONCE, _ROWS_OF_PART = 2_000_000, 1_000_000
_MOST_PARTS = 100_000
_PARTS = "The folder of parts"
# A finished part, or one that was being written.
_PART_NAME = re.compile(r"\.?part-\d{5}-of-\d{5}\.parquet(\.[0-9a-f]{8}\.part)?")
_PART = "\0part"
# Ids whose part is remembered, for tables in the order of time.
_IDS_REMEMBERED = 2**20


@lru_cache(_IDS_REMEMBERED)
def part_number(name: SeriesId, parts: int) -> int:
    """Return the part of a series: the first 8 bytes of BLAKE2b of `i` or `s` (the type) and the id as text, modulo.

    It is the same in every process, on every machine and in every version.
    """
    tagged = f"{'s' if isinstance(name, str) else 'i'}{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(tagged, digest_size=8).digest(), "big") % parts


def shard(
    data: IntoDataFrame | pl.LazyFrame | str | Path,
    folder: str | Path,
    *,
    parts: int | None = None,
    id_col: str = ID,
) -> dict[str, int]:
    """Write a long table as a folder of parquet parts, each series whole in one of them.

    Parquet and feather are read piece by piece: memory is that of 2 million rows, or of one part if that is more. csv
    is read at once. All columns are kept; within a part, rows are sorted by id and keep their order otherwise.

    Parameters
    ----------
    data
        Frame, or path of a parquet, feather or csv file or of a folder of parquet files.
    folder
        A new or empty folder. Until all parts are there, reading it raises DataError.
    parts
        Number of parts; about a million rows each if left out. A part that would be empty is not written.
    id_col
        Name of the column of ids.

    Returns
    -------
    dict
        Number of series by name of part.

    Raises
    ------
    ConfigError, DataError
        If an argument breaks a rule, the table has no rows or no ids, or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": ["a", "b", "c", "a"], "ds": [1, 1, 1, 2], "y": [1.0, 2.0, 3.0, 4.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ls.shard(frame, f"{folder}/parts", parts=2)
    {'part-00000-of-00002.parquet': 1, 'part-00001-of-00002.parquet': 2}
    """
    out = a_path("Parts are written to the path of a folder.", folder, hint='write shard(frame, "parts").')
    if parts is not None:
        parts = whole("parts", parts, most=_MOST_PARTS, hint="count the parts, a few per process.")
    if isinstance(data, (str, Path)) and Path(data).resolve() in (out.resolve(), *out.resolve().parents):
        raise DataError(
            "Parts must be written outside of the data.", got=f"{out} in {data}", hint="give another folder."
        )
    table, _ = scan_native(data, ids=id_col, needed=[id_col])
    if id_col not in schema_of(table):
        raise DataError(
            "A table to shard must be long, with a column of ids.",
            got=f"no {id_col!r} among {', '.join(schema_of(table))}",
            hint="name it with id_col=.",
        )
    rows = count_rows(table)
    if not rows:
        raise DataError("A table to shard must have rows.", got="an empty table", hint="check how it was written.")
    count = parts or ceil(rows / _ROWS_OF_PART)
    with _unfinished(out) as pieces:
        for begin in range(0, rows, _ROWS_AT_ONCE):
            _spread(collect(table.slice(begin, _ROWS_AT_ONCE)), id_col, count, pieces / f"{begin:015}")
        found: dict[str, int] = {}
        for part in range(count):
            own = [place / f"{part}.feather" for place in sorted(pieces.iterdir())]
            tables = [pl.read_ipc(place) for place in own if place.exists()]
            if tables:
                joined = pl.concat(tables).sort(id_col, maintain_order=True)
                name = f"part-{part:05}-of-{count:05}.parquet"
                write_whole(out / name, encode(joined, "parquet"), _PARTS)
                found[name] = joined[id_col].n_unique()
    return found


def _spread(table: pl.DataFrame, id_col: str, parts: int, place: Path) -> None:
    """Write the rows of each part to a file of their own."""
    ids, codes = number_series(table, id_col)
    numbers = np.array([part_number(name, parts) for name in ids], np.int64)[codes]
    place.mkdir()
    for (part,), rows in table.with_columns(pl.Series(_PART, numbers)).partition_by(_PART, as_dict=True).items():
        (place / f"{part}.feather").write_bytes(encode(rows.drop(_PART), "feather"))


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Yield a folder for pieces inside `out`. As long as it is there, readers refuse `out`; an error removes it all."""
    with writing(_PARTS, out):
        names = {path.name for path in out.iterdir()} if out.exists() else set()
        if names and SHARDING not in names:
            raise DataError(
                "Parts must be written to a new or empty folder.",
                got=f"{out} with {', '.join(sorted(names)[:3])}{' and more' if len(names) > 3 else ''}",
                hint="give another folder, or remove this one.",
            )
        make_folder(out)
        with lock(out, wait=False) as held:
            if not held:
                raise DataError(
                    "One process at a time writes to a folder.", got=f"{out}, which another uses", hint="wait for it."
                )
            _clear(out)
            pieces = out / SHARDING
            pieces.mkdir()
            try:
                yield pieces
            except BaseException:
                with suppress(OSError):
                    _clear(out)
                raise
            shutil.rmtree(pieces)


def _clear(out: Path) -> None:
    """Remove what a killed process left."""
    for path in out.iterdir():
        if _PART_NAME.fullmatch(path.name):
            path.unlink()
    if (out / SHARDING).exists():
        shutil.rmtree(out / SHARDING)


def series_per_part(folder: Path, id_col: str, needed: Sequence[str], *, empty: bool = False) -> dict[str, int]:
    """Return the number of series by name of part, after all checks that need no values.

    Every part must be readable, have rows (unless `empty` ones are allowed) and agree with the others on the columns
    `needed`, and every series must lie in one part; SplitSeriesError is raised if one does not.
    """
    if not folder.is_dir():
        raise DataError(
            "DATA must be a folder of parts.",
            got=f"{folder}, which is {'a file' if folder.exists() else 'not there'}",
            hint=f"make one: `logsparse shard {folder} -o parts`." if folder.exists() else "check the path.",
        )
    names = part_names(folder)
    require(list(schema_of(scan_folder(folder, [id_col, *needed]))), [id_col, *needed])
    keys = [_ids(folder, name, id_col, empty=empty).hash() for name in names]
    every = np.concatenate([key.to_numpy() for key in keys])
    part_of = np.repeat(np.arange(len(names)), [len(key) for key in keys])
    order = np.argsort(every, kind="stable")
    for twin in np.flatnonzero(every[order][1:] == every[order][:-1]).tolist():
        one, other = (names[part_of[order[twin + side]]] for side in (0, 1))
        # Two ids may have the same hash.
        both = _ids(folder, one, id_col).to_frame().join(_ids(folder, other, id_col).to_frame(), on=id_col)
        if both.height:
            raise SplitSeriesError.of(both.item(0, 0), one, other, folder, len(names))
    return {str(name): len(key) for name, key in zip(names, keys, strict=True)}


def _ids(folder: Path, name: Path, id_col: str, *, empty: bool = False) -> pl.Series:
    """Return the ids of a part as text, each once."""
    with reading(path=folder / name):
        unique = scan_part(folder / name, name).select(id_col).unique(maintain_order=True).collect()
    if not unique.height and not empty:
        raise DataError("Every part must have rows.", got=f"none in {folder / name}", hint="remove that file.")
    return as_text(id_column(unique, id_col))


def open_part(name: str, content: bytes) -> pl.LazyFrame:
    """Return a part as a table from the content of its file."""
    with reading(path=Path(name)):
        return scan_part(content, Path(name))


def whole_parts(
    path: object, id_col: str, needed: Sequence[str] = (), *, empty: bool = False
) -> dict[str, pl.LazyFrame] | None:
    """Return the parts of a folder in which each series lies whole in one, by name; None for anything else.

    Parts without rows are refused, unless `empty` ones are allowed.
    """
    if not isinstance(path, (str, Path)) or not Path(path).is_dir():
        return None
    folder = Path(path)
    names = part_names(folder)
    if len(names) < 2 or id_col not in schema_of(scan_folder(folder, [])):
        return None
    try:
        series_per_part(folder, id_col, needed, empty=empty)
    except SplitSeriesError:
        return None
    return {str(name): scan_part(folder / name, name) for name in names}
