"""The sentences of a report agree with its numbers, edge cases included."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from logsparse.reporting import words
from logsparse.reporting.numbers import Interval, Level


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),  # noqa: RUF001
        (float("nan"), "–"),  # noqa: RUF001
        (0.0, "0"),
        (0.12649, "0.126"),
        (0.41, "0.410"),
        (0.0483, "0.0483"),
        (12.345, "12.3"),
        (-123.4, "-123"),
        (12345.6, "12,346"),
        (1.234e9, "1.23e+09"),
        (1e-6, "1e-06"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert words.format_number(value) == text


@pytest.mark.parametrize(
    ("error", "naive", "verdict", "change"),
    [
        (0.126, 0.41, "69 % lower error than seasonal naive", "\N{MINUS SIGN}69.3 %"),
        (0.5, 0.4, "25 % higher error than seasonal naive", "+25.0 %"),
        (0.4, 0.4, "The same error as seasonal naive", "0 %"),
        (0.4001, 0.4, "About the same error as seasonal naive", "+0.0 %"),
        (4.0, 0.4, "10.0 times the error of seasonal naive", "10.0 times"),
        (0.0, 0.4, "100 % lower error than seasonal naive", "\N{MINUS SIGN}100.0 %"),
        (0.001, 0.4, "99 % lower error than seasonal naive", "\N{MINUS SIGN}99.8 %"),
        (0.4, 0.0, "R0.5 0.400", ""),
        (0.4, None, "R0.5 0.400", ""),
    ],
)
def test_an_error_is_compared_with_that_of_seasonal_naive(
    error: float, naive: float | None, verdict: str, change: str
) -> None:
    assert words.verdict("R0.5", error, naive) == verdict
    assert words.change(error, naive) == change


def test_the_headline_names_the_score_and_both_values() -> None:
    assert words.headline("R0.5", "sum of things", 0.126, 0.41) == (
        "R0.5, the sum of things, is 0.126, against 0.410 for seasonal naive, which repeats the last season."
    )
    assert words.headline("R0.5", "sum of things", 0.126, None) == "R0.5, the sum of things, is 0.126."


@pytest.mark.parametrize(
    ("coverage", "observed", "judgement"),
    [
        (0.79, (0.1, 0.89), "close to nominal"),
        (0.9, (0.05, 0.95), "more than nominal, so they are wider than necessary"),
        (0.5, (0.3, 0.8), "fewer than nominal, so they are too narrow"),
        # Half of the values are zeros that were predicted exactly: all are inside, and say nothing about the width.
        (0.9, (0.1, 0.9), "close to nominal"),
    ],
)
def test_the_widest_interval_is_judged_by_its_nominal_coverage(
    coverage: float, observed: tuple[float, float], judgement: str
) -> None:
    levels = [Level(0.1, observed[0], 0.0), Level(0.9, observed[1], 0.0)]
    sentence = words.calibration_sentence([Interval(0.8, coverage, 1.0)], levels)
    assert sentence == f"The 80 % intervals contain {100 * coverage:.1f} % of the values: {judgement}."


def test_without_an_interval_the_most_central_level_is_described() -> None:
    levels = [Level(0.4, 0.3, 0.0), Level(0.95, 0.9, 0.0)]
    assert words.calibration_sentence([], levels) == "30.0 % of the values are below the 0.4 quantile."


def test_ties_are_mentioned_only_if_there_are_some() -> None:
    assert words.ties_note([Level(0.5, 0.5, 0.001)]) == ""
    assert words.ties_note([Level(0.5, 0.5, 0.25)]).startswith("Up to 25.0 % of the values equal a quantile, such as")


def test_nested_settings_become_rows_of_dotted_names() -> None:
    @dataclass
    class Model:
        layers: int = 3

    rows = words.flat({"horizon": 24, "config": {"model": Model(), "empty": {}}, "long": "x" * 999})
    assert rows[:3] == [("horizon", "24"), ("config.model.layers", "3"), ("config.empty", "{}")]
    assert len(rows[3][1]) == words.LONGEST
    assert words.flat({}) == []
