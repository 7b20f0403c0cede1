"""A later panel is told in training's terms: numbers, ages, categories; what is new is unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import small
from logsparse.data.calendar import Freq
from logsparse.data.features import Features
from logsparse.data.known import Known
from logsparse.data.panel import Panel, Static

HOUR = 3_600_000_000


def named(ids: tuple[str, ...], starts: list[int], colours: tuple[str, ...] | None = None) -> Panel:
    panel = small.panel(series=len(ids), steps=40, missing=0)
    static = {}
    if colours:
        kinds = tuple(dict.fromkeys(colours))
        static = {"colour": Static(np.array([kinds.index(c) for c in colours]), kinds)}
    return replace(panel, ids=ids, starts=np.array(starts) * HOUR, static=static, freq=Freq.parse("h"))


def test_known_series_keep_their_numbers_in_any_order_and_new_ones_have_none() -> None:
    known = Known.of(named(("a", "b", "c"), [0, 0, 0]))
    assert known.retell(named(("c", "x", "a"), [0, 0, 0])).numbers.tolist() == [2, -1, 0]  # type: ignore[union-attr]


def test_the_age_of_a_time_does_not_depend_on_where_the_history_begins() -> None:
    trained = named(("a", "b"), [0, 5])
    known = Known.of(trained)
    later = known.retell(named(("b", "new"), [15, 15]))
    assert later.elapsed is not None
    assert later.elapsed.tolist() == [10, 0]
    features = Features.fit(trained, ["age"])
    series = np.array([0])
    same = features(known.retell(trained), np.array([1]), np.array([[10]])), features(later, series, np.array([[0]]))
    np.testing.assert_array_equal(*same)


def test_categories_are_recoded_and_new_ones_are_unknown() -> None:
    known = Known.of(named(("a", "b"), [0, 0], ("red", "blue")))
    told = known.retell(named(("a", "b", "c"), [0, 0, 0], ("green", "blue", "red")))
    assert told.static["colour"].codes.tolist() == [-1, 1, 0]


def test_new_series_are_joined_after_the_known_ones() -> None:
    known = Known.of(named(("a", "b"), [0, 3], ("red", "blue")))
    joined = known.joined(named(("c", "b"), [7, 7], ("green", "blue")))
    assert joined.ids == ("a", "b", "c")
    assert (joined.born_A // HOUR).tolist() == [0, 3, 7]
    assert joined.categories == {"colour": ("red", "blue", "green")}
    again = Known.from_dict(joined.to_dict())
    assert (again.ids, again.categories) == (joined.ids, joined.categories)
    assert again.born_A.tolist() == joined.born_A.tolist()
