"""kill -9 of a real process at any moment of a save leaves the old or the new model, complete."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from killing import Saver, check_kills_at_each_operation, check_kills_at_random_moments, saver, started
from logsparse.errors import DataError
from logsparse.folder import is_model, read
from save_until_killed import save, saved_step

# Steps of this process begin here; the other writer counts from 1.
OURS = 1_000_000


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Saver]]:
    path = tmp_path_factory.mktemp("killed") / "model"
    with saver("model", path) as start:
        yield path, start


def names(path: Path) -> list[str]:
    return sorted(place.name for place in path.iterdir())


def test_killed_at_any_file_operation_the_old_or_the_new_model_is_whole(killed: tuple[Path, Saver]) -> None:
    path, start = killed
    check_kills_at_each_operation("model", path, start)
    save("model", path, 2)
    assert names(path) == ["config.json", "model.safetensors", "series.json"], "the next save clears what was left"


def test_killed_in_the_first_save_there_is_a_whole_model_or_none_and_the_next_save_works(
    killed: tuple[Path, Saver],
) -> None:
    path, start = killed
    found: list[bool] = []
    said: list[str] = []
    while "saved 1" not in said:
        shutil.rmtree(path, ignore_errors=True)
        said = list(start(1, len(found) + 1))
        found.append(is_model(path))
        if found[-1]:
            assert saved_step("model", path) == 1
        else:
            with pytest.raises(DataError, match=r"no such folder|without config.json|was not finished"):
                read(path)
        save("model", path, 2)
        assert saved_step("model", path) == 2
        assert len(names(path)) == 3
    assert found == sorted(found)
    assert set(found) == {False, True}


def test_killed_at_random_moments_the_folder_always_loads(killed: tuple[Path, Saver]) -> None:
    path, start = killed
    check_kills_at_random_moments("model", path, start, kills=60)


def test_two_writers_take_turns_and_each_always_finds_a_whole_model(killed: tuple[Path, Saver]) -> None:
    path, start = killed
    save("model", path, 0)
    others = start(1, 0)
    other = started(others)
    seen: set[int] = set()
    try:
        assert next(others) == "saved 1"
        for step in range(OURS, OURS + 40):
            save("model", path, step)
            seen |= {saved_step("model", path) for _ in range(3)}
        # On a busy machine the other writer may have waited all the time; now it has the folder for itself.
        deadline = time.monotonic() + 60
        while min(seen) >= OURS and time.monotonic() < deadline:
            seen.add(saved_step("model", path))
    finally:
        os.kill(other, signal.SIGKILL)
        list(others)  # to the end, so that the next child can start
    assert min(seen) < OURS <= max(seen), "models of both were seen"
    save("model", path, 0)
    assert len(names(path)) == 3
