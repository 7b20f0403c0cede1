"""Scores and settings -> the words of a report: numbers, verdicts, sentences, rows of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from logsparse.data.columns import CUTOFF
from logsparse.evaluation.bootstrap import Interval as Difference
from logsparse.evaluation.compare import Pair, Pairs
from logsparse.reporting.numbers import Interval, Level

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
