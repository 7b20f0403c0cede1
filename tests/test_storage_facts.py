"""Values of a saved file are returned unchanged, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.storage import (
    InvalidContentError,
    array,
    entries,
    ids,
    number,
    numbers,
    text,
    texts,
    whole_number,
    wholes,
)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(value=ANYTHING | st.lists(st.integers(), max_size=3) | st.lists(st.text(max_size=3), max_size=3))
def test_any_value_is_returned_unchanged_or_refused_by_name(value: Any) -> None:
    for check in (
        lambda: whole_number("it", value, -5, 5),
        lambda: number("it", value),
        lambda: text("it", value),
        lambda: list(texts("it", value)),
        lambda: list(ids("it", value)),
        lambda: wholes("it", value, 2, -(2**62), 2**62).tolist(),
        lambda: list(numbers("it", value, 2)),
        lambda: entries("it", value, "a"),
    ):
        try:
            found, said = check(), ""
        except InvalidContentError as error:
            found, said = value, str(error)
        assert found == value
        assert not said or said.startswith("it must be ")
        assert "\n" not in said


def test_booleans_are_not_numbers_and_long_values_are_shortened() -> None:
    with pytest.raises(InvalidContentError, match="it must be a whole number from 0 to 1, not True"):
        whole_number("it", True, 0, 1)
    with pytest.raises(InvalidContentError, match=r"not 'xxx.*x\.\.\.$"):
        whole_number("it", "x" * 1_000, 0, 1)


def test_arrays_have_the_shape_and_type_that_they_must_have() -> None:
    good = np.array([1, np.nan], np.float32)
    assert array("it", good, (2,), np.float32) is good
    for bad, must in (
        (good[:1], r"of shape \(2,\), not \(1,\)"),
        (good.astype(np.float64), "of type float32"),
        (np.array([1, np.inf], np.float32), "without infinities"),
    ):
        with pytest.raises(InvalidContentError, match=f"it must be {must}"):
            array("it", bad, (2,), np.float32)
