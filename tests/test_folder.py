"""A model folder: what is saved is loaded, the old model is replaced or kept, other files are not touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

import logsparse
from logsparse.errors import DataError
from logsparse.folder import FORMAT, ModelFolder, is_model, read, write
from logsparse.storage import SAVED, SAVING

FIXTURE = Path(__file__).parent / "fixtures" / "model_format_1"
# The fixture is this model, written once by logsparse 0.1.0: write(FIXTURE, MODEL). It is never written again.
MODEL = ModelFolder(
    kind="LogSparse",
    config={"horizon": 24, "lr": 0.1 + 0.2, "columns": {"id": "shop"}, "covariates": ["price"], "until": None},
    series={"ids": ["a", "1", 1, -(2**63), "é\n"], "first": [0, 1, 2, 3, 4], "known": True},
    weights={"block.0.weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7), "none": torch.zeros(0, 2)},
    history={"y": torch.tensor([[1.0, torch.nan], [-0.0, torch.inf]]), "seen": torch.tensor([True, False])},
)


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def bits(tensors: dict[str, Tensor] | None) -> object:
    if tensors is None:
        return None
    return {name: (tensor.dtype, tensor.shape, tensor.numpy().tobytes()) for name, tensor in tensors.items()}


def same(got: ModelFolder, model: ModelFolder) -> bool:
    # As text, because 1, True and 1.0 are equal and an id must keep its type.
    texts = [repr((one.kind, one.config, one.series, one.version)) for one in (got, model)]
    return (
        texts[0] == texts[1] and bits(got.weights) == bits(model.weights) and bits(got.history) == bits(model.history)
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
IDS = st.lists(st.text() | st.integers(), max_size=8)
TYPES = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_])


def tensors(*, nan: bool) -> st.SearchStrategy[dict[str, Tensor]]:
    def numbers(kind: Any) -> st.SearchStrategy[Any]:
        elements = {"allow_nan": nan} if np.issubdtype(kind, np.floating) else None
        return arrays(kind, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=elements)

    names = st.text().filter(lambda name: name != "__metadata__")
    return st.dictionaries(
        names, TYPES.flatmap(numbers).map(lambda array: torch.from_numpy(np.array(array))), max_size=4
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.text(),
    config=OBJECTS,
    series=OBJECTS,
    ids=IDS,
    weights=tensors(nan=False),
    history=st.none() | tensors(nan=True),
)
def test_any_model_comes_back_bit_for_bit_and_every_id_with_its_type(
    tmp_path: Path,
    kind: str,
    config: dict[str, Any],
    series: dict[str, Any],
    ids: list[str | int],
    weights: dict[str, Tensor],
    history: dict[str, Tensor] | None,
) -> None:
    model = ModelFolder(kind, config, {**series, "ids": ids}, weights, history)
    write(tmp_path / "model", model)
    got = read(tmp_path / "model")
    assert same(got, model)
    assert got.version == logsparse.__version__
    assert [(type(one), one) for one in got.series["ids"]] == [(type(one), one) for one in ids]


def test_a_folder_of_the_first_format_is_still_read() -> None:
    assert is_model(FIXTURE)
    assert same(read(FIXTURE), replace(MODEL, version="0.1.0"))


def test_the_layout_changes_only_with_a_new_format_number(tmp_path: Path) -> None:
    write(tmp_path, MODEL)
    today, first = (json.loads((folder / "config.json").read_bytes()) for folder in (tmp_path, FIXTURE))
    if FORMAT == 1:
        assert listing(tmp_path) == listing(FIXTURE)
        assert today.keys() == first.keys()
        assert today["files"].keys() == first["files"].keys()


def test_a_folder_holds_four_named_files_or_three_without_history(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "model", MODEL)
    four = ["config.json", "history.safetensors", "model.safetensors", "series.json"]
    assert listing(tmp_path / "deep" / "model") == four
    write(tmp_path / "deep" / "model", replace(MODEL, history=None))
    assert listing(tmp_path / "deep" / "model") == [name for name in four if not name.startswith("history")]
    assert read(tmp_path / "deep" / "model").history is None


def test_config_json_can_be_read_by_people_and_other_programs(tmp_path: Path) -> None:
    write(tmp_path, MODEL)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["program"] == "logsparse"
    assert (config["format"], config["version"], config["kind"]) == (1, logsparse.__version__, "LogSparse")
    assert config["config"] == MODEL.config
    for name, entry in config["files"].items():
        assert entry["bytes"] == (tmp_path / name).stat().st_size


def test_line_ends_changed_by_a_tool_such_as_git_are_accepted(tmp_path: Path) -> None:
    write(tmp_path, MODEL)
    for path in tmp_path.glob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert same(read(tmp_path), MODEL)


def test_weights_go_to_the_device_and_history_stays_on_the_cpu(tmp_path: Path) -> None:
    write(tmp_path, MODEL)
    model = read(tmp_path, device="meta")
    assert {tensor.device.type for tensor in model.weights.values()} == {"meta"}
    assert model.history is not None
    assert bits(model.history) == bits(MODEL.history)


def test_other_files_in_a_model_folder_stay_and_a_link_to_it_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "model", MODEL)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    (tmp_path / "latest").symlink_to(tmp_path / "model")
    write(tmp_path / "latest", replace(MODEL, kind="Other"))
    assert (tmp_path / "latest").is_symlink()
    assert read(tmp_path / "model").kind == "Other"
    assert (tmp_path / "model" / "notes.txt").read_text() == "mine"


def test_a_damaged_model_may_be_replaced(tmp_path: Path) -> None:
    write(tmp_path, MODEL)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "series.json").write_text("")
    write(tmp_path, MODEL)
    assert same(read(tmp_path), MODEL)


def test_foreign_links_do_not_lead_a_save_to_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file(tmp_path / "mine" / "thesis.txt")
    for name in (SAVING, SAVED):
        write(tmp_path / "model", MODEL)
        (tmp_path / "model" / name).symlink_to(tmp_path / "mine")
        write(tmp_path / "model", MODEL)
        assert listing(tmp_path / "mine") == ["thesis.txt"]
        assert same(read(tmp_path / "model"), MODEL)


# Files of others are not overwritten.


def file(path: Path) -> None:
    path.write_text("mine")


def someones_folder(path: Path) -> None:
    path.mkdir()
    for name in "abcd":
        (path / name).write_text("mine")


def someones_config(path: Path) -> None:
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "bert"}')


def unreadable_config(path: Path) -> None:
    path.mkdir()
    (path / "config.json").write_text('{"program": "logsp')


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (file, "a file"),
        (someones_folder, "a folder with a, b, c and more"),
        (someones_config, "a folder with config.json"),
        (unreadable_config, "a folder with config.json"),
    ],
)
def test_a_folder_without_a_model_is_not_overwritten(tmp_path: Path, make: Any, reason: str) -> None:
    path = tmp_path / "taken"
    make(path)
    before = {name: (tmp_path / name).read_bytes() for name in listing(tmp_path) if (tmp_path / name).is_file()}
    with pytest.raises(
        DataError,
        match=rf"to a new or empty folder, or over another logsparse model, not \S*taken\. Got {reason}\. Hint: save",
    ):
        write(path, MODEL)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert not is_model(path)


def test_an_empty_folder_and_one_whose_first_save_was_killed_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "model" / SAVING).mkdir(parents=True)
    (tmp_path / "model" / SAVING / "model.safetensors.part").write_text("cut")
    for name in ("empty", "model"):
        (tmp_path / name).mkdir(exist_ok=True)
        write(tmp_path / name, MODEL)
        assert len(listing(tmp_path / name)) == 4
        assert same(read(tmp_path / name), MODEL)
