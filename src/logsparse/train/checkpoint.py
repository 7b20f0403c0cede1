"""Tensors and JSON values of a training -> a checkpoint folder -> the same again; identity and lock of a training.

    state.json            step, identity and history of the training; size and checksum of the tensors
    tensors.safetensors   weights, best weights, weight average and moments of the optimiser

A save replaces both files at once, as it does for a model folder (storage.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from logsparse.config import TrainConfig
from logsparse.data.mapped import pieces
from logsparse.data.panel import Panel
from logsparse.errors import DataError
from logsparse.model.network import Network
from logsparse.storage import (
    SAVED,
    Refusal,
    check_document,
    checksum,
    fetch,
    lock,
    make_folder,
    pack_document,
    plain,
    replace_files,
    require,
    unpack_object,
    writing,
)
from logsparse.train.batches import TrainingSet

FORMAT = "logsparse-checkpoint"
VERSION = 2
STATE, TENSORS = "state.json", "tensors.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save(folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write a checkpoint; one that is there is replaced."""
    blob = pack_tensors(tensors)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tensors": checksum(blob),
        "state": plain(state, "The state of a checkpoint"),
    }
    replace_files(folder, {TENSORS: blob, STATE: pack_document(content)}, "A checkpoint")


def exists(folder: Path) -> bool:
    """Return True if the folder holds a checkpoint."""
    return (folder / SAVED / STATE).exists() or (folder / STATE).exists()


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint; a damaged one raises a DataError that names the file and the reason."""
    path = folder / STATE
    document = unpack_object(path, fetch(folder, STATE, damaged), damaged)
    if document.get("format") != FORMAT:
        raise damaged(path, "a JSON file of another program")
    if document.get("version") != VERSION:
        raise DataError(
            f"{path} must have checkpoint version {VERSION}.",
            got=f"version {document.get('version')}",
            hint="resume with the version of logsparse that wrote it, or upgrade logsparse.",
        )
    match check_document(path, document, damaged):
        case {"tensors": {"bytes": int(), "sha256": str()} as entry, "state": dict(state)}:
            blob = fetch(folder, TENSORS, damaged, entry)
            return Checkpoint(unpack_tensors(folder / TENSORS, blob, damaged), state)
    raise damaged(path, "values that no checkpoint has")


def damaged(path: Path, reason: str) -> DataError:
    """Return the error for a file of a checkpoint that cannot be used."""
    return DataError(
        f"{path} must be a complete file of a logsparse checkpoint.",
        got=reason,
        hint="use another checkpoint, or remove the folder to start again.",
    )


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the tensors as safetensors; names and types that could not be read back raise a TypeError."""
    try:
        unpack(pack({key: torch.empty(0, dtype=tensor.dtype) for key, tensor in tensors.items()}))
    except (SafetensorError, KeyError, UnicodeEncodeError) as error:
        raise TypeError(f"Tensors must have names and number types that safetensors knows. {error}") from error
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        memory = dense.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory, such as tied weights; only those are copied.
        separate[key] = dense.clone() if memory in seen else dense
        seen.add(memory)
    return pack(separate)


def unpack_tensors(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, sorted by name: safetensors has no fixed order."""
    try:
        tensors = unpack(blob)
    except (SafetensorError, KeyError) as error:  # KeyError: a number type that torch does not have
        raise refuse(path, f"no safetensors content ({error})") from error
    return dict(sorted(tensors.items()))


def check_tensors(needed: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Raise an InvalidContentError unless names, shapes and types are those needed and all values are finite."""
    for name in sorted(needed.keys() ^ found.keys()):
        must, got = ("one that its settings ask for", found[name].shape) if name in found else ("there", None)
        require(f"{what} {name}", must, got, holds=False)
    for name, tensor in found.items():
        for quality in ("shape", "dtype"):
            got, must = getattr(tensor, quality), getattr(needed[name], quality)
            require(f"{what} {name}", f"of {quality} {must}", got, holds=got == must)
        require(f"{what} {name}", "finite", "other numbers", holds=are_finite(tensor))


def are_finite(tensor: Tensor) -> bool:
    """Return True if all values are finite; 8-bit types, for which torch has no such test, are converted first."""
    return bool((tensor.float() if tensor.itemsize == 1 else tensor).isfinite().all())


Identity = dict[str, Any]
"""What `identity` returns, as plain JSON."""


def identity(network: Network, data: TrainingSet, train: TrainConfig, seed: int) -> Identity:
    """Return what a checkpoint must share with a training that resumes it: seed, settings, network and data."""
    return {
        "seed": seed,
        "train": asdict(train),
        "network": _text_digest(f"{type(network).__name__} {network.config}"),
        "data": _fingerprint_of(data),
    }


def differences(was: Mapping[str, Any], now: Identity) -> list[str]:
    """Describe how two identities differ, settings by name with both values; empty if they are the same."""
    parts = {"network": "another network", "data": "other data"}
    changed = [words for part, words in parts.items() if was[part] != now[part]]
    if was["seed"] != now["seed"]:
        changed.append(f"seed {now['seed']} (was {was['seed']})")
    settings = dict(was["train"])
    return changed + [
        f"train.{name} {_shown(value)} (was {_shown(settings.get(name))})"
        for name, value in now["train"].items()
        if settings.get(name) != value
    ]


def fingerprint(panel: Panel) -> str:
    """Return a hash of the series, values and covariates of a panel."""
    digest = sha256()
    facts: list[Any] = [panel.ids, str(panel.freq), panel.starts.tolist(), panel.lengths.tolist()]
    static = {name: (column.categories, column.codes.tolist()) for name, column in panel.static.items()}
    digest.update(repr((facts, static, list(panel.covariates), *panel.past)).encode())
    if len(panel.held) < len(panel):
        digest.update(f"{sum(panel.everywhere(_sum_of_digests(panel)))}".encode())
        return digest.hexdigest()
    for series in range(len(panel)):
        digest.update(panel[series].tobytes())
    for covariate in panel.covariates.values():
        for piece in pieces(len(covariate)):
            digest.update(covariate[piece].tobytes())
    return digest.hexdigest()


def _sum_of_digests(panel: Panel) -> int:
    """Return a sum of hashes over the series that are held here: that of all does not depend on who holds them."""
    total = 0
    for series in panel.held:
        digest = sha256(f"{series} ".encode() + panel[series].tobytes())
        for covariate in panel.covariates.values():
            digest.update(covariate[panel.indptr[series] : panel.indptr[series + 1]].tobytes())
        total += int.from_bytes(digest.digest(), "big")
    return total


def _fingerprint_of(data: TrainingSet) -> str:
    """Return a hash of both panels and of how windows are cut from them."""
    windows = data.windows
    panels = [windows.panel] if data.validation_windows is windows else [windows.panel, data.validation_windows.panel]
    cut = (windows.context, windows.horizon, data.features.names, data.masks_future_lags)
    return _text_digest(repr((cut, [fingerprint(panel) for panel in panels])))


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def _text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the folder of the training of one seed."""
    return folder / f"seed-{seed}"


@contextmanager
def lock_seeds(folder: Path | None, seeds: Iterable[int]) -> Iterator[None]:
    """Keep other trainings out of the folders of these seeds; a killed process releases them."""
    with ExitStack() as held:
        for place in (seed_folder(folder, seed) for seed in seeds if folder):
            with writing("The folder of a training", place):
                make_folder(place)
            if not held.enter_context(lock(place, wait=False)):
                raise DataError(
                    "A folder must have one training at a time.",
                    got=f"another training that is running in {place}",
                    hint="wait until it has ended, or give another folder.",
                )
        yield
