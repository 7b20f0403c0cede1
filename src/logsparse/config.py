"""Settings of a run -> frozen, checked dataclasses, and plain values for JSON and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from logsparse.attention.pattern import Pattern, full
from logsparse.data.holidays import holiday_texts
from logsparse.errors import ConfigError, is_number, is_truth, is_whole, shown, suggest

T = TypeVar("T")
Method = Literal["ancestral", "mean-path", "two-way", "direct"]

_PLURAL = {int: "whole numbers", str: "names", Pattern: "patterns"}
# Types of JSON: what errors call them, and the test for them, which numpy's values pass too.
_PLAIN: dict[type, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", is_truth),
    int: ("a whole number", is_whole),
    float: ("a number", is_number),
    str: ("a name", lambda value: isinstance(value, str)),
}

# Far above what any machine can hold: a typing error is refused at once instead of exhausting the memory.
_MOST = {
    "layers": 1000,
    "heads": 1000,
    "kernel": 100_000,
    "embedding": 100_000,
    "width": 100_000,
    "batch": 10**7,
    "seeds": 10**4,
    "context": 10**6,
    "horizon": 10**5,
    **dict.fromkeys(("windows", "epochs", "steps", "steps_per_epoch", "validate_every", "patience"), 10**9),
    **dict.fromkeys(("validation_windows", "validation_steps"), 10**9),
}

RENAMED = {"held_back": "validation_steps", "look_every": "validate_every"}
"""Settings of `TrainConfig`: name in version 0.1.0 -> name now."""


def _require(rule: str, holds: bool, got: object, hint: str = "see `help(logsparse.config)`.") -> None:
    if not holds:
        raise ConfigError(rule, got=shown(got), hint=hint)


def _settle(config: object) -> None:
    """Convert every setting to the type of its field and check it by itself, or raise ConfigError.

    Values of numpy become Python's, lists and arrays become tuples, so that settings compare and go into JSON.
    """
    for name, kind in get_type_hints(type(config)).items():
        object.__setattr__(config, name, _of_kind(name, getattr(config, name), kind))
    for name in get_type_hints(type(config)):
        _require_bounds(name, getattr(config, name))


def checked(name: str, value: Any, kind: Any) -> Any:
    """Return the value of one setting as its type, checked by itself; raise ConfigError otherwise."""
    settled = _of_kind(name, value, kind)
    _require_bounds(name, settled)
    return settled


def _require_bounds(name: str, value: Any) -> None:
    if value is None:
        return
    if name in _MOST:
        _require(f"{name} must be at least 1.", value >= 1, value)
        _require(f"{name} must be at most {_MOST[name]}.", value <= _MOST[name], value)
    if name in _RULES:
        rule, holds, *hint = _RULES[name]
        _require(f"{name} must be {rule}.", holds(value), value, *hint)


# What must hold for one setting by itself: the rule, its test, and a hint of its own.
_RULES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("lr", "clip", "minutes"), ("above 0", lambda value: value > 0)),
    **dict.fromkeys(("dropout", "average", "hidden_history"), ("at least 0 and below 1", lambda value: 0 <= value < 1)),
    "validation_share": ("above 0 and at most a half", lambda value: 0 < value <= 0.5),
    "weight_decay": ("at least 0", lambda value: value >= 0),
    **dict.fromkeys(("unknown_series", "blend"), ("between 0 and 1", lambda value: 0 <= value <= 1)),
    "lags": (
        "1 and then other numbers of steps from 2 on, each once",
        lambda lags: lags[:1] == (1,) and len(set(lags)) == len(lags) and min(lags) >= 1,
        "write lags=(1, 24, 168) for the value before, a day ago and a week ago.",
    ),
    "profiles": (
        "steps and counts such as 24x7, each above 0",
        lambda profiles: all(re.fullmatch("[1-9][0-9]*x[1-9][0-9]*(-alike)?", profile) for profile in profiles),
        "write profiles=('24x7', '168x4') for a week of days and a month of weeks.",
    ),
}


def _of_kind(name: str, value: Any, kind: Any) -> Any:
    """Return the value as one of this type; raise ConfigError with the name of the setting otherwise."""
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
        hint = [f"write {name}=[{shown(value)}]."] if isinstance(value, part) else []
        _require(f"{name} must be a list of {_PLURAL[part]}.", isinstance(entries, (list, tuple)), value, *hint)
        return tuple(_of_kind(f"Each of {name}", entry, part) for entry in entries)
    if kind in _PLAIN:
        called, holds = _PLAIN[kind]
        _require(f"{name} must be {called}.", holds(value), value)
        return kind(value)
    _require(f"{name} must be {_SINGULAR[kind]}.", isinstance(value, kind), value)
    return value


class _Settings:
    """Base of the dataclasses below: their repr shows what differs from the defaults."""

    def __repr__(self) -> str:
        shown_fields = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if not _is_default(self, f)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown_fields)})"


def _is_default(config: object, setting: Field[Any]) -> bool:
    made = setting.default if setting.default_factory is MISSING else setting.default_factory()
    return bool(getattr(config, setting.name) == made)


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelConfig(_Settings):
    """Settings of the network; the defaults are those of the paper.

    Parameters
    ----------
    layers
        Number of blocks of attention and feed-forward.
    heads
        Number of attention heads per block.
    kernel
        Width in steps of the causal convolution that makes queries and keys; 1 is canonical attention.
    patterns
        Which past steps attention sees: one pattern for all layers, or one per layer.
    width
        Channels of the residual stream; None: the concatenated inputs are the stream, without a projection.
    head_width
        Channels per head: "full" is the whole width, as in the paper, "split" is width / heads.
    norm
        LayerNorm after each residual sum, as in the paper ("post"), or before each sublayer ("pre").
    embedding
        Channels of the position and series embeddings, which are summed.
    embed_series
        Whether each series has an embedding of its own.
    unknown_series
        Share of training windows whose series is hidden, so that new series can be forecast.
    hidden_history
        Share of training windows whose whole history is hidden, so that series without a past can be forecast.
    lags
        Past values given as inputs, in steps back; 1 is the previous value.
    profiles
        Mean and spread of past values given as inputs: 24x7 is every 24 steps back, seven times; 24x4-alike is the
        same time of the last four days of the same kind, where holidays are like another weekday (data/holidays).
    scale
        What values are divided by: 1 + mean absolute value of the history (as in DeepAR), that mean alone, or the mean
        absolute deviation, with the mean subtracted.
    see_missing
        Whether the inputs mark which lagged values were observed.
    anchor
        Whether the location is predicted as a correction to a learned mix of the lagged values.
    lowest
        Lower bound of every forecast; None: no bound.
    dropout
        Dropout rate of attention weights, attention output and feed-forward output in training.
    likelihood
        Family of the predicted distribution, such as gaussian or student-t.

    Raises
    ------
    ConfigError
        If a setting has a wrong type or value, or settings contradict each other.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.ModelConfig(layers=2, patterns=[ls.patterns.logsparse()])
    ModelConfig(layers=2, patterns=(logsparse(base=2),))
    """

    layers: int = 3
    heads: int = 8
    kernel: int = 9
    patterns: tuple[Pattern, ...] = field(default_factory=lambda: (full(),))
    width: int | None = None
    head_width: Literal["full", "split"] = "full"
    norm: Literal["post", "pre"] = "post"
    embedding: int = 20
    embed_series: bool = True
    unknown_series: float = 0.0
    hidden_history: float = 0.0
    lags: tuple[int, ...] = (1,)
    profiles: tuple[str, ...] = ()
    scale: Literal["one-plus-mean", "mean", "deviation"] = "one-plus-mean"
    see_missing: bool = False
    anchor: bool = False
    lowest: float | None = None
    dropout: float = 0.1
    likelihood: str = "gaussian"

    def __post_init__(self) -> None:
        _settle(self)
        _require(
            "patterns must be one pattern, or one for each layer.",
            len(self.patterns) in (1, self.layers),
            f"{len(self.patterns)} for {self.layers} layers",
        )
        _require_scale(self.likelihood, self.scale)
        split_fits = self.head_width == "full" or (self.width is not None and self.width % self.heads == 0)
        _require(
            "Split heads need a width that is a multiple of heads.",
            split_fits,
            f"width={self.width}, heads={self.heads}",
            "set width, for example 48 with 4 heads.",
        )

    @property
    def layer_patterns(self) -> tuple[Pattern, ...]:
        """Pattern of each layer."""
        return self.patterns * self.layers if len(self.patterns) == 1 else self.patterns


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainConfig(_Settings):
    """Settings of the training; the defaults are those of the paper where it states them.

    Parameters
    ----------
    batch
        Number of windows per step, over all processes.
    windows
        Size of a set of windows that is drawn once and passed over `epochs` times; None: new windows at every step.
    epochs
        Number of passes over the set; with new windows at every step, how many times `steps_per_epoch` steps.
    steps_per_epoch
        Number of steps per epoch when windows are new at every step.
    steps
        Number of steps of the whole training, with which the schedule ends, whatever `epochs` says; None: all epochs.
    validate_every
        Number of steps between two validations, at most an epoch, and at most a sixteenth of `steps` if those are
        given; the weights with the lowest loss are kept.
    weighted
        Whether windows are drawn with probability proportional to their scale.
    loss_on
        Positions in the training loss: all, the horizon, or both with the horizon weighted as much as the history.
    optimiser
        Update rule.
    schedule
        Course of the learning rate.
    lr
        Highest learning rate.
    weight_decay
        Decoupled weight decay of adamw and bertadam; biases and norms are excluded.
    clip
        Gradient norm above which gradients are scaled down.
    average
        Decay of the moving average of the weights, which is then validated and kept; 0: no average.
    patience
        Number of epochs without a lower validation loss before training stops; None: no early stopping.
    validation_windows
        Number of validation windows used, spread evenly over all of them.
    minutes
        Time after which training stops at the next step, so that results depend on the clock; None: no limit.
    seeds
        Number of runs from different seeds; the one with the lowest validation loss is kept.
    validation_steps
        Most steps per series held back for validation: `validation_share` of the series up to this number, at least
        one horizon.
    validation_share
        Share of each series held back for validation.
    refit
        Whether the network is trained once more afterwards, on all data, the part held back included.
    calibrate
        Whether the coverage of the 80 % interval in the part held back is measured, and intervals are widened where
        it is too low.
    precision
        Number type of the matrix products.

    Raises
    ------
    ConfigError
        If a setting has a wrong type or value.

    Examples
    --------
    >>> import logsparse as ls
    >>> ls.TrainConfig(batch=32, lr=3e-4)
    TrainConfig(batch=32, lr=0.0003)
    """

    batch: int = 64
    windows: int | None = None
    epochs: int = 20
    steps_per_epoch: int = 500
    steps: int | None = None
    validate_every: int = 100
    weighted: bool = True
    loss_on: Literal["all", "horizon", "both"] = "all"
    optimiser: Literal["adam", "adamw", "bertadam"] = "adam"
    schedule: Literal["constant", "one-cycle", "warmup-decay"] = "constant"
    lr: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.0
    patience: int | None = 5
    validation_windows: int = 1024
    minutes: float | None = None
    seeds: int = 1
    validation_steps: int | None = None
    validation_share: float = 0.1
    refit: bool = False
    calibrate: Literal["off", "measure", "widen"] = "off"
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        _settle(self)
        _require(
            "windows must be at least one batch.", self.windows is None or self.windows >= self.batch, self.windows
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Config(_Settings):
    """All settings of a run: its windows, network and training.

    Parameters
    ----------
    context
        Number of past steps the network sees.
    horizon
        Number of steps to forecast.
    method
        Way of forecasting: "ancestral" feeds sampled values back, "mean-path" the mean, as the paper's authors did,
        "direct" forecasts all steps at once, "two-way" combines both: the farther the step, the more direct counts.
    features
        Calendar features; None: those that follow from the frequency.
    holidays
        Countries and dates, such as "DE", "DE-BY", "2024-12-25", "12-24" for every year, or "auto"; empty: none.
    blend
        Weight of simple rules per series, beside the network, in the forecast (`logsparse.simple`); 1: no network.
    model
        Settings of the network.
    train
        Settings of the training.

    Raises
    ------
    ConfigError
        If a setting has a wrong type or value.

    Examples
    --------
    >>> import logsparse as ls
    >>> config = ls.Config(context=168, horizon=24, model=ls.ModelConfig(layers=2))
    >>> config
    Config(context=168, horizon=24, model=ModelConfig(layers=2))
    >>> ls.Config.from_dict(config.to_dict()) == config
    True
    """

    context: int
    horizon: int
    method: Method = "ancestral"
    features: tuple[str, ...] | None = None
    holidays: tuple[str, ...] = ()
    blend: float = 0.0
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "holidays", holiday_texts(self.holidays))
        _settle(self)

    @property
    def length(self) -> int:
        """Number of steps of a window."""
        return self.context + self.horizon

    @property
    def masks_future_lags(self) -> bool:
        """True if most training windows hide the values after their forecast start: needed by direct and two-way."""
        return self.method in ("two-way", "direct")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without `steps`, `holidays` and `blend` if unset: older records lack them."""
        model = {**asdict(self.model), "patterns": [pattern.to_dict() for pattern in self.model.patterns]}
        train = {name: value for name, value in asdict(self.train).items() if name != "steps" or value is not None}
        own = {name: value for name, value in asdict(self).items() if name not in ("holidays", "blend") or value}
        return {**own, "model": model, "train": train}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings that `to_dict` wrote; missing ones have their default, unknown ones raise ConfigError."""
        model = dict(settings.get("model", {}))
        if "patterns" in model:
            model["patterns"] = tuple(Pattern.from_dict(pattern) for pattern in model["patterns"])
        train = {RENAMED.get(name, name): value for name, value in settings.get("train", {}).items()}
        made = {"model": _build(ModelConfig, model), "train": _build(TrainConfig, train)}
        return _build(cls, {**settings, **made})


_SINGULAR = {
    Pattern: "a pattern of `logsparse.patterns`",
    ModelConfig: "a ModelConfig",
    TrainConfig: "a TrainConfig",
}


def _require_scale(likelihood: str, scale: str) -> None:
    """Raise ConfigError for a likelihood that is not known, or one that does not allow the scale."""
    if likelihood == ModelConfig.likelihood:  # allows every scale; the others need torch to be imported
        return
    from logsparse.model.likelihood import LIKELIHOODS
    from logsparse.model.likelihood import likelihood as named

    family = named(likelihood)
    allowed = [name for name, other in LIKELIHOODS.items() if scale in other.scales]
    _require(
        f"The scale of likelihood {likelihood!r} must be one of {', '.join(family.scales)}.",
        scale in family.scales,
        f"scale={scale!r}",
        f"set scale={family.scales[-1]!r}, or likelihood={allowed[-1]!r}.",
    )


def _build(kind: type[T], settings: Mapping[str, Any]) -> T:
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name in settings:
        _require(
            f"{kind.__name__} knows {', '.join(known)}.", name in known, name, suggest(name, known, "leave it out.")
        )
    missing = [name for name, f in known.items() if f.default is f.default_factory is MISSING and name not in settings]
    _require(f"{kind.__name__} must be given {' and '.join(missing)}.", not missing, dict(settings))
    return kind(**settings)
