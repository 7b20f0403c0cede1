"""Downloads resume, never mix two contents, and errors say how to download by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logsparse.errors import DataError
from logsparse.paper.catalogue import DATASETS
from logsparse.paper.download import download
from original_files import packed
from small_server import Server, serving

CONTENT = np.random.default_rng(0).bytes(2_500_000)
PAGE = "https://example.org/page"
MOST = 10_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server({"data.bin": CONTENT})) as running:
        yield running


def fetch(server: Server, folder: Path, name: str = "data.bin") -> Path:
    target = folder / "new" / name
    download(server.url(name), target, page=PAGE, most=MOST, verbose=False, tries=2, pause=0)
    assert sorted(path.name for path in target.parent.iterdir()) == [name]
    return target


def interrupted(server: Server, folder: Path, after: int = 1_000_000) -> None:
    """A run that was stopped for good, with so many bytes on disk."""
    server.cuts = [after, 0, 0, 0, 0]
    with pytest.raises(DataError):
        fetch(server, folder)
    server.cuts = []
    server.asked.clear()
    server.sent = 0


def test_a_file_comes_whole_and_nothing_else_is_left(server: Server, tmp_path: Path) -> None:
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_download_that_breaks_off_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_000_000, 700_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert [headers.get("Range") for headers in server.asked] == [None, "bytes=1000000-", "bytes=1700000-"]
    assert {headers.get("If-Range") for headers in server.asked[1:]} == {'"one"'}
    assert server.sent == len(CONTENT)


def test_another_run_goes_on_too(server: Server, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[0]["Range"] == "bytes=1000000-"
    assert server.sent == len(CONTENT) - 1_000_000


@pytest.mark.parametrize(
    ("minds", "etag", "size"),
    [(True, '"two"', 2_400_000), (False, '"two"', 2_500_000), (False, '"one"', 2_400_000)],
    ids=["the server tells", "the mark tells", "the size tells"],
)
def test_content_that_changed_meanwhile_is_fetched_from_its_start(
    minds: bool, etag: str, size: int, server: Server, tmp_path: Path
) -> None:
    interrupted(server, tmp_path)
    other = np.random.default_rng(1).bytes(size)
    server.files["data.bin"], server.etag, server.honours_if_range = other, etag, minds
    assert fetch(server, tmp_path).read_bytes() == other
    assert server.asked[0]["Range"] == "bytes=1000000-"


def test_content_that_became_shorter_than_the_part_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    server.files["data.bin"], server.honours_if_range = CONTENT[:1000], False
    assert fetch(server, tmp_path).read_bytes() == CONTENT[:1000]


def test_a_server_that_cannot_go_on_starts_anew(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cuts = False, [1_000_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.sent == len(CONTENT) + 1_000_000


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_mark_of_the_content_nothing_is_joined(etag: str | None, server: Server, tmp_path: Path) -> None:
    server.etag, server.cuts = etag, [1_000_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert [headers.get("Range") for headers in server.asked] == [None, None]


def test_the_time_of_the_last_change_is_a_mark_too(server: Server, tmp_path: Path) -> None:
    server.etag, server.modified, server.cuts = None, "Thu, 01 Jan 2026 00:00:00 GMT", [1_000_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[1]["If-Range"] == server.modified


def test_content_of_unknown_length_is_fetched_and_its_break_is_noticed(server: Server, tmp_path: Path) -> None:
    server.chunked, server.cuts = True, [1_000_000]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked[1]["Range"].startswith("bytes=")
    assert server.sent < len(CONTENT) + 300_000


def test_a_part_of_another_url_is_not_continued(server: Server, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    note = tmp_path / "new" / "data.bin.part.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"url": "http://elsewhere"}))
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert "Range" not in server.asked[0]


def test_a_part_that_was_complete_is_only_renamed(server: Server, tmp_path: Path) -> None:
    interrupted(server, tmp_path)
    (tmp_path / "new" / "data.bin.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.asked == []


def test_what_is_not_there_is_said_at_once_with_the_way_out(server: Server, tmp_path: Path) -> None:
    text = (
        rf"An original must be available for download. Got {server.url('gone.zip')}: HTTP 404 Not Found. "
        rf"Hint: download it by hand from {PAGE} and give the file with --from."
    )
    with pytest.raises(DataError, match=text):
        fetch(server, tmp_path, "gone.zip")
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_passing_trouble_of_the_server_is_waited_out(server: Server, tmp_path: Path) -> None:
    server.statuses = [503]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    server.statuses = [503] * 5
    with pytest.raises(DataError, match="HTTP 503"):
        fetch(server, tmp_path / "again")


def test_tries_that_bring_nothing_new_come_to_an_end(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_000_000, 0, 0, 0, 0]
    text = "after 1,000,000 of 2,500,000 bytes. Hint: run the command again, which resumes after 1,000,000 bytes if"
    with pytest.raises(DataError, match=text):
        fetch(server, tmp_path)
    assert len(server.asked) == 3


def test_without_a_network_the_download_fails_at_once_with_a_hint(tmp_path: Path) -> None:
    with serving(Server()) as gone:
        url = gone.url("data.bin")
    with pytest.raises(DataError, match=rf"Got {url}: .*refused. Hint: download it by hand from {PAGE}"):
        download(url, tmp_path / "data.bin", page=PAGE, most=MOST, pause=1000)


def test_a_page_that_came_instead_of_an_archive_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.files |= {"page.zip": b"<!DOCTYPE html><p>moved</p>", "all.zip": packed({"a": b"b"})}
    with pytest.raises(DataError, match=r"not a zip archive, but something that begins b'<!DOCTYPE html><p>mo'"):
        fetch(server, tmp_path, "page.zip")
    assert list((tmp_path / "new").iterdir()) == []
    assert fetch(server, tmp_path, "all.zip").exists()


def refused(server: Server, folder: Path, reason: str, **limits: float) -> None:
    """At once, by one clear line, with nothing left on disk."""
    words: dict[str, Any] = {"most": MOST, **limits}
    with pytest.raises(
        DataError, match=rf"^An original must be available for download. Got .*: {reason}. Hint: download it"
    ):
        download(server.url("data.bin"), folder / "data.bin", page=PAGE, verbose=False, pause=1000, **words)
    assert len(server.asked) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("length", ["abc", "-5", "1.5", "9" * 5000])
def test_a_length_that_is_no_number_of_bytes_is_refused(length: str, server: Server, tmp_path: Path) -> None:
    server.length = length
    refused(server, tmp_path, rf"a Content-Length of '{length[:40]}', which is not a number of bytes")


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "not declared"])
def test_content_larger_than_expected_is_refused(chunked: bool, server: Server, tmp_path: Path) -> None:
    server.chunked = chunked
    refused(server, tmp_path, r"[\d,]+ bytes, where at most 1,000,000 are expected", most=1_000_000)
    assert server.sent <= len(CONTENT)


def test_a_redirection_away_from_the_web_is_not_followed(server: Server, tmp_path: Path) -> None:
    server.moved_to = "FTP://127.0.0.1/data.bin"
    refused(server, tmp_path, "only http and https are followed, not ftp://127.0.0.1/data.bin")


def test_a_redirection_to_a_file_is_not_followed(server: Server, tmp_path: Path) -> None:
    server.moved_to = "file:///etc/hostname"
    refused(server, tmp_path, r"HTTP 302 .*file:///etc/hostname.*")


def test_a_redirection_within_the_web_is_followed(server: Server, tmp_path: Path) -> None:
    with serving(Server({"data.bin": b"old"}, moved_to=server.url("data.bin"))) as old:
        assert fetch(old, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/a", "file:///etc/hostname", "/etc/hostname"])
def test_only_the_web_is_asked(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"Got {url}: only http and https are followed, not {url}. Hint: download it"):
        download(url, tmp_path / "data.bin", page=PAGE, most=MOST)


def test_a_server_that_trickles_is_left_when_the_time_is_over(server: Server, tmp_path: Path) -> None:
    server.drip = 0.01
    begun = time.monotonic()
    text = r"the time for this download is over. Hint: run the command again, which resumes after [1-9]\d* bytes"
    with pytest.raises(DataError, match=text):
        download(server.url("data.bin"), tmp_path / "data.bin", page=PAGE, most=MOST, seconds=0.5, verbose=False)
    assert time.monotonic() - begun < 10
    server.drip = 0.0
    assert 0 < (tmp_path / "data.bin.part").stat().st_size < 1000
    download(server.url("data.bin"), tmp_path / "data.bin", page=PAGE, most=MOST, verbose=False)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.asked[1]["Range"].startswith("bytes=")


def test_every_source_that_is_downloaded_has_a_limit() -> None:
    sources = {dataset.source for dataset in DATASETS if dataset.source}
    assert all(source.most > 0 for source in sources if source.urls)


def test_trouble_of_the_disk_is_not_taken_for_trouble_of_the_way(server: Server, tmp_path: Path) -> None:
    (tmp_path / "new" / "data.bin.part").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("chunked", "said"), [(False, "3 of 3"), (True, "2")])
def test_progress_is_shown_in_megabytes(
    chunked: bool, said: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.chunked = chunked
    download(server.url("data.bin"), tmp_path / "data.bin", page=PAGE, most=MOST)
    assert f"downloading data.bin, MB: {said}, 0m00s, done" in capsys.readouterr().err
