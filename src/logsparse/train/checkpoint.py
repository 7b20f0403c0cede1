"""Tensors and JSON values -> a checkpoint that is whole at every moment -> the same again, checked part by part.

A checkpoint is a pair of files: `<name>.json`, and the safetensors file it names together with its checksum.
New tensors are written beside the old ones, under a name made of their checksum; renaming the JSON file into
place is the one switch. Killed before it, the old pair is whole; killed after it, the new one is.
A folder has one writer at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor, nn

from logsparse.config import RENAMED, TrainConfig
from logsparse.data.panel import Panel
from logsparse.errors import DataError
from logsparse.model.network import Network
from logsparse.storage import (
    Refusal,
    clear_parts,
    entries,
    lock,
    make_folder,
    number,
    read_file,
    require,
    checksum,
    whole_number,
    write_whole,
    writing,
)
from logsparse.train.batches import TrainingSet
from logsparse.train.optim import BertAdam, EarlyStopping, WeightAverage, optimiser_state


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors with names and number types that come back, since what cannot be read must not replace what can."""
    try:
        unpack(pack({key: torch.empty(0, dtype=tensor.dtype) for key, tensor in tensors.items()}))
    except (SafetensorError, KeyError, UnicodeEncodeError) as error:
        raise TypeError(f"Tensors must have names and number types that safetensors knows. {error}") from error
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        memory = dense.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory, as tied weights do; all others go without a copy.
        apart[key] = dense.clone() if memory in seen else dense
        seen.add(memory)
    return pack(apart)


def unpack_tensors(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Tensor]:
    try:
        tensors = unpack(blob)
    except (SafetensorError, KeyError) as error:  # KeyError: a number type that torch does not have
        raise refuse(path, f"no safetensors content ({error})") from error
    # Sorted: safetensors gives them in an order that changes from process to process.
    return dict(sorted(tensors.items()))


def check_tensors(needed: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Refuse tensors that are not the needed ones by name, shape and number type, or that are not finite."""
    for name in sorted(needed.keys() ^ found.keys()):
        must, is_ = ("one that its settings ask for", found[name].shape) if name in found else ("there", None)
        require(f"{what} {name}", must, is_, holds=False)
    for name, tensor in found.items():
        for quality in ("shape", "dtype"):
            is_, must = getattr(tensor, quality), getattr(needed[name], quality)
            require(f"{what} {name}", f"of {quality} {must}", is_, holds=is_ == must)
        require(f"{what} {name}", "finite", "other numbers", holds=are_finite(tensor))


def are_finite(tensor: Tensor) -> bool:
    """Of any number type: torch does not look for infinities in those of 8 bits."""
    return bool((tensor.float() if tensor.itemsize == 1 else tensor).isfinite().all())


FORMAT = "logsparse-checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(
    folder: str | Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, name: str = "checkpoint"
) -> None:
    """Write the pair; a checkpoint of the same name is replaced in one stroke."""
    folder = Path(folder)
    blob = pack_tensors(tensors)
    entry = checksum(blob)
    file = f"{name}-{entry['sha256'][:16]}.safetensors"
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tensors": {"file": file, **entry},
        "state": plain(state, "The state of a checkpoint"),
    }
    clear_parts(folder, _tensor_file(name))
    write_whole(folder / file, blob, "A checkpoint")
    write_whole(folder / f"{name}.json", pack_document(content), "A checkpoint")
    # The new pair is whole: tensors of earlier ones that cannot be removed now are removed by the next save.
    with suppress(OSError):
        for old in folder.iterdir():
            if old.name != file and re.fullmatch(_tensor_file(name), old.name):
                old.unlink(missing_ok=True)


def exists(folder: str | Path, *, name: str = "checkpoint") -> bool:
    return (Path(folder) / f"{name}.json").exists()


def load(folder: str | Path, *, name: str = "checkpoint") -> Checkpoint:
    """Read the pair back, or refuse it with the file's name and the reason. Nothing in it is ever run."""
    path = Path(folder) / f"{name}.json"
    content = _read_document(path)
    match content:
        case {"tensors": {"file": str(file), "bytes": int(), "sha256": str()} as entry, "state": dict(state)}:
            pass
        case _:
            raise damaged(path, "values that no checkpoint has")
    # The name comes from a file that may be a stranger's: it must not lead out of the folder.
    if not re.fullmatch(_tensor_file(name), file):
        raise damaged(path, f"a JSON file that names {file!r} as its tensors")
    tensor_path = path.with_name(file)
    blob = read_file(tensor_path, damaged, entry)
    return Checkpoint(unpack_tensors(tensor_path, blob, damaged), state)


def _read_document(path: Path) -> dict[str, Any]:
    document = unpack_object(path, read_file(path, damaged), damaged)
    if document.get("format") != FORMAT:
        raise damaged(path, "a JSON file of another program")
    version = document.get("version")
    if version != VERSION:
        raise DataError(
            f"{path} must have checkpoint version {VERSION}.",
            got=f"version {version}",
            hint="read it with the version of logsparse that wrote it, or upgrade logsparse.",
        )
    return check_document(path, document, damaged)


def _tensor_file(name: str) -> str:
    return re.escape(name) + r"-[0-9a-f]{16}\.safetensors"


def damaged(path: Path, reason: str) -> DataError:
    """How a file of a checkpoint is refused."""
    return DataError(
        f"{path} must be a whole file of a logsparse checkpoint.",
        got=reason,
        hint="use another checkpoint, or start the run anew in an empty folder.",
    )


Identity = dict[str, Any]
"""Plain JSON."""


def identity(network: Network, data: TrainingSet, train: TrainConfig, seed: int) -> Identity:
    """The same for the same seed, settings, network and data, and for nothing else."""
    return {
        "seed": seed,
        "train": asdict(train),
        "network": _text_digest(f"{type(network).__name__} {network.config}"),
        "data": _fingerprint_of(data),
    }


def differences(then: Mapping[str, Any], now: Identity) -> list[str]:
    """In words, the settings by name with both values; empty for the same run."""
    parts = {"network": "another network", "data": "other data"}
    found = [words for part, words in parts.items() if then.get(part) != now[part]]
    if then.get("seed") != now["seed"]:
        found.append(f"seed {now['seed']} (then {then.get('seed')})")
    was = then.get("train")
    if not isinstance(was, dict):
        return [*found, "no settings"]
    was = {RENAMED.get(name, name): value for name, value in was.items()}
    return found + [
        f"train.{name} {_shown(value)} (then {_shown(was.get(name))})"
        for name, value in now["train"].items()
        if was.get(name) != value
    ]


def fingerprint(panel: Panel) -> str:
    """The same for the same series, values and covariates, and for nothing else."""
    digest = sha256()
    facts: list[Any] = [panel.ids, str(panel.freq), panel.starts.tolist(), panel.lengths.tolist()]
    static = {name: (column.categories, column.codes.tolist()) for name, column in panel.static.items()}
    digest.update(repr((facts, static, list(panel.covariates))).encode())
    for series in range(len(panel)):
        digest.update(panel[series].tobytes())
    for covariate in panel.covariates.values():
        digest.update(covariate.tobytes())
    return digest.hexdigest()


def _fingerprint_of(data: TrainingSet) -> str:
    """Of both panels, and of how windows are cut from them."""
    windows = data.windows
    panels = [windows.panel] if data.validation_windows is windows else [windows.panel, data.validation_windows.panel]
    cut = (windows.context, windows.horizon, data.features.names, data.masks_future_lags)
    return _text_digest(repr((cut, [fingerprint(panel) for panel in panels])))


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def _text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


PARTS = ("weights", "best", "optimiser", "average")


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the checkpoints of one seed are."""
    return folder / f"seed-{seed}"


@contextmanager
def lock_seeds(folder: Path | None, seeds: Iterable[int]) -> Iterator[None]:
    """For the time of the block no other training writes checkpoints of these seeds; a killed one lets go of them."""
    with ExitStack() as held:
        for place in (seed_folder(folder, seed) for seed in seeds if folder):
            with writing("The folder of a training", place):
                make_folder(place)
            if not held.enter_context(lock(place, wait=False)):
                raise DataError(
                    "A folder must have one training at a time.",
                    got=f"another that is at work in {place}",
                    hint="wait until it has ended, or give another folder.",
                )
        yield


def under(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Named as those of this part."""
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def checked_parts(
    checkpoint: Checkpoint,
    network: nn.Module,
    optim: torch.optim.Optimizer,
    average: WeightAverage | None,
    stopping: EarlyStopping,
    steps: int,
) -> dict[str, dict[str, Tensor]]:
    """The tensors by part; an InvalidContentError names what cannot be of this training."""
    state, tensors = checkpoint.state, checkpoint.tensors
    entries("state", state, "step", "story", "optimiser", "average", "stopping")
    step = whole_number("state/step", state["step"], 1, steps)
    found: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        require(name, f"of {', '.join(PARTS)}", part, holds=part in PARTS)
        found[part][rest] = tensor
    for part in ("weights", "best"):
        check_tensors(network.state_dict(), found[part], part)
    check_tensors(average.average if average else {}, found["average"], "average")
    if average:
        counts = entries("state/average", state["average"], "decay", "updates")
        number("state/average/decay", counts["decay"], average.decay, average.decay)
        whole_number("state/average/updates", counts["updates"], step, step)
    _check_moments(found["optimiser"], network, optim, step)
    _check_settings(state["optimiser"], optim)
    _check_stopping(state["stopping"], stopping)
    return found


def _check_moments(found: Mapping[str, Tensor], network: nn.Module, optim: torch.optim.Optimizer, step: int) -> None:
    """A weight has all moments of its optimiser, or none if it never had a gradient."""
    moments = ("exp_avg", "exp_avg_sq") if isinstance(optim, BertAdam) else ("exp_avg", "exp_avg_sq", "step")
    weights = {name: weight for name, weight in network.named_parameters() if f"{name}.exp_avg" in found}
    count = torch.empty((), dtype=torch.float32)
    needed = {
        f"{name}.{key}": count if key == "step" else weights[name].detach() for name in weights for key in moments
    }
    check_tensors(needed, found, "optimiser")
    for name, tensor in found.items():
        if name.endswith(".exp_avg_sq"):
            require(f"optimiser {name}", "at least 0", "less", holds=bool((tensor >= 0).all()))
        if name.endswith(".step"):
            number(f"optimiser {name}", tensor.item(), 1, step)


def _check_settings(found: Any, optim: torch.optim.Optimizer) -> None:
    """All settings but the learning rate, which is set anew at every step, must be those of this training."""
    entries("state/optimiser", found, "kind", "groups")
    _, own = optimiser_state(optim)

    def told(values: Any) -> Any:
        return [{key: value for key, value in group.items() if key != "lr"} for group in values["groups"]]

    same = isinstance(found["groups"], list) and all(isinstance(group, dict) for group in found["groups"])
    same = same and found["kind"] == own["kind"] and told(found) == told(own)
    require("state/optimiser", "the settings of this training", found["kind"], holds=same)
    for group in found["groups"]:
        number("state/optimiser/lr", group.get("lr"), 0)


def _check_stopping(found: Any, own: EarlyStopping) -> None:
    entries("state/stopping", found, "patience", "looks", "best", "best_look")
    whole_number("state/stopping/patience", found["patience"], own.patience, own.patience)
    looks = whole_number("state/stopping/looks", found["looks"], 1, 2**62)
    whole_number("state/stopping/best_look", found["best_look"], 0, looks)
    if found["best"] is not None:
        number("state/stopping/best", found["best"])
