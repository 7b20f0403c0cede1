"""Result frame of a backtest, and optionally the model -> one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import polars as pl

from logsparse import __version__
from logsparse.data.columns import CUTOFF, ID, MODEL, TIME
from logsparse.data.files import check_writable
from logsparse.data.findings import findings_of
from logsparse.data.frame import Data
from logsparse.data.health import Health
from logsparse.errors import ConfigError, DataError, a_path
from logsparse.evaluation.metrics import STEP
from logsparse.evaluation.results import ResultColumns, read_results
from logsparse.forecast import Forecaster
from logsparse.reporting.charts import NARROW, WIDE, calibration_chart, fan_chart, inline, losses_chart, steps_chart
from logsparse.reporting.numbers import NAIVE_PREFIX, Compared, Results, Shown, format_time, shown_series
from logsparse.reporting.sections import (
    MEANINGS,
    NAIVE_NAME,
    calibration_sentence,
    change,
    comparison,
    count,
    flat,
    format_number,
    headline,
    label,
    percent,
    shortened,
    ties_note,
    verdict,
    wins_sentence,
)
from logsparse.storage import unwritable, write_whole

TEMPLATE = "report.html.j2"
# Most rows of a table.
ROWS_SHOWN = 50
FINDINGS_SHOWN = 10
COLUMNS = ("nd", f"{NAIVE_PREFIX}nd", "mase", "rmse", f"{NAIVE_PREFIX}rmse", "coverage_80")

Section = dict[str, Any]


def page(found: Results | Compared, model: Forecaster | None, importance: Data | None, title: str | None) -> Section:
    """Return the content of the page: the variables of the template. Of several models, the best has its forecasts."""
    own = "" if model is None else type(model).__name__
    name, results = found.best if isinstance(found, Compared) else (own or "model", found)
    several = isinstance(found, Compared) and len(found.models) > 1
    return {
        "title": title or "Forecast report",
        "version": __version__,
        "name": shortened(name),
        "naive": NAIVE_NAME if results.with_naive else "",
        "facts": _facts(results),
        "compared": several,
        **(comparison(found) if isinstance(found, Compared) and several else _alone(results, name)),
        "fans": [_fan(results, shown, number) for number, shown in enumerate(shown_series(results))],
        "ranking": label(results.levels, results.ranking),
        "described": own,
        "rests": None if importance is None else _rests_on(importance),
        **_diagnostics(model),
        "health": None if model is None else _health(model),
    }


def _alone(results: Results, name: str) -> Section:
    """Return the parts that show one model beside seasonal naive."""
    return {
        **_scores(results),
        "steps": _steps(results, name),
        "calibration": _calibration(results) if results.levels else None,
        "tables": [
            *([_intervals(results)] if results.intervals else []),
            _by_series(results),
            _by_cutoff(results),
        ],
    }


def _facts(results: Results) -> list[str]:
    table, scored = results.table, results.overall["count"]
    windows = table.group_by(ID).agg(pl.col(CUTOFF).n_unique())[CUTOFF].max()
    first, last = (format_time(time) for time in (table[TIME].min(), table[TIME].max()))
    missing = table.height - scored
    return [
        count(table[ID].n_unique(), "series", "series"),
        count(int(str(windows)), "window") + (" per series" if windows != 1 else ""),
        count(results.by_step.height, "step") + " ahead",
        count(scored, "value") + " scored" + (f", {missing:,} missing" if missing else ""),
        f"{first} to {last}" if first != last else first,
    ]


def _scores(results: Results) -> Section:
    overall = results.overall
    names = [name for name in MEANINGS if overall.get(name) is not None]
    rows = []
    for name in names:
        error, naive = overall[name], overall.get(NAIVE_PREFIX + name)
        difference = change(error, naive)
        rows.append({
            "name": label(results.levels, name), "meaning": MEANINGS[name][1], "error": format_number(error),
            "naive": format_number(naive) if naive is not None else "", "difference": difference,
            "better": bool(difference) and error < naive, "worse": bool(difference) and error > naive,
        })  # fmt: skip
    first = next(name for name in ("nd", "mae", "wql", "crps_quantiles") if name in names)
    error, naive = overall[first], overall.get(NAIVE_PREFIX + first)
    return {
        "scores": rows,
        "verdict": verdict(label(results.levels, first), error, naive),
        "headline": headline(label(results.levels, first), MEANINGS[first][1], error, naive),
        "wins": wins_sentence(results.wins),
        "better": bool(naive) and error < naive,
        "worse": naive is not None and error > naive,
    }


def _steps(results: Results, name: str) -> Section:
    table = results.by_step
    steps, errors = table[STEP].to_list(), table["error"].to_list()
    naive = table["naive_error"].to_list() if "naive_error" in table.columns else None
    alt = f"Line chart of the error by step of the horizon. {_from_to(name, steps, errors)}"
    if naive is not None:
        alt += f" {_from_to(NAIVE_NAME, steps, naive)}"
    share = " as a share of mean |y|" if results.mean_size else ""
    error = "Mean |error|" if "mae" in results.overall else "CRPS"
    return {
        "picture": inline(steps_chart(steps, {name: errors}, naive), key="steps", alt=alt),
        "caption": f"{error} at each step{share}.",
    }


def _from_to(name: str, steps: list[int], values: list[float | None]) -> str:
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    (first, begin), (last, end) = known[0], known[-1]
    return f"{name}: {format_number(begin)} at step {first}, {format_number(end)} at step {last}."


def _calibration(results: Results) -> Section:
    levels = results.calibration
    observed = "; ".join(f"{100 * e.level:g} %: {percent(e.observed)}" for e in levels)
    return {
        "picture": inline(
            calibration_chart({"observed": levels}),
            key="calibration",
            alt=f"Chart of the share of values below each quantile against its level. {observed}.",
        ),
        "sentence": calibration_sentence(results.intervals, levels),
        "ties": ties_note(levels),
    }


def _intervals(results: Results) -> Section:
    rows = [
        [f"{100 * entry.nominal:g} %", percent(entry.coverage), format_number(entry.width)]
        for entry in results.intervals
    ]
    heads = ["interval", "coverage", "mean width / mean |y|"]
    return {"title": "Coverage of the central intervals", "heads": heads, "rows": rows}


def _fan(results: Results, shown: Shown, number: int) -> Section:
    times = [time for window in shown.windows for time in (window.times[0], window.times[-1])]
    drawn = len(shown.windows)
    error = f"{label(results.levels, results.ranking)} {format_number(shown.error)}"
    name = shortened(shown.name)
    span = " to ".join(dict.fromkeys((_clock(times[0]), _clock(times[-1]))))
    alt = f"Forecast fan and actual values of series {name}, {count(drawn, 'window')}, {span}; {error}."
    levels = list(results.levels.values())
    return {
        "role": shown.role, "name": name,
        "notes": [error, span, *([f"{drawn} of {shown.of_windows} windows"] if drawn < shown.of_windows else [])],
        "wide": inline(fan_chart(shown.windows, levels, WIDE), key=f"fan{number}", alt=alt),
        "narrow": inline(fan_chart(shown.windows, levels, NARROW), key=f"fan{number}n", alt=alt),
    }  # fmt: skip


def _clock(time: Any) -> str:
    return format_time(str(time).replace("T", " "))


def _diagnostics(model: Forecaster | None) -> Section:
    if model is None:
        return {"losses": None, "attention": None, "settings": []}
    diagnostics = model.diagnostics()
    losses = attention = None
    if diagnostics.losses:
        best = min(diagnostics.losses, key=lambda row: row["validation_nll"])
        alt = (
            f"Training and validation loss over {count(int(diagnostics.losses[-1]['step']), 'step')}; "
            f"best validation loss {best['validation_nll']:.4g} at step {best['step']:g}."
        )
        losses = {
            "alt": alt,
            "wide": inline(losses_chart(diagnostics.losses, WIDE), key="loss", alt=alt),
            "narrow": inline(losses_chart(diagnostics.losses, NARROW), key="lossn", alt=alt),
        }
    if diagnostics.attention is not None:
        alt = "Attention: the weight of each step of the history in a forecast."
        attention = inline(diagnostics.attention, key="attention", alt=alt, foreign=True)
    return {"losses": losses, "attention": attention, "settings": flat(diagnostics.settings)}


def _rests_on(importance: Data) -> Section:
    # Imports torch, which a report without it does not need.
    from logsparse.reporting.sections import rests_on

    return rests_on(importance)


def _health(model: Forecaster) -> Section | None:
    """Return the findings about the data that the model was fitted on; None if it has none of them."""
    if not hasattr(model, "panel_") or model.panel_.is_blank:
        return None
    health = Health(len(model.panel_), tuple(findings_of(model.panel_)))
    rows = [
        {"name": shortened(finding.series), "kind": finding.kind, "severity": finding.severity, "text": finding.text}
        for finding in health.findings[:FINDINGS_SHOWN]
    ]
    more = len(health.findings) - len(rows)
    note = f"The worst {len(rows)} of {len(health.findings):,} findings." if more else ""
    return {"sentence": f"In the data that the model was fitted on: {health.summary()}.", "rows": rows, "note": note}


def _by_series(results: Results) -> Section:
    table = results.by_series
    title = f"Scores per series, by {label(results.levels, results.ranking)}"
    if left_out := table.height > ROWS_SHOWN:
        half = ROWS_SHOWN // 2
        title = f"Scores of the {half} best and the {half} worst of {table.height:,} series, by "
        title += label(results.levels, results.ranking)
        table = pl.concat([table.head(half), table.tail(half)])
    return _table(results, table, ID, title, left_out=left_out)


def _by_cutoff(results: Results) -> Section:
    table = results.scores(CUTOFF)
    title = "Scores per cutoff"
    if table.height > ROWS_SHOWN:
        title = f"Scores at the last {ROWS_SHOWN} of {table.height:,} cutoffs"
        table = table.tail(ROWS_SHOWN)
    return _table(results, table, CUTOFF, title)


def _table(results: Results, table: pl.DataFrame, key: str, title: str, *, left_out: bool = False) -> Section:
    names = [name for name in COLUMNS if name in table.columns] or ["wql", "crps_quantiles"]
    heads = [
        f"naive {label(results.levels, name.removeprefix(NAIVE_PREFIX))}" if name.startswith(NAIVE_PREFIX)
        else "80 % coverage" if name == "coverage_80" else label(results.levels, name)
        for name in names
    ]  # fmt: skip
    rows = []
    for row in table.iter_rows(named=True):
        name = row[key] if key == ID else format_time(row[key])
        cells = [(percent if column == "coverage_80" else format_number)(row[column]) for column in names]
        rows.append([shortened(name), f"{row['count']:,}", *cells])
    if left_out:
        rows.insert(len(rows) // 2, ["…", "", *("" for _ in names)])
    return {"title": title, "heads": ["series" if key == ID else "cutoff", "values", *heads], "rows": rows}


def report(
    results: Any,
    out: str | Path,
    *,
    model: Forecaster | None = None,
    importance: Data | None = None,
    title: str | None = None,
    **columns: Unpack[ResultColumns],
) -> Path:
    """Write the results of a backtest as one HTML file.

    The page shows the scores beside those of seasonal naive, the error by step of the horizon, the calibration of the
    quantiles, the forecasts of the best, the median and the worst series, and tables of scores. Results of several
    models (`backtest([a, b], frame)`) are compared: a leaderboard, and the difference of each two models in quantile
    loss with its 95 % interval; the forecasts are those of the best model. It needs no network and contains no script.

    Parameters
    ----------
    results : frame, str or Path
        The frame that `backtest` returns (pandas, polars or pyarrow), or the path of its file. Required are the columns
        unique_id, ds, cutoff, y, and a forecast: mean, quantiles such as q0.5, or both.
    out : str or Path
        File to write, a name in .html. An existing file is replaced once the new one is complete.
    model : Forecaster, optional
        The forecaster that made the results, or one of those. Adds its training losses, attention and settings, and
        the health of its data, to the page.
    importance : frame, str or Path, optional
        `importance(model, ...).frame()`, or the file that `logsparse explain` wrote. Adds what the forecast rests on.
    title : str, optional
        Heading of the page; "Forecast report" if left out.
    **columns
        `id_col`, `time_col`, `target_col`: names of columns, as for `score`.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    DataError
        If the results lack a column or have no value of y, or if `out` cannot be written.
    ConfigError
        If `model` is not a forecaster.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(60), "y": [float(i % 7) for i in range(60)]})
    >>> results = ls.backtest(ls.SeasonalNaive(horizon=7, season=7), frame)
    >>> with TemporaryDirectory() as folder:
    ...     path = ls.report(results, f"{folder}/report.html", title="Last week")
    ...     print(path.name, "<h1>Last week</h1>" in path.read_text())
    report.html True

    """
    path = a_path("A report is written to the path of a file.", out, hint='write report(frame, "report.html").')
    _check_path(path)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            "model must be the forecaster that made the results.",
            got=type(model).__name__,
            hint="pass the fitted model itself, or leave it out.",
        )
    table, *_ = read_results(results, **columns)
    found = Compared.of(table) if MODEL in table.columns else Results(table)
    write_whole(path, _rendered(page(found, model, importance, title)).encode(), "The report")
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
