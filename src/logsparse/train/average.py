"""Weights of every step -> their exponential moving average, which is what gets validated and kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from logsparse.errors import ConfigError, DataError
from logsparse.train.optim import State

_TENTH = 10


class WeightAverage:
    """After one update it is the weights themselves; early on it reaches back over a tenth of the steps only.

    So the start has no part in it, and weights of a short run are not those of its beginning.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(
                "The decay of a weight average must be at least 0 and below 1.",
                got=f"{decay:g}",
                hint="use 0.999, or less for runs under 1000 steps.",
            )
        self.decay, self.updates = decay, 0
        self._weights = dict(model.named_parameters())
        self.average = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        share = max(1 - self.decay, _TENTH / (self.updates + _TENTH - 1))
        torch._foreach_lerp_(list(self.average.values()), list(self._weights.values()), share)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again, bit for bit."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, weight in self._weights.items():
            own = weight.clone()
            weight.copy_(self.average[name])
            self.average[name].copy_(own)

    def state(self) -> State:
        copies = {name: tensor.clone() for name, tensor in self.average.items()}
        return copies, {"decay": self.decay, "updates": self.updates}

    @torch.no_grad()
    def restore(self, state: State) -> None:
        tensors, values = state
        mine = {name: tensor.shape for name, tensor in self.average.items()}
        if mine != {name: tensor.shape for name, tensor in tensors.items()}:
            raise DataError(
                "A saved weight average must have the weights of this model.",
                got="other names or shapes",
                hint="resume with the settings the run was started with.",
            )
        self.decay, self.updates = values["decay"], values["updates"]
        for name, tensor in tensors.items():
            self.average[name].copy_(tensor)
