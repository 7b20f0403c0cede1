"""Panel and settings -> Plan of a training. What a network has learned -> plain JSON and arrays, and back, checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from logsparse.config import Config
from logsparse.data.columns import Columns
from logsparse.data.features import Features
from logsparse.data.panel import Panel
from logsparse.data.series_index import SeriesIndex
from logsparse.defaults import check_reach, check_size, seen_values
from logsparse.errors import ConfigError, DataError
from logsparse.model.network import Network
from logsparse.params import Parameters, same
from logsparse.storage import InvalidContentError, entries, require, whole_number
from logsparse.train.batches import Draws, TrainingSet, learned_from
from logsparse.train.checkpoint import check_tensors
from logsparse.train.distributed import Ranks
from logsparse.train.loop import TrainingHistory

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
        known = SeriesIndex.of(panel, learned_from(panel, config) if validation is None else panel.lengths)
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
        network.check(torch.from_numpy(seen_values(panel)))
        return cls(panel, columns, config, known, data, network, made_by, seed)

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


def encode(known: SeriesIndex, panel: Panel) -> Panel:
    """Return the panel in the terms of training: series by number, static categories by code."""
    check_size(panel)
    return known.encode(panel)


class Learned(NamedTuple):
    """Everything that a trained network needs to forecast."""

    config: Config
    known: SeriesIndex
    features: Features
    history: TrainingHistory
    network: Network

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain JSON and arrays that `unpack` reads."""
        facts = {
            "config": self.config.to_dict(),
            "known": self.known.to_dict(),
            "features": self.features.to_dict(),
            "story": asdict(self.history),  # the name that folders have had since 0.1.0
        }
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
        whole_number("learned/config/horizon", config.horizon, horizon, horizon)
        # Every layer has tensors of its own, so more layers than tensors would only waste time below.
        whole_number("learned/config/model/layers", config.model.layers, 1, len(arrays))
        static, names = tuple(known.categories), tuple(panel.static)
        require("learned/known/categories", f"of {names}", static, holds=set(static) <= set(names))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        check_tensors(without_weights(build, config, len(features), known).state_dict(), tensors, "weight")
        network = build(config, len(features), known)
        network.load_state_dict(tensors)
        return cls(config, known, features, history, network)


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
