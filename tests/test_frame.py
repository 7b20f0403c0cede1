"""Any frame becomes the same panel; bad input is refused with the first offending value."""

from __future__ import annotations

import logging
import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bad_frames import BAD
from logsparse.baselines.naive import SeasonalNaive
from logsparse.data.frame import to_panel
from logsparse.data.panel import Panel
from logsparse.data.times import clock_time, stamps
from logsparse.errors import DataError, LogsparseError


def same(one: Panel, other: Panel) -> None:
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.indptr, other.indptr)
    np.testing.assert_array_equal(one.starts, other.starts)
    assert (one.ids, one.freq) == (other.ids, other.freq)


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    return frame.to_pandas()


KINDS: dict[str, Any] = {
    "polars": lambda f: f,
    "lazy": pl.DataFrame.lazy,
    "pandas": to_pandas,
    "pyarrow": pl.DataFrame.to_arrow,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_panel_and_comes_back_as_its_own_kind(
    kind: str, hourly: pl.DataFrame
) -> None:
    frame = KINDS[kind](hourly)
    same(to_panel(frame), to_panel(hourly))
    back = SeasonalNaive(horizon=2).fit(frame).predict()
    assert type(back).__module__.split(".")[0] == {"lazy": "polars"}.get(kind, kind)
    assert list(pl.DataFrame(back).columns)[:3] == ["unique_id", "ds", "mean"]


@pytest.mark.parametrize("name", ["data.parquet", "data.csv", "data.feather", "data.PARQUET"])
def test_every_kind_of_file_gives_the_same_panel(name: str, hourly: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / name
    write: dict[str, Any] = {".csv": hourly.write_csv, ".feather": hourly.write_ipc}
    write.get(path.suffix, hourly.write_parquet)(path)
    same(to_panel(path), to_panel(hourly))
    same(to_panel(str(path)), to_panel(hourly))


def test_a_folder_of_parquet_parts_is_one_table(hourly: pl.DataFrame, tmp_path: Path) -> None:
    hourly[:100].write_parquet(tmp_path / "part-0.parquet")
    (tmp_path / "more").mkdir()
    hourly[100:].write_parquet(tmp_path / "more" / "part-1.parquet")
    panel = to_panel(tmp_path)
    assert sorted(map(str, panel.ids)) == ["a", "b"]
    assert panel.lengths.sum() == 264


def test_a_csv_with_semicolons_and_decimal_commas_is_read(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("ds;MT_1;MT_2\n2011-01-01 00:15:00;1,5;2\n2011-01-01 00:30:00;NA;3,25\n2011-01-01 00:45:00;2;4\n")
    panel = to_panel(path)
    assert str(panel.freq) == "15min"
    np.testing.assert_array_equal(panel[0], np.array([1.5, np.nan, 2], np.float32))
    np.testing.assert_array_equal(panel[1], np.array([2, 3.25, 4], np.float32))


def test_text_far_down_a_csv_is_still_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    rows = "".join(f"a,{i},{i}\n" for i in range(20_000))
    path.write_text(f"unique_id,ds,y\n{rows}a,20000,oops\n")
    with pytest.raises(DataError, match=r"must hold numbers. Got 'oops' in series 'a' at 20000"):
        to_panel(path)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, size=4)
    frame = pl.concat(
        pl.DataFrame({"unique_id": int(i), "ds": np.arange(n) + int(rng.integers(0, 9)), "y": rng.normal(size=n)})
        for i, n in enumerate(lengths)
    )
    shuffled = frame[rng.permutation(frame.height)]
    one, other = to_panel(frame, freq=1), to_panel(shuffled, freq=1)
    for position, name in enumerate(one.ids):
        np.testing.assert_array_equal(one[position], other[other.ids.index(name)])
        assert one.starts[position] == other.starts[other.ids.index(name)]


def test_series_may_start_and_end_anywhere(hourly: pl.DataFrame) -> None:
    panel = to_panel(hourly)
    assert panel.ids == ("b", "a")
    assert panel.lengths.tolist() == [96, 168]
    assert [panel.freq.show(int(t)) for t in panel.starts] == ["2024-01-02", "2024-01-01"]


def test_missing_rows_nulls_and_nans_all_become_missing_values() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": [1, 2, 4, 5, 6], "y": [1.0, None, 4.0, float("nan"), 6.0]})
    np.testing.assert_array_equal(to_panel(frame)[0], np.array([1, np.nan, np.nan, 4, np.nan, 6], np.float32))
    pandas = pd.DataFrame({"unique_id": "a", "ds": [1, 2, 4], "y": pd.array([1, None, 4], dtype="Int64")})
    np.testing.assert_array_equal(to_panel(pandas)[0], np.array([1, np.nan, np.nan, 4], np.float32))


def test_other_names_are_taken_by_argument_and_no_other_column_is_touched(hourly: pl.DataFrame) -> None:
    renamed = hourly.rename({"unique_id": "shop", "ds": "when", "y": "sold"}).with_columns(split=pl.lit("train"))
    same(to_panel(renamed, id_col="shop", time_col="when", target_col="sold"), to_panel(hourly))


def test_a_wide_table_is_recognised_and_logged(caplog: pytest.LogCaptureFixture, hourly: pl.DataFrame) -> None:
    wide = hourly.pivot(on="unique_id", index="ds", values="y").sort("ds")
    with caplog.at_level(logging.INFO, logger="logsparse"):
        panel = to_panel(wide.rename({"ds": "timestamp"}))
    assert "recognised a wide table: time column 'timestamp'" in caplog.text
    assert panel.origin.layout == "wide"
    assert panel.ids == ("b", "a")
    long = to_panel(hourly)
    np.testing.assert_array_equal(panel[1], long[1])
    # b begins a day late: the empty cells before it are no part of it, those after its last value are missing
    assert panel.starts[0] == long.starts[0]
    np.testing.assert_array_equal(panel[0][:96], long[0])
    assert np.isnan(panel[0][96:]).all()


VALUES = st.one_of(st.none(), st.floats(-9, 9, width=32))


@given(
    columns=st.lists(st.lists(VALUES, min_size=8, max_size=8), min_size=1, max_size=4),
    ends=st.lists(st.floats(-9, 9, width=32), min_size=4, max_size=4),
    freq=st.sampled_from(["h", "D", "MS", "ME", "QE", "B"]),
)
def test_age_and_values_do_not_depend_on_the_layout(
    columns: list[list[float | None]], ends: list[float], freq: str
) -> None:
    times = pd.date_range("2024-01-01", periods=9, freq=freq).to_list()
    series = {f"s{i}": [*column, end] for i, (column, end) in enumerate(zip(columns, ends, strict=False))}
    wide = pl.DataFrame({"ds": times, **series, "heat": [float(i) for i in range(9)]})
    long = wide.unpivot(list(series), index=["ds", "heat"], variable_name="unique_id", value_name="y")
    begun = long.filter(pl.col("y").is_not_null().cum_max().over("unique_id"))
    panels = [to_panel(frame, freq=freq, covariates=["heat"]) for frame in (long, begun, wide)]
    for panel in panels:
        same(panel, panels[0])
        np.testing.assert_array_equal(panel.covariates["heat"], panels[0].covariates["heat"])
        assert not np.isnan(panel.values[panel.indptr[:-1]]).any()
        assert panel.lengths.tolist() == panels[0].lengths.tolist()
        assert panel.freq.add(panel.starts, panel.lengths - 1).tolist() == [panel.ends().max()] * len(panel)


def test_forecasts_do_not_depend_on_empty_rows_before_the_first_value() -> None:
    late = pl.DataFrame({"unique_id": "a", "ds": range(40), "y": [None] * 20 + [float(i % 7) for i in range(20)]})
    one, other = (SeasonalNaive(horizon=3, season=7).fit(frame).predict() for frame in (late, late[20:]))
    assert one.equals(other)
    assert to_panel(late).starts.tolist() == [20]


def test_values_that_are_missing_at_the_end_stay() -> None:
    frame = pl.DataFrame({"unique_id": "a", "ds": range(5), "y": [None, 1.0, 2.0, None, None]})
    np.testing.assert_array_equal(to_panel(frame)[0], np.array([1, 2, np.nan, np.nan], np.float32))


def test_a_short_month_does_not_become_the_day_of_the_month() -> None:
    days = [date(2024, 1, 31), date(2024, 2, 29), date(2024, 3, 31), date(2024, 4, 30)]
    frame = pl.DataFrame({"unique_id": "a", "ds": days, "y": [None, 1.0, 2.0, 3.0]})
    panel = to_panel(frame, freq="MS")
    assert [panel.freq.show(int(panel.starts[0])), int(panel.lengths[0])] == ["2024-01-31", 4]
    late = frame.with_columns(y=pl.Series([None, None, 2.0, 3.0]))
    assert to_panel(late, freq="MS").lengths.tolist() == [2]
    assert SeasonalNaive(horizon=1).fit(late, freq="MS").predict()["ds"].to_list() == [date(2024, 5, 31)]


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_a_series_without_any_value_is_refused_in_either_layout(layout: str) -> None:
    wide = pl.DataFrame({"ds": [1, 2], "x": [1.0, 2.0], "z": pl.Series([None, None], dtype=pl.Float64)})
    frame = wide if layout == "wide" else wide.unpivot(index="ds", variable_name="unique_id", value_name="y")
    with pytest.raises(
        DataError, match=r"Every series must have at least one value. Got none in series 'z'. Hint: drop"
    ):
        to_panel(frame)


def test_the_input_frame_is_not_changed() -> None:
    wide = pl.DataFrame({"ds": [1, 2, 3], "x": [1.0, 2.0, 3.0], "z": [1.0, 2.0, 3.0]})
    before = wide.clone()
    to_panel(wide)
    assert wide.equals(before)


def test_a_wide_table_may_be_out_of_order_and_have_holes() -> None:
    wide = pl.DataFrame({"ds": [5, 1, 2, 3], "x": [5.0, 1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(to_panel(wide)[0], np.array([1, 2, 3, np.nan, 5], np.float32))


def test_a_pandas_index_of_dates_is_the_time_column() -> None:
    index = pd.date_range("2024-01-01", periods=5, freq="D")
    panel = to_panel(pd.DataFrame({"x": range(5), "z": range(5)}, index=index))
    assert (panel.ids, str(panel.freq)) == (("x", "z"), "d")


def test_one_series_needs_no_id() -> None:
    panel = to_panel(pl.DataFrame({"ds": [1, 2, 3], "y": [1.0, 2.0, 3.0]}))
    assert panel.ids == ("y",)


@pytest.mark.parametrize("freq", ["h", "D"])
def test_a_change_to_summer_time_is_not_a_gap(freq: str) -> None:
    times = pd.date_range("2024-03-29", periods=96 if freq == "h" else 10, freq=freq, tz="Europe/Berlin")
    frame = pd.DataFrame({"unique_id": "a", "ds": times, "y": np.arange(float(len(times)))})
    panel = to_panel(frame)
    assert (str(panel.freq).lower(), int(panel.lengths[0])) == (freq.lower(), len(times))
    back = SeasonalNaive(horizon=3).fit(frame).predict()
    expected = pd.date_range(times[-1], periods=4, freq=freq)[1:]
    assert back["ds"].tolist() == expected.tolist()
    assert str(back["ds"].dt.tz) == "Europe/Berlin"


def test_a_change_to_winter_time_is_not_a_duplicate() -> None:
    times = pd.date_range("2024-10-26", periods=72, freq="h", tz="Europe/Berlin")
    assert to_panel(pd.DataFrame({"ds": times, "y": 1.0})).lengths.tolist() == [72]


def test_offsets_in_text_are_understood() -> None:
    frame = pl.DataFrame({"ds": [f"2024-01-01T{h:02d}:00:00+02:00" for h in range(5)], "y": 1.0})
    panel = to_panel(frame)
    assert panel.origin.zone == "Etc/GMT-2"
    assert panel.freq.show(int(panel.starts[0])) == "2023-12-31 22:00"
    assert str(stamps(panel, panel.starts)[0]) == "2024-01-01 00:00:00+02:00"


@pytest.mark.parametrize("freq", ["B", "ME", "MS", "QE", "YE", "W-SUN", "5min", "s"])
def test_calendars_from_seconds_to_years_keep_their_steps_and_their_dates(freq: str) -> None:
    times = pd.date_range("2024-01-31", periods=30, freq=freq)
    frame = pd.DataFrame({"unique_id": "a", "ds": times[:27], "y": 1.0})
    assert to_panel(frame).lengths.tolist() == [27]
    assert SeasonalNaive(horizon=3).fit(frame).predict()["ds"].tolist() == times[27:].tolist()


def test_dates_come_back_as_dates_and_integers_as_integers() -> None:
    days = pl.DataFrame({"ds": pl.date_range(date(2024, 1, 1), date(2024, 1, 9), eager=True), "y": 1.0})
    assert SeasonalNaive(horizon=1).fit(days).predict()["ds"].to_list() == [date(2024, 1, 10)]
    numbers = pl.DataFrame({"ds": [10, 20, 30], "y": 1.0})
    assert SeasonalNaive(horizon=2).fit(numbers).predict()["ds"].to_list() == [40, 50]


def test_a_given_step_makes_times_in_between_missing() -> None:
    frame = pl.DataFrame({"ds": [0, 2, 4], "y": [0.0, 2.0, 4.0]})
    assert to_panel(frame).lengths.tolist() == [3]
    assert to_panel(frame, freq=1).lengths.tolist() == [5]


def test_named_covariates_and_categories_are_read(hourly: pl.DataFrame) -> None:
    frame = hourly.with_columns(heat=pl.col("y") * 2, kind=pl.col("unique_id").replace({"a": "shop", "b": "depot"}))
    panel = to_panel(frame, covariates=["heat"], static=["kind"])
    np.testing.assert_array_equal(panel.covariates["heat"], 2 * panel.values)
    assert panel.static["kind"].categories == ("depot", "shop")
    assert panel.static["kind"].codes.tolist() == [0, 1]
    assert (to_panel(frame).covariates, to_panel(frame).static) == ({}, {})


def test_future_covariates_are_joined_to_each_series_own_end(hourly: pl.DataFrame) -> None:
    frame = hourly.with_columns(heat=pl.lit(1.0))
    model = SeasonalNaive(horizon=2).fit(frame, covariates=["heat"])
    ahead = model.fit(hourly).predict().select("unique_id", "ds")
    model.fit(frame, covariates=["heat"])
    future = ahead.with_columns(heat=pl.Series([10.0, 20.0, 30.0, 40.0]))[[3, 0, 2, 1]]
    panel = model.forecast(future=future).panel
    heat = panel.covariates["heat"]
    assert heat[panel.indptr[1] - 2 : panel.indptr[1]].tolist() == [10.0, 20.0]
    assert heat[-2:].tolist() == [30.0, 40.0]
    assert panel.lengths.tolist() == [96, 168]


def test_until_is_read_on_the_clock_of_the_data() -> None:
    times = pd.date_range("2024-06-01", periods=48, freq="h", tz="Europe/Berlin")
    panel = to_panel(pd.DataFrame({"ds": times, "y": 1.0}))
    for text in ("2024-06-01T12:00", "2024-06-01T10:00Z", "2024-06-01T12:00+02:00"):
        assert panel.until(clock_time(panel, text)).lengths.tolist() == [13]
    with pytest.raises(DataError, match="must have the type of the panel's times"):
        clock_time(panel, 5)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_error(name: str) -> None:
    act, message = BAD[name]
    with pytest.raises(LogsparseError, match=f"^{re.escape(message)}$"):
        act()


def test_the_table_of_bad_inputs_in_the_docs_is_true() -> None:
    text = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    missing = [name for name, (_, message) in BAD.items() if f"| {name} | {message} |" not in text]
    assert not missing, f"docs/data.md lacks: {missing}"


def test_the_real_sets_are_recognised(shared_data: Path) -> None:
    panel = to_panel(shared_data / "m4_hourly.parquet")
    assert (len(panel), set(panel.lengths.tolist()), str(panel.freq)) == (414, {748, 1008}, "h")
    solar = to_panel(shared_data / "solar_hourly.parquet")
    assert (len(solar), set(solar.lengths.tolist()), solar.origin.layout) == (137, {8760}, "wide")


@pytest.mark.parametrize(("freq", "step"), [("M", "MS"), ("W", "w"), ("h", "h"), ("Q", "QS")])
@pytest.mark.parametrize("name", [None, "when"])
def test_pandas_periods_are_read_as_the_times_at_which_they_begin(freq: str, step: str, name: str | None) -> None:
    periods = pd.period_range("2019-01-07", periods=30, freq=freq, name=name)
    wide = pd.DataFrame({"sales": np.arange(30.0)}, index=periods)
    panel = to_panel(wide)
    assert panel.ids == ("sales",)
    assert str(panel.freq) == step
    same(panel, to_panel(wide.set_axis(periods.to_timestamp())))


@pytest.mark.parametrize("name", [None, "y", "sales"])
def test_a_pandas_series_is_one_series_with_its_times_in_the_index(name: str | None) -> None:
    one = pd.Series(np.arange(30.0), pd.date_range("2024-01-01", periods=30), name=name)
    panel = to_panel(one)
    assert panel.ids == ("0" if name is None else name,)
    assert panel[0].tolist() == list(range(30))


def test_a_target_beside_times_of_any_name_is_one_series() -> None:
    table = pl.DataFrame({"date": [f"2024-01-{day:02}" for day in range(1, 31)], "y": range(30)})
    assert to_panel(table).ids == ("y",)
