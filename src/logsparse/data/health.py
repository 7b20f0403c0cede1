"""Panel -> findings about its data: stale, frozen, empty, missing, new or unlike its own past, per series.

Every rule reads the last steps of all series at once. `logsparse.check`, the command `check`, `predict(on_bad=...)` and
the report read the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logsparse.checks import above_zero, whole
from logsparse.data.calendar import Ints
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.times import stamps

# S series, T last steps that the rules read (NaN before a series begins and where nothing was observed), K seasons

Severity = Literal["bad", "warning"]
Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]

SENTINELS = (-9999.0, -999.0, -99.0, -99999.0, -999999.0, 9999.0, 99999.0, 999999.0, 65535.0, -32768.0)
"""Values that loggers write for "no value". One counts only far outside the range of its series."""
_SEASONS = 12
"""How many seasons before the end are read."""
_SHORTEST_SEASON = 6
_SEASONS_OF_LEVEL = 4
"""Seasons before the last one that a change of level is measured against."""
_LARGE_CHANGE = 0.5
_MOST = 0.5


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Thresholds of the findings. Steps are those of the data; None stands for one season."""

    stale: int | None = None
    """Steps that the last value of a series may be older than the newest of all series, or than `now`."""
    flat: int | None = None
    """Last values in a row that may be equal, in a series that has no such stretch earlier."""
    gaps: float = 0.2
    """Share of the last steps that may be missing."""
    outlier: float = 10.0
    """Distance from the median in widths of the middle 80 % from which a value is an outlier."""
    level: float = 6.0
    """Change of the mean of the last season, in standard deviations of the seasons before it."""

    def __post_init__(self) -> None:
        for name in ("stale", "flat"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), hint="count the steps.")
        for name in ("gaps", "outlier", "level"):
            above_zero(name, getattr(self, name), hint="write a number such as 0.2.")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one series."""

    series: SeriesId
    kind: str
    severity: Severity
    """`bad`: a forecast from these data means nothing. `warning`: look at it."""
    since: str
    """First step concerned, as the data write times; empty where there is none."""
    text: str

    def __str__(self) -> str:
        return f"{self.series}: {self.text}"


@dataclass(frozen=True)
class Health:
    """What `check` found, worst first."""

    series: int
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        kinds = {finding.kind: 0 for finding in self.findings}
        for finding in self.findings:
            kinds[finding.kind] += 1
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing found"
        return f"Health({self.series:_} series: {counted})"

    def __bool__(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def bad(self) -> tuple[SeriesId, ...]:
        """Series with a finding that makes their forecast meaningless, each once."""
        return tuple(dict.fromkeys(finding.series for finding in self.findings if finding.severity == "bad"))

    def table(self) -> pl.DataFrame:
        """One row per finding: series, kind, severity, since, text."""
        names = [field.name for field in fields(Finding)]
        rows = [asdict(finding) | {"series": str(finding.series)} for finding in self.findings]
        return pl.DataFrame({name: [row[name] for row in rows] for name in names}, dict.fromkeys(names, pl.String))


@dataclass(frozen=True)
class _Recent:
    """The last steps of all series, aligned at each series' own end, and what the rules derive from them once."""

    panel: Panel
    values_ST: Doubles
    season: int
    rules: Rules
    sorted_ST: Doubles
    """Each row in rising order, NaN last."""
    count_S: Ints
    """Observed values per row."""

    @classmethod
    def of(cls, panel: Panel, rules: Rules) -> _Recent:
        # A step of its own kind (weeks, integers) has no season: then a handful of steps serves.
        season = max(panel.freq.season, _SHORTEST_SEASON)
        values_ST = _last(panel, _SEASONS * season)
        count_S = (~np.isnan(values_ST)).sum(1)
        return cls(panel, values_ST, season, rules, np.sort(values_ST, axis=1), count_S)

    def quantile(self, level: float) -> Doubles:
        """(S,): of the observed values; NaN where there are none."""
        last_S = np.maximum(self.count_S - 1, 0)
        return np.asarray(self.sorted_ST[np.arange(len(self.count_S)), np.round(level * last_S).astype(np.int64)])

    def finding(self, series: int, kind: str, severity: Severity, steps_back: int, text: str) -> Finding:
        """`steps_back` counts from the last visible step of the series; what it stands for comes first in the text."""
        panel = self.panel
        time = panel.freq.add(panel.starts[[series]], panel.lengths[[series]] - 1 - steps_back)
        since = str(stamps(panel, time)[0])
        return Finding(panel.ids[series], kind, severity, since, text.format(since=since))


def findings_of(panel: Panel, rules: Rules, now: int | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with the last steps of every series; series without a value get one finding, `empty`."""
    recent = _Recent.of(panel, rules)
    found = [*_stale(recent, now), *(finding for rule in _RULES for finding in rule(recent))]
    # Whatever else is wrong with a series moves its level too.
    explained = {finding.series for finding in found}
    return worst_first([*found, *(finding for finding in _level(recent) if finding.series not in explained)])


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.severity != "bad"))


def _last(panel: Panel, steps: int) -> Doubles:
    """The last `steps` visible values of every series, NaN before a series begins."""
    steps = min(steps, int(panel.lengths.max()))
    back_T = np.arange(-steps, 0)
    at_ST = panel.lengths[:, None] + back_T
    cells_ST = panel.indptr[:-1, None] + np.maximum(at_ST, 0)
    return np.where(at_ST < 0, np.nan, panel.values[cells_ST]).astype(np.float64)


def _trailing(true_ST: Bools) -> Ints:
    """How many of the last cells of each row are True."""
    false_ST = ~true_ST[:, ::-1]
    return np.where(false_ST.any(1), false_ST.argmax(1), true_ST.shape[1])


def _stale(recent: _Recent, now: int | None) -> Iterator[Finding]:
    panel, limit = recent.panel, recent.rules.stale or recent.season
    missing_S = _trailing(np.isnan(recent.values_ST))
    last_S = panel.freq.add(panel.starts, panel.lengths - 1 - missing_S)
    seen_S = recent.count_S > 0
    if not seen_S.any():
        return
    usual = int(np.median(last_S[seen_S]))
    behind_S = panel.freq.steps(last_S, np.full_like(last_S, usual))
    # Series that end all over the calendar, as those of a collection do, are not late.
    together = np.mean(np.abs(behind_S[seen_S]) <= limit) > _MOST
    late_S = seen_S & together & (behind_S > limit)
    age_S, than = behind_S, "that of most series"
    if now is not None:
        age_S, than = panel.freq.steps(last_S, np.full_like(last_S, now)), "now"
        late_S |= seen_S & (age_S > limit)
    for series in np.flatnonzero(late_S).tolist():
        text = f"its last value is of {{since}}, {age_S[series]:,} steps older than {than}"
        yield recent.finding(series, "stale", "bad", int(missing_S[series]), text)


def _empty(recent: _Recent) -> Iterator[Finding]:
    steps = recent.values_ST.shape[1]
    for series in np.flatnonzero(recent.count_S == 0).tolist():
        length = min(steps, int(recent.panel.lengths[series]))
        yield recent.finding(series, "empty", "bad", length - 1, f"no value in its last {length:,} steps")


def _flat(recent: _Recent) -> Iterator[Finding]:
    """The last values are all equal, for longer than a season and than twice any such stretch before."""
    values_ST = recent.values_ST
    limit = recent.rules.flat or recent.season
    equal_ST = values_ST[:, 1:] == values_ST[:, :-1]
    # Missing steps at the end are the concern of other rules.
    gap_S = _trailing(np.isnan(values_ST))
    for series in np.flatnonzero(recent.count_S > limit).tolist():
        equal_T = equal_ST[series, : equal_ST.shape[1] - int(gap_S[series])]
        run = int(_trailing(equal_T[None])[0]) + 1
        if run <= limit or run >= recent.count_S[series]:
            continue
        breaks = np.flatnonzero(~equal_T[: len(equal_T) - run + 1])
        before = int(np.diff(breaks, prepend=-1).max()) if len(breaks) else 0
        if run > 2 * before:
            value, back = values_ST[series, -1 - int(gap_S[series])], int(gap_S[series]) + run - 1
            yield recent.finding(
                series, "flat", "bad", back, f"the same value, {value:g}, since {{since}}: {run:,} steps"
            )


def _sentinel(recent: _Recent) -> Iterator[Finding]:
    far_ST = _distance(recent) > 1
    for series in np.flatnonzero(far_ST.any(1)).tolist():
        where = np.flatnonzero(far_ST[series] & np.isin(recent.values_ST[series], SENTINELS))
        if len(where):
            value, count = recent.values_ST[series, where[-1]], len(where)
            back = recent.values_ST.shape[1] - 1 - int(where[0])
            text = f"{value:g} in {count:,} of its last steps, from {{since}}: it looks like a mark for a missing value"
            yield recent.finding(series, "sentinel", "bad", back, text)


def _outlier(recent: _Recent) -> Iterator[Finding]:
    far_ST = (_distance(recent) > recent.rules.outlier) & ~np.isin(recent.values_ST, SENTINELS)
    for series in np.flatnonzero(far_ST.any(1)).tolist():
        where = np.flatnonzero(far_ST[series])
        back = recent.values_ST.shape[1] - 1 - int(where[-1])
        value = recent.values_ST[series, where[-1]]
        text = f"{value:g} at {{since}} is far outside its usual range ({len(where):,} of its last values are)"
        yield recent.finding(series, "outlier", "warning", back, text)


def _distance(recent: _Recent) -> Doubles:
    """(S, T): how far a value lies outside the middle 80 %, in widths of it; 0 in series that hardly vary."""
    low_S, high_S = recent.quantile(0.1), recent.quantile(0.9)
    width_S = np.where(high_S > low_S, high_S - low_S, np.nan)[:, None]
    outside_ST = np.maximum(low_S[:, None] - recent.values_ST, recent.values_ST - high_S[:, None])
    return np.asarray(np.nan_to_num(outside_ST / width_S))


def _gaps(recent: _Recent) -> Iterator[Finding]:
    """Steps before a series begins are no gaps, nor are those after its last value: they make it stale."""
    lengths_S = np.minimum(recent.panel.lengths, recent.values_ST.shape[1])
    missing_S = lengths_S - recent.count_S
    share_S = missing_S / np.maximum(lengths_S, 1)
    for series in np.flatnonzero((recent.count_S > 0) & (share_S > recent.rules.gaps)).tolist():
        text = f"{missing_S[series]:,} of its last {lengths_S[series]:,} steps are missing ({share_S[series]:.0%})"
        yield recent.finding(series, "gaps", "warning", int(lengths_S[series]) - 1, text)


def _level(recent: _Recent) -> Iterator[Finding]:
    """The mean of the last season is far from those of the seasons before it, compared with their own spread."""
    seasons = recent.values_ST.shape[1] // recent.season
    if seasons <= _SEASONS_OF_LEVEL:
        return
    blocks_SKT = recent.values_ST[:, -seasons * recent.season :].reshape(len(recent.panel), seasons, recent.season)
    observed_SK = (~np.isnan(blocks_SKT)).sum(2)
    mean_SK = np.nansum(blocks_SKT, axis=2) / np.maximum(observed_SK, 1)
    mean_SK[observed_SK < recent.season / 2] = np.nan
    before_SK, last_S = mean_SK[:, :-1], mean_SK[:, -1]
    enough_S = ((~np.isnan(before_SK)).sum(1) >= _SEASONS_OF_LEVEL) & ~np.isnan(last_S)
    for series in np.flatnonzero(enough_S).tolist():
        known = before_SK[series][~np.isnan(before_SK[series])]
        usual, spread = float(known.mean()), float(known.std())
        change = float(last_S[series]) - usual
        # Half its size as well: a steady series may move by many of its small deviations without a cause.
        if abs(change) > recent.rules.level * spread and abs(change) > _LARGE_CHANGE * abs(usual):
            text = f"a mean of {last_S[series]:g} in the {recent.season} steps from {{since}}, {usual:g} before"
            yield recent.finding(series, "level", "warning", recent.season - 1, text)


_RULES: tuple[Callable[[_Recent], Iterator[Finding]], ...] = (_empty, _flat, _sentinel, _gaps, _outlier)
