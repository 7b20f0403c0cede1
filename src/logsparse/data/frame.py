"""A frame or file -> Panel: columns checked, rows put on one regular grid. The only place that names columns."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

import numpy as np
import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.files import collect
from logsparse.data.grid import Rows, lay_out, number_series, read_category, read_numbers
from logsparse.data.panel import Floats, Origin, Panel
from logsparse.data.table import UNTIL, Library, from_wall, moments, parse_time, take, take_lazily, to_wall
from logsparse.errors import DataError

ID, TIME, TARGET, CUTOFF = "unique_id", "ds", "y", "cutoff"
# A grid this much larger than the rows that fill it comes from a wrong freq, and would only eat the memory.
_EMPTIEST_GRID = 1000
_COLUMNS_AT_ONCE = 32

log = logging.getLogger("logsparse")


class Columns(TypedDict, total=False):
    """What a frame's columns mean; every entry can be left out."""

    id_col: str
    time_col: str
    target_col: str
    freq: str | int | None
    covariates: list[str]
    static: list[str]


@dataclass(frozen=True, kw_only=True)
class _Ask:
    """The same, with the usual names filled in."""

    id_col: str = ID
    time_col: str = TIME
    target_col: str = TARGET
    freq: str | int | None = None
    covariates: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)


def to_panel(data: Any, **columns: Unpack[Columns]) -> Panel:
    """Long (`unique_id, ds, y`) or wide (time column + one column a series) frames and files; a Panel stays itself."""
    if isinstance(data, Panel):
        return data
    ask = _Ask(**columns)
    table, library = take_lazily(data)
    schema = table.collect_schema()
    layout = _layout(schema, ask)
    if collect(table.select(pl.len())).item() == 0:
        raise DataError("A frame must have rows.", got="an empty frame", hint="check what was read or filtered.")
    if layout == "long":
        used = dict.fromkeys([ask.id_col, ask.time_col, ask.target_col, *ask.covariates, *ask.static])
        return _from_long(collect(table, list(used)), ask, library)
    log.info("recognised a wide table: time column %r, one column a series", layout)
    return _from_wide(table, ask, layout, library)


def _layout(schema: pl.Schema, ask: _Ask) -> str:
    """`long`, or the name of a wide table's time column."""
    names, wanted = list(schema), [*ask.covariates, *ask.static]
    if ask.id_col not in schema and (
        ask.target_col not in schema or {ask.time_col, ask.target_col, *wanted} == set(names)
    ):
        dated = [name for name in names if schema[name].is_temporal()]
        time_col = ask.time_col if ask.time_col in schema else dated[0] if len(dated) == 1 else None
        rest = [schema[name] for name in names if name not in (time_col, *wanted)]
        if time_col and rest and not ask.static and all(kind.is_numeric() or kind == pl.Null for kind in rest):
            _require(names, ask.covariates)
            return time_col
    _require(names, [ask.id_col, ask.time_col, ask.target_col, *wanted])
    return "long"


def _require(found: list[str], names: list[str]) -> None:
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


def _from_long(table: pl.DataFrame, ask: _Ask, library: Library) -> Panel:
    ids, codes = number_series(table, ask.id_col)
    stamps = table[ask.time_col]
    if stamps.null_count():
        series = ids[codes[int(stamps.is_null().arg_max() or 0)]]
        raise DataError(
            f"Every row needs a time in {ask.time_col!r}.",
            got=f"none in series {series!r}",
            hint="drop those rows.",
        )
    rows, freq, origin = lay_out(ids, codes, stamps, ask.freq)
    begins = np.flatnonzero(np.diff(rows.codes, prepend=-1))
    steps = freq.steps(rows.times[begins][rows.codes], rows.times)
    lengths = steps[np.append(begins[1:], rows.times.size) - 1] + 1
    if lengths.sum() > _EMPTIEST_GRID * (rows.times.size + 1000):
        raise DataError(
            "The grid must be about as large as the rows that fill it.",
            got=f"{rows.times.size} rows on a grid of {lengths.sum()} steps of {freq}",
            hint="give the true step with freq=.",
        )
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    cells = indptr[rows.codes] + steps

    def spread(name: str) -> Floats:
        flat = np.full(indptr[-1], np.nan, np.float32)
        flat[cells] = read_numbers(table[name], rows, freq)
        return flat

    panel = Panel(
        values=spread(ask.target_col),
        indptr=indptr,
        lengths=lengths,
        ids=ids,
        starts=rows.times[begins],
        freq=freq,
        covariates={name: spread(name) for name in ask.covariates},
        static={name: read_category(table[name], rows, begins) for name in ask.static},
        origin=Origin(library, "long", *origin),
    )
    return _observed(panel)


def _from_wide(table: pl.LazyFrame, ask: _Ask, time_col: str, library: Library) -> Panel:
    names = [name for name in table.collect_schema() if name not in (time_col, *ask.covariates)]
    stamps = collect(table, [time_col])[time_col]
    rows, freq, origin = lay_out((time_col,), np.zeros(len(stamps), np.int64), stamps, ask.freq)
    cells = freq.steps(np.full_like(rows.times, rows.times[0]), rows.times)
    length = int(cells[-1]) + 1
    straight = length == len(stamps) and bool((rows.order[1:] > rows.order[:-1]).all())

    def spread(column: pl.Series, into: Floats) -> None:
        named = Rows((column.name,), rows.order, rows.codes, rows.times)
        numbers = read_numbers(column, named, freq, straight=straight)
        if straight:
            into[:] = numbers
        else:
            into[:] = np.nan
            into[cells] = numbers

    shared = {name: np.empty(length, np.float32) for name in ask.covariates}
    for name, into in shared.items():
        spread(collect(table, [name])[name], into)
    values = np.empty(len(names) * length, np.float32)
    starts, begins, end = [], [0], 0
    for column in _columns(table, names):
        spread(column, values[end : end + length])
        # A wide table can only say "not yet begun" by leaving the first cells empty.
        late = int(np.argmax(~np.isnan(values[end : end + length]))) if np.isnan(values[end]) else 0
        if late:
            values[end : end + length - late] = values[end + late : end + length].copy()
        starts.append(late)
        end += length - late
        begins.append(end)
    indptr, late_S = np.array(begins, np.int64), np.array(starts, np.int64)
    panel = Panel(
        values=values[:end],
        indptr=indptr,
        lengths=length - late_S,
        ids=tuple(names),
        starts=freq.add(np.full(len(names), rows.times[0]), late_S),
        freq=freq,
        covariates={name: np.concatenate([into[late:] for late in starts]) for name, into in shared.items()},
        origin=Origin(library, "wide", *origin),
    )
    return _observed(panel)


def _columns(table: pl.LazyFrame, names: list[str]) -> Iterator[pl.Series]:
    """One by one, a few read at a time: a file is never in memory whole beside its panel."""
    for begin in range(0, len(names), _COLUMNS_AT_ONCE):
        yield from collect(table, names[begin : begin + _COLUMNS_AT_ONCE])


def join_future(panel: Panel, future: Any, horizon: int, **columns: Unpack[Columns]) -> Panel:
    """The panel with its covariates reaching `horizon` steps beyond each end, from a frame of future rows."""
    if future is None and (panel.stored >= panel.lengths + horizon).all():
        return panel
    names = list(panel.covariates)
    if future is None:
        raise DataError(
            f"The covariates {', '.join(names)} must be known for the {horizon} steps to forecast.",
            got="no future values",
            hint="give them with predict(future=frame); leave out what is known of the past only.",
        )
    table, _ = take(future)
    ask = _Ask(**columns)
    _require(table.columns, [ask.id_col, ask.time_col, *names])
    numbered = dict(zip(panel.ids, range(len(panel)), strict=True))
    ids, codes = number_series(table, ask.id_col)
    series = np.array([numbered.get(name, -1) for name in ids], np.int64)[codes]
    times = _on_clock(panel, table[ask.time_col])
    ahead = panel.freq.steps(panel.starts[series], times) - panel.lengths[series]
    fits = (series >= 0) & (ahead >= 0) & (ahead < horizon)
    indptr = np.concatenate([[0], np.cumsum(panel.lengths + horizon)])
    seen = np.concatenate([np.arange(b, b + n) for b, n in zip(indptr[:-1], panel.lengths, strict=True)])
    source = np.concatenate([np.arange(b, b + n) for b, n in zip(panel.indptr[:-1], panel.lengths, strict=True)])
    rows = Rows(ids, np.arange(times.size), codes, times)

    def extend(name: str | None) -> Floats:
        flat = np.full(indptr[-1], np.nan, np.float32)
        flat[seen] = (panel.values if name is None else panel.covariates[name])[source]
        if name is not None:
            cells = indptr[series[fits]] + panel.lengths[series[fits]] + ahead[fits]
            flat[cells] = read_numbers(table[name], rows, panel.freq)[fits]
        return flat

    longer = replace(panel, values=extend(None), indptr=indptr, covariates={name: extend(name) for name in names})
    for name, flat in longer.covariates.items():
        ends = np.isnan(flat[indptr[1:, None] - horizon + np.arange(horizon)])
        if ends.any():
            short = int(np.argmax(ends.any(axis=1)))
            raise DataError(
                f"The covariate {name!r} must be known for all {horizon} steps to forecast.",
                got=f"series {panel.ids[short]!r} with {horizon - int(ends[short].sum())} of them",
                hint=f"give future values up to {horizon} steps after {panel.freq.show(int(panel.ends()[short]))}.",
            )
    return longer


def _observed(panel: Panel) -> Panel:
    begins_empty = np.flatnonzero(np.isnan(panel.values[panel.indptr[:-1]]))
    for series in begins_empty.tolist():
        if np.isnan(panel[series]).all():
            raise DataError(
                "Every series must have at least one value.",
                got=f"none in series {panel.ids[series]!r}",
                hint="leave that series out.",
            )
    return panel


def clock_time(panel: Panel, when: str | int | datetime) -> int:
    """A time as a user writes it, on the panel's clock; without an offset it is read as local time."""
    return int(_on_clock(panel, parse_time(when))[0])


def _on_clock(panel: Panel, column: pl.Series) -> Ints:
    times, zone = moments(column)
    if times.dtype.is_temporal() == (panel.freq.kind == "index"):
        raise DataError(
            f"Times in {column.name!r} must be of the kind of the panel's times.",
            got=f"{column[0]!r} for times like {panel.freq.show(int(panel.starts[0]))}",
            hint="write it like those.",
        )
    if zone and zone != panel.origin.zone and column.name != UNTIL:
        raise DataError(
            f"The time column {column.name!r} must keep to one time zone.",
            got=f"{zone} after {panel.origin.zone or 'times without a zone'}",
            hint="convert all times to one zone, for example UTC, first.",
        )
    clock = times.cast(pl.Datetime("us")) if times.dtype.is_temporal() else times
    found = clock.to_numpy().astype(np.int64)
    if panel.origin.zone and zone is None and not panel.freq.counts_days:
        return from_wall(found, panel.origin.zone)
    if panel.origin.zone and zone is not None and panel.freq.counts_days:
        return to_wall(found, panel.origin.zone)
    return np.asarray(found)


def stamps(panel: Panel, times: Ints) -> pl.Series:
    """Times on the panel's clock as the kind of column that came."""
    origin = panel.origin
    if origin.time_type == "integer":
        return pl.Series(TIME, times)
    if origin.zone:
        utc = from_wall(times, origin.zone) if panel.freq.counts_days else times
        column = pl.Series(TIME, utc.astype("datetime64[us]"))
        return column.dt.replace_time_zone("UTC").dt.convert_time_zone(origin.zone)
    column = pl.Series(TIME, times.astype("datetime64[us]"))
    return column.cast(pl.Date) if origin.time_type == "date" else column
