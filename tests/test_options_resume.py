"""The folder of checkpoints belongs to one training."""

from __future__ import annotations

from pathlib import Path

import pytest

from logsparse.commands.options import claim, start_over
from logsparse.errors import DataError
from logsparse.train.checkpoint import lock_seeds


def test_the_same_seeds_resume_and_others_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model.training"
    assert not claim(folder, [0, 1])
    (folder / "seed-0").mkdir()
    assert not claim(folder, [0, 1]), "killed before its first checkpoint"
    (folder / "seed-0" / "training.json").touch()
    assert claim(folder, [0, 1])
    with pytest.raises(DataError, match=r"of this training only\. Got checkpoints of another seed\. Hint: repeat"):
        claim(folder, [1])
    assert claim(folder, [0])


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="Got files that no training wrote"):
        claim(tmp_path, [0])
    with pytest.raises(DataError, match="Got a file that no training wrote"):
        claim(tmp_path / "letter.txt", [0])
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_starting_over_removes_checkpoints_alone_and_not_those_of_a_running_training(tmp_path: Path) -> None:
    start_over(tmp_path / "model.training")
    assert not (tmp_path / "model.training").exists()
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "training.json").touch()
    (tmp_path / "letter.txt").touch()
    with lock_seeds(tmp_path, [3]), pytest.raises(DataError, match="one training at a time"):
        start_over(tmp_path)
    assert (tmp_path / "seed-3" / "training.json").exists()
    start_over(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
