"""Panel -> one ARIMA or ETS per series, chosen and estimated by statsforecast on its recent past -> Forecast."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from logsparse.baselines.estimate import Answer, Kind, Task, answers, check_model
from logsparse.baselines.naive import SeasonalNaive, check_season
from logsparse.data.calendar import FARTHEST
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.errors import ConfigError, truth, whole
from logsparse.forecast import Forecast, Forecaster
from logsparse.process import Progress
from logsparse.storage import a_list, array, entries, require, whole_number

# S series, H steps of the horizon, Q quantile levels

# Default span: 28 seasons, within these bounds, but at least four seasons.
_SEASONS, _LEAST, _MOST, _FEWEST_SEASONS = 28, 200, 1000, 4
# With a longer season the estimate takes too long: the model then has none.
_LONGEST_SEASON = 350
_NAMED_FAILURES = 3
# Largest span and number of processes.
_LARGEST = 1_000_000

log = logging.getLogger("logsparse")


class _Classical(Forecaster):
    """One statsforecast model per series.

    A later history of a fitted series keeps its model, which is filtered forward over the new values. A new series, or
    a history that begins after the fitted span did, is estimated anew. Missing values are filled from the same phase
    of neighbouring seasons, except in ARIMA's filter, which handles them.
    """

    changeable = ("processes", "verbose")
    kind: ClassVar[Kind]

    def __init__(
        self,
        horizon: int,
        season: int | None = None,
        *,
        span: int | None = None,
        processes: int | None = None,
        verbose: bool = True,
    ) -> None:
        super().__init__(horizon)
        self.season, self.span, self.processes, self.verbose = season, span, processes, verbose

    def check(self) -> None:
        super().check()
        for name, hint in (
            ("span", "count the recent steps to estimate on, or leave it out."),
            ("processes", "write 1, or leave it out for one per core."),
        ):
            if getattr(self, name) is not None:
                setattr(self, name, whole(name, getattr(self, name), most=_LARGEST, hint=hint))
        if self.season is not None:
            self.season = check_season(self.season)
        self.verbose = truth("verbose", self.verbose)
        if find_spec("statsforecast") is None:
            raise ConfigError(
                f"{type(self).__name__} needs the package statsforecast.",
                got="an installation without it",
                hint="pip install logsparse[baselines].",
            )

    def _fit(self, panel: Panel) -> None:
        season = panel.freq.season if self.season is None else self.season
        self.season_ = season if season <= _LONGEST_SEASON else 1
        if self.season_ != season:
            log.warning("%s: a season of %d steps is too long to be estimated and left out", self.kind, season)
        usual = max(min(max(_SEASONS * self.season_, _LEAST), _MOST), _FEWEST_SEASONS * self.season_)
        self.span_ = usual if self.span is None else self.span
        skipped_S = np.maximum(panel.lengths - self.span_, 0)
        self.begins_ = panel.freq.add(panel.starts, skipped_S)
        tasks = [self._task(panel[i][skip:], None) for i, skip in enumerate(skipped_S)]
        results = self._answers(tasks)
        self._warn_of_failed(panel.ids, results)
        self.models_: list[dict[str, Any]] = [one if "failed" in one else one["model"] for one in results]

    @property
    def failed_(self) -> dict[SeriesId, str]:
        """Series that could not be estimated at `fit`, and why."""
        models = zip(self.panel_.ids, self.models_, strict=True)
        return {name: model["failed"] for name, model in models if "failed" in model}

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"season": self.season_, "span": self.span_, "models": self.models_}, {"begins": self.begins_}

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        entries("learned", facts, "season", "span", "models")
        self.season_ = whole_number("learned/season", facts["season"], 1, _LONGEST_SEASON)
        self.span_ = whole_number("learned/span", facts["span"], 1, FARTHEST)
        models = a_list("learned/models", facts["models"], len(self.panel_))
        self.models_ = [check_model(self.kind, self.season_, self.span_, model) for model in models]
        require("weights", "the array begins", list(arrays), holds=set(arrays) == {"begins"})
        self.begins_ = array("begins", arrays["begins"], (len(self.panel_),), np.int64)

    def _remembered(self) -> int:
        return self.span_

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        known, failed = {name: place for place, name in enumerate(self.panel_.ids)}, self.failed_
        places = [series for series, name in enumerate(panel.ids) if name not in failed]
        results = self._answers([self._next_task(panel, i, known.get(panel.ids[i])) for i in places])
        self._warn_of_failed([panel.ids[i] for i in places], results)
        good = [(series, one) for series, one in zip(places, results, strict=True) if "failed" not in one]
        mean_SH, spread_SH = (np.zeros((len(panel), self.horizon)) for _ in range(2))
        for series, one in good:
            mean_SH[series], spread_SH[series] = one["mean"], one["spread"]
        deviations_Q1 = np.array([NormalDist().inv_cdf(level) for level in levels])[:, None]
        quantiles_SQH = _narrow(mean_SH[:, None] + deviations_Q1 * spread_SH[:, None])
        narrow_SH = _narrow(mean_SH)
        if len(good) < len(panel):
            naive = SeasonalNaive(self.horizon, self.season_).fit(panel).forecast(quantiles=levels)
            rest = np.setdiff1d(np.arange(len(panel)), [series for series, _ in good])
            narrow_SH[rest], quantiles_SQH[rest] = naive.mean[rest], naive.quantiles[rest]
        return Forecast(panel, narrow_SH, levels, quantiles_SQH)

    def _next_task(self, panel: Panel, series: int, place: int | None) -> Task:
        """Return the task to filter forward from where the fitted span began, or to estimate on the last span."""
        values = panel[series]
        if place is not None:
            start, begin = panel.starts[series : series + 1], self.begins_[place : place + 1]
            skipped = panel.freq.steps(start, begin)
            if 0 <= skipped[0] < values.size and panel.freq.add(start, skipped)[0] == begin[0]:
                return self._task(values[skipped[0] :], self.models_[place])
        return self._task(values[-self.span_ :], None)

    def _task(self, values: Floats, model: dict[str, Any] | None) -> Task:
        return {
            "kind": self.kind,
            "season": self.season_,
            "values": values.astype(np.float64).tolist(),
            "model": model,
            "horizon": self.horizon,
        }

    def _answers(self, tasks: list[Task]) -> list[Answer]:
        afresh = sum(task["model"] is None for task in tasks)
        with Progress(self.kind, len(tasks), verbose=self.verbose and afresh > 0) as progress:
            return answers(tasks, self.processes or os.cpu_count() or 1, progress.step)

    def _warn_of_failed(self, ids: Sequence[SeriesId], results: list[Answer]) -> None:
        failed = [f"{name!r} ({one['failed']})" for name, one in zip(ids, results, strict=True) if "failed" in one]
        if failed:
            log.warning(
                "%s: %d of %d series could not be estimated and are forecast by seasonal naive: %s%s",
                self.kind,
                len(failed),
                len(results),
                ", ".join(failed[:_NAMED_FAILURES]),
                ", ..." if len(failed) > _NAMED_FAILURES else "",
            )


class AutoARIMA(_Classical):
    """Forecast each series by an ARIMA model whose orders are chosen as R's auto.arima does.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    season
        Steps of a season; from the frequency if left out. Above 350 steps the model has no season.
    span
        Number of recent steps to estimate on; 28 seasons if left out, between 200 and 1,000 steps, at least 4 seasons.
    processes
        Number of processes; one per core if left out.
    verbose
        Whether to show progress.

    Attributes
    ----------
    failed_
        Series that could not be estimated, and why; seasonal naive forecasts them.

    Raises
    ------
    ConfigError
        At `fit`, not here, if a parameter has a wrong value or statsforecast is not installed.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(30), "y": [1.0 * t for t in range(30)]})
    >>> ls.AutoARIMA(horizon=2, verbose=False).fit(frame).forecast().mean.round().tolist()
    [[30.0, 31.0]]
    """

    kind = "arima"


class AutoETS(_Classical):
    """Forecast each series by exponential smoothing, with the error, trend and season that fit best.

    Parameters
    ----------
    horizon
        Number of steps to forecast.
    season
        Steps of a season; from the frequency if left out. Above 350 steps the model has no season.
    span
        Number of recent steps to estimate on; 28 seasons if left out, between 200 and 1,000 steps, at least 4 seasons.
    processes
        Number of processes; one per core if left out.
    verbose
        Whether to show progress.

    Attributes
    ----------
    failed_
        Series that could not be estimated, and why; seasonal naive forecasts them.

    Raises
    ------
    ConfigError
        At `fit`, not here, if a parameter has a wrong value or statsforecast is not installed.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(30), "y": [1.0 * t for t in range(30)]})
    >>> ls.AutoETS(horizon=2, verbose=False).fit(frame).forecast().mean.round().tolist()
    [[30.0, 31.0]]
    """

    kind = "ets"


def _narrow(values: Any) -> Floats:
    largest = np.finfo(np.float32).max
    return np.asarray(np.clip(values, -largest, largest), np.float32)
