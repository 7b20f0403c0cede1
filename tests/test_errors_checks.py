"""Wrong settings are refused by name, with a hint."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from logsparse.errors import ConfigError, above_zero, keywords, listed, suggest, truth, whole


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_whole_numbers_of_any_library_pass(value: int) -> None:
    assert whole("windows", value, hint="count.") == value


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float64(2)])
def test_what_is_not_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^windows must be a whole number. Got .*Hint: count\.$"):
        whole("windows", value, hint="count.")


@pytest.mark.parametrize("value", [10**5000, -(10**5000), [10**5000], Fraction(10**5000, 3)], ids=lambda _: "huge")
def test_a_number_too_long_to_print_is_refused_like_any_other(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^windows must be .* Got a .*Hint: count\.$"):
        whole("windows", value, most=9, hint="count.")
    with pytest.raises(ConfigError, match=r"^minutes must be a number above 0. Got a .*Hint: leave it out\.$"):
        above_zero("minutes", value, hint="leave it out.")
    with pytest.raises(ConfigError, match=r"^verbose must be True or False. Got a "):
        truth("verbose", value)


def test_a_name_that_is_a_number_too_long_to_print_is_refused() -> None:
    for value in (10**5000, [10**5000]):
        with pytest.raises(ConfigError, match=r"^static must be a list of column names. Got a .*Hint: write static="):
            listed("static", value)


@pytest.mark.parametrize("value", [np.float32(0.5), 0.5, np.float16(0.5), Fraction(1, 2)])
def test_numbers_of_any_library_become_plain(value: Any) -> None:
    kept = above_zero("minutes", value, hint="leave it out.")
    assert kept == 0.5
    assert type(kept) is float
    assert type(whole("horizon", np.uint8(5), hint="count.")) is int
    assert truth("verbose", np.True_) is True


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, -1, "1", True, None])
def test_what_is_not_a_finite_number_above_zero_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^minutes must be a number above 0. Got .*Hint: leave it out\.$"):
        above_zero("minutes", value, hint="leave it out.")


@pytest.mark.parametrize("value", ["no", 0, 1, None, np.array([True])])
def test_what_is_not_a_boolean_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^verbose must be True or False. Got .*Hint: write verbose=False"):
        truth("verbose", value)


@pytest.mark.parametrize(
    "value",
    [
        ["b", "a"],
        ("b", "a"),
        np.array(["b", "a"]),
        pd.Index(["b", "a"]),
        pl.Series(["b", "a"]),
        (name for name in "ba"),
        {"b": 1, "a": 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_names_come_in_any_kind_of_list_and_keep_their_order(value: Any) -> None:
    assert listed("static", value) == ["b", "a"]


def test_names_in_a_set_are_sorted() -> None:
    assert listed("static", set("hgfedcba")) == listed("static", frozenset("abcdefgh")) == list("abcdefgh")


def test_names_are_a_list_or_nothing() -> None:
    assert listed("static", None) == []
    assert listed("static", ("a", 5)) == ["a", "5"]
    for value in ("heat", b"heat", 5, np.array("heat")):
        with pytest.raises(ConfigError, match=r"static must be a list of column names. Got .* Hint: write static="):
            listed("static", value)


def test_an_unknown_keyword_gets_a_suggestion_if_one_is_near() -> None:
    keywords(["freq"], ["freq", "static"])
    with pytest.raises(ConfigError, match=r"Got the unknown keyword 'frq'. Hint: did you mean 'freq'"):
        keywords(["frq"], ["freq", "static"])
    assert suggest("xyz", ["freq"], "leave it out.") == "leave it out."
