"""Forecast: mean and quantiles of the next steps of every series. Forecaster: the interface of every model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.checks import a_path, suggest, whole
from logsparse.data.columns import ID, TIME, Columns, ColumnSpec, validate_columns
from logsparse.data.frame import join_future, to_panel
from logsparse.data.grid import to_native
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.data.series_index import check_columns, pack_panel, unpack_panel
from logsparse.data.times import When, clock_time, stamps
from logsparse.errors import ConfigError, DataError, NotFittedError, StepUnknownError, shown
from logsparse.process import refuse_forked

Levels = Sequence[float] | NDArray[np.floating[Any]]
LEVELS: Levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# A tail of a millionth: the name of its column tells it from 0 and 1, and float32 holds its draws.
_OUTERMOST = 1e-6


def check_levels(levels: Levels) -> tuple[float, ...]:
    """Quantile levels in rising order, each once."""
    try:
        found = sorted({float(level) for level in levels})
    except (TypeError, ValueError, OverflowError):  # one number, or text, or a number of 400 digits
        found = []
    if not found or not all(0 < level < 1 for level in found):
        raise ConfigError(
            "Quantiles must be a list of levels between 0 and 1, both excluded.",
            got=shown(levels),
            hint="write quantiles=[0.1, 0.5, 0.9].",
        )
    if found[0] < _OUTERMOST or found[-1] > 1 - _OUTERMOST:
        raise ConfigError(
            "Quantile levels must lie between 0.000001 and 0.999999.",
            got=f"{found[0] if found[0] < _OUTERMOST else found[-1]!r}",
            hint="ask for a level that the data can tell of, such as 0.001 or 0.999.",
        )
    for low, high in pairwise(found):
        if f"{low:g}" == f"{high:g}":
            raise ConfigError(
                "Quantiles must differ in their first six digits, which name their columns.",
                got=f"{low!r} and {high!r}",
                hint="leave one of them out.",
            )
    return tuple(found)


if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from logsparse.folder import ModelFolder


# Steps of a forecast: beyond it, no machine has the time or the memory, and a number is a mistake or a stranger's.
_LARGEST = 100_000


@dataclass(frozen=True, repr=False)
class Forecast:
    """The steps after the end of `panel`; `samples` are joint paths, where the model was told how many to draw."""

    panel: Panel
    mean: Floats
    """(series, step)"""
    levels: tuple[float, ...]
    quantiles: Floats
    """(series, level, step)"""
    samples: Floats | None = None
    """(series, sample, step); None unless asked for, as by `LogSparse(..., samples=100)`."""

    def __post_init__(self) -> None:
        for part in (self.mean, self.quantiles, *([] if self.samples is None else [self.samples])):
            for cell in np.argwhere(~np.isfinite(part))[:1].tolist():
                got = f"{part[tuple(cell)]} for series {self.panel.ids[cell[0]]!r}"
                hint = "look at the size of its last values; of a network, fit again with a smaller train.lr."
                raise DataError("A forecast must be finite.", got=got, hint=hint)

    def __repr__(self) -> str:
        paths = "" if self.samples is None else f", {self.samples.shape[1]} samples"
        return f"Forecast({self.mean.shape[0]:_} series, {self.mean.shape[1]} steps{paths})"

    def quantile(self, level: float) -> Floats:
        """(series, step)"""
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

    def table(self) -> pl.DataFrame:
        """One row a series and step: unique_id, ds, mean, one column a quantile."""
        panel, (series, horizon) = self.panel, self.mean.shape
        steps = panel.lengths[:, None] + np.arange(horizon)
        times = panel.freq.add(np.repeat(panel.starts, horizon), steps.ravel())
        columns: dict[str, Any] = {
            ID: pl.Series(list(panel.ids))[np.repeat(np.arange(series), horizon)],
            TIME: stamps(panel, times),
            "mean": self.mean.ravel(),
        }
        columns |= {f"q{level:g}": self.quantiles[:, i].ravel() for i, level in enumerate(self.levels)}
        return pl.DataFrame(columns)

    def frame(self) -> Any:
        """The table as the kind of frame that came in."""
        return to_native(self.table(), self.panel.origin.library)

    def plot(self, series: SeriesId | None = None, *, history: int | None = None) -> Figure:
        """The fan of one series (the first unless named) after its last `history` steps (three horizons)."""
        from logsparse.pictures import INK, draw_fan, new_figure

        if series is not None and series not in self.panel.ids:
            raise ConfigError(
                "A plot must be of a series that was forecast.",
                got=f"{series!r}",
                hint=suggest(series, self.panel.ids, f"name one such as {self.panel.ids[0]!r}."),
            )
        row = self.panel.ids.index(self.panel.ids[0] if series is None else series)
        horizon, length = self.mean.shape[1], int(self.panel.lengths[row])
        asked = 3 * horizon if history is None else whole("history", history, hint="count the steps to show.")
        shown = min(length, asked)
        steps = np.arange(length - shown, length + horizon)
        times = stamps(self.panel, self.panel.freq.add(np.full_like(steps, self.panel.starts[row]), steps)).to_numpy()
        figure, axes = new_figure()
        axes.plot(times[:shown], self.panel[row][length - shown :], color=INK, linewidth=1.2, label="history")
        draw_fan(axes, times[shown:], self.levels, self.quantiles[row])
        axes.set_title(str(self.panel.ids[row]), loc="left", fontsize=10, parse_math=False)
        axes.legend(frameon=False, ncols=4, fontsize=8, loc="upper left")
        return figure


@dataclass(frozen=True)
class Diagnostics:
    """What a forecaster can show of how it came to forecast, for a report."""

    settings: dict[str, Any]
    losses: list[dict[str, float]] = field(default_factory=list)
    """The story of the training: rows of step, seconds, nll, validation_nll."""
    attention: Figure | None = None


class Forecaster(ABC):
    """`fit` then `predict`; a subclass stores its settings in `__init__` and says how a panel is learned and forecast.

    What is learned ends in `_`. A second `fit` forgets the first.
    """

    changeable: ClassVar[tuple[str, ...]] = ()
    """Settings that say how and not what, and may be others after loading."""
    point_only: ClassVar[bool] = False
    """Whether one value a step is all it says: its quantiles are the median alone."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon

    @abstractmethod
    def _fit(self, panel: Panel) -> None: ...

    @abstractmethod
    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast: ...

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `_fit` learned, as plain JSON and as arrays."""
        return {}, {}

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """What `_state` gave becomes what `_fit` learned; without any, the panel is learned again."""
        del facts, arrays
        self._fit(self.panel_)

    def learned_until(self) -> dict[SeriesId, int]:
        """The time of the last step of each series that was learned from."""
        return dict(zip(self.panel_.ids, self.panel_.ends().tolist(), strict=True))

    def _remembered(self) -> int | None:
        """Last steps of a series that a forecast needs; none: all of them."""
        return None

    def check(self) -> None:
        """Refuse settings that cannot be meant; keep what checks return, which can be saved. Subclasses add theirs."""
        refuse_forked()
        self.horizon = whole("horizon", self.horizon, most=_LARGEST, hint="count the steps to forecast.")

    def check_quantiles(self, quantiles: Levels | None) -> tuple[float, ...]:
        """The levels asked for, checked; None asks for the usual ones."""
        if quantiles is None:
            return (0.5,) if self.point_only else tuple(LEVELS)
        found = check_levels(quantiles)
        if self.point_only and found != (0.5,):
            raise ConfigError(
                f"{type(self).__name__} forecasts one value a step, which stands as the median.",
                got=f"quantiles {', '.join(f'{level:g}' for level in found)}",
                hint="leave quantiles out, or ask for [0.5].",
            )
        return found

    def fit(self, data: Any, *, until: When | None = None, **columns: Unpack[Columns]) -> Self:
        """Learn from a frame, a file or a Panel, up to and including the time `until`."""
        self.check()
        given = validate_columns(columns)
        panel = to_panel(data, **given)
        if until is not None:
            panel = panel.until(clock_time(panel, until))
        self._fit(panel)
        self.panel_, self.columns_ = panel, given
        return self

    def forecast(self, data: Any = None, *, quantiles: Levels | None = None, future: Any = None) -> Forecast:
        """The `horizon` steps after the end of the fitted data, or of the history given."""
        levels = self.check_quantiles(quantiles)
        return self._forecast(self.history(data, future), levels)

    def predict(self, data: Any = None, *, quantiles: Levels | None = None, future: Any = None) -> Any:
        """The same as a frame: unique_id, ds, mean, q0.1 ... q0.9 (q0.5 alone from a forecaster of points)."""
        levels = self.check_quantiles(quantiles)
        (found,) = self.summaries([self.history(data, future)], levels)
        return found.frame()

    def summaries(self, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
        """A forecast of each history; without samples, where a subclass can do without keeping them."""
        return (self._forecast(history, levels) for history in histories)

    def _read(self, data: Any) -> Panel:
        """Data as the fitted ones were read, or those themselves."""
        if not hasattr(self, "panel_"):
            raise NotFittedError(self)
        try:
            panel = self.panel_ if data is None else to_panel(data, **self.columns_)
        except StepUnknownError:
            # A history of single values tells no step; it can only mean the one that was fitted.
            told: Columns = {**self.columns_, "freq": str(self.panel_.freq)}
            panel = to_panel(data, **told)
        if panel.freq != self.panel_.freq:
            raise DataError(
                "New data must have the step that was fitted.",
                got=f"steps of {panel.freq} after {self.panel_.freq}",
                hint="resample it, or fit again; freq= at fit() holds for later histories too.",
            )
        return panel

    def save(self, path: str | Path, *, history: bool = True) -> None:
        """A folder that `logsparse.load` reads on any machine; without history, predict() must be given one.

        A model that stood there is replaced in one stroke; anything else is refused.
        """
        from logsparse.folder import ModelFolder, as_tensors, write

        if not hasattr(self, "panel_"):
            raise NotFittedError(self)
        place = a_path("A model is saved to the path of a folder.", path, hint='write save("model").')
        facts, values = pack_panel(self.panel_, self._remembered() if history else 1)
        learned, arrays = self._state()
        # A step that was inferred stays inferred, so that later data of another step are refused and not squeezed.
        freq = {"freq": facts["freq"]} if self.columns_.get("freq") is not None else {}
        written = ModelFolder(
            kind=type(self).__name__,
            config={"settings": self.settings(), "columns": {**self.columns_, **freq}},
            series={"panel": facts, "learned": learned},
            weights=as_tensors(arrays),
            history=as_tensors(values) if history else None,
        )
        write(place, written)

    @classmethod
    def restored(cls, written: ModelFolder, **changed: Any) -> Self:
        """A forecaster as it was when it was saved, but for settings to be changed."""
        from logsparse.folder import as_arrays

        settings = cls.read_settings(written.config["settings"])
        for name, value in changed.items():
            if name not in cls.changeable:
                free = ", ".join(cls.changeable) or "nothing"
                raise ConfigError(
                    f"Of a saved {cls.__name__} {free} can be changed on loading.",
                    got=f"{name}={value!r}",
                    hint="fit again for another one."
                    if name in settings
                    else suggest(name, cls.changeable, "leave it out."),
                )
        self = cls(**{**settings, **changed})
        self.check()
        self.panel_ = unpack_panel(
            written.series["panel"], None if written.history is None else as_arrays(written.history)
        )
        self.columns_ = written.config["columns"]
        check_columns(ColumnSpec.of(self.columns_), self.panel_, history=written.history is not None)
        self._restore(written.series["learned"], as_arrays(written.weights))
        return self

    def settings(self) -> dict[str, Any]:
        """What it was made with, as plain JSON."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_") and name[-1] != "_"}

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """What `settings` gave, as arguments of the constructor."""
        return dict(written)

    def history(self, data: Any = None, future: Any = None) -> Panel:
        """What to forecast from: the fitted data, or these, with what is known of the future."""
        self.check()
        panel = self._read(data)
        if data is None and np.isnan(panel.values).all():
            raise DataError(
                "A model that was saved without history forecasts from one that is given.",
                got="no history",
                hint="predict(frame) with the last steps of each series, or save(history=True).",
            )
        if future is not None and not panel.covariates:
            raise ConfigError(
                "Future values are for covariates named at fit.",
                got="future=, and no covariates",
                hint="fit(frame, covariates=[...]) first, or leave future= out.",
            )
        if panel.covariates:
            panel = join_future(panel, future, self.horizon, **self.columns_)
        return panel

    def diagnostics(self) -> Diagnostics:
        """The settings it was made with; a subclass that trains adds its losses, and a picture of its attention."""
        return Diagnostics(self.settings())
