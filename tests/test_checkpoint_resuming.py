"""A checkpoint with matching checksums and wrong content is refused; a folder has one training at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import small
from fuzz.folders import _put_tensors, _read_tensors, _sealed, _training, checkpoint
from logsparse.errors import DataError
from logsparse.forecaster import LogSparse
from logsparse.train.checkpoint import STATE, TENSORS, lock_seeds
from logsparse.train.loop import CHECKPOINT, TrainingError

HOLDER = """
import sys
from pathlib import Path
from logsparse.train.checkpoint import lock_seeds
with lock_seeds(Path(sys.argv[1]), [0, 1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def put(document: Any, path: str, value: Any) -> None:
    *keys, last = path.split("/")
    for key in keys:
        document = document[int(key) if isinstance(document, list) else key]
    document[last] = value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint()[0], tmp_path / "seed-0"))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("step", 13, "step must be a whole number from 1 to 12, not 13"),
        ("step", 0, "step must be a whole number from 1 to 12, not 0"),
        ("step", 6.5, "step must be a whole number"),
        ("train", 5, "TypeError"),
        ("history", [], "TypeError"),
        ("history", {"rows": []}, "KeyError\\('seconds'\\)"),
        ("history/rows", [{"step": "x"}], "ValueError"),
        ("history/rows", [{"step": 10**400}], "OverflowError"),
        ("history/best", "x", "ValueError"),
    ],
)
def test_a_state_that_no_training_has_is_refused(folder: Path, path: str, value: Any, reason: str) -> None:
    file = folder / CHECKPOINT / STATE
    document = json.loads(file.read_bytes())
    put(document["state"], path, value)
    file.write_bytes(_sealed(document))
    with pytest.raises(DataError, match=rf"state\.json must be a complete file .* Got .*{reason}.*Hint: use another"):
        _training(folder)


def test_a_checkpoint_of_0_1_0_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"Got a checkpoint of version 0\.1\.0 in .* Hint: finish it"):
        _training(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("best/output.bias", "remove", "best output.bias must be there"),
        ("best/output.bias", torch.full((2,), torch.nan), "best output.bias must be finite"),
        ("weights/output.bias", torch.ones(3), "weights output.bias must be of shape"),
        ("weights/output.bias", torch.ones(2).double(), "weights output.bias must be of dtype torch.float32"),
        ("average/output.bias", torch.full((2,), torch.inf), "average output.bias must be finite"),
        ("optimiser/output.bias.exp_avg_sq", "remove", "optimiser output.bias.exp_avg_sq must be there"),
        ("optimiser/output.bias.step", torch.ones(2), "optimiser output.bias.step must be of shape"),
        ("optimiser/else.exp_avg", torch.ones(2), "optimiser else.exp_avg must be one that its settings ask for"),
        ("others/output.bias", torch.ones(2), "KeyError\\('others'\\)"),
    ],
)
def test_tensors_that_are_not_of_this_training_are_refused_by_name(
    folder: Path, name: str, change: Any, reason: str
) -> None:
    tensors = _read_tensors(folder / CHECKPOINT / TENSORS)
    if isinstance(change, str):
        del tensors[name]
    else:
        tensors[name] = change
    _put_tensors(folder, tensors)
    with pytest.raises(DataError, match=rf"state\.json must be a complete file .* Got .*{reason}"):
        _training(folder)


def test_a_second_fit_into_one_folder_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    model = LogSparse(6, config=small.config(epochs=1), verbose=False)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataError, match=r"one training at a time\. Got another .* running in .*seed-0\. Hint"):
            model.fit(small.panel(), folder=tmp_path)
        other.kill()
    assert model.fit(small.panel(), folder=tmp_path).history_.best is not None


def test_one_process_cannot_train_one_seed_twice_in_one_folder_but_other_seeds_it_can(tmp_path: Path) -> None:
    with lock_seeds(tmp_path, [0, 1]):
        with pytest.raises(DataError, match="seed-1"), lock_seeds(tmp_path, [1, 2]):
            pass
        with lock_seeds(tmp_path, [2]), lock_seeds(None, [0]):
            pass
    with lock_seeds(tmp_path, [0, 1, 2]):
        pass


def test_a_folder_that_cannot_be_made_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    model = LogSparse(6, config=small.config(epochs=1), verbose=False)
    with pytest.raises(
        DataError, match=r"The folder of a training must be writable\. Got .*file/run/seed-0: Not a dir"
    ):
        model.fit(small.panel(), folder=tmp_path / "file" / "run")
