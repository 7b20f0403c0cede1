"""Originals are found in files, folders and archives, read in blocks of whole lines, and their checksums are true."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from logsparse.errors import DataError
from logsparse.paper import download
from logsparse.paper.download import Original, find
from original_files import laid, packed

TEXT = b"one\ntwo\nthree three three\nfour"


def only(path: Path, pattern: str = "a.txt") -> Original:
    (original,) = find([path], [pattern])[pattern]
    return original


@pytest.mark.parametrize(
    "files",
    [
        {"a.txt": TEXT},
        {"deep/A.TXT": TEXT},
        {"all.zip": packed({"folder/a.txt": TEXT, "__MACOSX/folder/._a.txt": b"x"})},
        {"all.zip": packed({"inner.zip": packed({"a.txt": TEXT}), "__MACOSX/._inner.zip": b"x"})},
        {"a.txt": TEXT, "all.zip": packed({"a.txt": b"the same, packed"})},
    ],
    ids=["plain", "deep", "packed", "packed twice", "beside its archive"],
)
def test_a_file_is_found_wherever_it_lies(files: dict[str, bytes], tmp_path: Path) -> None:
    assert only(laid(tmp_path, files)).read() == TEXT


def test_a_file_or_archive_may_be_named_itself(tmp_path: Path) -> None:
    laid(tmp_path, {"a.txt": TEXT, "all.zip": packed({"a.txt": TEXT})})
    plain, inside = only(tmp_path / "a.txt"), only(tmp_path / "all.zip")
    assert (plain.archive, inside.archive) == (None, "all.zip")


@pytest.mark.parametrize("block", [1, 4, 7, 1 << 24])
@pytest.mark.parametrize("text", [TEXT, TEXT + b"\n", b"", b"\n\n"])
def test_blocks_are_whole_lines_and_the_checksum_is_of_all_bytes(
    block: int, text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_BLOCK", block)
    original = only(laid(tmp_path, {"a.txt": text}))
    blocks = list(original.blocks())
    assert b"".join(blocks) == text
    assert all(part.endswith(b"\n") for part in blocks[:-1])
    assert (original.bytes, original.sha256) == (len(text), sha256(text).hexdigest())
    assert list(original.lines()) == [line for line in text.split(b"\n") if line]


def test_many_files_of_one_pattern_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    laid(tmp_path, {"b_2.csv": b"", "a.zip": packed({"x/b_1.csv": b""}), "c.csv": b""})
    (tmp_path / "b_2.csv").unlink()
    laid(tmp_path, {"a.zip": packed({"x/b_3.csv": b"", "b_1.csv": b""})})
    assert [original.name for original in find([tmp_path], ["b_*.csv"])["b_*.csv"]] == ["b_1.csv", "b_3.csv"]


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    laid(tmp_path, dict.fromkeys("vwxyz", b""))
    text = (
        r"The originals must have a file a.txt. Got none among v, w, x, y, .... Hint: give the archive, or the folder"
    )
    with pytest.raises(DataError, match=text):
        only(tmp_path)
    with pytest.raises(DataError, match=r"--from must name a file, a folder or a zip archive. Got .*nowhere: no such"):
        only(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="none among no files at all"):
        only(tmp_path / "empty")


@pytest.mark.parametrize("pattern", ["a.txt", "*.txt"])
def test_a_file_that_comes_twice_is_refused(pattern: str, tmp_path: Path) -> None:
    laid(tmp_path, {"one/a.txt": b"", "two/a.txt": b""})
    text = "The originals must have each file once. Got a.txt more than once. Hint: give one archive or one folder"
    with pytest.raises(DataError, match=text):
        only(tmp_path, pattern)


def test_an_archive_that_is_none_or_broke_off_is_refused(tmp_path: Path) -> None:
    whole = packed({"a.txt": TEXT * 1000})
    laid(tmp_path, {"a.zip": b"<!DOCTYPE html>", "b.zip": whole[: len(whole) // 2]})
    for name in ("a.zip", "b.zip"):
        text = rf"{name} must be as its source distributes it. Got no whole zip archive \(File is not a zip"
        with pytest.raises(DataError, match=text):
            only(tmp_path / name)


def test_a_damaged_member_is_refused_while_it_is_read(tmp_path: Path) -> None:
    damaged = bytearray(packed({"a.txt": TEXT * 1000}))
    damaged[60:70] = bytes(10)
    laid(tmp_path, {"a.zip": bytes(damaged)})
    with pytest.raises(DataError, match=r"a.txt must be .* Got a file that cannot be read to its end"):
        only(tmp_path / "a.zip").read()
