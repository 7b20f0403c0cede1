"""Results of several models, best first -> the parts of a report that compare them."""

from __future__ import annotations

from typing import Any

import polars as pl

from logsparse.data.columns import CUTOFF, ID, MODEL
from logsparse.evaluation.compare import Pair, Pairs, compare
from logsparse.evaluation.metrics import STEP, ranking
from logsparse.reporting.charts import calibration_chart, inline, steps_chart
from logsparse.reporting.numbers import NAIVE_PREFIX, Compared, format_time
from logsparse.reporting.words import (
    MEANINGS,
    NAIVE_NAME,
    count,
    coverage_sentence,
    format_number,
    interval_text,
    label,
    leading,
    leading_sentence,
    pair_verdict,
    pairs_caption,
    percent,
    shortened,
    signed,
)

# Scores in the table of models.
SCORES = ("wql", "nd", "mase", "rmse")
# With more pairs than this, those of the best model are shown, and all of them among the details.
PAIRS_SHOWN = 6
# Most rows of a table.
ROWS_SHOWN = 50

Section = dict[str, Any]


def comparison(found: Compared) -> Section:
    """Return the variables of the template that show several models."""
    pairs = compare({name: results.table for name, results in found.models.items()})
    few = len(pairs.pairs) <= PAIRS_SHOWN
    best = [pair for pair in pairs.pairs if few or pair.first == found.best[0]]
    return {
        **_summary(found, pairs),
        "models": _models(found),
        "pairs": _pairs(pairs, best),
        "steps": _steps(found),
        "calibration": _calibration(found),
        "tables": [
            *([] if few else [_pairs(pairs, pairs.pairs)]),
            *_coverage(found),
            _by_series(found),
            _by_cutoff(found),
        ],
    }


def _summary(found: Compared, pairs: Pairs) -> Section:
    rank = ranking(found.board)
    best, _ = found.best
    if rank is None:
        return {"verdict": count(len(found.models), "model"), "headline": "They have no score in common."}
    scores = [(shortened(name), value) for name, value in found.board.select(MODEL, rank).iter_rows()]
    return {
        "verdict": leading(len(scores), shortened(best)),
        "headline": leading_sentence(rank, scores, pairs),
    }


def _models(found: Compared) -> Section:
    """Return the leaderboard as a table; the best of each score is marked, and seasonal naive is the last row."""
    board, (_, best) = found.board, found.best
    names = [name for name in SCORES if name in board.columns and board[name].null_count() < board.height]
    lowest = {name: board[name].min() for name in names}
    wins = _wins(found)
    covered, skilled = "coverage_80" in board.columns, "skill" in board.columns
    titles = {name: label(best.levels, name) for name in names}
    heads = [*titles.values(), *(["80 % coverage"] if covered else [])]
    heads += [*([f"error against {NAIVE_NAME}"] if skilled else []), *(["best on"] if wins else [])]
    rows = []
    for row in board.iter_rows(named=True):
        cells = [(format_number(row[name]), row[name] == lowest[name]) for name in names]
        cells += [(percent(row["coverage_80"]), False)] if covered else []
        if skilled:
            cells.append(("" if row["skill"] is None else signed(-100 * row["skill"]), False))
        cells += [(wins[row[MODEL]], False)] if wins else []
        rows.append({"name": shortened(row[MODEL]), "cells": cells, "muted": False})
    if best.with_naive:
        cells = [(_or_blank(best.overall.get(NAIVE_PREFIX + name)), False) for name in names]
        rows.append({"name": NAIVE_NAME, "cells": cells + [("", False)] * (len(heads) - len(names)), "muted": True})
    meanings = [f"{titles[name]}: {MEANINGS[name][1]}." for name in names]
    return {"heads": ["model", *heads], "rows": rows, "meanings": " ".join(meanings)}


def _or_blank(value: float | None) -> str:
    return "" if value is None else format_number(value)


def _wins(found: Compared) -> dict[str, str]:
    """Return on how many series each model has the lowest error; empty for fewer than two series."""
    errors = found.errors(ID)
    table = pl.DataFrame([column["error"].alias(str(place)) for place, column in enumerate(errors.values())])
    known = table.drop_nulls()
    if known.height < 2:
        return {}
    # The first of equal errors wins: the better model overall.
    winners = known.select(pl.concat_list(pl.all()).list.arg_min()).to_series()
    counts = [int((winners == place).sum()) for place in range(len(errors))]
    return {name: f"{won:,} of {known.height:,} series" for name, won in zip(errors, counts, strict=True)}


def _pairs(found: Pairs, pairs: list[Pair]) -> Section:
    rows = []
    for pair in pairs[:ROWS_SHOWN]:
        name = f"{shortened(pair.first)} against {shortened(pair.second)}"
        texts = [signed(100 * pair.interval.change), interval_text(pair.interval)] if pair.interval else ["", ""]
        rows.append([name, *texts, pair_verdict(pair, found)])
    heads = ["models", "quantile loss", "95 % interval", "verdict"]
    first = f"The first {ROWS_SHOWN} of {len(pairs)} pairs" if len(pairs) > ROWS_SHOWN else f"All {len(pairs)} pairs"
    return {"title": f"{first} of models", "caption": pairs_caption(found), "heads": heads, "rows": rows}


def _steps(found: Compared) -> Section:
    """Return the errors by step in one chart: of a point forecast, or CRPS if the best model has none."""
    _, best = found.best
    kind = "mae" in best.overall
    tables = {name: results.by_step for name, results in found.models.items() if ("mae" in results.overall) == kind}
    first = best.by_step
    naive = first["naive_error"].to_list() if "naive_error" in first.columns else None
    errors = {name: table["error"].to_list() for name, table in tables.items()}
    means = {shortened(name): table["error"].mean() for name, table in tables.items()}
    alt = "Line chart of the error by step of the horizon. Mean over the steps: "
    alt += ", ".join(f"{name} {format_number(value)}" for name, value in means.items())  # type: ignore[arg-type]
    share = " as a share of mean |y|" if best.mean_size else ""
    return {
        "picture": inline(steps_chart(first[STEP].to_list(), errors, naive), key="steps", alt=f"{alt}."),
        "caption": f"{'Mean |error|' if kind else 'CRPS'} at each step{share}.",
    }


def _calibration(found: Compared) -> Section | None:
    with_levels = {name: results for name, results in found.models.items() if len(results.levels) > 1}
    if not with_levels:
        return None
    sentence = coverage_sentence(
        [(shortened(name), results.intervals[-1]) for name, results in with_levels.items() if results.intervals]
    )
    alt = f"Chart of the share of values below each quantile against its level, one line per model. {sentence}"
    chart = calibration_chart({name: results.calibration for name, results in with_levels.items()})
    return {"picture": inline(chart, key="calibration", alt=alt), "sentence": sentence, "ties": ""}


def _coverage(found: Compared) -> list[Section]:
    """Return the coverage and width of each central interval, models side by side."""
    with_intervals = {name: results.intervals for name, results in found.models.items() if results.intervals}
    nominals = sorted({entry.nominal for entries in with_intervals.values() for entry in entries})
    if not nominals:
        return []
    rows = []
    for nominal in nominals:
        cells = []
        for entries in with_intervals.values():
            entry = next((entry for entry in entries if entry.nominal == nominal), None)
            cells.append("" if entry is None else f"{percent(entry.coverage)} ({format_number(entry.width)})")
        rows.append([f"{100 * nominal:g} %", *cells])
    title = "Coverage of the central intervals (mean width / mean |y|)"
    return [{"title": title, "heads": ["interval", *map(shortened, with_intervals)], "rows": rows}]


def _by_series(found: Compared) -> Section:
    title, rows = _rows(found, ID)
    if (height := len(rows)) > ROWS_SHOWN:
        half = ROWS_SHOWN // 2
        title += f", of the {half} best and the {half} worst of {height:,} series"
        rows = [*rows[:half], ["…", *("" for _ in found.models)], *rows[-half:]]
    return {"title": title, "heads": ["series", *map(shortened, found.models)], "rows": rows}


def _by_cutoff(found: Compared) -> Section:
    title, rows = _rows(found, CUTOFF)
    if (height := len(rows)) > ROWS_SHOWN:
        title += f", at the last {ROWS_SHOWN} of {height:,} cutoffs"
        rows = rows[-ROWS_SHOWN:]
    return {"title": title, "heads": ["cutoff", *map(shortened, found.models)], "rows": rows}


def _rows(found: Compared, by: str) -> tuple[str, list[list[str]]]:
    """Return a title, and the error of each model in each row; series are in order of the best model's error."""
    tables = list(found.errors(by).values())
    columns = [table["error"].alias(str(place)) for place, table in enumerate(tables)]
    table = pl.DataFrame([tables[0][by].alias("key"), *columns])
    if by == ID:
        table = table.sort("0", nulls_last=True, maintain_order=True)
    rows = []
    for key, *values in table.iter_rows():
        name = shortened(key) if by == ID else format_time(key)
        rows.append([name, *(format_number(value) for value in values)])
    return f"{label(found.best[1].levels, found.error)} per {'series' if by == ID else 'cutoff'}", rows
