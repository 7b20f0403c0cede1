"""Batch -> raw parameters of the likelihood at every position: DeepAR's network, an LSTM over the same inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.block import drop
from logsparse.model.decode import Decoder

# Shapes: B windows, N sample paths, L positions, T positions read, W hidden size, I inputs, P parameters.

# Hidden and cell state of each layer, (1, B * N, W) each.
States = list[tuple[Tensor, Tensor]]


class Recurrent(Decoder[States]):
    """`config.layers` LSTM layers of `config.width` cells, 40 by default; no position embedding."""

    has_positions = False
    windows_alike = 16

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        self.width = config.width or 40
        self.layers = lstm_layers(self.input_width, self.width, config.layers)
        self.make_head(self.width)

    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """Return (B, L, P). Dropout between the layers is active if and only if a generator is given."""
        raw_BLP, _ = self._read(self.inputs(batch), None, batch.starts_B, generator)
        return raw_BLP

    def begin(
        self, inputs_BTI: Tensor, *, paths: int, steps: int, starts_B: Tensor | None = None
    ) -> tuple[Tensor, States]:
        """Return (B, P) of the last position, and the states that every path continues from."""
        del steps  # the states do not grow
        raw_BTP, states = self._read(inputs_BTI, None, starts_B, None)
        copies = [(h.repeat_interleave(paths, 1), c.repeat_interleave(paths, 1)) for h, c in states]
        return raw_BTP[:, -1], copies

    def advance(self, inputs_BNI: Tensor, memory: States) -> Tensor:
        """Return (B, N, P) of the next position of every path."""
        raw, memory[:] = self._read(inputs_BNI.flatten(0, 1)[:, None], memory, None, None)
        return raw.view(*inputs_BNI.shape[:2], -1)

    @property
    def memory_width(self) -> int:
        """Numbers stored per position; an upper bound, since the states do not grow with the steps."""
        return len(self.layers) * self.width

    def initialise(self, generator: Generator) -> None:
        """Set fresh random weights; see `initialise_lstm`."""
        initialise_lstm(self, self.width, generator)

    def _read(
        self, x_BTI: Tensor, states: States | None, starts_B: Tensor | None, generator: Generator | None
    ) -> tuple[Tensor, States]:
        x_BTW, after = read_layers(self.layers, x_BTI, states, self.config.dropout, generator, starts_B)
        return self.head(x_BTW, x_BTI), after


def lstm_layers(inputs: int, width: int, layers: int) -> nn.ModuleList:
    """Return one module per layer, so that dropout between them can use our own generator."""
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
    """Return (B, T, W) of the last layer and the states after the last position.

    Without `states`, or with `starts_B`, the initial states are zero. Positions before `starts_B` are padding, and 0 in
    the result.
    """
    after: States = []
    # torch packs rows that begin at 0, so padding is moved to the end.
    x_BTI = x_BTI if starts_B is None else _move(x_BTI, starts_B)
    for number, layer in enumerate(layers):
        x_BTI = drop(x_BTI, dropout, generator) if number else x_BTI
        if starts_B is None:
            x_BTI, state = layer(x_BTI, states[number] if states else None)
        else:
            lengths_B = (x_BTI.shape[1] - starts_B).cpu()
            packed, state = layer(pack_padded_sequence(x_BTI, lengths_B, batch_first=True, enforce_sorted=False))
            x_BTI, _ = pad_packed_sequence(packed, batch_first=True, total_length=x_BTI.shape[1])
        after.append(state)
    return x_BTI if starts_B is None else _move(x_BTI, -starts_B), after


def _move(x_BTI: Tensor, steps_B: Tensor) -> Tensor:
    """Rotate each row to the left by its number of steps."""
    place_BT = (torch.arange(x_BTI.shape[1], device=x_BTI.device) + steps_B[:, None]) % x_BTI.shape[1]
    return x_BTI.gather(1, place_BT.unsqueeze(-1).expand(-1, -1, x_BTI.shape[2]))


@torch.no_grad()
def initialise_lstm(network: nn.Module, width: int, generator: Generator) -> None:
    """Set weights uniform within 1 / sqrt(width), embeddings N(0, 0.02), LSTM biases 1 at forget gates, else 0."""
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
