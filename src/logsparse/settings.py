"""Single settings by name (layers=2) or as text (model.layers=6) -> checked -> a Config with these settings changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

from logsparse.attention.pattern import PATTERNS, Pattern
from logsparse.config import RENAMED, Config, Method, ModelConfig, TrainConfig, checked
from logsparse.data.holidays import holiday_texts
from logsparse.errors import ConfigError, suggest
from logsparse.model.likelihood import likelihood

# Settings of `Config` itself; context and horizon are parameters of a forecaster.
_OWN = ("method", "features", "holidays", "blend")
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
    holidays: Any
    blend: float
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
    validation_share: float
    refit: bool
    calibrate: str
    precision: str


def dotted() -> dict[str, Any]:
    """Return every setting by its dotted name, such as model.layers, and the type of its value."""
    return {f"{part}.{name}".lstrip("."): kind for part, kinds in _KINDS.items() for name, kind in kinds.items()}


def check_setting(name: str, value: Any) -> Any:
    """Return the value of one setting, checked by itself; what contradicts other settings shows in `apply`."""
    settled = checked(name, holiday_texts(value) if name == "holidays" else value, _KINDS[_PART[name]][name])
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


_PATTERNS = {name: rule.make for name, rule in PATTERNS.items() if rule.options is not None}
_BOOLEANS = {"true": True, "false": False}
# Settings that have options of their own.
_OPTIONS = ("context", "horizon")


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parse texts of the form `model.layers=6` into settings by name; the last one of a name wins."""
    known, settings = dotted(), {}
    for word in words:
        name, equals, text = word.partition("=")
        if name in _OPTIONS:
            raise ConfigError(f"--set does not change the {name}.", got=word, hint=f"give --{name} instead.")
        if name not in known or not equals:
            raise ConfigError("--set takes name=value, with the name of a setting.", got=word, hint=_hint(name, known))
        settings[name.rpartition(".")[2]] = read(name, known[name], text)
    return settings


def _hint(name: str, known: Mapping[str, Any]) -> str:
    part, _, last = name.rpartition(".")
    if name in known:
        return f"write --set {name}=value."
    if part == "train" and last in RENAMED:
        return f"it is called train.{RENAMED[last]} now."
    return suggest(
        name,
        known,
        "write for example --set model.layers=6; help(logsparse.config) lists all settings.",
    )


def read(name: str, kind: Any, text: str) -> Any:
    """Parse the text as a value of this type."""
    text, origin, inner = text.strip(), get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (kind,) = (part for part in inner if part is not NoneType)
        return None if text.lower() == "none" and get_origin(kind) is not tuple else read(name, kind, text)
    if origin is tuple:
        return () if text.lower() == "none" else tuple(read(name, inner[0], part) for part in text.split(","))
    if origin is Literal:
        return _one_of(name, text, {word: word for word in inner})
    return _READERS[kind](name, text)


def _one_of(name: str, text: str, known: dict[str, Any]) -> Any:
    if text not in known:
        hint = suggest(text, known, f"write {name}={next(iter(known))}.")
        raise _refused(name, f"one of {', '.join(known)}", text, hint)
    return known[text]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise _refused(name, "a whole number", text, f"write {name}=6.") from error


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _refused(name, "a number", text, f"write {name}=0.1.") from error


def _pattern(name: str, text: str) -> Pattern:
    """Parse a pattern: `restart:96:7` is restart(96, 7)."""
    rule, *numbers = text.split(":")
    hint = f"write {name}=full, logsparse, local:7, restart:96 or seasonal:24; one per layer, separated by commas."
    try:
        return _PATTERNS[rule](*(int(number) for number in numbers))
    except KeyError as error:
        raise _refused(name, f"one of {', '.join(_PATTERNS)}", text, suggest(rule, _PATTERNS, hint)) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise _refused(name, f"a rule and its numbers, as in {rule}:96", text, hint) from error


def _refused(name: str, rule: str, text: str, hint: str) -> ConfigError:
    return ConfigError(f"{name} must be {rule}.", got=repr(text), hint=hint)


_READERS: dict[type, Callable[[str, str], Any]] = {
    bool: lambda name, text: _one_of(name, text, _BOOLEANS),
    int: _whole,
    float: _number,
    str: lambda _name, text: text,
    Pattern: _pattern,
}
