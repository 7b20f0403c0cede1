"""Result frame of a backtest, and the model if at hand -> one HTML file that opens anywhere and can be mailed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import polars as pl

from logsparse import __version__
from logsparse.checks import a_path
from logsparse.data.columns import CUTOFF, ID, TIME
from logsparse.data.files import check_writable
from logsparse.errors import ConfigError, DataError
from logsparse.evaluation.metrics import STEP
from logsparse.forecast import Forecaster
from logsparse.reporting.charts import NARROW, WIDE, calibration_chart, fan_chart, inline, losses_chart, steps_chart
from logsparse.reporting.numbers import BESIDE, Interval, Level, Results, Shown, shown_series, when
from logsparse.storage import unwritable, write_whole

NAIVE_NAME = "seasonal naive"
NOTHING = "\N{EN DASH}"
# A long id or setting tells nothing more after so many characters.
LONGEST = 120
# Coverage within so many points of what was promised is as good as can be told from a few weeks.
CLOSE = 0.03
# From here on "times" tells more than a percentage.
MANY = 3


def figure(value: float | None) -> str:
    """Three digits that count; a dash where there is no value."""
    if value is None or math.isnan(value):
        return NOTHING
    size = abs(value)
    if size != 0 and (size >= 1e7 or size < 1e-4 or math.isinf(size)):
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    digits = 2 if size == 0 else max(0, 2 - math.floor(math.log10(size)))
    return "0" if size == 0 else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f} %"


def count(number: int, word: str, many: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def change(ours: float | None, theirs: float | None) -> str:
    """How far one error lies from another, short: -69.3 %."""
    if ours is None or not theirs:
        return ""
    ratio = ours / theirs
    return f"{ratio:,.1f} times" if ratio > MANY else _signed(100 * (ratio - 1))


def _signed(percentage: float) -> str:
    return "0 %" if percentage == 0 else f"{percentage:+.1f} %".replace("-", "\N{MINUS SIGN}")


def verdict(name: str, ours: float | None, theirs: float | None) -> str:
    """The report in a few large words."""
    if ours is None or not theirs:
        return f"{name} {figure(ours)}"
    ratio = ours / theirs
    if ratio > MANY:
        return f"{ratio:,.1f} times the error of {NAIVE_NAME}"
    if abs(ratio - 1) < 0.005:
        return f"The same error as {NAIVE_NAME}" if ratio == 1 else f"About the error of {NAIVE_NAME}"
    rounded = min(99, round(100 * (1 - ratio))) if 0 < ratio < 1 else round(abs(100 * (ratio - 1)))
    return f"{rounded} % {'higher' if ratio > 1 else 'lower'} error than {NAIVE_NAME}"


def headline(name: str, meaning: str, ours: float | None, theirs: float | None) -> str:
    """What stands behind them."""
    said = f"{name}, the {meaning}, is {figure(ours)}"
    return said + (
        "." if theirs is None else f" against {figure(theirs)} of {NAIVE_NAME}, which repeats the last season."
    )


def on_series(beaten: tuple[int, int] | None) -> str:
    """Whether a good mean hides many bad series."""
    if beaten is None or beaten[1] < 2:
        return ""
    return f"Better than {NAIVE_NAME} on {beaten[0]:,} of {beaten[1]:,} series."


def on_calibration(intervals: Sequence[Interval], levels: Sequence[Level]) -> str:
    """Whether the widest interval kept its promise; without one, whether the level nearest the middle did."""
    if not intervals:
        middle = min(levels, key=lambda entry: abs(entry.level - 0.5))
        return f"{percent(middle.observed)} of the values lay below the {middle.level:g} quantile."
    widest = intervals[-1]
    within = levels[-1].observed - levels[0].observed if _spans(levels, widest) else widest.held
    if abs(within - widest.promised) <= CLOSE:
        judged = "about as many as they promise."
    elif within > widest.promised:
        judged = "more than they promise, so they are on the safe side."
    else:
        judged = "fewer than they promise, so they are too narrow."
    return f"The {100 * widest.promised:g} % intervals held {percent(widest.held)} of the values: {judged}"


def _spans(levels: Sequence[Level], interval: Interval) -> bool:
    return math.isclose(levels[-1].level - levels[0].level, interval.promised, abs_tol=1e-6)


def on_ties(levels: Sequence[Level]) -> str:
    """A remark for data with many equal values, such as zeros at night."""
    most = max((entry.tied for entry in levels), default=0.0)
    if most < 0.01:
        return ""
    return (
        f"Up to {percent(most)} of the values equal a quantile exactly, such as zeros that were foreseen. "
        "The chart spreads them evenly over the levels they equal."
    )


def shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def flat(settings: Any, path: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of dotted names and values: model.layers, 3."""
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if isinstance(settings, dict) and (settings or not path):
        below = (flat(value, f"{path}.{name}" if path else str(name)) for name, value in settings.items())
        return [row for rows in below for row in rows]
    return [(path, shortened(settings))]


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
        **_diagnostics(model),
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
        count(table[ID].n_unique(), "series", "series"),
        count(int(str(windows)), "window") + (" a series" if windows != 1 else ""),
        count(results.by_step.height, "step") + " ahead",
        count(scored, "value") + " scored" + (f", {missing:,} missing" if missing else ""),
        f"{first} to {last}" if first != last else first,
    ]


def _scores(results: Results) -> Section:
    overall = results.overall
    found = [name for name in MEANINGS if overall.get(name) is not None]
    rows = []
    for name in found:
        ours, theirs = overall[name], overall.get(BESIDE + name)
        moved = change(ours, theirs)
        rows.append({
            "name": _label(results, name), "meaning": MEANINGS[name][1], "ours": figure(ours),
            "theirs": figure(theirs) if theirs is not None else "", "change": moved,
            "better": bool(moved) and ours < theirs, "worse": bool(moved) and ours > theirs,
        })  # fmt: skip
    first = next(name for name in ("nd", "mae", "wql", "crps_quantiles") if name in found)
    ours, theirs = overall[first], overall.get(BESIDE + first)
    return {
        "scores": rows,
        "verdict": verdict(_label(results, first), ours, theirs),
        "headline": headline(_label(results, first), MEANINGS[first][1], ours, theirs),
        "beaten": on_series(results.beaten),
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
        "sentence": on_calibration(results.intervals, levels),
        "ties": on_ties(levels),
    }


def _intervals(results: Results) -> Section:
    rows = [[f"{100 * entry.promised:g} %", percent(entry.held), figure(entry.width)] for entry in results.intervals]
    heads = ["interval", "values within", "mean width / mean |y|"]
    return {"title": "Coverage of the central intervals", "heads": heads, "rows": rows}


def _fan(results: Results, shown: Shown, number: int) -> Section:
    times = [time for window in shown.windows for time in (window.times[0], window.times[-1])]
    drawn = len(shown.windows)
    error = f"{_label(results, results.ranking)} {figure(shown.error)}"
    name = shortened(shown.name)
    span = " to ".join(dict.fromkeys((_clock(times[0]), _clock(times[-1]))))
    says = f"Forecast fan and truth of series {name}, {count(drawn, 'window')}, {span}; {error}."
    levels = list(results.levels.values())
    return {
        "role": shown.role, "name": name,
        "notes": [error, span, *([f"{drawn} of {shown.of_windows} windows"] if drawn < shown.of_windows else [])],
        "wide": inline(fan_chart(shown.windows, levels, WIDE), key=f"fan{number}", says=says),
        "narrow": inline(fan_chart(shown.windows, levels, NARROW), key=f"fan{number}n", says=says),
    }  # fmt: skip


def _clock(time: Any) -> str:
    return when(str(time).replace("T", " "))


def _diagnostics(model: Forecaster | None) -> Section:
    if model is None:
        return {"losses": None, "attention": None, "settings": []}
    diagnostics = model.diagnostics()
    losses = attention = None
    if diagnostics.losses:
        best = min(diagnostics.losses, key=lambda row: row["validation_nll"])
        says = (
            f"Training and validation loss over {count(int(diagnostics.losses[-1]['step']), 'step')}; "
            f"best validation loss {best['validation_nll']:.4g} at step {best['step']:g}."
        )
        losses = {
            "says": says,
            "wide": inline(losses_chart(diagnostics.losses, WIDE), key="loss", says=says),
            "narrow": inline(losses_chart(diagnostics.losses, NARROW), key="lossn", says=says),
        }
    if diagnostics.attention is not None:
        says = "Picture of the attention: how much weight each step of the history has in a forecast."
        attention = inline(diagnostics.attention, key="attention", says=says, foreign=True)
    return {"losses": losses, "attention": attention, "settings": flat(diagnostics.settings)}


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
        rows.append([shortened(name), f"{row['count']:,}", *cells])
    if left_out:
        rows.insert(len(rows) // 2, ["…", "", *("" for _ in names)])
    return {"title": title, "heads": ["series" if key == ID else "cutoff", "values", *heads], "rows": rows}


TEMPLATE = "report.html.j2"


def report(results: Any, out: str | Path, *, model: Forecaster | None = None, title: str | None = None) -> Path:
    """Write what a backtest showed to `out`, and give its path.

    `results` is the frame of `backtest` or the path of its file. Scores against seasonal naive, error by step,
    calibration, the best, median and worst series, tables; with `model`, also its losses, attention and settings.
    The file needs no network and holds no script.
    """
    path = a_path("A report is written to the path of a file.", out, hint='write report(frame, "report.html").')
    _check_path(path)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            "model must be the forecaster that made the results.",
            got=f"{type(model).__name__}",
            hint="pass the fitted model itself, or leave it out.",
        )
    write_whole(path, _rendered(page(Results(results), model, title)).encode(), "The report")
    return path


def _rendered(content: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        autoescape=True, loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(TEMPLATE).render(content)


def _check_path(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError("A report is written as html.", got=f"{path}", hint="end the name in .html.")
    if path.is_dir():
        raise unwritable("The report", path, "a folder of that name is there")
    check_writable(path.parent, folder=True)
