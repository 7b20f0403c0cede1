"""Any exception of a reader becomes a DataError that keeps its cause; other errors pass."""

from __future__ import annotations

import os
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from logsparse.data.files import reading
from logsparse.data.frame import to_panel
from logsparse.errors import DataError

pa: Any = import_module("pyarrow")
parquet: Any = import_module("pyarrow.parquet")


def steps(**changes: Any) -> dict[str, Any]:
    return {"unique_id": ["a"] * 3, "ds": [0, 1, 2], "y": [1.0, 2.0, 3.0], **changes}


def objects(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(steps()).assign(**{name: pd.Series(values, dtype=object) for name, values in columns.items()})


def panic() -> None:
    pl.Series([2**31 - 1], dtype=pl.Int32).cast(pl.Date).cast(pl.String)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(5, "broken disk"), ValueError(), RecursionError("deep\nend")])
def test_any_exception_of_a_reader_becomes_a_data_error_with_its_cause(error: Exception) -> None:
    with (
        pytest.raises(DataError, match=r"^The table must be readable. Got a reader error: .+") as e,
        reading(),
    ):
        raise error
    assert e.value.__cause__ is error
    assert "\n" not in str(e.value)


def test_a_panic_of_polars_becomes_a_data_error_with_its_cause() -> None:
    with (
        pytest.raises(DataError, match=r"The column 'x' must be readable. Got a polars error: .*date") as e,
        reading(column="x"),
    ):
        panic()
    assert isinstance(e.value.__cause__, pl.exceptions.PanicException)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), SystemExit(3), DataError("A.", got="b", hint="c.")]
)
def test_errors_that_are_not_of_the_reader_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as e, reading():
        raise error
    assert e.value is error


@pytest.mark.parametrize("value", ["NaN", "sNaN"])
def test_a_decimal_nan_is_a_missing_value(value: str) -> None:
    panel = to_panel(objects(y=[Decimal(1), Decimal(value), Decimal(3)]))
    np.testing.assert_array_equal(panel[0], np.array([1, np.nan, 3], np.float32))


def test_decimal_nan_and_infinity_are_allowed_in_text() -> None:
    assert to_panel(objects(note=[Decimal("NaN"), "x", Decimal("Infinity")])).lengths.tolist() == [3]
    with pytest.raises(
        DataError, match=r"The column 'y' must hold finite numbers. Got an infinite value in series 'a' at 1"
    ):
        to_panel(objects(y=[Decimal(1), Decimal("Infinity"), Decimal(3)]))
    with pytest.raises(DataError, match=r"The column 'y' must hold numbers. Got 'x' in series 'a' at 1"):
        to_panel(objects(y=[Decimal("NaN"), "x", Decimal(3)]))


def test_wide_decimals_of_arrow_are_numbers() -> None:
    values = pa.array([Decimal("1.5"), None, Decimal("1" * 50)], pa.decimal256(60, 2))
    wanted = np.array([1.5, np.nan, np.inf], np.float32)
    with pytest.raises(
        DataError, match=r"must hold finite numbers. Got 1.11111e\+49, too large for float32, in series 'a' at 2"
    ):
        to_panel(pa.table(steps(y=values)))
    small = pa.array([Decimal("1.5"), None, Decimal("1" * 30)], pa.decimal256(60, 2))
    wanted[2] = 1.1111111111e29
    np.testing.assert_array_equal(to_panel(pa.table(steps(y=small)))[0], wanted)
    ids = pa.array([Decimal("1" * 50)] * 3, pa.decimal256(60, 2))
    assert to_panel(pa.table(steps(unique_id=ids))).ids == ("1" * 50 + ".00",)


def test_wide_decimals_in_a_parquet_file_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table(steps(y=pa.array([Decimal("1.5")] * 3, pa.decimal256(50, 2)))), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"must be readable. Got a polars error: precision must be between 1 and 38"):
        to_panel(tmp_path / "x.parquet")


FAR = {
    "date": pl.Series([2**31 - 1, 2**31 - 2, 0], dtype=pl.Int32).cast(pl.Date),
    "ms": pl.Series([2**62, 2**62 + 1000, 2**62 + 2000]).cast(pl.Datetime("ms")),
    "us in a zone": pl.Series([2**60, 2**60 + 10**6, 2**60 + 2 * 10**6]).cast(pl.Datetime("us", "Europe/Berlin")),
    "before the year 1": pl.Series([-719_163, -719_162, -719_161], dtype=pl.Int32).cast(pl.Date),
}


@pytest.mark.parametrize("name", FAR)
def test_dates_out_of_range_are_refused_as_times(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(steps(ds=FAR[name]))
    frame.write_parquet(tmp_path / "x.parquet")
    for data in (frame, frame.to_arrow(), tmp_path / "x.parquet"):
        with pytest.raises(
            DataError, match=r"^Times in 'ds' must lie in the years 1 to 9999. Got -?\d+-\d\d-\d\d.*Hint: correct"
        ):
            to_panel(data)


def test_the_first_and_the_last_year_can_be_read() -> None:
    for days in ([-719_162, -719_161, -719_160], [2_932_894, 2_932_895, 2_932_896]):
        frame = pl.DataFrame(steps(ds=pl.Series(days, dtype=pl.Int32).cast(pl.Date)))
        assert to_panel(frame).lengths.tolist() == [3]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_seconds_that_microseconds_cannot_hold_are_refused(unit: str, zone: str | None) -> None:
    seconds = (np.arange(3) + 10**15) * (1 if unit == "s" else 1000)
    with pytest.raises(DataError, match=r"The time column 'ds' must hold .* Got the text '31690708-"):
        to_panel(pd.DataFrame(steps(ds=pd.Series(seconds.astype(f"datetime64[{unit}]")).dt.tz_localize(zone))))
    arrow = pa.array(seconds, pa.int64()).cast(pa.timestamp(unit, zone))
    with pytest.raises(DataError, match=r"'ds' must (lie in the years 1 to 9999|be readable)"):
        to_panel(pa.table(steps(ds=arrow)))


def test_dates_out_of_range_are_refused_as_ids() -> None:
    with pytest.raises(
        DataError, match=r"The column 'unique_id' must be readable. Got a polars error: out-of-range date"
    ):
        to_panel(pl.DataFrame(steps(unique_id=FAR["date"])))


def test_a_lone_surrogate_is_refused_where_it_is_used_and_ignored_elsewhere() -> None:
    for column in ("unique_id", "ds", "y"):
        with pytest.raises(
            DataError, match=rf"The column '{column}' must be readable. Got .*\\ud800.*surrogates not allowed"
        ):
            to_panel(objects(**{column: ["\ud800"] * 3}))
    assert to_panel(objects(note=["\ud800"] * 3)).lengths.tolist() == [3]
    with pytest.raises(
        DataError, match=r"A wide table must hold only numbers besides its time column 'ds'. Got text in 'note'"
    ):
        to_panel(objects(note=["\ud800"] * 3)[["ds", "note"]].assign(x=1.0))


def test_a_lone_surrogate_in_an_index_is_refused_where_it_is_used_and_ignored_elsewhere() -> None:
    odd = pd.Index(["\ud800"] * 3, dtype=object)
    for column in ("unique_id", "ds"):
        with pytest.raises(
            DataError, match=rf"The column '{column}' must be readable. Got .*\\ud800.*surrogates not allowed"
        ):
            to_panel(pd.DataFrame(steps()).drop(columns=column).set_index(odd.rename(column)))
    assert to_panel(pd.DataFrame(steps()).set_index(odd.rename("note"))).lengths.tolist() == [3]


def test_a_lone_surrogate_in_a_column_name_is_refused() -> None:
    odd = pd.DataFrame(steps())
    odd.columns = pd.Index(["unique_id", "ds", "\ud800"], dtype=object)
    with pytest.raises(DataError, match=r"Column names must be valid Unicode. Got '\\ud800'. Hint: rename that column"):
        to_panel(odd)


def test_lists_among_scalars_are_refused_where_they_are_used() -> None:
    assert to_panel(objects(note=[1, [2], "x"])).lengths.tolist() == [3]
    for odd in ([2], (2,), {"a": 2}, np.array([2, 3]), slice(2)):
        with pytest.raises(DataError, match=r"The column 'y' must hold numbers. Got .*2.* in series 'a' at 1"):
            to_panel(objects(y=[1, odd, 3]))
        with pytest.raises(DataError, match=r"The ids in 'unique_id' must be text or numbers. Got .*2"):
            to_panel(objects(unique_id=[1, odd, "x"]))


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_names_that_are_not_utf8_are_refused(ending: str, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff." + ending.encode())
    Path(path).write_bytes(b"unique_id,ds,y\na,1,1\n")
    with pytest.raises(DataError, match=rf"\\udcff.{ending}: a name that is not UTF-8. Hint: rename it"):
        to_panel(path)


def test_a_part_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    pl.DataFrame(steps()).write_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet"))
    with pytest.raises(DataError, match=r"\\udcff.parquet: a name that is not UTF-8. Hint: rename it"):
        to_panel(tmp_path)


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "x/" * 5000 + ".csv"])
def test_paths_that_are_too_long_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"Got x.*: a reader error: File name too long. Hint: check the path") as e:
        to_panel(name)
    assert len(str(e.value)) < 2000
