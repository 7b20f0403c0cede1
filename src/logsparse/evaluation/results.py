"""Results of a backtest as a frame, file or folder of parts, under any names of columns -> tables under our names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import polars as pl

from logsparse.cluster.shards import whole_parts
from logsparse.data.columns import CUTOFF, ID, TARGET, TIME, in_results
from logsparse.data.files import collect_whole, scan_folder, schema_of
from logsparse.data.frame import Data
from logsparse.data.grid import Library, from_native
from logsparse.errors import DataError, keywords, suggest

ROLES = {"id_col": ID, "time_col": TIME, "target_col": TARGET}


class ResultColumns(TypedDict, total=False):
    """Names of columns in a result frame; all are optional."""

    id_col: str
    time_col: str
    target_col: str


def read_results(results: Data, **columns: Unpack[ResultColumns]) -> tuple[pl.DataFrame, Library, str]:
    """Return the table with ID, TIME and TARGET, the library it came in, and the name of its ids.

    A column is the one that was named, or else the one of the default name, or else that of its place in a backtest:
    id, time, cutoff, target.
    """
    keywords(columns, ROLES)
    asked = {role: str(name) for role, name in columns.items()}
    table, library = from_native(results, ids=asked.get("id_col", ID))
    found = _recognised(table.columns, asked)
    ids = found.get(ID, ID)
    if isinstance(results, (str, os.PathLike)) and ids not in asked.values() and ids != ID:
        table, library = from_native(results, ids=ids)  # the ids of a csv file are text
    return _renamed(table, found), library, ids


def _renamed(table: pl.DataFrame, found: dict[str, str]) -> pl.DataFrame:
    for default, name in found.items():
        if name != default:
            table = table.drop(default, strict=False).rename({name: default})
    return table


def _recognised(columns: list[str], asked: dict[str, str]) -> dict[str, str]:
    """Return default name -> name in the table; a role without a column is left out."""
    for role, name in asked.items():
        if name not in columns:
            raise DataError(
                "Results must have the columns that are named.",
                got=f"{role}={name!r}, and the columns {', '.join(columns)}",
                hint=suggest(name, columns, "name a column that is there."),
            )
    places = columns[:4] if columns[2:3] == [CUTOFF] else []
    by_place = {role: n for role, n in zip((ID, TIME, CUTOFF, TARGET), places, strict=False) if not in_results(n)}
    found: dict[str, str] = {}
    for role, default in ROLES.items():
        chosen = asked.get(role) or (default if default in columns else by_place.get(default))
        if chosen is not None and chosen not in found.values():
            found[default] = chosen
    return found


def open_results(results: Data, **columns: Unpack[ResultColumns]) -> tuple[Iterator[pl.DataFrame], Library, str]:
    """Return what `read_results` does, but a folder in which each series lies whole in one part as its parts."""
    if isinstance(results, (str, Path)) and Path(results).is_dir():
        keywords(columns, ROLES)
        asked = {role: str(name) for role, name in columns.items()}
        found = _recognised(list(schema_of(scan_folder(Path(results), []))), asked)
        ids = found.get(ID, ID)
        # A part whose series were all left out of the forecast has no rows.
        if (parts := whole_parts(results, ids, empty=True)) is not None:
            return (_renamed(collect_whole(part), found) for part in parts.values()), "polars", ids
    table, library, ids = read_results(results, **columns)
    return iter([table]), library, ids
