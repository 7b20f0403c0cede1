"""The table of backends: what each one serves, and its two functions; `attend` and `attend_step` both read it.

`auto` takes the first row that serves. A new backend is its file and one row here.
"""

# B batch, H heads, L length, D channels of q and k, E channels of v

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from logsparse.attention.dense import dense
from logsparse.attention.inputs import without_padding
from logsparse.attention.native import TYPES, available, has_tangent, native, native_step
from logsparse.attention.shifted import shifted, shifted_step, with_dense_rows
from logsparse.attention.triton import WIDEST, triton_attend, unserved
from logsparse.errors import ConfigError

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
