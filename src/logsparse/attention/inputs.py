"""Tensors -> the same, validated before a backend reads them; and the rule of attention dropout.

The rule, in 32-bit arithmetic that wraps around, with mix(x) = x ^= x >> 16, x *= 0x7FEB352D, x ^= x >> 15,
x *= 0x846CA68B, x ^= x >> 16, and G = 0x9E3779B9:

    key  = mix(mix(low half of seed) ^ high half of seed)
    key  = mix(key + batch * G);  key = mix(key + head * G)
    cell = mix(mix(position ^ key) + distance * G)

A cell is kept, multiplied by 1 / (1 - rate), if cell >> 8 >= round(rate * 2^24); otherwise it becomes 0. Position is
the query's, distance = query - key. No mask is stored: every backend and both passes compute the same one.
`native/dropout.h` implements the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from logsparse.attention.pattern import Pattern
from logsparse.errors import ConfigError, DataError

# B batch, H heads, L length, C channels, D channels of q and k, E channels of v

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
    return x_BLC.masked_fill(hidden_BL.reshape(len(x_BLC), *(1,) * (x_BLC.ndim - 3), -1, 1), 0)


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
