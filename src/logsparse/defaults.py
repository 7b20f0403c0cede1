"""Panel + horizon -> the settings of a run, for a user who names nothing else. What no data can fill is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from logsparse import presets
from logsparse.config import Config
from logsparse.data.calendar import DAY, Freq
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError

# From this share of exact zeros on, zero is a value of its own: night, or no sale today.
_MANY_ZEROS = 0.1
# Counts up to here are told apart from each other; larger ones are as good as continuous.
_SMALL_COUNT = 50
# The longest context taken unasked: beyond, every step of training costs more than it brings.
_LONGEST = 336


def recommend(panel: Panel, horizon: int, context: int | None = None) -> Config:
    """Context and lags from the frequency and the lengths, the likelihood from the values."""
    context = _context(panel, horizon) if context is None else context
    config = presets.default(context, horizon)
    return replace(config, model=replace(config.model, lags=_lags(panel), likelihood=likelihood_for(panel)))


def check_reach(config: Config, panel: Panel) -> None:
    """A context or lag that nothing can fill would cost memory and teach nothing."""
    longest = int(panel.lengths.max())
    for name, reach in (("context", config.context), ("The longest lag", max(config.model.lags))):
        if reach > longest:
            raise ConfigError(
                f"{name} must not be longer than the longest series.",
                got=f"{reach} steps, and {longest} of data",
                hint="give a shorter one, or leave it out: it then follows from the data.",
            )


def likelihood_for(panel: Panel) -> str:
    """The family whose support and shape fit the values seen."""
    seen = np.concatenate([panel[i] for i in range(len(panel))])
    seen = seen[~np.isnan(seen)]
    if seen.size == 0 or seen.min() < 0:
        return "student-t"
    if np.quantile(seen, 0.9) <= _SMALL_COUNT and (seen == np.floor(seen)).all() and seen.max() > 1:
        return "negative-binomial"
    return "zero-inflated" if (seen == 0).mean() >= _MANY_ZEROS else "student-t"


def _context(panel: Panel, horizon: int) -> int:
    """A week of hours and finer steps, else some seasons; never more than half the series are long enough for."""
    season = _season(panel.freq)
    wanted = max(7 * season if _is_fine(panel.freq) else 4 * season, 2 * horizon)
    room = int(np.median(panel.lengths)) - 3 * horizon
    return max(1, min(wanted, max(room, horizon), max(_LONGEST, 2 * horizon)))


def _lags(panel: Panel) -> tuple[int, ...]:
    """The value before, and those around the same phase of earlier seasons, as far as most series reach."""
    season = _season(panel.freq)
    around = [season + d for d in (-1, 0, 1)] + [2 * season + d for d in (-1, 0, 1)] + [3 * season, 4 * season]
    weekly = [7 * season] if _is_fine(panel.freq) else []
    longest = int(np.median(panel.lengths)) // 2
    lags = {lag for lag in (*around, *weekly) if 1 < lag <= longest} if season > 1 else set()
    return (1, *sorted(lags))


def _is_fine(freq: Freq) -> bool:
    return freq.kind == "tick" and freq.count < DAY


def _season(freq: Freq) -> int:
    return freq.season
