"""Data that come after a fit -> Panel, read as the fitted data; with series that only a frame of future rows has.

Such a series has no visible step: `lengths` is 0, and `starts` is the first step to forecast.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Unpack

import numpy as np
import polars as pl

from logsparse.data.calendar import Ints
from logsparse.data.columns import Columns, ColumnSpec
from logsparse.data.files import collect, schema_of
from logsparse.data.frame import Data, join_future, time_column, to_panel
from logsparse.data.grid import Rows, number_series, read_category, scan_native
from logsparse.data.panel import Floats, Panel, SeriesId, Static
from logsparse.data.times import on_clock
from logsparse.errors import DataError, MissingColumnsError, StepUnknownError

# S series of the panel, N new series

# Number of phases of the grid that a new series is compared with.
_MOST_PHASES = 1000


@dataclass(frozen=True)
class NewSeries:
    """Series that only the frame of future rows has, with their rows."""

    ids: tuple[SeriesId, ...]
    codes: Ints
    table: pl.DataFrame
    time_col: str | None
    """None if the frame has no times: all of them begin after the end of the panel."""


def read_like(data: Data, fitted: Panel, columns: Columns) -> Panel:
    """Return the data as a panel, read as the fitted one was."""
    try:
        panel = to_panel(data, **columns)
    except StepUnknownError:
        # A history of single values does not show its step; it can only be the fitted one.
        assumed: Columns = {**columns, "freq": str(fitted.freq)}
        panel = to_panel(data, **assumed)
    except MissingColumnsError as error:
        spec = ColumnSpec.of(columns)
        roles = {"static": spec.static, "covariates": spec.covariates, "past_covariates": spec.past_covariates}
        raise _unlike_fitted(error, "New data", roles) from error
    if panel.freq != fitted.freq:
        raise DataError(
            "New data must have the step that was fitted.",
            got=f"steps of {panel.freq} after {fitted.freq}",
            hint="resample it, or fit again; freq= at fit() holds for later histories too.",
        )
    return panel


def join_like(panel: Panel, future: Data | None, horizon: int, columns: Columns) -> Panel:
    """Return the panel with the future values of its covariates, read as the fitted ones were."""
    try:
        return join_future(panel, future, horizon, **columns)
    except MissingColumnsError as error:
        raise _unlike_fitted(error, "Future values", {"covariates": panel.ahead}) from error


def _unlike_fitted(error: MissingColumnsError, what: str, roles: Mapping[str, Sequence[str]]) -> DataError:
    """Return the error for data without some of the columns that the fitted ones have in these roles."""
    missing = [name for names in roles.values() for name in names if name in error.missing]
    if not missing:
        return error
    fitted = "; ".join(f"{role}: {', '.join(names)}" for role, names in roles.items() if names)
    return DataError(
        f"{what} must have the columns that the model was fitted with ({fitted}).",
        got=f"no {', '.join(missing)}",
        hint="add what is missing, or fit a model without it.",
    )


def refuse_new(new: NewSeries, rule: str, *, described: bool = True) -> NoReturn:
    """Raise for the first series without a history; `described`: the model has static columns or covariates."""
    others = f" and {len(new.ids) - 1} more" if len(new.ids) > 1 else ""
    reason = "" if described else ", and a model without static columns and covariates"
    raise DataError(
        rule,
        got=f"series {new.ids[0]!r}{others} in future= only{reason}",
        hint="fit LogSparse with static=[...], or set model.hidden_history=0.1; or pass the history of that series.",
    )


def find_new(panel: Panel, known: Collection[SeriesId], future: Data, **columns: Unpack[Columns]) -> NewSeries | None:
    """Return the series of a frame that neither the panel nor `known` has; None if there are none.

    Ids of another type than the panel's are not new: `join_future` refuses them.
    """
    spec = ColumnSpec.of(columns)
    lazy, _ = scan_native(future, ids=spec.id_col, needed=[spec.id_col, spec.time_col, *panel.static])
    schema = schema_of(lazy)
    if spec.id_col not in schema:
        return None
    time_col = time_column(lazy, spec)
    wanted = [spec.id_col, *([time_col] if time_col else []), *(name for name in panel.static if name in schema)]
    table = collect(lazy, wanted)
    ids, codes = number_series(table, spec.id_col)
    there, kinds = {*panel.ids, *known}, {type(name) for name in panel.ids}
    new = [number for number, name in enumerate(ids) if name not in there and type(name) in kinds]
    if not new and panel.static and not there & set(ids):
        raise DataError(
            "Future values must belong to the series to forecast, or to new ones.",
            got=f"ids such as {ids[0]!r} for series such as {panel.ids[0]!r}" if ids else "no rows",
            hint="use ids of the type of the data that were fitted.",
        )
    if not new:
        return None
    place = np.full(len(ids), -1, np.int64)
    place[new] = np.arange(len(new))
    rows = place[codes] >= 0
    return NewSeries(tuple(ids[n] for n in new), place[codes][rows], table.filter(pl.Series(rows)), time_col)


def add_new(panel: Panel, new: NewSeries, horizon: int) -> Panel:
    """Return the panel with the new series: no history, and `horizon` steps for their covariates."""
    starts_N = _starts(panel, new)
    order = np.argsort(new.codes, kind="stable")
    rows = Rows(new.ids, order, new.codes[order], np.zeros(len(order), np.int64))
    static = {name: _joined(column, _category(new, name, rows)) for name, column in panel.static.items()}
    empty = np.full(horizon * len(new.ids), np.nan, np.float32)

    def longer(flat: Floats) -> Floats:
        return np.concatenate([flat[: panel.indptr[-1]], empty])

    count = len(new.ids)
    return replace(
        panel,
        values=longer(panel.values),
        indptr=np.concatenate([panel.indptr, panel.indptr[-1] + horizon * np.arange(1, count + 1)]),
        lengths=np.concatenate([panel.lengths, np.zeros(count, np.int64)]),
        ids=(*panel.ids, *new.ids),
        starts=np.concatenate([panel.starts, starts_N]),
        covariates={name: longer(flat) for name, flat in panel.covariates.items()},
        static=static,
        elapsed=None if panel.elapsed is None else np.concatenate([panel.elapsed, np.zeros(count, np.int64)]),
    )


def _starts(panel: Panel, new: NewSeries) -> Ints:
    """Return the first step after the latest end of the panel, or the first time after it that the frame has."""
    ends_S = panel.ends()
    latest = ends_S.max()
    next_N = np.full(len(new.ids), panel.freq.add(np.array([latest]), np.array([1]))[0])
    if new.time_col is None:
        return next_N
    times = on_clock(panel, new.table[new.time_col], np.full(len(new.codes), int(np.argmax(ends_S))))
    late = times > latest
    first_N = np.full(len(new.ids), np.iinfo(np.int64).max)
    np.minimum.at(first_N, new.codes[late], times[late])
    for number in np.flatnonzero(first_N == np.iinfo(np.int64).max)[:1].tolist():
        raise DataError(
            "A series without a history must have its steps to forecast in the future.",
            got=f"rows of series {new.ids[number]!r} up to {panel.freq.show(int(latest))}, the end of the data, only",
            hint="pass its rows after that time, or its values as history.",
        )
    # Weekly series may begin on different days: any phase that the panel has will do.
    phases = np.unique(panel.starts)[:_MOST_PHASES, None]
    fits_N = (panel.freq.add(phases, panel.freq.steps(phases, first_N)) == first_N).any(axis=0)
    for number in np.flatnonzero(~fits_N)[:1].tolist():
        raise DataError(
            "Future values must lie on the steps to forecast.",
            got=f"a time off the grid of {panel.freq} in series {new.ids[number]!r} "
            f"at {panel.freq.show(int(first_N[number]))}",
            hint="write the times as predict() returns them.",
        )
    return first_N


def _category(new: NewSeries, name: str, rows: Rows) -> Static:
    if name not in new.table.columns:
        raise DataError(
            f"A series without a history must have the static columns of the model, such as {name!r}.",
            got=f"no column {name!r} for series {new.ids[0]!r}",
            hint="add it to the frame of future values.",
        )
    return read_category(new.table[name], rows)


def _joined(old: Static, new: Static) -> Static:
    """Return the categories of the series of a panel and of new ones."""
    places = {name: place for place, name in enumerate(dict.fromkeys((*old.categories, *new.categories)))}
    code = np.array([places[name] for name in new.categories], np.int64)
    return Static(np.concatenate([old.codes, code[new.codes]]), tuple(places))
