"""A folder of parquet parts -> one lazy table: types unified, `name=value` folders read as columns of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from logsparse.data.reading import check_path
from logsparse.errors import DataError

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _Part:
    path: Path
    lazy: pl.LazyFrame
    schema: pl.Schema


def scan_folder(folder: Path, needed: Sequence[str]) -> pl.LazyFrame:
    """All parts below the folder, hidden ones left out; the columns `needed` must agree, others may differ."""
    inside = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet")) if not path.is_dir()]
    # Names that begin so are other programs' notes and unfinished work, as for Spark and pyarrow.
    visible = [path for path in inside if not any(part.startswith((".", "_")) for part in path.parts)]
    if not visible:
        raise DataError.unreadable(folder, "a folder without parquet files in it")
    parts = [_scan_part(folder, path) for path in visible]
    if all(part.schema == parts[0].schema for part in parts) and not any("=" in str(path.parent) for path in visible):
        return pl.scan_parquet([part.path for part in parts], hive_partitioning=False, glob=False)
    names = dict.fromkeys(name for part in parts for name in part.schema)
    kinds = {name: _kind(name, parts, needed) for name in names}
    return pl.concat(
        [
            part.lazy.select(pl.col(name).cast(kind) for name in part.schema if (kind := kinds[name]) is not None)
            for part in parts
        ],
        how="diagonal",
    )


def _scan_part(folder: Path, path: Path) -> _Part:
    check_path(folder / path)
    lazy = pl.scan_parquet(folder / path, hive_partitioning=False, glob=False)
    schema = lazy.collect_schema()
    for part in path.parent.parts:
        name, equals, value = part.partition("=")
        if equals and name not in schema:
            text = None if value == _NO_VALUE else unquote(value)
            lazy = lazy.with_columns(pl.lit(text, pl.String).alias(name))
    return _Part(folder / path, lazy, lazy.collect_schema())


def _kind(name: str, parts: list[_Part], needed: Sequence[str]) -> pl.DataType | type[pl.DataType] | None:
    """The type that holds the column in every part; None for a column that has none and that nobody asked for."""
    first = next(part for part in parts if name in part.schema)
    lacking = next((part for part in parts if name not in part.schema), None)
    if lacking and name in needed:
        raise _disagree(name, f"it in {first.path.name}, but not in {lacking.path.name}")
    found = {part.schema[name]: part for part in parts if name in part.schema}
    kinds = [kind for kind in found if kind != pl.Null]
    if len(kinds) <= 1:
        return kinds[0] if kinds else pl.Null()
    if all(kind.is_integer() for kind in kinds):
        return pl.Int64()
    if all(kind.is_numeric() for kind in kinds):
        return pl.Float64()
    if all(kind in (pl.Date, pl.Datetime) for kind in kinds):
        zones = {getattr(kind, "time_zone", None) for kind in kinds}
        if len(zones) == 1:
            finest = any(getattr(kind, "time_unit", "us") == "ns" for kind in kinds)
            return pl.Datetime("ns" if finest else "us", zones.pop())
    if all(kind in (pl.String, pl.Categorical, pl.Enum) for kind in kinds):
        return pl.String()
    if name in needed:
        one = kinds[0]
        other = next((kind for kind in kinds if type(kind) is not type(one)), kinds[-1])
        raise _disagree(name, f"{one} in {found[one].path.name}, {other} in {found[other].path.name}")
    return None if any(kind.is_nested() for kind in kinds) else pl.String()


def _disagree(name: str, got: str) -> DataError:
    return DataError(
        f"The parts of a folder must agree on the column {name!r}.",
        got=got,
        hint="write the parts alike, or leave out those that do not belong.",
    )
