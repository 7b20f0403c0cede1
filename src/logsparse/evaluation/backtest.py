"""Forecaster + frame -> what it would have said at past cutoffs, beside what came: the paper's rolling evaluation."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import numpy as np
import polars as pl

from logsparse.baselines.naive import check_season, last_season, seasonal_error
from logsparse.checks import whole
from logsparse.data.calendar import Ints
from logsparse.data.columns import CUTOFF, ID, NAIVE, SCALE, TARGET, TIME, Columns
from logsparse.data.frame import to_panel
from logsparse.data.grid import to_native
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.times import When, clock_time, stamps
from logsparse.errors import ConfigError, DataError, shown
from logsparse.forecast import Forecast, Forecaster, Levels


def backtest(
    forecaster: Forecaster,
    data: Any,
    *,
    windows: int = 1,
    step: int | None = None,
    until: When | None = None,
    refit: bool = False,
    quantiles: Levels | None = None,
    season: int | None = None,
    **columns: Unpack[Columns],
) -> Any:
    """unique_id, ds, cutoff, y, mean, q0.1 ... q0.9 for `windows` cutoffs, `step` (one horizon) apart.

    The last window ends at each series' own end, or at `until`. A fresh copy of the forecaster is fitted on what lies
    before the first cutoff; then only the forecast start moves, unless `refit`. A forecaster already fitted is used as
    it is, and refused where it has seen what it would be tested on.

    Two columns more let the frame be judged alone: `seasonal_naive`, the point forecast that repeats the last season
    seen at the cutoff, and `seasonal_error`, how wrong that was before the first one. Their `season` is the usual one
    of the data's step unless given.
    """
    _check(forecaster)
    horizon = forecaster.horizon
    count = whole("windows", windows, hint="count the cutoffs.")
    apart = horizon if step is None else whole("step", step, hint="count the steps from one cutoff to the next.")
    levels = forecaster.check_quantiles(quantiles)
    if season is not None:
        season = check_season(season)
    panel = to_panel(data, **columns)
    if until is not None:
        panel = panel.until(clock_time(panel, until))
    cutoffs_WS = _cutoffs(panel, horizon, count, apart)
    first = panel.cut(cutoffs_WS[0])
    if hasattr(forecaster, "panel_") and not refit:
        _refuse_seen(forecaster.learned_until(), first)
        fitted = forecaster
    else:
        fitted = copy.deepcopy(forecaster).fit(first)
    period = panel.freq.season if season is None else season
    errors = [seasonal_error(first[i], period) for i in range(len(panel))]
    errors_S = np.minimum(errors, np.finfo(np.float32).max).astype(np.float32)
    histories = [fitted.history(panel.cut(lengths_S)) for lengths_S in cutoffs_WS]
    forecasts = _refitted(forecaster, fitted, histories, levels) if refit else fitted.summaries(histories, levels)
    tables = [
        _beside_truth(forecast.table(), history, horizon, _measures(history, horizon, period, errors_S))
        for history, forecast in zip(histories, forecasts, strict=True)
    ]
    return to_native(pl.concat(tables), panel.origin.library)


def _check(forecaster: object) -> None:
    if not isinstance(forecaster, Forecaster):
        name = getattr(forecaster, "__name__", type(forecaster).__name__)
        raise ConfigError(
            "A backtest needs a forecaster with its settings.",
            got=f"the class {name}" if isinstance(forecaster, type) else f"{name}",
            hint=f"write backtest({name if isinstance(forecaster, type) else 'SeasonalNaive'}(horizon=24), frame).",
        )
    forecaster.check()


def _refitted(
    forecaster: Forecaster, fitted: Forecaster, histories: list[Panel], levels: tuple[float, ...]
) -> Iterator[Forecast]:
    for number, history in enumerate(histories):
        if number:
            fitted = copy.deepcopy(forecaster).fit(history)
        yield from fitted.summaries([history], levels)


def _cutoffs(panel: Panel, horizon: int, windows: int, step: int) -> Ints:
    """How much of each series is seen at each cutoff, oldest first: (windows, series)."""
    # In Python's numbers, before any table is made: those of numpy overflow, and a table of them may fit no memory.
    span = horizon + step * (windows - 1)
    series = int(np.argmin(panel.lengths))
    if int(panel.lengths[series]) <= span:
        raise DataError(
            "Every series must be longer than the span of the backtest.",
            got=f"series {panel.ids[series]!r} with {panel.lengths[series]} steps, {shown(span)} of them tested",
            hint="test fewer windows, or leave that series out.",
        )
    back_W = horizon + (step * np.arange(windows - 1, -1, -1) if windows > 1 else np.zeros(1, np.int64))
    return np.asarray(panel.lengths - back_W[:, None])


def _refuse_seen(ends: Mapping[SeriesId, int], first: Panel) -> None:
    """A model must not be tested on what it has learned."""
    for name, cutoff in zip(first.ids, first.ends().tolist(), strict=True):
        if ends.get(name, cutoff) > cutoff:
            raise DataError(
                "A backtest must begin after the model's training ended.",
                got=f"series {name!r}: trained up to {first.freq.show(ends[name])}; "
                f"first cutoff {first.freq.show(cutoff)}",
                hint="fit with until=... (`logsparse fit --until`), or test with refit=True (--refit).",
            )


def _measures(history: Panel, horizon: int, season: int, errors_S: Any) -> pl.DataFrame:
    """What the forecast is to be compared with, row for row."""
    naive_SH = np.stack([last_season(history[i], season, horizon) for i in range(len(history))])
    return pl.DataFrame({NAIVE: naive_SH.ravel(), SCALE: np.repeat(errors_S, horizon)}).fill_nan(None)


def _beside_truth(table: pl.DataFrame, history: Panel, horizon: int, measures: pl.DataFrame) -> pl.DataFrame:
    cells_SH = (history.indptr[:-1] + history.lengths)[:, None] + np.arange(horizon)
    cutoff = stamps(history, np.repeat(history.ends(), horizon))
    truth = pl.Series(history.values[cells_SH].ravel(), nan_to_null=True)
    others = [name for name in table.columns if name not in (ID, TIME)]
    whole_table = table.with_columns(cutoff.alias(CUTOFF), truth.alias(TARGET), *measures)
    return whole_table.select(ID, TIME, CUTOFF, TARGET, *others, *measures.columns)
