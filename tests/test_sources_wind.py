"""Thirty years of hours without times become daily means; the country without data is left out."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import named
from logsparse.paper.sources import read_wind
from original_files import Doubles, european, found

FILE = "EMHIRESPV_TSh_CF_Country_19862015.csv"
DAYS = replace(named("wind"), span=("1986-01-01 00:00", "1986-01-10 00:00"))


@pytest.fixture
def values() -> dict[str, Doubles]:
    drawn = np.random.default_rng(3).uniform(0, 1, (2, 240)).round(6)
    return {"AT": drawn[0], "CY": np.zeros(240), "UK": drawn[1]}


def read(text: bytes, folder: Path) -> pl.DataFrame:
    return read_wind(found(folder, {FILE: text}), DAYS)


def test_days_are_means_of_their_24_hours(values: dict[str, Doubles], tmp_path: Path) -> None:
    days = read(european(values), tmp_path)
    assert days.columns == ["ds", "AT", "UK"]
    assert (days["ds"][0], days["ds"][-1], days.height) == (DAYS.first, DAYS.last, 10)
    for day in range(10):
        slow = [sum(values[name][24 * day : 24 * day + 24]) / 24 for name in ("AT", "UK")]
        assert days.row(day)[1:] == pytest.approx(slow, rel=1e-6)


def test_numbers_of_the_rows_in_front_are_no_country(values: dict[str, Doubles], tmp_path: Path) -> None:
    numbered = {"": np.arange(240.0), **values}
    assert read(european(numbered), tmp_path / "a").equals(read(european(values), tmp_path / "b"))


def test_blank_lines_at_the_end_change_nothing(values: dict[str, Doubles], tmp_path: Path) -> None:
    text = european(values)
    assert read(text + b"\n\n", tmp_path / "blank").equals(read(text, tmp_path / "plain"))


def test_a_file_that_is_dark_at_night_is_said_to_be_of_the_sun(
    values: dict[str, Doubles], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        read(european(values), tmp_path / "wind")
        assert caplog.messages == []
        dark = {name: np.where(np.arange(240) % 24 < 8, 0, column) for name, column in values.items()}
        read(european(dark), tmp_path / "sun")
    assert caplog.messages == [f"{FILE} is zero after every midnight: it seems to hold solar power, not wind power"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: {name: column[:-1] for name, column in v.items()}, "239 rows instead of the 240 hours of 10 days"),
        (lambda v: v | {"AT11": v["AT"]}, "a column 'AT11'"),
        (lambda v: v | {"BE": np.full(240, np.nan)}, "cells of BE without a number"),
    ],
)
def test_another_table_is_refused(change: object, said: str, values: dict[str, Doubles], tmp_path: Path) -> None:
    assert callable(change)
    with pytest.raises(DataError, match=rf"{FILE} must be as its source distributes it. Got {said}"):
        read(european(change(values)).replace(b"nan", b""), tmp_path)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Got (a column|lines that polars)"):
        read(b"<!DOCTYPE html>\n<html>please log in</html>\n", tmp_path)


def test_the_paper_s_span_has_the_paper_s_length() -> None:
    assert (named("wind").last - named("wind").first).days + 1 == 10957
