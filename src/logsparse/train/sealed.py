"""Tensors and JSON values -> bytes sealed by checksums -> the same again, or the reason why not.

What a checkpoint and a saved model are made of. Nothing that is read here is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from logsparse.facts import require
from logsparse.storage import Refusal


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


def plain(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The values after a trip through JSON, which must not change them: tuples and number keys would change."""
    rule = f"{what} must be plain JSON: text keys, lists, finite numbers."
    try:
        back: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{rule} {error}") from error
    if back != values:
        raise TypeError(rule)
    return back


def pack_document(content: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """JSON that carries the checksum of its own values, so that any edit shows."""
    return json.dumps({**content, "sha256": _digest(content)}, indent=indent, allow_nan=False).encode()


def check_document(path: Path, document: dict[str, Any], refuse: Refusal) -> dict[str, Any]:
    content = {key: value for key, value in document.items() if key != "sha256"}
    if document.get("sha256") != _digest(content):
        raise refuse(path, "content that does not match its checksum")
    return content


def unpack_object(path: Path, blob: bytes, refuse: Refusal) -> dict[str, Any]:
    try:
        value = json.loads(blob, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise refuse(path, f"no valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise refuse(path, "JSON that is no object")
    return value


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse_constant(digits)


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
