"""Network + TrainingSet + TrainConfig + seed -> what a run is known by, and how it differs from another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from logsparse.config import TrainConfig
from logsparse.data.panel import Panel
from logsparse.model.network import Network
from logsparse.train.batches import TrainingSet

Identity = dict[str, Any]
"""Plain JSON."""


def identity(network: Network, data: TrainingSet, train: TrainConfig, seed: int) -> Identity:
    """The same for the same seed, settings, network and data, and for nothing else."""
    return {
        "seed": seed,
        "train": asdict(train),
        "network": _digest(f"{type(network).__name__} {network.config}"),
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
    cut = (windows.context, windows.horizon, data.features.names, data.mostly_blind)
    return _digest(repr((cut, [fingerprint(panel) for panel in panels])))


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
