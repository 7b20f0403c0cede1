"""A save that fails: what could not be read back is refused, a failing disk keeps the old model, nothing is left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from logsparse.errors import DataError
from logsparse.folder import ModelFolder, read, write
from logsparse.storage import SAVING

MODEL = ModelFolder("Old", {"a": 1}, {"ids": ["x", 1]}, {"w": torch.ones(3)}, {"y": torch.ones(2)})


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"series": {"ids": {1: 2}}}, TypeError, "The series of a model must be plain JSON: text keys, lists, finite"),
        ({"series": {"mean": [float("nan")]}}, TypeError, "The series of a model must be plain JSON"),
        ({"config": {"lags": (1, 2)}}, TypeError, "The config of a model must be plain JSON"),
        (
            {"weights": {"layer.1": torch.tensor([0, torch.nan])}},
            DataError,
            "The weights of a model must be finite numbers. Got NaN in 'layer.1'. Hint: fit the model again",
        ),
        ({"weights": {"__metadata__": torch.ones(1)}}, TypeError, "names and number types that safetensors knows"),
        ({"history": {"y": torch.ones(1, dtype=torch.complex128)}}, TypeError, "number types that safetensors knows"),
    ],
)
def test_a_model_that_could_not_be_read_back_is_refused_and_the_old_one_kept(
    tmp_path: Path, change: dict[str, Any], kind: type[Exception], text: str
) -> None:
    write(tmp_path / "old", MODEL)
    for name in ("old", "new"):
        with pytest.raises(kind, match=text):
            write(tmp_path / name, replace(MODEL, **change))
    assert read(tmp_path / "old").kind == "Old"
    assert not (tmp_path / "new").exists()


@contextmanager
def small_disk() -> Iterator[None]:
    """No file may grow beyond 2,000 bytes, as on a disk that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_the_old_model_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "old", MODEL)
    before = listing(tmp_path)
    large = replace(MODEL, history={"y": torch.zeros(1_000)})
    for name in ("old", "new/deep"):
        with (
            small_disk(),
            pytest.raises(
                DataError,
                match=rf"The model must be writable. Got \S*{name}: File too large. Hint: give another path",
            ),
        ):
            write(tmp_path / name, large)
    assert listing(tmp_path) == before
    assert read(tmp_path / "old").kind == "Old"


def test_a_disk_that_fails_at_any_moment_leaves_the_old_model_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes, real = 0, os.fsync
    ends: list[str] = []

    def failing(handle: int) -> None:
        nonlocal flushes
        flushes -= 1
        if flushes == 0:
            raise OSError(5, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    while "saved" not in ends:
        flushes = 0
        write(tmp_path, MODEL)
        flushes = len(ends) + 1
        with suppress(DataError):
            write(tmp_path, replace(MODEL, kind="New"))
        ends.append(read(tmp_path).kind if flushes <= 0 else "saved")
        assert SAVING not in listing(tmp_path)
    assert ends == sorted(ends, key=["Old", "New", "saved"].index)
    assert set(ends) == {"Old", "New", "saved"}


def test_an_impossible_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "file" / "model", "Not a directory"),
        (tmp_path / "new" / ("x" * 300), "File name too long"),
        (Path("/proc/model"), "No such file or directory|Permission denied"),
    ):
        with pytest.raises(DataError, match=f"The model must be writable. Got .*({reason}). Hint: give another path"):
            write(path, MODEL)
    assert listing(tmp_path) == ["file"]
