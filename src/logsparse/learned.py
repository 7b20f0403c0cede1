"""What a network learned, as JSON and arrays of a saved model -> its parts and the network itself, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from logsparse.config import Config
from logsparse.data.features import Features
from logsparse.data.known import Known
from logsparse.data.panel import Panel
from logsparse.errors import ConfigError
from logsparse.facts import UnfitError, entries, require, whole_number
from logsparse.model.network import Network
from logsparse.train.loop import Story
from logsparse.train.sealed import check_tensors


class Learned(NamedTuple):
    config: Config
    known: Known
    features: Features
    story: Story
    network: Network


def learned(
    facts: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    panel: Panel,
    horizon: int,
    make: Callable[[Config, int, Known], Network],
) -> Learned:
    """All of it checked, each part and all together, before the network is built: it is never larger than its file."""
    entries("learned", facts, "config", "known", "features", "story")
    try:
        config = Config.from_dict(entries("learned/config", facts["config"]))
    except ConfigError as error:  # nobody's mistake in a call: the folder is not what was saved
        raise UnfitError("learned/config", str(error), facts["config"]) from error
    known, features = Known.from_dict(facts["known"]), Features.from_dict(facts["features"])
    story = Story.from_dict(facts["story"])
    features.check(panel.freq)
    whole_number("learned/config/horizon", config.horizon, horizon, horizon)
    # Every layer has tensors of its own: with more layers than tensors it would take long to find out what is missing.
    whole_number("learned/config/model/layers", config.model.layers, 1, len(arrays))
    static, names = tuple(known.categories), tuple(panel.static)
    require("learned/known/categories", f"of {names}", static, holds=set(static) <= set(names))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.device("meta"), _WithoutValues():
        needed = make(config, len(features), known).state_dict()
    check_tensors(needed, tensors, "weight")
    network = make(config, len(features), known)
    network.load_state_dict(tensors)
    return Learned(config, known, features, story, network)


class _WithoutValues(TorchFunctionMode):
    """Fresh weights stay as they are: on the meta device drawing them imports torch's compiler, seconds for nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
