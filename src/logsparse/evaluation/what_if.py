"""Fitted forecaster, a future of its covariates and a changed one -> WhatIf: both forecasts and their difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from logsparse.data.frame import Data
from logsparse.data.grid import to_native
from logsparse.data.panel import SeriesId
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, DataError, suggest, whole
from logsparse.forecast import Forecast, Forecaster
from logsparse.params import Levels
from logsparse.pictures import draw_what_if

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCENARIO = "scenario"


@dataclass(frozen=True, repr=False)
class WhatIf:
    """A forecast with one future of the covariates beside that with another, as `what_if` returns it.

    Parameters
    ----------
    unchanged, changed
        The two forecasts, of the same series and steps and with the same draws.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(14), "y": [1.0, 2.0] * 7, "price": 3.0})
    >>> model = ls.SeasonalNaive(horizon=2, season=2).fit(frame, covariates=["price"])
    >>> future = pl.DataFrame({"unique_id": "a", "ds": [14, 15], "price": 3.0})
    >>> ls.what_if(model, future, future.with_columns(price=2.0))
    WhatIf(1 series, 2 steps, the mean changes by +0.0 % in total)
    """

    unchanged: Forecast
    changed: Forecast

    def __repr__(self) -> str:
        series, steps = self.unchanged.mean.shape
        before, after = (float(part.mean.sum(dtype=np.float64)) for part in (self.unchanged, self.changed))
        share = f"{100 * (after / before - 1):+.1f} %" if before else f"{after:+.4g}"
        return f"WhatIf({series:_} series, {steps} steps, the mean changes by {share} in total)"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.table().head(12)._repr_html_()}"

    def table(self) -> pl.DataFrame:
        """Return a polars frame: unique_id, ds, `scenario`, mean, and one column per quantile.

        `scenario` is unchanged, changed or difference. The difference is that of two means, or of two quantiles, which
        is not a quantile of the difference.
        """
        before, after = self.unchanged.table(), self.changed.table()
        id_col, time_col, *numbers = before.columns
        gap = before.with_columns(after[name] - before[name] for name in numbers)
        parts = zip(("unchanged", "changed", "difference"), (before, after, gap), strict=True)
        return pl.concat(
            [part.select(id_col, time_col, pl.lit(name).alias(SCENARIO), *numbers) for name, part in parts]
        )

    def totals(self) -> Any:
        """Return the sums of the mean, unchanged, changed and their difference, as a frame like `frame`."""
        return to_native(self.sums(), self.unchanged.panel.origin.library)

    def sums(self) -> pl.DataFrame:
        """Return a polars frame, one row per series: the sum of the mean, unchanged, changed, and their difference."""
        before_S, after_S = (part.mean.sum(axis=1, dtype=np.float64) for part in (self.unchanged, self.changed))
        ids = pl.Series(list(self.unchanged.panel.ids))
        id_col = self.unchanged.table().columns[0]
        return pl.DataFrame({id_col: ids, "unchanged": before_S, "changed": after_S, "difference": after_S - before_S})

    def frame(self) -> Any:
        """Return the table as a frame of the library that the data came in."""
        return to_native(self.table(), self.unchanged.panel.origin.library)

    def plot(self, series: SeriesId | None = None, *, history: int | None = None) -> Figure:
        """Draw both forecasts of one series after its history, and the difference of their means below.

        Parameters
        ----------
        series
            Id of the series; the one with the largest change if left out. ConfigError is raised for one that was not
            forecast.
        history
            Number of past steps to show; three horizons if left out.
        """
        panel, horizon = self.unchanged.panel, self.unchanged.mean.shape[1]
        if series is not None and series not in panel.ids:
            raise ConfigError(
                "A plot must be of a series that was forecast.",
                got=f"{series!r}",
                hint=suggest(series, panel.ids, f"name one such as {panel.ids[0]!r}."),
            )
        change_S = np.abs(self.changed.mean - self.unchanged.mean).sum(axis=1)
        row = int(np.argmax(change_S)) if series is None else panel.ids.index(series)
        asked = 3 * horizon if history is None else whole("history", history, hint="count the steps to show.")
        length = int(panel.lengths[row])
        past = min(length, asked)
        steps = np.arange(length - past, length + horizon)
        when = stamps(panel, panel.freq.add(np.full_like(steps, panel.starts[row]), steps))
        # Local times: matplotlib would convert zoned ones.
        times = (when.dt.replace_time_zone(None) if isinstance(when.dtype, pl.Datetime) else when).to_numpy()
        both = (self.unchanged, self.changed)
        return draw_what_if(
            (times[:past], panel[row][length - past :]),
            times[past:],
            self.unchanged.levels,
            np.stack([part.quantiles[row] for part in both]),
            np.stack([part.mean[row] for part in both]),
            str(panel.ids[row]),
        )


def what_if(
    model: Forecaster,
    future: Data,
    changed: Data,
    *,
    data: Data | None = None,
    quantiles: Levels | None = None,
) -> WhatIf:
    """Forecast with a changed future of the covariates beside the unchanged one.

    Both forecasts use the same draws: they differ by the covariates alone. The answer is what the model has learned,
    which is not always what would happen: a price that was only ever cut together with a promotion looks like one.

    Parameters
    ----------
    model
        A forecaster fitted with covariates.
    future
        Values of the covariates in the steps to forecast, as for `predict`.
    changed
        The changed values.
    data
        History to forecast from, with the columns of `fit`; the fitted data if left out.
    quantiles
        Levels between 0 and 1; 0.1, 0.2, ... 0.9 if left out.

    Returns
    -------
    WhatIf
        With `table`, `frame` and `plot`.

    Raises
    ------
    NotFittedError, ConfigError, DataError
        Before `fit`, of a model without covariates, or if a future does not cover the steps to forecast.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(14), "y": [1.0, 2.0] * 7, "price": 3.0})
    >>> model = ls.SeasonalNaive(horizon=1, season=2).fit(frame, covariates=["price"])
    >>> future = pl.DataFrame({"unique_id": "a", "ds": [14], "price": 3.0})
    >>> ls.what_if(model, future, future.with_columns(price=2.0), quantiles=[0.5]).table().rows()
    [('a', 14, 'unchanged', 1.0, 1.0), ('a', 14, 'changed', 1.0, 1.0), ('a', 14, 'difference', 0.0, 0.0)]
    """
    if not isinstance(model, Forecaster):
        raise ConfigError(
            "A what-if is a question to a forecaster.",
            got=type(model).__name__,
            hint="write what_if(model, future, changed) with a fitted model.",
        )
    if getattr(model, "panel_", None) is not None and not model.panel_.ahead:
        raise ConfigError(
            "A what-if changes the covariates of a model.",
            got="a model fitted without covariates",
            hint="name them when it is fitted.",
        )
    before, after = (model.forecast(data, quantiles=quantiles, future=each) for each in (future, changed))
    # New series come from the futures themselves; all others are the same.
    starts = [dict(zip(part.panel.ids, part.panel.starts.tolist(), strict=True)) for part in (before, after)]
    if differ := sorted(f"{name!r}" for name, _ in starts[0].items() ^ starts[1].items()):
        raise DataError(
            "Both futures must have the same new series, from the same time on.",
            got=f"series {differ[0]}, which differs",
            hint="add its rows to both, or to neither.",
        )
    return WhatIf(before, after)
