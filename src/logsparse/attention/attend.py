"""q, k, v, pattern -> attention over the pattern's cells: the one front of every backend.

    out = attend(q, k, v, logsparse())                    # (B, H, L, E); autograd and torch.compile work
    out = attend(q, k, v, logsparse(), starts=starts_B)   # rows and keys before each start are padding

| backend | what it does | when `auto` takes it |
|---|---|---|
| native | the C++ kernel: time O(L * M), memory O(L), any strides | on a CPU, where it was built |
| triton | Triton kernels: the same on a GPU | on a GPU, for float32, float16 and bfloat16, where triton is installed |
| sdpa | torch's own attention | full pattern without dropout and padding, where native does not serve |
| shifted | plain torch, memory O(L * M) | otherwise |
| dense | an L x L mask: the oracle of the tests | never |

All of them give the same numbers for finite inputs, with dropout too: its mask depends on the seed and the cell only.
NaNs are not isolated between rows that see their whole past, nor where triton serves: they spread as 0 * NaN does.
Padding is never seen, NaN or not: no weight goes to it, and its own rows are 0. The result has the type of q, autocast
or not. The kernel keeps its log-sum-exp in the type of q: float32 gradients lose digits where scores pass 1e4.
The Triton kernels were run in an interpreter and compiled for sm_80 and sm_90, but not yet run on a GPU: no speed is
claimed for them, and `benchmarks/gpu.py` measures it.
`torch.compile(fullgraph=True)` takes dropout from the global generator only.
"""

# B batch, H heads, L length, D channels of q and k, E channels of v

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from logsparse.attention.backends import NAMES, Call, choose
from logsparse.attention.dropout import draw_seed
from logsparse.attention.inputs import check_attention, check_pattern, check_starts, without_padding
from logsparse.attention.pattern import Pattern
from logsparse.attention.shifted import pattern_weights
from logsparse.errors import ConfigError


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
    # The compiler traces through a cache, and warns of it.
    cells_of = Pattern.cells_of if torch.compiler.is_compiling() else _cells_of
    distances, dense_rows = cells_of(pattern, q.shape[2])
    call = Call(q, k, v, distances, dense_rows, dropout, None, starts)
    chosen = choose(backend, call)
    seed = draw_seed(generator, q.device) if dropout > 0 else None
    # Autocast would reach some backends and not others.
    with torch.autocast(q.device.type, enabled=False):
        return chosen.attend(replace(call, seed=seed))


def attention_weights(
    q: Tensor, k: Tensor, pattern: Pattern, starts: Tensor | None = None
) -> tuple[Tensor, tuple[int, ...]]:
    """Weights over the pattern's cells, (B, H, L, M), and the M distances; dense first rows are not shown."""
    check_pattern(pattern)
    check_attention(q, k, k)
    check_starts(starts, q)
    distances = pattern.distances(q.shape[2])
    if starts is not None:
        q, k = without_padding(q, starts), without_padding(k, starts)
    return pattern_weights(q, k, distances, starts), distances


@lru_cache(maxsize=1024)
def _cells_of(pattern: Pattern, length: int) -> tuple[tuple[int, ...], int]:
    """Computed once per pattern and length."""
    return pattern.cells_of(length)


def _check_settings(backend: str, dropout: float, generator: object) -> None:
    if backend not in NAMES:
        raise ConfigError(f"backend must be one of {', '.join(NAMES)}.", got=repr(backend), hint="use 'auto'.")
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ConfigError("dropout must be at least 0 and below 1.", got=repr(dropout), hint="0.1 is the paper's.")
    if not isinstance(generator, torch.Generator | None):
        raise ConfigError(
            "generator must be a torch.Generator.", got=repr(generator), hint="torch.Generator().manual_seed(0)."
        )
