"""q, k, v, distances -> attention in plain torch; tensors -> the same, validated; and the rule of attention dropout.

Attention by an L x L mask is the oracle; by shifted copies it takes O(L * M): distance s pairs every row l with cell
l - s, one shifted view of k and v, no gather. `pattern_weights` returns the weights themselves, for pictures.

The rule of dropout, in 32-bit arithmetic that wraps around, with mix(x) = x ^= x >> 16, x *= 0x7FEB352D, x ^= x >> 15,
x *= 0x846CA68B, x ^= x >> 16, and G = 0x9E3779B9:

    key  = mix(mix(low half of seed) ^ high half of seed)
    key  = mix(key + batch * G);  key = mix(key + head * G)
    cell = mix(mix(position ^ key) + distance * G)

A cell is kept, multiplied by 1 / (1 - rate), if cell >> 8 >= round(rate * 2^24); otherwise it becomes 0. Position is
the query's, distance = query - key. No mask is stored: every backend and both passes compute the same one.
`native/dropout.h` implements the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from logsparse.attention.pattern import Pattern
from logsparse.errors import ConfigError, DataError

# B batch, H heads, L length (queries), J keys (= L), R rows computed, M distances or cells, C channels, D channels of q
# and k, E channels of v, N series, P paths

Rows = Callable[..., Tensor]
"""(q, k, v, distances, first_row, dropout, seed, starts) -> the rows from `first_row` on."""

_LOW = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_tensor(name: str, x: Any) -> None:
    """Raise DataError unless x is a dense tensor of a type that the backends serve."""
    if not isinstance(x, Tensor):
        raise DataError(f"{name} must be a torch.Tensor.", got=_kind(x), hint="torch.as_tensor makes one of an array.")
    if x.layout != torch.strided or x.is_nested:
        raise DataError(
            f"{name} must be a dense tensor.",
            got="a nested tensor" if x.is_nested else str(x.layout),
            hint="sparse tensors have .to_dense(), nested ones .to_padded_tensor(0.0).",
        )
    if x.dtype not in DTYPES:
        raise DataError(
            "q, k and v must be float32, float64, bfloat16 or float16.",
            got=f"{name} of {x.dtype}",
            hint="convert them with .float().",
        )


def check_pattern(pattern: Any) -> None:
    """Raise ConfigError unless it is a Pattern."""
    if not isinstance(pattern, Pattern):
        raise ConfigError(
            "pattern must be a Pattern.", got=repr(pattern), hint="call one, for example logsparse() or restart(96)."
        )


def check_attention(q: Any, k: Any, v: Any) -> None:
    """Raise DataError unless q, k are (B, H, L, D) and v (B, H, L, E), of one type on one device, none empty."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, x)
    shapes = [tuple(x.shape) for x in (q, k, v)]
    same = shapes[0] == shapes[1] and shapes[0][:3] == shapes[2][:3]
    if q.ndim != 4 or v.ndim != 4 or not same or 0 in (*q.shape, *v.shape):
        raise DataError(
            "q and k must be (batch, heads, length, channels), v the same but for channels; none empty. k and v may "
            "both have fewer heads, if their number divides that of q.",
            got=f"q {shapes[0]}, k {shapes[1]}, v {shapes[2]}",
            hint="(batch, length, width) becomes that by .unflatten(-1, (heads, -1)).transpose(1, 2).",
        )
    kinds = [(x.dtype, x.device) for x in (q, k, v)]
    if len(set(kinds)) > 1:
        raise DataError(
            "q, k and v must share one device and one type.",
            got=", ".join(f"{name} {dtype} on {device}" for name, (dtype, device) in zip("qkv", kinds, strict=True)),
            hint="convert them with .to(q).",
        )


def with_all_heads(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return k and v with the heads of q, each of theirs repeated for a group of its heads; others unchanged."""
    if not all(isinstance(x, Tensor) and x.ndim == 4 for x in (q, k, v)):
        return k, v
    heads, fewer = q.shape[1], k.shape[1]
    if fewer != v.shape[1] or fewer in (0, heads) or heads % fewer:
        return k, v
    return k.repeat_interleave(heads // fewer, dim=1), v.repeat_interleave(heads // fewer, dim=1)


def check_starts(starts_B: Any, like: Tensor) -> None:
    """Raise DataError unless starts are None or one int64 per batch row, its first real position."""
    if starts_B is None:
        return
    strided = isinstance(starts_B, Tensor) and starts_B.layout == torch.strided
    if strided and starts_B.dtype == torch.bool:
        raise DataError(
            "Padding precedes the values, and starts says how much of it: a mask over keys is not taken. Padding after "
            "the values needs none, since no row attends to later ones; gaps between values cannot be hidden.",
            got=_kind(starts_B),
            hint="(~padding).long().argmax(1) makes starts of a mask that is true on the padding.",
        )
    kind = (like.shape[:1], torch.int64, like.device)
    if not strided or (starts_B.shape, starts_B.dtype, starts_B.device) != kind:
        raise DataError(
            f"starts must be an int64 tensor of ({len(like)},) on {like.device}: the first real position of each row.",
            got=_kind(starts_B),
            hint="(~padding).long().argmax(1) makes it of a mask that is true on the padding.",
        )


def without_padding(x_BLC: Tensor, starts_B: Tensor | None) -> Tensor:
    """Return x with zeros before each start, since a weight of 0 does not hide a NaN; also takes (B, H, L, C)."""
    if starts_B is None:
        return x_BLC
    where_L = torch.arange(x_BLC.shape[-2], device=x_BLC.device)
    hidden_BL = where_L < starts_B[:, None]
    return x_BLC.masked_fill(hidden_BL.reshape(x_BLC.shape[0], *(1,) * (x_BLC.ndim - 3), -1, 1), 0)


def check_cells(distances: Sequence[int], dropout: float, length: int, **rows: tuple[int, int]) -> None:
    """Validate the other arguments of an operator; `rows`: name=(number of rows, its maximum)."""
    ascending = sorted(set(distances)) == list(distances)
    if not distances or not ascending or distances[0] != 0 or distances[-1] >= length:
        raise DataError(
            f"distances must ascend from 0 and stay below the length, {length}.",
            got=f"{list(distances)[:8]}",
            hint="Pattern.distances(length) returns them.",
        )
    for name, (count, most) in rows.items():
        if not 0 <= count <= most or not 0 <= dropout < 1:
            raise DataError(
                f"{name} must be 0 to {most}, and dropout at least 0 and below 1.",
                got=f"{name}={count}, dropout={dropout}",
                hint="call logsparse.attend, which passes both.",
            )


def empty(x: Tensor, rows: int, channels: int) -> Tensor:
    """Return an empty (B, H, rows, channels) tensor, channel-first in memory if x is."""
    if x.stride(2) == 1:
        return x.new_empty((*x.shape[:2], channels, rows)).mT
    return x.new_empty((*x.shape[:2], rows, channels))


def _kind(x: Any) -> str:
    return f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__


def draw_seed(generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Return a seed as a tensor, so that drawing it neither breaks a compiled graph nor waits for a GPU.

    It is drawn on the device of the generator; without one, by the global generator of `device`.
    """
    where = device if generator is None else generator.device
    return torch.randint(0, 2**62, (), generator=generator, dtype=torch.int64, device=where)


def factors(seed: Tensor, heads: tuple[int, int], position: Tensor, distance: Tensor, rate: float) -> Tensor:
    """Return the dropout factors, (B, H, ...) in float64, for `position` and `distance` that broadcast to (...)."""
    batch_B, head_H = (torch.arange(size, device=position.device) for size in heads)
    seed = seed.to(position.device)
    key = _mix(_mix(seed & _LOW) ^ (seed >> 32))
    key_BH = _mix((_mix((key + batch_B * _GOLDEN) & _LOW)[:, None] + head_H * _GOLDEN) & _LOW)
    key_BH = key_BH.reshape(*key_BH.shape, *(1,) * max(position.ndim, distance.ndim))
    cell = _mix((_mix(position ^ key_BH) + distance * _GOLDEN) & _LOW)
    return ((cell >> 8) >= int(rate * 2**24 + 0.5)).to(torch.float64) / (1.0 - rate)


def _mix(x: Tensor) -> Tensor:
    # int64 products wrap around; their low 32 bits are exact.
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW
    return x ^ (x >> 16)


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    dense_rows: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """Compute attention by a masked L x L matrix: q, k (B, H, L, D), v (B, H, L, E) -> (B, H, L, E).

    Rows and cells before a batch row's start are padding: they are zero in q, k and v, and have no weight.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores_BHLJ = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    place_L = torch.arange(q.shape[-2], device=q.device)
    begin_B11 = torch.zeros((), device=q.device) if starts_B is None else starts_B[:, None, None]
    itself_LJ = place_L[:, None] == place_L
    back_LJ = place_L[:, None] - place_L
    near_LJ = torch.isin(back_LJ, torch.tensor(distances, device=q.device))
    mask_LJ = (back_LJ >= 0) & (near_LJ | (place_L[:, None] < dense_rows))
    seen_BLJ = mask_LJ & (place_L >= begin_B11) | itself_LJ
    weights_BHLJ = scores_BHLJ.masked_fill(~seen_BLJ.unsqueeze(-3), -math.inf).softmax(-1)
    weights_BHLJ = weights_BHLJ.masked_fill((place_L[:, None] < begin_B11).unsqueeze(-3), 0)
    if seed is not None:
        distance_LJ = back_LJ.clamp(min=0)
        heads = (q.shape[0], q.shape[1])
        weights_BHLJ = weights_BHLJ * factors(seed, heads, place_L[:, None], distance_LJ, dropout).to(weights_BHLJ)
    return (weights_BHLJ @ v.to(weights_BHLJ.dtype)).to(v.dtype)


def with_dense_rows(rows: Rows) -> Rows:
    """Return a function of all rows, with `dense_rows` instead of `first_row`: these rows see their whole past."""

    def whole(q: Tensor, k: Tensor, v: Tensor, distances: Sequence[int], dense_rows: int, *how: Any) -> Tensor:
        first = [x[:, :, :dense_rows] for x in (q, k, v)]
        parts = [rows(*first, range(dense_rows), 0, *how)] if dense_rows else []
        if dense_rows < q.shape[2]:
            parts.append(rows(q, k, v, distances, dense_rows, *how))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    return whole


def _rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distances: Sequence[int],
    first_row: int,
    dropout: float,
    seed: Tensor | None,
    starts_B: Tensor | None,
) -> Tensor:
    """Return the rows from `first_row` on, (B, H, R, E)."""
    weights_MBHR = _weights(q, k, distances, first_row, starts_B)
    if seed is not None:
        rows_R = torch.arange(first_row, q.shape[-2], device=q.device)
        steps_M1 = torch.tensor(list(distances), device=q.device)[:, None]
        kept_BHMR = factors(seed, (q.shape[0], q.shape[1]), rows_R, steps_M1, dropout)
        weights_MBHR = weights_MBHR * kept_BHMR.movedim(2, 0).to(weights_MBHR)
    padded_v = _pad(v, distances).to(weights_MBHR.dtype)
    out_BHRE = torch.zeros((), dtype=weights_MBHR.dtype, device=v.device)
    for weights_BHR, s in zip(weights_MBHR, distances, strict=True):
        out_BHRE = out_BHRE + weights_BHR[..., None] * _shift(padded_v, s, distances, first_row, q.shape[-2])
    return out_BHRE.to(v.dtype)


shifted = with_dense_rows(_rows)


def pattern_weights(q: Tensor, k: Tensor, distances: Sequence[int], starts_B: Tensor | None) -> Tensor:
    """Return (B, H, L, M): the weight of row l on cell l - distances[m], 0 before the start."""
    return _weights(q, k, distances, 0, starts_B).movedim(0, -1)


def _weights(q: Tensor, k: Tensor, distances: Sequence[int], first_row: int, starts_B: Tensor | None) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    q_BHRD = q[:, :, first_row:].to(wide) / math.sqrt(q.shape[-1])
    padded_k = _pad(k, distances).to(wide)
    length = q.shape[-2]
    scores = [(q_BHRD * _shift(padded_k, s, distances, first_row, length)).sum(-1) for s in distances]
    rows_R = torch.arange(first_row, length, device=q.device)
    cell_MR = rows_R - torch.tensor(list(distances), device=q.device)[:, None]
    if starts_B is None:
        return torch.stack(scores).masked_fill((cell_MR < 0)[:, None, None], -math.inf).softmax(0)
    # A row of padding attends to itself, so that its softmax is finite; its weights become 0 afterwards.
    hidden_MBR = (cell_MR[:, None] < starts_B[:, None]) & (cell_MR != rows_R)[:, None]
    weights_MBHR = torch.stack(scores).masked_fill(hidden_MBR[:, :, None], -math.inf).softmax(0)
    return weights_MBHR.masked_fill((rows_R < starts_B[:, None])[:, None], 0)


def _pad(x: Tensor, distances: Sequence[int]) -> Tensor:
    return pad(x, (0, 0, distances[-1], 0))


def _shift(padded: Tensor, s: int, distances: Sequence[int], first_row: int, length: int) -> Tensor:
    return padded[:, :, distances[-1] - s + first_row : distances[-1] - s + length]


def shifted_step(
    q: Tensor,
    history: tuple[Tensor, Tensor],
    steps: tuple[Tensor, Tensor],
    cells: tuple[Sequence[int], Sequence[int]],
    starts_N: Tensor | None,
) -> Tensor:
    """Compute one position of every path, (N, P, H, E), from history and steps as laid out by `StepCache`.

    `cells`: those of the history and those of the steps. Runs on any device; the oracle of the native kernel.
    """
    (history_k, history_v), (steps_k, steps_v), (old, new) = history, steps, cells
    q_NHPD = q.transpose(1, 2) / math.sqrt(q.shape[-1])

    old_k_NHMD = take(history_k, 2, old)
    new_k_NHPMD = take(steps_k, 3, new).transpose(1, 2)
    old_v_NHME = take(history_v, 2, old)
    old_scores_NHPM, seen_N11M = q_NHPD @ old_k_NHMD.mT, None
    if starts_N is not None:
        seen_N11M = real(old, starts_N)
        old_scores_NHPM = old_scores_NHPM.masked_fill(~seen_N11M, -math.inf)
        old_v_NHME = old_v_NHME.masked_fill(~seen_N11M.mT, 0)
    scores_NHPM = torch.cat([old_scores_NHPM, (new_k_NHPMD @ q_NHPD[..., None])[..., 0]], dim=-1)
    weights_NHPM = scores_NHPM.softmax(-1)
    if seen_N11M is not None and not new:
        # A position of padding attends to nothing.
        weights_NHPM = weights_NHPM.masked_fill(~seen_N11M.any(-1, keepdim=True), 0)
    old_w_NHPM, new_w_NHPM = weights_NHPM.tensor_split([len(old)], dim=-1)

    new_v_NHPME = take(steps_v, 3, new).transpose(1, 2)
    out_NHPE: Tensor = old_w_NHPM @ old_v_NHME + (new_w_NHPM[..., None, :] @ new_v_NHPME)[..., 0, :]
    return out_NHPE.transpose(1, 2)


def real(cells: Sequence[int], starts_N: Tensor) -> Tensor:
    """Return (N, 1, 1, M): True for cells that are not padding."""
    cells_M = torch.tensor(cells, dtype=torch.int64, device=starts_N.device)
    return (cells_M >= starts_N[:, None])[:, None, None]


def take(x: Tensor, dim: int, cells: Sequence[int]) -> Tensor:
    """Return these cells of x; a view if they are contiguous."""
    if cells and cells[-1] - cells[0] == len(cells) - 1:
        return x.narrow(dim, cells[0], len(cells))
    return x.index_select(dim, torch.tensor(cells, dtype=torch.int64, device=x.device))
