"""A frame or file -> Panel; Panel + a frame of known future values -> Panel whose covariates reach beyond its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Unpack

import numpy as np
import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.columns import Columns, ColumnSpec, refuse_duplicates, require
from logsparse.data.files import (
    BYTES_PER_CELL,
    BYTES_PER_CELL_READ,
    BYTES_PER_EXTRA_CELL,
    BYTES_PER_LONG_ROW,
    check_memory,
    collect,
    count_rows,
    schema_of,
)
from logsparse.data.grid import (
    Library,
    Rows,
    check_size,
    number_series,
    place_on_grid,
    read_category,
    read_numbers,
    scan_native,
)
from logsparse.data.panel import Floats, Origin, Panel
from logsparse.data.times import looks_like_times, on_clock
from logsparse.errors import DataError

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

# S series, L steps of a wide table

_COLUMNS_AT_ONCE = 512
# What pandas' to_csv and read_csv call the index that they wrote along.
_UNNAMED = ("", "Unnamed: 0")

log = logging.getLogger("logsparse")

Data: TypeAlias = "IntoDataFrame | pl.LazyFrame | str | Path | Panel"
"""What `fit`, `backtest` and `to_panel` accept: a frame, the path of a file or folder, or a panel."""


def to_panel(data: Data, **columns: Unpack[Columns]) -> Panel:
    """Long (`unique_id, ds, y`) or wide (time column + one column a series) frames and files; a Panel stays itself."""
    ask = ColumnSpec.of(columns)
    if isinstance(data, Panel):
        return data
    table, library = scan_native(data, ids=ask.id_col, needed=ask.used)
    if not schema_of(table) or (height := count_rows(table)) == 0:
        raise DataError("A frame must have rows.", got="an empty frame", hint="check what was read or filtered.")
    table = _without_row_numbers(table, ask)
    time_col = _wide_by(table, ask)
    if time_col is None:
        require(list(schema_of(table)), ask.used)
        beside = BYTES_PER_EXTRA_CELL * (len(ask.covariates) + len(ask.static))
        check_memory(height * (BYTES_PER_LONG_ROW + beside), f"{height} rows")
        return _from_long(collect(table, ask.used), ask, library)
    log.info("recognised a wide table: time column %r, one column a series", time_col)
    width = len(schema_of(table))
    check_memory(
        height * (BYTES_PER_CELL * width + BYTES_PER_CELL_READ * min(width, _COLUMNS_AT_ONCE)),
        f"{height} rows of {width} columns",
    )
    return _from_wide(table, ask, time_col, library)


def _without_row_numbers(table: pl.LazyFrame, ask: ColumnSpec) -> pl.LazyFrame:
    """Without a first column that has no name and only counts the rows."""
    schema = schema_of(table)
    name = next(iter(schema))
    if name not in _UNNAMED or name in ask.used or not schema[name].is_integer():
        return table
    numbers = collect(table, [name])[name]
    counts = [pl.Series(np.arange(first, first + len(numbers))) for first in (0, 1)]
    # Rows that were picked from a longer table keep its numbers; they cannot be times where those have a column.
    picked = ask.time_col in schema and numbers.n_unique() == len(numbers)
    if not picked and not any((numbers == count).all() for count in counts):
        return table
    log.info("left out the unnamed first column: row numbers")
    return table.drop(name)


def time_column(table: pl.LazyFrame, ask: ColumnSpec) -> str | None:
    """The column of that name, or the only one that holds dates, as such or as text."""
    schema = schema_of(table)
    if ask.time_col in schema:
        return ask.time_col
    texts = [name for name, kind in schema.items() if kind == pl.String]
    first = collect(table.head(100), texts)
    dated = [n for n, kind in schema.items() if kind.is_temporal() or (n in texts and looks_like_times(first[n]))]
    return dated[0] if len(dated) == 1 else None


def _wide_by(table: pl.LazyFrame, ask: ColumnSpec) -> str | None:
    """The time column of a wide table; None for a long one."""
    schema, wanted = schema_of(table), [*ask.covariates, *ask.static]
    alone = {ask.time_col, ask.target_col, *wanted} == set(schema)
    if ask.id_col in schema or (ask.target_col in schema and not alone) or ask.static:
        return None
    time_col = time_column(table, ask)
    rest = {name: kind for name, kind in schema.items() if name not in (time_col, *wanted)}
    if time_col is None or not any(kind.is_numeric() for kind in rest.values()):
        return None
    require(list(schema), ask.covariates)
    odd = [name for name, kind in rest.items() if not (kind.is_numeric() or kind == pl.Null)]
    if odd:
        raise DataError(
            f"A wide table must hold numbers beside its time column {time_col!r}.",
            got=f"{'text' if schema[odd[0]] == pl.String else schema[odd[0]]} in {odd[0]!r}",
            hint="leave that column out; if the table is long, name its columns with id_col= and target_col=.",
        )
    refuse_duplicates(schema, schema)
    return time_col


def _from_long(table: pl.DataFrame, ask: ColumnSpec, library: Library) -> Panel:
    ids, codes = number_series(table, ask.id_col)
    rows, freq, origin = place_on_grid(ids, codes, table[ask.time_col], ask.freq)
    begins = rows.begins
    steps = freq.steps(rows.times[begins][rows.codes], rows.times)
    lengths = steps[np.append(begins[1:], rows.times.size) - 1] + 1
    check_size(rows, freq, lengths, 1 + len(ask.covariates))
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
        static={name: read_category(table[name], rows) for name in ask.static},
        origin=Origin(library, "long", *origin),
    )
    return _trim_leading_gaps(panel)


def _from_wide(table: pl.LazyFrame, ask: ColumnSpec, time_col: str, library: Library) -> Panel:
    names = [name for name in schema_of(table) if name not in (time_col, *ask.covariates)]
    # The times come with the first columns: a read of their own would cost as much again.
    first = collect(table, [time_col, *names[:_COLUMNS_AT_ONCE]])
    stamps = first.drop_in_place(time_col)
    rows, freq, origin = place_on_grid((), np.zeros(len(stamps), np.int64), stamps, ask.freq)
    cells = freq.steps(np.full_like(rows.times, rows.times[0]), rows.times)
    length = int(cells[-1]) + 1
    check_size(rows, freq, np.array([length]), len(names) + len(ask.covariates))
    straight = length == len(stamps) and bool((rows.order[1:] > rows.order[:-1]).all())

    def spread(column: pl.Series, into: Floats) -> None:
        named = replace(rows, ids=(column.name,))
        numbers = read_numbers(column, named, freq, straight=straight)
        if straight:
            into[:] = numbers
        else:
            into[:] = np.nan
            into[cells] = numbers

    shared = {name: np.empty(length, np.float32) for name in ask.covariates}
    for name, into in shared.items():
        spread(collect(table, [name])[name], into)
    values_SL = np.empty((len(names), length), np.float32)
    for column, into in zip(chain(first, _columns(table, names[_COLUMNS_AT_ONCE:])), values_SL, strict=True):
        spread(column, into)
    panel = Panel(
        values=values_SL.reshape(-1),
        indptr=np.arange(len(names) + 1) * length,
        lengths=np.full(len(names), length),
        ids=tuple(names),
        starts=np.full(len(names), rows.times[0]),
        freq=freq,
        covariates={name: np.tile(into, len(names)) for name, into in shared.items()},
        origin=Origin(library, "wide", *origin),
    )
    return _trim_leading_gaps(panel)


def _columns(table: pl.LazyFrame, names: list[str]) -> Iterator[pl.Series]:
    """One by one; very wide files are never in memory whole beside their panel.

    Every read costs some 50 ms however little it reads, so few large ones beat many small ones (docs/LOG.md).
    """
    for begin in range(0, len(names), _COLUMNS_AT_ONCE):
        yield from collect(table, names[begin : begin + _COLUMNS_AT_ONCE])


def _trim_leading_gaps(panel: Panel) -> Panel:
    """The panel without the empty steps before each series' first value: they are no part of its life.

    A wide table cannot leave them out and a long one need not write them, so neither may decide about a series' age.
    """
    late_S = np.zeros(len(panel), np.int64)
    for series in np.flatnonzero(np.isnan(panel.values[panel.indptr[:-1]])).tolist():
        seen = ~np.isnan(panel[series])
        if not seen.any():
            raise DataError(
                "Every series must have at least one value.",
                got=f"none in series {panel.ids[series]!r}",
                hint="leave that series out.",
            )
        late_S[series] = panel.freq.restart(int(panel.starts[series]), int(np.argmax(seen)))
    if not late_S.any():
        return panel
    indptr = np.concatenate([[0], np.cumsum(panel.lengths - late_S)])

    def trim(flat: Floats) -> Floats:
        # In place, from the first series on: a second copy of a large panel would be one too many.
        for begin, end, old in zip(indptr, indptr[1:], panel.indptr[:-1] + late_S, strict=False):
            flat[begin:end] = flat[old : old + end - begin]
        return flat[: indptr[-1]]

    return replace(
        panel,
        values=trim(panel.values),
        indptr=indptr,
        lengths=panel.lengths - late_S,
        starts=panel.freq.add(panel.starts, late_S),
        covariates={name: trim(flat) for name, flat in panel.covariates.items()},
    )


@dataclass(frozen=True)
class _FutureRows:
    """Rows within the horizon: of which series, how many steps after its end, and where in the table."""

    series: Ints
    ahead: Ints
    row: Ints


def join_future(panel: Panel, future: Data | None, horizon: int, **columns: Unpack[Columns]) -> Panel:
    """The panel with its covariates reaching `horizon` steps beyond each end, from a frame of future rows.

    The frame is long, or, for covariates that all series share, a time column and the covariates.
    """
    if future is None and (panel.stored >= panel.lengths + horizon).all():
        return panel
    names = list(panel.covariates)
    if future is None:
        raise DataError(
            f"The covariates {', '.join(names)} must be known for the {horizon} steps to forecast.",
            got="no future values",
            hint="give them with predict(future=frame); leave out what is known of the past only.",
        )
    ask = ColumnSpec.of(columns)
    lazy, _ = scan_native(future, ids=ask.id_col, needed=[ask.id_col, ask.time_col, *names])
    time_col = time_column(lazy, ask) or ask.time_col
    shared = panel.origin.layout == "wide" and ask.id_col not in schema_of(lazy)
    wanted = [time_col, *names] if shared else [ask.id_col, time_col, *names]
    require(list(schema_of(lazy)), wanted)
    table = collect(lazy, wanted)
    known = _within(panel, table, horizon, time_col, None if shared else ask.id_col)
    indptr = np.concatenate([[0], np.cumsum(panel.lengths + horizon)])
    seen = np.concatenate([np.arange(b, b + n) for b, n in zip(indptr[:-1], panel.lengths, strict=True)])
    source = np.concatenate([np.arange(b, b + n) for b, n in zip(panel.indptr[:-1], panel.lengths, strict=True)])
    rows = Rows(panel.ids, known.row, known.series, panel.freq.add(panel.ends()[known.series], known.ahead + 1))
    cells = indptr[known.series] + panel.lengths[known.series] + known.ahead

    def extend(name: str | None) -> Floats:
        flat = np.full(indptr[-1], np.nan, np.float32)
        flat[seen] = (panel.values if name is None else panel.covariates[name])[source]
        if name is not None:
            flat[cells] = read_numbers(table[name], rows, panel.freq)
        return flat

    longer = replace(panel, values=extend(None), indptr=indptr, covariates={name: extend(name) for name in names})
    _refuse_short(longer, horizon)
    return longer


def _within(panel: Panel, table: pl.DataFrame, horizon: int, time_col: str, id_col: str | None) -> _FutureRows:
    """The rows that count, each on the grid and none twice; rows of the past and of other series do not."""
    late = np.flatnonzero(on_clock(panel, table[time_col]) > panel.ends().min())
    if id_col is None:
        series, row = np.repeat(np.arange(len(panel)), late.size), np.tile(late, len(panel))
    else:
        numbered = _number(panel, table, id_col)[late]
        series, row = numbered[numbered >= 0], late[numbered >= 0]
    times = on_clock(panel, table[time_col][row], series)
    rows = Rows(panel.ids, row, series, times)
    ahead = panel.freq.steps(panel.starts[series], times) - panel.lengths[series]
    off = panel.freq.add(panel.starts[series], panel.lengths[series] + ahead) != times
    if (off_grid := off & (times > panel.ends()[series]) & (ahead < horizon)).any():
        raise DataError(
            "Future values must stand at the steps to forecast.",
            got=f"a time off the step of {panel.freq} {rows.first(off_grid, panel.freq)}",
            hint="write the times as predict() gives them.",
        )
    fits = (ahead >= 0) & (ahead < horizon)
    cells = pl.Series(np.where(fits, series * horizon + ahead, -1 - np.arange(fits.size)))
    if (twice := cells.is_duplicated().to_numpy()).any():
        raise DataError(
            "Future values must come once for each series and time.",
            got=f"two rows {rows.first(twice, panel.freq, 'for')}",
            hint="drop or aggregate the doubles.",
        )
    return _FutureRows(series[fits], ahead[fits], row[fits])


def _number(panel: Panel, table: pl.DataFrame, id_col: str) -> Ints:
    """The panel's number for the series of each row, -1 for one that it does not have."""
    ids, codes = number_series(table, id_col)
    numbered = dict(zip(panel.ids, range(len(panel)), strict=True))
    found = np.array([numbered.get(name, -1) for name in ids], np.int64)
    if (found < 0).all():
        raise DataError(
            "Future values must be of the series to forecast.",
            got=f"ids such as {ids[0]!r} for series such as {panel.ids[0]!r}" if ids else "no rows",
            hint="write the ids as they were in the data.",
        )
    return np.asarray(found[codes])


def _refuse_short(panel: Panel, horizon: int) -> None:
    for name, flat in panel.covariates.items():
        unknown = np.isnan(flat[panel.indptr[1:, None] - horizon + np.arange(horizon)])
        if unknown.any():
            short = int(np.argmax(unknown.any(axis=1)))
            raise DataError(
                f"The covariate {name!r} must be known for all {horizon} steps to forecast.",
                got=f"series {panel.ids[short]!r} with {horizon - int(unknown[short].sum())} of them",
                hint=f"give future values up to {horizon} steps after {panel.freq.show(int(panel.ends()[short]))}.",
            )
