"""Frames with unusual columns are read as intended, and unused columns are never an error."""

from __future__ import annotations

import uuid
from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError

pa: Any = import_module("pyarrow")
STEPS = pd.DataFrame({"unique_id": "a", "ds": range(5), "y": np.arange(5.0)})


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_only_used_columns_must_be_unique(name: str) -> None:
    def make(*names: str) -> Any:
        columns: list[Any] = [["a", "a"], [1, 2], *([1.0, 2.0] for _ in names[2:])]
        if name == "pyarrow":
            return pa.table([pa.array(column) for column in columns], names=list(names))
        frame = pd.concat([pd.Series(column) for column in columns], axis=1)
        return frame.set_axis(list(names), axis=1)

    assert to_panel(make("unique_id", "ds", "y", "z", "z", "z")).lengths.tolist() == [2]
    with pytest.raises(DataError, match=r"The column 'y' must be unique. Got two columns of that name. Hint: drop"):
        to_panel(make("unique_id", "ds", "y", "y"))


def test_names_may_be_numbers() -> None:
    numbered = STEPS.set_axis([0, 1, 2], axis=1)
    assert to_panel(numbered, id_col=0, time_col=1, target_col=2).ids == ("a",)
    with pytest.raises(DataError, match="The column '5' must be unique"):
        to_panel(pd.DataFrame({"ds": [1, 2, 3], 5: 1.0, "5": 2.0}))


def test_an_index_gives_way_to_a_column_of_its_name() -> None:
    for frame in (STEPS.rename_axis("y"), STEPS.set_index("ds", drop=False), STEPS.set_index(["unique_id", "ds"])):
        np.testing.assert_array_equal(to_panel(frame)[0], np.arange(5, dtype=np.float32))
    dated = pd.DataFrame({"index": 1.0, "x": 2.0}, index=pd.date_range("2024-01-01", periods=3))
    assert to_panel(dated).ids == ("index", "x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (date(2024, 1, 31), "2024-01-31"),
        (timedelta(hours=1), "1:00:00"),
        (True, "true"),
        ((1, 2), None),
    ],
)
def test_ids_of_any_kind_become_text(value: object, text: str | None) -> None:
    ids = pd.Series([value] * 5, dtype=object)
    if text is None:
        with pytest.raises(
            DataError, match=r"The ids in 'unique_id' must be text or numbers. Got tuple such as \(1, 2\)"
        ):
            to_panel(STEPS.assign(unique_id=ids))
    else:
        assert to_panel(STEPS.assign(unique_id=ids)).ids == (text,)


def test_objects_in_polars_can_be_ids() -> None:
    ids = pl.Series([uuid.UUID(int=7)] * 2, dtype=pl.Object)
    assert to_panel(pl.DataFrame({"unique_id": ids, "ds": [1, 2], "y": 1.0})).ids == (str(uuid.UUID(int=7)),)


def test_uuids_of_arrow_are_ids_as_people_write_them() -> None:
    ids = pa.array([uuid.UUID(int=7).bytes] * 2, pa.binary(16)).cast(pa.uuid())
    assert to_panel(pa.table({"unique_id": ids, "ds": [1, 2], "y": [1.0, 2.0]})).ids == (str(uuid.UUID(int=7)),)


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([Decimal("1.5")] * 5, dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        pd.Series([Decimal("1.5")] * 5, dtype=object),
        pd.Series([1.5] * 5, dtype="Float64"),
        pd.Series([1.5] * 5, dtype=pd.ArrowDtype(pa.float64())),
    ],
)
def test_numbers_of_any_kind_are_numbers(values: Any) -> None:
    assert to_panel(STEPS.assign(y=values))[0].tolist() == [1.5] * 5


@pytest.mark.parametrize("values", [[1j] * 5, pd.to_timedelta(range(5), unit="h"), [uuid.UUID(int=7)] * 5])
def test_a_non_number_is_refused_with_its_column(values: Any) -> None:
    with pytest.raises(
        DataError, match=r"The column 'y' must hold numbers. Got '.*' in series 'a' at 0. Hint: convert"
    ):
        to_panel(STEPS.assign(y=values))


def test_unused_columns_may_hold_anything() -> None:
    odd: dict[str, Any] = {"x": [uuid.UUID(int=7), 1, "b", None, [2]], "z": [1j] * 5, "w": [{"a": 1}] * 5}
    assert to_panel(STEPS.assign(**odd)).lengths.tolist() == [5]


def test_a_lazy_frame_that_fails_says_so() -> None:
    for lazy in (
        pl.DataFrame({"a": [1]}).lazy().select("b"),
        pl.DataFrame({"unique_id": ["a"], "ds": ["x"], "y": [1.0]}).lazy().with_columns(pl.col("ds").cast(pl.Int64)),
    ):
        with pytest.raises(DataError, match=r"The table must be readable. Got a polars error: .*Hint"):
            to_panel(lazy)
