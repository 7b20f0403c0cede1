"""q, k, v, pattern -> attention over the pattern's cells: one function, and one table of backends behind it.

`auto` takes the first row that serves. A new backend is its file and one row here.

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

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from logsparse.attention.inputs import check_attention, check_pattern, check_starts, draw_seed, without_padding
from logsparse.attention.native import TYPES, available, has_tangent, native, native_step
from logsparse.attention.pattern import Pattern
from logsparse.attention.plain import dense, pattern_weights, shifted, shifted_step, with_dense_rows
from logsparse.attention.triton import WIDEST, triton_attend, unserved
from logsparse.errors import ConfigError

# B batch, H heads, L length, D channels of q and k, E channels of v


_log = logging.getLogger(__name__)
_told: set[str] = set()

Pair = tuple[Tensor, Tensor]
Cells = tuple[Sequence[int], Sequence[int]]
Step = Callable[[Tensor, Pair, Pair, Cells, Tensor | None], Tensor]


@dataclass(frozen=True)
class Call:
    """One attention: `dense_rows` first rows see their whole past, the others the cells at `distances`."""

    q: Tensor
    k: Tensor
    v: Tensor
    distances: tuple[int, ...]
    dense_rows: int
    dropout: float = 0.0
    seed: Tensor | None = None
    starts: Tensor | None = None

    @property
    def is_full(self) -> bool:
        """Whether every row sees its whole past."""
        return self.dense_rows == self.q.shape[2]


@dataclass(frozen=True)
class Backend:
    """What it serves, and how. None stands for everything."""

    name: str
    attend: Callable[[Call], Tensor]
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    full_only: bool = False
    """Whether it serves the full pattern only, without dropout and padding."""
    forward_mode: bool = True
    """Whether forward-mode differentiation goes through it."""
    automatic_on: tuple[str, ...] | None = None
    """Devices on which `auto` may take it."""
    missing: Callable[[Tensor, Tensor], str | None] = lambda q, v: None  # noqa: ARG005
    """Why it cannot take a q and v of its devices and types; None if it can."""
    step: Step | None = None
    step_dtypes: tuple[torch.dtype, ...] | None = None

    def unserved(self, call: Call) -> str | None:
        """Why it does not serve this call; None if it does."""
        if self.devices is not None and call.q.device.type not in self.devices:
            return str(call.q.device)
        if self.dtypes is not None and call.q.dtype not in self.dtypes:
            return str(call.q.dtype)
        if self.full_only and (not call.is_full or call.dropout or call.starts is not None):
            return "another pattern" if not call.is_full else f"dropout={call.dropout}" if call.dropout else "starts"
        if not self.forward_mode and has_tangent(call.q, call.k, call.v):
            return "forward-mode differentiation"
        return self.missing(call.q, call.v)


def _over_cells(function: Callable[..., Tensor], *, sees_padding: bool) -> Callable[[Call], Tensor]:
    def run(call: Call) -> Tensor:
        qkv = (call.q, call.k, call.v)
        if sees_padding:
            qkv = tuple(without_padding(x, call.starts) for x in qkv)  # type: ignore[assignment]
        return function(*qkv, call.distances, call.dense_rows, call.dropout, call.seed, call.starts)

    return run


TABLE = (
    Backend(
        "native",
        _over_cells(native, sees_padding=False),
        devices=("cpu",),
        dtypes=tuple(TYPES),
        forward_mode=False,
        missing=lambda q, v: None if available() else "an install without the kernel",  # noqa: ARG005
        step=native_step,
        step_dtypes=(torch.float32, torch.float64),
    ),
    Backend(
        "sdpa",
        lambda call: scaled_dot_product_attention(call.q, call.k, call.v, is_causal=True),
        full_only=True,
    ),
    Backend(
        "triton",
        _over_cells(with_dense_rows(triton_attend), sees_padding=False),
        forward_mode=False,
        automatic_on=("cuda",),  # on a CPU it is interpreted, for tests
        missing=unserved,
    ),
    Backend("shifted", _over_cells(shifted, sees_padding=True), step=shifted_step),
    Backend("dense", _over_cells(dense, sees_padding=True), automatic_on=()),
)
NAMES = ("auto", *(backend.name for backend in TABLE))


def choose(name: str, call: Call) -> Backend:
    """The backend of this name, or, for `auto`, the first of the table that serves the call."""
    if name == "auto":
        device = call.q.device.type
        allowed = [row for row in TABLE if row.automatic_on is None or device in row.automatic_on]
        _tell(call)
        return next(row for row in allowed if row.unserved(call) is None)
    found = _BY_NAME[name]
    reason = found.unserved(call)
    if reason is not None:
        raise ConfigError(_RULES[name], got=reason, hint="use backend='auto'.")
    return found


def choose_step(q: Tensor) -> Step:
    """The first one-position function of the table that serves q."""
    for backend in TABLE:
        right = (backend.devices is None or q.device.type in backend.devices) and (
            backend.step_dtypes is None or q.dtype in backend.step_dtypes
        )
        if backend.step is not None and right and backend.missing(q, q) is None:
            return backend.step
    raise AssertionError("shifted serves everything")


_BY_NAME = {row.name: row for row in TABLE}
_RULES = {
    "sdpa": "Backend sdpa serves the full pattern without dropout or padding only.",
    "native": "Backend native runs on a CPU, where it was built, forward and backward.",
    "triton": f"Backend triton serves float32, float16 and bfloat16 of at most {WIDEST} channels on a GPU.",
}


def _tell(call: Call) -> None:
    """One log line per device: which backend serves a sparse pattern there."""
    # Under torch.compile a log line would break the graph.
    if call.q.device.type != "cuda" or call.is_full or torch.compiler.is_compiling():
        return
    reason = _BY_NAME["triton"].unserved(call)
    if str(reason) in _told:
        return
    _told.add(str(reason))
    if reason is None:
        _log.info("Triton kernels serve attention on %s.", call.q.device)
    else:
        _log.warning("Plain torch serves attention on %s (slower, same results): %s.", call.q.device, reason)


# B batch, H heads, L length, D channels of q and k, E channels of v


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
