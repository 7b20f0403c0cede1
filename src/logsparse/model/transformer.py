"""Batch -> raw parameters of the likelihood at every position: the paper's decoder-only Transformer.

The paper's residual stream is the concatenation of lagged value, covariates and (position + series) embedding, without
a projection, and its blocks are post-norm. The default projects the inputs to a width and uses pre-norm blocks.
`forward` reads whole windows; `begin` reads the history once, `advance` then one position of every path. Where the C++
kernel serves, `begin` returns a `TiledMemory` and `advance` calls model/block.py; else both compute in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812

from logsparse.attention.attend import StepCache, attend, attend_last, attend_step
from logsparse.attention.layer import ConvAttention, side_by_side
from logsparse.attention.plain import without_padding
from logsparse.config import ModelConfig
from logsparse.data.windows import Batch
from logsparse.model.block import (
    BlockParts,
    Ends,
    History,
    Kept,
    TiledMemory,
    Weights,
    advance,
    dropout_mask,
    feed_forward,
    kernel_serves,
    remember,
)
from logsparse.model.decode import Decoder
from logsparse.model.network import linear

# Shapes: B windows, N sample paths, L positions, T positions of the history, S steps after it, J = kernel - 1,
# I inputs, E embedding, W width of the stream, H heads, D channels of a head, C channels of all heads, P parameters.


@dataclass
class BlockMemory:
    """Keys and values of history and steps, and the inputs that the convolution reads."""

    cache: StepCache
    seen_BNSW: Tensor
    """The last J inputs of the history, then those of the steps."""

    @staticmethod
    def start(history: History, starts_B: Tensor | None, *, paths: int, steps: int) -> BlockMemory:
        """Return a memory with room for `steps` steps of each of `paths` paths per window."""
        size, tail, width = history.tail_BJW.shape
        seen_BNSW = history.tail_BJW.new_empty(size, paths, tail + steps, width)
        seen_BNSW[:, :, :tail] = history.tail_BJW[:, None]
        cache = StepCache.start(history.k_BHTD, history.v_BHTD, paths=paths, steps=steps, starts=starts_B)
        return BlockMemory(cache, seen_BNSW)


Memory = TiledMemory | list[BlockMemory]


class Transformer(Decoder[Memory]):
    """Decoder-only and causal: position l sees values before l only."""

    def __init__(
        self, config: ModelConfig, *, length: int, features: int, series: int, static: Sequence[int] = ()
    ) -> None:
        super().__init__(config, length=length, features=features, series=series, static=static)
        width = config.width or self.input_width
        self.project = nn.Linear(self.input_width, width) if config.width else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, width, layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        self.make_head(width)

    def forward(self, batch: Batch, generator: Generator | None = None) -> Tensor:
        """Return (B, L, P). Dropout is active if and only if a generator is given."""
        starts_B = batch.starts_B
        x_BLW, inputs_BLI = self._read(batch, starts_B)
        for block in self.blocks:
            x_BLW = block(x_BLW, starts_B, generator)
        return self.head(self.norm(x_BLW), inputs_BLI)

    def _read(self, batch: Batch, starts_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the stream before the first block, and the inputs that the output layer needs."""
        if not isinstance(self.project, nn.Linear) or starts_B is not None:
            inputs_BLI = self.inputs(batch)
            return self._project(inputs_BLI), inputs_BLI
        # Only embeddings need gradients: projected apart from the data, and mostly shared by all windows, they are
        # cheap.
        data_BLI, embedded_BLE = self.data_inputs(batch), self.embeddings(batch)
        of_data, of_embedded = self.project.weight.tensor_split([data_BLI.shape[-1]], dim=1)
        return linear(data_BLI, of_data, self.project.bias) + linear(embedded_BLE, of_embedded), data_BLI

    def begin(
        self, inputs_BTI: Tensor, *, paths: int, steps: int, starts_B: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return (B, P) of the last position of the history, and the memory of every block."""
        x_BTW, histories, blocks = self._project(inputs_BTI), [], self._blocks()
        for block in blocks:
            x_BTW, history = block.begin(x_BTW, starts_B, last_only=block is blocks[-1])
            histories.append(history)
        raw_BP = self.head(self.norm(x_BTW[:, -1]), inputs_BTI[:, -1])
        if kernel_serves(inputs_BTI, self):
            ends = Ends(
                self.project, self.norm, self.output, self.mix, self.observed_from if self.config.see_missing else -1
            )
            parts, inputs = [block.parts for block in blocks], inputs_BTI.shape[-1]
            return raw_BP, remember(histories, parts, ends, inputs=inputs, paths=paths, steps=steps, starts_B=starts_B)
        return raw_BP, [BlockMemory.start(history, starts_B, paths=paths, steps=steps) for history in histories]

    def advance(self, inputs_BNI: Tensor, memory: Memory) -> Tensor:
        """Return (B, N, P) of the next position of every path."""
        if isinstance(memory, TiledMemory):
            return advance(inputs_BNI, memory)
        x_BNW = self.project(inputs_BNI)
        for block, block_memory in zip(self._blocks(), memory, strict=True):
            x_BNW = block.advance(x_BNW, block_memory)
        return self.head(self.norm(x_BNW), inputs_BNI)

    def _project(self, inputs_BLI: Tensor) -> Tensor:
        layer = self.project
        return linear(inputs_BLI, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else inputs_BLI

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def queries_keys(self, batch: Batch, layer: int) -> tuple[Tensor, Tensor]:
        """Return queries and keys of one block over whole windows, (B, H, L, D) each."""
        x_BLW, starts_B = self.project(self.inputs(batch)), batch.starts_B
        for block in self.blocks[:layer]:
            x_BLW = block(x_BLW, starts_B)
        block = self.blocks[layer]
        assert isinstance(block, Block)
        q_BHLD, k_BHLD, _ = block.project(x_BLW, starts_B)
        return q_BHLD, k_BHLD

    @property
    def memory_width(self) -> int:
        """Numbers stored per position: keys, values and inputs of every block."""
        attention = [block.attention for block in self.blocks if isinstance(block, Block)]
        return sum(2 * part.heads * part.head_width + part.width for part in attention)

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        """Set weights as the authors did: queries, keys and output N(0, 0.01), others N(0, 0.02), biases 0, norms 1."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
            elif "norm" in name:
                weight.fill_(1)
            else:
                narrow = "query_key" in name or name.startswith(("output", "mix"))
                weight.normal_(0, 0.01 if narrow else 0.02, generator=generator)
        if isinstance(self.project, nn.Linear):
            # Keeps the variance of the inputs; the paper has no projection.
            self.project.weight.normal_(0, self.project.in_features**-0.5, generator=generator)


class Block(nn.Module):
    """Attention, then a feed-forward network of two layers, each with a residual connection and a norm."""

    def __init__(self, config: ModelConfig, width: int, layer: int) -> None:
        super().__init__()
        self.dropout, self.pre = config.dropout, config.norm == "pre"
        self.attention = ConvAttention(
            width,
            heads=config.heads,
            head_width=width if config.head_width == "full" else width // config.heads,
            kernel=config.kernel,
            pattern=config.layer_patterns[layer],
            dropout=config.dropout,
        )
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x_BLW: Tensor, starts_B: Tensor | None = None, generator: Generator | None = None) -> Tensor:
        """Map (B, L, W) to (B, L, W)."""
        norm = self.attention_norm if self.pre else None
        gathered_BLC = self.attention.gather(x_BLW, generator=generator, starts=starts_B, norm=norm)
        if generator is None or self.dropout == 0:
            return self._after(x_BLW, gathered_BLC)
        # Channel-first, like the result of the heads.
        merged_BLW = torch.empty_like(x_BLW.mT, memory_format=torch.contiguous_format).mT
        kept_merged, kept_fed = (dropout_mask(x, self.dropout, generator) for x in (merged_BLW, x_BLW))
        return self._after(x_BLW, gathered_BLC, (kept_merged, kept_fed))

    def project(self, x_BLW: Tensor, starts_B: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, (B, H, L, D) each."""
        return self.attention.project(x_BLW, starts=starts_B, norm=self.attention_norm if self.pre else None)

    def begin(self, x_BTW: Tensor, starts_B: Tensor | None, *, last_only: bool) -> tuple[Tensor, History]:
        """Map (B, T, W) to (B, T, W), or to (B, 1, W) with `last_only`; also return what `advance` needs."""
        read_BTW = without_padding(self._before(x_BTW), starts_B)
        q, k, v = self.attention.project(read_BTW)
        tail = self.attention.kernel - 1
        tail_BJW = F.pad(read_BTW, (0, 0, tail, 0))[:, read_BTW.shape[1] :]
        pattern = self.attention.pattern
        attended = attend_last(q, k, v, pattern, starts_B) if last_only else attend(q, k, v, pattern, starts=starts_B)
        return self._after(x_BTW[:, -attended.shape[2] :], side_by_side(attended)), History(k, v, tail_BJW)

    def advance(self, x_BNW: Tensor, memory: BlockMemory) -> Tensor:
        """Map (B, N, W) to (B, N, W): one more position of every path."""
        attention, cache, step = self.attention, memory.cache, memory.cache.taken
        memory.seen_BNSW[:, :, attention.kernel - 1 + step] = self._before(x_BNW)
        q, k, v = attention.project_step(memory.seen_BNSW[:, :, step : step + attention.kernel])
        cache.append(k, v)
        attended = attend_step(q, cache, attention.pattern, cache.length - 1)
        return self._after(x_BNW, attended.flatten(2))

    @property
    def parts(self) -> BlockParts:
        """The layers, for the C++ kernel."""
        return BlockParts(self.attention, self.widen, self.narrow, self.attention_norm, self.feedforward_norm)

    def _before(self, x: Tensor) -> Tensor:
        """Return the input of the attention."""
        normed: Tensor = self.attention_norm(x) if self.pre else x
        return normed

    def _after(self, x_BLW: Tensor, gathered_BLC: Tensor, kept: Kept = (None, None)) -> Tensor:
        """Compute the rest of the block after the attention."""
        out, first = self.attention.out, self.feedforward_norm if self.pre else self.attention_norm
        last = (None, None) if self.pre else (self.feedforward_norm.weight, self.feedforward_norm.bias)
        linear = (out.weight, out.bias, self.widen.weight, self.widen.bias, self.narrow.weight, self.narrow.bias)
        weights = Weights(*linear, first.weight, first.bias, *last)
        return feed_forward(x_BLW, gathered_BLC, weights, kept)
