"""A checkpoint with right checksums and wrong content is refused by name; a folder has one training at a time."""

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
from fuzz.folders import _read_tensors, _sealed, _training, checkpoint
from logsparse.errors import DataError, LogsparseError
from logsparse.forecaster import LogSparse
from logsparse.storage import checksum
from logsparse.train.checkpoint import lock_seeds
from logsparse.train.loop import CHECKPOINT

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
        ("step", 13, "state/step must be a whole number from 1 to 12, not 13"),
        ("step", 0, "state/step must be a whole number from 1 to 12, not 0"),
        ("step", 6.5, "state/step must be a whole number"),
        ("story", [], "story must be a dict with rows, seconds, best, ended"),
        ("story/rows", [{"step": "x"}], "story/rows must be a dict with step, seconds"),
        ("average", "h", "state/average must be a dict with decay, updates"),
        ("average/updates", 10**9, "updates must be a whole number from 6 to 6"),
        ("optimiser/groups/0/eps", -1, "state/optimiser must be the settings of this training"),
        ("optimiser/groups", {}, "state/optimiser must be the settings of this training"),
        ("optimiser/groups/0/lr", None, "lr must be a number"),
        ("stopping", None, "state/stopping must be a dict"),
        ("stopping/looks", -1, "looks must be a whole number from 1"),
        ("stopping/best", "x", "best must be a number"),
    ],
)
def test_a_state_that_no_training_has_is_refused_by_name(folder: Path, path: str, value: Any, reason: str) -> None:
    file = folder / f"{CHECKPOINT}.json"
    document = json.loads(file.read_bytes())
    put(document["state"], path, value)
    file.write_bytes(_sealed(document))
    with pytest.raises(DataError, match=rf"training\.json must be a whole file .* Got .*{reason}.*Hint: use another"):
        _training(folder)


def test_settings_that_are_no_settings_are_those_of_another_run(folder: Path) -> None:
    file = folder / f"{CHECKPOINT}.json"
    document = json.loads(file.read_bytes())
    document["state"]["train"] = 5
    file.write_bytes(_sealed(document))
    with pytest.raises(LogsparseError, match=r"A run is resumed with the data and settings .* Got no settings in"):
        _training(folder)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("best/output.bias", "remove", "best output.bias must be there"),
        ("best/output.bias", torch.full((2,), torch.nan), "best output.bias must be finite"),
        ("weights/output.bias", torch.ones(3), "weights output.bias must be of shape"),
        ("weights/output.bias", torch.ones(2).double(), "weights output.bias must be of dtype torch.float32"),
        ("average/output.bias", torch.full((2,), torch.inf), "average output.bias must be finite"),
        ("optimiser/output.bias.exp_avg_sq", "remove", "optimiser output.bias.exp_avg_sq must be there"),
        ("optimiser/output.bias.exp_avg_sq", -torch.ones(2), "exp_avg_sq must be at least 0"),
        ("optimiser/output.bias.step", torch.tensor(1e9), "step must be a number from 1 to 6"),
        ("others/output.bias", torch.ones(2), "others/output.bias must be of weights, best"),
    ],
)
def test_tensors_that_are_not_of_this_training_are_refused_by_name(
    folder: Path, name: str, change: Any, reason: str
) -> None:
    from logsparse.train.checkpoint import pack_tensors

    file = folder / f"{CHECKPOINT}.json"
    document = json.loads(file.read_bytes())
    path = folder / document["tensors"]["file"]
    tensors = _read_tensors(path)
    if isinstance(change, str):
        del tensors[name]
    else:
        tensors[name] = change
    path.write_bytes(pack_tensors(tensors))
    document["tensors"] |= checksum(path.read_bytes())
    file.write_bytes(_sealed(document))
    with pytest.raises(DataError, match=rf"training\.json must be a whole file .* Got .*{reason}"):
        _training(folder)


def test_a_second_fit_into_one_folder_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    model = LogSparse(6, config=small.config(epochs=1), verbose=False)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataError, match=r"one training at a time\. Got another that is at work in .*seed-0\. Hint"):
            model.fit(small.panel(), folder=tmp_path)
        other.kill()
    assert model.fit(small.panel(), folder=tmp_path).history_.best is not None


def test_one_process_does_not_train_twice_in_one_folder_but_with_other_seeds_it_may(tmp_path: Path) -> None:
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
