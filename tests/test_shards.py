"""A table becomes parts of whole series; a folder that is not made of such parts is refused with the way to mend it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logsparse as ls
from command import logsparse, refusal
from logsparse.cluster import shards
from logsparse.cluster.shards import part_number, series_per_part
from small_shards import frame, mounted

NAMES = ["ds", "y"]


def series_of(folder: Path) -> dict[str, set[str]]:
    return {path.name: set(pl.read_parquet(path)["unique_id"]) for path in sorted(folder.glob("*.parquet"))}


def test_every_series_lies_whole_in_one_part_and_no_row_is_lost(tmp_path: Path) -> None:
    found = ls.shard(frame(), tmp_path / "parts", parts=4)
    every = [name for ids in series_of(tmp_path / "parts").values() for name in ids]
    assert len(every) == len(set(every)) == sum(found.values()) == 40
    rows = pl.concat(pl.read_parquet(path) for path in sorted((tmp_path / "parts").glob("*.parquet")))
    key = ["unique_id", "ds"]
    assert_frame_equal(rows.sort(key), frame().sort(key))
    assert list(found) == [f"part-0000{i}-of-00004.parquet" for i in range(4)]


def test_the_part_of_an_id_never_changes() -> None:
    assert [part_number(name, 1000) for name in ("a", "meter_7", "7", 7, -7, "ä")] == [379, 188, 257, 93, 288, 995]


def test_pieces_and_the_order_of_rows_do_not_change_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ls.shard(frame(), tmp_path / "whole", parts=3)
    monkeypatch.setattr(shards, "_ROWS_AT_ONCE", 1000)
    frame().write_parquet(tmp_path / "table.parquet", row_group_size=700)
    ls.shard(tmp_path / "table.parquet", tmp_path / "pieces", parts=3)
    ls.shard(frame().sort("unique_id", maintain_order=True), tmp_path / "sorted", parts=3)
    for other in ("pieces", "sorted"):
        for path in sorted((tmp_path / "whole").iterdir()):
            assert (tmp_path / other / path.name).read_bytes() == path.read_bytes()


def test_ids_of_numbers_and_other_columns_stay_as_they_are(tmp_path: Path) -> None:
    table = pl.DataFrame({"shop": [1, 2, 1], "ds": [1, 1, 2], "price": [None, 2.5, 3.5], "note": ["x", None, "y"]})
    table.write_parquet(tmp_path / "table.parquet")
    done = logsparse("shard", tmp_path / "table.parquet", "-o", tmp_path / "parts", "--parts", "1", "--id-col", "shop")
    assert (done.code, done.out) == (0, "parts            1\nseries           2\nseries per part  2\n")
    assert_frame_equal(pl.read_parquet(tmp_path / "parts" / "*.parquet"), table.sort("shop", maintain_order=True))


def test_a_part_that_would_be_empty_is_not_written(tmp_path: Path) -> None:
    found = ls.shard(pl.DataFrame({"unique_id": ["a"], "ds": [1], "y": [1.0]}), tmp_path / "parts", parts=50)
    assert (len(found), len(list((tmp_path / "parts").iterdir()))) == (1, 1)


MEASURED = """
import sys
from pathlib import Path
from logsparse.cluster import shards
shards._ROWS_AT_ONCE = 100_000
shards.shard(sys.argv[1], sys.argv[2], parts=int(sys.argv[3]))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    peaks = []
    for times in (1, 8):
        row = pl.int_range(250_000 * times, eager=True)
        table = pl.DataFrame(
            {"unique_id": row % 500, "ds": row // 500, "y": 1.0, "note": "text of more than twelve bytes"}
        )
        path = tmp_path / f"{times}.parquet"
        table.write_parquet(path, row_group_size=50_000)
        words: list[str | Path] = [sys.executable, "-c", MEASURED, path, tmp_path / f"parts{times}", str(5 * times)]
        peaks.append(int(subprocess.run(words, check=True, capture_output=True, text=True).stdout))
        size = table.estimated_size() // 2**20
    assert peaks[1] - peaks[0] < size / 3, (peaks, size)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table.parquet", "-o", "full"], "new or empty folder. Got full with other.txt. Hint: give another folder"),
        (["table.parquet", "-o", "parts", "--parts", "0"], "parts must be at least 1. Got 0"),
        (
            ["table.parquet", "-o", "parts", "--id-col", "shop"],
            "must be long, with a column of ids. Got no 'shop' among unique_id, ds, y. Hint: name it with --id-col",
        ),
        (["empty.parquet", "-o", "parts"], "A table to shard must have rows. Got an empty table"),
        (["nulls.parquet", "-o", "parts"], "Every row must have an id in 'unique_id'. Got missing ids"),
        (["full", "-o", "full/parts"], "Parts must be written outside of the data"),
        (["missing.parquet", "-o", "parts"], "missing.parquet: no such file"),
    ],
)
def test_what_cannot_be_sharded_is_refused_and_leaves_nothing(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame(2, 1).write_parquet("table.parquet")
    frame(2, 1).clear().write_parquet("empty.parquet")
    frame(2, 1).with_columns(unique_id=pl.lit(None, pl.String)).write_parquet("nulls.parquet")
    Path("full").mkdir()
    Path("full/other.txt").touch()
    assert message in refusal("shard", *words)
    assert not list(Path().glob("parts/*"))


def test_an_unfinished_folder_is_refused_until_the_command_is_repeated(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    ls.shard(frame(), parts, parts=7)
    (parts / ".logsparse-sharding").mkdir()  # as kill -9 leaves it
    with pytest.raises(ls.DataError, match=r"has not finished. Hint: repeat that command, or remove the folder"):
        ls.to_panel(parts)
    found = ls.shard(frame(), parts, parts=3)
    assert sorted(path.name for path in parts.iterdir()) == sorted(found)
    assert len(ls.to_panel(parts)) == 40


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "64k") as place:
        yield place


def test_a_full_disk_is_one_error_and_gives_its_space_back(small_disk: Path) -> None:
    with pytest.raises(ls.DataError, match=r"The folder of parts must be writable. Got .*: No space left on device"):
        ls.shard(frame(400), small_disk / "parts", parts=4)
    assert list((small_disk / "parts").iterdir()) == []


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    ls.shard(frame(), tmp_path / "parts", parts=2)
    return tmp_path / "parts"


def test_a_series_in_two_parts_is_refused_with_the_command_that_repairs_it(parts: Path) -> None:
    one, other = sorted(parts.iterdir())
    pl.concat([pl.read_parquet(one), pl.read_parquet(other).head(3)]).write_parquet(one)
    with pytest.raises(
        ls.DataError, match=r"lie whole in one part. Got series 'meter_\d+' in part-00000-of-00002"
    ) as got:
        series_per_part(parts, "unique_id", NAMES)
    command = str(got.value).split("`")[1]
    assert logsparse(*command.replace(f"-o {parts.name}", f"-o {parts}").split()[1:]).code == 0
    assert sum(series_per_part(Path(f"{parts}-whole"), "unique_id", NAMES).values()) == 40


def test_parts_that_do_not_fit_together_are_refused_by_name(parts: Path) -> None:
    one, other = sorted(parts.iterdir())
    whole = pl.read_parquet(one)
    spoiled = {
        "agree on the column 'y'. Got it in part-00001-of-00002.parquet, but not in part-00000": whole.drop("y"),
        "agree on the column 'unique_id'. Got ": whole.with_columns(unique_id=pl.int_range(pl.len())),
        f"Every part must have rows. Got none in {one}": whole.clear(),
    }
    for message, table in spoiled.items():
        table.write_parquet(one)
        with pytest.raises(ls.DataError, match=message):
            series_per_part(parts, "unique_id", NAMES)
    one.write_bytes(other.read_bytes()[:-100])
    with pytest.raises(ls.DataError, match=rf"must be a readable parquet.*Got {one}: a polars error"):
        series_per_part(parts, "unique_id", NAMES)
    with pytest.raises(ls.DataError, match=rf"a folder of parts. Got {one}, which is a file. Hint: .*logsparse shard"):
        series_per_part(one, "unique_id", NAMES)
