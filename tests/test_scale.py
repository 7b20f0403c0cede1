"""The scale of a history, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from logsparse.data.calendar import Freq
from logsparse.data.panel import Floats, Panel
from logsparse.data.scale import Doubles, Scaling, centre_and_scale, mean_sizes

KINDS = ["one-plus-mean", "mean", "deviation"]
values = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.one_of(
        st.just(np.float32(np.nan)), st.floats(-(2.0**100), 2.0**100, width=32), st.floats(-2, 2, width=32)
    ),
)


ONE = np.ones(1)


def scale(values_BC: Floats, observed_BC: NDArray[np.bool_], kind: str = "one-plus-mean") -> Doubles:
    return centre_and_scale(values_BC, observed_BC, kind, ONE)[1]


def one_series(values_T: Floats) -> Panel:
    number = np.zeros(1, np.int64)
    size = len(values_T)
    return Panel(values_T, np.array([0, size]), np.array([size]), ("a",), number, Freq("index", 1))


def along(values_T: Floats, context: int, kind: str = "one-plus-mean") -> Doubles:
    """The scale of every history of `context` neighbouring steps."""
    place_B = np.arange(len(values_T) - context + 1)
    scaling = Scaling(one_series(values_T), context, kind)
    return scaling.along(values_T, place_B, np.zeros_like(place_B), place_B + context, steps=context)


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
    assert along(nothing_BC[0], 4) == 1


def test_values_that_are_not_observed_do_not_count_whatever_they_are() -> None:
    values_BC = np.array([[2, np.inf, np.nan, 1e38]], np.float32)
    assert scale(values_BC, np.array([[True, False, False, False]])) == 3


@pytest.mark.parametrize("kind", ["mean", "deviation"])
def test_tiny_values_have_a_scale_that_can_be_divided_by(kind: str) -> None:
    values_BC = np.array([[1e-44, 3e-44], [2e-36, 2e-36], [2e-30, 4e-30]], np.float32)
    found = scale(values_BC, np.ones((3, 2), bool), kind)
    assert found[:2].tolist() == [1e6 * float(np.finfo(np.float32).tiny)] * 2
    assert 0.9e-30 <= found[2] <= 3.1e-30


some = st.one_of(st.just(0.0), st.just(np.nan), st.floats(-100, 100).map(lambda x: round(x, 3)))
histories = hnp.arrays(np.float32, (3, 5), elements=some.map(np.float32))
histories_BC = st.one_of(histories, histories.map(np.zeros_like))


@given(power=st.integers(-60, 60), values_BC=histories_BC, kind=st.sampled_from(["mean", "deviation"]))
def test_centre_and_scale_follow_the_unit_of_the_data_exactly(power: int, values_BC: Floats, kind: str) -> None:
    seen_BC, unit_B = ~np.isnan(values_BC), np.array([1.5, 2.0, 700.0])
    centre_B, scale_B = centre_and_scale(values_BC, seen_BC, kind, unit_B)
    other = centre_and_scale(values_BC * np.float32(2.0**power), seen_BC, kind, unit_B * 2.0**power)
    np.testing.assert_array_equal(other[0], centre_B * 2.0**power)
    np.testing.assert_array_equal(other[1], scale_B * 2.0**power)


@pytest.mark.parametrize(("kind", "expected"), [("mean", 700.0), ("deviation", 700.0), ("one-plus-mean", 1.0)])
def test_a_history_of_zeros_has_the_unit_as_its_scale(kind: str, expected: float) -> None:
    zeros_BC = np.zeros((1, 5), np.float32)
    centre_B, scale_B = centre_and_scale(zeros_BC, np.ones((1, 5), bool), kind, np.array([700.0]))
    assert (centre_B.tolist(), scale_B.tolist()) == ([0], [expected])


def test_the_mean_size_of_a_series_is_that_of_the_values_seen_in_its_first_steps() -> None:
    panel = one_series(np.array([0, -4, np.nan, 2, 1e9], np.float32))
    assert mean_sizes(panel, np.array([4])).tolist() == [2]
    assert mean_sizes(panel, np.array([1])).tolist() == mean_sizes(panel, np.array([-3])).tolist() == [0]


def test_a_small_wave_on_a_high_level_is_as_large_as_any_other() -> None:
    wave = np.sin(np.arange(24) * np.pi / 12)
    seen = np.ones((2, 24), bool)
    centre, size = centre_and_scale(np.stack((wave, 1000 + 3 * wave)), seen, "deviation", ONE)
    np.testing.assert_allclose(centre, [0, 1000], atol=1e-9)
    np.testing.assert_allclose(size, np.array([1, 3]) * np.abs(wave).mean())


def test_a_constant_history_has_a_scale_above_zero() -> None:
    values_BC = np.repeat(np.array([[5], [0], [7]], np.float32), 40, axis=1)
    observed_BC = np.repeat([[True], [True], [False]], 40, axis=1)
    centre, size = centre_and_scale(values_BC, observed_BC, "deviation", ONE)
    np.testing.assert_allclose(centre, [5, 0, 0])
    np.testing.assert_allclose(size, [0.005, 1, 1])
    np.testing.assert_allclose(scale(values_BC, observed_BC, "mean"), [5, 1, 1])


def test_a_history_of_few_values_has_a_larger_least_deviation() -> None:
    still = np.full((1, 10), 50, np.float32)
    sizes = [scale(still, np.arange(10)[None] < seen, "deviation").item() for seen in (1, 2, 5, 10)]
    np.testing.assert_allclose(sizes, [50, 12.5, 2, 0.5])


@given(values_T=values, data=st.data(), kind=st.sampled_from(KINDS))
def test_the_scale_along_a_series_is_the_scale_of_each_history(
    values_T: Floats, data: st.DataObject, kind: str
) -> None:
    context = data.draw(st.integers(1, len(values_T)))
    histories_BC = np.lib.stride_tricks.sliding_window_view(values_T, context)
    seen_B = ~np.isnan(histories_BC).all(axis=1)
    found, expected = along(values_T, context, kind), scale(histories_BC, ~np.isnan(histories_BC), kind)
    np.testing.assert_allclose(found[seen_B], expected[seen_B], rtol=1e-12)
    if kind == "one-plus-mean":
        np.testing.assert_allclose(found[seen_B], [by_definition(z) for z in histories_BC[seen_B]], rtol=1e-12)


@given(values_T=values, data=st.data(), kind=st.sampled_from(KINDS))
def test_an_empty_history_has_the_centre_and_scale_of_the_last_values_before_it(
    values_T: Floats, data: st.DataObject, kind: str
) -> None:
    context = data.draw(st.integers(1, len(values_T)))
    gap = np.full(context + 3, np.nan, np.float32)
    panel = one_series(np.concatenate((values_T, gap)))
    nothing_BC = np.full((1, context), np.nan, np.float32)
    series, start = np.zeros(1, np.int64), np.array([len(values_T) + context])
    seen = np.flatnonzero(~np.isnan(values_T))
    last = values_T[max(0, seen[-1] + 1 - context) : seen[-1] + 1] if len(seen) else values_T[:0]
    expected = centre_and_scale(last[None], ~np.isnan(last)[None], kind, ONE)
    found = Scaling(panel, context, kind)(nothing_BC, ~np.isnan(nothing_BC), series, start)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(along(panel[0], context, kind)[-1:], expected[1], rtol=1e-12)


def test_a_huge_value_does_not_blur_the_scale_of_later_histories() -> None:
    values_T = np.array([1e30, 1, 2, 3, 4, 5], np.float32)
    np.testing.assert_array_equal(along(values_T, 2)[1:], [2.5, 3.5, 4.5, 5.5])
