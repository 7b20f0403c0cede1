"""Histories of a decoder's blocks -> a memory for the C++ kernel, and one more position of every path.

A step of few paths is calls rather than sums, so the kernel takes it at once: projection, blocks, last norm, head.
Paths lie across the lanes in tiles of 64. `Transformer.advance` is the same in plain torch, for any device and type.
"""

# B windows, N sample paths, T positions of the history, S steps after it, I inputs, W width of the stream, C channels
# of all heads, H heads, D channels of one, K kernel, J = K - 1, P parameters, R tiles, X a tile's paths

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
"""As in native/packed.h."""


class History(NamedTuple):
    """What the steps of a block look back at."""

    k_BHTD: Tensor
    v_BHTD: Tensor
    tail_BJW: Tensor
    """The last inputs that the convolution sees; zeros where there were none."""


class BlockParts(NamedTuple):
    """The layers of a block."""

    attention: ConvAttention
    widen: nn.Linear
    narrow: nn.Linear
    attention_norm: nn.LayerNorm
    feed_norm: nn.LayerNorm


class Ends(NamedTuple):
    """What stands before and after the blocks."""

    project: nn.Module
    norm: nn.Module
    output: nn.Linear
    mix: nn.Linear | None
    seen_from: int
    """The input that says whether the first anchor was seen; -1: all were."""


@dataclass
class TiledMemory:
    """What the kernel takes at every step: addresses, and the tensors that they belong to."""

    attentions: Sequence[ConvAttention]
    sizes: tuple[int, ...]
    """As AdvanceProblem of native/problem.h has them, from the type to the steps there is room for."""
    head: tuple[int, int, int]
    """Parameters, anchors, the first input that says whether one was seen."""
    whole: tuple[int, ...]
    blocks: list[tuple[int, ...]]
    held: list[Tensor | None]
    taken: int = 0


def kernel_serves(inputs_BTI: Tensor, network: nn.Module) -> bool:
    """Whether the kernel can take the steps after these inputs: it computes no gradients."""
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
    """A memory with room for so many steps of so many paths of each window."""
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
        # Terms step by step, as the inputs of the steps follow each other.
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
        (ends.output.out_features, anchors, ends.seen_from),
        addresses([starts_B, *linear]),
        blocks,
        held,
    )


def advance(inputs_BNI: Tensor, memory: TiledMemory) -> Tensor:
    """(B, N, P) of the next position of every path."""
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
