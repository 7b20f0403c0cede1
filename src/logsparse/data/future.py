"""Panel + a frame of what is known of the future -> Panel whose covariates reach beyond its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.clock import on_clock
from logsparse.data.columns import Columns, Meaning, require
from logsparse.data.files import collect, schema_of
from logsparse.data.frame import time_column
from logsparse.data.grid import Rows, number_series, read_numbers
from logsparse.data.panel import Floats, Panel
from logsparse.data.table import take_lazily
from logsparse.errors import DataError


@dataclass(frozen=True)
class _Known:
    """Rows within the horizon: of which series, how many steps after its end, and where in the table."""

    series: Ints
    ahead: Ints
    row: Ints


def join_future(panel: Panel, future: Any, horizon: int, **columns: Unpack[Columns]) -> Panel:
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
    ask = Meaning.of(columns)
    lazy, _ = take_lazily(future, ids=ask.id_col, needed=[ask.id_col, ask.time_col, *names])
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


def _within(panel: Panel, table: pl.DataFrame, horizon: int, time_col: str, id_col: str | None) -> _Known:
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
    if (astray := off & (times > panel.ends()[series]) & (ahead < horizon)).any():
        raise DataError(
            "Future values must stand at the steps to forecast.",
            got=f"a time off the step of {panel.freq} {rows.first(astray, panel.freq)}",
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
    return _Known(series[fits], ahead[fits], row[fits])


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
