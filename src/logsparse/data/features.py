"""(Panel, series, steps) -> standardised features: the calendar, the age of a series, and named covariates.

Calendar features follow from the times and so are known in the future; covariates are read as far as they are stored.
Covariates that are known only for the past are read at lags, and never at or after the forecast start of a window.
Mean and standard deviation are computed from the visible steps of the fitted panel only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, FARTHEST, SECOND, Freq, Ints
from logsparse.data.holidays import AUTO, FLAGS, Holidays, breaks, country_of, resolved, weekday, yearly_breaks
from logsparse.data.panel import Floats, Panel
from logsparse.data.times import to_wall
from logsparse.errors import ConfigError, DataError
from logsparse.storage import a_list, entries, numbers, texts, whole_number

# B windows, L steps, F features, N steps of one chunk, R rows (series, or groups of series with the same span)

CALENDAR = ("year", "month", "day", "weekday", "hour", "minute", "second", "day_of_year", "age")
TRENDS = ("year", "age")
"""Calendar features that do not repeat."""
# Future covariates are clipped to this many standard deviations, so that products of them stay finite.
_MOST_DEVIATIONS = 1e8
_CHUNK = 1 << 18
# Most series from which it is learned what holidays are like.
_MOST_SERIES = 500
# Most days, ten years, that are searched for special ones.
_MOST_DAYS = 3653


def chunks(length_R: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield (row, step) of every step of every row, a bounded number at a time."""
    end_R = np.cumsum(length_R)
    for begin in range(0, int(end_R[-1]), _CHUNK):
        flat_N = np.arange(begin, min(begin + _CHUNK, end_R[-1]))
        row_N = np.searchsorted(end_R, flat_N, side="right")
        yield row_N, flat_N - (end_R - length_R)[row_N]


class Statistics:
    """Running mean and standard deviation, numerically stable even if the mean is large and the deviation small."""

    def __init__(self, count: int = 0, mean: float = 0.0, square: float = 0.0) -> None:
        self.count, self.mean, self.square = count, mean, square

    def add(self, raw_N: NDArray[np.float64], weight_N: Ints) -> None:
        count = int(weight_N.sum())
        if count == 0:
            return
        mean = float(raw_N @ weight_N) / count
        self.join(count, mean, float((raw_N - mean) ** 2 @ weight_N))

    def join(self, count: int, mean: float, square: float) -> None:
        """Add what another has counted, of at least one value."""
        shift, total = mean - self.mean, self.count + count
        self.square += square + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count = total

    def result(self) -> tuple[float, float]:
        return self.mean, (self.square / max(self.count, 1)) ** 0.5


def features_for(freq: Freq) -> tuple[str, ...]:
    """Return the default calendar features for a step; for hours and finer steps, those of the paper."""
    if freq.kind == "index":
        return ("age",)
    if freq.kind == "business":
        return ("year", "month", "day", "weekday", "age")
    if freq.kind == "month":
        return ("year", "age") if freq.count % 12 == 0 else ("year", "month", "age")
    if freq.count % DAY == 0:
        weekly = freq.count % (7 * DAY) == 0
        return ("year", "day_of_year", "age") if weekly else ("year", "month", "day", "weekday", "age")
    minute = ("minute",) if freq.count % (3600 * SECOND) else ()
    second = ("second",) if freq.count % (60 * SECOND) else ()
    return ("month", "weekday", "hour", *minute, *second, "age")


@dataclass(frozen=True, kw_only=True)
class Features:
    """Fitted features: in the last dimension, calendar `names` come first, then `covariates`, then those of `past`.

    Each covariate of the past has two features per lag: its value, and whether it is known. `mean` and `std` have one
    entry per name.
    """

    names: tuple[str, ...]
    covariates: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    past: tuple[str, ...] = ()
    lags: tuple[int, ...] = ()
    holidays: Holidays | None = None

    def __len__(self) -> int:
        return len(self.names) + len(self.covariates) + 2 * len(self.past) * len(self.lags)

    @classmethod
    def fit(
        cls,
        panel: Panel,
        names: Sequence[str] | None = None,
        covariates: Sequence[str] = (),
        *,
        past: Sequence[str] = (),
        lags: Sequence[int] = (),
        holidays: Holidays | None = None,
    ) -> Self:
        """Compute mean and deviation over the visible steps; `names` default to `features_for` the step."""
        names = tuple(features_for(panel.freq) if names is None else names)
        _check_names(names, panel.freq)
        columns = (*covariates, *past)
        _check_covariates(panel, columns)
        flags = FLAGS if holidays is not None else ()
        found = dict(zip((*names, *flags), _calendar_statistics(panel, (*names, *flags), holidays), strict=True))
        # What a network never saw in training would mislead it later.
        names += tuple(flag for flag in flags if found[flag][1] > 0)
        statistics = [*(found[name] for name in names), *(_covariate_statistics(panel, name) for name in columns)]
        # A constant feature carries no information: with deviation 1 it is 0 in training and finite later.
        # (Chunks of equal float32 values have an exact mean in float64, so their deviation is exactly 0.)
        std = tuple(s or 1.0 for _, s in statistics)
        return cls(
            names=names,
            covariates=tuple(covariates),
            mean=tuple(m for m, _ in statistics),
            std=std,
            past=tuple(past),
            lags=tuple(lags) if past else (),
            holidays=holidays,
        )

    def __call__(self, panel: Panel, series_B: Ints, step_BL: Ints, out_BLF: Floats | None = None) -> Floats:
        """Return the features of these steps of each series; a missing covariate is 0, its mean."""
        if out_BLF is None:
            out_BLF = np.empty((*step_BL.shape, len(self)), np.float32)
        if set(self.names) - {"age"}:
            local_BL = local_times(panel, panel.freq.add(panel.starts[series_B][:, None], step_BL))
        else:
            local_BL = step_BL
        age_BL = step_BL if panel.elapsed is None else step_BL + panel.elapsed[series_B][:, None]
        for f, name in enumerate(self.names):
            raw_BL = age_BL if name == "age" else _field(name, local_BL, self.holidays)
            out_BLF[..., f] = (raw_BL - self.mean[f]) / self.std[f]
        _check_covariates(panel, self.covariates)
        if self.covariates:
            self._read_covariates(panel, series_B, step_BL, out_BLF)
        return out_BLF

    def special(self, panel: Panel, series_B: Ints, step_BL: Ints) -> NDArray[np.bool_]:
        """Return True for steps on holidays."""
        if self.holidays is None:
            return np.zeros(step_BL.shape, bool)
        time_BL = panel.freq.add(panel.starts[series_B][:, None], step_BL)
        return self.holidays.has(local_times(panel, time_BL) // DAY)

    def earlier(self, name: str, panel: Panel, series_B: Ints, step_BL: Ints, back: int) -> Floats:
        """Return one calendar feature as it was `back` steps earlier; year and age not before the series began."""
        f = self.names.index(name)
        alone = Features(names=(name,), covariates=(), mean=(self.mean[f],), std=(self.std[f],), holidays=self.holidays)
        steps_BL = step_BL - back
        if name in TRENDS:
            steps_BL = np.maximum(steps_BL, np.minimum(step_BL, 0))
        return alone(panel, series_B, steps_BL)[..., 0]

    def read_past(
        self, panel: Panel, series_B: Ints, step_BL: Ints, known_B: tuple[Ints, Ints], out_BLF: Floats
    ) -> None:
        """Write the covariates of the past at every lag: known from the first to before the second step of `known_B`.

        The second is at most the forecast start: what comes after it is not read.
        """
        _check_covariates(panel, self.past)
        first_B1, end_B1 = (bound_B[:, None] for bound_B in known_B)
        place = len(self.names) + len(self.covariates)
        for p, name in enumerate(self.past, start=place):
            for lag in self.lags:
                source_BL = step_BL - lag
                known_BL = (source_BL >= first_B1) & (source_BL < end_B1)
                cells_BL = panel.indptr[series_B][:, None] + np.where(known_BL, source_BL, 0)
                raw_BL = (panel.covariates[name][cells_BL].astype(np.float64) - self.mean[p]) / self.std[p]
                known_BL &= ~np.isnan(raw_BL)
                out_BLF[..., place] = np.where(known_BL, np.clip(raw_BL, -_MOST_DEVIATIONS, _MOST_DEVIATIONS), 0)
                out_BLF[..., place + 1] = known_BL
                place += 2

    def restart_age(self, out_BLF: Floats, rows_B: NDArray[np.bool_], context: int) -> None:
        """Let the series of these windows begin at the forecast start; nothing before it has features."""
        out_BLF[rows_B, :context] = 0
        if "age" in self.names:
            f = self.names.index("age")
            out_BLF[rows_B, context:, f] = (np.arange(out_BLF.shape[1] - context) - self.mean[f]) / self.std[f]

    def _read_covariates(self, panel: Panel, series_B: Ints, step_BL: Ints, out_BLF: Floats) -> None:
        last_B = panel.stored[series_B] - 1
        if (step_BL > last_B[:, None]).any():
            row = int(np.argmax((step_BL > last_B[:, None]).any(axis=1)))
            series = series_B[row]
            start, needed, last = panel.starts[series], step_BL[row].max(), last_B[row]
            raise DataError(
                "Covariates must be known for every step of the horizon.",
                got=f"series {panel.ids[series]!r}, where {', '.join(self.covariates)} end at "
                f"{panel.freq.show(int(panel.freq.add(start, last)))} and are needed up to "
                f"{panel.freq.show(int(panel.freq.add(start, needed)))}",
                hint="pass their future values, or leave these covariates out.",
            )
        flat_BL = panel.indptr[series_B][:, None] + np.maximum(step_BL, 0)
        for f, name in enumerate(self.covariates, start=len(self.names)):
            raw_BL = (panel.covariates[name][flat_BL].astype(np.float64) - self.mean[f]) / self.std[f]
            raw_BL = np.clip(raw_BL, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
            out_BLF[..., f] = np.where((step_BL < 0) | np.isnan(raw_BL), 0, raw_BL)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, ready for JSON."""
        state: dict[str, Any] = {key: list(value) for key, value in asdict(self).items() if key != "holidays"}
        return state if self.holidays is None else {**state, "holidays": self.holidays.to_dict()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Validate and load the output of `to_dict`."""
        entries("features", state, "names", "covariates", "mean", "std")
        # Models of 0.2.0 have no holidays.
        saved = state.get("holidays")
        holidays = None if saved is None else Holidays.from_dict(saved)
        names = texts("features/names", state["names"], CALENDAR if holidays is None else (*CALENDAR, *FLAGS))
        covariates = texts("features/covariates", state["covariates"])
        # Models of 0.1.0 have no covariates of the past.
        past = texts("features/past", state.get("past", []))
        lags = tuple(
            whole_number("features/lags", lag, 1, FARTHEST) for lag in a_list("features/lags", state.get("lags", []))
        )
        count = len(names) + len(covariates) + len(past)
        return cls(
            names=names,
            covariates=covariates,
            mean=numbers("features/mean", state["mean"], count),
            std=numbers("features/std", state["std"], count, least=float(np.finfo(np.float32).tiny)),
            past=past,
            lags=lags,
            holidays=holidays,
        )

    def check(self, freq: Freq) -> None:
        """Raise if times of this step do not have these calendar features."""
        _check_names([name for name in self.names if name not in FLAGS], freq)


def holidays_of(panel: Panel, entries: Sequence[str]) -> Holidays:
    """Return the holidays of a panel and the weekday they are like: the one that their values are nearest to.

    A holiday of some name that was nearer to the day of the week it fell on is a day as usual here, and left out.
    """
    freq = panel.freq
    if not (freq.kind == "business" or freq.divides_day):
        raise ConfigError(
            "Holidays need dates and steps that divide a day.",
            got=f"steps of {freq}",
            hint="leave holidays out; a covariate can count the holidays of each step.",
        )
    if AUTO in entries:
        entries = [*(entry for entry in entries if entry != AUTO), *yearly_breaks(*breaks(*_daily(panel)))]
    names = resolved(entries, int(panel.starts.min()) // DAY, int(panel.ends().max()) // DAY)
    every = Holidays(tuple(names))
    if freq.kind == "business":
        return every
    apart: dict[str, NDArray[np.float64]] = {}
    for day, apart_W in chain(*panel.everywhere([*chain(*(_distances(panel, one, every) for one in _some(panel)))])):
        for name in names[day].split("; "):  # as the package joins holidays of one day
            apart[name] = apart.get(name, 0) + np.append(apart_W, apart_W[weekday(np.int64(day))])
    if not apart:
        return every
    like = int(np.sum(list(apart.values()), axis=0)[:7].argmin())
    usual = {name for name, apart_W in apart.items() if apart_W[7] < apart_W[like]}
    return Holidays(tuple(day for day, name in names.items() if not usual.issuperset(name.split("; "))), like)


def recognised_holidays(panel: Panel) -> tuple[str, ...]:
    """Return the country on whose holidays the panel broke its weekly rhythm, for `holidays_of`; none if unclear."""
    if not panel.freq.divides_day:
        return ()
    country = country_of(*breaks(*_daily(panel)))
    return () if country is None else (country,)


def _daily(panel: Panel) -> tuple[NDArray[np.float64], int]:
    """Return the mean of some series on each of the last local days, NaN where there is none, and the first day."""
    last = int(panel.ends().max()) // DAY + 1
    first = max(int(panel.starts.min()) // DAY - 1, last - _MOST_DAYS)
    own_SD = np.full((len(_some(panel)), last - first + 1), np.nan)
    for mean_D, series in zip(own_SD, _some(panel), strict=True):
        values = panel[series].astype(np.float64)
        place_T = _days(panel, series) - first
        seen_T = ~np.isnan(values) & (place_T >= 0)
        count_D = np.bincount(place_T[seen_T], minlength=len(mean_D))
        total_D = np.bincount(place_T[seen_T], values[seen_T], minlength=len(mean_D))
        np.divide(total_D, count_D, out=mean_D, where=count_D > 0)
    return np.concatenate(panel.everywhere(own_SD)), first


def _some(panel: Panel) -> list[int]:
    """Return the series that tell what holidays are like, of those held here: of all at most so many, evenly spread."""
    chosen = np.linspace(0, len(panel) - 1, min(len(panel), _MOST_SERIES)).astype(np.int64)
    return [place for place in chosen.tolist() if place in panel.held]


def _days(panel: Panel, series: int) -> Ints:
    """Return the local day of every step of a series."""
    step_T = np.arange(panel.lengths[series])
    return local_times(panel, panel.freq.add(np.full_like(step_T, panel.starts[series]), step_T)) // DAY


def _distances(panel: Panel, series: int, holidays: Holidays) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield each holiday of a series, and how far its values are from those of every weekday of the four weeks before.

    Relative to the mean size of the series, so that those of all series can be added.
    """
    values, day_T, per_day = panel[series].astype(np.float64), _days(panel, series), DAY // panel.freq.count
    step_N = np.flatnonzero(holidays.has(day_T))
    step_N = step_N[step_N >= 28 * per_day]
    day_N = day_T[step_N]
    # To the last day of each weekday, and to those of the three weeks before it.
    back_4NW = (weekday(day_N)[:, None] - np.arange(7) - 1) % 7 + 1 + 7 * np.arange(4)[:, None, None]
    before_4NW = values[step_N[:, None] - per_day * back_4NW]
    usual_4NW = ~np.isnan(before_4NW) & ~holidays.has(day_N[:, None] - back_4NW)
    mean_NW = np.where(usual_4NW, before_4NW, 0).sum(0) / np.maximum(usual_4NW.sum(0), 1)
    apart_NW = np.abs(values[step_N][:, None] - mean_NW) / (np.nansum(np.abs(values)) / len(values) or 1)
    known_N = np.all(np.any(usual_4NW, axis=0), axis=1) & ~np.isnan(values[step_N])
    for day in np.unique(day_N[known_N]).tolist():
        yield day, apart_NW[known_N & (day_N == day)].sum(0)


def _check_names(names: Sequence[str], freq: Freq) -> None:
    known = ("age",) if freq.kind == "index" else CALENDAR
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            "Calendar features must be defined for the type of the times.",
            got=f"{unknown[0]!r} for {'integer times' if freq.kind == 'index' else 'dates'}",
            hint=f"choose from {', '.join(known)}; pass columns of your own as covariates.",
        )


def _check_covariates(panel: Panel, names: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in panel.covariates]:
        raise DataError(
            "Every covariate must be in the data.",
            got=f"{unknown[0]!r}, while the data have {', '.join(panel.covariates) or 'none'}",
            hint="pass the same covariates= when the data are read.",
        )


def local_times(panel: Panel, time: Ints) -> Ints:
    """Convert times on the clock to local time: with a zone, steps finer than a day are in UTC (data/calendar)."""
    if panel.origin.zone is None or panel.freq.counts_days or panel.freq.kind == "index":
        return time
    return to_wall(time.ravel(), panel.origin.zone).reshape(time.shape)


def _field(name: str, local: Ints, holidays: Holidays | None) -> Ints:
    if holidays is not None and name in (*FLAGS, "weekday"):
        return holidays.feature(name, local // DAY)
    return _plain_field(name, local)


def _plain_field(name: str, local: Ints) -> Ints:
    if name in ("hour", "minute", "second"):
        unit, size = {"hour": (3600, 24), "minute": (60, 60), "second": (1, 60)}[name]
        return np.asarray(local // (unit * SECOND) % size)
    day = local // DAY
    if name == "weekday":
        return weekday(day)
    date = day.astype("datetime64[D]")
    if name == "day":
        return np.asarray(day - date.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + 1)
    if name == "day_of_year":
        return np.asarray(day - date.astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64) + 1)
    if name == "month":
        return np.asarray(date.astype("datetime64[M]").astype(np.int64) % 12 + 1)
    return np.asarray(date.astype("datetime64[Y]").astype(np.int64) + 1970)


def _calendar_statistics(panel: Panel, names: Sequence[str], holidays: Holidays | None) -> list[tuple[float, float]]:
    # Series with the same span have the same calendar: it is computed once, weighted by their number.
    spans_R2, count_R = np.unique(np.stack((panel.starts, panel.lengths), axis=1), axis=0, return_counts=True)
    statistics = [Statistics() for _ in names]
    for row_N, step_N in chunks(spans_R2[:, 1]):
        local_N = local_times(panel, panel.freq.add(spans_R2[row_N, 0], step_N))
        for name, statistic in zip(names, statistics, strict=True):
            raw_N = step_N if name == "age" else _field(name, local_N, holidays)
            statistic.add(raw_N.astype(np.float64), count_R[row_N])
    return [statistic.result() for statistic in statistics]


def _covariate_statistics(panel: Panel, name: str) -> tuple[float, float]:
    own, held = Statistics(), slice(panel.held.start, panel.held.stop)
    for row_N, step_N in chunks(panel.lengths[held]):
        raw_N = panel.covariates[name][panel.indptr[held][row_N] + step_N].astype(np.float64)
        seen_N = ~np.isnan(raw_N)
        own.add(raw_N[seen_N], np.ones(int(seen_N.sum()), np.int64))
    statistic, *others = (Statistics(*part) for part in panel.everywhere((own.count, own.mean, own.square)))
    for other in others:
        if other.count:
            statistic.join(other.count, other.mean, other.square)
    if statistic.count == 0:
        raise DataError(
            "Every covariate must have at least one value.", got=f"none in {name!r}", hint="leave that covariate out."
        )
    return statistic.result()
