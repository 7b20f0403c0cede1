"""A seed -> a damaged model folder or checkpoint, accepted only if it forecasts as before or is another valid one.

Small models are fitted once per process; each case damages a copy: bytes, files, JSON values and tensors, with the
checksums updated or not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

import logsparse as ls
import small
from fuzz.case import Case
from logsparse.errors import LogsparseError
from logsparse.storage import seal
from logsparse.train.batches import TrainingSet
from logsparse.train.checkpoint import pack_document, pack_tensors, unpack_tensors
from logsparse.train.loop import CHECKPOINT, Training

Rng = np.random.Generator
Damage = Callable[[Rng, Path], tuple[str, bool]]
"""Damages a folder; returns how, and whether the result may be another valid model."""

STRANGE: list[Any] = [
    *(None, True, False, "", "x", "24x7", "h", "9" * 30, "\ud800", "a\nb"),
    *(-1, 0, 1, 2, 7, 10**6, 5_000_000_000, 10**12, 2**62, 2**63, 10**30, -(10**18)),
    *(0.5, -0.5, 1e-300, 1e300, -1e300, 3e38, float("nan"), float("inf")),
    *([], {}, [[]], [1, 2], ["a", "a"], {"a": 1}, [None], [[[[[[1]]]]]], [0] * 40),
]


def frame() -> pl.DataFrame:
    """Three series of days: a little noisy, with holes, a covariate and a category."""
    rng, parts = np.random.default_rng(0), []
    for series, level in (("a", 5.0), ("b", 50.0), ("c", 500.0)):
        values: list[float | None] = list(level * (2 + np.sin(np.arange(60) * 2 * np.pi / 7) + 0.1 * rng.random(60)))
        values[10] = None
        days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 29), eager=True)
        columns = {"unique_id": series, "ds": days, "y": values, "x": np.arange(60.0), "kind": series < "c"}
        parts.append(pl.DataFrame(columns).with_columns(pl.col("kind").cast(pl.String)))
    return pl.concat(parts)


COLUMNS = {"covariates": {"covariates": ["x"], "static": ["kind"]}}
NAMES = ("naive", "logsparse", "covariates", "no history", "deepar", "deepstate", "trmf", "arima", "ets")


@cache
def _room() -> TemporaryDirectory[str]:
    """Folder for the undamaged models; removed when the process ends."""
    return TemporaryDirectory(prefix="logsparse-fuzz-")


def _new_place() -> Path:
    return Path(mkdtemp(dir=_room().name))


@cache
def original(name: str) -> tuple[Path, pl.DataFrame]:
    """The folder of a small fitted model, and its forecast."""
    path = _new_place() / name
    _unfitted(name).fit(frame(), **COLUMNS.get(name, {})).save(path, history=name != "no history")
    return path, _forecast(path)


def _unfitted(name: str) -> Any:
    config = replace(small.config({"lags": (1, 7), "profiles": ("7x2",)}, epochs=1), context=14, horizon=3)
    quiet: dict[str, Any] = {"config": config, "samples": 10, "verbose": False}
    makers: dict[str, Callable[[], Any]] = {
        "naive": lambda: ls.SeasonalNaive(3),
        "trmf": lambda: ls.TRMF(3, rank=2, sweeps=3, verbose=False),
        "arima": lambda: ls.AutoARIMA(3, season=1, processes=1, verbose=False),
        "ets": lambda: ls.AutoETS(3, season=7, processes=1, verbose=False),
        "deepar": lambda: ls.DeepAR(3, **quiet),
        "deepstate": lambda: ls.DeepState(3, season=7, trend=0.9, **quiet),
    }
    return makers.get(name, lambda: ls.LogSparse(3, **quiet))()


def _forecast(path: Path) -> pl.DataFrame:
    """Forecast of the loaded model, from its own history if it has one, else from a given one."""
    model = ls.load(path)
    future = frame().select("unique_id", pl.col("ds").dt.offset_by("60d"), "x")
    if model.panel_.covariates:
        return pl.DataFrame(model.predict(future=future))
    if np.isnan(model.panel_.values).all():
        return pl.DataFrame(model.predict(frame()))
    return pl.DataFrame(model.predict())


@cache
def checkpoint() -> tuple[Path, bytes]:
    """A training at its sixth of twelve steps, and the weights it ends with."""
    place = _new_place()
    half = _training(place)
    for _ in range(6):
        loss = half.learn()
    half.look(loss)
    return place, _finished(place)


def _training(folder: Path) -> Training:
    config = small.config(average=0.9, optimiser="adamw")
    data = TrainingSet.of(small.panel(), config)
    return Training(small.network(config, data), data, config.train, seed=0, folder=folder, verbose=False)


def _finished(folder: Path) -> bytes:
    """The weights that the training in a copy of this folder ends with."""
    place = _new_place()
    try:
        run = _training(shutil.copytree(folder, place, dirs_exist_ok=True))
        run.run()
    finally:
        shutil.rmtree(place)
    tensors = sorted(run.network.state_dict().items())
    assert all(tensor.isfinite().all() for _, tensor in tensors), "the weights are finite"
    return b"".join(tensor.numpy().tobytes() for _, tensor in tensors)


def case(rng: Rng, folder: Path) -> Case:
    """One damaged folder or checkpoint, made below `folder`."""
    if rng.random() < 0.25:
        return _checkpoint_case(rng, folder)
    name = str(rng.choice(NAMES))
    whole, expected = original(name)
    place = folder / "model"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    kind = str(rng.choice(list(MODEL_DAMAGES)))
    how, may_differ = MODEL_DAMAGES[kind](rng, place)

    def run() -> None:
        found = _forecast(place)
        if not may_differ:
            assert found.equals(expected), "it forecasts as before"
        numbers = found.select(pl.exclude("unique_id", "ds")).to_numpy()
        assert np.isfinite(numbers).all(), "every forecast is finite"

    return Case(f"folder: {kind}", f"{name}: {how}", _must_pass(run) if kind == "untouched" else run)


def _checkpoint_case(rng: Rng, folder: Path) -> Case:
    whole, expected = checkpoint()
    place = folder / "checkpoint"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    kind = str(rng.choice(list(CHECKPOINT_DAMAGES)))
    how, may_differ = CHECKPOINT_DAMAGES[kind](rng, place)

    def run() -> None:
        found = _finished(place)
        assert may_differ or found == expected, "it ends with the same weights"

    return Case(f"checkpoint: {kind}", how, _must_pass(run) if kind == "untouched" else run)


def _must_pass(run: Callable[[], None]) -> Callable[[], None]:
    def passes() -> None:
        try:
            run()
        except LogsparseError as error:
            raise AssertionError("what is whole is accepted") from error

    return passes


# Damages of bytes and files: the checksums become wrong.


def _untouched(_rng: Rng, _place: Path) -> tuple[str, bool]:
    return "nothing", False


def _flip(rng: Rng, place: Path) -> tuple[str, bool]:
    path = _any_file(rng, place)
    blob = bytearray(path.read_bytes())
    bit = int(rng.integers(8 * len(blob)))
    blob[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(blob))
    return f"bit {bit} of {path.name}", False


def _cut(rng: Rng, place: Path) -> tuple[str, bool]:
    path = _any_file(rng, place)
    blob = path.read_bytes()
    end = int(rng.integers(len(blob)))
    path.write_bytes(blob[:end] if rng.random() < 0.7 else blob + blob[:end])
    return f"{path.name} at {end}", False


def _files(rng: Rng, place: Path) -> tuple[str, bool]:
    path, other = _any_file(rng, place), _any_file(rng, place)
    if rng.random() < 0.5:
        path.unlink()
        # Without a checkpoint, training starts again.
        return f"no {path.name}", path.name == f"{CHECKPOINT}.json"
    blob = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(blob)
    return f"{path.name} and {other.name} swapped", path == other


def _any_file(rng: Rng, place: Path) -> Path:
    # The losses of a training are only for the user: nothing reads them.
    found = sorted(path for path in place.iterdir() if path.name != "metrics.jsonl")
    return found[int(rng.integers(len(found)))]


# Damages of values: the checksums are updated.


def _edit_config(rng: Rng, place: Path) -> tuple[str, bool]:
    document = json.loads((place / "config.json").read_bytes())
    part = str(rng.choice(["config", "config", "config", "kind", "files", "version", "format"]))
    how = _edit(rng, document, [part])
    _seal_config(place, document)
    return f"config.json {how}", True


def _edit_series(rng: Rng, place: Path) -> tuple[str, bool]:
    series = json.loads((place / "series.json").read_bytes())
    how = "; ".join(_edit(rng, series) for _ in range(int(rng.integers(1, 3))))
    _put(place, "series.json", json.dumps(series).encode())
    return f"series.json {how}", True


def _other_series(rng: Rng, place: Path) -> tuple[str, bool]:
    """A valid file of another model."""
    name = str(rng.choice(NAMES))
    file = str(rng.choice(["series.json", "model.safetensors", "history.safetensors"]))
    source = original(name)[0] / file
    if not source.exists():
        return f"nothing of {name}", True
    _put(place, file, source.read_bytes())
    return f"{file} of {name}", True


def _edit_weights(rng: Rng, place: Path) -> tuple[str, bool]:
    return _edit_tensor_file(rng, place, "model.safetensors")


def _edit_history(rng: Rng, place: Path) -> tuple[str, bool]:
    if not (place / "history.safetensors").exists():
        _put(place, "history.safetensors", pack_tensors({"values": torch.ones(int(rng.integers(5)))}))
        return "a history that was not there", True
    return _edit_tensor_file(rng, place, "history.safetensors")


def _edit_tensor_file(rng: Rng, place: Path, file: str) -> tuple[str, bool]:
    tensors = _read_tensors(place / file)
    how = _edit_tensors(rng, tensors)
    _put(place, file, pack_tensors(tensors))
    return f"{file} {how}", True


def _edit_header(rng: Rng, place: Path) -> tuple[str, bool]:
    """Change the header of a tensor file."""
    blob = bytearray((place / "model.safetensors").read_bytes())
    at = int(rng.integers(min(len(blob), 200)))
    blob[at] = int(rng.integers(256))
    _put(place, "model.safetensors", bytes(blob))
    return f"model.safetensors byte {at} is {blob[at]}", True


def _edit_state(rng: Rng, place: Path) -> tuple[str, bool]:
    path = place / f"{CHECKPOINT}.json"
    document = json.loads(path.read_bytes())
    how = _edit(rng, document, [str(rng.choice(["state", "state", "state", "tensors", "version"]))])
    path.write_bytes(_sealed(document))
    return how, True


def _edit_checkpoint_tensors(rng: Rng, place: Path) -> tuple[str, bool]:
    path = place / f"{CHECKPOINT}.json"
    document = json.loads(path.read_bytes())
    file = place / document["tensors"]["file"]
    tensors = _read_tensors(file)
    how = _edit_tensors(rng, tensors)
    file.write_bytes(pack_tensors(tensors))
    document["tensors"] |= seal(file.read_bytes())
    path.write_bytes(_sealed(document))
    return how, True


def _edit(rng: Rng, value: Any, start: list[str] | None = None) -> str:
    """Change one value somewhere below; return where and how."""
    path: list[Any] = list(start or [])
    for key in path[:-1]:
        value = value[key]
    while True:
        if len(path) == 0 or path[-1] not in (value if isinstance(value, dict) else range(len(value))):
            path.append(_key(rng, value))
        inner = value[path[-1]]
        if not (isinstance(inner, (dict, list)) and inner and rng.random() < 0.85):
            break
        value = inner
        path.append(_key(rng, value))
    key, shown = path[-1], "/".join(map(str, path))
    match int(rng.integers(8)):
        case 0:
            del value[key]
            return f"{shown} removed"
        case 1 if isinstance(value, dict):
            value["extra"] = inner
            return f"{shown} twice"
        case 1:
            value.append(inner)
            return f"{shown} appended"
        case 2 if isinstance(inner, (int, float)):
            value[key] = inner * float(rng.choice([-1, 0.5, 2, 1e6, 1e18])) if rng.random() < 0.5 else int(inner) * 1000
            return f"{shown} = {value[key]}"
        case 3:
            value[key] = [inner] if rng.random() < 0.5 else str(inner)
            return f"{shown} as {type(value[key]).__name__}"
    value[key] = STRANGE[int(rng.integers(len(STRANGE)))]
    return f"{shown} = {value[key]!r}"


def _key(rng: Rng, value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return keys[int(rng.integers(len(keys)))]


def _edit_tensors(rng: Rng, tensors: dict[str, Tensor]) -> str:
    if not tensors:
        tensors["extra"] = torch.ones(2)
        return "an extra tensor"
    name = str(rng.choice(list(tensors)))
    tensor = tensors[name]
    change = str(rng.choice(["removed", "extra", "renamed", "shape", "type", "number", "number"]))
    if change == "removed":
        del tensors[name]
    elif change == "extra":
        tensors["extra"] = torch.ones(3)
    elif change == "renamed":
        tensors[f"{name}x"] = tensors.pop(name)
    elif change == "shape":
        shapes = [tensor.flatten(), tensor[None], tensor.flatten()[1:], torch.cat([tensor.flatten()] * 2)]
        tensors[name] = shapes[int(rng.integers(len(shapes)))].contiguous()
    elif change == "type":
        kinds = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]
        tensors[name] = tensor.to(kinds[int(rng.integers(len(kinds)))])
    elif tensor.numel():
        value = float(rng.choice([np.inf, -np.inf, np.nan, 3e38, -1e30, 0, -1]))
        whole = not tensor.is_floating_point()
        tensor.view(-1)[int(rng.integers(tensor.numel()))] = (2**62 if value > 0 else -1) if whole else value
        return f"{name}: {value}"
    return f"{name}: {change}"


def _read_tensors(path: Path) -> dict[str, Tensor]:
    def refuse(where: Path, reason: str) -> Any:
        raise AssertionError(f"{where}: {reason}")

    return unpack_tensors(path, path.read_bytes(), refuse)


def _put(place: Path, file: str, blob: bytes) -> None:
    """Replace a file of a model, and its entry."""
    (place / file).write_bytes(blob)
    document = json.loads((place / "config.json").read_bytes())
    document["files"][file] = seal(blob)
    _seal_config(place, document)


def _seal_config(place: Path, document: dict[str, Any]) -> None:
    (place / "config.json").write_bytes(_sealed(document))


def _sealed(document: dict[str, Any]) -> bytes:
    content = {key: value for key, value in document.items() if key != "sha256"}
    try:
        return pack_document(content)
    except ValueError:  # NaN and infinity, which no reader accepts
        return json.dumps(content).encode()


MODEL_DAMAGES: dict[str, Damage] = {
    "untouched": _untouched,
    "flipped bit": _flip,
    "cut": _cut,
    "files": _files,
    "edited config": _edit_config,
    "edited series": _edit_series,
    "edited weights": _edit_weights,
    "edited history": _edit_history,
    "edited header": _edit_header,
    "foreign file": _other_series,
}
CHECKPOINT_DAMAGES: dict[str, Damage] = {
    "untouched": _untouched,
    "flipped bit": _flip,
    "cut": _cut,
    "files": _files,
    "edited state": _edit_state,
    "edited tensors": _edit_checkpoint_tensors,
}
