"""Results and model -> all that the page's template shows: texts, rows of tables, pictures."""

from __future__ import annotations

from typing import Any

import polars as pl

from logsparse import __version__
from logsparse.data.columns import CUTOFF, ID, TIME
from logsparse.forecast import Forecaster
from logsparse.metrics import STEP
from logsparse.reporting import words
from logsparse.reporting.charts import NARROW, WIDE, calibration_chart, fan_chart, losses_chart, steps_chart
from logsparse.reporting.inline import inline
from logsparse.reporting.numbers import BESIDE, Results
from logsparse.reporting.shown import Shown, shown_series, when
from logsparse.reporting.words import NAIVE_NAME, figure, percent

# Rows of a table that somebody may read.
ROWS_SHOWN = 50
# In the order of the table: what seasonal naive has too comes first.
MEANINGS = {
    "nd": ("ND", "sum of |error| over the sum of |y|"),
    "mase": ("MASE", "mean |error| in units of seasonal naive's before the test"),
    "mae": ("MAE", "mean |error|, in units of y"),
    "rmse": ("RMSE", "root mean squared error of the mean, in units of y"),
    "R0.9": ("R0.9", "loss of the 0.9 quantile over the sum of |y|"),
    "wql": ("wQL", "mean loss of all quantiles over the sum of |y|"),
    "crps_quantiles": ("CRPS", "mean loss of all quantiles, in units of y"),
}
COLUMNS = ("nd", f"{BESIDE}nd", "mase", "rmse", f"{BESIDE}rmse", "coverage_80")

Section = dict[str, Any]


def page(results: Results, model: Forecaster | None, title: str | None) -> Section:
    # matplotlib leaves names that begin with an underscore out of a legend.
    name = "model" if model is None else type(model).__name__.lstrip("_")
    return {
        "title": title or "Forecast report",
        "version": __version__,
        "name": name,
        "naive": NAIVE_NAME if results.with_naive else "",
        "facts": _facts(results),
        **_scores(results),
        "steps": _steps(results, name),
        "calibration": _calibration(results) if results.levels else None,
        "fans": [_fan(results, shown, number) for number, shown in enumerate(shown_series(results))],
        "ranking": _label(results, results.ranking),
        **_evidence(model),
        "tables": [
            *([_intervals(results)] if results.intervals else []),
            _by_series(results),
            _by_cutoff(results),
        ],
    }


def _label(results: Results, name: str) -> str:
    """ND of the median is the paper's R0.5."""
    if name == "nd" and 0.5 in results.levels.values():
        return "R0.5"
    return MEANINGS[name][0]


def _facts(results: Results) -> list[str]:
    table, scored = results.table, results.overall["count"]
    windows = table.group_by(ID).agg(pl.col(CUTOFF).n_unique())[CUTOFF].max()
    first, last = (when(time) for time in (table[TIME].min(), table[TIME].max()))
    missing = table.height - scored
    return [
        words.count(table[ID].n_unique(), "series", "series"),
        words.count(int(str(windows)), "window") + (" a series" if windows != 1 else ""),
        words.count(results.by_step.height, "step") + " ahead",
        words.count(scored, "value") + " scored" + (f", {missing:,} missing" if missing else ""),
        f"{first} to {last}" if first != last else first,
    ]


def _scores(results: Results) -> Section:
    overall = results.overall
    found = [name for name in MEANINGS if overall.get(name) is not None]
    rows = []
    for name in found:
        ours, theirs = overall[name], overall.get(BESIDE + name)
        change = words.change(ours, theirs)
        rows.append({
            "name": _label(results, name), "meaning": MEANINGS[name][1], "ours": figure(ours),
            "theirs": figure(theirs) if theirs is not None else "", "change": change,
            "better": bool(change) and ours < theirs, "worse": bool(change) and ours > theirs,
        })  # fmt: skip
    first = next(name for name in ("nd", "mae", "wql", "crps_quantiles") if name in found)
    ours, theirs = overall[first], overall.get(BESIDE + first)
    return {
        "scores": rows,
        "verdict": words.verdict(_label(results, first), ours, theirs),
        "headline": words.headline(_label(results, first), MEANINGS[first][1], ours, theirs),
        "beaten": words.on_series(results.beaten),
        "better": bool(theirs) and ours < theirs,
        "worse": theirs is not None and ours > theirs,
    }


def _steps(results: Results, name: str) -> Section:
    table = results.by_step
    steps, ours = table[STEP].to_list(), table["error"].to_list()
    theirs = table["naive_error"].to_list() if "naive_error" in table.columns else None
    says = f"Line chart of the error by step of the horizon. {_from_to(name, steps, ours)}"
    if theirs is not None:
        says += f" {_from_to(NAIVE_NAME, steps, theirs)}"
    share = " as a share of mean |y|" if results.mean_size else ""
    error = "Mean |error|" if "mae" in results.overall else "CRPS"
    return {
        "picture": inline(steps_chart(steps, ours, theirs, name), key="steps", says=says),
        "caption": f"{error} at each step{share}.",
    }


def _from_to(name: str, steps: list[int], values: list[float | None]) -> str:
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    (first, begin), (last, end) = known[0], known[-1]
    return f"{name}: {figure(begin)} at step {first}, {figure(end)} at step {last}."


def _calibration(results: Results) -> Section:
    levels = results.calibration
    observed = "; ".join(f"{100 * e.level:g} %: {percent(e.observed)}" for e in levels)
    return {
        "picture": inline(
            calibration_chart(levels),
            key="calibration",
            says=f"Chart of the share of values below each quantile against its level. {observed}.",
        ),
        "sentence": words.on_calibration(results.intervals, levels),
        "ties": words.on_ties(levels),
    }


def _intervals(results: Results) -> Section:
    rows = [[f"{100 * entry.promised:g} %", percent(entry.held), figure(entry.width)] for entry in results.intervals]
    heads = ["interval", "values within", "mean width / mean |y|"]
    return {"title": "Coverage of the central intervals", "heads": heads, "rows": rows}


def _fan(results: Results, shown: Shown, number: int) -> Section:
    times = [time for window in shown.windows for time in (window.times[0], window.times[-1])]
    drawn = len(shown.windows)
    error = f"{_label(results, results.ranking)} {figure(shown.error)}"
    name = words.shortened(shown.name)
    span = " to ".join(dict.fromkeys((_clock(times[0]), _clock(times[-1]))))
    says = f"Forecast fan and truth of series {name}, {words.count(drawn, 'window')}, {span}; {error}."
    levels = list(results.levels.values())
    return {
        "role": shown.role, "name": name,
        "notes": [error, span, *([f"{drawn} of {shown.of_windows} windows"] if drawn < shown.of_windows else [])],
        "wide": inline(fan_chart(shown.windows, levels, WIDE), key=f"fan{number}", says=says),
        "narrow": inline(fan_chart(shown.windows, levels, NARROW), key=f"fan{number}n", says=says),
    }  # fmt: skip


def _clock(time: Any) -> str:
    return when(str(time).replace("T", " "))


def _evidence(model: Forecaster | None) -> Section:
    if model is None:
        return {"losses": None, "attention": None, "settings": []}
    evidence = model.evidence()
    losses = attention = None
    if evidence.losses:
        best = min(evidence.losses, key=lambda row: row["validation_nll"])
        says = (
            f"Training and validation loss over {words.count(int(evidence.losses[-1]['step']), 'step')}; "
            f"best validation loss {best['validation_nll']:.4g} at step {best['step']:g}."
        )
        losses = {
            "says": says,
            "wide": inline(losses_chart(evidence.losses, WIDE), key="loss", says=says),
            "narrow": inline(losses_chart(evidence.losses, NARROW), key="lossn", says=says),
        }
    if evidence.attention is not None:
        says = "Picture of the attention: how much weight each step of the history has in a forecast."
        attention = inline(evidence.attention, key="attention", says=says, foreign=True)
    return {"losses": losses, "attention": attention, "settings": words.flat(evidence.settings)}


def _by_series(results: Results) -> Section:
    table = results.by_series
    title = f"Scores of each series, by {_label(results, results.ranking)}"
    if left_out := table.height > ROWS_SHOWN:
        half = ROWS_SHOWN // 2
        title = f"Scores of the {half} best and the {half} worst of {table.height:,} series, by "
        title += _label(results, results.ranking)
        table = pl.concat([table.head(half), table.tail(half)])
    return _table(results, table, ID, title, left_out=left_out)


def _by_cutoff(results: Results) -> Section:
    table = results.scores(CUTOFF)
    title = "Scores at each cutoff"
    if table.height > ROWS_SHOWN:
        title = f"Scores at the last {ROWS_SHOWN} of {table.height:,} cutoffs"
        table = table.tail(ROWS_SHOWN)
    return _table(results, table, CUTOFF, title)


def _table(results: Results, table: pl.DataFrame, key: str, title: str, *, left_out: bool = False) -> Section:
    names = [name for name in COLUMNS if name in table.columns] or ["wql", "crps_quantiles"]
    heads = [
        f"naive {_label(results, name.removeprefix(BESIDE))}" if name.startswith(BESIDE)
        else "in 80 %" if name == "coverage_80" else _label(results, name)
        for name in names
    ]  # fmt: skip
    rows = []
    for row in table.iter_rows(named=True):
        name = row[key] if key == ID else when(row[key])
        cells = [(percent if column == "coverage_80" else figure)(row[column]) for column in names]
        rows.append([words.shortened(name), f"{row['count']:,}", *cells])
    if left_out:
        rows.insert(len(rows) // 2, ["…", "", *("" for _ in names)])
    return {"title": title, "heads": ["series" if key == ID else "cutoff", "values", *heads], "rows": rows}
