"""Parameters of a forecaster that trains a network, and a panel -> Plan of a training; what is learned <-> JSON.

Parameters are checked when they are given. What a network has learned is checked again when it is read from a folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from logsparse.attention.pattern import Pattern
from logsparse.calibration import Calibration
from logsparse.config import Config, Method, TrainConfig
from logsparse.data.columns import Columns
from logsparse.data.features import Features
from logsparse.data.panel import Panel
from logsparse.data.sampler import Pairs
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import a_config, check_agrees, check_reach, check_size, count_values, seen_values
from logsparse.errors import ConfigError, DataError, NotFittedError, above_zero, truth, whole
from logsparse.forecast import Forecaster
from logsparse.model.network import Network
from logsparse.params import Parameters, same
from logsparse.settings import SETTINGS, Settings, apply, check_setting
from logsparse.storage import InvalidContentError, entries, require, whole_number
from logsparse.train.batches import Draws, TrainingSet, learned_from, profiles_of
from logsparse.train.checkpoint import check_tensors
from logsparse.train.distributed import Ranks, device_named
from logsparse.train.loop import Training, TrainingHistory

if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

# Largest seed: torch's generators take 64 bits, and several seeds may follow one another.
_SEEDS = 2**62
_MOST_PATHS = _LONGEST_CONTEXT = 100_000
_MOST_STEPS = 10**9
# Minutes that a second training gets if the first took all of them: its first step is its last.
_MOMENT = 1e-6


class Configured(Forecaster):
    """A forecaster with a `Config`, parts of which may be given by name; `LogSparse` describes its parameters."""

    _further: ClassVar[Mapping[str, Any]] = {"device": "auto", "verbose": True}
    _optional = SETTINGS
    changeable = ("seed", "device", "minutes", "samples", "method", "verbose")
    device: str
    verbose: bool
    config_: Config

    def __init__(
        self,
        horizon: int,
        *,
        context: int | None = None,
        config: Config | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        samples: int | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(horizon)
        self.context, self.config, self.seed, self.samples = context, config, seed, samples
        self.steps, self.minutes = steps, minutes
        for name, value in {**self._further, **settings}.items():
            self._check_name(name)
            if name in SETTINGS:
                check_setting(name, value)
            vars(self)[name] = value  # `method` is a property, which asks for this one before `fit`

    def check(self) -> None:
        super().check()
        if self.samples is not None:
            hint = "leave it out for as many as accurate quantiles need."
            self.samples = whole("samples", self.samples, most=_MOST_PATHS, hint=hint)
        self.seed = whole("seed", self.seed, least=0, most=_SEEDS, hint="any small whole number will do.")
        if self.context is not None:
            hint = "count the steps of history the model sees."
            self.context = whole("context", self.context, most=_LONGEST_CONTEXT, hint=hint)
        if self.minutes is not None:
            self.minutes = above_zero("minutes", self.minutes, hint="leave it out for no limit.")
        if self.steps is not None:
            hint = "leave it out for as many as the settings say."
            self.steps = whole("steps", self.steps, most=_MOST_STEPS, hint=hint)
        vars(self).update(self._changes())
        self.verbose = truth("verbose", self.verbose)
        device = device_named(self.device)
        self.device = "auto" if self.device == "auto" else str(device)
        if self.config is not None:
            check_agrees(self.config, horizon=self.horizon, context=self.context)
            apply(self.config, self._changes())

    def _changes(self) -> dict[str, Any]:
        """Return the single settings that were given, checked."""
        return {name: check_setting(name, vars(self)[name]) for name in SETTINGS if name in vars(self)}

    def _configured(self, base: Config) -> Config:
        """Return the settings of a training: those of `base`, and those that were given by name in their place."""
        limits = {"steps": self.steps, "minutes": self.minutes}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return apply(base, {**self._changes(), **given})

    def settings(self) -> dict[str, Any]:
        """Return the parameters as plain JSON."""
        changes = self._changes()
        if "patterns" in changes:
            changes["patterns"] = [pattern.to_dict() for pattern in changes["patterns"]]
        config = None if self.config is None else a_config(self.config).to_dict()
        # A round trip through JSON turns tuples into lists, as they are read back from a folder.
        return {**super().settings(), **json.loads(json.dumps({**changes, "config": config}))}

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the constructor that `settings` was made from."""
        config = None if written["config"] is None else Config.from_dict(written["config"])
        patterns = [Pattern.from_dict(pattern) for pattern in written.get("patterns", ())]
        return {**written, "config": config, **({"patterns": tuple(patterns)} if patterns else {})}

    # Not `-> Method`: jedi completes nothing on an object with a property whose type is a Literal.
    @property
    def method(self) -> str:
        """Way of forecasting, from `config_`; may be set to another one that the same training serves."""
        if hasattr(self, "config_"):
            return self.config_.method
        if "method" not in vars(self):
            raise NotFittedError(self)
        return str(vars(self)["method"])

    @method.setter
    def method(self, method: Method) -> None:
        if not hasattr(self, "config_"):
            vars(self)["method"] = method
            return
        changed = replace(self.config_, method=method)
        trained = "two-way and direct" if self.config_.masks_future_lags else "ancestral and mean-path"
        if changed.masks_future_lags != self.config_.masks_future_lags:
            raise ConfigError(
                "A network forecasts as it was trained to: by two-way or direct, or by ancestral or mean-path.",
                got=f"{method} of a network trained for {trained}",
                hint=f"fit it with method={method!r} in its config.",
            )
        self.config_ = changed
        if "method" in vars(self):
            vars(self)["method"] = method

    @classmethod
    def restored(cls, written: ModelFolder, *, method: Method | None = None, **changed: Any) -> Self:
        """Return the forecaster that was saved, with some of its `changeable` parameters, or its method, changed."""
        self = super().restored(written, **changed)
        if method is not None:
            self.method = method
        return self


Build = Callable[[Config, int, SeriesIndex], Network]
"""Settings, number of features, known series -> a network with arbitrary weights."""


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """Prepared data and settings of a training: `LogSparse.plan` returns it, `LogSparse.fit` takes it."""

    panel: Panel
    columns: Columns
    config: Config
    known: SeriesIndex
    data: TrainingSet
    network: Network
    """The network without weights."""
    made_by: Parameters
    """An unfitted forecaster with the settings of the plan."""
    seed: int
    values: int
    """Number of observed values."""

    @classmethod
    def of(
        cls,
        panel: Panel,
        validation: Panel | None,
        columns: Columns,
        config: Config,
        build: Build,
        *,
        made_by: Parameters,
        seed: int,
    ) -> Plan:
        """Prepare a training on `panel`; without `validation`, the last part of each series serves for it."""
        partly = validation is None and not config.train.refit
        known = SeriesIndex.of(panel, learned_from(panel, config) if partly else panel.lengths)
        encoded = encode(known, panel)
        if validation is None:
            data = TrainingSet.of(encoded, config)
        else:
            if validation.freq != panel.freq:
                raise DataError(
                    "Validation data must have the step of the training data.",
                    got=f"steps of {validation.freq} and of {panel.freq}",
                    hint="resample them, or leave validation= out.",
                )
            data = TrainingSet.of_two(encoded, encode(known, validation), config)
        check_reach(config, panel)
        network = without_weights(build, config, len(data.features), known)
        admit(network, panel)
        return cls(panel, columns, config, known, data, network, made_by, seed, count_values(panel))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the calendar features."""
        return self.data.features.names

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.network.parameters())

    @property
    def steps(self) -> int:
        """Number of training steps, if nothing stops the training before."""
        return Draws(self.data, self.config.train, seed=self.seed, ranks=Ranks()).steps

    def __repr__(self) -> str:
        return f"Plan({self.made_by!r}, {self.panel!r}, {self.parameters:_} parameters)"

    def check(self, forecaster: Parameters, given: Mapping[str, object]) -> None:
        """Raise ConfigError if the forecaster has other settings, or if something that the plan holds is given."""
        if extra := [name for name, value in given.items() if value is not None]:
            raise ConfigError(
                "A plan holds its data already: only a folder may be given with it.",
                got=f"a plan and {', '.join(extra)}",
                hint="pass them to plan() instead.",
            )
        ours, theirs = self.made_by.get_params(), forecaster.get_params()
        if type(forecaster) is not type(self.made_by) or not all(same(ours[name], theirs[name]) for name in ours):
            raise ConfigError(
                "A plan must be fitted with the settings it was made with.",
                got=f"{forecaster!r} for a plan of {self.made_by!r}",
                hint="call plan() again.",
            )


def check_horizon(horizon: int, config: Config) -> None:
    """Raise ConfigError if a fitted network is asked for another horizon, which `set_params` can bring about."""
    if horizon != config.horizon:
        raise ConfigError(
            "A fitted network forecasts the horizon it was trained for.",
            got=f"horizon={horizon} for a network trained for {config.horizon}",
            hint=f"fit again, or set the horizon back to {config.horizon}.",
        )


def admit(network: Network, panel: Panel) -> None:
    """Raise DataError for values that the network cannot have as targets."""
    for values in seen_values(panel):
        network.check(torch.from_numpy(values))


def encode(known: SeriesIndex, panel: Panel) -> Panel:
    """Return the panel in the terms of training: series by number, static categories by code."""
    check_size(panel)
    return known.encode(panel)


def together(known: SeriesIndex, histories: Sequence[Panel]) -> tuple[Panel, Pairs]:
    """Return one panel with the series of all histories, and the window after the end of each of them."""
    first = histories[0]
    lengths_W = np.concatenate([panel.lengths for panel in histories])
    if all(panel.values is first.values for panel in histories):
        every = replace(first, lengths=np.max([panel.lengths for panel in histories], axis=0))
        return every, Pairs(np.tile(np.arange(len(first)), len(histories)), lengths_W)
    # Words become those of training, which all histories share.
    worded = known.categories or known.words
    every = Panel.joined([encode(known, panel) for panel in histories] if worded else histories)
    return every, Pairs(np.arange(len(every)), lengths_W)


class Learned(NamedTuple):
    """Everything that a trained network needs to forecast."""

    config: Config
    known: SeriesIndex
    features: Features
    history: TrainingHistory
    network: Network
    calibration: Calibration | None

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain JSON and arrays that `unpack` reads."""
        facts = {
            "config": self.config.to_dict(),
            "known": self.known.to_dict(),
            "features": self.features.to_dict(),
            "story": asdict(self.history),  # the name that folders have had since 0.1.0
        }
        if self.calibration is not None:
            facts["calibration"] = asdict(self.calibration)
        # A round trip through JSON turns tuples into lists, as `unpack` gets them.
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain, {name: tensor.cpu().numpy() for name, tensor in self.network.state_dict().items()}

    @classmethod
    def unpack(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], panel: Panel, horizon: int, build: Build
    ) -> Learned:
        """Return what `pack` was given; raise InvalidContentError if a part is wrong or parts do not fit together.

        Memory stays bounded by the size of the files: shapes are compared before the network is built.
        """
        entries("learned", facts, "config", "known", "features", "story")
        try:
            config = Config.from_dict(entries("learned/config", facts["config"]))
        except ConfigError as error:  # the folder is wrong, not the caller
            raise InvalidContentError("learned/config", str(error), facts["config"]) from error
        known, features = SeriesIndex.from_dict(facts["known"]), Features.from_dict(facts["features"])
        history = TrainingHistory.from_dict(facts["story"])
        features.check(panel.freq)
        alike = any(profile.alike for profile in profiles_of(config))
        require("learned/features/holidays", "given, for days alike", None, holds=not alike or bool(features.holidays))
        whole_number("learned/config/horizon", config.horizon, horizon, horizon)
        # Every layer has tensors of its own, so more layers than tensors would only waste time below.
        whole_number("learned/config/model/layers", config.model.layers, 1, len(arrays))
        static, names = tuple(known.categories), tuple(panel.static)
        require("learned/known/categories", f"of {names}", static, holds=set(static) <= set(names))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        check_tensors(without_weights(build, config, len(features), known).state_dict(), tensors, "weight")
        network = build(config, len(features), known)
        network.load_state_dict(tensors)
        measured = facts.get("calibration")
        calibration = None if measured is None else Calibration.from_dict(measured, horizon)
        return cls(config, known, features, history, network, calibration)


def refit_settings(first: Training) -> TrainConfig:
    """Return the settings of a second training on all data: the steps that were best for the first, in the time left.

    A quarter of the steps at least: few windows tell little about the best number.
    """
    train, history = first.train, first.history
    best = min(history.rows, key=lambda row: row["validation_nll"])["step"]
    left = None if train.minutes is None else max(train.minutes - history.seconds / 60, _MOMENT)
    return replace(train, steps=max(int(best), first.steps // 4, 1), minutes=left)


def without_weights(build: Build, config: Config, features: int, known: SeriesIndex) -> Network:
    """Build the network on the meta device: shapes only, no memory for weights."""
    with torch.device("meta"), _NoInitialisation():
        return build(config, features, known)


class _NoInitialisation(TorchFunctionMode):
    """Skip `nn.init`: on the meta device it imports torch's compiler, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
