"""Fitted forecaster and held-back windows -> Importance: by how much the quantile loss grows without each input.

An input is not removed but misplaced, so that its values stay ones that occur: a covariate is moved in time by whole
seasons, static categories change places between series, and calendar features, lags and past values are read some
steps too early. What remains of the forecast's accuracy does not rest on that input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, SECOND, Freq, Ints
from logsparse.data.features import TRENDS
from logsparse.data.frame import Data
from logsparse.data.grid import Library, to_native
from logsparse.data.holidays import FLAGS
from logsparse.data.mapped import gathered
from logsparse.data.panel import Floats, Panel, SeriesId, Static
from logsparse.data.sampler import learned_steps
from logsparse.data.windows import lag_input, profile_input
from logsparse.errors import ConfigError, DataError, NotFittedError, whole
from logsparse.forecast import Forecaster
from logsparse.forecaster import LogSparse
from logsparse.model.network import Autoregressive
from logsparse.pictures import draw_importance
from logsparse.process import Progress
from logsparse.train.batches import looks_back, profiles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# S series, W cutoffs, H steps of the horizon, Q quantile levels, R repeats

KIND, INPUT, WQL, CHANGED, INCREASE, LOW, HIGH = "kind", "input", "wql", "wql_without", "increase", "low", "high"
# Cutoffs, if as many fit and nothing else is asked for.
_WINDOWS = 4
# Series, drawn if there are more: the interval shows what this costs.
_MOST_SERIES = 100
_LATER = (
    "pass data that go on after the training, ask for fewer windows, fit(frame, until=) an earlier time, or fit few "
    "values with refit=False."
)
# Resamples of windows and repeats; the interval is the central 90 % of them.
_RESAMPLES, _LEVELS = 500, (0.05, 0.95)
# Unit and cycle of the calendar features that repeat: shorter moves would make days begin in the afternoon.
_CYCLES = {
    "second": (SECOND, 60 * SECOND),
    "minute": (60 * SECOND, 3600 * SECOND),
    "hour": (3600 * SECOND, DAY),
    "weekday": (DAY, 7 * DAY),
    "day": (DAY, 365 * DAY),
    "month": (DAY, 365 * DAY),
    "day_of_year": (DAY, 365 * DAY),
    **dict.fromkeys(FLAGS, (DAY, 28 * DAY)),
}

Doubles = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True, repr=False)
class Importance:
    """What a forecast rests on, as `importance` returns it.

    Parameters
    ----------
    rows
        One row per input, as `table` returns them.
    series, windows, repeats
        Numbers of series and of cutoffs per series that were measured on, and how often each input was changed.
    library
        The kind of frame that `frame` returns.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) + t / 100 for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=7, season=7).fit(frame, until=55)
    >>> ls.importance(model, frame)
    Importance(1 input on 2 windows of 1 series, 5 repeats)
    """

    rows: pl.DataFrame
    series: int
    windows: int
    repeats: int
    library: Library = "polars"

    def __repr__(self) -> str:
        windows = _count(self.series * self.windows, "window")
        measured = f"{_count(self.rows.height, 'input')} on {windows} of {self.series} series"
        return f"Importance({measured}, {_count(self.repeats, 'repeat')})"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.rows._repr_html_()}"

    def table(self) -> pl.DataFrame:
        """Return a polars frame, one row per input, the most important first.

        `kind` is covariate, static, calendar, lags or past; `wql` is the weighted quantile loss of the forecasts,
        `wql_without` that without the input, `increase` their ratio minus 1, and `low` to `high` its 90 % interval.
        """
        return self.rows

    def frame(self) -> Any:
        """Return the table as a frame of the library that the data came in."""
        return to_native(self.rows, self.library)

    def plot(self) -> Figure:
        """Draw the increase of each input and its interval."""
        return draw_importance(self.rows.rows(named=True))


class _Input(NamedTuple):
    """An input, and a function that misplaces it: the model and the panel to forecast with instead."""

    kind: str
    name: str
    change: Callable[[Generator], tuple[Forecaster, Panel]]


def importance(
    model: Forecaster,
    data: Data | None = None,
    *,
    windows: int | None = None,
    repeats: int = 5,
    series: int = _MOST_SERIES,
    seed: int = 0,
) -> Importance:
    """Measure what a forecast rests on: how much worse it is without each input, on windows held back from training.

    Each input is misplaced `repeats` times, the windows are forecast with the same draws, and the quantile losses are
    compared. Values stay ones that occur:

    - a covariate is moved in time, within its series, by a random number of whole seasons (of steps, if it repeats
      every season);
    - static categories are permuted among the series;
    - calendar features, and lags and profiles in groups, are read a random number of steps too early (networks only);
      what a network feeds back to itself stays;
    - the past values as a whole, for every forecaster, are those of a random number of steps earlier.

    Inputs that say the same share what they say: each alone may look unimportant.

    Parameters
    ----------
    model
        Any fitted forecaster; it is not changed.
    data
        Frame, path or Panel with the columns of `fit`, which may be newer; the fitted data if left out.
    windows
        Number of cutoffs per series, one horizon apart, at the end of the data. All must lie in the part that training
        kept for validation (of a model fitted with `validation=`, there is none), or after the fitted data. Up to 4 if
        left out.
    repeats
        How often each input is misplaced.
    series
        Most series to measure on; of more, so many are drawn.
    seed
        Seed of all random draws.

    Returns
    -------
    Importance
        With `table`, `frame` and `plot`.

    Raises
    ------
    NotFittedError, ConfigError, DataError
        Before `fit`, if an argument has a wrong value, or if no series has enough steps that were held back.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) + t / 100 for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=7, season=7).fit(frame, until=55)
    >>> found = ls.importance(model, frame, windows=1).table()
    >>> found.select("kind", "input").rows(), found["increase"][0] > 1
    ([('past', 'past values')], True)
    """
    if not isinstance(model, Forecaster):
        raise ConfigError(
            "Importance is that of the inputs of a forecaster.",
            got=type(model).__name__,
            hint="write importance(model, frame) with a fitted model.",
        )
    if not hasattr(model, "panel_"):
        raise NotFittedError(model)
    asked = None if windows is None else whole("windows", windows, hint="count the cutoffs.")
    rounds = whole("repeats", repeats, hint="5 is a good number.")
    most = whole("series", series, hint="count the series to measure on.")
    number = whole("seed", seed, least=0, hint="any small whole number will do.")
    panel, cutoffs_WS = _held_back(model, data, asked, most, np.random.default_rng([number, 0]))
    quiet = copy(model)
    if verbose := getattr(model, "verbose", False):
        quiet.set_params(verbose=False)
    inputs = list(_inputs(quiet, panel, cutoffs_WS[0]))
    with Progress("explaining", 1 + len(inputs) * rounds, verbose=verbose) as progress:
        truth = _truth(panel, cutoffs_WS, model.horizon)
        loss_WS = _losses(quiet, panel, cutoffs_WS, truth)
        progress.step()
        lost_IRWS = np.empty((len(inputs), rounds, *loss_WS.shape))
        for place, one in enumerate(inputs):
            rng = np.random.default_rng([number, 1 + place])
            for repeat in range(rounds):
                lost_IRWS[place, repeat] = _losses(*one.change(rng), cutoffs_WS, truth)
                progress.step()
    size = len(model.check_quantiles(None)) * float(np.nansum(np.abs(truth)))
    draws = np.random.default_rng([number, len(inputs) + 1])
    rows = _summary(inputs, loss_WS, lost_IRWS, 2 / size if size else np.nan, draws)
    return Importance(rows, len(panel), len(cutoffs_WS), rounds, panel.origin.library)


def _held_back(
    model: Forecaster, data: Data | None, windows: int | None, most: int, rng: Generator
) -> tuple[Panel, Ints]:
    """Return the series to measure on, and the number of steps before each cutoff, oldest first: (W, S)."""
    panel = model._read(data).to_last_value()  # noqa: SLF001 - `history` would ask for the future of covariates
    horizon, ends = model.horizon, _trained_until(model)
    trained_S = np.array(
        [0 if name not in ends else _steps_until(panel, row, ends[name]) for row, name in enumerate(panel.ids)]
    )
    elapsed_S = np.zeros_like(panel.lengths) if panel.elapsed is None or data is not None else panel.elapsed
    kept_end = bool(elapsed_S.any())
    if kept_end and isinstance(model, LogSparse):
        # A folder keeps the end of each series: windows before it would see less than the model is used to.
        needed = model.config_.context + looks_back(model.config_)
        trained_S = np.where(elapsed_S > 0, np.maximum(trained_S, needed), trained_S)
    room_S = (panel.lengths - np.maximum(trained_S, 1)) // horizon
    # As many windows as possible, over all series together.
    count = windows or max(range(1, _WINDOWS + 1), key=lambda number: number * int((room_S >= number).sum()))
    chosen = [
        row
        for row in np.flatnonzero(room_S >= count).tolist()
        if not np.isnan(panel[row][: panel.lengths[row] - count * horizon]).all()
    ]
    if not chosen:
        raise DataError(
            "Importance is measured on windows whose steps to forecast were held back from training.",
            got=f"at most {max(int(room_S.max()), 0) * horizon} such steps per series, while {count * horizon} are "
            "needed" + (" (a loaded model keeps only the end of its data)" if kept_end else ""),
            hint="pass the data that it was fitted on." if kept_end else _LATER,
        )
    if len(chosen) > most:
        chosen = rng.choice(chosen, most, replace=False).tolist()
    measured = panel.keep(np.isin(np.arange(len(panel)), chosen))
    return measured, measured.lengths - horizon * np.arange(count, 0, -1)[:, None]


def _trained_until(model: Forecaster) -> dict[SeriesId, int]:
    """Return the time of the last step whose value changed a weight, per series."""
    ends = model.learned_until()
    # After a training that was cut there was no second one, on all data.
    if not isinstance(model, LogSparse) or (model.config_.train.refit and not model.history_.cut):
        return ends
    panel = model.panel_.to_last_value()
    elapsed_S = np.zeros_like(panel.lengths) if panel.elapsed is None else panel.elapsed
    whole_panel = replace(panel, lengths=panel.lengths + elapsed_S)
    train = model.config_.train
    held_back = (train.validation_steps, train.validation_share)
    border_S = learned_steps(whole_panel, model.horizon, *held_back) - elapsed_S
    border = panel.freq.add(panel.starts, border_S - 1).tolist()
    last = model.panel_.ends().tolist()
    # A series that an earlier training knew for longer was learned from up to there.
    known = zip(panel.ids, border, last, strict=True)
    return {**ends, **{name: time for name, time, end in known if ends[name] <= end}}


def _steps_until(panel: Panel, row: int, time: int) -> int:
    return int(panel.freq.steps(panel.starts[[row]], np.array([time]))[0]) + 1


def _truth(panel: Panel, cutoffs_WS: Ints, horizon: int) -> Doubles:
    """Return the values to forecast: (W, S, H)."""
    cells_WSH = (panel.indptr[:-1] + cutoffs_WS)[..., None] + np.arange(horizon)
    return np.asarray(panel.values[cells_WSH], np.float64)


def _losses(model: Forecaster, panel: Panel, cutoffs_WS: Ints, truth_WSH: Doubles) -> Doubles:
    """Return the quantile loss of each window, summed over levels and steps: (W, S)."""
    levels = model.check_quantiles(None)
    histories = [model.history(panel.cut(lengths_S)) for lengths_S in cutoffs_WS]
    level_Q1 = np.array(levels)[:, None]
    loss_WS = np.empty(cutoffs_WS.shape)
    for window, forecast in enumerate(model.summaries(histories, levels)):
        error_SQH = truth_WSH[window][:, None] - forecast.quantiles
        loss_WS[window] = np.nansum(np.maximum(level_Q1 * error_SQH, (level_Q1 - 1) * error_SQH), axis=(1, 2))
    return loss_WS


def _inputs(model: Forecaster, panel: Panel, first_S: Ints) -> Iterator[_Input]:
    """Yield every input of the model; `first_S` are the steps before the first cutoff."""
    for name in panel.covariates:
        yield _Input("covariate", name, partial(_with_panel, model, partial(_moved, panel, name)))
    for name in panel.static:
        yield _Input("static", name, partial(_with_panel, model, partial(_permuted, panel, name)))
    if isinstance(model, LogSparse):
        for kind, name, names, unit, most in _network_inputs(model, panel.freq, int(np.median(first_S))):
            yield _Input(kind, name, partial(_delayed, model, panel, names, unit, most))
    yield _Input("past", "past values", partial(_with_panel, model, partial(_earlier, panel, first_S)))


def _network_inputs(model: LogSparse, freq: Freq, steps: int) -> Iterator[tuple[str, str, list[str], int, int]]:
    """Yield kind, name, names in the windows, and unit and bound of the delay, in steps and units."""
    for name in model.features_.names:
        unit, cycle = (1, max(2, steps)) if name in TRENDS else _cycle(name, freq)
        yield "calendar", name, [name], unit, cycle
    if not isinstance(model.network_, Autoregressive):
        return
    lags, most = model.config_.model.lags, max(2, min(model.config_.context, steps))
    for group in ([lag for lag in lags if lag < freq.season], [lag for lag in lags if lag >= freq.season]):
        if group:
            yield "lags", _listed("lag", group), [lag_input(lag) for lag in group], 1, most
    if profiles := profiles_of(model.config_):
        names = [profile_input(profile) for profile in profiles]
        yield "lags", _listed("profile", [name.partition(" ")[2] for name in names]), names, 1, most


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number != 1 else ''}"


def _listed(word: str, entries: Sequence[object]) -> str:
    shown = [*entries[:3], "...", entries[-1]] if len(entries) > 5 else entries
    return f"{word}{'s' if len(entries) > 1 else ''} {', '.join(map(str, shown))}"


def _cycle(name: str, freq: Freq) -> tuple[int, int]:
    """Return by how many steps a calendar feature is moved at least, and how many such moves its cycle has."""
    unit, cycle = _CYCLES[name]
    if freq.kind == "business":
        return 1, 5 if name == "weekday" else 261
    if freq.kind == "month":
        return 1, max(2, 12 // freq.count)
    steps = max(1, unit // freq.count)
    return steps, max(2, cycle // freq.count // steps)


def _with_panel(model: Forecaster, change: Callable[[Generator], Panel], rng: Generator) -> tuple[Forecaster, Panel]:
    return model, change(rng)


def _delayed(
    model: LogSparse, panel: Panel, names: Sequence[str], unit: int, most: int, rng: Generator
) -> tuple[Forecaster, Panel]:
    """Return the model with these inputs read 1 to `most` - 1 units too early."""
    other = copy(model)
    other.input_delays = dict.fromkeys(names, unit * int(rng.integers(1, most)))
    return other, panel


def _moved(panel: Panel, name: str, rng: Generator) -> Panel:
    """Rotate a covariate within each series by whole seasons; by any steps, if that changes nothing."""
    old, season = panel.covariates[name], panel.freq.season
    new = _rotated(panel, old, season, rng)
    if np.array_equal(new, old, equal_nan=True):
        new = _rotated(panel, old, 1, rng)
    return replace(panel, covariates={**panel.covariates, name: new})


def _rotated(panel: Panel, old: Floats, unit: int, rng: Generator) -> Floats:
    new = old.copy()
    for begin, end in zip(panel.indptr, panel.indptr[1:], strict=False):
        units = int(end - begin) // unit
        if units > 1:
            # The end of the series, where the windows are: the first steps are no whole unit.
            first = end - units * unit
            new[first:end] = np.roll(old[first:end], unit * int(rng.integers(1, units)))
    return new


def _permuted(panel: Panel, name: str, rng: Generator) -> Panel:
    column = panel.static[name]
    codes_S = column.codes[rng.permutation(len(panel))]
    return replace(panel, static={**panel.static, name: Static(codes_S, column.categories)})


def _earlier(panel: Panel, first_S: Ints, rng: Generator) -> Panel:
    """Return the panel with the values of some steps earlier; the first ones come from before the first cutoff."""
    values = gathered(panel.values, panel.indptr[:-1], panel.stored)
    for begin, end, first in zip(panel.indptr, panel.indptr[1:], first_S, strict=False):
        if first > 1:
            back, old = int(rng.integers(1, first)), panel.values[begin:end]
            values[begin:end] = np.concatenate((old[first - back : first], old[: len(old) - back]))
    return replace(panel, values=values)


def _summary(
    inputs: Sequence[_Input], loss_WS: Doubles, lost_IRWS: Doubles, scale: float, rng: Generator
) -> pl.DataFrame:
    """Return one row per input; intervals are those of resampled windows and repeats, the same for all inputs."""
    # Differences first: an input that changes nothing has an increase of exactly 0.
    loss_N, more_IRN = loss_WS.ravel(), (lost_IRWS - loss_WS).reshape(*lost_IRWS.shape[:2], -1)
    count, repeats, total = loss_N.size, more_IRN.shape[1], float(loss_N.sum())
    ratios = []
    for _ in range(_RESAMPLES):
        windows, rounds = rng.integers(count, size=count), rng.integers(repeats, size=repeats)
        if (base := loss_N[windows].sum()) > 0:
            ratios.append(more_IRN[:, rounds].mean(1)[:, windows].sum(1) / base)
    more_I = more_IRN.mean(1).sum(1)
    low_I, high_I = np.quantile(ratios, _LEVELS, axis=0) if ratios else np.full((2, len(inputs)), np.nan)
    increase_I = more_I / total if total > 0 else np.full(len(inputs), np.nan)
    table = pl.DataFrame({
        KIND: [one.kind for one in inputs], INPUT: [one.name for one in inputs],
        WQL: np.full(len(inputs), total * scale), CHANGED: (total + more_I) * scale,
        INCREASE: increase_I, LOW: low_I, HIGH: high_I,
    })  # fmt: skip
    return table.fill_nan(None).sort(INCREASE, descending=True, nulls_last=True, maintain_order=True)
