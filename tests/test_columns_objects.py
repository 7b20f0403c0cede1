"""Columns of Python objects: no value changes silently, and no two ids become one series."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logsparse.data.columns import from_objects
from logsparse.data.frame import to_panel
from logsparse.errors import DataError

DAY = datetime(2024, 1, 31)  # noqa: DTZ001 - naive, as in most frames


def kinds_of_frame(**columns: list[Any]) -> list[Any]:
    """A pandas and a polars frame in which these columns hold Python objects."""
    size = len(next(iter(columns.values())))
    usual = {"unique_id": ["a"] * size, "ds": list(range(size)), "y": [1.0] * size}
    pandas = pd.DataFrame(usual).assign(**{name: pd.Series(v, dtype=object) for name, v in columns.items()})
    polars = pl.DataFrame(usual).with_columns(pl.Series(n, v, dtype=pl.Object) for n, v in columns.items())
    return [pandas, polars, polars.lazy()]


@pytest.mark.parametrize(
    ("odd", "shows"),
    [
        (date(2024, 1, 31), "2024-01-31"),
        (DAY, "2024-01-31 00:00:00"),
        (pd.Timestamp(DAY), "2024-01-31 00:00:00"),
        (np.datetime64("2024-01-31"), "2024-01-31"),
        (timedelta(days=1), "1 day, 0:00:00"),
        (pd.Timedelta("1D"), "1 days 00:00:00"),
        (np.timedelta64(1, "D"), "1 days"),
        (time(1, 2), "01:02:00"),
        (True, "True"),
        (np.True_, "True"),
        (b"2", "b'2'"),
        ("two", "two"),
        (1j, "1j"),
        (10**400, "1" + "0" * 400),
        (-(10**400), "-1" + "0" * 400),
    ],
)
def test_a_non_number_among_numbers_is_refused_with_column_and_value(odd: object, shows: str) -> None:
    for frame in kinds_of_frame(y=[1.0, odd, 3]):
        with pytest.raises(
            DataError, match=f"The column 'y' must hold numbers. Got {re.escape(repr(shows))} in series 'a' at 1"
        ):
            to_panel(frame)
    for frame in kinds_of_frame(x=[1.0, odd, 3]):
        with pytest.raises(
            DataError, match=f"The column 'x' must hold numbers. Got {re.escape(repr(shows))} in series 'a' at 1"
        ):
            to_panel(frame, covariates=["x"])
        assert to_panel(frame).lengths.tolist() == [3]


def test_numbers_of_several_types_are_numbers() -> None:
    values = [
        1,
        2.5,
        np.float32(0.5),
        np.int8(-3),
        Decimal("1.25"),
        Fraction(3, 4),
        2**127,
        10**30,
        None,
        np.float32("nan"),
    ]
    wanted = np.array([1, 2.5, 0.5, -3, 1.25, 0.75, 2.0**127, 1e30, np.nan, np.nan], np.float32)
    for frame in kinds_of_frame(y=values):
        np.testing.assert_array_equal(to_panel(frame)[0], wanted)


def test_integers_of_any_size_that_a_float_holds_are_numbers() -> None:
    for frame in kinds_of_frame(y=[1, 2**63, 2**64, 2**127, -(2**127)]):
        np.testing.assert_array_equal(
            to_panel(frame)[0], np.array([1, 2.0**63, 2.0**64, 2.0**127, -(2.0**127)], np.float32)
        )


def test_decimals_of_every_size_keep_their_values() -> None:
    values = [Decimal("1.2729923e-05"), Decimal(15490244), Decimal("-23.41578"), None, Decimal(10) ** 30]
    for frame in kinds_of_frame(y=values):
        wanted = np.array([np.nan if v is None else float(v) for v in values], np.float32)
        np.testing.assert_array_equal(to_panel(frame)[0], wanted)
    for frame in kinds_of_frame(unique_id=[Decimal("1e-30"), Decimal(10) ** 30]):
        assert to_panel(frame, freq=1).ids == ("1E-30", str(Decimal(10) ** 30))


def test_booleans_alone_are_zeros_and_ones() -> None:
    for frame in kinds_of_frame(y=[True, None, False]):
        np.testing.assert_array_equal(to_panel(frame)[0], np.array([1, np.nan, 0], np.float32))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (b"1", "1"),
        (True, 1),
        (1, 1.0),
        (2**53, 2**53 + 1),
        (1, Decimal(1)),
        (date(2024, 1, 31), "2024-01-31"),
    ],
)
def test_ids_that_differ_by_type_alone_are_refused_by_name(one: Any, other: Any) -> None:
    # Beside a float, integers become floats.
    ids = [one, other, 0.5] if other == 2**53 + 1 else [one, other]
    shows = f"{one!r} ({type(one).__name__}) and {other!r} ({type(other).__name__})"
    for frame in kinds_of_frame(unique_id=ids):
        with pytest.raises(
            DataError, match=rf"The ids in 'unique_id' must differ by more than .* Got {re.escape(shows)}"
        ):
            to_panel(frame, freq=1)


IDS = st.one_of(
    st.integers(-(2**130), 2**130),
    st.sampled_from([2**53, 2**53 + 1, 1, "1", b"1", True, "True", 1.0, "1.0", Decimal(1), 0, False, "", b""]),
    st.text(st.characters(codec="utf-8"), max_size=3),
    st.binary(max_size=2),
    st.floats(allow_nan=False, width=16),
    st.dates(date(2024, 1, 1), date(2024, 1, 5)),
    st.uuids(),
)


@given(st.lists(IDS, min_size=1, max_size=6))
def test_different_ids_never_become_one_series(ids: list[Any]) -> None:
    different = {(type(value), value) for value in ids}
    try:
        panel = to_panel(kinds_of_frame(unique_id=ids)[0].assign(ds=range(len(ids))), freq=1)
    except DataError:
        return
    assert len(panel) >= len(different)


NUMBERS = st.one_of(
    st.integers(-(10**300), 10**300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**40), 10**40, allow_nan=False, allow_infinity=False),
)


@given(st.lists(st.one_of(st.none(), NUMBERS)))
def test_numbers_keep_their_values(values: list[Any]) -> None:
    column = from_objects("y", values)
    assert [v if v is None else float(v) for v in column.to_list()] == [v if v is None else float(v) for v in values]


def endless(kind: str) -> Any:
    """A container that contains itself, or one that is nested deeper than any stack."""
    inner: list[Any] = []
    if kind == "deep":
        for _ in range(100_000):
            inner = [inner]
        return inner
    outer: Any = {"list": inner, "tuple": (inner,), "dict": {"a": inner}, "array": np.empty(1, object)}[kind]
    if kind == "array":
        outer[0] = outer
    inner.append(outer)
    return outer


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "array", "deep"])
def test_recursive_containers_are_refused_in_used_columns_and_ignored_elsewhere(kind: str) -> None:
    value = endless(kind)
    held = pd.Series([None, None], dtype=object)
    for row in (0, 1):
        held.array[row] = value
    usual = pd.DataFrame({"unique_id": "a", "ds": [0, 1], "y": 1.0})
    with pytest.raises(DataError, match=r"The ids in 'unique_id' must be text or numbers. Got .* such as"):
        to_panel(usual.assign(unique_id=held))
    for name in ("ds", "y"):
        with pytest.raises(DataError, match=f"The column '{name}' must hold scalars. Got .* such as"):
            to_panel(usual.assign(**{name: held}))
    assert to_panel(usual.assign(note=held)).lengths.tolist() == [2]


@pytest.mark.parametrize("value", [[1], (1,), {"a": 1}, {1}, frozenset([1]), np.array([1, 2])])
def test_columns_of_containers_are_refused_by_name_and_value(value: Any) -> None:
    shows = re.escape(f"Got {type(value).__name__} such as {value!r}")
    for frame in kinds_of_frame(shop=[value, None, value]):
        with pytest.raises(DataError, match=rf"The column 'shop' must hold scalars. {shows}"):
            to_panel(frame, static=["shop"])
        assert to_panel(frame).lengths.tolist() == [3]
