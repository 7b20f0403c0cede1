"""Forecasts that were made before + the data that came since -> results with y beside each forecast."""

from __future__ import annotations

from typing import Any, Unpack

import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.columns import ID, TARGET, TIME, ColumnSpec
from logsparse.data.frame import Data
from logsparse.data.grid import from_native, number_series, to_native
from logsparse.data.later import ids_like
from logsparse.data.localtime import read_times
from logsparse.data.panel import SeriesId
from logsparse.errors import DataError, keywords, suggest
from logsparse.evaluation.results import ROLES, ResultColumns

_KEY = ["\0series", "\0time"]


def beside_actuals(
    forecast: Data, actuals: Data, by: str | None, **columns: Unpack[ResultColumns]
) -> tuple[Any, ResultColumns]:
    """Return the forecasts with the column of values, and of `by` if only the actuals have it; and all names.

    Columns that are not named are the default ones, or the first two of the forecasts, as `predict` returns them.
    """
    keywords(columns, ROLES)
    made, library = from_native(forecast)
    places = [*made.columns, ID, TIME]
    names: ResultColumns = {
        "id_col": ID if ID in made.columns else places[0],
        "time_col": TIME if TIME in made.columns else places[1],
        "target_col": TARGET,
        **columns,
    }
    spec = ColumnSpec(**names)
    made, _ = from_native(forecast, ids=spec.id_col)  # the ids of a csv file are text
    came, _ = from_native(actuals, ids=spec.id_col)
    _require("Forecasts", made, [spec.id_col, spec.time_col])
    _require("Actuals", came, [spec.id_col, spec.time_col, spec.target_col])
    if spec.target_col in made.columns:
        raise DataError(
            "Forecasts to score with actuals must be without values.",
            got=f"a column {spec.target_col!r} beside the forecasts",
            hint="drop it, or score without actuals.",
        )
    extra = [by] if by in came.columns and by not in (*made.columns, spec.id_col, spec.time_col) else []
    ids, codes = number_series(made, spec.id_col)
    others, other_codes = number_series(came, spec.id_col)
    left = made.with_columns(_keys(made, ids, codes, spec))
    right = came.select(spec.target_col, *extra, *_keys(came, ids_like(ids, others), other_codes, spec))
    if left[_KEY[1]].dtype != right[_KEY[1]].dtype:
        raise DataError(
            "Forecasts and actuals must have times of one kind, both with a time zone or both without.",
            got=f"{made[spec.time_col][0]} and {came[spec.time_col][0]}",
            hint="convert the times of one of them.",
        )
    right = right.join(left, on=_KEY, how="semi")
    if not right.height:
        raise DataError(
            "Actuals must have values of the series and times that were forecast.",
            got=f"forecasts such as {_shown(made, spec)}, and actuals such as {_shown(came, spec)}",
            hint="score once the values have come; ids and times must be written alike.",
        )
    if (twice := right.select(_KEY).is_duplicated()).any():
        name, time = right.filter(twice).select(_KEY).row(0)
        raise DataError(
            "Actuals must have one row for each series and time.",
            got=f"two for series {name!r} at {time}",
            hint="drop or aggregate the duplicates.",
        )
    # Steps are counted with those that have no value yet; a category that the actuals bring is known with a value only.
    joined = left.join(right, on=_KEY, how="inner" if extra else "left", maintain_order="left")
    return to_native(joined.drop(_KEY), library), names


def _keys(table: pl.DataFrame, ids: tuple[SeriesId, ...], codes: Ints, spec: ColumnSpec) -> list[pl.Series]:
    stamps, _ = read_times(table[spec.time_col], codes, spec)
    if stamps.dtype.is_temporal():
        zone = stamps.dtype.time_zone if isinstance(stamps.dtype, pl.Datetime) else None
        stamps = stamps.cast(pl.Datetime("us", zone))
        stamps = stamps.dt.convert_time_zone("UTC") if zone else stamps
    elif stamps.dtype.is_integer():
        stamps = stamps.cast(pl.Int64)
    return [pl.Series(_KEY[0], ids).gather(codes), stamps.alias(_KEY[1])]


def _require(what: str, table: pl.DataFrame, needed: list[str]) -> None:
    for name in needed:
        if name not in table.columns:
            raise DataError(
                f"{what} must have the columns {', '.join(needed)}.",
                got=f"no {name} among {', '.join(table.columns)}",
                hint=suggest(name, table.columns, "name your columns with id_col=, time_col=, target_col=."),
            )
    if not table.height:
        raise DataError(f"{what} must have rows.", got="an empty table", hint="check how it was read or filtered.")


def _shown(table: pl.DataFrame, spec: ColumnSpec) -> str:
    return f"{table[spec.id_col][0]!r} at {table[spec.time_col][0]}"
