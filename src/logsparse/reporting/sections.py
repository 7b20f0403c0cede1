"""Scores, settings, results of several models, importance -> the sentences, tables and sections of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import polars as pl

from logsparse.data.columns import CUTOFF, ID, MODEL
from logsparse.data.frame import Data
from logsparse.data.grid import from_native
from logsparse.errors import DataError
from logsparse.evaluation.compare import Interval as Difference
from logsparse.evaluation.compare import Pair, Pairs, compare
from logsparse.evaluation.importance import HIGH, INCREASE, INPUT, KIND, LOW
from logsparse.evaluation.metrics import STEP, ranking
from logsparse.pictures import draw_importance
from logsparse.reporting.charts import NARROW, WIDE, calibration_chart, inline, steps_chart
from logsparse.reporting.numbers import NAIVE_PREFIX, Compared, Interval, Level, format_time

NAIVE_NAME = "seasonal naive"
DASH = "\N{EN DASH}"
# Longer ids and settings are cut to this many characters.
LONGEST = 120
# Coverage this close to nominal counts as calibrated: a few weeks of data do not resolve smaller differences.
TOLERANCE = 0.03
# A larger ratio of errors is given as a multiple, not as a percentage.
LARGEST_PERCENTAGE = 3
# Fewer units than this make intervals that are too narrow.
FEW_UNITS = 5
# In the order of the table: scores that seasonal naive has too come first.
# Scores in the table of models.
SCORES = ("wql", "nd", "mase", "rmse")
# With more pairs than this, those of the best model are shown, and all of them among the details.
PAIRS_SHOWN = 6
# Most rows of a table.
ROWS_SHOWN = 50
# Most inputs of an importance that are shown.
_INPUTS_SHOWN = 12
_NEEDED = (KIND, INPUT, INCREASE, LOW, HIGH)

Section = dict[str, Any]

MEANINGS = {
    "nd": ("ND", "sum of |error| divided by the sum of |y|"),
    "mase": ("MASE", "mean |error| divided by that of seasonal naive before the cutoff"),
    "mae": ("MAE", "mean |error|, in units of y"),
    "rmse": ("RMSE", "root mean squared error of the mean, in units of y"),
    "R0.9": ("R0.9", "loss of the 0.9 quantile divided by the sum of |y|"),
    "wql": ("wQL", "mean loss of all quantiles divided by the sum of |y|"),
    "crps_quantiles": ("CRPS", "mean loss of all quantiles, in units of y"),
}


def format_number(value: float | None) -> str:
    """Return the value with three significant digits, or a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    size = abs(value)
    if size != 0 and (size >= 1e7 or size < 1e-4 or math.isinf(size)):
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    digits = 2 if size == 0 else max(0, 2 - math.floor(math.log10(size)))
    return "0" if size == 0 else f"{value:.{digits}f}"


def label(levels: Mapping[str, float], name: str) -> str:
    """Return the name of a score; ND of the median is called R0.5, as in the paper."""
    return "R0.5" if name == "nd" and 0.5 in levels.values() else MEANINGS[name][0]


def percent(share: float | None) -> str:
    return DASH if share is None else f"{100 * share:.1f} %"


def count(number: int, word: str, many: str | None = None) -> str:
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def change(error: float | None, naive: float | None) -> str:
    """Return the difference between two errors, such as -69.3 %."""
    if error is None or not naive:
        return ""
    ratio = error / naive
    return f"{ratio:,.1f} times" if ratio > LARGEST_PERCENTAGE else signed(100 * (ratio - 1))


def signed(percentage: float) -> str:
    return "0 %" if percentage == 0 else f"{percentage:+.1f} %".replace("-", "\N{MINUS SIGN}")


def verdict(name: str, error: float | None, naive: float | None) -> str:
    """Return the result in a few words, the largest of the page."""
    if error is None or not naive:
        return f"{name} {format_number(error)}"
    ratio = error / naive
    if ratio > LARGEST_PERCENTAGE:
        return f"{ratio:,.1f} times the error of {NAIVE_NAME}"
    if abs(ratio - 1) < 0.005:
        return f"{'The' if ratio == 1 else 'About the'} same error as {NAIVE_NAME}"
    rounded = min(99, round(100 * (1 - ratio))) if 0 < ratio < 1 else round(abs(100 * (ratio - 1)))
    return f"{rounded} % {'higher' if ratio > 1 else 'lower'} error than {NAIVE_NAME}"


def headline(name: str, meaning: str, error: float | None, naive: float | None) -> str:
    """Return the sentence below the verdict: the score, what it means, and that of seasonal naive."""
    sentence = f"{name}, the {meaning}, is {format_number(error)}"
    if naive is None:
        return f"{sentence}."
    return f"{sentence}, against {format_number(naive)} for {NAIVE_NAME}, which repeats the last season."


def wins_sentence(wins: tuple[int, int] | None) -> str:
    """Return on how many series the model is better: a good average may hide many bad series."""
    if wins is None or wins[1] < 2:
        return ""
    return f"The model is better than {NAIVE_NAME} on {wins[0]:,} of {wins[1]:,} series."


def leading(models: int, best: str) -> str:
    """Return who leads the table of several models, the largest words of the page."""
    return f"{best} has the lowest error of {models} models"


def leading_sentence(name: str, scores: Sequence[tuple[str, float]], compared: Pairs) -> str:
    """Return the scores of the best model and of the next, and whether their difference may be chance."""
    (best, lowest), (second, other) = scores[:2]
    meaning, pair = MEANINGS[name][1], compared.pairs[0]
    sentence = f"{MEANINGS[name][0]}, the {meaning}, is {format_number(lowest)} for {best}"
    sentence += f" and {format_number(other)} for {second}, the next."
    if pair.interval is None:
        return sentence
    if compared.units < FEW_UNITS:
        return f"{sentence} {_units(compared)} are too few to rule out chance."
    if pair.better is None:
        return f"{sentence} This difference may be chance: its 95 % interval includes 0."
    return f"{sentence} {shortened(pair.better)} has the lower quantile loss beyond chance."


def interval_text(found: Difference) -> str:
    return f"{signed(100 * found.low)} to {signed(100 * found.high)}"


def pair_verdict(pair: Pair, compared: Pairs) -> str:
    """Return which model is better, unless that may be chance."""
    if pair.interval is None:
        return DASH
    if pair.better is None:
        return "may be chance"
    return f"{shortened(pair.better)} is better" + (" here" if compared.units < FEW_UNITS else "")


def _units(compared: Pairs) -> str:
    return count(compared.units, "cutoff") if compared.unit == CUTOFF else count(compared.units, "series", "series")


def pairs_caption(compared: Pairs) -> str:
    """Return what the differences are, and how their intervals were made."""
    caption = "Quantile loss of the first model relative to the second, over the levels that both have."
    if compared.units < 2:
        return f"{caption} One window of one series gives no interval."
    few = " So few make it too narrow: test more windows." if compared.units < FEW_UNITS else ""
    return f"{caption} The 95 % interval comes from resampling {_units(compared)}, for both models together.{few}"


def calibration_sentence(intervals: Sequence[Interval], levels: Sequence[Level]) -> str:
    """Return the coverage of the widest interval; without intervals, the calibration of the most central level."""
    if not intervals:
        middle = min(levels, key=lambda entry: abs(entry.level - 0.5))
        return f"{percent(middle.observed)} of the values are below the {middle.level:g} quantile."
    widest = intervals[-1]
    within = levels[-1].observed - levels[0].observed if _spans(levels, widest) else widest.coverage
    if abs(within - widest.nominal) <= TOLERANCE:
        judgement = "close to nominal."
    elif within > widest.nominal:
        judgement = "more than nominal, so they are wider than necessary."
    else:
        judgement = "fewer than nominal, so they are too narrow."
    return f"The {100 * widest.nominal:g} % intervals contain {percent(widest.coverage)} of the values: {judgement}"


def coverage_sentence(intervals: Sequence[tuple[str, Interval]]) -> str:
    """Return the coverage of the widest interval of each model."""
    if not intervals:
        return "The share of values below each quantile."
    listed = ", ".join(f"{percent(widest.coverage)} for {name}" for name, widest in intervals)
    nominals = " and ".join(f"{nominal:g} %" for nominal in sorted({100 * widest.nominal for _, widest in intervals}))
    return f"The {nominals} intervals contain {listed} of the values."


def _spans(levels: Sequence[Level], interval: Interval) -> bool:
    return math.isclose(levels[-1].level - levels[0].level, interval.nominal, abs_tol=1e-6)


def ties_note(levels: Sequence[Level]) -> str:
    """Return a note on data with many repeated values, such as zeros at night."""
    most = max((entry.tied for entry in levels), default=0.0)
    if most < 0.01:
        return ""
    return (
        f"Up to {percent(most)} of the values equal a quantile, such as zeros that were predicted exactly. "
        "The chart spreads them evenly over the levels they equal."
    )


def shortened(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def flat(settings: Any, path: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of dotted names and values: model.layers, 3."""
    if is_dataclass(settings) and not isinstance(settings, type):
        settings = asdict(settings)
    if isinstance(settings, dict) and (settings or not path):
        below = (flat(value, f"{path}.{name}" if path else str(name)) for name, value in settings.items())
        return [row for rows in below for row in rows]
    return [(path, shortened(settings))]


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


def rests_on(importance: Data) -> dict[str, Any]:
    """Return picture and sentence, from the frame or file that `Importance.frame` returned."""
    table, _ = from_native(importance)
    missing = [name for name in _NEEDED if name not in table.columns]
    wrong = [name for name in (INCREASE, LOW, HIGH) if not missing and not table[name].dtype.is_numeric()]
    if missing or wrong or not table.height:
        raise DataError(
            f"An importance must have rows with the columns {', '.join(_NEEDED)}.",
            got=f"no {missing[0]}" if missing else f"no numbers in {wrong[0]}" if wrong else "no rows",
            hint="pass importance(model, frame).frame(), or the file that `logsparse explain -o FILE` wrote.",
        )
    rows = table.select(pl.col(KIND, INPUT).cast(pl.String), INCREASE, LOW, HIGH).head(_INPUTS_SHOWN).rows(named=True)
    sentence = _sentence(rows)
    height = 0.8 + 0.3 * len(rows)
    return {
        "sentence": sentence,
        "wide": inline(draw_importance(rows, (WIDE[0], height)), key="rests", alt=sentence),
        "narrow": inline(draw_importance(rows, (NARROW[0], height)), key="restsn", alt=sentence),
    }


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    found = [row for row in rows if row[LOW] is not None and row[LOW] > 0]
    if not found:
        return "Without any one of its inputs the forecasts are as good, as far as these windows show."
    named = [f"{100 * row[INCREASE]:.0f} % without {row[INPUT]}" for row in found[:3]]
    listed = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    return f"The quantile loss on held-back windows is higher by {listed}."
