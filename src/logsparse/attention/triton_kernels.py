"""Tensors, strides, a plan of distances -> attention and its gradients on a GPU: what `attention.triton` launches.

Each program owns one tile of one head: of queries in `forward` and `backward_rows`, of keys in `backward_keys`. A
distance pairs a tile of queries with one shifted, contiguous tile of keys, so nothing is gathered; keys meet their
queries at j + distance, so nothing is added atomically. Distances come in two forms (`attention.triton.plan`):

- tiles: crowded stretches of distances. Queries meet the keys `offset` positions before them in one matrix product,
  and two 32-bit words say which pairs of it are cells of the pattern.
- singles: one distance each, multiplied and summed.

Both lists end with a distance beyond every tile. Importing this module imports triton.
"""

# T positions of the program's own tile, J positions of the tile it meets, D channels of q and k, E channels of v

from __future__ import annotations

import triton
import triton.language as tl

# Running maximum of a row before its first cell: finite, since masked cells have the score -inf.
LOWEST = tl.constexpr(-1e30)
GOLDEN = tl.constexpr(0x9E3779B9)


@triton.jit(do_not_specialize=["sizes"])
def forward(
    tensors: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    rates: tl.tuple,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Fill out and lse, the base-2 log-sum-exp per row, from q, k, v; both begin at `first_row`."""
    q, k, v, out, lse, tiles, singles, starts, seed = tensors
    heads, length, first_row, threshold = sizes
    scale, kept = rates
    rows = length - first_row
    head, begin = _place(rows, TILE)
    start = _start(starts, head // heads)
    q, k = _head_of(q, strides[0], head, heads), _head_of(k, strides[1], head, heads)
    v, out = _head_of(v, strides[2], head, heads), _head_of(out, strides[3], head, heads)
    begin += first_row
    rows_T = begin + tl.arange(0, TILE)
    live_T = (rows_T >= start) & (rows_T < length)
    reach = begin + TILE - 1 - start
    q_TD = _load(q, strides[0], begin, live_T, WIDTH)
    hash_T = _row_hash(seed, head // heads, head % heads, rows_T)

    top_T = tl.full((TILE,), LOWEST, tl.float32)
    total_T = tl.zeros((TILE,), tl.float32)
    sum_TE = tl.zeros((TILE, _room(VALUE_WIDTH)), tl.float32)
    if tiles is not None:
        while tl.load(tiles) <= reach:
            offset = tl.load(tiles)
            keys_J = rows_T - offset
            there_J = (keys_J >= start) & (keys_J < length)
            k_JD = _load(k, strides[1], begin - offset, there_J, WIDTH)
            v_JE = _load(v, strides[2], begin - offset, there_J, VALUE_WIDTH)
            seen_TJ = _cells(tiles, TILE) & there_J[None, :]
            score_TJ = tl.where(seen_TJ, _product(q_TD, tl.trans(k_JD)) * scale, float("-inf"))
            new_top_T = tl.maximum(top_T, tl.max(score_TJ, 1))
            shrink_T = tl.exp2(top_T - new_top_T)
            weight_TJ = tl.exp2(score_TJ - new_top_T[:, None])
            total_T = total_T * shrink_T + tl.sum(weight_TJ, 1)
            if seed is not None:
                distance_TJ = rows_T[:, None] - keys_J[None, :]
                weight_TJ *= _stays(hash_T[:, None], distance_TJ, threshold, kept)
            sum_TE = sum_TE * shrink_T[:, None] + _product(weight_TJ.to(v_JE.dtype), v_JE)
            top_T = new_top_T
            tiles += 3
    if singles is not None:
        while tl.load(singles) <= reach:
            distance = tl.load(singles)
            keys_T = rows_T - distance
            seen_T = live_T & (keys_T >= start)
            k_TD = _load(k, strides[1], begin - distance, seen_T, WIDTH)
            v_TE = _load(v, strides[2], begin - distance, seen_T, VALUE_WIDTH)
            score_T = tl.where(seen_T, _dots(q_TD, k_TD) * scale, float("-inf"))
            new_top_T = tl.maximum(top_T, score_T)
            shrink_T = tl.exp2(top_T - new_top_T)
            weight_T = tl.exp2(score_T - new_top_T)
            total_T = total_T * shrink_T + weight_T
            if seed is not None:
                weight_T *= _stays(hash_T, distance, threshold, kept)
            sum_TE = sum_TE * shrink_T[:, None] + weight_T[:, None] * v_TE.to(tl.float32)
            top_T = new_top_T
            singles += 1

    # Rows of padding see nothing: their sums and results are 0.
    total_T = tl.where(live_T, total_T, 1.0)
    inside_T = rows_T < length
    _store(out, strides[3], begin - first_row, inside_T, sum_TE / total_T[:, None], VALUE_WIDTH)
    tl.store(lse + head * rows + rows_T - first_row, top_T + tl.log2(total_T), mask=inside_T)


@triton.jit(do_not_specialize=["sizes"])
def backward_rows(
    tensors: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    rates: tl.tuple,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Fill the gradient of q and, per row, delta = grad . out, which `backward_keys` reads."""
    q, k, v, out, grad, grad_q, lse, delta, tiles, singles, starts, seed = tensors
    heads, length, first_row, threshold = sizes
    scale, kept = rates
    rows = length - first_row
    head, begin = _place(length, TILE)
    start = _start(starts, head // heads)
    q, k = _head_of(q, strides[0], head, heads), _head_of(k, strides[1], head, heads)
    v, out = _head_of(v, strides[2], head, heads), _head_of(out, strides[3], head, heads)
    grad, grad_q = _head_of(grad, strides[4], head, heads), _head_of(grad_q, strides[5], head, heads)
    rows_T = begin + tl.arange(0, TILE)
    live_T = (rows_T >= tl.maximum(start, first_row)) & (rows_T < length)
    # Rows before the first are computed elsewhere: a tile of only such rows reads no distance.
    reach = tl.where(begin + TILE > first_row, begin + TILE - 1 - start, -1)
    q_TD = _load(q, strides[0], begin, live_T, WIDTH)
    grad_TE = _load(grad, strides[4], begin - first_row, live_T, VALUE_WIDTH)
    delta_T = _dots(grad_TE, _load(out, strides[3], begin - first_row, live_T, VALUE_WIDTH))
    tl.store(delta + head * rows + rows_T - first_row, delta_T, mask=live_T)
    lse_T = tl.load(lse + head * rows + rows_T - first_row, mask=live_T, other=0.0)
    hash_T = _row_hash(seed, head // heads, head % heads, rows_T)

    sum_TD = tl.zeros((TILE, _room(WIDTH)), tl.float32)
    if tiles is not None:
        while tl.load(tiles) <= reach:
            offset = tl.load(tiles)
            keys_J = rows_T - offset
            there_J = (keys_J >= start) & (keys_J < length)
            k_JD = _load(k, strides[1], begin - offset, there_J, WIDTH)
            v_JE = _load(v, strides[2], begin - offset, there_J, VALUE_WIDTH)
            seen_TJ = _cells(tiles, TILE) & there_J[None, :] & live_T[:, None]
            score_TJ = _product(q_TD, tl.trans(k_JD)) * scale
            weight_TJ = tl.exp2(tl.where(seen_TJ, score_TJ - lse_T[:, None], float("-inf")))
            slope_TJ = _product(grad_TE, tl.trans(v_JE))
            if seed is not None:
                slope_TJ *= _stays(hash_T[:, None], rows_T[:, None] - keys_J[None, :], threshold, kept)
            slope_TJ = weight_TJ * (slope_TJ - delta_T[:, None])
            sum_TD += _product(slope_TJ.to(k_JD.dtype), k_JD)
            tiles += 3
    if singles is not None:
        while tl.load(singles) <= reach:
            distance = tl.load(singles)
            keys_T = rows_T - distance
            seen_T = live_T & (keys_T >= start)
            k_TD = _load(k, strides[1], begin - distance, seen_T, WIDTH)
            v_TE = _load(v, strides[2], begin - distance, seen_T, VALUE_WIDTH)
            weight_T = tl.exp2(tl.where(seen_T, _dots(q_TD, k_TD) * scale - lse_T, float("-inf")))
            slope_T = _dots(grad_TE, v_TE)
            if seed is not None:
                slope_T *= _stays(hash_T, distance, threshold, kept)
            sum_TD += (weight_T * (slope_T - delta_T))[:, None] * k_TD.to(tl.float32)
            singles += 1
    _store(grad_q, strides[5], begin, rows_T < length, sum_TD * (scale * 0.6931471805599453), WIDTH)


@triton.jit(do_not_specialize=["sizes"])
def backward_keys(
    tensors: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    rates: tl.tuple,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """Fill the gradients of k and v: each key gathers from the rows that see it."""
    q, k, v, grad, grad_k, grad_v, lse, delta, tiles, singles, starts, seed = tensors
    heads, length, first_row, threshold = sizes
    scale, kept = rates
    rows = length - first_row
    head, begin = _place(length, TILE)
    start = _start(starts, head // heads)
    q, k = _head_of(q, strides[0], head, heads), _head_of(k, strides[1], head, heads)
    v, grad = _head_of(v, strides[2], head, heads), _head_of(grad, strides[3], head, heads)
    grad_k, grad_v = _head_of(grad_k, strides[4], head, heads), _head_of(grad_v, strides[5], head, heads)
    lse, delta = lse + head * rows, delta + head * rows
    keys_T = begin + tl.arange(0, TILE)
    live_T = (keys_T >= start) & (keys_T < length)
    reach = tl.where(begin + TILE > start, length - 1 - begin, -1)
    k_TD = _load(k, strides[1], begin, live_T, WIDTH)
    v_TE = _load(v, strides[2], begin, live_T, VALUE_WIDTH)

    sum_TD = tl.zeros((TILE, _room(WIDTH)), tl.float32)
    sum_TE = tl.zeros((TILE, _room(VALUE_WIDTH)), tl.float32)
    if tiles is not None:
        while tl.load(tiles) <= reach:
            offset = tl.load(tiles)
            rows_J = keys_T + offset
            there_J = (rows_J >= tl.maximum(start, first_row)) & (rows_J < length)
            q_JD = _load(q, strides[0], begin + offset, there_J, WIDTH)
            grad_JE = _load(grad, strides[3], begin + offset - first_row, there_J, VALUE_WIDTH)
            lse_J = tl.load(lse + rows_J - first_row, mask=there_J, other=0.0)
            delta_J = tl.load(delta + rows_J - first_row, mask=there_J, other=0.0)
            seen_TJ = tl.trans(_cells(tiles, TILE)) & there_J[None, :] & live_T[:, None]
            score_TJ = _product(k_TD, tl.trans(q_JD)) * scale
            weight_TJ = tl.exp2(tl.where(seen_TJ, score_TJ - lse_J[None, :], float("-inf")))
            slope_TJ = _product(v_TE, tl.trans(grad_JE))
            stayed_TJ = weight_TJ
            if seed is not None:
                hash_J = _row_hash(seed, head // heads, head % heads, rows_J)
                stays_TJ = _stays(hash_J[None, :], rows_J[None, :] - keys_T[:, None], threshold, kept)
                slope_TJ *= stays_TJ
                stayed_TJ *= stays_TJ
            sum_TE += _product(stayed_TJ.to(grad_JE.dtype), grad_JE)
            slope_TJ = weight_TJ * (slope_TJ - delta_J[None, :])
            sum_TD += _product(slope_TJ.to(q_JD.dtype), q_JD)
            tiles += 3
    if singles is not None:
        while tl.load(singles) <= reach:
            distance = tl.load(singles)
            rows_T = keys_T + distance
            seen_T = live_T & (rows_T >= first_row) & (rows_T < length)
            q_TD = _load(q, strides[0], begin + distance, seen_T, WIDTH)
            grad_TE = _load(grad, strides[3], begin + distance - first_row, seen_T, VALUE_WIDTH)
            lse_T = tl.load(lse + rows_T - first_row, mask=seen_T, other=0.0)
            delta_T = tl.load(delta + rows_T - first_row, mask=seen_T, other=0.0)
            weight_T = tl.exp2(tl.where(seen_T, _dots(k_TD, q_TD) * scale - lse_T, float("-inf")))
            slope_T = _dots(v_TE, grad_TE)
            stayed_T = weight_T
            if seed is not None:
                hash_T = _row_hash(seed, head // heads, head % heads, rows_T)
                stays_T = _stays(hash_T, distance, threshold, kept)
                slope_T *= stays_T
                stayed_T *= stays_T
            sum_TE += stayed_T[:, None] * grad_TE.to(tl.float32)
            sum_TD += (weight_T * (slope_T - delta_T))[:, None] * q_TD.to(tl.float32)
            singles += 1
    inside_T = keys_T < length
    _store(grad_k, strides[4], begin, inside_T, sum_TD * (scale * 0.6931471805599453), WIDTH)
    _store(grad_v, strides[5], begin, inside_T, sum_TE, VALUE_WIDTH)


@triton.constexpr_function
def _room(width: int) -> int:
    """Return the channels of a tile: a power of two, at least 16, the least of a matrix product."""
    return max(16, 1 << (width - 1).bit_length())


@triton.jit
def _place(rows: tl.tensor, TILE: tl.constexpr) -> tl.tensor:
    """Return the head of this program, counted over the whole batch, and the first row of its tile."""
    # One axis for both: the others are limited to 65,535 programs.
    tiles = tl.cdiv(rows, TILE)
    program = tl.program_id(0)
    return (program // tiles).to(tl.int64), program % tiles * TILE


@triton.jit
def _start(starts: tl.tensor, batch: tl.tensor) -> tl.tensor:
    """Return the first real position of the batch row; below 0 counts as 0, since a check would wait for the device."""
    start = 0
    if starts is not None:
        start = tl.maximum(tl.load(starts + batch), 0).to(tl.int32)
    return start


@triton.jit
def _head_of(tensor: tl.tensor, strides: tl.tuple, head: tl.tensor, heads: tl.tensor) -> tl.tensor:
    return tensor + head // heads * strides[0] + head % heads * strides[1]


@triton.jit
def _places(tensor: tl.tensor, strides: tl.tuple, row: tl.tensor, WIDTH: tl.constexpr, TILE: tl.constexpr) -> tl.tensor:
    # Only the offset of the tile is 64 bits wide: within a tile 64 bits would take most of the registers.
    inside_TD = tl.arange(0, TILE)[:, None] * strides[2] + tl.arange(0, _room(WIDTH))[None, :] * strides[3]
    return tensor + row.to(tl.int64) * strides[2] + inside_TD


@triton.jit
def _load(tensor: tl.tensor, strides: tl.tuple, row: tl.tensor, there_T: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """Load rows of one head from `row` on; masked rows are zeros, so that NaN in padding is never read."""
    mask_TD = there_T[:, None] & (tl.arange(0, _room(WIDTH)) < WIDTH)[None, :]
    return tl.load(_places(tensor, strides, row, WIDTH, there_T.shape[0]), mask=mask_TD, other=0.0)


@triton.jit
def _store(
    tensor: tl.tensor, strides: tl.tuple, row: tl.tensor, there_T: tl.tensor, value_TD: tl.tensor, WIDTH: tl.constexpr
) -> None:
    mask_TD = there_T[:, None] & (tl.arange(0, _room(WIDTH)) < WIDTH)[None, :]
    value_TD = value_TD.to(tensor.dtype.element_ty)
    tl.store(_places(tensor, strides, row, WIDTH, there_T.shape[0]), value_TD, mask=mask_TD)


@triton.jit
def _product(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    # Full float32: TF32 on the tensor cores would lose three of seven digits.
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _dots(a_TD: tl.tensor, b_TD: tl.tensor) -> tl.tensor:
    return tl.sum(a_TD.to(tl.float32) * b_TD.to(tl.float32), 1)


@triton.jit
def _cells(tile: tl.tensor, TILE: tl.constexpr) -> tl.tensor:
    """Return (T, J): True for pairs of row and key, `offset` positions before it, that are cells of the pattern.

    Row i and key j are offset + i - j apart. The word `here` holds the distances from `offset` on, `before` those of
    the preceding tile.
    """
    apart_TJ = tl.arange(0, TILE)[:, None] - tl.arange(0, TILE)[None, :]
    here, before = tl.load(tile + 1), tl.load(tile + 2)
    word_TJ = tl.where(apart_TJ >= 0, here, before)
    bit_TJ = tl.where(apart_TJ >= 0, apart_TJ, apart_TJ + TILE)
    return ((word_TJ >> bit_TJ) & 1) != 0


@triton.jit
def _mix(x: tl.tensor) -> tl.tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _row_hash(seed: tl.tensor, batch: tl.tensor, head: tl.tensor, rows_T: tl.tensor) -> tl.tensor:
    """Return the hash of seed, batch, head and position (`attention.plain`); unused without dropout."""
    hash_T = rows_T.to(tl.uint32)
    if seed is not None:
        number = tl.load(seed)
        key = _mix(_mix(number.to(tl.uint32)) ^ (number >> 32).to(tl.uint32))
        key = _mix(key + batch.to(tl.uint32) * GOLDEN)
        key = _mix(key + head.to(tl.uint32) * GOLDEN)
        hash_T = _mix(hash_T ^ key)
    return hash_T


@triton.jit
def _stays(row_hash: tl.tensor, distance: tl.tensor, threshold: tl.tensor, kept: tl.tensor) -> tl.tensor:
    """Return the dropout factor of a cell: 0 or 1 / (1 - rate)."""
    cell = _mix(row_hash + distance.to(tl.uint32) * GOLDEN)
    return tl.where((cell >> 8).to(tl.int32) >= threshold, kept, 0.0)
