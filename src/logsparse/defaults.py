"""Panel + horizon -> the settings of a run, for a user who names nothing else. What no data can fill is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logsparse import presets
from logsparse.attention.pattern import Pattern
from logsparse.config import Config
from logsparse.data.calendar import DAY, Freq
from logsparse.data.features import features_for
from logsparse.data.panel import Floats, Panel
from logsparse.errors import ConfigError, DataError

# From this share of exact zeros on, zero is a value of its own: night, or no sale today.
_MANY_ZEROS = 0.1
# Counts up to here are told apart from each other; larger ones are as good as continuous.
_SMALL_COUNT = 50
# Of the squared step that independent counts of the same mean take.
_COUNT_LIKE = 0.5
# The shortest context taken unasked, where the data have it: a clock without a season says nothing of how far to look.
_SHORTEST = 24
# The longest context taken unasked: beyond, every step of training costs more than it brings.
_LONGEST = 336
# A batch gathers every step that its lags reach back over: a year of quarter hours is the most.
_FARTHEST_LAG = 40_000
# A year ago must be nearer than this share of half a year ago: less would let every drift in, more shut holidays out,
# which are few. One short series passes by chance now and then; such lags do no harm (docs/LOG.md).
_NEARER = 0.97
_ONCE_A_YEAR = ("month", "day_of_year")
_YEAR = 365 * DAY

log = logging.getLogger("logsparse")

# What a network is given at most: its forecasts may lie 1e8 scales away (a count of large dispersion, drawn from its
# last ten-millionth), and two of them are added up in float32, which ends at 3.4e38.
LARGEST = 1e30


def recommend(panel: Panel, horizon: int, context: int | None = None) -> Config:
    """Context, lags, profiles and features from the frequency and the lengths, the likelihood from the values."""
    context = _context(panel, horizon) if context is None else context
    config = presets.default(context, horizon)
    likelihood = likelihood_for(panel)
    model = replace(
        config.model,
        lags=_lags(panel),
        profiles=_profiles(panel),
        likelihood=likelihood,
        scale="deviation" if likelihood == "student-t" else "mean",
        lowest=0.0 if _ends_at_zero(_live_values(panel)) else None,
    )
    # The newest past says most of what comes: no more of it is held back than it takes to validate.
    train = replace(config.train, validation_steps=7 * _season(panel.freq) + horizon)
    return replace(config, features=_features(panel), model=model, train=train)


def check_agrees(config: object, *, horizon: int, context: int | None) -> None:
    """A config says both of them already."""
    if not isinstance(config, Config):
        raise ConfigError(
            "config must be a logsparse.config.Config.",
            got=f"{config!r}",
            hint="take one of logsparse.presets, or Config.from_dict(settings).",
        )
    for name, asked, there in (("horizon", horizon, config.horizon), ("context", context, config.context)):
        if asked is not None and asked != there:
            raise ConfigError(
                f"{name} must be the one of the config, if one is given.",
                got=f"{name}={asked} and a config with {there}",
                hint=f"use dataclasses.replace(config, {name}={asked}).",
            )


def check_size(panel: Panel) -> None:
    """Values so large that sums of forecasts would overflow are refused by the name of their series."""
    # As float32, in which the values are: the limit itself is none too large.
    large = np.flatnonzero(np.abs(panel.values) > np.float32(LARGEST))
    for cell in large.tolist():
        series = int(np.searchsorted(panel.indptr, cell, side="right")) - 1
        if cell < panel.indptr[series] + panel.lengths[series]:
            raise DataError(
                "A network must be given values of at most 1e30 in size.",
                got=f"{panel.values[cell]:g} in series {panel.ids[series]!r}",
                hint="divide the column by a power of ten; forecasts then come in that unit.",
            )


def check_reach(config: Config, panel: Panel) -> None:
    """A context or lag that nothing can fill would cost memory and teach nothing."""
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
    """Log a warning if the patterns cannot bring the whole window to its last step within the layers there are.

    No warning where a lag reaches back over the whole context, as in the default: far values then come in as inputs.
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


def layers_needed(patterns: Sequence[Pattern], length: int) -> int | None:
    """The fewest layers after which the last step has received all others; None if no number will do.

    The layers take the patterns in turn, the one next to the output first.
    """
    heard = np.zeros(length, bool)
    heard[-1] = True
    layers = idle = 0
    while not heard.all():
        if idle == len(patterns):
            return None
        before, pattern = heard, patterns[layers % len(patterns)]
        heard = before.copy()
        for distance in pattern.distances(length):
            heard[: length - distance] |= before[distance:]
        dense = np.flatnonzero(before[: pattern.dense_rows])
        heard[: dense[-1] + 1 if dense.size else 0] = True
        idle = idle + 1 if (heard == before).all() else 0
        layers += 1
    return layers


def likelihood_for(panel: Panel) -> str:
    """The family whose support and shape fit the values seen."""
    seen = _live_values(panel)
    if seen.size == 0 or seen.min() < 0:
        return "student-t"
    small = np.quantile(seen, 0.9) <= _SMALL_COUNT and (seen == np.floor(seen)).all() and seen.max() > 1
    if small and _jumps_like_counts(panel):
        return "negative-binomial"
    return "zero-inflated" if _ends_at_zero(seen) else "student-t"


def _jumps_like_counts(panel: Panel) -> bool:
    """Independent counts differ from those before them by twice their mean, squared; whole degrees by far less."""
    ratios = [np.nanmean(np.diff(values) ** 2) / 2 / np.nanmean(values) for values in _moving(panel)]
    return not ratios or float(np.median(ratios)) >= _COUNT_LIKE


def _moving(panel: Panel) -> Iterator[NDArray[np.float64]]:
    """The series that have neighbours to compare and are not all zero."""
    for series in range(len(panel)):
        # Squares and sums of single floats may be infinite.
        values = panel[series].astype(np.float64)
        if np.nansum(values) > 0 and not np.isnan(np.diff(values)).all():
            yield values


def seen_values(panel: Panel) -> Floats:
    """Every value observed, of all series in a row."""
    values: Floats = np.concatenate([panel[i] for i in range(len(panel))])
    return values[~np.isnan(values)]


def _live_values(panel: Panel) -> Floats:
    """Of the series that are not all zero, if there are any: a dead one says nothing of the others."""
    live = [panel[i] for i in range(len(panel)) if np.nanmax(np.abs(panel[i]), initial=0) > 0]
    values: Floats = np.concatenate(live) if live else panel.values
    return values[~np.isnan(values)]


def _ends_at_zero(seen: Floats) -> bool:
    """Zero is often met and never passed: night, or no sale. That no value was below it yet would not be enough."""
    return bool(seen.size and seen.min() >= 0 and (seen == 0).mean() >= _MANY_ZEROS)


def _context(panel: Panel, horizon: int) -> int:
    """A week of hours and finer steps, else some seasons; never more than half the series are long enough for."""
    season = _season(panel.freq)
    wanted = max(7 * season if _is_fine(panel.freq) else 4 * season, 2 * horizon, _SHORTEST)
    room = int(np.median(panel.lengths)) - 3 * horizon
    return max(1, min(wanted, max(room, horizon), max(_LONGEST, 2 * horizon)))


def _lags(panel: Panel) -> tuple[int, ...]:
    """The values before, and those around the same phase of earlier seasons, as far as most series reach."""
    season = _season(panel.freq)
    seasons = [1, 2, 7] if _is_fine(panel.freq) else [1, 2]
    around = [many * season + d for many in seasons for d in (-1, 0, 1)] + [3 * season, 4 * season]
    weekly = [14 * season] if _is_fine(panel.freq) else []
    longest = int(np.median(panel.lengths)) // 2
    seasonal = [*around, *weekly] if season > 1 else []
    near = {lag for lag in (2, 3, *seasonal) if 1 < lag <= longest}
    return (1, *sorted(near), *_a_year_ago(panel))


def _a_year_ago(panel: Panel) -> tuple[int, ...]:
    """The same weekday 52 and 53 weeks ago, where a third of what is learned has it: holidays come round like that."""
    freq = panel.freq
    week = 7 * DAY // freq.count if freq.kind == "tick" and DAY % freq.count == 0 else 0
    within_reach = 0 < 53 * week <= min(np.median(panel.lengths) * 2 / 3, _FARTHEST_LAG)
    return (52 * week, 53 * week) if within_reach and _comes_round(panel, 52 * week) else ()


def _comes_round(panel: Panel, cycle: int) -> bool:
    """A whole cycle ago is nearer than half of one: the series do not only drift."""
    ratios = []
    for series in range(len(panel)):
        values = panel[series].astype(np.float64)
        now = values[cycle:]
        whole, half = (np.abs(now - values[cycle - back : -back]) for back in (cycle, cycle // 2))
        both = ~np.isnan(whole + half)
        if half[both].sum() > 0:
            ratios.append(whole[both].sum() / half[both].sum())
    return bool(ratios) and float(np.median(ratios)) <= _NEARER


def _profiles(panel: Panel) -> tuple[str, ...]:
    """A week and four weeks of the same hour, four weeks of the same hour and weekday; else four seasons."""
    season = _season(panel.freq)
    if season == 1:
        return ()
    wanted = [(season, 7), (season, 28), (7 * season, 4)] if _is_fine(panel.freq) else [(season, 4)]
    longest = int(np.median(panel.lengths)) // 2
    return tuple(f"{step}x{count}" for step, count in wanted if 2 * step <= longest)


def _features(panel: Panel) -> tuple[str, ...]:
    """What comes round within a series: a month, year or age seen for the first time in a forecast misleads."""
    yearly = panel.freq.kind != "index" and np.median(panel.ends() - panel.starts) >= 2 * _YEAR
    named = features_for(panel.freq)
    return tuple(name for name in named if name not in ("age", "year") and (yearly or name not in _ONCE_A_YEAR))


def _is_fine(freq: Freq) -> bool:
    return freq.kind == "tick" and freq.count < DAY


def _season(freq: Freq) -> int:
    return freq.season
