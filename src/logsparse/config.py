"""Settings of a run, frozen and checked; plain values in JSON and back. A sentence under a field is its help text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from logsparse.attention.pattern import Pattern, full
from logsparse.checks import is_number, is_truth, is_whole, suggest
from logsparse.errors import ConfigError, shown

T = TypeVar("T")
Method = Literal["ancestral", "mean-path", "two-way", "direct"]

_PLURAL = {int: "whole numbers", str: "names", Pattern: "patterns"}
# Kinds that JSON knows, and how a value of numpy is recognised as one of them.
_PLAIN: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", is_truth),
    int: ("a whole number", is_whole),
    float: ("a number", is_number),
    str: ("a name", lambda value: isinstance(value, str)),
}

# Far above what any machine can serve, so that a slip of the hand is refused at once and not by the memory.
_MOST_OF_MODEL = {"layers": 1000, "heads": 1000, "kernel": 100_000, "embedding": 100_000, "width": 100_000}
_MOST_OF_TRAINING = {
    "batch": 10**7,
    "windows": 10**9,
    "epochs": 10**9,
    "steps_per_epoch": 10**9,
    "validate_every": 10**9,
    "patience": 10**9,
    "validation_windows": 10**9,
    "seeds": 10**4,
    "validation_steps": 10**9,
}
_MOST_OF_WINDOW = {"context": 10**6, "horizon": 10**5}

RENAMED = {"held_back": "validation_steps", "look_every": "validate_every"}
"""Settings of `TrainConfig` by the names that version 0.1.0 saved them under."""


def _require(rule: str, holds: bool, got: object, hint: str = "see `help(logsparse.config)`.") -> None:
    if not holds:
        raise ConfigError(rule, got=shown(got), hint=hint)


def _require_counts(config: object, most: Mapping[str, int]) -> None:
    for name, bound in most.items():
        value = getattr(config, name)
        _require(f"{name} must be at least 1.", value is None or value >= 1, value)
        _require(f"{name} must be at most {bound}.", value is None or value <= bound, value)


def _settle(config: object) -> None:
    """Every setting is of the kind its field says: anything else would fail far away, or silently count as another.

    Values of numpy become Python's, lists and arrays become tuples: settings compare, and go into JSON.
    """
    for name, kind in get_type_hints(type(config)).items():
        object.__setattr__(config, name, _of_kind(name, getattr(config, name), kind))


def _of_kind(name: str, value: Any, kind: Any) -> Any:
    """The value as one of this kind, or an error in its name."""
    if get_origin(kind) is UnionType:
        (other,) = (part for part in get_args(kind) if part is not NoneType)
        return None if value is None else _of_kind(name, value, other)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        _require(f"{name} must be one of {', '.join(choices)}.", isinstance(value, str) and value in choices, value)
        return str(value)
    if get_origin(kind) is tuple:
        part = get_args(kind)[0]
        entries = value.tolist() if isinstance(value, np.ndarray) else value
        _require(f"{name} must be a list of {_PLURAL[part]}.", isinstance(entries, (list, tuple)), value)
        return tuple(_of_kind(f"Each of {name}", entry, part) for entry in entries)
    if kind in _PLAIN:
        called, holds = _PLAIN[kind]
        _require(f"{name} must be {called}.", holds(value), value)
        return kind(value)
    _require(f"{name} must be {_SINGULAR[kind]}.", isinstance(value, kind), value)
    return value


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network. The defaults are the paper's."""

    layers: int = 3
    """Blocks of attention and feed-forward."""
    heads: int = 8
    """Attention heads of a block."""
    kernel: int = 9
    """Width of the causal convolution that makes queries and keys, in steps; 1 is canonical attention."""
    patterns: tuple[Pattern, ...] = field(default_factory=lambda: (full(),))
    """Which cells attention sees: one pattern for all layers, or one a layer."""
    width: int | None = None
    """Channels of the residual stream; none: the concatenated inputs are the stream, without a projection."""
    head_width: Literal["full", "split"] = "full"
    """Channels of a head: the whole width each, as in the paper, or width / heads."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum, as in the paper, or before each sublayer."""
    embedding: int = 20
    """Channels of the position and series embeddings, which are summed."""
    embed_series: bool = True
    """Whether each series has an embedding of its own."""
    unknown_series: float = 0.0
    """Share of training windows whose series counts as unknown, so that new series can be forecast."""
    lags: tuple[int, ...] = (1,)
    """Earlier values given as inputs, in steps back; 1 is the previous value."""
    profiles: tuple[str, ...] = ()
    """Mean and spread of earlier values given as inputs: 24x7 is every 24 steps back, seven times."""
    scale: Literal["one-plus-mean", "mean", "deviation"] = "one-plus-mean"
    """What values are divided by: 1 + mean size of the history (DeepAR), that size, or its deviation from its mean."""
    see_missing: bool = False
    """Whether the inputs say which lagged values were observed."""
    anchor: bool = False
    """Whether the location is told as a correction to a mix of the lagged values, whose weights are learned."""
    lowest: float | None = None
    """No forecast is below this value; none: there is no bound."""
    dropout: float = 0.1
    """Share dropped of attention weights, attention output and feed-forward output in training."""
    likelihood: str = "gaussian"
    """Family of the predicted distribution: gaussian, student-t, negative-binomial, zero-inflated."""

    def __post_init__(self) -> None:
        _settle(self)
        _require_counts(self, _MOST_OF_MODEL)
        _require(
            "patterns must be one pattern, or one for each layer.",
            len(self.patterns) in (1, self.layers),
            f"{len(self.patterns)} for {self.layers} layers",
        )
        _require("dropout must be at least 0 and below 1.", 0 <= self.dropout < 1, self.dropout)
        _require("unknown_series must be between 0 and 1.", 0 <= self.unknown_series <= 1, self.unknown_series)
        _require(
            "lags must be 1 and then other numbers of steps from 2 on, each once.",
            self.lags[:1] == (1,) and len(set(self.lags)) == len(self.lags) and min(self.lags) >= 1,
            self.lags,
            "write lags=(1, 24, 168) for the value before, a day ago and a week ago.",
        )
        _require(
            "profiles must be steps and counts such as 24x7, each above 0.",
            all(re.fullmatch("[1-9][0-9]*x[1-9][0-9]*", profile) for profile in self.profiles),
            self.profiles,
            "write profiles=('24x7', '168x4') for a week of days and a month of weeks.",
        )
        _require(
            "Counts and zeros keep their zero: their scale must not be the deviation from a mean.",
            self.scale != "deviation" or self.likelihood not in ("negative-binomial", "zero-inflated"),
            f"scale={self.scale!r}, likelihood={self.likelihood!r}",
            "set scale='mean', or likelihood='student-t'.",
        )
        split_fits = self.head_width == "full" or (self.width is not None and self.width % self.heads == 0)
        _require(
            "Split heads need a width that is a multiple of heads.",
            split_fits,
            f"width={self.width}, heads={self.heads}",
            "set width, for example 48 with 4 heads.",
        )

    @property
    def layer_patterns(self) -> tuple[Pattern, ...]:
        """The pattern of each layer."""
        return self.patterns * self.layers if len(self.patterns) == 1 else self.patterns


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The training. The defaults are the paper's, where it tells."""

    batch: int = 64
    """Windows of a step, over all processes."""
    windows: int | None = None
    """Size of a set of windows drawn once and passed over `epochs` times; none: fresh draws at every step."""
    epochs: int = 20
    """Passes over the set; with fresh draws, how many times `steps_per_epoch` steps are taken."""
    steps_per_epoch: int = 500
    """Steps of an epoch when draws are fresh."""
    validate_every: int = 100
    """Steps between two looks at the validation windows, each of which may give the best weights; an epoch at most."""
    weighted: bool = True
    """Whether windows are drawn with probability proportional to their scale."""
    loss_on: Literal["all", "horizon", "both"] = "all"
    """Positions that count in the training loss; both: the horizon as much as the history."""
    optimiser: Literal["adam", "adamw", "bertadam"] = "adam"
    """Update rule."""
    schedule: Literal["constant", "one-cycle", "warmup-decay"] = "constant"
    """Course of the learning rate."""
    lr: float = 1e-3
    """Highest learning rate."""
    weight_decay: float = 0.01
    """Decoupled weight decay of adamw and bertadam; biases and norms are spared."""
    clip: float = 1.0
    """Gradient norm above which gradients are scaled down."""
    average: float = 0.0
    """Decay of the moving average of the weights (0: none); the average is validated and kept."""
    patience: int | None = 5
    """Epochs without a better look at validation before training stops; none: never."""
    validation_windows: int = 1024
    """Validation windows looked at, spread evenly over all there are."""
    minutes: float | None = None
    """Time after which training stops at the next step, so that the result follows the clock; none: no limit."""
    seeds: int = 1
    """Runs from different seeds; the one with the lowest validation loss is kept."""
    validation_steps: int | None = None
    """Most steps of each series held back for validation: a tenth of it, no more than this, one horizon at least."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number type of the matrix products."""

    def __post_init__(self) -> None:
        _settle(self)
        _require_counts(self, _MOST_OF_TRAINING)
        _require(
            "windows must be at least one batch.", self.windows is None or self.windows >= self.batch, self.windows
        )
        for name in ("lr", "clip"):
            _require(f"{name} must be above 0.", getattr(self, name) > 0, getattr(self, name))
        _require("weight_decay must be at least 0.", self.weight_decay >= 0, self.weight_decay)
        _require("average must be at least 0 and below 1.", 0 <= self.average < 1, self.average)
        _require("minutes must be above 0.", self.minutes is None or self.minutes > 0, self.minutes)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One run: what a window is, the network, the training."""

    context: int
    """Steps of history the model sees."""
    horizon: int
    """Steps to forecast."""
    method: Method = "ancestral"
    """A path is fed its own samples, or the mean, as the authors did; direct: all steps at once; two-way: both."""
    features: tuple[str, ...] | None = None
    """Calendar features; none: those that follow from the frequency."""
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        _settle(self)
        _require_counts(self, _MOST_OF_WINDOW)

    @property
    def length(self) -> int:
        """Steps of a window."""
        return self.context + self.horizon

    @property
    def masks_future_lags(self) -> bool:
        """Whether most training windows hide what is not known at their forecast start: to tell all steps at once."""
        return self.method in ("two-way", "direct")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model = {**asdict(self.model), "patterns": [pattern.to_dict() for pattern in self.model.patterns]}
        return {**asdict(self), "model": model}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """What `to_dict` gave; what is left out has its default, an unknown setting is an error."""
        model = dict(settings.get("model", {}))
        if "patterns" in model:
            model["patterns"] = tuple(Pattern.from_dict(pattern) for pattern in model["patterns"])
        train = {RENAMED.get(name, name): value for name, value in settings.get("train", {}).items()}
        made = {"model": _build(ModelConfig, model), "train": _build(TrainConfig, train)}
        return _build(cls, {**settings, **made})


_SINGULAR = {
    Pattern: "a pattern of `logsparse.attention`",
    ModelConfig: "a ModelConfig",
    TrainConfig: "a TrainConfig",
}


def _build(kind: type[T], settings: Mapping[str, Any]) -> T:
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name in settings:
        _require(
            f"{kind.__name__} knows {', '.join(known)}.", name in known, name, suggest(name, known, "leave it out.")
        )
    missing = [name for name, f in known.items() if f.default is f.default_factory is MISSING and name not in settings]
    _require(f"{kind.__name__} must be given {' and '.join(missing)}.", not missing, dict(settings))
    return kind(**settings)
