"""NREL's plants: five minutes become means, months come before days, forecasts in the same archive are left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import SOLAR, named
from logsparse.paper.prepare import load
from logsparse.paper.sources import read_solar
from original_files import Doubles, found, nrel

FIRST = datetime.fromisoformat("2006-01-31 00:00")
HOURLY = replace(named("solar"), span=("2006-01-31 00:00", "2006-02-01 17:00"))
FINE = replace(named("solar-10min"), span=("2006-01-31 00:00", "2006-02-01 17:50"))
NAMES = ("Actual_30.55_-87.55_2006_UPV_80MW_5_Min.csv", "Actual_30.45_-88.25_2006_DPV_70MW_5_Min.csv")


@pytest.fixture
def values() -> Doubles:
    return np.round(np.random.default_rng(2).uniform(0, 80, (2, 3 * 288)), 1)


def read(files: dict[str, bytes], folder: Path, *, fine: bool = False) -> pl.DataFrame:
    return read_solar(found(folder, files, *SOLAR.files), FINE if fine else HOURLY)


@pytest.mark.parametrize(("fine", "per_bin"), [(False, 12), (True, 2)])
def test_each_bin_is_the_mean_of_the_five_minutes_that_begin_in_it(
    fine: bool, per_bin: int, values: Doubles, tmp_path: Path
) -> None:
    files = {name: nrel(FIRST, values[i]) for i, name in enumerate(NAMES)}
    forecasts = {"DA_30.55_-87.55_2006_UPV_80MW_60_Min.csv": b"LocalTime,Power(MW)\n", "HA4_x_60_Min.csv": b""}
    wide = read(files | forecasts, tmp_path, fine=fine)
    assert wide.columns == ["ds", "30.45_-88.25_DPV_70MW", "30.55_-87.55_UPV_80MW"]
    assert wide["ds"].to_list() == [FIRST + i * timedelta(minutes=5 * per_bin) for i in range(42 * 12 // per_bin)]
    for place in (0, 1, 41):
        for column, plant in ((1, 1), (2, 0)):
            slow = sum(values[plant, place * per_bin + i] for i in range(per_bin)) / per_bin
            assert wide.row(place)[column] == pytest.approx(slow, rel=1e-6)


def test_an_hour_of_the_original_is_the_hour_of_the_ready_file(shared_data: Path, tmp_path: Path) -> None:
    """07:00 to 07:55 on 2006-01-01 as NREL's file of this plant has it."""
    assert shared_data
    morning = np.array([0, 0, 0, 0, 0, 0, 0, 1.3, 7.8, 9.1, 11.5, 13.9])
    day = np.concatenate([np.zeros(84), morning, np.zeros(192)])
    new_year = replace(HOURLY, span=("2006-01-01 00:00", "2006-01-01 07:00"))
    original = nrel(datetime.fromisoformat("2006-01-01 00:00"), day)
    ours = read_solar(found(tmp_path, {NAMES[0]: original}, *SOLAR.files), new_year)
    ready = load("solar")
    np.testing.assert_array_equal(ours[:, 1].to_numpy(), ready[ready.ids.index(ours.columns[1])][:8])


def test_blank_lines_at_the_end_change_nothing(values: Doubles, tmp_path: Path) -> None:
    text = nrel(FIRST, values[0])
    blank = read({NAMES[0]: text + b"\r\n\n"}, tmp_path / "blank")
    assert blank.equals(read({NAMES[0]: text}, tmp_path / "plain"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"01/31/06 07:05", b"31/01/06 07:05", "the time '31/01/06 07:05' instead of one like 01/31/06 23:55"),
        (b"01/31/06 07:05", b"01/31/06 07:06", "864 times that are not whole days of 5 minutes"),
        (b"02/02/06 23:55", b"", "lines that cannot|the time None|rows without"),
        (b"01/31/06 00:00,", b"01/31/06 00:00,x", r"lines that cannot be read like its others \(could not parse"),
    ],
)
def test_a_file_that_is_not_the_original_is_refused(
    old: bytes, new: bytes, said: str, values: Doubles, tmp_path: Path
) -> None:
    text = nrel(FIRST, values[0])
    assert old in text
    with pytest.raises(DataError, match=rf"{NAMES[0]} must be as its source distributes it. Got ({said})"):
        read({NAMES[0]: text.replace(old, new)}, tmp_path)


def test_plants_must_share_their_times(values: Doubles, tmp_path: Path) -> None:
    later = nrel(FIRST + timedelta(days=1), values[1])
    with pytest.raises(DataError, match=f"{NAMES[0]} must .* Got other times than in {NAMES[1]}"):
        read({NAMES[0]: nrel(FIRST, values[0]), NAMES[1]: later}, tmp_path)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Got no rows"):
        read({NAMES[0]: b"LocalTime,Power(MW)\n"}, tmp_path)
