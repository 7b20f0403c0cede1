"""M4: training and test rows are joined, from the starting date of each series; the whole real set comes back equal."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import named
from logsparse.paper.sources import read_m4
from original_files import found, m4

START = datetime.fromisoformat("2015-07-01 12:00")
SERIES = {
    "H1": (START, [float(value) for value in range(600, 660)]),
    "H2": (START + timedelta(days=3), [0.5 * value for value in range(80)]),
}


def read(files: dict[str, bytes], folder: Path) -> pl.DataFrame:
    return read_m4(found(folder, files), named("m4-hourly"))


def test_short_and_long_series_are_joined_with_their_test_parts(tmp_path: Path) -> None:
    long = read(m4(SERIES), tmp_path)
    assert long.columns == ["unique_id", "ds", "y", "split"]
    for name, (start, values) in SERIES.items():
        rows = long.filter(unique_id=name)
        assert rows["y"].to_list() == values
        assert rows["ds"].to_list() == [start + timedelta(hours=i) for i in range(len(values))]
        assert rows["split"].to_list() == ["train"] * (len(values) - 48) + ["test"] * 48


def test_the_whole_real_set_goes_through_the_original_format_unchanged(shared_data: Path, tmp_path: Path) -> None:
    ready = pl.read_parquet(shared_data / "m4_hourly.parquet")
    series = {
        str(name): (rows["ds"][0], rows["y"].to_list())
        for (name,), rows in ready.group_by(["unique_id"], maintain_order=True)
    }
    assert read(m4(series), tmp_path).equals(ready)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("Hourly-test.csv", b'"H2",', b'"H3",', "Hourly-train.csv must .* Got 2 series, without H3 of the other file"),
        ("Hourly-test.csv", b'"H1","612",', b'"H1",', "Hourly-test.csv must .* 47 values of H1 instead of 48"),
        ("Hourly-train.csv", b'"601"', b'"x"', "Hourly-train.csv must .* a field of H1 that is not a number"),
        ("Hourly-train.csv", b'"601"', b"", "Hourly-train.csv must .* a field of H1 that is not a number"),
        ("Hourly-train.csv", b'"H2"', b'"H1"', "Hourly-train.csv must .* series H1 twice"),
        ("M4-info.csv", b"H2,Other", b"H9,Other", "M4-info.csv must .* no starting date of H2"),
        ("M4-info.csv", b"04-07-15 12:00", b"yesterday", "M4-info.csv must .* a starting date that is not a date"),
        ("M4-info.csv", b"M4id", b"id", "M4-info.csv must .* the columns id, category"),
    ],
)  # fmt: skip
def test_files_that_are_not_the_originals_are_refused(
    file: str, old: bytes, new: bytes, said: str, tmp_path: Path
) -> None:
    files = m4(SERIES)
    assert old in files[file]
    files[file] = files[file].replace(old, new, 1)
    with pytest.raises(DataError, match=said):
        read(files, tmp_path)


def test_empty_files_are_refused(tmp_path: Path) -> None:
    empty = {name: content.partition(b"\n")[0] for name, content in m4(SERIES).items()}
    with pytest.raises(DataError, match="no series; m4-hourly has 414"):
        read(empty, tmp_path)
