"""Names and meanings of a frame's columns, and columns of Python objects -> polars columns, checked."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from numbers import Integral, Real
from typing import Any, TypedDict, cast

import numpy as np
import polars as pl

from logsparse.checks import keywords, listed
from logsparse.data.calendar import Step
from logsparse.data.times import READER_ERRORS, zoned
from logsparse.errors import ConfigError, DataError, shown

ID, TIME, TARGET, CUTOFF = "unique_id", "ds", "y", "cutoff"
# What a backtest adds so that its frame can be judged alone: a point forecast to compare with, and the unit of MASE.
NAIVE, SCALE = "seasonal_naive", "seasonal_error"
# Stands behind the name of a column that came a second time: pandas and pyarrow allow it, polars does not.
_AGAIN = "\0again"


class Columns(TypedDict, total=False):
    """What a frame's columns mean; every entry can be left out."""

    id_col: str | int
    time_col: str | int
    target_col: str | int
    freq: Step | None
    covariates: Iterable[str] | None
    static: Iterable[str] | None


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """The same, with the usual names filled in."""

    id_col: str = ID
    time_col: str = TIME
    target_col: str = TARGET
    freq: Step | None = None
    covariates: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, columns: Columns) -> ColumnSpec:
        """A pandas frame may name its columns by numbers: inside, every name is text."""
        keywords(columns, Columns.__annotations__)
        self = cls(
            id_col=str(columns.get("id_col", ID)),
            time_col=str(columns.get("time_col", TIME)),
            target_col=str(columns.get("target_col", TARGET)),
            freq=columns.get("freq"),
            covariates=listed("covariates", columns.get("covariates")),
            static=listed("static", columns.get("static")),
        )
        taken: dict[str, str] = {}
        for use, names in self._uses().items():
            for name in names:
                if taken.setdefault(name, use) != use:
                    raise ConfigError(
                        "A column must have one meaning.",
                        got=f"{name!r} as {taken[name]} and as {use}",
                        hint="leave out one of the two.",
                    )
        return self

    def _uses(self) -> dict[str, list[str]]:
        alone = {"id_col": [self.id_col], "time_col": [self.time_col], "target_col": [self.target_col]}
        return {**alone, "covariates": self.covariates, "static": self.static}

    @property
    def used(self) -> list[str]:
        """Every column of a long table that is read."""
        return list(dict.fromkeys(chain(*self._uses().values())))


def validate_columns(columns: Columns) -> Columns:
    """What was given, checked, as plain text and lists: it is read more than once, and saved with a model."""
    checked = ColumnSpec.of(columns)
    return cast("Columns", {name: getattr(checked, name) for name in columns})


def unique_names(names: Iterable[object]) -> list[str]:
    """Names as text, the second of two equal ones marked, so that a table can hold them all."""
    found: dict[str, None] = {}
    for name in map(str, names):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError("Column names must be valid Unicode.", got=f"{name!r}", hint="rename that column.")
        unique = name
        while unique in found:
            unique += _AGAIN
        found[unique] = None
    return list(found)


def refuse_duplicates(found: Iterable[str], used: Iterable[str]) -> None:
    """A column that is read must be there once; others may come as often as they like."""
    wanted = set(used)
    for name in found:
        if name.endswith(_AGAIN) and (plain := name.split(_AGAIN)[0]) in wanted:
            raise DataError(
                f"The column {plain!r} must be there once.",
                got="two columns of that name",
                hint="drop or rename one of them.",
            )


def require(found: Sequence[str], names: Sequence[str]) -> None:
    """All these columns, each once."""
    refuse_duplicates(found, names)
    found = [name for name in found if _AGAIN not in name]
    missing = [name for name in names if name not in found]
    if not missing:
        return
    alike = {name: difflib.get_close_matches(name, found, n=1, cutoff=0.5) for name in missing}
    meant = [f"{name!r} may be {near[0]!r}" for name, near in alike.items() if near]
    raise DataError(
        f"A frame must have the columns {', '.join(names)}, or be wide: a time column and one number column a series.",
        got=f"no {', '.join(missing)} among {', '.join(found[:12])}",
        hint="; ".join([*meant, "name your columns with id_col=, time_col=, target_col=."]),
    )


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
        with suppress(*READER_ERRORS):
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
    except READER_ERRORS:
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
