"""q, k, v, pattern -> attention over the pattern's cells: the one front of every backend.

    out = attend(q, k, v, logsparse())                    # (B, H, L, E); autograd and torch.compile work

| backend | what it does | when `auto` takes it |
|---|---|---|
| native | the C++ kernel: time O(L * M), memory O(L), any strides | on a CPU, where it was built |
| sdpa | torch's own attention | full pattern without dropout |
| shifted | plain torch, memory O(L * M) | otherwise |
| dense | an L x L mask: the oracle of the tests | never |

All of them give the same numbers, with dropout too: its mask depends on the seed and the cell only.
"""

# B batch, H heads, L length, D channels of q and k, E channels of v

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from logsparse.attention.dense import dense
from logsparse.attention.dropout import draw_seed
from logsparse.attention.native import available, native
from logsparse.attention.pattern import Pattern
from logsparse.attention.shifted import pattern_weights, shifted
from logsparse.errors import ConfigError, DataError

BACKENDS = ("auto", "dense", "sdpa", "shifted", "native")
_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    *,
    backend: str = "auto",
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """q, k (B, H, L, D), v (B, H, L, E) in any strides -> (B, H, L, E); scores are scaled by 1 / sqrt(D)."""
    _check(q, k, v, backend, dropout)
    length = q.shape[2]
    distances = pattern.distances(length)
    is_full = len(distances) == length or pattern.dense_rows >= length
    chosen = _choose(q, is_full, dropout) if backend == "auto" else backend
    if chosen == "sdpa":
        _check_sdpa(is_full, dropout)
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    if chosen == "native" and not available():
        chosen = "shifted"
    seed = draw_seed(generator) if dropout > 0 else None
    if chosen == "dense":
        return dense(q, k, v, torch.from_numpy(pattern.mask(length)).to(q.device), dropout, seed)
    over_cells = native if chosen == "native" else shifted
    corner = 0 if len(distances) == length else min(pattern.dense_rows, length)
    if corner == 0:
        return over_cells(q, k, v, distances, 0, dropout, seed)
    head = _corner(q[:, :, :corner], k[:, :, :corner], v[:, :, :corner], dropout, seed)
    if corner == length:
        return head
    return torch.cat([head, over_cells(q, k, v, distances, corner, dropout, seed)], dim=2)


def attention_weights(q: Tensor, k: Tensor, pattern: Pattern) -> tuple[Tensor, tuple[int, ...]]:
    """Weights over the pattern's cells, (B, H, L, M), and the M distances; dense first rows are not shown."""
    distances = pattern.distances(q.shape[2])
    return pattern_weights(q, k, distances), distances


def _corner(q: Tensor, k: Tensor, v: Tensor, dropout: float, seed: Tensor | None) -> Tensor:
    if seed is None:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    causal = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    return dense(q, k, v, causal, dropout, seed)


def _choose(q: Tensor, is_full: bool, dropout: float) -> str:
    if is_full and dropout == 0:
        return "sdpa"
    return "native" if q.device.type == "cpu" and available() else "shifted"


def _check_sdpa(is_full: bool, dropout: float) -> None:
    if not is_full or dropout > 0:
        raise ConfigError(
            "Backend sdpa serves the full pattern without dropout only.",
            got="another pattern" if not is_full else f"dropout={dropout}",
            hint="use backend='auto'.",
        )


def _check(q: Tensor, k: Tensor, v: Tensor, backend: str, dropout: float) -> None:
    if backend not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}.", got=repr(backend), hint="use 'auto'.")
    if not 0 <= dropout < 1:
        raise ConfigError("dropout must be at least 0 and below 1.", got=str(dropout), hint="0.1 is the paper's.")
    shapes = [tuple(x.shape) for x in (q, k, v)]
    if q.ndim != 4 or shapes[0] != shapes[1] or v.ndim != 4 or shapes[0][:3] != shapes[2][:3] or 0 in q.shape:
        raise DataError(
            "q and k must be (batch, heads, length, channels), v the same but for channels; none empty.",
            got=f"q {shapes[0]}, k {shapes[1]}, v {shapes[2]}",
            hint="(batch, length, width) becomes that by .unflatten(-1, (heads, -1)).transpose(1, 2).",
        )
    kinds = [(x.dtype, x.device) for x in (q, k, v)]
    if len(set(kinds)) > 1 or q.dtype not in _DTYPES:
        raise DataError(
            "q, k and v must share one device and one type: float32, float64 or bfloat16.",
            got=", ".join(f"{name} {dtype} on {device}" for name, (dtype, device) in zip("qkv", kinds, strict=True)),
            hint="convert them with .to(q).",
        )
    if backend == "native" and q.device.type != "cpu":
        raise ConfigError(
            "Backend native runs on a CPU.", got=str(q.device), hint="use backend='shifted' or 'auto' there."
        )
