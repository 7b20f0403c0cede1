"""A frame or file, and optionally a model -> Health: what is wrong with the data before they are forecast from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from logsparse.cluster.shards import whole_parts
from logsparse.data.columns import Columns, ColumnSpec
from logsparse.data.findings import Examination, Rules
from logsparse.data.frame import Data, with_empty
from logsparse.data.health import Health, against, unlike
from logsparse.data.later import read_with
from logsparse.data.panel import Panel, SeriesId
from logsparse.data.times import When, clock_time, show_time, stamps
from logsparse.errors import ConfigError, DataError, LogsparseError, NotFittedError, shown
from logsparse.forecast import Forecaster
from logsparse.registry import load


def check(
    data: Data,
    *,
    model: Forecaster | str | Path | None = None,
    now: When | None = None,
    stale: int | None = None,
    flat: int | None = None,
    gaps: float = 0.2,
    outlier: float = 10.0,
    level: float = 6.0,
    **columns: Unpack[Columns],
) -> Health:
    """Return what is wrong with the last steps of each series, and with the data beside those of a model.

    A bad finding means that a forecast of the series would be meaningless: `empty` (no value), `stale` (the last value
    is old), `flat` (the last values are all the same, and have not been before), `sentinel` (-9999 and the like) and,
    with a model, `missing` (a series of the model that the data lack). The others are warnings: `gaps`, `outlier`,
    `level` (the last season is far from those before it) and `new` (a series that the model does not know). `step`
    and `zone` concern all series: the data have another step or time zone than those of the model.

    The rules read the last 12 seasons of each series; sentinels are searched for in all of it.

    Parameters
    ----------
    data : frame, str, Path or Panel
        As for `fit`.
    model : Forecaster, str or Path, optional
        A fitted forecaster or the folder of a saved one. The data are read with the columns it was fitted with.
    now : str, int, date or datetime, optional
        Time that the last values are compared with, or "now" for the clock of the machine. Default: the time at which
        most series end.
    stale : int, optional
        Steps that the last value may be old. Default: one season, such as 24 hours or 7 days; 4 steps if a step is a
        week or more.
    flat : int, optional
        Last values in a row that may be equal. Default: as for `stale`.
    gaps : float
        Share of the last steps that may be missing.
    outlier : float
        Distance outside the middle 80 % of the values, in widths of it, from which a value is an outlier.
    level : float
        Change of the mean of the last season that counts, in standard deviations of the seasons before it.
    **columns
        Names of columns and the step, as for `to_panel`.

    Returns
    -------
    Health
        Findings, with `bad`, `ok`, `summary`, `frame`, `to_dict` and `to_json`.

    Raises
    ------
    DataError, ConfigError, NotFittedError
        If the data or a parameter break a rule, or the model is not fitted.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.SeasonalNaive(horizon=3, season=7).fit(frame)
    >>> ls.check(frame, model=model)
    Health(1 series, nothing found)
    >>> print(ls.check(frame, now=100))
    1 of 1 series has findings: 1 stale
    bad      stale     a: its last value is of 69, 31 steps older than now
    """
    rules = Rules(stale=stale, flat=flat, gaps=gaps, outlier=outlier, level=level)
    return examined(data, None if model is None else _fitted(model), columns, rules, now)[0]


def examined(
    data: Data, model: Forecaster | None, columns: Columns, rules: Rules, now: When | None
) -> tuple[Health, dict[str, Any]]:
    """Return what is wrong with the data, and what was recognised in them; see `check`.

    A folder in which each series lies whole in one part is read part by part.
    """
    spec = ColumnSpec.of(columns if model is None else {**model.columns_, **columns})
    found_parts = whole_parts(data, spec.id_col, spec.used)
    parts: Mapping[str, Data] = {"": data} if found_parts is None else found_parts
    examination, seen = Examination(rules), _Values()
    steps: dict[str, str] = {}
    for name, part in parts.items():
        panel = readable(part, model, columns)
        steps.setdefault(str(panel.freq), name)
        if len(steps) > 1:
            raise DataError(
                "The parts of a folder must have the same step.",
                got=" and ".join(f"{step} in {first}" for step, first in steps.items()),
                hint="check each part by itself, and remove those that do not belong.",
            )
        examination.add(panel)
        seen.add(panel)
    outline = examination.outline()
    found = examination.findings(None if now is None else _on_clock(outline, now))
    if model is not None:
        found += [*unlike(outline, model.panel_), *against(outline, model.panel_, model.learned_until())]
    return Health(len(outline), tuple(found), outline.origin.library), recognised(outline, seen)


@dataclass
class _Values:
    """What is known of the values of panels that are read one after the other."""

    missing: int = 0
    most: tuple[int, SeriesId | None] = (0, None)
    lowest: float | None = None
    highest: float | None = None

    def add(self, panel: Panel) -> None:
        missing_S = [int(np.isnan(panel[i]).sum()) for i in range(len(panel))]
        self.missing += sum(missing_S)
        worst = int(np.argmax(missing_S))
        if missing_S[worst] > self.most[0]:
            self.most = missing_S[worst], panel.ids[worst]
        lowest, highest = (float(extreme.reduce(panel.values)) for extreme in (np.fmin, np.fmax))  # NaN is ignored
        if not np.isnan(lowest):
            self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
            self.highest = highest if self.highest is None else max(self.highest, highest)


def recognised(panel: Panel, values: _Values) -> dict[str, Any]:
    """Return layout, series, step, span and missing values, as plain JSON."""
    first, last = (str(stamps(panel, np.array([time]))[0]) for time in (panel.starts.min(), panel.ends().max()))
    return {
        "layout": panel.origin.layout,
        "series": len(panel),
        "ids": list(panel.ids[:3]),
        "step": str(panel.freq),
        "season": panel.freq.season,
        "first": first,
        "last": last,
        "zone": panel.origin.zone,
        "steps": [int(panel.lengths.min()), int(panel.lengths.max())],
        "values": int(panel.lengths.sum()),
        "missing": values.missing,
        "most_missing": values.most[1],
        "lowest": values.lowest,
        "highest": values.highest,
    }


def rows_of(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what `recognised` returns as labels and texts, for people."""
    more = ", ..." if facts["series"] > len(facts["ids"]) else ""
    most = "" if facts["most_missing"] is None else f", most in {facts['most_missing']}"
    ends = (facts["lowest"], facts["highest"])
    return [
        ("layout", "long: one row per series and time" if facts["layout"] == "long" else "wide: one column per series"),
        ("series", f"{facts['series']:,} ({', '.join(map(str, facts['ids']))}{more})"),
        ("step", f"{facts['step']} (season {facts['season']})"),
        ("span", f"{facts['first']} to {facts['last']}"),
        ("time zone", facts["zone"] or "none"),
        ("steps per series", span(facts["steps"])),
        ("values", f"{facts['values']:,}"),
        ("missing", f"{facts['missing']:,} ({facts['missing'] / facts['values']:.2%}){most}"),
        ("lowest, highest", ", ".join("none" if end is None else f"{end:g}" for end in ends)),
    ]


def span(numbers: Sequence[int]) -> str:
    """Return the least and the greatest number, or the one that all are, for people."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def readable(data: Data, model: Forecaster | None, columns: Columns) -> Panel:
    """Read data for a check: as the model would, and with series that have no value at all."""
    if model is None:
        return with_empty(data, **columns)
    return read_with(data, model.panel_, {**model.columns_, **columns})


def _fitted(model: Forecaster | str | Path) -> Forecaster:
    forecaster = model if isinstance(model, Forecaster) else load(model)
    if not hasattr(forecaster, "panel_"):
        raise NotFittedError(forecaster)
    return forecaster


def _on_clock(panel: Panel, now: When) -> int:
    if isinstance(now, str) and now == "now":
        # Times without a zone are taken for local ones, as a person who reads them would.
        now = datetime.now(UTC) if panel.origin.zone else datetime.now()  # noqa: DTZ005
    try:
        return clock_time(panel, now)
    except LogsparseError as error:
        raise ConfigError(
            "now must be a time of the kind that the data have.",
            got=shown(now),
            hint=f"write it like {show_time(panel.freq, int(panel.ends().max()), panel.origin.zone)}.",
        ) from error
