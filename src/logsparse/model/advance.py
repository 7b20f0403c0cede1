"""Histories of a Transformer's blocks -> a memory for the C++ kernel, and one more position of every path.

In torch, a step of few paths costs more in calls than in arithmetic. Here `advance` makes one call of the kernel
(`run_advance` in native/advance.h) for the whole network: projection, blocks, last norm, output layer. Paths lie across
vector lanes in tiles of 64. `Transformer.advance` calls it, or computes the same in torch for other devices and types.
"""

# Shapes: B windows, N sample paths, T positions of the history, S steps after it, J = kernel - 1, I inputs, W width of
# the stream, H heads, D channels of a head, C channels of all heads, P parameters, R tiles, X paths of a tile.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from logsparse.attention.layer import EPSILON, ConvAttention
from logsparse.attention.native import TYPES, extension, serves
from logsparse.attention.step import step_cells

TILE = 64
"""Paths per tile, as in native/packed.h."""


class History(NamedTuple):
    """What the steps of a block need of the history."""

    k_BHTD: Tensor
    v_BHTD: Tensor
    tail_BJW: Tensor
    """The last inputs, for the convolution; zeros before the first."""


class BlockParts(NamedTuple):
    """The layers of a block."""

    attention: ConvAttention
    widen: nn.Linear
    narrow: nn.Linear
    attention_norm: nn.LayerNorm
    feed_norm: nn.LayerNorm


class Ends(NamedTuple):
    """The layers before and after the blocks."""

    project: nn.Module
    norm: nn.Module
    output: nn.Linear
    mix: nn.Linear | None
    observed_from: int
    """Index of the first input that flags an observed anchor; -1 if there are no flags."""


@dataclass
class TiledMemory:
    """Arguments of the kernel that stay the same from step to step."""

    attentions: Sequence[ConvAttention]
    sizes: tuple[int, ...]
    """Fields of AdvanceProblem in native/problem.h, from the type to the number of steps there is room for."""
    head: tuple[int, int, int]
    """Parameters, anchors, `Ends.observed_from`."""
    whole: tuple[int, ...]
    """Addresses of starts and layers outside the blocks."""
    blocks: list[tuple[int, ...]]
    """Addresses of weights and caches per block."""
    held: list[Tensor | None]
    """The tensors at these addresses, kept alive."""
    taken: int = 0
    """Steps done."""


def kernel_serves(inputs_BTI: Tensor, network: nn.Module) -> bool:
    """Return True if the kernel can compute the steps after these inputs; it has no gradients."""
    return not torch.is_grad_enabled() and serves(inputs_BTI, *network.parameters())


def remember(
    histories: Sequence[History],
    parts: Sequence[BlockParts],
    ends: Ends,
    *,
    inputs: int,
    paths: int,
    steps: int,
    starts_B: Tensor | None,
) -> TiledMemory:
    """Return a memory with room for `steps` steps of each of `paths` paths per window."""
    first, attention = histories[0], parts[0].attention
    size, heads, length, width = first.k_BHTD.shape
    held: list[Tensor | None] = []

    def addresses(tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
        dense = [x if x is None else x.detach().contiguous() for x in tensors]
        held.extend(dense)
        return tuple(0 if x is None else x.data_ptr() for x in dense)

    tiles = -(-size * paths // TILE)
    blocks = []
    for history, part in zip(histories, parts, strict=True):
        query_key, bias_2C = part.attention.query_key, part.attention.query_key.bias
        assert bias_2C is not None
        # Rows ordered by position of the convolution, as the inputs are in memory.
        w_q, w_k = query_key.weight.mT.flatten(1).chunk(2)
        b_q, b_k = bias_2C.chunk(2)
        layers = (
            part.attention.value,
            part.attention.out,
            part.widen,
            part.narrow,
            part.attention_norm,
            part.feed_norm,
        )
        weights = [w_q, b_q, w_k, b_k, *(x for layer in layers for x in (layer.weight, layer.bias))]
        kv_BTC = [x.transpose(1, 2).flatten(2) for x in (history.k_BHTD, history.v_BHTD)]
        seen_RSWX = first.k_BHTD.new_empty(tiles, part.attention.kernel - 1 + steps, part.attention.width, TILE)
        tail_XJW = pad(history.tail_BJW.repeat_interleave(paths, 0), (0, 0, 0, 0, 0, tiles * TILE - size * paths))
        seen_RSWX[:, : part.attention.kernel - 1] = tail_XJW.view(tiles, TILE, *tail_XJW.shape[1:]).movedim(1, -1)
        own = [seen_RSWX.new_empty(tiles, steps, heads * width, TILE) for _ in range(2)]
        blocks.append(addresses([*weights, *kv_BTC, seen_RSWX, *own]))
    outside = [ends.project, ends.norm, ends.output, ends.mix]
    linear = [x for layer in outside for x in (getattr(layer, "weight", None), getattr(layer, "bias", None))]
    anchors = 0 if ends.mix is None else ends.mix.out_features
    sizes = (TYPES[first.k_BHTD.dtype], size, paths, inputs, attention.width, heads, width)
    return TiledMemory(
        [part.attention for part in parts],
        (*sizes, parts[0].widen.out_features, attention.kernel, length, steps),
        (ends.output.out_features, anchors, ends.observed_from),
        addresses([starts_B, *linear]),
        blocks,
        held,
    )


def advance(inputs_BNI: Tensor, memory: TiledMemory) -> Tensor:
    """Return (B, N, P) of the next position of every path."""
    _, size, paths, inputs, *_, history, room = memory.sizes
    assert inputs_BNI.shape == (size, paths, inputs)
    assert memory.taken < room
    dense_BNI = inputs_BNI.contiguous()
    out_BNP = inputs_BNI.new_empty(size, paths, memory.head[0])
    cells = [step_cells(one.pattern, history + memory.taken, history) for one in memory.attentions]
    sizes = (*memory.sizes, memory.taken, *memory.head, torch.get_num_threads())
    whole = (*memory.whole, dense_BNI.data_ptr(), out_BNP.data_ptr())
    extension().advance(sizes, EPSILON, whole, memory.blocks, cells)
    memory.taken += 1
    return out_BNP
