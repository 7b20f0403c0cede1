"""Batch -> raw parameters of the likelihood at every position: DeepAR's network, an LSTM over the same inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.decode import Stepwise
from logsparse.model.feedforward import drop

# B windows, N sample paths, L positions, T positions read, W hidden size, I inputs, P parameters of the likelihood

# Hidden and cell state of each layer, (1, B * N, W) each.
States = list[tuple[Tensor, Tensor]]


class Recurrent(Stepwise[States]):
    """`layers` of `width` cells; the state takes the place of position and context."""

    has_positions = False

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        self.width = config.width or 40
        self.layers = lstm_layers(self.input_width, self.width, config.layers)
        self.make_head(self.width)

    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """(B, L, P). Dropout between the layers is active when a generator is given, and only then."""
        raw_BLP, _ = self._read(self.inputs(batch, generator), None, batch.starts_B, generator)
        return raw_BLP

    def begin(
        self, inputs_BTI: Tensor, *, paths: int, steps: int, starts_B: Tensor | None = None
    ) -> tuple[Tensor, States]:
        """(B, P) of the last position, and the states that every path goes on from."""
        del steps  # an LSTM remembers as much after any number of them
        raw_BTP, states = self._read(inputs_BTI, None, starts_B, None)
        copies = [(h.repeat_interleave(paths, 1), c.repeat_interleave(paths, 1)) for h, c in states]
        return raw_BTP[:, -1], copies

    def advance(self, inputs_BNI: Tensor, memory: States) -> Tensor:
        """(B, N, P) of the next position of every path."""
        raw, memory[:] = self._read(inputs_BNI.flatten(0, 1)[:, None], memory, None, None)
        return raw.view(*inputs_BNI.shape[:2], -1)

    @property
    def memory_width(self) -> int:
        """The states do not grow with the steps; counted as if each step kept one number of each cell."""
        return len(self.layers) * self.width

    def initialise(self, generator: Generator) -> None:
        """As every LSTM here."""
        initialise_lstm(self, self.width, generator)

    def _read(
        self, x_BTI: Tensor, states: States | None, starts_B: Tensor | None, generator: Generator | None
    ) -> tuple[Tensor, States]:
        x_BTW, found = read_layers(self.layers, x_BTI, states, self.config.dropout, generator, starts_B)
        return self.head(x_BTW, x_BTI), found


def lstm_layers(inputs: int, width: int, layers: int) -> nn.ModuleList:
    """One module a layer: the dropout between them takes its draws from our generator."""
    sizes = [inputs, *[width] * (layers - 1)]
    return nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in sizes)


def read_layers(
    layers: nn.ModuleList,
    x_BTI: Tensor,
    states: States | None,
    dropout: float,
    generator: Generator | None,
    starts_B: Tensor | None = None,
) -> tuple[Tensor, States]:
    """(B, T, W) of the last layer, and the states after the last position; without states, from the start.

    With `starts_B`, each row begins there with a fresh state, and its padding gives 0.
    """
    found: States = []
    # Rows that begin at different positions are moved to begin at 0, which is how torch packs them.
    x_BTI = x_BTI if starts_B is None else _move(x_BTI, starts_B)
    for number, layer in enumerate(layers):
        x_BTI = drop(x_BTI, dropout, generator) if number else x_BTI
        if starts_B is None:
            x_BTI, state = layer(x_BTI, states[number] if states else None)
        else:
            lengths_B = (x_BTI.shape[1] - starts_B).cpu()
            packed, state = layer(pack_padded_sequence(x_BTI, lengths_B, batch_first=True, enforce_sorted=False))
            x_BTI, _ = pad_packed_sequence(packed, batch_first=True, total_length=x_BTI.shape[1])
        found.append(state)
    return x_BTI if starts_B is None else _move(x_BTI, -starts_B), found


def _move(x_BTI: Tensor, steps_B: Tensor) -> Tensor:
    """Each row so many steps to the left; what leaves it comes back at the other end."""
    place_BT = (torch.arange(x_BTI.shape[1], device=x_BTI.device) + steps_B[:, None]) % x_BTI.shape[1]
    return x_BTI.gather(1, place_BT.unsqueeze(-1).expand(-1, -1, x_BTI.shape[2]))


@torch.no_grad()
def initialise_lstm(network: nn.Module, width: int, generator: Generator) -> None:
    """Weights uniform within the root of the hidden size; embeddings N(0, .02); gates remember at first."""
    bound = width**-0.5
    for name, weight in network.named_parameters():
        if name.startswith(("series", "static")):
            weight.normal_(0, 0.02, generator=generator)
        elif "bias_hh" in name or name == "output.bias":
            weight.zero_()
        elif "bias_ih" in name:
            weight.zero_()[width : 2 * width] = 1
        else:
            weight.uniform_(-bound, bound, generator=generator)
