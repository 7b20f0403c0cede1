"""Single settings by name, such as layers=2 -> checked -> a Config with these settings changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, get_type_hints

from logsparse.attention.pattern import Pattern
from logsparse.config import Config, Method, ModelConfig, TrainConfig, checked
from logsparse.model.likelihood import likelihood

# Settings of `Config` itself; context and horizon are parameters of a forecaster.
_OWN = ("method", "features")
# The name of a field is that of no other, so it does without its part (`model` or `train`).
_KINDS: dict[str, dict[str, Any]] = {
    "model": get_type_hints(ModelConfig),
    "train": get_type_hints(TrainConfig),
    "": {name: kind for name, kind in get_type_hints(Config).items() if name in _OWN},
}
_PART = {name: part for part, kinds in _KINDS.items() for name in kinds}
_PARAMETERS = ("minutes", "steps")

SETTINGS = tuple(name for name in _PART if name not in _PARAMETERS)
"""Settings that a forecaster takes by name; minutes and steps are parameters of their own."""


class Settings(TypedDict, total=False):
    """Types of `SETTINGS`, and of the parameters that say how a network is run."""

    device: str
    verbose: bool
    method: Method
    features: Sequence[str] | None
    layers: int
    heads: int
    kernel: int
    patterns: Sequence[Pattern]
    width: int | None
    head_width: str
    norm: str
    embedding: int
    embed_series: bool
    unknown_series: float
    hidden_history: float
    lags: Sequence[int]
    profiles: Sequence[str]
    scale: str
    see_missing: bool
    anchor: bool
    lowest: float | None
    dropout: float
    likelihood: str
    batch: int
    windows: int | None
    epochs: int
    steps_per_epoch: int
    validate_every: int
    weighted: bool
    loss_on: str
    optimiser: str
    schedule: str
    lr: float
    weight_decay: float
    clip: float
    average: float
    patience: int | None
    validation_windows: int
    seeds: int
    validation_steps: int | None
    precision: str


def dotted() -> dict[str, Any]:
    """Return every setting by its dotted name, such as model.layers, and the type of its value."""
    return {f"{part}.{name}".lstrip("."): kind for part, kinds in _KINDS.items() for name, kind in kinds.items()}


def check_setting(name: str, value: Any) -> Any:
    """Return the value of one setting, checked by itself; what contradicts other settings shows in `apply`."""
    settled = checked(name, value, _KINDS[_PART[name]][name])
    if name == "likelihood":
        likelihood(settled)
    return settled


def apply(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the config with these settings, all changed at once, so that only the result must be consistent."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in _KINDS}
    for name, value in changes.items():
        parts[_PART[name]][name] = value
    model, train = replace(config.model, **parts["model"]), replace(config.train, **parts["train"])
    return replace(config, model=model, train=train, **parts[""])
