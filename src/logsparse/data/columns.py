"""Keywords such as id_col= -> ColumnSpec, the roles of columns; columns of Python objects -> polars columns."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from numbers import Integral, Real
from typing import Any, TypedDict, cast

import numpy as np
import polars as pl

from logsparse.data.calendar import Freq, Step
from logsparse.data.panel import Origin
from logsparse.data.times import READER_ERRORS, zone_named, zoned
from logsparse.errors import ConfigError, DataError, MissingColumnsError, keywords, listed, shown, truth

ID, TIME, TARGET, CUTOFF = "unique_id", "ds", "y", "cutoff"
# Names the forecaster of each row in the results of several.
MODEL = "model"
# Columns that a backtest adds so that its frame can be scored alone: a reference forecast, and the scale of MASE.
NAIVE, SCALE = "seasonal_naive", "seasonal_error"
_DEFAULTS = (ID, TIME, TARGET)
# Columns that results have beside ids, times and values.
_RESULTS = {CUTOFF, NAIVE, SCALE, "mean", "model", "step", "attended", "weight"}
_QUANTILE = re.compile(r"q[0-9.]+")
# Appended to the name of a duplicate column: pandas and pyarrow allow duplicates, polars does not.
_DUPLICATE = "\0again"
# The first match is the kind of a value. The order matters: to Python, datetimes are dates, and booleans integers.
_KINDS = (bool, np.bool_, np.timedelta64, Integral, Decimal, Real, str, bytes, datetime, date, timedelta, time)
_NUMBERS = {Integral, Decimal, Real}
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, pl.Series)
# Bound of the integers that polars can store.
_WIDEST = 2**127


class Columns(TypedDict, total=False):
    """Keywords that describe the columns of a frame; all are optional."""

    id_col: str | int
    time_col: str | int
    target_col: str | int
    freq: Step | None
    covariates: Iterable[str] | None
    past_covariates: Iterable[str] | None
    static: Iterable[str] | None
    tz: str | tzinfo | None
    time_format: str | None
    dayfirst: bool | None


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """Validated `Columns` with the default names filled in."""

    id_col: str = ID
    time_col: str = TIME
    target_col: str = TARGET
    freq: Step | None = None
    covariates: list[str] = field(default_factory=list)
    past_covariates: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)
    tz: str | None = None
    time_format: str | None = None
    dayfirst: bool | None = None
    home: str | None = None
    """Zone of a fitted model, into which times of other zones are converted; no keyword of users."""
    step: Freq | None = None
    """Step of other data, as if it had been found in these; no keyword of users."""

    @classmethod
    def of(cls, columns: Columns) -> ColumnSpec:
        """Validate the keywords; names become text, since pandas may name columns by numbers."""
        keywords(columns, Columns.__annotations__)
        self = cls(
            id_col=str(columns.get("id_col", ID)),
            time_col=str(columns.get("time_col", TIME)),
            target_col=str(columns.get("target_col", TARGET)),
            freq=columns.get("freq"),
            covariates=listed("covariates", columns.get("covariates")),
            past_covariates=listed("past_covariates", columns.get("past_covariates")),
            static=listed("static", columns.get("static")),
            tz=None if (zone := columns.get("tz")) is None else zone_named(zone),
            time_format=_format(columns.get("time_format")),
            dayfirst=None if (first := columns.get("dayfirst")) is None else truth("dayfirst", first),
        )
        if self.time_format is not None and self.dayfirst is not None:
            raise ConfigError(
                "time_format already says which number is the day.",
                got=f"time_format={self.time_format!r} and dayfirst={self.dayfirst}",
                hint="leave one of the two out.",
            )
        roles: dict[str, str] = {}
        for role, names in self._roles().items():
            for name in names:
                if roles.setdefault(name, role) != role:
                    raise ConfigError(
                        "A column must have one role.",
                        got=f"{name!r} as {roles[name]} and as {role}",
                        hint="remove one of the two.",
                    )
        return self

    def _roles(self) -> dict[str, list[str]]:
        single = {"id_col": [self.id_col], "time_col": [self.time_col], "target_col": [self.target_col]}
        several = {"covariates": self.covariates, "past_covariates": self.past_covariates, "static": self.static}
        return {**single, **several}

    @property
    def timed(self) -> list[str]:
        """Columns beside the target that change with time."""
        return [*self.covariates, *self.past_covariates]

    @property
    def used(self) -> list[str]:
        """All columns that are read from a long table."""
        return list(dict.fromkeys(chain(*self._roles().values())))

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of id, time and target in results; a default where a result has a column of that name already."""
        given = (self.id_col, self.time_col, self.target_col)
        free = [default if in_results(name) else name for name, default in zip(given, _DEFAULTS, strict=True)]
        return _DEFAULTS if len(set(free)) < len(free) else (free[0], free[1], free[2])


def in_results(name: str) -> bool:
    """Return True for the name of a column that results have beside ids, times and values."""
    return name in _RESULTS or _QUANTILE.fullmatch(name) is not None


def result_names(origin: Origin) -> tuple[str, str, str]:
    """Return the names of id, time and target in results: those of the data; the default ones after a wide table."""
    return origin.names or _DEFAULTS


def _format(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or "%" not in value):
        raise ConfigError(
            "time_format must be a format of strftime.", got=shown(value), hint="write it like '%d.%m.%Y %H:%M'."
        )
    return value


def validate_columns(columns: Columns) -> Columns:
    """Return the given keywords, validated, as plain text and lists, ready to be saved with a model."""
    spec = ColumnSpec.of(columns)
    return cast("Columns", {name: getattr(spec, name) for name in columns})


def unique_names(names: Iterable[object]) -> list[str]:
    """Return the names as text, with duplicates marked so that a polars table can hold them."""
    taken: dict[str, None] = {}
    for name in map(str, names):
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError("Column names must be valid Unicode.", got=f"{name!r}", hint="rename that column.")
        unique = name
        while unique in taken:
            unique += _DUPLICATE
        taken[unique] = None
    return list(taken)


def refuse_duplicates(found: Iterable[str], used: Iterable[str]) -> None:
    """Raise if a column that is read is there twice; duplicates of unused columns are allowed."""
    wanted = set(used)
    for name in found:
        if name.endswith(_DUPLICATE) and (plain := name.split(_DUPLICATE)[0]) in wanted:
            raise DataError(
                f"The column {plain!r} must be unique.",
                got="two columns of that name",
                hint="drop or rename one of them.",
            )


def require(found: Sequence[str], names: Sequence[str]) -> None:
    """Raise unless all of these columns are there, each once."""
    refuse_duplicates(found, names)
    found = [name for name in found if _DUPLICATE not in name]
    missing = [name for name in names if name not in found]
    if not missing:
        return
    close = {name: difflib.get_close_matches(name, found, n=1, cutoff=0.5) for name in missing}
    guesses = [f"{near[0]!r} is similar to {name!r}" for name, near in close.items() if near]
    columns = "name your columns with id_col=, time_col=, target_col="
    if len(found) == 1:
        columns = f"add a column of times beside {found[0]!r}"
    elif not {names[0], names[1]} - set(missing):
        columns += f"; for one series, or one per column, name the times alone, such as time_col={found[0]!r}"
    error = MissingColumnsError(
        f"A frame must have the columns {', '.join(names)}, or be wide: a time column and one numeric column "
        "per series.",
        got=f"no {', '.join(missing)} among {', '.join(found[:12])}",
        hint="; ".join([*guesses, f"{columns}."]),
    )
    error.missing = tuple(missing)
    raise error


def from_objects(name: str, listed: list[Any], *, ids: bool = False) -> pl.Series:
    """Convert Python objects to a polars column without changing a value.

    Values of one kind keep it; several kinds of numbers become floats; any other mix becomes text. In a column of
    `ids`, two different ids that would become equal are refused.
    """
    values = [None if _is_missing(value) else value for value in listed]
    kinds = {_kind(each) for each in set(map(type, values)) - {type(None)}}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), _NESTED):  # in a mix they become text
        raise _nested(name, next(value for value in values if value is not None), ids=ids)
    column = _numbers(name, values, kinds, ids=ids) if kinds and kinds <= _NUMBERS else _others(name, values, kinds)
    if ids and len(kinds) > 1:
        _refuse_twins(name, values, column)
    return column


def first_wrong(text: pl.Series) -> int:
    """Return the position of the first text that is no number; one with a decimal comma only if no other is wrong."""
    for column in (text.str.replace(",", ".", literal=True), text):
        finite = column.cast(pl.Float64, strict=False).is_finite().fill_null(value=False)
        if (wrong := column.is_not_null() & ~finite).any():
            return int(wrong.arg_max() or 0)
    return int(text.is_not_null().arg_max() or 0)


def texts(name: str, values: list[Any]) -> pl.Series:
    """Return each value as Python writes it."""
    return pl.Series(name, [None if value is None else str(value) for value in values], pl.String)


def _is_missing(value: object) -> bool:
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _kind(given: type) -> type:
    return next((kind for kind in _KINDS if issubclass(given, kind)), given)


def _numbers(name: str, values: list[Any], kinds: set[type], *, ids: bool) -> pl.Series:
    present = [value for value in values if value is not None]
    if kinds == {Integral} and all(-_WIDEST < value < _WIDEST for value in present):
        return pl.Series(name, [None if value is None else int(value) for value in values], strict=False)
    if kinds == {Decimal} and all(value.is_finite() for value in present):
        with suppress(*READER_ERRORS):
            column = pl.Series(name, values)
            if column.to_list() == values:  # polars drops decimals with more digits than it can store
                return column
    if ids and len(kinds) == 1 and kinds != {Real}:
        return texts(name, values)
    try:
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    except OverflowError:  # an integer beyond 1.8e308; as text, an error can show it
        return texts(name, values)


def _others(name: str, values: list[Any], kinds: set[type]) -> pl.Series:
    zones = {str(value.tzinfo) for value in values if isinstance(value, datetime)}
    if len(kinds) > 1 or len(zones) > 1:  # polars would silently convert to one kind or zone
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
    """Refuse containers: polars overflows its stack on one that contains itself or is deeply nested."""
    return DataError(
        f"The ids in {name!r} must be text or numbers." if ids else f"The column {name!r} must hold scalars.",
        got=f"{type(value).__name__} such as {shown(value)}",
        hint="convert them to text first, or name another column" + (" with id_col=." if ids else "."),
    )


def _refuse_twins(name: str, values: list[Any], column: pl.Series) -> None:
    """Raise if two different ids, such as 1 and "1", would become one series."""
    first: dict[Hashable, Any] = {}
    for value, converted in zip(values, column.to_list(), strict=True):
        if isinstance(value, _NESTED) or type(value).__hash__ is None:
            raise _nested(name, value, ids=True)
        if value is None:
            continue
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(converted)
        for key in (text, value):
            other = first.setdefault(key, value)
            if _kind(type(other)) is not _kind(type(value)) or (isinstance(value, Real) and other != value):
                raise DataError(
                    f"The ids in {name!r} must differ by more than their type.",
                    got=f"{shown(other)} ({type(other).__name__}) and {shown(value)} ({type(value).__name__})",
                    hint="give all ids the same type, for example text.",
                )


def to_pandas(column: pl.Series) -> Any:
    """Convert one column to what a pandas frame is made of, without pyarrow."""
    import pandas as pd

    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone:
        wall = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
        return pd.Series(wall).dt.tz_localize("UTC").dt.tz_convert(column.dtype.time_zone)
    return column.to_list() if column.dtype in (pl.String, pl.Date) else column.to_numpy()
