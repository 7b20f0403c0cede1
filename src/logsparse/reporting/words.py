"""Numbers -> the plain sentences and figures of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from logsparse.reporting.numbers import Interval, Level

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
