"""A panel shows what it holds, and cuts by time without copying."""

from __future__ import annotations

import doctest

import numpy as np
import polars as pl
import pytest

from logsparse.data import frame, panel
from logsparse.data.frame import to_panel
from logsparse.errors import DataError


def test_the_repr_says_size_step_and_span(hourly: pl.DataFrame) -> None:
    assert repr(to_panel(hourly)) == "Panel(2 series, 264 values, h, 2024-01-01 to 2024-01-07 23:00)"
    with_hole = hourly.with_columns(pl.when(pl.int_range(pl.len()) == 5).then(None).otherwise("y").alias("y"))
    assert "264 values (0.4% missing)" in repr(to_panel(with_hole))


def test_cutting_by_time_copies_nothing_and_keeps_what_lies_before(hourly: pl.DataFrame) -> None:
    panel = to_panel(hourly)
    noon = int(np.datetime64("2024-01-03T12:00", "us").astype(np.int64))
    cut = panel.until(noon)
    assert np.shares_memory(cut.values, panel.values)
    assert cut.lengths.tolist() == [37, 61]
    assert (cut.ends() == noon).all()
    np.testing.assert_array_equal(cut[1], panel[1][:61])


def test_cutting_between_two_steps_keeps_the_earlier_one(hourly: pl.DataFrame) -> None:
    panel = to_panel(hourly)
    between = int(np.datetime64("2024-01-03T12:59", "us").astype(np.int64))
    assert panel.until(between).lengths.tolist() == [37, 61]


def test_a_cutoff_before_a_series_begins_is_refused_by_name(hourly: pl.DataFrame) -> None:
    early = int(np.datetime64("2024-01-01T12:00", "us").astype(np.int64))
    with pytest.raises(
        DataError,
        match=r"at least one value up to the cutoff. Got series 'b'.*2024-01-02.*cutoff at 2024-01-01 12:00.*Hint",
    ):
        to_panel(hourly).until(early)


def test_a_wide_table_is_named_in_the_repr() -> None:
    wide = pl.DataFrame({"ds": [1, 2], "x": [1.0, 2.0], "z": [1.0, 2.0]})
    assert repr(to_panel(wide)) == "Panel(2 series from a wide table, 4 values, 1, 1 to 2)"


def test_the_bytes_count_covariates_too(hourly: pl.DataFrame) -> None:
    plain = to_panel(hourly).nbytes
    heat = to_panel(hourly.with_columns(heat=pl.lit(1.0)), covariates=["heat"]).nbytes
    assert heat - plain == 264 * 4


def test_the_examples_in_the_docstrings_run() -> None:
    for module in (frame, panel):
        failed, attempted = doctest.testmod(module)
        assert attempted > 0
        assert failed == 0
