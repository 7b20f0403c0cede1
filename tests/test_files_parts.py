"""A folder of parquet files is one table, even if their types differ."""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError

pa: Any = import_module("pyarrow")
DAYS = [datetime(2024, 1, day) for day in range(1, 7)]  # noqa: DTZ001


def part(days: slice, **more: object) -> pl.DataFrame:
    times = DAYS[days]
    return pl.DataFrame({"unique_id": "a", "ds": times, "y": [float(t.day) for t in times], **more}, strict=False)


def test_partitions_are_a_column_of_text(tmp_path: Path) -> None:
    table = pa.table({"unique_id": ["007", "007", "a b", "a b"], "ds": [1, 2, 1, 2], "y": [1.0, 2.0, 3.0, 4.0]})
    dataset: Any = import_module("pyarrow.dataset")
    hive = dataset.partitioning(pa.schema([("unique_id", pa.string())]), flavor="hive")
    dataset.write_dataset(table, tmp_path, format="parquet", partitioning=hive)
    panel = to_panel(tmp_path)
    assert dict(zip(panel.ids, (panel[i].tolist() for i in range(2)), strict=True)) == {"007": [1, 2], "a b": [3, 4]}


def test_number_types_and_time_units_are_unified_and_other_columns_may_differ(tmp_path: Path) -> None:
    one = part(slice(0, 3), note="x").with_columns(pl.col("y").cast(pl.Float32), pl.col("ds").dt.cast_time_unit("ms"))
    other = part(slice(3, 6), extra=[[1]] * 3, note=5).select("extra", "y", "note", "ds", "unique_id")
    one.write_parquet(tmp_path / "a.parquet")
    other.with_columns(pl.col("y").cast(pl.Int64)).write_parquet(tmp_path / "b.parquet")
    assert to_panel(tmp_path)[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_wide_part_may_bring_a_series_of_its_own(tmp_path: Path) -> None:
    pl.DataFrame({"ds": DAYS[:3], "x": 1.0}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"ds": DAYS[3:], "z": 2.0, "x": 1.0}).write_parquet(tmp_path / "b.parquet")
    panel = to_panel(tmp_path)
    assert (panel.ids, panel.lengths.tolist()) == (("x", "z"), [6, 3])


def test_hidden_files_are_skipped(tmp_path: Path) -> None:
    part(slice(0, 3)).write_parquet(tmp_path / "a.parquet")
    (tmp_path / ".b.parquet").write_bytes(b"junk")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.parquet").write_bytes(b"junk")
    assert to_panel(tmp_path).lengths.tolist() == [3]


def test_parts_that_disagree_are_refused_by_name(tmp_path: Path) -> None:
    part(slice(0, 3)).write_parquet(tmp_path / "a.parquet")
    part(slice(3, 6), ds="x").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"agree on the column 'ds'. Got Datetime.* in a.parquet, String in b.parquet"):
        to_panel(tmp_path)
    zoned = part(slice(3, 6)).with_columns(pl.col("ds").dt.replace_time_zone("UTC"))
    zoned.write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"agree on the column 'ds'. Got .*None\) in a.parquet, .*'UTC'\) in b.parquet"):
        to_panel(tmp_path)


def test_a_folder_without_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a folder without parquet files in it. Hint"):
        to_panel(tmp_path)
