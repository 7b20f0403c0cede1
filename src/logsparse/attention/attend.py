"""q, k, v, pattern -> attention over the pattern's cells: one function, and one table of backends behind it.

`auto` takes the first row of `TABLE` that serves the call. To add a backend, write its file and add one row.

    out = attend(q, k, v, logsparse())                    # (B, H, L, E); autograd and torch.compile work
    out = attend(q, k, v, logsparse(), starts=starts_B)   # rows and keys before each start are padding

| backend | implementation | chosen by `auto` |
|---|---|---|
| native | the C++ kernel: time O(L * M), memory O(L), any strides | on a CPU, if it was built |
| triton | Triton kernels: the same on a GPU | on a GPU, for float32, float16 and bfloat16, if triton is installed |
| sdpa | `torch.nn.functional.scaled_dot_product_attention` | full pattern without dropout and padding, without native |
| shifted | plain torch, memory O(L * M) | otherwise |
| dense | an L x L mask: the oracle of the tests | never |

All backends return the same numbers for finite inputs, with dropout too: its mask depends on seed and cell only.
NaNs are not isolated between rows that see their whole past, nor under triton: they spread as 0 * NaN does. Padding is
never read, NaN or not: it has weight 0, and its own rows are 0. The result has the type of q, autocast or not. The
native kernel keeps its log-sum-exp in the type of q: float32 gradients lose digits if scores exceed 1e4.
The Triton kernels have run in an interpreter and compile for sm_80 and sm_90, but have not run on a GPU yet;
`benchmarks/gpu.py` measures their speed. `torch.compile(fullgraph=True)` supports dropout from the global generator
only.

`attend_step` is one position of many sample paths that continue one series, M cells read per step, not L. Keys and
values of the history are stored once per series; only the steps after it differ from path to path:

    cache = StepCache.start(history_k, history_v, paths=200, steps=24)   # starts=: where each history begins
    cache.append(k, v)                                      # this step's keys and values of every path
    out = attend_step(q, cache, pattern, cache.length - 1)  # the last row of attend over the path
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from logsparse.attention.native import TYPES, available, has_tangent, inside_grad, native, native_step
from logsparse.attention.pattern import Pattern
from logsparse.attention.plain import (
    check_attention,
    check_pattern,
    check_starts,
    check_tensor,
    dense,
    draw_seed,
    real,
    shifted,
    shifted_step,
    take,
    with_all_heads,
    with_dense_rows,
    without_padding,
)
from logsparse.attention.triton import WIDEST, triton_attend, unserved
from logsparse.errors import ConfigError, DataError, whole

# B batch, H heads, L length, M distances, D channels of q and k, E channels of v

# Numbers in two of the widest vectors that any build of the kernel uses.
_LANES = 32

_log = logging.getLogger(__name__)
_reported: set[str] = set()

Pair = tuple[Tensor, Tensor]
Cells = tuple[Sequence[int], Sequence[int]]
Step = Callable[[Tensor, Pair, Pair, Cells, Tensor | None], Tensor]


@dataclass(frozen=True)
class Call:
    """The inputs of one attention: the first `dense_rows` rows see their whole past, the others `distances`."""

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
        """True if every row sees its whole past."""
        return self.dense_rows == self.q.shape[2]


@dataclass(frozen=True)
class Backend:
    """A row of the table: which calls it serves, and its functions. None means no restriction."""

    name: str
    attend: Callable[[Call], Tensor]
    rule: str = "This backend does not serve every call."
    """First sentence of the error if it is asked for by name and does not serve the call."""
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    full_only: bool = False
    """True if it serves the full pattern only, without dropout and padding."""
    is_plain: bool = True
    """True if it is made of torch's functions, and so supports forward-mode differentiation and torch.func.grad."""
    automatic_on: tuple[str, ...] | None = None
    """Devices on which `auto` may choose it."""
    missing: Callable[[Tensor, Tensor], str | None] = lambda q, v: None  # noqa: ARG005
    """Returns why it cannot take this q and v, given that device and type fit; None if it can."""
    step: Step | None = None
    """The function of `attend_step`; None if it has none."""
    step_dtypes: tuple[torch.dtype, ...] | None = None
    """Types that the step serves; None: the same as `dtypes`."""

    def unserved(self, call: Call) -> str | None:
        """Return why it does not serve this call; None if it does."""
        if self.devices is not None and call.q.device.type not in self.devices:
            return str(call.q.device)
        if self.dtypes is not None and call.q.dtype not in self.dtypes:
            return str(call.q.dtype)
        if self.full_only and (not call.is_full or call.dropout or call.starts is not None):
            return "another pattern" if not call.is_full else f"dropout={call.dropout}" if call.dropout else "starts"
        if not self.is_plain and has_tangent(call.q, call.k, call.v):
            return "forward-mode differentiation"
        if not self.is_plain and inside_grad():
            return "torch.func.grad"
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
        rule="Backend native runs on a CPU, where it was built, forward and backward.",
        devices=("cpu",),
        dtypes=tuple(TYPES),
        is_plain=False,
        missing=lambda q, v: None if available() else "an install without the kernel",  # noqa: ARG005
        step=native_step,
        step_dtypes=(torch.float32, torch.float64),
    ),
    Backend(
        "sdpa",
        lambda call: scaled_dot_product_attention(call.q, call.k, call.v, is_causal=True),
        rule="Backend sdpa serves the full pattern without dropout or padding only.",
        full_only=True,
    ),
    Backend(
        "triton",
        _over_cells(with_dense_rows(triton_attend), sees_padding=False),
        rule=f"Backend triton serves float32, float16 and bfloat16 of at most {WIDEST} channels on a GPU.",
        is_plain=False,
        automatic_on=("cuda",),  # on a CPU it is interpreted, for tests
        missing=unserved,
    ),
    Backend("shifted", _over_cells(shifted, sees_padding=True), step=shifted_step),
    Backend("dense", _over_cells(dense, sees_padding=True), automatic_on=()),
)
NAMES = ("auto", *(backend.name for backend in TABLE))


def choose(name: str, call: Call) -> Backend:
    """Return the backend of this name, or, for `auto`, the first of the table that serves the call."""
    if name == "auto":
        device = call.q.device.type
        allowed = [row for row in TABLE if row.automatic_on is None or device in row.automatic_on]
        _report(call)
        return next(row for row in allowed if row.unserved(call) is None)
    chosen = _BY_NAME[name]
    reason = chosen.unserved(call)
    if reason is not None:
        raise ConfigError(chosen.rule, got=reason, hint="use backend='auto'.")
    return chosen


def choose_step(q: Tensor) -> Step:
    """Return the first one-position function of the table that serves q."""
    for backend in TABLE:
        dtypes = backend.step_dtypes or backend.dtypes
        fits = (backend.devices is None or q.device.type in backend.devices) and (dtypes is None or q.dtype in dtypes)
        if backend.step is not None and fits and backend.missing(q, q) is None:
            return backend.step
    raise AssertionError("shifted serves everything")


_BY_NAME = {row.name: row for row in TABLE}


def _report(call: Call) -> None:
    """Log once which backend serves a sparse pattern on a GPU, and why."""
    # Under torch.compile a log line would break the graph.
    if call.q.device.type != "cuda" or call.is_full or torch.compiler.is_compiling():
        return
    reason = _BY_NAME["triton"].unserved(call)
    if str(reason) in _reported:
        return
    _reported.add(str(reason))
    if reason is None:
        _log.info("Triton kernels serve attention on %s.", call.q.device)
    else:
        _log.warning("Plain torch serves attention on %s (slower, same results): %s.", call.q.device, reason)


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
    """Compute causal attention over the cells of a pattern, with scores scaled by 1 / sqrt(D).

    Gradients, `torch.compile` and tensors of any strides are supported. Time is O(L * M) for M distances.

    Parameters
    ----------
    q, k : Tensor
        Queries and keys, (B, H, L, D); float32, float64, bfloat16 or float16.
    v : Tensor
        Values, (B, H, L, E), of the same type and device. k and v may have fewer heads than q, if their number divides
        that of q: each then serves a group of neighbouring heads of q.
    pattern : Pattern
        Which cells each position attends to; see `logsparse.patterns`.
    backend : str, default "auto"
        "native", "triton", "sdpa", "shifted", "dense", or "auto" for the fastest that serves the call.
    dropout : float, default 0.0
        Share of the attention weights that are dropped, in [0, 1).
    generator : torch.Generator, optional
        Source of the dropout seed; torch's global generator by default.
    starts : Tensor, optional
        First real position per batch row, int64 (B,); everything before it is padding. Padding after the values needs
        no mask: no row attends to later ones.

    Returns
    -------
    Tensor
        (B, H, L, E), of the type of q; rows of padding are 0.

    Raises
    ------
    ConfigError
        If the backend is unknown or does not serve the call, or a setting is out of its range.
    DataError
        If shapes, types or devices of the tensors do not fit together.

    Examples
    --------
    >>> import torch
    >>> import logsparse as ls
    >>> q = k = v = torch.randn(2, 4, 512, 16)
    >>> ls.attend(q, k, v, ls.patterns.logsparse()).shape
    torch.Size([2, 4, 512, 16])
    """
    check_pattern(pattern)
    k, v = with_all_heads(q, k, v)
    check_attention(q, k, v)
    check_starts(starts, q)
    _check_settings(backend, dropout, generator)
    # torch.compile traces through a cache, and warns about it.
    cells_of = Pattern.cells_of if torch.compiler.is_compiling() else _cells_of
    # The cells follow from the length: to torch.export and torch.jit.trace it is a constant, the batch is not.
    distances, dense_rows = cells_of(pattern, int(q.shape[2]))
    call = Call(q, k, v, distances, dense_rows, dropout, None, starts)
    chosen = choose(backend, call)
    seed = draw_seed(generator, q.device) if dropout > 0 else None
    # Autocast would affect some backends and not others; meta tensors, which have a shape only, have none.
    with nullcontext() if q.is_meta else torch.autocast(q.device.type, enabled=False):
        return chosen.attend(replace(call, seed=seed))


@lru_cache(maxsize=1024)
def _cells_of(pattern: Pattern, length: int) -> tuple[tuple[int, ...], int]:
    """Return `pattern.cells_of(length)`, computed once per pattern and length."""
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


@dataclass
class StepCache:
    """Keys and values of N series with P paths each: positions 0 to T - 1 are history, T onwards each path's own."""

    history_k: Tensor
    """(N, H, T, D), channel-first in memory."""
    history_v: Tensor
    """(N, H, T, E)."""
    steps_k: Tensor
    """(N, P, H, S, D), filled up to `taken`."""
    steps_v: Tensor
    """(N, P, H, S, E)."""
    starts_N: Tensor | None
    """First real position of each history; everything before it is padding. None: no padding."""
    taken: int = 0

    @staticmethod
    def start(
        history_k: Tensor, history_v: Tensor, *, paths: int, steps: int, starts: Tensor | None = None
    ) -> StepCache:
        """Return a cache with room for `steps` steps of `paths` paths."""
        check_tensor("history_k", history_k)
        check_tensor("history_v", history_v)
        if (
            (history_k.ndim, history_v.ndim) != (4, 4)
            or history_k.shape[:3] != history_v.shape[:3]
            or history_k.dtype != history_v.dtype
            or history_k.device != history_v.device
        ):
            raise DataError(
                "The history must be keys and values of (series, heads, length, channels), of one type on one device.",
                got=f"{tuple(history_k.shape)} {history_k.dtype} and {tuple(history_v.shape)} {history_v.dtype}",
                hint="pass the k and v of attend.",
            )
        check_starts(starts, history_k)
        width, value_width = history_k.shape[-1], history_v.shape[-1]
        paths, steps = (whole(name, n, hint="1 or more.") for name, n in (("paths", paths), ("steps", steps)))
        batch = (*history_k.shape[:2], paths)
        # The kernel reads keys along positions, values along channels, and paths in order.
        own_k = _dense(history_k, (*batch, width, steps)).mT.transpose(1, 2)
        own_v = _dense(history_v, (*batch, steps, value_width)).transpose(1, 2)
        shared_k = _dense(history_k, history_k.mT.shape).copy_(history_k.mT).mT
        shared_v = _dense(history_v, history_v.shape).copy_(history_v)
        return StepCache(shared_k, shared_v, own_k, own_v, None if starts is None else starts.contiguous())

    @property
    def length(self) -> int:
        """Number of positions stored so far."""
        return self.history_k.shape[2] + self.taken

    def append(self, k: Tensor, v: Tensor) -> None:
        """Store one more step: k (N, P, H, D), v (N, P, H, E)."""
        room = self.steps_k.shape[3]
        if self.taken == room:
            raise DataError(
                f"This cache has room for {room} steps only.",
                got="one more",
                hint="pass StepCache.start the number of steps to decode.",
            )
        for name, new, steps in (("k", k, self.steps_k), ("v", v, self.steps_v)):
            _check_step(name, new, steps)
        self.steps_k[:, :, :, self.taken] = k
        self.steps_v[:, :, :, self.taken] = v
        self.taken += 1


def attend_step(q: Tensor, cache: StepCache, pattern: Pattern, position: int) -> Tensor:
    """Compute attention of queries (N, P, H, D) at `position` -> (N, P, H, E); the cache must hold that position."""
    check_pattern(pattern)
    if not isinstance(cache, StepCache):
        raise ConfigError("cache must be a StepCache.", got=type(cache).__name__, hint="StepCache.start makes one.")
    _check_step("q", q, cache.steps_k)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, cache.history_k, cache.history_v, cache.steps_k)):
        raise ConfigError(
            "attend_step computes no gradients.",
            got="tensors that require them",
            hint="decode under torch.no_grad(); to train, use attend over whole sequences.",
        )
    if whole("position", position, least=0, hint="positions count from 0.") >= cache.length:
        raise DataError(
            "position must be one that the cache holds.",
            got=f"{position} with {cache.length} positions",
            hint="append this step's keys and values first.",
        )
    old, new = step_cells(pattern, position, cache.history_k.shape[2])
    history, steps = (cache.history_k, cache.history_v), (cache.steps_k, cache.steps_v)
    return choose_step(q)(q, history, steps, (old, new), cache.starts_N)


def attend_last(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, starts_N: Tensor | None = None) -> Tensor:
    """Return only the last row of `attend`, (N, H, 1, E); it must not be padding."""
    cells, _ = step_cells(pattern, q.shape[2] - 1, q.shape[2])
    scores_NH1M = q[:, :, -1:] / math.sqrt(q.shape[-1]) @ take(k, 2, cells).mT
    if starts_N is not None:
        scores_NH1M = scores_NH1M.masked_fill(~real(cells, starts_N), -math.inf)
    return scores_NH1M.softmax(-1) @ take(v, 2, cells)


@lru_cache(maxsize=1024)
def step_cells(pattern: Pattern, position: int, history: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the cells that this position attends to, oldest first: those of the history, those of the steps."""
    cells = pattern.row(position)
    return tuple(c for c in cells if c < history), tuple(c - history for c in cells if c >= history)


def _dense(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return memory of this shape that the kernel may read a pair of vectors beyond its end."""
    size = math.prod(shape)
    try:
        return like.new_empty(size + _LANES)[:size].view(shape)
    except (RuntimeError, TypeError) as error:  # out of memory; size out of range
        raise ConfigError(
            "A cache must fit into memory.",
            got=f"{size} numbers for {' x '.join(map(str, shape))}",
            hint="decode fewer series, paths or steps at a time.",
        ) from error


def _check_step(name: str, new: Tensor, steps: Tensor) -> None:
    """Raise DataError unless the shape is exact: broadcasting would silently share one path's values with others."""
    check_tensor(name, new)
    wanted = (*steps.shape[:3], steps.shape[4])
    if new.shape != wanted or new.dtype != steps.dtype or new.device != steps.device:
        needed = f"where {wanted} {steps.dtype} on {steps.device} is needed"
        raise DataError(
            f"{name} of one step must be (series, paths, heads, channels), as the cache holds them.",
            got=f"{tuple(new.shape)} {new.dtype} on {new.device}, {needed}",
            hint="one row per series and path.",
        )
