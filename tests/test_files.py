"""A path that cannot be written is refused before the work; a written file is whole."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logsparse.data.files import check_writable, read, write
from logsparse.errors import DataError

pa: Any = import_module("pyarrow")
TABLE = pl.DataFrame({"x": [1, 2]})


@pytest.mark.parametrize("name", ["new/deep/x.parquet", "x.csv", "x.feather"])
def test_what_is_written_can_be_read_and_nothing_else_is_left(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    check_writable(path)
    assert list(tmp_path.iterdir()) == []
    write(TABLE, path)
    assert read(path).equals(TABLE)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_paths_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    (tmp_path / "folder.csv").mkdir()
    for path, reason in (
        (tmp_path / "afile" / "x.parquet", "afile is not a folder"),
        (tmp_path / "afile" / "deep" / "x.parquet", "afile is not a folder"),
        (tmp_path / "folder.csv", "a folder of that name exists"),
        (Path("/proc/x.parquet"), "No such file|Permission"),
    ):
        for act in (check_writable, lambda path: write(TABLE, path)):
            with pytest.raises(
                DataError, match=rf"The result must be writable. Got .*({reason}).*Hint: give another path"
            ):
                act(path)
    with pytest.raises(
        DataError, match=r"Results are written as parquet, csv, feather or json. Got .*x.xls. Hint: end"
    ):
        check_writable(tmp_path / "x.xls")
    with pytest.raises(DataError, match="afile is not a folder"):
        check_writable(tmp_path / "afile", folder=True)


def test_a_parquet_file_that_polars_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fixed.parquet"
    times = pa.array([0, 1], pa.timestamp("us", "+05:30"))
    parquet: Any = import_module("pyarrow.parquet")
    parquet.write_table(pa.table({"ds": times, "y": [1.0, 2.0]}), path)
    with pytest.raises(DataError, match=r"fixed.parquet: a polars error: .*time zone"):
        read(path)
