"""A table that does not fit into memory is refused before it is read; pipes and devices are not opened."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import polars as pl
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError
from logsparse.process import available, check_memory

UNDER_3_GB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, 3 * 10**9))
from logsparse.data.frame import to_panel
try:
    print(to_panel(sys.argv[1]))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def under_3_gb(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", UNDER_3_GB, path], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_small_file_of_many_rows_is_refused_by_its_metadata(ending: str, tmp_path: Path) -> None:
    path, rows = tmp_path / f"x.{ending}", 30_000_000
    table = pl.LazyFrame({"ds": [0]}).select(
        pl.repeat(0, rows).alias("ds"), pl.repeat(1.0, rows).alias("y"), pl.repeat(1, rows).alias("unique_id")
    )
    table.sink_parquet(path) if ending == "parquet" else table.sink_ipc(path, compression="zstd")
    assert path.stat().st_size < 10_000_000
    output = under_3_gb(path)
    assert output.startswith(
        "DataError: A table must fit into memory. Got 30000000 rows, which need about 3.4 GiB, while "
    )
    assert "Hint: read fewer series, a shorter span or fewer columns at a time" in output


def test_what_fits_is_read_under_a_limit(tmp_path: Path) -> None:
    pl.DataFrame({"unique_id": "a", "ds": range(1000), "y": 1.0}).write_parquet(tmp_path / "x.parquet")
    assert under_3_gb(tmp_path / "x.parquet").startswith("Panel(1 series, 1_000 values")


def test_the_limit_is_what_is_free() -> None:
    check_memory(available() / 2, "some rows")
    with pytest.raises(
        DataError, match=r"A table must fit into memory. Got some rows, which need about .* GiB are free"
    ):
        check_memory(2 * available() + 2**30, "some rows")


@pytest.mark.parametrize("columns", [1, 20_000])
def test_the_size_of_a_grid_counts_all_columns(columns: int) -> None:
    wide = pl.DataFrame({"ds": [0, 1, 90_000], **{f"s{i}": [1.0, 2.0, 3.0] for i in range(columns)}})
    if columns == 1:
        assert to_panel(wide).lengths.tolist() == [90_001]
        return
    with pytest.raises(
        DataError, match=r"must not be much larger than the number of rows. Got 3 rows on a grid of 90001 steps"
    ):
        to_panel(wide)


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_pipes_sockets_and_devices_are_refused_unopened(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / f"pipe.{ending}")
    (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the path of a socket may have some hundred characters only
        server.bind(f"socket.{ending}")
        for name in ("pipe", "zero", "socket"):
            with pytest.raises(
                DataError, match=rf"{name}.{ending}: a pipe, socket or device. Hint: write its content to a file"
            ):
                to_panel(tmp_path / f"{name}.{ending}")


def test_a_part_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    table = pl.DataFrame({"unique_id": "a", "ds": [1, 2], "y": 1.0})
    table.write_parquet(tmp_path / "a.parquet")
    for name, make, reason in (
        ("pipe.parquet", os.mkfifo, "a pipe, socket or device"),
        ("gone.parquet", lambda path: path.symlink_to("nowhere"), "no such file"),
    ):
        make(tmp_path / name)
        with pytest.raises(DataError, match=rf"{name}: {reason}"):
            to_panel(tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / "link.parquet").symlink_to(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="Each series must have one row per time"):
        to_panel(tmp_path)  # a link to a file is a part


def test_compressed_files_are_not_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "a" * 1000)
    compressed = [
        path.read_bytes(),
        zlib.compress(b"unique_id,ds,y\na,1,1\n", 0),
        zlib.compress(b"a" * 10**6),
        b"\x1f\x8b rest",
    ]
    for content in compressed:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x.csv: a compressed file. Hint: decompress it first"):
            to_panel(path)


def test_a_file_without_line_ends_is_refused_early(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        file.truncate(2**26)
    with pytest.raises(DataError, match=r"x.csv: a line of 16,777,216 characters or more"):
        to_panel(path)
    with path.open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(
        DataError, match=r"A table must fit into memory. Got the rows of .*x.csv, which need about 12288.0 GiB"
    ):
        to_panel(path)
