"""q, k, v, pattern -> attention over the pattern's cells: the one front of every backend.

    out = attend(q, k, v, logsparse())                    # (B, H, L, E); autograd and torch.compile work
    out = attend(q, k, v, logsparse(), starts=starts_B)   # rows and keys before each start are padding

| backend | what it does | when `auto` takes it |
|---|---|---|
| native | the C++ kernel: time O(L * M), memory O(L), any strides | on a CPU, where it was built |
| triton | Triton kernels: the same on a GPU | on a GPU, for float32, float16 and bfloat16, where triton is installed |
| sdpa | torch's own attention | full pattern, no dropout, no padding; not where native reads channel-first memory |
| shifted | plain torch, memory O(L * M) | otherwise |
| dense | an L x L mask: the oracle of the tests | never |

All of them give the same numbers for finite inputs, with dropout too: its mask depends on the seed and the cell only.
NaNs are not isolated between rows: where SDPA or triton serves, they spread as 0 * NaN does. Padding is never seen,
NaN or not: no weight goes to it, and its own rows are 0. The result has the type of q, autocast or not. The kernel
keeps its log-sum-exp in the type of q: float32 gradients lose digits where scores pass 1e4.
The Triton kernels were run in an interpreter and compiled for sm_80 and sm_90, but not yet run on a GPU: no speed is
claimed for them, and `benchmarks/gpu.py` measures it.
`torch.compile(fullgraph=True)` takes dropout from the global generator only.
"""

# B batch, H heads, L length, D channels of q and k, E channels of v

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import scaled_dot_product_attention

from logsparse.attention.dense import dense
from logsparse.attention.dropout import draw_seed
from logsparse.attention.inputs import check_attention, check_pattern, check_starts
from logsparse.attention.native import TYPES, available, native
from logsparse.attention.pattern import Pattern
from logsparse.attention.shifted import pattern_weights, shifted
from logsparse.attention.triton import check_served, serves, triton_attend
from logsparse.errors import ConfigError

BACKENDS = ("auto", "dense", "sdpa", "shifted", "native", "triton")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    starts: Tensor | None = None,
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E) in any strides -> (B, H, L, E); scores are scaled by 1 / sqrt(D).

    `starts`, int64 (B,): the first real position per batch row; what stands before it is padding.
    """
    check_pattern(pattern)
    check_attention(q, k, v)
    check_starts(starts, q)
    _check_settings(backend, dropout, generator)
    length = q.shape[2]
    distances = pattern.distances(length)
    is_full = len(distances) == length or pattern.dense_rows >= length
    forward_mode = _has_tangent(q, k, v)
    plain = is_full and dropout == 0 and starts is None
    chosen = _choose(q, v, plain, forward_mode) if backend == "auto" else backend
    if chosen == "sdpa" and not plain:
        raise ConfigError(
            "Backend sdpa serves the full pattern without dropout or padding only.",
            got="another pattern" if not is_full else f"dropout={dropout}" if dropout else "starts",
            hint="use backend='auto'.",
        )
    if chosen == "native":
        _check_native(q, forward_mode)
    if chosen == "triton":
        check_served(q, v)
    seed = draw_seed(generator, q.device) if dropout > 0 else None
    # Autocast would reach some backends and not others.
    with torch.autocast(q.device.type, enabled=False):
        return _attend((q, k, v), pattern, chosen, dropout, seed, starts)


def _attend(
    qkv: tuple[Tensor, Tensor, Tensor],
    pattern: Pattern,
    chosen: str,
    dropout: float,
    seed: Tensor | None,
    starts: Tensor | None,
) -> Tensor:
    q, k, v = qkv if starts is None or chosen in {"native", "triton"} else (_without_padding(x, starts) for x in qkv)
    length = q.shape[2]
    distances = pattern.distances(length)
    if chosen == "sdpa":
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if chosen == "dense":
        return dense(q, k, v, torch.from_numpy(pattern.mask(length)).to(q.device), dropout, seed, starts)
    over_cells = {"native": native, "triton": triton_attend}.get(chosen, shifted)
    corner = 0 if len(distances) == length else min(pattern.dense_rows, length)
    if corner == 0:
        return over_cells(q, k, v, distances, 0, dropout, seed, starts)
    first_q, first_k, first_v = (x[:, :, :corner] for x in (q, k, v))
    if seed is None and starts is None and not (chosen == "native" and _channel_first(q)):
        head = scaled_dot_product_attention(first_q, first_k, first_v, is_causal=True)
    else:
        head = over_cells(first_q, first_k, first_v, tuple(range(corner)), 0, dropout, seed, starts)
    if corner == length:
        return head
    return torch.cat([head, over_cells(q, k, v, distances, corner, dropout, seed, starts)], dim=2)


def attention_weights(
    q: Tensor, k: Tensor, pattern: Pattern, starts: Tensor | None = None
) -> tuple[Tensor, tuple[int, ...]]:
    """Weights over the pattern's cells, (B, H, L, M), and the M distances; dense first rows are not shown."""
    check_pattern(pattern)
    check_attention(q, k, k)
    check_starts(starts, q)
    distances = pattern.distances(q.shape[2])
    if starts is not None:
        q, k = _without_padding(q, starts), _without_padding(k, starts)
    return pattern_weights(q, k, distances, starts), distances


def _without_padding(x_BHLD: Tensor, starts_B: Tensor) -> Tensor:
    """Zeros where padding stands: a weight of 0 does not hide a NaN."""
    where_L = torch.arange(x_BHLD.shape[2], device=x_BHLD.device)
    return x_BHLD.masked_fill((where_L < starts_B[:, None])[:, None, :, None], 0)


def _choose(q: Tensor, v: Tensor, plain: bool, forward_mode: bool) -> str:
    kernel = q.device.type == "cpu" and q.dtype in TYPES and not forward_mode and available()
    if plain and not (kernel and _channel_first(q)):
        return "sdpa"
    if q.device.type == "cuda" and not forward_mode and serves(q, v):
        return "triton"
    return "native" if kernel else "shifted"


def _channel_first(q: Tensor) -> bool:
    """Whether positions are neighbours in memory, as our layer has them: SDPA reads that several times slower."""
    return q.stride(-1) != 1 and q.stride(-2) == 1


def _has_tangent(*tensors: Tensor) -> bool:
    """Whether forward-mode differentiation is under way, which the kernel has no formula for."""
    inside: int = forward_ad._current_level  # noqa: SLF001 - there is no public word for it
    return inside >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)  # type: ignore[no-untyped-call]


def _check_native(q: Tensor, forward_mode: bool) -> None:
    reason = (
        str(q.device)
        if q.device.type != "cpu"
        else "forward-mode differentiation"
        if forward_mode
        else str(q.dtype)
        if q.dtype not in TYPES
        else "an install without the kernel"
        if not available()
        else ""
    )
    if reason:
        raise ConfigError(
            "Backend native runs on a CPU, where it was built, forward and backward.",
            got=reason,
            hint="use backend='shifted' or 'auto' there.",
        )


def _check_settings(backend: str, dropout: float, generator: object) -> None:
    if backend not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}.", got=repr(backend), hint="use 'auto'.")
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ConfigError("dropout must be at least 0 and below 1.", got=repr(dropout), hint="0.1 is the paper's.")
    if not isinstance(generator, torch.Generator | None):
        raise ConfigError(
            "generator must be a torch.Generator.", got=repr(generator), hint="torch.Generator().manual_seed(0)."
        )
