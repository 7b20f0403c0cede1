"""A list of Python objects -> polars column: numbers, times or truth values where all are so, else text."""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import polars as pl

from logsparse.data.reading import TROUBLE
from logsparse.data.times import zoned
from logsparse.errors import DataError, shown

# The first that fits is a value's kind: datetimes are dates, truth values and durations integers to
# Python, not to us.
_KINDS = (bool, np.bool_, np.timedelta64, Integral, Decimal, Real, str, bytes, datetime, date, timedelta, time)
_NUMBERS = {Integral, Decimal, Real}
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, pl.Series)
# What polars can hold as an integer.
_WIDEST = 2**127


def from_objects(name: str, listed: list[Any], *, ids: bool = False) -> pl.Series:
    """One kind of value as that kind, several kinds of number as floats, any other mix as text; no value changes.

    In a column of `ids` no two of them may become one.
    """
    values = [None if _is_missing(value) else value for value in listed]
    kinds = {_kind(each) for each in set(map(type, values)) - {type(None)}}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), _NESTED):  # among other kinds they are told as text
        raise _nested(name, next(value for value in values if value is not None), ids=ids)
    column = _numbers(name, values, kinds, ids=ids) if kinds and kinds <= _NUMBERS else _others(name, values, kinds)
    if ids and len(kinds) > 1:
        _refuse_twins(name, values, column)
    return column


def texts(name: str, values: list[Any]) -> pl.Series:
    """Each value as Python writes it."""
    return pl.Series(name, [None if value is None else str(value) for value in values], pl.String)


def _is_missing(value: object) -> bool:
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _kind(found: type) -> type:
    return next((kind for kind in _KINDS if issubclass(found, kind)), found)


def _numbers(name: str, values: list[Any], kinds: set[type], *, ids: bool) -> pl.Series:
    present = [value for value in values if value is not None]
    if kinds == {Integral} and all(-_WIDEST < value < _WIDEST for value in present):
        return pl.Series(name, [None if value is None else int(value) for value in values], strict=False)
    if kinds == {Decimal} and all(value.is_finite() for value in present):
        with suppress(*TROUBLE):
            column = pl.Series(name, values)
            if column.to_list() == values:  # polars drops those that have more digits than it can hold together
                return column
    if ids and len(kinds) == 1 and kinds != {Real}:
        return texts(name, values)
    try:
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    except OverflowError:  # an integer beyond 1.8e308: as text it can be named where numbers are needed
        return texts(name, values)


def _others(name: str, values: list[Any], kinds: set[type]) -> pl.Series:
    zones = {str(value.tzinfo) for value in values if isinstance(value, datetime)}
    if len(kinds) > 1 or len(zones) > 1:  # polars would settle on one kind, or one zone, without a word
        return texts(name, values)
    try:
        column = pl.Series(name, values, strict=False)
    except TROUBLE:
        return texts(name, values)
    if column.dtype == pl.Object or column.null_count() != values.count(None):
        return texts(name, values)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
        return zoned(column.dt.convert_time_zone("UTC").dt.replace_time_zone(None), zones.pop())
    return column


def _nested(name: str, value: object, *, ids: bool) -> DataError:
    """Containers are kept from polars: one that holds itself, or lies very deep, overflows its stack."""
    return DataError(
        f"The ids in {name!r} must be text or numbers." if ids else f"The column {name!r} must hold single values.",
        got=f"{type(value).__name__} such as {shown(value)}",
        hint="make a text of it first, or name another column" + (" with id_col=." if ids else "."),
    )


def _refuse_twins(name: str, values: list[Any], column: pl.Series) -> None:
    """Two ids that differ to Python, such as 1 and "1", must not become one series."""
    first: dict[Hashable, Any] = {}
    for value, became in zip(values, column.to_list(), strict=True):
        if isinstance(value, _NESTED) or type(value).__hash__ is None:
            raise _nested(name, value, ids=True)
        if value is None:
            continue
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(became)
        for key in (text, value):
            other = first.setdefault(key, value)
            if _kind(type(other)) is not _kind(type(value)) or (isinstance(value, Real) and other != value):
                raise DataError(
                    f"The ids in {name!r} must differ by more than their type.",
                    got=f"{shown(other)} ({type(other).__name__}) and {shown(value)} ({type(value).__name__})",
                    hint="write all ids alike, for example as text.",
                )
