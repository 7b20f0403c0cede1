"""T, M and S in the paper beside those of the data files that are present."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from logsparse.paper.figures import STATISTICS
from logsparse.paper.prepare import VARIABLE


def lines() -> dict[str, list[str]]:
    (table,) = STATISTICS.tables([], {})
    return {line[0]: line[1:] for line in table.lines}


def test_missing_sets_show_the_numbers_of_the_paper_and_how_to_get_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = lines()
    assert len(found) == 7
    note = "no data: run `logsparse data get electricity-f`."
    assert found["electricity-f"] == ["129120", "-", "370", "-", "15 mins", "-", note]
    assert found["m4-hourly"][0] == "748/1008"


def test_a_set_is_counted_and_differences_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    times = pl.datetime_range(pl.datetime(2006, 1, 1), pl.datetime(2006, 1, 3), "1h", eager=True, closed="left")
    pl.DataFrame({"unique_id": "a", "ds": times, "y": 1.0}).write_parquet(tmp_path / "solar_hourly.parquet")
    shown = lines()["solar"]
    assert shown == ["5832", "48", "137", "1", "1 hour", "1 hour", "differs from what is expected in: T, M, span"]


def test_an_unreadable_file_affects_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "solar_hourly.parquet").write_bytes(b"")
    found = lines()
    assert found["solar"][:6] == ["5832", "-", "137", "-", "1 hour", "-"]
    assert "solar_hourly.parquet must hold the data set solar. Got " in found["solar"][6]
    assert len(found) == 7


def test_the_real_sets_agree_with_the_paper(shared_data: Path) -> None:
    del shared_data
    assert lines()["solar"] == ["5832", "5832", "137", "137", "1 hour", "1 hour", ""]
