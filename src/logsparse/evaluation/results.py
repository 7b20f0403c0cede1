"""Result frame or file under any names of columns -> polars table under the default names, and the names it had."""

from __future__ import annotations

import os
from typing import TypedDict, Unpack

import polars as pl

from logsparse.data.columns import CUTOFF, ID, TARGET, TIME, in_results
from logsparse.data.frame import Data
from logsparse.data.grid import Library, from_native
from logsparse.errors import DataError, keywords, suggest


class ResultColumns(TypedDict, total=False):
    """Names of columns in a result frame; all are optional."""

    id_col: str
    time_col: str
    target_col: str


_ROLES = {"id_col": ID, "time_col": TIME, "target_col": TARGET}


def read_results(results: Data, **columns: Unpack[ResultColumns]) -> tuple[pl.DataFrame, Library, str]:
    """Return the table with ID, TIME and TARGET, the library it came in, and the name of its ids.

    A column is the one that was named, or else the one of the default name, or else that of its place in a backtest:
    id, time, cutoff, target.
    """
    keywords(columns, _ROLES)
    asked = {role: str(name) for role, name in columns.items()}
    table, library = from_native(results, ids=asked.get("id_col", ID))
    found = _recognised(table.columns, asked)
    ids = found.get(ID, ID)
    if isinstance(results, (str, os.PathLike)) and ids not in asked.values() and ids != ID:
        table, library = from_native(results, ids=ids)  # the ids of a csv file are text
    for default, name in found.items():
        if name != default:
            table = table.drop(default, strict=False).rename({name: default})
    return table, library, ids


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
    for role, default in _ROLES.items():
        chosen = asked.get(role) or (default if default in columns else by_place.get(default))
        if chosen is not None and chosen not in found.values():
            found[default] = chosen
    return found
