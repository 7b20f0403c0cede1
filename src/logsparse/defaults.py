"""Panel and horizon -> settings of a run. Settings and values that a network cannot use are refused here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from logsparse import presets
from logsparse.attention.pattern import Pattern
from logsparse.config import Config
from logsparse.data.calendar import DAY, Freq
from logsparse.data.features import features_for, recognised_holidays
from logsparse.data.mapped import pieces
from logsparse.data.panel import Floats, Panel
from logsparse.errors import ConfigError, DataError, shown
from logsparse.model.likelihood import likelihood

# From this share of exact zeros on, zero has a meaning of its own: night, or no sale.
_MANY_ZEROS = 0.1
# Counts up to here are modelled as counts; larger ones as continuous values.
_SMALL_COUNT = 50
# Values that are in memory at once.
_AT_ONCE = 2**20
# Least share of the squared difference that independent counts of the same mean have.
_COUNT_LIKE = 0.5
# Shortest default context, where the data have it: without a season the step does not say how far to look back.
_SHORTEST = 24
# Below this number of values of all series together a network is warned about.
_FEW = 200
# Below this number of values of all series together the network is small and learns from small batches: as accurate, on
# single series of years even more so, in a fifth of the time (docs/RECIPE.md).
_SMALL = 50_000
# Below this number the training is short, too, and simple rules take part: twice the longest series that this was tried
# on.
_LITTLE = 2000
# Weight of simple rules in the forecast of little data. Weights by the number of values, or by losses on the part held
# back, were no better.
_SIMPLE = 0.7
# Epochs of a small network, values per step of an epoch, and fewest and most such steps.
_EPOCHS, _VALUES_PER_STEP, _FEWEST_STEPS, _MOST_STEPS = 20, 100, 3, 80
# Longest default context: beyond it, every training step costs more than it gains.
_LONGEST = 336
# Steps of all windows of a batch together: long windows come in smaller batches, which are as accurate, so that a
# training takes about the same time whatever the step of the data (docs/RECIPE.md).
_BATCH_STEPS, _SMALLEST_BATCH = 64 * 216, 8
# Longest default lag, a year of quarter hours: a batch gathers every step that its lags reach.
_FARTHEST_LAG = 40_000
# Values of a year ago must be nearer than this share of the distance to half a year ago. A higher share would admit
# mere drift, a lower one would exclude holidays, which are few. A short series may pass by chance; such lags do no
# harm (docs/RECIPE.md).
_NEARER = 0.97
_ONCE_A_YEAR = ("month", "day_of_year")
_YEAR = 365 * DAY
# Share of training windows without a history, where static columns can stand in for it.
_HIDDEN = 0.1

# What x86 and ARM call their instructions for products in bfloat16, in the file where Linux lists them.
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
_PROCESSOR = Path("/proc/cpuinfo")

log = logging.getLogger("logsparse")

# Largest value a network accepts: forecasts may lie 1e8 scales away (the last ten-millionth of a count of large
# dispersion), and two of them are added in float32, which ends at 3.4e38.
LARGEST = 1e30


def recommend(panel: Panel, horizon: int, context: int | None = None, holidays: Sequence[str] | None = None) -> Config:
    """Return the default settings for this panel.

    Context, lags, profiles and features follow from the frequency and the lengths, the likelihood from the values.
    `holidays` are those of the country that the values follow, if they are None and there is one.
    """
    if holidays is None:
        holidays = recognised_holidays(panel)
        if holidays:
            log.info("Most series break their weekly rhythm on holidays of %s, which are learned.", holidays[0])
    context = _context(panel, horizon) if context is None else context
    config = presets.default(context, horizon)
    family = likelihood(likelihood_for(panel))
    model = replace(
        config.model,
        lags=_lags(panel),
        profiles=(*_profiles(panel), *(_alike(panel.freq) if holidays else ())),
        likelihood=family.name,
        scale="deviation" if "deviation" in family.scales else "mean",
        hidden_history=_HIDDEN if panel.static else 0.0,
        lowest=0.0 if _Outline.of(panel).bounded_by_zero else None,
    )
    # The newest values matter most for the forecast: hold back no more of them than validation needs.
    held_back = 7 * panel.freq.season + horizon
    batch = min(config.train.batch, max(_SMALLEST_BATCH, _BATCH_STEPS // config.length))
    train = replace(config.train, validation_steps=held_back, batch=batch)
    return replace(config, features=_features(panel), holidays=tuple(holidays), model=model, train=train)


def for_amount(config: Config, panel: Panel) -> Config:
    """Return the default settings, fitted to the number of values.

    A single series of some years, or a panel of as many values, gets a small network and small batches: its windows
    overlap so much that a large one learns them by heart.

    Few values get a short training, too, whose number of steps is chosen on the last fourth of the data; then all data
    are learned for as many steps. Most of the forecast comes from simple rules per series, unless there are known
    covariates, which the rules do not see; all of it if no series can hold back a horizon (docs/RECIPE.md).
    """
    values = count_values(panel)
    train = replace(config.train, calibrate="measure")
    if values >= _SMALL:
        return replace(config, train=train)
    # A validation per epoch, so from the first steps on.
    steps = min(max(values // _VALUES_PER_STEP, _FEWEST_STEPS), _MOST_STEPS)
    train = replace(train, epochs=_EPOCHS, steps_per_epoch=steps, batch=min(train.batch, 16))
    config = replace(config, model=replace(config.model, width=24, layers=2))
    if values >= _LITTLE:
        return replace(config, train=train)
    train, blend = replace(train, validation_share=0.25, refit=True), 0.0 if panel.ahead else _SIMPLE
    if not panel.ahead and panel.to_last_value().lengths.max() <= 2 * config.horizon:
        blend, train = 1.0, replace(train, epochs=1, steps_per_epoch=1)
    return replace(config, blend=blend, train=train)


def a_config(config: object) -> Config:
    """Return a Config."""
    if not isinstance(config, Config):
        raise ConfigError(
            "config must be a logsparse.Config.",
            got=shown(config),
            hint="use one of logsparse.presets, or Config.from_dict(settings).",
        )
    return config


def check_agrees(config: object, *, horizon: int, context: int | None) -> None:
    """Raise ConfigError if `config` is not a Config, or has another horizon or context than those given."""
    there = a_config(config)
    for name, asked, its_own in (("horizon", horizon, there.horizon), ("context", context, there.context)):
        if asked is not None and asked != its_own:
            raise ConfigError(
                f"{name} must agree with the config.",
                got=f"{name}={asked} and a config with {its_own}",
                hint=f"use dataclasses.replace(config, {name}={asked}).",
            )


def check_size(panel: Panel) -> None:
    """Raise DataError if a value is so large that sums of forecasts would overflow."""
    # Compared in float32, the type of the values, so that the limit itself passes.
    for piece in pieces(len(panel.values)):
        for cell in (piece.start + np.flatnonzero(np.abs(panel.values[piece]) > np.float32(LARGEST))).tolist():
            series = int(np.searchsorted(panel.indptr, cell, side="right")) - 1
            if cell < panel.indptr[series] + panel.lengths[series]:
                raise DataError(
                    "A network must be given values of at most 1e30 in size.",
                    got=f"{panel.values[cell]:g} in series {panel.ids[series]!r}",
                    hint="divide the column by a power of ten; forecasts then come in that unit.",
                )


def check_reach(config: Config, panel: Panel) -> None:
    """Raise ConfigError if context, lags or profiles reach back further than the longest series."""
    longest, profiles = int(panel.lengths.max()), [int(profile.split("x")[0]) for profile in config.model.profiles]
    asked = {
        "context": config.context,
        "The longest lag": max(config.model.lags),
        "A profile's step": max(profiles, default=1),
    }
    for name, reach in asked.items():
        if reach > longest:
            raise ConfigError(
                f"{name} must not be longer than the longest series.",
                got=f"{reach} steps, and {longest} of data",
                hint="give a shorter one, or leave it out: it then follows from the data.",
            )


def warn_of_depth(config: Config) -> None:
    """Log a warning if the last step of a window cannot attend to all of it, even indirectly, within the layers.

    No warning if a lag reaches back over the whole context, as by default: distant values are inputs then.
    """
    model = config.model
    if max(model.lags) >= config.context:
        return
    needed = layers_needed(model.layer_patterns[::-1], config.length)
    if needed is None or needed > model.layers:
        log.warning(
            "The attention pattern does not reach the whole window of %d steps in %s of %s: %s.",
            config.length,
            "1 layer" if model.layers == 1 else f"{model.layers} layers",
            ", ".join(map(repr, model.patterns)),
            "no number of layers would" if needed is None else f"it would take {needed} (model.layers)",
        )


def warn_of_few(values: int, parameters: int, blend: float) -> None:
    """Log what comes from simple rules; a warning if a network gets few values and has to forecast alone."""
    if blend:
        log.log(
            logging.WARNING if values < _FEW or blend == 1 else logging.INFO,
            "%d values are few for a network of %s parameters: %.0f %% of the forecast comes from simple rules per "
            "series (blend=%g).",
            values,
            f"{parameters:,}",
            100 * blend,
            blend,
        )
    elif values < _FEW:
        log.warning(
            "%d values are few for a network of %s parameters: AutoETS or AutoARIMA (`fit --model ets` or `arima`) are "
            "likely to be better; a backtest of both tells.",
            values,
            f"{parameters:,}",
        )


def warn_of_precision(precision: str, device: str) -> None:
    """Log a warning if products in bfloat16 are asked of a processor without instructions for them.

    Only Linux lists the instructions of a processor in a file; elsewhere there is no warning.
    """
    if precision != "bfloat16" or device != "cpu":
        return
    try:
        lines = _PROCESSOR.read_text().splitlines()
    except OSError:
        return
    listed = [line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features"))]
    if listed and not _BFLOAT16 & set(listed[0]):
        log.warning(
            "This processor has no instructions for bfloat16 (avx512_bf16, amx_bf16): train.precision=bfloat16 is "
            "slower here than float32, the default."
        )


def layers_needed(patterns: Sequence[Pattern], length: int) -> int | None:
    """Return the fewest layers through which the last step depends on all others; None if no number suffices.

    Layers use the patterns in turn, starting from the output.
    """
    reached = np.zeros(length, bool)
    reached[-1] = True
    layers = idle = 0
    while not reached.all():
        if idle == len(patterns):
            return None
        before, pattern = reached, patterns[layers % len(patterns)]
        reached = before.copy()
        for distance in pattern.distances(length):
            reached[: length - distance] |= before[distance:]
        dense = np.flatnonzero(before[: pattern.dense_rows])
        reached[: dense[-1] + 1 if dense.size else 0] = True
        idle = idle + 1 if (reached == before).all() else 0
        layers += 1
    return layers


def likelihood_for(panel: Panel) -> str:
    """Return the name of the likelihood whose support and shape fit the observed values."""
    seen = _Outline.of(panel)
    if seen.count == 0 or seen.least < 0:
        return "student-t"
    if seen.whole and seen.mostly_small and seen.most > 1 and _differ_like_counts(panel):
        return "negative-binomial"
    return "zero-inflated" if seen.bounded_by_zero else "student-t"


def _differ_like_counts(panel: Panel) -> bool:
    """Return True if differences are as large as those of independent counts, whose mean square is twice the mean."""
    own = [np.nanmean(np.diff(values) ** 2) / 2 / np.nanmean(values) for values in _moving(panel)]
    ratios = np.concatenate(panel.everywhere(own))
    return not len(ratios) or float(np.median(ratios)) >= _COUNT_LIKE


def _moving(panel: Panel) -> Iterator[NDArray[np.float64]]:
    """Yield the series that have two observed neighbours and are not all zero."""
    for series in panel.held:
        # Squares and sums of float32 may overflow.
        values = panel[series].astype(np.float64)
        if np.nansum(values) > 0 and not np.isnan(np.diff(values)).all():
            yield values


def seen_values(panel: Panel) -> Iterator[Floats]:
    """Yield the observed values of all series that are held here, some series at a time."""
    return _together([panel[i] for i in panel.held])


def _together(series: Sequence[Floats]) -> Iterator[Floats]:
    """Yield the observed values of some series at a time, of a bounded number of values."""
    group: list[Floats] = []
    for number, values in enumerate(series, start=1):
        group.append(values)
        if number == len(series) or sum(map(len, group)) >= _AT_ONCE:
            joined: Floats = np.concatenate(group)
            yield joined[~np.isnan(joined)]
            group = []


def count_values(panel: Panel) -> int:
    """Return the number of observed values of all series."""
    return sum(panel.everywhere(sum(int(np.isfinite(panel[i]).sum()) for i in panel.held)))


@dataclass(frozen=True)
class _Outline:
    """What the choice of a likelihood asks of values. Outlines of parts make that of all, unlike quantiles."""

    count: int
    zeros: int
    least: float
    most: float
    whole: bool
    """True if all are whole numbers."""
    small: int
    """Number of those up to `_SMALL_COUNT`."""
    below: float
    """The largest of them."""
    above: float
    """The smallest of the others."""

    @classmethod
    def of(cls, panel: Panel) -> _Outline:
        """Outline the observed values of the series that are not all zero; of all series if every one is."""
        own = [panel[i] for i in panel.held]
        for chosen in ([values for values in own if np.nanmax(np.abs(values), initial=0) > 0], own):
            found = _joined(panel.everywhere(_joined([_outline(values) for values in _together(chosen)])))
            if found.count:
                break
        return found

    @property
    def mostly_small(self) -> bool:
        """True if the quantile 0.9, whose place numpy computes in float32, is at most `_SMALL_COUNT`."""
        place, part = divmod(float(np.float32(0.9) * np.float32(self.count - 1)), 1)
        if self.small != place + 1:
            return self.small > place
        return self.below + part * (self.above - self.below) <= _SMALL_COUNT if part else True

    @property
    def bounded_by_zero(self) -> bool:
        """True if zero is frequent and nothing lies below it, as at night or without sales."""
        return self.count > 0 and self.least >= 0 and self.zeros / self.count >= _MANY_ZEROS


def _outline(seen: Floats) -> _Outline:
    small = seen <= _SMALL_COUNT
    return _Outline(
        len(seen),
        int((seen == 0).sum()),
        float(seen.min(initial=np.inf)),
        float(seen.max(initial=-np.inf)),
        bool((seen == np.floor(seen)).all()),
        int(small.sum()),
        float(seen.max(initial=-np.inf, where=small)),
        float(seen.min(initial=np.inf, where=~small)),
    )


def _joined(parts: Sequence[_Outline]) -> _Outline:
    parts = [*parts, _outline(np.empty(0, np.float32))]
    return _Outline(
        sum(part.count for part in parts),
        sum(part.zeros for part in parts),
        min(part.least for part in parts),
        max(part.most for part in parts),
        all(part.whole for part in parts),
        sum(part.small for part in parts),
        max(part.below for part in parts),
        min(part.above for part in parts),
    )


def _context(panel: Panel, horizon: int) -> int:
    """Return seven seasons for steps below a day, else four, within limits; less if half of the series are shorter."""
    season = panel.freq.season
    wanted = max(7 * season if _is_fine(panel.freq) else 4 * season, 2 * horizon, _SHORTEST)
    room = int(np.median(panel.lengths)) - 3 * horizon
    return max(1, min(wanted, max(room, horizon), max(_LONGEST, 2 * horizon)))


def _lags(panel: Panel) -> tuple[int, ...]:
    """Return the last steps and those around the same phase of earlier seasons, as far back as most series reach."""
    season = panel.freq.season
    seasons = [1, 2, 7] if _is_fine(panel.freq) else [1, 2]
    around = [many * season + d for many in seasons for d in (-1, 0, 1)] + [3 * season, 4 * season]
    weekly = [14 * season] if _is_fine(panel.freq) else []
    longest = int(np.median(panel.lengths)) // 2
    seasonal = [*around, *weekly] if season > 1 else []
    near = {lag for lag in (2, 3, *seasonal) if 1 < lag <= longest}
    return (1, *sorted(near), *_year_lags(panel))


def _year_lags(panel: Panel) -> tuple[int, ...]:
    """Return 52 and 53 weeks, for holidays, if the series repeat yearly and a third of the history has such a past."""
    freq = panel.freq
    week = 7 * DAY // freq.count if freq.divides_day else 0
    within_reach = 0 < 53 * week <= min(np.median(panel.lengths) * 2 / 3, _FARTHEST_LAG)
    return (52 * week, 53 * week) if within_reach and _repeats(panel, 52 * week) else ()


def _repeats(panel: Panel, cycle: int) -> bool:
    """Return True if values are nearer to those a cycle ago than to those half a cycle ago: not mere drift."""
    own = []
    for series in panel.held:
        values = panel[series].astype(np.float64)
        now = values[cycle:]
        full, half = (np.abs(now - values[cycle - back : -back]) for back in (cycle, cycle // 2))
        both = ~np.isnan(full + half)
        if half[both].sum() > 0:
            own.append(full[both].sum() / half[both].sum())
    ratios = np.concatenate(panel.everywhere(own))
    return len(ratios) > 0 and float(np.median(ratios)) <= _NEARER


def _profiles(panel: Panel) -> tuple[str, ...]:
    """Return a week and four weeks of the same hour and four weeks of the same hour and weekday; else four seasons."""
    season = panel.freq.season
    if season == 1:
        return ()
    wanted = [(season, 7), (season, 28), (7 * season, 4)] if _is_fine(panel.freq) else [(season, 4)]
    longest = int(np.median(panel.lengths)) // 2
    return tuple(f"{step}x{count}" for step, count in wanted if 2 * step <= longest)


def _alike(freq: Freq) -> tuple[str, ...]:
    """Return the same time of the last day alike, and of the last four, where holidays count as days like others."""
    day = DAY // freq.count if freq.divides_day else 0
    return (f"{day}x1-alike", f"{day}x4-alike") if day else ()


def _features(panel: Panel) -> tuple[str, ...]:
    """Return the features that repeat within a series: a month, year or age not seen in training would mislead."""
    yearly = panel.freq.kind != "index" and np.median(panel.ends() - panel.starts) >= 2 * _YEAR
    named = features_for(panel.freq)
    return tuple(name for name in named if name not in ("age", "year") and (yearly or name not in _ONCE_A_YEAR))


def _is_fine(freq: Freq) -> bool:
    return freq.kind == "tick" and freq.count < DAY
