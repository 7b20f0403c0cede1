"""A later panel gets the numbers, ages and categories of training; new ones are unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import small
from logsparse.data.calendar import Freq
from logsparse.data.features import Features
from logsparse.data.panel import Panel, Static
from logsparse.data.series_index import SeriesIndex

HOUR = 3_600_000_000


def named(ids: tuple[str, ...], starts: list[int], colours: tuple[str, ...] | None = None) -> Panel:
    panel = small.panel(series=len(ids), steps=40, missing=0)
    static = {}
    if colours:
        kinds = tuple(dict.fromkeys(colours))
        static = {"colour": Static(np.array([kinds.index(c) for c in colours]), kinds)}
    return replace(panel, ids=ids, starts=np.array(starts) * HOUR, static=static, freq=Freq.parse("h"))


def known_of(panel: Panel) -> SeriesIndex:
    return SeriesIndex.of(panel, panel.lengths)


def sized(*sizes: float, ids: tuple[str, ...] = ("a", "b", "c", "d")) -> Panel:
    """Constant series of these values."""
    panel = named(ids[: len(sizes)], [0] * len(sizes))
    return replace(panel, values=np.repeat(np.array(sizes, np.float32), panel.lengths))


def test_known_series_keep_their_numbers_in_any_order_and_new_ones_have_none() -> None:
    known = known_of(named(("a", "b", "c"), [0, 0, 0]))
    assert known.encode(named(("c", "x", "a"), [0, 0, 0])).numbers.tolist() == [2, -1, 0]  # type: ignore[union-attr]


def test_the_age_of_a_time_does_not_depend_on_where_the_history_begins() -> None:
    trained = named(("a", "b"), [0, 5])
    known = known_of(trained)
    later = known.encode(named(("b", "new"), [15, 15]))
    assert later.elapsed is not None
    assert later.elapsed.tolist() == [10, 0]
    features = Features.fit(trained, ["age"])
    series = np.array([0])
    same = features(known.encode(trained), np.array([1]), np.array([[10]])), features(later, series, np.array([[0]]))
    np.testing.assert_array_equal(*same)


def test_categories_are_recoded_and_new_ones_are_unknown() -> None:
    known = known_of(named(("a", "b"), [0, 0], ("red", "blue")))
    encoded = known.encode(named(("a", "b", "c"), [0, 0, 0], ("green", "blue", "red")))
    assert encoded.static["colour"].codes.tolist() == [-1, 1, 0]


def test_new_series_are_joined_after_the_known_ones() -> None:
    known = known_of(named(("a", "b"), [0, 3], ("red", "blue")))
    more = named(("c", "b"), [7, 7], ("green", "blue"))
    joined = known.joined(more, more.lengths)
    assert joined.ids == ("a", "b", "c")
    assert (joined.first_A // HOUR).tolist() == [0, 3, 7]
    assert joined.categories == {"colour": ("red", "blue", "green")}
    again = SeriesIndex.from_dict(joined.to_dict())
    assert (again.ids, again.categories) == (joined.ids, joined.categories)
    assert again.first_A.tolist() == joined.first_A.tolist()
    np.testing.assert_array_equal(again.size_A, joined.size_A)


def test_all_zero_histories_are_scaled_by_the_size_of_their_series_or_of_a_typical_one() -> None:
    known = known_of(sized(0, -3, 8, 100))
    encoded = known.encode(sized(9, 9, 9, 9, ids=("b", "a", "new", "d")))
    assert encoded.units is not None
    assert encoded.units.tolist() == [3, 8, 8, 100]


def test_an_all_zero_panel_has_the_unit_one() -> None:
    encoded = known_of(sized(0, 0)).encode(sized(0, 5))
    assert encoded.units is not None
    assert encoded.units.tolist() == [1, 1]


@given(power=st.integers(-60, 60), sizes=st.lists(st.sampled_from([0.0, 0.1, 3.0, 7.7]), min_size=1, max_size=4))
def test_units_follow_the_unit_of_the_data_exactly(power: int, sizes: list[float]) -> None:
    panel = sized(*sizes)
    other = replace(panel, values=panel.values * np.float32(2.0**power))
    units = [known_of(trained).encode(panel).units for trained in (panel, other)]
    assert units[0] is not None
    np.testing.assert_array_equal(units[1], units[0] * 2.0 ** (power if any(sizes) else 0))


def test_sizes_use_the_training_span_only() -> None:
    panel = sized(2, 5)
    late = replace(panel, values=np.where(np.arange(80) % 40 < 30, panel.values, np.float32(1e30)))
    assert SeriesIndex.of(late, np.array([30, 30])).size_A.tolist() == [2, 5]


def test_known_sizes_stay_and_new_ones_are_joined() -> None:
    more = sized(50, 60, 70, ids=("c", "b", "a"))
    joined = known_of(sized(0, 3)).joined(more, more.lengths)
    assert (joined.ids, joined.size_A.tolist()) == (("a", "b", "c"), [70, 3, 50])


def test_a_model_saved_without_sizes_keeps_the_scale_of_one_it_was_trained_with() -> None:
    state = known_of(sized(4, 5)).to_dict()
    del state["size"]
    encoded = SeriesIndex.from_dict(state).encode(sized(4, 5))
    assert encoded.units is not None
    assert encoded.units.tolist() == [1, 1]
