"""Panel -> findings about its last steps: stale, empty, flat, sentinels, gaps, outliers, a change of level.

Every rule reads the last steps of many series at once, in blocks of bounded memory. data/health shows the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from logsparse.data.calendar import DAY, Freq, Ints
from logsparse.data.health import Finding, Health, OnBad, Severity, check_on_bad, without_bad
from logsparse.data.panel import Floats, Panel
from logsparse.data.times import stamps
from logsparse.errors import above_zero, whole

# S series, B series of a block, T last steps that the rules read (NaN before a series begins and where nothing was
# observed), K seasons

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]

SENTINELS = (-9999.0, -999.0, -99.0, -99999.0, -999999.0, 9999.0, 99999.0, 999999.0, 65535.0, -32768.0)
"""Values that loggers write for "no value". One counts only far outside the range of its series."""
_SEASONS = 12
"""How many seasons before the end are read."""
_SHORTEST_SEASON = 6
_SEASONS_OF_LEVEL = 4
"""Seasons before the last one that a change of level is measured against."""
_SEASONS_OF_OLD_LEVEL = 8
"""The same if the level changed earlier, and the season in which it did: days of every kind of a week."""
_LARGE_CHANGE = 0.5
_MOST = 0.5
# Steps of a week or more: a season of them is a year, too long to wait for.
_PATIENCE = 4
# A stretch of equal values that is more likely than this, by how often neighbours were equal before, is no finding.
_CHANCE = 1e-5
_CELLS = 2**22


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Thresholds of the findings, in steps of the data; None stands for one season (steps of a week or more: 4)."""

    stale: int | None = None
    """Steps that the last value of a series may be older than that of most series, or than `now`."""
    flat: int | None = None
    """Last values in a row that may be equal, in a series that has no such stretch earlier."""
    gaps: float = 0.2
    """Share of the last steps that may be missing."""
    outlier: float = 10.0
    """Distance outside the middle 80 % of the values, in widths of it, from which a value is an outlier."""
    level: float = 6.0
    """Change of the mean of the last season, in standard deviations of the seasons before it."""

    def __post_init__(self) -> None:
        for name in ("stale", "flat"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), hint="count the steps.")
        for name in ("gaps", "outlier", "level"):
            above_zero(name, getattr(self, name), hint="leave it out for the default.")


@dataclass(frozen=True)
class MostEnds:
    """The time of the last value of most series, on their clock; None if they end all over the calendar."""

    time: int | None

    @classmethod
    def of(cls, freq: Freq, time_S: Ints, limit: int | None = None) -> MostEnds:
        """Find the time within `limit` steps of which more than half of the series end."""
        if not len(time_S):
            return cls(None)
        # The later one of two in the middle: of two series, the late one is behind the other.
        usual = int(np.sort(time_S)[len(time_S) // 2])
        behind_S = freq.steps(time_S, np.full_like(time_S, usual))
        together = np.mean(np.abs(behind_S) <= (limit or _patience(freq))) > _MOST
        return cls(usual if together else None)


def findings_of(
    panel: Panel, rules: Rules | None = None, now: int | None = None, most: MostEnds | None = None
) -> list[Finding]:
    """Return what is wrong with the last steps of every series; `now` is a time on the panel's clock.

    `most` are the ends of all series, if the panel has a part of them.
    """
    examination = Examination(rules)
    examination.add(panel)
    return examination.findings(now, most)


class Examination:
    """What is wrong with the series of panels that are read one after the other, such as the parts of a folder."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.found: list[Finding] = []
        self.outlines: list[Panel] = []
        self.lasts: list[Ints] = []

    def add(self, panel: Panel) -> None:
        """Examine a panel; its values are not kept."""
        last_S = np.empty(len(panel), np.int64)
        size = max(1, _CELLS // _window(panel))
        for begin in range(0, len(panel), size):
            recent = _Recent.of(panel, np.arange(begin, min(begin + size, len(panel))), self.rules)
            last_S[recent.series_B] = recent.last_B
            self.found += _about(recent)
        self.lasts.append(last_S)
        nothing = np.zeros(0, np.float32)
        at_0 = np.zeros(len(panel) + 1, np.int64)
        self.outlines.append(replace(panel, values=nothing, indptr=at_0, covariates={}, static={}))

    def outline(self) -> Panel:
        """Return all series without their values."""
        return Panel.joined(self.outlines)

    def findings(self, now: int | None = None, most: MostEnds | None = None) -> list[Finding]:
        """Return all findings; `now` is a time on the clock of the panels, `most` as for `findings_of`."""
        panel, last_S = self.outline(), np.concatenate(self.lasts)
        return [*_empty(panel, last_S), *_stale(panel, last_S, self.rules, now, most), *self.found]


def screen(
    panel: Panel, compared: Sequence[Finding], fitted: int, on_bad: OnBad, most: MostEnds | None = None
) -> tuple[Panel, Health]:
    """Examine a history to forecast from; return what is left of it, and what was found.

    `compared` are findings beside the `fitted` series of a model; `most` as for `findings_of`.
    """
    check_on_bad(on_bad)
    missing = sum(finding.kind == "missing" for finding in compared)
    if on_bad == "warn" and missing > _MOST * fitted:
        # Someone forecasts a few of the series, which is no cause for a warning.
        compared = [finding for finding in compared if finding.kind != "missing"]
    health = Health(len(panel), (*findings_of(panel, most=most), *compared), panel.origin.library)
    return without_bad(panel, health, on_bad), health


def _season(freq: Freq) -> int:
    # A step without a season (integers, odd steps): a handful of steps serves.
    return max(freq.season, _SHORTEST_SEASON)


def _window(panel: Panel) -> int:
    # Two steps at least: rules compare neighbours.
    return max(2, min(_SEASONS * _season(panel.freq), int(panel.lengths.max())))


def _patience(freq: Freq) -> int:
    """Return how many steps without news are usual."""
    long = freq.kind == "month" or (freq.kind == "tick" and freq.count > DAY)
    return _PATIENCE if long else _season(freq)


@dataclass(frozen=True)
class _Recent:
    """The last steps of some series, aligned at each series' own end, and what several rules derive from them."""

    panel: Panel
    series_B: Ints
    values_BT: Doubles
    rules: Rules
    count_B: Ints
    """Observed values per row."""
    gap_B: Ints
    """Missing steps at the end of each row."""
    last_B: Ints
    """Position of the last value within its series, -1 if it has none."""

    @classmethod
    def of(cls, panel: Panel, series_B: Ints, rules: Rules) -> _Recent:
        values_BT = _last(panel, series_B, _window(panel))
        missing_BT = np.isnan(values_BT)
        count_B = (~missing_BT).sum(1)
        gap_B = _trailing(missing_BT)
        last_B = panel.lengths[series_B] - 1 - gap_B
        for row in np.flatnonzero(count_B == 0).tolist():
            seen = np.flatnonzero(~np.isnan(panel[int(series_B[row])]))
            last_B[row] = seen[-1] if len(seen) else -1
        return cls(panel, series_B, values_BT, rules, count_B, gap_B, last_B)

    @property
    def season(self) -> int:
        return _season(self.panel.freq)

    def finding(self, row: int, kind: str, severity: Severity, steps_back: int, text: str) -> Finding:
        """Return a finding since `steps_back` steps before the last step of its series; `{since}` is that time."""
        series = int(self.series_B[row])
        return _finding(self.panel, series, kind, severity, int(self.panel.lengths[series]) - 1 - steps_back, text)


def _finding(panel: Panel, series: int, kind: str, severity: Severity, step: int, text: str) -> Finding:
    since = str(stamps(panel, panel.freq.add(panel.starts[[series]], np.array([step])))[0])
    return Finding(panel.ids[series], kind, severity, since, text.replace("{since}", since))


def _about(recent: _Recent) -> Iterator[Finding]:
    """Apply all rules to a block; what explains a series keeps weaker rules from naming it again."""
    marked = list(_sentinel(recent))
    # Marks for missing values are equal, far outside and move the level.
    explained = {finding.series for finding in marked if finding.severity == "bad"}
    found = [*marked, *_gaps(recent)]
    for rule in _RULES:
        found += [finding for finding in rule(recent) if finding.series not in explained]
    yield from found
    explained = {finding.series for finding in found}
    yield from (finding for finding in _level(recent) if finding.series not in explained)


def _last(panel: Panel, series_B: Ints, steps: int) -> Doubles:
    """Return the last `steps` visible values of the series, NaN before a series begins."""
    at_BT = panel.lengths[series_B, None] + np.arange(-steps, 0)
    cells_BT = panel.indptr[series_B, None] + np.maximum(at_BT, 0)
    return np.where(at_BT < 0, np.nan, panel.values[cells_BT]).astype(np.float64)


def _trailing(true_BT: Bools) -> Ints:
    """Return how many of the last cells of each row are True."""
    false_BT = ~true_BT[:, ::-1]
    return np.asarray(np.where(false_BT.any(1), false_BT.argmax(1), true_BT.shape[1]))


def _empty(panel: Panel, last_S: Ints) -> Iterator[Finding]:
    for series in np.flatnonzero(last_S < 0).tolist():
        yield _finding(panel, series, "empty", "bad", 0, f"no value in any of its {panel.lengths[series]:,} steps")


def _stale(
    panel: Panel, last_S: Ints, rules: Rules, now: int | None, most: MostEnds | None = None
) -> Iterator[Finding]:
    limit = rules.stale or _patience(panel.freq)
    seen_S = last_S >= 0
    if not seen_S.any():
        return
    time_S = panel.freq.add(panel.starts, np.maximum(last_S, 0))
    most = most or MostEnds.of(panel.freq, time_S[seen_S], limit)
    # Series that end all over the calendar, as those of a collection do, are not late.
    behind_S = panel.freq.steps(time_S, time_S if most.time is None else np.full_like(time_S, most.time))
    late_S = seen_S & (behind_S > limit)
    age_S, than = behind_S, "that of most series"
    if now is not None:
        age_S, than = panel.freq.steps(time_S, np.full_like(time_S, now)), "now"
        late_S |= seen_S & (age_S > limit)
    for series in np.flatnonzero(late_S).tolist():
        text = f"its last value is of {{since}}, {age_S[series]:,} steps older than {than}"
        yield _finding(panel, series, "stale", "bad", int(last_S[series]), text)


def _flat(recent: _Recent) -> Iterator[Finding]:
    """The last values are equal, for longer than they have been and than chance explains."""
    limit = recent.rules.flat or _patience(recent.panel.freq)
    equal_BT = recent.values_BT[:, 1:] == recent.values_BT[:, :-1]
    behind_BT = np.arange(equal_BT.shape[1], 0, -1) <= recent.gap_B[:, None]
    run_B = _trailing(equal_BT | behind_BT) - recent.gap_B + 1
    for row in np.flatnonzero((run_B > limit) & (recent.count_B > limit)).tolist():
        series, gap = int(recent.series_B[row]), int(recent.gap_B[row])
        seen = recent.panel[series][: recent.last_B[row] + 1]
        changes = np.flatnonzero(seen[1:] != seen[:-1])
        run = len(seen) - (int(changes[-1]) + 1 if len(changes) else 0)
        before = seen[: len(seen) - run][-_SEASONS * recent.season :]
        value = f"{seen[-1]:g}"
        if not len(before):
            # From its first value on: only a zero may be all that there is to say.
            if seen[-1]:
                text = f"the same value, {value}, in all of its {run:,} steps"
                yield recent.finding(row, "flat", "warning", gap + run - 1, text)
        elif run > 2 * _longest(before) and _share(before, seen[-1]) ** run < _CHANCE:
            text = f"the same value, {value}, since {{since}}: {run:,} steps"
            yield recent.finding(row, "flat", "bad", gap + run - 1, text)


def _longest(values: Floats) -> int:
    """Return the length of the longest stretch of equal values."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return int(np.diff(changes, prepend=0, append=len(values)).max())


def _share(values: Floats, value: np.float32) -> float:
    """Estimate how likely it is that the next value is this one again, never as 0."""
    often = max((values[1:] == values[:-1]).sum(), (values == value).sum())
    return float(often + 1) / (len(values) + 1)


def _sentinel(recent: _Recent) -> Iterator[Finding]:
    """The whole history is searched: a mark for a missing value spoils a training wherever it is."""
    marks, panel, steps = np.array(SENTINELS, np.float32), recent.panel, recent.values_BT.shape[1]
    begin, end = panel.indptr[recent.series_B[0]], panel.indptr[recent.series_B[-1] + 1]
    hits = np.flatnonzero(np.isin(panel.values[begin:end], marks)) + begin
    for series in np.unique(np.searchsorted(panel.indptr, hits, side="right") - 1).tolist():
        values = panel[series]
        usual = values[~np.isnan(values) & ~np.isin(values, marks)]
        low, high = np.quantile(usual[-steps:], (0.1, 0.9)) if len(usual) else (0.0, 0.0)
        # Around a constant there is no width; its own size serves.
        width = high - low or max(abs(high), 1.0)
        where = np.flatnonzero(np.isin(values, marks) & ((values < low - width) | (values > high + width)))
        if len(where):
            severity: Severity = "bad" if where[-1] >= len(values) - steps else "warning"
            text = f"{values[where[-1]]:g} in {len(where):,} of its {len(values):,} steps, from {{since}}: "
            text += "it looks like a mark for a missing value"
            yield _finding(panel, series, "sentinel", severity, int(where[0]), text)


def _gaps(recent: _Recent) -> Iterator[Finding]:
    """Steps before a series begins are no gaps, nor are those after its last value: they make it stale."""
    lengths_B = np.minimum(recent.panel.lengths[recent.series_B], recent.values_BT.shape[1])
    missing_B = lengths_B - recent.gap_B - recent.count_B
    share_B = missing_B / lengths_B
    for row in np.flatnonzero((recent.count_B > 0) & (share_B > recent.rules.gaps)).tolist():
        text = f"{missing_B[row]:,} of its last {lengths_B[row]:,} steps are missing ({share_B[row]:.0%})"
        yield recent.finding(row, "gaps", "warning", int(lengths_B[row]) - 1, text)


def _outlier(recent: _Recent) -> Iterator[Finding]:
    values_BT, rows_B = np.sort(recent.values_BT, axis=1), np.arange(len(recent.series_B))
    low_B, high_B = (
        values_BT[rows_B, np.round(level * np.maximum(recent.count_B - 1, 0)).astype(np.int64)] for level in (0.1, 0.9)
    )
    # Series that hardly vary have no outliers: any value would be one.
    width_B = np.where(high_B > low_B, high_B - low_B, np.inf) * recent.rules.outlier
    with np.errstate(invalid="ignore"):
        far_BT = (recent.values_BT < (low_B - width_B)[:, None]) | (recent.values_BT > (high_B + width_B)[:, None])
    for row in np.flatnonzero(far_BT.any(1)).tolist():
        where = np.flatnonzero(far_BT[row])
        value, many = recent.values_BT[row, where[-1]], "" if len(where) == 1 else f"; earlier ones: {len(where) - 1:,}"
        text = f"{value:g} at {{since}} is far outside its usual range, {low_B[row]:g} to {high_B[row]:g}{many}"
        yield recent.finding(row, "outlier", "warning", recent.values_BT.shape[1] - 1 - int(where[-1]), text)


def _level(recent: _Recent) -> Iterator[Finding]:
    """The mean of each of the last seasons is far from those of the seasons before, compared with their own spread."""
    season = recent.season
    seasons = recent.values_BT.shape[1] // season
    if seasons <= _SEASONS_OF_LEVEL:
        return
    blocks_BKT = recent.values_BT[:, -seasons * season :].reshape(-1, seasons, season)
    observed_BK = (~np.isnan(blocks_BKT)).sum(2)
    mean_BK = np.nansum(blocks_BKT, axis=2) / np.maximum(observed_BK, 1)
    counts_BK = observed_BK >= season / 2
    named_B = np.zeros(len(mean_BK), bool)
    # A level that changed some seasons ago is compared with those before that; the one in which it changed is left out.
    for since in range(1, max(seasons - _SEASONS_OF_OLD_LEVEL, 1) + 1):
        before = slice(0, seasons - since - (since > 1))
        moved_B, usual_B = _moved(mean_BK, counts_BK, before, since, recent.rules.level)
        for row in np.flatnonzero(moved_B & ~named_B).tolist():
            mean, steps = mean_BK[row, -since:].mean(), since * season
            text = f"a mean of {mean:g} in the {steps} steps from {{since}}, {usual_B[row]:g} before"
            yield recent.finding(row, "level", "warning", steps - 1, text)
        named_B |= moved_B


def _moved(mean_BK: Doubles, counts_BK: Bools, before: slice, since: int, limit: float) -> tuple[Bools, Doubles]:
    """Return whether each of the last `since` seasons is far from those `before`, and the mean of the latter."""
    before_BK, last_BK = counts_BK[:, before], mean_BK[:, -since:]
    number_B = np.maximum(before_BK.sum(1), 1)
    usual_B = np.where(before_BK, mean_BK[:, before], 0).sum(1) / number_B
    away_BK = np.where(before_BK, mean_BK[:, before] - usual_B[:, None], 0)
    spread_B = np.sqrt((away_BK**2).sum(1) / number_B)
    change_B = np.abs(last_BK - usual_B[:, None]).min(1)
    # Half its size as well: a steady series may move by many of its small deviations without a cause.
    moved_B = (change_B > limit * spread_B) & (change_B > _LARGE_CHANGE * np.abs(usual_B))
    known_B = counts_BK[:, -since:].all(1) & (before_BK.sum(1) >= _SEASONS_OF_LEVEL) & (usual_B != 0)
    return moved_B & known_B, usual_B


_RULES: tuple[Callable[[_Recent], Iterator[Finding]], ...] = (_flat, _outlier)
