"""The load diagrams: decimal commas are read, hours are sums of four quarters to their right, spans are cut."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper import download
from logsparse.paper.catalogue import named
from logsparse.paper.sources import read_electricity
from original_files import Doubles, electricity, found

FIRST = datetime.fromisoformat("2011-01-01 00:15")
HOURLY = replace(named("electricity-c"), span=("2011-01-01 00:00", "2011-01-02 11:00"))
FINE = replace(named("electricity-f"), span=("2011-01-01 00:15", "2011-01-02 10:00"))


@pytest.fixture
def values() -> Doubles:
    """Two days of quarters of three customers; the first is not there yet on the first day."""
    drawn = np.random.default_rng(0).uniform(0, 500, (192, 3))
    drawn[:96, 0] = 0
    return drawn


def read(text: bytes, folder: Path, *, fine: bool = False) -> pl.DataFrame:
    return read_electricity(found(folder, {"LD2011_2014.txt": text}), FINE if fine else HOURLY)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [1 << 24, 1000])
def test_an_hour_is_the_sum_of_the_four_quarters_that_end_in_it(
    values: Doubles,
    newline: str,
    block: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "_BLOCK", block)
    hours = read(electricity(FIRST, values, newline), tmp_path)
    assert hours.columns == ["ds", "MT_001", "MT_002", "MT_003"]
    assert hours.dtypes[1:] == [pl.Float32] * 3
    assert (hours["ds"][0], hours["ds"][-1]) == (HOURLY.first, HOURLY.last)
    for hour in range(36):  # 00:00 = 00:15 + 00:30 + 00:45 + 01:00
        expected = [sum(values[4 * hour + quarter, customer] for quarter in range(4)) for customer in range(3)]
        assert hours.row(hour)[1:] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("block", [1 << 24, 1000])
def test_quarters_stay_as_they_are_with_the_zeros_before_a_customer_s_first_day(
    values: Doubles,
    block: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "_BLOCK", block)
    quarters = read(electricity(FIRST, values), tmp_path, fine=True)
    assert quarters["ds"].to_list() == [FIRST + i * (FIRST - HOURLY.first) for i in range(136)]
    np.testing.assert_array_equal(quarters.drop("ds").to_numpy(), values[:136].astype(np.float32))
    assert quarters["MT_001"][0] == 0


@pytest.mark.parametrize("fine", [False, True])
def test_a_mark_in_front_and_blank_lines_behind_change_nothing(fine: bool, values: Doubles, tmp_path: Path) -> None:
    text = electricity(FIRST, values)
    marked = read(b"\xef\xbb\xbf" + text + b"\r\n\n  \n", tmp_path / "marked", fine=fine)
    assert marked.equals(read(text, tmp_path / "plain", fine=fine))


@pytest.mark.parametrize("fine", [False, True])
def test_a_file_without_rows_is_refused(fine: bool, values: Doubles, tmp_path: Path) -> None:
    header = electricity(FIRST, values).partition(b"\n")[0] + b"\n"
    with pytest.raises(DataError, match=r"LD2011_2014.txt must .* Got no row below the customers\. Hint: "):
        read(header, tmp_path, fine=fine)


def test_the_paper_s_spans_have_the_paper_s_lengths() -> None:
    hours = (named("electricity-c").last - named("electricity-c").first).total_seconds() / 3600 + 1
    quarters = (named("electricity-f").last - named("electricity-f").first).total_seconds() / 900 + 1
    assert (hours, quarters) == (32304, 129120)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"";"MT_001"', b'"ds","MT_001"', "a first line that begins .* instead of the customers MT_001, MT_002"),
        (b'"2011-01-01 05:15:00";0;', b'"2011-01-01 05:15:00";;', "an empty cell in the row of 2011-01-01 05:15:00"),
        (b'"2011-01-01 05:15:00"', b'"01.01.2011 05:15"', "lines that cannot be read like its others .*failed"),
        (b'"2011-01-01 05:15:00"', b'"2011-01-01 07:15:00"', "other than four quarters, .* from 2011-01-01 05:00:00"),
        (b'"2011-01-01 05:15:00"', b'"2011-01-01 05:30:00"', "other than four quarters, each once, in the hour from"),
        (
            b'"2011-01-01 05:15:00";0;',
            b'"2011-01-01 05:15:00";x;',
            r"lines that cannot be read like its others \(could not parse",
        ),
    ],
)
def test_a_file_that_is_not_the_original_is_refused_with_the_place(
    values: Doubles, old: bytes, new: bytes, said: str, tmp_path: Path
) -> None:
    text = electricity(FIRST, values)
    assert old in text
    with pytest.raises(DataError, match=rf"LD2011_2014.txt must be as its source distributes it. Got {said}"):
        read(text.replace(old, new), tmp_path)
