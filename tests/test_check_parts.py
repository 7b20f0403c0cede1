"""A folder of parts is checked part by part, with the findings and facts of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import logsparse as ls
from command import logsparse
from small_shards import frame


def spoiled() -> pl.DataFrame:
    """Some series end early, one has marks for missing values, one has no value."""
    early = pl.col("unique_id").is_in(["meter_1", "meter_2", "meter_3"]) & (pl.col("ds").dt.day() > 7)
    marked = (pl.col("unique_id") == "meter_5") & (pl.col("ds").dt.day() == 10)
    empty = pl.col("unique_id") == "meter_6"
    return frame().filter(~early).with_columns(y=pl.when(marked).then(-9999.0).when(~empty).then("y"))


@pytest.mark.parametrize("with_model", [False, True])
def test_findings_and_facts_are_those_of_the_whole(with_model: bool, tmp_path: Path) -> None:
    table = spoiled()
    known = frame().with_columns(pl.col("unique_id").str.replace("meter_9", "gone"))
    ls.SeasonalNaive(horizon=24).fit(known).save(tmp_path / "model")
    options = ["--model", tmp_path / "model"] if with_model else []
    table.write_parquet(tmp_path / "whole.parquet")
    ls.shard(table, tmp_path / "parts", parts=5)
    found = []
    for data in ("whole.parquet", "parts"):
        done = logsparse("check", tmp_path / data, "--json", *options)
        assert done.code == 3, done.err
        document = json.loads(done.out)
        # The order of the series is that of the parts.
        document["findings"].sort(key=str)
        document["bad"].sort()
        document["data"].pop("ids")
        found.append(document)
    assert found[0] == found[1]
    assert {finding["kind"] for finding in found[1]["findings"]} >= {"stale", "sentinel", "empty"}
    assert len(found[1]["bad"]) == 5 + with_model


def test_parts_of_different_steps_are_refused_and_split_series_are_read_as_one_table(tmp_path: Path) -> None:
    ls.shard(frame(6), tmp_path / "parts", parts=2)
    one = tmp_path / "parts" / "part-00000-of-00002.parquet"
    table = pl.read_parquet(one)
    table.with_columns(pl.col("ds") + (pl.col("ds") - pl.col("ds").min())).write_parquet(one)
    with pytest.raises(ls.DataError, match=r"same step. Got 2h in part-00000-of-00002.parquet and h in part-0"):
        ls.check(tmp_path / "parts")
    for half, rows in enumerate((frame(6).head(700), frame(6).tail(-700))):
        (tmp_path / "days").mkdir(exist_ok=True)
        rows.write_parquet(tmp_path / "days" / f"{half}.parquet")
    assert ls.check(tmp_path / "days").series == 6
