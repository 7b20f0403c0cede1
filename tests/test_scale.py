"""The scale of a history, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logsparse.data.panel import Floats
from logsparse.data.scale import rolling_scale, scale

values = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.one_of(
        st.just(np.float32(np.nan)), st.floats(-(2.0**100), 2.0**100, width=32), st.floats(-2, 2, width=32)
    ),
)


def by_definition(history: Floats) -> float:
    seen = [abs(float(z)) for z in history if not np.isnan(z)]
    return 1 + sum(seen) / len(seen) if seen else 1.0


def test_scale_is_one_plus_the_mean_size_of_what_was_observed() -> None:
    values_BC = np.array([[1, -3, 5], [1, -3, 5], [0, 0, 0]], np.float32)
    observed_BC = np.array([[True, True, True], [True, True, False], [True, True, True]])
    np.testing.assert_array_equal(scale(values_BC, observed_BC), [4, 3, 1])


def test_a_history_without_observations_has_scale_one() -> None:
    nothing_BC = np.full((1, 4), np.nan, np.float32)
    assert scale(nothing_BC, ~np.isnan(nothing_BC)) == 1
    assert rolling_scale(nothing_BC[0], 4) == 1


def test_values_that_are_not_observed_do_not_count_whatever_they_are() -> None:
    values_BC = np.array([[2, np.inf, np.nan, 1e38]], np.float32)
    assert scale(values_BC, np.array([[True, False, False, False]])) == 3


@given(factor=st.floats(1e-6, 1e6), history=hnp.arrays(np.float64, 5, elements=st.floats(-100, 100)))
def test_without_the_one_the_scale_follows_the_unit_of_the_data(factor: float, history: Floats) -> None:
    seen = np.ones((1, 5), bool)
    mean = np.abs(history).mean()
    found = scale(history[None] * factor, seen, plus_one=False)
    np.testing.assert_allclose(found, mean * factor if mean * factor > 0 else 1.0, rtol=1e-9)


def test_without_the_one_a_history_of_zeros_or_of_nothing_has_scale_one() -> None:
    zeros_BC = np.zeros((2, 3), np.float32)
    observed_BC = np.array([[True] * 3, [False] * 3])
    np.testing.assert_array_equal(scale(zeros_BC, observed_BC, plus_one=False), [1, 1])


@given(values_T=values, data=st.data())
def test_rolling_scale_is_the_scale_of_each_history(values_T: Floats, data: st.DataObject) -> None:
    context = data.draw(st.integers(1, len(values_T)))
    expected = [by_definition(values_T[i : i + context]) for i in range(len(values_T) - context + 1)]
    np.testing.assert_allclose(rolling_scale(values_T, context), expected, rtol=1e-12)


def test_a_huge_value_does_not_blur_the_scale_of_later_histories() -> None:
    values_T = np.array([1e30, 1, 2, 3, 4, 5], np.float32)
    np.testing.assert_array_equal(rolling_scale(values_T, 2)[1:], [2.5, 3.5, 4.5, 5.5])


@pytest.mark.parametrize("context", [1, 3, 7])
def test_both_ways_to_the_scale_agree(context: int) -> None:
    values_T = np.random.default_rng(0).normal(size=50).astype(np.float32)
    histories_BC = np.lib.stride_tricks.sliding_window_view(values_T, context)
    np.testing.assert_allclose(
        rolling_scale(values_T, context), scale(histories_BC, ~np.isnan(histories_BC)), rtol=1e-14
    )
