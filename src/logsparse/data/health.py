"""Findings about the series of a panel -> Health, as text, frame, JSON and HTML; the panel without its bad series.

data/findings makes the findings; `logsparse.check`, the command `check`, `predict(on_bad=)` and the report show them.
"""

from __future__ import annotations

import html
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from logsparse.data.frame import refuse_empty
from logsparse.data.grid import Library, to_native
from logsparse.data.localtime import on_any_clock
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.times import stamps
from logsparse.errors import ConfigError, DataError, shown, suggest

log = logging.getLogger("logsparse")

Severity = Literal["bad", "warning"]
OnBad = Literal["warn", "skip", "fail"]

KINDS = (
    "step", "zone", "missing", "empty", "stale", "flat", "sentinel", "gaps", "outlier", "level", "new",
)  # fmt: skip
"""Kinds of findings, in the order in which they are listed."""
# Rows of a notebook's table, and findings that an error names.
_ROWS, _NAMED = 20, 3
# A larger number of missing series is not searched for renamed ones.
_SEARCHED = 50


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one series, or with all of them."""

    series: SeriesId | None
    """None: all series."""
    kind: str
    """One of `KINDS`."""
    severity: Severity
    """`bad`: a forecast from these data means nothing. `warning`: look at it."""
    since: str
    """Time of the first step concerned (of `stale`: the last value), as the data write times; may be empty."""
    text: str

    def __str__(self) -> str:
        return self.text if self.series is None else f"{self.series}: {self.text}"


@dataclass(frozen=True, repr=False)
class Health:
    """What `check` found in the data, worst first.

    Parameters
    ----------
    series
        Number of series that were read.
    findings
        Findings with `series`, `kind`, `severity` ("bad" or "warning"), `since` and `text`.
    library
        Library of the frame that `frame` returns.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> values = [float(t % 7) for t in range(70)]
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [*values[:50], -9999.0, *values[51:]]})
    >>> health = ls.check(frame)
    >>> health
    Health(1 series, 1 with findings: 1 sentinel)
    >>> health.bad
    ('a',)
    >>> print(health)
    1 of 1 series has findings: 1 sentinel
    bad      sentinel  a: -9999 in 1 of its 70 steps, from 50: it looks like a mark for a missing value
    """

    series: int
    findings: tuple[Finding, ...]
    library: Library = "polars"

    def __post_init__(self) -> None:
        order = {kind: number for number, kind in enumerate(KINDS)}
        ranked = sorted(self.findings, key=lambda finding: (finding.severity != "bad", order[finding.kind]))
        object.__setattr__(self, "findings", tuple(ranked))

    def __repr__(self) -> str:
        return f"Health({self.series:_} series, {self._counts()})"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *self.lines()])

    def _repr_html_(self) -> str:
        """Return the first findings as a table, for notebooks."""
        cells = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(value))}</td>' for value in _row(finding).values())}</tr>"
            for finding in self.findings[:_ROWS]
        )
        heads = "".join(f"<th>{field.name}</th>" for field in fields(Finding))
        more = len(self.findings) - _ROWS
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>" if self.findings else ""
        return f"<p>{html.escape(self.summary())}</p>{table}{f'<p>and {more:,} more</p>' if more > 0 else ''}"

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def bad(self) -> tuple[SeriesId, ...]:
        """Series with a finding that makes their forecast meaningless, each once; those that are missing included."""
        found = (finding.series for finding in self.findings if finding.severity == "bad")
        return tuple(dict.fromkeys(series for series in found if series is not None))

    def worst(self) -> Severity | None:
        """Return the highest severity that was found; None if nothing was."""
        return self.findings[0].severity if self.findings else None

    def summary(self) -> str:
        """Return one sentence: how many series have findings, and of which kinds."""
        if self.ok:
            return f"{self.series:,} series, nothing found"
        concerned = self._concerned()
        verb = "has" if concerned == 1 else "have"
        return f"{concerned:,} of {self._expected():,} series {verb} findings: {self._kinds()}"

    def lines(self, most: int | None = None) -> list[str]:
        """Return one line per finding, worst first; after `most` of them, how many more there are."""
        lines = [f"{finding.severity:<7}  {finding.kind:<8}  {finding}" for finding in self.findings[:most]]
        return lines + ([f"and {len(self.findings) - most:,} more"] if most and len(self.findings) > most else [])

    def reasons(self) -> list[str]:
        """Return one line per series with all that was found in it."""
        texts: dict[SeriesId | None, list[str]] = {}
        for finding in self.findings:
            texts.setdefault(finding.series, []).append(f"{finding.kind}: {finding.text}")
        return [f"{'all series' if name is None else name}: {'; '.join(found)}" for name, found in texts.items()]

    def only(self, severity: Severity) -> Health:
        """Return the findings of one severity."""
        return replace(self, findings=tuple(finding for finding in self.findings if finding.severity == severity))

    def frame(self) -> Any:
        """Return one row per finding, in the library that the data came in: series, kind, severity, since, text."""
        names = [field.name for field in fields(Finding)]
        rows = [asdict(finding) for finding in self.findings]
        series = [row["series"] for row in rows if row["series"] is not None]
        whole_numbers = bool(series) and all(isinstance(name, int) for name in series)
        if not whole_numbers:  # missing series have ids of the model, which may be of another type
            rows = [row | {"series": None if row["series"] is None else str(row["series"])} for row in rows]
        kinds = dict.fromkeys(names, pl.String()) | ({"series": pl.Int64()} if whole_numbers else {})
        return to_native(pl.DataFrame({n: [row[n] for row in rows] for n in names}, kinds), self.library)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists: series, the series with a bad finding, and all findings."""
        findings = [asdict(finding) for finding in self.findings]
        return {"series": self.series, "worst": self.worst(), "bad": list(self.bad), "findings": findings}

    def to_json(self) -> str:
        """Return `to_dict` as one JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def _concerned(self) -> int:
        names = {finding.series for finding in self.findings}
        return self._expected() if None in names else len(names)

    def _expected(self) -> int:
        return self.series + len({finding.series for finding in self.findings if finding.kind == "missing"})

    def _kinds(self) -> str:
        counts = Counter(finding.kind for finding in self.findings)
        return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())

    def _counts(self) -> str:
        return f"{self._concerned():_} with findings: {self._kinds()}" if self.findings else "nothing found"


def _row(finding: Finding) -> dict[str, Any]:
    return asdict(finding) | {"series": "all" if finding.series is None else finding.series}


def against(panel: Panel, fitted: Panel, learned: Collection[SeriesId]) -> list[Finding]:
    """Compare the series of a panel with those a model was last fitted on, and with all that it has learned from."""
    here, known = set(panel.ids), set(learned)
    new = [name for name in panel.ids if name not in known]
    gone = [name for name in fitted.ids if name not in here]
    near = {name: get_close_matches(str(name), [str(other) for other in new], n=1) for name in gone[:_SEARCHED]}
    ends = dict(zip(fitted.ids, stamps(fitted, fitted.ends()).to_list(), strict=True))
    found: list[Finding] = []
    for name in gone:
        renamed = f"; {near[name][0]!r} is new: was it renamed?" if near.get(name) else ""
        text = f"the model was fitted on it up to {ends[name]}, and the data have no row of it"
        found.append(Finding(name, "missing", "bad", "", text + renamed))
    counts = dict(zip(panel.ids, panel.lengths.tolist(), strict=True))
    for name in new:
        text = (
            f"not among the {len(known):,} series of the model: its forecast rests on its own {counts[name]:,} steps "
            "and on what the model learned from the others"
        )
        found.append(Finding(name, "new", "warning", "", text))
    return found


def unlike(panel: Panel, fitted: Panel) -> list[Finding]:
    """Compare the step and the time zone of a panel with those of the data a model was fitted on."""
    found: list[Finding] = []
    if panel.freq != fitted.freq:
        text = f"steps of {panel.freq}, the model was fitted on steps of {fitted.freq}"
        found.append(Finding(None, "step", "bad", "", text))
    ours, theirs = panel.origin.zone, fitted.origin.zone
    if ours != theirs and not on_any_clock(panel):
        # Between two zones an instant is the same; without a zone nobody knows the hour of the day.
        severity: Severity = "warning" if ours and theirs else "bad"
        text = f"times in {ours or 'no time zone'}, the model was fitted on times in {theirs or 'no time zone'}"
        found.append(Finding(None, "zone", severity, "", text))
    return found


def warn(health: Health, on_bad: OnBad) -> None:
    """Log one line if anything was found."""
    if health.ok:
        return
    left_out = [str(name) for name in health.bad] if on_bad == "skip" else []
    more = f" and {len(left_out) - _NAMED:,} more" if len(left_out) > _NAMED else ""
    names = f"; not forecast: {', '.join(left_out[:_NAMED])}{more}" if left_out else ""
    log.warning("%s%s; logsparse.check(data, model=...) lists them", health.summary(), names)


def check_on_bad(on_bad: object) -> None:
    """Raise for a word that is not one of those of `OnBad`."""
    words = get_args(OnBad)
    if on_bad not in words:
        raise ConfigError(
            "on_bad must be warn, skip or fail.", got=shown(on_bad), hint=suggest(on_bad, words, "leave it out.")
        )


class NothingLeftError(DataError):
    """Every series has a bad finding; a caller that forecasts other series too can continue."""

    health: Health


def without_bad(panel: Panel, health: Health, on_bad: OnBad) -> Panel:
    """Return the panel as `on_bad` asks: whole ("warn"), without its bad series ("skip"), or not at all ("fail")."""
    if on_bad == "fail" and health.worst() == "bad":
        raise DataError(
            "No series may have a bad finding (on_bad is fail).",
            got=_some([finding for finding in health.findings if finding.severity == "bad"]),
            hint='repair or drop those series, or leave them out of the forecast with on_bad="skip".',
        )
    if on_bad != "skip":
        refuse_empty(panel)
        return panel
    bad = set(health.bad)
    kept_S = np.array([name not in bad for name in panel.ids])
    if not kept_S.any():
        error = NothingLeftError(
            "A forecast needs a series without a bad finding (on_bad is skip).",
            got=_some(health.findings),
            hint="check how the data were read; on_bad warn forecasts every series.",
        )
        error.health = health
        raise error
    return panel if kept_S.all() else panel.keep(kept_S)


def _some(findings: Iterable[Finding]) -> str:
    found = list(findings)
    more = f"; and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return "; ".join(map(str, found[:_NAMED])) + more
