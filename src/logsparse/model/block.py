"""A block of the Transformer after its attention, and all blocks at one more position of every path.

Whole windows: merge of heads, residual, norm, feed-forward, norm. Positions are independent. The C++ kernel takes a
tile of positions through all layers while it is in the cache, and recomputes it in the backward pass;
`feed_forward_plainly` is the reference in torch, for any device and type. Dropout masks are made here too.

One position: in torch, a step of few paths costs more in calls than in arithmetic. `advance` makes one call of the
kernel (`run_advance` in native/advance.h) for the whole network: projection, blocks, last norm, output layer. Paths lie
across vector lanes in tiles of 64. `Transformer.advance` calls it, or computes the same in torch for other devices and
types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import layer_norm, leaky_relu, linear, pad

from logsparse.attention.attend import step_cells
from logsparse.attention.layer import EPSILON, ConvAttention
from logsparse.attention.native import (
    TYPES,
    check_shapes,
    define,
    differentiable_gradients,
    extension,
    room,
    serves,
)
from logsparse.errors import DataError

TILE = 64
"""Paths per tile, as in native/packed.h."""
# Size of the state of torch's CPU generator, as the kernel reads it.
_STATE_BYTES = 5056


class Weights(NamedTuple):
    """Weights of the merge of heads, the two feed-forward layers, and the norms after the first and the last sum."""

    merge_WC: Tensor
    merge_bias_W: Tensor
    widen_FW: Tensor
    widen_bias_F: Tensor
    narrow_WF: Tensor
    narrow_bias_W: Tensor
    first_gain_W: Tensor
    first_shift_W: Tensor
    last_gain_W: Tensor | None
    """None in pre-norm blocks."""
    last_shift_W: Tensor | None


Kept = tuple[Tensor | None, Tensor | None]
"""Dropout masks of the merged heads and of the feed-forward output, (B, L, W) each; None for no dropout."""


def feed_forward(x_BLW: Tensor, gathered_BLC: Tensor, weights: Weights, kept: Kept) -> Tensor:
    """Return the stream after the block, (B, L, W)."""
    given = [part for part in weights if part is not None]
    if not serves(x_BLW, gathered_BLC, *given):
        return feed_forward_plainly(x_BLW, gathered_BLC, weights, kept)
    out_BLW: Tensor = torch.ops.logsparse.feed_forward(x_BLW, gathered_BLC, *kept, *weights)
    return out_BLW


def feed_forward_plainly(x_BLW: Tensor, gathered_BLC: Tensor, weights: Weights, kept: Kept) -> Tensor:
    """Compute the same in torch: the reference of the kernel."""
    w, width = weights, (x_BLW.shape[-1],)
    merged_BLW = linear(gathered_BLC, w.merge_WC, w.merge_bias_W)
    sum_BLW = x_BLW + (merged_BLW if kept[0] is None else merged_BLW * kept[0])
    normed_BLW = layer_norm(sum_BLW, width, w.first_gain_W, w.first_shift_W, EPSILON)
    # With slope 0 it equals relu, and its backward pass takes a third of the time on a CPU (docs/RECIPE.md).
    hidden_BLF = leaky_relu(linear(normed_BLW, w.widen_FW, w.widen_bias_F), 0.0, inplace=True)
    fed_BLW = linear(hidden_BLF, w.narrow_WF, w.narrow_bias_W)
    fed_BLW = fed_BLW if kept[1] is None else fed_BLW * kept[1]
    if w.last_gain_W is None:
        return sum_BLW + fed_BLW
    return layer_norm(normed_BLW + fed_BLW, width, w.last_gain_W, w.last_shift_W, EPSILON)


def dropout_mask(like: Tensor, share: float, generator: Generator) -> Tensor:
    """Return a dropout mask: 0 with probability `share`, else 1 / (1 - share)."""
    kept = torch.empty_like(like)
    if not (serves(kept) and kernel_draws()):
        return dropout_mask_plainly(like, share, generator)
    state = generator.get_state()
    extension().keep(TYPES[kept.dtype], state.data_ptr(), kept.data_ptr(), kept.numel(), 1 - share, 1 / (1 - share))
    generator.set_state(state)
    return kept


def dropout_mask_plainly(like: Tensor, share: float, generator: Generator) -> Tensor:
    """Compute the same in torch. `bernoulli_` is not used: its draws differ between makes of processors."""
    strides = like.stride()
    in_memory = sorted(range(like.ndim), key=lambda n: -strides[n])
    shape = [like.shape[n] for n in in_memory]
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=like.device)
    kept = (drawn < 1 - share).to(like.dtype).mul_(1 / (1 - share))
    return kept.permute([in_memory.index(n) for n in range(like.ndim)])


@lru_cache(maxsize=1)
def kernel_draws() -> bool:
    """Return True if the kernel can read torch's generator, whose memory layout is undocumented."""
    pair = Generator().manual_seed(0), Generator().manual_seed(0)
    state, kept = pair[0].get_state(), torch.empty(1000)
    if len(state) != _STATE_BYTES:
        return False
    extension().keep(TYPES[kept.dtype], state.data_ptr(), kept.data_ptr(), len(kept), 0.5, 2.0)
    expected = dropout_mask_plainly(kept, 0.5, pair[1])
    return torch.equal(kept, expected) and torch.equal(state, pair[1].get_state())


def drop(x: Tensor, share: float, generator: Generator | None) -> Tensor:
    """Apply dropout with draws from a generator; without one, return x."""
    return x if generator is None or share == 0 else x * dropout_mask(x, share, generator)


def _feed_forward(x_BLW: Tensor, gathered_BLC: Tensor, *given: Tensor | None) -> Tensor:
    kept, weights = given[:2], _dense(Weights(*given[2:]))  # type: ignore[arg-type]
    _check(x_BLW, gathered_BLC, kept, weights)
    out_BLW = x_BLW.new_empty(x_BLW.shape)
    parts = [x_BLW, gathered_BLC, *kept, out_BLW]
    # Rows that are contiguous in memory are passed as one long row.
    if all(part is None or _is_one_row(part) for part in parts):
        parts = [part if part is None else part.flatten(0, 1)[None] for part in parts]
    _run(parts, weights, None)
    return out_BLW


def _feed_forward_fake(x_BLW: Tensor, *_: Any) -> Tensor:
    return x_BLW.new_empty(x_BLW.shape)


def _feed_forward_backward(
    grad_BLW: Tensor, x_BLW: Tensor, gathered_BLC: Tensor, given: list[Tensor | None]
) -> list[Tensor]:
    kept, weights = given[:2], _dense(Weights(*given[2:]))  # type: ignore[arg-type]
    _check(x_BLW, gathered_BLC, kept, weights)
    check_shapes(x=(x_BLW, tuple(x_BLW.shape)), grad=(grad_BLW, tuple(x_BLW.shape)))
    grad_x, grad_gathered = x_BLW.new_empty(x_BLW.shape), torch.empty_like(gathered_BLC)
    (wide, width), inner = weights.widen_FW.shape, gathered_BLC.shape[2]
    padded = room(width)
    sizes = [inner * padded, wide * padded, wide * padded, *[padded] * 6, wide]
    sums = x_BLW.new_zeros(torch.get_num_threads(), sum(sizes))
    _run([x_BLW, gathered_BLC, *kept, grad_BLW, grad_x, grad_gathered], weights, sums)
    merge, widen, narrow, *rows, widen_bias = torch.split(sums.sum(0), sizes)
    matrices = [part.view(-1, padded)[:, :width] for part in (merge, widen, narrow)]
    merge_bias, narrow_bias, *norms = (row[:width].clone() for row in rows)
    layers = [matrices[0].T, merge_bias, matrices[1], widen_bias, matrices[2].T, narrow_bias]
    layers = [part.contiguous() if part.ndim > 1 else part.clone() for part in layers]
    return [grad_x, grad_gathered, *layers, *norms[: 2 if weights.last_gain_W is None else 4]]


def _feed_forward_backward_fake(
    grad_BLW: Tensor, x_BLW: Tensor, gathered_BLC: Tensor, given: list[Tensor | None]
) -> list[Tensor]:
    del grad_BLW
    weights = [torch.empty_like(part, memory_format=torch.contiguous_format) for part in given[2:] if part is not None]
    return [x_BLW.new_empty(x_BLW.shape), torch.empty_like(gathered_BLC), *weights]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad_BLW: Tensor) -> tuple[Tensor | None, ...]:
    x_BLW, gathered_BLC, *given = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True

        def plainly(x_BLW: Tensor, gathered_BLC: Tensor, *weights: Tensor) -> Tensor:
            return feed_forward_plainly(x_BLW, gathered_BLC, Weights(*weights), (given[0], given[1]))

        own = differentiable_gradients(plainly, [x_BLW, gathered_BLC, *given[2:]], [grad_BLW])
        return (*own[:2], None, None, *own[2:])
    found = torch.ops.logsparse.feed_forward_backward(grad_BLW, x_BLW, gathered_BLC, given)
    norms = [None, None] if given[-1] is None else []
    return (*found[:2], None, None, *found[2:], *norms)


_WEIGHTS = ", ".join(f"Tensor{'?' * name.startswith('last')} {name.rpartition('_')[0]}" for name in Weights._fields)
define(
    f"feed_forward(Tensor x, Tensor gathered, Tensor? keep_merged, Tensor? keep_fed, {_WEIGHTS}) -> Tensor",
    _feed_forward,
    _feed_forward_fake,
    (_gradients, _remember),
)
define(
    "feed_forward_backward(Tensor grad, Tensor x, Tensor gathered, Tensor?[] given) -> Tensor[]",
    _feed_forward_backward,
    _feed_forward_backward_fake,
)


def _run(parts: list[Tensor | None], weights: Weights, sums: Tensor | None) -> None:
    x_BLW, gathered_BLC = parts[0], parts[1]
    assert x_BLW is not None
    assert gathered_BLC is not None
    tensors = [(0, 0, 0, 0) if part is None else (part.data_ptr(), *part.stride()) for part in parts]
    where = [0 if part is None else part.data_ptr() for part in weights]
    sizes = (*x_BLW.shape, gathered_BLC.shape[2], len(weights.widen_FW), int(weights.last_gain_W is None))
    sizes = (TYPES[x_BLW.dtype], *sizes, torch.get_num_threads())
    where_sums = (0, 0) if sums is None else (sums.data_ptr(), sums.shape[1])
    extension().feed_forward(tensors, where, sizes, EPSILON, *where_sums)


def _check(x_BLW: Tensor, gathered_BLC: Tensor, kept: Sequence[Tensor | None], weights: Weights) -> None:
    """Raise DataError for wrong shapes: the operator is public, and the kernel reads raw memory."""
    if x_BLW.ndim != 3 or gathered_BLC.ndim != 3 or weights.widen_FW.ndim != 2:
        raise DataError(
            "x must be (batch, length, width), gathered (batch, length, channels), widen (wide, width).",
            got=f"{tuple(x_BLW.shape)}, {tuple(gathered_BLC.shape)} and {tuple(weights.widen_FW.shape)}",
            hint="call Block, which passes them.",
        )
    (batch, length, width), channels, wide = x_BLW.shape, gathered_BLC.shape[2], len(weights.widen_FW)
    shapes = [(width, channels), (width,), (wide, width), (wide,), (width, wide), *[(width,)] * 5]
    named = {name: (part, shape) for (name, part), shape in zip(weights._asdict().items(), shapes, strict=True)}
    check_shapes(
        x=(x_BLW, (batch, length, width)),
        gathered=(gathered_BLC, (batch, length, channels)),
        keep_merged=(kept[0], (batch, length, width)),
        keep_fed=(kept[1], (batch, length, width)),
        **named,
    )


def _dense(weights: Weights) -> Weights:
    return Weights(*(part if part is None else part.contiguous() for part in weights))  # type: ignore[arg-type]


def _is_one_row(x_BLC: Tensor) -> bool:
    return x_BLC.stride(0) == x_BLC.shape[1] * x_BLC.stride(1)


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
