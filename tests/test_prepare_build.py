"""`get` makes a set from given or downloaded originals, checks it, writes a record, and leaves no partial files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import named
from logsparse.paper.prepare import check, get, load, recall
from original_files import laid, m4, packed
from small_server import Server, serving
from small_sets import FILES, HOURLY, LOAD, PLANT, START, emptied, patched


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return emptied(tmp_path / "kept", monkeypatch)


@pytest.fixture
def server(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """M4 and the electricity archive on a server of our own."""
    assert kept
    with serving(Server({**HOURLY, "load.zip": packed(LOAD)})) as running:
        archive = ["load.zip"]
        for name, urls in {"m4-hourly": [*HOURLY], "electricity-c": archive, "electricity-f": archive}.items():
            dataset = named(name)
            assert dataset.source is not None
            source = replace(dataset.source, urls=tuple(running.url(url) for url in urls))
            patched(monkeypatch, replace(dataset, source=source))
        yield running


@pytest.mark.parametrize("name", FILES)
def test_every_set_is_made_from_its_archive_and_agrees(name: str, kept: Path, tmp_path: Path) -> None:
    laid(tmp_path, {"all.zip": packed(FILES[name])})
    path, remarks = get(name, tmp_path / "all.zip")
    assert (path, remarks) == (kept / named(name).file, [])
    report = check(name)
    assert report.agrees, report
    assert len(load(name)) == named(name).series
    record = recall(path)
    assert record is not None
    assert {entry.file: entry.sha256 for entry in record.read} == {
        file: sha256(content).hexdigest() for file, content in FILES[name].items()
    }
    assert sorted(file.name for file in kept.iterdir()) == [path.with_suffix(".json").name, path.name]


def test_a_set_is_downloaded_and_its_originals_are_kept_for_the_next(server: Server, kept: Path) -> None:
    get("m4-hourly", verbose=False)
    assert check("m4-hourly").agrees
    assert sorted(path.name for path in (kept / "originals").iterdir()) == sorted(HOURLY)
    get("electricity-c", verbose=False)
    asked = len(server.asked)
    get("electricity-f", verbose=False)
    assert len(server.asked) == asked
    assert check("electricity-f").agrees


def test_what_is_here_is_not_made_again_unless_asked(server: Server, kept: Path) -> None:
    assert kept
    get("m4-hourly", verbose=False)
    assert get("m4-hourly").remarks == ["exists already; --again makes it again"]
    assert len(server.asked) == 3
    server.files["M4-info.csv"] += b"D1,Macro,1,14,Daily,01-01-10 12:00\n"
    (remark,) = get("m4-hourly", again=True, verbose=False).remarks
    assert remark.startswith("M4-info.csv differs from the one read at 2")
    assert len(server.asked) == 6


def test_originals_of_another_shape_are_refused_and_the_old_file_stays(kept: Path, tmp_path: Path) -> None:
    laid(tmp_path / "good", HOURLY)
    laid(tmp_path / "bad", m4({"H1": (START, [1.0] * 100)}))
    path = get("m4-hourly", tmp_path / "good").path
    before = path.read_bytes()
    with pytest.raises(
        DataError, match=r"m4-hourly must be as its source distributes it. Got T = 100 where 100/120 is known"
    ):
        get("m4-hourly", tmp_path / "bad")
    assert path.read_bytes() == before
    assert sorted(file.name for file in kept.iterdir()) == ["m4_hourly.json", "m4_hourly.parquet"]


SOME_NUMBERS = {
    "electricity-c": rb'(15:00";)[\d,]+',
    "electricity-f": rb'(15:00";)[\d,]+',
    "traffic-c": rb"(\[)0\.\d+",
    "traffic-f": rb"(\[)0\.\d+",
    "solar": rb"(00:00,)[\d.]+",
    "wind": rb"(\n)1",
    "m4-hourly": rb'("H1",")1',
}


@pytest.mark.parametrize("number", [b"nan", b"inf"])
@pytest.mark.parametrize("name", FILES)
def test_an_original_with_a_non_finite_number_is_refused_and_the_old_file_stays(
    name: str, number: bytes, kept: Path, tmp_path: Path
) -> None:
    assert kept
    path = get(name, laid(tmp_path / "good", FILES[name])).path
    before = path.read_bytes()
    file, *_ = FILES[name]
    odd = re.sub(SOME_NUMBERS[name], rb"\1" + number, FILES[name][file])
    assert odd != FILES[name][file]
    with pytest.raises(
        DataError, match=r"must be as its source .* Got (a value at \d\S+ .* not a finite number|lines that|cells of)"
    ):
        get(name, laid(tmp_path / "bad", {**FILES[name], file: odd}))
    assert path.read_bytes() == before


def test_originals_of_another_time_are_refused(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept
    patched(monkeypatch, replace(named("solar"), span=("2007-01-01 00:00", "2007-01-02 23:00")))
    laid(tmp_path / "sun", PLANT)
    with pytest.raises(
        DataError, match=r"solar must be .* Got nothing in the span 2007-01-01 00:00 to 2007-01-02 23:00"
    ):
        get("solar", tmp_path / "sun")


def test_a_set_behind_a_login_or_without_a_source_says_so(kept: Path) -> None:
    assert kept
    with pytest.raises(
        DataError, match=r"wind must be downloaded by hand. Got no --from. Hint: download it from https"
    ):
        get("wind")
    with pytest.raises(
        DataError, match=r"etth1 must be downloaded by hand. Got a set without a source. Hint: there is no"
    ):
        get("etth1", Path("somewhere"))


def test_a_folder_that_cannot_be_written_is_refused_before_the_download(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSPARSE_DATA", "/proc")
    text = "The folder of data sets must be writable. Got /proc. Hint: name another with the variable LOGSPARSE_DATA"
    with pytest.raises(DataError, match=text):
        get("m4-hourly")
    assert server.asked == []


def test_a_folder_that_is_read_only_stays_as_it_is_even_for_root(server: Server, kept: Path) -> None:
    kept.chmod(0o555)
    with pytest.raises(DataError, match=f"The folder of data sets must be writable. Got {kept}"):
        get("m4-hourly")
    kept.chmod(0o755)
    assert (server.asked, list(kept.iterdir())) == ([], [])


def test_the_parquet_file_is_what_any_reader_of_frames_takes(kept: Path, tmp_path: Path) -> None:
    assert kept
    laid(tmp_path / "sun", PLANT)
    table = pl.read_parquet(get("solar", tmp_path / "sun").path)
    assert table.schema == {"ds": pl.Datetime("us"), "1_-2_UPV_3MW": pl.Float32()}
