"""Settings of a run, frozen and checked; plain values in JSON and back. A sentence under a field is its help text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from logsparse.attention.pattern import Pattern, full
from logsparse.errors import ConfigError

T = TypeVar("T")


def _require(rule: str, holds: bool, got: object, hint: str = "see `help(logsparse.config)`.") -> None:
    if not holds:
        raise ConfigError(rule, got=repr(got), hint=hint)


def _require_choices(config: object) -> None:
    """Named choices are among their names, switches True or False: anything else would silently count as another."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            _require(f"{name} must be one of {', '.join(choices)}.", value in choices, value)
        elif kind is bool:
            _require(f"{name} must be True or False.", isinstance(value, bool), value)


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
    see_missing: bool = False
    """Whether the inputs say which lagged values were observed."""
    dropout: float = 0.1
    """Share dropped of attention weights, attention output and feed-forward output in training."""
    likelihood: str = "gaussian"
    """Family of the predicted distribution: gaussian, student-t, negative-binomial, zero-inflated."""

    def __post_init__(self) -> None:
        _require_choices(self)
        for name in ("layers", "heads", "kernel", "embedding"):
            _require(f"{name} must be at least 1.", getattr(self, name) >= 1, getattr(self, name))
        _require(
            "patterns must be one pattern, or one for each layer.",
            len(self.patterns) in (1, self.layers),
            f"{len(self.patterns)} for {self.layers} layers",
        )
        _require("dropout must be at least 0 and below 1.", 0 <= self.dropout < 1, self.dropout)
        _require("unknown_series must be between 0 and 1.", 0 <= self.unknown_series <= 1, self.unknown_series)
        _require(
            "lags must be whole numbers of steps, 1 first.", self.lags[:1] == (1,) and min(self.lags) >= 1, self.lags
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
    """Steps between two looks at the validation windows when draws are fresh."""
    weighted: bool = True
    """Whether windows are drawn with probability proportional to their scale."""
    loss_on: Literal["all", "horizon"] = "all"
    """Positions that count in the training loss."""
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
    """Looks at validation without a better one before training stops; none: never."""
    validation_windows: int = 1024
    """Validation windows looked at, spread evenly over all there are."""
    minutes: float | None = None
    """Time after which training stops at the next step; none: no limit."""
    seeds: int = 1
    """Runs from different seeds; the one with the lowest validation loss is kept."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number type of the matrix products."""

    def __post_init__(self) -> None:
        _require_choices(self)
        for name in ("batch", "epochs", "steps_per_epoch", "validation_windows", "seeds"):
            _require(f"{name} must be at least 1.", getattr(self, name) >= 1, getattr(self, name))
        _require(
            "windows must be at least one batch.", self.windows is None or self.windows >= self.batch, self.windows
        )
        _require("lr must be above 0.", self.lr > 0, self.lr)
        _require("average must be at least 0 and below 1.", 0 <= self.average < 1, self.average)
        _require("minutes must be above 0.", self.minutes is None or self.minutes > 0, self.minutes)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One run: what a window is, the network, the training."""

    context: int
    """Steps of history the model sees."""
    horizon: int
    """Steps to forecast."""
    method: Literal["ancestral", "mean-path"] = "ancestral"
    """What a sample path is fed with: its own samples, or the mean, as the authors did."""
    features: tuple[str, ...] | None = None
    """Calendar features; none: those that follow from the frequency."""
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        _require_choices(self)
        for name in ("context", "horizon"):
            _require(f"{name} must be at least 1.", getattr(self, name) >= 1, getattr(self, name))

    @property
    def length(self) -> int:
        """Steps of a window."""
        return self.context + self.horizon

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        model = {**asdict(self.model), "patterns": [pattern.to_dict() for pattern in self.model.patterns]}
        return {**asdict(self), "model": model}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """What `to_dict` gave; an unknown setting is an error."""
        model = dict(settings["model"])
        model["patterns"] = tuple(Pattern.from_dict(pattern) for pattern in model["patterns"])
        made = {"model": _build(ModelConfig, model), "train": _build(TrainConfig, settings["train"])}
        return _build(cls, {**settings, **made})


def _build(kind: type[T], settings: Mapping[str, Any]) -> T:
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(settings) - known)
    _require(f"{kind.__name__} knows {', '.join(sorted(known))}.", not unknown, ", ".join(unknown))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()})
