"""Forecast: mean and quantiles of the next steps of every series. Forecaster: the interface of every model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.columns import Columns, ColumnSpec, result_names
from logsparse.data.findings import MostEnds, screen
from logsparse.data.frame import Data, read_panel, refuse_empty
from logsparse.data.grid import to_native
from logsparse.data.health import Health, OnBad, against, warn
from logsparse.data.later import NewSeries, add_new, find_new, join_like, read_like, refuse_new
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.data.series_index import check_columns, pack_panel, unpack_panel
from logsparse.data.times import When, stamps
from logsparse.errors import ConfigError, DataError, NotFittedError, a_path, shown, whole
from logsparse.params import LEVELS, Diagnostics, Levels, Parameters, Saved, check_levels, refuse_changes, steps_asked
from logsparse.plots import plot
from logsparse.process import refuse_forked

if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

_LONGEST_HORIZON = 100_000
# What other modules and subclasses call, and tab completion leaves out.
_INTERNAL = {"changeable", "check", "check_quantiles", "history", "input_delays", "kind", "learned_until", "point_only",
             "read_settings", "restored", "screened", "settings", "summaries"}  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class Forecast:
    """Mean, quantiles and, on request, sample paths of the steps after the end of each series.

    `Forecaster.forecast` returns it. DataError is raised if a value is not finite.

    Parameters
    ----------
    panel
        The history that was forecast from.
    mean
        Array (series, step).
    levels
        Quantile levels in ascending order.
    quantiles
        Array (series, level, step).
    samples
        Joint sample paths (series, sample, step); None unless the model was asked for them, as by
        `LogSparse(..., samples=100)`.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> forecast = ls.SeasonalNaive(horizon=3, season=7).fit(frame).forecast()
    >>> forecast.mean.tolist()
    [[0.0, 1.0, 2.0]]
    """

    panel: Panel
    mean: Floats
    levels: tuple[float, ...]
    quantiles: Floats
    samples: Floats | None = None

    def __post_init__(self) -> None:
        for part in (self.mean, self.quantiles, *([] if self.samples is None else [self.samples])):
            for cell in np.argwhere(~np.isfinite(part))[:1].tolist():
                got = f"{part[tuple(cell)]} for series {self.panel.ids[cell[0]]!r}"
                hint = "check the size of its last values; if a network made it, fit again with a smaller train.lr."
                raise DataError("A forecast must be finite.", got=got, hint=hint)

    def __repr__(self) -> str:
        paths = "" if self.samples is None else f", {self.samples.shape[1]} samples"
        return f"Forecast({len(self.mean):_} series, {self.mean.shape[1]} steps{paths})"

    def _repr_html_(self) -> str:
        """Return the picture of the first series and the first rows of the table, for notebooks."""
        head = self.table().head(10)._repr_html_()
        return f"<p>{self!r}</p>{self.plot().html(repr(self))}{head}"

    def quantile(self, level: float) -> Floats:
        """Return one quantile of every step, as an array (series, step).

        Parameters
        ----------
        level
            One of `levels`, or any level in (0, 1) if there are `samples`; ConfigError is raised otherwise.
        """
        if level in self.levels:
            return self.quantiles[:, self.levels.index(level)]
        if self.samples is None:
            raise ConfigError(
                "A quantile must be among those forecast.",
                got=f"{shown(level)}, with {', '.join(f'{known:g}' for known in self.levels)} there",
                hint=f"forecast(quantiles=[{shown(level)}]).",
            )
        check_levels([level])
        return np.quantile(self.samples, level, axis=1).astype(np.float32)

    def first(self, steps: int) -> Forecast:
        """Return the forecast of the first steps only."""
        paths = None if self.samples is None else self.samples[:, :, :steps]
        return replace(self, mean=self.mean[:, :steps], quantiles=self.quantiles[:, :, :steps], samples=paths)

    def table(self) -> pl.DataFrame:
        """Return a polars frame, one row per series and step: id, time, mean, one column per quantile.

        The id and time columns have the names that they had in the data; unique_id and ds after a wide table.
        """
        panel, (series, horizon) = self.panel, self.mean.shape
        steps = panel.lengths[:, None] + np.arange(horizon)
        times = panel.freq.add(np.repeat(panel.starts, horizon), steps.ravel())
        id_col, time_col, _ = result_names(panel.origin)
        columns: dict[str, Any] = {
            id_col: pl.Series(list(panel.ids))[np.repeat(np.arange(series), horizon)],
            time_col: stamps(panel, times),
            "mean": self.mean.ravel(),
        }
        columns |= {f"q{level:g}": self.quantiles[:, i].ravel() for i, level in enumerate(self.levels)}
        return pl.DataFrame(columns)

    def frame(self) -> Any:
        """Return the table as a frame of the library that the data came in."""
        return to_native(self.table(), self.panel.origin.library)

    plot = plot


class Forecaster(Parameters, Saved, ABC):
    """Interface of every forecaster: `fit`, then `predict` or `forecast`.

    A subclass stores its parameters in `__init__`, checks them in `check`, learns in `_fit` and forecasts in
    `_forecast`. Attributes that are learned end in `_`. A second `fit` forgets the first.

    Parameters
    ----------
    horizon
        Number of steps to forecast.

    Examples
    --------
    >>> import numpy as np
    >>> import polars as pl
    >>> import logsparse as ls
    >>> class LastValue(ls.Forecaster):
    ...     def _fit(self, panel): pass
    ...     def _forecast(self, panel, levels):
    ...         mean = np.array([[panel[i][-1]] * self.horizon for i in range(len(panel))])
    ...         return ls.Forecast(panel, mean, levels, np.stack([mean] * len(levels), axis=1))
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(5), "y": [1.0, 2.0, 3.0, 4.0, 5.0]})
    >>> LastValue(horizon=2).fit(frame).predict(quantiles=[0.5]).rows()
    [('a', 5, 5.0, 5.0), ('a', 6, 5.0, 5.0)]
    """

    changeable: ClassVar[tuple[str, ...]] = ()
    """Parameters that `load` may change: they do not alter what was learned."""
    point_only: ClassVar[bool] = False
    """True for a forecaster of one value per step; its only quantile is the median."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon

    def __dir__(self) -> list[str]:
        """Return the names that are for users, and special ones."""
        return [name for name in super().__dir__() if name not in _INTERNAL and (name[0] != "_" or name[:2] == "__")]

    @abstractmethod
    def _fit(self, panel: Panel) -> None: ...

    @abstractmethod
    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast: ...

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what `_fit` learned, as plain JSON and as arrays."""
        return {}, {}

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set what `_fit` learned from what `_state` returned; by default fit the saved panel again."""
        del facts, arrays
        self._fit(self.panel_)

    def _remembered(self) -> int | None:
        """Return how many last steps per series a forecast needs; None: all of them."""
        return None

    def _learned(self) -> list[str]:
        fitted = hasattr(self, "panel_")
        return [f"{len(self.panel_):_} series", f"step {self.panel_.freq}"] if fitted else []

    def learned_until(self) -> dict[SeriesId, int]:
        """Return the time of the last step learned from, per series, on the panel's clock."""
        panel = self._read(None)
        return dict(zip(panel.ids, panel.ends().tolist(), strict=True))

    def check(self) -> None:
        """Raise ConfigError for a parameter with a wrong value; keep the others as plain Python values."""
        refuse_forked()
        self.horizon = whole("horizon", self.horizon, most=_LONGEST_HORIZON, hint="count the steps to forecast.")

    def check_quantiles(self, quantiles: Levels | None) -> tuple[float, ...]:
        """Return the levels, checked; None stands for 0.1 to 0.9, or for the median of a point forecaster."""
        if quantiles is None:
            return (0.5,) if self.point_only else tuple(LEVELS)
        levels = check_levels(quantiles)
        if self.point_only and levels != (0.5,):
            raise ConfigError(
                f"{type(self).__name__} forecasts one value per step, which is its median.",
                got=f"quantiles {', '.join(f'{level:g}' for level in levels)}",
                hint="leave quantiles out, or ask for [0.5].",
            )
        return levels

    def fit(self, data: Data, *, until: When | None = None, **columns: Unpack[Columns]) -> Self:
        """Learn from the series of a frame, file or panel.

        Parameters
        ----------
        data
            pandas, polars or pyarrow frame, path of a csv, parquet or feather file, or Panel; long or wide.
        until
            Time of the last step to use; each series' end if left out.
        **columns
            Which columns mean what, and how times are written, as for `to_panel`: `id_col`, `time_col`, `target_col`,
            `freq`, `covariates`, `past_covariates`, `static`, `tz`, `time_format`, `dayfirst`.

        Returns
        -------
        Self
            The forecaster itself, fitted.

        Raises
        ------
        ConfigError, DataError
            If a parameter or the data break a rule; the message has the rule, the value and a hint.
        """
        self.check()
        panel, given = read_panel(data, until, columns)
        self._fit(panel)
        self.panel_, self.columns_ = panel, given
        return self

    def forecast(
        self,
        data: Data | None = None,
        *,
        horizon: int | None = None,
        quantiles: Levels | None = None,
        future: Data | None = None,
    ) -> Forecast:
        """Forecast the `horizon` steps after the end of each series.

        Parameters
        ----------
        data
            History to forecast from, with the columns of `fit`; the fitted data if left out.
        horizon
            Number of steps to return, at most the horizon of the model, which is the default; a shorter horizon
            returns the first steps of the same forecast.
        quantiles
            Levels between 0 and 1; 0.1, 0.2, ... 0.9 if left out.
        future
            Values of the covariates in the steps to forecast. A series that is only here, with its static columns,
            is forecast without a history by a model that was trained for it (`hidden_history` in `ModelConfig`).

        Returns
        -------
        Forecast
            Arrays of mean, quantiles and samples, with `table`, `frame` and `plot`.

        Raises
        ------
        NotFittedError, ConfigError, DataError
            Before `fit`, or if a level, a parameter or the data break a rule.
        """
        levels = self.check_quantiles(quantiles)
        self.check()
        steps = steps_asked(horizon, self.horizon)
        return self._forecast(self.history(data, future, steps), levels).first(steps)

    def predict(
        self,
        data: Data | None = None,
        *,
        horizon: int | None = None,
        quantiles: Levels | None = None,
        future: Data | None = None,
        on_bad: OnBad = "warn",
    ) -> Any:
        """Forecast as `forecast` does, and return a frame without samples.

        Parameters
        ----------
        data, horizon, quantiles, future
            As for `forecast`, whose errors are raised here too.
        on_bad
            Series whose data have a bad finding (see `check`) are forecast, and one line is logged ("warn"), are left
            out ("skip"), or raise DataError ("fail").

        Returns
        -------
        frame
            Of the library that the data came in: unique_id, ds (or their names in the data), mean, q0.1 ... q0.9, one
            row per series and step.
        """
        levels = self.check_quantiles(quantiles)
        self.check()
        steps = steps_asked(horizon, self.horizon)
        past, health = self.screened(data, on_bad)
        warn(health, on_bad)
        (summary,) = self.summaries([self.history(past, future, steps, health.bad)], levels)
        return summary.first(steps).frame()

    def screened(
        self, data: Data | None, on_bad: OnBad, *, compare: bool = True, most: MostEnds | None = None
    ) -> tuple[Panel, Health]:
        """Return the data to forecast from, without the series that `on_bad` leaves out, and what was found.

        With `compare`, series that the model knows and the data lack are findings too, and so are new ones. `most` is
        where most series end, if the data are a part of them.
        """
        panel = self._past(data)
        compared = against(panel, self.panel_, self.learned_until()) if compare else []
        return screen(panel, compared, len(self.panel_), on_bad, most)

    def summaries(self, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
        """Forecast each history; a subclass may leave out samples, or forecast all histories at once."""
        return (self._forecast(history, levels) for history in histories)

    def _read(self, data: Data | None, **columns: Unpack[Columns]) -> Panel:
        """Return the data as a panel, read as the fitted ones were unless `columns` differ; None: the fitted panel.

        Series without any value are kept.
        """
        self.check()
        if not hasattr(self, "panel_"):
            raise NotFittedError(self)
        used: Columns = {**self.columns_, **columns}
        return self.panel_ if data is None else read_like(self.panel_, data, **used)

    def _past(self, data: Data | None) -> Panel:
        """Return what `_read` does, or raise if the model was saved without its history and is given none."""
        panel = self._read(data)
        if data is None and panel.is_blank:
            raise DataError.no_history()
        return panel

    def save(self, path: str | Path, *, history: bool = True) -> None:
        """Write the fitted model as a folder that `logsparse.load` reads on any machine.

        A model that is already there is replaced atomically.

        Parameters
        ----------
        path
            The folder.
        history
            Whether to save as much of each series as a forecast needs; without it, `predict` must be given one.

        Raises
        ------
        NotFittedError, ConfigError, DataError
            Before `fit`, or if `path` is not a path, or holds something other than a model.
        """
        from logsparse.folder import ModelFolder, as_tensors, write

        panel = self._read(None)
        place = a_path("A model is saved to the path of a folder.", path, hint='write save("model").')
        facts, values = pack_panel(panel, self._remembered() if history else 1)
        learned, arrays = self._state()
        # A step that was inferred stays inferred, so that later data of another step are refused, not resampled.
        freq = {"freq": facts["freq"]} if self.columns_.get("freq") is not None else {}
        model = ModelFolder(
            kind=type(self).__name__,
            config={"settings": self.settings(), "columns": {**self.columns_, **freq}},
            series={"panel": facts, "learned": learned},
            weights=as_tensors(arrays),
            history=as_tensors(values) if history else None,
        )
        write(place, model)

    @classmethod
    def restored(cls, written: ModelFolder, **changed: Any) -> Self:
        """Return the forecaster that was saved, with some of its `changeable` parameters changed."""
        from logsparse.folder import as_arrays

        settings = cls.read_settings(written.config["settings"])
        refuse_changes(f"a saved {cls.__name__}", cls.changeable, changed, settings)
        self = cls(**{**settings, **changed})
        self.check()
        saved = None if written.history is None else as_arrays(written.history)
        self.panel_ = unpack_panel(written.series["panel"], saved)
        self.columns_ = written.config["columns"]
        spec = ColumnSpec.of(self.columns_)
        check_columns(spec, self.panel_, history=written.history is not None)
        if "names" not in written.series["panel"]["origin"] and self.panel_.origin.layout == "long":  # of 0.1.0
            self.panel_ = replace(self.panel_, origin=replace(self.panel_.origin, names=spec.names))
        self._restore(written.series["learned"], as_arrays(written.weights))
        return self

    def settings(self) -> dict[str, Any]:
        """Return the parameters as plain JSON."""
        return self.get_params()

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the constructor that `settings` was made from."""
        return dict(written)

    def history(
        self,
        data: Data | None = None,
        future: Data | None = None,
        steps: int | None = None,
        skipped: Collection[SeriesId] = (),
    ) -> Panel:
        """Return the panel to forecast from: the fitted one, or `data`, with the future values of its covariates.

        They must be known for the first `steps`, the whole horizon if left out; no earlier step depends on the others.
        Series that are only in `future` are added, unless they were `skipped`.
        """
        panel = self._past(data)
        refuse_empty(panel)
        new = None if future is None else find_new(panel, {*self.learned_until(), *skipped}, future, **self.columns_)
        if new is not None:
            self._check_new(new)
            panel = add_new(panel, new, self.horizon)
        if not panel.ahead and (future is None or new is not None):
            return panel
        return join_like(panel, future, steps or self.horizon, self.columns_).reaching(self.horizon)

    def _check_new(self, new: NewSeries) -> None:
        """Raise for series without a history; a forecaster that is trained on such series overrides this."""
        name = type(self).__name__
        refuse_new(new, f"{name} must be given the history of every series.", "fit LogSparse with static=[...]")

    def diagnostics(self) -> Diagnostics:
        """Return the settings; a forecaster that is trained adds its losses and a picture of its attention."""
        return Diagnostics(self.settings())
