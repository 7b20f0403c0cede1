"""Checkpoints: what is saved is loaded, a kill at any moment leaves a complete one, damage is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from killing import Saver, check_kills_at_each_operation, check_kills_at_random_moments, saver
from logsparse.errors import DataError
from logsparse.storage import SAVED, checksum, pack_document
from logsparse.train.checkpoint import STATE as STATE_FILE
from logsparse.train.checkpoint import TENSORS as TENSOR_FILE
from logsparse.train.checkpoint import exists, load, save

TENSORS = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "half": torch.tensor([0.1, -2.0], dtype=torch.bfloat16),
    "step": torch.tensor(7, dtype=torch.int64),
    "empty": torch.zeros(0, 3),
    "odd": torch.tensor([torch.nan, torch.inf, -0.0]),
}
STATE: dict[str, Any] = {
    "epoch": 3,
    "best": 0.1 + 0.2,
    "names": ["é", "b"],
    "none": None,
    "deep": {"x": [True]},
}


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_tensors_and_values_come_back_bit_for_bit(tmp_path: Path) -> None:
    save(tmp_path / "new" / "run", TENSORS, STATE)
    got = load(tmp_path / "new" / "run")
    assert got.state == STATE
    assert list(got.tensors) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        assert got.tensors[name].dtype == tensor.dtype
        assert got.tensors[name].shape == tensor.shape
        assert bits(got.tensors[name]) == bits(tensor)


def test_tied_and_transposed_weights_and_those_with_gradients_are_saved(tmp_path: Path) -> None:
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    save(tmp_path, {"a": weight, "b": weight, "c": weight.T}, {})
    got = load(tmp_path).tensors
    assert torch.equal(got["a"], got["b"])
    assert torch.equal(got["c"], weight.T)


def test_a_second_save_replaces_the_first_and_leaves_two_files(tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path, {"weight": torch.full((2,), float(step))}, {"step": step})
    assert load(tmp_path).state == {"step": 2}
    assert len(files(tmp_path)) == 2


def test_a_checkpoint_exists_from_the_switch_on(tmp_path: Path) -> None:
    assert not exists(tmp_path)
    save(tmp_path, TENSORS, STATE)
    assert exists(tmp_path)
    (tmp_path / SAVED).mkdir()
    for name in (STATE_FILE, TENSOR_FILE):  # as a save leaves them that is killed right after its switch
        (tmp_path / name).rename(tmp_path / SAVED / name)
    assert exists(tmp_path)
    assert load(tmp_path).state == STATE


@pytest.mark.parametrize("state", [{"a": (1, 2)}, {"a": {1: 2}}, {"a": float("nan")}, {"a": torch.ones(1)}])
def test_a_state_that_json_would_change_is_refused_before_anything_is_written(
    tmp_path: Path, state: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="must be plain JSON: text keys, lists, finite numbers"):
        save(tmp_path, TENSORS, state)
    assert files(tmp_path) == []


def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, TENSORS, {"step": 1})
    before = files(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"A checkpoint must be writable\. Got .*: No space left"):
        save(tmp_path, {"weight": torch.zeros(1)}, {"step": 2})
    assert files(tmp_path) == before
    assert load(tmp_path).state == {"step": 1}


# Damage to a checkpoint, the file that the error names, and the reason it gives.


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def reseal(folder: Path, **changes: object) -> None:
    """Change the JSON file and make its checksum right again, as another program could."""
    path = folder / STATE_FILE
    content = {**json.loads(path.read_bytes()), **changes}
    content.pop("sha256")
    path.write_bytes(pack_document(content))


def foreign_tensors(folder: Path) -> None:
    """A checkpoint with matching checksums whose tensors are something else, such as a pickle."""
    blob = b"\x80\x04K\x01." * 9
    (folder / TENSOR_FILE).write_bytes(blob)
    reseal(folder, tensors=checksum(blob))


def write(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / STATE_FILE).write_text(text)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "tensors cut": (lambda f: cut(f / TENSOR_FILE), "safetensors", r"\d+ bytes where \d+ were written"),
    "tensors flipped": (lambda f: flip(f / TENSOR_FILE), "safetensors", "does not match its checksum"),
    "tensors missing": (lambda f: (f / TENSOR_FILE).unlink(), "safetensors", "No such file"),
    "tensors foreign": (foreign_tensors, "safetensors", "no safetensors content"),
    "json cut": (lambda f: cut(f / STATE_FILE), "json", "no valid JSON"),
    "json missing": (lambda f: (f / STATE_FILE).unlink(), "json", "No such file"),
    "json edited": (
        lambda f: write((f / STATE_FILE).read_text().replace('"epoch": 3', '"epoch": 4'))(f),
        "json",
        "does not match its checksum",
    ),
    "json is binary": (
        lambda f: (f / STATE_FILE).write_bytes(b"\xff\xfe\x00"),
        "json",
        "no valid JSON",
    ),
    "json is endless": (write("[" * 100_000), "json", "no valid JSON"),
    "json with NaN": (write('{"a": NaN}'), "json", "NaN is not JSON"),
    "json of another program": (write('{"model": "other"}'), "json", "another program"),
    "json of a list": (write("[1]"), "json", "JSON that is no object"),
    "json without tensors": (lambda f: reseal(f, tensors={}), "json", "values that no checkpoint has"),
    "json with tensors of nothing": (lambda f: reseal(f, tensors=[1]), "json", "values that no checkpoint has"),
    "json without state": (lambda f: reseal(f, state="x"), "json", "values that no checkpoint has"),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_or_foreign_file_is_refused_with_its_name_and_reason(tmp_path: Path, damage: str) -> None:
    save(tmp_path, TENSORS, STATE)
    harm, ending, reason = DAMAGES[damage]
    harm(tmp_path)
    rule = rf"(state|tensors)\.{ending} must be a complete file of a logsparse checkpoint\."
    with pytest.raises(DataError, match=rf"{rule} Got .*{reason}.*\. Hint: use another checkpoint"):
        load(tmp_path)


def test_every_single_cut_and_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, {"weight": torch.ones(3)}, {"step": 1})
    for path in (tmp_path / TENSOR_FILE, tmp_path / STATE_FILE):
        whole = path.read_bytes()
        for position in range(len(whole)):
            flipped = bytes([*whole[:position], whole[position] ^ 0x04, *whole[position + 1 :]])
            for content in (whole[:position], flipped):
                path.write_bytes(content)
                with pytest.raises(DataError, match=r"(state\.json|tensors\.safetensors) must"):
                    load(tmp_path)
        path.write_bytes(whole)
    assert load(tmp_path).state == {"step": 1}


def test_a_newer_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    save(tmp_path, TENSORS, STATE)
    reseal(tmp_path, version=3)
    with pytest.raises(DataError, match=r"state.json must have checkpoint version 2. Got version 3. Hint: .*upgrade"):
        load(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere/state.json must be a complete file.*Got No such file"):
        load(tmp_path / "nowhere")


# kill -9 of real processes.


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Saver]]:
    path = tmp_path_factory.mktemp("killed")
    with saver("checkpoint", path) as start:
        yield path, start


def test_killed_at_any_file_operation_the_old_or_the_new_checkpoint_is_whole(killed: tuple[Path, Saver]) -> None:
    path, start = killed
    check_kills_at_each_operation("checkpoint", path, start)
    save(path, TENSORS, {})
    assert len(files(path)) == 2, "the next save clears what killed ones left"


def test_killed_at_random_moments_the_folder_always_loads(killed: tuple[Path, Saver]) -> None:
    path, start = killed
    check_kills_at_random_moments("checkpoint", path, start, kills=25)
