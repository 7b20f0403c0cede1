"""Files are complete at every moment; parts left by killed writers are removed, those of running writers are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread

import polars as pl
import pytest
import torch

from logsparse import folder
from logsparse.data import files
from logsparse.errors import DataError
from logsparse.paper.ledger import Identity, Run, record, rows
from logsparse.storage import lock, whole_file, write_whole
from logsparse.train import checkpoint

WRITER = """
import sys
from pathlib import Path
from logsparse.storage import whole_file
with whole_file(Path(sys.argv[1]), "The file") as file:
    file.write(b"by the child")
    file.flush()
    print("written", flush=True)
    sys.stdin.readline()
"""


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of writing a file; a line on its input lets it finish."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process


def test_the_part_of_a_killed_writer_is_removed_by_the_next_writer_of_the_same_file(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        with writer(tmp_path / name) as child:
            child.kill()
    assert [name.split(".")[1] for name in names(tmp_path)] == ["a", "b"]
    write_whole(tmp_path / "a.txt", b"ours", "The file")
    assert names(tmp_path)[1:] == ["a.txt"]
    assert names(tmp_path)[0].startswith(".b.txt."), "parts of other files stay"


def test_the_part_of_a_running_writer_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with writer(path) as child:
        write_whole(path, b"ours", "The file")
        assert path.read_bytes() == b"ours"
        child.communicate("\n")
    assert child.returncode == 0
    assert path.read_bytes() == b"by the child"
    assert names(tmp_path) == ["a.txt"]


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, begin = tmp_path / "a.txt", Barrier(4)
    blobs = [bytes([letter]) * 100_000 for letter in b"abcd"]

    def write(blob: bytes) -> None:
        begin.wait()
        for _ in range(25):
            write_whole(path, blob, "The file")
            assert path.read_bytes() in blobs

    threads = [Thread(target=write, args=(blob,)) for blob in blobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in blobs
    assert names(tmp_path) == ["a.txt"]


def test_an_error_of_the_caller_leaves_the_old_file_and_passes_through(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, b"old", "The file")
    with pytest.raises(ZeroDivisionError), whole_file(path, "The file") as file:
        file.write(b"new" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_a_lock_on_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must be writable\. Got .*nowhere: No such file"), lock(tmp_path / "nowhere"):
        pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted disk of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "logsparse-test", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs Linux and the right to mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_on_a_full_disk_every_writer_keeps_the_old_content_and_says_so(small_disk: Path) -> None:
    facts = {"R0.5": 0.5, "R0.9": 0.5, "minutes": 1.0}

    def write(size: int, text: str) -> dict[str, str]:
        """What each writer said."""
        said = {}
        table = pl.DataFrame({"text": [f"{text}{i}" for i in range(size)]})
        acts: dict[str, Callable[[], None]] = {
            "model": lambda: folder.write(
                small_disk / "m", folder.ModelFolder(text, {}, {}, {"w": torch.arange(size)})
            ),
            "checkpoint": lambda: checkpoint.save(small_disk / "c", {"w": torch.arange(size)}, {"text": text}),
            "ledger": lambda: record(
                small_disk, Run("waves", text, "a"), Identity({"a": "x" * size * 8}, "abc"), facts
            ),
            "table": lambda: files.write(table, small_disk / "t.csv"),
        }
        for name, act in acts.items():
            try:
                act()
            except DataError as error:
                said[name] = str(error)
        return said

    assert write(100, "old") == {}
    said = write(20_000, "new")
    assert set(said) == {"model", "checkpoint", "ledger", "table"}
    for text in said.values():
        assert "must be writable. Got " in text
        assert "No space left on device" in text
        assert text.endswith(" Hint: give another path, or make room.")
    assert folder.read(small_disk / "m").kind == "old"
    assert checkpoint.load(small_disk / "c").state == {"text": "old"}
    assert [row["case"] for row in rows(small_disk, "waves")] == ["old"]
    assert files.read(small_disk / "t.csv")[0, 0] == "old0"
    assert write(101, "next") == {}
    assert folder.read(small_disk / "m").kind == "next"
    assert not list(small_disk.rglob(".*"))
