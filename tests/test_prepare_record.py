"""The record beside a file says what was read, and whether an original or the file has changed since."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from logsparse.paper.download import find
from logsparse.paper.prepare import Record, changes, checksum, note, recall
from original_files import laid, packed


def made(folder: Path, content: bytes) -> Record:
    laid(folder, {"all.zip": packed({"a.txt": content}), "set.parquet": b"rows"})
    files = find([folder / "all.zip"], ["a.txt"])
    files["a.txt"][0].read()
    return note("set", "a source", [folder / "all.zip"], files, folder / "set.parquet")


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = made(tmp_path, b"abc")
    assert recall(tmp_path / "set.parquet") == record
    assert record.read[0].sha256 == sha256(b"abc").hexdigest()
    assert (record.read[0].file, record.read[0].archive, record.read[0].bytes) == ("a.txt", "all.zip", 3)
    assert record.given == {"all.zip": checksum(tmp_path / "all.zip")}
    assert record.parquet == sha256(b"rows").hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.zip", "set.json", "set.parquet"]


def test_an_original_that_has_changed_is_named(tmp_path: Path) -> None:
    first, same, other = (made(tmp_path, content) for content in (b"abc", b"abc", b"abd"))
    assert changes(None, first) == changes(first, same) == []
    assert changes(first, other) == [f"a.txt differs from the one read at {first.made}"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"read": 5}', json.dumps({"read": [{"file": 1}]})])
def test_a_file_of_others_is_no_record(text: str, tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text(text)
    assert recall(tmp_path / "set.parquet") is None
