"""Data that come after a fit -> Panel, read as the fitted data; Panel + a frame of future rows -> Panel that goes on.

The covariates of that panel reach beyond its end. A series that only the frame of future rows has is without a visible
step: `lengths` is 0, and `starts` is the first step to forecast.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import Ints
from logsparse.data.columns import Columns, ColumnSpec, require
from logsparse.data.files import collect, schema_of
from logsparse.data.frame import Data, read_as, time_column
from logsparse.data.grid import Rows, number_series, read_category, read_covariate, read_numbers, scan_native
from logsparse.data.localtime import read_times, with_clock
from logsparse.data.mapped import empty_like
from logsparse.data.panel import Floats, Panel, SeriesId, Static
from logsparse.data.times import on_clock, show_time
from logsparse.errors import ConfigError, DataError, MissingColumnsError, StepUnknownError

# S series of the panel, N new series

# Number of phases of the grid that a new series is compared with.
_MOST_PHASES = 1000
# Whole numbers as they are written, so that 007 is not 7; no more digits than 64 bits have.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class NewSeries:
    """Series that only the frame of future rows has, with their rows."""

    ids: tuple[SeriesId, ...]
    codes: Ints
    table: pl.DataFrame
    stamps: pl.Series | None
    """Times of the rows; None if the frame has none: all series begin after the end of the panel."""


def read_with(data: Data, fitted: Panel, columns: Columns) -> Panel:
    """Read data as those of a fitted panel were read, whatever their step; series without any value are kept."""
    spec = replace(ColumnSpec.of(columns), home=fitted.origin.zone)
    try:
        panel = read_as(data, spec)
    except StepUnknownError:
        # A history of single values does not show its step; it can only be the fitted one.
        panel = read_as(data, replace(spec, freq=str(fitted.freq)))
    except MissingColumnsError as error:
        roles = {"static": spec.static, "covariates": spec.covariates, "past covariates": spec.past_covariates}
        raise _unlike_fitted(error, "New data", roles) from error
    return replace(panel, ids=ids_like(fitted.ids, panel.ids))


def ids_like(fitted: Collection[SeriesId], ids: tuple[SeriesId, ...]) -> tuple[SeriesId, ...]:
    """Return ids as the fitted ones are written: a csv file has text where a parquet file has whole numbers.

    They are returned unchanged if they have one type already, or if none of them would be a fitted one.
    """
    kinds = {type(name) for name in ids}
    # A server asks this for every request: one look at the fitted ids is enough where they have the same type.
    if kinds == {str} and all(isinstance(name, int) for name in fitted):
        whole = all(_WHOLE.fullmatch(str(name)) for name in ids)
        same: tuple[SeriesId, ...] = tuple(int(name) for name in ids) if whole else ids
    elif kinds == {int} and all(isinstance(name, str) for name in fitted):
        same = tuple(str(name) for name in ids)
    else:
        return ids
    return same if not set(same).isdisjoint(fitted) else ids


def read_like(fitted: Panel, data: Data, **columns: Unpack[Columns]) -> Panel:
    """Return new data as a panel with the step and on the clock of the panel that a model was fitted on, or raise."""
    panel = read_with(data, fitted, columns)
    if panel.freq != fitted.freq:
        raise DataError(
            "New data must have the step that was fitted.",
            got=f"steps of {panel.freq} after {fitted.freq}",
            hint="resample it, or fit again; freq= at fit() holds for later histories too.",
        )
    return with_clock(panel, fitted.origin)


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


def refuse_new(new: NewSeries, rule: str, way_out: str, *, described: bool = True) -> NoReturn:
    """Raise for the first series without a history; `described`: the model has static columns or covariates."""
    others = f" and {len(new.ids) - 1} more" if len(new.ids) > 1 else ""
    reason = "" if described else ", and a model without static columns and covariates"
    raise DataError(
        rule,
        got=f"series {new.ids[0]!r}{others} without a history{reason}",
        hint=f"{way_out}; or pass the history of that series.",
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
    ids = ids_like(there, ids)
    new = [number for number, name in enumerate(ids) if name not in there and type(name) in kinds]
    # The order of the rows must not matter: a what-if compares two frames series by series, with the same draws.
    new.sort(key=lambda number: (str(type(ids[number])), ids[number]))
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
    codes, table = place[codes][rows], table.filter(pl.Series(rows))
    home = replace(spec, home=panel.origin.zone)
    stamps = None if time_col is None else read_times(table[time_col], codes, home)[0]
    return NewSeries(tuple(ids[n] for n in new), codes, table, stamps)


def add_new(panel: Panel, new: NewSeries, horizon: int) -> Panel:
    """Return the panel with the new series: no history, and `horizon` steps for their covariates."""
    starts_N = _starts(panel, new)
    order = np.argsort(new.codes, kind="stable")
    rows = Rows(new.ids, order, new.codes[order], np.zeros(len(order), np.int64))
    static = {name: _joined(column, _category(new, name, rows)) for name, column in panel.static.items()}
    count = len(new.ids)

    def longer(flat: Floats) -> Floats:
        end = int(panel.indptr[-1])
        wider = empty_like(flat, end + horizon * count)
        wider[:end], wider[end:] = flat[:end], np.nan
        return wider

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
    if new.stamps is None:
        return next_N
    times = on_clock(panel, new.stamps, np.full(len(new.codes), int(np.argmax(ends_S))))
    late = times > latest
    first_N = np.full(len(new.ids), np.iinfo(np.int64).max)
    np.minimum.at(first_N, new.codes[late], times[late])
    for number in np.flatnonzero(first_N == np.iinfo(np.int64).max)[:1].tolist():
        raise DataError(
            "A series without a history must have its steps to forecast in the future.",
            got=f"rows of series {new.ids[number]!r} up to "
            f"{show_time(panel.freq, int(latest), panel.origin.zone)}, the end of the data, only",
            hint="pass its rows after that time, or its values as history.",
        )
    # Weekly series may begin on different days: any phase that the panel has will do.
    phases = np.unique(panel.starts)[:_MOST_PHASES, None]
    fits_N = (panel.freq.add(phases, panel.freq.steps(phases, first_N)) == first_N).any(axis=0)
    for number in np.flatnonzero(~fits_N)[:1].tolist():
        raise DataError(
            "Future values must lie on the steps to forecast.",
            got=f"a time off the grid of {panel.freq} in series {new.ids[number]!r} "
            f"at {show_time(panel.freq, int(first_N[number]), panel.origin.zone)}",
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


@dataclass(frozen=True)
class _FutureRows:
    """Rows within the horizon: number of the series, steps after its end, and row of the table."""

    series: Ints
    ahead: Ints
    row: Ints


def join_future(panel: Panel, future: Data | None, horizon: int, **columns: Unpack[Columns]) -> Panel:
    """Extend the covariates `horizon` steps beyond the end of each series, from a frame of future rows.

    The frame is long; for a panel from a wide table, it may instead have a time column and the shared covariates.
    """
    if future is None and (panel.stored >= panel.lengths + horizon).all():
        return panel
    names = list(panel.ahead)
    if not names:
        raise ConfigError(
            "Future values are for covariates named at fit.",
            got="future=, and no covariates",
            hint="fit(frame, covariates=[...]) first, or leave future= out.",
        )
    if future is None:
        raise DataError(
            f"The covariates {', '.join(names)} must be known for the {horizon} steps to forecast.",
            got="no future values",
            hint="pass them with predict(future=frame); those known only for the past are fit(past_covariates=[...]).",
        )
    spec = ColumnSpec.of(columns)
    lazy, _ = scan_native(future, ids=spec.id_col, needed=[spec.id_col, spec.time_col, *names])
    time_col = time_column(lazy, spec) or spec.time_col
    shared = panel.origin.layout == "wide" and spec.id_col not in schema_of(lazy)
    wanted = [time_col, *names] if shared else [spec.id_col, time_col, *names]
    require(list(schema_of(lazy)), wanted)
    table = collect(lazy, wanted)
    known = _within(panel, table.rename({time_col: spec.time_col}), horizon, spec, shared=shared)
    indptr = np.concatenate([[0], np.cumsum(panel.lengths + horizon)])
    times = panel.freq.add(panel.ends()[known.series], known.ahead + 1)
    rows = Rows(panel.ids, known.row, known.series, times, panel.origin.zone)
    cells = indptr[known.series] + panel.lengths[known.series] + known.ahead

    def extend(old: Floats, ahead: Floats | None = None) -> Floats:
        flat = empty_like(old, int(indptr[-1]))
        for begin, end, there, count in zip(indptr, indptr[1:], panel.indptr, panel.lengths, strict=False):
            flat[begin : begin + count] = old[there : there + count]
            flat[begin + count : end] = np.nan
        if ahead is not None:
            flat[cells] = ahead
        return flat

    read = {n: read_covariate(table[n], rows, panel.freq, words=panel.words.get(n, ())) for n in names}
    for name, (codes, words) in read.items():
        fitted = panel.words.get(name, ())
        if words and not fitted:  # refuses, and names the first text
            read_numbers(table[name], rows, panel.freq)
        if fitted and table[name].dtype.is_numeric() and (codes >= len(fitted)).any():
            raise DataError.other_kind(name, "text", "numbers")
    longer = replace(
        panel,
        values=extend(panel.values),
        indptr=indptr,
        covariates={n: extend(old, read[n][0] if n in read else None) for n, old in panel.covariates.items()},
        words={n: read[n][1] if n in read else words for n, words in panel.words.items()},
    )
    _refuse_unknown(longer, names, rows, horizon)
    return longer


def _within(panel: Panel, table: pl.DataFrame, horizon: int, spec: ColumnSpec, *, shared: bool) -> _FutureRows:
    """Return the rows within the horizon, checked to be on the grid and unique; other rows are ignored."""
    ids, codes = ((), np.zeros(len(table), np.int64)) if shared else number_series(table, spec.id_col)
    stamps, _ = read_times(table[spec.time_col], codes, replace(spec, home=panel.origin.zone))
    late = np.flatnonzero(on_clock(panel, stamps) > panel.ends().min())
    if shared:
        series, row = np.repeat(np.arange(len(panel)), late.size), np.tile(late, len(panel))
    else:
        numbers = _number(panel, ids)[codes][late]
        series, row = numbers[numbers >= 0], late[numbers >= 0]
    times = on_clock(panel, stamps[row], series)
    rows = Rows(panel.ids, row, series, times, panel.origin.zone)
    ahead = panel.freq.steps(panel.starts[series], times) - panel.lengths[series]
    off = panel.freq.add(panel.starts[series], panel.lengths[series] + ahead) != times
    if (off_grid := off & (times > panel.ends()[series]) & (ahead < horizon)).any():
        raise DataError(
            "Future values must lie on the steps to forecast.",
            got=f"a time off the grid of {panel.freq} {rows.first(off_grid, panel.freq)}",
            hint="write the times as predict() returns them.",
        )
    fits = (ahead >= 0) & (ahead < horizon)
    cells = pl.Series(np.where(fits, series * horizon + ahead, -1 - np.arange(fits.size)))
    if (repeated := cells.is_duplicated().to_numpy()).any():
        raise DataError(
            "Future values must be unique per series and time.",
            got=f"two rows {rows.first(repeated, panel.freq, 'for')}",
            hint="drop or aggregate the duplicates.",
        )
    return _FutureRows(series[fits], ahead[fits], row[fits])


def _number(panel: Panel, ids: tuple[SeriesId, ...]) -> Ints:
    """Return the number of each series in the panel, -1 if the panel does not have it."""
    positions = dict(zip(panel.ids, range(len(panel)), strict=True))
    numbers = np.array([positions.get(name, -1) for name in ids_like(panel.ids, ids)], np.int64)
    if (numbers < 0).all():
        raise DataError(
            "Future values must belong to the series to forecast.",
            got=f"ids such as {ids[0]!r} for series such as {panel.ids[0]!r}" if ids else "no rows",
            hint="use the ids of the data that were fitted.",
        )
    return numbers


def _refuse_unknown(panel: Panel, names: list[str], given: Rows, horizon: int) -> None:
    """Raise for the first covariate that is not known over the horizon; `given` are the rows of the future frame."""
    for name in names:
        unknown = np.isnan(panel.covariates[name][panel.indptr[1:, None] - horizon + np.arange(horizon)])
        ahead = panel.freq.steps(panel.starts[given.codes], given.times) - panel.lengths[given.codes]
        if (empty := unknown[given.codes, ahead]).any():
            raise DataError(
                f"The covariate {name!r} must be known for all {horizon} steps to forecast.",
                got=f"no value {given.first(empty, panel.freq)}",
                hint="fill in that value; if it is known only for the past, fit with past_covariates=[...].",
            )
        if unknown.any():
            short = int(np.argmax(unknown.any(axis=1)))
            raise DataError(
                f"The covariate {name!r} must be known for all {horizon} steps to forecast.",
                **_lacking(panel, short, unknown[short]),
            )


def _lacking(panel: Panel, series: int, unknown_H: NDArray[np.bool_]) -> dict[str, str]:
    """Return what an error says of a series without future rows, with a row missing between others, or with too few."""
    name, horizon, lacking = panel.ids[series], len(unknown_H), int(np.argmax(unknown_H))
    steps = np.array([lacking, horizon - 1]) + 1
    first, last = (
        show_time(panel.freq, int(time), panel.origin.zone)
        for time in panel.freq.add(np.repeat(panel.ends()[series], 2), steps)
    )
    if unknown_H.all():
        return {
            "got": f"no rows of series {name!r}",
            "hint": "add them; to forecast other series only, pass the history of these alone beside future=frame.",
        }
    if not unknown_H[lacking:].all():
        return {"got": f"no row of series {name!r} at {first}", "hint": "add that row."}
    return {
        "got": f"series {name!r} with {lacking} of them, without {first}",
        "hint": f"pass future values of every step up to {last}.",
    }
