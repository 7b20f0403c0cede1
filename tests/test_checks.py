"""Settings are refused by their names, with the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from logsparse.checks import keywords, listed, suggest, whole
from logsparse.errors import ConfigError


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_whole_numbers_of_any_library_pass(value: int) -> None:
    assert whole("windows", value, hint="count.") == value


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float64(2)])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^windows must be a whole number. Got .*Hint: count\.$"):
        whole("windows", value, hint="count.")


def test_names_are_a_list_or_nothing() -> None:
    assert listed("static", None) == []
    assert listed("static", ("a", 5)) == ["a", "5"]
    for value in ("heat", 5):
        with pytest.raises(ConfigError, match=r"static must be a list of column names. Got .* Hint: write static="):
            listed("static", value)


def test_an_unknown_keyword_gets_a_suggestion_if_one_is_near() -> None:
    keywords(["freq"], ["freq", "static"])
    with pytest.raises(ConfigError, match=r"Got the unknown keyword 'frq'. Hint: did you mean 'freq'"):
        keywords(["frq"], ["freq", "static"])
    assert suggest("xyz", ["freq"], "leave it out.") == "leave it out."
