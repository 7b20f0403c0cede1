"""Forecasters and frame -> frame of forecasts at past cutoffs beside the true values, as the paper evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Unpack

import numpy as np
import polars as pl

from logsparse.baselines.naive import SeasonalNaive, check_season, last_season, seasonal_error
from logsparse.data.calendar import Ints
from logsparse.data.columns import CUTOFF, ID, MODEL, NAIVE, SCALE, TARGET, TIME, Columns, result_names
from logsparse.data.frame import Data, to_panel
from logsparse.data.grid import to_native
from logsparse.data.localtime import in_zone
from logsparse.data.panel import Floats, Panel, SeriesId, Static
from logsparse.data.times import When, clock_time, show_time, stamps
from logsparse.errors import ConfigError, DataError, shown, whole
from logsparse.evaluation.metrics import MEAN, quantile_columns
from logsparse.forecast import Forecast, Forecaster
from logsparse.params import Levels, check_levels


def backtest(
    forecaster: Forecaster | Sequence[Forecaster] | Mapping[str, Forecaster],
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
    unless `refit`. A forecaster that is already fitted is used as it is. Several forecasters are tested side by side,
    on the same windows.

    Parameters
    ----------
    forecaster
        Any forecaster; it is not changed. A list of them, or a dictionary from names to them, compares them.
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
        Levels between 0 and 1; 0.1, 0.2, ... 0.9 if left out. Beside others, a forecaster of one value per step has
        only the median.
    season
        Steps of a season for the last two columns; from the frequency if left out.
    **columns
        Which columns mean what, and how times are written, as for `to_panel`; those of a fitted forecaster need not be
        repeated.

    Returns
    -------
    frame
        Of the library that the data came in, one row per series, cutoff and step: unique_id, ds, cutoff, y, mean,
        q0.1 ... q0.9, `seasonal_naive` (the last season before the cutoff, repeated) and `seasonal_error` (its mean
        absolute error before the first cutoff, the unit of MASE); then the static columns. Ids, times and values keep
        their names of a long table; local times read with `tz` are written with their zone, so that each row has a time
        of its own. Several forecasters have a column `model` after y, with the names of the dictionary, or the names of
        the classes (of two of a class `LogSparse` and `LogSparse-2`), one after the other. Quantiles that a forecaster
        does not have are null.

    Raises
    ------
    ConfigError, DataError
        If an argument or the data break a rule, a fitted forecaster has learned from the steps to test, or the
        forecasters do not have the same horizon.
    KeyboardInterrupt
        If a training is interrupted; only `fit` itself goes on with the best weights so far.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> results = ls.backtest(ls.SeasonalNaive(horizon=3, season=7), frame, windows=2)
    >>> results.select("ds", "cutoff", "y", "mean").rows()[:2]
    [(64, 63, 1.0, 1.0), (65, 63, 2.0, 2.0)]
    >>> both = ls.backtest({"week": ls.SeasonalNaive(3, season=7), "day": ls.SeasonalNaive(3, season=1)}, frame)
    >>> ls.score(both).select("model", "mae", "skill").rows()
    [('week', 0.0, 1.0), ('day', 2.0, 0.0)]
    """
    several = isinstance(forecaster, (Mapping, Sequence))
    models = _named(forecaster) if isinstance(forecaster, (Mapping, Sequence)) else {"": forecaster}
    horizon, count, apart, season = check_test(models, windows, step, season)
    levels = {name: levels_of(model, quantiles, several=several) for name, model in models.items()}
    panel = in_zone(read_for(models.values(), data, columns, refit=refit))
    _refuse_taken(panel)
    if until is not None:
        panel = panel.until(clock_time(panel, until))
    cutoffs_WS = _cutoffs(panel, horizon, count, apart)
    test = _Test(panel, cutoffs_WS, horizon, panel.freq.season if season is None else season)
    # All are checked before the first is trained.
    for model in models.values():
        if hasattr(model, "panel_") and not refit:
            _refuse_seen(model.learned_until(), test.first)
    tables = [test.run(model, levels[name], refit=refit) for name, model in models.items()]
    if not several:
        return to_native(tables[0], panel.origin.library)
    every = sorted({*chain(*levels.values())}) if quantiles is None else check_levels(quantiles)
    return to_native(_together(dict(zip(models, tables, strict=True)), every), panel.origin.library)


def past_forecasts(
    model: Forecaster, panel: Panel, windows: int, quantiles: Levels | None = None
) -> tuple[dict[str, pl.DataFrame], bool]:
    """Test a fitted model beside seasonal naive, even on steps that it was trained on; return whether it was.

    The tables, one per model, are those of `backtest`; the second is named `seasonal_naive`.
    """
    cutoffs_WS = _cutoffs(panel, model.horizon, windows, model.horizon)
    test = _Test(panel, cutoffs_WS, model.horizon, panel.freq.season)
    ends, first = model.learned_until(), test.first
    seen = any(ends.get(name, end) > end for name, end in zip(first.ids, first.ends().tolist(), strict=True))
    levels = model.check_quantiles(quantiles)
    # Only the values count for it: covariates would have to be known beyond the panel.
    naive = _Test(replace(panel, covariates={}, static={}), cutoffs_WS, model.horizon, panel.freq.season)
    tables = test.run(model, levels, refit=False), naive.run(SeasonalNaive(model.horizon), levels, refit=False)
    return dict(zip(("model", NAIVE), tables, strict=True)), seen


def _named(forecasters: Sequence[Forecaster] | Mapping[str, Forecaster]) -> dict[str, Forecaster]:
    """Return the forecasters by name: the class, with a number from the second of a class on."""
    if not forecasters:
        raise ConfigError(
            "A backtest needs at least one forecaster.", got=shown(forecasters), hint="write backtest([a, b], frame)."
        )
    if isinstance(forecasters, Mapping):
        for name in forecasters:
            if not isinstance(name, str) or not name:
                raise ConfigError(
                    "Forecasters are named by text.",
                    got=shown(name),
                    hint='write backtest({"small": a, "large": b}, frame).',
                )
        return dict(forecasters)
    return dict(zip(numbered([type(forecaster).__name__ for forecaster in forecasters]), forecasters, strict=True))


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names, the later ones of equal names with a number: LogSparse, LogSparse-2."""
    taken: dict[str, None] = {}
    for name in names:
        unique = (name, *(f"{name}-{number}" for number in range(2, len(names) + 2)))
        taken[next(one for one in unique if one not in taken)] = None
    return list(taken)


def _check(forecaster: object) -> None:
    if not isinstance(forecaster, Forecaster):
        name = getattr(forecaster, "__name__", type(forecaster).__name__)
        raise ConfigError(
            "A backtest needs a forecaster with its settings.",
            got=f"the class {name}" if isinstance(forecaster, type) else f"{name}",
            hint=f"write backtest({name if isinstance(forecaster, type) else 'SeasonalNaive'}(horizon=24), frame).",
        )
    forecaster.check()


def read_for(models: Iterable[Forecaster], data: Data, columns: Columns, *, refit: bool) -> Panel:
    """Read data to test with the columns of the first fitted forecaster, and on its clock unless it is fitted again."""
    fitted = next((model for model in models if hasattr(model, "panel_")), None)
    if fitted is None:
        return to_panel(data, **columns)
    known: Columns = {**fitted.columns_, **columns}
    return to_panel(data, **known) if refit else fitted._read(data, **columns)  # noqa: SLF001


def check_test(
    models: Mapping[str, Forecaster], windows: int, step: int | None, season: int | None
) -> tuple[int, int, int, int | None]:
    """Return the horizon, the number of cutoffs, the steps between them, and the season if one is given, checked."""
    horizon = _common_horizon(models)
    count = whole("windows", windows, hint="count the cutoffs.")
    apart = horizon if step is None else whole("step", step, hint="count the steps from one cutoff to the next.")
    return horizon, count, apart, None if season is None else check_season(season)


def _common_horizon(models: Mapping[str, Forecaster]) -> int:
    for model in models.values():
        _check(model)
    horizons = {name: model.horizon for name, model in models.items()}
    if len({*horizons.values()}) > 1:
        raise ConfigError(
            "Forecasters that are compared must have the same horizon.",
            got=", ".join(f"{horizon} for {name}" for name, horizon in horizons.items()),
            hint="give all of them one horizon.",
        )
    return next(iter(horizons.values()))


def levels_of(model: Forecaster, quantiles: Levels | None, *, several: bool) -> tuple[float, ...]:
    """Return the levels to forecast; beside others, a point forecaster is not asked for what it does not have."""
    if quantiles is not None and several and model.point_only:
        check_levels(quantiles)
        return model.check_quantiles(None)
    return model.check_quantiles(quantiles)


def _refuse_taken(panel: Panel) -> None:
    taken = {ID, TIME, CUTOFF, TARGET, MODEL, MEAN, NAIVE, SCALE, *result_names(panel.origin)}
    for name in panel.static:
        if name in taken or quantile_columns([name]):
            raise DataError(
                "A static column must not have the name of a column of the results.",
                got=f"{name!r}",
                hint="rename it in the data.",
            )


@dataclass(frozen=True)
class _Test:
    """The windows that every forecaster is tested on."""

    panel: Panel
    cutoffs_WS: Ints
    horizon: int
    season: int

    @cached_property
    def first(self) -> Panel:
        """The data before the first cutoff."""
        return self.panel.cut(self.cutoffs_WS[0])

    @cached_property
    def errors_S(self) -> Floats:
        """The unit of MASE per series."""
        errors = [seasonal_error(self.first[i], self.season) for i in range(len(self.panel))]
        return np.minimum(errors, np.finfo(np.float32).max).astype(np.float32)

    def run(self, forecaster: Forecaster, levels: tuple[float, ...], *, refit: bool) -> pl.DataFrame:
        """Return the forecasts at every cutoff beside the true values."""
        as_it_is = hasattr(forecaster, "panel_") and not refit
        fitted = forecaster if as_it_is else _fitted(forecaster, self.first)
        histories = [fitted.history(self.panel.cut(lengths_S)) for lengths_S in self.cutoffs_WS]
        forecasts = _refitted(forecaster, fitted, histories, levels) if refit else fitted.summaries(histories, levels)
        tables = [
            _beside_truth(forecast.table(), history, self.horizon, self._measures(history))
            for history, forecast in zip(histories, forecasts, strict=True)
        ]
        return pl.concat(tables)

    def _measures(self, history: Panel) -> pl.DataFrame:
        """Return the columns to compare a forecast with, and the static ones, row by row."""
        naive_SH = np.stack([last_season(history[i], self.season, self.horizon) for i in range(len(history))])
        numbers = pl.DataFrame({NAIVE: naive_SH.ravel(), SCALE: np.repeat(self.errors_S, self.horizon)}).fill_nan(None)
        return numbers.with_columns(_categories(name, static, self.horizon) for name, static in history.static.items())


def _categories(name: str, static: Static, horizon: int) -> pl.Series:
    texts = [category or None for category in static.categories]
    known = pl.Series(name, [*texts, None], pl.String)
    codes_S = np.where(static.codes < 0, len(texts), static.codes)
    return known.gather(np.repeat(codes_S, horizon))


def _together(tables: Mapping[str, pl.DataFrame], levels: Sequence[float]) -> pl.DataFrame:
    """Return the tables of several forecasters as one, with a column of their names and the same quantiles."""
    quantiles = [f"q{level:g}" for level in levels]
    shared = next(iter(tables.values())).columns
    behind = shared[shared.index(NAIVE) :]
    front = shared[: shared.index(MEAN)]  # id, time, cutoff and target, under the names of the data
    order = [*front, MODEL, MEAN, *quantiles, *behind]

    def named(name: str, table: pl.DataFrame) -> pl.DataFrame:
        missing = [pl.lit(None, pl.Float32).alias(column) for column in quantiles if column not in table.columns]
        return table.with_columns(pl.lit(name).alias(MODEL), *missing).select(order)

    return pl.concat(named(name, table) for name, table in tables.items())


def _fitted(forecaster: Forecaster, history: Panel) -> Forecaster:
    """Return a fitted copy; an interrupted training ends the backtest, which would score what was hardly trained."""
    fitted = forecaster.clone().fit(history)
    if (training := getattr(fitted, "history_", None)) is not None:
        from logsparse.train.loop import INTERRUPTED

        if training.ended == INTERRUPTED:
            raise KeyboardInterrupt("The backtest was interrupted in a training: it returns nothing.")
    return fitted


def _refitted(
    forecaster: Forecaster, fitted: Forecaster, histories: list[Panel], levels: tuple[float, ...]
) -> Iterator[Forecast]:
    for number, history in enumerate(histories):
        if number:
            fitted = _fitted(forecaster, history)
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
                got=f"series {name!r}: trained up to {show_time(first.freq, ends[name], first.origin.zone)}; "
                f"first cutoff {show_time(first.freq, cutoff, first.origin.zone)}",
                hint="fit with until= an earlier time, or test with refit=True.",
            )


def _beside_truth(table: pl.DataFrame, history: Panel, horizon: int, measures: pl.DataFrame) -> pl.DataFrame:
    """Return the forecasts with cutoff, true value and the columns to compare with."""
    cells_SH = (history.indptr[:-1] + history.lengths)[:, None] + np.arange(horizon)
    cutoff = stamps(history, np.repeat(history.ends(), horizon))
    truth = pl.Series(history.values[cells_SH].ravel(), nan_to_null=True)
    id_col, time_col, target_col = result_names(history.origin)
    others = [name for name in table.columns if name not in (id_col, time_col)]
    joined = table.with_columns(cutoff.alias(CUTOFF), truth.alias(target_col), *measures)
    return joined.select(id_col, time_col, CUTOFF, target_col, *others, *measures.columns)
