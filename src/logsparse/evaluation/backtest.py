"""Forecaster and frame -> frame of forecasts at past cutoffs beside the true values: the paper's rolling evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import numpy as np
import polars as pl

from logsparse.baselines.naive import check_season, last_season, seasonal_error
from logsparse.data.calendar import Ints
from logsparse.data.columns import CUTOFF, ID, NAIVE, SCALE, TARGET, TIME, Columns
from logsparse.data.frame import Data, to_panel
from logsparse.data.grid import to_native
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.data.times import When, clock_time, stamps
from logsparse.errors import ConfigError, DataError, shown, whole
from logsparse.forecast import Forecast, Forecaster
from logsparse.params import Levels


def backtest(
    forecaster: Forecaster,
    data: Data,
    *,
    windows: int = 1,
    step: int | None = None,
    until: When | None = None,
    refit: bool = False,
    quantiles: Levels | None = None,
    season: int | None = None,
    **columns: Unpack[Columns],
) -> Any:
    """Forecast at past cutoffs and return the forecasts beside the true values.

    A clone of the forecaster is fitted on the data before the first cutoff; after that only the forecast start moves,
    unless `refit`. A forecaster that is already fitted is used as it is.

    Parameters
    ----------
    forecaster
        Any forecaster; it is not changed.
    data
        Frame, path or Panel, as for `fit`.
    windows
        Number of cutoffs.
    step
        Number of steps between two cutoffs; one horizon if left out.
    until
        Time of the last tested step; each series' own end if left out.
    refit
        Whether to fit a clone at every cutoff.
    quantiles
        Levels between 0 and 1; 0.1, 0.2, ... 0.9 if left out.
    season
        Steps of a season for the last two columns; from the frequency if left out.
    **columns
        Which columns mean what: `id_col`, `time_col`, `target_col`, `freq`, `covariates`, `past_covariates`,
        `static`.

    Returns
    -------
    frame
        Of the library that the data came in, one row per series, cutoff and step: unique_id, ds, cutoff, y, mean,
        q0.1 ... q0.9, `seasonal_naive` (the last season before the cutoff, repeated) and `seasonal_error` (its mean
        absolute error before the first cutoff, the unit of MASE).

    Raises
    ------
    ConfigError, DataError
        If an argument or the data break a rule, or a fitted forecaster has learned from the steps to test.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> results = ls.backtest(ls.SeasonalNaive(horizon=3, season=7), frame, windows=2)
    >>> results.select("ds", "cutoff", "y", "mean").rows()[:2]
    [(64, 63, 1.0, 1.0), (65, 63, 2.0, 2.0)]
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
        fitted = forecaster.clone().fit(first)
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
            fitted = forecaster.clone().fit(history)
        yield from fitted.summaries([history], levels)


def _cutoffs(panel: Panel, horizon: int, windows: int, step: int) -> Ints:
    """Return the number of steps of each series before each cutoff, oldest first: (windows, series)."""
    # In Python integers, before any array is made: numpy would overflow, or run out of memory.
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
    """Raise DataError if a series was learned from beyond its first cutoff."""
    for name, cutoff in zip(first.ids, first.ends().tolist(), strict=True):
        if ends.get(name, cutoff) > cutoff:
            raise DataError(
                "A backtest must begin after the model's training ended.",
                got=f"series {name!r}: trained up to {first.freq.show(ends[name])}; "
                f"first cutoff {first.freq.show(cutoff)}",
                hint="fit with until=... (`logsparse fit --until`), or test with refit=True (--refit).",
            )


def _measures(history: Panel, horizon: int, season: int, errors_S: Floats) -> pl.DataFrame:
    """Return the columns to compare a forecast with, row by row."""
    naive_SH = np.stack([last_season(history[i], season, horizon) for i in range(len(history))])
    return pl.DataFrame({NAIVE: naive_SH.ravel(), SCALE: np.repeat(errors_S, horizon)}).fill_nan(None)


def _beside_truth(table: pl.DataFrame, history: Panel, horizon: int, measures: pl.DataFrame) -> pl.DataFrame:
    """Return the forecasts with cutoff, true value and the columns to compare with."""
    cells_SH = (history.indptr[:-1] + history.lengths)[:, None] + np.arange(horizon)
    cutoff = stamps(history, np.repeat(history.ends(), horizon))
    truth = pl.Series(history.values[cells_SH].ravel(), nan_to_null=True)
    others = [name for name in table.columns if name not in (ID, TIME)]
    joined = table.with_columns(cutoff.alias(CUTOFF), truth.alias(TARGET), *measures)
    return joined.select(ID, TIME, CUTOFF, TARGET, *others, *measures.columns)
