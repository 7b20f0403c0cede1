"""A folder without a complete model is refused with the file and the reason, and nothing in it is executed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logsparse.errors import DataError
from logsparse.folder import ModelFolder, is_model, read, write
from logsparse.storage import SAVING, checksum, pack_document
from logsparse.train.checkpoint import pack_tensors

MODEL = ModelFolder("Small", {"a": 1}, {"ids": ["x", 1]}, {"w": torch.ones(3)}, {"y": torch.full((2,), torch.nan)})
Harm = Callable[[Path], object]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(tmp_path / "model", MODEL)
    return tmp_path / "model"


def put(name: str, content: bytes | str) -> Harm:
    blob = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(blob)


def reseal(**changes: Any) -> Harm:
    """config.json with other values and a checksum that is right again, as another program could write it."""

    def harm(folder: Path) -> None:
        content = {**json.loads((folder / "config.json").read_bytes()), **changes}
        content.pop("sha256")
        (folder / "config.json").write_bytes(pack_document(content))

    return harm


def forge(name: str, blob: bytes) -> Harm:
    """A file with other content whose size and checksum are right."""

    def harm(folder: Path) -> None:
        put(name, blob)(folder)
        files = json.loads((folder / "config.json").read_bytes())["files"]
        reseal(files={**files, name: checksum(blob)})(folder)

    return harm


def change(name: str, edit: Callable[[bytes], bytes]) -> Harm:
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def only_begun(folder: Path) -> None:
    shutil.rmtree(folder)
    (folder / SAVING).mkdir(parents=True)


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def pipe(name: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return harm


NO_MODEL: dict[str, tuple[Harm, str]] = {
    "no folder": (shutil.rmtree, "no such folder"),
    "a file": (a_file, "a file"),
    "an empty folder": (empty, "a folder without config.json"),
    "config missing": (lambda folder: (folder / "config.json").unlink(), "a folder without config.json"),
    "never finished": (only_begun, "a first save that was not finished"),
    "another program's": (
        put("config.json", '{"model_type": "bert"}'),
        "a folder with a config.json of another program",
    ),
}


@pytest.mark.parametrize("harm", list(NO_MODEL))
def test_a_place_without_a_model_is_refused_with_its_reason(model: Path, harm: str) -> None:
    NO_MODEL[harm][0](model)
    rule = r"model must be the folder of a saved logsparse model\."
    with pytest.raises(DataError, match=rf"{rule} Got {NO_MODEL[harm][1]}\. Hint: check the path"):
        read(model)
    assert not is_model(model)


def file_harms(name: str) -> dict[str, tuple[Harm, str, str]]:
    return {
        f"{name} missing": (lambda folder: (folder / name).unlink(), name, "No such file or directory"),
        f"{name} cut": (change(name, lambda blob: blob[:-1]), name, r"\d+ bytes where \d+ were written"),
        f"{name} emptied": (put(name, b""), name, r"0 bytes where \d+ were written"),
        f"{name} grown": (change(name, lambda blob: blob + b" "), name, r"\d+ bytes where \d+ were written"),
        f"{name} flipped": (
            change(name, lambda blob: blob[:-1] + bytes([blob[-1] ^ 1])),
            name,
            "content that does not match its checksum",
        ),
        f"{name} a pipe": (pipe(name), name, "no ordinary file"),
    }


def a_folder_as_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


ENTRY = checksum(b"")
DAMAGES: dict[str, tuple[Harm, str, str]] = {
    **file_harms("model.safetensors"),
    **file_harms("series.json"),
    **file_harms("history.safetensors"),
    "weights are something else": (
        forge("model.safetensors", b"abc" * 9),
        "model.safetensors",
        "no safetensors content",
    ),
    "weights of an unknown type": (
        forge("model.safetensors", pack_tensors({"w": torch.ones(1)}).replace(b'"F32"', b'"F99"')),
        "model.safetensors",
        "no safetensors content",
    ),
    "history is something else": (forge("history.safetensors", b""), "history.safetensors", "no safetensors content"),
    "series is no JSON": (forge("series.json", b"{ids}"), "series.json", "no valid JSON"),
    "series is binary": (forge("series.json", b"\xff\xfe\x00"), "series.json", "no valid JSON"),
    "series is a list": (forge("series.json", b"[1]"), "series.json", "JSON that is no object"),
    "series with NaN": (forge("series.json", b'{"a": NaN}'), "series.json", "NaN is not JSON"),
    "series with infinity": (forge("series.json", b'{"a": 1e999}'), "series.json", "1e999 is not JSON"),
    "config cut": (change("config.json", lambda blob: blob[:-2]), "config.json", "no valid JSON"),
    "config is endless": (put("config.json", "[" * 100_000), "config.json", "no valid JSON"),
    "config is a list": (put("config.json", "[1]"), "config.json", "JSON that is no object"),
    "config is a folder": (a_folder_as_config, "config.json", "Is a directory"),
    "config is a pipe": (pipe("config.json"), "config.json", "no ordinary file"),
    "config edited": (
        change("config.json", lambda blob: blob.replace(b'"a": 1', b'"a": 2')),
        "config.json",
        "content that does not match its checksum",
    ),
    "config without kind": (reseal(kind=None), "config.json", "values that no model has"),
    "config leads outside": (
        reseal(files={"model.safetensors": ENTRY, "series.json": ENTRY, "../x": ENTRY}),
        "config.json",
        r"a list of files that no model has: model.safetensors, series.json, \.\./x",
    ),
    "config names no files": (reseal(files={}), "config.json", "a list of files that no model has: none"),
    "config without sizes": (
        reseal(files={"model.safetensors": {"sha256": ""}, "series.json": ENTRY}),
        "config.json",
        "no size and checksum of model.safetensors",
    ),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_folder_is_refused_with_the_file_and_the_reason(model: Path, damage: str) -> None:
    harm, name, reason = DAMAGES[damage]
    harm(model)
    rule = rf"model/{name} must be a complete file of a logsparse model\."
    with pytest.raises(DataError, match=rf"{rule} Got .*{reason}.*\. Hint: copy the folder again"):
        read(model)


@pytest.mark.parametrize("number", [2, 0, "1", True, None, [1]])
def test_an_unknown_format_is_neither_read_nor_overwritten(
    model: Path, number: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logsparse.folder.__version__", "0.1.0")
    # The checksum is left wrong: a newer format may compute it in another way.
    content = {**json.loads((model / "config.json").read_bytes()), "format": number, "version": "9.8"}
    (model / "config.json").write_text(json.dumps(content))
    before = (model / "config.json").read_bytes()
    text = (
        f"{model} must be a model of a format that logsparse 0.1.0 knows, up to 1. "
        f"Got format {number}, written by logsparse 9.8. Hint: update logsparse to read or replace it."
    )
    for act in (read, lambda path: write(path, MODEL)):
        with pytest.raises(DataError) as caught:
            act(model)
        assert str(caught.value) == text
    assert is_model(model)
    assert (model / "config.json").read_bytes() == before


def test_weights_that_are_not_finite_are_refused(model: Path) -> None:
    forge("model.safetensors", pack_tensors({"w": torch.tensor([torch.nan])}))(model)
    with pytest.raises(DataError, match=r"The weights of a model must be finite numbers. Got NaN in 'w'. Hint: fit"):
        read(model)


class Touch:
    """When unpickled, makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_code_in_the_folder_is_never_run(model: Path, tmp_path: Path) -> None:
    code = pickle.dumps(Touch(tmp_path / "ran"))
    for name in ("model.safetensors", "history.safetensors", "series.json"):
        forge(name, code)(model)
        with pytest.raises(DataError, match=rf"{name} must be a complete file"):
            read(model)
        write(model, MODEL)
    for name in ("__init__.py", "modeling.py", "pytorch_model.bin", "sitecustomize.py"):
        put(name, f"open({str(tmp_path / 'ran')!r}, 'w')")(model)
    assert read(model).kind == "Small"
    assert not (tmp_path / "ran").exists()


def test_every_single_cut_and_flipped_byte_is_noticed(model: Path) -> None:
    for path in sorted(model.iterdir()):
        whole = path.read_bytes()
        for position in range(len(whole)):
            flipped = bytes([*whole[:position], whole[position] ^ 0x04, *whole[position + 1 :]])
            for content in (whole[:position], flipped):
                path.unlink()  # writing over a file is slow: some systems flush it then
                path.write_bytes(content)
                with pytest.raises(DataError, match=r"must be (a complete file|the folder|a model of a format)"):
                    read(model)
        path.write_bytes(whole)
    assert read(model).kind == "Small"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["program", "format", "version", "kind", "config", "files"]
FILES = ["model.safetensors", "series.json", "history.safetensors"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=2),
    files=st.dictionaries(st.sampled_from(FILES), ANYTHING | st.just(ENTRY), max_size=3),
)
def test_any_content_of_config_json_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], files: dict[str, Any]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "strange"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    whole = {"program": "logsparse", "format": 1, "version": "0", "kind": "k", "config": {}, "files": files}
    (folder / "config.json").write_bytes(pack_document({**whole, **values}))
    with pytest.raises(DataError, match="Hint: "):
        read(folder)
